/* lane_cost_test.c - what a message costs a lane does not depend on how many
 * workers there are: no walk over all of them for each message of each. */
#define SUITE lane_cost
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>
#include <time.h>

#include "runtime/store/table.h"

enum { FEW = 32, STEPS = 3, NONCE = 7, RUN = 1 };

typedef struct cost_kit {
    fl_packet_pool *pool;
    fl_store *store;
    fl_partition layout;
    fl_bucket_map map;
    fl_server_identity identity;
    fl_ps_lane *lane;
    uint64_t requests, answered;
} cost_kit;

static void count_answer(void *arg, const fl_peer *to, fl_packet *p)
{
    (void)to;
    (void)p;
    ((cost_kit *)arg)->answered++;
}

typedef enum cost_mode { SYNC, ASYNC, BOUNDED } cost_mode;

static void open_kit(cost_kit *k, int n, cost_mode mode)
{
    fl_lane_options o = {.n_lane = 1,
                         .n_stream = n,
                         .sync = mode == SYNC,
                         .bounds_staleness = mode == BOUNDED,
                         .job = "job",
                         .connect_ms = 1000000,
                         .peer_ms = 1000000,
                         .step_ms = 1000000,
                         .most_open = 1 << 20};
    const fl_lane_host host = {.arg = k, .send = count_answer};

    *k = (cost_kit){.identity = {.nonce = NONCE, .run = RUN}};
    CHECK_OK(fl_packet_pool_create(&k->pool, 256 << 20));
    k->store = sim_store(sim_model_of(SIM_SGD), fl_table_make);
    CHECK_OK(fl_partition_make(&k->layout, k->store, 1));
    o.identity = &k->identity;
    o.layout = &k->layout;
    fl_bucket_map_begin(&k->map, 1, (int[]){1});
    o.map = &k->map;
    o.pool = k->pool;
    CHECK_OK(fl_lane_create(&k->lane, &o, &host, 0));
}

static void close_kit(cost_kit *k)
{
    fl_lane_destroy(k->lane);
    fl_partition_done(&k->layout);
    fl_store_destroy(k->store);
    fl_packet_pool_destroy(k->pool);
}

static void send(cost_kit *k, fl_msg_kind kind, int stream, uint64_t step,
                 uint16_t flags)
{
    const fl_peer from = {.size = 1};
    fl_msg_head head = {.version = FL_MSG_VERSION,
                        .kind = (uint8_t)kind,
                        .flags = flags,
                        .job = fl_msg_job("job", RUN),
                        .peer = NONCE,
                        .stream = (uint32_t)stream,
                        .incarnation = 1,
                        .step =
                            kind == FL_MSG_PULL && step > 0 ? step + 1 : step,
                        .request = ++k->requests};
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, k->pool, &head);
    if (kind == FL_MSG_PULL)
        fl_msg_section(&w, FL_SECTION_DENSE, 0)->version = step;
    else if (kind == FL_MSG_STEP && !(flags & FL_MSG_CONTROL))
        lane_close_step(&w, 1, &(fl_update_settings){0});
    CHECK_OK(fl_msg_end(&w, false, &p));
    fl_lane_receive(k->lane, &from, p, 1);
    fl_packet_drop(p);
}

/* Of this thread: the machine may be busy. */
static double cpu_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Microseconds for a message: of a step its end, a pull of the next version, or
 * for the next step, a heartbeat; and of the end. */
static double cost_of(int n, cost_mode mode)
{
    int64_t messages = 0;
    double begun_us = 0, us;
    cost_kit k;

    open_kit(&k, n, mode);
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (int i = 0; i < n; i++) {
            send(&k, FL_MSG_STEP, i, step, FL_MSG_END_OF_STEP);
            send(&k, FL_MSG_PULL, i, mode == ASYNC ? 0 : step, 0);
            send(&k, FL_MSG_HEARTBEAT, i, step, 0);
        }
        if (step > 1) /* memory is warm */
            messages += 3 * n;
        else
            begun_us = cpu_us();
    }
    CHECK_INT(fl_lane_version(k.lane), mode == SYNC ? STEPS : STEPS * n);
    for (int i = 0; i < n; i++) {
        send(&k, FL_MSG_STEP, i, STEPS + 1, FL_MSG_END_OF_STEP | FL_MSG_LEAVE);
        send(&k, FL_MSG_BYE, i, 0, 0);
        messages += 2;
    }
    us = (cpu_us() - begun_us) / (double)messages;
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_LEFT);
    close_kit(&k);
    return us;
}

/* The best of several. */
static double best_cost_of(int n, cost_mode mode)
{
    double best = cost_of(n, mode);

    for (int i = 0; i < (TEST_SLOWNESS > 10 ? 0 : 4); i++) {
        double one = cost_of(n, mode);

        best = one < best ? one : best;
    }
    return best;
}

static void compare(cost_mode mode)
{
    static const char *const name[] = {"sync", "async", "bounded"};
    double few = best_cost_of(FEW, mode),
           most = best_cost_of(FL_MOST_STREAM, mode);

    if (most > 16 * few)
        test_fail(__FILE__, __LINE__,
                  "%.2f us a message with %d workers, %.2f with %d", few, FEW,
                  most, FL_MOST_STREAM);
    fprintf(stderr, "%s: %.2f us a message with %d workers, %.2f with %d\n",
            name[mode], few, FEW, most, FL_MOST_STREAM);
}

TEST(a_message_costs_as_much_with_thousands_of_workers_as_with_few)
{
    compare(SYNC);
    compare(ASYNC);
    compare(BOUNDED);
    sim_models_close();
}
