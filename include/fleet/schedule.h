/* schedule.h - how the learning rate changes with the number of updates, and
 * how it is set and read.
 *
 * With lr the learning rate that is set, and t the number of updates that are
 * done (0 for the first one), the next update has, where floor is of
 * `staircase` alone:
 *
 *   CONSTANT             lr
 *   PIECEWISE            values[i] while t < boundaries[i], then values[n]
 *   EXPONENTIAL          lr rate^floor(t / steps)
 *   NATURAL_EXPONENTIAL  lr e^(-rate floor(t / steps))
 *   INVERSE_TIME         lr / (1 + rate floor(t / steps))
 *   POLYNOMIAL           end + (lr - end) (1 - t / steps)^power, end from
 *                        t = steps on; with cycle each time that t has passed
 *                        steps they are as many more as take it in: steps
 *                        times t / steps rounded up
 *   COSINE               end + (lr - end) (1 + cos(pi t / steps)) / 2, end from
 *                        t = steps on; with cycle the cosine goes on, up again
 *                        and down (Loshchilov, Hutter 2017, without restarts)
 *   STEP                 lr rate^floor(t / steps), always
 *   MULTI_STEP           lr rate^(how many of the boundaries t has reached)
 *   ONE_CYCLE            from lr / start_divisor up to lr at t = rise steps - 1
 *                        and down to lr / start_divisor / end_divisor at
 *                        t = steps - 1, where it stays; by half a cosine each,
 *                        or straight lines if `linear` (Smith, Topin 2018)
 *   NOAM                 lr width^-0.5 min(s^-0.5, s steps^-1.5) with
 *                        s = t + 1: steps are those of its warm-up, width the
 *                        model's (Vaswani et al. 2017)
 *
 * They are PyTorch's (ExponentialLR, PolynomialLR, CosineAnnealingLR, StepLR,
 * MultiStepLR, OneCycleLR) with an update in place of its step(), and Paddle's
 * (NaturalExpDecay, InverseTimeDecay, PolynomialDecay, NoamDecay), whose noam
 * begins with s = 0.
 *
 * With warmup_steps w above 0 the learning rate first grows along a line: at
 * t < w it is what the schedule has at 0 times f + (1 - f) t / w, where f is
 * warmup_start; from then on what the schedule has at t - w (PyTorch's LinearLR
 * before another one in SequentialLR).
 *
 * t counts updates, not batches: of a merge group one, of n workers in sync one
 * for all. In async it counts the updates that the worker knows of. A
 * checkpoint has it, so that a training that resumes goes on where it was, if
 * its optimizer has the same schedule.
 */
#ifndef FLEET_SCHEDULE_H
#define FLEET_SCHEDULE_H

#include <fleet/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fleet_schedule_kind {
    FLEET_SCHEDULE_CONSTANT,
    FLEET_SCHEDULE_PIECEWISE,
    FLEET_SCHEDULE_EXPONENTIAL,
    FLEET_SCHEDULE_NATURAL_EXPONENTIAL,
    FLEET_SCHEDULE_INVERSE_TIME,
    FLEET_SCHEDULE_POLYNOMIAL,
    FLEET_SCHEDULE_COSINE,
    FLEET_SCHEDULE_STEP,
    FLEET_SCHEDULE_MULTI_STEP,
    FLEET_SCHEDULE_ONE_CYCLE,
    FLEET_SCHEDULE_NOAM
} fleet_schedule_kind;

/* A member that the kind has no use for is 0, or refused. */
typedef struct fleet_schedule {
    fleet_schedule_kind kind;
    int64_t steps; /* in updates; needed where a formula has it, but for
                      NATURAL_EXPONENTIAL and INVERSE_TIME, where 0 is 1 */
    float rate;    /* EXPONENTIAL: 0 < rate <= 1; STEP, MULTI_STEP: as well, 0:
                      0.1; NATURAL_EXPONENTIAL, INVERSE_TIME: 1e-12 to 1e9 */
    float end;     /* 0 to 1e9; 0 with ftrl, which divides by the learning
                      rate, is refused */
    float power;   /* 1e-3 to 1e3; 0: 1 */
    int staircase, cycle, linear;
    const int64_t *boundaries; /* n of them, from 1 on, growing */
    const float *values;       /* PIECEWISE: n + 1, above 0 */
    int n;
    float rise;          /* the part of steps that goes up, 1e-6 to 0.999999; 0:
                            0.3 */
    float start_divisor; /* 1 to 1e9; 0: 25 */
    float end_divisor;   /* 1 to 1e9; 0: 10,000 */
    int64_t width;       /* NOAM: of the model, 1 or more */
    int64_t warmup_steps;
    float warmup_start; /* 1e-9 to 1; 0: 1/3 */
} fleet_schedule;

/* These are setters as those of optimizer.h are, and return what those
 * return: between two updates of the same number in all workers, not within a
 * pass. An optimizer has one schedule: the last one set, the calls of
 * optimizer.h included.
 *
 * fleet_optimizer_set_schedule - NULL: constant. Arrays are copied.
 * FLEET_EINVAL names the member that is wrong. */
FLEET_API fleet_status fleet_optimizer_set_schedule(
    fleet_optimizer *optimizer, const fleet_schedule *schedule);

/* A learning rate that falls when a metric has stopped improving (PyTorch's
 * ReduceLROnPlateau). All-zero fields are defaults. */
typedef struct fleet_plateau_options {
    float factor;     /* 0: 0.1; from 1e-6, below 1 */
    int patience;     /* reports without an improvement that change nothing;
                         0: 10, below 0: none */
    double threshold; /* by how much a metric has to be better than the best
                         one; 0: 1e-4, below 0: by nothing */
    int absolute;     /* the threshold is a difference; 0: a part of the best */
    int maximize;     /* the metric is to grow; 0: to fall, as a loss */
    int cooldown;     /* reports after a reduction that do not count */
    float least;      /* the learning rate does not fall below it */
} fleet_plateau_options;

/* fleet_optimizer_set_plateau - a setter, too. NULL: none any more. What was
 * reported before is forgotten. It works on the lr of the schedule, whatever
 * that is, but for a piecewise one, whose rates are fixed: FLEET_EINVAL, as for
 * an optimizer of a table. */
FLEET_API fleet_status fleet_optimizer_set_plateau(
    fleet_optimizer *optimizer, const fleet_plateau_options *options);

/* fleet_optimizer_report_metric - a metric, of a validation for instance: if
 * the last ones were no better, lr becomes max(lr factor, least), unless that
 * is less than 1e-8 below it. *reduced (NULL: not asked for) says whether it
 * has. A setter: all workers of a job report the same number, such as the loss
 * of fleet_train_result, which is that of all. A checkpoint has lr and what was
 * reported; the optimizer that a load finds with a plateau takes both, so each
 * rank and worker loads it. With one from before the first report it is as
 * before its own first report.
 *
 *   FLEET_EINVAL  no optimizer; a metric that is not finite
 *   FLEET_ESTATE  no plateau is set; as for all setters */
FLEET_API fleet_status fleet_optimizer_report_metric(fleet_optimizer *optimizer,
                                                     double metric,
                                                     int *reduced);

/* fleet_optimizer_set_learning_rate - the lr of the formulas, from the next
 * update on; above 0 and finite. What is set is no part of a checkpoint (unless
 * a plateau has a report): who resumes sets it again. FLEET_ESTATE where the
 * schedule is piecewise, whose values are learning rates themselves. */
FLEET_API fleet_status fleet_optimizer_set_learning_rate(
    fleet_optimizer *optimizer, float learning_rate);

/* fleet_optimizer_get_learning_rate - what the next update has, schedule and
 * warm-up included: of the updates that this process knows of (in async others
 * have made more; in float16 a GPU may yet skip the last two). Factors of
 * parameters and the ratios of lars and lamb are not in it. Within a pass, too:
 * in callbacks. FLEET_EINVAL for NULL, FLEET_ESTATE on a server, whose workers
 * say the learning rate. */
FLEET_API fleet_status fleet_optimizer_get_learning_rate(
    const fleet_optimizer *optimizer, float *learning_rate);

#ifdef __cplusplus
}
#endif

#endif
