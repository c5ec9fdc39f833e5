/* gpu_progress_test.c - what a pass on a GPU prints: the loss of every n-th
 * batch, without waiting for any; a progress that says nothing until there is
 * something to say. The GPU works as late as it may. */
#define SUITE gpu_progress
#include "gpu_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

enum { BATCHES = 12, ROWS = 20, PIXELS = 20 };

static char lines[1 << 16];

static void keep_info(void *user, fleet_log_level level, const char *line)
{
    size_t n = strlen(lines);

    (void)user;
    if (level == FLEET_LOG_INFO)
        snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

/* Numbers, and one of five classes, by line. */
static const char *write_data(void)
{
    size_t room = BATCHES * ROWS * (PIXELS * 12 + 20), used = 0;
    char *text = malloc(room);
    const char *path;

    for (int i = 0; i < BATCHES * ROWS; i++) {
        used += (size_t)snprintf(text + used, room - used, "%d", PIXELS);
        for (int j = 0; j < PIXELS; j++)
            used += (size_t)snprintf(text + used, room - used, " %.4f",
                                     (double)kit_noise(i * PIXELS + j, 1));
        used += (size_t)snprintf(text + used, room - used, " 1 %d\n", i % 5);
    }
    path = test_file_bytes("data.txt", text, used);
    free(text);
    return path;
}

static fleet_dataset *open_data(const kit_model *m)
{
    fleet_var *vars[] = {fleet_program_var(m->p, "image"),
                         fleet_program_var(m->p, "label")};
    fleet_dataset_options o = {
        .batch_size = ROWS, .thread_num = 1, .use_var = vars, .n_use_var = 2};
    fleet_dataset *d = fleet_queue_dataset(m->f, &o);
    const char *file = write_data();

    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, &file, 1));
    return d;
}

/* --- lines --------------------------------------------------------------- */

static long launches[BATCHES + 1];

static int count_launches(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)samples;
    launches[batch] = gpu_kit_control()->launches();
    return 0;
}

/* A pass that prints each batch's loss, and perhaps what has to be fetched. */
static void run_pass(int n_fetch, bool no_graphs)
{
    static const char *const names[] = {"loss", "acc"};
    fleet_train_options o = {.fetch_info = names,
                             .n_fetch = n_fetch,
                             .print_period = 1,
                             .on_batch = count_launches};
    fleet_dataset *d;
    kit_model m;

    lines[0] = 0;
    m = gpu_kit_model(KIT_MLP, (kit_options){.no_graphs = no_graphs});
    m.f->context.log.callback = keep_info;
    m.f->context.log.level = FLEET_LOG_INFO;
    o.fetch_list = (const fleet_var *[]){m.m.loss, m.m.prediction};
    d = open_data(&m);
    CHECK_OK(fleet_train_from_dataset(m.e, d, &o, NULL));
    launches[0] = gpu_kit_control()->launches();
    kit_close(&m);
}

static void read_losses(double *loss)
{
    const char *at = lines;

    for (int i = 0; i < BATCHES; i++) {
        int batch = 0;

        at = strstr(at, "batch: [");
        CHECK(at != NULL);
        CHECK_INT(sscanf(at, "batch: [%d], loss[1]:[%lf]", &batch, &loss[i]),
                  2);
        CHECK_INT(batch, i + 1);
        at++;
    }
    CHECK(strstr(at, "batch: [") == NULL);
}

TEST(lines_have_the_loss_of_their_own_batch)
{
    double loss[BATCHES], fetched[BATCHES];

    gpu_kit_open();
    run_pass(2, true);
    read_losses(fetched);
    for (int no_graphs = 0; no_graphs < 2; no_graphs++) {
        run_pass(1, no_graphs);
        read_losses(loss);
        for (int i = 0; i < BATCHES; i++)
            CHECK(loss[i] == fetched[i] && loss[i] > 0);
    }
    gpu_kit_close();
}

/* After a batch's line was due, the GPU has done no kernel of it, nor of the
 * one before, since nobody has waited. */
TEST(a_line_with_the_loss_alone_waits_for_no_batch)
{
    long all, each;

    gpu_kit_open();
    gpu_kit_control();
    run_pass(1, false);
    all = launches[0];
    each = launches[BATCHES] - launches[BATCHES - 1];
    CHECK(each > 5);
    CHECK_INT(all - launches[BATCHES], 2 * each);
    CHECK_INT(launches[2], launches[1]);
    gpu_kit_close();
}

TEST(a_line_with_anything_else_waits_for_its_batch)
{
    gpu_kit_open();
    gpu_kit_control();
    run_pass(2, false);
    CHECK_INT(launches[0], launches[BATCHES]);
    gpu_kit_close();
}

/* --- progress ------------------------------------------------------------ */

static struct {
    int unknown;
    double last;
} progress;

static void watch(void *user, const fleet_progress *p)
{
    (void)user;
    progress.unknown += isnan(p->loss);
    progress.last = p->loss;
}

TEST(the_last_progress_of_an_epoch_has_the_mean_of_all_its_batches)
{
    char config[1000];
    fleet_config_options o = {.on_progress = watch, .log = keep_info};
    double loss[2];
    char *line;

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        snprintf(config, sizeof config,
                 "{\"model\": {\"type\": \"mlp\", \"classes\": 5},"
                 " \"device\": \"%s\", \"epochs\": 1, \"dataset\": {"
                 " \"format\": \"multislot\", \"batch_size\": %d,"
                 " \"train\": [\"%s\"]}, \"slots\": ["
                 " {\"name\": \"image\", \"type\": \"float\", \"dim\": %d},"
                 " {\"name\": \"label\", \"type\": \"uint64\","
                 " \"role\": \"label\"}]}",
                 i ? "gpu:0" : "cpu", ROWS, write_data(), PIXELS);
        memset(&progress, 0, sizeof progress);
        CHECK_OK(
            fleet_train_from_config(test_file("c.json", config), &o, &line));
        loss[i] = progress.last;
        CHECK_INT(progress.unknown, i); /* of a GPU's first batch */
        fleet_free(line);
    }
    CHECK(loss[0] > 0.5);
    CHECK_NEAR(loss[1], loss[0], 1e-3);
    gpu_kit_close();
}

/* --- validations ---------------------------------------------------------- */

/* Between two batches nothing may be left on the GPU, or be lost there. */
TEST(a_training_that_is_validated_between_batches_is_the_same_one)
{
    char config[1500], log_path[400];
    char *line[2];

    gpu_kit_open();
    snprintf(config, sizeof config,
             "{\"model\": {\"type\": \"mlp\", \"classes\": 5},"
             " \"device\": \"gpu:0\", \"epochs\": 2, \"dataset\": {"
             " \"format\": \"multislot\", \"batch_size\": %d,"
             " \"train\": [\"%s\"], \"test\": [\"%s\"]}, \"slots\": ["
             " {\"name\": \"image\", \"type\": \"float\", \"dim\": %d},"
             " {\"name\": \"label\", \"type\": \"uint64\","
             " \"role\": \"label\"}]}",
             ROWS, write_data(), write_data(), PIXELS);
    snprintf(log_path, sizeof log_path, "metrics_log.path=%s", test_path("m"));
    for (int i = 0; i < 2; i++) {
        const char *const set[] = {"validate_every.steps=1", log_path,
                                   "metrics_log.steps=1"};
        const fleet_config_options o = {
            .log = keep_info, .set = set, .n_set = i ? 3 : 0};

        CHECK_OK(
            fleet_train_from_config(test_file("c.json", config), &o, &line[i]));
    }
    CHECK_TEXT(test_json_value(line[1], "\"params_hash\""),
               test_json_value(line[0], "\"params_hash\""));
    CHECK_TEXT(test_json_value(line[1], "\"loss\""),
               test_json_value(line[0], "\"loss\""));
    for (int i = 0; i < 2; i++)
        fleet_free(line[i]);
    gpu_kit_close();
}
