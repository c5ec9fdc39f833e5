/* table_counts_test.c - what an accessor counts, from one process to the next:
 * saves hold what stays in memory, and a row whose counts nobody knows is not
 * lost for that. */
#define SUITE table_counts
#include <fleet/fleet.h>

#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fleet/config/config.h"

enum { DIM = 2, SHOWN = 4, ROW = 2 * DIM + SHOWN }; /* Adagrad's */

/* A process with a table of ids, and what samples were shown and clicked. */
typedef struct shop {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
} shop;

static char log_text[4000]; /* of the last shop: all lines of loads */

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(log_text);

    (void)user;
    (void)level;
    if (strstr(line, "load: "))
        snprintf(log_text + n, sizeof log_text - n, "%s\n", line);
}

static fleet_var *number(fleet_program *p, const char *name, fleet_dtype dtype)
{
    return fleet_data(p, name, dtype, (int64_t[]){-1, 1}, 2);
}

static fleet_status open_shop(shop *s, const fleet_accessor *a)
{
    const fleet_sparse_embedding_options o = {.table = "t",
                                              .life.accessor = *a};
    fleet_var *loss;

    *s = (shop){0};
    log_text[0] = 0;
    CHECK_OK(fleet_init(&s->f, &(fleet_options){.num_threads = 1,
                                                .log = keep_line,
                                                .log_level = FLEET_LOG_INFO}));
    s->p = fleet_program_create(s->f);
    number(s->p, "shows", FLEET_FLOAT32);
    number(s->p, "clicks", FLEET_FLOAT32);
    loss = fleet_mean(
        s->p,
        fleet_sparse_embedding(s->p, number(s->p, "id", FLEET_INT64), DIM, &o));
    return fleet_minimize(kit_rule(s->f, "adagrad", 0.1f), loss);
}

static void build(shop *s, const fleet_accessor *a)
{
    CHECK_OK(open_shop(s, a));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
}

static void close_shop(shop *s)
{
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

/* A batch of two samples. */
static fleet_status sell(shop *s, int64_t first, int64_t second, float show,
                         float click)
{
    const int64_t ids[] = {first, second}, dims[] = {2, 1};
    const float shows[] = {1, show}, clicks[] = {0, click};
    const fleet_feed feed[] = {
        {"id", FLEET_INT64, ids, dims, 2, NULL},
        {"shows", FLEET_FLOAT32, shows, dims, 2, NULL},
        {"clicks", FLEET_FLOAT32, clicks, dims, 2, NULL},
    };

    return fleet_executor_run(s->e, feed, 3, NULL, 0);
}

static bool has_row(const shop *s, uint64_t key, float x[SHOWN])
{
    float row[DIM], states[ROW - DIM];
    int found;

    CHECK_OK(fleet_table_get(s->f, "t", &key, 1, DIM, row, states, &found));
    memcpy(x, states + DIM, SHOWN * sizeof *x);
    return found;
}

static bool is_there(const shop *s, uint64_t key)
{
    float x[SHOWN];

    return has_row(s, key, x);
}

static uint64_t hash_of(const shop *s)
{
    uint64_t hash = 0;

    CHECK_OK(fleet_params_hash(s->f, &hash));
    return hash;
}

static const fleet_accessor counted = {
    .kind = FLEET_CTR_ACCESSOR, .show = "shows", .click = "clicks"};
static const fleet_accessor none = {.kind = FLEET_NO_ACCESSOR};

static void save_as(const shop *s, const char *path, fleet_save_mode mode)
{
    CHECK_OK(fleet_save_persistables_with(s->f, path,
                                          &(fleet_save_options){.mode = mode}));
}

/* --- a save is what stays ------------------------------------------------- */

/* A process for each day, which goes on from the one before. */
static int days_until_gone(void)
{
    fleet_accessor a = counted;
    int day = 0;

    a.delete_threshold = -1;
    a.delete_after_unseen_days = 2;
    for (bool there = true; there && day < 6; day++) {
        shop s;

        build(&s, &a);
        if (day > 0)
            CHECK_OK(fleet_load_model(s.f, test_path("day")));
        CHECK_OK(sell(&s, day == 0 ? 5 : 6, 6, 1, 0));
        CHECK_OK(fleet_shrink(s.f, NULL));
        save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
        there = is_there(&s, 5);
        close_shop(&s);
    }
    return day;
}

/* Seen on day 0: at the shrink of day 3 it was not for 3 days. */
TEST(days_of_one_process_each_add_up)
{
    CHECK_INT(days_until_gone(), 4);
}

static void check_loads_as(const shop *s, const char *path, int keep_rows,
                           shop *into)
{
    CHECK_OK(fleet_load_model_with(
        into->f, path, &(fleet_load_options){.keep_rows = keep_rows}));
    CHECK(hash_of(into) == hash_of(s));
}

TEST(who_loads_a_save_has_what_who_wrote_it_has)
{
    fleet_accessor a = counted;
    shop s, t;

    a.base_threshold = -1;
    a.delta_threshold = 1e-30f;
    build(&s, &a);
    build(&t, &a);
    CHECK_OK(sell(&s, 1, 2, 3, 1));
    save_as(&s, test_path("base"), FLEET_SAVE_BASE);
    check_loads_as(&s, test_path("base"), 0, &t);
    CHECK_OK(sell(&s, 2, 3, 3, 2));
    save_as(&s, test_path("delta"), FLEET_SAVE_DELTA);
    check_loads_as(&s, test_path("delta"), 1, &t);
    CHECK_OK(sell(&s, 1, 3, 1, 0));
    save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    check_loads_as(&s, test_path("day"), 0, &t);
    close_shop(&s);
    close_shop(&t);
}

TEST(a_save_that_fails_changes_nothing)
{
    const char *file = test_file("no-folder", "x");
    uint64_t before;
    shop s;

    build(&s, &counted);
    CHECK_OK(sell(&s, 1, 2, 9, 9));
    before = hash_of(&s);
    for (int mode = FLEET_SAVE_DELTA; mode <= FLEET_SAVE_DAY_END; mode++)
        CHECK(fleet_save_persistables_with(
                  s.f, file,
                  &(fleet_save_options){.mode = (fleet_save_mode)mode}) !=
              FLEET_OK);
    CHECK(hash_of(&s) == before);
    close_shop(&s);
}

/* --- rows without counts -------------------------------------------------- */

/* Rows 1, 2 and 7 are there and nobody knows what they were shown: they stay
 * until an update has seen them, and are in a base and in the next delta. */
static void check_not_lost(shop *s)
{
    float x[SHOWN];
    shop t;

    for (int i = 0; i < 3; i++)
        CHECK_OK(fleet_shrink(s->f, NULL));
    CHECK(has_row(s, 1, x) && is_there(s, 2) && is_there(s, 7));
    CHECK(x[0] == 0 && x[1] == 0 && x[3] < 0);
    save_as(s, test_path("delta"), FLEET_SAVE_DELTA);
    save_as(s, test_path("base"), FLEET_SAVE_BASE);
    for (int i = 0; i < 2; i++) {
        build(&t, &counted);
        CHECK_OK(fleet_load_model_with(t.f, test_path(i ? "base" : "delta"),
                                       &(fleet_load_options){.keep_rows = 1}));
        CHECK(is_there(&t, 1) && is_there(&t, 2) && is_there(&t, 7));
        close_shop(&t);
    }
    CHECK_OK(sell(s, 1, 2, 100, 50));
    CHECK(has_row(s, 1, x));
    CHECK(x[0] == 1 && x[1] == 0 && x[3] == 0);
    CHECK_OK(fleet_shrink(s->f, NULL)); /* 1 is judged as any other row now */
    CHECK(!is_there(s, 1) && is_there(s, 2) && is_there(s, 7));
}

/* A model without an accessor, and its table as text. */
static void save_plain(void)
{
    shop s;

    build(&s, &none);
    CHECK_OK(sell(&s, 1, 2, 1, 0));
    CHECK_OK(sell(&s, 7, 7, 1, 0));
    CHECK_OK(fleet_save_persistables(s.f, test_path("plain")));
    CHECK_OK(fleet_export_table(s.f, "t", test_path("plain.txt"),
                                &(fleet_export_options){.states = 1}));
    close_shop(&s);
}

TEST(a_model_without_counts_outlives_a_shrink)
{
    shop s;

    save_plain();
    build(&s, &counted);
    CHECK_OK(fleet_load_model(s.f, test_path("plain")));
    CHECK_CONTAINS(log_text, "plain does not say how often the rows of table "
                             "\"t\" were shown: until an update sees one of "
                             "them, no shrink goes by its score");
    check_not_lost(&s);
    close_shop(&s);
}

TEST(a_table_without_counts_outlives_a_shrink)
{
    shop s;

    save_plain();
    build(&s, &counted);
    CHECK_OK(fleet_load_one_table(s.f, "t", test_path("plain"), NULL));
    CHECK_CONTAINS(log_text, "does not say how often the rows of table \"t\"");
    check_not_lost(&s);
    CHECK_OK(fleet_import_table(s.f, "t", test_path("plain.txt"), NULL));
    check_not_lost(&s);
    close_shop(&s);
}

TEST(hot_rows_outlive_a_shrink)
{
    shop s, t;

    build(&s, &counted);
    CHECK_OK(sell(&s, 1, 2, 1, 0));
    CHECK_OK(sell(&s, 7, 7, 1, 0));
    CHECK_OK(fleet_save_cache_model(s.f, test_path("hot"), 1, NULL));
    build(&t, &counted);
    CHECK_OK(fleet_load_one_table(
        t.f, "t", test_path("hot"),
        &(fleet_load_table_options){.states = FLEET_STATES_INITIALIZE}));
    check_not_lost(&t);
    close_shop(&s);
    close_shop(&t);
}

TEST(rows_written_by_hand_outlive_a_shrink)
{
    const float w[3 * DIM] = {1, 2, 3, 4, 5, 6};
    const uint64_t keys[] = {1, 2, 7};
    float x[SHOWN];
    shop s;

    build(&s, &counted);
    CHECK_OK(fleet_table_set(s.f, "t", keys, 3, DIM, w, NULL));
    check_not_lost(&s);
    CHECK_OK(fleet_table_set(s.f, "t", keys + 1, 1, DIM, w, NULL));
    CHECK(has_row(&s, 2, x)); /* it has counts, and keeps them */
    CHECK(x[0] > 90 && x[1] > 40 && x[3] == 0);
    close_shop(&s);
}

/* Their days pass as others' do. */
TEST(rows_without_counts_go_when_they_were_not_seen_for_long)
{
    fleet_accessor a = counted;
    const float w[DIM] = {1, 2};
    shop s, t;

    a.delete_after_unseen_days = 2;
    build(&s, &a);
    CHECK_OK(fleet_table_set(s.f, "t", (uint64_t[]){1}, 1, DIM, w, NULL));
    for (int i = 0; i < 2; i++)
        save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    CHECK_OK(fleet_shrink(s.f, NULL));
    CHECK(is_there(&s, 1));
    build(&t, &a);
    CHECK_OK(fleet_load_model(t.f, test_path("day")));
    CHECK(hash_of(&t) == hash_of(&s));
    save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    CHECK_OK(fleet_shrink(s.f, NULL));
    CHECK(!is_there(&s, 1));
    close_shop(&s);
    close_shop(&t);
}

TEST(a_text_with_states_brings_the_counts_back)
{
    const char *path = test_path("t.txt");
    uint64_t before;
    shop s, t;

    build(&s, &counted);
    CHECK_OK(sell(&s, 1, 2, 4, 2));
    CHECK_OK(sell(&s, 7, 2, 1, 0));
    save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    before = hash_of(&s);
    CHECK_OK(fleet_export_table(s.f, "t", path,
                                &(fleet_export_options){.states = 1}));
    CHECK_OK(fleet_import_table(s.f, "t", path, NULL));
    CHECK(hash_of(&s) == before);
    build(&t, &none); /* which leaves them out */
    CHECK_OK(fleet_import_table(t.f, "t", path, NULL));
    CHECK(is_there(&t, 7));
    CHECK_FAILS(fleet_import_table(
                    t.f, "t",
                    test_file("bad.txt", "1 2 updates sum show click\n"), NULL),
                FLEET_EFORMAT,
                "bad.txt:1: of what an accessor counts expected \"show "
                "click delta_score seen\"");
    close_shop(&s);
    close_shop(&t);
}

TEST(a_text_of_weights_and_counts_has_no_states_and_comes_back)
{
    const fleet_export_options counts = {.counts = 1};
    const uint64_t key[] = {1, 2, 7};
    const char *path = test_path("t.txt");
    float was[ROW - DIM], is[ROW - DIM], row[DIM];
    char line[100];
    shop s, t;
    FILE *f;

    build(&s, &counted);
    CHECK_OK(sell(&s, 1, 2, 4, 2));
    CHECK_OK(sell(&s, 7, 2, 1, 0));
    save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    CHECK_OK(fleet_export_table(s.f, "t", path, &counts));
    f = fopen(path, "r");
    CHECK(f && fgets(line, sizeof line, f));
    fclose(f);
    CHECK_CONTAINS(line, " show click delta_score seen\n");
    CHECK(!strstr(line, "updates"));
    build(&t, &counted);
    CHECK_OK(fleet_import_table(t.f, "t", path, NULL));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(fleet_table_get(s.f, "t", &key[i], 1, DIM, row, was, NULL));
        CHECK_OK(fleet_table_get(t.f, "t", &key[i], 1, DIM, row, is, NULL));
        CHECK(was[0] > 0 && is[0] == 0); /* Adagrad's sum begins anew */
        CHECK(memcmp(was + DIM, is + DIM, SHOWN * sizeof *is) == 0);
    }
    close_shop(&t);
    build(&t, &none);
    CHECK_FAILS(fleet_export_table(t.f, "t", path, &counts), FLEET_EINVAL,
                "counts: table \"t\" has no life.accessor");
    close_shop(&s);
    close_shop(&t);
}

/* --- what is refused ------------------------------------------------------ */

TEST(a_slot_that_is_not_there_is_named_before_anything_runs)
{
    fleet_accessor a = counted;
    shop s;

    a.click = "buys";
    CHECK_FAILS(open_shop(&s, &a), FLEET_EINVAL,
                "fleet_minimize: table \"t\": life.accessor.click is "
                "\"buys\": expected data of [-1,1], float32 or int64, and the "
                "program has none");
    close_shop(&s);
    a.click = NULL;
    a.show = "t";
    CHECK_FAILS(open_shop(&s, &a), FLEET_EINVAL,
                "life.accessor.show is \"t\": expected data of [-1,1], "
                "float32 or int64, which it is not");
    close_shop(&s);
}

static void refuses(shop *s, float show, float click, const char *words)
{
    uint64_t before = hash_of(s);

    CHECK_FAILS(sell(s, 1, 9, show, click), FLEET_EINVAL, words);
    CHECK(hash_of(s) == before);
    CHECK(!is_there(s, 9));
}

TEST(a_batch_with_an_impossible_count_changes_nothing)
{
    shop s;

    build(&s, &counted);
    CHECK_OK(
        sell(&s, 1, 2, 1, 2)); /* more clicks than shows are Fleet's, too */
    refuses(&s, NAN, 0,
            "batch 2: table \"t\": life.accessor.show: \"shows\" in "
            "row 1 of the batch is nan: expected a finite number "
            "of at least 0");
    refuses(&s, 1, -2,
            "life.accessor.click: \"clicks\" in row 1 of the batch "
            "is -2: expected");
    refuses(&s, INFINITY, 0, "\"shows\" in row 1 of the batch is inf");
    CHECK_OK(sell(&s, 1, 9, 0, 0));
    CHECK(is_there(&s, 9));
    close_shop(&s);
}

static void config_with(const char *accessor, const char *words)
{
    char text[600];
    fl_config c;

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\", \"hidden\": [8], "
             "\"accessor\": %s}, \"dataset\": {\"format\": "
             "\"multislot\", \"train\": [\"part-0\"], \"batch_size\": 4}, "
             "\"slots\": [{\"name\": \"y\", \"type\": \"uint64\", "
             "\"role\": \"label\"}, {\"name\": \"u\", \"type\": "
             "\"uint64\"}, {\"name\": \"n\", \"type\": \"float\"}]}",
             accessor);
    if (words)
        CHECK_FAILS(fl_config_read(&c, text, strlen(text), "f.json"),
                    FLEET_ECONFIG, words);
    else
        CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    fl_config_done(&c);
}

TEST(a_configuration_names_a_slot_that_counts)
{
    config_with("{\"show\": \"n\", \"click\": \"y\"}", NULL);
    config_with("{\"click\": \"labl\"}",
                "model.accessor.click: expected the name of the label, or of a "
                "slot of type \"float\" and dim 1; no slot has that name, got "
                "\"labl\"");
    config_with("{\"show\": \"u\"}",
                "model.accessor.show: expected the label, or a slot of type "
                "\"float\" and dim 1; that slot has ids, or another dim, got "
                "\"u\"");
}
