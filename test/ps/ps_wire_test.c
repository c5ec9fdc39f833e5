/* ps_wire_test.c - strategy.wire_configs in whole jobs: bits that do not depend
 * on how the parameters are shared out, what stays exact, who is refused, and
 * what real data are worth.
 */
#define SUITE ps_wire
#include "job_kit.h"
#include "launch_kit.h"
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/plan/remote.h"

static const fleet_wire_type narrow[] = {FLEET_WIRE_FP16, FLEET_WIRE_BF16,
                                         FLEET_WIRE_INT8};

/* Two workers; the first layer has blocks on several lanes. */
static ps_job job_of(fleet_wire_type push, fleet_wire_type pull)
{
    return (ps_job){
        .workers = 2,
        .how = {.push_type = push, .pull_type = pull, .units = 1600},
        .file = {scene_file("a.txt", 6 * PS_BATCH, 1),
                 scene_file("b.txt", 6 * PS_BATCH, 2)}};
}

/* --- bits ----------------------------------------------------------------- */

static uint64_t hash_of(const ps_job *like, int servers, int lanes)
{
    ps_job j = *like;

    j.servers = servers;
    j.lanes = lanes;
    return ps_hash(&j);
}

TEST_LIMIT(in_sync_the_bits_do_not_depend_on_servers_and_lanes, 120)
{
    ps_job exact = job_of(FLEET_WIRE_FP32, FLEET_WIRE_FP32);
    uint64_t of_floats = hash_of(&exact, 1, 1);

    for (int i = 0; i < 3; i++) {
        ps_job push = job_of(narrow[i], FLEET_WIRE_FP32);
        ps_job pull = job_of(FLEET_WIRE_FP32, narrow[i]);
        uint64_t pushed, pulled;

        push.how.clip = 0.5f; /* norms are of what has arrived */
        pushed = hash_of(&push, 1, 1);
        CHECK(hash_of(&push, 3, 2) == pushed);
        pulled = hash_of(&pull, 1, 1);
        CHECK(hash_of(&pull, 2, 3) == pulled);
        CHECK(pushed != of_floats && pulled != of_floats && pushed != pulled);
    }
}

TEST(without_error_feedback_the_bits_are_others)
{
    ps_job j = job_of(FLEET_WIRE_INT8, FLEET_WIRE_FP32);
    uint64_t kept = hash_of(&j, 1, 1);

    j.how.forgets = true;
    CHECK(hash_of(&j, 1, 1) != kept);
    CHECK(hash_of(&j, 2, 2) == hash_of(&j, 1, 1));
}

/* Keys are the same keys: with floats the bits are those of one process. */
TEST(packed_keys_change_no_bit)
{
    ps_job j = job_of(FLEET_WIRE_FP32, FLEET_WIRE_FP32);
    uint64_t hash = hash_of(&j, 1, 1);

    j.how.packs_keys = true;
    CHECK(hash_of(&j, 1, 1) == hash);
    CHECK(hash_of(&j, 2, 3) == hash);
}

/* --- what is exact -------------------------------------------------------- */

static fleet_status train_and_save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    if (n->index == 0)
        FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    FL_TRY(fleet_barrier_worker(n->s.f));
    return ps_end(n);
}

static uint64_t hash_of_save(const ps_job *j, const char *path)
{
    scene s = {0};
    uint64_t hash;

    scene_open_as(&s, &(fleet_options){.num_threads = 1}, &j->how);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK(s.e);
    CHECK_OK(fleet_load_model(s.f, path));
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

/* Of tables on their servers, of dense weights as a worker reads them. */
TEST(a_hash_and_a_save_are_of_what_the_servers_have)
{
    ps_job j = job_of(FLEET_WIRE_INT8, FLEET_WIRE_INT8);
    const char *path = test_path("save");

    j.servers = 2;
    j.work = train_and_save;
    j.user = (void *)(uintptr_t)path;
    CHECK(ps_hash(&j) == hash_of_save(&j, path));
}

enum { SOME = 12, KEY = 3 };

/* Some numbers of a parameter, and of a row. */
typedef struct numbers {
    float weight[SOME], row[SOME];
} numbers;

static const fl_param *large_param(const fl_store *s)
{
    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;

        if (p->n >= SOME)
            return p;
    }
    return NULL;
}

static void copy_weights(const fl_store *s, numbers *to)
{
    const fl_param *p = large_param(s);

    memcpy(to->weight, p->flat->weight + p->offset, sizeof to->weight);
}

static fleet_status pull_both(fl_store *s, bool now, numbers *to)
{
    static const uint64_t key = KEY;
    fl_pull_rows rows = {.rows = fl_store_rows(s, "embedding")};
    const float *row = NULL;
    fl_remote *x = s->remote;

    *to = (numbers){0};
    rows.part[fl_part_of(fl_mix(key))] = (fl_pull_part){&key, 1, &row};
    FL_TRY(x->methods->pull(x, 0, &rows, 1, true, false, now));
    FL_TRY(x->methods->wait_pull(x, 0));
    memcpy(to->row, row, (size_t)rows.rows->dim * sizeof *row);
    copy_weights(s, to);
    x->methods->drop(x, 0);
    return FLEET_OK;
}

/* What is there now, as a test gets it, and what a training gets. */
static fleet_status read_twice(ps_node *n)
{
    numbers exact, trained, again, got = {0};
    fl_store *s = n->s.f->store;
    const uint64_t key = KEY;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(pull_both(s, true, &exact));
    FL_TRY(fleet_table_get(n->s.f, "embedding", &key, 1,
                           fl_store_rows(s, "embedding")->dim, got.row, NULL,
                           NULL));
    CHECK(memcmp(got.row, exact.row, sizeof got.row) == 0);
    FL_TRY(pull_both(s, false, &trained));
    CHECK(memcmp(trained.row, exact.row, sizeof got.row) != 0);
    CHECK(memcmp(trained.weight, exact.weight, sizeof got.weight) != 0);
    FL_TRY(pull_both(s, true, &again));
    CHECK(memcmp(&again, &exact, sizeof exact) == 0);
    FL_TRY(pull_both(s, false, &trained));
    FL_TRY(s->remote->methods->refresh(s->remote));
    copy_weights(s, &trained);
    CHECK(memcmp(trained.weight, exact.weight, sizeof got.weight) == 0);
    return ps_end(n);
}

TEST(training_pulls_are_rounded_and_other_ones_are_not)
{
    ps_job j = job_of(FLEET_WIRE_FP32, FLEET_WIRE_BF16);

    j.workers = 1;
    j.work = read_twice;
    ps_hash(&j);
}

/* A pass on a job that has loaded; in the second job, after another pass. */
static fleet_status train_after_load(ps_node *n)
{
    FL_TRY(ps_begin(n));
    if (n->job->passes > 1)
        FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_load_model(n->s.f, n->job->user));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_load_forgets_what_pushes_have_rounded_away)
{
    ps_job saved = job_of(FLEET_WIRE_INT8, FLEET_WIRE_FP32), j = saved;
    const char *path = test_path("save");
    uint64_t hash;

    saved.work = train_and_save;
    j.work = train_after_load;
    saved.user = j.user = (void *)(uintptr_t)path;
    ps_hash(&saved);
    hash = ps_hash(&j);
    j.passes = 2;
    CHECK(ps_hash(&j) == hash);
}

/* --- it learns ------------------------------------------------------------ */

static void check_learns(scene_training how)
{
    ps_job j = job_of(how.push_type, how.pull_type);
    double first;

    j.how = how;
    j.servers = 2;
    ps_hash(&j);
    first = ps_worker(&j, 0)->result.loss;
    j.passes = 20;
    ps_hash(&j);
    CHECK(ps_worker(&j, 0)->result.loss < first - 0.02);
}

/* In sync; in async with a clip of each worker's own gradient; in half-async;
 * with gradient merge; in geo, which takes packed keys alone. */
TEST_LIMIT(whatever_the_mode_it_learns, 120)
{
    const fleet_wire_type least = FLEET_WIRE_INT8;

    check_learns((scene_training){.push_type = least, .pull_type = least});
    check_learns((scene_training){
        .push_type = least, .pull_type = least, .a_sync = true, .clip = 1});
    check_learns((scene_training){
        .push_type = least, .pull_type = least, .a_sync = true, .merged = 4});
    check_learns((scene_training){.push_type = least,
                                  .pull_type = FLEET_WIRE_FP16,
                                  .a_sync = true,
                                  .merge = 2});
    check_learns(
        (scene_training){.packs_keys = true, .a_sync = true, .geo = 3});
}

/* --- who differs ---------------------------------------------------------- */

static void open_unlike(ps_node *n, const fleet_options *o)
{
    scene_training how = {
        .push_type = n->server ? FLEET_WIRE_FP32 : FLEET_WIRE_INT8,
        .pull_type = n->server ? FLEET_WIRE_BF16 : FLEET_WIRE_FP16};

    scene_open_as(&n->s, o, &how);
}

TEST(a_worker_that_sends_numbers_otherwise_is_refused)
{
    ps_job j = {.open = open_unlike, .connect_ms = PS_SECOND};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "the worker trains in mode ps-sync, wire_configs.push_type "
                   "int8, wire_configs.pull_type fp16, this server in ps-sync, "
                   "wire_configs.pull_type bf16");
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

static void check_line(const char *dump, const char *name, const char *rest)
{
    const char *at = strstr(dump, name);
    char line[400];

    CHECK(at);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    CHECK_CONTAINS(line, rest);
}

TEST(the_dump_has_the_types_by_name)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_role(true);
    char *dump;

    s.wire_configs.pull_type = FLEET_WIRE_BF16;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));
    dump = fleet_strategy_dump(f);
    check_line(dump, "wire_configs.push_type ",
               " fp32         default  honoured");
    check_line(dump, "wire_configs.pull_type ",
               " bf16         asked    honoured");
    check_line(dump, "wire_configs.error_feedback ",
               "no effect: strategy.wire_configs.push_type is fp32");
    fleet_free(dump);
    fleet_destroy(f);
}

#define REFUSES(servers, code, words, ...)                                     \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
        fleet *f = open_role(servers);                                         \
                                                                               \
        __VA_ARGS__;                                                           \
        kit_refused(f, fleet_sgd(f, 0.1f), &s, code, words);                   \
        fleet_destroy(f);                                                      \
    } while (0)

TEST(geo_refuses_them_by_name)
{
    REFUSES(true, FLEET_EUNSUPPORTED,
            "strategy.wire_configs.push_type: this version does not have int8 "
            "in mode ps-geo (what geo exchanges is exact: expected fp32)",
            s.a_sync_configs.k_steps = 10,
            s.wire_configs.push_type = FLEET_WIRE_INT8);
    REFUSES(true, FLEET_EUNSUPPORTED,
            "strategy.wire_configs.pull_type: this version does not have fp16 "
            "in mode ps-geo",
            s.a_sync_configs.k_steps = 10,
            s.wire_configs.pull_type = FLEET_WIRE_FP16);
    REFUSES(true, FLEET_EINVAL,
            "strategy.wire_configs.push_type: expected 0 to 3, got 4",
            s.wire_configs.push_type = 4);
}

TEST(without_servers_they_have_no_effect)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = open_role(false);
    char *dump;

    s.wire_configs.push_type = FLEET_WIRE_INT8;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s));
    dump = fleet_strategy_dump(f);
    check_line(dump, "wire_configs.push_type ", "no effect: no servers");
    fleet_free(dump);
    fleet_destroy(f);
}

/* --- real data ------------------------------------------------------------ */

/* int8 both ways; make test-long tries the other types, too. */
static int types_to_try(void)
{
    const char *seeds = getenv("FLEET_SEEDS");

    return seeds && atoi(seeds) > 1 ? 3 : 1;
}

static const char *wire_text(int i)
{
    static const char *const name[] = {"int8", "fp16", "bf16"};
    char text[200];

    snprintf(text, sizeof text,
             "\"a_sync\": true, \"wire_configs\": {\"push_type\": \"%s\", "
             "\"pull_type\": \"%s\"}",
             name[i], name[i]);
    return test_keep(text);
}

TEST_LIMIT(adult_in_fewer_bytes, 240)
{
    for (int i = 0; i < types_to_try(); i++)
        job_at_least(
            job_train("--server_num 1 --worker_num 2", job_adult(wire_text(i))),
            "auc", 0.898);
}

TEST_LIMIT(criteo_attr_in_fewer_bytes, 240)
{
    for (int i = 0; i < types_to_try(); i++)
        job_at_least(job_train("--server_num 2 --worker_num 2",
                               job_criteo(wire_text(i))),
                     "auc", 0.643);
}

/* Rows are on servers there, and dense weights with the ranks. */
TEST_LIMIT(hybrid_jobs_take_them, 120)
{
    launch_need_mpirun();
    test_use_fraction(4);
    job_above(job_train("--server_num 1 --worker_num 2 --collective",
                        job_adult("\"is_collective\": true, \"a_sync\": false, "
                                  "\"wire_configs\": {\"push_type\": \"int8\", "
                                  "\"pull_type\": \"bf16\", \"pack_keys\": "
                                  "true}")),
              "auc", 0.85);
}
