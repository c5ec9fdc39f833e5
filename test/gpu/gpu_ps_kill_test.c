/* gpu_ps_kill_test.c - GPU-PS: a process that is killed between the begin and
 * the end of a pass loses what came after its last save, at most that pass
 * where each is saved; the next process names it, and ends with the bits of a
 * training that nobody has disturbed. */
#define SUITE gpu_ps_kill
#include "gpu_ps_kit.h"
#include "test.h"
#include "watch_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/memory.h"
#include "fleet/pass/pass_rows.h"

enum { KILLED_AT = 8 }; /* batch */

/* What the process that is killed has done before. */
typedef struct killed {
    ps_case c;
    int passes, saved_after; /* passes that are over, and in the save */
    int steps;               /* between two saves, in the pass; 0: none */
    const char *save;        /* its path, or the folder of checkpoints */
    int ready;               /* where it says that it can be killed */
} killed;

static int hold(void *user, int64_t batch, int64_t samples)
{
    const killed *k = user;

    (void)samples;
    if (batch < KILLED_AT)
        return 0;
    if (write(k->ready, "", 1) != 1)
        return 1;
    for (;;)
        pause();
}

/* In a process of its own, to the middle of a pass. */
static void train_to_the_kill(killed *k)
{
    const fleet_save_every every = {.folder = k->save, .steps = k->steps};
    const fleet_train_options o = {
        .on_batch = hold, .user = k, .save_every = k->steps ? &every : NULL};
    fleet_psgpu *g;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &k->c);
    for (int i = 0; i < k->passes; i++) {
        gpu_ps_train_pass(&s, &k->c, g);
        if (i + 1 == k->saved_after)
            CHECK_OK(fleet_save_persistables(s.f, k->save));
    }
    CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
}

static pid_t kill_one(killed *k)
{
    int fd[2], status = 0;
    pid_t child;
    char c;

    CHECK_INT(pipe(fd), 0);
    child = test_fork();
    if (child == 0) {
        k->ready = fd[1];
        train_to_the_kill(k);
        _exit(1);
    }
    close(fd[1]);
    CHECK_INT(read(fd[0], &c, 1), 1);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    close(fd[0]);
    return child;
}

/* The process after it: from the save on, so many passes in all. */
static uint64_t go_on(const killed *k, int passes)
{
    char *newest = NULL;
    fleet_psgpu *g;
    uint64_t hash;
    scene s;

    g = gpu_ps_open(&s, &k->c);
    if (k->steps)
        CHECK_OK(fleet_newest_checkpoint(k->save, &newest));
    CHECK_OK(fleet_load_model(s.f, newest ? newest : k->save));
    fleet_free(newest);
    for (int i = k->saved_after; i < passes; i++)
        gpu_ps_train_pass(&s, &k->c, g);
    CHECK_OK(fleet_psgpu_finalize(g));
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

static uint64_t undisturbed(const ps_case *c, int passes)
{
    ps_case whole = *c;
    uint64_t hash;
    scene s;

    whole.passes = false;
    gpu_ps_open(&s, &whole);
    for (int i = 0; i < passes; i++)
        gpu_ps_train_pass(&s, &whole, NULL);
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

static killed case_in(const char *folder)
{
    return (killed){
        .c = {.passes = true, .memory_bytes = 50000, .folder = folder},
        .save = test_path("saved")};
}

TEST(a_process_that_is_killed_in_a_pass_loses_that_pass_and_it_is_named)
{
    const char *notes = test_path("notes");
    killed k = case_in(notes);
    char words[100];
    uint64_t hash;
    pid_t was;

    k.passes = k.saved_after = 1;
    was = kill_one(&k);
    gpu_kit_open();
    hash = go_on(&k, 2);
    snprintf(words, sizeof words, "pass 2 had begun in process %d of ",
             (int)was);
    CHECK_CONTAINS(gpu_ps_said, words);
    CHECK_CONTAINS(gpu_ps_said, "what was loaded has 0 batches of it");
    CHECK(hash == undisturbed(&k.c, 2));
    CHECK(go_on(&k, 2) == hash); /* that process has ended by itself */
    CHECK(strstr(gpu_ps_said, "had begun") == NULL);
    gpu_kit_close();
}

TEST(passes_that_are_in_no_save_are_named_as_well)
{
    killed k = case_in(test_path("notes"));
    uint64_t hash;

    k.passes = 2;
    k.saved_after = 1;
    (void)kill_one(&k);
    gpu_kit_open();
    hash = go_on(&k, 3);
    CHECK_CONTAINS(gpu_ps_said, "passes 2 to 3 had begun in process ");
    CHECK_CONTAINS(gpu_ps_said, "goes on with pass 2, batch 0");
    CHECK(hash == undisturbed(&k.c, 3));
    gpu_kit_close();
}

/* Notes are in the folder of checkpoints, as with fleet-train. */
TEST(what_was_saved_in_the_middle_of_a_pass_is_not_lost)
{
    const char *folder = test_path("all");
    killed k = case_in(folder);
    uint64_t hash;

    k.save = folder;
    k.steps = 5;
    (void)kill_one(&k);
    gpu_kit_open();
    hash = go_on(&k, 1);
    CHECK_CONTAINS(gpu_ps_said, "what was loaded has 5 batches of it");
    CHECK(hash == undisturbed(&k.c, 1));
    gpu_kit_close();
}

/* --- the note ------------------------------------------------------------- */

TEST(a_pass_that_cannot_be_noted_does_not_begin)
{
    const char *file = test_file("file", "");
    char folder[600];
    ps_case c = {.passes = true, .folder = folder};
    fleet_psgpu *g;
    scene s;

    snprintf(folder, sizeof folder, "%s/notes", file);
    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_EIO, folder);
    CHECK_FAILS(fleet_psgpu_end_pass(g), FLEET_ESTATE, "no pass has begun");
    scene_close(&s);
    gpu_kit_close();
}

static void note_line(void *user, fleet_log_level level, const char *text)
{
    size_t n = strlen(gpu_ps_said);

    (void)user, (void)level;
    snprintf(gpu_ps_said + n, sizeof gpu_ps_said - n, "%s\n", text);
}

/* A disk that is full between two saves ends no training. */
TEST(a_later_pass_that_cannot_be_noted_begins_and_is_named)
{
    const char *folder = test_path("notes");
    fl_pass_note n = {.folder = (char *)folder};
    fl_position at = {.pass = 0};
    fl_log log;
    char path[600];

    *gpu_ps_said = 0;
    snprintf(path, sizeof path, "%s/gpu-ps-pass.json", folder);
    fl_log_init(&log, note_line, NULL, FLEET_LOG_INFO);
    CHECK_OK(fl_pass_note_begin(&n, &log, &at));
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(folder), 0);
    (void)test_file("notes", "");
    at.pass = 1;
    CHECK_OK(fl_pass_note_begin(&n, &log, &at));
    CHECK_CONTAINS(gpu_ps_said, "a pass begins that cannot be noted");
    CHECK_CONTAINS(gpu_ps_said, path);
    fl_log_done(&log);
}

TEST(a_note_that_is_damaged_is_named_and_written_anew)
{
    const fl_position at = {.pass = 3};
    const char *folder = test_path("notes");
    fl_log log;
    fl_pass_note n = {.folder = (char *)folder};
    char *text, path[600];
    size_t size;

    snprintf(path, sizeof path, "%s/gpu-ps-pass.json", folder);
    fl_log_init(&log, note_line, NULL, FLEET_LOG_INFO);
    CHECK_INT(mkdir(folder, 0700), 0);
    CHECK_OK(fl_file_write(folder, "gpu-ps-pass.json", "{\"pass\":", 8, NULL));
    CHECK_OK(fl_pass_note_begin(&n, &log, &at));
    CHECK_CONTAINS(gpu_ps_said, "cannot be read");
    CHECK_CONTAINS(gpu_ps_said, path);
    CHECK_OK(fl_file_read(path, &text, &size));
    CHECK_CONTAINS(text, "\"pass\":");
    CHECK_CONTAINS(text, "4");
    fl_free(text);
    fl_pass_note_remove(&n);
    CHECK(!fl_file_exists(path));
    fl_log_done(&log);
}

TEST(an_allocation_that_fails_leaves_the_note_that_there_was)
{
    const fl_position first = {.pass = 6}, at = {.pass = 3};
    const char *folder = test_path("notes");
    fl_log log;
    fl_pass_note before = {.folder = (char *)folder};
    bool over = false;

    fl_log_init(&log, note_line, NULL, FLEET_LOG_INFO);
    CHECK_OK(fl_pass_note_begin(&before, &log, &first));
    for (int64_t n = 1; !over; n++) {
        fl_pass_note next = {.folder = (char *)folder};
        fleet_status status;

        *gpu_ps_said = 0;
        fl_memory_fail_at(n, true);
        status = fl_pass_note_begin(&next, &log, &at);
        over = fl_memory_count() < n;
        fl_memory_fail_at(0, false);
        CHECK_INT(status, over ? FLEET_OK : FLEET_ENOMEM);
        if (over)
            CHECK_CONTAINS(gpu_ps_said, "passes 4 to 7 had begun");
    }
    fl_log_done(&log);
}

TEST(a_configuration_notes_passes_beside_its_checkpoints)
{
    static const char note[] =
        "{\"pass\": 2, \"process\": 77, \"host\": \"elsewhere\"}";
    const char *folder = test_path("all");
    char path[600];

    CHECK_INT(mkdir(folder, 0700), 0);
    CHECK_OK(
        fl_file_write(folder, "gpu-ps-pass.json", note, strlen(note), NULL));
    snprintf(path, sizeof path, "%s/gpu-ps-pass.json", folder);
    gpu_kit_open();
    fleet_free(watch_train((const char *[]){
        "device=gpu:0", "dataset.shuffle=0", "dataset.in_memory=true",
        "strategy.a_sync_configs.use_ps_gpu=true",
        watch_path("save_every.folder", "all"), "save_every.steps=5", NULL}));
    CHECK_CONTAINS(watch_said,
                   "passes 1 to 2 had begun in process 77 of elsewhere");
    CHECK(!fl_file_exists(path));
    gpu_kit_close();
}
