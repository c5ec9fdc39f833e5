/* live_hash_test.c - the hash of a table's rows that is kept as they change is
 * that of the rows that there are, after any history, for each rule and each
 * way to keep weights; and a bit that is lost is found, in its bucket. */
#define SUITE live_hash
#include "cold_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include <fleet/fleet.h>

#include "base/hash.h"
#include "base/memory.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/optim/optimizer.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/table.h"

enum { DIM = 11, KEYS = 400, FILE_KEYS = 20000, MOST = 64 };

static fl_filler filler;

static uint64_t luck;
static uint64_t draw(uint64_t n)
{
    luck = fl_mix(luck + 0x9e3779b97f4a7c15u);
    return luck % n;
}

static uint64_t most_key = KEYS;

/* Different keys: as many as there are asked for, or fewer. */
static int64_t draw_keys(uint64_t *key, int64_t n)
{
    uint64_t at = draw(most_key);

    for (int64_t i = 0; i < n; i++)
        key[i] = at += 1 + draw(5);
    return n;
}

static fl_rows *open_table(bool cold, fleet_row_storage storage, int n_state,
                           int n_row)
{
    fl_rows *r;

    filler =
        fl_filler_make(&(fleet_initializer){FLEET_INIT_UNIFORM, -1.0f, 1.0f},
                       DIM, DIM, 7, "t");
    if (cold)
        CHECK_OK(cold_kit_make("t", DIM, 0, &filler, &r));
    else
        CHECK_OK(fl_table_make("t", DIM, 0, &filler, &r));
    if (storage != FLEET_ROW_FLOAT32)
        CHECK_OK(r->methods->set_storage(r, storage));
    CHECK_OK(r->methods->set_state(r, n_state, n_row, 0.5f));
    CHECK_OK(fl_live_hash_begin(r));
    return r;
}

static void close_table(fl_rows *r)
{
    fl_live_hash *live = r->live;

    r->live = NULL;
    fl_free(live);
    r->methods->destroy(r);
}

static void train(fl_rows *r, const fleet_optimizer *o, int64_t version)
{
    float g[MOST][DIM], *row[MOST];
    const float *grad[MOST];
    uint64_t key[MOST];
    int64_t n = draw_keys(key, 1 + (int64_t)draw(MOST));
    fl_wanted_rows w = {0};
    fl_update u;

    fl_optimizer_update(o, version, 1, &u);
    for (int64_t i = 1; i < n; i++) /* some twice, as a step may have them */
        if (draw(8) == 0)
            key[i] = key[draw((uint64_t)i)];
    for (int64_t i = 0; i < n; i++) {
        for (int j = 0; j < DIM; j++)
            g[i][j] = (float)draw(2001) / 1000 - 1;
        grad[i] = g[i];
    }
    CHECK_OK(fl_rows_bring(&w, r, key, n));
    CHECK_OK(r->methods->make(r, key, n, row));
    fl_rows_change(r, o, &u, key, row, grad, n);
    fl_wanted_rows_done(&w);
}

static void erase(fl_rows *r)
{
    uint64_t key[MOST];
    int64_t erased, n = draw_keys(key, 1 + (int64_t)draw(20));

    CHECK_OK(r->methods->erase(r, key, n, &erased));
}

static void live_through(fl_rows *r, const fleet_optimizer *o, int updates)
{
    for (int i = 0; i < updates; i++) {
        train(r, o, i);
        if (draw(4) == 0)
            erase(r);
        if (draw(60) == 0)
            r->methods->clear(r);
        if (i % 10 == 0)
            CHECK_OK(fl_live_hash_check(r));
    }
    CHECK_OK(fl_live_hash_check(r));
    CHECK(r->methods->count(r) > 0);
}

static fleet_optimizer *make_optimizer(fleet *f, int i)
{
    switch (i) {
    case 0:
        return fleet_sgd(f, 0.1f);
    case 1:
        return fleet_momentum(f, 0.1f, NULL);
    case 2:
        return fleet_adagrad(f, 0.1f, NULL);
    case 3:
        return fleet_adam(f, 0.1f, NULL);
    case 4:
        return fleet_adamw(f, 0.1f, NULL);
    case 5:
        return fleet_rowwise_adagrad(f, 0.1f, NULL);
    case 6:
        return fleet_shared_adam(f, 0.1f, NULL);
    case 7:
        return fleet_ftrl(f, 0.1f, NULL);
    default:
        return fleet_std_adagrad(f, 0.1f, NULL);
    }
}

enum { N_OPTIMIZER = 9, ADAGRAD = 2 };

TEST(it_is_that_of_the_rows_after_any_history)
{
    static const fleet_row_storage storage[] = {
        FLEET_ROW_FLOAT32, FLEET_ROW_FLOAT16, FLEET_ROW_BFLOAT16,
        FLEET_ROW_INT8};
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    for (int m = 0; m < N_OPTIMIZER; m++)
        for (int s = 0; s < 4; s++) {
            fleet_optimizer *o = make_optimizer(f, m);
            const fl_rule *rule = fl_rule_of(o->kind);
            fl_rows *r =
                open_table(false, storage[s], rule->n_state, rule->n_row);

            live_through(r, o, 60);
            close_table(r);
        }
    fleet_destroy(f);
}

/* Rows of more keys than the table's memory has room for. */
static void fill(fl_rows *r)
{
    uint64_t key[MOST];
    float *row[MOST];

    for (uint64_t at = 0; at < FILE_KEYS; at += MOST) {
        fl_wanted_rows w = {0};

        for (uint64_t i = 0; i < MOST; i++)
            key[i] = at + i;
        CHECK_OK(fl_rows_bring(&w, r, key, MOST));
        CHECK_OK(r->methods->make(r, key, MOST, row));
        fl_wanted_rows_done(&w);
    }
}

/* Rows come out of the file to be changed, and go without that when they are
 * erased. */
TEST(it_is_so_where_most_rows_are_in_a_file)
{
    fl_cold_counts before, behind;
    fleet_optimizer *o;
    int64_t n;
    fl_rows *r;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    o = make_optimizer(f, ADAGRAD);
    most_key = FILE_KEYS;
    r = open_table(true, FLEET_ROW_FLOAT32, 1, 0);
    fill(r);
    erase(r); /* which waits until what has to leave the memory has left */
    n = r->methods->count(r);
    fl_cold_count(r, &before);
    CHECK(before.cold > n / 4);
    for (int i = 0; i < 20; i++)
        erase(r);
    fl_cold_count(r, &behind);
    CHECK(r->methods->count(r) < n);
    CHECK(behind.cold < before.cold);
    live_through(r, o, 50);
    close_table(r);
    cold_kit_disk(&(cold_kit_faults){0});
    fleet_destroy(f);
}

/* Every bit of a row's record, and of its key. */
TEST(each_bit_of_a_row_counts)
{
    fleet *f;
    fl_rows *r = open_table(false, FLEET_ROW_FLOAT32, 1, 0);
    uint64_t key = 5;
    int64_t n;
    float *row;

    CHECK_OK(fleet_init(&f, NULL));
    live_through(r, make_optimizer(f, ADAGRAD), 20);
    CHECK_OK(r->methods->make(r, &key, 1, &row));
    for (int64_t i = 0; i < fl_rows_record(r) * 32; i++) {
        const int bucket = fl_bucket_of(fl_mix(key));
        char *at = (char *)row + i / 8, words[40];

        *at ^= (char)(1 << i % 8);
        snprintf(words, sizeof words, "bucket %d of", bucket);
        CHECK_FAILS(fl_live_hash_check(r), FLEET_ECORRUPT, words);
        CHECK_FAILS(fl_live_hash_check_bucket(r, bucket, &n), FLEET_ECORRUPT,
                    words);
        CHECK_OK(fl_live_hash_check_bucket(r, bucket ^ 1, &n));
        *at ^= (char)(1 << i % 8);
    }
    CHECK_OK(fl_live_hash_check(r));
    close_table(r);
    fleet_destroy(f);
}

TEST(it_is_the_same_on_every_instruction_set)
{
    enum { WORDS = 41, N = 30 };
    static float row[N][WORDS];
    static fl_hash_sum sum[4][FL_N_BUCKET];
    const float *at[N];
    uint64_t key[N];

    for (int i = 0; i < N; i++) {
        at[i] = row[i];
        key[i] = draw(1 << 30);
        for (int j = 0; j < WORDS; j++)
            row[i][j] = (float)draw(1 << 24);
    }
    for (int64_t words = 1; words <= WORDS; words++) {
        memset(sum, 0, sizeof sum);
        for (int t = 0; fl_simd_all()[t]; t++) {
            const fl_row_hash h = {sum[t], key, words};

            fl_simd_all()[t]->hash_rows(&h, at, N, false);
            CHECK(memcmp(sum[t], sum[0], sizeof *sum) == 0);
            fl_simd_all()[t]->hash_rows(&h, at, N - 1, true);
            fl_simd_all()[t]->hash_rows(&h, at, N - 1, false);
            CHECK(memcmp(sum[t], sum[0], sizeof *sum) == 0);
        }
    }
}
