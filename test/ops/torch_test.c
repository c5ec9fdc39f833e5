/* torch_test.c - the models of fleet/applications.h against PyTorch: forward,
 * loss and every gradient, from the same weights and batch.
 *
 * A folder gets all that is needed and all that came out, and torch_ref.py
 * computes the rest in double: index.txt names the model, its slots and a raw
 * file for each tensor.
 */
#define SUITE torch
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/exec/compile.h"

/* Rows enough for several slices, and for weights transposed once for all. */
enum { ROWS = 300, N_SLOT = 4 };

/* A row's gradient comes from what SGD made of it: with a large rate, so that
 * the weights' rounding does not matter. */
static const float RATE = 64;

static const int64_t hidden[] = {32, 16};
static const fleet_dense_slot dense[] = {{.name = "left", .dim = 2},
                                         {.name = "right", .dim = 3}};
static const fleet_id_slot slots[N_SLOT] = {
    {.name = "one", .dim = 1},
    {.name = "three", .dim = 3},
    {.name = "some", .dim = -1},
    {.name = "mean", .dim = -1, .combiner = FLEET_MEAN},
};
static const fleet_ctr_options ctr = {.dense = dense,
                                      .n_dense = 2,
                                      .ids = slots,
                                      .n_ids = N_SLOT,
                                      .embedding_dim = 8,
                                      .hidden = hidden,
                                      .n_hidden = 2,
                                      .wide_ids = 1};
static const fleet_mlp_options mlp = {
    .dim = 20, .classes = 5, .hidden = hidden, .n_hidden = 2};

/* --- the folder ---------------------------------------------------------- */

static FILE *open_in_folder(const char *name)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    f = fopen(path, "wb");
    CHECK(f != NULL);
    return f;
}

typedef struct bundle {
    FILE *index;
    int n;
} bundle;

static void put(bundle *b, const char *kind, const char *name, char dtype,
                const void *data, const int64_t *dims, int n_dim)
{
    size_t count = 1;
    char file[32];
    FILE *f;

    snprintf(file, sizeof file, "%d.bin", b->n++);
    fprintf(b->index, "tensor %s%s %c %s", kind, name, dtype, file);
    for (int i = 0; i < n_dim; i++) {
        fprintf(b->index, " %lld", (long long)dims[i]);
        count *= (size_t)dims[i];
    }
    fputc('\n', b->index);
    f = open_in_folder(file);
    CHECK(fwrite(data, dtype == 'f' ? 4 : 8, count, f) == count);
    CHECK(fclose(f) == 0);
}

static void put_batch(bundle *b, const kit_batch *batch)
{
    for (int i = 0; i < batch->n; i++) {
        const fleet_feed *f = &batch->feed[i];
        int64_t dims[2] = {batch->rows, batch->dims[i][1]};
        int64_t all[1] = {f->offsets ? f->offsets[batch->rows] : 0};
        int64_t offsets[1] = {batch->rows + 1};

        if (f->offsets) {
            put(b, "feed.", f->name, 'i', f->data, all, 1);
            put(b, "offsets.", f->name, 'i', f->offsets, offsets, 1);
        } else {
            put(b, "feed.", f->name, f->dtype == FLEET_INT64 ? 'i' : 'f',
                f->data, dims, 2);
        }
    }
}

static void put_params(bundle *b, const fleet *f)
{
    for (size_t i = 0; i < f->store->params.n; i++) {
        const fl_param *p = f->store->params.entry[i].value;

        put(b, "param.", p->name, 'f', p->flat->weight + p->offset,
            p->shape.dim, p->shape.n_dim);
    }
}

static void put_gradients(bundle *b, const kit_model *m)
{
    const fl_plan *plan = m->e->last->plan;

    for (size_t i = 0; i < m->p->n_var; i++) {
        const fleet_var *v = m->p->var[i];

        if (v->kind != FL_VAR_PARAM)
            continue;
        CHECK(plan->gradient_of[i] >= 0);
        put(b, "grad.param.", v->name, 'f',
            fl_compiled_pointer(m->e->last, plan->gradient_of[i]), v->shape.dim,
            v->shape.n_dim);
    }
}

/* A table's rows as they were, and how they went. */
typedef struct row_list {
    const fl_rows *rows;
    int64_t *key;
    float *first, *grad;
    int64_t n;
} row_list;

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    row_list *l = arg;
    int64_t dim = l->rows->dim;
    float *first = l->first + l->n * dim, *grad = l->grad + l->n * dim;

    (void)bucket;
    l->key[l->n] = (int64_t)key;
    fl_filler_row(&l->rows->filler, (uint64_t)l->key[l->n++], first, dim);
    for (int64_t i = 0; i < dim; i++)
        grad[i] = (first[i] - row[i]) / RATE;
    return FLEET_OK;
}

static void put_rows(bundle *b, const fl_rows *r)
{
    size_t n = (size_t)r->methods->count(r), floats = n * (size_t)r->dim;
    row_list l = {r, calloc(n, sizeof(int64_t)), calloc(floats, sizeof(float)),
                  calloc(floats, sizeof(float)), 0};

    CHECK_OK(r->methods->each(r, add_row, &l));
    put(b, "keys.", r->name, 'i', l.key, (int64_t[]){l.n}, 1);
    put(b, "rows.", r->name, 'f', l.first, (int64_t[]){l.n, r->dim}, 2);
    put(b, "grad.rows.", r->name, 'f', l.grad, (int64_t[]){l.n, r->dim}, 2);
    free(l.key);
    free(l.first);
    free(l.grad);
}

static void put_slots(bundle *b)
{
    for (int i = 0; i < N_SLOT; i++)
        fprintf(b->index, "slot %s %d %s embedding\n", slots[i].name,
                (int)slots[i].dim,
                slots[i].combiner == FLEET_MEAN ? "mean" : "sum");
}

/* --- a model ------------------------------------------------------------- */

static kit_batch *ctr_batch(void)
{
    kit_batch *b = kit_batch_new(ROWS);

    kit_floats(b, "left", 2, 1);
    kit_floats(b, "right", 3, 2);
    kit_ids(b, "one", 1, 20, 3);
    kit_ids(b, "three", 3, 40, 4);
    kit_ragged(b, "some", 5, 30, 5);
    kit_ragged(b, "mean", 5, 30, 6);
    kit_ids(b, "label", 1, 2, 7);
    return b;
}

static kit_batch *mlp_batch(void)
{
    kit_batch *b = kit_batch_new(ROWS);

    kit_floats(b, "image", 20, 1);
    kit_ids(b, "label", 1, 5, 2);
    return b;
}

/* The script's verdict; what it printed, if it is a bad one. */
static void ask_torch(void)
{
    const char *source = getenv("FLEET_SOURCE");
    char command[1000], report[300], *text;
    size_t size;
    int status;

    snprintf(report, sizeof report, "%s/report", test_folder());
    snprintf(command, sizeof command,
             "/usr/bin/python3 %s/test/ops/torch_ref.py %s >%s 2>&1",
             source && *source ? source : ".", test_folder(), report);
    status = system(command);
    CHECK_OK(fl_file_read(report, &text, &size));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no PyTorch for /usr/bin/python3: %s", text);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        test_skip("no /usr/bin/python3");
    if (status != 0)
        test_fail(__FILE__, __LINE__, "PyTorch says otherwise:\n%s", text);
    fl_free(text);
}

/* Run the model's first step, and hand everything to PyTorch. */
static void compare(const char *name, kit_model *m, kit_batch *batch)
{
    bundle b = {open_in_folder("index.txt"), 0};
    float p[ROWS * 5], loss;
    int64_t dims[FLEET_MAX_DIM];
    fleet_executor *tester;

    fprintf(b.index, "model %s\n", name);
    put_slots(&b);
    CHECK_OK(fleet_minimize(fleet_sgd(m->f, RATE), m->m.loss));
    m->e = fleet_executor_create(m->p, NULL);
    tester =
        fleet_executor_create(m->p, &(fleet_executor_options){.for_test = 1});
    CHECK(m->e && tester);
    put_batch(&b, batch);
    put_params(&b, m->f);
    CHECK_OK(kit_fetch(tester, batch, m->m.prediction, p, ROWS * 5));
    loss = kit_step(m->e, batch, m->m.loss);
    fleet_var_shape(m->m.prediction, dims);
    put(&b, "", "prediction", 'f', p, (int64_t[]){ROWS, dims[1]}, 2);
    put(&b, "", "loss", 'f', &loss, (int64_t[]){1}, 1);
    put_gradients(&b, m);
    for (size_t i = 0; i < m->f->store->tables.n; i++)
        put_rows(&b, m->f->store->tables.entry[i].value);
    CHECK(fclose(b.index) == 0);
    ask_torch();
    kit_batch_free(batch);
    fleet_executor_destroy(tester);
    kit_close(m);
}

static kit_model model(void)
{
    kit_model m = {.f = kit_handle(&(kit_options){.threads = 2})};

    m.p = fleet_program_create(m.f);
    return m;
}

TEST_LIMIT(an_mlp_agrees_with_pytorch, 120)
{
    kit_model m = model();

    CHECK(fleet_mlp(m.p, &mlp, &m.m) != NULL);
    compare("mlp", &m, mlp_batch());
}

TEST_LIMIT(wide_and_deep_agrees_with_pytorch, 120)
{
    kit_model m = model();

    CHECK(fleet_wide_deep(m.p, &ctr, &m.m) != NULL);
    compare("wide_deep", &m, ctr_batch());
}

TEST_LIMIT(ctr_dnn_agrees_with_pytorch, 120)
{
    kit_model m = model();

    CHECK(fleet_ctr_dnn(m.p, &ctr, &m.m) != NULL);
    compare("ctr_dnn", &m, ctr_batch());
}

TEST_LIMIT(deepfm_agrees_with_pytorch, 120)
{
    kit_model m = model();

    CHECK(fleet_deepfm(m.p, &ctr, &m.m) != NULL);
    compare("deepfm", &m, ctr_batch());
}
