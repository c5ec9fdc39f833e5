/* ctr_gru4rec.c - GRU4Rec: the state of a recurrent unit is a user's vector. */
#include <fleet/sequence.h>

#include "fleet/applications/ctr_history.h"
#include "fleet/applications/ctr_retrieval.h"

static void gru4rec(fl_ctr *c, fleet_model *m)
{
    fl_history h = fl_history_of(c);
    fleet_var *states = fleet_gru(c->p, h.rows, h.dim, h.mask,
                                  &(fleet_gru_options){.name = "gru"});

    fl_retrieval_finish(c, fl_history_state(c, &h, states), h.item, m);
    fl_history_learn_next(c, &h, states, m);
}

const fl_ctr_model fl_model_gru4rec = {
    .name = "gru4rec",
    .own = {"embedding_dim", "temperature", "max_len"},
    .embedding_dim = 100,
    .role = {[FLEET_SLOT_HISTORY] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_ITEM] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_NEGATIVE] = {0, FL_MOST_HISTORIES}},
    .pairs = true,
    .no_features = true,
    .label_may_lack = true,
    .in_batch = true,
    .ids = fl_history_pair,
    .n_ids = 2,
    .build = gru4rec};
