/* bad_lines.h - lines that are left out of their batch, as far as a budget lets
 * (max_bad_lines).
 *
 * Batches are cut before their lines are parsed, so which lines a batch has
 * does not depend on other batches' faults: one with bad lines has fewer
 * rows. */
#pragma once

#include "base/log.h"
#include "data/parse/parser.h"

/* Parse a batch, make what is made of its slots, and check its bounds. With a
 * budget, lines that cannot be parsed are taken out of it, and noted in the
 * buffer. Last, samples that were not drawn go (sampling.h). */
fleet_status fl_bad_lines_parse(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer);

/* What a pass has left out so far. */
typedef struct fl_bad_lines {
    int64_t n;
    int told;   /* of these were logged */
    bool ended; /* and how many they are, too */
} fl_bad_lines;

/* Count a batch's, in its turn, and log the first ones of the pass.
 * FLEET_EFORMAT: they are more than the budget. */
fleet_status fl_bad_lines_count(fl_bad_lines *all, const fl_stream_spec *spec,
                                const fl_batch_buffer *buffer);

/* At the end of the pass, once. */
void fl_bad_lines_log(fl_bad_lines *all, const fl_stream_spec *spec);
