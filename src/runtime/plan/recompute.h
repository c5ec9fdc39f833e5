/* recompute.h - activations that are computed again in the backward pass, so
 * that the forward pass need not keep them (Chen et al. 2016,
 * arXiv:1604.06174): strategy.recompute.
 *
 * Checkpoints cut the nodes of a program into segments, in the program's order;
 * the node that makes a checkpoint is the last one of its segment. Before the
 * gradients of a segment its nodes are lowered once more, into values of their
 * own, which the gradients then use. The last segment is not: its activations
 * are used at once. What another segment reads, what is fetched, rows of tables
 * and what counts in states is computed once and kept.
 *
 * Each segment, forward and backward, is a stage of the plan (fl_step.stage):
 * all steps of a stage are done before the next one's begin, as memory is
 * shared between regions alone. */
#pragma once

#include "runtime/plan/lower.h"

/* Segments of the program, if it is trained so. After passes on the graph. */
fleet_status fl_recompute_begin(fl_lowering *l);
void fl_recompute_done(fl_lowering *l);

/* Before node i is lowered, forward or backward. */
void fl_recompute_enter(fl_lowering *l, size_t i);

/* FLEET_EINVAL, FLEET_ENOENT: what the training's checkpoints cannot be. */
fleet_status fl_recompute_check(const fleet_program *p,
                                const char *checkpoints);
