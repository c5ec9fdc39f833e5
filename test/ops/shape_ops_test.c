/* shape_ops_test.c - operators over dimensions: sums, means and extremes,
 * transpose, slice, pad, gather and the like, products of matrices of each
 * sample, masked softmax: against references and finite differences, and what
 * they refuse. */
#define SUITE shape_ops
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

/* --- references ----------------------------------------------------------- */

/* The coordinates of element i, and the element at coordinates. */
static void coordinates(const ref_tensor *t, int64_t i, int64_t *at)
{
    for (int d = t->n_dim - 1; d >= 0; d--) {
        at[d] = i % t->dim[d];
        i /= t->dim[d];
    }
}

static double *element(const ref_tensor *t, const int64_t *at)
{
    int64_t i = 0;

    for (int d = 0; d < t->n_dim; d++)
        i = i * t->dim[d] + at[d];
    return &t->data[i];
}

/* Over the dimensions whose bits are set; out has 1 or nothing there. */
static void reduce(const ref_tensor *x, ref_tensor *out, unsigned over,
                   fleet_reduction how)
{
    int64_t at[KIT_MAX_DIM], n = x->count / out->count;

    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = how == FLEET_REDUCE_MAX   ? -INFINITY
                       : how == FLEET_REDUCE_MIN ? INFINITY
                                                 : 0;
    for (int64_t i = 0; i < x->count; i++) {
        int64_t j = 0;
        double *to;

        coordinates(x, i, at);
        for (int d = 0; d < x->n_dim; d++)
            if (!(over >> d & 1))
                j = j * x->dim[d] + at[d];
        to = &out->data[j];
        if (how == FLEET_REDUCE_MAX)
            *to = fmax(*to, x->data[i]);
        else if (how == FLEET_REDUCE_MIN)
            *to = fmin(*to, x->data[i]);
        else
            *to += x->data[i] / (how == FLEET_REDUCE_MEAN ? (double)n : 1);
    }
}

#define REF_REDUCE(name, over, how)                                            \
    static void ref_##name(const ref_tensor *const *in, ref_tensor *out)       \
    {                                                                          \
        reduce(in[0], out, over, FLEET_REDUCE_##how);                          \
    }

REF_REDUCE(mean_1, 2, MEAN)
REF_REDUCE(max_1, 2, MAX)
REF_REDUCE(max_2, 4, MAX)
REF_REDUCE(min_2, 4, MIN)
REF_REDUCE(sum_13, 2 | 8, SUM)
REF_REDUCE(mean_all, 2 | 4, MEAN)
REF_REDUCE(max_23, 4 | 8, MAX)

static void ref_transpose(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        /* perm 0 3 1 2 */
        out->data[i] = *element(in[0], (int64_t[]){at[0], at[2], at[3], at[1]});
    }
}

static void ref_swap(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        out->data[i] = *element(in[0], (int64_t[]){at[0], at[2], at[1]});
    }
}

/* A parameter [5, 3] as [3, 5], added to each row of [B, 3, 5] */
static void ref_param(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] =
            in[0]->data[i] + in[1]->data[i % 15 % 5 * 3 + i % 15 / 5];
}

static void ref_slice(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        at[1] += 2;
        out->data[i] = *element(in[0], at);
    }
}

static void ref_slice_last(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        at[2] += 2;
        out->data[i] = *element(in[0], at);
    }
}

/* [B, 7] cut to 2, 4 and 1: 2 a + b + c of the parts' sums */
static void ref_split(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t r = 0; r < out->count; r++)
        for (int64_t j = 0; j < 7; j++)
            out->data[r] += in[0]->data[r * 7 + j] * (j < 2   ? 2
                                                      : j < 6 ? 1
                                                              : 5);
}

static void ref_pad(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        at[1] -= 1;
        out->data[i] =
            at[1] >= 0 && at[1] < 4 ? *element(in[0], at) : (double)0.75f;
    }
}

static void ref_expand(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        at[1] = 0;
        out->data[i] = *element(in[0], at);
    }
}

static void ref_stack(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        out->data[i] = *element(in[at[1]], (int64_t[]){at[0], at[2]});
    }
}

/* Each of three lines of two numbers, and ten times it behind it. */
static void ref_folded(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = (i % 4 < 2 ? 1 : 10) * in[0]->data[i / 4 * 2 + i % 2];
}

static void ref_same_elements(const ref_tensor *const *in, ref_tensor *out)
{
    memcpy(out->data, in[0]->data, (size_t)out->count * sizeof(double));
}

static void ref_gather(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t at[KIT_MAX_DIM];

    for (int64_t i = 0; i < out->count; i++) {
        coordinates(out, i, at);
        at[1] = (int64_t)*element(in[1], (int64_t[]){at[0], at[1]});
        out->data[i] = *element(in[0], at);
    }
}

static void ref_one_hot(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < in[0]->count; i++)
        out->data[i * 7 + (int64_t)in[0]->data[i]] = 1;
}

/* The last two dimensions of x, y and out. */
static void multiply(const ref_tensor *x, bool tx, const ref_tensor *y, bool ty,
                     ref_tensor *out)
{
    int last = out->n_dim - 1;
    int64_t m = out->dim[last - 1], n = out->dim[last];
    int64_t k = x->dim[tx ? last - 1 : last], many = out->count / (m * n);

    for (int64_t b = 0; b < many; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < k; l++)
                    out->data[(b * m + i) * n + j] +=
                        x->data[b * m * k + (tx ? l * m + i : i * k + l)] *
                        y->data[b * k * n + (ty ? j * k + l : l * n + j)];
}

#define REF_PRODUCT(name, tx, ty)                                              \
    static void ref_##name(const ref_tensor *const *in, ref_tensor *out)       \
    {                                                                          \
        multiply(in[0], tx, in[1], ty, out);                                   \
    }

REF_PRODUCT(product, false, false)
REF_PRODUCT(product_x, true, false)
REF_PRODUCT(product_y, false, true)
REF_PRODUCT(product_xy, true, true)

/* x [B, 3, 5], W [5, 4], b [4] */
static void ref_fc_rows(const ref_tensor *const *in, ref_tensor *out)
{
    for (int64_t i = 0; i < out->count; i++) {
        out->data[i] = in[2]->data[i % 4];
        for (int64_t l = 0; l < 5; l++)
            out->data[i] +=
                in[0]->data[i / 4 * 5 + l] * in[1]->data[l * 4 + i % 4];
        out->data[i] = tanh(out->data[i]);
    }
}

/* The mask comes as ids 0 and 1, which one_hot makes floats of; of [B, 1] the
 * mask is [B, 2, 1]: what it is of. */
static void masked(const ref_tensor *x, const ref_tensor *mask, ref_tensor *out)
{
    int64_t n = x->dim[x->n_dim - 1];

    for (int64_t i = 0; i < x->count; i += n) {
        double sum = 0;

        for (int64_t j = 0; j < n; j++)
            if (broadcast(mask, x, i + j) > 0)
                sum += exp(x->data[i + j]);
        for (int64_t j = 0; j < n; j++)
            out->data[i + j] =
                broadcast(mask, x, i + j) > 0 ? exp(x->data[i + j]) / sum : 0;
    }
}

/* ids [B, 6] below 3: clip(id) is the mask */
static void ref_masked(const ref_tensor *const *in, ref_tensor *out)
{
    masked(in[0], in[1], out);
}

/* --- builders ------------------------------------------------------------- */

/* A node without a gradient in front, so that the mask has none. */
static fleet_var *mask_of(fleet_program *p, fleet_var *ids, const int64_t *dims,
                          int n)
{
    fleet_var *hot = fleet_one_hot(p, ids, 2);

    hot = fleet_slice(p, hot, 2, 1, 2); /* 1 of id 1 */
    return fleet_reshape(p, hot, dims, n);
}

BUILD(mean_1, fleet_reduce_mean(p, in[0], 1, 0))
BUILD(max_1, fleet_reduce_max(p, in[0], 1, 0))
BUILD(max_2, fleet_reduce_max(p, in[0], 2, 1))
BUILD(min_2, fleet_reduce_min(p, in[0], 2, 0))
BUILD(sum_13, fleet_reduce(p, in[0], FLEET_REDUCE_SUM, (int[]){3, 1}, 2, 0))
BUILD(mean_all, fleet_reduce(p, in[0], FLEET_REDUCE_MEAN, NULL, 0, 1))
BUILD(max_23, fleet_reduce(p, in[0], FLEET_REDUCE_MAX, (int[]){2, 3}, 2, 0))
BUILD(transpose, fleet_transpose(p, in[0], (int[]){0, 3, 1, 2}, 4))
BUILD(swap, fleet_transpose(p, in[0], (int[]){0, 2, 1}, 3))
BUILD(param, fleet_add(p, in[0], fleet_transpose(p, in[1], (int[]){1, 0}, 2)))
BUILD(slice, fleet_slice(p, in[0], 1, 2, -1))
BUILD(slice_last, fleet_slice(p, in[0], 2, -3, 0))
BUILD(pad, fleet_pad(p, in[0], 1, 1, 2, 0.75f))
BUILD(expand, fleet_expand(p, in[0], 1, 4))
static fleet_var *build_folded(fleet_program *p, fleet_var **in)
{
    fleet_var *both[2] = {fleet_reshape(p, in[0], (int64_t[]){-3, 2}, 2)};

    both[1] = fleet_scale(p, both[0], 10, 0);
    return fleet_reshape(p, fleet_concat(p, both, 2, 1), (int64_t[]){-1, 12},
                         2);
}

BUILD(stack, fleet_stack(p, in, 3, 1))
BUILD(squeeze, fleet_squeeze(p, fleet_unsqueeze(p, in[0], 1), 1))
BUILD(gather, fleet_gather(p, in[0], in[1]))
BUILD(one_hot, fleet_one_hot(p, in[0], 7))
BUILD(product, fleet_batch_matmul(p, in[0], in[1], 0, 0))
BUILD(product_x, fleet_batch_matmul(p, in[0], in[1], 1, 0))
BUILD(product_y, fleet_batch_matmul(p, in[0], in[1], 0, 1))
BUILD(product_xy, fleet_batch_matmul(p, in[0], in[1], 1, 1))
BUILD(fc_rows,
      fleet_fc(p, in[0], 4,
               &(fleet_fc_options){.activation = FLEET_TANH,
                                   .weight.name = fleet_var_name(in[1]),
                                   .bias.name = fleet_var_name(in[2]),
                                   .num_flatten_dims = 2}))
BUILD(masked,
      fleet_masked_softmax(p, in[0], mask_of(p, in[1], (int64_t[]){-1, 6}, 2)))
BUILD(masked_lines,
      fleet_masked_softmax(p, in[0],
                           mask_of(p, in[1], (int64_t[]){-1, 1, 6}, 3)))

static void ref_masked_lines(const ref_tensor *const *in, ref_tensor *out)
{
    ref_tensor mask = *in[1];

    mask.n_dim = 3;
    mask.dim[1] = 1, mask.dim[2] = 6;
    masked(in[0], &mask, out);
}

static fleet_var *build_split(fleet_program *p, fleet_var **in)
{
    fleet_var *part[3];

    if (!fleet_split(p, in[0], 1, (int64_t[]){2, 4, 1}, 3, part))
        return NULL;
    return fleet_add(
        p,
        fleet_add(p, fleet_scale(p, fleet_reduce_sum(p, part[0], 1, 1), 2, 0),
                  fleet_reduce_sum(p, part[1], 1, 1)),
        fleet_scale(p, part[2], 5, 0));
}

const op_case shape_cases[] = {
    {"reduce_mean", "over the middle", IN(1, DATA3(4, 5)), build_mean_1,
     ref_mean_1, 0, false},
    {"reduce_max", "over the middle", IN(1, DATA3(4, 5)), build_max_1,
     ref_max_1, 0, false},
    {"reduce_max", "over the last, kept", IN(1, DATA3(4, 9)), build_max_2,
     ref_max_2, 0, false},
    {"reduce_min", "over the last", IN(1, DATA3(4, 5)), build_min_2, ref_min_2,
     0, false},
    {"reduce_sum", "over two", IN(1, DATA4(3, 2, 5)), build_sum_13, ref_sum_13,
     0, false},
    {"reduce_mean", "over all of a sample", IN(1, DATA3(4, 5)), build_mean_all,
     ref_mean_all, 0, false},
    {"reduce_max", "over two", IN(1, DATA4(3, 2, 5)), build_max_23, ref_max_23,
     0, false},
    {"transpose", "three dimensions turn", IN(1, DATA4(2, 3, 4)),
     build_transpose, ref_transpose, 0, false},
    {"transpose", "two change places", IN(1, DATA3(5, 7)), build_swap, ref_swap,
     0, false},
    {"transpose", "of a parameter", IN(2, DATA3(3, 5), PARAM2(5, 3)),
     build_param, ref_param, 0, false},
    {"slice", "of the middle", IN(1, DATA3(6, 3)), build_slice, ref_slice, 0,
     false},
    {"slice", "the end of the last", IN(1, DATA3(3, 5)), build_slice_last,
     ref_slice_last, 0, false},
    {"slice", "a split of three", IN(1, DATA2(7)), build_split, ref_split, 0,
     false},
    {"pad", "", IN(1, DATA3(4, 3)), build_pad, ref_pad, 0, false},
    {"expand", "", IN(1, DATA3(1, 5)), build_expand, ref_expand, 0, false},
    {"concat", "a stack", IN(3, DATA2(5), DATA2(5), DATA2(5)), build_stack,
     ref_stack, 0, false},
    {"concat", "of folded rows", IN(1, DATA2(6)), build_folded, ref_folded, 0,
     false},
    {"reshape", "unsqueezed and squeezed", IN(1, DATA3(2, 3)), build_squeeze,
     ref_same_elements, 0, false},
    {"gather", "", IN(2, DATA3(6, 4), IDS(5, 6)), build_gather, ref_gather, 0,
     false},
    {"one_hot", "of two", IN(1, IDS(2, 7)), build_one_hot, ref_one_hot, 0,
     true},
    {"one_hot", "of one", IN(1, IDS(1, 7)), build_one_hot, ref_one_hot, 0,
     true},
    {"batch_matmul", "", IN(2, DATA3(4, 6), DATA3(6, 5)), build_product,
     ref_product, 0, false},
    {"batch_matmul", "x is transposed", IN(2, DATA3(6, 4), DATA3(6, 5)),
     build_product_x, ref_product_x, 0, false},
    {"batch_matmul", "y is transposed, of heads",
     IN(2, DATA4(2, 4, 3), DATA4(2, 5, 3)), build_product_y, ref_product_y, 0,
     false},
    {"batch_matmul", "both are", IN(2, DATA3(6, 4), DATA3(5, 6)),
     build_product_xy, ref_product_xy, 0, false},
    {"fc", "each row of a sample", IN(3, DATA3(3, 5), PARAM2(5, 4), PARAM1(4)),
     build_fc_rows, ref_fc_rows, 0, false},
    {"masked_softmax", "its own mask", IN(2, DATA2(6), IDS(6, 2)), build_masked,
     ref_masked, 0, false},
    {"masked_softmax", "a mask of all lines", IN(2, DATA3(3, 6), IDS(6, 2)),
     build_masked_lines, ref_masked_lines, 0, false},
    END_OF_CASES,
};

TEST(agree_with_their_references_for_one_sample)
{
    check_cases(shape_cases, 1, 1);
}

TEST_LIMIT(agree_with_their_references_for_several_slices, 180)
{
    check_cases(shape_cases, 150, 3);
}

TEST(agree_with_their_references_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_cases(shape_cases, 37, 2);
}

/* --- what is refused ------------------------------------------------------ */

BUILD(mean_axis, fleet_reduce_mean(p, in[0], 2, 0))
BUILD(reduce_kind, fleet_reduce(p, in[0], (fleet_reduction)7, NULL, 0, 0))
BUILD(reduce_less, fleet_reduce(p, in[1], FLEET_REDUCE_SUM, NULL, -1, 0))
BUILD(reduce_twice,
      fleet_reduce(p, in[1], FLEET_REDUCE_SUM, (int[]){2, 2}, 2, 0))
BUILD(reduce_batch, fleet_reduce(p, in[1], FLEET_REDUCE_SUM, (int[]){0}, 1, 0))
BUILD(perm_batch, fleet_transpose(p, in[1], (int[]){1, 0, 2}, 3))
BUILD(perm_twice, fleet_transpose(p, in[1], (int[]){0, 1, 1}, 3))
BUILD(perm_short, fleet_transpose(p, in[1], (int[]){0, 1}, 2))
BUILD(perm_null, fleet_transpose(p, in[1], NULL, 3))
BUILD(slice_empty, fleet_slice(p, in[0], 1, 2, 2))
BUILD(slice_beyond, fleet_slice(p, in[0], 1, 2, 5))
BUILD(slice_batch, fleet_slice(p, in[0], 0, 0, 1))
BUILD(split_uneven, fleet_split(p, in[0], 1, NULL, 3, (fleet_var *[3]){0}))
BUILD(split_sizes,
      fleet_split(p, in[0], 1, (int64_t[]){2, 3}, 2, (fleet_var *[2]){0}))
BUILD(split_less,
      fleet_split(p, in[0], 1, (int64_t[]){2, 1}, 2, (fleet_var *[2]){0}))
BUILD(pad_negative, fleet_pad(p, in[0], 1, -1, 0, 0))
BUILD(pad_nan, fleet_pad(p, in[0], 1, 1, 0, NAN))
BUILD(expand_wide, fleet_expand(p, in[0], 1, 2))
BUILD(expand_none, fleet_expand(p, fleet_unsqueeze(p, in[0], 1), 1, 0))
BUILD(squeeze_wide, fleet_squeeze(p, in[0], 1))
BUILD(unsqueeze_batch, fleet_unsqueeze(p, in[0], 0))
BUILD(gather_float, fleet_gather(p, in[1], in[0]))
BUILD(gather_wide, fleet_gather(p, in[0], in[2]))
BUILD(hot_depth, fleet_one_hot(p, kit_data_ids(p, "i", 1), 0))
BUILD(hot_float, fleet_one_hot(p, in[0], 3))
BUILD(product_rank, fleet_batch_matmul(p, in[0], in[1], 0, 0))
BUILD(product_fit, fleet_batch_matmul(p, in[1], in[1], 0, 0))
BUILD(fc_flatten,
      fleet_fc(p, in[1], 2, &(fleet_fc_options){.num_flatten_dims = 3}))
BUILD(masked_fit, fleet_masked_softmax(p, in[1], in[0]))
BUILD(masked_last,
      fleet_masked_softmax(p, in[1], fleet_reduce_sum(p, in[1], 2, 1)))

static void y_and_ids(fleet_program *p, fleet_var **in)
{
    in[1] = fleet_data(p, "y", FLEET_FLOAT32, (int64_t[]){-1, 3, 2}, 3);
    in[2] = fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 2, 2}, 3);
}

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_mean_axis, FLEET_EINVAL, "reduce_mean: axis 2 of shape [-1,4]"},
        {build_reduce_kind, FLEET_EINVAL, "reduction 7 does not exist"},
        {build_reduce_less, FLEET_EINVAL, "reduce: over -1 dimensions"},
        {build_reduce_twice, FLEET_EINVAL, "reduce: axis 2 of shape"},
        {build_reduce_batch, FLEET_EINVAL, "reduce: axis 0 of shape"},
        {build_perm_batch, FLEET_EINVAL, "transpose: perm of 3 dimensions"},
        {build_perm_twice, FLEET_EINVAL, "each of 0 to 2 once"},
        {build_perm_short, FLEET_EINVAL, "transpose: perm of 2 dimensions"},
        {build_perm_null, FLEET_EINVAL, "transpose: perm of 0 dimensions"},
        {build_slice_empty, FLEET_EINVAL, "slice: 2 to 2 of axis 1"},
        {build_slice_beyond, FLEET_EINVAL, "slice: 2 to 5 of axis 1 of \"x\""},
        {build_slice_batch, FLEET_EINVAL, "slice: axis 0 of shape [-1,4]"},
        {build_split_uneven, FLEET_EINVAL, "into 3 parts"},
        {build_split_sizes, FLEET_EINVAL, "do not add up to axis 1"},
        {build_split_less, FLEET_EINVAL, "do not add up to axis 1"},
        {build_pad_negative, FLEET_EINVAL, "pad: -1 before and 0 after"},
        {build_pad_nan, FLEET_EINVAL, "pad: value nan"},
        {build_expand_wide, FLEET_EINVAL, "expand: axis 1 of \"x\" [-1,4]"},
        {build_expand_none, FLEET_EINVAL, "expand: 0 times"},
        {build_squeeze_wide, FLEET_EINVAL, "squeeze: axis 1 of \"x\" [-1,4]"},
        {build_unsqueeze_batch, FLEET_EINVAL, "unsqueeze: axis 0"},
        {build_gather_float, FLEET_EDTYPE, "\"x\" is float32, not int64"},
        {build_gather_wide, FLEET_ESHAPE, "\"ids\" has shape [-1,2,2]"},
        {build_hot_depth, FLEET_EINVAL, "one_hot: depth 0"},
        {build_hot_float, FLEET_EDTYPE, "\"x\" is float32, not int64"},
        {build_product_rank, FLEET_ESHAPE, "expected [-1,M,K]"},
        {build_product_fit, FLEET_ESHAPE,
         "cannot multiply \"y\" [-1,3,2] by \"y\" [-1,3,2]"},
        {build_fc_flatten, FLEET_EINVAL, "num_flatten_dims 3 of \"y\""},
        {build_masked_fit, FLEET_ESHAPE, "mask \"x\" [-1,4] does not fit"},
        {build_masked_last, FLEET_ESHAPE, "does not fit \"y\" [-1,3,2]"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, y_and_ids);
}

/* --- what cases do not show ----------------------------------------------- */

/* x [1, 4] through an operator of `build`, to out. */
static fleet_status run_one(fleet_var *(*build)(fleet_program *p,
                                                fleet_var **in),
                            const float *x, const int64_t *ids, float *out,
                            size_t size)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *in[] = {kit_data(p, "x", 4), kit_data_ids(p, "ids", 2)};
    fleet_fetch fetch = {.var = build(p, in), .data = out, .size = size};
    const int64_t x_dims[] = {1, 4}, id_dims[] = {1, 2};
    fleet_feed feed[2];
    fleet_executor *e = fleet_executor_create(p, NULL);
    fleet_status status;
    int n = 0;

    if (x)
        feed[n++] = (fleet_feed){"x", FLEET_FLOAT32, x, x_dims, 2, NULL};
    if (ids)
        feed[n++] = (fleet_feed){"ids", FLEET_INT64, ids, id_dims, 2, NULL};
    CHECK(e != NULL);
    status = fleet_executor_run(e, feed, n, &fetch, 1);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return status;
}

BUILD(gather_4,
      fleet_gather(p, fleet_reshape(p, in[0], (int64_t[]){-1, 4, 1}, 3), in[1]))
BUILD(hot_3, fleet_one_hot(p, in[1], 3))
BUILD(masked_none, fleet_masked_softmax(p, in[0], fleet_scale(p, in[0], 0, 0)))
BUILD(most, fleet_reduce_max(p, in[0], 1, 0))
BUILD(least, fleet_reduce_min(p, in[0], 1, 0))

TEST(an_index_out_of_bounds_is_refused_with_its_row)
{
    float x[4] = {1, 2, 3, 4}, out[6];

    CHECK_OK(run_one(build_gather_4, x, (int64_t[]){3, 0}, out, 8));
    CHECK_CLOSE(out, ((float[]){4, 1}), 2, 0);
    CHECK_FAILS(run_one(build_gather_4, x, (int64_t[]){1, 4}, out, 8),
                FLEET_EINVAL,
                "gather: \"ids\" is 4 in row 0 of the batch, which is not in "
                "[0, 4)");
    CHECK_FAILS(run_one(build_hot_3, NULL, (int64_t[]){-1, 0}, out, 24),
                FLEET_EINVAL, "one_hot: \"ids\" is -1 in row 0");
}

TEST(a_line_without_a_number_that_counts_is_zeros)
{
    float x[4] = {1, 2, 3, 4}, out[4];

    CHECK_OK(run_one(build_masked_none, x, NULL, out, sizeof out));
    CHECK_CLOSE(out, ((float[]){0, 0, 0, 0}), 4, 0);
}

TEST(nan_among_the_numbers_is_their_extreme)
{
    float x[4] = {1, NAN, 3, 2}, out;

    CHECK_OK(run_one(build_most, x, NULL, &out, sizeof out));
    CHECK(isnan(out));
    CHECK_OK(run_one(build_least, x, NULL, &out, sizeof out));
    CHECK(isnan(out));
}

/* Of equal numbers the first alone. */
TEST(the_first_of_equal_extremes_gets_the_gradient)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_param_attr ones = {.name = "w",
                             .initializer = {FLEET_INIT_CONSTANT, 1, 0}};
    fleet_var *x = kit_data(p, "x", 4);
    fleet_var *w = fleet_parameter(p, (int64_t[]){4}, 1, &ones);
    fleet_var *most = fleet_reduce_max(p, fleet_mul(p, x, w), 1, 0);
    float in[4] = {1, 5, 5, 5};
    const float *out;
    fleet_feed feed = {"x", FLEET_FLOAT32, in, (int64_t[]){1, 4}, 2, NULL};
    fleet_executor *e;

    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.1f), fleet_mean(p, most)));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(fleet_executor_run(e, &feed, 1, NULL, 0));
    out = fl_store_param(f->store, "w")->flat->weight +
          fl_store_param(f->store, "w")->offset;
    CHECK_CLOSE(out, ((float[]){1, 0.5f, 1, 1}), 4, 0);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* Both share W, and the rows of a sample are rows of one product. */
TEST(an_fc_of_rows_is_saved_and_predicts)
{
    const char *path = test_path("model");
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 6);
    fleet_var *rows = fleet_reshape(p, x, (int64_t[]){-1, 3, 2}, 3);
    fleet_var *y =
        fleet_fc(p, rows, 5, &(fleet_fc_options){.num_flatten_dims = 2});
    fleet_executor *e = fleet_executor_create(p, NULL);
    kit_batch *b = kit_batch_new(10);
    fleet_feed feed[KIT_MOST_FEEDS];
    float want[150], got[150];
    size_t size = sizeof got;
    fleet_predictor *predictor;

    kit_floats(b, "x", 6, 1);
    CHECK_OK(kit_fetch(e, b, y, want, 150));
    CHECK_OK(fleet_save_inference_model(f, path, &x, 1, &y, 1));
    predictor = fleet_load_inference_model(path);
    if (!predictor)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    CHECK_OK(fleet_predictor_run(predictor, feed, kit_feeds(b, feed),
                                 (void *[]){got}, &size, 1));
    CHECK(memcmp(got, want, sizeof got) == 0);
    fleet_predictor_destroy(predictor);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* Dimensions are copied before an operator looks at them. */
TEST(a_shape_of_less_than_no_dimensions_is_refused)
{
    static const int numbers[] = {-1, 0, FLEET_MAX_DIM + 1};

    for (int i = 0; i < 3; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);
        fleet_var *x = kit_data(p, "x", 3);

        CHECK(fleet_reshape(p, x, (int64_t[]){-1, 3}, numbers[i]) == NULL);
        CHECK_FAILS(fleet_program_status(p), FLEET_ESHAPE,
                    "reshape: expected 1 to ");
        fleet_destroy(f);
    }
}
