/* overflow_kit.h - a small program in float16 with a table, and batches of
 * which one row's gradient alone is infinite. */
#pragma once

#include "train_kit.h"

/* The scale begins with 2^15, and each update that is skipped halves it. */
extern const fleet_amp_configs overflow_halves;

/* Rows, of table "rows", have gradients through a product of float16, and times
 * a number that is fed; minimized by such an optimizer. */
fleet_program *overflow_program(fleet *f, const kit_options *how,
                                fleet_optimizer **o);

/* An iteration of 40 rows. One that overflows has new ids, and the loss and all
 * other gradients are far from that. */
fleet_status overflow_train(fleet_executor *e, int seed, bool overflows);
