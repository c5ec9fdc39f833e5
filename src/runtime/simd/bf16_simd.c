/* bf16_simd.c - float to bfloat16. Sums over rows of it are in math_simd.c,
 * activations of it in activation_simd.c. */
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_bf16)(fl_simd *t);

static void cast_bf16(uint16_t *out, const float *a, int64_t n)
{
    FL_FOR_VEC(i, k, n)
    v_store_bf16(out + i, v_load(a + i, (int)k), (int)k);
}

void FL_SIMD(fl_simd_bf16)(fl_simd *t)
{
    t->cast = cast_bf16;
}
