/* replay_look.h - what an update of a lane that is made again from its log has
 * changed, and whether a weight is not finite behind it. */
#pragma once

#include "base/text.h"
#include "ps/aggregate/update_view.h"
#include "ps/host/server_replay.h"

/* Weights as they were before an update: of the rows that it has gradients of,
 * and of all dense parameters that the lane keeps. */
typedef struct fl_replay_before {
    float *row, *dense; /* in the record's order; in the layout's */
    size_t row_capacity, dense_capacity;
    bool *had; /* was there a row of the key? */
    size_t had_capacity;
} fl_replay_before;

fleet_status fl_replay_note(fl_replay_before *b, const fl_replay_lane *at,
                            const fl_journal_record *r);
void fl_replay_before_done(fl_replay_before *b);

/* Behind it: lines with newlines, one for each table and parameter of which the
 * update has changed something. */
fleet_status fl_replay_changes(const fl_replay_before *b,
                               const fl_replay_lane *at,
                               const fl_journal_record *r, fl_text *out);

/* Is a weight that the update has brought a gradient of, or one of a dense
 * parameter, not finite? r NULL: any weight. *where is its name, then, "table
 * \"t\", row 5"; else empty. */
fleet_status fl_replay_nonfinite(const fl_replay_lane *at,
                                 const fl_journal_record *r, fl_text *where);

/* "update 12: 2 batches, clip 1, of worker 0 step 12, worker 1 step 12". */
fleet_status fl_replay_whose(const fl_journal_record *r, fl_text *out);
