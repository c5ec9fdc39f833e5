/* gpu_loss_scaling_rows_test.c - trainings in float16 whose tables have their
 * rows in a GPU's memory: the bits of rows on the CPU, updates that a row's
 * gradient alone makes overflow, and that nobody waits for who decides. */
#define SUITE gpu_loss_scaling_rows
#include "gpu_kit.h"
#include "rule_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/executor.h"

enum { BATCH = 40, DIM = 4, COLS = 16, NEVER = 1000000 };

static const char *const tables[] = {"first", "second"};

/* Where rows are: on the GPU, but for those of tables that are kept here. */
typedef struct place {
    bool here[2];
} place;

static const place all_there = {{false, false}}, all_here = {{true, true}};
static const place places[] = {
    {{false, false}}, {{true, false}}, {{false, true}}, {{true, true}}};
enum { PLACES = 4 };

typedef struct scene {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
} scene;

static fleet_var *looked_up(fleet_program *p, int table, bool here)
{
    fleet_sparse_embedding_options o = {.table = tables[table],
                                        .combiner = FLEET_MEAN};
    fleet_var *ids =
        table ? fleet_data_ragged(p, "some") : kit_data_ids(p, "three", 3);

    if (table == 0)
        o.combiner = FLEET_SUM;
    CHECK_OK(fleet_device_guard(p, here ? "cpu" : NULL));
    return fleet_sparse_embedding(p, ids, DIM, &o);
}

/* Rows have gradients through a product of float16, and times `by`. */
static void open(scene *s, place where, kit_options o)
{
    fleet_var *row[2], *x;

    o.fp16 = true;
    o.device = "gpu:0";
    s->f = kit_handle(&o);
    s->p = fleet_program_create(s->f);
    kit_place(s->p, &o);
    for (int i = 0; i < 2; i++)
        row[i] = looked_up(s->p, i, where.here[i]);
    CHECK_OK(fleet_device_guard(s->p, NULL));
    x = fleet_concat(s->p, row, 2, 1);
    x = fleet_add(s->p, fleet_fc(s->p, x, COLS, NULL),
                  fleet_mul(s->p, x, kit_data(s->p, "by", COLS)));
    CHECK_OK(fleet_minimize(kit_optimizer(s->f, &o), fleet_mean(s->p, x)));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
}

static void close(scene *s)
{
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

static kit_batch *batch(int step)
{
    kit_batch *b = kit_batch_new(BATCH);

    kit_ids(b, "three", 3, 200, step);
    kit_ragged(b, "some", 5, 150, step + 100);
    kit_floats(b, "by", COLS, step + 200);
    return b;
}

static void train(const scene *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        kit_batch *b = batch(i);

        CHECK_OK(kit_run(s->e, b));
        kit_batch_free(b);
    }
}

static float scale_of(const scene *s)
{
    float scale = -1;

    CHECK_OK(fleet_get_loss_scaling(s->f, &scale));
    return scale;
}

static int64_t updates_of(const scene *s)
{
    CHECK_OK(fleet_executor_flush(s->e));
    return s->f->store->updates;
}

static fl_rows *rows_of(const scene *s, int table)
{
    fl_rows *rows = fl_store_rows(s->f->store, tables[table]);

    CHECK(rows != NULL);
    CHECK_OK(fl_store_to_host(s->f->store));
    return rows;
}

static int64_t count_of(const scene *s, int table)
{
    const fl_rows *rows = rows_of(s, table);

    return rows->methods->count(rows);
}

/* --- the bits of rows on the CPU ------------------------------------------ */

/* Keys, heads, weights and states. */
typedef struct listing {
    const fl_rows *rows;
    char *bytes;
    size_t n;
} listing;

static size_t row_bytes(const fl_rows *r)
{
    return sizeof(uint64_t) + sizeof(fl_row_head) +
           (size_t)(r->dim + fl_rows_floats(r)) * sizeof(float);
}

static fleet_status list_row(void *arg, int bucket, uint64_t key,
                             const float *weights)
{
    listing *l = arg;

    (void)bucket;
    memcpy(l->bytes + l->n, &key, sizeof key);
    memcpy(l->bytes + l->n + sizeof key,
           (const fl_row_head *)(const void *)weights - 1,
           row_bytes(l->rows) - sizeof key);
    l->n += row_bytes(l->rows);
    return FLEET_OK;
}

static listing list(const scene *s, int table)
{
    listing l = {.rows = rows_of(s, table)};

    l.bytes = malloc((size_t)count_of(s, table) * row_bytes(l.rows) + 1);
    CHECK_OK(l.rows->methods->each(l.rows, list_row, &l));
    return l;
}

static void check_rows(const scene *a, const scene *b)
{
    for (int t = 0; t < 2; t++) {
        listing x = list(a, t), y = list(b, t);

        CHECK(x.n > 0 && x.n == y.n);
        CHECK(memcmp(x.bytes, y.bytes, x.n) == 0);
        free(x.bytes);
        free(y.bytes);
    }
}

/* Three updates are skipped at first, and the scale grows at the end. */
static const fleet_amp_configs shrinks = {.init_loss_scaling = 0x1p38f,
                                          .incr_every_n_steps = 4,
                                          .decr_every_n_nan_or_inf = 1,
                                          .incr_ratio = 1.7f,
                                          .decr_ratio = 0.003f,
                                          .use_dynamic_loss_scaling = 1};

static void check_same(kit_options o)
{
    enum { UPDATES = 9 };
    int merge = o.merge > 1 ? o.merge : 1;
    scene here, there;

    o.scaling = &shrinks;
    open(&here, all_here, o);
    train(&here, 0, UPDATES * merge);
    CHECK(updates_of(&here) > 4 && updates_of(&here) < UPDATES);
    for (int i = 0; i < PLACES - 1; i++) {
        open(&there, places[i], o);
        train(&there, 0, UPDATES * merge);
        CHECK_INT(updates_of(&there), updates_of(&here));
        CHECK_NEAR(scale_of(&there), scale_of(&here), 0);
        check_rows(&there, &here);
        CHECK(kit_hash(there.f) == kit_hash(here.f));
        close(&there);
    }
    close(&here);
}

TEST_LIMIT(rows_have_the_bits_of_those_on_the_cpu_with_each_shape_of_rule, 120)
{
    gpu_kit_open();
    for (int i = 0; kit_rule_of_shape(i); i++)
        check_same((kit_options){.optimizer = kit_rule_of_shape(i),
                                 .l2_decay = 0.01f});
    check_same((kit_options){.optimizer = KIT_ROW_ADAM, .l2_decay = 0.01f});
    gpu_kit_close();
}

TEST_LIMIT(rows_have_the_bits_of_those_on_the_cpu_merged_and_clipped, 120)
{
    gpu_kit_open();
    check_same((kit_options){.merge = 2});
    check_same((kit_options){.merge = 3, .sum = true, .optimizer = "sgd"});
    check_same((kit_options){.clip = 0.001f});
    check_same((kit_options){.merge = 2, .clip = 0.001f});
    check_same((kit_options){.merge = 3, .norm_clip = 0.001f});
    gpu_kit_close();
}

TEST(rows_have_the_bits_of_those_on_the_cpu_without_graphs)
{
    gpu_kit_open();
    check_same((kit_options){.no_graphs = true});
    gpu_kit_close();
}

/* --- a row's gradient alone ----------------------------------------------- */

/* New ids, and one number that makes one row's gradient infinite: the loss, and
 * all else, is far from that. */
static kit_batch *batch_that_overflows(int table)
{
    kit_batch *b = batch(7);

    ((int64_t *)(uintptr_t)b->feed[0].data)[5] = 100000;
    ((int64_t *)(uintptr_t)b->feed[1].data)[2] = 100000;
    for (int64_t i = 0; i < (int64_t)BATCH * COLS; i++)
        if (b->feed[1].offsets[i / COLS + 1] > b->feed[1].offsets[i / COLS] &&
            (i % COLS >= 3 * DIM) == table) {
            ((float *)(uintptr_t)b->feed[2].data)[i] = 2e38f;
            return b;
        }
    test_fail(__FILE__, __LINE__, "no sample has ids");
    return b;
}

/* It is the n-th of its group, from 0. */
static void check_overflow(place where, int table, int merge, int n)
{
    const fleet_amp_configs c = {.init_loss_scaling = 0x1p15f,
                                 .incr_every_n_steps = NEVER,
                                 .decr_every_n_nan_or_inf = 1,
                                 .incr_ratio = 2,
                                 .decr_ratio = 0.5f,
                                 .use_dynamic_loss_scaling = 1};
    kit_batch *bad = batch_that_overflows(table);
    int64_t count[2];
    uint64_t hash;
    scene s;

    open(&s, where, (kit_options){.merge = merge, .scaling = &c});
    train(&s, 0, 2 * merge);
    hash = kit_hash(s.f);
    for (int t = 0; t < 2; t++)
        count[t] = count_of(&s, t);
    for (int i = 0; i < merge; i++)
        if (i == n)
            CHECK_OK(kit_run(s.e, bad));
        else
            train(&s, 10 + i, 11 + i);
    CHECK_INT(updates_of(&s), 2);
    CHECK_NEAR(scale_of(&s), 0x1p14f, 0);
    CHECK(kit_hash(s.f) == hash);
    for (int t = 0; t < 2; t++)
        CHECK_INT(count_of(&s, t), count[t]);
    train(&s, 20, 20 + merge);
    CHECK_INT(updates_of(&s), 3);
    CHECK_NEAR(scale_of(&s), 0x1p14f, 0);
    CHECK(kit_hash(s.f) != hash);
    kit_batch_free(bad);
    close(&s);
}

TEST(one_row_that_overflows_skips_the_update_and_makes_no_row)
{
    gpu_kit_open();
    for (int i = 0; i < PLACES; i++)
        for (int table = 0; table < 2; table++) {
            check_overflow(places[i], table, 1, 0);
            check_overflow(places[i], table, 2, 0);
            check_overflow(places[i], table, 2, 1);
        }
    gpu_kit_close();
}

/* A scale that grows with each update until one overflows, again and again. */
static void check_counts(place where, int batches)
{
    const fleet_amp_configs c = {.init_loss_scaling = 0x1p16f,
                                 .incr_every_n_steps = 1,
                                 .decr_every_n_nan_or_inf = 1,
                                 .incr_ratio = 2,
                                 .decr_ratio = 0.5f,
                                 .use_dynamic_loss_scaling = 1};
    int64_t updates;
    scene s;

    open(&s, where, (kit_options){.scaling = &c});
    train(&s, 0, batches);
    updates = updates_of(&s);
    CHECK_OK(fl_store_to_host(s.f->store));
    CHECK(s.f->store->scaling.skipped > 3);
    CHECK_INT(updates + s.f->store->scaling.skipped, batches);
    close(&s);
}

/* The last one of a training is one or the other. */
TEST(an_update_counts_or_is_skipped_wherever_rows_are)
{
    gpu_kit_open();
    for (int i = 0; i < PLACES; i++)
        for (int batches = 24; batches < 26; batches++)
            check_counts(places[i], batches);
    gpu_kit_close();
}

/* --- what is there, and who waits ----------------------------------------- */

TEST(rows_are_checked_where_they_are)
{
    gpu_kit_open();
    for (int i = 0; i < PLACES; i++) {
        bool here = places[i].here[0] || places[i].here[1];
        bool there = !places[i].here[0] || !places[i].here[1];
        char *text;
        scene s;

        open(&s, places[i], (kit_options){0});
        text = fleet_program_dump(s.p, FLEET_DUMP_PLAN, BATCH);
        CHECK((strstr(text, " lookup.check ") != NULL) == there);
        CHECK((strstr(text, " rows.check ") != NULL) == here);
        fleet_free(text);
        close(&s);
    }
    gpu_kit_close();
}

/* The GPU does nothing for a while: two iterations are queued all the same. */
TEST(nobody_waits_for_the_decision_on_rows)
{
    kit_batch *b = batch(0);
    scene s;

    gpu_kit_open();
    open(&s, all_there, (kit_options){.scaling = &shrinks});
    for (int i = 0; i < 4; i++)
        CHECK_OK(kit_run(s.e, b));
    CHECK_OK(fleet_executor_flush(s.e));
    s.e->place.gpu->deadline_ms = 20;
    gpu_kit_control()->set_busy(true);
    for (int i = 0; i < 2; i++)
        CHECK_OK(kit_run(s.e, b));
    CHECK_FAILS(kit_run(s.e, b), FLEET_ETIMEDOUT, "was not done after 20 ms");
    gpu_kit_control()->set_busy(false);
    kit_batch_free(b);
    close(&s);
    gpu_kit_close();
}
