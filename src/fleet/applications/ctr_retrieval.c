/* ctr_retrieval.c - two towers, and YouTube's: a user is a vector, and so is an
 * item; the items of a batch are each other's negatives. */
#include "fleet/applications/ctr_retrieval.h"

#include <fleet/sequence.h>

enum { MOST_SLOTS = 10000 };

static const fleet_initializer by_default = {FLEET_INIT_DEFAULT, 0, 0};

/* The ids of the first slot of items, if it has one for each sample. */
static fleet_var *item_ids(const fl_ctr *c)
{
    int i = 0;

    while (c->o.ids[i].role != FLEET_SLOT_ITEM)
        i++;
    return c->o.ids[i].dim == 0 || c->o.ids[i].dim == 1 ? c->part[i] : NULL;
}

/* What its label says is what a sample counts. */
static fleet_var *by_label(fl_ctr *c, fleet_var *loss, const fleet_model *m)
{
    fleet_var *label = m->label;

    if (!label)
        return loss;
    if (fleet_var_dtype(label) == FLEET_INT64)
        label = fleet_cast(c->p, label);
    return fleet_mul(c->p, loss, label);
}

void fl_retrieval_finish(fl_ctr *c, fleet_var *user, fleet_var *item,
                         fleet_model *m)
{
    const float t = c->o.temperature != 0 ? c->o.temperature : 1;
    const fleet_in_batch_options o = {
        .item_ids = item_ids(c), .log_q = c->log_q, .temperature = t};
    fleet_program *p = c->p;
    fleet_var *dot = fleet_reduce_sum(p, fleet_mul(p, user, item), 1, 1);
    fleet_var *loss = fleet_in_batch_softmax(p, user, item, &o);

    m->user = user;
    m->item = item;
    m->prediction = fleet_sigmoid(p, fleet_scale(p, dot, 1 / t, 0));
    m->loss = fl_model_loss(p, by_label(c, loss, m), c->weights.sample);
}

/* --- two towers ----------------------------------------------------------- */

/* Hidden layers, and the last one without activation: a vector. */
static fleet_var *vector_of(fl_ctr *c, fleet_var *x, const char *name)
{
    static const int64_t paddle[] = {300, 300, 128};
    const bool own = c->o.hidden && c->o.n_hidden > 0;
    const int64_t *units = own ? c->o.hidden : paddle;
    const int n = own ? c->o.n_hidden : 3;

    x = fl_model_tower(c->p, x, name, units, n - 1, FLEET_RELU, units[n - 1]);
    return c->o.normalize ? fleet_l2_normalize(c->p, x, 0) : x;
}

static void two_tower(fl_ctr *c, fleet_model *m)
{
    fleet_var *item = fl_ctr_rows_of(c, FLEET_SLOT_ITEM, c->o.embedding_dim, "",
                                     by_default, NULL);

    fl_retrieval_finish(c, vector_of(c, fl_ctr_input(c), "user"),
                        vector_of(c, item, "item"), m);
}

/* --- YouTube's ------------------------------------------------------------ */

static void youtube_dnn(fl_ctr *c, fleet_model *m)
{
    static const int64_t paddle[] = {128, 64, 32};
    const bool own = c->o.hidden && c->o.n_hidden > 0;
    const int64_t *units = own ? c->o.hidden : paddle;
    const int n = own ? c->o.n_hidden : 3;
    fleet_var *user =
        fl_model_hidden(c->p, fl_ctr_input(c), "tower", units, n, FLEET_RELU);

    fl_retrieval_finish(c, user,
                        fl_ctr_rows_of(c, FLEET_SLOT_ITEM, units[n - 1], "_out",
                                       by_default, NULL),
                        m);
}

static const fleet_id_slot tower_slots[] = {
    {"query", -1, FLEET_SUM, "query_emb", 0, FLEET_SLOT_FEATURE},
    {"doc", -1, FLEET_SUM, "doc_emb", 0, FLEET_SLOT_ITEM}};
static const fleet_id_slot youtube_slots[] = {
    {"watch", -1, FLEET_MEAN, "watch_emb", 0, FLEET_SLOT_FEATURE},
    {"search", -1, FLEET_MEAN, "search_emb", 0, FLEET_SLOT_FEATURE},
    {"item", 1, FLEET_SUM, "item_emb", 0, FLEET_SLOT_ITEM}};

const fl_ctr_model fl_model_two_tower = {
    .name = "two_tower",
    .own = {"embedding_dim", "hidden", "normalize", "temperature"},
    .embedding_dim = 64,
    .role = {[FLEET_SLOT_FEATURE] = {1, MOST_SLOTS},
             [FLEET_SLOT_ITEM] = {1, MOST_SLOTS}},
    .label_may_lack = true,
    .in_batch = true,
    .ids = tower_slots,
    .n_ids = 2,
    .build = two_tower};
const fl_ctr_model fl_model_youtube_dnn = {
    .name = "youtube_dnn",
    .own = {"embedding_dim", "hidden", "temperature"},
    .embedding_dim = 64,
    .role =
        {[FLEET_SLOT_FEATURE] = {1, MOST_SLOTS}, [FLEET_SLOT_ITEM] = {1, 1}},
    .one_id = true,
    .label_may_lack = true,
    .in_batch = true,
    .ids = youtube_slots,
    .n_ids = 3,
    .build = youtube_dnn};
