/* table_model_test.c - rows made, changed, found, erased and visited in any
 * order, beside a plain list of them; and what a table says of its memory. */
#define SUITE table_model
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "runtime/store/table.h"

enum { DIM = 3, MOST_STATES = 3, MOST_FLOATS = DIM * (1 + MOST_STATES) };

/* --- keys ----------------------------------------------------------------- */

/* fl_mix undone. */
static uint64_t unmix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0x9cb4b2f8129337dbULL;
    x ^= x >> 33;
    x *= 0x4f74430c22a54005ULL;
    return x ^ x >> 33;
}

enum { KEYS = 600 };

/* In three buckets of two parts, so that lines of the index run over; the last
 * ones are spread over all buckets. */
static uint64_t key_of(uint64_t i)
{
    static const uint64_t bucket[] = {5, 6, 900};

    return i < KEYS - 60 ? unmix(bucket[i % 3] << 54 | i << 20) : fl_mix(i);
}

/* --- the model ------------------------------------------------------------ */

typedef struct model_row {
    bool there;
    uint64_t key, changed_at;
    float value[MOST_FLOATS];
} model_row;

typedef struct model {
    fl_rows *rows;
    fl_filler filler;
    uint64_t seed, draws;
    uint64_t version;
    int states, floats;
    int64_t n;
    model_row row[KEYS];
} model;

static uint64_t draw(model *m, uint64_t below)
{
    return fl_rng_below(m->seed, 1, m->draws++, below);
}

/* Of an even seed keys are behind all places of a page, of an odd one in what
 * is left over of a place. */
static void open_model(model *m, uint64_t seed)
{
    fleet_initializer uniform = {FLEET_INIT_UNIFORM, -1, 1};

    memset(m, 0, sizeof *m);
    m->seed = seed;
    m->version = 4294967000; /* soon above 2^32 */
    m->filler = fl_filler_make(&uniform, DIM, DIM, 5, "t");
    CHECK_OK(fl_table_make("t", DIM, 0, &m->filler, &m->rows));
    m->states = seed % 2 ? 1 : 3;
    m->floats = DIM * (1 + m->states);
    CHECK_OK(m->rows->methods->set_state(m->rows, m->states, 0, 0.5f));
    for (uint64_t i = 0; i < KEYS; i++)
        m->row[i].key = key_of(i);
}

static void first_values(const model *m, model_row *r)
{
    r->there = true;
    r->changed_at = 0;
    fl_filler_row(&m->filler, r->key, r->value, DIM);
    for (int i = DIM; i < m->floats; i++)
        r->value[i] = 0.5f;
}

static void check_row(const model *m, const model_row *want, const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;

    CHECK(head->erased == 0);
    CHECK(head->changed_at == want->changed_at);
    CHECK(memcmp(row, want->value, (size_t)m->floats * sizeof *row) == 0);
}

/* --- what is done to both ------------------------------------------------- */

enum { MOST = 40 };

/* Some rows, perhaps one of them twice. */
static int64_t pick(model *m, uint64_t *which, uint64_t *key)
{
    int64_t n = 1 + (int64_t)draw(m, MOST);
    uint64_t first = draw(m, KEYS), step = 1 + draw(m, 7);

    for (int64_t i = 0; i < n; i++) {
        which[i] =
            i % 13 == 12 ? which[i - 5] : (first + step * (uint64_t)i) % KEYS;
        key[i] = m->row[which[i]].key;
    }
    return n;
}

/* Rows are made, and some of them are updated. */
static void make_some(model *m)
{
    uint64_t which[MOST], key[MOST], epoch = fl_rows_epoch(m->rows);
    int64_t n = pick(m, which, key);
    float *row[MOST];

    CHECK_OK(m->rows->methods->make(m->rows, key, n, row));
    CHECK(fl_rows_epoch(m->rows) == epoch);
    m->version += draw(m, 9);
    for (int64_t i = 0; i < n; i++) {
        model_row *r = &m->row[which[i]];

        m->n += !r->there;
        if (!r->there)
            first_values(m, r);
        check_row(m, r, row[i]);
        if (draw(m, 3) == 0)
            continue;
        fl_row_of(row[i])->changed_at = r->changed_at = m->version;
        row[i][draw(m, (uint64_t)m->floats)] = (float)draw(m, 1000);
        memcpy(r->value, row[i], (size_t)m->floats * sizeof *row[i]);
    }
}

static void find_some(model *m)
{
    uint64_t which[MOST], key[MOST];
    int64_t n = pick(m, which, key);
    float *row[MOST];

    CHECK_OK(m->rows->methods->find(m->rows, key, n, row));
    for (int64_t i = 0; i < n; i++) {
        CHECK((row[i] != NULL) == m->row[which[i]].there);
        if (row[i])
            check_row(m, &m->row[which[i]], row[i]);
    }
}

/* Of rows that stay the pointers are good, too. */
static void erase_some(model *m)
{
    uint64_t which[MOST], key[MOST], epoch = fl_rows_epoch(m->rows);
    int64_t n = pick(m, which, key), want = 0, erased;
    float *before[KEYS];

    for (int i = 0; i < KEYS; i++)
        CHECK_OK(
            m->rows->methods->find(m->rows, &m->row[i].key, 1, &before[i]));
    CHECK_OK(m->rows->methods->erase(m->rows, key, n, &erased));
    for (int64_t i = 0; i < n; i++) {
        want += m->row[which[i]].there;
        m->row[which[i]].there = false;
    }
    m->n -= want;
    CHECK_INT(erased, want);
    CHECK_INT(m->rows->methods->count(m->rows), m->n);
    CHECK((fl_rows_epoch(m->rows) != epoch) == (want > 0));
    for (int i = 0; i < KEYS; i++)
        if (m->row[i].there)
            check_row(m, &m->row[i], before[i]);
}

static void clear_all(model *m)
{
    uint64_t epoch = fl_rows_epoch(m->rows);

    m->rows->methods->clear(m->rows);
    CHECK(fl_rows_epoch(m->rows) > epoch);
    for (int i = 0; i < KEYS; i++)
        m->row[i].there = false;
    m->n = 0;
}

/* --- walks ---------------------------------------------------------------- */

static int by_bucket_and_key(const void *a, const void *b)
{
    const model_row *x = *(const model_row *const *)a;
    const model_row *y = *(const model_row *const *)b;
    int p = fl_bucket_of(fl_mix(x->key)), q = fl_bucket_of(fl_mix(y->key));

    if (p != q)
        return p - q;
    return x->key < y->key ? -1 : x->key > y->key;
}

typedef struct walk {
    const model *m;
    const model_row *want[KEYS];
    int n, at;
} walk;

static fleet_status visit(void *arg, int bucket, uint64_t key, const float *row)
{
    walk *w = arg;

    CHECK(w->at < w->n);
    CHECK(key == w->want[w->at]->key);
    CHECK_INT(bucket, fl_bucket_of(fl_mix(key)));
    check_row(w->m, w->want[w->at++], row);
    return FLEET_OK;
}

/* The rows that have changed after `since`; with all: all. */
static walk expected(const model *m, bool all, uint64_t since)
{
    walk w = {.m = m};

    for (int i = 0; i < KEYS; i++)
        if (m->row[i].there && (all || m->row[i].changed_at > since))
            w.want[w.n++] = &m->row[i];
    qsort(w.want, (size_t)w.n, sizeof *w.want, by_bucket_and_key);
    return w;
}

static void walk_all(model *m)
{
    uint64_t since = m->version - draw(m, 300);
    walk w = expected(m, true, 0);

    CHECK_OK(m->rows->methods->each(m->rows, visit, &w));
    CHECK_INT(w.at, w.n);
    w = expected(m, false, since);
    CHECK_OK(m->rows->methods->each_changed(m->rows, since, visit, &w));
    CHECK_INT(w.at, w.n);
    w = expected(m, false, 0);
    CHECK_OK(m->rows->methods->each_changed(m->rows, 0, visit, &w));
    CHECK_INT(w.at, w.n);
}

static void check_stat(model *m)
{
    uint64_t newest = 0;
    fl_rows_stat s;

    for (int i = 0; i < KEYS; i++)
        if (m->row[i].there && m->row[i].changed_at > newest)
            newest = m->row[i].changed_at;
    CHECK_OK(m->rows->methods->stat(m->rows, &s));
    CHECK_INT(s.rows, m->n);
    CHECK_INT(s.row_bytes, m->n * (m->states == 1 ? 48 : 72));
    CHECK(s.changed_at == newest);
    CHECK(s.epoch == fl_rows_epoch(m->rows));
}

static void do_something(model *m)
{
    uint64_t what = draw(m, 40);

    if (what < 16)
        make_some(m);
    else if (what < 24)
        find_some(m);
    else if (what < 37)
        erase_some(m);
    else if (what < 39)
        walk_all(m);
    else if (draw(m, 5) == 0)
        clear_all(m);
    check_stat(m);
}

TEST(a_table_does_what_a_plain_list_does)
{
    enum { SEEDS = 20, STEPS = 400 };
    static model m;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        open_model(&m, seed);
        for (int i = 0; i < STEPS; i++)
            do_something(&m);
        CHECK(m.version > UINT32_MAX);
        walk_all(&m);
        m.rows->methods->destroy(m.rows);
    }
}

/* --- memory --------------------------------------------------------------- */

static fl_rows_stat stat_of(const model *m)
{
    fl_rows_stat s;

    CHECK_OK(m->rows->methods->stat(m->rows, &s));
    return s;
}

static uint64_t all_bytes(const fl_rows_stat *s)
{
    return s->row_bytes + s->index_bytes + s->free_bytes;
}

static void make_row(const model *m, uint64_t key)
{
    float *row;

    CHECK_OK(m->rows->methods->make(m->rows, &key, 1, &row));
}

/* While nothing is allocated the sum of all bytes stays, whatever they are used
 * for. */
TEST(bytes_go_from_free_to_used_and_back)
{
    int kept = 0, erased_rows = 0;
    fl_rows_stat before, after;
    static model m;
    int64_t erased;

    open_model(&m, 1);
    before = stat_of(&m);
    CHECK(before.rows == 0 && all_bytes(&before) == 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        int64_t was = fl_memory_count();

        make_row(&m, m.row[i].key);
        after = stat_of(&m);
        if (fl_memory_count() == was) {
            kept++;
            CHECK(all_bytes(&after) == all_bytes(&before));
        }
        before = after;
    }
    CHECK(kept > KEYS / 2);
    for (uint64_t i = 0; i < KEYS; i += 2) {
        uint64_t bytes = before.row_bytes / (uint64_t)before.rows;

        CHECK_OK(m.rows->methods->erase(m.rows, &m.row[i].key, 1, &erased));
        after = stat_of(&m);
        CHECK(after.free_bytes == before.free_bytes + bytes);
        CHECK(after.index_bytes == before.index_bytes);
        CHECK(after.rows == before.rows - 1);
        erased_rows++;
        before = after;
    }
    CHECK_INT(erased_rows, KEYS / 2);
    m.rows->methods->destroy(m.rows);
}

TEST(rows_that_are_made_get_the_memory_of_rows_that_were_erased)
{
    static model m;
    int64_t erased, was;

    open_model(&m, 1);
    for (uint64_t i = 0; i < KEYS; i++)
        make_row(&m, m.row[i].key);
    was = fl_memory_count();
    for (int round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < KEYS; i += 3) {
            CHECK_OK(m.rows->methods->erase(m.rows, &m.row[i].key, 1, &erased));
            CHECK_INT(erased, 1);
        }
        for (uint64_t i = 0; i < KEYS; i += 3) /* the other way around */
            make_row(&m, m.row[(KEYS - 3) - i].key);
        CHECK_INT(m.rows->methods->count(m.rows), KEYS);
    }
    CHECK_INT(fl_memory_count(), was);
    m.rows->methods->destroy(m.rows);
}

/* Pages of rows that are gone are of the rows' length before. */
TEST(states_may_be_chosen_anew_when_all_rows_are_erased)
{
    static model m;
    int64_t erased;
    float *row;

    open_model(&m, 1);
    for (uint64_t i = 0; i < KEYS; i++)
        make_row(&m, m.row[i].key);
    CHECK_STATUS(m.rows->methods->set_state(m.rows, 40, 0, 2), FLEET_ESTATE);
    for (uint64_t i = 0; i < KEYS; i++)
        CHECK_OK(m.rows->methods->erase(m.rows, &m.row[i].key, 1, &erased));
    CHECK_OK(m.rows->methods->set_state(m.rows, 40, 0, 2));
    for (uint64_t i = 0; i < KEYS; i++) {
        CHECK_OK(m.rows->methods->make(m.rows, &m.row[i].key, 1, &row));
        for (int j = DIM; j < 41 * DIM; j++)
            CHECK(row[j] == 2);
        for (int j = 0; j < 41 * DIM; j++)
            row[j] = (float)i;
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        CHECK_OK(m.rows->methods->find(m.rows, &m.row[i].key, 1, &row));
        for (int j = 0; j < 41 * DIM; j++)
            CHECK(row[j] == (float)i);
    }
    m.rows->methods->destroy(m.rows);
}
