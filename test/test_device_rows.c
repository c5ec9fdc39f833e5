/* test_device_rows.c - what a device does with the rows of a lookup
 * (lookup_device.h): squares for the clip, and the rules, against the CPU's. */
#define SUITE device_rows
#include "device_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/lookup_device.h"
#include "runtime/optimizer.h"
#include "runtime/simd.h"
#include "runtime/update_device.h"

enum { DIM = 5, HEAD = sizeof(fl_row_head), STATES = 2 };

static void run(device_kit *k, const char *name, const fl_device_lookup *c,
                const fl_device_arg *arg, int n)
{
    device_kit_run(k, name,
                   &(fl_device_step){.arg = arg, .n_arg = n, .config = c});
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
    for (int i = 0; i < 4; i++)
        device_kit_drop(&k, arg[i].data);
    free(norm);
    device_kit_close(&k);
}

enum { TABLE = 40, CHANGED = 11 };

typedef struct row {
    fl_row_head head;
    float w[(1 + STATES) * DIM];
    float gap;
} row;

static void fill_table(row *t)
{
    for (int i = 0; i < TABLE; i++) {
        t[i] = (row){.head = {(uint64_t)i, (uint32_t)(i % 3), 5}, .gap = 42};
        for (int j = 0; j < (1 + STATES) * DIM; j++)
            t[i].w[j] = fabsf(kit_noise(j, i)) + 0.1f;
    }
}

/* The CPU's rule on the same rows. */
static void update_here(row *t, const int64_t *slot, const float *sum,
                        const fl_update *u, fl_rule_rows *rule)
{
    for (int i = 0; i < CHANGED; i++) {
        float *w = t[slot[i]].w;
        const float *g = sum + i * DIM;

        rule(u, &w, &g, 1, DIM);
    }
}

static void check_rule(device_kit *k, fl_rule_kind kind, fl_rule_rows *rule)
{
    static const float correct[] = {0, 10, 5, 3, 1};
    fl_device_lookup c = {.dim = DIM,
                          .capacity = CHANGED,
                          .rule = (int)kind,
                          .stride = sizeof(row),
                          .head = HEAD};
    fl_device_update now = {.u = {.lr = 0.1f,
                                  .scale = 0.5f,
                                  .clip = 0.9f,
                                  .decay = 0.01f,
                                  .a = 0.9f,
                                  .b = 0.99f,
                                  .one_minus_a = 0.1f,
                                  .one_minus_b = 0.01f,
                                  .epsilon = 1e-6f,
                                  .nesterov = 1,
                                  .version = 77,
                                  .correct_a_at = correct,
                                  .correct_b_at = correct,
                                  .n_correct = kind == FL_RULE_ADAM ? 5 : 0,
                                  .correct_a = 1,
                                  .correct_b = 1}};
    fl_update here = now.u;
    row mine[TABLE], *got;
    float sum[CHANGED * DIM];
    int64_t slot[CHANGED], n = CHANGED;
    void *table_of_corrections = device_kit_make(k, correct, sizeof correct);

    fill_table(mine);
    for (int i = 0; i < CHANGED; i++)
        slot[i] = i * 3 + 1;
    for (int i = 0; i < CHANGED * DIM; i++)
        sum[i] = kit_noise(i, 3);
    now.u.correct_a_at = now.u.correct_b_at = table_of_corrections;
    fl_device_arg arg[] = {{.data = device_kit_make(k, mine, sizeof mine)},
                           {.data = device_kit_make(k, &now, sizeof now)},
                           {.data = device_kit_make(k, sum, sizeof sum)},
                           {.data = device_kit_make(k, slot, sizeof slot)},
                           {.data = device_kit_make(k, &n, sizeof n)}};
    run(k, "lookup.update", &c, arg, 5);
    update_here(mine, slot, sum, &here, rule);
    got = device_kit_fetch(k, arg[0].data, sizeof mine);
    CHECK(memcmp(got, mine, sizeof mine) == 0);
    for (int i = 0; i < 5; i++)
        device_kit_drop(k, arg[i].data);
    device_kit_drop(k, table_of_corrections);
    free(got);
}

TEST(rows_are_updated_by_each_rule_to_the_bit)
{
    const fl_simd *simd = fl_simd_best();
    device_kit k;

    device_kit_open(&k, true);
    check_rule(&k, FL_RULE_SGD, simd->sgd_rows);
    check_rule(&k, FL_RULE_MOMENTUM, simd->momentum_rows);
    check_rule(&k, FL_RULE_ADAGRAD, simd->adagrad_rows);
    check_rule(&k, FL_RULE_ADAM, simd->adam_rows);
    device_kit_close(&k);
}
