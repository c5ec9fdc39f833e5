/* ctr_transformer.c - BST and SASRec: self-attention over a history, in the one
 * with the item behind it, in the other each place with those before it. */
#include <math.h>
#include <stdio.h>

#include <fleet/interactions.h>

#include "fleet/applications/ctr_history.h"

static fleet_var *layer_norm(fl_ctr *c, fleet_var *x, const char *name)
{
    return fleet_layer_norm(
        c->p, x,
        &(fleet_layer_norm_options){.name = name, .begin_norm_axis = 2});
}

/* "block_<i>_norm_<k>" */
static fleet_var *block_norm(fl_ctr *c, fleet_var *x, int i, int k)
{
    char name[48];

    snprintf(name, sizeof name, "block_%d_norm_%d", i, k);
    return layer_norm(c, x, name);
}

static fleet_var *leaky(fl_ctr *c, fleet_var *x)
{
    return fleet_leaky_relu(c->p, x, 0.01f);
}

/* Two layers of each place, "block_<i>_ffn_0" and "..._1". */
static fleet_var *feed_forward(fl_ctr *c, fleet_var *x, int i, int64_t units,
                               int64_t dim, bool is_leaky)
{
    char name[48];

    snprintf(name, sizeof name, "block_%d_ffn_0", i);
    x = fl_model_place_layer(c->p, x, name, units,
                             is_leaky ? FLEET_LINEAR : FLEET_RELU);
    if (is_leaky)
        x = leaky(c, x);
    snprintf(name, sizeof name, "block_%d_ffn_1", i);
    return fl_model_place_layer(c->p, x, name, dim, FLEET_LINEAR);
}

/* A vector for each of n places. */
static fleet_var *add_positions(fl_ctr *c, fleet_var *x, int64_t n, int64_t dim)
{
    const fleet_param_attr attr = {
        .name = "position",
        .initializer = {FLEET_INIT_TRUNCATED_NORMAL, 0,
                        (float)(0.1 / sqrt((double)dim))}};

    return fleet_add(c->p, x,
                     fleet_parameter(c->p, (int64_t[]){n, dim}, 2, &attr));
}

/* --- BST ------------------------------------------------------------------ */

/* The history and the item behind it, and the mask of them as keys. */
static fleet_var *with_item(fl_ctr *c, const fl_history *h, fleet_var **mask)
{
    const int64_t n = h->len + 1;
    fleet_var *item =
        fleet_reshape(c->p, h->item, (int64_t[]){-1, 1, h->dim}, 3);
    fleet_var *both[] = {h->rows, item};

    *mask = fleet_reshape(c->p, fleet_pad(c->p, h->mask, 1, 0, 1, 1),
                          (int64_t[]){-1, 1, 1, n}, 4);
    return add_positions(c, fleet_concat(c->p, both, 2, 1), n, h->dim);
}

static fleet_var *bst_block(fl_ctr *c, fleet_var *query, fleet_var *x,
                            fleet_var *mask, int64_t dim, int i)
{
    const int64_t inner = c->o.ffn_units ? c->o.ffn_units : 512;
    char name[32];
    const fleet_attention_options o = {
        .name = name, .heads = c->o.heads ? c->o.heads : 6, .mask = mask};
    fleet_var *y;

    snprintf(name, sizeof name, "block_%d", i);
    y = fleet_multi_head_attention(c->p, query, x, NULL, &o);
    y = block_norm(c, fleet_add(c->p, query, y), i, 0);
    return block_norm(
        c, fleet_add(c->p, y, feed_forward(c, y, i, inner, dim, true)), i, 1);
}

/* Of the last block the item's place alone is needed. */
static fleet_var *bst_encoder(fl_ctr *c, const fl_history *h)
{
    const int64_t n = c->o.blocks ? c->o.blocks : 1;
    fleet_var *mask, *x = with_item(c, h, &mask), *query = x;

    for (int64_t i = 0; i < n; i++) {
        if (i == n - 1)
            query = fleet_slice(c->p, x, 1, h->len, h->len + 1);
        query = x = bst_block(c, query, x, mask, h->dim, (int)i);
    }
    return fleet_reshape(c->p, x, (int64_t[]){-1, h->dim}, 2);
}

static void bst(fl_ctr *c, fleet_model *m)
{
    static const int64_t paddle[] = {1024, 512, 256};
    const int64_t *units = c->o.hidden ? c->o.hidden : paddle;
    const int n = c->o.hidden ? c->o.n_hidden : 3;
    fl_history h = fl_history_of(c);
    fleet_var *part[] = {bst_encoder(c, &h), fl_ctr_input(c)};
    fleet_var *x = part[1] ? fleet_concat(c->p, part, 2, 1) : part[0];
    char name[32];

    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "tower_%d", i);
        x = leaky(c, fl_model_layer(c->p, x, name, units[i], FLEET_LINEAR));
    }
    fl_model_finish_binary(
        c->p, fl_model_layer(c->p, x, "tower_out", 1, FLEET_LINEAR),
        &c->weights, m);
}

/* --- SASRec --------------------------------------------------------------- */

static fleet_var *sasrec_block(fl_ctr *c, fleet_var *x, fleet_var *mask,
                               int64_t dim, int i)
{
    const int64_t inner = c->o.ffn_units ? c->o.ffn_units : dim;
    char name[32];
    const fleet_attention_options o = {.name = name,
                                       .heads = c->o.heads,
                                       .mask = mask,
                                       .causal = 1,
                                       .no_out = 1};
    fleet_var *n = block_norm(c, x, i, 0), *f;

    snprintf(name, sizeof name, "block_%d", i);
    x = fleet_add(c->p, n, fleet_multi_head_attention(c->p, n, x, NULL, &o));
    f = block_norm(c, x, i, 1);
    return fleet_add(c->p, f, feed_forward(c, f, i, inner, dim, false));
}

static void sasrec(fl_ctr *c, fleet_model *m)
{
    const int64_t n = c->o.blocks ? c->o.blocks : 2;
    fl_history h = fl_history_of(c);
    fleet_program *p = c->p;
    fleet_var *mask = fleet_reshape(p, h.mask, (int64_t[]){-1, 1, 1, h.len}, 4);
    fleet_var *x = fleet_scale(p, h.rows, (float)sqrt((double)h.dim), 0), *last;

    x = add_positions(c, x, h.len, h.dim);
    for (int64_t i = 0; i < n; i++)
        x = sasrec_block(c, x, mask, h.dim, (int)i);
    x = layer_norm(c, x, "norm");
    last = fl_history_last(c, &h, x);
    m->user = last;
    m->item = h.item;
    fl_model_finish_binary(
        p, fleet_reduce_sum(p, fleet_mul(p, last, h.item), 1, 1), &c->weights,
        m);
    fl_history_learn_next(c, &h, x, m);
}

const fl_ctr_model fl_model_bst = {
    .name = "bst",
    .own = {"embedding_dim", "hidden", "heads", "blocks", "ffn_units",
            "max_len", "pos_weight"},
    .embedding_dim = 96,
    .role = {[FLEET_SLOT_HISTORY] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_ITEM] = {1, FL_MOST_HISTORIES}},
    .pairs = true,
    .ids = fl_history_paddle,
    .n_ids = 5,
    .build = bst};
const fl_ctr_model fl_model_sasrec = {
    .name = "sasrec",
    .own = {"embedding_dim", "heads", "blocks", "ffn_units", "max_len",
            "pos_weight"},
    .embedding_dim = 50,
    .role = {[FLEET_SLOT_HISTORY] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_ITEM] = {1, FL_MOST_HISTORIES},
             [FLEET_SLOT_NEGATIVE] = {0, FL_MOST_HISTORIES}},
    .pairs = true,
    .no_features = true,
    .ids = fl_history_pair,
    .n_ids = 2,
    .build = sasrec};
