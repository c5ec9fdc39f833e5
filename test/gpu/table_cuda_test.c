/* table_cuda_test.c - what a device does with the rows of a table
 * (lookup_kernels.h): found, made and changed by the rules, to the CPU's bits;
 * and squares for the clip. */
#define SUITE table_cuda
#include "device_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda-emu/control.h"
#include "runtime/graph/initializer.h"
#include "runtime/store/lookup_kernels.h"
#include "runtime/optim/optimizer.h"
#include "runtime/simd/simd.h"
#include "runtime/optim/update_gpu.h"

enum { DIM = 5, STATES = 2 };

static void run(device_kit *k, const char *name, const fl_device_lookup *c,
                const fl_device_arg *arg, int n)
{
    device_kit_run(k, name,
                   &(fl_device_step){.arg = arg, .n_arg = n, .config = c});
}

/* To a quarter of the norm, from the squares that are there. */
static void check_clipped(device_kit *k, const fl_device_lookup *c,
                          fl_device_arg *arg, const float *sum, double norm)
{
    const fl_device_update now = {.norm_clip = (float)(norm / 4)};
    const float factor = (float)((double)now.norm_clip / norm);
    const fl_device_arg with[] = {
        arg[0], {.data = device_kit_make(k, &now, sizeof now)}, arg[2], arg[3]};
    float *got;

    run(k, "lookup.clip", c, with, 4);
    got = device_kit_fetch(k, arg[2].data, 100 * sizeof *got);
    for (int i = 0; i < 100; i++)
        CHECK(fabsf(got[i] - sum[i] * factor) <= 1e-6f * fabsf(sum[i]));
    free(got);
    device_kit_drop(k, with[1].data);
}

TEST(squares_are_summed_for_the_clip)
{
    enum { ROWS = 700 };
    static float sum[ROWS * DIM];
    fl_device_update now = {.u.scale = 0.25f};
    fl_device_lookup c = {.dim = DIM};
    double want = 0, got = 0, *norm;
    int64_t n = ROWS;
    device_kit k;

    for (int i = 0; i < ROWS * DIM; i++) {
        sum[i] = kit_noise(i, 4);
        want += (double)sum[i] * (double)sum[i] / 16;
    }
    device_kit_open(&k, true);
    fl_device_arg arg[] = {
        {.data = device_kit_make(&k, NULL, FL_LOOKUP_NORMS * sizeof *norm)},
        {.data = device_kit_make(&k, &now, sizeof now)},
        {.data = device_kit_make(&k, sum, sizeof sum)},
        {.data = device_kit_make(&k, &n, sizeof n)}};
    run(&k, "lookup.norm", &c, arg, 4);
    norm = device_kit_fetch(&k, arg[0].data, FL_LOOKUP_NORMS * sizeof *norm);
    for (int i = 0; i < FL_LOOKUP_NORMS; i++)
        got += norm[i];
    CHECK(fabs(got - want) < 1e-9 * want);
    check_clipped(&k, &c, arg, sum, sqrt(want));
    for (int i = 0; i < 4; i++)
        device_kit_drop(&k, arg[i].data);
    free(norm);
    device_kit_close(&k);
}

/* What is found with one number at a place of so many rows' sums, of which the
 * last one does not count. */
static bool is_found(device_kit *k, float number, int64_t place)
{
    enum { ROWS = 9000, ALL = (ROWS + 1) * DIM };
    static float sum[ALL];
    fl_device_lookup c = {.dim = DIM};
    int64_t n = ROWS;
    bool bad = false;
    float *found;

    for (int i = 0; i < ALL; i++)
        sum[i] = i == place ? number : 3e38f;
    fl_device_arg arg[] = {
        {.data = device_kit_make(k, NULL, FL_LOOKUP_CHECKS * sizeof *found)},
        {.data = device_kit_make(k, sum, sizeof sum)},
        {.data = device_kit_make(k, &n, sizeof n)}};
    run(k, "lookup.check", &c, arg, 3);
    found = device_kit_fetch(k, arg[0].data, FL_LOOKUP_CHECKS * sizeof *found);
    for (int i = 0; i < FL_LOOKUP_CHECKS; i++) {
        CHECK(found[i] == 0 || found[i] == 1);
        bad = bad || found[i] == 1;
    }
    for (int i = 0; i < 3; i++)
        device_kit_drop(k, arg[i].data);
    free(found);
    return bad;
}

TEST(a_sum_that_is_not_finite_is_found)
{
    enum { LAST = 9000 * DIM - 1 };
    device_kit k;

    device_kit_open(&k, true);
    CHECK(!is_found(&k, -3e38f, 7));
    CHECK(is_found(&k, INFINITY, 0));
    CHECK(is_found(&k, -INFINITY, LAST / 2));
    CHECK(is_found(&k, NAN, LAST));
    CHECK(!is_found(&k, NAN, LAST + 1));
    device_kit_close(&k);
}

/* --- a table -------------------------------------------------------------- */

enum { TABLE = 40, ROOM = 100, PLACES = 256 };

typedef struct row {
    fl_row_head head;
    float w[(1 + STATES) * DIM];
    float gap[3];
    uint64_t key;
} row;

_Static_assert(offsetof(row, key) + sizeof(uint64_t) == sizeof(row),
               "a row ends with its key");

/* Keys that use all of their bits, and meet in the index. */
static uint64_t key_of(int i)
{
    return i % 3 ? (uint64_t)i * 0x9E3779B97F4A7C15 : (uint64_t)i;
}

static void fill_table(row *t)
{
    for (int i = 0; i < TABLE; i++) {
        t[i] = (row){.head = {5, (uint32_t)(i % 3), 0},
                     .gap = {42, 42, 42},
                     .key = key_of(i)};
        for (int j = 0; j < (1 + STATES) * DIM; j++)
            t[i].w[j] = fabsf(kit_noise(j, i)) + 0.1f;
    }
}

typedef struct table {
    device_kit k;
    fl_device_rows *there;
    row *rows;
    fl_device_entry *index;
} table;

static const fl_filler fillers[] = {
    {FLEET_INIT_CONSTANT, 0.25f, 0, 7, 9, 0},
    {FLEET_INIT_UNIFORM, -0.3f, 0.7f, 7, 9, 0},
    {FLEET_INIT_NORMAL, 0.5f, 2, 7, 9, 0},
    {FLEET_INIT_TRUNCATED_NORMAL, 1, 3, 7, 9, 0}};
enum { FILLERS = 4 };

static void open_table(table *t, const row *rows, const fl_filler *f)
{
    fl_device_rows now = {.n = TABLE,
                          .room = ROOM,
                          .stride = sizeof(row),
                          .mask = PLACES - 1,
                          .kind = (int32_t)f->kind,
                          .a = f->a,
                          .b = f->b,
                          .seed = fl_filler_row_seed(f),
                          .n_float = STATES * DIM,
                          .state = 0.125f};
    static const fl_device_entry none[PLACES];
    row all[ROOM];
    fl_device_arg arg;

    memset(all, 0, sizeof all);
    memcpy(all, rows, TABLE * sizeof *rows);
    device_kit_open(&t->k, true);
    t->rows = device_kit_make(&t->k, all, sizeof all);
    t->index = device_kit_make(&t->k, none, sizeof none);
    now.row = (char *)t->rows;
    now.index = t->index;
    t->there = device_kit_make(&t->k, &now, sizeof now);
    arg = (fl_device_arg){.data = t->there, .rows = TABLE};
    run(&t->k, "lookup.index", NULL, &arg, 1);
}

static void close_table(table *t)
{
    device_kit_drop(&t->k, t->there);
    device_kit_drop(&t->k, t->rows);
    device_kit_drop(&t->k, t->index);
    device_kit_close(&t->k);
}

static row *rows_now(table *t)
{
    return device_kit_fetch(&t->k, t->rows, ROOM * sizeof(row));
}

static int64_t count_now(table *t)
{
    fl_device_rows *now = device_kit_fetch(&t->k, t->there, sizeof *now);
    int64_t n = now->n;

    free(now);
    return n;
}

/* --- an index that was written over --------------------------------------- */

static uint64_t fault_of(table *t, const char *name, fl_device_arg *arg,
                         const fl_device_lookup *c)
{
    uint64_t none = FL_NO_FAULT, *got;
    void *fault = device_kit_make(&t->k, &none, sizeof none);

    device_kit_run(
        &t->k, name,
        &(fl_device_step){.arg = arg, .n_arg = 5, .config = c, .fault = fault});
    got = device_kit_fetch(&t->k, fault, sizeof *got);
    none = *got;
    free(got);
    device_kit_drop(&t->k, fault);
    return none;
}

/* No probe of it ends at a free place, and each ends. */
TEST(an_index_without_a_free_place_is_a_fault_and_no_hang)
{
    fl_device_lookup c = {.dim = DIM, .capacity = 1};
    fl_device_entry full[PLACES];
    uint64_t key = 77;
    int64_t one = 1;
    fl_device_update update = {.u.lr = 1};
    int32_t stop = 0;
    row rows[TABLE];
    table t;

    fill_table(rows);
    open_table(&t, rows, &fillers[0]);
    for (int i = 0; i < PLACES; i++)
        full[i] = (fl_device_entry){.key = 1, .number = 1};
    CHECK_OK(t.k.d->methods->copy(t.k.d, t.k.q, t.index, full, sizeof full,
                                  FL_TO_DEVICE));
    void *keys = device_kit_make(&t.k, &key, sizeof key),
         *n = device_kit_make(&t.k, &one, sizeof one),
         *slot = device_kit_make(&t.k, NULL, sizeof(int64_t)),
         *fresh = device_kit_make(&t.k, NULL, DIM * sizeof(float)),
         *stopped = device_kit_make(&t.k, &stop, sizeof stop);
    update.stop = stopped;
    void *now = device_kit_make(&t.k, &update, sizeof update);
    fl_device_arg ask[] = {{.data = slot},
                           {.data = fresh},
                           {.data = t.there},
                           {.data = keys},
                           {.data = n}},
                  make[] = {{.data = t.there},
                            {.data = slot},
                            {.data = now},
                            {.data = keys},
                            {.data = n}};

    CHECK(fault_of(&t, "lookup.find", ask, &c) == FL_NO_FAULT);
    CHECK(fault_of(&t, "lookup.insert", make, &c) == FL_NO_FAULT);
    CHECK(fault_of(&t, "lookup.find", ask, &c) == 0);
    void *all[] = {keys, n, slot, fresh, stopped, now};
    for (int i = 0; i < 6; i++)
        device_kit_drop(&t.k, all[i]);
    close_table(&t);
}

/* --- find and insert ------------------------------------------------------ */

/* Every second of these is new, and one place is beyond the count. */
enum { ASKED = 30, ASKED_ROOM = 33 };

static uint64_t asked(int i)
{
    return i % 2 ? key_of(i) : 1000000 + key_of(i);
}

static bool is_known(int i)
{
    return i % 2;
}

/* What becomes of an update. */
typedef enum fate { MADE, STOPPED, SKIPPED } fate;

typedef struct request {
    fl_device_lookup c;
    int32_t stop;
    void *key, *n, *slot, *fresh, *now, *stopped;
} request;

static void ask(table *t, request *r, fate of)
{
    uint64_t key[ASKED_ROOM] = {0};
    int64_t n = ASKED;
    fl_device_update now = {.u.lr = 1, .skip = of == SKIPPED};

    *r = (request){.c = {.dim = DIM, .capacity = ASKED_ROOM},
                   .stop = of == STOPPED};
    for (int i = 0; i < ASKED; i++)
        key[i] = asked(i);
    r->key = device_kit_make(&t->k, key, sizeof key);
    r->n = device_kit_make(&t->k, &n, sizeof n);
    r->slot = device_kit_make(&t->k, NULL, ASKED_ROOM * sizeof(int64_t));
    r->fresh = device_kit_make(&t->k, NULL, ASKED_ROOM * DIM * sizeof(float));
    r->stopped = device_kit_make(&t->k, &r->stop, sizeof r->stop);
    now.stop = r->stopped;
    r->now = device_kit_make(&t->k, &now, sizeof now);
}

static void find(table *t, request *r)
{
    fl_device_arg arg[] = {{.data = r->slot},
                           {.data = r->fresh},
                           {.data = t->there},
                           {.data = r->key},
                           {.data = r->n}};

    run(&t->k, "lookup.find", &r->c, arg, 5);
}

static void insert(table *t, request *r)
{
    fl_device_arg arg[] = {{.data = t->there},
                           {.data = r->slot},
                           {.data = r->now},
                           {.data = r->key},
                           {.data = r->n}};

    run(&t->k, "lookup.insert", &r->c, arg, 5);
}

static void forget(table *t, request *r)
{
    void *all[] = {r->key, r->n, r->slot, r->fresh, r->now, r->stopped};

    for (int i = 0; i < 6; i++)
        device_kit_drop(&t->k, all[i]);
}

static void check_found(table *t, const request *r, const fl_filler *f)
{
    int64_t *slot = device_kit_fetch(&t->k, r->slot, ASKED * sizeof *slot);
    float *fresh =
        device_kit_fetch(&t->k, r->fresh, ASKED * DIM * sizeof *fresh);
    float want[DIM];

    for (int i = 0; i < ASKED; i++) {
        CHECK_INT(slot[i], is_known(i) ? i : -1);
        fl_filler_row(f, asked(i), want, DIM);
        CHECK(is_known(i) || memcmp(fresh + i * DIM, want, sizeof want) == 0);
    }
    free(slot);
    free(fresh);
}

TEST(rows_are_found_and_unknown_ones_begin_with_the_bits_of_cpus)
{
    static row rows[TABLE];
    request r;
    table t;

    fill_table(rows);
    for (int i = 0; i < FILLERS; i++) {
        open_table(&t, rows, &fillers[i]);
        ask(&t, &r, MADE);
        find(&t, &r);
        check_found(&t, &r, &fillers[i]);
        CHECK_INT(count_now(&t), TABLE);
        forget(&t, &r);
        close_table(&t);
    }
}

/* New rows in the order of their keys' numbers. */
static void check_made(table *t, const request *r, const row *rows,
                       const fl_filler *f)
{
    int64_t *slot = device_kit_fetch(&t->k, r->slot, ASKED * sizeof *slot);
    row *now = rows_now(t);
    int64_t next = TABLE;
    float want[DIM];

    CHECK_INT(count_now(t), TABLE + ASKED / 2);
    CHECK(memcmp(now, rows, TABLE * sizeof *rows) == 0);
    for (int i = 0; i < ASKED; i++) {
        const row *made = &now[slot[i]];

        CHECK_INT(slot[i], is_known(i) ? i : next++);
        CHECK(made->key == asked(i));
        fl_filler_row(f, asked(i), want, DIM);
        if (is_known(i))
            continue;
        CHECK(memcmp(made->w, want, sizeof want) == 0);
        CHECK(made->head.step == 0 && made->head.changed_at == 0);
        for (int j = DIM; j < (1 + STATES) * DIM; j++)
            CHECK(made->w[j] == 0.125f);
    }
    free(slot);
    free(now);
}

TEST(missing_rows_are_made_in_the_order_of_their_keys)
{
    static row rows[TABLE];
    request r, again;
    table t;

    fill_table(rows);
    for (int reverse = 0; reverse < 2; reverse++)
        for (int i = 0; i < FILLERS; i++) {
            fl_emu_set_reverse(reverse);
            open_table(&t, rows, &fillers[i]);
            ask(&t, &r, MADE);
            find(&t, &r);
            insert(&t, &r);
            check_made(&t, &r, rows, &fillers[i]);
            ask(&t, &again, MADE); /* now they are known, and stay */
            find(&t, &again);
            insert(&t, &again);
            check_made(&t, &again, rows, &fillers[i]);
            forget(&t, &r);
            forget(&t, &again);
            close_table(&t);
        }
}

static void check_none_made(fate of)
{
    static row rows[TABLE];
    request r;
    table t;
    row *now;

    fill_table(rows);
    open_table(&t, rows, &fillers[1]);
    ask(&t, &r, of);
    find(&t, &r);
    insert(&t, &r);
    now = rows_now(&t);
    CHECK_INT(count_now(&t), TABLE);
    CHECK(memcmp(now, rows, TABLE * sizeof *rows) == 0);
    check_found(&t, &r, &fillers[1]); /* still missing */
    free(now);
    forget(&t, &r);
    close_table(&t);
}

TEST(no_row_is_made_once_an_iteration_has_failed)
{
    check_none_made(STOPPED);
}

TEST(no_row_is_made_by_an_update_that_is_skipped)
{
    check_none_made(SKIPPED);
}

/* --- rules ---------------------------------------------------------------- */

enum { CHANGED = 11 };

/* A table's own rate and decay, and what becomes of the update. */
typedef struct rule_case {
    fl_rule_kind kind;
    fleet_param_attr attr;
    fate of;
    bool own;    /* by an optimizer of the table's own */
    bool bounds; /* to [-0.25, 0.5] */
} rule_case;

static fl_device_update update_of(const rule_case *c, const float *correct)
{
    return (fl_device_update){
        .u = {.lr = 0.1f,
              .scale = 0.5f,
              .clip = 0.9f,
              .decay = 0.01f,
              .number = {0.9f, 0.99f, 1e-6f, 1},
              .version = 77,
              .correct_a_at = correct,
              .correct_b_at = correct,
              .n_correct = fl_rule_has_moments(c->kind) ? 5 : 0,
              .correct_a = 1,
              .correct_b = 1},
        .skip = c->of == SKIPPED};
}

/* All that the table's optimizer says is in its own place, as it is after a
 * skipped update; the rest of the update says other things. */
static void move_to_own(fl_device_update *now)
{
    fl_device_own *own = &now->own[2];
    fl_update *u = &now->u;

    own->decay = u->decay;
    memcpy(own->number, u->number, sizeof own->number);
    own->correct_a_at = u->correct_a_at;
    own->correct_b_at = u->correct_b_at;
    own->n_correct = u->n_correct;
    own->after[1] = (fl_device_rates){u->lr, u->correct_a, u->correct_b};
    now->more = 1;
    u->lr = u->decay = u->correct_a = u->correct_b = 7;
    u->n_correct = 0;
    memset(u->number, 0, sizeof u->number);
}

/* The CPU's rule on the same rows. */
static void update_here(row *t, const int64_t *slot, const float *sum,
                        const rule_case *c, const fl_update *u)
{
    fl_update own = fl_update_with(u, &c->attr);

    for (int i = 0; i < CHANGED && c->of == MADE; i++) {
        float *w = t[slot[i]].w;
        const float *g = sum + i * DIM;

        fl_rule_set_best()->of[c->kind].rows(&own, &w, &g, 1, DIM);
        if (c->bounds)
            fl_rule_set_best()->bound(-0.25f, 0.5f, &w, 1, DIM);
    }
}

static void check_rule(const rule_case *c)
{
    static const float correct[] = {0, 10, 5, 3, 1};
    fl_device_lookup config = {.dim = DIM,
                               .capacity = CHANGED,
                               .rule = c->kind,
                               .rates = fl_update_rates_of(&c->attr),
                               .own = c->own ? 3 : 0,
                               .whole_rows = fl_rule_of(c->kind)->n_row > 0,
                               .bounds = c->bounds,
                               .low = -0.25f,
                               .high = 0.5f};
    fl_device_update now = update_of(c, correct);
    fl_update here = now.u;
    float sum[CHANGED * DIM];
    int64_t slot[CHANGED], n = CHANGED;
    int32_t stop = c->of == STOPPED;
    row mine[TABLE], *got;
    const float *at;
    table t;

    fill_table(mine);
    for (int i = 0; i < CHANGED; i++)
        slot[i] = i * 3 + 1;
    for (int i = 0; i < CHANGED * DIM; i++)
        sum[i] = kit_noise(i, 3);
    open_table(&t, mine, &fillers[0]);
    now.stop = device_kit_make(&t.k, &stop, sizeof stop);
    now.u.correct_a_at = now.u.correct_b_at =
        device_kit_make(&t.k, correct, sizeof correct);
    at = now.u.correct_a_at;
    if (c->own)
        move_to_own(&now);
    fl_device_arg arg[] = {{.data = t.there},
                           {.data = device_kit_make(&t.k, &now, sizeof now)},
                           {.data = device_kit_make(&t.k, sum, sizeof sum)},
                           {.data = device_kit_make(&t.k, slot, sizeof slot)},
                           {.data = device_kit_make(&t.k, &n, sizeof n)}};
    run(&t.k, "lookup.update", &config, arg, 5);
    update_here(mine, slot, sum, c, &here);
    got = rows_now(&t);
    CHECK(memcmp(got, mine, sizeof mine) == 0);
    for (int i = 1; i < 5; i++)
        device_kit_drop(&t.k, arg[i].data);
    device_kit_drop(&t.k, (void *)(uintptr_t)now.stop);
    device_kit_drop(&t.k, (void *)(uintptr_t)at);
    free(got);
    close_table(&t);
}

TEST(rows_are_updated_by_each_rule_to_the_bit)
{
    for (int kind = 0; kind < FL_N_RULE; kind++) {
        check_rule(&(rule_case){.kind = (fl_rule_kind)kind});
        check_rule(
            &(rule_case){.kind = (fl_rule_kind)kind,
                         .attr = {.learning_rate = 0.5f, .l2_decay = 0.3f}});
        check_rule(
            &(rule_case){.kind = (fl_rule_kind)kind, .attr.no_decay = 1});
    }
}

TEST(rows_are_updated_by_their_tables_own_optimizer_and_within_bounds)
{
    for (int kind = 0; kind < FL_N_RULE; kind++) {
        check_rule(&(rule_case){.kind = (fl_rule_kind)kind, .own = true});
        check_rule(&(rule_case){
            .kind = (fl_rule_kind)kind, .own = true, .bounds = true});
    }
}

TEST(no_row_is_changed_once_an_iteration_has_failed)
{
    check_rule(&(rule_case){.kind = FL_RULE_ADAM, .of = STOPPED});
}

TEST(no_row_is_changed_by_an_update_that_is_skipped)
{
    for (int kind = 0; kind < FL_N_RULE; kind++)
        check_rule(&(rule_case){.kind = (fl_rule_kind)kind, .of = SKIPPED});
}
