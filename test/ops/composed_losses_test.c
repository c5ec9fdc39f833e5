/* composed_losses_test.c - losses of other operators: against references and
 * finite differences, and what they refuse. */
#define SUITE composed_losses
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>

REF_BINARY(square, (a - b) * (a - b))
REF_BINARY(absolute, fabs(a - b))
REF_BINARY(huber, fabs(a - b) <= 0.5 ? (a - b) * (a - b) / 2
                                     : 0.5 * (fabs(a - b) - 0.25))
REF_BINARY(hinge, fmax(0, 1 - (2 * b - 1) * a))
REF_UNARY(cast, x)
REF_BINARY(weighted, a *a *b)

/* a weight for each sample of rows of numbers */
static void ref_weighted_rows(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = cols_of(out);

    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = in[0]->data[i] * in[1]->data[i / n];
}

/* a weight for each sample of the sums of rows */
static void ref_weighted_sums(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = cols_of(in[0]);

    for (int64_t i = 0; i < out->count; i++) {
        out->data[i] = 0;
        for (int64_t j = 0; j < n; j++)
            out->data[i] += in[0]->data[i * n + j] * in[1]->data[i];
    }
}

static void ref_bpr(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t n = in[0]->dim[1];

    for (int64_t r = 0; r < out->count; r++) {
        int64_t label = (int64_t)in[1]->data[r];

        for (int64_t j = 0; j < n; j++)
            if (j != label)
                out->data[r] += log1p(exp(in[0]->data[r * n + j] -
                                          in[0]->data[r * n + label])) /
                                (double)(n - 1);
    }
}

static double focal(double x, double label, double alpha, double gamma)
{
    double p = 1 / (1 + exp(-x));

    p = label > 0.5 ? p : 1 - p;
    return -(label > 0.5 ? alpha : 1 - alpha) * pow(1 - p, gamma) * log(p);
}

REF_BINARY(focal, focal(a, b, 0.25, 2))
REF_BINARY(focal_plain, 2 * focal(a, b, 0.5, 0))
/* PyTorch's formula of pos_weight 3, and of a probability */
REF_BINARY(positive, (1 - b) * a + (1 + 2 * b) * log1p(exp(-a)))
REF_BINARY(positive_p, -3 * b * log(a + 0.01) - (1 - b) * log(1 - a + 0.01))

static double weight_of(double label)
{
    return label == 0 ? 0.5 : label == 1 ? 2 : 0.25;
}

/* sum w l / sum w, of two numbers a sample with one weight */
static void ref_weighted_mean(const ref_tensor *const *in, ref_tensor *out)
{
    double sum = 0, all = 0;

    for (int64_t i = 0; i < in[0]->count; i++) {
        sum += in[0]->data[i] * weight_of(in[1]->data[i / 2]);
        all += weight_of(in[1]->data[i / 2]);
    }
    out->data[0] = sum / all;
}

REF_UNARY(class_weight, weight_of(x))

static const float class_weights[] = {0.5f, 2, 0.25f};

BUILD(square, fleet_square_error_cost(p, in[0], in[1]))
BUILD(absolute, fleet_abs_error_cost(p, in[0], in[1]))
BUILD(huber, fleet_huber_loss(p, in[0], in[1], 0.5f))
BUILD(hinge, fleet_hinge_loss(p, in[0], in[1]))
BUILD(bpr, fleet_bpr_loss(p, in[0], in[1]))
BUILD(focal, fleet_sigmoid_focal_loss(p, in[0], in[1], 0.25f, 2))
BUILD(focal_plain, fleet_sigmoid_focal_loss(p, in[0], in[1], 0, 0))
BUILD(cast, fleet_cast(p, in[0]))
BUILD(positive, fleet_weighted_sigmoid_cross_entropy(p, in[0], in[1], 3))
BUILD(positive_p, fleet_weighted_log_loss(p, in[0], in[1], 0.01f, 3))
BUILD(class_weight, fleet_class_weight(p, in[0], class_weights, 3))
BUILD(weighted_mean,
      fleet_weighted_mean(p, in[0],
                          fleet_class_weight(p, in[1], class_weights, 3)))
BUILD(weighted, fleet_weighted_loss(p, fleet_square(p, in[0]), in[1]))
BUILD(weighted_rows, fleet_weighted_loss(p, in[0], in[1]))
BUILD(weighted_sums,
      fleet_reshape(p,
                    fleet_weighted_loss(p, fleet_reduce_sum(p, in[0], 1, 0),
                                        in[1]),
                    (int64_t[]){-1, 1}, 2))

const op_case loss_cases[] = {
    {"square", "square_error_cost", IN(2, DATA2(1), DATA2(1)), build_square,
     ref_square, 0, false},
    {"abs", "abs_error_cost of integers", IN(2, DATA2(3), IDS(3, 3)),
     build_absolute, ref_absolute, 0, false},
    {"clip", "huber_loss", IN(2, DATA2(1), DATA2(1)), build_huber, ref_huber, 0,
     false},
    {"relu", "hinge_loss", IN(2, WITHIN(1, -2, 2), IDS(1, 2)), build_hinge,
     ref_hinge, 0, false},
    {"gather", "bpr_loss", IN(2, DATA2(6), IDS(1, 6)), build_bpr, ref_bpr, 0,
     false},
    {"exp", "sigmoid_focal_loss", IN(2, WITHIN(1, -4, 4), IDS(1, 2)),
     build_focal, ref_focal, 0, false},
    {"softplus", "sigmoid_focal_loss without alpha and gamma",
     IN(2, WITHIN(1, -4, 4), IDS(1, 2)), build_focal_plain, ref_focal_plain, 0,
     false},
    {"mul", "weighted_loss", IN(2, DATA2(1), WITHIN(1, 0, 3)), build_weighted,
     ref_weighted, 0, false},
    {"mul", "weighted_loss of numbers by an integer",
     IN(2, DATA3(3, 5), IDS(1, 4)), build_weighted_rows, ref_weighted_rows, 0,
     false},
    {"mul", "weighted_loss of one dimension", IN(2, DATA2(3), WITHIN(1, 0, 3)),
     build_weighted_sums, ref_weighted_sums, 0, false},
    {"softplus", "weighted_sigmoid_cross_entropy",
     IN(2, WITHIN(1, -4, 4), IDS(1, 2)), build_positive, ref_positive, 0,
     false},
    {"log", "weighted_log_loss", IN(2, PROB(1), IDS(1, 2)), build_positive_p,
     ref_positive_p, 0, false},
    {"div", "weighted_mean", IN(2, DATA2(2), IDS(1, 3)), build_weighted_mean,
     ref_weighted_mean, 0, false},
    {"class_weight", "three classes", IN(1, IDS(1, 3)), build_class_weight,
     ref_class_weight, 0, true},
    {"cast", "", IN(1, IDS(3, 9)), build_cast, ref_cast, 0, true},
    END_OF_CASES,
};

TEST(agree_with_their_references)
{
    check_cases(loss_cases, 1, 1);
    check_cases(loss_cases, 150, 3);
}

BUILD(fit, fleet_square_error_cost(p, in[0], kit_data(p, "y", 3)))
BUILD(delta, fleet_huber_loss(p, in[0], in[0], 0))
BUILD(alpha, fleet_sigmoid_focal_loss(p, in[0], in[0], 1, 2))
BUILD(gamma, fleet_sigmoid_focal_loss(p, in[0], in[0], 0.25f, -1))
BUILD(bpr_one, fleet_bpr_loss(p, kit_data(p, "z", 1), kit_data_ids(p, "l", 1)))
BUILD(bpr_float, fleet_bpr_loss(p, in[0], kit_data(p, "l", 1)))
BUILD(bpr_two, fleet_bpr_loss(p, kit_data(p, "z", 2), kit_data_ids(p, "l", 2)))
BUILD(hinge_ragged, fleet_hinge_loss(p, in[0], fleet_data_ragged(p, "r")))
BUILD(no_label, fleet_hinge_loss(p, in[0], NULL))
BUILD(weight_two, fleet_weighted_loss(p, in[0], kit_data(p, "w", 2)))
BUILD(weight_mean, fleet_weighted_loss(p, fleet_mean(p, in[0]), in[0]))
BUILD(weight_ragged,
      fleet_weighted_loss(p, in[0], fleet_data_ragged_floats(p, "w")))
BUILD(no_weight, fleet_weighted_loss(p, in[0], NULL))
BUILD(cast_float, fleet_cast(p, in[0]))

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_fit, FLEET_ESHAPE,
         "square_error_cost: label \"y\" [-1,3] does not fit \"x\" [-1,4]"},
        {build_delta, FLEET_EINVAL, "huber_loss: delta 0"},
        {build_alpha, FLEET_EINVAL, "sigmoid_focal_loss: alpha 1 and gamma 2"},
        {build_gamma, FLEET_EINVAL, "gamma -1; expected"},
        {build_bpr_one, FLEET_ESHAPE, "\"z\" has shape [-1,1]; expected"},
        {build_bpr_float, FLEET_EDTYPE, "\"l\" is float32, not int64"},
        {build_bpr_two, FLEET_ESHAPE, "label \"l\" has shape [-1,2]"},
        {build_hinge_ragged, FLEET_ESHAPE, "hinge_loss: label \"r\""},
        {build_no_label, FLEET_EINVAL, "NULL as its input"},
        {build_weight_two, FLEET_ESHAPE,
         "weighted_loss: weight \"w\" [-1,2] does not fit \"x\" [-1,4]"},
        {build_weight_mean, FLEET_ESHAPE, "[1] has no number for each sample"},
        {build_weight_ragged, FLEET_EDTYPE,
         "weighted_loss: weight \"w\" is ragged, not one number"},
        {build_no_weight, FLEET_EINVAL, "NULL as its input"},
        {build_cast_float, FLEET_EDTYPE, "cast: \"x\" is float32, not int64"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, NULL);
}
