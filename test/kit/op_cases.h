/* op_cases.h - the words of op_kit's cases: inputs, builders, references. */
#pragma once

#include "op_kit.h"

static inline int64_t rows_of(const ref_tensor *t)
{
    return t->dim[0];
}

static inline int64_t cols_of(const ref_tensor *t)
{
    return t->count / t->dim[0];
}

/* The element of a broadcast operand that belongs to element i of out. */
static inline double broadcast(const ref_tensor *x, const ref_tensor *out,
                               int64_t i)
{
    int64_t at = 0, stride = 1;

    for (int d = 0; d < out->n_dim; d++) {
        int od = out->n_dim - 1 - d, xd = x->n_dim - 1 - d;
        int64_t here = i % out->dim[od];

        i /= out->dim[od];
        if (xd < 0)
            continue;
        at += x->dim[xd] == 1 ? 0 : here * stride;
        stride *= x->dim[xd];
    }
    return x->data[at];
}

#define REF_BINARY(name, formula)                                              \
    static void ref_##name(const ref_tensor *const *in, ref_tensor *out)       \
    {                                                                          \
        for (int64_t i = 0; i < out->count; i++) {                             \
            double a = broadcast(in[0], out, i), b = broadcast(in[1], out, i); \
                                                                               \
            out->data[i] = formula;                                            \
        }                                                                      \
    }

#define REF_UNARY(name, formula)                                               \
    static void ref_##name(const ref_tensor *const *in, ref_tensor *out)       \
    {                                                                          \
        for (int64_t i = 0; i < out->count; i++) {                             \
            double x = in[0]->data[i];                                         \
                                                                               \
            out->data[i] = formula;                                            \
        }                                                                      \
    }

#define BUILD(name, expression)                                                \
    static fleet_var *build_##name(fleet_program *p, fleet_var **in)           \
    {                                                                          \
        (void)in;                                                              \
        return expression;                                                     \
    }

#define IN(count, ...) .in = {__VA_ARGS__}, .n_in = count

#define DATA2(a)                                                               \
    {                                                                          \
        {-1, a}, 2, false, false, -1, 1                                        \
    }
#define DATA3(a, b)                                                            \
    {                                                                          \
        {-1, a, b}, 3, false, false, -1, 1                                     \
    }
#define PROB(a)                                                                \
    {                                                                          \
        {-1, a}, 2, false, false, 0.05, 0.95                                   \
    }
#define IDS(a, n)                                                              \
    {                                                                          \
        {-1, a}, 2, false, true, 0, n                                          \
    }
#define PARAM1(a)                                                              \
    {                                                                          \
        {a}, 1, true, false, -1, 1                                             \
    }
#define PARAM2(a, b)                                                           \
    {                                                                          \
        {a, b}, 2, true, false, -1, 1                                          \
    }
#define PARAM3(a, b, c)                                                        \
    {                                                                          \
        {a, b, c}, 3, true, false, -1, 1                                       \
    }
#define PARAM4(a, b, c, d)                                                     \
    {                                                                          \
        {a, b, c, d}, 4, true, false, -1, 1                                    \
    }
#define DATA4(a, b, c)                                                         \
    {                                                                          \
        {-1, a, b, c}, 4, false, false, -1, 1                                  \
    }
/* [B, a] of numbers from low to high */
#define WITHIN(a, low, high)                                                   \
    {                                                                          \
        {-1, a}, 2, false, false, low, high                                    \
    }
#define END_OF_CASES                                                           \
    {                                                                          \
        NULL, NULL, IN(0, {{0}, 0, false, false, 0, 0}), NULL, NULL, 0, false  \
    }
