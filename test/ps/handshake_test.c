/* handshake_test.c - how a worker comes to its servers, over real sockets and
 * by hand; the lanes are driven by the test. */
#define SUITE handshake
#include "lane_kit.h"
#include "test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ps/worker/handshake_io.h"
#include "runtime/plan/job_signature.h"
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

    /* without sockets */
    int64_t now_ms;
    fl_handshake *answers_to; /* NULL: what a lane says is lost */

    /* servers that load, and how far they are */
    bool loads[N_SERVER];
    uint64_t bytes[N_SERVER], total[N_SERVER];
} servers;

typedef struct at_socket {
    servers *s;
    int i;
} at_socket;

static void send_packet(void *arg, const fl_peer *to, fl_packet *p)
{
    at_socket *at = arg;

    if (at->s->socket[at->i])
        fl_socket_send(at->s->socket[at->i], to, p);
    else if (at->s->answers_to) /* by hand */
        fl_handshake_receive(at->s->answers_to, at->i, p, at->s->now_ms);
}

static bool is_loading(void *arg, uint64_t *bytes, uint64_t *total)
{
    const at_socket *at = arg;

    *bytes = at->s->bytes[at->i];
    *total = at->s->total[at->i];
    return at->s->loads[at->i];
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
                            &(fl_lane_host){.arg = &at[i],
                                            .send = send_packet,
                                            .loading = is_loading},
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

/* --- by hand -------------------------------------------------------------- */

/* A worker's host: what it says reaches the servers that listen at once. */
typedef struct hands {
    servers *s;
    bool listens[N_SERVER];
    int said[N_SERVER];
    fl_packet *last[N_SERVER]; /* for a lane, once the handshake waits */
    uint8_t id;
    int64_t peer_ms; /* 0: 5 s */
    fl_log *log;
} hands;

static void note_hello(void *arg, int server, fl_packet *p)
{
    hands *h = arg;

    h->said[server]++;
    fl_packet_drop(h->last[server]);
    h->last[server] = fl_packet_keep(p);
}

static void deliver(hands *h)
{
    const fl_peer from = {.size = 1, .id = {h->id}};

    for (int i = 0; i < N_SERVER; i++) {
        fl_packet *p = h->last[i];

        h->last[i] = NULL;
        if (p && h->listens[i])
            fl_lane_receive(h->s->lane[i], &from, p, h->s->now_ms);
        fl_packet_drop(p);
    }
}

static fl_handshake *begin(hands *h, uint64_t nonce)
{
    const fl_hello_options o = {.address = h->s->address,
                                .n_server = N_SERVER,
                                .job = "job",
                                .mode = "ps-sync",
                                .program = h->s->program,
                                .n_worker = 1,
                                .connect_ms = 20000,
                                .peer_ms = h->peer_ms ? h->peer_ms : 5000,
                                .pool = h->s->pool,
                                .log = h->log,
                                .nonce = nonce,
                                .who = "a:1",
                                .locality = "a"};
    const fl_client_host host = {.arg = h, .send = note_hello};
    fl_handshake *made;

    CHECK_OK(fl_handshake_create(&made, &o, &host, h->s->now_ms));
    return made;
}

/* Until it is over, or so many milliseconds are. */
static void work(hands *h, fl_handshake *made, int64_t ms)
{
    int64_t end_ms = h->s->now_ms + ms;

    for (; h->s->now_ms < end_ms && !fl_handshake_is_over(made);
         h->s->now_ms += 100) {
        h->s->answers_to = made;
        deliver(h);
        h->s->answers_to = NULL;
        fl_handshake_tick(made, h->s->now_ms);
    }
}

static void drop_hands(hands *h)
{
    for (int i = 0; i < N_SERVER; i++)
        fl_packet_drop(h->last[i]);
}

static void end(hands *h, fl_handshake *made)
{
    fl_handshake_destroy(made);
    drop_hands(h);
    close_servers(h->s);
}

/* The servers' answers are nowhere: hellos are said each second, to server 0
 * alone. */
TEST(a_hello_that_is_lost_is_said_again_until_the_connect_deadline)
{
    static fl_msg said;
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s};

    open_servers(&s);
    s.now_ms = 5000;
    made = begin(&h, 1);
    CHECK_OK(fl_msg_decode(h.last[0], &said));
    CHECK(said.head.flags & FL_MSG_CRC_ALL);
    work(&h, made, 60000);
    CHECK(fl_handshake_is_over(made));
    CHECK(s.now_ms >= 25000 && s.now_ms < 25500);
    CHECK(h.said[0] >= 19 && h.said[0] <= 21);
    CHECK_INT(h.said[1] + h.said[2], 0);
    CHECK_FAILS(fl_handshake_result(made, &lanes), FLEET_ETIMEDOUT,
                "server 0 at inproc://hello-0 has not answered within 20.0 s");
    end(&h, made);
}

/* Its answer is lost: the server knows the worker now, and must
 * hear of it before it takes it for gone, however soon that is. */
TEST(a_hello_is_said_again_several_times_within_the_peer_deadline)
{
    fl_handshake *made;
    servers s;
    hands h = {.s = &s, .peer_ms = 500};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    made = begin(&h, 1);
    work(&h, made, 1000);
    CHECK(h.said[0] >= 9 && h.said[0] <= 11);
    end(&h, made);
}

/* Another process has the worker's place: it is asked for as long as that one
 * may only just have gone. */
TEST(a_place_that_is_taken_is_asked_for_until_the_peer_deadline)
{
    fl_job_lanes lanes;
    fl_handshake *first, *second;
    servers s;
    hands h = {.s = &s, .listens = {true, true, true}};
    int64_t begun_ms;

    open_servers(&s);
    s.now_ms = fl_now_ms();
    first = begin(&h, 1);
    work(&h, first, 2000);
    CHECK_OK(fl_handshake_result(first, &lanes));
    CHECK_INT(lanes.n, N_SERVER);
    fl_free(lanes.lane);
    h.id = 1;
    memset(h.said, 0, sizeof h.said);
    begun_ms = s.now_ms;
    second = begin(&h, 2);
    work(&h, second, 60000);
    CHECK(s.now_ms - begun_ms > 5000 && s.now_ms - begun_ms < 5500);
    CHECK(h.said[0] >= 48 && h.said[0] <= 53); /* each tenth of a second */
    CHECK_INT(h.said[1] + h.said[2], 0);
    CHECK_FAILS(fl_handshake_result(second, &lanes), FLEET_EEXIST,
                "a:1 says that it is worker 0, and so does a:1");
    fl_handshake_destroy(first);
    fl_handshake_destroy(second);
    drop_hands(&h);
    close_servers(&s);
}

/* It was stopped, and so has heard nothing: that is no silence of the
 * server's. */
TEST(own_sleep_is_no_silence_of_a_server_that_is_awaited)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    made = begin(&h, 1);
    work(&h, made, 1000);
    s.now_ms += 100000;
    work(&h, made, 1000);
    CHECK(!fl_handshake_is_over(made));
    h.listens[0] = h.listens[1] = h.listens[2] = true;
    work(&h, made, 5000);
    CHECK_OK(fl_handshake_result(made, &lanes));
    CHECK_INT(lanes.n, N_SERVER);
    fl_free(lanes.lane);
    end(&h, made);
}

/* Server 1 is never there: the servers that have given the worker its place
 * hear that it gives up. */
TEST(a_worker_that_gives_up_tells_the_servers_that_know_it)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s, .listens = {true, false, true}};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    made = begin(&h, 1);
    work(&h, made, 60000);
    deliver(&h);
    CHECK_FAILS(fl_handshake_result(made, &lanes), FLEET_ETIMEDOUT,
                "server 1 at inproc://hello-1 has not answered");
    CHECK_CONTAINS(fl_lane_error(s.lane[0])->text, "server 1 at");
    CHECK_CONTAINS(fl_lane_error(s.lane[2])->text, "server 1 at");
    end(&h, made);
}

/* --- servers that load ---------------------------------------------------- */

typedef struct lines {
    char text[4000];
    int n;
} lines;

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    lines *l = user;
    size_t n = strlen(l->text);

    (void)level;
    l->n++;
    snprintf(l->text + n, sizeof l->text - n, "%s\n", line);
}

/* As work(), with servers that look at their deadlines; the one that loads gets
 * on by so many bytes in each second. */
static void work_on(hands *h, fl_handshake *made, int64_t ms, int loading,
                    uint64_t bytes)
{
    for (int64_t end_ms = h->s->now_ms + ms;
         h->s->now_ms < end_ms && !fl_handshake_is_over(made);) {
        work(h, made, 1000);
        h->s->bytes[loading] += bytes;
        for (int i = 0; i < N_SERVER; i++)
            if (h->listens[i])
                for (int64_t t = h->s->now_ms - 900; t <= h->s->now_ms;
                     t += 100)
                    fl_lane_tick(h->s->lane[i], t);
    }
}

static void check_lanes_run(const servers *s)
{
    for (int i = 0; i < N_SERVER; i++)
        CHECK_TEXT(fl_lane_error(s->lane[i])->text, "");
}

/* Whichever it is, the other ones know the worker meanwhile. */
static void check_waits_for(int loading)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    lines said = {0};
    fl_log log;
    servers s;
    hands h = {.s = &s,
               .listens = {true, true, true},
               .peer_ms = PEER_MS,
               .log = &log};

    fl_log_init(&log, keep_line, &said, FLEET_LOG_INFO);
    open_servers(&s);
    s.now_ms = fl_now_ms();
    s.loads[loading] = true;
    s.bytes[loading] = 400;
    s.total[loading] = 1000;
    made = begin(&h, 1);
    work_on(&h, made, 55000, loading, 1);
    CHECK(!fl_handshake_is_over(made));
    check_lanes_run(&s);
    for (int i = 0; i < N_SERVER; i++)
        CHECK(h.said[i] > 55);
    s.loads[loading] = false;
    work(&h, made, 2000);
    CHECK_OK(fl_handshake_result(made, &lanes));
    CHECK_INT(lanes.n, N_SERVER);
    CHECK_INT(lanes.incarnation, 1);
    CHECK_INT(lanes.run, RUN);
    CHECK_CONTAINS(said.text, "is loading, 40 %");
    CHECK_CONTAINS(said.text, "is loading, 45 %");
    CHECK_INT(said.n, 6); /* at once, and every ten seconds */
    fl_free(lanes.lane);
    end(&h, made);
}

TEST(a_server_that_loads_is_awaited_for_as_long_as_it_gets_on)
{
    for (int i = 0; i < N_SERVER; i++)
        check_waits_for(i);
}

TEST(a_load_of_moments_is_awaited_for_moments)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {
        .s = &s, .listens = {true, true, true}, .peer_ms = 100 * PEER_MS};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    s.loads[1] = true;
    made = begin(&h, 1);
    work(&h, made, 300);
    CHECK(!fl_handshake_is_over(made));
    s.loads[1] = false;
    work(&h, made, 450);
    CHECK_OK(fl_handshake_result(made, &lanes));
    CHECK_INT(lanes.n, N_SERVER);
    fl_free(lanes.lane);
    end(&h, made);
}

TEST(a_server_that_loads_and_does_not_get_on_is_named)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s, .listens = {true, true, true}, .peer_ms = PEER_MS};
    int64_t stopped_ms;

    open_servers(&s);
    s.now_ms = fl_now_ms();
    s.loads[1] = true;
    s.total[1] = 1000;
    made = begin(&h, 1);
    work_on(&h, made, 40000, 1, 10);
    CHECK(!fl_handshake_is_over(made));
    stopped_ms = s.now_ms;
    work_on(&h, made, 60000, 1, 0);
    CHECK(s.now_ms - stopped_ms > 18000 && s.now_ms - stopped_ms < 22000);
    deliver(&h);
    CHECK_FAILS(fl_handshake_result(made, &lanes), FLEET_ETIMEDOUT,
                "server 1 at inproc://hello-1 is loading, 40 %, and has not "
                "got on for 20.0 s (connect deadline)");
    for (int i = 0; i < N_SERVER; i++)
        CHECK_CONTAINS(fl_lane_error(s.lane[i])->text, "server 1 at");
    end(&h, made);
}

/* Server 2 is never there; that server 0 takes its time does not hide it. */
TEST(a_server_that_loads_hides_no_other_one_that_does_not_answer)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s, .listens = {true, true, false}, .peer_ms = PEER_MS};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    s.loads[0] = true;
    made = begin(&h, 1);
    work_on(&h, made, 60000, 0, 1);
    CHECK_FAILS(fl_handshake_result(made, &lanes), FLEET_ETIMEDOUT,
                "server 2 at inproc://hello-2 has not answered within 20.0 s");
    end(&h, made);
}

/* Server 0 is awaited, and server 2 says that it cannot begin. */
TEST(a_server_that_cannot_load_is_heeded_while_another_one_loads)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s, .listens = {true, true, true}};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    s.loads[0] = true;
    fl_lane_doom(s.lane[2], FLEET_ECORRUPT, "load: damaged");
    made = begin(&h, 1);
    work(&h, made, 1000);
    deliver(&h);
    CHECK_FAILS(fl_handshake_result(made, &lanes), FLEET_ECORRUPT,
                "server 2 at inproc://hello-2 says: load: damaged");
    CHECK_CONTAINS(fl_lane_error(s.lane[0])->text, "says: load: damaged");
    end(&h, made);
}

/* Whose place is whose is in server 0's journal: until that is read, nobody has
 * one, and the other servers are not asked. */
TEST(a_server_that_is_made_again_gives_places_when_it_is_there)
{
    fl_job_lanes lanes;
    fl_handshake *made;
    servers s;
    hands h = {.s = &s, .listens = {true, true, true}};

    open_servers(&s);
    s.now_ms = fl_now_ms();
    s.loads[0] = true;
    fl_lane_begin_replay(s.lane[0], s.now_ms);
    made = begin(&h, 1);
    work(&h, made, 3000);
    CHECK(!fl_handshake_is_over(made));
    CHECK(h.said[0] > 1);
    CHECK_INT(h.said[1] + h.said[2], 0);
    s.loads[0] = false;
    fl_lane_end_replay(s.lane[0], FLEET_OK, NULL, s.now_ms);
    work(&h, made, 5000);
    CHECK_OK(fl_handshake_result(made, &lanes));
    CHECK_INT(lanes.n, N_SERVER);
    CHECK_INT(lanes.incarnation, 1);
    fl_free(lanes.lane);
    end(&h, made);
}
