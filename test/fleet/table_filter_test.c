/* table_filter_test.c - keys counted by a Bloom filter: never too little, too
 * much no more often than was stated, in little memory; what saves, snapshots
 * and shrinks do with it. */
#define SUITE table_filter
#include "grown_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/graph/filter_shape.h"
#include "runtime/graph/program.h"
#include "runtime/life/life.h"
#include "runtime/store/snapshot.h"

static fleet_table_options filter_of(int64_t count, int64_t most_keys,
                                     double rate)
{
    return (fleet_table_options){.entry = {.kind = FLEET_BLOOM_FILTER_ENTRY,
                                           .count = count,
                                           .most_keys = most_keys,
                                           .false_positive_rate = rate}};
}

static void open_life(grown *g, fleet_table_options life)
{
    const grown_how how = {
        .optimizer = "sgd", .life = life, .options = {.seed = 7}};

    grown_open(g, &how);
}

/* --- how often it counts too much ----------------------------------------- */

enum { STATED = 20000, LAST = 5000 };

/* Of the keys that bring it to most_keys; three standard deviations more. */
TEST(new_keys_seem_known_no_more_often_than_was_stated)
{
    static const double rate[] = {0.2, 0.05, 0.01};

    for (int i = 0; i < 3; i++) {
        double most = rate[i] * LAST;
        int64_t before, come;
        grown g;

        open_life(&g, filter_of(2, STATED, rate[i]));
        for (int k = 0; k < STATED - LAST; k += LAST)
            grown_train_keys(&g, k, LAST);
        before = grown_rows(&g, "t");
        grown_train_keys(&g, STATED - LAST, LAST);
        come = grown_rows(&g, "t") - before;
        CHECK((double)come <= most + 3 * sqrt(most));
        CHECK((double)come >= most / 4); /* it is no larger than it need be */
        CHECK((double)before < most * 2);
        grown_close(&g);
    }
}

TEST(its_size_follows_from_what_was_stated)
{
    static const double rate[] = {0.5, 0.1, 0.01, 1e-3, 1e-6};
    static const int64_t keys[] = {1, 100, 10000, 300000, 1000000, 100000000};

    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 6; k++) {
            const fleet_entry e = {.count = 5,
                                   .most_keys = keys[k],
                                   .false_positive_rate = rate[i]};
            const fl_filter_shape s = fl_filter_shape_of(&e, FL_N_BUCKET);
            double each = (double)keys[k] / FL_N_BUCKET / (double)s.blocks;
            double bytes = (double)((s.dim - 1) * s.blocks) * FL_N_BUCKET * 4;

            CHECK(fl_filter_positives(&s, each) <= rate[i]);
            CHECK(each <= 256);
            CHECK_INT(s.bits, 3);
            /* 1.44 log2(1 / rate) counters of 3 bits, 8 of them in 32 */
            if (each > 200)
                CHECK(bytes / (double)keys[k] <
                      1.25 * 1.4427 * log2(1 / rate[i]) / 2 + 0.5);
        }
}

/* --- never too little ----------------------------------------------------- */

static uint64_t draw(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

enum { IDS = 3000, BATCH = 400, UPDATES = 30 };

/* An update of which ids come up more often the lower they are. */
static void train_both(grown *a, grown *b, uint64_t *x)
{
    int64_t id[BATCH];

    for (int i = 0; i < BATCH; i++) {
        double u = (double)draw(x) / 2147483648.0;

        id[i] = (int64_t)(IDS * u * u * u);
    }
    grown_train_ids(a, id, BATCH);
    grown_train_ids(b, id, BATCH);
}

static void found_of(const grown *g, int *found)
{
    static uint64_t key[IDS];
    static float row[IDS * GROWN_DIM];

    for (int i = 0; i < IDS; i++)
        key[i] = (uint64_t)i;
    CHECK_OK(fleet_table_get(g->f, "t", key, IDS, GROWN_DIM, row, NULL, found));
}

/* Of how many keys one has a row and the other none. */
static void compare(const grown *a, const grown *b, int *only_a, int *only_b)
{
    static int in_a[IDS], in_b[IDS];

    found_of(a, in_a);
    found_of(b, in_b);
    *only_a = *only_b = 0;
    for (int i = 0; i < IDS; i++) {
        *only_a += in_a[i] && !in_b[i];
        *only_b += !in_a[i] && in_b[i];
    }
}

static const fleet_table_options exact = {
    .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}};

/* Also of a filter that has counted more keys than it is made for. */
TEST(no_key_waits_longer_than_in_an_exact_filter)
{
    uint64_t x = 5;
    int late, early;
    grown e, g;

    open_life(&e, exact);
    open_life(&g, filter_of(3, 500, 0.3));
    for (int i = 0; i < UPDATES; i++) {
        train_both(&e, &g, &x);
        compare(&e, &g, &late, &early);
        CHECK_INT(late, 0);
    }
    CHECK(early > 0);
    grown_close(&e);
    grown_close(&g);
}

TEST(a_filter_with_room_lets_in_what_an_exact_one_does)
{
    uint64_t x = 5;
    int late, early;
    grown e, g;

    open_life(&e, exact);
    open_life(&g, filter_of(3, 10000, 1e-6));
    for (int i = 0; i < UPDATES; i++) {
        train_both(&e, &g, &x);
        compare(&e, &g, &late, &early);
        CHECK(late == 0 && early == 0);
    }
    CHECK(grown_rows(&g, "t") > 100 && grown_rows(&g, "t") < IDS);
    grown_close(&e);
    grown_close(&g);
}

/* So nobody can choose keys that meet in any training. */
TEST(which_keys_come_early_is_drawn_by_the_seed)
{
    grown_how how = {.optimizer = "sgd",
                     .life = filter_of(3, 500, 0.3),
                     .options = {.seed = 7}};
    uint64_t x = 5;
    int only_a, only_b;
    grown a, b;

    grown_open(&a, &how);
    how.options.seed = 8;
    grown_open(&b, &how);
    for (int i = 0; i < UPDATES; i++)
        train_both(&a, &b, &x);
    compare(&a, &b, &only_a, &only_b);
    CHECK(only_a > 0 && only_b > 0);
    grown_close(&a);
    grown_close(&b);
}

/* Counters of two keys that share one may both stop at it. */
TEST(counters_stop_where_they_are_full)
{
    grown g;

    open_life(&g, filter_of(3, 1, 0.5));
    for (int i = 0; i < 40; i++)
        grown_train_keys(&g, 1000 * i, 1000);
    CHECK(grown_rows(&g, "t") > 0);
    for (int i = 0; i < 2; i++)
        grown_train_keys(&g, 0, 40000);
    CHECK_INT(grown_rows(&g, "t"), 40000);
    grown_close(&g);
}

TEST(it_takes_a_tenth_of_the_memory_of_counts)
{
    enum { KEYS = 200000 };
    grown e, g;

    open_life(&e, exact);
    open_life(&g, filter_of(3, KEYS, 0.01));
    grown_train_keys(&e, 0, KEYS);
    grown_train_keys(&g, 0, KEYS);
    CHECK(grown_stat(&e, "t.waiting").row_bytes +
              grown_stat(&e, "t.waiting").index_bytes >
          40 * KEYS);
    CHECK(grown_stat(&g, "t.filter").row_bytes +
              grown_stat(&g, "t.filter").index_bytes <
          6 * KEYS);
    grown_close(&e);
    grown_close(&g);
}

/* --- saves, shrinks, snapshots -------------------------------------------- */

/* What is drawn for its counters is the save's, whatever the other's seed. */
TEST(a_training_that_is_loaded_goes_on_with_its_counts)
{
    const char *path = test_path("saved");
    grown_how how = {.optimizer = "adam",
                     .life = filter_of(3, 2000, 0.1),
                     .options = {.seed = 7}};
    grown g, to;

    grown_open(&g, &how);
    how.options.seed = 8;
    grown_open(&to, &how);
    grown_train_keys(&g, 0, 2000);
    grown_train_keys(&g, 0, 1000);
    CHECK_OK(fleet_save_persistables(g.f, path));
    grown_train_keys(&to, 0, 9); /* is gone with the load */
    CHECK_OK(fleet_load_model(to.f, path));
    CHECK(grown_hash(&g) == grown_hash(&to));
    grown_train_keys(&g, 500, 1500);
    grown_train_keys(&to, 500, 1500);
    CHECK(grown_rows(&to, "t") >= 500 && grown_rows(&to, "t") < 1000);
    CHECK(grown_hash(&g) == grown_hash(&to));
    grown_close(&g);
    grown_close(&to);
}

/* Counters of one that stops at 5 say nothing of 6. */
TEST(counts_of_another_filter_begin_anew)
{
    const char *path = test_path("saved");
    grown five, six;

    open_life(&five, filter_of(5, 1000, 0.01));
    open_life(&six, filter_of(6, 1000, 0.01));
    for (int i = 0; i < 4; i++)
        grown_train_keys(&five, 0, 10);
    CHECK_OK(fleet_save_persistables(five.f, path));
    CHECK_OK(fleet_load_model(six.f, path));
    for (int i = 0; i < 5; i++)
        grown_train_keys(&six, 0, 10);
    CHECK_INT(grown_rows(&six, "t"), 0);
    grown_train_keys(&six, 0, 10);
    CHECK_INT(grown_rows(&six, "t"), 10);
    grown_close(&five);
    grown_close(&six);
}

TEST(a_shrink_empties_it_once_the_time_is_over)
{
    fleet_table_options life = filter_of(3, 1000, 0.01);
    const char *path = test_path("saved");
    grown g;

    life.ttl_updates = 4;
    open_life(&g, life);
    for (int i = 0; i < 2; i++)
        grown_train_keys(&g, 0, 10);
    CHECK_OK(fleet_shrink(g.f, "t")); /* two updates are less than four */
    grown_train_keys(&g, 0, 10);
    CHECK_INT(grown_rows(&g, "t"), 10);
    grown_train_keys(&g, 20, 5);
    CHECK_OK(fleet_shrink(g.f, "t"));
    CHECK_INT(grown_rows(&g, "t.filter"), 0);
    grown_train_keys(&g, 20, 5);
    grown_train_keys(&g, 20, 5);
    CHECK(grown_rows(&g, "t") <= 10);
    CHECK_OK(fleet_save_persistables(g.f, path));
    for (int i = 0; i < 2; i++)
        grown_train_keys(&g, 30, 1);
    CHECK_OK(fleet_load_model(g.f, path));
    CHECK_OK(fleet_shrink(g.f, "t")); /* the load counts as if it were empty */
    CHECK(grown_rows(&g, "t.filter") > 0);
    grown_close(&g);
}

typedef struct seen {
    int64_t blocks;
    double sum;
    int64_t dim;
} seen;

static fleet_status see(void *arg, int bucket, uint64_t key, const float *row)
{
    seen *s = arg;

    CHECK_INT(fl_bucket_of(fl_mix(key)), bucket);
    s->blocks++;
    for (int64_t i = 1; i < s->dim; i++)
        s->sum += (double)row[i];
    return FLEET_OK;
}

/* Of saves beside training. */
TEST(a_snapshot_has_the_counters_of_before)
{
    uint64_t key[10];
    float *row[10] = {NULL};
    fl_life_update u = {.key = key, .n = 10, .version = 2};
    seen first = {0}, frozen = {0}, now = {0};
    fl_rows *filter;
    fl_store *s;
    grown g;

    open_life(&g, filter_of(3, 100, 0.01));
    grown_train_keys(&g, 0, 8);
    for (int i = 0; i < 10; i++)
        key[i] = (uint64_t)i;
    s = g.p->store;
    u.rows = fl_store_rows(s, "t");
    filter = fl_store_rows(s, "t.filter");
    first.dim = frozen.dim = now.dim = filter->dim;
    CHECK_OK(filter->methods->each(filter, see, &first));
    CHECK_OK(fl_snapshot_begin(s, 1, NULL, 0));
    u.frozen = s->snapshot;
    CHECK_OK(fl_life_admit(&u, row));
    CHECK_OK(fl_snapshot_each(s->snapshot, filter, see, &frozen));
    fl_snapshot_end(s);
    CHECK_OK(filter->methods->each(filter, see, &now));
    CHECK(first.sum > 0 && frozen.sum == first.sum && now.sum > first.sum);
    CHECK_INT(frozen.blocks, first.blocks);
    CHECK(now.blocks > first.blocks);
    grown_close(&g);
}

/* --- what is said, and refused -------------------------------------------- */

static void refused(fleet_entry e, const char *words)
{
    const fleet_table_options life = {.entry = e};
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    fleet_sparse_embedding(
        p, fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2), 2,
        &(fleet_sparse_embedding_options){.life = life});
    CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, words);
    fleet_destroy(f);
}

TEST(filters_that_cannot_be_are_named)
{
    fleet_entry e = filter_of(1, 1000, 0.1).entry;

    refused(e, "embedding: a Bloom filter of 1: expected 2 to 4095");
    e = filter_of(3, 0, 0.1).entry;
    refused(e, "a Bloom filter of most_keys 0: expected 1 to 1099511627776");
    e = filter_of(3, 10, 0.6).entry;
    refused(e, "a Bloom filter of false_positive_rate 0.6: expected 1e-06 to "
               "0.5");
    e.false_positive_rate = NAN;
    refused(e, "false_positive_rate nan");
}

TEST(dumps_have_it_as_configurations_do)
{
    char *text;
    grown g;

    open_life(&g, filter_of(5, 1000000, 0.125));
    text = fleet_strategy_dump(g.f);
    CHECK_CONTAINS(text, "table t: entry bloom_filter_entry:5:1000000:0.125\n");
    fleet_free(text);
    grown_close(&g);
}

TEST(a_hash_of_a_key_leads_back_to_it)
{
    uint64_t x = 3;

    for (int i = 0; i < 1000; i++) {
        uint64_t key = draw(&x) << 33 ^ draw(&x);

        CHECK(fl_unmix(fl_mix(key)) == key && fl_mix(fl_unmix(key)) == key);
    }
}
