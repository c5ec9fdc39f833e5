/* torch_kit.h - a model against PyTorch: forward, loss and every gradient, from
 * the same weights and batch.
 *
 * A folder for each gets all that is needed and all that came out, and
 * test/ops/torch_ref.py computes the rest in double, of all folders in one go:
 * index.txt names the model, its slots, options and tasks, and a raw file for
 * each tensor.
 */
#pragma once

#include "train_kit.h"

/* Rows enough for several slices, and for weights transposed once for all. */
enum { TORCH_ROWS = 300 };

/* A handle and an empty program. */
kit_model torch_model(void);

/* Run the first step of the model, which is made, and write all of it. o: what
 * it was made with, NULL: it has no slots of ids. Closes model and batch. */
void torch_compare(const char *name, kit_model *m, kit_batch *batch,
                   const fleet_ctr_options *o);

/* The same of the second step, of a model whose first gradients are 0. */
void torch_compare_second(const char *name, kit_model *m, kit_batch *batch,
                          const fleet_ctr_options *o);

/* Fails the test if PyTorch says otherwise of any of them. */
void torch_ask(void);
