/* plan_sound_test.c - what holds of every plan: memory is shared only by what
 * never meets, steps come in the order of their phases, none is there for
 * nothing, and an allocation that fails is an error.
 */
#define SUITE plan_sound
#include "fake_remote.h"
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/plan/remote.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/lower.h"

/* --- memory and order ---------------------------------------------------- */

/* Which of three memories it lies in; 0: elsewhere. */
static int memory_of(const fl_value *v)
{
    return v->kind == FL_VALUE_TEMP         ? 1
           : v->kind != FL_VALUE_PERSISTENT ? 0
           : v->per_slot                    ? 3
                                            : 2;
}

static size_t size_of_memory(const fl_plan *plan, int memory)
{
    return memory == 1   ? plan->arena_bytes
           : memory == 2 ? plan->persistent_bytes
                         : plan->slot_bytes;
}

/* Lifetimes must cover every step that touches a value. */
static void check_lifetimes(const fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_step; i++)
        for (int j = 0; j < plan->step[i]->n_operand; j++) {
            int value = plan->step[i]->operand[j].value;
            const fl_value *v;

            if (value < 0)
                continue;
            v = &plan->value[fl_plan_root(plan, value)];
            CHECK(v->begin <= plan->step[i]->region);
            CHECK(v->end >= plan->step[i]->region);
        }
    CHECK(plan->loss < 0 || plan->value[fl_plan_root(plan, plan->loss)].end ==
                                (int)plan->n_region);
}

/* The first and the last step that touch a root. */
static void find_steps(const fl_plan *plan, const fl_value *v, int *first,
                       int *last)
{
    *first = -1;
    for (size_t i = 0; i < plan->n_step; i++)
        for (int j = 0; j < plan->step[i]->n_operand; j++) {
            int value = plan->step[i]->operand[j].value;

            if (value < 0 || &plan->value[fl_plan_root(plan, value)] != v)
                continue;
            *first = *first < 0 ? (int)i : *first;
            *last = (int)i;
        }
}

/* Of both each slice knows its own rows alone, which lie at the same place, and
 * is done with the one before it begins with the other one. */
static bool take_turns(const fl_plan *plan, const fl_value *a,
                       const fl_value *b)
{
    int first[2] = {-1, -1}, last[2] = {0, 0};

    find_steps(plan, a, &first[0], &last[0]);
    find_steps(plan, b, &first[1], &last[1]);
    return first[0] >= 0 && first[1] >= 0 && a->begin == a->end &&
           b->begin == a->begin && b->end == a->end &&
           plan->region[a->begin].split == FL_SPLIT_ROWS &&
           fl_shape_batched(&a->shape) && fl_shape_batched(&b->shape) &&
           a->offset == b->offset &&
           fl_value_bytes(plan, a) == fl_value_bytes(plan, b) &&
           (last[0] < first[1] || last[1] < first[0]);
}

static bool meet(const fl_plan *plan, const fl_value *a, const fl_value *b)
{
    return a->begin <= b->end && b->begin <= a->end &&
           a->offset < b->offset + fl_value_bytes(plan, b) &&
           b->offset < a->offset + fl_value_bytes(plan, a) &&
           !take_turns(plan, a, b);
}

static void check_memory(const fl_plan *plan)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *a = &plan->value[i];

        if (a->root != (int)i || !memory_of(a) || a->end < 0)
            continue;
        CHECK(a->offset % FL_CACHE_LINE == 0);
        CHECK(a->offset + fl_value_bytes(plan, a) <=
              size_of_memory(plan, memory_of(a)));
        for (size_t j = 0; j < i; j++) {
            const fl_value *b = &plan->value[j];

            if (b->root == (int)j && memory_of(a) == memory_of(b) &&
                b->end >= 0 && meet(plan, a, b))
                test_fail(__FILE__, __LINE__, "%s and %s share memory", a->name,
                          b->name);
        }
    }
}

/* What lives for one iteration is written before it is read. */
static void check_order(const fl_plan *plan)
{
    bool *written = calloc(plan->n_value, sizeof *written);

    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];

        for (int j = 0; j < s->n_operand; j++) {
            const fl_operand *o = &s->operand[j];
            int root = o->value < 0 ? -1 : fl_plan_root(plan, o->value);

            if (root < 0 || plan->value[root].kind != FL_VALUE_TEMP)
                continue;
            if (o->mode != FL_WRITE && !written[root])
                test_fail(__FILE__, __LINE__, "%s reads %s too early",
                          s->kernel->name, plan->value[root].name);
            written[root] = written[root] || o->mode != FL_READ;
        }
    }
    free(written);
}

/* Pulls, what is between, updates. */
static int run_of(fl_phase phase)
{
    return phase == FL_PULL ? 0 : phase == FL_UPDATE ? 2 : 1;
}

/* Regions follow each other, hold one kind of split and one lane; pulls are
 * first, and updates last. */
static void check_regions(const fl_plan *plan)
{
    int next = 0, run = 0;

    for (size_t r = 0; r < plan->n_region; r++) {
        const fl_region *region = &plan->region[r];

        CHECK(region->first == next && region->n > 0);
        for (int i = next; i < next + region->n; i++) {
            CHECK_INT(plan->step[i]->region, r);
            CHECK(plan->step[i]->kernel->split == region->split);
            CHECK(plan->step[i]->engine == region->engine);
            CHECK_INT(run_of(plan->step[i]->phase), run_of(region->phase));
        }
        CHECK(run_of(region->phase) >= run);
        run = run_of(region->phase);
        next += region->n;
    }
    CHECK_INT(next, plan->n_step);
}

static void check_plan_for(const kit_model *m, const fl_crew_kind *crew,
                           int64_t batch, bool training)
{
    fl_plan *plan;

    CHECK_OK(fl_plan_build_for(crew, m->p, m->f->store, batch, training, NULL,
                               NULL, &plan));
    check_lifetimes(plan);
    check_memory(plan);
    check_order(plan);
    check_regions(plan);
    fl_plan_destroy(plan);
}

static void check_plan(const kit_model *m, int64_t batch, bool training)
{
    static const fl_crew_kind none;

    check_plan_for(m, &none, batch, training);
}

static void check_plans(kit_kind kind, const kit_options *o, bool bf16)
{
    static const int64_t batches[] = {1, 16, 17, 100, 1000};
    kit_model m;

    kit_open(&m, kind, o);
    m.p->training.amp.type = bf16 ? FLEET_BFLOAT16 : 0;
    for (int i = 0; i < 5; i++) {
        check_plan(&m, batches[i], true);
        check_plan(&m, batches[i], false);
    }
    kit_close(&m);
}

TEST(values_that_are_alive_together_never_share_memory)
{
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        check_plans((kit_kind)kind, &(kit_options){0}, false);
        check_plans((kit_kind)kind, &(kit_options){.merge = 3, .clip = 1},
                    false);
        check_plans((kit_kind)kind, &(kit_options){.optimizer = "momentum"},
                    false);
        check_plans((kit_kind)kind, &(kit_options){0}, true);
    }
}

TEST(workers_plans_are_sound_too)
{
    static const int64_t batches[] = {1, 17, 100, 1000};
    fake_server s;
    fake_worker w;
    kit_model m;

    for (int i = 0; i < 4; i++) {
        kit_build(&m, KIT_CTR, &(kit_options){.merge = 1 + i % 2, .clip = 1});
        fake_server_open(&s, m.p, 1, i < 2);
        fake_worker_open(&w, &s, m.f, 0);
        m.e = fleet_executor_create(m.p, NULL);
        check_plan(&m, batches[i], true);
        check_plan(&m, batches[i], false);
        fake_worker_close(&w);
        fake_server_close(&s);
        kit_close(&m);
    }
}

/* The steps that change a state, and how many there are. */
static int check_counts_wait(const fl_plan *plan)
{
    int n = 0;

    for (size_t i = 0; i < plan->n_step; i++)
        for (int j = 0; j < plan->step[i]->n_operand; j++) {
            const fl_operand *o = &plan->step[i]->operand[j];

            if (o->value < 0 || o->mode == FL_READ ||
                plan->value[fl_plan_root(plan, o->value)].kind !=
                    FL_VALUE_STATE)
                continue;
            CHECK_INT(plan->step[i]->phase, FL_MERGE);
            CHECK_INT(plan->region[plan->step[i]->region].phase, FL_MERGE);
            n++;
        }
    return n;
}

/* Merges, and what counts, come behind all that members do side by side. */
TEST(plans_of_a_crew_are_sound_too)
{
    for (int hogwild = 0; hogwild < 2; hogwild++) {
        const fl_crew_kind crew = {.n = 3, .hogwild = hogwild};
        fl_plan *plan;
        kit_model m;

        kit_build(&m, KIT_CTR, &(kit_options){.clip = 1});
        fleet_auc(m.p, m.m.prediction, m.m.label, 0);
        m.e = fleet_executor_create(m.p, NULL);
        CHECK(m.e != NULL);
        check_plan_for(&m, &crew, 1, true);
        check_plan_for(&m, &crew, 100, true);
        CHECK_OK(fl_plan_build_for(&crew, m.p, m.f->store, 100, true, NULL,
                                   NULL, &plan));
        CHECK_INT(check_counts_wait(plan), 2);
        fl_plan_destroy(plan);
        kit_close(&m);
    }
}

TEST(large_models_are_planned_soundly_too)
{
    kit_model m = {.f = kit_handle(&(kit_options){0})};

    m.p = fleet_program_create(m.f);
    CHECK(fleet_deepfm(m.p, NULL, &m.m) != NULL);
    CHECK_OK(fleet_minimize(fleet_adam(m.f, 0.1f, NULL), m.m.loss));
    m.e = fleet_executor_create(m.p, NULL);
    check_plan(&m, 512, true);
    check_plan(&m, 512, false);
    kit_close(&m);
}

/* Models of histories: most of their values are of slices alone. */
TEST(plans_of_transformers_are_sound_too)
{
    static const int64_t batches[] = {1, 16, 17, 100, 300};
    const fleet_ctr_options o = {.embedding_dim = 12, .max_len = 7, .heads = 3};

    for (int bst = 0; bst < 2; bst++) {
        kit_model m = {.f = kit_handle(&(kit_options){0})};

        m.p = fleet_program_create(m.f);
        CHECK((bst ? fleet_bst : fleet_sasrec)(m.p, &o, &m.m) != NULL);
        CHECK_OK(fleet_minimize(fleet_adam(m.f, 0.1f, NULL), m.m.loss));
        m.e = fleet_executor_create(m.p, NULL);
        for (int i = 0; i < 5; i++) {
            check_plan(&m, batches[i], true);
            check_plan(&m, batches[i], false);
        }
        kit_close(&m);
    }
}

/* A chain of twenty values, of which two are alive at a time. */
TEST(values_of_slices_take_turns)
{
    enum { LONG = 20, WIDE = 64, BATCH = 100 };
    kit_model m = {.f = kit_handle(&(kit_options){0})};
    fleet_var *x;
    bool *fetched;
    fl_plan *plan;

    m.p = fleet_program_create(m.f);
    x = fleet_data(m.p, "x", FLEET_FLOAT32, (int64_t[]){-1, WIDE}, 2);
    for (int i = 0; i < LONG; i++)
        x = fleet_scale(m.p, x, 2, 1);
    x = fleet_mean(m.p, x);
    m.e = fleet_executor_create(m.p, NULL);
    fetched = calloc(m.p->n_var, sizeof *fetched);
    fetched[x->id] = true;
    CHECK_OK(
        fl_plan_build(m.p, m.f->store, BATCH, false, fetched, NULL, &plan));
    check_memory(plan);
    /* two take turns, the last one is read by the mean, too */
    CHECK(plan->arena_bytes <= 4 * 128 * WIDE * sizeof(float));
    fl_plan_destroy(plan);
    free(fetched);
    kit_close(&m);
}

/* --- dead steps ---------------------------------------------------------- */

static int count_steps(const fl_plan *plan, const char *kernel)
{
    int n = 0;

    for (size_t i = 0; i < plan->n_step; i++)
        n += strcmp(plan->step[i]->kernel->name, kernel) == 0;
    return n;
}

/* An AUC nobody fetches: its histograms are kept up, its area is not. */
TEST(steps_that_nobody_needs_are_dropped)
{
    bool *fetched;
    fleet_var *auc;
    kit_model m;
    fl_plan *plan;

    kit_build(&m, KIT_CTR, &(kit_options){0});
    auc = fleet_auc(m.p, m.m.prediction, m.m.label, 0);
    fleet_relu(m.p, m.m.prediction);
    m.e = fleet_executor_create(m.p, NULL);
    CHECK(m.e != NULL);
    fetched = calloc(m.p->n_var, sizeof *fetched);
    CHECK_OK(fl_plan_build(m.p, m.f->store, 10, true, fetched, NULL, &plan));
    CHECK_INT(count_steps(plan, "auc.count"), 1);
    CHECK_INT(count_steps(plan, "auc"), 0);
    CHECK_INT(count_steps(plan, "relu"), 0);
    fl_plan_destroy(plan);
    fetched[auc->id] = true;
    CHECK_OK(fl_plan_build(m.p, m.f->store, 10, true, fetched, NULL, &plan));
    CHECK_INT(count_steps(plan, "auc"), 1);
    fl_plan_destroy(plan);
    free(fetched);
    kit_close(&m);
}

TEST(a_test_plan_neither_trains_nor_computes_what_is_not_asked_for)
{
    kit_model m;
    fl_plan *plan;

    kit_open(&m, KIT_CTR, &(kit_options){0});
    CHECK_OK(fl_plan_build(m.p, m.f->store, 10, false, NULL, NULL, &plan));
    CHECK_INT(plan->n_step, 0);
    CHECK(plan->loss < 0 && plan->update < 0);
    fl_plan_destroy(plan);
    kit_close(&m);
}

/* --- slices -------------------------------------------------------------- */

TEST(slices_are_whole_blocks_of_rows_and_at_least_two)
{
    for (int64_t batch = 1; batch < 5000; batch++) {
        int64_t slice = fl_slice_rows(batch);

        if (batch <= 16) {
            CHECK_INT(slice, batch);
            continue;
        }
        CHECK(slice % 16 == 0 && slice <= 128 && slice < batch);
    }
}

/* --- memory -------------------------------------------------------------- */

static bool plan_without_memory(kit_model *m, int64_t n)
{
    fl_plan *plan = (fl_plan *)&plan;
    fleet_status status;

    fl_memory_fail_at(n, false);
    status =
        fl_plan_build(m->p, m->f->store, 30, true, NULL, &m->p->place, &plan);
    fl_memory_fail_at(0, false);
    if (status == FLEET_OK) {
        fl_plan_destroy(plan);
        return true;
    }
    CHECK_STATUS(status, FLEET_ENOMEM);
    CHECK(plan == NULL);
    return false;
}

TEST(planning_survives_every_allocation_that_fails)
{
    int64_t n = 1;
    kit_model m;

    kit_open(&m, KIT_CTR, &(kit_options){.merge = 2, .clip = 1});
    m.p->training.amp.type = FLEET_BFLOAT16;
    while (!plan_without_memory(&m, n))
        n++;
    CHECK(n > 20);
    kit_close(&m);
}

TEST(planning_for_a_gpu_survives_every_allocation_that_fails)
{
    int64_t n = 1;
    kit_model m;

    gpu_kit_open();
    kit_open(
        &m, KIT_CTR,
        &(kit_options){.merge = 2, .clip = 1, .fp16 = true, .device = "gpu:0"});
    while (!plan_without_memory(&m, n))
        n++;
    CHECK(n > 20);
    kit_close(&m);
    gpu_kit_close();
}

TEST(planning_for_a_worker_survives_every_allocation_that_fails)
{
    int64_t n = 1;
    fake_server s;
    fake_worker w;
    kit_model m;

    kit_build(&m, KIT_CTR, &(kit_options){.merge = 2, .clip = 1});
    fake_server_open(&s, m.p, 1, false);
    fake_worker_open(&w, &s, m.f, 0);
    m.e = fleet_executor_create(m.p, NULL);
    while (!plan_without_memory(&m, n))
        n++;
    CHECK(n > 20);
    fake_worker_close(&w);
    fake_server_close(&s);
    kit_close(&m);
}
