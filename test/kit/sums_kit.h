/* sums_kit.h - a model that is the row of an id: what each batch takes from the
 * rows adds up exactly, in any order, so that a push that is lost or counted
 * twice is seen. */
#pragma once

#include "ps_kit.h"

enum { SUMS_KEYS = 97, SUMS_BATCH = 4 /* samples: their mean is exact */ };

/* The node's handle, program and loss; the id. SGD of rate 1: a batch takes 1
 * from all rows of its ids together. */
fleet_var *sums_build(ps_node *n, const fleet_options *o,
                      const fleet_distributed_strategy *s);

/* Of datasets that are read from here on: dataset.lease_lines. */
extern int64_t sums_lease_lines;

/* A worker's batches of a file. */
void sums_read(ps_node *n, fleet_var *id, const char *const *files, int n_file,
               int64_t batch);

/* So many lines of an id each. */
const char *sums_file(int lines);
