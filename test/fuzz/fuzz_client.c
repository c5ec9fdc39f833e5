/* fuzz_client.c - any answers to a worker with requests under way. The first
 * byte says what sort of worker; then it pulls, pushes and asks in turn, and
 * while it waits it is told whatever the input holds. A worker must neither
 * crash nor lose memory, and when nothing comes any more it gives up. */
#include "fuzz_ps.h"

#include "ps/worker/remote_table.h"
#include "ps/worker/worker.h"

enum { SYNC = 1, CLIP = 2, N_LANE = 2, MOST_SENT = 32 };

typedef struct scene {
    input in;
    fl_packet_pool *pool;
    fl_store *store;
    fl_client *client;
    fl_worker worker;
    fl_msg_head sent[MOST_SENT]; /* lately */
    unsigned n_sent;
    int64_t now_ms;
} scene;

static void keep_head(void *arg, int lane, fl_packet *p)
{
    static fl_msg msg;
    scene *s = arg;

    must(lane >= 0 && lane < N_LANE);
    must(fl_msg_decode(p, &msg) == FLEET_OK);
    if (msg.head.kind != FL_MSG_ABORT)
        s->sent[s->n_sent++ % MOST_SENT] = msg.head;
}

static void tell(scene *s, fl_packet *p, uint8_t how)
{
    if (!p)
        return;
    fl_client_receive(s->client, how & 1, p, s->now_ms);
    fl_packet_drop(p);
}

/* An answer to what was sent lately. */
static void answer(scene *s, uint8_t how)
{
    uint8_t which = next(&s->in), status = next(&s->in);
    fl_msg_head head = s->sent[which % MOST_SENT];
    fl_msg_answer more = {.applied = next(&s->in),
                          .credit_bytes = 64u * next(&s->in),
                          .missing_stream = 1};

    head.version = FL_MSG_VERSION;
    head.kind = status & 0x80 ? FL_MSG_ABORT : FL_MSG_ANSWER;
    head.flags = 0;
    head.status = head.kind == FL_MSG_ANSWER ? status % 8 : 0;
    head.piece = (uint16_t)(head.piece + (status >> 4 & 1));
    if (status & 0x20)
        head.step = next(&s->in);
    tell(s, any_message(&s->in, s->pool, &head, &more), how >> 3);
}

static void wait(void *arg)
{
    scene *s = arg;
    uint8_t how = next(&s->in);

    if (s->in.size == 0)
        fl_client_fail(s->client, FLEET_ETIMEDOUT, "nothing more", true);
    else if ((how & 7) == 0)
        tell(s, any_packet(&s->in), how >> 3);
    else if ((how & 7) == 1)
        s->now_ms += how;
    else
        answer(s, how);
    fl_client_tick(s->client, s->now_ms);
}

static int64_t now_ms(void *arg)
{
    return ((scene *)arg)->now_ms;
}

static void open_scene(scene *s, const uint8_t *data, size_t size)
{
    static model models[2];
    static const int lanes[] = {N_LANE};
    fl_client_options o = {.job = "job",
                           .request_ms = 3000,
                           .peer_ms = 2000,
                           .step_ms = 5000,
                           .heartbeat_ms = 100,
                           .window = 300};
    const fl_client_host client_host = {.arg = s, .send = keep_head};
    const fl_worker_host host = {.arg = s, .wait = wait, .now_ms = now_ms};
    uint8_t how;
    model *m;

    *s = (scene){.in = {data, size}};
    how = next(&s->in);
    m = &models[how & CLIP ? 1 : 0];
    if (!m->f)
        make_model(m, how & CLIP);
    must(fl_packet_pool_create(&s->pool, 1 << 20) == FLEET_OK);
    o.pool = s->pool;
    s->store = make_store(m, fl_remote_rows_make);
    must(fl_client_create(&s->client, &o, &client_host) == FLEET_OK);
    fl_client_set_incarnation(s->client, 1);
    for (int i = 0; i < N_LANE; i++)
        must(fl_client_add_lane(s->client, "server", 0) == FLEET_OK);
    must(fl_worker_init(&s->worker, s->client, &host, s->store, 1, lanes,
                        how & SYNC) == FLEET_OK);
    s->worker.piece_bytes = 40;
    fl_client_watch(s->client, true, 0);
}

static void close_scene(scene *s)
{
    fl_worker_done(&s->worker);
    fl_client_destroy(s->client);
    fl_store_destroy(s->store);
    fl_packet_pool_destroy(s->pool);
}

/* --- what the worker does ------------------------------------------------- */

static const uint64_t keys[] = {1, 2, 3, 4, 5, 6};

static void push(scene *s)
{
    static const float ones[5] = {1, 1, 1, 1, 1};
    const float *grad[] = {ones, ones, ones, ones, ones, ones};
    const fl_param *p = fl_store_param(s->store, "b");
    const fl_push_param param = {p, ones};
    const fl_push_rows table = {.rows = fl_store_rows(s->store, "u"),
                                .part[0] = {6, keys, NULL, grad}};

    s->worker.remote.methods->push(&s->worker.remote,
                                   &(fl_push){.param = &param,
                                              .n_param = 1,
                                              .table = &table,
                                              .n_table = 1,
                                              .n_batch = 1,
                                              .settings.learning_rate = 0.1f,
                                              .clip = 1});
    s->worker.remote.methods->wait_update(&s->worker.remote);
}

static volatile float seen; /* rows are read */

static void pull(scene *s, int slot, bool ahead)
{
    const float *row[6] = {NULL};
    const fl_pull_rows table = {.rows = fl_store_rows(s->store, "t"),
                                .part[0] = {keys, 6, row}};
    fl_remote *x = &s->worker.remote;
    float sum = 0;

    if (x->methods->pull(x, slot, &table, 1, true, ahead, false) != FLEET_OK)
        return;
    if (ahead)
        push(s);
    if (x->methods->wait_pull(x, slot) == FLEET_OK)
        for (int i = 0; i < 6; i++)
            sum += row[i][0] + row[i][2];
    seen = sum;
    x->methods->drop(x, slot);
}

static void act(scene *s)
{
    char *text[N_LANE] = {NULL};

    fl_worker_command(&s->worker, FL_COMMAND_SAVE, "{}", text);
    for (int i = 0; i < N_LANE; i++)
        fl_free(text[i]);
}

static void do_next(scene *s)
{
    double x[2] = {1, 2};
    uint64_t sum, rows;

    switch (next(&s->in) & 7) {
    case 0:
        fl_worker_reduce(&s->worker, 0, x, 2);
        break;
    case 1:
        fl_worker_hash(&s->worker, 1, &sum, &rows);
        break;
    case 2:
        act(s);
        break;
    case 3:
        fl_worker_barrier(&s->worker);
        break;
    case 4:
        fl_worker_leave(&s->worker);
        break;
    case 5:
        push(s);
        break;
    default:
        pull(s, 0, s->in.size & 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    scene s;

    open_scene(&s, data, size);
    while (s.in.size > 0)
        do_next(&s);
    close_scene(&s);
    return 0;
}
