/* half_float_cuda_test.c - the CUDA plug-in's kernels of bfloat16 and float16,
 * each against its formula in double, with operands of every type that they
 * take. */
#define SUITE half_float_cuda
#include "cuda-emu/control.h"
#include "device_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/nn.h>

#include "runtime/simd/half_float.h"
#include "ops/fc_kernels.h"
#include "runtime/simd/simd.h"

enum { ROWS = 37, K = 21, N = 13, PAD = 3 };

/* A matrix here, in rows of PAD more, and there. */
typedef struct matrix {
    fleet_dtype dtype;
    int64_t rows, cols, ld;
    bool batched;
    double *x; /* as rounded to dtype */
    void *there;
} matrix;

static const fleet_dtype narrow_types[] = {FLEET_BFLOAT16, FLEET_FLOAT16};

static void put(void *to, fleet_dtype dtype, int64_t i, float x)
{
    if (dtype == FLEET_FLOAT32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] =
            dtype == FLEET_FLOAT16 ? fl_to_f16(x) : fl_to_bf16(x);
}

static double at(const void *p, fleet_dtype dtype, int64_t i)
{
    uint16_t half;

    if (dtype == FLEET_FLOAT32)
        return (double)((const float *)p)[i];
    half = ((const uint16_t *)p)[i];
    return (double)(dtype == FLEET_FLOAT16 ? fl_from_f16(half)
                                           : fl_from_bf16(half));
}

static matrix make(device_kit *k, fleet_dtype dtype, int64_t rows, int64_t cols,
                   int64_t pad, int stream)
{
    matrix m = {dtype, rows, cols, cols + pad, rows == ROWS, NULL, NULL};
    int64_t n = rows * m.ld;
    void *here = malloc((size_t)n * sizeof(float));

    m.x = malloc((size_t)n * sizeof *m.x);
    for (int64_t i = 0; i < n; i++) {
        put(here, dtype, i, 2 * kit_noise(i, stream));
        m.x[i] = at(here, dtype, i);
    }
    m.there = device_kit_make(k, here, (size_t)n * fleet_dtype_size(dtype));
    free(here);
    return m;
}

static void drop(device_kit *k, matrix *m)
{
    device_kit_drop(k, m->there);
    free(m->x);
}

static fl_device_arg arg_of(const matrix *m)
{
    return (fl_device_arg){.data = m->there,
                           .cols = m->cols,
                           .ld = m->ld,
                           .factor = m->batched,
                           .rows = m->rows,
                           .dtype = m->dtype};
}

/* Run a kernel on n matrices; the first is what it writes. */
static void run(device_kit *k, const char *name, const void *config,
                const matrix *const *m, int n)
{
    fl_device_arg arg[4];
    fl_device_step s = {
        .arg = arg, .n_arg = n, .config = config, .batch = ROWS};

    for (int i = 0; i < n; i++)
        arg[i] = m[i] ? arg_of(m[i]) : (fl_device_arg){0};
    device_kit_run(k, name, &s);
}

typedef double want_of(const matrix *const *m, const fl_fc_config *c, int64_t i,
                       int64_t j);

/* The result within rounding of what is wanted; between its rows nothing has
 * changed. */
static void check(device_kit *k, const char *name, const fl_fc_config *c,
                  const matrix *const *m, want_of *want)
{
    const matrix *out = m[0];
    double most = out->dtype == FLEET_FLOAT32    ? 2e-5
                  : out->dtype == FLEET_BFLOAT16 ? 0x1p-7
                                                 : 0x1p-9;
    /* a real cuBLASLt may round a narrow sum before its bias, too */
    double rounds = device_kit_is_emulated() ? 1 : 1.5;
    void *got = device_kit_fetch(k, out->there,
                                 (size_t)(out->rows * out->ld) *
                                     fleet_dtype_size(out->dtype));

    for (int64_t i = 0; i < out->rows; i++)
        for (int64_t j = 0; j < out->ld; j++) {
            double x = at(got, out->dtype, i * out->ld + j);
            double y =
                j < out->cols ? want(m, c, i, j) : out->x[i * out->ld + j];

            if (!(fabs(x - y) <=
                  (j < out->cols ? rounds * most * fmax(1, fabs(y)) : 0)))
                test_fail(__FILE__, __LINE__,
                          "%s of %s to %s: [%lld,%lld] is %.9g, not %.9g", name,
                          fleet_dtype_name(m[1]->dtype),
                          fleet_dtype_name(out->dtype), (long long)i,
                          (long long)j, x, y);
        }
    free(got);
}

/* --- casts ---------------------------------------------------------------- */

static double same(const matrix *const *m, const fl_fc_config *c, int64_t i,
                   int64_t j)
{
    float x = (float)m[1]->x[i * m[1]->ld + j];

    (void)c;
    return (double)(m[0]->dtype == FLEET_FLOAT16 ? fl_from_f16(fl_to_f16(x))
                                                 : fl_from_bf16(fl_to_bf16(x)));
}

static void try_cast(device_kit *k, fleet_dtype to, int64_t rows, int64_t pad)
{
    matrix out = make(k, to, rows, K, 0, 1);
    matrix x = make(k, FLEET_FLOAT32, rows, K, pad, 2);
    const matrix *m[] = {&out, &x};

    run(k, "cast", NULL, m, 2);
    check(k, "cast", NULL, m, same);
    drop(k, &out);
    drop(k, &x);
}

TEST(casts_round_to_the_nearest)
{
    device_kit k;

    device_kit_open(&k, false);
    for (int t = 0; t < 2; t++) {
        try_cast(&k, narrow_types[t], ROWS, 0);
        try_cast(&k, narrow_types[t], ROWS, PAD);
        try_cast(&k, narrow_types[t], 5, 0);
    }
    device_kit_close(&k);
}

/* --- layers --------------------------------------------------------------- */

/* As on CPUs; ops_test.c compares those with their formulas. */
static double activate(const fl_activation *a, double x)
{
    float y = (float)x;

    if (a->kind != FLEET_LINEAR)
        fl_simd_best()->activation[a->kind].forward(&y, &y, a->alpha, 1);
    return (double)y;
}

static double forward(const matrix *const *m, const fl_fc_config *c, int64_t i,
                      int64_t j)
{
    double sum = c->bias ? m[3]->x[j] : 0;

    for (int l = 0; l < K; l++)
        sum += m[1]->x[i * m[1]->ld + l] * m[2]->x[l * N + j];
    return activate(&c->activation, sum);
}

static void try_forward(device_kit *k, fleet_dtype in, fleet_dtype out,
                        const fl_fc_config *c)
{
    matrix y = make(k, out, ROWS, N, PAD, 1), x = make(k, in, ROWS, K, PAD, 2);
    matrix w = make(k, in, K, N, 0, 3), b = make(k, FLEET_FLOAT32, 1, N, 0, 4);
    const matrix *m[] = {&y, &x, &w, c->bias ? &b : NULL};

    run(k, "fc.forward", c, m, 4);
    check(k, "fc.forward", c, m, forward);
    drop(k, &y);
    drop(k, &x);
    drop(k, &w);
    drop(k, &b);
}

static void try_each_forward(device_kit *k, fleet_dtype in)
{
    for (int i = 0; i < 4 * FL_N_ACTIVATION; i++) {
        fl_fc_config c = {
            .k = K, .n = N, .activation = {i / 4, 0.3f}, .bias = i & 1};

        try_forward(k, in, i & 2 ? in : FLEET_FLOAT32, &c);
    }
}

TEST(layers_agree_with_their_formula)
{
    device_kit k;

    for (int keeps = 0; keeps < 2; keeps++) {
        if (device_kit_is_emulated())
            fl_emu_set_relu_keeps_nan(keeps);
        device_kit_open(&k, false);
        for (int t = 0; t < 2; t++)
            try_each_forward(&k, narrow_types[t]);
        device_kit_close(&k);
    }
}

/* Whether the product's own relu would hide it or not. */
static void try_nan(fleet_dtype in, bool keeps)
{
    fl_fc_config c = {
        .k = K, .n = N, .activation = {FLEET_RELU, 0}, .bias = true};
    float nan = NAN;
    uint16_t half = fl_to_f16(nan);
    device_kit k;
    uint16_t *got;

    if (device_kit_is_emulated())
        fl_emu_set_relu_keeps_nan(keeps);
    device_kit_open(&k, false);
    matrix y = make(&k, in, ROWS, N, 0, 1), x = make(&k, in, ROWS, K, 0, 2);
    matrix w = make(&k, in, K, N, 0, 3),
           b = make(&k, FLEET_FLOAT32, 1, N, 0, 4);
    const matrix *m[] = {&y, &x, &w, &b};

    if (in == FLEET_BFLOAT16)
        half = fl_to_bf16(nan);
    CHECK_OK(k.d->methods->copy(k.d, k.q, x.there, &half, 2, FL_TO_DEVICE));
    run(&k, "fc.forward", &c, m, 4);
    got = device_kit_fetch(&k, y.there, ROWS * N * sizeof *got);
    for (int j = 0; j < N; j++)
        CHECK(isnan(at(got, in, j)) && !isnan(at(got, in, N + j)));
    free(got);
    for (int i = 0; i < 4; i++)
        drop(&k, (matrix *)(uintptr_t)m[i]);
    device_kit_close(&k);
}

TEST(a_relu_keeps_nan)
{
    for (int i = 0; i < 4; i++)
        try_nan(narrow_types[i / 2], i % 2);
}

/* --- their gradients ------------------------------------------------------ */

static double mask(const matrix *const *m, const fl_fc_config *c, int64_t i,
                   int64_t j)
{
    float g = (float)m[0]->x[i * N + j], y = (float)m[1]->x[i * N + j];

    fl_simd_best()->activation[c->activation.kind].gradient(
        &g, &y, &g, c->activation.alpha, 1);
    return (double)g;
}

static void try_mask(device_kit *k, fleet_dtype g, fleet_dtype y)
{
    for (int a = FLEET_LINEAR + 1; a < FL_N_ACTIVATION; a++) {
        fl_fc_config c = {.k = K, .n = N, .activation = {a, 0.3f}};
        matrix to = make(k, g, ROWS, N, 0, 1), out = make(k, y, ROWS, N, 0, 2);
        const matrix *m[] = {&to, &out};

        run(k, "fc.mask", &c, m, 2);
        check(k, "fc.mask", &c, m, mask);
        drop(k, &to);
        drop(k, &out);
    }
}

static double dx(const matrix *const *m, const fl_fc_config *c, int64_t i,
                 int64_t j)
{
    double sum = 0;

    (void)c;
    for (int l = 0; l < N; l++)
        sum += m[1]->x[i * m[1]->ld + l] * m[2]->x[j * N + l];
    return sum;
}

static double dw(const matrix *const *m, const fl_fc_config *c, int64_t i,
                 int64_t j)
{
    double sum = 0;

    (void)c;
    for (int l = 0; l < ROWS; l++)
        sum += m[1]->x[l * m[1]->ld + i] * m[2]->x[l * m[2]->ld + j];
    return sum;
}

static double db(const matrix *const *m, const fl_fc_config *c, int64_t i,
                 int64_t j)
{
    double sum = 0;

    (void)c;
    (void)i;
    for (int l = 0; l < ROWS; l++)
        sum += m[1]->x[l * m[1]->ld + j];
    return sum;
}

static void try_gradients(device_kit *k, fleet_dtype in)
{
    fl_fc_config c = {.k = K, .n = N};
    matrix x = make(k, in, ROWS, K, PAD, 1), g = make(k, in, ROWS, N, PAD, 2);
    matrix w = make(k, in, K, N, 0, 3);
    matrix to_w = make(k, FLEET_FLOAT32, K, N, 0, 4);
    matrix to_b = make(k, FLEET_FLOAT32, 1, N, 0, 5);
    const matrix *of_w[] = {&to_w, &x, &g}, *of_b[] = {&to_b, &g};
    matrix other_b = make(k, FLEET_FLOAT32, 1, N, 0, 7);
    const matrix *with_b[] = {&to_w, &x, &g, &other_b};
    const matrix *of_other_b[] = {&other_b, &g};

    for (int wide = 0; wide < 2; wide++) {
        matrix to_x = make(k, wide ? FLEET_FLOAT32 : in, ROWS, K, PAD, 6);
        const matrix *of_x[] = {&to_x, &g, &w};

        run(k, "fc.dx", &c, of_x, 3);
        check(k, "fc.dx", &c, of_x, dx);
        drop(k, &to_x);
    }
    run(k, "fc.dw", &c, of_w, 3);
    check(k, "fc.dw", &c, of_w, dw);
    run(k, "fc.db", &c, of_b, 2);
    check(k, "fc.db", &c, of_b, db);
    run(k, "fc.dw", &c, with_b, 4);
    check(k, "fc.dw", &c, of_w, dw);
    check(k, "fc.dw", &c, of_other_b, db);
    drop(k, &x);
    drop(k, &g);
    drop(k, &w);
    drop(k, &to_w);
    drop(k, &to_b);
    drop(k, &other_b);
}

TEST(gradients_of_layers_agree_with_their_formulas)
{
    device_kit k;

    device_kit_open(&k, false);
    for (int t = 0; t < 2; t++) {
        try_mask(&k, narrow_types[t], narrow_types[t]);
        try_mask(&k, narrow_types[t], FLEET_FLOAT32);
        try_mask(&k, FLEET_FLOAT32, narrow_types[t]);
        try_gradients(&k, narrow_types[t]);
    }
    device_kit_close(&k);
}

/* --- all of them ---------------------------------------------------------- */

TEST(each_kernel_of_a_narrow_type_has_a_test_here)
{
    static const char *const tested[] = {"cast",  "fc.forward", "fc.mask",
                                         "fc.dx", "fc.dw",      "fc.db"};
    const fl_device_table *t = device_kit_table();
    int n = 0;

    for (int i = 0; t->kernel_at(i); i++) {
        const fl_device_kernel *k = t->kernel_at(i);
        bool found = k->dtype == FLEET_FLOAT32;

        n += !found;
        for (int j = 0; j < 6; j++)
            found = found || strcmp(k->name, tested[j]) == 0;
        if (!found)
            test_fail(__FILE__, __LINE__, "%s of %s has no test", k->name,
                      fleet_dtype_name(k->dtype));
    }
    CHECK_INT(n, 12);
}
