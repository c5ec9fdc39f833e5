/* table_test.c - rows by key: against a plain list, with keys of every kind,
 * and when there is no memory. */
#define SUITE table
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/table.h"

static fl_filler filler_of(uint64_t seed, const char *name)
{
    fleet_initializer i = {FLEET_INIT_UNIFORM, -1, 1};

    return fl_filler_make(&i, 4, 4, seed, name);
}

static fl_rows *table_of(const char *name, int64_t dim, int64_t modulo)
{
    fl_filler filler = filler_of(5, name);
    fl_rows *r;

    CHECK_OK(fl_table_make(name, dim, modulo, &filler, &r));
    return r;
}

static float *find(fl_rows *r, uint64_t key)
{
    float *row;

    CHECK_OK(r->methods->find(r, &key, 1, &row));
    return row;
}

static float *make(fl_rows *r, uint64_t key)
{
    float *row;

    CHECK_OK(r->methods->make(r, &key, 1, &row));
    CHECK(row != NULL);
    return row;
}

/* --- against a plain list ------------------------------------------------ */

typedef struct entry {
    uint64_t key;
    float *row;
} entry;

static int by_key(const void *a, const void *b)
{
    uint64_t x = ((const entry *)a)->key, y = ((const entry *)b)->key;

    return x < y ? -1 : x > y;
}

/* Random keys, a few of them twice. */
static uint64_t *random_keys(int64_t n)
{
    uint64_t *key = malloc((size_t)n * sizeof *key);

    for (int64_t i = 0; i < n; i++)
        key[i] = fl_mix((uint64_t)(i % (n - n / 50)) + 1000);
    key[0] = 0;
    key[1] = UINT64_MAX;
    return key;
}

enum { MANY = 150000 };

/* Make all keys one after the other; what there is, sorted by key. */
static entry *make_all(fl_rows *r, const uint64_t *key, int64_t n)
{
    entry *e = malloc((size_t)n * sizeof *e);

    for (int64_t i = 0; i < n; i++)
        e[i] = (entry){key[i], make(r, key[i])};
    qsort(e, (size_t)n, sizeof *e, by_key);
    return e;
}

TEST(a_hundred_thousand_random_keys_are_found_where_they_were_made)
{
    fl_rows *r = table_of("t", 9, 0);
    uint64_t *key = random_keys(MANY);
    entry *e = make_all(r, key, MANY);
    int64_t distinct = 0;

    for (int64_t i = 0; i < MANY; i++) {
        bool again = i > 0 && e[i].key == e[i - 1].key;

        distinct += !again;
        CHECK(again == (i > 0 && e[i].row == e[i - 1].row));
        CHECK(find(r, e[i].key) == e[i].row);
    }
    CHECK_INT(r->methods->count(r), distinct);
    for (uint64_t i = 1; i < 10000; i++) /* fl_mix is a bijection: not there */
        CHECK(find(r, fl_mix(MANY + 1000 + i)) == NULL);
    free(e);
    free(key);
    r->methods->destroy(r);
}

TEST(rows_never_share_memory)
{
    enum { DIM = 7, N = 5000 };
    fl_rows *r = table_of("t", DIM, 0);

    CHECK_OK(r->methods->set_state(r, 2, 0, 0));
    for (uint64_t k = 0; k < N; k++) {
        float *row = make(r, k);

        for (int i = 0; i < 3 * DIM; i++)
            row[i] = (float)k;
        fl_row_of(row)->step = (uint32_t)k;
    }
    for (uint64_t k = 0; k < N; k++) {
        float *row = find(r, k);

        CHECK(fl_row_of(row)->step == k);
        for (int i = 0; i < 3 * DIM; i++)
            CHECK(row[i] == (float)k);
    }
    r->methods->destroy(r);
}

TEST(many_keys_at_once_are_the_same_as_one_by_one)
{
    fl_rows *r = table_of("t", 3, 0);
    uint64_t key[300];
    float *found[300], *made[300];

    for (uint64_t i = 0; i < 300; i++)
        key[i] = i * i;
    for (uint64_t i = 0; i < 300; i += 3)
        make(r, key[i]);
    for (int64_t n = 0; n <= 300; n += n < 40 ? 1 : 20) {
        CHECK_OK(r->methods->find(r, key, n, found));
        for (int64_t i = 0; i < n; i++)
            CHECK(found[i] == find(r, key[i]) &&
                  (found[i] != NULL) == (i % 3 == 0));
    }
    CHECK_OK(r->methods->make(r, key, 300, made));
    for (int i = 0; i < 300; i++)
        CHECK(made[i] == find(r, key[i]) && (i % 3 || made[i] == found[i]));
    CHECK_INT(r->methods->count(r), 300);
    r->methods->destroy(r);
}

TEST(a_key_that_comes_twice_in_one_call_is_one_row)
{
    uint64_t key[] = {5, 7, 5, 5, 7};
    fl_rows *r = table_of("t", 3, 0);
    float *row[5];

    CHECK_OK(r->methods->make(r, key, 5, row));
    CHECK(row[0] == row[2] && row[0] == row[3] && row[1] == row[4]);
    CHECK_INT(r->methods->count(r), 2);
    r->methods->destroy(r);
}

/* Keys that all hash to the same line of the same bucket: fl_mix undone. */
static uint64_t unmix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0x9cb4b2f8129337dbULL;
    x ^= x >> 33;
    x *= 0x4f74430c22a54005ULL;
    return x ^ x >> 33;
}

TEST(keys_that_all_fall_on_one_line_are_found)
{
    enum { N = 20000 };
    fl_rows *r = table_of("t", 2, 0);
    float **row = malloc(N * sizeof *row);

    for (uint64_t i = 0; i < N; i++) {
        uint64_t key = unmix(77ULL << 54 | i << 24); /* low bits: all 0 */

        CHECK_INT(fl_bucket_of(fl_mix(key)), 77);
        row[i] = make(r, key);
    }
    for (uint64_t i = 0; i < N; i++)
        CHECK(find(r, unmix(77ULL << 54 | i << 24)) == row[i]);
    CHECK(find(r, unmix(77ULL << 54 | (uint64_t)N << 24)) == NULL);
    free(row);
    r->methods->destroy(r);
}

TEST(rows_may_be_very_long)
{
    enum { DIM = 300000 };
    fl_rows *r = table_of("t", DIM, 0);

    for (uint64_t k = 0; k < 5; k++)
        make(r, k)[DIM - 1] = (float)k;
    for (uint64_t k = 0; k < 5; k++)
        CHECK(find(r, k)[DIM - 1] == (float)k);
    r->methods->destroy(r);
}

/* --- initial values ------------------------------------------------------ */

TEST(a_row_starts_as_seed_name_and_key_say)
{
    enum { DIM = 13 };
    fl_rows *a = table_of("t", DIM, 0), *b = table_of("t", DIM, 0);
    fl_filler filler = filler_of(5, "t");
    float want[DIM];

    CHECK_OK(b->methods->set_state(b, 2, 0, 0.25f));
    for (uint64_t k = 0; k < 500; k++)
        make(a, k * 3);
    for (uint64_t k = 500; k-- > 0;) {
        float *row = make(b, k * 3);

        fl_filler_row(&filler, k * 3, want, DIM);
        CHECK(memcmp(row, want, sizeof want) == 0);
        CHECK(memcmp(find(a, k * 3), want, sizeof want) == 0);
        for (int i = DIM; i < 3 * DIM; i++)
            CHECK(row[i] == 0.25f);
        CHECK(fl_row_of(row)->step == 0 && fl_row_of(row)->changed_at == 0);
    }
    a->methods->destroy(a);
    b->methods->destroy(b);
}

TEST(seed_name_and_key_all_matter)
{
    fl_filler same = filler_of(5, "t"), other_seed = filler_of(6, "t");
    fl_filler other_name = filler_of(5, "u");
    float a[8], b[8];

    fl_filler_row(&same, 1, a, 8);
    fl_filler_row(&other_seed, 1, b, 8);
    CHECK(memcmp(a, b, sizeof a) != 0);
    fl_filler_row(&other_name, 1, b, 8);
    CHECK(memcmp(a, b, sizeof a) != 0);
    fl_filler_row(&same, 2, b, 8);
    CHECK(memcmp(a, b, sizeof a) != 0);
    fl_filler_row(&same, 1, b, 8);
    CHECK(memcmp(a, b, sizeof a) == 0);
}

/* --- each, clear, set_state ---------------------------------------------- */

typedef struct walk {
    fl_rows *rows;
    int64_t n, stop_at;
    int bucket;
    uint64_t key;
} walk;

static fleet_status visit(void *arg, int bucket, uint64_t key, const float *row)
{
    walk *w = arg;

    if (w->n > 0)
        CHECK(bucket > w->bucket || (bucket == w->bucket && key > w->key));
    CHECK(find(w->rows, key) == row);
    CHECK_INT(bucket, fl_bucket_of(fl_mix(key)));
    w->bucket = bucket;
    w->key = key;
    return ++w->n == w->stop_at ? fl_fail(FLEET_EIO, "enough") : FLEET_OK;
}

TEST(rows_are_visited_by_bucket_and_key)
{
    fl_rows *r = table_of("t", 1, 0);
    walk all = {.rows = r}, some = {.rows = r, .stop_at = 40};

    CHECK_OK(r->methods->each(r, visit, &all));
    CHECK_INT(all.n, 0);
    for (uint64_t i = 0; i < 20000; i++)
        make(r, (i * 7919) % 20011);
    CHECK_OK(r->methods->each(r, visit, &all));
    CHECK_INT(all.n, 20000);
    CHECK_FAILS(r->methods->each(r, visit, &some), FLEET_EIO, "enough");
    CHECK_INT(some.n, 40);
    r->methods->destroy(r);
}

/* Many rows in a bucket, whose keys differ in three bytes, or in all. */
TEST(rows_are_visited_by_bucket_and_key_however_many_there_are)
{
    for (int all_bytes = 0; all_bytes < 2; all_bytes++) {
        fl_rows *r = table_of("t", 1, 0);
        walk w = {.rows = r};

        for (uint64_t i = 0; i < MANY; i++)
            make(r, all_bytes ? fl_mix(i) : MANY - i);
        CHECK_OK(r->methods->each(r, visit, &w));
        CHECK_INT(w.n, MANY);
        r->methods->destroy(r);
    }
}

TEST(a_cleared_table_is_as_at_the_start)
{
    fl_rows *r = table_of("t", 5, 0);
    float first[5];

    CHECK_OK(r->methods->set_state(r, 1, 0, 0));
    memcpy(first, make(r, 42), sizeof first);
    for (uint64_t k = 0; k < 3000; k++)
        make(r, k)[0] = 99;
    r->methods->clear(r);
    CHECK_INT(r->methods->count(r), 0);
    CHECK(find(r, 42) == NULL);
    CHECK(memcmp(make(r, 42), first, sizeof first) == 0);
    CHECK_INT(r->methods->count(r), 1);
    CHECK_INT(r->n_state, 1);
    r->methods->destroy(r);
}

TEST(states_are_chosen_before_there_are_rows)
{
    fl_rows *r = table_of("clicks", 4, 0);

    CHECK_OK(r->methods->set_state(r, 1, 0, 0.5f));
    CHECK_OK(r->methods->set_state(r, 2, 0, 0));
    make(r, 1);
    CHECK_OK(r->methods->set_state(r, 2, 0, 0));
    CHECK_FAILS(r->methods->set_state(r, 1, 0, 0), FLEET_ESTATE,
                "table \"clicks\" has rows");
    CHECK_STATUS(r->methods->set_state(r, 2, 0, 1), FLEET_ESTATE);
    r->methods->clear(r);
    CHECK_OK(r->methods->set_state(r, 1, 0, 0.5f));
    CHECK(make(r, 1)[4] == 0.5f);
    r->methods->destroy(r);
}

/* One behind the other in a page: a row of too few bytes would be written by
 * the next one's. */
TEST(floats_of_a_row_are_behind_those_of_its_weights)
{
    enum { DIM = 3, ROWS = 1000, FLOATS = DIM + 2 };
    fl_rows *r = table_of("t", DIM, 0);

    CHECK_OK(r->methods->set_state(r, 1, 2, 0.5f));
    CHECK_INT(fl_rows_floats(r), FLOATS);
    for (uint64_t k = 0; k < ROWS; k++) {
        float *row = make(r, k);

        for (int i = 0; i < FLOATS; i++) {
            CHECK(row[DIM + i] == 0.5f);
            row[DIM + i] = (float)(k * FLOATS) + (float)i;
        }
    }
    for (uint64_t k = 0; k < ROWS; k++)
        for (int i = 0; i < FLOATS; i++)
            CHECK(find(r, k)[DIM + i] == (float)(k * FLOATS) + (float)i);
    CHECK_FAILS(r->methods->set_state(r, 1, 1, 0.5f), FLEET_ESTATE,
                "table \"t\" has rows");
    CHECK_OK(r->methods->set_state(r, 1, 2, 0.5f));
    r->methods->destroy(r);
}

/* --- memory -------------------------------------------------------------- */

/* Make 3,000 rows in three buckets though the n-th allocation fails; how many
 * failed. What failed must not be there, and must work the second time. */
static int make_without_memory(int64_t n)
{
    fl_rows *r = table_of("t", 20, 0);
    int failed = 0;
    float *row;

    fl_memory_fail_at(n, false);
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t key = unmix((i % 3) << 54 | i);

        if (r->methods->make(r, &key, 1, &row) == FLEET_OK) {
            row[0] = (float)i;
            continue;
        }
        failed++;
        CHECK_CONTAINS(fleet_last_error(), "out of memory");
        CHECK(find(r, key) == NULL);
        CHECK_INT(r->methods->count(r), i);
        make(r, key)[0] = (float)i;
    }
    CHECK_INT(r->methods->count(r), 3000);
    for (uint64_t i = 0; i < 3000; i++)
        CHECK(find(r, unmix((i % 3) << 54 | i))[0] == (float)i);
    r->methods->destroy(r);
    return failed;
}

TEST(a_table_survives_every_allocation_that_fails)
{
    int64_t n = 1;

    while (make_without_memory(n) > 0)
        n++;
    CHECK(n > 10);
}

TEST(a_table_and_a_visit_without_memory_fail)
{
    fl_filler filler = filler_of(5, "t");
    fl_rows *r = table_of("t", 1, 0), *none = NULL;
    walk w = {.rows = r};

    make(r, 1);
    fl_memory_fail_at(1, false);
    CHECK_STATUS(r->methods->each(r, visit, &w), FLEET_ENOMEM);
    fl_memory_fail_at(1, false);
    CHECK_STATUS(fl_table_make("t", 1, 0, &filler, &none), FLEET_ENOMEM);
    CHECK(none == NULL);
    r->methods->destroy(r);
}
