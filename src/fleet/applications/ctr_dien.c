/* ctr_dien.c - DIEN: interests, which are states of a recurrent unit, and how
 * the ones that have to do with the item evolve. */
#include <fleet/sequence.h>

#include "fleet/applications/ctr_history.h"

static void dien(fl_ctr *c, fleet_model *m)
{
    fl_history h = fl_history_of(c);
    fleet_var *states = fleet_gru(c->p, h.rows, h.dim, h.mask,
                                  &(fleet_gru_options){.name = "gru"});
    fleet_var *share = fl_history_attention(c, &h, states), *x;

    share = fleet_reshape(c->p, share, (int64_t[]){-1, h.len}, 2);
    x = fleet_gru(c->p, states, h.dim, share,
                  &(fleet_gru_options){.name = "augru"});
    fl_history_finish(c, &h, fl_history_state(c, &h, x), m);
    fl_history_learn_next(c, &h, states, m);
}

const fl_ctr_model fl_model_dien = {
    .name = "dien",
    .own = {"embedding_dim", "hidden", "attention", "max_len", "pos_weight"},
    .embedding_dim = 64,
    .role = {[FLEET_SLOT_HISTORY] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_ITEM] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_NEGATIVE] = {0, FL_MOST_HISTORIES}},
    .pairs = true,
    .ids = fl_history_paddle + 1, /* without the user's */
    .n_ids = 4,
    .build = dien};
