/* table_accessor_test.c - what rows were shown and clicked, in one process:
 * from slots of the samples to a shrink, and through saves. */
#define SUITE table_accessor
#include <fleet/fleet.h>

#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/config/config.h"
#include "runtime/graph/table_options.h"
#include "runtime/life/accessor.h"

enum { DIM = 2, SHOWN = 4 };

/* Two layers on one table, and what samples were shown and clicked. */
typedef struct shop {
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
} shop;

static const fleet_accessor counted = {
    .kind = FLEET_CTR_ACCESSOR, .show = "shows", .click = "clicks"};

static fleet_var *number(fleet_program *p, const char *name, fleet_dtype dtype)
{
    return fleet_data(p, name, dtype, (int64_t[]){-1, 1}, 2);
}

static char log_text[4000]; /* the last shop's last line */

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    (void)user;
    if (level >= FLEET_LOG_WARNING)
        snprintf(log_text, sizeof log_text, "%s", line);
}

static void build_with(shop *s, const fleet_table_options *life,
                       const char *rule, int merge)
{
    const fleet_sparse_embedding_options o = {.life = *life};
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *left, *right;

    *s = (shop){0};
    log_text[0] = 0;
    CHECK_OK(fleet_init(&s->f,
                        &(fleet_options){.num_threads = 1, .log = keep_line}));
    s->p = fleet_program_create(s->f);
    number(s->p, "shows", FLEET_INT64);
    number(s->p, "clicks", FLEET_FLOAT32);
    left = fleet_sparse_embedding(s->p, number(s->p, "left", FLEET_INT64), DIM,
                                  &o);
    right = fleet_sparse_embedding(s->p, number(s->p, "right", FLEET_INT64),
                                   DIM, &o);
    strategy.gradient_merge = merge > 1;
    strategy.gradient_merge_configs.k_steps = merge > 1 ? merge : 1;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(s->f, kit_rule(s->f, rule, 0.1f),
                                    &strategy),
        fleet_add(s->p, fleet_mean(s->p, left), fleet_mean(s->p, right))));
    s->e = fleet_executor_create(s->p, NULL);
}

static void build(shop *s, const fleet_accessor *a, const char *rule, int merge)
{
    build_with(s, &(fleet_table_options){.accessor = *a}, rule, merge);
}

static void close_shop(shop *s)
{
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

enum { SAMPLES = 3 };

static fleet_status sell(shop *s)
{
    static const int64_t left[] = {1, 1, 2}, right[] = {3, 2, 3};
    static const int64_t shows[] = {2, 3, 1}, dims[] = {SAMPLES, 1};
    static const float clicks[] = {1, 0, 0.5f};
    const fleet_feed feed[] = {
        {"left", FLEET_INT64, left, dims, 2, NULL},
        {"right", FLEET_INT64, right, dims, 2, NULL},
        {"shows", FLEET_INT64, shows, dims, 2, NULL},
        {"clicks", FLEET_FLOAT32, clicks, dims, 2, NULL},
    };

    return fleet_executor_run(s->e, feed, 4, NULL, 0);
}

/* The accessor's numbers of a row, behind the optimizer's; false: no row. */
static bool shown(const shop *s, uint64_t key, float x[SHOWN])
{
    float row[DIM], states[2 * DIM + SHOWN];
    fleet_table_statistics stat;
    int found;

    CHECK_OK(fleet_table_stat(s->f, "embedding", &stat));
    CHECK_OK(
        fleet_table_get(s->f, "embedding", &key, 1, DIM, row, states, &found));
    memcpy(x, states + stat.n_state * DIM + stat.n_row_state - SHOWN,
           SHOWN * sizeof *x);
    return found;
}

static void check_shown(const shop *s, uint64_t key, float show, float click,
                        float delta, float seen)
{
    float x[SHOWN];

    CHECK(shown(s, key, x));
    CHECK_CLOSE(x, ((float[]){show, click, delta, seen}), SHOWN, 1e-6);
}

TEST(shows_and_clicks_of_samples_add_up_by_key)
{
    shop s;

    build(&s, &counted, "adam", 0);
    CHECK_OK(sell(&s));
    check_shown(&s, 1, 5, 1, 1.4f, 0);
    check_shown(&s, 2, 4, 0.5f, 0.85f, 0); /* of both layers: the first one's */
    check_shown(&s, 3, 3, 1.5f, 1.65f, FL_SEEN_DAYS);
    CHECK_OK(sell(&s));
    check_shown(&s, 1, 10, 2, 2.8f, 0);
    close_shop(&s);
}

TEST(a_sample_without_slots_was_shown_once_and_not_clicked)
{
    const fleet_accessor plain = {.kind = FLEET_CTR_ACCESSOR,
                                  .nonclk_coeff = 0.5f};
    shop s;

    build(&s, &plain, "sgd", 0);
    CHECK_OK(sell(&s));
    check_shown(&s, 1, 2, 0, 1, 0);
    check_shown(&s, 3, 2, 0, 1, FL_SEEN_DAYS);
    close_shop(&s);
}

TEST(merged_batches_add_up)
{
    shop s;

    build(&s, &counted, "adagrad", 2);
    CHECK_OK(sell(&s));
    CHECK_OK(sell(&s));
    check_shown(&s, 1, 10, 2, 2.8f, 0);
    check_shown(&s, 3, 6, 3, 3.3f, FL_SEEN_DAYS);
    close_shop(&s);
}

/* Weights are as without it. */
TEST(an_accessor_changes_no_weight)
{
    const fleet_accessor none = {0};
    float with[DIM], without[DIM];
    const uint64_t key = 2;
    shop a, b;

    build(&a, &counted, "adam", 0);
    build(&b, &none, "adam", 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(sell(&a));
        CHECK_OK(sell(&b));
    }
    CHECK_OK(fleet_table_get(a.f, "embedding", &key, 1, DIM, with, NULL, NULL));
    CHECK_OK(
        fleet_table_get(b.f, "embedding", &key, 1, DIM, without, NULL, NULL));
    CHECK(memcmp(with, without, sizeof with) == 0);
    close_shop(&a);
    close_shop(&b);
}

/* 16 bytes a row, where it is asked for. */
TEST(an_accessor_takes_16_bytes_a_row)
{
    const fleet_accessor none = {0};
    fleet_table_statistics with, without;
    shop a, b;

    build(&a, &counted, "adam", 0);
    build(&b, &none, "adam", 0);
    CHECK_OK(sell(&a));
    CHECK_OK(sell(&b));
    CHECK_OK(fleet_table_stat(a.f, "embedding", &with));
    CHECK_OK(fleet_table_stat(b.f, "embedding", &without));
    CHECK_INT(with.row_bytes - without.row_bytes, 16 * with.rows);
    CHECK_INT(with.n_row_state, SHOWN);
    CHECK_INT(without.n_row_state, 0);
    close_shop(&a);
    close_shop(&b);
}

TEST(a_shrink_decays_and_lets_rows_go_whose_score_is_low)
{
    fleet_accessor a = counted;
    float x[SHOWN];
    shop s;

    a.show_click_decay_rate = 0.5f;
    a.delete_threshold = 0.5f;
    build(&s, &a, "sgd", 0);
    CHECK_OK(sell(&s));
    CHECK_OK(fleet_shrink(s.f, "embedding"));
    check_shown(&s, 1, 2.5f, 0.5f, 1.4f, 0); /* 0.7 */
    CHECK(!shown(&s, 2, x));                 /* 0.425 */
    CHECK(x[0] == 0 && x[1] == 0 && x[2] == 0 && x[3] == 0);
    check_shown(&s, 3, 1.5f, 0.75f, 1.65f, FL_SEEN_DAYS);
    CHECK_OK(sell(&s));
    check_shown(&s, 2, 4, 0.5f, 0.85f, 0); /* a new row */
    close_shop(&s);
}

TEST(saves_have_it_and_one_without_loads_as_not_counted)
{
    const char *path = test_path("saved"), *plain = test_path("plain");
    const fleet_accessor none = {0};
    shop a, b;

    build(&a, &counted, "adagrad", 0);
    CHECK_OK(sell(&a));
    CHECK_OK(fleet_save_persistables(a.f, path));
    CHECK_OK(sell(&a));
    CHECK_OK(fleet_load_model(a.f, path));
    check_shown(&a, 3, 3, 1.5f, 1.65f, FL_SEEN_DAYS);
    build(&b, &none, "adagrad", 0);
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK_OK(sell(&b));
    CHECK_OK(fleet_save_persistables(b.f, plain));
    CHECK_TEXT(log_text, "");
    CHECK_OK(fleet_load_model(a.f, plain));
    check_shown(&a, 3, 0, 0, 0.25f, -1);
    CHECK_TEXT(log_text, "");
    close_shop(&a);
    close_shop(&b);
}

/* A handle that serves, and saves what it has: no score of it is lost. */
TEST(a_handle_without_an_optimizer_saves_the_counts_that_it_has_loaded)
{
    const char *path = test_path("trained"), *again = test_path("again");
    const fleet_load_options by_name = {.states = FLEET_STATES_INITIALIZE};
    const fleet_sparse_embedding_options o = {.life.accessor = counted};
    fleet_program *p;
    fleet *f;
    shop s;

    build(&s, &counted, "adam", 0);
    CHECK_OK(sell(&s));
    CHECK_OK(fleet_save_persistables(s.f, path));
    CHECK_OK(fleet_init(&f, &(fleet_options){.num_threads = 1}));
    p = fleet_program_create(f);
    number(p, "shows", FLEET_INT64);
    number(p, "clicks", FLEET_FLOAT32);
    fleet_mean(
        p, fleet_sparse_embedding(p, number(p, "left", FLEET_INT64), DIM, &o));
    CHECK_OK(fleet_load_model(f, path));
    CHECK_OK(fleet_save_persistables(f, again));
    fleet_destroy(f);
    CHECK_OK(sell(&s));
    CHECK_OK(fleet_load_model_with(s.f, again, &by_name));
    check_shown(&s, 1, 5, 1, 1.4f, 0);
    check_shown(&s, 3, 3, 1.5f, 1.65f, FL_SEEN_DAYS);
    close_shop(&s);
}

/* --- vectors that rows get late ------------------------------------------- */

static fleet_accessor with_vector(void)
{
    fleet_accessor a = counted;

    a.embedx_dim = 1;
    a.embedx_threshold = 2;
    return a;
}

/* A row's number, its vector of one, and Adam's states of both. */
static void read_row(const shop *s, uint64_t key, float row[DIM],
                     float state[2 * DIM])
{
    float states[2 * DIM + SHOWN];

    CHECK_OK(
        fleet_table_get(s->f, "embedding", &key, 1, DIM, row, states, NULL));
    memcpy(state, states, 2 * DIM * sizeof *state);
}

TEST(a_row_gets_its_vector_with_the_score_and_trains_it_from_then_on)
{
    const fleet_accessor a = with_vector();
    float row[DIM], state[2 * DIM], first[DIM], whole[DIM], same[2 * DIM];
    fleet_table_statistics stat;
    shop s, t;

    build(&s, &a, "adam", 0);
    build(&t, &counted, "adam", 0);
    for (int i = 1; i <= 4; i++) {
        CHECK_OK(sell(&s));
        CHECK_OK(sell(&t));
        read_row(&s, 1, row, state); /* its score is 1.4 i */
        read_row(&t, 1, whole, same);
        CHECK(row[0] == whole[0] && state[0] == same[0]);
        CHECK((row[1] != 0) == (i >= 2));
        CHECK((state[1] != 0) == (i >= 3));
        CHECK((state[DIM + 1] != 0) == (i >= 3));
        if (i == 2)
            memcpy(first, row, sizeof first);
        read_row(&s, 2, row, state); /* 0.85 i */
        CHECK((row[1] != 0) == (i >= 3));
    }
    CHECK_OK(fleet_table_stat(s.f, "embedding", &stat));
    CHECK_INT(stat.vector_rows, 3);
    CHECK_OK(fleet_table_stat(t.f, "embedding", &stat));
    CHECK_INT(stat.vector_rows, 0);
    read_row(&s, 1, row, state);
    CHECK(row[1] != first[1] && first[1] > -1 && first[1] < 1);
    read_row(&s, 99, row, state);
    CHECK(row[0] != 0 && row[1] == 0);
    close_shop(&s);
    close_shop(&t);
}

/* It decays to a score below the threshold. */
TEST(a_vector_stays_where_the_score_falls)
{
    fleet_accessor a = with_vector();
    float before[DIM], after[DIM], state[2 * DIM], x[SHOWN];
    shop s;

    a.show_click_decay_rate = 0.1f;
    a.delete_threshold = -1;
    build(&s, &a, "adam", 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(sell(&s));
    read_row(&s, 1, before, state);
    CHECK_OK(fleet_shrink(s.f, NULL));
    CHECK_OK(sell(&s));
    read_row(&s, 1, after, state);
    CHECK(after[1] != 0 && after[1] != before[1]);
    CHECK(shown(&s, 1, x));
    CHECK_CLOSE(x, ((float[]){6, 1.2f, 4.2f, FL_SEEN_VECTOR}), SHOWN, 1e-6);
    close_shop(&s);
}

/* What a predictor says of an id without a row. */
static void predict(const char *path, int64_t id, float row[DIM])
{
    const int64_t dims[] = {1, 1};
    const fleet_feed feed = {"left", FLEET_INT64, &id, dims, 2, NULL};
    size_t size = DIM * sizeof *row;
    fleet_predictor *p = fleet_load_inference_model(path);

    CHECK(p != NULL);
    CHECK_OK(fleet_predictor_run(p, &feed, 1, (void *[]){row}, &size, 1));
    fleet_predictor_destroy(p);
}

TEST(vectors_are_in_saves_and_what_has_none_reads_as_0)
{
    const char *path = test_path("all"), *model = test_path("model");
    const fleet_accessor a = with_vector();
    float row[2][DIM], state[2 * DIM];
    fleet_var *feed, *fetch;
    const uint64_t key = 50;
    float all[2 * DIM + FL_N_ACCESSOR];
    int found;
    shop s;

    build(&s, &a, "adam", 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(sell(&s));
    read_row(&s, 1, row[0], state);
    CHECK_OK(fleet_save_persistables(s.f, path));
    feed = fleet_program_var(s.p, "left");
    fetch = fleet_program_var(s.p, "sparse_embedding_0.tmp");
    CHECK_OK(fleet_save_inference_model(s.f, model, &feed, 1, &fetch, 1));
    CHECK_OK(sell(&s));
    CHECK_OK(fleet_load_model(s.f, path));
    read_row(&s, 1, row[1], state);
    CHECK(memcmp(row[0], row[1], sizeof row[0]) == 0);
    predict(model, 1, row[1]);
    CHECK(memcmp(row[0], row[1], sizeof row[0]) == 0);
    predict(model, 77, row[1]);
    CHECK(row[1][0] != 0 && row[1][1] == 0);
    row[0][0] = row[0][1] = 0.25f; /* by hand, it has one */
    CHECK_OK(fleet_table_set(s.f, "embedding", &key, 1, DIM, row[0], NULL));
    CHECK(shown(&s, key, state));
    CHECK(state[3] == -1 - FL_SEEN_VECTOR);
    CHECK_OK(
        fleet_table_get(s.f, "embedding", &key, 1, DIM, row[0], all, &found));
    CHECK_OK(fleet_table_set(s.f, "embedding", &key, 1, DIM, row[0], all));
    all[2 * DIM + FL_AT_SEEN] = 3e9f;
    CHECK_FAILS(fleet_table_set(s.f, "embedding", &key, 1, DIM, row[0], all),
                FLEET_EINVAL, "key 50, number of its states");
    close_shop(&s);
}

/* --- keys that wait for a score ------------------------------------------- */

TEST(a_key_becomes_a_row_with_its_score_and_all_that_it_was_shown)
{
    for (int merge = 0; merge <= 2; merge += 2) {
        const fleet_entry entry = {.kind = FLEET_SHOW_CLICK_ENTRY,
                                   .score = 1.6f};
        fleet_accessor a = counted;
        float x[SHOWN], waits[2];
        const uint64_t key = 2;
        shop s;

        a.show_click_decay_rate = 0.5f;
        a.delete_threshold = 0.5f;
        build_with(&s, &(fleet_table_options){.entry = entry, .accessor = a},
                   "sgd", merge);
        CHECK_OK(sell(&s));
        if (!merge) {
            CHECK(!shown(&s, 1, x) && !shown(&s, 2, x)); /* 1.4, 0.85 */
            check_shown(&s, 3, 3, 1.5f, 1.65f, FL_SEEN_DAYS);
            CHECK_OK(fleet_table_get(s.f, "embedding.waiting", &key, 1, 2,
                                     waits, NULL, NULL));
            CHECK(waits[0] == 4 && waits[1] == 0.5f);
            CHECK_OK(fleet_shrink(s.f, NULL)); /* 2 goes: 0.425; 1 waits */
            CHECK_OK(sell(&s));
            check_shown(&s, 1, 7.5f, 1.5f, 2.1f, 0);
            CHECK(!shown(&s, 2, x));
        }
        CHECK_OK(sell(&s));
        if (!merge)
            check_shown(&s, 1, 12.5f, 2.5f, 3.5f, 0);
        check_shown(&s, 2, 8, 1, 1.7f, 0);
        close_shop(&s);
    }
}

/* --- saves of some rows --------------------------------------------------- */

/* Scores of keys 1, 2 and 3 after n rounds: 1.4 n, 0.85 n, 1.65 n. */
static void open_and_sell(shop *s, const fleet_accessor *a, int n)
{
    build(s, a, "adagrad", 0);
    for (int i = 0; i < n; i++)
        CHECK_OK(sell(s));
}

static void save_as(const shop *s, const char *path, fleet_save_mode mode)
{
    CHECK_OK(fleet_save_persistables_with(s->f, path,
                                          &(fleet_save_options){.mode = mode}));
}

/* The keys that a save has: bit k for key k. */
static int keys_in(const char *path)
{
    int keys = 0;
    shop s;

    build(&s, &counted, "adagrad", 0);
    CHECK_OK(fleet_load_model_with(s.f, path,
                                   &(fleet_load_options){.keep_rows = 1}));
    for (int k = 0; k < 4; k++) {
        float x[SHOWN];

        keys |= shown(&s, (uint64_t)k, x) << k;
    }
    close_shop(&s);
    return keys;
}

static fleet_accessor of_two(void)
{
    fleet_accessor a = counted;

    a.base_threshold = 2;
    return a;
}

TEST(a_delta_has_the_rows_that_gained_since_the_last_one)
{
    const fleet_accessor a = of_two();
    shop s;

    open_and_sell(&s, &a, 2);
    save_as(&s, test_path("first"), FLEET_SAVE_DELTA);
    CHECK_INT(keys_in(test_path("first")), 1 << 1 | 1 << 3);
    check_shown(&s, 1, 10, 2, 0, 0);
    check_shown(&s, 2, 8, 1, 1.7f, 0); /* it was not in it */
    check_shown(&s, 3, 6, 3, 0, FL_SEEN_DAYS);
    save_as(&s, test_path("second"), FLEET_SAVE_DELTA);
    CHECK_INT(keys_in(test_path("second")), 0);
    CHECK_OK(sell(&s));
    save_as(&s, test_path("third"), FLEET_SAVE_DELTA);
    CHECK_INT(keys_in(test_path("third")), 1 << 1 | 1 << 2 | 1 << 3);
    close_shop(&s);
}

TEST(a_base_has_them_whatever_they_gained)
{
    const fleet_accessor a = of_two();
    shop s;

    open_and_sell(&s, &a, 2);
    save_as(&s, test_path("delta"), FLEET_SAVE_DELTA);
    save_as(&s, test_path("base"), FLEET_SAVE_BASE);
    CHECK_INT(keys_in(test_path("base")), 1 << 1 | 1 << 3);
    CHECK_OK(sell(&s));
    save_as(&s, test_path("base"), FLEET_SAVE_BASE);
    check_shown(&s, 2, 12, 1.5f, 0, 0);
    close_shop(&s);
}

TEST(a_days_end_has_all_rows_and_ages_them)
{
    fleet_accessor a = of_two();
    float x[SHOWN];
    shop s;

    a.delta_keep_days = 1;
    a.delete_after_unseen_days = 2;
    a.delete_threshold = -1;
    open_and_sell(&s, &a, 2);
    for (int i = 0; i < 2; i++)
        save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    CHECK_INT(keys_in(test_path("day")), 1 << 1 | 1 << 2 | 1 << 3);
    check_shown(&s, 3, 6, 3, 3.3f, FL_SEEN_DAYS + 2);
    save_as(&s, test_path("base"), FLEET_SAVE_BASE);
    CHECK_INT(keys_in(test_path("base")), 0); /* too long unseen */
    CHECK_OK(fleet_shrink(s.f, NULL));
    CHECK(shown(&s, 3, x));
    save_as(&s, test_path("day"), FLEET_SAVE_DAY_END);
    CHECK_OK(fleet_shrink(s.f, NULL));
    CHECK(!shown(&s, 1, x) && !shown(&s, 3, x));
    close_shop(&s);
}

/* A save of all rows changes nothing. */
TEST(a_save_of_all_rows_leaves_them_as_they_are)
{
    uint64_t before, after;
    shop s;

    open_and_sell(&s, &counted, 2);
    CHECK_OK(fleet_params_hash(s.f, &before));
    save_as(&s, test_path("all"), FLEET_SAVE_ALL);
    CHECK_OK(fleet_save_persistables_with(s.f, test_path("too"), NULL));
    CHECK_OK(fleet_params_hash(s.f, &after));
    CHECK(before == after);
    CHECK_OK(fleet_load_model(s.f, test_path("all")));
    CHECK_OK(fleet_params_hash(s.f, &after));
    CHECK(before == after);
    close_shop(&s);
}

TEST(a_base_and_its_deltas_make_the_trained_weights)
{
    float got[3][DIM], want[3][DIM];
    const uint64_t keys[] = {1, 2, 3};
    const fleet_load_options more = {.keep_rows = 1};
    shop s, t;

    open_and_sell(&s, &counted, 2);
    save_as(&s, test_path("base"), FLEET_SAVE_BASE);
    CHECK_OK(sell(&s));
    save_as(&s, test_path("delta"), FLEET_SAVE_DELTA);
    build(&t, &counted, "adagrad", 0);
    CHECK_OK(fleet_load_model(t.f, test_path("base")));
    CHECK_FAILS(fleet_load_model(t.f, test_path("delta")), FLEET_EINVAL,
                "delta");
    CHECK_OK(fleet_load_model_with(t.f, test_path("delta"), &more));
    CHECK_OK(
        fleet_table_get(s.f, "embedding", keys, 3, DIM, want[0], NULL, NULL));
    CHECK_OK(
        fleet_table_get(t.f, "embedding", keys, 3, DIM, got[0], NULL, NULL));
    CHECK(memcmp(got, want, sizeof got) == 0);
    close_shop(&s);
    close_shop(&t);
}

static int hot_keys(const shop *s, double rate)
{
    const char *path = test_path("hot");
    fleet_table_statistics stat;
    int64_t rows = -1;
    shop t;

    CHECK_OK(fleet_save_cache_model(s->f, path, rate, &rows));
    build(&t, &counted, "adagrad", 0);
    CHECK_OK(fleet_load_one_table(
        t.f, "embedding", path,
        &(fleet_load_table_options){.states = FLEET_STATES_INITIALIZE}));
    CHECK_OK(fleet_table_stat(t.f, "embedding", &stat));
    CHECK_INT(stat.rows, rows);
    close_shop(&t);
    return (int)rows;
}

/* Shown 5, 4 and 3 times. */
TEST(a_cache_model_has_the_rows_that_were_shown_most)
{
    shop s;

    open_and_sell(&s, &counted, 1);
    CHECK_INT(hot_keys(&s, 0), 1);
    CHECK_INT(hot_keys(&s, 0.34), 2);
    CHECK_INT(hot_keys(&s, 0.67), 3);
    CHECK_INT(hot_keys(&s, 1), 3);
    CHECK_FAILS(fleet_save_cache_model(s.f, test_path("hot"), 1.5, NULL),
                FLEET_EINVAL, "rate 1.5: expected 0 to 1");
    CHECK_FAILS(fleet_save_persistables_with(
                    s.f, test_path("x"),
                    &(fleet_save_options){.mode = (fleet_save_mode)4}),
                FLEET_EINVAL, "mode 4 does not exist");
    close_shop(&s);
}

TEST(without_an_accessor_no_row_is_hot)
{
    const fleet_accessor none = {0};
    int64_t rows = 7;
    shop s;

    build(&s, &none, "adagrad", 0);
    CHECK_OK(sell(&s));
    CHECK_FAILS(fleet_save_cache_model(s.f, test_path("hot"), 0, &rows),
                FLEET_EINVAL, "no table has an accessor");
    CHECK_INT(rows, 0);
    save_as(&s, test_path("delta"), FLEET_SAVE_DELTA); /* all of its rows */
    CHECK_INT(keys_in(test_path("delta")), 1 << 1 | 1 << 2 | 1 << 3);
    close_shop(&s);
}

/* --- refused -------------------------------------------------------------- */

static void refused(fleet_accessor a, const char *words)
{
    const fleet_sparse_embedding_options o = {.life.accessor = a};
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    fleet_sparse_embedding(p, number(p, "id", FLEET_INT64), DIM, &o);
    CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, words);
    fleet_destroy(f);
}

TEST(numbers_that_cannot_be_are_named)
{
    refused((fleet_accessor){.kind = FLEET_CTR_ACCESSOR,
                             .show_click_decay_rate = 1.5f},
            "embedding: show_click_decay_rate 1.5: expected 0 to 1");
    refused((fleet_accessor){.kind = FLEET_CTR_ACCESSOR, .nonclk_coeff = -1},
            "embedding: nonclk_coeff -1: expected 0 to");
    refused((fleet_accessor){.embedx_dim = 2},
            "accessor.embedx_dim without accessor.kind");
    refused((fleet_accessor){.show = "show"},
            "accessor.show without accessor.kind");
    refused((fleet_accessor){.delta_threshold = 1},
            "accessor.delta_threshold without accessor.kind");
    refused((fleet_accessor){.kind = (fleet_accessor_kind)7},
            "accessor 7 does not exist");
    refused((fleet_accessor){.kind = FLEET_CTR_ACCESSOR, .embedx_dim = DIM},
            "embedding: embedx_dim 2 of rows of 2: expected 0 or more, and at "
            "least one number before the vector");
    refused((fleet_accessor){.kind = FLEET_CTR_ACCESSOR, .embedx_threshold = 1},
            "embedding: embedx_threshold 1 without embedx_dim");
}

static void refused_with(fleet_sparse_embedding_options o, const char *words)
{
    fleet_program *p;
    fleet *f;

    o.life.accessor.kind = FLEET_CTR_ACCESSOR;
    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    fleet_sparse_embedding(p, number(p, "id", FLEET_INT64), DIM, &o);
    CHECK_FAILS(fleet_program_status(p), FLEET_EUNSUPPORTED, words);
    fleet_destroy(f);
}

TEST(what_does_not_go_with_an_accessor_is_refused_by_name)
{
    refused_with(
        (fleet_sparse_embedding_options){
            .life.accessor.ssd_unseenday_threshold = 1},
        "\"embedding\" has ssd_unseenday_threshold 1 without memory_cap_bytes");
    refused_with(
        (fleet_sparse_embedding_options){.storage = FLEET_ROW_FLOAT16,
                                         .life.accessor.embedx_dim = 1},
        "embedx_dim and a storage");
    refused_with((fleet_sparse_embedding_options){.memory_cap_bytes = 1 << 20,
                                                  .cold_folder = "/tmp",
                                                  .life.most_rows = 2048},
                 "memory_cap_bytes and most_rows or most_bytes");
    refused_with((fleet_sparse_embedding_options){.memory_cap_bytes = 1 << 20,
                                                  .cold_folder = "/tmp",
                                                  .life.ttl_updates = 3},
                 "memory_cap_bytes and a time to live");
    refused_with(
        (fleet_sparse_embedding_options){
            .memory_cap_bytes = 1 << 20,
            .cold_folder = "/tmp",
            .life.entry = {.kind = FLEET_SHOW_CLICK_ENTRY, .score = 1}},
        "memory_cap_bytes and an entry that counts keys");
}

TEST(a_rule_with_numbers_of_whole_rows_is_refused_where_vectors_come_late)
{
    const fleet_accessor a = with_vector();
    shop s;

    build(&s, &a, "rowwise_adagrad", 0);
    CHECK(s.e == NULL);
    CHECK_FAILS(fleet_last_status(), FLEET_EUNSUPPORTED,
                "table \"embedding\": embedx_dim with rowwise_adagrad");
    close_shop(&s);
}

TEST(a_show_click_entry_wants_a_score_and_an_accessor)
{
    fleet_table_options o = {
        .entry = {.kind = FLEET_SHOW_CLICK_ENTRY, .score = 1}};

    CHECK_FAILS(fl_table_options_check("t", &o), FLEET_EINVAL,
                "t: a show-click entry goes by an accessor, and there is none");
    o.accessor = counted;
    CHECK_OK(fl_table_options_check("t", &o));
    o.entry.score = 0;
    CHECK_FAILS(fl_table_options_check("t", &o), FLEET_EINVAL,
                "t: an entry of score 0: expected above 0");
    CHECK(fl_entry_read("show_click_entry:2.5", &o.entry));
    CHECK(o.entry.kind == FLEET_SHOW_CLICK_ENTRY && o.entry.score == 2.5f);
    CHECK(!fl_entry_read("show_click_entry:show:click", &o.entry));
}

TEST(a_dump_and_a_configuration_have_each_number)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"hidden\": [8], "
        "\"accessor\": {\"type\": \"ctr\", \"show\": \"s\", \"click\": "
        "\"y\", \"click_coeff\": 3, \"delete_threshold\": -2, "
        "\"embedx_dim\": 8, \"embedx_threshold\": 5}}, "
        "\"dataset\": {\"format\": \"multislot\", \"train\": [\"part-0\"], "
        "\"batch_size\": 4}, \"slots\": [{\"name\": \"y\", \"type\": "
        "\"float\", \"role\": \"label\"}, {\"name\": \"u\", \"type\": "
        "\"uint64\"}, {\"name\": \"s\", \"type\": \"float\"}], \"save\": "
        "{\"path\": \"there\", \"mode\": \"base\"}, "
        "\"load\": {\"path\": \"here\", \"keep_rows\": true}}";
    static const char zero[] =
        "{\"model\": {\"type\": \"ctr_dnn\", \"accessor\": "
        "{\"delete_threshold\": 0}}}";
    fl_config c;
    char *dump;
    shop s;

    CHECK_OK(fl_config_read(&c, text, strlen(text), "f.json"));
    CHECK_INT(c.life.accessor.kind, FLEET_CTR_ACCESSOR);
    CHECK_TEXT(c.life.accessor.show, "s");
    CHECK_TEXT(c.life.accessor.click, "y");
    CHECK(c.life.accessor.click_coeff == 3);
    CHECK(c.life.accessor.delete_threshold == -2);
    CHECK(c.life.accessor.nonclk_coeff == 0);
    CHECK_INT(c.life.accessor.embedx_dim, 8);
    CHECK(c.life.accessor.embedx_threshold == 5);
    CHECK_TEXT(c.save, "there");
    CHECK_INT(c.save_mode, FLEET_SAVE_BASE);
    CHECK(c.load_options.keep_rows);
    fl_config_done(&c);
    CHECK_FAILS(fl_config_read(&c, zero, strlen(zero), "f.json"), FLEET_ECONFIG,
                "model.accessor.delete_threshold: expected a number that is "
                "not 0, which stands for the default");
    fl_config_done(&c);
    build(&s, &counted, "sgd", 0);
    dump = fleet_strategy_dump(s.f);
    CHECK_CONTAINS(dump, "table embedding: accessor ctr, show shows, click "
                         "clicks, nonclk_coeff 0.1, click_coeff 1, "
                         "show_click_decay_rate 0.98, delete_threshold 0.8, "
                         "delete_after_unseen_days 30");
    fleet_free(dump);
    close_shop(&s);
}
