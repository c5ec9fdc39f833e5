/* device_kit.c - see device_kit.h. */
#define SUITE device_kit
#include "device_kit.h"
#include "test.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/simd/half_float.h"
#include "cuda-emu/control.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/run.h"
#include "runtime/optim/optimizer.h"
#include "runtime/device/plugin.h"
#include "runtime/optim/update_gpu.h"
#include "runtime/exec/gpu/gpu_run.h"

const fl_device_table *fl_cuda_open(void);

enum { MOST_OPERANDS = 16, WAIT_MS = 10000 };

/* Lookups of rows have steps of their own on a device (lookup_kernels.h); what
 * talks to servers runs on the host. */
const char *const device_kit_without[] = {
    "rows.split", "rows.find",  "rows.unique", "rows.place",  "rows.gather",
    "rows.sum",   "rows.merge", "rows.norm",   "rows.update", NULL};

bool device_kit_is_emulated(void)
{
    return !getenv("FLEET_TEST_DEVICE");
}

/* Before any process begins: CUDA does not survive a fork. */
static int count_gpus(void)
{
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    int n = 0;

    for (struct dirent *e; folder && (e = readdir(folder)) != NULL;)
        n += e->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return n;
}

static int most_ranks(bool may_share)
{
    return count_gpus() *
           (may_share && getenv("NCCL_MULTI_RANK_GPU_ENABLE") ? 2 : 1);
}

int device_kit_most_ranks(void)
{
    return device_kit_is_emulated() ? INT_MAX : most_ranks(true);
}

void device_kit_need_gpus(int ranks, bool may_share)
{
    int n = count_gpus();

    if (most_ranks(may_share) < ranks)
        test_skip("%d ranks need as many GPUs, and there are %d", ranks, n);
}

int device_kit_gpu_of(int rank)
{
    int n = device_kit_is_emulated() ? 0 : count_gpus();

    return n ? rank % n : rank;
}

static const fl_device_table *table_of_plugin(const char *path)
{
    char *folder = strdup(path), *slash = strrchr(folder, '/');
    const fl_plugin *p;

    CHECK(slash != NULL);
    *slash = 0;
    setenv("FLEET_PLUGIN_PATH", folder, 1);
    CHECK_OK(fl_plugin_open("cuda", &p));
    CHECK(p->devices != NULL);
    free(folder);
    return p->devices;
}

/* The emulated one, which is in this program, or that of a plug-in. */
const fl_device_table *device_kit_table(void)
{
    if (!device_kit_is_emulated())
        return table_of_plugin(getenv("FLEET_TEST_DEVICE"));
    return fl_cuda_open();
}

void device_kit_open(device_kit *k, bool strict_fp32)
{
    *k = (device_kit){.table = device_kit_table(), .tolerance = 2e-5};
    if (!strict_fp32 && !device_kit_is_emulated())
        k->tolerance = 2e-3; /* a factor in TF32 is rounded to 2^-11 */
    CHECK_OK(k->table->open(0, &(fl_device_options){.strict_fp32 = strict_fp32},
                            &k->d));
    CHECK_OK(k->d->methods->stream_create(k->d, &k->q));
}

void device_kit_close(device_kit *k)
{
    k->d->methods->stream_destroy(k->d, k->q);
    k->d->methods->destroy(k->d);
    CHECK_INT((int64_t)fl_emu_live_bytes(), 0);
}

/* --- by hand --- */

void *device_kit_make(device_kit *k, const void *from, size_t bytes)
{
    void *p;

    CHECK_OK(k->d->methods->alloc(k->d, k->q, bytes, &p));
    if (from)
        CHECK_OK(k->d->methods->copy(k->d, k->q, p, from, bytes, FL_TO_DEVICE));
    return p;
}

void device_kit_drop(device_kit *k, void *p)
{
    k->d->methods->free(k->d, k->q, p);
}

void *device_kit_fetch(device_kit *k, const void *from, size_t bytes)
{
    void *p = malloc(bytes);

    CHECK_OK(k->d->methods->copy(k->d, k->q, p, from, bytes, FL_TO_HOST));
    CHECK_OK(k->d->methods->stream_wait(k->d, k->q, WAIT_MS));
    return p;
}

static bool is_narrow(fleet_dtype dtype)
{
    return dtype == FLEET_BFLOAT16 || dtype == FLEET_FLOAT16;
}

/* Of which type a step's kernel is: as fl_step_dtype(). */
static fleet_dtype dtype_of(const fl_device_step *step)
{
    for (int i = 0; i < step->n_arg; i++)
        if (is_narrow(step->arg[i].dtype))
            return step->arg[i].dtype;
    return FLEET_FLOAT32;
}

void device_kit_run(device_kit *k, const char *name, fl_device_step *step)
{
    const fl_device_kernel *kernel =
        k->d->methods->kernel(k->d, name, dtype_of(step));

    CHECK(kernel != NULL);
    step->state = calloc(1, kernel->state_size + 1);
    if (kernel->prepare)
        CHECK_OK(kernel->prepare(k->d, k->q, step));
    if (step->scratch_size)
        step->scratch = device_kit_make(k, NULL, step->scratch_size);
    CHECK_OK(kernel->run(k->d, k->q, step));
    CHECK_OK(k->d->methods->stream_wait(k->d, k->q, WAIT_MS));
    if (kernel->finish)
        kernel->finish(k->d, step);
    device_kit_drop(k, step->scratch);
    free(step->state);
}

/* --- operands ------------------------------------------------------------- */

/* One operand: where it lies here, what it was before the step, and its copy on
 * the device. */
typedef struct operand {
    fl_mode mode;
    fleet_dtype dtype;
    bool is_update, is_object;
    int64_t rows, cols, ld;
    size_t bytes;
    const int64_t *offsets; /* of a ragged feed */
    void *offsets_there;
    void *here, *before, *there, *after;
    void *kept; /* what was here, if it is poisoned: a step need not write all
                   that it says it writes, when others made the rest */
    fl_device_update update;
} operand;

typedef struct comparison {
    device_kit *k;
    fl_compiled *c;
    const fl_instance *in;
    int64_t batch;
    int n;
    operand operand[MOST_OPERANDS];
    fl_device_arg arg[MOST_OPERANDS];
} comparison;

static void to_host(device_kit *k, void *to, const void *from, size_t bytes)
{
    CHECK_OK(k->d->methods->copy(k->d, k->q, to, from, bytes, FL_TO_HOST));
    CHECK_OK(k->d->methods->stream_wait(k->d, k->q, WAIT_MS));
}

/* What a device is told of an update. */
static fl_device_update update_of(const fl_store *s, const fl_update_now *now)
{
    fl_device_update u;

    fl_fill_device_update(s, now, &u);
    return u;
}

/* How much of it there is: the rows that count, and no more. */
static void measure(comparison *m, int i, operand *o)
{
    const fl_arg *a = &m->in->arg[i];
    const fl_operand *from = &m->in->step->operand[i];
    const fl_value *v = &m->c->plan->value[from->value];

    o->mode = from->mode;
    o->dtype = a->dtype;
    o->here = fl_ptr(m->in, i);
    o->rows = a->factor ? m->batch * a->factor : a->rows;
    o->cols = a->cols;
    o->ld = a->ld > a->cols ? a->ld : a->cols;
    o->bytes =
        (size_t)((o->rows - 1) * o->ld + o->cols) * fleet_dtype_size(o->dtype);
    o->is_object = v->object > 0;
    if (o->is_object)
        o->bytes = v->object;
    if (v->kind == FL_VALUE_FEED && v->var && v->var->ragged) {
        o->offsets = (const int64_t *)(const void *)a->base[1];
        o->rows = o->offsets[m->batch];
        o->bytes = (size_t)o->rows * fleet_dtype_size(o->dtype);
    }
    o->is_update = from->value == m->c->plan->update;
    if (!o->is_update)
        return;
    o->update = update_of(m->c->plan->store, o->here);
    o->here = &o->update;
    o->bytes = sizeof o->update;
}

/* A merge adds to what it says it writes, but for the first batch. */
static bool is_overwritten(const comparison *m, const operand *o)
{
    return o->mode == FL_WRITE && m->in->step->phase != FL_MERGE;
}

/* Both sides have to write the same elements. */
static void poison(operand *o)
{
    o->kept = malloc(o->bytes);
    memcpy(o->kept, o->here, o->bytes);
    memset(o->here, 0xff, o->bytes);
}

static size_t element_size(const operand *o)
{
    return o->is_object ? sizeof(double) : fleet_dtype_size(o->dtype);
}

static bool is_poison(const operand *o, const void *p, int64_t i)
{
    static const unsigned char ff[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    size_t size = element_size(o);

    return o->kept && memcmp((const char *)p + (size_t)i * size, ff, size) == 0;
}

static void put_back(operand *o)
{
    size_t size = element_size(o);

    for (size_t i = 0; o->kept && i < o->bytes / size; i++)
        if (is_poison(o, o->here, (int64_t)i))
            memcpy((char *)o->here + i * size, (char *)o->kept + i * size,
                   size);
    free(o->kept);
    o->kept = NULL;
}

static void put_operand(comparison *m, int i)
{
    operand *o = &m->operand[i];
    const fl_arg *a = &m->in->arg[i];

    if (m->in->step->operand[i].value < 0)
        return;
    measure(m, i, o);
    o->before = malloc(o->bytes);
    o->after = malloc(o->bytes);
    if (is_overwritten(m, o))
        poison(o);
    memcpy(o->before, o->here, o->bytes);
    o->there = device_kit_make(m->k, o->before, o->bytes);
    m->arg[i] = (fl_device_arg){.data = o->there,
                                .cols = a->cols,
                                .ld = a->ld,
                                .factor = a->factor,
                                .rows = a->rows,
                                .dtype = a->dtype};
    if (!o->offsets)
        return;
    m->arg[i].offsets = o->offsets_there = device_kit_make(
        m->k, o->offsets, (size_t)(m->batch + 1) * sizeof *o->offsets);
}

static void drop_operand(comparison *m, int i)
{
    operand *o = &m->operand[i];

    put_back(o);
    free(o->before);
    free(o->after);
    m->k->d->methods->free(m->k->d, m->k->q, o->there);
    if (o->offsets)
        m->k->d->methods->free(m->k->d, m->k->q, o->offsets_there);
}

/* --- both sides ----------------------------------------------------------- */

/* What run.c does for kernels that read whole buffers. */
static void zero_tails(const comparison *m)
{
    for (int j = 0;
         m->in->step->kernel->whole_batch && j < m->in->step->n_operand; j++) {
        const fl_arg *a = &m->in->arg[j];

        for (int64_t row = m->batch * a->factor;
             a->base && a->factor && row < a->rows; row++)
            memset((char *)fl_ptr(m->in, j) +
                       (size_t)(row * a->ld) * fleet_dtype_size(a->dtype),
                   0, (size_t)a->cols * fleet_dtype_size(a->dtype));
    }
}

static void run_here(const comparison *m)
{
    const fl_kernel *kernel = m->in->step->kernel;
    int64_t slice = m->c->plan->slice, n = m->in->n_part;
    bool rows = kernel->split == FL_SPLIT_ROWS;
    fl_range r = {.batch = m->batch, .scratch = m->c->scratch[0]};

    zero_tails(m);
    if (rows)
        n = (m->batch + slice - 1) / slice;
    for (int64_t i = 0; i < n; i++) {
        r.slice = i;
        r.begin = rows ? i * slice : i;
        r.end = rows ? r.begin + slice : i + 1;
        if (rows && r.end > m->batch)
            r.end = m->batch;
        CHECK_OK(kernel->run(m->in, &r));
    }
}

static void run_there(comparison *m, const char *name)
{
    device_kit *k = m->k;
    uint64_t none = FL_NO_FAULT, *fault;
    fl_device_step s = {.arg = m->arg,
                        .n_arg = m->n,
                        .config = m->in->step->config,
                        .batch = m->batch,
                        .fault = device_kit_make(k, &none, sizeof none)};

    device_kit_run(k, name, &s);
    fault = device_kit_fetch(k, s.fault, sizeof *fault);
    if (*fault != FL_NO_FAULT)
        test_fail(__FILE__, __LINE__, "%s: a fault in row %lld", name,
                  (long long)*fault);
    free(fault);
    device_kit_drop(k, s.fault);
}

/* --- what is compared ----------------------------------------------------- */

static double number_at(const operand *o, const void *p, int64_t i)
{
    if (o->is_object) /* norms */
        return ((const double *)p)[i];
    switch (o->dtype) {
    case FLEET_INT64:
        return (double)((const int64_t *)p)[i];
    case FLEET_FLOAT64:
        return ((const double *)p)[i];
    case FLEET_BFLOAT16:
        return (double)fl_from_bf16(((const uint16_t *)p)[i]);
    default:
        return (double)((const float *)p)[i];
    }
}

static double largest(const operand *o, int64_t rows, int64_t cols)
{
    double most = 1e-6;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            if (!is_poison(o, o->here, r * o->ld + c))
                most = fmax(most, fabs(number_at(o, o->here, r * o->ld + c)));
    return most;
}

static void compare_numbers(const comparison *m, int i, int64_t rows,
                            int64_t cols)
{
    const operand *o = &m->operand[i];
    double most = largest(o, rows, cols) *
                  (is_narrow(o->dtype) ? 0x1p-7 : m->k->tolerance);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double want = number_at(o, o->here, r * o->ld + c);
            double got = number_at(o, o->after, r * o->ld + c);

            if (is_poison(o, o->here, r * o->ld + c) &&
                is_poison(o, o->after, r * o->ld + c))
                continue;
            if (!(fabs(got - want) <= most))
                test_fail(__FILE__, __LINE__,
                          "%s, batch %lld: operand %d [%lld,%lld] is %.9g on "
                          "the device, %.9g here",
                          m->in->step->kernel->name, (long long)m->batch, i,
                          (long long)r, (long long)c, got, want);
        }
}

/* What lies between the rows of a view is somebody else's. */
static void check_gaps(const comparison *m, int i)
{
    const operand *o = &m->operand[i];
    size_t size = element_size(o);

    for (int64_t r = 0; r + 1 < o->rows && o->ld > o->cols; r++) {
        size_t at = (size_t)(r * o->ld + o->cols) * size;

        if (memcmp((char *)o->before + at, (char *)o->after + at,
                   (size_t)(o->ld - o->cols) * size) != 0)
            test_fail(__FILE__, __LINE__,
                      "%s wrote between the rows of operand %d, after row %lld",
                      m->in->step->kernel->name, i, (long long)r);
    }
}

static void compare_update(const comparison *m, const operand *o)
{
    const fl_device_update *got = o->after;
    const fl_update_now *now = fl_compiled_pointer(m->c, m->c->plan->update);

    if (!(fabsf(got->u.clip - now->u.clip) <= 1e-6f * now->u.clip))
        test_fail(__FILE__, __LINE__, "%s: the clip is %.9g, not %.9g",
                  m->in->step->kernel->name, (double)got->u.clip,
                  (double)now->u.clip);
}

static void compare_operand(comparison *m, int i)
{
    operand *o = &m->operand[i];

    if (!o->there)
        return;
    to_host(m->k, o->after, o->there, o->bytes);
    if (o->mode == FL_READ) {
        if (memcmp(o->before, o->after, o->bytes) != 0)
            test_fail(__FILE__, __LINE__, "%s wrote operand %d, which it reads",
                      m->in->step->kernel->name, i);
    } else if (o->is_update) {
        compare_update(m, o);
    } else if (o->is_object) {
        compare_numbers(m, i, 1, (int64_t)(o->bytes / sizeof(double)));
    } else {
        compare_numbers(m, i, o->rows, o->cols);
        check_gaps(m, i);
    }
}

/* --- steps ---------------------------------------------------------------- */

static bool is_in(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

static void compare_step(device_kit *k, fl_compiled *c, int i, int64_t batch)
{
    comparison m = {.k = k, .c = c, .in = &c->instance[i], .batch = batch};
    const char *name = m.in->step->kernel->name;
    const fl_device_kernel *kernel =
        k->d->methods->kernel(k->d, name, fl_step_dtype(c->plan, m.in->step));

    if (!kernel && is_in(device_kit_without, name)) {
        run_here(&m);
        return;
    }
    if (!kernel)
        test_fail(__FILE__, __LINE__, "without a CUDA half: %s", name);
    m.n = m.in->step->n_operand;
    CHECK(m.n <= MOST_OPERANDS);
    for (int j = 0; j < m.n; j++)
        put_operand(&m, j);
    run_there(&m, name);
    run_here(&m);
    for (int j = 0; j < m.n; j++)
        compare_operand(&m, j);
    for (int j = 0; j < m.n; j++)
        drop_operand(&m, j);
    for (int j = 0; k->table->kernel_at(j); j++) {
        CHECK(j < DEVICE_KIT_MOST);
        k->compared[j] |= k->table->kernel_at(j) == kernel;
    }
}

/* Kernels that no plan has yet, or not on CPUs: each has a test of its own, as
 * have those of narrow types (half_float_cuda_test.c). */
static const char *const tested_by_hand[] = {
    "lookup.keys",         "lookup.unique",   "lookup.gather",
    "lookup.sum",          "lookup.update",   "lookup.append",
    "lookup.norm",         "lookup.check",    "lookup.clip",
    "lookup.index",        "lookup.find",     "lookup.insert",
    "iteration.end",       "loss.scale",      "scaling.check",
    "scaling.decide",      "all_reduce.idle", "batch_norm.moments",
    "batch_norm.combined", "lookup.move",     NULL};

void device_kit_check_all(const device_kit *k)
{
    for (int i = 0; k->table->kernel_at(i); i++) {
        const char *name = k->table->kernel_at(i)->name;

        if (!k->compared[i] && !is_in(tested_by_hand, name) &&
            !is_narrow(k->table->kernel_at(i)->dtype))
            test_fail(__FILE__, __LINE__, "no step compared %s", name);
    }
}

void device_kit_compare(device_kit *k, fleet_executor *e)
{
    fl_compiled *c = e->last;

    CHECK_OK(fl_compiled_begin(c, e->last_batch, false));
    for (size_t i = 0; i < c->plan->n_step; i++)
        if (c->plan->step[i]->engine == FL_ENGINE_COMPUTE)
            compare_step(k, c, (int)i, e->last_batch);
}
