/* math_simd.c - the elementwise and small kernels of simd.h. */
#include "runtime/simd/simd.h"
#include "runtime/simd/vec_math.h"

void FL_SIMD(fl_simd_math)(fl_simd *t);

#define BINARY(name, formula)                                                  \
    static void name(float *out, const float *a, const float *b, int64_t n)    \
    {                                                                          \
        FL_FOR_VEC(i, k, n)                                                    \
        {                                                                      \
            vf x = v_load_row(a + i, (int)k), y = v_load_row(b + i, (int)k);   \
                                                                               \
            v_store_row(out + i, formula, (int)k);                             \
        }                                                                      \
    }

BINARY(add, v_add(x, y))
BINARY(sub, v_sub(x, y))
BINARY(mul, v_mul(x, y))
BINARY(add_mul, v_add(v_load(out + i, (int)k), v_mul(x, y)))

/* These two and add() sum rows. */
static void scale_floats(float *out, const float *a, float s, float t,
                         int64_t n)
{
    vf by = v_set(s), plus = v_set(t);

    FL_FOR_VEC(i, k, n)
    v_store_row(out + i, v_add(v_mul(by, v_load_row(a + i, (int)k)), plus),
                (int)k);
}

static void add_scaled(float *out, const float *a, float s, float t, int64_t n)
{
    vf by = v_set(s);

    (void)t;
    FL_FOR_VEC(i, k, n)
    v_store_row(out + i,
                v_add(v_load_row(out + i, (int)k),
                      v_mul(by, v_load_row(a + i, (int)k))),
                (int)k);
}

static void softmax(float *out, const float *a, int64_t n)
{
    float most = a[0], sum = 0.0f;

    for (int64_t i = 1; i < n; i++)
        most = a[i] > most ? a[i] : most;
    FL_FOR_VEC(i, k, n)
    v_store(out + i, v_exp(v_sub(v_load(a + i, (int)k), v_set(most))), (int)k);
    for (int64_t i = 0; i < n; i++)
        sum += out[i];
    FL_FOR_VEC(i, k, n)
    v_store(out + i, v_div(v_load(out + i, (int)k), v_set(sum)), (int)k);
}

/* How many vectors of a row a sum over rows takes at once: the vectors lie
 * together, and no sum waits for another. */
enum { WIDE = 4 };

/* Parts are of n vectors, k lanes each. */
#define COL_SUM(name, type, load)                                              \
    static inline void name##_part(float *out, const type *x, int64_t ld,      \
                                   int64_t rows, int n, int k)                 \
    {                                                                          \
        vf sum[WIDE];                                                          \
                                                                               \
        for (int i = 0; i < n; i++)                                            \
            sum[i] = v_set(0.0f);                                              \
        for (int64_t r = 0; r < rows; r++)                                     \
            for (int i = 0; i < n; i++)                                        \
                sum[i] = v_add(sum[i], load(x + r * ld + i * FL_VW, k));       \
        for (int i = 0; i < n; i++)                                            \
            v_store(out + i * FL_VW, sum[i], k);                               \
    }                                                                          \
                                                                               \
    static void name(float *out, const type *x, int64_t ld, int64_t rows,      \
                     int64_t cols)                                             \
    {                                                                          \
        int64_t wide = cols / (WIDE * FL_VW) * (WIDE * FL_VW);                 \
                                                                               \
        for (int64_t c = 0; c < wide; c += WIDE * FL_VW)                       \
            name##_part(out + c, x + c, ld, rows, WIDE, FL_VW);                \
        FL_FOR_VEC(c, k, cols - wide)                                          \
        name##_part(out + wide + c, x + wide + c, ld, rows, 1, (int)k);        \
    }

COL_SUM(col_sum, float, v_load)
COL_SUM(col_sum_bf16, uint16_t, v_load_bf16)

static float row_sum(const float *x, int64_t n)
{
    vf sum = v_set(0.0f);

    FL_FOR_VEC(i, k, n)
    sum = v_add(sum, v_load(x + i, (int)k));
    return v_sum(sum);
}

static inline void copy_row(float *to, const float *from, int64_t dim)
{
    FL_FOR_VEC(j, k, dim)
    v_store_row(to + j, v_load_row(from + j, (int)k), (int)k);
}

static void gather_rows(const fl_gather_args *a)
{
    enum { AHEAD = 16 };
    const float *const *row = a->row;
    const float *const *end = a->row + a->n * a->n_feature;

    for (int i = 0; i < AHEAD && row + i < end; i++)
        v_prefetch(row[i], a->dim);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t l = 0; l < a->n_feature; l++, row++) {
            if (row + AHEAD < end)
                v_prefetch(row[AHEAD], a->dim);
            copy_row(a->out[l] + i * a->ld[l], *row, a->dim);
        }
}

/* --- fc with few units --------------------------------------------------- */

static void small_forward(const fl_small_fc_args *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        vf sum[FL_SMALL_N];

        for (int j = 0; j < a->n; j++)
            sum[j] = v_set(0.0f);
        FL_FOR_VEC(c, k, a->k)
        {
            vf xc = v_load(x + c, (int)k);

            for (int j = 0; j < a->n; j++)
                sum[j] =
                    v_fma(xc, v_load(a->wt + j * a->k + c, (int)k), sum[j]);
        }
        for (int j = 0; j < a->n; j++)
            a->y[r * a->ldy + j] =
                (a->bias ? a->bias[j] : 0.0f) + v_sum(sum[j]);
    }
}

static void small_dx(const fl_small_fc_args *a)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const float *y = a->y + r * a->ldy;

        FL_FOR_VEC(c, k, a->k)
        {
            vf sum = v_set(0.0f);

            for (int j = 0; j < a->n; j++)
                sum = v_fma(v_set(y[j]), v_load(a->wt + j * a->k + c, (int)k),
                            sum);
            v_store(a->x + r * a->ldx + c, sum, (int)k);
        }
    }
}

/* dw[c .. , j] of n vectors, k lanes each. */
static inline void small_dw_part(const fl_small_fc_args *a, int64_t c, int j,
                                 int n, int k, float *dw)
{
    float lane[FL_VW];
    vf sum[WIDE];

    for (int i = 0; i < n; i++)
        sum[i] = v_set(0.0f);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx + c;
        vf y = v_set(a->y[r * a->ldy + j]);

        for (int i = 0; i < n; i++)
            sum[i] = v_fma(v_load(x + i * FL_VW, k), y, sum[i]);
    }
    for (int i = 0; i < n; i++) {
        v_store(lane, sum[i], FL_VW);
        for (int at = 0; at < k; at++)
            dw[(c + i * FL_VW + at) * a->n + j] = lane[at];
    }
}

static void small_dw(const fl_small_fc_args *a, float *dw)
{
    int64_t wide = a->k / (WIDE * FL_VW) * (WIDE * FL_VW);

    for (int j = 0; j < a->n; j++) {
        for (int64_t c = 0; c < wide; c += WIDE * FL_VW)
            small_dw_part(a, c, j, WIDE, FL_VW, dw);
        FL_FOR_VEC(c, k, a->k - wide)
        small_dw_part(a, wide + c, j, 1, (int)k, dw);
    }
}

typedef float four __attribute__((vector_size(16), aligned(4)));
typedef float eight __attribute__((vector_size(32), aligned(4)));
typedef float sixteen __attribute__((vector_size(64), aligned(4)));

/* A block of 4 by 4, in registers. */
static inline void transpose_4(four *out, const float *x, int64_t ldx)
{
    four a = *(const four *)(const void *)x;
    four b = *(const four *)(const void *)(x + ldx);
    four c = *(const four *)(const void *)(x + 2 * ldx);
    four d = *(const four *)(const void *)(x + 3 * ldx);
    four ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    four cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);

    out[0] = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    out[1] = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    out[2] = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    out[3] = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

/* 16 rows of 4: each of the 4 rows that come out is a cache line, written at
 * once, because the time goes into waiting for other cores' copies of these
 * lines. */
static inline void transpose_16_by_4(float *out, int64_t ldo, const float *x,
                                     int64_t ldx)
{
    four q[4][4];

    for (int i = 0; i < 4; i++)
        transpose_4(q[i], x + 4 * i * ldx, ldx);
    for (int j = 0; j < 4; j++) {
        eight low =
            __builtin_shufflevector(q[0][j], q[1][j], 0, 1, 2, 3, 4, 5, 6, 7);
        eight high =
            __builtin_shufflevector(q[2][j], q[3][j], 0, 1, 2, 3, 4, 5, 6, 7);

        *(sixteen *)(void *)(out + j * ldo) = __builtin_shufflevector(
            low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    }
}

static void transpose_any(float *out, int64_t ldo, const float *x, int64_t ldx,
                          int64_t rows, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++)
            out[j * ldo + i] = x[i * ldx + j];
}

static void transpose(float *out, int64_t ldo, const float *x, int64_t ldx,
                      int64_t rows, int64_t cols)
{
    int64_t whole_rows = rows / 16 * 16, whole_cols = cols / 4 * 4;

    for (int64_t r = 0; r < whole_rows; r += 16)
        for (int64_t c = 0; c < whole_cols; c += 4)
            transpose_16_by_4(out + c * ldo + r, ldo, x + r * ldx + c, ldx);
    transpose_any(out + whole_rows, ldo, x + whole_rows * ldx, ldx,
                  rows - whole_rows, whole_cols);
    transpose_any(out + whole_cols * ldo, ldo, x + whole_cols, ldx, rows,
                  cols - whole_cols);
}

void FL_SIMD(fl_simd_math)(fl_simd *t)
{
    t->add = add;
    t->sub = sub;
    t->mul = mul;
    t->add_mul = add_mul;
    t->scale = scale_floats;
    t->add_scaled = add_scaled;
    t->softmax = softmax;
    t->col_sum = col_sum;
    t->col_sum_bf16 = col_sum_bf16;
    t->row_sum = row_sum;
    t->gather = gather_rows;
    t->small_forward = small_forward;
    t->small_dx = small_dx;
    t->small_dw = small_dw;
    t->transpose = transpose;
}
