/* save_test.c - saves: what is loaded is what was saved, to the bit; what is
 * damaged is refused by name; nothing is half-written. */
#define _GNU_SOURCE
#define SUITE save
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet/save/save.h"

static void goes_on_alike(const char *optimizer)
{
    const char *path = test_path("saved");
    scene a, b;
    uint64_t saved;

    scene_trained(&a, optimizer, 7);
    saved = scene_hash(&a);
    CHECK_OK(fleet_save_persistables(a.f, path));
    scene_open(&b, &(fleet_options){.seed = 99, .num_threads = 1}, optimizer);
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK(scene_hash(&b) == saved);

    /* the optimizer's states and counters came along: both go on alike, rows
     * that were unknown so far included */
    scene_data(&b, scene_file("train.txt", SCENE_LINES, 1), 64, 1, 0);
    scene_data(&a, scene_file("more.txt", SCENE_LINES, 2), 64, 1, 0);
    scene_data(&b, scene_file("more.txt", SCENE_LINES, 2), 64, 1, 0);
    scene_train(&a, 2);
    scene_train(&b, 2);
    CHECK(scene_hash(&a) != saved);
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_close(&a);
    scene_close(&b);
}

TEST_LIMIT(a_loaded_model_goes_on_alike_with_each_optimizer, 120)
{
    for (int i = 0; kit_rule_name(i); i++)
        goes_on_alike(kit_rule_name(i));
}

TEST(a_save_of_an_untrained_model_loads)
{
    const char *path = test_path("saved");
    scene a, b;

    scene_open(&a, &(fleet_options){.seed = 3}, "adam");
    CHECK_OK(fleet_save_persistables(a.f, path));
    scene_open(&b, &(fleet_options){.seed = 4}, "adam");
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_close(&a);
    scene_close(&b);
}

TEST(a_save_replaces_an_older_one)
{
    const char *path;
    scene a, b;

    path = scene_saved(&a, "adam");
    scene_train(&a, 1);
    CHECK_OK(fleet_save_persistables(a.f, path));
    scene_open(&b, NULL, "adam");
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_close(&a);
    scene_close(&b);
}

/* --- one that is replaced meanwhile --------------------------------------- */

typedef struct saver {
    fleet *f;
    const char *path;
    atomic_bool stop;
    int n_saved;
} saver;

static void *save_on_and_on(void *arg)
{
    saver *s = arg;

    for (; !atomic_load(&s->stop); s->n_saved++)
        CHECK_OK(fleet_save_persistables(s->f, s->path));
    return NULL;
}

TEST(a_save_may_be_loaded_while_another_takes_its_place)
{
    saver save = {0};
    pthread_t thread;
    scene a, b;

    save.path = scene_saved(&a, "adam");
    save.f = a.f;
    scene_open(&b, NULL, "adam");
    pthread_create(&thread, NULL, save_on_and_on, &save);
    for (int i = 0; i < 100; i++)
        CHECK_OK(fleet_load_model(b.f, save.path));
    atomic_store(&save.stop, true);
    pthread_join(thread, NULL);
    CHECK(save.n_saved > 0);
    CHECK(scene_hash(&a) == scene_hash(&b));
    scene_close(&a);
    scene_close(&b);
}

/* --- limits --------------------------------------------------------------- */

/* What a program may have, its save may have. */
TEST(the_largest_sizes_and_numbers_are_loaded_again)
{
    const fleet_sparse_embedding_options table = {
        .rows = INT64_C(1) << 53,
        .initializer = {FLEET_INIT_UNIFORM, -3e38f, 3e38f}};
    const char *path = test_path("saved"), *model = test_path("model");
    fleet_predictor *predictor;
    fleet *f;

    for (int i = 0; i < 2; i++) {
        fleet_program *p;
        fleet_var *ids, *out;

        CHECK_OK(fleet_init(&f, NULL));
        p = fleet_program_create(f);
        ids = fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
        out =
            fleet_scale(p, fleet_sparse_embedding(p, ids, 2, &table), 3e38f, 0);
        CHECK_OK(fleet_program_status(p));
        if (i == 0) {
            CHECK_OK(fleet_save_persistables(f, path));
            CHECK_OK(fleet_save_inference_model(f, model, &ids, 1, &out, 1));
        } else
            CHECK_OK(fleet_load_model(f, path));
        fleet_destroy(f);
    }
    predictor = fleet_load_inference_model(model);
    if (!predictor)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    fleet_predictor_destroy(predictor);
}

/* --- damage -------------------------------------------------------------- */

static int names_in(const char *path, char name[][256])
{
    DIR *dir = opendir(path);
    struct dirent *e;
    int n = 0;

    while (dir && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            strcpy(name[n++], e->d_name);
    closedir(dir);
    return n;
}

TEST(a_flipped_bit_in_any_file_is_found_and_the_file_named)
{
    const char *path;
    char name[16][256], file[8192];
    scene a, b;
    uint64_t before;
    int n;

    path = scene_saved(&a, "adam");
    scene_open(&b, NULL, "adam");
    CHECK_OK(fleet_load_model(b.f, path));
    before = scene_hash(&b);
    n = names_in(path, name);
    CHECK_INT(n, 3); /* a part, the manifest and its sum */
    for (int i = 0; i < n; i++) {
        struct stat st;

        snprintf(file, sizeof file, "%s/%s", path, name[i]);
        CHECK(stat(file, &st) == 0);
        for (int k = 0; k < 8; k++) {
            size_t bit = (size_t)(st.st_size * k / 8) * 8 + 6;

            test_flip_bit(file, bit);
            CHECK_STATUS(fleet_load_model(b.f, path), FLEET_ECORRUPT);
            CHECK_CONTAINS(fleet_last_error(), strncmp(name[i], "manifest", 8)
                                                   ? name[i]
                                                   : "manifest");
            test_flip_bit(file, bit);
        }
    }
    CHECK(scene_hash(&b) == before);
    CHECK_OK(fleet_load_model(b.f, path));
    scene_close(&a);
    scene_close(&b);
}

/* A sum in another case, or with another end, was not written by a save. */
TEST(every_bit_of_the_manifests_sum_counts)
{
    const char *path;
    scene a, b;

    path = scene_saved(&a, "sgd");
    scene_open(&b, NULL, "sgd");
    for (int bit = 0; bit < 17 * 8; bit++) {
        char *sum;
        size_t size;

        CHECK_OK(fl_file_read(test_path("saved/manifest.xxh64"), &sum, &size));
        CHECK_INT(size, 17);
        sum[bit / 8] ^= (char)(1 << bit % 8);
        test_file_bytes("saved/manifest.xxh64", sum, size);
        CHECK_FAILS(fleet_load_model(b.f, path), FLEET_ECORRUPT, "manifest");
        sum[bit / 8] ^= (char)(1 << bit % 8);
        test_file_bytes("saved/manifest.xxh64", sum, size);
        fl_free(sum);
    }
    CHECK_OK(fleet_load_model(b.f, path));
    scene_close(&a);
    scene_close(&b);
}

/* --- damage with checksums that are right --------------------------------- */

enum { TWO_BLOCKS = 2 * 16384 };

/* A save of one parameter "w" of two blocks. */
static fleet *two_blocks(const char *path)
{
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    fleet_parameter(p, (int64_t[]){TWO_BLOCKS}, 1,
                    &(fleet_param_attr){.name = "w"});
    CHECK_OK(fleet_save_persistables(f, path));
    return f;
}

/* Put other words for those in the manifest, and its sum. */
static void forge(const char *from, const char *to)
{
    char *text, *at, *forged, sum[20];
    size_t size;

    CHECK_OK(fl_file_read(test_path("saved/manifest.json"), &text, &size));
    at = strstr(text, from);
    CHECK(at != NULL);
    forged = malloc(size + strlen(to) + 1);
    sprintf(forged, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    snprintf(sum, sizeof sum, "%016llx\n",
             (unsigned long long)fl_hash(forged, strlen(forged), 0));
    test_file("saved/manifest.json", forged);
    test_file("saved/manifest.xxh64", sum);
    free(forged);
    fl_free(text);
}

TEST(a_block_that_stands_in_place_of_another_is_found)
{
    const char *path = test_path("saved");
    char was[17], is[17], *part;
    fleet *f = two_blocks(path);
    size_t size;

    CHECK_OK(fl_file_read(test_path("saved/part-00000"), &part, &size));
    snprintf(was, sizeof was, "%016llx",
             (unsigned long long)fl_hash(part, size, 0));
    memcpy(part + size / 2, part, size / 2);
    snprintf(is, sizeof is, "%016llx",
             (unsigned long long)fl_hash(part, size, 0));
    test_file_bytes("saved/part-00000", part, size);
    forge(was, is);
    CHECK_FAILS(fleet_load_model(f, path), FLEET_ECORRUPT,
                "block 0 of \"w\" stands twice");
    fl_free(part);
    fleet_destroy(f);
}

/* The first record of at least two rows. */
static char *keys_of_a_bucket(char *part, size_t size)
{
    fl_record r;

    for (size_t at = 0; at + sizeof r < size; at += 4) {
        memcpy(&r, part + at, sizeof r);
        if (r.magic == FL_RECORD_MAGIC && r.kind == FL_RECORD_ROWS && r.n > 1)
            return part + at + sizeof r;
    }
    test_fail(__FILE__, __LINE__, "no bucket has two rows");
    return NULL;
}

/* Before the rows of the process that loads are given up. */
TEST(a_row_that_stands_twice_or_in_place_of_another_is_found_first)
{
    static const char *const words[] = {"stands twice", "stands in another",
                                        "stands behind a larger one"};

    for (int how = 0; how < 3; how++) {
        char was[17], is[17], *part;
        uint64_t key[2], first;
        char *keys;
        scene a, b;
        size_t size;

        scene_trained(&a, "adam", 7);
        CHECK_OK(fleet_save_persistables(a.f, test_path("saved")));
        scene_trained(&b, "adam", 8);
        const uint64_t before = scene_hash(&b);
        CHECK_OK(fl_file_read(test_path("saved/part-00000"), &part, &size));
        snprintf(was, sizeof was, "%016llx",
                 (unsigned long long)fl_hash(part, size, 0));
        keys = keys_of_a_bucket(part, size);
        memcpy(key, keys, sizeof key);
        first = key[0];
        key[0] = how == 1 ? ~first : how == 2 ? key[1] : first;
        key[1] = how == 1 ? key[1] : first;
        memcpy(keys, key, sizeof key);
        snprintf(is, sizeof is, "%016llx",
                 (unsigned long long)fl_hash(part, size, 0));
        test_file_bytes("saved/part-00000", part, size);
        forge(was, is);
        CHECK_FAILS(fleet_load_model(b.f, test_path("saved")), FLEET_ECORRUPT,
                    words[how]);
        CHECK(scene_hash(&b) == before);
        fl_free(part);
        scene_close(&a);
        scene_close(&b);
    }
}

static void keep_lines(void *user, fleet_log_level level, const char *line)
{
    fl_text *all = user;

    if (level >= FLEET_LOG_WARNING)
        fl_text_add(all, "%s\n", line);
}

/* What is saved is loaded for that optimizer: which warning comes? */
static void check_load_line(const char *optimizer, const char *words)
{
    fl_text lines = {0};
    fleet_options o = {.log = keep_lines, .log_user = &lines};
    scene s;

    scene_open(&s, &o, optimizer);
    CHECK_OK(fleet_load_model(s.f, test_path("saved")));
    CHECK_CONTAINS(fl_text_chars(&lines), words ? words : "");
    CHECK(words || !*fl_text_chars(&lines));
    scene_close(&s);
    fl_text_done(&lines);
}

/* Saves of before 0.1.0 do not say it. */
TEST(a_load_says_that_adams_rows_count_other_steps_than_before)
{
    static const char *const to_update =
        "adam: row_steps is true in the save, false in this program: the bias "
        "corrections of its rows now follow the number of the update";
    static const char *const to_row =
        "adam: row_steps is false in the save, true in this program: the bias "
        "corrections of its rows now follow the number of the row's own "
        "updates";
    scene a;

    scene_saved(&a, "adam");
    check_load_line("adam", NULL);
    check_load_line(KIT_ROW_ADAM, to_row);
    forge("\"row_steps\":\tfalse,", "");
    check_load_line("adam", to_update);
    check_load_line(KIT_ROW_ADAM, NULL);
    scene_close(&a);
    scene_saved(&a, KIT_ROW_ADAM);
    check_load_line("adam", to_update);
    check_load_line(KIT_ROW_ADAM, NULL);
    scene_close(&a);
    scene_saved(&a, "sgd");
    check_load_line("sgd", NULL);
    scene_close(&a);
}

/* What a manifest promises is not allocated. */
TEST(a_size_that_is_not_there_costs_no_memory)
{
    const char *path = test_path("saved");
    fleet *f = two_blocks(path);

    forge("[32768]", "[9007199254740992]");
    CHECK_FAILS(fleet_load_model(f, path), FLEET_ECORRUPT,
                "the parts hold 32768 numbers of \"w\", not 9007199254740992");
    fleet_destroy(f);
}

TEST(a_cut_or_missing_file_is_found)
{
    const char *path;
    char file[4096];
    struct stat st;
    scene a;

    path = scene_saved(&a, "adam");
    snprintf(file, sizeof file, "%s/part-00000", path);
    CHECK(stat(file, &st) == 0);
    CHECK(truncate(file, st.st_size - 5) == 0);
    CHECK_FAILS(fleet_load_model(a.f, path), FLEET_ECORRUPT, "part-00000");
    CHECK(unlink(file) == 0);
    CHECK_FAILS(fleet_load_model(a.f, path), FLEET_ECORRUPT,
                "part-00000: missing");
    snprintf(file, sizeof file, "%s/manifest.xxh64", path);
    CHECK(unlink(file) == 0);
    CHECK_FAILS(fleet_load_model(a.f, path), FLEET_ECORRUPT,
                "manifest.xxh64: missing");
    scene_close(&a);
}

TEST(a_folder_that_is_no_save_is_no_save)
{
    scene a;

    scene_open(&a, NULL, "adam");
    CHECK_FAILS(fleet_load_model(a.f, "/nonexistent/x"), FLEET_ENOENT,
                "load: cannot open /nonexistent/x: ");
    CHECK_FAILS(fleet_load_model(a.f, test_folder()), FLEET_ENOENT,
                "manifest.json");
    CHECK_FAILS(fleet_load_model(a.f, NULL), FLEET_EINVAL, "NULL");
    scene_close(&a);
}

/* --- what does not fit --------------------------------------------------- */

TEST(another_optimizers_states_are_refused_by_name)
{
    const char *path;
    scene a, b;

    path = scene_saved(&a, "adam");
    scene_open(&b, NULL, "sgd");
    CHECK_FAILS(fleet_load_model(b.f, path), FLEET_ESHAPE,
                "another optimizer than sgd");
    scene_close(&a);
    scene_close(&b);
}

TEST(a_parameter_of_another_shape_is_refused_by_name)
{
    const char *path;
    fleet_model m;
    scene a, b = {0};

    path = scene_saved(&a, "adam");
    CHECK_OK(fleet_init(&b.f, NULL));
    b.p = fleet_program_create(b.f);
    fleet_mlp(
        b.p,
        &(fleet_mlp_options){
            .dim = 5, .classes = 3, .hidden = (int64_t[]){16}, .n_hidden = 1},
        &m);
    CHECK_FAILS(fleet_load_model(b.f, path), FLEET_ESHAPE, "\"tower_");
    scene_close(&a);
    scene_close(&b);
}

TEST(a_parameter_that_the_save_does_not_have_is_named)
{
    const char *path;
    scene a, b;

    path = scene_saved(&a, "adam");
    scene_open(&b, NULL, "adam");
    fleet_parameter(b.p, (int64_t[]){2}, 1,
                    &(fleet_param_attr){.name = "extra"});
    CHECK_FAILS(fleet_load_model(b.f, path), FLEET_ENOENT, "has no \"extra\"");
    scene_close(&a);
    scene_close(&b);
}

/* --- nothing half-written ------------------------------------------------ */

static int entries(const char *path)
{
    char name[64][256];

    return names_in(path, name);
}

TEST(a_folder_that_holds_something_else_is_left_alone)
{
    char file[4096];
    scene a;

    snprintf(file, sizeof file, "%s/mine", test_folder());
    CHECK(mkdir(file, 0755) == 0);
    test_file("mine/letter.txt", "dear");
    scene_trained(&a, "adam", 7);
    CHECK_FAILS(fleet_save_persistables(a.f, file), FLEET_EEXIST,
                "holds something else");
    CHECK_INT(entries(file), 1);
    scene_close(&a);
}

TEST(somebody_elses_manifest_is_not_replaced)
{
    const char *folder = test_path("app"), *manifest;
    scene a;

    CHECK(mkdir(folder, 0755) == 0);
    manifest = test_file("app/manifest.json", "{}");
    scene_trained(&a, "adam", 7);
    CHECK_FAILS(fleet_save_persistables(a.f, folder), FLEET_EEXIST,
                "holds something else: it has no manifest.xxh64");
    test_file("app/manifest.xxh64", "");
    test_file("app/thesis.txt", "");
    CHECK_FAILS(fleet_save_persistables(a.f, folder), FLEET_EEXIST,
                "holds something else: thesis.txt");
    CHECK(access(manifest, F_OK) == 0);
    scene_close(&a);
}

TEST(an_unwritable_place_is_named_and_nothing_is_left)
{
    scene a;

    scene_trained(&a, "adam", 7);
    CHECK_FAILS(fleet_save_persistables(a.f, "/proc/nowhere/model"), FLEET_EIO,
                "/proc/nowhere/model");
    CHECK_FAILS(fleet_save_persistables(a.f, ""), FLEET_EINVAL,
                "there is no path");
    CHECK_FAILS(fleet_save_persistables(a.f, NULL), FLEET_EINVAL,
                "there is no path");
    scene_close(&a);
}

/* The save at path is whole, and the one it was. */
static void check_untouched(const char *path, uint64_t hash, int n_entry)
{
    scene b;

    scene_open(&b, NULL, "adam");
    CHECK_OK(fleet_load_model(b.f, path));
    CHECK(scene_hash(&b) == hash);
    CHECK_INT(entries(test_folder()), n_entry);
    scene_close(&b);
}

/* Writing fails as on a full disk: at a limit on the size of files. */
TEST(a_write_that_fails_leaves_the_old_save_and_nothing_else)
{
    const char *path;
    struct rlimit limit = {1000, RLIM_INFINITY};
    uint64_t saved;
    int n_entry;
    scene a;

    path = scene_saved(&a, "adam");
    saved = scene_hash(&a);
    n_entry = entries(test_folder());
    scene_train(&a, 1);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_FAILS(fleet_save_persistables(a.f, path), FLEET_EIO, "part-00000");
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    check_untouched(path, saved, n_entry);
    scene_close(&a);
}

TEST(memory_that_runs_out_at_any_point_leaves_the_old_save)
{
    const char *path;
    uint64_t saved;
    int n_entry;
    scene a;

    path = scene_saved(&a, "adam");
    saved = scene_hash(&a);
    n_entry = entries(test_folder());
    scene_train(&a, 1);
    for (int64_t n = 1; n < 100000; n++) {
        fleet_status status;

        fl_memory_fail_at(n, true);
        status = fleet_save_persistables(a.f, path);
        fl_memory_fail_at(0, false);
        if (status == FLEET_OK)
            break;
        CHECK_STATUS(status, FLEET_ENOMEM);
        if (n % 50 == 0)
            check_untouched(path, saved, n_entry);
    }
    CHECK_INT(entries(test_folder()), n_entry);
    scene_close(&a);
}

TEST(a_load_that_runs_out_of_memory_changes_nothing_or_says_so)
{
    const char *path;
    uint64_t saved, now;
    int torn = 0;
    scene a;

    path = scene_saved(&a, "adam");
    saved = scene_hash(&a);
    for (int64_t n = 1; n < 100000; n++) {
        fleet_status status;

        scene_train(&a, 1);
        now = scene_hash(&a);
        fl_memory_fail_at(n, false);
        status = fleet_load_model(a.f, path);
        fl_memory_fail_at(0, false);
        if (status == FLEET_OK)
            break;
        CHECK_STATUS(status, FLEET_ENOMEM);
        if (scene_hash(&a) != now) {
            torn++;
            CHECK_FAILS(fleet_save_persistables(a.f, test_path("other")),
                        FLEET_ESTATE, "half-way");
            CHECK_OK(fleet_load_model(a.f, path));
            CHECK(scene_hash(&a) == saved);
        }
    }
    CHECK(torn > 0);
    CHECK(scene_hash(&a) == saved);
    scene_close(&a);
}
