/* unary_simd.c - the kernels of unaries.def, binaries.def and comparisons.def:
 * loops around their formulas. */
#include "runtime/simd/simd.h"
#include "runtime/simd/vec_math.h"

#ifndef FL_WORD
#define FL_WORD static inline
#endif
#include "runtime/simd/formulas.h"

void FL_SIMD(fl_simd_unaries)(fl_simd *t);

#define FL_UNARY(NAME, name, attrs, first, second, FROM, formula, derivative)  \
    static inline vf name##_y(vf x, vf a, vf b)                                \
    {                                                                          \
        (void)a, (void)b;                                                      \
        return formula;                                                        \
    }                                                                          \
                                                                               \
    static inline vf name##_dx(vf x, vf dy, vf a, vf b)                        \
    {                                                                          \
        (void)a, (void)b;                                                      \
        return derivative;                                                     \
    }                                                                          \
                                                                               \
    static void name##_forward(float *y, const float *x, float first_number,   \
                               float second_number, int64_t n)                 \
    {                                                                          \
        vf a = v_set(first_number), b = v_set(second_number);                  \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        v_store(y + i, name##_y(v_load(x + i, (int)k), a, b), (int)k);         \
    }                                                                          \
                                                                               \
    static void name##_gradient(float *dx, const float *x, const float *dy,    \
                                float first_number, float second_number,       \
                                int64_t n)                                     \
    {                                                                          \
        vf a = v_set(first_number), b = v_set(second_number);                  \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        v_store(                                                               \
            dx + i,                                                            \
            name##_dx(v_load(x + i, (int)k), v_load(dy + i, (int)k), a, b),    \
            (int)k);                                                           \
    }
#include "runtime/simd/unaries.def"
#undef FL_UNARY

/* --- two values ----------------------------------------------------------- */

static inline vf load(const float *x, bool one, int64_t i, int k)
{
    return one ? v_set(*x) : v_load(x + i, k);
}

/* What a gradient step does with each vector, told apart outside of the
 * loop. */
#define GRADIENT_LOOP(name, term)                                              \
    static void name(float *d, fl_terms_mode mode, const float *g,             \
                     const fl_operand_pair *o)                                 \
    {                                                                          \
        vf sum = v_set(0.0f);                                                  \
                                                                               \
        FL_FOR_VEC(i, k, o->n)                                                 \
        {                                                                      \
            vf t = term(load(o->x, o->x_is_one, i, (int)k),                    \
                        load(o->y, o->y_is_one, i, (int)k),                    \
                        v_load(g + i, (int)k));                                \
                                                                               \
            if (mode == FL_TERMS_SET)                                          \
                v_store(d + i, t, (int)k);                                     \
            else if (mode == FL_TERMS_ADD)                                     \
                v_store(d + i, v_add(v_load(d + i, (int)k), t), (int)k);       \
            else                                                               \
                sum = v_add(sum, v_first_lanes(t, (int)k));                    \
        }                                                                      \
        if (mode == FL_TERMS_SUM)                                              \
            *d += v_sum(sum);                                                  \
    }

#define FORWARD_LOOP(name, formula)                                            \
    static inline vf name##_z(vf x, vf y)                                      \
    {                                                                          \
        return formula;                                                        \
    }                                                                          \
                                                                               \
    static void name##_both(float *out, const fl_operand_pair *o)              \
    {                                                                          \
        FL_FOR_VEC(i, k, o->n)                                                 \
        v_store(out + i,                                                       \
                name##_z(load(o->x, o->x_is_one, i, (int)k),                   \
                         load(o->y, o->y_is_one, i, (int)k)),                  \
                (int)k);                                                       \
    }

#define FL_BINARY(NAME, name, formula, derivative_x, derivative_y)             \
    FORWARD_LOOP(name, formula)                                                \
                                                                               \
    static inline vf name##_of_x(vf x, vf y, vf g)                             \
    {                                                                          \
        (void)x, (void)y, (void)g;                                             \
        return derivative_x;                                                   \
    }                                                                          \
                                                                               \
    static inline vf name##_of_y(vf x, vf y, vf g)                             \
    {                                                                          \
        (void)y;                                                               \
        return derivative_y;                                                   \
    }                                                                          \
                                                                               \
    GRADIENT_LOOP(name##_gradient_x, name##_of_x)                              \
    GRADIENT_LOOP(name##_gradient_y, name##_of_y)
#include "runtime/simd/binaries.def"
#undef FL_BINARY

#define FL_COMPARISON(NAME, name, formula) FORWARD_LOOP(name, formula)
#include "runtime/simd/comparisons.def"
#undef FL_COMPARISON

void FL_SIMD(fl_simd_unaries)(fl_simd *t)
{
#define FL_UNARY(NAME, name, ...)                                              \
    t->unary[FL_UNARY_##NAME] =                                                \
        (fl_unary_simd){name##_forward, name##_gradient};
#include "runtime/simd/unaries.def"
#undef FL_UNARY
#define FL_BINARY(NAME, name, ...)                                             \
    t->binary[FL_BINARY_##NAME] =                                              \
        (fl_binary_simd){name##_both, {name##_gradient_x, name##_gradient_y}};
#include "runtime/simd/binaries.def"
#undef FL_BINARY
#define FL_COMPARISON(NAME, name, ...)                                         \
    t->binary[FL_BINARY_##NAME] = (fl_binary_simd){.forward = name##_both};
#include "runtime/simd/comparisons.def"
#undef FL_COMPARISON
}
