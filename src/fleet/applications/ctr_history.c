/* ctr_history.c - histories side by side, attention to their places, and the
 * tower that din and dien end with. */
#include "fleet/applications/ctr_history.h"

#include <math.h>
#include <stdio.h>

#include <fleet/sequence.h>

const fleet_id_slot fl_history_paddle[5] = {
    {"userid", 1, FLEET_SUM, "user_emb", 0, FLEET_SLOT_FEATURE},
    {"hist_item_seq", -1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_HISTORY},
    {"hist_cat_seq", -1, FLEET_SUM, "cat_emb", 0, FLEET_SLOT_HISTORY},
    {"target_item", 1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_ITEM},
    {"target_cat", 1, FLEET_SUM, "cat_emb", 0, FLEET_SLOT_ITEM},
};

const fleet_id_slot fl_history_pair[2] = {
    {"hist_item_seq", -1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_HISTORY},
    {"target_item", 1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_ITEM}};

static const fleet_initializer by_default = {FLEET_INIT_DEFAULT, 0, 0};

/* Rows of a history, at their places. */
static fleet_var *place_rows(fl_ctr *c, int i, int64_t max_len)
{
    const fleet_sparse_embedding_options o =
        fl_ctr_table(c, &c->o.ids[i], "", by_default);

    return fleet_sequence_embedding(c->p, c->part[i], c->o.embedding_dim,
                                    max_len, 0, &o);
}

/* Of all slots of a role side by side; NULL: there are none. */
static fleet_var *places_of(fl_ctr *c, fleet_slot_role role, int64_t max_len)
{
    fleet_var *rows[FL_MOST_HISTORIES];
    int n = 0;

    for (int i = 0; i < c->o.n_ids; i++)
        if (c->o.ids[i].role == role)
            rows[n++] = place_rows(c, i, max_len);
    if (n == 0)
        return NULL;
    return n > 1 ? fleet_concat(c->p, rows, n, 2) : rows[0];
}

fl_history fl_history_of(fl_ctr *c)
{
    fl_history h = {.len = c->o.max_len ? c->o.max_len : 50};
    int first = -1;

    for (int i = 0; i < c->o.n_ids; i++)
        if (c->o.ids[i].role == FLEET_SLOT_HISTORY) {
            first = first < 0 ? i : first;
            h.dim += c->o.embedding_dim;
        }
    h.mask = fleet_sequence_mask(c->p, c->part[first], h.len);
    h.rows = places_of(c, FLEET_SLOT_HISTORY, h.len);
    h.item = fl_ctr_rows_of(c, FLEET_SLOT_ITEM, c->o.embedding_dim, "",
                            by_default, NULL);
    h.negatives = places_of(c, FLEET_SLOT_NEGATIVE, h.len);
    return h;
}

/* --- places --------------------------------------------------------------- */

/* Its mask is 1, and that of the next place 0. */
fleet_var *fl_history_last(fl_ctr *c, const fl_history *h, fleet_var *x)
{
    fleet_program *p = c->p;
    fleet_var *next =
        fleet_slice(p, fleet_pad(p, h->mask, 1, 0, 1, 0), 1, 1, h->len + 1);
    fleet_var *last = fleet_sub(p, h->mask, next);

    last = fleet_reshape(p, last, (int64_t[]){-1, 1, h->len}, 3);
    return fleet_reshape(p, fleet_batch_matmul(p, last, x, 0, 0),
                         (int64_t[]){-1, h->dim}, 2);
}

fleet_var *fl_history_state(fl_ctr *c, const fl_history *h, fleet_var *states)
{
    return fleet_reshape(c->p, fleet_slice(c->p, states, 1, h->len - 1, h->len),
                         (int64_t[]){-1, h->dim}, 2);
}

/* The log loss of the dots of x and y being likely, of all places but the
 * first; [B, len - 1]. sign -1: of their being unlikely. */
static fleet_var *next_loss(fl_ctr *c, const fl_history *h, fleet_var *x,
                            fleet_var *y, float sign)
{
    fleet_program *p = c->p;
    fleet_var *now = fleet_slice(p, x, 1, 0, h->len - 1);
    fleet_var *next = fleet_slice(p, y, 1, 1, h->len);
    fleet_var *dot = fleet_reduce_sum(p, fleet_mul(p, now, next), 2, 0);

    return fleet_softplus(p, fleet_scale(p, dot, -sign, 0));
}

void fl_history_learn_next(fl_ctr *c, const fl_history *h, fleet_var *x,
                           fleet_model *m)
{
    fleet_program *p = c->p;
    fleet_var *loss, *mask, *n;

    if (!h->negatives || h->len < 2)
        return;
    mask = fleet_slice(p, h->mask, 1, 1, h->len);
    loss = fleet_add(p, next_loss(c, h, x, h->rows, 1),
                     next_loss(c, h, x, h->negatives, -1));
    loss = fleet_reduce_sum(p, fleet_mul(p, loss, mask), 1, 1);
    n = fleet_max(p, fleet_reduce_sum(p, mask, 1, 1), fleet_constant(p, 1));
    loss = fl_model_loss(p, fleet_div(p, loss, n), c->weights.sample);
    m->loss = fleet_add(p, m->loss, loss);
}

/* --- attention ------------------------------------------------------------ */

/* "attention_0", ..., "attention_out" of each place. */
static fleet_var *score_places(fl_ctr *c, fleet_var *x)
{
    static const int64_t paddle[] = {80, 40};
    const int64_t *units = c->o.attention ? c->o.attention : paddle;
    const int n = c->o.attention ? c->o.n_attention : 2;
    char name[32];

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "attention_%d", i);
        x = fl_model_place_layer(c->p, x, name, units[i], FLEET_RELU);
    }
    return fl_model_place_layer(c->p, x, "attention_out", 1, FLEET_LINEAR);
}

fleet_var *fl_history_attention(fl_ctr *c, const fl_history *h, fleet_var *x)
{
    const int64_t line[] = {-1, 1, h->len};
    fleet_program *p = c->p;
    fleet_var *item = fleet_reshape(p, h->item, (int64_t[]){-1, 1, h->dim}, 3);
    fleet_var *beside[] = {x, fleet_expand(p, item, 1, h->len),
                           fleet_sub(p, x, item), fleet_mul(p, x, item)};
    fleet_var *score = score_places(c, fleet_concat(p, beside, 4, 2));

    score = fleet_scale(p, fleet_reshape(p, score, line, 3),
                        (float)(1 / sqrt((double)h->dim)), 0);
    return fleet_masked_softmax(p, score, fleet_reshape(p, h->mask, line, 3));
}

/* --- the tower ------------------------------------------------------------ */

/* A weight of the item alone, of its first slot. */
static fleet_var *item_weight(fl_ctr *c)
{
    const fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};
    int i = 0;

    while (c->o.ids[i].role != FLEET_SLOT_ITEM)
        i++;
    return fl_ctr_slot_rows(c, i, 1, "_bias", zero);
}

void fl_history_finish(fl_ctr *c, const fl_history *h, fleet_var *x,
                       fleet_model *m)
{
    static const int64_t hidden[] = {80, 40};
    fleet_var *part[] = {x, h->item, fl_ctr_input(c)}, *logit;

    x = fleet_concat(c->p, part, part[2] ? 3 : 2, 1);
    logit = fl_ctr_tower(c, x, hidden, 2, 1);
    fl_model_finish_binary(c->p, fleet_add(c->p, logit, item_weight(c)),
                           &c->weights, m);
}
