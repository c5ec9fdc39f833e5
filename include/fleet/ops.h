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

/* --- shapes -------------------------------------------------------------- */

/* fleet_concat - along dimension axis >= 1; all other dimensions are equal. */
FLEET_API fleet_var *fleet_concat(fleet_program *program, fleet_var *const *x,
                                  int n, int axis);

/* fleet_reshape - the same elements; the batch stays in front: dims[0] is -1
 * exactly when x has a batch. */
FLEET_API fleet_var *fleet_reshape(fleet_program *program, fleet_var *x,
                                   const int64_t *dims, int n_dim);

/* fleet_reduce_sum - over dimension axis >= 1, which disappears, or stays as 1
 * when keep_dim is nonzero. */
FLEET_API fleet_var *fleet_reduce_sum(fleet_program *program, fleet_var *x,
                                      int axis, int keep_dim);

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

#ifdef __cplusplus
}
#endif

#endif
