/* ps_cache_test.c - workers that keep rows of servers' tables: in sync the
 * bits are those without a cache, whatever is loaded, written and evaluated in
 * between; in async they learn; the fields say what they do, and refuse what
 * they cannot.
 */
#define SUITE ps_cache
#include "grown_kit.h"
#include "job_kit.h"
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

/* Of a scene's some 370 rows of each table: all of them, and a few. */
enum { LARGE = 1 << 20, SMALL = 16 << 10 };

/* --- the bits of sync ----------------------------------------------------- */

/* A pass, and evaluations by worker 0: before it, when what is looked up is of
 * the version that is trained next, and after it; a save is loaded in
 * between. */
static fleet_status train_and_look(ps_node *n)
{
    const fleet_executor_options test = {.for_test = 1};
    const char *save = n->job->user;
    fleet_evaluation seen;

    FL_TRY(ps_begin(n));
    n->s.tester = fleet_executor_create(n->s.p, &test);
    CHECK(n->s.tester);
    for (int i = 0; i < 3; i++) {
        if (n->index == 0)
            FL_TRY(fleet_evaluate(n->s.tester, n->s.data, &n->s.m, &seen));
        FL_TRY(ps_passes(n, 1));
        if (n->index == 0)
            FL_TRY(fleet_evaluate(n->s.tester, n->s.data, &n->s.m, &seen));
        n->number[0] += n->index == 0 ? seen.logloss : 0;
        if (i == 0)
            FL_TRY(fleet_save_persistables(n->s.f, save));
        FL_TRY(fleet_barrier_worker(n->s.f));
        if (i == 1)
            FL_TRY(fleet_load_model(n->s.f, save));
    }
    if (n->job->how.cache_bytes > 0) {
        fleet_cache_statistics c;

        FL_TRY(fleet_cache_stat(n->s.f, &c));
        CHECK(c.rows > 0 && c.unasked + c.unchanged < c.rows);
        CHECK_INT(c.replaced > 0, n->job->how.cache_bytes == SMALL);
        CHECK(c.bytes <= n->job->how.cache_bytes);
        if (n->job->how.merge > 1)
            CHECK(c.unasked > 0);
        if (n->index == 0)
            CHECK(c.unchanged > 0); /* of the evaluations */
    }
    return ps_end(n);
}

static ps_job sync_job(int servers, int lanes, const scene_training *how)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .how = *how,
                    .file = {scene_file("a.txt", 8 * PS_BATCH, 1),
                             scene_file("b.txt", 8 * PS_BATCH, 2)},
                    .work = train_and_look,
                    .user = (void *)test_path("save")};
}

static void compare_bits(scene_training how)
{
    static const struct {
        int servers, lanes;
        int64_t cache_bytes;
    } with[] = {{1, 1, LARGE}, {2, 1, SMALL}, {5, 1, LARGE}, {2, 2, SMALL}};
    ps_job without = sync_job(1, 1, &how);
    uint64_t want = ps_hash(&without);
    double seen = ps_worker(&without, 0)->number[0];

    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        ps_job j;

        how.cache_bytes = with[i].cache_bytes;
        j = sync_job(with[i].servers, with[i].lanes, &how);
        CHECK(ps_hash(&j) == want);
        CHECK(ps_worker(&j, 0)->number[0] == seen);
    }
}

TEST_LIMIT(in_sync_a_cache_changes_no_bit, 120)
{
    compare_bits((scene_training){0});
}

TEST_LIMIT(nor_does_it_where_batches_are_merged, 120)
{
    compare_bits((scene_training){.merge = 4});
}

/* Rows that have travelled in fewer bytes are none for a test, which pulls them
 * whole, and the other way round. */
TEST_LIMIT(nor_where_values_are_narrow, 120)
{
    compare_bits((scene_training){
        .merge = 3, .pull_type = FLEET_WIRE_BF16, .packs_keys = true});
}

/* Rows go to the GPU from where they were kept, some before their iteration. */
#define MERGES(more)                                                           \
    "\"a_sync\": false, \"gradient_merge\": true, "                            \
    "\"gradient_merge_configs\": {\"k_steps\": 3}" more

TEST_LIMIT(nor_on_a_gpu, 120)
{
    static const char *const strategy[] = {
        MERGES(""),
        MERGES(", \"a_sync_configs\": {\"vocab_cache_size\": 100000}")};
    const char *line;
    const char *hash = NULL;

    test_use_fraction(100);
    job_use_gpus(1);
    for (int i = 0; i < 2; i++) {
        line = job_train("--server_num 2 --worker_num 1",
                         job_with(job_adult(strategy[i]), "device", "gpu:0"));
        CHECK_CONTAINS(line, "\"device\":\"cuda:");
        if (hash)
            CHECK_CONTAINS(line, hash);
        hash = job_hash(line);
    }
}

/* --- rows that are written ------------------------------------------------ */

enum { IDS = 40 };

static fleet_status set_between(ps_node *n)
{
    static const uint64_t key[] = {3, 1000, 5};
    static const float row[3][GROWN_DIM] = {{1, 2}, {3, 4}, {5, 0.1f}};
    bool first = n->index == 0;

    FL_TRY(ps_begin(n));
    for (int i = 0; i < 3; i++) {
        FL_TRY(ps_passes(n, 1));
        FL_TRY(fleet_table_set(n->s.f, "t", key, first ? 3 : 0, GROWN_DIM,
                               row[0], NULL));
    }
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static uint64_t written(int servers, int64_t cache_bytes, int staleness)
{
    grown_how how = {.optimizer = "adam",
                     .a_sync = staleness > 0,
                     .cache_bytes = cache_bytes,
                     .cache_staleness = staleness};
    ps_job j = {.servers = servers,
                .workers = 2,
                .open = grown_open_node,
                .work = set_between,
                .user = &how,
                .file = {grown_ids("ids", 0, IDS)}};

    return ps_hash(&j);
}

TEST(rows_that_are_written_between_passes_are_asked_for_again)
{
    uint64_t want = written(1, 0, 0);

    for (int servers = 1; servers <= 3; servers++)
        CHECK(written(servers, LARGE, 0) == want);
    CHECK(written(2, LARGE, 100) != 0);
}

/* In async, too: the first batch of a pass has what was written before it. */
static fleet_status see_what_was_set(ps_node *n)
{
    static const uint64_t key[] = {3};
    static const float row[GROWN_DIM] = {7, 9};
    float got[2 * GROWN_DIM] = {0};
    int64_t id[] = {3, 4}, dims[] = {2, 1};
    const fleet_feed feed = {"id", FLEET_INT64, id, dims, 2, NULL};
    fleet_fetch fetch = {
        .var = n->s.m.prediction, .data = got, .size = sizeof got};

    FL_TRY(ps_begin(n));
    for (int i = 0; i < 5; i++)
        FL_TRY(fleet_executor_run(n->s.e, &feed, 1, &fetch, 1));
    FL_TRY(fleet_table_set(n->s.f, "t", key, 1, GROWN_DIM, row, NULL));
    FL_TRY(fleet_executor_run(n->s.e, &feed, 1, &fetch, 1));
    CHECK_NEAR((double)got[0], 7, 0);
    CHECK_NEAR((double)got[1], 9, 0);
    FL_TRY(
        fleet_executor_run(n->s.e, &feed, 1, &fetch, 1)); /* without asking */
    CHECK_NEAR((double)got[0], 7, 0);
    CHECK_NEAR((double)got[1], 9, 0);
    return ps_end(n);
}

static void open_rows(ps_node *n, const fleet_options *o)
{
    const fleet_sparse_embedding_options table = {.table = "t"};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *ids, *rows;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    ids = fleet_data(n->s.p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    rows = fleet_sparse_embedding(n->s.p, ids, GROWN_DIM, &table);
    n->s.m.prediction = rows;
    n->s.m.loss = fleet_mean(n->s.p, rows);
    s.a_sync_configs.vocab_cache_size = LARGE;
    s.a_sync_configs.cache_read_staleness = 100;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1.0f), &s),
        n->s.m.loss));
}

TEST(what_is_written_is_seen_by_the_next_batch_whatever_the_bound)
{
    ps_job j = {.open = open_rows, .work = see_what_was_set};

    ps_run(&j);
    ps_check(&j);
}

/* --- async ---------------------------------------------------------------- */

static fleet_status train_and_count(ps_node *n)
{
    fleet_cache_statistics c;

    CHECK_FAILS(fleet_cache_stat(n->s.f, &c), FLEET_ESTATE,
                "it begins with fleet_init_worker()");
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, n->job->passes));
    FL_TRY(ps_end(n));
    FL_TRY(fleet_cache_stat(n->s.f, &c)); /* of a worker that has left */
    CHECK(c.rows > 1000 && c.kept > 100 && c.bytes <= LARGE);
    CHECK(c.unasked > c.rows / 10);
    CHECK(c.saved_bytes > 0);
    return FLEET_OK;
}

static void run_processes(int merged)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .passes = 4,
                .how = {.a_sync = true,
                        .merged = merged,
                        .cache_bytes = LARGE,
                        .cache_staleness = 5},
                .file = {scene_file("a.txt", 10 * PS_BATCH, 1),
                         scene_file("b.txt", 10 * PS_BATCH, 2)},
                .work = train_and_count};

    ps_start_all(&j);
    ps_check_all_end(&j);
    CHECK_CONTAINS(ps_said(ps_worker(&j, 1)), "rows used without asking");
    CHECK_CONTAINS(ps_said(ps_worker(&j, 1)), "worker 1: cache: ");
}

TEST_LIMIT(processes_in_async_use_rows_without_asking, 120)
{
    run_processes(0);
    run_processes(2); /* in half-async */
}

/* --- quality -------------------------------------------------------------- */

/* Of each table 8 rows, about a tenth of those that there are. */
#define KEEPS                                                                  \
    "\"a_sync\": true, \"a_sync_configs\": {\"vocab_cache_size\": 1200, "      \
    "\"cache_read_staleness\": 8}"

static void train_with_a_cache(const char *config, double auc)
{
    const char *line = job_train("--server_num 2 --worker_num 2", config);

    CHECK_CONTAINS(line, "\"mode\":\"ps-async\"");
    job_at_least(line, "auc", auc);
}

TEST_LIMIT(adult_with_a_cache_of_a_tenth, 120)
{
    train_with_a_cache(job_adult(KEEPS), 0.898);
}

/* As in sync, for 2 epochs. */
TEST_LIMIT(criteo_attr_with_a_cache_of_a_tenth, 120)
{
    train_with_a_cache(job_criteo(KEEPS), 0.643);
}

/* --- the fields ----------------------------------------------------------- */

static fleet *open_role(bool servers)
{
    const fleet_role role = {.worker_num = servers ? 2 : 1,
                             .server_endpoints =
                                 servers ? "127.0.0.1:7000" : NULL};
    fleet *f;

    CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
    return f;
}

static void check_dump(bool servers, bool a_sync, int staleness,
                       const char *name, const char *rest)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_role(servers);
    char *dump, line[400];
    const char *at;

    s.a_sync = a_sync;
    s.a_sync_configs.vocab_cache_size = staleness < 0 ? 0 : LARGE;
    s.a_sync_configs.cache_read_staleness = staleness > 0 ? staleness : 0;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));
    dump = fleet_strategy_dump(f);
    at = strstr(dump, name);
    CHECK(at);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    CHECK_CONTAINS(line, rest);
    fleet_free(dump);
    fleet_destroy(f);
}

TEST(the_dump_says_what_becomes_of_a_cache)
{
    check_dump(true, true, 3, "vocab_cache_size ", "asked    honoured");
    check_dump(true, true, 3, "cache_read_staleness ", "asked    honoured");
    check_dump(true, false, 0, "vocab_cache_size ", "asked    honoured");
    check_dump(true, false, 0, "cache_read_staleness ",
               "no effect: strategy.a_sync is 0");
    check_dump(true, true, -1, "cache_read_staleness ",
               "no effect: strategy.a_sync_configs.vocab_cache_size is 0");
    check_dump(false, true, 3, "vocab_cache_size ", "no effect: no servers");
    check_dump(true, true, 3, "cache_write_staleness ",
               "fixed: max_merge_var_num gathers");
}

#define REFUSES(code, words, ...)                                              \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        fleet *f = open_role(true);                                            \
                                                                               \
        s.a_sync_configs.vocab_cache_size = LARGE;                             \
        __VA_ARGS__;                                                           \
        kit_refused(f, fleet_sgd(f, 0.1f), &s, code, words);                   \
        fleet_destroy(f);                                                      \
    } while (0)

TEST(what_a_cache_cannot_do_is_refused_by_name)
{
    REFUSES(FLEET_EINVAL,
            "strategy.a_sync_configs.cache_read_staleness is 3, but "
            "strategy.a_sync is 0",
            s.a_sync = 0, s.a_sync_configs.cache_read_staleness = 3);
    REFUSES(FLEET_EUNSUPPORTED,
            "strategy.a_sync_configs.vocab_cache_size: this version does not "
            "have 1.04858e+06 in mode ps-geo (a cache is for workers",
            s.a_sync_configs.k_steps = 10);
    REFUSES(FLEET_EUNSUPPORTED,
            "strategy.a_sync_configs.cache_write_staleness: this version does "
            "not have 4 in mode ps-async, expected 0: max_merge_var_num",
            s.a_sync_configs.cache_write_staleness = 4);
}

/* Workers that are ranks and have servers: whichever keeps the tables. */
TEST(hybrid_jobs_refuse_a_cache)
{
    const fleet_role role = {
        .worker_num = 2, .server_endpoints = "127.0.0.1:7000", .collective = 1};

    for (int a_sync = 0; a_sync < 2; a_sync++) {
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
        fleet *f;

        CHECK_OK(fleet_init(&f, &(fleet_options){.role = &role}));
        s.is_collective = 1;
        s.a_sync = a_sync;
        s.a_sync_configs.vocab_cache_size = LARGE;
        kit_refused(f, fleet_sgd(f, 0.1f), &s, FLEET_EUNSUPPORTED,
                    "strategy.a_sync_configs.vocab_cache_size: this version "
                    "does not have 1.04858e+06 in mode hybrid");
        fleet_destroy(f);
    }
}

static fleet_status too_small(ps_node *n)
{
    fleet_status status = ps_begin(n);

    CHECK_INT(status, FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(),
                   "strategy.a_sync_configs.vocab_cache_size: expected at "
                   "least ");
    CHECK_CONTAINS(fleet_last_error(), "got 100");
    return status;
}

TEST(a_cache_without_room_for_its_first_rows_says_how_much_that_is)
{
    ps_job j = {.how = {.cache_bytes = 100}, .work = too_small};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_INT(ps_server(&j, 0)->status, FLEET_EPEER); /* it has heard why */
    CHECK_CONTAINS(ps_server(&j, 0)->error,
                   "worker 0 has given up: strategy.a_sync_configs.vocab");
}

static void open_unlike(ps_node *n, const fleet_options *o)
{
    scene_training how = {.a_sync = true,
                          .cache_bytes = LARGE,
                          .cache_staleness = n->server ? 4 : 5};

    scene_open_as(&n->s, o, &how);
}

TEST(a_server_refuses_a_worker_with_another_bound)
{
    ps_job j = {.open = open_unlike, .connect_ms = PS_SECOND};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "a_sync_configs.cache_read_staleness 5");
}
