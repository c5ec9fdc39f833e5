/* conv_test.c - conv1d, conv2d, pool1d and pool2d: against references and
 * finite differences, with the same bits by any number of threads, and what
 * they refuse. */
#define SUITE conv
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "runtime/exec/compile.h"
#include "runtime/graph/program.h"

/* --- convolutions --------------------------------------------------------- */

/* How a case slides: the height's and the width's. */
typedef struct slide {
    int64_t stride[2], padding[2], dilation[2], groups;
} slide;

/* x [B, C, H, W], of one dimension as [B, C, 1, L]. */
typedef struct planes {
    int64_t n, channels, size[2];
    double *data;
} planes;

static planes planes_of(const ref_tensor *t)
{
    int d = t->n_dim;

    return (planes){
        t->dim[0], t->dim[1], {d == 4 ? t->dim[2] : 1, t->dim[d - 1]}, t->data};
}

/* 0 beside it. */
static double at(const planes *p, int64_t n, int64_t channel, int64_t y,
                 int64_t x)
{
    if (y < 0 || y >= p->size[0] || x < 0 || x >= p->size[1])
        return 0;
    return p
        ->data[((n * p->channels + channel) * p->size[0] + y) * p->size[1] + x];
}

/* What a filter sees at a place. */
static double ref_sum(const planes *x, const planes *w, const slide *s,
                      int64_t n, int64_t filter, const int64_t *place)
{
    int64_t group = filter / (w->n / s->groups);
    double sum = 0;

    for (int64_t c = 0; c < w->channels; c++)
        for (int64_t i = 0; i < w->size[0]; i++)
            for (int64_t j = 0; j < w->size[1]; j++)
                sum += at(w, filter, c, i, j) *
                       at(x, n, group * w->channels + c,
                          place[0] * s->stride[0] - s->padding[0] +
                              i * s->dilation[0],
                          place[1] * s->stride[1] - s->padding[1] +
                              j * s->dilation[1]);
    return sum;
}

/* b may be NULL. */
static void ref_conv(const ref_tensor *in_x, const ref_tensor *in_w,
                     const double *b, const slide *s, ref_tensor *out)
{
    planes x = planes_of(in_x), w = planes_of(in_w), y = planes_of(out);
    int64_t plane = y.size[0] * y.size[1];

    for (int64_t i = 0; i < out->count; i++) {
        int64_t place[2] = {i % plane / y.size[1], i % y.size[1]};
        int64_t filter = i / plane % y.channels;

        out->data[i] =
            (b ? b[filter] : 0) +
            ref_sum(&x, &w, s, i / plane / y.channels, filter, place);
    }
}

#define ONE .stride = {1, 1}, .dilation = {1, 1}, .groups = 1

static const slide plain = {ONE}, grouped = {{2, 1}, {1, 1}, {1, 2}, 2},
                   padded = {ONE, .padding = {1, 1}},
                   stretched = {{1, 2}, {0, 2}, {1, 3}, 1};

static void ref_plain(const ref_tensor *const *in, ref_tensor *out)
{
    ref_conv(in[0], in[1], in[2]->data, &plain, out);
}

static void ref_grouped(const ref_tensor *const *in, ref_tensor *out)
{
    ref_conv(in[0], in[1], NULL, &grouped, out);
}

static void ref_signal(const ref_tensor *const *in, ref_tensor *out)
{
    ref_conv(in[0], in[1], in[2]->data, &stretched, out);
}

/* Of ids as numbers, which have no gradient: [B, 40] is [B, 2, 4, 5]. */
static void ref_parts(const ref_tensor *const *in, ref_tensor *out)
{
    ref_tensor x = *in[0];

    x.n_dim = 4;
    memcpy(x.dim, (int64_t[]){x.dim[0], 2, 4, 5}, sizeof x.dim);
    ref_conv(&x, in[1], NULL, &padded, out);
}

static fleet_var *conv(fleet_program *p, const fl_op *op, fleet_var **in,
                       int n_in, const slide *s)
{
    int dims = op == &fl_op_conv1d ? 1 : 2;
    fl_attr attr[] = {FL_ATTR_INTS("stride", s->stride + 2 - dims, dims),
                      FL_ATTR_INTS("padding", s->padding + 2 - dims, dims),
                      FL_ATTR_INTS("dilation", s->dilation + 2 - dims, dims),
                      FL_ATTR_INT("groups", s->groups)};

    return fl_program_add(p, op, in, n_in, attr, 4);
}

static fleet_var *images(fleet_program *p, fleet_var *ids)
{
    return fleet_reshape(p, fleet_cast(p, ids), (int64_t[]){-1, 2, 4, 5}, 4);
}

BUILD(plain, conv(p, &fl_op_conv2d, in, 3, &plain))
BUILD(grouped, conv(p, &fl_op_conv2d, in, 2, &grouped))
BUILD(signal, conv(p, &fl_op_conv1d, in, 3, &stretched))
BUILD(parts, conv(p, &fl_op_conv2d, (fleet_var *[]){images(p, in[0]), in[1]}, 2,
                  &padded))

/* --- pooling -------------------------------------------------------------- */

typedef struct window {
    int64_t size[2], stride[2], padding[2];
    bool mean, counts_padding;
} window;

static double ref_window(const planes *x, const window *w, int64_t plane,
                         const int64_t *place)
{
    double most = -INFINITY, sum = 0;
    int n = 0;

    for (int64_t i = 0; i < w->size[0]; i++)
        for (int64_t j = 0; j < w->size[1]; j++) {
            int64_t y = place[0] * w->stride[0] - w->padding[0] + i;
            int64_t z = place[1] * w->stride[1] - w->padding[1] + j;

            if (y < 0 || y >= x->size[0] || z < 0 || z >= x->size[1])
                continue;
            sum += at(x, 0, plane, y, z);
            most = fmax(most, at(x, 0, plane, y, z));
            n++;
        }
    if (!w->mean)
        return most;
    return sum / (w->counts_padding ? (double)(w->size[0] * w->size[1]) : n);
}

static void ref_pool(const ref_tensor *in, const window *w, ref_tensor *out)
{
    planes x = planes_of(in), y = planes_of(out);
    int64_t plane = y.size[0] * y.size[1];

    for (int64_t i = 0; i < out->count; i++)
        out->data[i] =
            ref_window(&x, w, i / plane,
                       (int64_t[]){i % plane / y.size[1], i % y.size[1]});
}

static const window squares = {{2, 2}, {2, 2}, {0, 0}, false, false},
                    overlapping = {{3, 2}, {2, 1}, {1, 1}, false, false},
                    means = {{3, 3}, {2, 2}, {1, 2}, true, false},
                    padded_means = {{2, 3}, {1, 2}, {1, 0}, true, true},
                    line = {{1, 3}, {1, 1}, {0, 1}, false, false},
                    line_means = {{1, 2}, {1, 2}, {0, 0}, true, false};

#define POOL(name)                                                             \
    static void ref_##name(const ref_tensor *const *in, ref_tensor *out)       \
    {                                                                          \
        ref_pool(in[0], &name, out);                                           \
    }                                                                          \
    BUILD(name, pool(p, in[0], &name))

static fleet_var *pool(fleet_program *p, fleet_var *x, const window *w)
{
    bool one = x && x->shape.n_dim == 3;
    fleet_pool_options o = {.kind =
                                w->mean ? FLEET_POOL_AVERAGE : FLEET_POOL_MAX,
                            .count_padding = w->counts_padding};

    for (int i = one ? 1 : 0, to = 0; i < 2; i++, to++) {
        o.size[to] = w->size[i];
        o.stride[to] = w->stride[i] == w->size[i] ? 0 : w->stride[i];
        o.padding[to] = w->padding[i];
    }
    return one ? fleet_pool1d(p, x, &o) : fleet_pool2d(p, x, &o);
}

POOL(squares)
POOL(overlapping)
POOL(means)
POOL(padded_means)
POOL(line)
POOL(line_means)

const op_case conv_cases[] = {
    {"conv2d", "with a bias",
     IN(3, DATA4(3, 4, 3), PARAM4(2, 3, 2, 2), PARAM1(2)), build_plain,
     ref_plain, 0, false},
    {"conv2d", "with strides, padding, dilation and groups",
     IN(2, DATA4(2, 5, 4), PARAM4(4, 1, 3, 2)), build_grouped, ref_grouped, 0,
     false},
    {"conv2d", "whose images are summed in parts",
     IN(2, IDS(40, 3), PARAM4(8, 2, 3, 3)), build_parts, ref_parts, 0, false},
    {"conv1d", "", IN(3, DATA3(2, 9), PARAM3(3, 2, 3), PARAM1(3)), build_signal,
     ref_signal, 0, false},
    {"pool2d", "the largest of squares", IN(1, DATA4(2, 4, 5)), build_squares,
     ref_squares, 0, false},
    {"pool2d", "the largest where windows overlap", IN(1, DATA4(2, 5, 4)),
     build_overlapping, ref_overlapping, 0, false},
    {"pool2d", "means without padding", IN(1, DATA4(2, 4, 5)), build_means,
     ref_means, 0, false},
    {"pool2d", "means with padding", IN(1, DATA4(2, 4, 5)), build_padded_means,
     ref_padded_means, 0, false},
    {"pool1d", "the largest", IN(1, DATA3(2, 6)), build_line, ref_line, 0,
     false},
    {"pool1d", "means", IN(1, DATA3(3, 6)), build_line_means, ref_line_means, 0,
     false},
    END_OF_CASES,
};

TEST(agree_with_their_references_for_one_sample)
{
    check_cases(conv_cases, 1, 1);
}

TEST_LIMIT(agree_with_their_references_for_several_slices, 180)
{
    check_cases(conv_cases, 70, 3);
}

/* --- bits ----------------------------------------------------------------- */

/* A convolution whose images are in parts, and a pool, after three updates. */
static uint64_t hash_by(int threads)
{
    fleet *f = kit_handle(&(kit_options){.threads = threads});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x =
        fleet_reshape(p, kit_data(p, "x", 100), (int64_t[]){-1, 1, 10, 10}, 4);
    fleet_conv_options o = {.padding = {1, 1}, .activation = FLEET_TANH};
    kit_batch *b = kit_batch_new(150);
    fleet_executor *e;
    uint64_t hash;

    kit_floats(b, "x", 100, 1);
    for (int i = 0; i < 2; i++) {
        x = fleet_conv2d(p, x, 5, (int64_t[]){3, 3}, &o);
        x = fleet_pool2d(p, x, &(fleet_pool_options){.size = {2, 2}});
    }
    x = fleet_mean(p, fleet_square(p, fleet_fc(p, x, 1, NULL)));
    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), x));
    e = fleet_executor_create(p, NULL);
    for (int i = 0; i < 3; i++)
        kit_step(e, b, x);
    hash = kit_hash(f);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return hash;
}

TEST(bits_do_not_depend_on_threads)
{
    uint64_t one = hash_by(1);

    CHECK(hash_by(2) == one);
    CHECK(hash_by(5) == one);
}

/* --- what is larger ------------------------------------------------------- */

/* The pool of one image, and its gradient; NULL: it is not trained. */
static float pool_of(const float image[4], float gradient[4])
{
    fleet *f = kit_handle(&(kit_options){.threads = 1});
    fleet_program *p = fleet_program_create(f);
    const int64_t dims[] = {1, 1, 2, 2};
    fleet_var *x =
        fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1, 2, 2}, 4);
    fleet_var *y = fleet_pool2d(p, x, &(fleet_pool_options){.size = {2, 2}});
    fleet_var *w = fleet_parameter(
        p, (int64_t[]){1}, 1,
        &(fleet_param_attr){.name = "w",
                            .initializer.kind = FLEET_INIT_CONSTANT,
                            .initializer.a = 1});
    fleet_var *loss = fleet_mean(p, fleet_mul(p, y, w));
    fleet_feed feed = {"x", FLEET_FLOAT32, image, dims, 4, NULL};
    fleet_fetch fetch = {.var = y};
    float largest = 0;
    fleet_executor *e;

    x->keep_gradient = true;
    fetch.data = &largest;
    fetch.size = sizeof largest;
    if (gradient)
        CHECK_OK(fleet_minimize(fleet_sgd(f, 1), loss));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(fleet_executor_run(e, &feed, 1, &fetch, 1));
    if (gradient)
        memcpy(gradient,
               fl_compiled_pointer(e->last, e->last->plan->gradient_of[x->id]),
               4 * sizeof *gradient);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return largest;
}

TEST(of_equal_numbers_the_first_is_the_largest)
{
    float gradient[4];

    CHECK(pool_of((const float[]){1, 2, 2, 2}, gradient) == 2);
    CHECK_CLOSE(gradient, ((const float[]){0, 1, 0, 0}), 4, 0);
}

TEST(nan_is_larger_than_any_number)
{
    CHECK(isnan(pool_of((const float[]){NAN, 2, 3, 4}, NULL)));
    CHECK(isnan(pool_of((const float[]){5, 2, NAN, 4}, NULL)));
}

/* --- what is refused ------------------------------------------------------ */

static void more_inputs(fleet_program *p, fleet_var **in)
{
    in[1] =
        fleet_reshape(p, kit_data(p, "image", 60), (int64_t[]){-1, 3, 4, 5}, 4);
    in[2] = fleet_reshape(p, in[1], (int64_t[]){-1, 3, 20}, 3);
}

static const slide of_three = {
    .stride = {1, 1}, .dilation = {1, 1}, .groups = 3};
static const int64_t k33[] = {3, 3}, k00[] = {3, 0}, k91[] = {9, 1};

#define CONV2D(...)                                                            \
    fleet_conv2d(p, in[1], 4, k33, &(fleet_conv_options){__VA_ARGS__})
#define POOL2D(...) fleet_pool2d(p, in[1], &(fleet_pool_options){__VA_ARGS__})

BUILD(flat, fleet_conv2d(p, in[0], 4, k33, NULL))
BUILD(filters, fleet_conv2d(p, in[1], 0, k33, NULL))
BUILD(kernel, fleet_conv2d(p, in[1], 4, k00, NULL))
BUILD(no_kernel, fleet_conv2d(p, in[1], 4, NULL, NULL))
BUILD(large, fleet_conv2d(p, in[1], 4, k91, NULL))
BUILD(groups, CONV2D(.groups = 2))
BUILD(stride, CONV2D(.stride = {1, -1}))
BUILD(padding, CONV2D(.padding = {-1, 0}))
BUILD(dilated, CONV2D(.dilation = {2, 1}))
BUILD(activation, CONV2D(.activation = (fleet_activation)99))
BUILD(second,
      fleet_conv1d(p, in[2], 4, 3, &(fleet_conv_options){.stride = {1, 1}}))
BUILD(image_1d, fleet_conv1d(p, in[1], 4, 3, NULL))
BUILD(weights,
      conv(p, &fl_op_conv2d,
           (fleet_var *[]){in[1],
                           fleet_parameter(p, (int64_t[]){4, 2, 3, 3}, 4,
                                           &(fleet_param_attr){.name = "w"})},
           2, &plain))
BUILD(raw_groups,
      conv(p, &fl_op_conv2d,
           (fleet_var *[]){in[1],
                           fleet_parameter(p, (int64_t[]){4, 1, 3, 3}, 4,
                                           &(fleet_param_attr){.name = "w"})},
           2, &of_three))
BUILD(bias,
      conv(p, &fl_op_conv2d,
           (fleet_var *[]){in[1],
                           fleet_parameter(p, (int64_t[]){4, 3, 3, 3}, 4,
                                           &(fleet_param_attr){.name = "w"}),
                           fleet_parameter(p, (int64_t[]){3}, 1,
                                           &(fleet_param_attr){.name = "b"})},
           3, &plain))
BUILD(ids,
      fleet_conv1d(p, fleet_data(p, "i", FLEET_INT64, (int64_t[]){-1, 3, 4}, 3),
                   4, 3, NULL))
BUILD(no_options, fleet_pool2d(p, in[1], NULL))
BUILD(no_size, POOL2D(.stride = {1, 1}))
BUILD(wide_padding, POOL2D(.size = {2, 2}, .padding = {2, 0}))
BUILD(wide_window, POOL2D(.size = {5, 5}))
BUILD(kind, POOL2D(.size = {2, 2}, .kind = (fleet_pool_kind)7))
BUILD(counts, POOL2D(.size = {2, 2}, .count_padding = 1))
BUILD(pool_flat, fleet_pool1d(p, in[0], &(fleet_pool_options){.size = {2}}))
BUILD(pool_second,
      fleet_pool1d(p, in[2], &(fleet_pool_options){.size = {2, 2}}))

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_flat, FLEET_ESHAPE,
         "conv2d: \"x\" has shape [-1,4]; expected [-1,C,H,W]"},
        {build_filters, FLEET_ESHAPE, "conv2d: cannot have 0 filters"},
        {build_kernel, FLEET_EINVAL, "conv2d: kernel size 0; expected 1 to"},
        {build_no_kernel, FLEET_EINVAL, "conv2d: kernel size 0; expected 1 to"},
        {build_large, FLEET_ESHAPE, "a kernel that spreads over 9 is larger"},
        {build_groups, FLEET_ESHAPE,
         "conv2d: 2 groups do not divide 3 channels"},
        {build_stride, FLEET_EINVAL, "conv2d: stride -1; expected 1 to"},
        {build_padding, FLEET_EINVAL, "conv2d: padding -1; expected 0 to"},
        {build_dilated, FLEET_ESHAPE, "spreads over 5 is larger"},
        {build_activation, FLEET_EINVAL, "activation 99 does not exist"},
        {build_second, FLEET_EINVAL, "conv1d: stride, padding and dilation"},
        {build_image_1d, FLEET_ESHAPE, "expected [-1,C,L]"},
        {build_weights, FLEET_ESHAPE,
         "conv2d: weights \"w\" [4,2,3,3] do not fit"},
        {build_raw_groups, FLEET_ESHAPE,
         "conv2d: 3 groups do not divide 3 channels of"},
        {build_bias, FLEET_ESHAPE,
         "conv2d: \"b\" has shape [3]; expected one number for each filter"},
        {build_ids, FLEET_EDTYPE, "conv1d: \"i\" is int64, not float32"},
        {build_no_options, FLEET_EINVAL, "pool2d: it needs the size"},
        {build_no_size, FLEET_EINVAL, "pool2d: size 0; expected 1 to"},
        {build_wide_padding, FLEET_EINVAL,
         "pool2d: padding 2 of windows of 2; expected less"},
        {build_wide_window, FLEET_ESHAPE,
         "pool2d: windows of 5 are larger than"},
        {build_kind, FLEET_EINVAL, "pool2d: kind 7 does not exist"},
        {build_counts, FLEET_EINVAL, "pool2d: count_padding is of averages"},
        {build_pool_flat, FLEET_ESHAPE,
         "pool1d: \"x\" has shape [-1,4]; expected [-1,C,L]"},
        {build_pool_second, FLEET_EINVAL, "pool1d: size, stride and padding"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, more_inputs);
}
