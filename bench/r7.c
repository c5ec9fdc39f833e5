/* r7.c - R7: the floating-point rate of a whole CTR step over that of a bare
 * chain of oneDNN matmuls of the same shapes, in the same run: forward, dX and
 * dW of the tower's layers with two OpenMP threads and nothing else. */
#include <oneapi/dnnl/dnnl.h>

#include "model.h"
#include "pairs.h"

enum { LAYERS = 3, ROUNDS = 48 };

static const double WINDOW = 0.06; /* seconds: neighbours come and go */

void omp_set_num_threads(int n);

typedef struct product {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[3];
} product;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void must(dnnl_status_t e)
{
    if (e != dnnl_success) {
        fprintf(stderr, "r7: oneDNN gives %d\n", (int)e);
        exit(1);
    }
}

static dnnl_memory_t matrix(int64_t rows, int64_t cols, int transposed,
                            dnnl_memory_desc_t *d)
{
    dnnl_dims_t dims = {rows, cols};
    dnnl_dims_t strides = {transposed ? 1 : cols, transposed ? rows : 1};
    float *data = aligned_alloc(64, (size_t)((rows * cols * 4 + 63) / 64 * 64));
    dnnl_memory_t m;

    for (int64_t i = 0; i < rows * cols; i++)
        data[i] = (float)(i % 7) * 0.1f;
    must(dnnl_memory_desc_init_by_strides(d, 2, dims, dnnl_f32, strides));
    must(dnnl_memory_create(&m, d, engine, data));
    return m;
}

static product make(int64_t m, int64_t k, int64_t n, int ta, int tb)
{
    dnnl_memory_desc_t a, b, c;
    dnnl_primitive_desc_t pd;
    dnnl_matmul_desc_t op;
    product p;

    p.arg[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, matrix(m, k, ta, &a)};
    p.arg[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, matrix(k, n, tb, &b)};
    p.arg[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, matrix(m, n, 0, &c)};
    must(dnnl_matmul_desc_init(&op, &a, &b, NULL, &c));
    must(dnnl_primitive_desc_create(&pd, &op, NULL, engine, NULL));
    must(dnnl_primitive_create(&p.primitive, pd));
    return p;
}

/* Seconds of one run of the chain. */
static double chain_seconds(product *p, int n)
{
    double t = now();
    int runs = 0;

    for (; now() - t < WINDOW; runs++)
        for (int i = 0; i < n; i++)
            must(dnnl_primitive_execute(p[i].primitive, stream, 3, p[i].arg));
    return (now() - t) / runs;
}

static double step_seconds(bench *b)
{
    double t = now();
    int runs = 0;

    for (; now() - t < WINDOW; runs++)
        step(b);
    return (now() - t) / runs;
}

int main(void)
{
    static bench b = {.o = BENCH_DEFAULTS};
    product p[3 * LAYERS];
    static pairs all;
    int64_t k = N_ID * 9 + N_DENSE, n = 400, m = 1024;

    b.o.opt = "sgd";
    open_bench(&b);
    omp_set_num_threads(2);
    must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    must(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i < LAYERS; i++, k = n) {
        p[i] = make(m, k, n, 0, 0);
        p[LAYERS + i] = make(m, n, k, 0, 1);
        p[2 * LAYERS + i] = make(k, m, n, 1, 0);
    }
    for (int i = 0; i < b.n_batch; i++)
        step(&b);
    chain_seconds(p, 3 * LAYERS);
    for (int r = 0; r < ROUNDS; r++) {
        double ours;

        pair_begin(&all);
        ours = 1 / step_seconds(&b);
        pair_end(&all, ours, 1 / chain_seconds(p, 3 * LAYERS));
    }
    pairs_print(&all, "R7", 0.80, 0.90, "steps/s", "bare oneDNN matmul chain");
    close_bench(&b);
    return 0;
}
