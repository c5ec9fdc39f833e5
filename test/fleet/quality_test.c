/* quality_test.c - real data: the numbers that a training has to reach, and
 * that it reaches the same bits twice. Under sanitizers (FLEET_TEST_FRACTION) a
 * part of the data has to do, and only the bits are checked. */
#define SUITE quality
#include "gpu_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "runtime/simd/simd.h"

typedef struct result {
    double auc, logloss, accuracy, loss, samples_per_s;
    char hash[17], device[60];
} result;

static void silent(void *user, fleet_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
}

/* The last word on each epoch is said at its end. */
typedef struct epochs {
    int64_t n, last, samples;
    double done;
} epochs;

static void watch(void *user, const fleet_progress *p)
{
    epochs *e = user;

    CHECK(p->epoch == e->last || p->epoch == e->last + 1);
    if (p->epoch == e->last + 1 && e->last > 0)
        CHECK_NEAR(e->done * (double)p->epochs, (double)e->last, 1e-9);
    CHECK(p->done >= e->done && p->done <= 1);
    *e = (epochs){p->epochs, p->epoch, p->samples, p->done};
}

static double number(const fl_at *line, const char *key)
{
    fl_at at = fl_at_key(line, key);
    double x = -1;

    fl_at_double(&at, -1e300, 1e300, &x); /* null stays -1 */
    return x;
}

static result train(const char *text)
{
    epochs seen = {0};
    fleet_config_options o = {
        .log = silent, .on_progress = watch, .user = &seen};
    result r = {0};
    fl_json *json;
    char *line;
    const char *hash, *device;

    CHECK_OK(
        fleet_train_from_config(test_file("config.json", text), &o, &line));
    CHECK(seen.n > 0 && seen.last == seen.n && seen.samples > 0);
    CHECK_NEAR(seen.done, 1, 1e-9);
    CHECK_OK(fl_json_parse(line, strlen(line), "the closing line", &json));
    fl_at root = fl_at_root(json), at = fl_at_key(&root, "params_hash");
    CHECK_OK(fl_at_string(&at, &hash));
    strncpy(r.hash, hash, 16);
    at = fl_at_key(&root, "device");
    CHECK_OK(fl_at_string(&at, &device));
    snprintf(r.device, sizeof r.device, "%s", device);
    r.auc = number(&root, "auc");
    r.logloss = number(&root, "logloss");
    r.accuracy = number(&root, "accuracy");
    r.loss = number(&root, "loss");
    r.samples_per_s = number(&root, "samples_per_s");
    fprintf(stderr, "%s\n", line);
    fl_json_free(json);
    fleet_free(line);
    return r;
}

/* The file, or its first lines when a fraction has to do. */
static const char *lines_of(const char *file, int lines)
{
    char command[9000];
    static int n;
    const char *path;

    if (test_fraction() == 1)
        return file;
    snprintf(command, sizeof command, "part%d.txt", n++);
    path = test_file(command, "");
    snprintf(command, sizeof command, "zcat '%s' | head -n %d >'%s'", file,
             lines / test_fraction(), path);
    CHECK(system(command) == 0);
    return path;
}

static void at_least(const char *what, double got, double want)
{
    if (test_fraction() == 1 && !(got >= want))
        test_fail(__FILE__, __LINE__, "%s is %.4f, not %.4f or more", what, got,
                  want);
}

static const char *source(const char *file)
{
    const char *root = getenv("FLEET_SOURCE");
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", root ? root : ".", file);
    if (access(path, R_OK) != 0)
        test_skip("%s is absent: set FLEET_SOURCE to the source folder", path);
    return test_keep(path);
}

/* --- Adult --------------------------------------------------------------- */

#define ADULT_HEAD                                                             \
    "{\"model\": {\"type\": \"%s\", \"embedding_dim\": 8, "                    \
    "\"hidden\": [100, 50]}, \"optimizer\": {\"type\": \"adam\", "             \
    "\"learning_rate\": 0.001}, \"epochs\": %d, \"seed\": %d, "
#define ADULT_IDS                                                              \
    ID("workclass", 1)                                                         \
    ID("education", 3)                                                         \
    ID("marital_status", 5)                                                    \
    ID("occupation", 6)                                                        \
    ID("relationship", 7) ID("race", 8) ID("sex", 9) ID("native_country", 13)
#define ID(name, column)                                                       \
    ", {\"name\": \"" name "\", \"type\": \"uint64\", \"columns\": [" #column  \
    "]}"

/* `also`: keys of the top level. */
static result adult_with(const char *also, const char *model,
                         const char *label_type, int seed, int threads,
                         int passes)
{
    const char *train_file = source("samples/data/adult/adult.data.gz");
    const char *test_file_ =
        source("samples/data/adult/adult.test.first13025.gz");
    char text[9000];

    snprintf(
        text, sizeof text,
        ADULT_HEAD
        "%s \"dataset\": {\"format\": \"csv\", "
        "\"missing\": \"?\", \"comment\": "
        "\"|\", \"train\": [\"%s\"], \"test\": [\"%s\"], \"batch_size\": 128, "
        "\"thread_num\": %d, \"shuffle\": 40000}, \"slots\": [{\"name\": "
        "\"income\", \"type\": \"%s\", \"role\": \"label\", \"columns\": [14], "
        "\"transform\": \"equals\", \"value\": [\">50K\", \">50K.\"]}, "
        "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 6, \"columns\": "
        "[0, 2, 4, 10, 11, 12], \"transform\": [\"standardize\", "
        "\"log1p_standardize\", \"standardize\", \"log1p_standardize\", "
        "\"log1p_standardize\", \"standardize\"]}" ADULT_IDS "]}",
        model, passes, seed, also, lines_of(train_file, 32561),
        lines_of(test_file_, 13026), threads, label_type);
    return train(text);
}

static result adult(const char *model, const char *label_type, int seed,
                    int threads)
{
    return adult_with("", model, label_type, seed, threads, 5);
}

TEST_LIMIT(adult_wide_deep_from_csv, 120)
{
    result a = adult("wide_deep", "float", 0, 1);

    at_least("AUC", a.auc, 0.903);
    at_least("accuracy", a.accuracy, 0.848);
    CHECK_TEXT(adult("wide_deep", "float", 0, 1).hash, a.hash);
    CHECK_TEXT(adult("wide_deep", "float", 0, 4).hash, a.hash);
    CHECK(strcmp(adult("wide_deep", "float", 1, 1).hash, a.hash) != 0);
}

TEST_LIMIT(adult_ctr_dnn_and_deepfm, 120)
{
    at_least("ctr_dnn AUC", adult("ctr_dnn", "uint64", 0, 2).auc, 0.900);
    at_least("deepfm AUC", adult("deepfm", "float", 0, 2).auc, 0.900);
}

/* Some of the others, two passes; a model's name ends in front of a quote. */
TEST_LIMIT(adult_of_models_that_cross_features, 120)
{
    at_least("dcn_v2 AUC", adult_with("", "dcn_v2", "float", 0, 2, 2).auc,
             0.895);
    at_least("dlrm AUC",
             adult_with("", "dlrm\", \"bottom\": [32], \"fresh\": \"zeros",
                        "float", 0, 2, 2)
                 .auc,
             0.89);
}

static result adult_of_two_labels(double *second)
{
    const char *file = source("samples/configs/adult-mmoe.json");
    char train_file[9000], test_file_[9000], *line;
    const char *set[] = {train_file, test_file_};
    fleet_config_options o = {.log = silent, .set = set, .n_set = 2};
    result r = {0};
    fl_json *json;

    snprintf(train_file, sizeof train_file, "dataset.train[0]=%s",
             lines_of(source("samples/data/adult/adult.data.gz"), 32561));
    snprintf(
        test_file_, sizeof test_file_, "dataset.test[0]=%s",
        lines_of(source("samples/data/adult/adult.test.first13025.gz"), 13026));
    CHECK_OK(fleet_train_from_config(file, &o, &line));
    fprintf(stderr, "%s\n", line);
    CHECK_OK(fl_json_parse(line, strlen(line), "the closing line", &json));
    fl_at root = fl_at_root(json), tasks = fl_at_key(&root, "tasks");
    fl_at last = fl_at_index(&tasks, 1);

    CHECK_INT(fl_at_count(&tasks), 2);
    r.auc = number(&root, "auc");
    *second = number(&last, "auc");
    fl_json_free(json);
    fleet_free(line);
    return r;
}

TEST_LIMIT(adult_of_two_labels_from_the_sample, 120)
{
    double second;

    at_least("AUC of income", adult_of_two_labels(&second).auc, 0.89);
    at_least("AUC of single", second, 0.94);
}

TEST_LIMIT(adult_by_two_trainer_threads, 120)
{
    const char *in_order = "\"trainer\": {\"thread\": 2}, ";
    const char *hogwild = "\"trainer\": {\"thread\": 2, \"hogwild\": true}, ";
    result a = adult_with(in_order, "wide_deep", "float", 0, 2, 5);

    at_least("AUC in order", a.auc, 0.898);
    at_least("AUC of hogwild",
             adult_with(hogwild, "wide_deep", "float", 0, 2, 5).auc, 0.898);
}

/* The model's name ends in front of a quote. */
TEST_LIMIT(adult_of_rows_in_fewer_bits, 120)
{
    at_least("AUC of float16",
             adult("wide_deep\", \"storage\": \"float16", "float", 0, 2).auc,
             0.898);
    at_least("AUC of int8",
             adult("wide_deep\", \"storage\": \"int8", "float", 0, 2).auc,
             0.898);
}

#define BF16                                                                   \
    "\"strategy\": {\"amp\": true, \"amp_configs\": {\"use_bf16\": true}}, "

TEST_LIMIT(adult_of_bfloat16_is_as_good_as_of_float, 120)
{
    result of_float, of_bf16;

    if (!fl_simd_has_bf16())
        test_skip("this processor has no avx512_bf16");
    of_float = adult("wide_deep", "float", 0, 2);
    of_bf16 = adult_with(BF16, "wide_deep", "float", 0, 2, 5);
    CHECK(strcmp(of_float.hash, of_bf16.hash) != 0);
    CHECK_TEXT(adult_with(BF16, "wide_deep", "float", 0, 1, 5).hash,
               of_bf16.hash);
    if (test_fraction() == 1)
        CHECK_NEAR(of_bf16.auc, of_float.auc, 0.001);
}

/* On the emulated GPU, which is slow: an epoch or two are enough to compare. */
static void compare_on_gpu(const char *model, int passes)
{
    result here = adult_with("", model, "float", 0, 2, passes), there;

    gpu_kit_open();
    there = adult_with("\"device\": \"gpu:0\", ", model, "float", 0, 2, passes);
    CHECK_CONTAINS(there.device, "cuda:");
    CHECK_NEAR(there.auc, here.auc, 0.002);
    CHECK_NEAR(there.logloss, here.logloss, 0.002);
    gpu_kit_close();
}

TEST_LIMIT(adult_on_a_gpu_is_as_good_as_on_the_cpu, 240)
{
    compare_on_gpu("wide_deep", 2);
}

TEST_LIMIT(adult_deepfm_on_a_gpu_is_as_good_as_on_the_cpu, 240)
{
    compare_on_gpu("deepfm", 1);
}

#undef ID
#define ID(name, column) ", {\"name\": \"" name "\", \"type\": \"uint64\"}"

TEST_LIMIT(adult_wide_deep_from_a_pipe_command, 120)
{
    const char *train_file = source("samples/data/adult/adult.data.gz");
    const char *test_file_ =
        source("samples/data/adult/adult.test.first13025.gz");
    char text[9000];
    result a;

    snprintf(text, sizeof text,
             ADULT_HEAD
             "\"dataset\": {\"format\": \"multislot\", \"pipe_command\": "
             "\"awk -f '%s'\", \"train\": [\"%s\"], \"test\": [\"%s\"], "
             "\"batch_size\": 128, \"shuffle\": 40000}, \"slots\": [{\"name\": "
             "\"income\", \"type\": \"float\", \"role\": \"label\"}, "
             "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 6}" ADULT_IDS
             "]}",
             "wide_deep", 5, 0, source("samples/adult-slots.awk"),
             lines_of(train_file, 32561), lines_of(test_file_, 13026));
    a = train(text);
    at_least("AUC", a.auc, 0.903);
    CHECK_TEXT(train(text).hash, a.hash);
}

/* --- criteo_attr --------------------------------------------------------- */

/* storage: of the rows. */
static result criteo_attr(const char *storage)
{
    const char *train_file =
        test_data("criteo_attr/criteo_attr_train_125k.tsv.gz");
    const char *test_file_ =
        test_data("criteo_attr/criteo_attr_test_20k.tsv.gz");
    char text[9000], ids[2000] = "";
    static const char *const name[] = {"cat1", "cat4", "cat6", "cat8", "cat9"};

    for (int i = 0; i < 5; i++)
        sprintf(ids + strlen(ids),
                ", {\"name\": \"%s\", \"type\": \"uint64\", \"columns\": [%d], "
                "\"transform\": \"none\"}",
                name[i], i + 1);
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 8, "
             "\"storage\": \"%s\", \"hidden\": [64, 32]}, \"optimizer\": "
             "{\"type\": \"adam\", \"learning_rate\": 0.001}, \"epochs\": 2, "
             "\"dataset\": "
             "{\"format\": \"csv\", \"separator\": \"\\t\", \"train\": "
             "[\"%s\"], \"test\": [\"%s\"], \"batch_size\": 512, \"shuffle\": "
             "130000}, \"slots\": [{\"name\": \"click\", \"type\": \"float\", "
             "\"role\": \"label\", \"columns\": [0]}%s]}",
             storage, lines_of(train_file, 125152), lines_of(test_file_, 20000),
             ids);
    return train(text);
}

TEST_LIMIT(criteo_attr_wide_deep, 120)
{
    at_least("AUC", criteo_attr("float32").auc, 0.643);
}

TEST_LIMIT(criteo_attr_of_rows_in_float16, 120)
{
    at_least("AUC", criteo_attr("float16").auc, 0.643);
}

TEST_LIMIT(criteo_attr_of_rows_in_int8, 120)
{
    at_least("AUC", criteo_attr("int8").auc, 0.643);
}

/* Beside what PyTorch's program has reached: how bench/quality_torch ends. */
static int beside_torch(const char *stored, char *said, size_t size)
{
    char command[9000];

    snprintf(command, sizeof command,
             "FLEET_BIN='%s' python3 '%s' --stored '%s' --seeds 1 --data "
             "criteo --only deepfm",
             test_beside("."), source("bench/quality_torch"), stored);
    return test_shell(command, said, size);
}

/* make test-long has all of them. */
TEST_LIMIT(criteo_attr_deepfm_is_as_good_as_pytorchs, 120)
{
    char said[2000];

    test_data("criteo_attr/criteo_attr_train_125k.tsv.gz");
    if (test_fraction() != 1)
        test_skip("a part of the data is not as good");
    CHECK_INT(
        beside_torch(source("bench/results/2026-11-27-quality-torch.jsonl"),
                     said, sizeof said),
        0);
    CHECK_CONTAINS(said, "\"within\": true");
    CHECK_INT(beside_torch(test_file("stored",
                                     "{\"data\": \"criteo_attr\", \"model\": "
                                     "\"deepfm\", \"torch\": [0.7]}\n"),
                           said, sizeof said),
              1);
    CHECK_CONTAINS(said, "\"within\": false");
}

/* A task's AUC, and what is too far from it, is told from the other's. */
TEST_LIMIT(adult_share_bottom_is_as_good_as_pytorchs, 120)
{
    const char *stored = source("bench/results/2026-11-27-quality-torch.jsonl");
    char command[9000], said[2000];
    int i = 0;

    if (test_fraction() != 1)
        test_skip("a part of the data is not as good");
    snprintf(command, sizeof command,
             "FLEET_BIN='%s' python3 '%s' --stored '%s' --seeds 1 --data "
             "'two labels' --only share",
             test_beside("."), source("bench/quality_torch"), stored);
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    for (const char *at = said; (at = strstr(at, "\"within\": true")); at++)
        i++;
    CHECK_INT(i, 2);
    CHECK_CONTAINS(said, "\"data\": \"Adult, single\"");
}

/* --- Fashion-MNIST ------------------------------------------------------- */

/* The first of so many items, in a fraction of them. */
static const char *part_of(const char *name, int count, int item, int fraction)
{
    char path[4096], command[9000];
    const char *part;

    snprintf(path, sizeof path, "/usr/share/datasets/fashion-mnist/%s.gz",
             name);
    if (access(path, R_OK) != 0)
        test_skip("%s is absent: apt-get install dataset-fashion-mnist", path);
    if (fraction == 1)
        return test_keep(path);
    count /= fraction;
    part = test_file(name, "");
    snprintf(command, sizeof command,
             "{ zcat '%s' | head -c 4; printf '\\0\\0\\%o\\%o'; zcat '%s' | "
             "tail -c +9 | head -c %d; } >'%s'",
             path, count / 256, count % 256, path,
             count * item + (item > 1 ? 8 : 0), part);
    CHECK(system(command) == 0);
    return part;
}

static const char *idx_of(const char *name, int count, int item)
{
    return part_of(name, count, item, test_fraction());
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

TEST_LIMIT(fashion_mnist_mlp, 240)
{
    double accuracy[3];
    char text[9000];

    for (int seed = 0; seed < 3; seed++) {
        snprintf(text, sizeof text,
                 "{\"model\": {\"type\": \"mlp\", \"hidden\": [128, 64]}, "
                 "\"optimizer\": {\"type\": \"adam\", \"learning_rate\": "
                 "0.001}, \"epochs\": 10, \"seed\": %d, \"dataset\": "
                 "{\"format\": \"idx\", \"train\": [\"%s\", \"%s\"], "
                 "\"test\": [\"%s\", \"%s\"], \"batch_size\": 128, "
                 "\"shuffle\": 60000}}",
                 seed, idx_of("train-images-idx3-ubyte", 60000, 784),
                 idx_of("train-labels-idx1-ubyte", 60000, 1),
                 idx_of("t10k-images-idx3-ubyte", 10000, 784),
                 idx_of("t10k-labels-idx1-ubyte", 10000, 1));
        accuracy[seed] = train(text).accuracy;
        at_least("accuracy", accuracy[seed], 0.870);
    }
    qsort(accuracy, 3, sizeof *accuracy, ascending);
    at_least("the median accuracy", accuracy[1], 0.875);
}

/* All of it reaches 0.893, in 10 passes: samples/configs/fashion-lenet.json. */
TEST_LIMIT(fashion_mnist_lenet, 120)
{
    int fraction = test_fraction() == 1 ? 20 : 200;
    char text[9000];
    double accuracy;

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"lenet\", \"classes\": 10}, "
             "\"optimizer\": {\"type\": \"adam\", \"learning_rate\": "
             "0.002}, \"epochs\": 3, \"seed\": 1, \"dataset\": "
             "{\"format\": \"idx\", \"train\": [\"%s\", \"%s\"], "
             "\"test\": [\"%s\", \"%s\"], \"batch_size\": 32, "
             "\"shuffle\": 3000}}",
             part_of("train-images-idx3-ubyte", 60000, 784, fraction),
             part_of("train-labels-idx1-ubyte", 60000, 1, fraction),
             part_of("t10k-images-idx3-ubyte", 10000, 784, fraction),
             part_of("t10k-labels-idx1-ubyte", 10000, 1, fraction));
    accuracy = train(text).accuracy;
    at_least("accuracy", accuracy, 0.70);
}

/* A part of it, by a device. */
static result part_by(const char *device)
{
    int fraction = test_fraction() == 1 ? 10 : 100;
    char text[9000];

    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"mlp\", \"hidden\": [64], \"classes\": "
             "10}, \"device\": \"%s\", \"epochs\": 2, \"dataset\": "
             "{\"format\": \"idx\", \"train\": [\"%s\", \"%s\"], \"test\": "
             "[\"%s\", \"%s\"], \"batch_size\": 128, \"shuffle\": 6000}}",
             device, part_of("train-images-idx3-ubyte", 60000, 784, fraction),
             part_of("train-labels-idx1-ubyte", 60000, 1, fraction),
             part_of("t10k-images-idx3-ubyte", 10000, 784, fraction),
             part_of("t10k-labels-idx1-ubyte", 10000, 1, fraction));
    return train(text);
}

TEST_LIMIT(fashion_mnist_on_a_gpu_is_as_good_as_on_the_cpu, 240)
{
    result here = part_by("cpu"), there;

    gpu_kit_open();
    there = part_by("gpu:0");
    CHECK_CONTAINS(there.device, "cuda:");
    CHECK_NEAR(there.accuracy, here.accuracy, 0.01);
    CHECK_NEAR(there.loss, here.loss, 0.002);
    gpu_kit_close();
}
