/* ps_waits_test.c - what takes longer than a step deadline and is no failure,
 * as long as it gets on: a worker with more data than the others, a save; and
 * messages without an end, for which nothing else waits. */
#define SUITE ps_waits
#include "ps_kit.h"
#include "sim_job.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "net/message.h"
#include "net/socket.h"
#include "ps/host/server.h"
#include "ps/worker/remote_table.h"
#include "ps/worker/worker_io.h"
#include "runtime/store/table.h"

/* What a client waits at most: step and peer deadline. */
enum { WAIT_MS = PS_SECOND / 2, TOO_LONG_MS = 3 * 2 * WAIT_MS };

static void sleep_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

/* --- unequal data --------------------------------------------------------- */

enum { BATCHES = 40 };

/* Batches that take their time. */
static int compute(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)batch;
    (void)samples;
    sleep_ms(TOO_LONG_MS / BATCHES);
    return 0;
}

static fleet_status train_slowly(ps_node *n)
{
    fleet_train_options o = {.on_batch = n->index == 1 ? compute : NULL};

    FL_TRY(ps_begin(n));
    FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, NULL));
    return ps_end(n);
}

static void train_unequal(bool a_sync)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .how = {.a_sync = a_sync},
                .file = {scene_file("a.txt", 10, 1),
                         scene_file("b.txt", PS_BATCH * BATCHES, 2)},
                .peer_ms = WAIT_MS,
                .step_ms = WAIT_MS,
                .work = train_slowly};

    ps_start_all(&j);
    ps_check_all_end(&j);
}

TEST(a_worker_with_more_data_than_another_may_take_its_time)
{
    train_unequal(false);
    train_unequal(true);
}

/* --- a save --------------------------------------------------------------- */

/* A server whose saves the test makes, and a worker. */
typedef struct pair {
    const sim_model *model;
    fl_server *server;
    fl_store *store;
    fl_worker_io *io;
    pthread_t thread;
    fleet_status served;
    atomic_bool enough; /* a save that hangs may end */
} pair;

static void *serve(void *arg)
{
    pair *p = arg;

    p->served = fl_server_run(p->server);
    return NULL;
}

static fl_address address = "inproc://waits";

static void make_server(pair *p, fl_server_command *command)
{
    fl_server_options so = {.make_rows = fl_table_make,
                            .n_program = 1,
                            .address = address,
                            .listen_fd = -1,
                            .n_server = 1,
                            .n_worker = 1,
                            .n_lane = 1,
                            .mode = "ps-async",
                            .job = "waits",
                            .connect_ms = 30000,
                            .peer_ms = WAIT_MS,
                            .step_ms = WAIT_MS,
                            .command = command,
                            .command_arg = p};

    *p = (pair){.model = sim_model_of(SIM_SGD)};
    so.context = &p->model->f->context;
    so.program = &p->model->p;
    so.optimizer = p->model->o;
    CHECK_OK(fl_server_create(&p->server, &so));
}

static void open_pair(pair *p, fl_server_command *command)
{
    fl_worker_io_options wo = {.job = "waits",
                               .address = &address,
                               .n_server = 1,
                               .n_worker = 1,
                               .connect_ms = 30000,
                               .request_ms = 30000,
                               .peer_ms = WAIT_MS,
                               .step_ms = WAIT_MS};

    make_server(p, command);
    wo.context = &p->model->f->context;
    CHECK(pthread_create(&p->thread, NULL, serve, p) == 0);
    p->store = sim_store(p->model, fl_remote_rows_make);
    CHECK_OK(fl_worker_io_create(&p->io, &wo));
    CHECK_OK(
        fl_worker_io_open(p->io, p->store, &(fl_worker_mode){0}, "ps-async"));
}

static void close_pair(pair *p)
{
    fl_worker_io_destroy(p->io);
    fl_store_destroy(p->store);
    pthread_join(p->thread, NULL);
    fl_server_destroy(p->server);
    sim_models_close();
}

/* It takes far longer than a step deadline, and each part of it far less. */
static fleet_status save_slowly(void *arg, fl_store *store,
                                const fl_bucket_set *own, int server, int lane,
                                fl_job_command command, const char *text,
                                char **answer)
{
    enum { PARTS = 30 };
    static const char part[1 << 20];
    fl_writer w;

    (void)arg, (void)store, (void)own, (void)server, (void)lane, (void)command;
    FL_TRY(fl_writer_open(&w, text, "part"));
    for (int i = 0; i < PARTS; i++) {
        fl_writer_put(&w, part, sizeof part);
        sleep_ms(TOO_LONG_MS / PARTS);
    }
    *answer = fl_strdup("saved");
    return fl_writer_close(&w, NULL, NULL);
}

TEST(a_save_may_take_its_time_while_it_writes)
{
    char *answer = NULL;
    pair p;

    open_pair(&p, save_slowly);
    CHECK_OK(
        fl_worker_io_command(p.io, FL_COMMAND_SAVE, test_folder(), &answer));
    CHECK_TEXT(answer, "saved");
    fl_free(answer);
    CHECK_OK(fl_worker_io_leave(p.io));
    close_pair(&p);
    CHECK_OK(p.served);
}

static fleet_status hang(void *arg, fl_store *store, const fl_bucket_set *own,
                         int server, int lane, fl_job_command command,
                         const char *text, char **answer)
{
    pair *p = arg;

    (void)store, (void)own, (void)server, (void)lane, (void)command, (void)text;
    while (!atomic_load(&p->enough))
        sleep_ms(10);
    *answer = fl_strdup("at last");
    return FLEET_OK;
}

TEST(a_save_that_does_not_get_on_ends_the_job_with_the_step_deadline)
{
    char *answer = NULL;
    pair p;

    open_pair(&p, hang);
    CHECK_FAILS(
        fl_worker_io_command(p.io, FL_COMMAND_SAVE, test_folder(), &answer),
        FLEET_ETIMEDOUT, "without progress (step deadline)");
    fl_free(answer);
    atomic_store(&p.enough, true);
    close_pair(&p);
    CHECK_INT(p.served, FLEET_ETIMEDOUT);
}

/* --- a flood -------------------------------------------------------------- */

/* More than a server takes at once are there before it looks. */
TEST(a_server_that_is_stopped_does_not_hear_a_flood_to_its_end)
{
    enum { FLOOD = 5000 };
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_HEARTBEAT};
    fl_packet_pool *pool;
    fl_socket *stranger;
    uint64_t heard = 0;
    pair p;

    make_server(&p, NULL);
    CHECK_OK(fl_packet_pool_create(&pool, 1 << 20));
    CHECK_OK(fl_socket_connect(&stranger, address));
    for (int i = 0; i < FLOOD; i++) {
        fl_msg_writer w;
        fl_packet *packet;

        fl_msg_begin(&w, pool, &head);
        CHECK_OK(fl_msg_end(&w, false, &packet));
        CHECK_OK(fl_socket_send(stranger, NULL, packet));
        fl_packet_drop(packet);
    }
    fl_server_stop(&p.server, 1, "it is enough");
    CHECK_OK(fl_server_run(p.server));
    CHECK(fl_server_count(p.server, 0, "fleet_lane_stray_messages_total",
                          &heard));
    CHECK(heard > 0 && heard < FLOOD);
    fl_socket_close(stranger, 0);
    fl_packet_pool_destroy(pool);
    fl_server_destroy(p.server);
    sim_models_close();
}
