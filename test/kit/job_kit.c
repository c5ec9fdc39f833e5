/* job_kit.c - see job_kit.h. */
#define _GNU_SOURCE
#define SUITE job_kit
#include "job_kit.h"
#include "device_kit.h"
#include "gpu_kit.h"
#include "launch_kit.h"
#include "rank_keys_kit.h"
#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *source(const char *file)
{
    const char *root = getenv("FLEET_SOURCE");
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", root ? root : ".", file);
    if (access(path, R_OK) != 0)
        test_skip("%s is absent: set FLEET_SOURCE to the source folder", path);
    return test_keep(path);
}

static const char *fleet_train(void)
{
    const char *path = test_beside("fleet-train");

    CHECK(access(path, X_OK) == 0);
    return path;
}

const char *job_script(const char *config)
{
    char script[9000];

    snprintf(script, sizeof script, "exec '%s' '%s'", fleet_train(),
             test_file("config.json", config));
    return test_keep(script);
}

const char *job_train(const char *flags, const char *config)
{
    launch_deadline_ms = 200000;
    if (launch_run(flags, job_script(config)) != 0)
        test_fail(__FILE__, __LINE__, "%s", launch_err());
    fprintf(stderr, "%s", launch_out());
    return launch_out();
}

static double value(const char *line, const char *key)
{
    char quoted[40];
    const char *at;

    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    at = strstr(line, quoted);
    CHECK(at);
    return atof(at + strlen(quoted));
}

void job_at_least(const char *line, const char *key, double want)
{
    if (test_fraction() == 1 && !(value(line, key) >= want))
        test_fail(__FILE__, __LINE__, "%s is %.4f, not %.4f or more", key,
                  value(line, key), want);
}

void job_above(const char *line, const char *key, double want)
{
    if (test_fraction() <= 10 && !(value(line, key) > want))
        test_fail(__FILE__, __LINE__, "%s is %.4f, not above %.4f", key,
                  value(line, key), want);
}

const char *job_hash(const char *line)
{
    const char *hash = strstr(line, "\"params_hash\"");

    CHECK(hash);
    return test_keep(hash);
}

const char *job_adult_kept(const char *strategy, const char *ps)
{
    static const char model[] = "{\"model\": {";
    const char *config = job_adult(strategy);
    char text[9000];

    CHECK(strncmp(config, model, sizeof model - 1) == 0);
    snprintf(text, sizeof text, "%s\"ps\": {%s}, %s", model, ps,
             config + sizeof model - 1);
    return test_keep(text);
}

const char *job_with(const char *config, const char *key, const char *text)
{
    char all[9000];

    snprintf(all, sizeof all, "{\"%s\": \"%s\", %s", key, text, config + 1);
    return test_keep(all);
}

const char *job_at_rate(const char *config, const char *rate)
{
    static const char key[] = "\"learning_rate\": ";
    const char *at = strstr(config, key), *rest;
    char all[9000];

    CHECK(at);
    at += sizeof key - 1;
    rest = at + strcspn(at, "}");
    snprintf(all, sizeof all, "%.*s%s%s", (int)(at - config), config, rate,
             rest);
    return test_keep(all);
}

const char *job_seeded(const char *config, int seed)
{
    char all[9000];

    snprintf(all, sizeof all, "{\"seed\": %d, %s", seed, config + 1);
    return test_keep(all);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void job_median_at_least(const char *flags, const char *config, const char *key,
                         double want)
{
    enum { MOST = 9 };
    const char *same = test_keep(config), *seeds = getenv("FLEET_SEEDS");
    int n = seeds ? atoi(seeds) : 1;
    double got[MOST];

    CHECK(n >= 1 && n <= MOST);
    for (int seed = 0; seed < n; seed++)
        got[seed] = value(job_train(flags, job_seeded(same, seed)), key);
    qsort(got, (size_t)n, sizeof *got, by_size);
    if (test_fraction() == 1 && !(got[n / 2] >= want))
        test_fail(__FILE__, __LINE__,
                  "the median of %d is %.4f, from %.4f to %.4f, not %.4f or "
                  "more: %s",
                  n, got[n / 2], got[0], got[n - 1], want, key);
}

/* --- kills ---------------------------------------------------------------- */

void job_use_gpus(int n)
{
    char text[12];

    if (!rank_keys_can())
        setenv("FLEET_INSECURE", "1", 1);
    if (!device_kit_is_emulated()) {
        device_kit_need_gpus(n, true);
        setenv("FLEET_PLUGIN_PATH", gpu_kit_folder(), 1);
        return;
    }
    snprintf(text, sizeof text, "%d", n);
    setenv("FLEET_PLUGIN_PATH", test_beside("emu"), 1);
    setenv("FLEET_NCCL_PATH", test_beside("nccl"), 1);
    setenv("FLEET_EMU_DEVICES", text, 1);
    setenv("FLEET_EMU_LATE", "1", 1); /* as gpu_kit_open() has it */
}

/* Ranks that share a GPU have another number's flag. */
const char *job_on_gpus(const char *config)
{
    return job_with(config, "device",
                    device_kit_gpu_of(1) == 0 ? "gpu:0" : "gpu");
}

const char *job_epochs(const char *config, int epochs)
{
    const char *at = strstr(config, "\"epochs\": 5,");
    char text[9000];

    CHECK(at);
    snprintf(text, sizeof text, "%.*s\"epochs\": %d%s", (int)(at - config),
             config, epochs, at + strlen("\"epochs\": 5"));
    return test_keep(text);
}

const char *job_endless(const char *config)
{
    return job_epochs(config, 100000);
}

/* When rank 1 has said that it has begun, the server or rank 1 is killed. */
static void run_and_kill(const char *flags, const char *config, bool server)
{
    char script[30000], kill[5000];
    const char *train = job_script(job_endless(config));
    const char *log = test_path("rank1.log");

    if (!strstr(flags, "--devices"))
        launch_need_mpirun();
    snprintf(kill, sizeof kill,
             "(until grep -qs ', mode ' %s; do sleep 0.05; done; kill -9 $$) &",
             log);
    snprintf(script, sizeof script,
             "if " LAUNCH_SERVER "; then %s %s; elif " LAUNCH_WORKER(
                 1) "; then %s %s 2>%s; else %s; fi",
             server ? kill : "", train, server ? "" : kill, train, log, train);
    launch_deadline_ms = 60000;
    CHECK(launch_run(flags, script) != 0);
}

static void check_names(const char *log, const char *one, const char *other)
{
    const char *lines = launch_log(log);

    if (!strstr(lines, one) && !strstr(lines, other))
        test_fail(__FILE__, __LINE__, "%s does not name %s: %s", log, one,
                  lines);
    fprintf(stderr, "%s", lines);
}

void job_kill_rank(const char *flags, const char *config)
{
    run_and_kill(flags, config, false);
    CHECK_CONTAINS(launch_err(), "the job has failed: worker 1 ");
    check_names("workerlog.0", "rank 1 ", "worker 1 ");
}

void job_kill_server(const char *flags, const char *config)
{
    run_and_kill(flags, config, true);
    CHECK_CONTAINS(launch_err(), "the job has failed: server 0 ");
    check_names("workerlog.0", "server 0 ", "server 0:");
}

/* The file, or its first lines when a fraction has to do. */
const char *job_lines_of(const char *file, const char *name, int lines)
{
    char command[9000];
    const char *path;

    if (test_fraction() == 1)
        return file;
    path = test_file(name, "");
    snprintf(command, sizeof command, "zcat '%s' | head -n %d >'%s'", file,
             lines / test_fraction(), path);
    CHECK(system(command) == 0);
    return path;
}

#define ID(name, column)                                                       \
    ", {\"name\": \"" name "\", \"type\": \"uint64\", \"columns\": [" #column  \
    "]}"

const char *job_adult(const char *strategy)
{
    static char text[9000];

    snprintf(
        text, sizeof text,
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 8, "
        "\"hidden\": [100, 50]}, \"optimizer\": {\"type\": \"adam\", "
        "\"learning_rate\": 0.001}, \"epochs\": 5, \"strategy\": {%s}, "
        "\"dataset\": {\"format\": \"csv\", \"missing\": \"?\", "
        "\"comment\": \"|\", \"train\": [\"%s\"], \"test\": [\"%s\"], "
        "\"batch_size\": 64, \"shuffle\": 40000}, \"slots\": [{\"name\": "
        "\"income\", \"type\": \"float\", \"role\": \"label\", \"columns\": "
        "[14], \"transform\": \"equals\", \"value\": [\">50K\", \">50K.\"]}, "
        "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 6, \"columns\": "
        "[0, 2, 4, 10, 11, 12], \"transform\": [\"standardize\", "
        "\"log1p_standardize\", \"standardize\", \"log1p_standardize\", "
        "\"log1p_standardize\", \"standardize\"]}" ID("workclass", 1)
            ID("education", 3) ID("marital_status", 5) ID("occupation", 6)
                ID("relationship", 7) ID("race", 8) ID("sex", 9)
                    ID("native_country", 13) "]}",
        strategy,
        job_lines_of(source("samples/data/adult/adult.data.gz"), "train.txt",
                     32561),
        job_lines_of(source("samples/data/adult/adult.test.first13025.gz"),
                     "test.txt", 13026));
    return text;
}

static const char *idx_of(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "/usr/share/datasets/fashion-mnist/%s.gz",
             name);
    if (access(path, R_OK) != 0)
        test_skip("%s is absent: apt-get install dataset-fashion-mnist", path);
    return test_keep(path);
}

const char *job_fashion(const char *strategy)
{
    return job_fashion_of(strategy, 6);
}

const char *job_criteo(const char *strategy)
{
    static const char *const name[] = {"cat1", "cat4", "cat6", "cat8", "cat9"};
    static char text[9000];
    char ids[2000] = "";

    for (int i = 0; i < 5; i++)
        sprintf(ids + strlen(ids),
                ", {\"name\": \"%s\", \"type\": \"uint64\", \"columns\": [%d], "
                "\"transform\": \"none\"}",
                name[i], i + 1);
    snprintf(
        text, sizeof text,
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 8, "
        "\"hidden\": [64, 32]}, \"optimizer\": {\"type\": \"adam\", "
        "\"learning_rate\": 0.001}, \"epochs\": 2, \"strategy\": {%s}, "
        "\"dataset\": {\"format\": \"csv\", \"separator\": \"\\t\", "
        "\"train\": [\"%s\"], \"test\": [\"%s\"], \"batch_size\": 256, "
        "\"shuffle\": 130000}, \"slots\": [{\"name\": \"click\", \"type\": "
        "\"float\", \"role\": \"label\", \"columns\": [0]}%s]}",
        strategy,
        job_lines_of(test_data("criteo_attr/criteo_attr_train_125k.tsv.gz"),
                     "train.txt", 125152),
        job_lines_of(test_data("criteo_attr/criteo_attr_test_20k.tsv.gz"),
                     "test.txt", 20000),
        ids);
    return text;
}

const char *job_fashion_of(const char *strategy, int epochs)
{
    static char text[9000];

    if (test_fraction() > 1)
        test_skip("60,000 images are many for this variant");
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"mlp\", \"hidden\": [128, 64]}, "
             "\"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.001}, "
             "\"epochs\": %d, \"strategy\": {%s}, \"dataset\": "
             "{\"format\": \"idx\", \"train\": [\"%s\", \"%s\"], \"test\": "
             "[\"%s\", \"%s\"], \"batch_size\": 64, \"shuffle\": 60000}}",
             epochs, strategy, idx_of("train-images-idx3-ubyte"),
             idx_of("train-labels-idx1-ubyte"),
             idx_of("t10k-images-idx3-ubyte"),
             idx_of("t10k-labels-idx1-ubyte"));
    return text;
}
