/* fuzz_lane.c - any messages to a lane of one or two streams. The first byte
 * says which lane; then come events: a message that is well formed, frames that
 * are not, time, the end of a command. A lane must neither crash nor lose
 * memory, and what it has applied never becomes less. */
#include "fuzz_ps.h"

#include "ps/server/lane.h"
#include "runtime/store/table.h"

enum { SYNC = 1, TWO = 2, CLIP = 4 };

typedef struct scene {
    fl_packet_pool *pool;
    fl_store *store;
    fl_partition layout;
    fl_bucket_map map;
    fl_ps_lane *lane;
    bool commanded;
    int64_t now_ms;
} scene;

static void drop_it(void *arg, const fl_peer *to, fl_packet *p)
{
    static fl_msg msg;

    (void)arg;
    (void)to;
    must(fl_msg_decode(p, &msg) == FLEET_OK);
}

static fleet_status begin_command(void *arg, const fl_lane_command *command)
{
    scene *s = arg;

    (void)command;
    must(!s->commanded);
    s->commanded = true;
    return FLEET_OK;
}

static void open_scene(scene *s, uint8_t how)
{
    static const char *const address[] = {"{}"};
    static fl_server_identity identity = {.nonce = 7, .run = 5};
    static model models[2];
    model *m = &models[how & CLIP ? 1 : 0];
    fl_lane_options o = {.layout = &s->layout,
                         .n_lane = 1,
                         .n_stream = how & TWO ? 2 : 1,
                         .sync = how & SYNC,
                         .identity = &identity,
                         .job = "job",
                         .mode = "m",
                         .program = "p",
                         .address = address,
                         .connect_ms = 3000,
                         .peer_ms = 2000,
                         .step_ms = 5000,
                         .most_open = 2000};
    const fl_lane_host host = {
        .arg = s, .send = drop_it, .begin = begin_command};

    *s = (scene){0};
    if (!m->f)
        make_model(m, how & CLIP);
    must(fl_packet_pool_create(&s->pool, 1 << 20) == FLEET_OK);
    s->store = make_store(m, fl_table_make);
    must(fl_partition_make(&s->layout, s->store, 1) == FLEET_OK);
    o.pool = s->pool;
    fl_bucket_map_begin(&s->map, 1, (int[]){1});
    o.map = &s->map;
    must(fl_lane_create(&s->lane, &o, &host, 0) == FLEET_OK);
}

static void close_scene(scene *s)
{
    fl_lane_destroy(s->lane);
    fl_partition_done(&s->layout);
    fl_store_destroy(s->store);
    fl_packet_pool_destroy(s->pool);
}

static void receive(scene *s, fl_packet *p, uint8_t from)
{
    const fl_peer peer = {.size = 1, .id = {from}};

    if (!p)
        return;
    fl_lane_receive(s->lane, &peer, p, s->now_ms);
    fl_packet_drop(p);
}

static void message(scene *s, input *in)
{
    uint8_t kind = next(in), from = next(in);
    fl_msg_head head = {.version = FL_MSG_VERSION,
                        .kind = (uint8_t)(1 + kind % (FL_MSG_KINDS - 1)),
                        .flags = next(in) & FL_MSG_FLAGS,
                        .job = fl_msg_job("job", 5),
                        .peer = from == 255 ? 8 : 7,
                        .stream = from & 3,
                        .incarnation = from >> 4,
                        .step = next(in),
                        .request = next(in) & 15,
                        .piece = next(in) & 3};

    receive(s, any_message(in, s->pool, &head, NULL), from & 3);
}

static void end_command(scene *s, uint8_t how)
{
    if (!s->commanded)
        return;
    s->commanded = false;
    fl_lane_command_done(s->lane, how & 1 ? FLEET_OK : FLEET_EIO,
                         how & 2 ? "text" : NULL, 1, 2, s->now_ms);
}

static void event(scene *s, input *in)
{
    uint8_t how = next(in);

    switch (how & 7) {
    case 0:
        receive(s, any_packet(in), 0);
        break;
    case 1:
        s->now_ms += how * 4;
        fl_lane_tick(s->lane, s->now_ms);
        break;
    case 2:
        end_command(s, how >> 3);
        break;
    default:
        message(s, in);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    int64_t version = 0;
    scene s;

    open_scene(&s, next(&in));
    while (in.size > 0) {
        event(&s, &in);
        must(fl_lane_version(s.lane) >= version);
        version = fl_lane_version(s.lane);
    }
    end_command(&s, 1);
    close_scene(&s);
    return 0;
}
