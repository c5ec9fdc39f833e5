/* optimizer.h - how parameters and rows are updated from their gradients.
 *
 * With g the gradient of weight w, after merging, clipping and decay
 * (g + l2_decay w + l1_decay sign(w), where sign(0) is 0), and t the number of
 * updates including this one (saves name the states as in brackets):
 *
 *   SGD       w -= lr g
 *   Momentum  v = mu v + g;  w -= lr v   (Nesterov: w -= lr (g + mu v))
 *             [velocity]
 *   Adagrad   s += g g;  w -= lr g / (sqrt(s) + eps)
 *             (Duchi, Hazan, Singer 2011) [sum]
 *   Adam      m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g
 *             w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
 *             (Kingma, Ba 2015) [m, v]
 *   AdamW     m and v as Adam's; w -= lr (Adam's step / lr + decay w), decay
 *             beside the moments (Loshchilov, Hutter 2019) [m, v]
 *   Adamax    m = b1 m + (1 - b1) g;  u = max(b2 u, |g|)
 *             w -= lr (m / (1 - b1^t)) / (u + eps)
 *             (Kingma, Ba 2015, section 7.1) [m, u]
 *   Adadelta  s = rho s + (1 - rho) g g;  d = g sqrt(a + eps) / sqrt(s + eps)
 *             a = rho a + (1 - rho) d d;  w -= lr d
 *             (Zeiler 2012, whose lr is 1) [square, step]
 *   RMSProp   s = alpha s + (1 - alpha) g g;  w -= lr g / (sqrt(s) + eps)
 *             (Tieleman, Hinton 2012) [square]; with momentum
 *             v = mu v + g / (sqrt(s) + eps);  w -= lr v [square, velocity];
 *             centered, with a = alpha a + (1 - alpha) g and sqrt(s - a a) in
 *             place of sqrt(s) (Graves 2013) [square, mean]. Of both at once
 *             there is none: a weight has two states at most
 *   StdAdagrad  w -= lr g sqrt(g0 / (g0 + s));  s += g g: the sum of before
 *             divides (Fleet's StdAdaGradSGDRule) [sum]
 *   FTRL      s = (sqrt(n + g g) - sqrt(n)) / lr
 *             z += g - s w;  n += g g;  w = 0 if |z| <= l1, else
 *             w = (sign(z) l1 - z) / ((beta + sqrt(n)) / lr + l2)
 *             (FTRL-Proximal: McMahan et al. 2013) [z, n]
 *
 * Of whole rows, one number or two a row in place of as many a weight; for
 * tables alone, mean is over the row's columns:
 *
 *   RowwiseAdagrad  s += mean(g g);  w -= lr g / (sqrt(s) + eps)
 *             (TorchRec's and FBGEMM's rowwise_adagrad, Fleet's
 *             SparseAdaGradV2SGDRule), or with g0
 *             w -= lr g sqrt(g0 / (g0 + s));  s += mean(g g)
 *             (Fleet's SparseAdaGradSGDRule) [row_sum]
 *   SharedAdam  each weight as Adam's with the row's m and v as its moments of
 *             before; then m and v are the means of the row's new moments
 *             (Fleet's SparseSharedAdamSGDRule) [row_m, row_v]
 *
 * A program with dense parameters that are trained by it cannot be minimized
 * with one of these: fleet_optimizer_set_table() gives it to tables.
 *
 * FTRL computes weights from z and n alone. An initial value w counts until
 * its weight's first update, whose g leaves of it about |g| w / (beta + |g|).
 * So with the paper's beta, 1, FTRL is for linear parts, which start from
 * zeros, as in the paper. Layers and embeddings of a network, whose random
 * initial values have to last, want a small beta (1e-6). That is near the
 * formulas of Paddle and TensorFlow, which have no beta or 0. Unlike Paddle's
 * it has no lr_power: n has the power 1/2. For the same z and n weights are in
 * proportion to lr (where l2 is 0), so a learning rate that decays shrinks
 * them all: keep it constant. An update whose lr is below FLT_MIN (1.2e-38) is
 * not made: FLEET_ENUMERIC.
 *
 * strategy.lars and strategy.lamb give each dense parameter's Momentum or Adam
 * a rate of its own: see docs/strategy.md.
 *
 * A row of a table is updated only by steps that touched it: what Fleet calls
 * lazy mode. Its t is that of the update, as for parameters (PyTorch's
 * SparseAdam, Paddle's lazy_mode): 1, 2, ... for all that is trained together;
 * in async the updates that the part of a server that keeps the row has made. A
 * skipped update has no number. With row_steps a row has a t of its own, the
 * number of its own updates (Paddle's servers). Rows that are rare then learn
 * more slowly: their corrections stay large where the second moment is divided.
 *
 * All is updated by the optimizer that is minimized, but for tables to which
 * fleet_optimizer_set_table() gives one of their own, and dense parameters to
 * which fleet_optimizer_add_group() does.
 *
 * Ownership: optimizers belong to the handle and die with it. Threads: one at a
 * time per handle.
 */
#ifndef FLEET_OPTIMIZER_H
#define FLEET_OPTIMIZER_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fleet_optimizer fleet_optimizer;

typedef struct fleet_momentum_options {
    float momentum; /* mu; 0: 0.9 */
    int nesterov;
} fleet_momentum_options;

typedef struct fleet_adagrad_options {
    float epsilon;             /* 0: 1e-6 */
    float initial_accumulator; /* s at the start; 0: 0 */
} fleet_adagrad_options;

typedef struct fleet_adam_options {
    float beta1;   /* 0: 0.9 */
    float beta2;   /* 0: 0.999 */
    float epsilon; /* 0: 1e-8 */
    int row_steps; /* nonzero: t of a row is the number of its own updates */
} fleet_adam_options;

typedef struct fleet_adamw_options {
    float beta1;        /* 0: 0.9 */
    float beta2;        /* 0: 0.999 */
    float epsilon;      /* 0: 1e-8 */
    int row_steps;      /* as Adam's */
    float weight_decay; /* 0: 0.01, as in PyTorch */
} fleet_adamw_options;

typedef struct fleet_adadelta_options {
    float rho;     /* 0: 0.9 */
    float epsilon; /* 0: 1e-6 */
} fleet_adadelta_options;

typedef struct fleet_rmsprop_options {
    float alpha;    /* 0: 0.99 */
    float epsilon;  /* 0: 1e-8 */
    float momentum; /* mu; 0: none */
    int centered;   /* nonzero: by the variance; FLEET_EUNSUPPORTED beside
                       momentum */
} fleet_rmsprop_options;

typedef struct fleet_std_adagrad_options {
    float initial_g2sum; /* g0; 0: 3 */
} fleet_std_adagrad_options;

typedef struct fleet_rowwise_adagrad_options {
    float epsilon; /* 0: 1e-8; FLEET_EINVAL beside initial_g2sum, whose form
                      has none */
    float initial_accumulator; /* s at the start; 0: 0 */
    float initial_g2sum;       /* g0: above 0, Fleet's form; 0: the other one */
} fleet_rowwise_adagrad_options;

typedef struct fleet_ftrl_options {
    float beta; /* 0: 1 */
    float l1;   /* weights whose |z| is not above this are exactly 0; 0: 0 */
    float l2;   /* 0: 0 */
} fleet_ftrl_options;

/* NULL, with FLEET_EINVAL as the text says, for a learning rate that is not a
 * positive number, a momentum, beta1 or beta2 outside [0, 1), another number
 * that is negative or not finite. options may be NULL. */
FLEET_API fleet_optimizer *fleet_sgd(fleet *fleet, float learning_rate);
FLEET_API fleet_optimizer *fleet_momentum(
    fleet *fleet, float learning_rate, const fleet_momentum_options *options);
FLEET_API fleet_optimizer *fleet_adagrad(fleet *fleet, float learning_rate,
                                         const fleet_adagrad_options *options);
FLEET_API fleet_optimizer *fleet_adam(fleet *fleet, float learning_rate,
                                      const fleet_adam_options *options);
FLEET_API fleet_optimizer *fleet_adamw(fleet *fleet, float learning_rate,
                                       const fleet_adamw_options *options);
FLEET_API fleet_optimizer *fleet_adamax(fleet *fleet, float learning_rate,
                                        const fleet_adam_options *options);
FLEET_API fleet_optimizer *fleet_adadelta(
    fleet *fleet, float learning_rate, const fleet_adadelta_options *options);

/* In a configuration three types: "rmsprop", "rmsprop_momentum" and
 * "rmsprop_centered". */
FLEET_API fleet_optimizer *fleet_rmsprop(fleet *fleet, float learning_rate,
                                         const fleet_rmsprop_options *options);
FLEET_API fleet_optimizer *fleet_std_adagrad(
    fleet *fleet, float learning_rate,
    const fleet_std_adagrad_options *options);
FLEET_API fleet_optimizer *fleet_rowwise_adagrad(
    fleet *fleet, float learning_rate,
    const fleet_rowwise_adagrad_options *options);
FLEET_API fleet_optimizer *fleet_shared_adam(fleet *fleet, float learning_rate,
                                             const fleet_adam_options *options);
FLEET_API fleet_optimizer *fleet_ftrl(fleet *fleet, float learning_rate,
                                      const fleet_ftrl_options *options);

/* fleet_optimizer_set_table - rows of that table (the name of
 * fleet_sparse_embedding_options.table) are updated by `of_table`, a rule with
 * numbers, a learning rate, a schedule, L2 and L1 decay and a clip by value of
 * its own; all else by `optimizer`, which is the one that is minimized. Both
 * optimizers are the handle's; several tables may share one, and a table that
 * is set again has the last one. NULL: the table has none of its own any more.
 *
 * The table's learning rate follows its own schedule by the number of the
 * update. The clip by global norm is one for all gradients, those of such
 * tables included. fleet_param_attr's learning_rate and l2_decay of the table
 * go on top. All processes of a job call it alike, before fleet_minimize(): who
 * joins with another optimizer of a table is refused with the field and both
 * values. On a GPU a program may have 4 such optimizers, those of groups
 * included: FLEET_EUNSUPPORTED by the executor of one that has more.
 *
 *   FLEET_EINVAL  NULL; of_table is `optimizer`, is another handle's, has
 *                 tables itself, or clips by norm; optimizer is a table's
 *   FLEET_ESTATE  after fleet_minimize() of either
 *   FLEET_ENOENT  by fleet_minimize(): no program of the handle has the table
 *   FLEET_ENOMEM  nothing is changed
 */
FLEET_API fleet_status fleet_optimizer_set_table(fleet_optimizer *optimizer,
                                                 const char *table,
                                                 fleet_optimizer *of_table);

/* fleet_optimizer_add_group - dense parameters of the program whose names match
 * the pattern (fnmatch(3): `*`, `?`, `[...]`; "fc_0.w" is one, "deep_*" a
 * tower) are a group, as a list of PyTorch's param_groups or of Paddle's
 * parameters is: they are updated by `of_group`, a rule with numbers, states, a
 * learning rate, a schedule, L2 and L1 decay and a clip by value of its own;
 * all else by `optimizer`, which is minimized. Both optimizers are the
 * handle's; groups and tables may share one. A parameter of several groups is
 * of the one that was added last; NULL in place of of_group puts parameters
 * back.
 *
 * What was said of fleet_optimizer_set_table() holds: schedules go by the
 * number of the update, the clips by norm are `optimizer`'s, learning_rate and
 * l2_decay of fleet_param_attr go on top, all processes of a job call it alike,
 * in every mode. Parameters that have no gradient, frozen ones and moving
 * averages, may be among them. A save has the states that each parameter's rule
 * keeps, by name, and loads into a handle with the same groups; into other ones
 * as fleet_load_options say.
 *
 *   FLEET_EINVAL       NULL; of_group is `optimizer`, is another handle's, as
 *                      the program may not be, has tables or groups itself,
 *                      clips by norm, is a rule of whole rows, or has
 *                      row_steps or row bounds, for which a group has no rows;
 *                      optimizer is a table's or a group's
 *   FLEET_ENOENT       the program has no dense parameter of such a name
 *   FLEET_ESTATE       after fleet_minimize() of either
 *   FLEET_EUNSUPPORTED by fleet_minimize(): with strategy.lars, lamb or dgc
 *   FLEET_ENOMEM       some of them may be in the group
 */
FLEET_API fleet_status fleet_optimizer_add_group(fleet_optimizer *optimizer,
                                                 const fleet_program *program,
                                                 const char *pattern,
                                                 fleet_optimizer *of_group);

/* The setters that follow take effect with the next update, in every mode: with
 * parameter servers each worker's steps carry what they have set.
 *
 * In a job all workers call them alike, between the same two updates. Workers
 * whose gradients are summed (ranks, workers of servers in sync) find a
 * difference at their next update, which then fails on all of them with
 * FLEET_EINVAL and a text that has the field and both values. In async the
 * settings of a worker are those of its own pushes.
 *
 *   FLEET_EINVAL  out of range
 *   FLEET_ESTATE  inside a training pass over a dataset, in its callbacks for
 *                 instance; on a server from fleet_init_server() on; of a
 *                 table's or a group's optimizer after fleet_minimize()
 *   FLEET_ENOMEM  nothing is changed
 */

/* L2 decay of all parameters and rows that say nothing else themselves; 0 or
 * more. */
FLEET_API fleet_status fleet_optimizer_set_l2_decay(fleet_optimizer *optimizer,
                                                    float decay);

/* L1 decay of all parameters and rows, beside that: the penalty's subgradient
 * decay sign(w) is added to the gradient (PaddlePaddle's L1Decay), after the
 * clips, of a row only in updates that touch it. no_decay of a parameter or a
 * table (fleet_param_attr) turns it off, too. Weights come near 0 and swing
 * around it by the learning rate; exact zeros are FTRL's. 0 or more. */
FLEET_API fleet_status fleet_optimizer_set_l1_decay(fleet_optimizer *optimizer,
                                                    float decay);

/* Bring each element of the gradient that an update uses into [-most, most]:
 * PyTorch's clip_grad_value_, PaddlePaddle's ClipGradByValue; after the clip by
 * global norm if there is one, before decay. A table with an optimizer of its
 * own has that one's. most is above 0. FLEET_ESTATE if a training without it
 * has begun, as below. FLEET_EUNSUPPORTED with strategy.dgc, by the first pass
 * or fleet_run(). */
FLEET_API fleet_status
fleet_optimizer_set_value_clip(fleet_optimizer *optimizer, float most);

/* Scale all gradients, dense and sparse together, by norm / max(norm, their
 * global norm): Pascanu, Mikolov, Bengio 2013. norm is above 0. FLEET_ESTATE if
 * a training without it has begun; with servers it begins with
 * fleet_init_worker(). FLEET_EINVAL of a table's optimizer. */
FLEET_API fleet_status
fleet_optimizer_set_global_norm_clip(fleet_optimizer *optimizer, float norm);

/* Scale the gradient of each parameter, and that of each table, by norm /
 * max(norm, its own norm): PaddlePaddle's ClipGradByNorm. A table's is that of
 * all rows that the update touches. Before decay, and before a clip by value.
 * norm is above 0. FLEET_EINVAL of a table's optimizer, and beside a clip by
 * global norm; FLEET_ESTATE after fleet_minimize(), which is FLEET_EUNSUPPORTED
 * with a clip by norm where servers, lars, lamb or dgc update, or ranks share
 * out a table. */
FLEET_API fleet_status fleet_optimizer_set_norm_clip(fleet_optimizer *optimizer,
                                                     float norm);

/* Weights of rows that this optimizer updates are brought back to [low, high]
 * after each update (Fleet's sparse_weight_bounds); low < high, both finite.
 * Rows that are not updated keep what they have, initial values included, and
 * dense parameters have no bounds. In fewer bits (fleet_row_storage) a bound is
 * the next number inward that is kept; of integers of 8 bits one of the row's
 * own scale. FLEET_EINVAL of a group's optimizer. FLEET_ESTATE after
 * fleet_minimize(), which is FLEET_EUNSUPPORTED in geo mode, where servers add
 * up what workers have changed, and where no number that is kept is within the
 * bounds. */
FLEET_API fleet_status fleet_optimizer_set_row_bounds(
    fleet_optimizer *optimizer, float low, float high);

/* Two schedules of the learning rate; fleet/schedule.h has more, and sets and
 * reads the rate itself. */

/* The learning rate is values[i] while the number of updates done is below
 * boundaries[i], and values[n] after; boundaries grow. Arrays are copied. */
FLEET_API fleet_status fleet_optimizer_set_piecewise_decay(
    fleet_optimizer *optimizer, const int64_t *boundaries, const float *values,
    int n);

/* The learning rate is that of the start times rate^(updates / steps), with 0 <
 * rate <= 1 and steps from 1; with staircase nonzero the quotient is rounded
 * down. */
FLEET_API fleet_status fleet_optimizer_set_exponential_decay(
    fleet_optimizer *optimizer, float rate, int64_t steps, int staircase);

#ifdef __cplusplus
}
#endif

#endif
