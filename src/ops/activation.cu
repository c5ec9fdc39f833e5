/* activation.cu - the CUDA half of activation.c: the same formulas. */
#include "ops/activation.h"

#include "runtime/device/cuda/cuda.h"

enum { OUT, IN, OTHER };

struct relu {
    __device__ float operator()(float x) const
    {
        return x > 0 || x != x ? x : 0.0f; /* NaN stays */
    }
};
struct tanh_ {
    __device__ float operator()(float x) const
    {
        return tanhf(x);
    }
};
struct sigmoid {
    __device__ float operator()(float x) const
    {
        return 1.0f / (1.0f + expf(-x));
    }
};
struct square {
    __device__ float operator()(float x) const
    {
        return x * x;
    }
};
struct scale {
    float by, plus;
    __device__ float operator()(float x) const
    {
        return by * x + plus;
    }
};

/* dx from dy, and the output, or square's input */
struct relu_grad {
    __device__ float operator()(float dy, float y) const
    {
        return y > 0 ? dy : 0.0f;
    }
};
struct tanh_grad {
    __device__ float operator()(float dy, float y) const
    {
        return (1.0f - y * y) * dy;
    }
};
struct sigmoid_grad {
    __device__ float operator()(float dy, float y) const
    {
        return y * (1.0f - y) * dy;
    }
};
struct square_grad {
    __device__ float operator()(float dy, float x) const
    {
        return 2.0f * (dy * x);
    }
};

template <class F>
__global__ static void map_one(float *out, const float *x, int64_t n, F f)
{
    FL_EACH(i, n)
    out[i] = f(x[i]);
}

template <class F>
__global__ static void map_two(float *out, const float *x, const float *y,
                               int64_t n, F f)
{
    FL_EACH(i, n)
    out[i] = f(x[i], y[i]);
}

template <class F>
static fleet_status one(fl_queue *q, const fl_device_step *s, F f)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(map_one<F>, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, f);
}

template <class F>
static fleet_status forward(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return one(q, s, F());
}

template <class F>
static fleet_status backward(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(map_two<F>, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), fl_step_f32(s, OTHER), n, F());
}

static fleet_status scale_forward(fl_device *, fl_queue *q,
                                  const fl_device_step *s)
{
    const fl_scale_config *c = static_cast<const fl_scale_config *>(s->config);

    return one(q, s, scale{c->scale, c->bias});
}

static fleet_status scale_backward(fl_device *, fl_queue *q,
                                   const fl_device_step *s)
{
    const fl_scale_config *c = static_cast<const fl_scale_config *>(s->config);

    return one(q, s, scale{c->scale, 0.0f});
}

extern const fl_device_kernel fl_cuda_activation[];
const fl_device_kernel fl_cuda_activation[] = {
    FL_KERNEL("relu", forward<relu>),
    FL_KERNEL("relu.grad", backward<relu_grad>),
    FL_KERNEL("tanh", forward<tanh_>),
    FL_KERNEL("tanh.grad", backward<tanh_grad>),
    FL_KERNEL("sigmoid", forward<sigmoid>),
    FL_KERNEL("sigmoid.grad", backward<sigmoid_grad>),
    FL_KERNEL("square", forward<square>),
    FL_KERNEL("square.grad", backward<square_grad>),
    FL_KERNEL("scale", scale_forward),
    FL_KERNEL("scale.grad", scale_backward),
    FL_KERNEL_END,
};
