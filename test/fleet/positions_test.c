/* positions_test.c - where a dataset goes on after a load: asking takes it from
 * none, passes over other files are said, damaged checkpoints are passed over,
 * and a folder that cannot be made is known before the first batch. */
#define SUITE positions
#include "model_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char said[20000]; /* warnings of all handles */

static void hear(void *user, fleet_log_level level, const char *line)
{
    const size_t n = strlen(said);

    (void)user;
    if (level == FLEET_LOG_WARNING)
        snprintf(said + n, sizeof said - n, "%s\n", line);
}

static void open_scene(scene *s, const char *file, int64_t shuffle)
{
    const fleet_options o = {.seed = 7, .num_threads = 1, .log = hear};

    *said = 0;
    scene_open(s, &o, "sgd");
    scene_data(s, file, 32, 1, shuffle);
}

static fleet_dataset *test_data_of(scene *s)
{
    fleet_dataset *train = s->data, *test;

    scene_data(s, scene_file("test.txt", 40, 2), 32, 1, 0);
    test = s->data;
    s->data = train;
    return test;
}

static void check_position(fleet_dataset *d, int64_t want_pass,
                           int64_t want_batch)
{
    int64_t pass = -1, batch = -1;

    CHECK_OK(fleet_dataset_position(d, &pass, &batch));
    CHECK_INT(pass, want_pass);
    CHECK_INT(batch, want_batch);
}

static void train_and_save(const char *file, int64_t shuffle, int passes)
{
    scene s;

    open_scene(&s, file, shuffle);
    scene_train(&s, passes);
    CHECK_OK(fleet_save_persistables(s.f, test_path("saved")));
    scene_close(&s);
}

/* --- who goes on ---------------------------------------------------------- */

TEST(asking_for_a_tests_position_takes_none_from_the_training)
{
    const char *file = scene_file("train.txt", 100, 1);
    fleet_dataset *test;
    scene s;

    train_and_save(file, 50, 3);
    open_scene(&s, file, 50);
    test = test_data_of(&s);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    check_position(test, 0, 0);
    check_position(s.data, 3, 0);
    check_position(test, 0, 0);
    CHECK_TEXT(said, "");
    scene_train(&s, 1);
    check_position(s.data, 4, 0);
    CHECK_OK(fleet_save_persistables(s.f, test_path("again")));
    scene_close(&s);

    open_scene(&s, file, 50); /* which has been asked is in no save */
    CHECK_OK(fleet_load_model(s.f, test_path("again")));
    check_position(s.data, 4, 0);
    scene_close(&s);
}

static int end_here(void *user, int64_t batch, int64_t samples)
{
    scene *s = user;

    (void)batch;
    (void)samples;
    CHECK_OK(fleet_save_persistables(s->f, test_path("saved")));
    return 1;
}

TEST(so_it_is_in_the_middle_of_a_pass)
{
    const char *file = scene_file("train.txt", 100, 1);
    fleet_dataset *test;
    scene s;
    const fleet_train_options o = {.on_batch = end_here, .user = &s};

    open_scene(&s, file, 50);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
    scene_close(&s);
    open_scene(&s, file, 50);
    test = test_data_of(&s);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    check_position(test, 0, 0);
    check_position(s.data, 0, 1);
    scene_close(&s);
}

TEST(passes_over_other_files_count_with_a_warning)
{
    const char *file = scene_file("monday.txt", 100, 1);
    const fleet_load_options anew = {.position = FLEET_POSITION_ANEW};
    scene s;

    train_and_save(file, 0, 2);
    open_scene(&s, file, 0);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    check_position(s.data, 2, 0);
    CHECK_TEXT(said, "");
    scene_close(&s);

    file = scene_file("tuesday.txt", 100, 2);
    open_scene(&s, file, 0);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    check_position(s.data, 2, 0);
    CHECK_CONTAINS(said, "the passes of the save that was loaded count (2), "
                         "though they are of other files: the first file was "
                         "\"monday.txt\" and is \"tuesday.txt\"");
    CHECK_CONTAINS(said, "FLEET_POSITION_ANEW, \"anew\" in a configuration");
    *said = 0;
    check_position(s.data, 2, 0);
    CHECK_TEXT(said, ""); /* once is enough */
    CHECK_OK(fleet_load_model_with(s.f, test_path("saved"), &anew));
    check_position(s.data, 0, 0);
    scene_close(&s);
}

/* Three files, of which the one in the middle has another name. */
TEST(files_that_differ_in_the_middle_are_said_in_words)
{
    const char *files[] = {scene_file("a.txt", 40, 1),
                           scene_file("b.txt", 40, 1),
                           scene_file("z.txt", 40, 1)};
    scene s;
    const fleet_train_options o = {.on_batch = end_here, .user = &s};

    open_scene(&s, files[0], 0);
    CHECK_OK(fleet_dataset_set_filelist(s.data, files, 3));
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
    scene_close(&s);
    files[1] = scene_file("c.txt", 40, 1);
    open_scene(&s, files[0], 0);
    CHECK_OK(fleet_dataset_set_filelist(s.data, files, 3));
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_EINVAL,
                "has: names or sizes of files between the first and the last "
                "are others. To begin");
    CHECK_CONTAINS(fleet_last_error(), "\"position\": \"anew\"");
    CHECK_CONTAINS(fleet_last_error(), "without --resume");
    scene_close(&s);
}

typedef struct reading {
    int64_t max_bad_lines;
    bool in_memory;
} reading;

static void open_reading(scene *s, const char *file, const reading *how)
{
    const fleet_options o = {.seed = 7, .num_threads = 1, .log = hear};

    scene_open(s, &o, "sgd");
    scene_data_as(s, file,
                  (fleet_dataset_options){.batch_size = 32,
                                          .max_bad_lines = how->max_bad_lines},
                  how->in_memory);
    s->e = fleet_executor_create(s->p, NULL);
}

/* What says which batches count, and of which lines they are; how many lines
 * may be bad says neither. */
TEST(a_pass_goes_on_only_with_what_becomes_of_bad_lines)
{
    static const reading how[] = {{0, false}, {5, false}, {5, true}};
    static const char *const words[] = {"is not given",
                                        "is \"left out of batches\"",
                                        "is \"left out of memory\""};
    const char *file = scene_file("train.txt", 100, 1);
    scene s;
    const fleet_train_options o = {.on_batch = end_here, .user = &s};

    for (int was = 0; was < 3; was++)
        for (int is = 0; is < 3; is++) {
            reading other = how[is];

            open_reading(&s, file, &how[was]);
            CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
            scene_close(&s);
            other.max_bad_lines += other.max_bad_lines > 0;
            open_reading(&s, file, &other);
            CHECK_OK(fleet_load_model(s.f, test_path("saved")));
            if (was == is) {
                CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
            } else {
                CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL),
                            FLEET_EINVAL,
                            "other data than this dataset has: "
                            "max_bad_lines was ");
                CHECK_CONTAINS(fleet_last_error(), words[is]);
            }
            scene_close(&s);
        }
}

/* --- checkpoints ---------------------------------------------------------- */

static const char *manifest_of(int number)
{
    char name[60];

    snprintf(name, sizeof name, "all/checkpoint-%06d/manifest.json", number);
    return test_path(name);
}

static void damage(int number)
{
    FILE *file = fopen(manifest_of(number), "r+");

    CHECK(file && fputc('#', file) == '#' && fclose(file) == 0);
}

TEST(a_damaged_checkpoint_is_passed_over_for_the_one_before_it)
{
    fleet_save_every every = {.folder = test_path("all"), .steps = 1};
    const fleet_train_options o = {.save_every = &every};
    char *path;
    scene s;

    open_scene(&s, scene_file("train.txt", 100, 1), 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, NULL));
    scene_close(&s);
    CHECK_OK(fleet_newest_checkpoint(every.folder, &path));
    CHECK_CONTAINS(path, "checkpoint-000004");
    fleet_free(path);
    damage(4);
    CHECK_OK(fleet_newest_checkpoint(every.folder, &path));
    CHECK_CONTAINS(path, "checkpoint-000003");
    fleet_free(path);
    CHECK(unlink(manifest_of(3)) == 0);
    CHECK_OK(fleet_newest_checkpoint(every.folder, &path));
    CHECK_CONTAINS(path, "checkpoint-000002");
    fleet_free(path);
    damage(2);
    CHECK_FAILS(fleet_newest_checkpoint(every.folder, &path), FLEET_ECORRUPT,
                "all: no checkpoint is whole; the last one that was tried");
    CHECK_CONTAINS(fleet_last_error(), "checkpoint-000002");
}

TEST(a_folder_that_cannot_be_made_is_refused_before_the_first_batch)
{
    fleet_save_every every = {.folder = test_path("aa/bb/cc"), .steps = 1};
    const fleet_train_options o = {.save_every = &every};
    fleet_train_result r = {.batches = 9};
    scene s;

    open_scene(&s, scene_file("train.txt", 100, 1), 0);
    s.e = fleet_executor_create(s.p, NULL);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, &o, &r), FLEET_EIO,
                "aa/bb/cc cannot have checkpoints");
    CHECK_CONTAINS(fleet_last_error(), "aa/bb: No such file or directory");
    check_position(s.data, 0, 0);
    every.folder = test_path("train.txt");
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, &o, &r), FLEET_EIO,
                "train.txt: Not a directory");
    every.folder = test_path("train.txt/cc/");
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, &o, &r), FLEET_EIO,
                "Not a directory");
    CHECK(mkdir(test_path("aa"), 0777) == 0);
    every.folder = test_path("aa/bb//");
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &o, &r));
    CHECK(access(test_path("aa/bb/checkpoint-000004"), F_OK) == 0);
    scene_close(&s);
}

/* --- configurations ------------------------------------------------------- */

static const char *config_of(const char *rest)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"epochs\": 2, \"dataset\": {\"format\": "
        "\"multislot\", \"train\": [\"%s\"], \"batch_size\": 32}, \"slots\": "
        "[{\"name\": \"y\", \"type\": \"float\", \"role\": \"label\"}, "
        "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, {\"name\": "
        "\"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, "
        "{\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}], %s}";
    char all[3000];

    snprintf(all, sizeof all, text, scene_file("train.txt", 100, 1), rest);
    return test_file("config.json", all);
}

static char *train_config(const char *config, int resume)
{
    const fleet_config_options o = {.log = hear, .resume = resume};
    char *line = NULL;

    *said = 0;
    CHECK_OK(fleet_train_from_config(config, &o, &line));
    return line;
}

TEST(a_training_that_is_over_trains_nothing_more_and_says_the_same)
{
    char rest[500];
    const char *config;
    char *first, *again;

    snprintf(rest, sizeof rest,
             "\"save_every\": {\"folder\": \"%s\", \"steps\": 3}",
             test_path("all"));
    config = config_of(rest);
    first = train_config(config, 1);
    CHECK(access(manifest_of(3), F_OK) == 0); /* after batches 3, 6 and 8 */
    CHECK(access(manifest_of(4), F_OK) != 0);
    again = train_config(config, 1);
    CHECK_CONTAINS(again, "\"samples_per_s\":0,");
    CHECK(access(manifest_of(4), F_OK) != 0);
    CHECK_TEXT(test_json_value(again, "\"params_hash\""),
               test_json_value(first, "\"params_hash\""));
    CHECK_TEXT(test_json_value(again, "\"loss\""),
               test_json_value(first, "\"loss\""));
    fleet_free(again);

    damage(3);
    again = train_config(config, 1);
    CHECK_CONTAINS(said, "a checkpoint is passed over: ");
    CHECK_CONTAINS(said, "checkpoint-000003");
    CHECK_TEXT(test_json_value(again, "\"params_hash\""),
               test_json_value(first, "\"params_hash\""));
    CHECK_TEXT(test_json_value(again, "\"loss\""),
               test_json_value(first, "\"loss\""));
    fleet_free(again);
    fleet_free(first);
}

TEST(a_configurations_folder_that_cannot_be_made_is_refused_at_the_start)
{
    char rest[500], *line;

    snprintf(rest, sizeof rest,
             "\"save_every\": {\"folder\": \"%s\", \"steps\": 3}",
             test_path("aa/bb/cc"));
    CHECK_FAILS(fleet_train_from_config(config_of(rest), NULL, &line),
                FLEET_EIO, "aa/bb: No such file or directory");
}
