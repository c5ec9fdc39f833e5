/* sim_half_async_test.c - half-async in simulated jobs: a push is the mean of
 * its batches, pushes and pulls are as many as the fields say, no more pushes
 * are under way than the queue has room for, and whatever another process may
 * see has what was gathered. Jobs that gather, with faults and saves, are among
 * those of sim_test.c and sim_fault_test.c.
 */
#define SUITE sim_half_async
#include "sim_seeds.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { MOST_BATCH = 24, LATE_MS = 50 };

/* What one worker does, and what it has seen. */
typedef struct scene {
    int batches;
    int own_ms; /* that a batch takes */
    bool dense_alone;
    fleet_status (*end)(sim_worker *w);

    float weight[MOST_BATCH];  /* of each batch, when it is computed */
    int under_way[MOST_BATCH]; /* pushes, after each batch */
    int64_t ms[MOST_BATCH];    /* when its push is made */
    fl_lane_counts counts;     /* when `end` has returned */
    float row, last;           /* then, as it reads them */
} scene;

static const fl_param *param_of(const sim_worker *w)
{
    const fl_param *p = fl_store_param(w->store, "a");

    CHECK(p != NULL);
    return p;
}

static float weight_of(const sim_worker *w)
{
    const fl_param *p = param_of(w);

    return p->flat->weight[p->offset];
}

/* Gradients of the weights, and of the row with the key. The rate is 0.25. */
static fleet_status push_of(sim_worker *w, float g, uint64_t key, int n_batch)
{
    const scene *c = w->own;
    const float dense[2] = {g, g}, row[3] = {g, g, g}, *grad = row;
    const fl_push_param param = {param_of(w), dense};
    fl_push_rows rows = {.rows = fl_store_rows(w->store, "first")};
    fl_remote *x = &w->core.remote;
    fl_update u;

    rows.part[fl_part_of(fl_mix(key))] = (fl_push_part){1, &key, NULL, &grad};
    fl_optimizer_update(w->store->optimizer, 0, 1, &u);
    return x->methods->push(x, &(fl_push){.param = &param,
                                          .n_param = 1,
                                          .table = &rows,
                                          .n_table = !c->dense_alone,
                                          .n_batch = n_batch,
                                          .settings = fl_update_settings_of(
                                              w->store->optimizer, &u),
                                          .clip = 1});
}

static fleet_status push(sim_worker *w, float g, uint64_t key)
{
    return push_of(w, g, key, 1);
}

static fleet_status pull_row(sim_worker *w, uint64_t key, bool now, float *to)
{
    const scene *c = w->own;
    const float *row = NULL;
    fl_pull_rows rows = {.rows = fl_store_rows(w->store, "first")};
    fl_remote *x = &w->core.remote;

    rows.part[fl_part_of(fl_mix(key))] = (fl_pull_part){&key, 1, &row};
    FL_TRY(x->methods->pull(x, 0, &rows, !c->dense_alone, !now, false, now));
    FL_TRY(x->methods->wait_pull(x, 0));
    if (to)
        *to = row[0];
    x->methods->drop(x, 0);
    return FLEET_OK;
}

static fleet_status pull(sim_worker *w, bool now, float *to)
{
    return pull_row(w, 0, now, to);
}

/* Pushes that no lane has answered. */
static int count_under_way(const fl_worker *w)
{
    int n = w->pushed && w->push[0].state == FL_REQUEST_SENT;

    for (int i = 0; i < w->n_before; i++)
        n += w->before[i][0].state == FL_REQUEST_SENT;
    return n;
}

/* Batch i's gradient is -4 (i + 1). */
static fleet_status train(sim_worker *w)
{
    scene *c = w->own;

    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < c->batches; i++) {
        FL_TRY(pull(w, false, NULL));
        c->weight[i] = weight_of(w);
        sim_compute(w, c->own_ms);
        FL_TRY(push(w, -4.0f * (float)(i + 1), 0));
        c->under_way[i] = count_under_way(&w->core);
        c->ms[i] = w->s->now_ms;
    }
    if (c->end)
        FL_TRY(c->end(w));
    c->counts = fl_lane_counted(w->s->lane[0].core);
    if (!c->dense_alone)
        FL_TRY(pull(w, true, &c->row));
    FL_TRY(w->core.remote.methods->refresh(&w->core.remote));
    c->last = weight_of(w);
    return fl_worker_leave(&w->core);
}

static void run_with(scene *c, const fl_push_options *how, int delay_ms,
                     fleet_status (*body)(sim_worker *w))
{
    sim_options o = {.seed = 1,
                     .model = sim_model_of(SIM_COUNT),
                     .half = *how,
                     .n_worker = 1,
                     .n_server = 1,
                     .n_lane = 1,
                     .piece_bytes = FL_MSG_PIECE_BYTES,
                     .delay_ms = delay_ms,
                     .in_order = true,
                     .heartbeat_ms = 10000,
                     .connect_ms = 60000,
                     .request_ms = 60000,
                     .peer_ms = 60000,
                     .step_ms = 60000};
    sim s;

    sim_need_fibers();
    sim_open(&s, &o, body, c);
    sim_run(&s, SIM_LONGEST_MS);
    if (s.worker[0].status != FLEET_OK)
        test_fail(__FILE__, __LINE__, "%s", s.worker[0].text);
    CHECK(sim_is_well(&s));
    sim_close(&s);
    sim_models_close();
}

static void run(scene *c, const fl_push_options *how, int delay_ms)
{
    run_with(c, how, delay_ms, train);
}

/* What the mean of the gradients of batches [first, end) adds. */
static double mean_step(int first, int end)
{
    double sum = 0;

    for (int i = first; i < end; i++)
        sum += i + 1;
    return sum / (end - first);
}

/* --- max_merge_var_num ---------------------------------------------------- */

TEST(a_push_is_the_mean_of_its_batches)
{
    const fl_push_options four = {.merged = 4, .queue = 16, .recv_after = 1};
    scene c = {.batches = 8};

    run(&c, &four, 0);
    CHECK_NEAR((double)c.row, 1 + mean_step(0, 4) + mean_step(4, 8), 0);
    CHECK_NEAR((double)c.last, 1 + mean_step(0, 4) + mean_step(4, 8), 0);
}

static fleet_status push_two_rows(sim_worker *w)
{
    scene *c = w->own;

    FL_TRY(fl_worker_barrier(&w->core));
    FL_TRY(push(w, -4, 0));
    FL_TRY(push(w, -16, 77)); /* a batch without row 0 */
    FL_TRY(pull(w, true, &c->row));
    return fl_worker_leave(&w->core);
}

/* As gradient merge has it: a batch without a row gives it 0. */
TEST(a_batch_without_a_row_counts_in_its_mean)
{
    const fl_push_options two = {.merged = 2, .queue = 16, .recv_after = 1};
    scene c = {.batches = 0};

    run_with(&c, &two, 0, push_two_rows);
    CHECK_NEAR((double)c.row, 1.5, 0);
}

static fleet_status wait_for_all(sim_worker *w)
{
    return fl_worker_barrier(&w->core);
}

/* --- pushes and pulls ----------------------------------------------------- */

static void check_counts(int merged, int recv_after)
{
    const fl_push_options how = {
        .merged = merged, .queue = 16, .recv_after = recv_after};
    scene c = {.batches = MOST_BATCH, .end = wait_for_all};
    int pushes = MOST_BATCH / merged;

    run(&c, &how, 0);
    CHECK_INT(c.counts.updates, pushes);
    /* of each batch, of weights, and of weights at both barriers */
    CHECK_INT(c.counts.pulls, MOST_BATCH + pushes / recv_after + 2);
    for (int i = 0; i < MOST_BATCH; i++) {
        int seen = i / merged / recv_after * recv_after * merged;
        double sum = 1;

        for (int j = 0; j < seen; j += merged)
            sum += mean_step(j, j + merged);
        CHECK_NEAR((double)c.weight[i], sum, 0);
    }
}

/* The weights of a batch have all pushes but the last r - 1 of them. */
TEST(there_are_as_many_pushes_and_pulls_as_the_fields_say)
{
    for (int merged = 1; merged <= 4; merged *= 2)
        for (int recv_after = 1; recv_after <= 3; recv_after++)
            check_counts(merged, recv_after);
}

/* --- independent_recv_thread ---------------------------------------------- */

/* The last batch's push is made at about so many ms. */
static void check_speed(const fl_push_options *how, int least_ms, int most_ms)
{
    scene c = {.batches = MOST_BATCH, .own_ms = 5, .dense_alone = true};
    int64_t ms;

    run(&c, how, LATE_MS);
    ms = c.ms[MOST_BATCH - 1] - c.ms[0];
    if (ms < least_ms || ms > most_ms)
        test_fail(__FILE__, __LINE__, "%d ms, not %d to %d", (int)ms, least_ms,
                  most_ms);
    CHECK(c.weight[MOST_BATCH - 1] > 1);
    for (int i = 1; i < MOST_BATCH; i++)
        CHECK(c.weight[i] >= c.weight[i - 1]);
}

/* Of 24 batches of 5 ms: messages are under way for up to 50 ms. */
TEST(weights_beside_the_computation_are_not_waited_for)
{
    check_speed(&(fl_push_options){1, 100, 1, true}, 23 * 5, 23 * 5 + 23);
    check_speed(&(fl_push_options){1, 100, 1, false}, 23 * 20, 23 * 105);
}

/* --- send_queue_size ------------------------------------------------------ */

/* A worker that computes faster than its servers answer goes on until the queue
 * is full; nothing is lost. */
TEST(no_more_pushes_are_under_way_than_the_queue_takes)
{
    for (int queue = 1; queue <= 5; queue += 2)
        for (int merged = 1; merged <= 2; merged++) {
            scene c = {.batches = MOST_BATCH,
                       .dense_alone = true,
                       .end = wait_for_all};
            const fl_push_options how = {
                .merged = merged, .queue = queue, .recv_after = 1000};
            int most = 0;

            run(&c, &how, LATE_MS);
            for (int i = 0; i < MOST_BATCH; i++)
                most = c.under_way[i] > most ? c.under_way[i] : most;
            CHECK_INT(most, queue);
            CHECK_INT(c.counts.updates, MOST_BATCH / merged);
        }
}

/* The first of three is of more batches than a server takes. */
static fleet_status push_too_many(sim_worker *w)
{
    scene *c = w->own;

    FL_TRY(fl_worker_barrier(&w->core));
    if (w->index > 0)
        return fl_worker_barrier(&w->core);
    FL_TRY(push_of(w, -4, 0, INT32_MAX));
    FL_TRY(push(w, -4, 0));
    FL_TRY(push(w, -4, 0));
    c->ms[0] = w->s->now_ms;
    return fl_worker_barrier(&w->core);
}

TEST(a_push_in_the_queue_that_is_refused_is_reported_with_its_reason)
{
    scene c = {.batches = 0};
    sim_options o = {.seed = 1,
                     .model = sim_model_of(SIM_COUNT),
                     .half = {.merged = 1, .queue = 16, .recv_after = 1000},
                     .n_worker = 2,
                     .n_server = 1,
                     .n_lane = 2,
                     .piece_bytes = FL_MSG_PIECE_BYTES,
                     .delay_ms = LATE_MS,
                     .in_order = true,
                     .heartbeat_ms = 100,
                     .connect_ms = 60000,
                     .request_ms = 10000,
                     .peer_ms = 60000,
                     .step_ms = 60000};
    sim s;

    sim_need_fibers();
    sim_open(&s, &o, push_too_many, &c);
    sim_run(&s, SIM_LONGEST_MS);
    CHECK_INT(s.worker[0].status, FLEET_EINVAL);
    CHECK_CONTAINS(s.worker[0].text, "it says that it is of 2147483647");
    CHECK(s.worker[0].ended_ms - c.ms[0] < 1000);
    sim_close(&s);
    sim_models_close();
}

/* --- ends of a group ------------------------------------------------------ */

static fleet_status end_pass(sim_worker *w)
{
    double x = 1;

    return w->core.remote.methods->end_pass(&w->core.remote, &x, 1);
}

static fleet_status save(sim_worker *w)
{
    char *answer = NULL;
    fleet_status status =
        fl_worker_command(&w->core, FL_COMMAND_SAVE, "save 0", &answer);

    fl_free(answer);
    return status;
}

static fleet_status hash(sim_worker *w)
{
    uint64_t sum, rows;

    return fl_worker_hash(&w->core, 0, &sum, &rows);
}

static fleet_status refresh(sim_worker *w)
{
    return w->core.remote.methods->refresh(&w->core.remote);
}

static fleet_status look(sim_worker *w)
{
    return pull(w, true, NULL);
}

TEST(what_others_may_see_has_what_was_gathered)
{
    fleet_status (*const end[])(sim_worker *) = {end_pass, wait_for_all, save,
                                                 hash,     refresh,      look};
    const fl_push_options how = {.merged = 4, .queue = 16, .recv_after = 1};

    for (size_t i = 0; i < sizeof end / sizeof *end; i++) {
        scene c = {.batches = 7, .end = end[i]};

        run(&c, &how, 0);
        if (c.counts.updates != 2)
            test_fail(__FILE__, __LINE__, "%d pushes after the end %zu",
                      (int)c.counts.updates, i);
        CHECK_NEAR((double)c.row, 1 + mean_step(0, 4) + mean_step(4, 7), 0);
    }
}

/* A worker that just leaves; another one looks at what is there then. */
static fleet_status leave_or_look(sim_worker *w)
{
    scene *c = w->own;

    FL_TRY(fl_worker_barrier(&w->core));
    if (w->index == 0) {
        FL_TRY(push(w, -4, 0));
        FL_TRY(push(w, -8, 0));
        return fl_worker_leave(&w->core);
    }
    sim_compute(w, 1000);
    FL_TRY(pull(w, true, &c->row));
    return fl_worker_leave(&w->core);
}

TEST(a_worker_that_leaves_leaves_what_it_has_gathered)
{
    scene c = {.batches = 0};
    sim_options o = {.seed = 1,
                     .model = sim_model_of(SIM_COUNT),
                     .half = {.merged = 4, .queue = 16, .recv_after = 1},
                     .n_worker = 2,
                     .n_server = 2,
                     .n_lane = 2,
                     .piece_bytes = FL_MSG_PIECE_BYTES,
                     .heartbeat_ms = 100,
                     .connect_ms = 10000,
                     .request_ms = 10000,
                     .peer_ms = 10000,
                     .step_ms = 10000};
    sim s;

    sim_need_fibers();
    sim_open(&s, &o, leave_or_look, &c);
    sim_run(&s, SIM_LONGEST_MS);
    CHECK(sim_is_well(&s));
    sim_close(&s);
    sim_models_close();
    CHECK_NEAR((double)c.row, 2.5, 0);
}

/* --- a bound on staleness ------------------------------------------------- */

/* Two workers at one pace, of which none may be ahead; each pulls for the next
 * batch before it pushes. */
static fleet_status keep_step(sim_worker *w)
{
    static const uint64_t key = 0;
    fl_remote *x = &w->core.remote;
    const float *row[FL_N_SLOT] = {NULL};
    fl_pull_rows rows[FL_N_SLOT];

    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i <= MOST_BATCH; i++) {
        int next = (i + 1) & 1;

        rows[next] = (fl_pull_rows){.rows = fl_store_rows(w->store, "first")};
        rows[next].part[fl_part_of(fl_mix(key))] =
            (fl_pull_part){&key, 1, &row[next]};
        if (i < MOST_BATCH)
            FL_TRY(
                x->methods->pull(x, next, &rows[next], 1, true, i > 0, false));
        if (i == 0)
            continue;
        FL_TRY(x->methods->wait_pull(x, !next));
        sim_compute(w, 1);
        FL_TRY(push(w, -4, 0));
        x->methods->drop(x, !next);
    }
    FL_TRY(fl_worker_barrier(&w->core));
    return fl_worker_leave(&w->core);
}

/* Steps of a worker are its pushes: inside a group no pull is for a later step,
 * and so none waits longer than it has to, or is asked again. */
TEST(a_bound_on_staleness_counts_pushes)
{
    scene c = {.batches = 0};
    sim_options o = {.seed = 1,
                     .model = sim_model_of(SIM_COUNT),
                     .half = {.merged = 4, .queue = 16, .recv_after = 1},
                     .bounds_staleness = true,
                     .n_worker = 2,
                     .n_server = 1,
                     .n_lane = 1,
                     .piece_bytes = FL_MSG_PIECE_BYTES,
                     .heartbeat_ms = 10000,
                     .connect_ms = 60000,
                     .request_ms = 60000,
                     .peer_ms = 60000,
                     .step_ms = 60000};
    fl_lane_counts n;
    sim s;

    sim_need_fibers();
    sim_open(&s, &o, keep_step, &c);
    sim_run(&s, SIM_LONGEST_MS);
    CHECK(sim_is_well(&s));
    n = fl_lane_counted(s.lane[0].core);
    sim_close(&s);
    sim_models_close();
    CHECK_INT(n.updates, 2 * MOST_BATCH / 4);
    /* of each batch, of weights after each push, and at both barriers */
    CHECK_INT(n.pulls, 2 * (MOST_BATCH + MOST_BATCH / 4 + 2));
    CHECK_INT(n.stale_1 + n.stale_2 + n.stale_3_to_4, 0);
}

/* --- memory --------------------------------------------------------------- */

static int fail_at;

/* A batch whose push has failed is pushed again, as a program may do it. */
static fleet_status push_without_memory(sim_worker *w)
{
    scene *c = w->own;

    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < 5; i++) {
        fleet_status status;

        if (i == 3 || i == 1)
            fl_memory_fail_at(fail_at, false);
        status = push(w, -4, (uint64_t)i);
        fl_memory_fail_at(0, false);
        if (status == FLEET_ENOMEM)
            status = push(w, -4, (uint64_t)i);
        FL_TRY(status);
    }
    FL_TRY(end_pass(w));
    FL_TRY(pull_row(w, 4, true, &c->row)); /* of the last batch */
    c->last = weight_of(w);
    c->counts = fl_lane_counted(w->s->lane[0].core);
    return fl_worker_leave(&w->core);
}

TEST(without_memory_a_batch_is_neither_lost_nor_pushed_twice)
{
    const fl_push_options how = {.merged = 4, .queue = 2, .recv_after = 1};

    for (fail_at = 1; fail_at < 20; fail_at++) {
        scene c = {.batches = 0};

        run_with(&c, &how, 0, push_without_memory);
        CHECK_INT(c.counts.updates, 2);
        CHECK_NEAR((double)c.last, 3, 0);
        CHECK_NEAR((double)c.row, 2, 0); /* a push of that batch alone */
    }
}
