/* lookup.h - all lookups in a table, done together; each lookup is of one
 * dataset slot.
 *
 *   rows.split   ids of a slice -> hashes, sorted by part
 *   rows.find    per part: duplicates removed, rows found
 *   rows.gather  rows -> the outputs, one for each slot, pooled if it is
 *                ragged; of a maximum also which position won, by column;
 *                side by side, and zeros after them, if it is padded
 *   rows.sum     per part: gradients of equal ids added, in the order of
 *                their positions
 *   rows.merge   per part: sums of several batches added
 *   rows.update  per part: missing rows made, the rule applied
 *
 * With a remote (remote.h) the rows are on servers or other ranks, and the
 * first steps run for a batch while the batch before it is computed:
 *
 *   rows.split   as above
 *   rows.unique  per part: duplicates removed
 *   ps.pull      the keys of all lookups of the plan are requested
 *   ps.arrive    their rows have come
 *   rows.place   per part: positions point to them
 *   rows.gather, rows.sum, rows.merge  as above
 *   ps.push      the sums are sent
 *
 * The fl_lookup that these steps hand on then exists twice, once for each pull
 * slot (remote.h); the sums of a merge group exist once, in a third one.
 *
 * A table whose rows are on a GPU has other steps: lookup_gpu.h.
 *
 * The position of an id is its number in the batch: ids are numbered by sample,
 * then dataset slot, then place in the slot. A slot of L ids without an own
 * combiner counts as L features; a ragged one as one feature.
 *
 * A padded slot is a ragged one of which a sample keeps its first or last T
 * ids: what is cut off has no position, so that it is not asked for, and no row
 * is made for it. Position j of a sample has column j dim of the output.
 *
 * The gradient of a position is that of its output, times its id's weight and
 * the combiner's factor; of a maximum it is zero in columns that another
 * position has won.
 */
#pragma once

#include "runtime/plan/lower.h"
#include "runtime/store/lookup_kernels.h"

/* One slot, as its operator has it. */
typedef struct fl_lookup_slot {
    const fleet_var *ids, *out;
    const fleet_var *weights; /* NULL: none */
    fleet_combiner combiner;  /* of a ragged slot */
    int nth_max;              /* FLEET_MAX: how many slots before it are, too */
    int64_t most;   /* of a padded slot: ids that a sample keeps; else 0 */
    bool keep_last; /* of it: the last ones */
} fl_lookup_slot;

/* The slot of a lookup's node, but for nth_max. */
fl_lookup_slot fl_lookup_slot_of(const fl_node *n);

/* Is it pooled by its maximum? */
static inline bool fl_lookup_is_max(const fl_lookup_slot *s)
{
    return s->ids->ragged && s->combiner == FLEET_MAX;
}

/* Emit the forward steps; returns the lookup's value, if it is one. config for
 * backward is the same slots again. */
int fl_lookup_forward(fl_lowering *l, const fl_node *n, const fleet_var *table,
                      const fl_lookup_slot *slot, int n_slot);
void fl_lookup_gradient(fl_lowering *l, const fl_node *n,
                        const fleet_var *table, const fl_lookup_slot *slot,
                        int n_slot, int lookup);

/* For the passes: steps on a table's gradient. */
void fl_lookup_merge(fl_lowering *l, fl_sparse *s);
void fl_lookup_update(fl_lowering *l, const fl_sparse *s);

/* The value with its findings (plan/loss_scale.h), or with its squares; *n:
 * how many floats, or doubles, these are. */
int fl_lookup_check(fl_lowering *l, const fl_sparse *s, int *n);
int fl_lookup_norm(fl_lowering *l, const fl_sparse *s, int *n);

/* Its update clips by the table's own norm. */
void fl_lookup_clip(fl_lowering *l, fl_sparse *s);

/* Features of a slot: one for each id of a dense slot, one for a ragged
 * slot. */
int fl_lookup_features(const fl_lookup_slot *slot);

/* Where a step has the operands of slots: of slot i the ids are operand ids +
 * i, and the output, or its gradient, is operand out + i; the weights of the
 * j-th slot that has some are operand weights + j. */
typedef struct fl_lookup_places {
    int ids, out, weights;
} fl_lookup_places;

/* The features of n slots. */
void fl_lookup_fill_features(fl_feature *feature, const fl_lookup_slot *slot,
                             int n_slot, int64_t dim,
                             const fl_lookup_places *at);

/* How many of the slots have weights; are of FLEET_MAX; are padded. */
int fl_lookup_count_weighted(const fl_lookup_slot *slot, int n_slot);
int fl_lookup_count_max(const fl_lookup_slot *slot, int n_slot);
int fl_lookup_count_padded(const fl_lookup_slot *slot, int n_slot);

/* Room for n operands of a step; NULL without memory, which is remembered. */
fl_operand *fl_lookup_operands(fl_lowering *l, int n);

/* The value of the lookup whose sums an update is made of. */
int fl_lookup_sums(const fl_sparse *s);
