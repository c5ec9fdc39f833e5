/* gpu_loss_scaling_servers_test.c - workers on GPUs that train in float16
 * beside servers: each has a scale of its own, and one whose gradients overflow
 * brings nothing to that step, or sends nothing. */
#define SUITE gpu_loss_scaling_servers
#include "gpu_kit.h"
#include "overflow_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/prefetch.h"

enum { STEPS = 5, BAD = 2 };

typedef struct lesson {
    kit_options how;
    bool a_sync;
    bool overflows[2];       /* in step BAD, by worker */
    int seed;                /* of those batches */
    const char *load, *save; /* NULL: neither */
    int64_t skipped[2], updates[2];
    float first[2], scale[2];
} lesson;

static void choose_sync(fleet_distributed_strategy *s)
{
    s->a_sync = 0;
}

static kit_options options_of(const lesson *l)
{
    kit_options how = l->how;

    how.fp16 = true;
    how.scaling = &overflow_halves;
    how.device = "gpu:0";
    how.max_batch = 40;
    how.choose = l->a_sync ? NULL : choose_sync;
    return how;
}

static void open_one(ps_node *n, const fleet_options *o)
{
    kit_options how = options_of(n->job->user);
    fleet_optimizer *optimizer;

    how.device = n->index == 0 ? "gpu:0" : "gpu:1";

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = overflow_program(n->s.f, &how, &optimizer);
}

static fleet_status step(const lesson *l, fleet_executor *e, int i, int worker)
{
    bool bad = i == BAD && l->overflows[worker];

    return overflow_train(e, bad ? l->seed : 2 * i + worker, bad);
}

static fleet_status work(ps_node *n)
{
    lesson *l = n->job->user;
    fl_store *store = n->s.f->store;
    double sum = 1;

    FL_TRY(ps_begin(n));
    CHECK_OK(fleet_get_loss_scaling(n->s.f, &l->first[n->index]));
    for (int i = 0; i < STEPS; i++)
        FL_TRY(step(l, n->s.e, i, n->index));
    FL_TRY(fl_executor_end_pass(n->s.e, &sum, 1));
    l->skipped[n->index] = store->scaling.skipped;
    l->updates[n->index] = store->updates;
    CHECK_OK(fleet_get_loss_scaling(n->s.f, &l->scale[n->index]));
    if (l->save)
        FL_TRY(fleet_save_persistables(n->s.f, l->save));
    return ps_end(n);
}

static uint64_t hash_of(lesson *l, int workers)
{
    ps_job j = {.workers = workers,
                .servers = 2,
                .lanes = 2,
                .open = open_one,
                .work = work,
                .load = l->load,
                .user = l};
    uint64_t hash = ps_hash(&j);

    for (int i = 0; i < workers; i++) {
        CHECK_INT(l->skipped[i], l->overflows[i]);
        CHECK_NEAR(l->scale[i], l->first[i] / (l->overflows[i] ? 2 : 1), 0);
    }
    return hash;
}

/* One process on a GPU that merges the workers' batches. */
static uint64_t alone(const lesson *l, int workers)
{
    kit_options how = options_of(l);
    fleet_options o = {.seed = 5, .num_threads = 1};
    fleet_optimizer *optimizer;
    fleet_executor *e;
    fleet_program *p;
    uint64_t hash;
    fleet *f;

    how.merge = workers;
    how.choose = NULL;
    CHECK_OK(fleet_init(&f, &o));
    p = overflow_program(f, &how, &optimizer);
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    for (int i = 0; i < STEPS; i++)
        for (int w = 0; w < workers; w++)
            CHECK_OK(step(l, e, i, w));
    CHECK_OK(fleet_executor_flush(e));
    hash = kit_hash(f);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return hash;
}

/* A GPU for each worker: they wait for each other. */
static void open_gpus(void)
{
    gpu_kit_open();
    gpu_kit_control()->set_devices(2);
}

TEST_LIMIT(in_sync_they_are_one_process_that_merges_their_batches, 100)
{
    lesson l[] = {{.how.optimizer = "adam"},
                  {.how.optimizer = "sgd"},
                  {.how = {.optimizer = "adam", .clip = 0.001f}}};

    open_gpus();
    for (int i = 0; i < 3; i++)
        for (int workers = 1; workers <= 2; workers++)
            CHECK(hash_of(&l[i], workers) == alone(&l[i], workers));
    gpu_kit_close();
}

/* A batch that brings nothing may be any: neither weights nor rows are of
 * it. */
static void check_nothing_comes(kit_options how, bool a_sync, int workers)
{
    lesson whole = {.how = how, .a_sync = a_sync};
    lesson one = whole, other;

    one.overflows[workers - 1] = true;
    one.seed = 50;
    other = one;
    other.seed = 51;
    CHECK(hash_of(&one, workers) == hash_of(&other, workers));
    CHECK(hash_of(&whole, workers) != hash_of(&one, workers));
    CHECK_INT(whole.updates[0], STEPS);
    CHECK_INT(one.updates[0], a_sync ? STEPS - 1 : STEPS);
}

TEST_LIMIT(a_worker_that_overflows_brings_nothing_to_the_step, 200)
{
    open_gpus();
    check_nothing_comes((kit_options){.optimizer = "adam"}, false, 2);
    check_nothing_comes((kit_options){.optimizer = "sgd", .clip = 0.001f},
                        false, 2);
    gpu_kit_close();
}

/* The clip waits for norms, of which there are none. */
TEST_LIMIT(a_step_to_which_nobody_brings_anything_changes_nothing, 100)
{
    static const float clip[] = {0, 0.001f};

    open_gpus();
    for (int i = 0; i < 2; i++) {
        lesson l = {.how = {.optimizer = "sgd", .clip = clip[i]},
                    .overflows = {true, true},
                    .seed = 50};

        CHECK(hash_of(&l, 2) == alone(&l, 2));
        CHECK_INT(l.updates[0], STEPS);
    }
    gpu_kit_close();
}

TEST_LIMIT(in_async_a_batch_that_overflows_is_not_sent, 100)
{
    lesson l[] = {{.how.optimizer = "adam"},
                  {.how = {.optimizer = "adam", .clip = 0.001f}},
                  {.how = {.optimizer = "sgd"}}};

    open_gpus();
    for (int i = 0; i < 3; i++) {
        l[i].a_sync = true;
        CHECK(hash_of(&l[i], 1) == alone(&l[i], 1));
        check_nothing_comes(l[i].how, true, 1);
        l[i].overflows[0] = true;
        l[i].seed = 50;
        CHECK(hash_of(&l[i], 1) == alone(&l[i], 1));
    }
    gpu_kit_close();
}

TEST_LIMIT(who_loads_a_checkpoint_goes_on_with_the_first_ones_scale, 100)
{
    lesson before = {.overflows = {true, false},
                     .seed = 50,
                     .save = test_path("checkpoint")};
    lesson after = {.load = before.save};

    open_gpus();
    hash_of(&before, 2);
    CHECK_NEAR(before.first[0], 0x1p15f, 0);
    CHECK_NEAR(before.first[1], 0x1p15f, 0);
    hash_of(&after, 2);
    CHECK_NEAR(after.first[0], 0x1p14f, 0);
    CHECK_NEAR(after.first[1], 0x1p14f, 0);
    gpu_kit_close();
}
