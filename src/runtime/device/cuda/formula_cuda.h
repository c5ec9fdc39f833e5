/* formula_cuda.h - the words of vec.h and vec_math.h for a GPU's thread, so
 * that formulas of unaries.def and binaries.def are written once. */
#pragma once

#include "runtime/device/cuda/cuda.h"

#define FL_WORD __device__ static inline

typedef float vf;

#include "runtime/simd/one_lane.h"

FL_WORD vf v_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}
FL_WORD vf v_exp(vf x)
{
    return expf(x);
}
FL_WORD vf v_exp_to_infinity(vf x)
{
    return expf(x);
}
FL_WORD vf v_expm1(vf x)
{
    return expm1f(x);
}
FL_WORD vf v_log(vf x)
{
    return logf(x);
}
FL_WORD vf v_log1p(vf x)
{
    return log1pf(x);
}
FL_WORD vf v_sigmoid(vf x)
{
    return 1.0f / (1.0f + expf(-x));
}
FL_WORD vf v_tanh(vf x)
{
    return tanhf(x);
}
FL_WORD vf v_erf(vf x)
{
    return erff(x);
}
FL_WORD vf v_pow(vf x, vf a)
{
    return powf(x, a);
}

#include "runtime/simd/formulas.h"
