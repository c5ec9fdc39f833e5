/* ctr_history.h - what models of sequences make of histories and items. */
#pragma once

#include "fleet/applications/ctr_internal.h"

enum { FL_MOST_HISTORIES = 16 };

/* PaddleRec's slots: a user's, then histories and items; of these the first
 * alone. */
extern const fleet_id_slot fl_history_paddle[5], fl_history_pair[2];

/* The histories of a sample side by side, and the items. */
typedef struct fl_history {
    int64_t len, dim;     /* places; numbers of each, and of the item */
    fleet_var *rows;      /* [B, len, dim] */
    fleet_var *mask;      /* [B, len]: 1 where there is an id */
    fleet_var *item;      /* [B, dim] */
    fleet_var *negatives; /* as rows; NULL: there are none */
} fl_history;

fl_history fl_history_of(fl_ctr *c);

/* The softmax, over the places, of a score that layers "attention_0", ... give
 * x [B, len, dim], of h's places, beside the item; 0 where there is no id.
 * [B, 1, len]. */
fleet_var *fl_history_attention(fl_ctr *c, const fl_history *h, fleet_var *x);

/* What x [B, len, dim] has at the last place where there is an id; zeros where
 * there is none. [B, dim] */
fleet_var *fl_history_last(fl_ctr *c, const fl_history *h, fleet_var *x);

/* The state behind the last id, of states [B, len, dim] that a mask has kept as
 * they are behind it; [B, dim]. */
fleet_var *fl_history_state(fl_ctr *c, const fl_history *h, fleet_var *states);

/* Adds to the loss what x [B, len, dim] says of each place's next id, and of
 * the next negative; of a model without negatives nothing. */
void fl_history_learn_next(fl_ctr *c, const fl_history *h, fleet_var *x,
                           fleet_model *m);

/* Prediction and loss of a tower of 80-40 on x [B, N], the item, features and
 * numbers, plus the item's own weight. */
void fl_history_finish(fl_ctr *c, const fl_history *h, fleet_var *x,
                       fleet_model *m);
