/* onnx_kit.c - see onnx_kit.h. */
#define SUITE onnx_kit
#include "onnx_kit.h"
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/onnx/onnx_write.h"

void onnx_need_writer(void)
{
    if (fl_onnx_can_write() != FLEET_OK)
        test_skip("%s", fleet_last_error());
}

void onnx_open(onnx_model *m, const char *title, fleet_predictor *p,
               const fleet_onnx_options *options)
{
    char path[300];
    int i = 0;

    onnx_need_writer();
    *m = (onnx_model){.p = p};
    do
        snprintf(m->folder, sizeof m->folder, "%s/onnx-%03d", test_folder(),
                 i++);
    while (mkdir(m->folder, 0700) != 0 && errno == EEXIST);
    snprintf(path, sizeof path, "%s/model.onnx", m->folder);
    CHECK_OK(fleet_export_onnx(p, path, options));
    snprintf(path, sizeof path, "%s/index.txt", m->folder);
    m->index = fopen(path, "w");
    CHECK(m->index != NULL);
    fprintf(m->index, "title %s\n", title);
}

void onnx_close(onnx_model *m)
{
    CHECK(fclose(m->index) == 0);
}

/* A line of the index: what, type, file, dimensions, and the name last. */
static void put_array(onnx_model *m, const char *what, const char *name,
                      fleet_dtype dtype, const void *data, const int64_t *dims,
                      int n_dim)
{
    size_t count = 1, size = dtype == FLEET_INT64 ? 8 : 4;
    char path[300];
    FILE *f;

    fprintf(m->index, "%s\t%s\t%d.bin\t", what,
            dtype == FLEET_INT64 ? "int64" : "float32", m->n_file);
    for (int i = 0; i < n_dim; i++) {
        fprintf(m->index, "%s%lld", i ? "," : "", (long long)dims[i]);
        count *= (size_t)dims[i];
    }
    fprintf(m->index, "\t%s\n", name);
    snprintf(path, sizeof path, "%s/%d.bin", m->folder, m->n_file++);
    f = fopen(path, "wb");
    CHECK(f && fwrite(data, size, count, f) == count && fclose(f) == 0);
}

/* Weights have no offsets of their own. */
static bool has_offsets(const onnx_model *m, const fleet_feed *feed)
{
    char input[300];
    const char *end = strstr(feed->name, ".weights");

    if (!feed->offsets || !end || end[strlen(".weights")])
        return feed->offsets != NULL;
    snprintf(input, sizeof input, "%.*s", (int)(end - feed->name), feed->name);
    for (int i = 0; i < fleet_predictor_input_num(m->p); i++)
        if (strcmp(fleet_var_name(fleet_predictor_input(m->p, i)), input) == 0)
            return false;
    return true;
}

static void put_feed(onnx_model *m, const fleet_feed *feed)
{
    char name[300];
    int64_t rows = feed->dims[0], ends = rows + 1;

    if (!feed->offsets) {
        put_array(m, "feed", feed->name, feed->dtype, feed->data, feed->dims,
                  feed->n_dim);
        return;
    }
    put_array(m, "feed", feed->name, feed->dtype,
              (const char *)feed->data +
                  8 / (feed->dtype == FLEET_INT64 ? 1 : 2) * feed->offsets[0],
              (int64_t[]){feed->offsets[rows] - feed->offsets[0]}, 1);
    if (!has_offsets(m, feed))
        return;
    snprintf(name, sizeof name, "%s.offsets", feed->name);
    CHECK_INT(feed->offsets[0], 0);
    put_array(m, "feed", name, FLEET_INT64, feed->offsets, &ends, 1);
}

/* Only what the model reads. */
static int inputs_of(const onnx_model *m, const fleet_feed *feed, int n,
                     fleet_feed *to)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < fleet_predictor_input_num(m->p); k++)
            if (strcmp(fleet_var_name(fleet_predictor_input(m->p, k)),
                       feed[i].name) == 0)
                to[count++] = feed[i];
    return count;
}

enum { MOST_FEEDS = 40, MOST_OUTPUTS = 32 };

/* Run the predictor on it; its outputs are of `rows` samples. */
static fleet_status run_predictor(const onnx_model *m, const fleet_feed *feed,
                                  int n, void **out, int64_t rows,
                                  int64_t (*dims)[FLEET_MAX_DIM], int *n_dim)
{
    size_t size[MOST_OUTPUTS];
    int outputs = fleet_predictor_output_num(m->p);

    CHECK(outputs <= MOST_OUTPUTS);
    for (int i = 0; i < outputs; i++) {
        const fleet_var *v = fleet_predictor_output(m->p, i);

        n_dim[i] = fleet_var_shape(v, dims[i]);
        size[i] = fleet_var_dtype(v) == FLEET_INT64 ? 8 : 4;
        for (int d = 0; d < n_dim[i]; d++) {
            if (dims[i][d] < 0)
                dims[i][d] *= -rows;
            size[i] *= (size_t)dims[i][d];
        }
        out[i] = calloc(1, size[i] + 1);
    }
    return fleet_predictor_run(m->p, feed, n, out, size, outputs);
}

void onnx_batch(onnx_model *m, const fleet_feed *all, int n, double tolerance)
{
    int64_t dims[MOST_OUTPUTS][FLEET_MAX_DIM];
    fleet_feed feed[MOST_FEEDS];
    void *out[MOST_OUTPUTS];
    int n_dim[MOST_OUTPUTS];

    n = inputs_of(m, all, n, feed);
    CHECK(n > 0);
    fprintf(m->index, "batch\t%g\n", tolerance > 0 ? tolerance : 1e-5);
    for (int i = 0; i < n; i++)
        put_feed(m, &feed[i]);
    CHECK_OK(run_predictor(m, feed, n, out, feed[0].dims[0], dims, n_dim));
    for (int i = 0; i < fleet_predictor_output_num(m->p); i++) {
        const fleet_var *v = fleet_predictor_output(m->p, i);

        put_array(m, "want", fleet_var_name(v), fleet_var_dtype(v), out[i],
                  dims[i], n_dim[i]);
        free(out[i]);
    }
}

void onnx_bad_batch(onnx_model *m, const fleet_feed *all, int n)
{
    int64_t dims[MOST_OUTPUTS][FLEET_MAX_DIM];
    fleet_feed feed[MOST_FEEDS];
    void *out[MOST_OUTPUTS];
    int n_dim[MOST_OUTPUTS];

    n = inputs_of(m, all, n, feed);
    fprintf(m->index, "bad\n");
    for (int i = 0; i < n; i++)
        put_feed(m, &feed[i]);
    CHECK_STATUS(run_predictor(m, feed, n, out, feed[0].dims[0], dims, n_dim),
                 FLEET_EINVAL);
    for (int i = 0; i < fleet_predictor_output_num(m->p); i++)
        free(out[i]);
}

void onnx_ask(void)
{
    const char *source = getenv("FLEET_SOURCE");
    char command[1000], report[300], *text;
    size_t size;
    int status;

    snprintf(report, sizeof report, "%s/report", test_folder());
    snprintf(command, sizeof command,
             "/usr/bin/python3 '%s/test/fleet/onnx_ref.py' %s/onnx-* >%s 2>&1",
             source && *source ? source : ".", test_folder(), report);
    status = system(command);
    CHECK_OK(fl_file_read(report, &text, &size));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no onnx and onnxruntime for /usr/bin/python3 (make onnx): "
                  "%s",
                  text);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        test_skip("no /usr/bin/python3");
    if (status != 0)
        test_fail(__FILE__, __LINE__, "onnxruntime says otherwise:\n%s", text);
    fl_free(text);
}

fleet_predictor *onnx_predictor(fleet *f, fleet_var *const *feed, int n_feed,
                                fleet_var *const *fetch, int n_fetch)
{
    const char *path = test_path("saved");
    fleet_predictor *p;

    CHECK_OK(fleet_save_inference_model(f, path, feed, n_feed, fetch, n_fetch));
    p = fleet_load_inference_model(path);
    CHECK(p != NULL);
    CHECK_OK(fleet_predictor_set_fresh(p, NULL, FLEET_FRESH_ZEROS, 0));
    return p;
}
