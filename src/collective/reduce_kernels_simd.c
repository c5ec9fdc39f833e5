/* reduce_kernels_simd.c - the arithmetic of reductions, once per instruction
 * set.
 *
 * A block of each source is added to accumulators that stay in the cache: all
 * sources are read before the first destination is written.
 */
#include <string.h>

#include "runtime/simd/half_float.h"
#include "collective/stream_copy.h"
#include "collective/reduce_kernels.h"
#include "runtime/simd/vec.h"

enum { BLOCK = 1024 };

void FL_SIMD(fl_reduce_kernel)(const fl_reduce_args *f);

static inline void copy_out(const fl_reduce_args *f, void *to, const void *from,
                            size_t n)
{
    if (f->is_nontemporal)
        fl_copy_nontemporal(to, from, n);
    else
        memcpy(to, from, n);
}

#define SAME(x)       (x)
#define ADD(a, b)     ((a) + (b))
#define ADD_I32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define ADD_I64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define ADD_U8(a, b)  ((uint8_t)((a) + (b)))
/* not fmax(): a NaN on either side is the result */
#define LARGER(a, b)    ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b)   ((a) < (b) || (a) != (a) ? (a) : (b))
#define LARGER_I(a, b)  ((a) > (b) ? (a) : (b))
#define SMALLER_I(a, b) ((a) < (b) ? (a) : (b))

#define EACH(formula)                                                          \
    for (int j = 0; j < k; j++)                                                \
    formula

/* name, element, accumulator, how to read and write an element, the sum, the
 * larger, the smaller, what a mean is multiplied by */
#define REDUCE(name, T, A, FROM, TO, SUM, MAX, MIN, FACTOR)                    \
    static inline void name##_add(A *acc, fl_reduce how, const T *x, int k)    \
    {                                                                          \
        if (how == FL_ALL_MAX)                                                 \
            EACH(acc[j] = MAX(acc[j], FROM(x[j])));                            \
        else if (how == FL_ALL_MIN)                                            \
            EACH(acc[j] = MIN(acc[j], FROM(x[j])));                            \
        else                                                                   \
            EACH(acc[j] = SUM(acc[j], FROM(x[j])));                            \
    }                                                                          \
    static void name##_nontemporal(const fl_reduce_args *f, int64_t i,         \
                                   const A *acc, int k)                        \
    {                                                                          \
        T block[BLOCK];                                                        \
                                                                               \
        EACH(block[j] = TO(acc[j]));                                           \
        for (int o = 1; o < f->n_out; o++)                                     \
            copy_out(f, (T *)f->out[o] + i, block, (size_t)k * sizeof(T));     \
    }                                                                          \
    static void name(const fl_reduce_args *f)                                  \
    {                                                                          \
        const A factor = FACTOR;                                               \
        A acc[BLOCK];                                                          \
                                                                               \
        for (int64_t i = 0; i < f->n; i += BLOCK) {                            \
            int k = (int)(f->n - i < BLOCK ? f->n - i : BLOCK);                \
            const T *first = (const T *)f->in[0] + i;                          \
                                                                               \
            EACH(acc[j] = FROM(first[j]));                                     \
            for (int r = 1; r < f->n_in; r++)                                  \
                name##_add(acc, f->how, (const T *)f->in[r] + i, k);           \
            if (f->how == FL_ALL_MEAN)                                         \
                EACH(acc[j] = (A)(acc[j] * factor));                           \
            T *out = (T *)f->out[0] + i;                                       \
            EACH(out[j] = TO(acc[j]));                                         \
            if (f->n_out > 1)                                                  \
                name##_nontemporal(f, i, acc, k);                              \
        }                                                                      \
    }

#define ONE_NTH (1.0f / (float)f->n_in)

REDUCE(f32, float, float, SAME, SAME, ADD, LARGER, SMALLER, ONE_NTH)
REDUCE(f64, double, double, SAME, SAME, ADD, LARGER, SMALLER,
       1.0 / (double)f->n_in)
REDUCE(f16, uint16_t, float, fl_from_f16, fl_to_f16, ADD, LARGER, SMALLER,
       ONE_NTH)
REDUCE(bf16, uint16_t, float, fl_from_bf16, fl_to_bf16, ADD, LARGER, SMALLER,
       ONE_NTH)
/* integers have no mean */
REDUCE(i32, int32_t, int32_t, SAME, SAME, ADD_I32, LARGER_I, SMALLER_I, 1)
REDUCE(i64, int64_t, int64_t, SAME, SAME, ADD_I64, LARGER_I, SMALLER_I, 1)
REDUCE(u8, uint8_t, uint8_t, SAME, SAME, ADD_U8, LARGER_I, SMALLER_I, 1)

void FL_SIMD(fl_reduce_kernel)(const fl_reduce_args *f)
{
    static fl_reduce_kernel *const of[FL_N_WIRE] = {
        [FL_WIRE_F32] = f32,   [FL_WIRE_F64] = f64, [FL_WIRE_I32] = i32,
        [FL_WIRE_I64] = i64,   [FL_WIRE_U8] = u8,   [FL_WIRE_F16] = f16,
        [FL_WIRE_BF16] = bf16,
    };

    of[f->type](f);
}
