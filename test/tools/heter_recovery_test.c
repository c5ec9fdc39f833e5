/* heter_recovery_test.c - jobs of two and of three stages under fleetrun, of
 * datasets: with several batches in flight they have the bits of the uncut job
 * that merges as many; with --supervise and processes of each role that are
 * killed those of a job that nothing has befallen, so no batch was trained
 * twice, and none was lost. */
#define SUITE heter_recovery
#include "launch_kit.h"
#include "stage_process_kit.h"
#include "supervise_kit.h"
#include "test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "fleet/heter/stage_job.h"

enum { WORKERS = 3, PASSES = 2, ROWS = 1500 };

/* --- a process of a job --------------------------------------------------- */

static fleet_var *embed(fleet_program *p, fleet_var *ids, const char *table)
{
    return fleet_sparse_embedding(
        p, ids, 4,
        &(fleet_sparse_embedding_options){
            .table = table, .initializer = {FLEET_INIT_UNIFORM, -0.5f, 0.5f}});
}

/* Tables and layers on both sides, more layers in a third stage, and random
 * numbers behind the cuts. */
static fleet_var *build(fleet_program *p, fleet_var *in[3])
{
    fleet_var *label = in[0] =
        fleet_data(p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    fleet_var *x = in[1] =
        fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 2}, 2);
    fleet_var *c = in[2] = fleet_data_ragged(p, "c"), *h;

    (void)fleet_device_guard(p, "cpu");
    h = fleet_concat(p, (fleet_var *[]){x, embed(p, c, "early")}, 2, 1);
    h = fleet_fc(p, h, 7,
                 &(fleet_fc_options){.name = "low", .activation = FLEET_TANH});
    (void)fleet_device_guard(p, "gpu");
    h = fleet_concat(p, (fleet_var *[]){h, embed(p, c, "late")}, 2, 1);
    h = fleet_dropout(p, fleet_fc(p, h, 6, NULL), 0.3f);
    if (getenv("HETER_THREE"))
        (void)fleet_device_guard(p, "cpu");
    h = fleet_dropout(p, fleet_fc(p, h, 5, NULL), 0.2f);
    h = fleet_fc(p, h, 2, NULL);
    return fleet_mean(p, fleet_softmax_with_cross_entropy(p, h, label, NULL));
}

static fleet_status train(fleet *f, fleet_executor *e, fleet_dataset *d)
{
    const char *threads = getenv("HETER_THREADS");
    const fleet_train_options o = {.thread = threads ? atoi(threads) : 1};
    fleet_train_result r = {.loss = 0};
    uint64_t hash;
    int64_t pass, batch;

    FL_TRY(fleet_dataset_position(d, &pass, &batch));
    for (; pass < PASSES; pass++)
        FL_TRY(fleet_train_from_dataset(e, d, &o, &r));
    printf("LOSS=%a\n", r.loss);
    FL_TRY(fleet_barrier_worker(f));
    FL_TRY(fleet_params_hash(f, &hash));
    printf("HASH=%016" PRIx64 "\n", hash);
    return fleet_stop_worker(f);
}

/* Batches of a worker's update: in flight between stages, or merged. */
static void set_batches(const fleet *f, fleet_distributed_strategy *s)
{
    const char *said = getenv("HETER_BATCHES");
    const int n = said ? atoi(said) : 1;

    s->pipeline = n > 1 && fleet_heter_worker_num(f) > 0;
    s->gradient_merge = n > 1 && !s->pipeline;
    if (s->pipeline)
        s->pipeline_configs.accumulate_steps = n;
    if (s->gradient_merge)
        s->gradient_merge_configs.k_steps = n;
}

/* Heter worker 0 dies, once in a job, when it has the last stage's answer to
 * its fifth batch, of which it has written nothing down. */
static fl_stage_link next_stage;

static fleet_status die_behind_answer(fl_stage_link *link,
                                      const fl_stage_batch *b)
{
    static int batches;
    const char *path = getenv("HETER_DIES");

    FL_TRY(next_stage.receive(link, b));
    if (++batches == 5 && open(path, O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0)
        raise(SIGKILL);
    return FLEET_OK;
}

static void make_mortal(const fleet *f)
{
    if (!getenv("HETER_DIES") || fleet_heter_worker_index(f) != 0)
        return;
    next_stage = f->stage_job->link;
    f->stage_job->link.receive = die_behind_answer;
}

/* A process that died as it ended had done all. */
static fleet_status run_process(fleet **f)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *o;
    fleet_program *p;
    fleet_var *in[3], *loss;
    fleet_status status;

    s.a_sync = 0;
    FL_TRY(fleet_init(f, NULL));
    set_batches(*f, &s);
    p = fleet_program_create(*f);
    loss = build(p, in);
    o = fleet_distributed_optimizer(*f, fleet_adam(*f, 0.05f, NULL), &s);
    FL_TRY(fleet_minimize(o, loss));
    make_mortal(*f);
    status =
        stage_process_work(*f, p,
                           &(fleet_dataset_options){.format = FLEET_MULTISLOT,
                                                    .batch_size = 16,
                                                    .use_var = in,
                                                    .n_use_var = 3},
                           getenv("HETER_DATA"), train);
    return status == FLEET_EEND ? FLEET_OK : status;
}

__attribute__((constructor)) static void be_of_a_job(void)
{
    stage_process_main("HETER_DATA", run_process);
}

/* --- the test ------------------------------------------------------------- */

static const char *write_data(void)
{
    fl_text text = {0};

    for (int i = 0; i < ROWS; i++) {
        const uint64_t r = fl_rng_below(1, 1, (uint64_t)i, 1 << 20);

        fl_text_add(&text, "1 %d 2 %g %g 2 %d %d\n", (int)(r % 2),
                    (double)(r % 17) / 17, (double)(r % 5) / 5 - 0.5,
                    (int)(r % 41), (int)(r % 97));
    }
    CHECK_OK(text.status);
    test_file("data", fl_text_chars(&text));
    fl_text_done(&text);
    return test_path("data");
}

/* Where all have left, and who died has no more to do, workers print no hash
 * again: it is worker 0's first. */
static const char *hash_of(void)
{
    const char *hash = launch_value("workerlog.0", "HASH");

    CHECK_INT(strlen(hash), 16);
    return hash;
}

enum { VICTIMS = 4 };

typedef supervise_victim victims[VICTIMS];

static const victims of_each_role = {
    {"heter.0", 0}, {"worker.1", 0}, {"heter.1", 0}, {"server.0", 0}};
static const victims between_others = {
    {"heter.0", 0}, {"heter.2", 0}, {"heter.1", 0}, {"worker.1", 0}};
static const victims without_stages = {
    {"worker.2", 0}, {"worker.1", 0}, {"worker.2", 0}, {"server.0", 0}};

/* Each is killed once, in an order of the draw's. */
static int kill_each(launch l, const victims who, uint64_t draw, int64_t all)
{
    victims v;
    const uint64_t seed = (uint64_t)getpid();
    int64_t at[VICTIMS];
    int made = 0;

    memcpy(v, who, sizeof v);
    for (uint64_t i = 0; i < VICTIMS; i++)
        at[i] = (int64_t)fl_rng_below(seed, draw, i, (uint64_t)all * 9 / 10);
    qsort(at, VICTIMS, sizeof *at, supervise_by_number);
    for (int i = 0; i < VICTIMS; i++)
        made += supervise_kill_at(l, &v[(i + (int)draw) % VICTIMS], at[i]);
    return made;
}

#define STAGES "--server_num 1 --worker_num 3 --heter_worker_num 2"
#define THREE  "--server_num 1 --worker_num 3 --heter_worker_num 2;1"

static const char *script_of(int batches)
{
    char script[1000];

    snprintf(script, sizeof script,
             SUPERVISE_TELL "HETER_BATCHES=%d HETER_DATA=%s exec %s", batches,
             write_data(), test_program());
    return test_keep(script);
}

/* The pass of each worker ends within a group. */
TEST_LIMIT(batches_in_flight_have_the_bits_of_merged_ones, 300)
{
    const char *script = script_of(3), *hash, *loss;

    launch_deadline_ms = 100000;
    CHECK_INT(launch_run("--server_num 1 --worker_num 3", script), 0);
    hash = hash_of();
    loss = launch_value("workerlog.0", "LOSS");
    CHECK_INT(launch_run("--server_num 2 --worker_num 3 --heter_worker_num 1",
                         script),
              0);
    CHECK_TEXT(hash_of(), hash);
    CHECK_TEXT(launch_value("workerlog.0", "LOSS"), loss);
    CHECK_INT(launch_run(STAGES, script), 0);
    CHECK_TEXT(hash_of(), hash);
    setenv("HETER_THREE", "1", 1);
    CHECK_INT(launch_run(THREE, script), 0);
    CHECK_TEXT(hash_of(), hash);
    CHECK_TEXT(launch_value("workerlog.0", "LOSS"), loss);
}

static void kill_and_compare(int batches, const char *more, const victims who)
{
    const char *flags = supervise_flags(more);
    const char *script = script_of(batches), *hash;
    const int rounds = supervise_times(1);
    int64_t all;
    int made = 0;

    launch_deadline_ms = 100000;
    CHECK_INT(launch_run("--server_num 1 --worker_num 3", script), 0);
    hash = hash_of();
    CHECK_INT(launch_run(flags, script), 0);
    CHECK_TEXT(hash_of(), hash);
    all = supervise_bytes();
    for (int i = 0; i < rounds; i++) {
        launch l;

        supervise_remove("journals");
        supervise_remove("pids/*");
        l = launch_start(flags, script);
        made += kill_each(l, who, (uint64_t)i, all);
        CHECK_INT(launch_wait(l), 0);
        CHECK_TEXT(hash_of(), hash);
    }
    CHECK(made >= rounds * VICTIMS / 2);
}

TEST_LIMIT(sync_ends_with_the_bits_of_an_undisturbed_job, 1200)
{
    kill_and_compare(1, STAGES, of_each_role);
}

TEST_LIMIT(so_it_does_with_batches_in_flight, 1200)
{
    kill_and_compare(3, STAGES, of_each_role);
}

/* The last stage has trained a batch, and is asked for it again. */
TEST_LIMIT(a_batch_that_the_next_stage_has_trained_is_trained_once, 300)
{
    const char *script = script_of(1), *hash;

    launch_deadline_ms = 100000;
    setenv("HETER_THREE", "1", 1);
    CHECK_INT(launch_run(THREE, script), 0);
    hash = hash_of();
    setenv("HETER_DIES", test_path("dies"), 1);
    CHECK_INT(launch_run(supervise_flags(THREE), script), 0);
    CHECK_TEXT(hash_of(), hash);
    CHECK(access(test_path("dies"), F_OK) == 0);
}

/* Heter workers of the middle stage have died behind batches that the last
 * stage had trained, and in front of them. */
TEST_LIMIT(so_it_does_in_three_stages, 1200)
{
    setenv("HETER_THREE", "1", 1);
    kill_and_compare(1, THREE, between_others);
}

TEST_LIMIT(so_it_does_in_three_stages_with_batches_in_flight, 1200)
{
    setenv("HETER_THREE", "1", 1);
    kill_and_compare(3, THREE, between_others);
}

/* A push is of a round of them. */
TEST_LIMIT(so_it_does_with_trainer_threads, 1200)
{
    setenv("HETER_THREADS", "2", 1);
    kill_and_compare(1, "--server_num 1 --worker_num 3", without_stages);
}
