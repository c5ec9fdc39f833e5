/* activation.cu - the CUDA half of activation.c: the same formulas, and for an
 * fc the same in place. */
#include <fleet/nn.h>

#include "ops/activation.h"
#include "runtime/device/cuda/half_float_cuda.h"
#include "runtime/device/cuda/warp_rows.h"

enum { OUT, IN, OTHER };

/* --- the formulas: y of x; dx of y and dy. alpha is not used by all ------- */

namespace formula
{

struct relu {
    float alpha;
    __device__ float forward(float x) const
    {
        return x > 0 || x != x ? x : 0.0f; /* NaN stays */
    }
    __device__ float gradient(float y, float dy) const
    {
        return y > 0 ? dy : 0.0f;
    }
};

struct tanh {
    float alpha;
    __device__ float forward(float x) const
    {
        return tanhf(x);
    }
    __device__ float gradient(float y, float dy) const
    {
        return (1.0f - y * y) * dy;
    }
};

struct sigmoid {
    float alpha;
    __device__ float forward(float x) const
    {
        return 1.0f / (1.0f + expf(-x));
    }
    __device__ float gradient(float y, float dy) const
    {
        return y * (1.0f - y) * dy;
    }
};

struct leaky_relu {
    float alpha;
    __device__ float forward(float x) const
    {
        return x > 0 ? x : alpha * x;
    }
    __device__ float gradient(float y, float dy) const
    {
        return y > 0 ? dy : alpha * dy;
    }
};

struct square {
    __device__ float forward(float x) const
    {
        return x * x;
    }
    __device__ float gradient(float x, float dy) const /* of the input */
    {
        return 2.0f * (dy * x);
    }
};

struct scale { /* its gradient is one, too */
    float by, plus;
    __device__ float forward(float x) const
    {
        return by * x + plus;
    }
};

} // namespace formula

/* f of the activation's formula. */
template <class F>
static fleet_status by_activation(const fl_activation *a, F f)
{
    switch (a->kind) {
#define FL_ACTIVATION(NAME, name, ...)                                         \
    case FLEET_##NAME:                                                         \
        return f(formula::name{a->alpha});
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
    default:
        return fl_fail(FLEET_EUNSUPPORTED,
                       "activation %d has no formula on GPUs", a->kind);
    }
}

/* --- kernels -------------------------------------------------------------- */

template <class A>
__global__ static void forward_all(float *y, const float *x, int64_t n, A a)
{
    FL_EACH(i, n)
    y[i] = a.forward(x[i]);
}

template <class T, class A>
__global__ static void forward_in_place(T *y, int64_t n, int64_t cols,
                                        int64_t ld, A a)
{
    FL_EACH(i, n)
    {
        int64_t row = fl_quotient(i, cols);
        T *at = y + row * ld + i - row * cols;

        fl_store(at, a.forward(fl_load(*at)));
    }
}

/* dx may be dy. */
template <class G, class Y, class A>
__global__ static void gradient_all(G *dx, const G *dy, const Y *y, int64_t n,
                                    A a)
{
    FL_EACH(i, n)
    fl_store(&dx[i], a.gradient(fl_load(y[i]), fl_load(dy[i])));
}

/* The same, several at a time, where all of it is float. */
enum { AT_ONCE = 4 };

template <class A>
__global__ static void gradient_packs(float *dx, const float *dy,
                                      const float *y, int64_t packs, A a)
{
    FL_EACH(i, packs)
    {
        typedef fl_pack<AT_ONCE> pack;
        pack g = reinterpret_cast<const pack *>(dy)[i];
        pack of = reinterpret_cast<const pack *>(y)[i];

        for (int k = 0; k < AT_ONCE; k++)
            g.x[k] = a.gradient(of.x[k], g.x[k]);
        reinterpret_cast<pack *>(dx)[i] = g;
    }
}

template <class A>
static fleet_status run_forward(fl_queue *q, const fl_device_step *s, A a)
{
    int64_t n = fl_step_count(s, OUT);

    return FL_LAUNCH_EACH(forward_all<A>, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n, a);
}

template <class G, class Y, class A>
static fleet_status run_gradient(fl_queue *q, const fl_device_step *s, int dx,
                                 int dy, int y, A a)
{
    auto *kernel = gradient_all<G, Y, A>;
    int64_t n = fl_step_count(s, dx);
    bool fits = sizeof(G) == sizeof(float) && sizeof(Y) == sizeof(float) &&
                n % AT_ONCE == 0;

    for (int i : {dx, dy, y})
        fits = fits && fl_fits_pack<AT_ONCE>(s->arg[i].data, 0);
    if (fits)
        return FL_LAUNCH_EACH(gradient_packs<A>, n / AT_ONCE, q,
                              fl_step_f32(s, dx), fl_step_f32(s, dy),
                              fl_step_f32(s, y), n / AT_ONCE, a);
    return FL_LAUNCH_EACH(kernel, n, q, fl_step_ptr<G>(s, dx),
                          fl_step_ptr<G>(s, dy), fl_step_ptr<Y>(s, y), n, a);
}

/* --- steps of this family ------------------------------------------------- */

static fleet_status activation_forward(fl_device *, fl_queue *q,
                                       const fl_device_step *s)
{
    return by_activation(static_cast<const fl_activation *>(s->config),
                         [=](auto a) { return run_forward(q, s, a); });
}

static fleet_status activation_gradient(fl_device *, fl_queue *q,
                                        const fl_device_step *s)
{
    return by_activation(
        static_cast<const fl_activation *>(s->config), [=](auto a) {
            return run_gradient<float, float>(q, s, OUT, IN, OTHER, a);
        });
}

static fleet_status square_forward(fl_device *, fl_queue *q,
                                   const fl_device_step *s)
{
    return run_forward(q, s, formula::square());
}

static fleet_status square_gradient(fl_device *, fl_queue *q,
                                    const fl_device_step *s)
{
    return run_gradient<float, float>(q, s, OUT, IN, OTHER, formula::square());
}

static fleet_status scale_forward(fl_device *, fl_queue *q,
                                  const fl_device_step *s)
{
    const fl_scale_config *c = static_cast<const fl_scale_config *>(s->config);

    return run_forward(q, s, formula::scale{c->scale, c->bias});
}

static fleet_status scale_gradient(fl_device *, fl_queue *q,
                                   const fl_device_step *s)
{
    const fl_scale_config *c = static_cast<const fl_scale_config *>(s->config);

    return run_forward(q, s, formula::scale{c->scale, 0.0f});
}

extern const fl_device_kernel fl_cuda_activation[];
const fl_device_kernel fl_cuda_activation[] = {
#define FL_ACTIVATION(NAME, name, ...)                                         \
    FL_KERNEL(#name, activation_forward),                                      \
        FL_KERNEL(#name ".grad", activation_gradient),
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
    FL_KERNEL("square", square_forward),
    FL_KERNEL("square.grad", square_gradient),
    FL_KERNEL("scale", scale_forward),
    FL_KERNEL("scale.grad", scale_gradient),
    FL_KERNEL_END,
};

/* --- for other families, of any type -------------------------------------- */

fleet_status fl_cuda_activate(fl_queue *q, const fl_device_step *s, int y,
                              const fl_activation *activation)
{
    int64_t n = fl_step_count(s, y);
    const fl_device_arg *to = &s->arg[y];

    return by_activation(activation, [=](auto a) {
        return fl_by_type(s, y, [=](auto zero) {
            auto *kernel = forward_in_place<decltype(zero), decltype(a)>;

            return FL_LAUNCH_EACH(kernel, n, q,
                                  static_cast<decltype(zero) *>(to->data), n,
                                  to->cols, to->ld, a);
        });
    });
}

fleet_status fl_cuda_activation_mask(fl_queue *q, const fl_device_step *s,
                                     int g, int y,
                                     const fl_activation *activation)
{
    return by_activation(activation, [=](auto a) {
        return fl_by_type(s, g, [=](auto g_zero) {
            return fl_by_type(s, y, [=](auto y_zero) {
                return run_gradient<decltype(g_zero), decltype(y_zero)>(
                    q, s, g, g, y, a);
            });
        });
    });
}
