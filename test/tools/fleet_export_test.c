/* fleet_export_test.c - bin/fleet-export: a saved model becomes a file that
 * onnxruntime runs; options that are wrong are refused. */
#define SUITE fleet_export
#include "onnx_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

static char said[4000];

static int export(const char *arguments)
{
    char command[2000];

    snprintf(command, sizeof command, "cd %s && %s %s 2>&1", test_folder(),
             test_beside("fleet-export"), arguments);
    return test_shell(command, said, sizeof said);
}

/* A model whose ids without a row would read as initial values. */
static void save_model(kit_model *m, kit_batch **b)
{
    fleet_var *feed[KIT_MOST_FEEDS];
    int n = 0;

    kit_open(m, KIT_CTR, &(kit_options){0});
    *b = kit_batch_for(m, 8, 1);
    CHECK_OK(kit_run(m->e, *b));
    for (int i = 0; i < (*b)->n; i++)
        if (strcmp((*b)->feed[i].name, "label") != 0)
            feed[n++] = fleet_program_var(m->p, (*b)->feed[i].name);
    CHECK_OK(fleet_save_inference_model(m->f, test_path("saved"), feed, n,
                                        &m->m.prediction, 1));
}

/* The command's file has the bytes of the call. */
TEST(a_saved_model_becomes_a_file)
{
    kit_model m;
    kit_batch *b;
    fleet_predictor *p;
    char *text, *want;
    size_t size, want_size;

    onnx_need_writer();
    save_model(&m, &b);
    CHECK_INT(export("saved -o x.onnx"), 1);
    CHECK_CONTAINS(said, "fleet-export: onnx: an id without a row in table ");
    CHECK(!fl_file_exists(test_path("x.onnx")));
    CHECK_INT(export("saved --fresh zeros -o x.onnx"), 0);
    CHECK_TEXT(said, "");
    p = fleet_load_inference_model(test_path("saved"));
    CHECK(p != NULL);
    CHECK_OK(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ZEROS, 0));
    CHECK_OK(fleet_export_onnx(p, test_path("want.onnx"), NULL));
    CHECK_OK(fl_file_read(test_path("x.onnx"), &text, &size));
    CHECK_OK(fl_file_read(test_path("want.onnx"), &want, &want_size));
    CHECK(size == want_size && memcmp(text, want, size) == 0);
    fl_free(text);
    fl_free(want);
    fleet_predictor_destroy(p);
    CHECK_INT(export("saved --fresh row:3 --fresh embedding_wide=zeros "
                     "--external-data -o y.onnx"),
              0);
    CHECK(fl_file_exists(test_path("y.onnx.data")));
    CHECK_INT(export("saved --fresh zeros -o - | cmp - x.onnx"), 0);
    kit_batch_free(b);
    kit_close(&m);
}

/* A layer, whose weights go into the second file, and many small steps. */
static void save_long(const char *name, float weight)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *in = kit_data(p, "x", 30);
    fleet_fc_options o = {
        .weight = {.initializer = {FLEET_INIT_CONSTANT, weight, 0}}};
    fleet_var *out = fleet_fc(p, in, 50, &o);

    for (int i = 0; i < 200; i++)
        out = fleet_scale(p, out, 1, (float)i);
    CHECK_OK(fleet_save_inference_model(f, test_path(name), &in, 1, &out, 1));
    fleet_destroy(f);
}

/* The older model reads its own weights. */
TEST(a_pair_of_files_stays_when_the_second_one_has_no_room)
{
    char command[2000];

    onnx_need_writer();
    save_long("one", 1);
    save_long("two", 2);
    CHECK_INT(export("one --external-data -o z.onnx && cp z.onnx.data kept"),
              0);
    snprintf(command, sizeof command,
             "cd %s && (ulimit -f 20; exec %s two --external-data -o z.onnx) "
             "2>&1",
             test_folder(), test_beside("fleet-export"));
    CHECK_INT(test_shell(command, said, sizeof said), 1);
    CHECK_CONTAINS(said, "File too large");
    snprintf(command, sizeof command,
             "cd %s && cmp z.onnx.data kept && ls -A | grep -c z.onnx",
             test_folder());
    CHECK_INT(test_shell(command, said, sizeof said), 0);
    CHECK_TEXT(said, "2\n");
}

static void refuse(const char *arguments, int status, const char *words)
{
    CHECK_INT(export(arguments), status);
    CHECK_CONTAINS(said, words);
}

TEST(wrong_options_and_models_are_refused)
{
    static const char usage[] = "usage: fleet-export [OPTION]... MODEL";

    refuse("", 2, usage);
    refuse("a", 2, usage);
    refuse("a b -o x", 2, usage);
    refuse("a -o ''", 2, usage);
    refuse("a -o x --fresh ones", 2, usage);
    refuse("a -o x --fresh row:", 2, usage);
    refuse("a -o x --fresh row:1x", 2, usage);
    refuse("a -o x --no-such", 2, usage);
    refuse("nowhere -o x", 1, "fleet-export: ");
    CHECK_INT(export("--help"), 0);
    CHECK_CONTAINS(said, usage);
    CHECK_INT(export("--version"), 0);
    CHECK_CONTAINS(said, "fleet-export ");
}
