/* activation_simd.c - the kernels of activations.def: a loop around a formula,
 * for float and for bfloat16. */
#include <fleet/nn.h>

#include "runtime/simd/simd.h"
#include "runtime/simd/vec_math.h"

void FL_SIMD(fl_simd_activations)(fl_simd *t);

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

#define FL_ACTIVATION(NAME, name, default_alpha, formula, derivative)          \
    static inline vf name##_y(vf x, vf alpha)                                  \
    {                                                                          \
        (void)alpha;                                                           \
        return formula;                                                        \
    }                                                                          \
                                                                               \
    static inline vf name##_dx(vf y, vf dy, vf alpha)                          \
    {                                                                          \
        (void)alpha;                                                           \
        return derivative;                                                     \
    }                                                                          \
                                                                               \
    static void name##_forward(float *y, const float *x, float alpha,          \
                               int64_t n)                                      \
    {                                                                          \
        vf a = v_set(alpha);                                                   \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        v_store(y + i, name##_y(v_load(x + i, (int)k), a), (int)k);            \
    }                                                                          \
                                                                               \
    static void name##_forward_bf16(uint16_t *x, float alpha, int64_t n)       \
    {                                                                          \
        vf a = v_set(alpha);                                                   \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        v_store_bf16(x + i, name##_y(v_load_bf16(x + i, (int)k), a), (int)k);  \
    }                                                                          \
                                                                               \
    static void name##_gradient(float *dx, const float *y, const float *dy,    \
                                float alpha, int64_t n)                        \
    {                                                                          \
        vf a = v_set(alpha);                                                   \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        v_store(dx + i,                                                        \
                name##_dx(v_load(y + i, (int)k), v_load(dy + i, (int)k), a),   \
                (int)k);                                                       \
    }                                                                          \
                                                                               \
    static void name##_gradient_any(fl_numbers dx, fl_numbers y,               \
                                    fl_numbers dy, float alpha, int64_t n)     \
    {                                                                          \
        vf a = v_set(alpha);                                                   \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        store_any(                                                             \
            &dx, i,                                                            \
            name##_dx(load_any(&y, i, (int)k), load_any(&dy, i, (int)k), a),   \
            (int)k);                                                           \
    }
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION

void FL_SIMD(fl_simd_activations)(fl_simd *t)
{
#define FL_ACTIVATION(NAME, name, ...)                                         \
    t->activation[FLEET_##NAME] =                                              \
        (fl_activation_simd){name##_forward, name##_forward_bf16,              \
                             name##_gradient, name##_gradient_any};
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
}
