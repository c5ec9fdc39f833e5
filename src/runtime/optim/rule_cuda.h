/* rule_cuda.h - the arithmetic of the update rules, as rule_simd.c has it: for one
 * weight. The plug-in is compiled without contraction, so the bits are the
 * same. */
#ifndef FL_RUNTIME_OPTIM_RULE_CUDA_H
#define FL_RUNTIME_OPTIM_RULE_CUDA_H

#include "runtime/device/cuda/cuda.h"
#include "runtime/optim/update_gpu.h"

/* Nothing is to be updated. */
__device__ static inline bool fl_update_is_off(const fl_device_update *now)
{
    return now->skip || (now->stop && *now->stop);
}

/* The gradient that a rule uses, rule.h. */
__device__ static inline float fl_rule_gradient(const fl_update &u, float g,
                                                float w)
{
    return g * u.scale * u.clip + u.decay * w;
}

/* What changes from weight to weight: states are read and written in place. */
typedef struct fl_weight {
    float *w, *s0, *s1;
    float g;
} fl_weight;

/* The moments' step: what the rate is multiplied by, and what divides it. */
struct fl_fraction {
    float above, below;
};

__device__ static inline fl_fraction fl_rule_moments(const fl_update &u,
                                                     const fl_weight &x,
                                                     float d)
{
    float m = u.a * *x.s0 + u.one_minus_a * d;
    float v = u.b * *x.s1 + u.one_minus_b * (d * d);

    *x.s0 = m;
    *x.s1 = v;
    return {m * u.correct_a, sqrtf(v * u.correct_b) + u.epsilon};
}

__device__ static inline void fl_rule_adam(const fl_update &u,
                                           const fl_weight &x, float d)
{
    fl_fraction f = fl_rule_moments(u, x, d);

    *x.w = *x.w - u.lr * f.above / f.below;
}

__device__ static inline void fl_rule_momentum(const fl_update &u,
                                               const fl_weight &x, float d)
{
    float v = u.a * *x.s0 + d;

    *x.s0 = v;
    *x.w = *x.w - u.lr * (u.nesterov ? d + u.a * v : v);
}

__device__ static inline void fl_rule_adagrad(const fl_update &u,
                                              const fl_weight &x, float d)
{
    float sum = *x.s0 + d * d;

    *x.s0 = sum;
    *x.w = *x.w - u.lr * d / (sqrtf(sum) + u.epsilon);
}

__device__ static inline void fl_rule_apply(int rule, const fl_update &u,
                                            const fl_weight &x)
{
    float d = fl_rule_gradient(u, x.g, *x.w);

    if (rule == FL_RULE_SGD)
        *x.w = *x.w - u.lr * d;
    else if (rule == FL_RULE_MOMENTUM)
        fl_rule_momentum(u, x, d);
    else if (rule == FL_RULE_ADAGRAD)
        fl_rule_adagrad(u, x, d);
    else
        fl_rule_adam(u, x, d);
}

#endif
