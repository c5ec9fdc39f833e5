/* ctr_word2vec.c - skip-gram with negative samples. */
#include "fleet/applications/ctr_internal.h"

static const fleet_initializer zero = {FLEET_INIT_CONSTANT, 0, 0};

/* The logits of what is beside the word x [B, D]: of all n ids of a role,
 * [B, n]; *vectors, if it is not NULL: their rows. */
static fleet_var *logits_of(fl_ctr *c, fleet_slot_role role, fleet_var *x,
                            int64_t n, fleet_var **vectors)
{
    const int64_t dim = c->o.embedding_dim;
    fleet_program *p = c->p;
    fleet_var *w = fl_ctr_rows_of(c, role, dim, "_out", zero, NULL);
    fleet_var *b = fl_ctr_rows_of(c, role, 1, "_bias", zero, NULL), *dots;

    if (vectors)
        *vectors = w;
    x = fleet_reshape(p, x, (int64_t[]){-1, 1, dim}, 3);
    w = fleet_reshape(p, w, (int64_t[]){-1, n, dim}, 3);
    dots = fleet_batch_matmul(p, x, w, 0, 1);
    return fleet_add(p, fleet_reshape(p, dots, (int64_t[]){-1, n}, 2), b);
}

/* Of the slot of negatives; 0: there is none. */
static int64_t n_negative(const fl_ctr *c)
{
    for (int i = 0; i < c->o.n_ids; i++)
        if (c->o.ids[i].role == FLEET_SLOT_NEGATIVE)
            return c->o.ids[i].dim ? c->o.ids[i].dim : 1;
    return 0;
}

/* -log of the probability; of a label 0 that of its being none. */
static fleet_var *item_loss(fl_ctr *c, fleet_var *logit, const fleet_model *m)
{
    return m->label ? fleet_sigmoid_cross_entropy(c->p, logit, m->label)
                    : fleet_softplus(c->p, fleet_scale(c->p, logit, -1, 0));
}

static void word2vec(fl_ctr *c, fleet_model *m)
{
    const float width = 0.5f / (float)c->o.embedding_dim;
    const fleet_initializer uniform = {FLEET_INIT_UNIFORM, -width, width};
    const int64_t n = n_negative(c);
    fleet_program *p = c->p;
    fleet_var *x = fl_ctr_rows(c, c->o.embedding_dim, "", uniform, NULL);
    fleet_var *logit = logits_of(c, FLEET_SLOT_ITEM, x, 1, &m->item), *loss;

    if (n == 0 && !m->label) {
        fl_program_failed(p, fl_fail(FLEET_EINVAL,
                                     "word2vec: expected a \"negative\", or a "
                                     "label that says which items were drawn"));
        return;
    }
    m->user = x;
    m->prediction = fleet_sigmoid(p, logit);
    loss = item_loss(c, logit, m);
    if (n > 0) {
        logit = logits_of(c, FLEET_SLOT_NEGATIVE, x, n, NULL);
        logit = fleet_reduce_sum(p, fleet_softplus(p, logit), 1, 1);
        loss = fleet_add(p, loss, logit);
    }
    m->loss = fl_model_loss(p, loss, c->weights.sample);
}

static const fleet_id_slot paddle_words[] = {
    {"input_word", 1, FLEET_SUM, "emb", 0, FLEET_SLOT_FEATURE},
    {"true_label", 1, FLEET_SUM, "emb", 0, FLEET_SLOT_ITEM},
    {"neg_label", 5, FLEET_SUM, "emb", 0, FLEET_SLOT_NEGATIVE}};

const fl_ctr_model fl_model_word2vec = {
    .name = "word2vec",
    .own = {"embedding_dim"},
    .embedding_dim = 300,
    .role = {[FLEET_SLOT_FEATURE] = {1, 1},
             [FLEET_SLOT_ITEM] = {1, 1},
             [FLEET_SLOT_NEGATIVE] = {0, 1}},
    .one_id = true,
    .label_may_lack = true,
    .ids = paddle_words,
    .n_ids = 3,
    .build = word2vec};
