/* ps_resume_test.c - jobs with servers that are stopped and go on: workers that
 * update together stop after the same update, whoever of them wants to, and
 * what goes on ends with the bits of the undisturbed job. */
#define SUITE ps_resume
#include "ps_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { PASSES = 2, BATCH = 8 };

/* What the workers of a job do. All-zero fields are defaults. */
typedef struct task {
    int who;         /* this worker wants to stop, */
    int64_t stop_at; /* at that batch of its own; 0: never */
    const char *save;
    const fleet_save_every *every;
    bool loads_alone; /* worker 0 */
    int64_t seen[2];  /* by worker */
} task;

static int on_batch(void *user, int64_t batch, int64_t samples)
{
    ps_node *n = user;
    task *t = n->job->user;

    (void)batch, (void)samples;
    if (++t->seen[n->index] == t->stop_at && n->index == t->who)
        fleet_train_stop();
    return 0;
}

/* The passes that are left, or up to the stop, and a save after it. */
static fleet_status train_on(ps_node *n)
{
    task *t = n->job->user;
    fleet_train_options o = {
        .on_batch = on_batch, .user = n, .save_every = t->every};
    int64_t pass, batch;

    FL_TRY(fleet_dataset_position(n->s.data, &pass, &batch));
    for (; pass < PASSES; pass++) {
        FL_TRY(fleet_train_from_dataset(n->s.e, n->s.data, &o, &n->result));
        if (n->result.stopped)
            break;
    }
    n->number[0] = (double)n->result.pass;
    n->number[1] = (double)n->result.batch;
    if (t->save && n->index == 0)
        FL_TRY(fleet_save_persistables(n->s.f, t->save));
    return FLEET_OK;
}

static fleet_status work(ps_node *n)
{
    const task *t = n->job->user;

    n->s.e = fleet_executor_create(n->s.p, NULL);
    if (n->job->load && (n->index == 0 || !t->loads_alone))
        FL_TRY(fleet_load_model(n->s.f, n->job->load));
    FL_TRY(fleet_init_worker(n->s.f));
    FL_TRY(train_on(n));
    return ps_end(n);
}

static ps_job job_of(task *t, bool a_sync)
{
    return (ps_job){.servers = 2,
                    .workers = 2,
                    .lanes = 2,
                    .batch = BATCH,
                    .shuffle = 40,
                    .how = {.a_sync = a_sync, .decay = true, .clip = 0.5f},
                    .work = work,
                    .user = t};
}

/* Of unequal length, one for each worker; or one that they share. */
static void give_files(ps_job *j, bool shared)
{
    j->file[0] = scene_file("a.txt", 300, 1);
    j->file[1] = shared ? NULL : scene_file("b.txt", 200, 2);
}

static uint64_t go_on_from(ps_job j, const char *path)
{
    task t = {.who = 0};

    j.load = path;
    j.user = &t;
    return ps_hash(&j);
}

/* Where both workers are, as both of them say. */
static int64_t stopped_at(ps_job *j)
{
    const ps_node *a = ps_worker(j, 0), *b = ps_worker(j, 1);

    CHECK_INT(a->result.stopped, 1);
    CHECK_INT(b->result.stopped, 1);
    CHECK_INT(a->number[0], b->number[0]);
    CHECK_INT(a->number[1], b->number[1]);
    return (int64_t)a->number[1];
}

static void stop_and_resume(ps_job j, int who, int64_t at, uint64_t want)
{
    task t = {.who = who, .stop_at = at, .save = test_path("saved")};

    j.user = &t;
    ps_hash(&j);
    CHECK(stopped_at(&j) > 0);
    CHECK(go_on_from(j, t.save) == want);
}

TEST(workers_in_sync_stop_together_and_go_on_to_the_same_bits)
{
    task t = {.who = 0};
    ps_job j = job_of(&t, false);
    uint64_t want;

    give_files(&j, false); /* of 38 and 25 batches */
    want = ps_hash(&j);
    stop_and_resume(j, 0, 1, want);
    stop_and_resume(j, 1, 24, want);
    stop_and_resume(j, 0, 33, want); /* worker 1 is done with the pass */
    stop_and_resume(j, 1, 30, want); /* of both passes: in the second */
}

TEST(so_they_do_where_they_share_a_file_and_merge_batches)
{
    task t = {.who = 0};
    ps_job j = job_of(&t, false);
    uint64_t want;

    give_files(&j, true);
    j.how.merge = 3;
    want = ps_hash(&j);
    stop_and_resume(j, 1, 4, want);
    stop_and_resume(j, 0, 24, want);
}

TEST(a_save_that_worker_0_makes_while_all_train_is_where_all_go_on)
{
    const fleet_save_every every = {
        .folder = test_path("all"), .steps = 9, .keep = 100};
    task t = {.every = &every};
    ps_job j = job_of(&t, false);
    uint64_t want;

    give_files(&j, false);
    want = ps_hash(&j);
    CHECK(go_on_from(j, test_path("all/checkpoint-000001")) == want);
    CHECK(go_on_from(j, test_path("all/checkpoint-000003")) == want);
    CHECK(go_on_from(j, test_path("all/checkpoint-000006")) == want);
}

/* The wish is of one process. */
TEST(it_is_enough_that_one_process_wants_to_stop)
{
    task t = {.who = 1, .stop_at = 20, .save = test_path("saved")};
    task none = {.who = 0};
    ps_job j = job_of(&none, false), processes = job_of(&t, false);
    uint64_t want;

    give_files(&j, false);
    want = ps_hash(&j);
    give_files(&processes, false);
    ps_start_all(&processes);
    ps_check_all_end(&processes);
    CHECK(go_on_from(j, t.save) == want);
}

TEST(all_workers_load_the_middle_of_a_pass_or_none)
{
    task t = {.who = 0, .stop_at = 5, .save = test_path("saved")};
    ps_job j = job_of(&t, false);

    give_files(&j, false);
    ps_hash(&j);
    t = (task){.loads_alone = true};
    j.load = test_path("saved");
    ps_run(&j);
    CHECK_STATUS(ps_worker(&j, 1)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 1)->error,
                   "worker 0 goes on in pass 0 after batch ");
    CHECK_CONTAINS(ps_worker(&j, 1)->error, "worker 1 in pass 0 after batch 0");
}

TEST(in_async_the_pass_begins_anew_and_says_so)
{
    task t = {.who = 0, .stop_at = 6, .save = test_path("saved")};
    ps_job j = job_of(&t, true);

    j.how.clip = 0;
    give_files(&j, false);
    ps_hash(&j);
    CHECK_INT(ps_worker(&j, 0)->result.stopped, 1);
    CHECK_INT(ps_worker(&j, 1)->result.stopped, 1);
    t = (task){.who = 0};
    j.load = test_path("saved");
    ps_hash(&j);
    CHECK_INT(t.seen[0], PASSES * 38);
    CHECK_INT(t.seen[1], PASSES * 25);
    CHECK_CONTAINS(ps_worker(&j, 0)->log,
                   "goes on in pass 0 after batch 0, but not to the bit: in "
                   "mode ps-async each worker is at a batch of its own");
}
