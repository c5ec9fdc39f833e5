/* recurrent_cuda.h - what gru.cu and lstm.cu share: the product of the states
 * between two steps. */
#pragma once

#include "ops/sequence/recurrent_config.h"
#include "runtime/device/cuda/block.h"

struct fl_recurrent_gemm {
    fl_gemm *gemm;
};

static inline const fl_recurrent *fl_recurrent_of(const fl_device_step *s)
{
    return static_cast<const fl_recurrent *>(s->config);
}

static inline fl_recurrent_gemm *fl_recurrent_gemm_of(const fl_device_step *s)
{
    return static_cast<fl_recurrent_gemm *>(s->state);
}

static inline void fl_recurrent_finish(fl_device *d, fl_device_step *s)
{
    d->methods->gemm_destroy(d, fl_recurrent_gemm_of(s)->gemm);
    fl_recurrent_gemm_of(s)->gemm = nullptr;
}

static inline fleet_status fl_recurrent_run(fl_device *d, fl_queue *q,
                                            const fl_device_step *s,
                                            const float *a, const float *b,
                                            const float *bias, float *c)
{
    /* these products read their bias */
    const fl_gemm_data data = {a, b, c, const_cast<float *>(bias)};

    return d->methods->gemm_run(d, q, fl_recurrent_gemm_of(s)->gemm, &data);
}

__device__ static inline float fl_recurrent_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
