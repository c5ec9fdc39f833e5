/* half_float_cuda.h - bfloat16 and float16 in kernels: kept so, computed as
 * float. Their bits are as runtime/simd/half_float.h has them. */
#pragma once

#include "runtime/simd/half_float.h"
#include "runtime/device/cuda/cuda.h"

struct fl_bf16 {
    uint16_t bits;
};
struct fl_f16 {
    uint16_t bits;
};

__device__ static inline float fl_load(float x)
{
    return x;
}

__device__ static inline float fl_load(fl_bf16 x)
{
    return fl_from_bf16(x.bits);
}

__device__ static inline float fl_load(fl_f16 x)
{
    return fl_from_f16(x.bits);
}

__device__ static inline void fl_store(float *to, float x)
{
    *to = x;
}

__device__ static inline void fl_store(fl_bf16 *to, float x)
{
    to->bits = fl_to_bf16(x);
}

__device__ static inline void fl_store(fl_f16 *to, float x)
{
    to->bits = fl_to_f16(x);
}

/* What f gives for a zero of the type. */
template <class F> static inline fleet_status fl_by_dtype(fleet_dtype type, F f)
{
    switch (type) {
    case FLEET_BFLOAT16:
        return f(fl_bf16());
    case FLEET_FLOAT16:
        return f(fl_f16());
    default:
        return f(0.0f);
    }
}

/* What f gives for a zero of the operand's type. */
template <class F>
static inline fleet_status fl_by_type(const fl_device_step *s, int i, F f)
{
    return fl_by_dtype(s->arg[i].dtype, f);
}

static inline bool fl_step_is_half(const fl_device_step *s, int i)
{
    return s->arg[i].dtype == FLEET_BFLOAT16 ||
           s->arg[i].dtype == FLEET_FLOAT16;
}
