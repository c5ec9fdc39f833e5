/* ps_live.c - what a live hash costs a lane: 26,624 of 1,000,000 rows of 16
 * numbers are changed, by Adagrad or Adam, as an update of a lane changes them,
 * with and without it, in turn. Rows are looked for, as in a push without a
 * pull; then as in one that follows its pull. */
#include "common.h"
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "fleet/servers.h"
#include "ps/aggregate/aggregate_internal.h"
#include "runtime/store/live_hash.h"

enum { ROWS = 1000000, KEYS = 26624, DIM = 16, ROUNDS = 300, SETS = 16 };

typedef struct bench {
    fleet *f;
    fl_partition layout;
    fl_aggregate unit;
    uint64_t *key[SETS];
    float **found[SETS];
    const float **grad;
} bench;

static fleet *open_fleet(bool adam)
{
    fleet_ctr_options c = {.embedding_dim = DIM,
                           .hidden = (int64_t[]){8},
                           .n_hidden = 1,
                           .n_ids = 1,
                           .ids = (fleet_id_slot[]){{.name = "1"}}};
    fleet_program *p;
    fleet_model m;
    fleet *f;

    check(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    fleet_ctr_dnn(p, &c, &m);
    check(fleet_minimize(adam ? fleet_adam(f, 0.01f, NULL)
                              : fleet_adagrad(f, 0.01f, NULL),
                         m.loss));
    check(fl_add_programs(f));
    return f;
}

static void open_bench(bench *b, bool adam)
{
    fl_rows *rows;
    float *g = malloc(KEYS * DIM * sizeof *g);
    uint64_t state = 1;

    b->f = open_fleet(adam);
    check(fl_partition_make(&b->layout, b->f->store, 1));
    check(fl_aggregate_init(&b->unit, &b->layout,
                            fl_bucket_range(0, FL_N_BUCKET)));
    rows = b->layout.table[0];
    for (uint64_t k = 1; k <= ROWS; k++) {
        float *row;

        check(rows->methods->make(rows, &k, 1, &row));
    }
    b->grad = malloc(KEYS * sizeof *b->grad);
    for (int i = 0; i < KEYS * DIM; i++)
        g[i] = (float)(i % 7) - 3;
    for (int i = 0; i < KEYS; i++)
        b->grad[i] = g + i * DIM;
    for (int s = 0; s < SETS; s++) {
        b->key[s] = malloc(KEYS * sizeof *b->key[s]);
        b->found[s] = malloc(KEYS * sizeof *b->found[s]);
        for (int i = 0; i < KEYS; i++)
            b->key[s][i] = next_random(&state) % ROWS + 1;
        check(rows->methods->find(rows, b->key[s], KEYS, b->found[s]));
    }
}

static double update(bench *b, int set, bool found)
{
    const fl_update_settings settings = {.learning_rate = 0.01f};
    fl_aggregate_rows *t = &b->unit.table[0];
    double begin;

    fl_aggregate_begin(&b->unit);
    check(fl_grow(&t->key, &t->key_capacity, KEYS, sizeof *t->key));
    check(fl_grow(&t->grad, &t->grad_capacity, KEYS, sizeof *t->grad));
    check(fl_grow(&t->target, &t->target_capacity, KEYS, sizeof *t->target));
    memcpy(t->key, b->key[set], KEYS * sizeof *t->key);
    memcpy(t->grad, b->grad, KEYS * sizeof *t->grad);
    memcpy(t->target, b->found[set], KEYS * sizeof *t->target);
    if (!found)
        memset(t->target, 0, KEYS * sizeof *t->target);
    t->n = KEYS;
    t->epoch = fl_rows_epoch(b->layout.table[0]);
    fl_aggregate_apply_dense(&b->unit, b->f->store->updates++, 1, 1, &settings);
    begin = now();
    check(fl_aggregate_apply_rows(&b->unit));
    return now() - begin;
}

static void measure(bench *b, const char *what, bool found)
{
    static double with[ROUNDS], without[ROUNDS];
    fl_rows *rows = b->layout.table[0];
    fl_live_hash *live = rows->live;

    for (int i = 0; i < ROUNDS; i++) {
        rows->live = NULL;
        without[i] = update(b, i % SETS, found);
        rows->live = live;
        with[i] = update(b, (i + SETS / 2) % SETS, found);
    }
    qsort(with, ROUNDS, sizeof *with, ascending);
    qsort(without, ROUNDS, sizeof *without, ascending);
    printf("%s: %.1f ns/row without, %.1f with: %.3f\n", what,
           without[ROUNDS / 10] / KEYS * 1e9, with[ROUNDS / 10] / KEYS * 1e9,
           with[ROUNDS / 10] / without[ROUNDS / 10]);
}

int main(void)
{
    for (int adam = 0; adam < 2; adam++) {
        bench b = {.f = NULL};

        open_bench(&b, adam);
        check(fl_live_hash_begin(b.layout.table[0]));
        measure(&b, adam ? "adam, looked for" : "adagrad, looked for", false);
        measure(&b, adam ? "adam, found" : "adagrad, found", true);
    }
    return 0;
}
