/* torch_kit.c - see torch_kit.h. */
#define SUITE torch_kit
#include "torch_kit.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/applications/ctr.h"
#include "fleet/job/handle.h"
#include "runtime/exec/compile.h"

/* A row's gradient comes from what SGD made of it: with a large rate, so that
 * the weights' rounding does not matter. */
static const float RATE = 64;

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
    bool known; /* first ones are there: those of a second step */
    int64_t n;
} row_list;

static fleet_status note_row(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    row_list *l = arg;

    (void)bucket;
    (void)key;
    memcpy(l->first + l->n++ * l->rows->dim, row,
           (size_t)l->rows->dim * sizeof *row);
    return FLEET_OK;
}

/* In the order of each(), which another step of the same keys does not change;
 * for free(). */
static float *rows_before(const fl_rows *r)
{
    row_list l = {.rows = r,
                  .first = calloc((size_t)(r->methods->count(r) * r->dim),
                                  sizeof(float))};

    CHECK_OK(r->methods->each(r, note_row, &l));
    return l.first;
}

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    row_list *l = arg;
    int64_t dim = l->rows->dim;
    float *first = l->first + l->n * dim, *grad = l->grad + l->n * dim;

    (void)bucket;
    l->key[l->n] = (int64_t)key;
    l->n++;
    if (!l->known)
        fl_filler_row(&l->rows->filler, key, first, dim);
    for (int64_t i = 0; i < dim; i++)
        grad[i] = (first[i] - row[i]) / RATE;
    return FLEET_OK;
}

/* first: of rows_before(); NULL: the initial ones. */
static void put_rows(bundle *b, const fl_rows *r, float *first)
{
    size_t n = (size_t)r->methods->count(r), floats = n * (size_t)r->dim;
    row_list l = {.rows = r,
                  .key = calloc(n, sizeof(int64_t)),
                  .first = first ? first : calloc(floats, sizeof(float)),
                  .grad = calloc(floats, sizeof(float)),
                  .known = first != NULL};

    CHECK_OK(r->methods->each(r, add_row, &l));
    put(b, "keys.", r->name, 'i', l.key, (int64_t[]){l.n}, 1);
    put(b, "rows.", r->name, 'f', l.first, (int64_t[]){l.n, r->dim}, 2);
    put(b, "grad.rows.", r->name, 'f', l.grad, (int64_t[]){l.n, r->dim}, 2);
    free(l.key);
    free(l.first);
    free(l.grad);
}

static void put_option(bundle *b, const fl_ctr_option *o, const void *at)
{
    if (o->type == FL_OPTION_INT)
        fprintf(b->index, "option %s %lld\n", o->name,
                (long long)*(const int64_t *)at);
    else if (o->type == FL_OPTION_BOOL)
        fprintf(b->index, "option %s %d\n", o->name, *(const int *)at);
    else if (o->type == FL_OPTION_FLOAT)
        fprintf(b->index, "option %s %.9f\n", o->name,
                (double)*(const float *)at);
}

/* Of ids: name, ids of a sample, combiner, table, role; and the model's
 * numbers. */
static void put_options(bundle *b, const fleet_ctr_options *o)
{
    for (int i = 0; i < o->n_ids; i++)
        fprintf(b->index, "slot %s %d %s %s %s\n", o->ids[i].name,
                (int)o->ids[i].dim,
                o->ids[i].combiner == FLEET_MEAN ? "mean" : "sum",
                o->ids[i].table ? o->ids[i].table : "embedding",
                fl_slot_role_names[o->ids[i].role]);
    for (const fl_ctr_option *n = fl_ctr_options; n->name; n++)
        put_option(b, n, (const char *)o + n->at);
}

/* The script's verdict; what it printed, if it is a bad one. */
void torch_ask(void)
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
    enum { MOST = 16 };
    float x[TORCH_ROWS * MOST];
    int64_t dims[FLEET_MAX_DIM];

    if (fleet_var_shape(var, dims) == 1) {
        CHECK_OK(kit_fetch(tester, batch, var, x, 1));
        put(b, "", name, 'f', x, (int64_t[]){1}, 1);
        return;
    }
    CHECK_OK(kit_fetch(tester, batch, var, x, TORCH_ROWS * MOST));
    put(b, "", name, 'f', x, (int64_t[]){TORCH_ROWS, dims[1]}, 2);
}

static void put_tasks(bundle *b, fleet_executor *tester, kit_batch *batch,
                      const fleet_model *m, const fleet_ctr_options *o)
{
    char name[32];

    for (int i = 0; i < m->n_task; i++) {
        fprintf(b->index, "task %s %g\n", fleet_var_name(m->task[i].label),
                (double)(o->tasks[i].weight > 0 ? o->tasks[i].weight : 1));
        snprintf(name, sizeof name, "task_%d", i);
        put_result(b, name, tester, batch, m->task[i].prediction);
        snprintf(name, sizeof name, "task_%d.loss", i);
        put_result(b, name, tester, batch, m->task[i].loss);
    }
    if (m->conversion)
        put_result(b, "conversion", tester, batch, m->conversion);
    if (m->user)
        put_result(b, "user", tester, batch, m->user);
    if (m->item)
        put_result(b, "item", tester, batch, m->item);
}

/* The step that is compared is the second one. */
static void compare_step(const char *name, kit_model *m, kit_batch *batch,
                         const fleet_ctr_options *o, bool second)
{
    const fl_map *tables = &m->f->store->tables;
    float loss, *first[8] = {NULL};
    fleet_executor *tester;
    bundle b;

    open_bundle(&b);
    fprintf(b.index, "model %s\n", name);
    if (o)
        put_options(&b, o);
    CHECK_OK(fleet_minimize(fleet_sgd(m->f, RATE), m->m.loss));
    m->e = fleet_executor_create(m->p, NULL);
    tester =
        fleet_executor_create(m->p, &(fleet_executor_options){.for_test = 1});
    CHECK(m->e && tester);
    if (second)
        kit_step(m->e, batch, m->m.loss);
    for (size_t i = 0; second && i < tables->n; i++)
        first[i] = rows_before(tables->entry[i].value);
    put_batch(&b, batch);
    put_params(&b, m->f);
    put_result(&b, "prediction", tester, batch, m->m.prediction);
    put_tasks(&b, tester, batch, &m->m, o);
    loss = kit_step(m->e, batch, m->m.loss);
    put(&b, "", "loss", 'f', &loss, (int64_t[]){1}, 1);
    put_gradients(&b, m);
    CHECK(tables->n <= 8);
    for (size_t i = 0; i < tables->n; i++)
        put_rows(&b, tables->entry[i].value, first[i]);
    CHECK(fclose(b.index) == 0);
    kit_batch_free(batch);
    fleet_executor_destroy(tester);
    kit_close(m);
}

void torch_compare(const char *name, kit_model *m, kit_batch *batch,
                   const fleet_ctr_options *o)
{
    compare_step(name, m, batch, o, false);
}

void torch_compare_second(const char *name, kit_model *m, kit_batch *batch,
                          const fleet_ctr_options *o)
{
    compare_step(name, m, batch, o, true);
}

kit_model torch_model(void)
{
    kit_model m = {.f = kit_handle(&(kit_options){.threads = 2})};

    m.p = fleet_program_create(m.f);
    return m;
}
