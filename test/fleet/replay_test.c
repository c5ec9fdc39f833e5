/* replay_test.c - lanes made again from their logs have the parameters of the
 * job at that update, to the bit; what an update has changed, and which one was
 * the first with a weight that is not finite, is said; what is no update of the
 * logs, or of another program or job, is refused. */
#define SUITE replay
#include "ps_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ps/aggregate/update_view.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/journal_folder.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/journal_writer.h"

enum { MOST_SAID = 20000 };

/* --- jobs ----------------------------------------------------------------- */

static ps_job job_of(const char *log, int passes)
{
    return (ps_job){.servers = 2,
                    .workers = 2,
                    .lanes = 2,
                    .passes = passes,
                    .how = {.log = FLEET_DURABLE_PROCESS,
                            .log_configs = {.folder = test_path(log)}},
                    .file = {scene_file("a.txt", 400, 1)}};
}

typedef struct said {
    char text[MOST_SAID];
} said;

static void hear_line(void *user, const char *line)
{
    said *s = user;
    size_t used = strlen(s->text);

    snprintf(s->text + used, sizeof s->text - used, "%s\n", line);
}

static said heard;

/* The model of the job, in one process. */
static void open_model(scene *s, const ps_job *j)
{
    const fleet_options o = {
        .seed = 5, .num_threads = 1, .log_level = FLEET_LOG_ERROR};
    scene_training how = j->how;

    how.log = FLEET_DURABLE_NONE;
    how.log_configs = (fleet_log_configs){0};
    memset(s, 0, sizeof *s);
    scene_open_as(s, &o, &how);
}

static fleet_status replay(const ps_job *j, const fleet_replay_options *how,
                           fleet_replay_result *r)
{
    fleet_replay_options o = *how;
    fleet_status status;
    scene s;

    o.log = j->how.log_configs.folder;
    open_model(&s, j);
    status = fleet_replay_log(s.f, &o, r);
    scene_close(&s);
    return status;
}

/* Of the checkpoint that is made of the logs as of that update. */
static uint64_t hash_at(const ps_job *j, int64_t update, int64_t *reached)
{
    const fleet_replay_options o = {.to_update = update,
                                    .save = test_path("again")};
    fleet_replay_result r;
    uint64_t hash;
    scene s;

    CHECK_OK(replay(j, &o, &r));
    CHECK(update == 0 || r.update == update);
    *reached = r.update;
    open_model(&s, j);
    CHECK_OK(fleet_load_model(s.f, o.save));
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

/* --- as of an update ------------------------------------------------------ */

TEST(a_job_in_sync_is_made_again_as_of_any_update)
{
    ps_job one = job_of("one", 1), two = job_of("two", 2);
    uint64_t first = ps_hash(&one), second = ps_hash(&two);
    int64_t n, all, again;

    CHECK(first != second);
    CHECK(hash_at(&one, 0, &n) == first);
    CHECK(n > 3);
    CHECK(hash_at(&two, n, &again) == first);
    CHECK(hash_at(&two, 0, &all) == second);
    CHECK_INT(all, 2 * n);
    CHECK(hash_at(&two, n + 1, &again) != first);
}

/* Has any lane written a snapshot? Then its first file is gone. */
static bool was_cut(const ps_job *j)
{
    bool cut = false;

    for (int i = 0; i < 4; i++) {
        char path[600];

        snprintf(path, sizeof path, "%s/server-%d/lane-%d/journal-00000001",
                 j->how.log_configs.folder, i / 2, i % 2);
        cut = cut || access(path, F_OK) != 0;
    }
    return cut;
}

/* Behind snapshots, of which the earlier updates are gone. A snapshot is
 * written beside training, and may come too late to count. */
TEST(a_log_that_was_cut_begins_behind_its_snapshot)
{
    ps_job j = job_of("cut", 2);
    uint64_t hash;
    int64_t n;

    j.how.log_configs.file_bytes = 4096;
    hash = ps_hash(&j);
    CHECK(hash_at(&j, 0, &n) == hash);
    CHECK(hash_at(&j, n, &n) == hash);
    if (was_cut(&j))
        CHECK_FAILS(replay(&j, &(fleet_replay_options){.to_update = 1}, NULL),
                    FLEET_EINVAL, "update 1: the log of server ");
    else
        CHECK_OK(replay(&j, &(fleet_replay_options){.to_update = 1}, NULL));
}

/* The same save is loaded again: one that servers begin with, and one that
 * workers load. */
TEST(a_job_that_has_loaded_a_save_loads_it_again)
{
    for (int by_worker = 0; by_worker < 2; by_worker++) {
        ps_job j = job_of(by_worker ? "worker" : "server", 1);
        uint64_t hash;
        int64_t n;
        scene s;

        *(by_worker ? &j.load : &j.server_load) = scene_saved(&s, "adam");
        scene_close(&s);
        hash = ps_hash(&j);
        CHECK(hash_at(&j, 0, &n) == hash);
    }
}

/* Lanes that load write a snapshot at once, beside training: this one is as of
 * no update, if it comes in time to count, and those behind it are made again
 * as ever. */
TEST(a_snapshot_from_before_all_updates_is_not_the_end)
{
    const fleet_options o = {.seed = 7, .num_threads = 1};
    ps_job j = job_of("fresh", 2);
    uint64_t hash;
    int64_t n;
    scene s;

    scene_open(&s, &o, "adam");
    scene_data(&s, scene_file("train.txt", 100, 1), 64, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK(s.e != NULL);
    j.server_load = test_path("untrained");
    CHECK_OK(fleet_save_persistables(s.f, j.server_load));
    scene_close(&s);
    hash = ps_hash(&j);
    CHECK(hash_at(&j, 0, &n) == hash);
    CHECK(n > 3);
}

/* Each lane counts for itself. */
TEST(a_job_in_async_is_made_again_as_of_its_end)
{
    ps_job j = job_of("async", 1);
    int64_t n;
    uint64_t hash;

    j.how.a_sync = true;
    hash = ps_hash(&j);
    CHECK(hash_at(&j, 0, &n) == hash);
    CHECK(hash_at(&j, n / 2, &n) != hash);
}

/* --- a log that is another one -------------------------------------------- */

typedef struct record {
    uint16_t kind;
    size_t size;
    char *data;
} record;

enum { MOST_RECORD = 200 };

typedef struct lane_log {
    const char *folder;
    char text[4000]; /* what its files say of their owner */
    record at[MOST_RECORD];
    int n;
} lane_log;

static void read_log(lane_log *l, const ps_job *j, const char *lane)
{
    fl_journal_reader *from;
    fl_journal_record r;
    char path[600];
    bool more = true;

    snprintf(path, sizeof path, "%s/%s", j->how.log_configs.folder, lane);
    l->folder = test_keep(path);
    l->n = 0;
    CHECK_OK(fl_journal_reader_open(&from, path));
    snprintf(l->text, sizeof l->text, "%s", fl_journal_reader_text(from));
    for (;;) {
        CHECK_OK(fl_journal_next(from, &r, &more));
        if (!more)
            break;
        CHECK(l->n < MOST_RECORD);
        l->at[l->n] = (record){r.kind, r.size, malloc(r.size)};
        memcpy(l->at[l->n++].data, r.data, r.size);
    }
    fl_journal_reader_close(from);
}

/* In place of what is there. */
static void write_log(lane_log *l)
{
    fl_journal_writer *to;

    fl_journal_remove(l->folder);
    CHECK(mkdir(l->folder, 0755) == 0);
    CHECK_OK(
        fl_journal_writer_create(&to, &(fl_journal_options){.folder = l->folder,
                                                            .text = l->text,
                                                            .first_file = 1,
                                                            .first_lsn = 1}));
    for (int i = 0; i < l->n; i++) {
        const fl_journal_part part = {l->at[i].data, l->at[i].size};

        CHECK_OK(fl_journal_put(to, l->at[i].kind, &part, 1));
        free(l->at[i].data);
    }
    CHECK_OK(fl_journal_commit(to));
    fl_journal_writer_destroy(to);
}

static lane_log lane;

/* Of update `number` number `at` of the first row's gradient is that value, and
 * all are clipped by 100: of a large one that is finite it makes an infinity.
 * The row's key. */
static uint64_t plant(record *r, uint64_t number, int at, float value)
{
    const fl_journal_record of = {.data = r->data, .size = r->size};
    fl_update_view v;
    fl_section_view s;
    bool more = true;

    if (r->kind != FL_LANE_RECORD_UPDATE)
        return 0;
    CHECK_OK(fl_update_view_of(&of, &v));
    if (v.head->version + 1 != number)
        return 0;
    ((fl_update_record *)(void *)r->data)->clip = 100;
    do {
        CHECK_OK(fl_update_view_next(&of, &v, &s, &more));
        CHECK(more);
    } while (s.head->op != FL_SECTION_ROWS || s.head->n_key == 0);
    ((float *)(uintptr_t)s.value)[at] = value;
    return s.key[0];
}

TEST(the_first_update_behind_which_a_weight_is_not_finite_is_named)
{
    const fleet_replay_options find = {
        .until_nan = 1, .say = hear_line, .user = &heard};
    ps_job j = job_of("planted", 1);
    fleet_replay_result r;
    char words[200];
    uint64_t key = 0;

    j.how.optimizer = "sgd";
    ps_hash(&j);
    CHECK_OK(replay(&j, &find, &r));
    CHECK_INT(r.nan_update, 0);
    CHECK_TEXT(heard.text, "");
    read_log(&lane, &j, "server-1/lane-0");
    for (int i = 0; i < lane.n; i++)
        key += plant(&lane.at[i], 4, 0, 3e38f);
    write_log(&lane);
    CHECK_OK(replay(&j, &find, &r));
    CHECK_INT(r.nan_update, 4);
    snprintf(words, sizeof words,
             "server 1, lane 0, update 4: 2 batches, clip 100, of worker 0 "
             "step 5, worker 1 step 5: not finite: table \"embedding\", row "
             "%llu\n",
             (unsigned long long)key);
    CHECK_TEXT(heard.text, words);
}

/* Every lane says what it has changed, and the changes are those between the
 * parameters before and behind. */
TEST(what_an_update_has_changed_is_said)
{
    const fleet_replay_options show = {
        .show_update = 3, .to_update = 3, .say = hear_line, .user = &heard};
    const fleet_replay_options first = {
        .show_update = 1, .to_update = 1, .say = hear_line, .user = &heard};
    ps_job j = job_of("shown", 1);
    int n, fresh;

    ps_hash(&j);
    CHECK_OK(replay(&j, &first, NULL));
    CHECK_INT(sscanf(strstr(heard.text, "gradients of "),
                     "gradients of %d rows, %d of them", &n, &fresh),
              2);
    CHECK(n > 0);
    CHECK_INT(fresh, n);
    heard.text[0] = 0;
    CHECK_OK(replay(&j, &show, NULL));
    for (int i = 0; i < 4; i++) {
        char words[200];

        snprintf(
            words, sizeof words,
            "server %d, lane %d, update 3: 2 batches, clip 1, of worker 0 "
            "step 4, worker 1 step 4\n  table \"embedding\": gradients of ",
            i / 2, i % 2);
        CHECK_CONTAINS(heard.text, words);
    }
    CHECK_CONTAINS(heard.text, " of them new; changed by a norm of ");
    CHECK_CONTAINS(heard.text, "  parameter \"tower_0.w\": ");
    CHECK_FAILS(replay(&j, &(fleet_replay_options){.show_update = 99}, NULL),
                FLEET_EINVAL,
                "update 99: the log of server 0, lane 0 has "
                "those from 1 to ");
}

/* Behind a number that has changed, too. */
TEST(a_weight_that_is_no_number_is_the_largest_change)
{
    const fleet_replay_options show = {
        .show_update = 4, .to_update = 4, .say = hear_line, .user = &heard};
    ps_job j = job_of("no-number", 1);
    char words[100];
    uint64_t key = 0;

    j.how.optimizer = "sgd";
    ps_hash(&j);
    read_log(&lane, &j, "server-1/lane-0");
    for (int i = 0; i < lane.n; i++)
        key += plant(&lane.at[i], 4, 1, NAN);
    write_log(&lane);
    CHECK_OK(replay(&j, &show, NULL));
    snprintf(words, sizeof words,
             "most in row %llu, number 1: ", (unsigned long long)key);
    CHECK_CONTAINS(heard.text, words);
}

/* --- what is refused ------------------------------------------------------ */

/* Of a job that has ended. */
static void change_identity(const ps_job *j, const char *from, const char *to)
{
    char path[600], *text, *at;
    size_t size;
    FILE *f;

    snprintf(path, sizeof path, "%s/server-1/ended", j->how.log_configs.folder);
    CHECK_OK(fl_file_read(path, &text, &size));
    at = strstr(text, from);
    CHECK(at != NULL && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    f = fopen(path, "w");
    CHECK(f != NULL && fwrite(text, 1, size, f) == size && fclose(f) == 0);
    fl_free(text);
}

/* Server 1 of the job before has left its log where that of the next job's is
 * expected. */
static void mix(const ps_job *before, const ps_job *next)
{
    char from[600], to[600];

    snprintf(from, sizeof from, "%s/server-1", before->how.log_configs.folder);
    snprintf(to, sizeof to, "%s/server-1", next->how.log_configs.folder);
    CHECK(rename(to, test_path("aside")) == 0);
    CHECK(rename(from, to) == 0);
}

TEST(logs_of_two_jobs_or_runs_are_refused)
{
    const fleet_replay_options all = {.save = test_path("again")};
    ps_job before = job_of("before", 1), next = job_of("next", 1);

    before.how.a_sync = next.how.a_sync = true;
    ps_hash(&before);
    ps_hash(&next);
    CHECK_OK(replay(&next, &all, NULL));
    change_identity(&next, "\"workers\":2", "\"workers\":3");
    CHECK_FAILS(replay(&next, &all, NULL), FLEET_EINVAL,
                "the log of server 1 is of a job with 2 servers and 3 workers "
                "in async, that of server 0 of one with 2 and 2 in async: "
                "expected the logs of one job");
    mix(&before, &next);
    CHECK_FAILS(replay(&next, &all, NULL), FLEET_EINVAL,
                "the log of server 1 is of another job than that of server 0, "
                "or of another run of it: expected the logs of one job");
}

/* One lane of a job that was killed has made an update more than the others. */
TEST(lanes_that_end_at_different_updates_make_no_checkpoint)
{
    const fleet_replay_options all = {.save = test_path("again")};
    ps_job j = job_of("killed", 1);
    int64_t n, reached;
    char words[100];

    ps_hash(&j);
    hash_at(&j, 0, &n);
    read_log(&lane, &j, "server-0/lane-1");
    while (lane.at[--lane.n].kind != FL_LANE_RECORD_UPDATE)
        free(lane.at[lane.n].data);
    free(lane.at[lane.n].data);
    write_log(&lane);
    snprintf(words, sizeof words, "expected to_update %d or less", (int)n - 1);
    CHECK_FAILS(replay(&j, &all, NULL), FLEET_EINVAL, words);
    hash_at(&j, n - 1, &reached);
    CHECK_INT(reached, n - 1);
}

TEST(logs_of_other_programs_or_processes_are_refused)
{
    const fleet_replay_options all = {0};
    fl_journal_folder taken;
    ps_job j = job_of("refused", 1), none = job_of("none", 1);
    scene s;

    ps_hash(&j);
    j.how.units = 17;
    CHECK_FAILS(replay(&j, &all, NULL), FLEET_EINVAL,
                "server 0 is read by another program than the one that has "
                "written the log ");
    j.how.units = 0;
    CHECK_FAILS(replay(&none, &all, NULL), FLEET_ENOENT, "server-0");
    CHECK_FAILS(replay(&j, &(fleet_replay_options){.to_update = 99}, NULL),
                FLEET_EINVAL, "expected one of them");
    CHECK_FAILS(
        replay(&j, &(fleet_replay_options){.until_nan = 1, .save = "x"}, NULL),
        FLEET_EINVAL, "expected one of them");
    CHECK_OK(
        fl_journal_folder_look(&taken, j.how.log_configs.folder, "server-1"));
    CHECK_FAILS(replay(&j, &all, NULL), FLEET_EEXIST, "server-1 is in use");
    fl_journal_folder_close(&taken);
    open_model(&s, &j);
    CHECK_FAILS(fleet_replay_log(s.f, &all, NULL), FLEET_EINVAL, "a `log`");
    scene_close(&s);
}
