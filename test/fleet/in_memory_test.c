/* in_memory_test.c - in-memory datasets: trainings from memory have the bits of
 * trainings from files in the same order, also where they are stopped and go
 * on; what cannot be is refused by name. */
#define SUITE in_memory
#include "model_kit.h"
#include "test.h"
#include "watch_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/job/dataset.h"

enum { BATCH = 32, LINES = 200 };

static const fleet_options quiet = {
    .seed = 7, .num_threads = 1, .log_level = FLEET_LOG_ERROR};

static uint64_t hash_and_close(scene *s)
{
    const uint64_t hash = scene_hash(s);

    scene_close(s);
    return hash;
}

static void open_in_memory(scene *s, const char *file, int threads)
{
    scene_open(s, &quiet, "adagrad");
    scene_data_in_memory(s, file, BATCH, threads);
}

static uint64_t hash_of_files(const char *file, int passes)
{
    scene s;

    scene_open(&s, &quiet, "adagrad");
    scene_data(&s, file, BATCH, 1, 0);
    scene_train(&s, passes);
    return hash_and_close(&s);
}

/* The pass-th pass of a new dataset, which shuffles before each: the lines'
 * numbers, which a slot of ids has. */
static void read_order(int64_t *to, int passes, uint64_t seed)
{
    const fleet_slot slot = {.name = "n", .dtype = FLEET_INT64};
    const fleet_options o = {.seed = seed, .log_level = FLEET_LOG_ERROR};
    const fleet_dataset_options data = {
        .slots = &slot, .n_slot = 1, .batch_size = LINES};
    char text[LINES * 8], *at = text;
    const char *path;
    fl_stream *stream;
    fleet_dataset *d;
    fl_batch *b;
    fleet *f;

    for (int i = 0; i < LINES; i++)
        at += sprintf(at, "1 %d\n", i);
    path = test_file("numbers", text);
    CHECK_OK(fleet_init(&f, &o));
    d = fleet_in_memory_dataset(f, &data);
    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    CHECK_OK(fleet_dataset_load_into_memory(d));
    for (int pass = 0; pass < passes; pass++) {
        CHECK_OK(fleet_dataset_local_shuffle(d));
        CHECK_OK(fl_dataset_open(d, true, NULL, &stream));
        CHECK_OK(fl_stream_next(stream, &b));
        CHECK_INT(b->rows, LINES);
        memcpy(to, b->slot[0].values, LINES * sizeof *to);
        fl_stream_release(stream, b);
        fl_stream_close(stream);
        d->at.pass++;
    }
    fleet_destroy(f);
}

/* The file with its lines in that order. */
static const char *reordered(const char *file, const int64_t *order)
{
    char *text, *line[LINES], *out, *to;
    const char *path;
    size_t size;

    CHECK_OK(fl_file_read(file, &text, &size));
    for (int i = 0; i < LINES; i++)
        line[i] = strtok(i ? NULL : text, "\n");
    to = out = malloc(size + LINES + 1);
    for (int i = 0; i < LINES; i++)
        to += sprintf(to, "%s\n", line[order[i]]);
    path = test_file("reordered.txt", out);
    free(out);
    fl_free(text);
    return path;
}

TEST(a_training_from_memory_has_the_bits_of_one_from_files)
{
    const char *file = scene_file("train.txt", LINES, 1);
    const uint64_t want = hash_of_files(file, 2);
    scene s;

    for (int threads = 1; threads <= 2; threads++) {
        open_in_memory(&s, file, threads);
        scene_train(&s, 2);
        CHECK(hash_and_close(&s) == want);
    }
}

TEST(a_shuffled_one_has_those_of_files_in_that_order)
{
    const char *file = scene_file("train.txt", LINES, 1);
    static int64_t order[LINES];
    uint64_t want;
    scene s;

    read_order(order, 1, 7);
    want = hash_of_files(reordered(file, order), 1);
    open_in_memory(&s, file, 2);
    CHECK_OK(fleet_dataset_local_shuffle(s.data));
    CHECK_OK(fleet_dataset_local_shuffle(s.data)); /* is the same one */
    scene_train(&s, 1);
    CHECK(hash_and_close(&s) == want);
}

TEST(each_pass_and_each_seed_has_an_order_of_its_own)
{
    static int64_t a[LINES], b[LINES], c[LINES];

    read_order(a, 1, 7);
    read_order(b, 2, 7);
    read_order(c, 1, 8);
    CHECK(memcmp(a, b, sizeof a) != 0);
    CHECK(memcmp(a, c, sizeof a) != 0);
    read_order(c, 2, 7);
    CHECK(memcmp(b, c, sizeof b) == 0);
}

/* --- stopped -------------------------------------------------------------- */

static int stop_at_third(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)samples;
    if (batch == 3)
        fleet_train_stop();
    return 0;
}

static void train_shuffled(scene *s, int64_t passes,
                           const fleet_train_options *o)
{
    int64_t pass, batch;

    CHECK_OK(fleet_dataset_position(s->data, &pass, &batch));
    for (; pass < passes; pass++) {
        CHECK_OK(fleet_dataset_local_shuffle(s->data));
        CHECK_OK(fleet_train_from_dataset(s->e, s->data, o, NULL));
    }
}

/* Pass 1 is stopped behind its third batch and saved. */
static void save_stopped(const char *file)
{
    const fleet_train_options stopping = {.on_batch = stop_at_third};
    scene s;

    open_in_memory(&s, file, 1);
    s.e = fleet_executor_create(s.p, NULL);
    train_shuffled(&s, 1, NULL);
    CHECK_OK(fleet_dataset_local_shuffle(s.data));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stopping, NULL));
    CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
    scene_close(&s);
}

static void open_saved(scene *s, const char *file)
{
    open_in_memory(s, file, 1);
    s->e = fleet_executor_create(s->p, NULL);
    CHECK_OK(fleet_load_model(s->f, test_path("saved")));
}

TEST(a_stopped_pass_goes_on_in_its_order_in_another_process)
{
    const char *file = scene_file("train.txt", LINES, 1);
    uint64_t want;
    scene s;

    open_in_memory(&s, file, 1);
    s.e = fleet_executor_create(s.p, NULL);
    train_shuffled(&s, 3, NULL);
    want = hash_and_close(&s);
    save_stopped(file);
    open_saved(&s, file);
    train_shuffled(&s, 3, NULL);
    CHECK(hash_and_close(&s) == want);
}

/* The order of pass 0 is that of pass 1, too, where nobody shuffles again. */
TEST(a_stopped_pass_goes_on_in_the_order_of_a_pass_before)
{
    const fleet_train_options stopping = {.on_batch = stop_at_third};
    const char *file = scene_file("train.txt", LINES, 1);
    uint64_t want = 0;
    scene s;

    for (int stops = 0; stops < 2; stops++) {
        open_in_memory(&s, file, 1);
        s.e = fleet_executor_create(s.p, NULL);
        train_shuffled(&s, 1, NULL);
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, stops ? &stopping : NULL,
                                          NULL));
        if (!stops) {
            want = hash_and_close(&s);
            continue;
        }
        CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
        scene_close(&s);
    }
    open_saved(&s, file);
    train_shuffled(&s, 2, NULL);
    CHECK(hash_and_close(&s) == want);
}

TEST(a_stopped_pass_in_another_order_is_refused)
{
    const char *file = scene_file("train.txt", LINES, 1);
    scene s;

    save_stopped(file);
    open_saved(&s, file);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_EINVAL,
                "in the order {\"local_shuffle\":1}, and they are in the order "
                "of the files");
    scene_close(&s);
    scene_open(&s, &quiet, "adagrad");
    scene_data(&s, file, BATCH, 1, 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_EINVAL,
                "shuffled in memory: expected an in-memory dataset");
    scene_close(&s);
}

TEST(a_stopped_pass_goes_on_over_the_same_files_loaded_again)
{
    const fleet_train_options stopping = {.on_batch = stop_at_third};
    const char *file = scene_file("train.txt", LINES, 1);
    const char *other = scene_file("other.txt", LINES, 2);
    const uint64_t want = hash_of_files(file, 1);
    int64_t pass, batch;
    scene s;

    open_in_memory(&s, file, 1);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stopping, NULL));
    CHECK_OK(fleet_dataset_release_memory(s.data));
    CHECK_OK(fleet_dataset_load_into_memory(s.data));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
    CHECK(scene_hash(&s) == want);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stopping, NULL));
    CHECK_OK(fleet_dataset_set_filelist(s.data, &other, 1));
    CHECK_OK(fleet_dataset_position(s.data, &pass, &batch));
    CHECK(pass == 1 && batch == 3);
    CHECK_OK(fleet_dataset_load_into_memory(s.data));
    CHECK_OK(fleet_dataset_position(s.data, &pass, &batch));
    CHECK(pass == 2 && batch == 0);
    scene_close(&s);
}

static void check_sizes(fleet_dataset *d, int64_t loaded, int64_t shuffled)
{
    int64_t n = -1;

    for (int all = 0; all < 2; all++) {
        CHECK_OK(fleet_dataset_get_memory_data_size(d, all, &n));
        CHECK_INT(n, loaded);
        CHECK_OK(fleet_dataset_get_shuffle_data_size(d, all, &n));
        CHECK_INT(n, shuffled);
    }
}

/* --- preloaded ------------------------------------------------------------ */

static int load_more(void *user, int64_t batch, int64_t samples)
{
    (void)samples;
    if (batch == 1)
        CHECK_OK(fleet_dataset_preload_into_memory(user));
    return 0;
}

TEST(the_next_files_are_read_while_these_train)
{
    const char *days[] = {scene_file("monday.txt", LINES, 1),
                          scene_file("tuesday.txt", LINES, 2)};
    fleet_train_options o = {.on_batch = load_more};
    uint64_t want;
    scene s;

    scene_open(&s, &quiet, "adagrad");
    scene_data(&s, days[0], BATCH, 1, 0);
    scene_train(&s, 1);
    CHECK_OK(fleet_dataset_set_filelist(s.data, &days[1], 1));
    scene_train(&s, 1);
    want = hash_and_close(&s);
    open_in_memory(&s, days[0], 2);
    s.e = fleet_executor_create(s.p, NULL);
    o.user = s.data;
    CHECK_OK(fleet_dataset_set_filelist(s.data, &days[1], 1));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
    CHECK_FAILS(fleet_dataset_load_into_memory(s.data), FLEET_ESTATE,
                "files are being read into memory");
    CHECK_STATUS(fleet_dataset_preload_into_memory(s.data), FLEET_ESTATE);
    CHECK_OK(fleet_dataset_wait_preload_done(s.data));
    CHECK_STATUS(fleet_dataset_wait_preload_done(s.data), FLEET_ESTATE);
    scene_train(&s, 1);
    CHECK(hash_and_close(&s) == want);
}

TEST(a_preload_that_fails_leaves_what_there_was)
{
    const char *bad = test_file("bad.txt", "1 1\n1 x\n");
    scene s;

    open_in_memory(&s, scene_file("train.txt", LINES, 1), 1);
    CHECK_OK(fleet_dataset_set_filelist(s.data, &bad, 1));
    CHECK_OK(fleet_dataset_preload_into_memory(s.data));
    CHECK_FAILS(fleet_dataset_wait_preload_done(s.data), FLEET_EFORMAT,
                "bad.txt:1:");
    check_sizes(s.data, LINES, 0);
    CHECK_OK(fleet_dataset_preload_into_memory(s.data));
    scene_close(&s); /* while it reads */
}

/* --- slots ---------------------------------------------------------------- */

/* Of all samples y and n; n is their number in the file. */
static void read_pairs(fleet_dataset *d, float *y, int64_t *n)
{
    fl_stream *stream;
    fl_batch *b;

    CHECK_OK(fl_dataset_open(d, false, NULL, &stream));
    CHECK_OK(fl_stream_next(stream, &b));
    CHECK_INT(b->rows, LINES);
    memcpy(y, b->slot[0].values, LINES * sizeof *y);
    memcpy(n, b->slot[1].values, LINES * sizeof *n);
    fl_stream_release(stream, b);
    fl_stream_close(stream);
}

TEST(slots_that_are_shuffled_have_values_of_other_samples)
{
    const fleet_slot slots[] = {{.name = "y"},
                                {.name = "n", .dtype = FLEET_INT64}};
    const fleet_dataset_options o = {
        .slots = slots, .n_slot = 2, .batch_size = LINES};
    const char *names[] = {"y", "z"};
    char text[LINES * 16], *to = text;
    static int64_t n[LINES];
    static float y[LINES];
    bool seen[LINES] = {false};
    const char *path;
    fleet_dataset *d;
    int same = 0;
    fleet *f;

    for (int i = 0; i < LINES; i++)
        to += sprintf(to, "1 %d 1 %d\n", i, i);
    path = test_file("pairs", text);
    CHECK_OK(fleet_init(&f, &quiet));
    d = fleet_in_memory_dataset(f, &o);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    CHECK_OK(fleet_dataset_load_into_memory(d));
    CHECK_FAILS(fleet_dataset_slots_shuffle(d, names, 2), FLEET_ENOENT,
                "the dataset has no slot \"z\"");
    CHECK_OK(fleet_dataset_slots_shuffle(d, names, 1));
    read_pairs(d, y, n);
    for (int i = 0; i < LINES; i++) {
        const int value = (int)y[i];

        CHECK_INT(n[i], i);
        CHECK(value >= 0 && value < LINES && !seen[value]);
        seen[value] = true;
        same += value == i;
    }
    CHECK(same < 10);
    CHECK_OK(fleet_dataset_slots_shuffle(d, NULL, 0));
    read_pairs(d, y, n);
    for (int i = 0; i < LINES; i++)
        CHECK(y[i] == (float)i);
    fleet_destroy(f);
}

/* --- sizes, and what is refused ------------------------------------------- */

TEST(sizes_are_numbers_of_samples)
{
    scene s;
    int64_t n;

    open_in_memory(&s, scene_file("train.txt", LINES, 1), 1);
    check_sizes(s.data, LINES, 0);
    CHECK_OK(fleet_dataset_local_shuffle(s.data));
    check_sizes(s.data, LINES, LINES);
    CHECK_OK(fleet_dataset_release_memory(s.data));
    CHECK_FAILS(fleet_dataset_get_memory_data_size(s.data, 0, &n), FLEET_ESTATE,
                "fleet_dataset_get_memory_data_size: there are no samples in "
                "memory: call fleet_dataset_load_into_memory()");
    CHECK_OK(fleet_dataset_load_into_memory(s.data));
    check_sizes(s.data, LINES, 0);
    scene_close(&s);
}

static int release_now(void *user, int64_t batch, int64_t samples)
{
    fleet_dataset *d = user;

    (void)batch;
    (void)samples;
    CHECK_FAILS(fleet_dataset_release_memory(d), FLEET_ESTATE,
                "a pass over the samples is under way");
    CHECK_STATUS(fleet_dataset_local_shuffle(d), FLEET_ESTATE);
    CHECK_STATUS(fleet_dataset_load_into_memory(d), FLEET_ESTATE);
    return 1;
}

TEST(samples_stay_while_a_pass_has_them)
{
    fleet_train_options o = {.on_batch = release_now};
    scene s;

    open_in_memory(&s, scene_file("train.txt", LINES, 1), 1);
    s.e = fleet_executor_create(s.p, NULL);
    o.user = s.data;
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
    CHECK_OK(fleet_dataset_release_memory(s.data));
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_ESTATE,
                "no samples in memory: call fleet_dataset_load_into_memory()");
    scene_close(&s);
}

TEST(what_is_no_dataset_in_memory_is_refused)
{
    const fleet_slot slot = {.name = "n", .dtype = FLEET_INT64};
    fleet_dataset_options o = {.slots = &slot, .n_slot = 1, .shuffle = 5};
    fleet_dataset *d;
    fleet *f;

    CHECK_OK(fleet_init(&f, &quiet));
    CHECK(!fleet_in_memory_dataset(f, &o));
    CHECK_CONTAINS(fleet_last_error(), "shuffle: expected 0, got 5");
    o.shuffle = 0;
    o.memory_limit = -1;
    CHECK(!fleet_in_memory_dataset(f, &o));
    CHECK_CONTAINS(fleet_last_error(),
                   "memory_limit: expected 0 or more bytes");
    o.memory_limit = 5;
    CHECK(!fleet_queue_dataset(f, &o));
    CHECK_CONTAINS(fleet_last_error(), "memory_limit: expected 0, as it keeps");
    d = fleet_in_memory_dataset(f, &o);
    CHECK_FAILS(fleet_dataset_load_into_memory(d), FLEET_ESTATE,
                "the dataset has no files");
    o.memory_limit = 0;
    d = fleet_queue_dataset(f, &o);
    CHECK_FAILS(fleet_dataset_local_shuffle(d), FLEET_ESTATE,
                "fleet_dataset_local_shuffle: a queue dataset has no samples "
                "in memory");
    fleet_destroy(f);
}

/* The line that an id is of is known in memory, too. */
TEST(an_id_out_of_bounds_has_its_file_and_line)
{
    const char *path = test_file("ids", "1 1 1 2\n\n1 0 1 77\n");
    fleet_slot slots[] = {{.name = "y", .dtype = FLEET_FLOAT32},
                          {.name = "n", .dtype = FLEET_INT64}};
    const fleet_dataset_options o = {.slots = slots, .n_slot = 2};
    const fl_slot_bounds bounds[2] = {{0}, {.ids_below = 10}};
    fl_stream *stream;
    fleet_dataset *d;
    fl_batch *b;
    fleet *f;

    CHECK_OK(fleet_init(&f, &quiet));
    d = fleet_in_memory_dataset(f, &o);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    CHECK_OK(fleet_dataset_load_into_memory(d));
    CHECK_OK(fl_dataset_open(d, true, bounds, &stream));
    CHECK_OK(fl_stream_next(stream, &b));
    fl_stream_release(stream, b);
    CHECK_FAILS(fl_stream_next(stream, &b), FLEET_EFORMAT, "ids:3: slot \"n\"");
    fl_stream_close(stream);
    fleet_destroy(f);
}

/* The numbers of a pass's samples in one text, and how it ends. */
static fleet_status read_ids(fleet_dataset *d, char *to, int64_t *bad)
{
    const fl_slot_bounds bounds[2] = {{0}, {.ids_below = 10}};
    fleet_status status;
    fl_stream *stream;
    fl_batch *b;

    *to = 0;
    CHECK_OK(fl_dataset_open(d, true, bounds, &stream));
    while ((status = fl_stream_next(stream, &b)) == FLEET_OK) {
        for (int64_t i = 0; i < b->rows; i++)
            to += sprintf(to, "%d ", (int)((int64_t *)b->slot[1].values)[i]);
        fl_stream_release(stream, b);
    }
    *bad = fl_stream_bad_lines(stream);
    fl_stream_close(stream);
    return status;
}

static fleet_dataset *open_bad(fleet *f, int64_t most, bool in_memory)
{
    const char *path = test_file("ids", "1 1 1 2\n1 0 1 x\n1 0 1 77\n"
                                        "1 0 1 88\n1 1 1 3\n1 0 1 4\n");
    const fleet_slot slots[] = {{.name = "y", .dtype = FLEET_FLOAT32},
                                {.name = "n", .dtype = FLEET_INT64}};
    const fleet_dataset_options o = {
        .slots = slots, .n_slot = 2, .max_bad_lines = most};
    fleet_dataset *d =
        in_memory ? fleet_in_memory_dataset(f, &o) : fleet_queue_dataset(f, &o);

    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    if (in_memory)
        CHECK_OK(fleet_dataset_load_into_memory(d));
    return d;
}

/* One cannot be parsed, two have ids that the model refuses: of all the budget
 * is one, in each pass, as that of files is. */
TEST(lines_that_the_model_refuses_are_left_out_of_memory_too)
{
    char ids[100];
    int64_t bad;
    fleet *f;

    CHECK_OK(fleet_init(&f, &quiet));
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        fleet_dataset *d = open_bad(f, 3, in_memory);

        for (int pass = 0; pass < 2; pass++) {
            CHECK_STATUS(read_ids(d, ids, &bad), FLEET_EEND);
            CHECK_TEXT(ids, "2 3 4 ");
            CHECK_INT(bad, 3);
        }
        d->at.batch = 1; /* the first one that has a sample */
        CHECK_STATUS(read_ids(d, ids, &bad), FLEET_EEND);
        CHECK_TEXT(ids, "3 4 ");
        CHECK_INT(bad, 3);
        d = open_bad(f, 2, in_memory);
        CHECK_STATUS(read_ids(d, ids, &bad), FLEET_EFORMAT);
        CHECK_CONTAINS(fleet_last_error(),
                       "3 bad lines, of which max_bad_lines lets 2 be left "
                       "out: ");
        CHECK_CONTAINS(fleet_last_error(), "ids:4: slot \"n\"");
        CHECK_TEXT(ids, "2 ");
    }
    fleet_destroy(f);
}

TEST(a_worker_has_its_share_and_no_pass_for_test)
{
    const fleet_role role = {.kind = FLEET_WORKER, .index = 1, .worker_num = 2};
    const fleet_options o = {.role = &role, .log_level = FLEET_LOG_ERROR};
    const fleet_slot slot = {.name = "n", .dtype = FLEET_INT64};
    const fleet_dataset_options data = {
        .slots = &slot, .n_slot = 1, .batch_size = 2};
    const char *path = test_file("n", "1 0\n1 1\n1 2\n1 3\n1 4\n1 5\n1 6\n");
    fl_stream *stream;
    fleet_dataset *d;
    fl_batch *b;
    int64_t n;
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    d = fleet_in_memory_dataset(f, &data);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    CHECK_OK(fleet_dataset_load_into_memory(d));
    CHECK_OK(fleet_dataset_get_memory_data_size(d, 0, &n));
    CHECK_INT(n, 3);
    CHECK_OK(fl_dataset_open(d, true, NULL, &stream));
    CHECK_OK(fl_stream_next(stream, &b));
    CHECK_INT(((int64_t *)b->slot[0].values)[1], 3);
    fl_stream_release(stream, b);
    CHECK_OK(fl_stream_next(stream, &b));
    CHECK_INT(b->rows, 1);
    CHECK_INT(((int64_t *)b->slot[0].values)[0], 6);
    fl_stream_release(stream, b);
    fl_stream_close(stream);
    CHECK_FAILS(fl_dataset_open(d, false, NULL, &stream), FLEET_EUNSUPPORTED,
                "memory has the share of worker 1 of 2");
    fleet_destroy(f);
}

/* --- by configurations ---------------------------------------------------- */

static const char *hash_in(char *line)
{
    const char *hash = test_keep(test_json_value(line, "params_hash"));

    fleet_free(line);
    return hash;
}

TEST(a_configuration_trains_from_memory)
{
    const char *in_order[] = {"dataset.shuffle=0", NULL};
    const char *held[] = {"dataset.shuffle=0", "dataset.in_memory=true", NULL};
    const char *local[] = {"dataset.shuffle=0", "dataset.in_memory=true",
                           "dataset.memory_shuffle=local",
                           "dataset.memory_limit=1000000", NULL};
    const char *want = hash_in(watch_train(in_order));

    CHECK_TEXT(hash_in(watch_train(held)), want);
    CHECK_CONTAINS(watch_said, "dataset: 100 samples in memory");
    CHECK(strcmp(hash_in(watch_train(local)), want) != 0);
}

TEST(a_configuration_that_contradicts_itself_is_refused)
{
    watch_refuse("dataset.in_memory=true", NULL,
                 "dataset.shuffle: expected 0: with in_memory there is "
                 "memory_shuffle for it");
    watch_refuse("dataset.memory_shuffle=local", NULL,
                 "dataset.memory_shuffle: expected nothing: in_memory is not "
                 "true");
    watch_refuse("dataset.memory_limit=1", NULL, "in_memory is not true");
}

/* With checkpoints of all batches, 4 an epoch, as if a crash had come behind
 * the sixth. */
TEST(a_configurations_epoch_goes_on_in_its_order)
{
    const char *set[] = {"dataset.shuffle=0",
                         "dataset.in_memory=true",
                         "dataset.memory_shuffle=local",
                         watch_path("save_every.folder", "all"),
                         "save_every.steps=1",
                         "save_every.keep=100",
                         NULL};
    const char *want = hash_in(watch_train(set));

    watch_forget(6);
    watch_resumes = 1;
    CHECK_TEXT(hash_in(watch_train(set)), want);
    CHECK_CONTAINS(watch_said, "goes on in pass 1 after batch 2");
}
