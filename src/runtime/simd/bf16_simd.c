/* bf16_simd.c - the kernels of simd.h that read or write bfloat16, but for
 * its sums over rows (math_simd.c). */
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_bf16)(fl_simd *t);

static void cast(uint16_t *out, const float *a, int64_t n)
{
    FL_FOR_VEC(i, k, n)
    v_store_bf16(out + i, v_load(a + i, (int)k), (int)k);
}

static void relu_bf16(uint16_t *at, int64_t n)
{
    FL_FOR_VEC(i, k, n)
    {
        vf x = v_load_bf16(at + i, (int)k);

        v_store_bf16(at + i, v_keep_nan(x, v_if_positive(x, x)), (int)k);
    }
}

static inline vf load_any(const fl_numbers *x, int64_t i, int k)
{
    return x->bf16 ? v_load_bf16((const uint16_t *)x->at + i, k)
                   : v_load((const float *)x->at + i, k);
}

static inline void store_any(const fl_numbers *to, int64_t i, vf x, int k)
{
    if (to->bf16)
        v_store_bf16((uint16_t *)to->at + i, x, k);
    else
        v_store((float *)to->at + i, x, k);
}

#define BINARY_ANY(name, formula)                                              \
    static void name(fl_numbers out, fl_numbers a, fl_numbers b, int64_t n)    \
    {                                                                          \
        FL_FOR_VEC(i, k, n)                                                    \
        {                                                                      \
            vf x = load_any(&a, i, (int)k), y = load_any(&b, i, (int)k);       \
                                                                               \
            store_any(&out, i, formula, (int)k);                               \
        }                                                                      \
    }

#define ONE v_set(1.0f)

BINARY_ANY(relu_grad_any, v_if_positive(x, y))
BINARY_ANY(tanh_grad_any, v_mul(v_sub(ONE, v_mul(x, x)), y))
BINARY_ANY(sigmoid_grad_any, v_mul(v_mul(x, v_sub(ONE, x)), y))

void FL_SIMD(fl_simd_bf16)(fl_simd *t)
{
    t->cast = cast;
    t->relu_bf16 = relu_bf16;
    t->relu_grad_any = relu_grad_any;
    t->tanh_grad_any = tanh_grad_any;
    t->sigmoid_grad_any = sigmoid_grad_any;
}
