/* loss_scale.h - the loss of a training in float16 is multiplied by a scale,
 * so that small gradients do not become zero in float16. Gradients of weights
 * are of float; they are divided by it where an update uses them, before the
 * clip. An update whose gradients are not all finite is skipped, and the scale
 * shrinks; after many that were not it grows. As in Fleet. Plain data, for
 * CPUs and devices alike. Steps and their operands:
 *
 *   loss.scale      loss gradient, scaling
 *   scaling.check   found (a float by block: 1 where a number is not finite), a
 *                   group's gradient; rows.check, or lookup.check where they
 *                   are on a GPU, the same of rows
 *   scaling.agree   update, agreed (a float: 1 where any rank has found
 *                   anything), all found; of ranks with gradients of their own
 *   scaling.decide  update, scaling, all found, or what was agreed on
 */
#pragma once

#include "base/host_device.h"
#include "runtime/graph/training.h"

enum { FL_SCALING_BLOCK = 16384 }; /* numbers that are checked at a time */

/* scaling.decide */
typedef struct fl_scaling_config {
    fl_scaling_rules rules;
    const int *count; /* of each found */
} fl_scaling_config;

/* What follows an update that was skipped. It shrinks to 1 at the least, unless
 * it began below, or is below already: a load may bring it so. */
FL_EVERYWHERE void fl_scaling_shrink(const fl_scaling_rules *r, fl_scaling *s)
{
    float least = r->first < 1 ? r->first : 1, next = s->scale * r->shrink;

    s->skipped++;
    s->good = 0;
    if (!r->dynamic || ++s->bad < r->shrink_after)
        return;
    s->bad = 0;
    if (least > s->scale)
        least = s->scale;
    s->scale = next > least ? next : least;
}

/* And one that was not. */
FL_EVERYWHERE void fl_scaling_grow(const fl_scaling_rules *r, fl_scaling *s)
{
    float next = s->scale * r->grow;

    s->bad = 0;
    if (!r->dynamic || ++s->good < r->grow_after)
        return;
    s->good = 0;
    if (next - next == 0)
        s->scale = next;
}
