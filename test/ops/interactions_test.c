/* interactions_test.c - layers that cross features, against references and
 * finite differences; those with parameters of their own forward, from their
 * parameters (torch_test.c has their gradients); and what they refuse. */
#define SUITE interactions
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/interactions.h>

#include "fleet/job/handle.h"

/* --- references ----------------------------------------------------------- */

static void triangle(const ref_tensor *x, ref_tensor *out, int64_t diagonal)
{
    int64_t n = x->dim[1], k = 0;

    for (int64_t r = 0; r < x->dim[0]; r++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i + diagonal; j++)
                out->data[k++] = x->data[(r * n + i) * n + j];
}

static void ref_lower(const ref_tensor *const *in, ref_tensor *out)
{
    triangle(in[0], out, 0);
}

static void ref_lower_diagonal(const ref_tensor *const *in, ref_tensor *out)
{
    triangle(in[0], out, 1);
}

/* [B, F, D], of all pairs of fields. */
static void ref_bi(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[0]->dim[1], d = in[0]->dim[2];

    for (int64_t r = 0; r < in[0]->dim[0]; r++) {
        const double *x = in[0]->data + r * n * d;

        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++)
                for (int64_t k = 0; k < d; k++)
                    out->data[r * out->dim[1] + (out->dim[1] == 1 ? 0 : k)] +=
                        x[i * d + k] * x[j * d + k];
    }
}

static void ref_ffm(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[0]->dim[1], d = in[0]->dim[3];

    for (int64_t r = 0; r < in[0]->dim[0]; r++) {
        const double *x = in[0]->data + r * n * n * d;

        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i; j++)
                for (int64_t k = 0; k < d; k++)
                    out->data[r] +=
                        x[(i * n + j) * d + k] * x[(j * n + i) * d + k];
    }
}

static void dots(const ref_tensor *x, ref_tensor *out, int64_t self)
{
    int64_t n = x->dim[1], d = x->dim[2];
    double *to = out->data;

    for (int64_t r = 0; r < x->dim[0]; r++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < i + self; j++, to++)
                for (int64_t k = 0; k < d; k++)
                    *to += x->data[(r * n + i) * d + k] *
                           x->data[(r * n + j) * d + k];
}

static void ref_dots(const ref_tensor *const *in, ref_tensor *out)
{
    dots(in[0], out, 0);
}

static void ref_dots_self(const ref_tensor *const *in, ref_tensor *out)
{
    dots(in[0], out, 1);
}

BUILD(lower, fleet_lower_triangle(p, in[0], 0))
BUILD(lower_diagonal, fleet_lower_triangle(p, in[0], 1))
BUILD(bi, fleet_bi_interaction(p, in[0]))
BUILD(fm, fleet_fm_interaction(p, in[0]))
BUILD(ffm, fleet_ffm_interaction(p, in[0]))
BUILD(dots, fleet_pairwise_dot(p, in[0], 0))
BUILD(dots_self, fleet_pairwise_dot(p, in[0], 1))

const op_case interaction_cases[] = {
    {"lower_triangle", "", IN(1, DATA3(5, 5)), build_lower, ref_lower, 0,
     false},
    {"lower_triangle", "with the diagonal", IN(1, DATA3(4, 4)),
     build_lower_diagonal, ref_lower_diagonal, 0, false},
    {"lower_triangle", "of one row alone", IN(1, DATA3(1, 1)),
     build_lower_diagonal, ref_lower_diagonal, 0, false},
    {"square", "a bi-interaction", IN(1, DATA3(5, 3)), build_bi, ref_bi, 0,
     false},
    {"square", "a factorization machine", IN(1, DATA3(5, 3)), build_fm, ref_bi,
     0, false},
    {"transpose", "of field-aware vectors", IN(1, DATA4(4, 4, 3)), build_ffm,
     ref_ffm, 0, false},
    {"batch_matmul", "dots of pairs", IN(1, DATA3(5, 3)), build_dots, ref_dots,
     0, false},
    {"batch_matmul", "dots of pairs and of each", IN(1, DATA3(4, 3)),
     build_dots_self, ref_dots_self, 0, false},
    END_OF_CASES,
};

TEST(agree_with_their_references_for_one_sample)
{
    check_cases(interaction_cases, 1, 1);
}

TEST(agree_with_their_references_for_several_slices)
{
    check_cases(interaction_cases, 150, 3);
}

TEST(agree_with_their_references_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_cases(interaction_cases, 37, 2);
}

/* --- layers with parameters, forward -------------------------------------- */

enum { ROWS = 3, N = 5 };

typedef struct layer {
    fleet *f;
    fleet_program *p;
    fleet_var *x0, *x;
} layer;

static layer open_layer(void)
{
    layer l = {.f = kit_handle(&(kit_options){0})};

    l.p = fleet_program_create(l.f);
    l.x0 = kit_data(l.p, "x0", N);
    l.x = kit_data(l.p, "x", N);
    return l;
}

/* Run on made-up numbers, which `in` gets: x0, x. */
static void run_layer(layer *l, const fleet_var *out, const float *in[2],
                      float *got, int64_t n, kit_batch **b)
{
    fleet_executor *e = fleet_executor_create(l->p, NULL);

    CHECK(e != NULL);
    *b = kit_batch_new(ROWS);
    in[0] = kit_floats(*b, "x0", N, 1);
    in[1] = kit_floats(*b, "x", N, 2);
    CHECK_OK(kit_fetch(e, *b, out, got, n));
    fleet_executor_destroy(e);
}

static const float *weights(const layer *l, const char *name)
{
    const fl_param *p = fl_store_param(l->f->store, name);

    CHECK(p != NULL);
    return p->flat->weight + p->offset;
}

static double dot(const float *x, const float *w, int64_t stride)
{
    double sum = 0;

    for (int64_t i = 0; i < N; i++)
        sum += (double)x[i] * (double)w[i * stride];
    return sum;
}

/* x0 (x W) + x, element by element; of a vector W all columns are w. */
static void check_cross(bool matrix)
{
    layer l = open_layer();
    fleet_var *y = matrix ? fleet_cross_layer_v2(l.p, l.x0, l.x, NULL)
                          : fleet_cross_layer(l.p, l.x0, l.x, NULL);
    float got[ROWS * N];
    const float *in[2], *w;
    kit_batch *b;

    CHECK(y != NULL);
    run_layer(&l, y, in, got, ROWS * N, &b);
    w = weights(&l, "cross_0.w");
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++) {
            const float *x0 = in[0] + r * N, *x = in[1] + r * N;
            double xw = matrix ? dot(x, w + i, N) : dot(x, w, 1);

            CHECK_NEAR(got[r * N + i], (double)x0[i] * xw + (double)x[i], 1e-6);
        }
    kit_batch_free(b);
    fleet_destroy(l.f);
}

TEST(a_cross_layer_is_its_formula)
{
    check_cross(false);
}

TEST(a_cross_layer_of_a_matrix_is_its_formula)
{
    check_cross(true);
}

/* Of one field and one row: w x^2, and of the next layer w' times w x^3. */
TEST(cin_multiplies_each_layer_by_the_fields)
{
    layer l = open_layer();
    fleet_var *x = fleet_reshape(l.p, l.x, (int64_t[]){-1, 1, N}, 3);
    fleet_var *y = fleet_cin(l.p, x, (int64_t[]){1, 1}, 2, "c");
    float got[ROWS * 2];
    const float *in[2], *w, *w2;
    kit_batch *b;

    CHECK(y != NULL);
    run_layer(&l, y, in, got, ROWS * 2, &b);
    w = weights(&l, "c_0.w");
    w2 = weights(&l, "c_1.w");
    for (int r = 0; r < ROWS; r++) {
        double two = 0, three = 0;

        for (int i = 0; i < N; i++) {
            double one = (double)in[1][r * N + i];

            two += one * one;
            three += one * one * one;
        }
        CHECK_NEAR(got[r * 2], (double)*w * two, 1e-5);
        CHECK_NEAR(got[r * 2 + 1], (double)*w * (double)*w2 * three, 1e-5);
    }
    kit_batch_free(b);
    fleet_destroy(l.f);
}

/* With one key that counts each query gets that one's value. */
TEST(attention_takes_what_the_mask_leaves)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 3, 2}, 3);
    fleet_var *mask = kit_data(p, "mask", 3);
    fleet_attention_options o = {.name = "a", .no_bias = 1, .no_out = 1};
    float numbers[6] = {1, 2, 3, 4, 5, 6}, counts[3] = {0, 1, 0}, got[6];
    int64_t dims[] = {1, 3, 2}, mask_dims[] = {1, 3};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, numbers, dims, 3, NULL},
                         {"mask", FLEET_FLOAT32, counts, mask_dims, 2, NULL}};
    fleet_fetch fetch = {.data = got, .size = sizeof got};
    fleet_executor *e;
    const float *w;

    o.heads = 2;
    o.mask = fleet_reshape(p, mask, (int64_t[]){-1, 1, 1, 3}, 4);
    fetch.var = fleet_multi_head_attention(p, x, NULL, NULL, &o);
    e = fleet_executor_create(p, NULL);
    CHECK(fetch.var != NULL && e != NULL);
    CHECK_OK(fleet_executor_run(e, feed, 2, &fetch, 1));
    w = fl_store_param(f->store, "a.v")->flat->weight +
        fl_store_param(f->store, "a.v")->offset;
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(got[i], 3 * (double)w[i % 2] + 4 * (double)w[2 + i % 2],
                   1e-5);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- what is refused ------------------------------------------------------ */

BUILD(lower_flat, fleet_lower_triangle(p, in[0], 0))
BUILD(lower_oblong, fleet_lower_triangle(p, in[1], 0))
BUILD(fm_flat, fleet_fm_interaction(p, in[0]))
BUILD(bi_flat, fleet_bi_interaction(p, in[0]))
BUILD(ffm_oblong,
      fleet_ffm_interaction(p, fleet_reshape(p, in[1], (int64_t[]){-1, 3, 2, 1},
                                             4)))
BUILD(dots_of_one,
      fleet_pairwise_dot(p, fleet_reshape(p, in[1], (int64_t[]){-1, 1, 6}, 3),
                         0))
BUILD(cross_other, fleet_cross_layer(p, in[0], in[1], NULL))
BUILD(cross_rank, fleet_cross_layer_v2(p, in[0], in[0],
                                       &(fleet_cross_options){.low_rank = 5}))
BUILD(cross_experts, fleet_cross_layer_v2(p, in[0], in[0],
                                          &(fleet_cross_options){
                                              .low_rank = 2, .experts = 65}))
BUILD(cross_whole, fleet_cross_layer_v2(p, in[0], in[0],
                                        &(fleet_cross_options){.experts = 2}))
BUILD(cin_none, fleet_cin(p, in[1], (int64_t[]){1}, 0, NULL))
BUILD(cin_null, fleet_cin(p, in[1], NULL, 1, NULL))
BUILD(cin_flat, fleet_cin(p, in[0], (int64_t[]){1}, 1, NULL))
BUILD(heads, fleet_multi_head_attention(p, in[1], NULL, NULL,
                                        &(fleet_attention_options){.heads = 3}))
BUILD(query_flat, fleet_multi_head_attention(p, in[0], NULL, NULL, NULL))
BUILD(key_flat, fleet_multi_head_attention(p, in[1], in[0], NULL, NULL))

static void y_behind(fleet_program *p, fleet_var **in)
{
    in[1] = fleet_data(p, "y", FLEET_FLOAT32, (int64_t[]){-1, 3, 2}, 3);
}

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_lower_flat, FLEET_ESHAPE, "expected [-1,N,N]"},
        {build_lower_oblong, FLEET_ESHAPE, "expected [-1,N,N]"},
        {build_fm_flat, FLEET_ESHAPE,
         "fm_interaction: \"x\" has shape [-1,4]; expected [-1,F,D]"},
        {build_bi_flat, FLEET_ESHAPE, "bi_interaction: \"x\" has shape"},
        {build_ffm_oblong, FLEET_ESHAPE, "expected [-1,F,F,D] of float32"},
        {build_dots_of_one, FLEET_ESHAPE, "F at least 2"},
        {build_cross_other, FLEET_ESHAPE,
         "cross_layer: expected x0 and x [-1,N] of one shape, got \"x\" "
         "[-1,4] and \"y\" [-1,3,2]"},
        {build_cross_rank, FLEET_EINVAL, "low_rank 5; expected 1 to 4"},
        {build_cross_experts, FLEET_EINVAL, "experts 65; expected 2 to 64"},
        {build_cross_whole, FLEET_EINVAL, "experts 2 without low_rank"},
        {build_cin_none, FLEET_EINVAL, "cin: 0 layers"},
        {build_cin_null, FLEET_EINVAL, "cin: 1 layers, or units NULL"},
        {build_cin_flat, FLEET_ESHAPE, "cin: \"x\" has shape"},
        {build_heads, FLEET_EINVAL, "heads 3 of units 2; expected a number"},
        {build_query_flat, FLEET_ESHAPE, "the query \"x\" has shape [-1,4]"},
        {build_key_flat, FLEET_ESHAPE, "the key \"x\" has shape [-1,4]"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, y_behind);
}
