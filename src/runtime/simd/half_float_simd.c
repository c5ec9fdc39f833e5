/* half_float_simd.c - float to bfloat16; and float16 and back, as gradients
 * travel. Sums over rows of bfloat16 are in math_simd.c, activations of it in
 * activation_simd.c. */
#include "runtime/simd/half_float.h"
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_half)(fl_simd *t);

static void cast_bf16(uint16_t *out, const float *a, int64_t n)
{
    FL_FOR_VEC(i, k, n)
    v_store_bf16(out + i, v_load(a + i, (int)k), (int)k);
}

static void to_half(uint16_t *out, const float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = fl_to_f16(a[i]);
}

static void from_half(float *out, const uint16_t *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = fl_from_f16(a[i]);
}

void FL_SIMD(fl_simd_half)(fl_simd *t)
{
    t->cast = cast_bf16;
    t->to_half = to_half;
    t->from_half = from_half;
}
