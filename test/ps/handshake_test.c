/* handshake_test.c - how a worker comes to its servers, over real sockets; the
 * lanes are driven by the test. */
#define SUITE handshake
#include "lane_kit.h"
#include "test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ps/worker/handshake.h"
#include "runtime/store/job_signature.h"
#include "runtime/store/table.h"

enum { PEER_MS = 300 * TEST_SLOWNESS, N_SERVER = 3, RUN = 5 };

/* Servers of one lane each. */
typedef struct servers {
    fl_packet_pool *pool;
    fl_socket *socket[N_SERVER]; /* NULL: not started yet */
    fl_store *store[N_SERVER];
    fl_partition layout[N_SERVER];
    fl_bucket_map map;
    fl_ps_lane *lane[N_SERVER];
    fl_server_identity identity[N_SERVER];
    char *program;
    fl_address address[N_SERVER];
} servers;

typedef struct at_socket {
    servers *s;
    int i;
} at_socket;

static void send_packet(void *arg, const fl_peer *to, fl_packet *p)
{
    at_socket *at = arg;

    fl_socket_send(at->s->socket[at->i], to, p);
}

static void make_lane(servers *s, int i)
{
    static at_socket at[N_SERVER];
    static const char *const address[] = {"{\"inproc\":\"inproc://lane\"}"};
    fl_lane_options o = {.identity = &s->identity[i],
                         .server = i,
                         .n_lane = 1,
                         .n_stream = 1,
                         .sync = true,
                         .job = "job",
                         .mode = "ps-sync",
                         .address = address,
                         .connect_ms = 100 * PEER_MS,
                         .peer_ms = PEER_MS,
                         .step_ms = 100 * PEER_MS,
                         .most_open = 4000};

    s->identity[i] =
        (fl_server_identity){.nonce = (uint32_t)i + 1, .run = i == 0 ? RUN : 0};
    at[i] = (at_socket){s, i};
    s->store[i] = sim_store(sim_model_of(SIM_SGD), fl_table_make);
    CHECK_OK(fl_partition_make(&s->layout[i], s->store[i], N_SERVER));
    if (!s->program)
        s->program = fl_job_signature_text(s->layout[i].store);
    o.layout = &s->layout[i];
    o.map = &s->map;
    o.program = s->program;
    o.pool = s->pool;
    CHECK_OK(fl_lane_create(&s->lane[i], &o,
                            &(fl_lane_host){.arg = &at[i], .send = send_packet},
                            fl_now_ms()));
}

static void open_servers(servers *s)
{
    int n_lane[N_SERVER];

    memset(s, 0, sizeof *s);
    for (int i = 0; i < N_SERVER; i++)
        n_lane[i] = 1;
    CHECK_OK(fl_packet_pool_create(&s->pool, 1 << 20));
    fl_bucket_map_begin(&s->map, N_SERVER, n_lane);
    for (int i = 0; i < N_SERVER; i++) {
        snprintf(s->address[i], sizeof s->address[i], "inproc://hello-%d", i);
        make_lane(s, i);
    }
}

static void start(servers *s, int i)
{
    CHECK_OK(fl_socket_listen(&s->socket[i]));
    CHECK_OK(fl_socket_bind(s->socket[i], s->address[i], -1, NULL));
}

static void close_servers(servers *s)
{
    for (int i = 0; i < N_SERVER; i++) {
        fl_socket_close(s->socket[i], 0);
        fl_lane_destroy(s->lane[i]);
        fl_partition_done(&s->layout[i]);
        fl_store_destroy(s->store[i]);
    }
    fl_free(s->program);
    fl_packet_pool_destroy(s->pool);
    sim_models_close();
}

static void serve(servers *s)
{
    for (int i = 0; i < N_SERVER; i++) {
        fl_packet *p;
        fl_peer from;

        if (!s->socket[i])
            continue;
        CHECK_OK(fl_socket_wait(&s->socket[i], 1, NULL, 5));
        while (fl_socket_receive(s->socket[i], &from, &p) == FLEET_OK && p) {
            fl_lane_receive(s->lane[i], &from, p, fl_now_ms());
            fl_packet_drop(p);
        }
        fl_lane_tick(s->lane[i], fl_now_ms());
    }
}

/* A worker that says hello, on a thread of its own. */
typedef struct comer {
    servers *s;
    pthread_t thread;
    fl_job_lanes lanes;
    fleet_status status;
    char text[1000];
    atomic_bool done;
} comer;

static void *come(void *arg)
{
    comer *c = arg;
    const fl_hello_options o = {.address = c->s->address,
                                .n_server = N_SERVER,
                                .job = "job",
                                .mode = "ps-sync",
                                .program = c->s->program,
                                .n_worker = 1,
                                .connect_ms = 40 * PEER_MS,
                                .peer_ms = PEER_MS,
                                .pool = c->s->pool};

    c->status = fl_hello(&o, &c->lanes);
    snprintf(c->text, sizeof c->text, "%s", fleet_last_error());
    atomic_store(&c->done, true);
    return NULL;
}

/* Server 1 starts when the others would long have taken a silent worker for
 * gone. */
TEST(a_worker_that_waits_for_a_late_server_is_not_gone_for_the_others)
{
    int64_t begun_ms = fl_now_ms();
    servers s;
    comer c = {.s = &s};

    open_servers(&s);
    start(&s, 0);
    start(&s, 2);
    CHECK_OK(fl_thread_start(&c.thread, come, &c, "comer"));
    while (!atomic_load(&c.done)) {
        if (!s.socket[1] && fl_now_ms() - begun_ms > 4 * PEER_MS)
            start(&s, 1);
        serve(&s);
    }
    pthread_join(c.thread, NULL);
    CHECK_TEXT(c.status == FLEET_OK ? "" : c.text, "");
    for (int i = 0; i < N_SERVER; i++) {
        CHECK_TEXT(fl_lane_error(s.lane[i])->text, "");
        CHECK_INT(c.lanes.n_lane[i], 1);
    }
    CHECK(fl_now_ms() - begun_ms > 4 * PEER_MS);
    CHECK_INT(c.lanes.incarnation, 1);
    fl_free(c.lanes.lane);
    close_servers(&s);
}
