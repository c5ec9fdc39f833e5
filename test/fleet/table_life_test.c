/* table_life_test.c - which keys become rows, in one process: those that have
 * come often enough, those that are drawn; what the others read as, and what
 * saves know of them. */
#define SUITE table_life
#include "grown_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "runtime/graph/program.h"
#include "runtime/graph/table_options.h"
#include "runtime/life/life.h"
#include "runtime/plan/job_signature.h"
#include "runtime/store/snapshot.h"

static const fleet_table_options third = {
    .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}};

static grown_how how_of(const fleet_table_options *life)
{
    return (grown_how){
        .optimizer = "sgd", .life = *life, .options = {.seed = 7}};
}

static bool same_row(const grown *a, const grown *b, int64_t id)
{
    float x[GROWN_DIM], y[GROWN_DIM];

    grown_row(a, id, x);
    grown_row(b, id, y);
    return memcmp(x, y, sizeof x) == 0;
}

/* --- a count filter ------------------------------------------------------- */

TEST(a_key_becomes_a_row_with_the_update_that_is_its_third)
{
    grown_how how = how_of(&third);
    grown g, fresh;

    grown_open(&g, &how);
    grown_open(&fresh, &how);
    for (int i = 0; i < 2; i++) {
        grown_train(&g, 4);
        CHECK_INT(grown_rows(&g, "t"), 0);
        CHECK_INT(grown_rows(&g, "t.waiting"), 4);
        CHECK(same_row(&g, &fresh, 2));
    }
    grown_train(&g, 3);
    CHECK_INT(grown_rows(&g, "t"), 3);
    CHECK_INT(grown_rows(&g, "t.waiting"), 1);
    CHECK(!same_row(&g, &fresh, 2) && same_row(&g, &fresh, 3));
    grown_train(&g, 4);
    CHECK_INT(grown_rows(&g, "t"), 4);
    CHECK_INT(grown_rows(&g, "t.waiting"), 0);
    grown_close(&g);
    grown_close(&fresh);
}

/* Its first gradients are dropped, and nothing else: with SGD it is where a row
 * is that was always one, that many updates earlier. */
TEST(a_row_begins_with_its_initial_value_and_the_gradient_that_makes_it_one)
{
    grown_how how = how_of(&third), plain = how_of(&(fleet_table_options){0});
    grown g, p;

    grown_open(&g, &how);
    grown_open(&p, &plain);
    for (int i = 0; i < 5; i++)
        grown_train(&g, 4);
    for (int i = 0; i < 3; i++)
        grown_train(&p, 4);
    for (int i = 0; i < 4; i++)
        CHECK(same_row(&g, &p, i));
    grown_close(&g);
    grown_close(&p);
}

TEST(an_update_counts_once_however_often_it_has_a_key)
{
    static const int64_t id[] = {5, 5, 5, 5, 9};
    static const uint64_t key[] = {5, 9};
    grown_how how = how_of(&third);
    float count[2];
    int found[2];
    grown g;

    grown_open(&g, &how);
    grown_train_ids(&g, id, 5);
    grown_train_ids(&g, id, 4);
    CHECK_OK(fleet_table_get(g.f, "t.waiting", key, 2, 1, count, NULL, found));
    CHECK(found[0] && found[1]);
    CHECK_INT((int)count[0], 2);
    CHECK_INT((int)count[1], 1);
    grown_close(&g);
}

/* A merge group is one update. */
TEST(merged_batches_count_once)
{
    grown_how how = how_of(&third);
    grown g;

    how.merge = 2;
    grown_open(&g, &how);
    for (int i = 0; i < 5; i++)
        grown_train(&g, 4);
    CHECK_INT(grown_rows(&g, "t"), 0);
    grown_train(&g, 4);
    CHECK_INT(grown_rows(&g, "t"), 4);
    grown_close(&g);
}

TEST(a_filter_of_one_lets_all_in_and_counts_nothing)
{
    const fleet_table_options first = {
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 1}};
    grown_how how = how_of(&first), plain = how_of(&(fleet_table_options){0});
    fleet_table_statistics s;
    grown g, p;

    grown_open(&g, &how);
    grown_open(&p, &plain);
    grown_train(&g, 4);
    grown_train(&p, 4);
    CHECK(grown_hash(&g) == grown_hash(&p));
    CHECK_FAILS(fleet_table_stat(g.f, "t.waiting", &s), FLEET_ENOENT,
                "there is no table \"t.waiting\"");
    grown_close(&g);
    grown_close(&p);
}

/* --- probability ---------------------------------------------------------- */

enum { MANY = 4000 };

static void train_many(grown *g)
{
    int64_t *id = malloc(MANY * sizeof *id);

    for (int i = 0; i < MANY; i++)
        id[i] = i;
    grown_train_ids(g, id, MANY);
    free(id);
}

static void found_of(const grown *g, int *found)
{
    uint64_t *key = malloc(MANY * sizeof *key);
    float *row = malloc(MANY * GROWN_DIM * sizeof *row);

    for (int i = 0; i < MANY; i++)
        key[i] = (uint64_t)i;
    CHECK_OK(
        fleet_table_get(g->f, "t", key, MANY, GROWN_DIM, row, NULL, found));
    free(key);
    free(row);
}

static int differing(const int *a, const int *b)
{
    int n = 0;

    for (int i = 0; i < MANY; i++)
        n += a[i] != b[i];
    return n;
}

TEST(keys_are_drawn_by_seed_and_key_and_for_good)
{
    const fleet_table_options drawn = {
        .entry = {.kind = FLEET_PROBABILITY_ENTRY, .probability = 0.3}};
    static int first[MANY], later[MANY], again[MANY], other[MANY];
    grown_how how = how_of(&drawn);
    grown g;

    grown_open(&g, &how);
    train_many(&g);
    found_of(&g, first);
    for (int i = 0; i < 3; i++)
        train_many(&g);
    found_of(&g, later);
    /* four standard deviations: 0.029 */
    CHECK((double)grown_rows(&g, "t") > 0.271 * MANY &&
          (double)grown_rows(&g, "t") < 0.329 * MANY);
    grown_close(&g);

    grown_open(&g, &how);
    train_many(&g);
    found_of(&g, again);
    grown_close(&g);
    how.options.seed = 8;
    grown_open(&g, &how);
    train_many(&g);
    found_of(&g, other);
    grown_close(&g);

    CHECK_INT(differing(first, later), 0);
    CHECK_INT(differing(first, again), 0);
    CHECK(differing(first, other) > MANY / 4); /* 0.42, if by chance */
}

/* --- what a key without a row reads as ------------------------------------ */

TEST(a_key_without_a_row_reads_as_zeros_where_that_is_asked_for)
{
    fleet_table_options life = third;
    grown_how how = how_of(&third), zeros;
    float row[GROWN_DIM];
    grown g, z;

    life.unknown_zeros = 1;
    zeros = how_of(&life);
    grown_open(&g, &how);
    grown_open(&z, &zeros);
    for (int i = 0; i < 2; i++) {
        grown_train(&g, 4);
        grown_train(&z, 4);
        grown_row(&g, 1, row);
        CHECK(row[0] != 0 && row[1] != 0);
        grown_row(&z, 1, row);
        CHECK(row[0] == 0 && row[1] == 0);
    }
    grown_train(&g, 4); /* a mean's gradient is the same for any rows */
    grown_train(&z, 4);
    CHECK(same_row(&g, &z, 1));
    CHECK(grown_hash(&g) == grown_hash(&z));
    grown_close(&g);
    grown_close(&z);
}

/* --- saves ---------------------------------------------------------------- */

TEST(counts_by_hand_are_no_negative_numbers)
{
    const uint64_t key[] = {1, 2};
    const float count[] = {2, -1};
    grown g;

    grown_open(&g, &(grown_how){.optimizer = "sgd", .life = third});
    CHECK_OK(fleet_table_set(g.f, "t.waiting", key, 1, 1, count, NULL));
    CHECK_FAILS(fleet_table_set(g.f, "t.waiting", key, 2, 1, count, NULL),
                FLEET_EINVAL, "key 2, number 0: -1: \"t.waiting\" has counts");
    grown_train(&g, 3);
    CHECK_INT(grown_rows(&g, "t"), 1); /* of key 1, which came twice before */
    grown_close(&g);
}

TEST(counts_are_saved_and_go_on)
{
    const char *path = test_path("saved");
    grown_how how = how_of(&third);
    grown g, to;

    how.optimizer = "adam";
    grown_open(&g, &how);
    grown_open(&to, &how);
    grown_train(&g, 4);
    grown_train(&g, 2);
    CHECK_OK(fleet_save_persistables(g.f, path));
    grown_train(&to, 9); /* is gone with the load */
    CHECK_OK(fleet_load_model(to.f, path));
    CHECK_INT(grown_rows(&to, "t.waiting"), 4);
    CHECK(grown_hash(&g) == grown_hash(&to));
    grown_train(&g, 4);
    grown_train(&to, 4);
    CHECK_INT(grown_rows(&to, "t"), 2);
    CHECK_INT(grown_rows(&to, "t.waiting"), 2);
    CHECK(grown_hash(&g) == grown_hash(&to));
    grown_close(&g);
    grown_close(&to);
}

TEST(a_save_without_counts_is_loaded_with_none_and_one_with_counts_without)
{
    const char *path = test_path("saved"), *counted = test_path("counted");
    grown_how how = how_of(&third), plain = how_of(&(fleet_table_options){0});
    grown g, p;

    how.optimizer = plain.optimizer = "adam";
    grown_open(&g, &how);
    grown_open(&p, &plain);
    grown_train(&p, 4);
    CHECK_OK(fleet_save_persistables(p.f, path));
    grown_train(&g, 9);
    CHECK_OK(fleet_save_persistables(g.f, counted));
    CHECK_OK(fleet_load_model(g.f, path));
    CHECK_INT(grown_rows(&g, "t"), 4);
    CHECK_INT(grown_rows(&g, "t.waiting"), 0);
    CHECK_OK(fleet_load_model(p.f, counted));
    CHECK_INT(grown_rows(&p, "t"), 0);
    grown_close(&g);
    grown_close(&p);
}

typedef struct seen {
    int64_t rows;
    float sum;
} seen;

static fleet_status see(void *arg, int bucket, uint64_t key, const float *row)
{
    seen *s = arg;

    (void)bucket;
    s->rows++;
    s->sum += row[0] * (float)(key + 1);
    return FLEET_OK;
}

/* Of saves beside training: what is counted meanwhile is not in them. */
TEST(a_snapshot_has_the_counts_of_before)
{
    static const uint64_t key[] = {0, 1, 9};
    float *row[3] = {NULL};
    grown_how how = how_of(&third);
    seen before = {0}, after = {0};
    fl_life_update u = {.key = key, .n = 3, .version = 4};
    fl_rows *waiting;
    fl_store *s;
    grown g;

    grown_open(&g, &how);
    grown_train(&g, 2);
    grown_train(&g, 1);
    s = g.p->store;
    u.rows = fl_store_rows(s, "t");
    waiting = fl_store_rows(s, "t.waiting");
    CHECK_OK(fl_snapshot_begin(s, 2, NULL, 0));
    u.frozen = s->snapshot;
    CHECK_OK(fl_life_admit(&u, row));
    CHECK(row[0] && !row[1] && !row[2]);
    CHECK_OK(fl_snapshot_each(s->snapshot, waiting, see, &before));
    CHECK_INT(before.rows, 2);
    CHECK(before.sum == 4);
    fl_snapshot_end(s);
    CHECK_OK(waiting->methods->each(waiting, see, &after));
    CHECK_INT(after.rows, 2);
    CHECK(after.sum == 14);
    grown_close(&g);
}

/* --- what is said, and refused -------------------------------------------- */

static void refused(fleet_table_options life, fleet_status code,
                    const char *words)
{
    fleet_program *p;
    fleet_var *ids;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    ids = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    CHECK(fleet_sparse_embedding(
              p, ids, 2, &(fleet_sparse_embedding_options){.life = third}) !=
          NULL);
    fleet_sparse_embedding(p, ids, 2,
                           &(fleet_sparse_embedding_options){.life = life});
    CHECK_FAILS(fleet_program_status(p), code, words);
    fleet_destroy(f);
}

#define ENTRY(...)                                                             \
    (fleet_table_options)                                                      \
    {                                                                          \
        .entry = { __VA_ARGS__ }                                               \
    }

TEST(entries_that_cannot_be_are_named)
{
    refused(ENTRY(.kind = FLEET_COUNT_FILTER_ENTRY), FLEET_EINVAL,
            "embedding: a count filter of 0: expected 1 to 16777216");
    refused(ENTRY(.kind = FLEET_PROBABILITY_ENTRY, .probability = 1),
            FLEET_EINVAL, "an entry of probability 1: expected above 0 and");
    refused(ENTRY(.kind = (fleet_entry_kind)9), FLEET_EINVAL,
            "entry 9 does not exist");
    refused((fleet_table_options){.ttl_updates = -1}, FLEET_EINVAL,
            "embedding: ttl_updates -1: expected 0 to 2^53 - 1");
    refused((fleet_table_options){.most_rows = 1023}, FLEET_EINVAL,
            "embedding: most_rows 1023: expected 0, or 1024 or more");
    refused((fleet_table_options){.ttl_seconds = -1}, FLEET_EINVAL,
            "embedding: ttl_seconds -1: expected 0 to 2^53 - 1");
    refused((fleet_table_options){.ttl_seconds = INT64_MAX}, FLEET_EINVAL,
            "embedding: ttl_seconds 9223372036854775807: expected 0 to");
    refused((fleet_table_options){.most_bytes = INT64_MAX}, FLEET_EINVAL,
            "embedding: most_bytes 9223372036854775807: expected 0 to");
    refused((fleet_table_options){.most_bytes = -1}, FLEET_EINVAL,
            "embedding: most_bytes -1: expected 0 to 2^53 - 1");
    refused((fleet_table_options){.ttl_seconds = 5}, FLEET_EEXIST,
            "there already with another ttl_seconds");
    refused((fleet_table_options){.most_bytes = 5000}, FLEET_EEXIST,
            "there already with another most_bytes");
    refused((fleet_table_options){.ttl_updates = 5}, FLEET_EEXIST,
            "there already with another ttl_updates");
    refused((fleet_table_options){.most_rows = 5000}, FLEET_EEXIST,
            "there already with another most_rows");
    refused(ENTRY(.kind = FLEET_COUNT_FILTER_ENTRY, .count = 4), FLEET_EEXIST,
            "\"embedding\" is there already with another entry");
    refused((fleet_table_options){.unknown_zeros = 1}, FLEET_EEXIST,
            "there already with another unknown_zeros");
}

/* It would be another entry than its caller has in mind, or none. */
TEST(what_an_entry_s_kind_does_not_read_is_refused)
{
    refused(ENTRY(.count = 5), FLEET_EINVAL,
            "embedding: entry.count is set, but entry.kind 0 does not read it");
    refused(ENTRY(.probability = 0.1), FLEET_EINVAL,
            "entry.probability is set, but entry.kind 0");
    refused(
        ENTRY(.kind = FLEET_COUNT_FILTER_ENTRY, .count = 5, .probability = 0.1),
        FLEET_EINVAL, "entry.probability is set, but entry.kind 1");
    refused(
        ENTRY(.kind = FLEET_PROBABILITY_ENTRY, .probability = 0.1, .count = 5),
        FLEET_EINVAL, "entry.count is set, but entry.kind 2");
    refused(ENTRY(.kind = FLEET_COUNT_FILTER_ENTRY, .count = 5, .most_keys = 9),
            FLEET_EINVAL, "entry.most_keys is set");
    refused(ENTRY(.kind = FLEET_PROBABILITY_ENTRY, .probability = 0.1,
                  .false_positive_rate = 0.1),
            FLEET_EINVAL, "entry.false_positive_rate is set");
    refused(ENTRY(.kind = FLEET_COUNT_FILTER_ENTRY, .count = 5, .score = 1),
            FLEET_EINVAL, "entry.score is set, but entry.kind 1");
    refused(ENTRY(.kind = FLEET_BLOOM_FILTER_ENTRY, .count = 5, .most_keys = 9,
                  .false_positive_rate = 0.1, .probability = 0.1),
            FLEET_EINVAL, "entry.probability is set, but entry.kind 3");
}

TEST(texts_of_entries_have_plain_numbers)
{
    static const char *const wrong[] = {"count_filter_entry: 5",
                                        "count_filter_entry:+5",
                                        "count_filter_entry:",
                                        "count_filter_entry:5 ",
                                        "probability_entry:0x1p-3",
                                        "probability_entry: 0.5",
                                        "probability_entry:+0.5",
                                        "probability_entry:",
                                        "probability_entry:0.5.5",
                                        "bloom_filter_entry:+5:100:0.1",
                                        "bloom_filter_entry:5: 100:0.1",
                                        "bloom_filter_entry:5:100",
                                        "bloom_filter_entry:5:100:0x1p-3",
                                        "show_click_entry:+1",
                                        "show_click_entry:0x1p3"};
    fleet_entry e;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!fl_entry_read(wrong[i], &e));
    CHECK(fl_entry_read("count_filter_entry:05", &e) && e.count == 5);
    CHECK(fl_entry_read("probability_entry:1.25e-1", &e));
    CHECK(e.probability == 0.125);
    CHECK(fl_entry_read("bloom_filter_entry:5:100:.5", &e));
    CHECK(e.count == 5 && e.most_keys == 100 && e.false_positive_rate == 0.5);
}

static void add_layer(fleet *f, bool counted)
{
    const fleet_sparse_embedding_options other = {.table = "embedding.waiting"};
    const fleet_sparse_embedding_options counts = {.life = third};
    fleet_program *p = fleet_program_create(f);
    fleet_var *ids = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);

    CHECK(fleet_sparse_embedding(p, ids, counted ? 2 : 1,
                                 counted ? &counts : &other) != NULL);
}

TEST(a_table_may_not_have_the_name_of_a_filters_counts)
{
    int n;
    fleet *f;

    for (int first = 0; first < 2; first++) {
        CHECK_OK(fleet_init(&f, NULL));
        add_layer(f, first == 0);
        CHECK_OK(fleet_parameter_list(f, NULL, 0, &n));
        add_layer(f, first != 0);
        CHECK_FAILS(fleet_parameter_list(f, NULL, 0, &n), FLEET_EEXIST,
                    "the name of what the filter of \"embedding\" counts");
        fleet_destroy(f);
    }
}

TEST(dumps_have_what_was_asked_for)
{
    fleet_table_options life = third;
    grown_how how;
    char *text;
    grown g;

    life.unknown_zeros = 1;
    life.ttl_updates = 40;
    life.most_rows = 5000;
    life.ttl_seconds = 86400;
    life.most_bytes = 1 << 30;
    how = how_of(&life);
    grown_open(&g, &how);
    text = fleet_strategy_dump(g.f);
    CHECK_CONTAINS(text,
                   "table t: entry count_filter_entry:3, unknown_zeros yes, "
                   "ttl_updates 40, ttl_seconds 86400, most_rows 5000, "
                   "most_bytes 1073741824\n");
    fleet_free(text);
    text = fleet_program_dump(g.p, FLEET_DUMP_TEXT, 0);
    CHECK_CONTAINS(text, " entry count_filter_entry:3 unknown_zeros yes");
    fleet_free(text);
    grown_close(&g);
}

TEST(processes_with_other_entries_are_told_which)
{
    fleet_table_options fourth = third;
    grown_how how = how_of(&third), other;
    char *a, *b, *text;
    grown g, o;

    fourth.entry.count = 4;
    other = how_of(&fourth);
    grown_open(&g, &how);
    grown_open(&o, &other);
    grown_train(&g, 1);
    grown_train(&o, 1);
    a = fl_job_signature_text(g.p->store);
    b = fl_job_signature_text(o.p->store);
    text = fl_job_signature_difference("worker 1", a, "worker 0", b);
    CHECK_TEXT(text, "table \"t\": entry is count_filter_entry:3 in worker 1, "
                     "count_filter_entry:4 in worker 0");
    fl_free(a);
    fl_free(b);
    fl_free(text);
    grown_close(&g);
    grown_close(&o);
}

/* --- configurations ------------------------------------------------------- */

#define CONFIG(model)                                                          \
    "{\"model\": {\"type\": \"wide_deep\", \"hidden\": [8]" model              \
    "}, \"dataset\": {\"format\": \"multislot\", \"train\": [\"part-0\"], "    \
    "\"batch_size\": 4}, \"slots\": [{\"name\": \"y\", \"type\": "             \
    "\"float\", \"role\": \"label\"}, {\"name\": \"u\", \"type\": "            \
    "\"uint64\"}]}"

static void config_says(const char *text, const fleet_table_options *want)
{
    fl_config c;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.life.entry.kind, want->entry.kind);
    CHECK_INT(c.life.entry.count, want->entry.count);
    CHECK(c.life.entry.probability == want->entry.probability);
    CHECK_INT(c.life.entry.most_keys, want->entry.most_keys);
    CHECK(c.life.entry.false_positive_rate == want->entry.false_positive_rate);
    CHECK_INT(c.life.unknown_zeros, want->unknown_zeros);
    CHECK_INT(c.life.ttl_updates, want->ttl_updates);
    CHECK_INT(c.life.most_rows, want->most_rows);
    CHECK_INT(c.life.ttl_seconds, want->ttl_seconds);
    CHECK_INT(c.life.most_bytes, want->most_bytes);
    fl_config_done(&c);
}

static void config_refuses(const char *text, const char *words)
{
    fl_config c;

    CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"), FLEET_ECONFIG,
                words);
    fl_config_done(&c);
}

TEST(a_configuration_has_entries_as_fleet_writes_them)
{
    config_says(CONFIG(", \"entry\": \"count_filter_entry:3\""), &third);
    config_says(
        CONFIG(", \"entry\": \"probability_entry:0.25\", "
               "\"unknown_zeros\": true"),
        &(fleet_table_options){
            .entry = {.kind = FLEET_PROBABILITY_ENTRY, .probability = 0.25},
            .unknown_zeros = 1});
    config_says(CONFIG(", \"entry\": \"bloom_filter_entry:4:5000:0.25\""),
                &ENTRY(.kind = FLEET_BLOOM_FILTER_ENTRY, .count = 4,
                       .most_keys = 5000, .false_positive_rate = 0.25));
    config_says(CONFIG(", \"ttl_updates\": 9, \"most_rows\": 4096"),
                &(fleet_table_options){.ttl_updates = 9, .most_rows = 4096});
    config_says(
        CONFIG(", \"ttl_seconds\": 60, \"most_bytes\": 4194304"),
        &(fleet_table_options){.ttl_seconds = 60, .most_bytes = 4 << 20});
    config_refuses(CONFIG(", \"most_rows\": 99"),
                   "most_rows 99: expected 0, or 1024 or more");
    config_refuses(CONFIG(", \"entry\": \"count_filter_entry:3x\""),
                   "model.entry: expected \"count_filter_entry:N\", \"");
    config_refuses(CONFIG(", \"entry\": \"count_filter_entry:\""),
                   "model.entry: expected \"count_filter_entry:N\", \"");
    config_refuses(CONFIG(", \"entry\": \"bloom_filter_entry:4:5000\""),
                   "bloom_filter_entry:N:KEYS:RATE");
    config_refuses(CONFIG(", \"entry\": \"bloom_filter_entry:4:5000:2\""),
                   "a Bloom filter of false_positive_rate 2: expected");
    config_refuses(CONFIG(", \"entry\": \"probability_entry:2\""),
                   "an entry of probability 2: expected above 0 and below 1");
    config_refuses(CONFIG(", \"entry\": \"often\""),
                   "model.entry: expected \"count_filter_entry:N\", \"");
}
