/* torch_test.c - the models of fleet/applications.h against PyTorch: forward,
 * loss and every gradient, from the same weights and batch.
 *
 * A folder for each gets all that is needed and all that came out, and
 * torch_ref.py computes the rest in double, of all folders in one go: index.txt
 * names the model, its slots and a raw file for each tensor.
 */
#define SUITE torch
#include "test.h"
#include "train_kit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
static const fleet_mlp_options mlp = {
    .dim = 20, .classes = 5, .hidden = hidden, .n_hidden = 2};

static const fleet_task_options tasks[] = {{.label = "label"},
                                           {.label = "second", .weight = 0.5f}};

/* --- the folder ---------------------------------------------------------- */

typedef struct bundle {
    char folder[100];
    FILE *index;
    int n;
} bundle;

static FILE *open_in_folder(const bundle *b, const char *name)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    f = fopen(path, "wb");
    CHECK(f != NULL);
    return f;
}

/* The first free one of 0, 1, ... in the test's folder. */
static void open_bundle(bundle *b)
{
    int i = 0;

    do
        snprintf(b->folder, sizeof b->folder, "%s/%02d", test_folder(), i++);
    while (mkdir(b->folder, 0700) != 0 && errno == EEXIST);
    b->n = 0;
    b->index = open_in_folder(b, "index.txt");
}

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
    f = open_in_folder(b, file);
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

/* A third of the second label is 1: of a half a bias has hardly a gradient. */
static void add_second(kit_batch *b)
{
    int64_t *label = kit_ids(b, "second", 1, 3, 8);

    for (int i = 0; i < ROWS; i++)
        label[i] = label[i] == 0;
}

static kit_batch *ctr_batch(bool two_labels)
{
    kit_batch *b = kit_batch_new(ROWS);

    kit_floats(b, "left", 2, 1);
    kit_floats(b, "right", 3, 2);
    kit_ids(b, "one", 1, 20, 3);
    kit_ids(b, "three", 3, 40, 4);
    kit_ragged(b, "some", 5, 30, 5);
    kit_ragged(b, "mean", 5, 30, 6);
    kit_ids(b, "label", 1, 2, 7);
    if (two_labels)
        add_second(b);
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
             "/usr/bin/python3 %s/test/ops/torch_ref.py %s/?? >%s 2>&1",
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

static void put_result(bundle *b, const char *name, fleet_executor *tester,
                       kit_batch *batch, const fleet_var *var)
{
    float x[ROWS * 5];
    int64_t dims[FLEET_MAX_DIM];

    if (fleet_var_shape(var, dims) == 1) {
        CHECK_OK(kit_fetch(tester, batch, var, x, 1));
        put(b, "", name, 'f', x, (int64_t[]){1}, 1);
        return;
    }
    CHECK_OK(kit_fetch(tester, batch, var, x, ROWS * 5));
    put(b, "", name, 'f', x, (int64_t[]){ROWS, dims[1]}, 2);
}

static void put_tasks(bundle *b, fleet_executor *tester, kit_batch *batch,
                      const fleet_model *m)
{
    char name[32];

    for (int i = 0; i < m->n_task; i++) {
        fprintf(b->index, "task %s %g\n", fleet_var_name(m->task[i].label),
                (double)(tasks[i].weight > 0 ? tasks[i].weight : 1));
        snprintf(name, sizeof name, "task_%d", i);
        put_result(b, name, tester, batch, m->task[i].prediction);
        snprintf(name, sizeof name, "task_%d.loss", i);
        put_result(b, name, tester, batch, m->task[i].loss);
    }
    if (m->conversion)
        put_result(b, "conversion", tester, batch, m->conversion);
}

/* Run the model's first step, and write all of it for PyTorch. */
static void compare(const char *name, kit_model *m, kit_batch *batch)
{
    bundle b;
    fleet_executor *tester;
    float loss;

    open_bundle(&b);
    fprintf(b.index, "model %s\n", name);
    put_slots(&b);
    CHECK_OK(fleet_minimize(fleet_sgd(m->f, RATE), m->m.loss));
    m->e = fleet_executor_create(m->p, NULL);
    tester =
        fleet_executor_create(m->p, &(fleet_executor_options){.for_test = 1});
    CHECK(m->e && tester);
    put_batch(&b, batch);
    put_params(&b, m->f);
    put_result(&b, "prediction", tester, batch, m->m.prediction);
    put_tasks(&b, tester, batch, &m->m);
    loss = kit_step(m->e, batch, m->m.loss);
    put(&b, "", "loss", 'f', &loss, (int64_t[]){1}, 1);
    put_gradients(&b, m);
    for (size_t i = 0; i < m->f->store->tables.n; i++)
        put_rows(&b, m->f->store->tables.entry[i].value);
    CHECK(fclose(b.index) == 0);
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

typedef fleet_var *build_ctr(fleet_program *p, const fleet_ctr_options *o,
                             fleet_model *m);

/* The slots of all, with what the model has of its own. */
static void compare_ctr(const char *name, build_ctr *build, fleet_ctr_options o)
{
    kit_model m = model();

    o.dense = dense;
    o.n_dense = 2;
    o.ids = slots;
    o.n_ids = N_SLOT;
    CHECK_OK((build(m.p, &o, &m.m), fleet_program_status(m.p)));
    compare(name, &m, ctr_batch(o.n_tasks > 0));
}

#define DEEP .embedding_dim = 8, .hidden = hidden, .n_hidden = 2
#define CTR(name, ...)                                                         \
    compare_ctr(#name, fleet_##name, (fleet_ctr_options){__VA_ARGS__})
#define UNITS(...)                                                             \
    (const int64_t[])                                                          \
    {                                                                          \
        __VA_ARGS__                                                            \
    }

TEST_LIMIT(models_of_one_label_agree_with_pytorch, 120)
{
    kit_model m = model();

    CHECK(fleet_mlp(m.p, &mlp, &m.m) != NULL);
    compare("mlp", &m, mlp_batch());
    CTR(wide_deep, DEEP, .wide_ids = 1);
    CTR(ctr_dnn, DEEP);
    CTR(logistic_regression, .n_ids = 0);
    CTR(fm, .embedding_dim = 8);
    CTR(ffm, .embedding_dim = 4);
    CTR(nfm, DEEP);
    CTR(deepfm, DEEP);
    CTR(xdeepfm, DEEP, .cin = UNITS(7, 5), .n_cin = 2);
    CTR(dcn, DEEP, .cross_layers = 3);
    CTR(dcn_v2, DEEP);
    CTR(dcn_v2, DEEP, .low_rank = 6, .parallel = 1);
    CTR(dcn_v2, DEEP, .low_rank = 6, .experts = 3);
    CTR(dlrm, DEEP, .bottom = UNITS(12), .n_bottom = 1);
    CTR(dlrm, DEEP, .self_interaction = 1);
    CTR(autoint, DEEP, .attention = UNITS(12, 10), .n_attention = 2);
    /* one layer, without what it got, and no tower */
    CTR(autoint, .embedding_dim = 8, .hidden = hidden, .attention = UNITS(12),
        .n_attention = 1, .no_residual = 1);
    ask_torch();
}

#define TASKS .embedding_dim = 8, .tasks = tasks, .n_tasks = 2

TEST_LIMIT(models_of_several_labels_agree_with_pytorch, 120)
{
    CTR(share_bottom, TASKS, .bottom = hidden, .n_bottom = 2);
    CTR(mmoe, TASKS, .experts = 3, .expert_units = 12);
    CTR(ple, TASKS, .experts = 2, .shared_experts = 3, .expert_units = 12,
        .levels = 2);
    CTR(esmm, TASKS, .hidden = hidden, .n_hidden = 2);
    ask_torch();
}
