/* ops.h - operators without parameters: arithmetic, shapes, losses, metrics.
 *
 * Shapes, element types and failures are those of nn.h, which includes this
 * header.
 */
#ifndef FLEET_OPS_H
#define FLEET_OPS_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- arithmetic ---------------------------------------------------------- */

/* fleet_matmul - [B, K] x [K, N]; y is a parameter or has no batch. */
FLEET_API fleet_var *fleet_matmul(fleet_program *program, fleet_var *x,
                                  fleet_var *y);

/* Elementwise x + y, x - y, x * y, x / y, the smaller, the larger of both. Both
 * have one shape, or dimensions of either are 1 or missing in front, as NumPy
 * broadcasts: [B, F, D] with [B, F, 1], [F, D], [D] or [1]. Where fleet_min()
 * and fleet_max() have two equal numbers, the gradient goes to y, as Paddle's
 * elementwise_min and elementwise_max have it. */
FLEET_API fleet_var *fleet_add(fleet_program *program, fleet_var *x,
                               fleet_var *y);
FLEET_API fleet_var *fleet_sub(fleet_program *program, fleet_var *x,
                               fleet_var *y);
FLEET_API fleet_var *fleet_mul(fleet_program *program, fleet_var *x,
                               fleet_var *y);
FLEET_API fleet_var *fleet_div(fleet_program *program, fleet_var *x,
                               fleet_var *y);
FLEET_API fleet_var *fleet_min(fleet_program *program, fleet_var *x,
                               fleet_var *y);
FLEET_API fleet_var *fleet_max(fleet_program *program, fleet_var *x,
                               fleet_var *y);

/* Comparisons and logic, broadcast likewise: 1 where it holds, else 0. What is
 * not 0 is true. Where either number is NaN the result is, so that the check of
 * the loss names it. No gradient passes. Integers are compared behind
 * fleet_cast(), a number with fleet_constant(). */
FLEET_API fleet_var *fleet_equal(fleet_program *program, fleet_var *x,
                                 fleet_var *y);
FLEET_API fleet_var *fleet_not_equal(fleet_program *program, fleet_var *x,
                                     fleet_var *y);
FLEET_API fleet_var *fleet_less_than(fleet_program *program, fleet_var *x,
                                     fleet_var *y);
FLEET_API fleet_var *fleet_less_equal(fleet_program *program, fleet_var *x,
                                      fleet_var *y);
FLEET_API fleet_var *fleet_greater_than(fleet_program *program, fleet_var *x,
                                        fleet_var *y);
FLEET_API fleet_var *fleet_greater_equal(fleet_program *program, fleet_var *x,
                                         fleet_var *y);
FLEET_API fleet_var *fleet_logical_and(fleet_program *program, fleet_var *x,
                                       fleet_var *y);
FLEET_API fleet_var *fleet_logical_or(fleet_program *program, fleet_var *x,
                                      fleet_var *y);
FLEET_API fleet_var *fleet_logical_xor(fleet_program *program, fleet_var *x,
                                       fleet_var *y);
FLEET_API fleet_var *fleet_logical_not(fleet_program *program, fleet_var *x);

/* fleet_constant - a finite number, [1], for operators that broadcast. */
FLEET_API fleet_var *fleet_constant(fleet_program *program, float value);

/* fleet_where - x where condition is not 0, else y; broadcast likewise. What
 * is not taken may be NaN or infinite. The gradient goes to what is taken, and
 * is 0 elsewhere; none of condition, float32 or int64. */
FLEET_API fleet_var *fleet_where(fleet_program *program, fleet_var *condition,
                                 fleet_var *x, fleet_var *y);

/* --- element by element: the result has the shape of x ------------------- */

FLEET_API fleet_var *fleet_scale(fleet_program *program, fleet_var *x,
                                 float scale, float bias); /* scale x + bias */
FLEET_API fleet_var *fleet_square(fleet_program *program, fleet_var *x);
FLEET_API fleet_var *fleet_relu(fleet_program *program, fleet_var *x);
FLEET_API fleet_var *fleet_tanh(fleet_program *program, fleet_var *x);
FLEET_API fleet_var *fleet_sigmoid(fleet_program *program, fleet_var *x);

/* fleet_leaky_relu - x where x > 0, else alpha x; alpha >= 0 and finite; 0
 * means 0.02, as Fleet's fluid.layers has it. Right after an fc without
 * activation it costs no pass of its own. */
FLEET_API fleet_var *fleet_leaky_relu(fleet_program *program, fleet_var *x,
                                      float alpha);

/* e^x, natural logarithm, square root, |x|. What is not finite stays so, and so
 * do the logarithm of 0 and the root of what is negative: the check of the loss
 * names them. The derivative of |x| at 0 is 0. */
FLEET_API fleet_var *fleet_exp(fleet_program *program, fleet_var *x);
FLEET_API fleet_var *fleet_log(fleet_program *program, fleet_var *x);
FLEET_API fleet_var *fleet_sqrt(fleet_program *program, fleet_var *x);
FLEET_API fleet_var *fleet_abs(fleet_program *program, fleet_var *x);

/* fleet_pow - x to the power of factor, which is finite and not 0; of a
 * negative x only with whole factors. fleet_square() and fleet_sqrt() are
 * faster. */
FLEET_API fleet_var *fleet_pow(fleet_program *program, fleet_var *x,
                               float factor);

/* fleet_clip - min where x is below it, max where x is above it; min < max,
 * both finite. The gradient passes between them, and not at them. */
FLEET_API fleet_var *fleet_clip(fleet_program *program, fleet_var *x, float min,
                                float max);

/* fleet_elu - x where x > 0, else alpha (e^x - 1) (Clevert et al. 2015); alpha
 * >= 0 and finite; 0 means 1. */
FLEET_API fleet_var *fleet_elu(fleet_program *program, fleet_var *x,
                               float alpha);

/* fleet_gelu - x times the share of a normal distribution that is below x, (1 +
 * erf(x / sqrt 2)) / 2; nonzero `approximate`: by tanh(sqrt(2 / pi) (x +
 * 0.044715 x^3)) in place of erf (Hendrycks and Gimpel 2016). */
FLEET_API fleet_var *fleet_gelu(fleet_program *program, fleet_var *x,
                                int approximate);

/* fleet_swish - x sigmoid(beta x) (Ramachandran et al. 2017); beta finite; 0
 * means 1, which is SiLU. */
FLEET_API fleet_var *fleet_swish(fleet_program *program, fleet_var *x,
                                 float beta);

/* fleet_softplus - log(1 + e^x). */
FLEET_API fleet_var *fleet_softplus(fleet_program *program, fleet_var *x);

/* fleet_softmax - over the last dimension. */
FLEET_API fleet_var *fleet_softmax(fleet_program *program, fleet_var *x);

/* fleet_masked_softmax - the same of the numbers whose mask is not 0; the
 * probability of the others is 0, and of a line without any all are.
 *
 *   x     [B, ..., C]
 *   mask  [B, ..., C], or with dimensions but the last that are 1 or missing in
 *         front: attention scores [B, H, L, C] with [B, 1, 1, C]
 *
 * No gradient goes to mask. */
FLEET_API fleet_var *fleet_masked_softmax(fleet_program *program, fleet_var *x,
                                          fleet_var *mask);

/* fleet_l2_normalize - each line of the last dimension over its length: x /
 * sqrt(max(sum of x^2, epsilon)); epsilon above 0; 0 means 1e-12. */
FLEET_API fleet_var *fleet_l2_normalize(fleet_program *program, fleet_var *x,
                                        float epsilon);

/* fleet_cos_sim - the cosine of the angle between lines of the last dimension;
 * x and y have one shape [B, ..., N]; out [B, ..., 1]. Of a line of zeros 0. */
FLEET_API fleet_var *fleet_cos_sim(fleet_program *program, fleet_var *x,
                                   fleet_var *y);

/* fleet_dropout - in training each element is 0 with probability `rate`, else x
 * / (1 - rate); where it is not trained (for_test, predictors) the result is x
 * and costs nothing (Srivastava et al. 2014; Fleet's "upscale_in_train"). rate
 * in [0, 1). x has a batch.
 *
 * Which elements are 0 is a function of the handle's seed, the place of the
 * operator in its program, the number of the batch in the training and the
 * element's place in the batch: the same in any number of threads, on CPUs and
 * GPUs, after a resume, and for workers in sync as in one process that merges
 * their batches. */
FLEET_API fleet_var *fleet_dropout(fleet_program *program, fleet_var *x,
                                   float rate);

/* fleet_batch_matmul - products of matrices that each sample has its own of.
 *
 *   x    [B, ..., M, K], with transpose_x nonzero [B, ..., K, M]
 *   y    [B, ..., K, N], with transpose_y nonzero [B, ..., N, K]
 *   out  [B, ..., M, N]
 *
 * At least three dimensions; those before the last two are equal. Of a matrix
 * without a batch: fleet_matmul(), or fleet_fc() with num_flatten_dims. */
FLEET_API fleet_var *fleet_batch_matmul(fleet_program *program, fleet_var *x,
                                        fleet_var *y, int transpose_x,
                                        int transpose_y);

/* --- shapes --------------------------------------------------------------- */

/* fleet_concat - along dimension axis >= 1; all other dimensions are equal. */
FLEET_API fleet_var *fleet_concat(fleet_program *program, fleet_var *const *x,
                                  int n, int axis);

/* fleet_reshape - the same elements; the batch stays in front: dims[0] is -1
 * exactly when x has a batch, or -n, which makes n rows of each sample. */
FLEET_API fleet_var *fleet_reshape(fleet_program *program, fleet_var *x,
                                   const int64_t *dims, int n_dim);

/* fleet_stack - n variables of one shape as one with a new dimension n at axis,
 * behind the batch: n of [B, D] with axis 1 are [B, n, D]. n up to 1,024. */
FLEET_API fleet_var *fleet_stack(fleet_program *program, fleet_var *const *x,
                                 int n, int axis);

/* fleet_unsqueeze, fleet_squeeze - a new dimension of 1 at axis; dimension
 * axis, which is 1, goes. Free: the result is x's memory. */
FLEET_API fleet_var *fleet_unsqueeze(fleet_program *program, fleet_var *x,
                                     int axis);
FLEET_API fleet_var *fleet_squeeze(fleet_program *program, fleet_var *x,
                                   int axis);

/* fleet_expand - dimension axis >= 1, which is 1, `times` times. Operators of
 * two values broadcast by themselves; this is for fleet_concat(). */
FLEET_API fleet_var *fleet_expand(fleet_program *program, fleet_var *x,
                                  int axis, int64_t times);

/* fleet_transpose - dimension i of the result is perm[i] of x's; n is x's
 * number of dimensions. The batch stays: perm[0] is 0. */
FLEET_API fleet_var *fleet_transpose(fleet_program *program, fleet_var *x,
                                     const int *perm, int n);

/* fleet_slice - elements [start, end) of dimension axis, not the batch. Below 0
 * they, and 0 as the end, count from its end. FLEET_EINVAL: no part of x. */
FLEET_API fleet_var *fleet_slice(fleet_program *program, fleet_var *x, int axis,
                                 int64_t start, int64_t end);

/* fleet_split - x cut along dimension axis >= 1 into n parts of these sizes;
 * NULL: of equal ones. They go to out[n]; returns the first. */
FLEET_API fleet_var *fleet_split(fleet_program *program, fleet_var *x, int axis,
                                 const int64_t *sizes, int n, fleet_var **out);

/* fleet_pad - `value`, finite, so many times before and after dimension axis,
 * not the batch. */
FLEET_API fleet_var *fleet_pad(fleet_program *program, fleet_var *x, int axis,
                               int64_t before, int64_t after, float value);

/* fleet_lower_triangle - of each sample's square what lies below its diagonal,
 * a row after the other: [1, 0], [2, 0], [2, 1], ...; with `diagonal` nonzero
 * each row with that, too.
 *
 *   x    [B, N, N]; N at least 2, or 1 with the diagonal
 *   out  [B, N (N - 1) / 2]; with the diagonal [B, N (N + 1) / 2] */
FLEET_API fleet_var *fleet_lower_triangle(fleet_program *program, fleet_var *x,
                                          int diagonal);

/* fleet_gather - of each sample the parts that its own index names.
 *
 *   x      [B, N, ...]
 *   index  [B, M] int64, each in [0, N); else FLEET_EINVAL when it runs
 *   out    [B, M, ...]
 *
 * Of a table of all samples: fleet_embedding(). */
FLEET_API fleet_var *fleet_gather(fleet_program *program, fleet_var *x,
                                  fleet_var *index);

/* fleet_one_hot - 1 at the id, 0 elsewhere; no gradient.
 *   ids  [B, M] int64, each in [0, depth); else FLEET_EINVAL when it runs
 *   out  [B, M, depth]; with M = 1 [B, depth] */
FLEET_API fleet_var *fleet_one_hot(fleet_program *program, fleet_var *ids,
                                   int64_t depth);

/* fleet_cast - int64 as float32, of the same shape; no gradient. From 2^24 on
 * numbers are rounded. */
FLEET_API fleet_var *fleet_cast(fleet_program *program, fleet_var *x);

/* --- over dimensions ------------------------------------------------------ */

/* The sum, mean, largest or smallest over dimension axis >= 1, which
 * disappears, or stays as 1 when keep_dim is nonzero. Of equal largest or
 * smallest numbers the first gets the gradient. */
FLEET_API fleet_var *fleet_reduce_sum(fleet_program *program, fleet_var *x,
                                      int axis, int keep_dim);
FLEET_API fleet_var *fleet_reduce_mean(fleet_program *program, fleet_var *x,
                                       int axis, int keep_dim);
FLEET_API fleet_var *fleet_reduce_max(fleet_program *program, fleet_var *x,
                                      int axis, int keep_dim);
FLEET_API fleet_var *fleet_reduce_min(fleet_program *program, fleet_var *x,
                                      int axis, int keep_dim);

typedef enum fleet_reduction {
    FLEET_REDUCE_SUM = 0,
    FLEET_REDUCE_MEAN = 1,
    FLEET_REDUCE_MAX = 2,
    FLEET_REDUCE_MIN = 3
} fleet_reduction;

/* fleet_reduce - the same over several dimensions, each >= 1 and named once;
 * n_axis 0: over all but the batch. */
FLEET_API fleet_var *fleet_reduce(fleet_program *program, fleet_var *x,
                                  fleet_reduction reduction, const int *axes,
                                  int n_axis, int keep_dim);

/* fleet_mean - of all elements: [1]. The gradient goes to the elements that
 * there are, however short the batch. */
FLEET_API fleet_var *fleet_mean(fleet_program *program, fleet_var *x);

/* --- losses, per sample: [B, 1] ------------------------------------------ */

/* fleet_cross_entropy - -log(probability of the label).
 *   x      [B, C] probabilities, C >= 2
 *   label  [B, 1] int64 in [0, C) */
FLEET_API fleet_var *fleet_cross_entropy(fleet_program *program, fleet_var *x,
                                         fleet_var *label);

/* fleet_softmax_with_cross_entropy - the same of softmax(logits), in one and
 * numerically safe. softmax, if not NULL, gets the probabilities [B, C]. */
FLEET_API fleet_var *fleet_softmax_with_cross_entropy(fleet_program *program,
                                                      fleet_var *logits,
                                                      fleet_var *label,
                                                      fleet_var **softmax);

/* fleet_sigmoid_cross_entropy - binary, of a logit; max(x, 0) - x y +
 * log(1 + exp(-|x|)). x and label [B, 1], label float32 in [0, 1] or int64. */
FLEET_API fleet_var *fleet_sigmoid_cross_entropy(fleet_program *program,
                                                 fleet_var *x,
                                                 fleet_var *label);

/* fleet_log_loss - binary, of a probability; -y log(p + e) - (1 - y) log(1 - p
 * + e). p and label [B, 1]; e >= 0; 0 means Fleet's 1e-4. */
FLEET_API fleet_var *fleet_log_loss(fleet_program *program, fleet_var *p,
                                    fleet_var *label, float epsilon);

/* Losses of a regression: (x - label)^2, |x - label|, and Huber's, e^2 / 2 for
 * an error e up to delta, else delta (|e| - delta / 2) (Huber 1964); delta
 * above 0. x and label have one shape, which is the result's; label is float32
 * or int64.
 *
 * With a weight for each sample: fleet_weighted_loss(). */
FLEET_API fleet_var *fleet_square_error_cost(fleet_program *program,
                                             fleet_var *x, fleet_var *label);
FLEET_API fleet_var *fleet_abs_error_cost(fleet_program *program, fleet_var *x,
                                          fleet_var *label);
FLEET_API fleet_var *fleet_huber_loss(fleet_program *program, fleet_var *x,
                                      fleet_var *label, float delta);

/* fleet_weighted_loss - any loss of samples times their weights, before
 * fleet_mean(), which stays the sum over the number of samples.
 *
 *   loss    a batch, float32, with one number for each sample or more
 *   weight  of loss's shape or [B, 1]; float32 or int64 */
FLEET_API fleet_var *fleet_weighted_loss(fleet_program *program,
                                         fleet_var *loss, fleet_var *weight);

/* fleet_weighted_mean - [1], the sum of losses times their weights over the sum
 * of the weights, as PyTorch's CrossEntropyLoss(weight) has it, where
 * fleet_mean() of fleet_weighted_loss() divides by the number of samples. loss
 * and weight as there. A batch whose weights are all 0 has loss 0. */
FLEET_API fleet_var *fleet_weighted_mean(fleet_program *program,
                                         fleet_var *loss, fleet_var *weight);

/* fleet_class_weight - the weight of each sample's class, for the two above; no
 * gradient.
 *
 *   label    [B, 1] int64 in [0, n), else FLEET_EINVAL when it runs
 *   weights  n of them, 2 to 512: finite, from 0 on, one above 0; copied
 *   out      [B, 1] */
FLEET_API fleet_var *fleet_class_weight(fleet_program *program,
                                        fleet_var *label, const float *weights,
                                        int n);

/* fleet_weighted_sigmoid_cross_entropy, fleet_weighted_log_loss -
 * fleet_sigmoid_cross_entropy() and fleet_log_loss() whose part of label 1 is
 * multiplied by pos_weight, finite and above 0 (BCEWithLogitsLoss(pos_weight)
 * of PyTorch): -pos_weight y log p - (1 - y) log(1 - p). The odds of what such
 * a model predicts are pos_weight times those of the samples;
 * fleet_calibrate() with 1 / pos_weight takes that back where it is above 1. */
FLEET_API fleet_var *fleet_weighted_sigmoid_cross_entropy(
    fleet_program *program, fleet_var *x, fleet_var *label, float pos_weight);
FLEET_API fleet_var *fleet_weighted_log_loss(fleet_program *program,
                                             fleet_var *p, fleet_var *label,
                                             float epsilon, float pos_weight);

/* fleet_hinge_loss - max(0, 1 - (2 label - 1) x), of a score; label 0 or 1 in
 * x's shape, float32 or int64. */
FLEET_API fleet_var *fleet_hinge_loss(fleet_program *program, fleet_var *x,
                                      fleet_var *label);

/* fleet_bpr_loss - the mean over all classes j but the label's of log(1 +
 * e^(x_j - x_label)) (Rendle et al. 2009, Hidasi et al. 2016).
 *
 *   x      [B, C] scores, C >= 2
 *   label  [B, 1] int64 in [0, C), else FLEET_EINVAL when it runs */
FLEET_API fleet_var *fleet_bpr_loss(fleet_program *program, fleet_var *x,
                                    fleet_var *label);

/* fleet_sigmoid_focal_loss - binary, of a logit: -(1 - p)^gamma log p, with p
 * the probability of the label; times alpha where the label is 1 and 1 - alpha
 * where it is 0, unless alpha is 0 (Lin et al. 2017: 0.25 and 2). Label 0 or 1
 * in x's shape, float32 or int64; alpha in [0, 1), gamma >= 0. */
FLEET_API fleet_var *fleet_sigmoid_focal_loss(fleet_program *program,
                                              fleet_var *x, fleet_var *label,
                                              float alpha, float gamma);

/* --- metrics: no gradient ------------------------------------------------ */

/* fleet_accuracy - the share of samples whose largest of C scores is the
 * label's; with C = 1, a probability above 0.5 means label 1. [1] */
FLEET_API fleet_var *fleet_accuracy(fleet_program *program, fleet_var *x,
                                    fleet_var *label);

/* fleet_auc - area under the ROC curve over all samples since
 * fleet_metrics_reset(), from histograms of the probability. [1]
 *
 *   p        [B, 1] probability of label 1, or [B, 2] of both classes
 *   label    [B, 1] int64 or float32, 0 or 1
 *   buckets  of the histograms, 2 to 2^24; 0: 4096
 *
 * Histograms are state "auc_state_<n>.pos" and "auc_state_<n>.neg", int64
 * [buckets]. */
FLEET_API fleet_var *fleet_auc(fleet_program *program, fleet_var *p,
                               fleet_var *label, int64_t buckets);

/* The values are those of saved programs. */
typedef enum fleet_metric_kind {
    FLEET_METRIC_MAE = 0,       /* mean of |x - label| */
    FLEET_METRIC_RMSE = 1,      /* root of the mean of (x - label)^2 */
    FLEET_METRIC_LOG_LOSS = 2,  /* mean of -log(probability of the label), which
                                  counts as at least 2^-23 */
    FLEET_METRIC_PRECISION = 3, /* share of labels 1 among x > threshold */
    FLEET_METRIC_RECALL = 4,    /* share of x > threshold among labels 1 */
    FLEET_METRIC_F1 = 5         /* harmonic mean of these two */
} fleet_metric_kind;

/* fleet_metric - of all samples since fleet_metrics_reset(); 0 of none, and
 * where the share is of none. [1]. Over all workers: fleet_metrics_value().
 *
 *   x          MAE, RMSE: a batch of any shape; others: [B, 1] probability of
 *              label 1, or [B, 2] of both classes
 *   label      MAE, RMSE: of x's shape; others: [B, 1], 0 or 1; float32 or
 *              int64
 *   threshold  of precision, recall and F1, in (0, 1); 0: 0.5; of others 0
 *
 * A batch with NaN is FLEET_ENUMERIC (on a GPU FLEET_EINVAL), another one that
 * cannot be FLEET_EINVAL, when it runs, with its row; nothing of it is counted.
 * Sums are state "mae_state_<n>.sums", "rmse_state_<n>.sums" and so on,
 * float64 [4]. Programs of a handle share those of equal names, as they share
 * histograms. */
FLEET_API fleet_var *fleet_metric(fleet_program *program,
                                  fleet_metric_kind kind, fleet_var *x,
                                  fleet_var *label, float threshold);

#ifdef __cplusplus
}
#endif

#endif
