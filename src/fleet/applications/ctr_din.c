/* ctr_din.c - DIN: what of a history has to do with the item. */
#include "fleet/applications/ctr_history.h"

static void din(fl_ctr *c, fleet_model *m)
{
    fl_history h = fl_history_of(c);
    fleet_var *weights = fl_history_attention(c, &h, h.rows);
    fleet_var *x = fleet_batch_matmul(c->p, weights, h.rows, 0, 0);

    x = fleet_reshape(c->p, x, (int64_t[]){-1, h.dim}, 2);
    x = fl_model_layer(c->p, x, "history", h.dim, FLEET_LINEAR);
    fl_history_finish(c, &h, x, m);
}

const fl_ctr_model fl_model_din = {
    .name = "din",
    .own = {"embedding_dim", "hidden", "attention", "max_len", "pos_weight"},
    .embedding_dim = 64,
    .role = {[FLEET_SLOT_HISTORY] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_ITEM] = {1, FL_MOST_HISTORIES}},
    .pairs = true,
    .ids = fl_history_paddle + 1, /* without the user's */
    .n_ids = 4,
    .build = din};
