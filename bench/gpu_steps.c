/* gpu_steps.c - what each step of a plan takes of a GPU's limits: one line of
 * JSON per kind of kernel, after lines with the limits, which are measured,
 * too.
 *
 *   gpu_steps [--model mlp|ctr_dnn] [--batch 1024] [--dim 16] [--opt adagrad]
 *             [--copy 256] [--product 8192] [--gather 1000000]
 *
 * A step's share of its roofline is the time that its bytes take in a copy, or
 * its operations in a large product, the greater of the two, over its own time:
 * that of many runs of the same step, one after the other in a CUDA
 * graph. The limits are of a copy of so many MiB and of a product of that size.
 */
#include <math.h>

#include "model.h"

#include "runtime/device/gpu.h"
#include "runtime/store/lookup_kernels.h"
#include "runtime/exec/gpu/gpu_run.h"

enum { RUNS = 50, LAUNCHES = 4, KINDS = 64 };

typedef struct limits {
    double bytes_per_s, flops_per_s;
} limits;

/* Steps of one name, added up. */
typedef struct kind {
    const char *name;
    int n;
    double seconds, best; /* best: what the limits allow */
} kind;

static void must(fleet_status status, const char *what)
{
    if (status != FLEET_OK)
        fail(what);
}

/* --- time ---------------------------------------------------------------- */

typedef struct watch {
    fl_gpu *g;
    fl_event *from, *to;
} watch;

static void watch_open(watch *w, fl_gpu *g)
{
    w->g = g;
    must(g->m->event_create(g->d, true, &w->from), "event");
    must(g->m->event_create(g->d, true, &w->to), "event");
}

static void watch_begin(watch *w)
{
    must(w->g->m->event_record(w->g->d, w->from, w->g->queue), "event");
}

static double watch_end(watch *w)
{
    float ms;

    must(w->g->m->event_record(w->g->d, w->to, w->g->queue), "event");
    must(w->g->m->event_wait(w->g->d, w->to, w->g->deadline_ms), "event");
    must(w->g->m->event_elapsed(w->g->d, w->from, w->to, &ms), "event");
    return (double)ms / 1e3;
}

static void watch_close(watch *w)
{
    w->g->m->event_destroy(w->g->d, w->from);
    w->g->m->event_destroy(w->g->d, w->to);
}

static void *device_memory(fl_gpu *g, size_t bytes)
{
    void *p;

    must(g->m->alloc(g->d, g->queue, bytes, &p), "memory");
    must(g->m->fill(g->d, g->queue, p, 0, bytes), "memory");
    return p;
}

/* --- limits --------------------------------------------------------------- */

static double copy_rate(fl_gpu *g, size_t bytes)
{
    char *p = device_memory(g, 2 * bytes);
    double best = 1e9;
    watch w;

    watch_open(&w, g);
    for (int i = 0; i < 10; i++) {
        double t;

        watch_begin(&w);
        must(g->m->copy(g->d, g->queue, p, p + bytes, bytes, FL_ON_DEVICE),
             "copy");
        t = watch_end(&w);
        best = t < best ? t : best;
    }
    watch_close(&w);
    g->m->free(g->d, g->queue, p);
    return 2 * (double)bytes / best;
}

static double product_rate(fl_gpu *g, int64_t n)
{
    size_t bytes = (size_t)(n * n) * sizeof(float);
    float *p = device_memory(g, 3 * bytes);
    const fl_gemm_spec spec = {.m = n,
                               .n = n,
                               .k = n,
                               .lda = n,
                               .ldb = n,
                               .ldc = n,
                               .align_a = 16,
                               .align_b = 16,
                               .align_c = 16};
    const fl_gemm_data data = {p, p + n * n, p + 2 * n * n, NULL};
    double best = 1e9;
    fl_gemm *gemm;
    watch w;

    must(g->m->gemm_create(g->d, g->queue, &spec, &gemm), "product");
    watch_open(&w, g);
    for (int i = 0; i < 10; i++) {
        double t;

        watch_begin(&w);
        must(g->m->gemm_run(g->d, g->queue, gemm, &data), "product");
        t = watch_end(&w);
        best = t < best ? t : best;
    }
    watch_close(&w);
    g->m->gemm_destroy(g->d, gemm);
    g->m->free(g->d, g->queue, p);
    return 2.0 * pow((double)n, 3) / best;
}

/* --- rows of a table, over a copy of as many bytes ------------------------ */

static double gather_rate(fl_gpu *g, int64_t rows, int64_t dim)
{
    const fl_feature feature = {.ids = 4, .out = 5};
    const fl_device_lookup config = {
        .feature = &feature, .n_feature = 1, .dim = dim, .capacity = rows};
    const fl_device_kernel *k =
        g->m->kernel(g->d, "lookup.gather", FLEET_FLOAT32);
    size_t bytes = (size_t)(rows * dim) * sizeof(float);
    uint32_t *which = malloc((size_t)rows * sizeof *which);
    uint64_t random = 1;
    char state[256] = {0};
    double t;
    watch w;

    for (int64_t i = 0; i < rows; i++)
        which[i] = (uint32_t)(next_random(&random) % (uint64_t)rows);
    fl_device_arg arg[] = {
        {.data = NULL},
        {.data = NULL},
        {.data = device_memory(g, bytes)},
        {.data = device_memory(g, (size_t)rows * sizeof *which)},
        {.data = NULL},
        {.data = device_memory(g, bytes), .ld = dim}};
    fl_device_step s = {.arg = arg,
                        .n_arg = 6,
                        .config = &config,
                        .batch = rows,
                        .state = state};

    must(g->m->copy(g->d, g->queue, arg[3].data, which,
                    (size_t)rows * sizeof *which, FL_TO_DEVICE),
         "copy");
    must(k->prepare(g->d, g->queue, &s), "gather");
    must(k->run(g->d, g->queue, &s), "gather");
    watch_open(&w, g);
    watch_begin(&w);
    for (int i = 0; i < RUNS; i++)
        must(k->run(g->d, g->queue, &s), "gather");
    t = watch_end(&w) / RUNS;
    watch_close(&w);
    k->finish(g->d, &s);
    for (int i = 2; i < 6; i++)
        g->m->free(g->d, g->queue, arg[i].data);
    free(which);
    return (2 * (double)bytes + (double)rows * sizeof *which) / t;
}

/* --- steps ---------------------------------------------------------------- */

static double bytes_of(const fl_plan *plan, const fl_step *s)
{
    double sum = 0;

    for (int i = 0; i < s->n_operand; i++)
        if (s->operand[i].value >= 0)
            sum +=
                (double)fl_value_bytes(plan, &plan->value[s->operand[i].value]);
    return sum;
}

/* [b, n], [b, k] and [k, n], in some order: 2 b n k. */
static double flops_of(const fl_plan *plan, const fl_step *s)
{
    double product = 1;

    if (strcmp(s->kernel->name, "fc.forward") != 0 &&
        strcmp(s->kernel->name, "fc.dx") != 0 &&
        strcmp(s->kernel->name, "fc.dw") != 0)
        return 0;
    for (int i = 0; i < 3; i++)
        product *=
            (double)fl_value_bytes(plan, &plan->value[s->operand[i].value]) /
            sizeof(float);
    return 2 * sqrt(product);
}

static void run_step(fl_compiled *c, int step, int64_t batch, int times)
{
    const fl_region one = {.first = step, .n = 1};

    for (int i = 0; i < times; i++)
        must(fl_gpu_plan_run(c, &one, batch), "step");
}

/* Of a CUDA graph of many runs, so that the host's part in a launch does not
 * count; the least of some launches. */
static double time_step(fl_compiled *c, int step, int64_t batch, watch *w)
{
    fl_gpu *g = w->g;
    double best = 1e9;
    fl_graph *graph;

    c->gpu->gathers = false; /* it is queued at once */
    run_step(c, step, batch, 1);
    must(g->m->capture_begin(g->d, g->queue), "graph");
    run_step(c, step, batch, RUNS);
    must(g->m->capture_end(g->d, g->queue, &graph), "graph");
    for (int i = 0; i < LAUNCHES; i++) {
        double t;

        watch_begin(w);
        must(g->m->graph_launch(g->d, g->queue, graph), "graph");
        t = watch_end(w) / RUNS;
        best = t < best ? t : best;
    }
    g->m->graph_destroy(g->d, graph);
    return best;
}

static kind *kind_of(kind *all, const char *name)
{
    while (all->name && strcmp(all->name, name) != 0)
        all++;
    all->name = name;
    return all;
}

static void time_steps(bench *b, const limits *most)
{
    fl_compiled *c = b->e->compiled;
    const fl_plan *plan = c->plan;
    kind all[KINDS] = {{0}};
    double sum = 0;
    watch w;

    watch_open(&w, c->gpu->gpu);
    for (size_t i = 0; i < plan->n_step; i++) {
        const fl_step *s = plan->step[i];
        double by_bytes = bytes_of(plan, s) / most->bytes_per_s;
        double by_flops = flops_of(plan, s) / most->flops_per_s;
        kind *k;

        if (!c->gpu->kernel[i])
            continue;
        k = kind_of(all, s->kernel->name);
        k->n++;
        k->seconds += time_step(c, (int)i, b->o.batch, &w);
        k->best += by_bytes > by_flops ? by_bytes : by_flops;
    }
    watch_close(&w);
    for (kind *k = all; k->name; k++)
        sum += k->seconds;
    for (kind *k = all; k->name; k++)
        printf("{\"kernel\":\"%s\",\"steps\":%d,\"us\":%.2f,\"of_all\":%.3f,"
               "\"roofline\":%.3f}\n",
               k->name, k->n, k->seconds * 1e6, k->seconds / sum,
               k->best / k->seconds);
}

int main(int argc, char **argv)
{
    static bench b = {.o = BENCH_DEFAULTS};
    int64_t copy = 256, product = 8192, gather = 1000000;
    limits most;
    fl_gpu *g;

    b.o.device = "gpu:0";
    b.o.dim = 16;
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--model"))
            b.o.model = argv[i + 1];
        else if (!strcmp(argv[i], "--batch"))
            b.o.batch = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--dim"))
            b.o.dim = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--opt"))
            b.o.opt = argv[i + 1];
        else if (!strcmp(argv[i], "--copy"))
            copy = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--product"))
            product = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--gather"))
            gather = atoll(argv[i + 1]);
    open_bench(&b);
    step(&b);
    must(fleet_executor_flush(b.e), "step");
    g = b.e->compiled->gpu->gpu;
    fl_gpu_lock(g);
    most.bytes_per_s = copy_rate(g, (size_t)copy << 20);
    most.flops_per_s = product_rate(g, product);
    printf("{\"gpu\":\"%s\",\"copy_gb_per_s\":%.0f,\"product_tflops\":%.1f,"
           "\"gather_over_copy\":%.3f}\n",
           g->d->name, most.bytes_per_s / 1e9, most.flops_per_s / 1e12,
           gather_rate(g, gather, 64) / most.bytes_per_s);
    time_steps(&b, &most);
    fl_gpu_unlock(g);
    close_bench(&b);
    return 0;
}
