/* resume_test.c - a training that is stopped and goes on, in this process or in
 * a later one, ends with the bits of one that was not: wherever it stops. */
#define SUITE resume
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { PASSES = 2, BATCH = 16, BATCHES = (SCENE_LINES + BATCH - 1) / BATCH };

/* A training, and at which of its batches it is stopped. All-zero fields are
 * defaults. */
typedef struct lesson {
    scene_training how;
    uint64_t seed; /* 0: 7 */
    int threads;   /* 0: 1 */
    int64_t batch, shuffle;
    const char *file;    /* NULL: train.txt */
    const char *command; /* NULL: none */
    bool saves;          /* it is saved in place of being stopped, and left */
    fleet_log_callback *log;
    void *log_user;

    /* what it is doing */
    scene s;
    int64_t seen, stop_at;
    fleet_train_result last;
} lesson;

static void begin_lesson(lesson *l)
{
    fleet_options o = {.seed = l->seed ? l->seed : 7,
                       .num_threads = 1,
                       .log_level = FLEET_LOG_WARNING,
                       .log = l->log,
                       .log_user = l->log_user};

    if (!l->file)
        l->file = scene_file("train.txt", SCENE_LINES, 1);
    scene_open_as(&l->s, &o, &l->how);
    if (l->command)
        scene_data_piped(&l->s, l->file, BATCH, l->command);
    else
        scene_data(&l->s, l->file, l->batch ? l->batch : BATCH,
                   l->threads ? l->threads : 1, l->shuffle);
    l->s.e = fleet_executor_create(l->s.p, NULL);
    CHECK(l->s.e != NULL);
}

static int on_batch(void *user, int64_t batch, int64_t samples)
{
    lesson *l = user;
    int64_t pass, at;

    CHECK_OK(fleet_dataset_position(l->s.data, &pass, &at));
    CHECK_INT(at, batch);
    CHECK(samples > 0);
    if (++l->seen != l->stop_at)
        return 0;
    if (l->saves)
        CHECK_OK(fleet_save_persistables(l->s.f, test_path("saved")));
    else
        fleet_train_stop();
    return l->saves;
}

/* The passes that are left; true: it was stopped. */
static bool run_lesson(lesson *l)
{
    const fleet_train_options o = {.on_batch = on_batch, .user = l};
    int64_t pass, batch;

    CHECK_OK(fleet_dataset_position(l->s.data, &pass, &batch));
    while (pass < PASSES) {
        CHECK_OK(fleet_train_from_dataset(l->s.e, l->s.data, &o, &l->last));
        if (l->last.stopped || (l->saves && l->seen == l->stop_at))
            return true;
        CHECK_INT(l->last.pass, pass++);
    }
    return false;
}

/* How it ends where nothing stops it. */
typedef struct ending {
    uint64_t hash;
    int64_t seen;
    fleet_train_result last;
} ending;

static ending undisturbed(lesson l)
{
    ending e;

    begin_lesson(&l);
    CHECK(!run_lesson(&l));
    e = (ending){scene_hash(&l.s), l.seen, l.last};
    scene_close(&l.s);
    return e;
}

static void check_ending(lesson *l, const ending *want)
{
    CHECK(scene_hash(&l->s) == want->hash);
    CHECK_INT(l->seen, want->seen);
    CHECK_INT(l->last.batches, want->last.batches);
    CHECK_INT(l->last.samples, want->last.samples);
    CHECK_INT(l->last.batch, want->last.batch);
    CHECK(memcmp(&l->last.loss, &want->last.loss, sizeof(double)) == 0);
}

/* Stop it at that batch of all, and go on in another handle. */
static void stop_and_resume(lesson l, int64_t stop_at, const ending *want)
{
    lesson later = l;

    l.stop_at = stop_at;
    begin_lesson(&l);
    CHECK(run_lesson(&l));
    if (!l.saves)
        CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    scene_close(&l.s);
    later.seen = l.seen;
    begin_lesson(&later);
    CHECK_OK(fleet_load_model(later.s.f, test_path("saved")));
    CHECK(!run_lesson(&later));
    check_ending(&later, want);
    scene_close(&later.s);
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

TEST(stopped_at_50_random_batches_it_ends_with_the_same_bits)
{
    const lesson l = {.how = {.decay = true, .clip = 0.5f}, .shuffle = 100};
    const ending want = undisturbed(l);
    unsigned state = 1;

    CHECK_INT(want.seen, PASSES * BATCHES);
    for (int i = 0; i < 50; i++)
        stop_and_resume(l, 1 + next_random(&state) % (PASSES * BATCHES - 1),
                        &want);
}

TEST(so_it_does_with_other_rules_merge_groups_threads_and_rows_in_fewer_bits)
{
    static const lesson all[] = {
        {.how = {.optimizer = "ftrl"}, .shuffle = 7},
        {.how = {.optimizer = "momentum", .layers = "lars"}, .shuffle = 1000},
        {.how = {.optimizer = KIT_ROW_ADAM, .embedding = "adagrad"}},
        {.how = {.optimizer = "momentum", .group = "adam"}, .shuffle = 20},
        {.how = {.merge = 4, .decay = true}, .shuffle = 50, .threads = 3},
        {.how = {.merge = 3}, .saves = false, .batch = 64},
        {.how = {.storage = FLEET_ROW_INT8}, .shuffle = 10},
        {.how = {.storage = FLEET_ROW_FLOAT16, .decay = true}, .threads = 2},
        {.how = {.decay = true}, .command = "sed s/0.5/0.25/"}};
    unsigned state = 2;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const ending want = undisturbed(all[i]);

        for (int j = 0; j < 2; j++)
            stop_and_resume(all[i], 1 + next_random(&state) % (want.seen - 4),
                            &want);
    }
}

TEST(a_save_in_the_middle_of_a_pass_is_as_good_as_a_stop)
{
    const lesson l = {.how = {.decay = true}, .shuffle = 100, .saves = true};
    const ending want = undisturbed(l);

    stop_and_resume(l, 1, &want);
    stop_and_resume(l, BATCHES, &want); /* the last one of a pass */
    stop_and_resume(l, BATCHES + 17, &want);
}

TEST(a_stopped_pass_goes_on_in_the_same_process)
{
    lesson l = {.how = {.decay = true}, .shuffle = 100};
    const ending want = undisturbed(l);

    l.stop_at = BATCHES + 5;
    begin_lesson(&l);
    CHECK(run_lesson(&l));
    CHECK_INT(l.last.pass, 1);
    CHECK_INT(l.last.batch, 5);
    CHECK_INT(l.last.batches, 5);
    CHECK(!run_lesson(&l));
    check_ending(&l, &want);
    scene_close(&l.s);
}

TEST(a_stop_waits_for_the_end_of_the_merge_group)
{
    lesson l = {.how = {.merge = 4}, .stop_at = 5};

    begin_lesson(&l);
    CHECK(run_lesson(&l));
    CHECK_INT(l.seen, 8);
    CHECK_INT(l.last.batch, 8);
    CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    scene_close(&l.s);
}

TEST(a_stop_before_a_pass_stops_it_before_its_first_batch_once)
{
    lesson l = {.shuffle = 20};
    const ending want = undisturbed(l);

    begin_lesson(&l);
    fleet_train_stop();
    fleet_train_stop();
    CHECK(run_lesson(&l));
    CHECK_INT(l.seen, 0);
    CHECK_INT(l.last.batch, 0);
    CHECK(!run_lesson(&l));
    check_ending(&l, &want);
    scene_close(&l.s);
    begin_lesson(&l); /* a handle of later */
    CHECK(!run_lesson(&l));
    scene_close(&l.s);
}

static void on_signal(int number)
{
    (void)number;
    fleet_train_stop();
}

static int raise_signal(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)samples;
    return batch == 3 ? raise(SIGUSR1) : 0;
}

TEST(a_signal_handler_may_stop_it)
{
    const fleet_train_options o = {.on_batch = raise_signal};
    lesson l = {.shuffle = 0};

    signal(SIGUSR1, on_signal);
    begin_lesson(&l);
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, &l.last));
    CHECK_INT(l.last.stopped, 1);
    CHECK_INT(l.last.batch, 3);
    scene_close(&l.s);
}

static void *stop_now(void *unused)
{
    (void)unused;
    fleet_train_stop();
    return NULL;
}

/* The command never ends: the pass waits for its next lines. */
static int stop_while_waiting(void *user, int64_t batch, int64_t samples)
{
    pthread_t *thread = user;

    (void)samples;
    if (batch == SCENE_LINES / BATCH)
        CHECK(pthread_create(thread, NULL, stop_now, NULL) == 0);
    return 0;
}

TEST(a_stop_ends_a_wait_for_data)
{
    pthread_t thread;
    const fleet_train_options o = {.on_batch = stop_while_waiting,
                                   .user = &thread};
    lesson l = {.command = "cat; sleep 1000"};

    begin_lesson(&l);
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, &l.last));
    CHECK_INT(l.last.stopped, 1);
    CHECK_INT(l.last.batch, SCENE_LINES / BATCH);
    pthread_join(thread, NULL);
    scene_close(&l.s);
}

/* --- other data ----------------------------------------------------------- */

static void save_stopped(lesson l)
{
    l.stop_at = BATCHES + 3;
    begin_lesson(&l);
    CHECK(run_lesson(&l));
    CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    scene_close(&l.s);
}

static void refuses(lesson l, const char *words)
{
    fleet_train_result r;

    begin_lesson(&l);
    CHECK_OK(fleet_load_model(l.s.f, test_path("saved")));
    CHECK_FAILS(fleet_train_from_dataset(l.s.e, l.s.data, NULL, &r),
                FLEET_EINVAL, words);
    CHECK_CONTAINS(fleet_last_error(), "pass 1, batch 3");
    CHECK_CONTAINS(fleet_last_error(), "FLEET_POSITION_ANEW");
    scene_close(&l.s);
}

TEST(other_data_are_refused_with_what_was_and_what_is)
{
    const lesson l = {.shuffle = 100};

    save_stopped(l);
    refuses((lesson){.shuffle = 100, .batch = 32},
            "batch_size was 16 and is 32.");
    refuses((lesson){.shuffle = 0}, "shuffle was 100 and is 0.");
    refuses((lesson){.shuffle = 100, .seed = 8}, "seed was 7 and is 8.");
    refuses((lesson){.shuffle = 100,
                     .file = scene_file("other.txt", SCENE_LINES, 1)},
            "the first file was \"train.txt\" and is \"other.txt\", the last "
            "file was");
    scene_file("train.txt", SCENE_LINES - 1, 1);
    refuses((lesson){.shuffle = 100, .file = test_path("train.txt")},
            "the size of all files was ");
}

TEST(a_load_may_begin_anew)
{
    const fleet_load_options anew = {.position = FLEET_POSITION_ANEW};
    lesson l = {.shuffle = 100};
    int64_t pass = -1, batch = -1;

    save_stopped(l);
    l.batch = 64;
    begin_lesson(&l);
    CHECK_OK(fleet_load_model_with(l.s.f, test_path("saved"), &anew));
    CHECK_OK(fleet_dataset_position(l.s.data, &pass, &batch));
    CHECK_INT(pass, 0);
    CHECK_INT(batch, 0);
    CHECK(!run_lesson(&l));
    CHECK_INT(l.last.batches, (SCENE_LINES + 63) / 64);
    scene_close(&l.s);
}

TEST(between_two_passes_files_may_change_and_the_passes_are_counted)
{
    lesson l = {.shuffle = 100};
    const fleet_train_options o = {.on_batch = NULL};
    int64_t pass = -1, batch = -1;

    begin_lesson(&l);
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, NULL));
    CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    scene_close(&l.s);
    l.file = scene_file("second.txt", SCENE_LINES, 2);
    begin_lesson(&l);
    CHECK_OK(fleet_load_model(l.s.f, test_path("saved")));
    CHECK_OK(fleet_dataset_position(l.s.data, &pass, &batch));
    CHECK_INT(pass, 1);
    CHECK_INT(batch, 0);
    scene_close(&l.s);
}

TEST(new_files_end_a_pass_that_was_stopped)
{
    lesson l = {.stop_at = 4};
    const char *file;
    int64_t pass, batch;

    begin_lesson(&l);
    CHECK(run_lesson(&l));
    file = scene_file("next.txt", 3 * BATCH, 2);
    CHECK_OK(fleet_dataset_set_filelist(l.s.data, &file, 1));
    CHECK_OK(fleet_dataset_position(l.s.data, &pass, &batch));
    CHECK_INT(pass, 1);
    CHECK_INT(batch, 0);
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, NULL, &l.last));
    CHECK_INT(l.last.batches, 3);
    scene_close(&l.s);
}

/* Two datasets, trained in turn: each goes on where it was. */
static fleet_dataset *second_data(lesson *l)
{
    fleet_dataset *first = l->s.data, *second;

    scene_data(&l->s, scene_file("second.txt", 5 * BATCH, 2), BATCH, 1, 30);
    second = l->s.data;
    l->s.data = first;
    return second;
}

TEST(each_of_two_datasets_goes_on_where_it_was)
{
    const fleet_train_options o = {.on_batch = on_batch};
    lesson l = {.shuffle = 100}, later = l;
    fleet_train_options stops = o;
    fleet_dataset *second;
    int64_t pass, batch;

    begin_lesson(&l);
    second = second_data(&l);
    CHECK_OK(fleet_train_from_dataset(l.s.e, second, NULL, NULL));
    l.stop_at = 6;
    stops.user = &l;
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &stops, &l.last));
    CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    scene_close(&l.s);

    begin_lesson(&later);
    second = second_data(&later);
    CHECK_OK(fleet_load_model(later.s.f, test_path("saved")));
    CHECK_OK(fleet_dataset_position(later.s.data, &pass, &batch));
    CHECK_INT(pass, 0);
    CHECK_INT(batch, 6);
    CHECK_OK(fleet_dataset_position(second, &pass, &batch));
    CHECK_INT(pass, 1);
    CHECK_INT(batch, 0);
    scene_close(&later.s);
}

/* --- the user's own ------------------------------------------------------- */

TEST(extra_bytes_come_with_a_load)
{
    const struct {
        double best;
        int patience;
        char zero, name[3];
    } mine = {0.125, 3, 0, "ab"};
    lesson l = {.shuffle = 0}, later = l;
    char *many = calloc(1, (1 << 20) + 1);
    size_t size = 9;

    begin_lesson(&l);
    CHECK(fleet_extra_get(l.s.f, &size) == NULL);
    CHECK_INT(size, 0);
    CHECK_OK(fleet_extra_set(l.s.f, many, 1 << 20));
    CHECK_FAILS(fleet_extra_set(l.s.f, many, (1 << 20) + 1), FLEET_EINVAL,
                "expected up to 1048576 bytes, got 1048577");
    CHECK_OK(fleet_extra_set(l.s.f, &mine, sizeof mine));
    CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    begin_lesson(&later);
    CHECK_OK(fleet_load_model(later.s.f, test_path("saved")));
    CHECK(fleet_extra_get(later.s.f, &size) != NULL);
    CHECK_INT(size, sizeof mine);
    CHECK(memcmp(fleet_extra_get(later.s.f, NULL), &mine, sizeof mine) == 0);
    CHECK_OK(fleet_extra_set(l.s.f, NULL, 5));
    CHECK_OK(fleet_save_persistables(l.s.f, test_path("saved")));
    CHECK_OK(fleet_load_model(later.s.f, test_path("saved")));
    CHECK(fleet_extra_get(later.s.f, &size) == NULL);
    scene_close(&l.s);
    scene_close(&later.s);
    free(many);
}

/* --- saves by itself ------------------------------------------------------ */

static bool has_checkpoint(int number)
{
    char name[40];

    snprintf(name, sizeof name, "all/checkpoint-%06d/manifest.json", number);
    return access(test_path(name), F_OK) == 0;
}

TEST(it_saves_every_so_many_steps_and_keeps_the_last_ones)
{
    fleet_save_every every = {
        .folder = test_path("all"), .steps = 10, .keep = 2};
    fleet_train_options o = {.save_every = &every};
    lesson l = {.how = {.decay = true}, .shuffle = 100}, later = l;
    const ending want = undisturbed(l);
    char *newest = NULL;

    CHECK_FAILS(fleet_newest_checkpoint(every.folder, &newest), FLEET_ENOENT,
                "there is no checkpoint");
    begin_lesson(&l);
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, NULL));
    CHECK(!has_checkpoint(1)); /* after 10, 20 and 30 of 38 batches */
    CHECK(has_checkpoint(2) && has_checkpoint(3) && !has_checkpoint(4));
    CHECK_OK(fleet_newest_checkpoint(every.folder, &newest));
    CHECK_TEXT(newest, test_path("all/checkpoint-000003"));
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, NULL));
    CHECK(has_checkpoint(6) && has_checkpoint(7) && !has_checkpoint(8));
    test_file("all/checkpoint-000009", "what cannot be read");
    fleet_free(newest);
    newest = NULL;
    CHECK_STATUS(fleet_newest_checkpoint(every.folder, &newest), FLEET_EIO);
    CHECK(newest == NULL);
    CHECK(unlink(test_path("all/checkpoint-000009")) == 0);
    newest = fl_strdup(test_path("all/checkpoint-000003"));
    scene_close(&l.s);

    later.seen = 30;
    begin_lesson(&later);
    CHECK_FAILS(fleet_load_model(later.s.f, newest), FLEET_ENOENT, "");
    fleet_free(newest);
    CHECK_OK(fleet_newest_checkpoint(every.folder, &newest));
    CHECK_OK(fleet_load_model(later.s.f, newest));
    later.seen = 70; /* the newest one has them */
    CHECK(!run_lesson(&later));
    check_ending(&later, &want);
    scene_close(&later.s);
    fleet_free(newest);
}

TEST(it_saves_after_a_stop_by_time_and_at_the_ends_of_merge_groups)
{
    fleet_save_every every = {.folder = test_path("all"), .seconds = 1e-9};
    fleet_train_options o = {.save_every = &every, .on_batch = on_batch};
    lesson l = {.how = {.merge = 4}, .stop_at = 10}, later = l;
    char *newest = NULL;
    int64_t pass, batch;

    begin_lesson(&l);
    o.user = &l;
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, &l.last));
    CHECK_INT(l.last.batch, 12);
    CHECK_OK(fleet_newest_checkpoint(every.folder, &newest));
    CHECK_TEXT(newest, test_path("all/checkpoint-000003"));
    scene_close(&l.s);
    begin_lesson(&later);
    CHECK_OK(fleet_load_model(later.s.f, newest));
    CHECK_OK(fleet_dataset_position(later.s.data, &pass, &batch));
    CHECK_INT(batch, 12);
    scene_close(&later.s);
    fleet_free(newest);
}

/* One that fails, then one that does not. */
typedef struct disk {
    int saves, fails;
} disk;

static fleet_status save_or_fail(void *user, fleet *f, const char *path)
{
    disk *d = user;

    if (++d->saves > d->fails)
        return fleet_save_persistables(f, path);
    return fleet_save_persistables(f, "/proc/there/is/no/such");
}

TEST(a_save_that_the_disk_refuses_ends_no_training_but_is_said_after_a_stop)
{
    disk d = {.fails = 2};
    fleet_save_every every = {.folder = test_path("all"),
                              .steps = 15,
                              .save = save_or_fail,
                              .user = &d};
    fleet_train_options o = {.save_every = &every};
    lesson l = {.shuffle = 0};

    begin_lesson(&l);
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, &l.last));
    CHECK_INT(d.saves, 2);
    CHECK(!has_checkpoint(1));
    d.fails = 3;
    fleet_train_stop();
    CHECK_STATUS(fleet_train_from_dataset(l.s.e, l.s.data, &o, &l.last),
                 FLEET_EIO);
    CHECK_INT(l.last.stopped, 1);
    fleet_train_stop();
    CHECK_OK(fleet_train_from_dataset(l.s.e, l.s.data, &o, &l.last));
    CHECK(has_checkpoint(1));
    scene_close(&l.s);
}

TEST(what_save_every_cannot_be_is_refused)
{
    fleet_save_every every = {.steps = 1};
    fleet_train_options o = {.save_every = &every};
    lesson l = {.shuffle = 0};

    begin_lesson(&l);
    CHECK_FAILS(fleet_train_from_dataset(l.s.e, l.s.data, &o, NULL),
                FLEET_EINVAL, "save_every: expected a folder");
    every = (fleet_save_every){.folder = "x", .keep = -1};
    CHECK_FAILS(fleet_train_from_dataset(l.s.e, l.s.data, &o, NULL),
                FLEET_EINVAL, "got x, 0, 0, -1 and 0");
    scene_close(&l.s);
}
