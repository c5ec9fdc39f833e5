/* elementwise.cu - the CUDA half of elementwise.c, with its formulas.
 *
 * Forward a thread makes an element of the result. Backward an element of the
 * gradient is the sum over the dimensions in which its operand was broadcast,
 * in their order: by a thread where they are few, else by a block.
 */
#include "ops/elementwise.h"

#include "runtime/device/cuda/block.h"
#include "runtime/device/cuda/formula_cuda.h"
#include "runtime/simd/simd.h"

enum { OUT, A, B };
enum { D, G, OTHER, BOTH = OTHER };

/* --- formulas: of x and y, and g times the derivatives -------------------- */

__device__ static float formula_of(int formula, float x, float y)
{
    switch (formula) {
#define FL_BINARY(NAME, name, z, ...)                                          \
    case FL_BINARY_##NAME:                                                     \
        return z;
#include "runtime/simd/binaries.def"
#undef FL_BINARY
#define FL_COMPARISON(NAME, name, z)                                           \
    case FL_BINARY_##NAME:                                                     \
        return z;
#include "runtime/simd/comparisons.def"
#undef FL_COMPARISON
    }
    return 0.0f;
}

__device__ static float derivative_of(int formula, bool of_y, float x, float y,
                                      float g)
{
    switch (formula) {
#define FL_BINARY(NAME, name, z, dx, dy)                                       \
    case FL_BINARY_##NAME:                                                     \
        return of_y ? dy : dx;
#include "runtime/simd/binaries.def"
#undef FL_BINARY
    }
    return 0.0f;
}

/* --- operands ------------------------------------------------------------- */

/* The element of an operand that belongs to element i of the result. */
__device__ static float operand_at(const fl_elementwise &c, const fl_walk &w,
                                   const float *x, int64_t ld, int64_t i)
{
    int64_t size = c.block * c.n_block, row = i / size, in_row = i % size;
    int64_t at = fl_walk_block(&c, &w, in_row / c.block);

    if (!w.block_is_one)
        at += in_row % c.block;
    return x[(w.batched ? row * ld : 0) + at];
}

__global__ static void combine(float *out, const float *a, int64_t lda,
                               const float *b, int64_t ldb, int64_t n,
                               fl_elementwise c)
{
    FL_EACH(i, n)
    {
        float x = operand_at(c, c.a, a, lda, i);
        float y = operand_at(c, c.b, b, ldb, i);

        out[i] = c.op == FL_ADD   ? x + y
                 : c.op == FL_SUB ? x - y
                 : c.op == FL_MUL ? x * y
                                  : formula_of(c.formula, x, y);
    }
}

static fleet_status forward(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_elementwise *c = static_cast<const fl_elementwise *>(s->config);
    int64_t n =
        c->block * c->n_block * (s->arg[OUT].factor ? fl_step_rows(s, OUT) : 1);

    return FL_LAUNCH_EACH(combine, n, q, fl_step_f32(s, OUT), fl_step_f32(s, A),
                          s->arg[A].ld, fl_step_f32(s, B), s->arg[B].ld, n, *c);
}

/* --- gradients ------------------------------------------------------------ */

enum { MOST_AXES = FLEET_MAX_DIM + 1 };

/* A set of dimensions of the result: their sizes, and what a step along each is
 * worth in the result. The first varies slowest. */
struct axes {
    int n;
    int64_t dim[MOST_AXES], step[MOST_AXES];
};

static void add_axis(axes *a, int64_t dim, int64_t step)
{
    a->dim[a->n] = dim;
    a->step[a->n++] = step;
}

static int64_t size_of(const axes *a)
{
    int64_t n = 1;

    for (int i = 0; i < a->n; i++)
        n *= a->dim[i];
    return n;
}

/* own: the dimensions that the operand has; summed: the dimensions that its
 * gradient is summed over. */
static void sort_axes(const fl_elementwise_grad *k, int64_t rows, axes *own,
                      axes *summed)
{
    const fl_elementwise *c = &k->c;
    const fl_walk *w = k->of_b ? &c->b : &c->a;
    int64_t step = c->block * c->n_block;

    own->n = summed->n = 0;
    add_axis(w->batched ? own : summed, rows, step);
    for (int d = 0; d < c->n_dim; d++) {
        step /= c->dim[d];
        add_axis(w->stride[d] ? own : summed, c->dim[d], step);
    }
    add_axis(w->block_is_one ? summed : own, c->block, 1);
}

__device__ static int64_t result_at(const axes &a, int64_t i)
{
    return fl_strides_at(a.n, a.dim, a.step, i);
}

/* The other operand; of a formula a, and b. */
struct source {
    const float *g, *other, *b;
    int64_t ld, ldb;
    fl_elementwise_grad k;
};

/* What element i of the result gives to the sum. */
__device__ static float share(const source &from, int64_t i)
{
    const fl_elementwise &c = from.k.c;

    if (c.op == FL_FORMULA)
        return derivative_of(
            c.formula, from.k.of_b, operand_at(c, c.a, from.other, from.ld, i),
            operand_at(c, c.b, from.b, from.ldb, i), from.g[i]);
    if (c.op != FL_MUL)
        return from.k.sign * from.g[i];
    return from.g[i] *
           operand_at(c, from.k.of_b ? c.a : c.b, from.other, from.ld, i);
}

__global__ static void sum_by_thread(float *d, int64_t n, int64_t n_summed,
                                     axes own, axes summed, source from)
{
    FL_EACH(i, n)
    {
        int64_t at = result_at(own, i);
        float sum = 0.0f;

        for (int64_t j = 0; j < n_summed; j++)
            sum += share(from, at + result_at(summed, j));
        d[i] = sum;
    }
}

__global__ static void sum_by_block(float *d, int64_t n, int64_t n_summed,
                                    axes own, axes summed, source from)
{
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        int64_t at = result_at(own, i);
        float sum = 0.0f;

        for (int64_t j = threadIdx.x; j < n_summed; j += blockDim.x)
            sum += share(from, at + result_at(summed, j));
        sum = fl_block_sum(sum);
        if (threadIdx.x == 0)
            d[i] = sum;
    }
}

static fleet_status backward(fl_device *, fl_queue *q, const fl_device_step *s)
{
    enum { BY_BLOCK = 64 };
    const fl_elementwise_grad *k =
        static_cast<const fl_elementwise_grad *>(s->config);
    const fl_device_arg *other = &s->arg[OTHER];
    source from = {
        fl_step_f32(s, G), fl_step_f32(s, OTHER), NULL, other->ld, 0, *k};
    int64_t n, n_summed;
    axes own, summed;

    if (k->c.op == FL_FORMULA) {
        from.b = fl_step_f32(s, BOTH + 1);
        from.ldb = s->arg[BOTH + 1].ld;
    }
    sort_axes(k, s->arg[G].factor ? fl_step_rows(s, G) : 1, &own, &summed);
    n = size_of(&own);
    n_summed = size_of(&summed);
    if (n_summed < BY_BLOCK)
        return FL_LAUNCH_EACH(sum_by_thread, n, q, fl_step_f32(s, D), n,
                              n_summed, own, summed, from);
    return FL_LAUNCH(sum_by_block, fl_most_blocks(n), FL_THREADS, 0, q,
                     fl_step_f32(s, D), n, n_summed, own, summed, from);
}

/* --- constant: out <- nothing --------------------------------------------- */

__global__ static void set_one(float *out, float value)
{
    *out = value;
}

static fleet_status constant(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(set_one, 1, 1, 0, q, fl_step_f32(s, OUT),
                     *static_cast<const float *>(s->config));
}

extern const fl_device_kernel fl_cuda_elementwise[];
const fl_device_kernel fl_cuda_elementwise[] = {
    FL_KERNEL("elementwise", forward),
    FL_KERNEL("elementwise.grad", backward),
    FL_KERNEL("constant", constant),
    FL_KERNEL_END,
};
