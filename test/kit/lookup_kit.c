/* lookup_kit.c - see lookup_kit.h. */
#define SUITE lookup_kit
#include "lookup_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/lookup/wanted_rows.h"

const lookup_case lookup_kit_pooled = {
    .slot = {{"one", 0, 1, FLEET_SUM, 40},
             {"sum", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50},
             {"root", 1, -1, FLEET_SQRT, 20},
             {"most", 0, -1, FLEET_MAX, 4},
             {"heaviest", 0, -1, FLEET_MAX, 20}},
    .weighted = 1 << 1 | 1 << 2 | 1 << 5,
    .n = 6,
    .dim = {9, 3},
    .concat = true,
    .batch = 37,
    .threads = 2,
};

const lookup_case lookup_kit_padded = {
    .slot = {{"end", 0, -1, FLEET_SUM, 50},
             {"one", 0, 1, FLEET_SUM, 40},
             {"start", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50},
             {"newest", 1, -1, FLEET_LAST, 20},
             {"oldest", 0, -1, FLEET_FIRST, 60}},
    .most = {3, 0, 2, 0, 0, 0},
    .keep_first = 1 << 2,
    .weighted = 1 << 0 | 1 << 3,
    .n = 6,
    .dim = {9, 3},
    .concat = true,
    .batch = 37,
    .threads = 2,
};

/* --- the plain reference -------------------------------------------------- */

static void plain_open(plain_table *t, const char *name, int64_t dim)
{
    float limit = sqrtf(1.0f / (float)dim);
    fleet_initializer i = {FLEET_INIT_UNIFORM, -limit, limit};

    t->filler = fl_filler_make(&i, dim, dim, 7, name); /* the kit's seed */
    t->dim = dim;
    t->n = 0;
    t->key = malloc(MOST_ROWS * sizeof *t->key);
    t->w = malloc((size_t)(MOST_ROWS * dim) * sizeof *t->w);
    t->g = malloc((size_t)(MOST_ROWS * dim) * sizeof *t->g);
    t->used = calloc(MOST_ROWS, sizeof *t->used);
    t->now = calloc(MOST_ROWS, sizeof *t->now);
}

static void plain_close(plain_table *t)
{
    free(t->key);
    free(t->w);
    free(t->g);
    free(t->used);
    free(t->now);
}

static int plain_row(plain_table *t, uint64_t key)
{
    for (int i = 0; i < t->n; i++)
        if (t->key[i] == key)
            return i;
    CHECK(t->n < MOST_ROWS);
    t->key[t->n] = key;
    fl_filler_row(&t->filler, key, t->w + t->n * t->dim, t->dim);
    return t->n++;
}

/* One contribution: the first is copied, each later one added. */
static void plain_add(plain_table *t, uint64_t key, const float *g,
                      float factor)
{
    int r = plain_row(t, key);

    for (int64_t i = 0; i < t->dim; i++) {
        float x = g[i] * factor;
        float *sum = &t->g[r * t->dim + i];

        *sum = t->now[r] ? *sum + x : x;
    }
    t->now[r] = t->used[r] = true;
}

/* SGD with L2 decay on the rows of this step. */
static void plain_step(plain_table *t, float rate, float decay)
{
    for (int r = 0; r < t->n; r++) {
        for (int64_t i = 0; t->now[r] && i < t->dim; i++) {
            float *w = &t->w[r * t->dim + i], d = decay * *w;
            float all = t->g[r * t->dim + i] + d, step = rate * all;

            *w -= step;
        }
        t->now[r] = false;
    }
}

/* --- the scene ----------------------------------------------------------- */

const char *const lookup_tables[] = {"first", "second"};

/* What outputs are multiplied by, if each has a loss of its own. */
static const char *const by_names[] = {"by0", "by1", "by2",
                                       "by3", "by4", "by5"};

/* Are its rows side by side? */
static bool is_wide(const lookup_case *c, int i)
{
    return c->slot[i].width >= 0 || c->most[i] > 0;
}

static int64_t out_cols(const lookup_case *c, int i)
{
    const lookup_slot *s = &c->slot[i];

    return c->dim[s->table] * (c->most[i] > 0 ? c->most[i]
                               : s->width < 0 ? 1
                                              : s->width);
}

/* Of a sample's n ids the ones that count; returns which is the first. */
static int64_t kept_of(const lookup_case *c, int i, int64_t *n)
{
    fleet_combiner by = c->slot[i].combiner;
    bool one = by == FLEET_FIRST || by == FLEET_LAST;
    int64_t all = *n, most = one ? 1 : c->most[i] > 0 ? c->most[i] : all;
    bool first = one ? by == FLEET_FIRST : c->keep_first >> i & 1;

    *n = all < most ? all : most;
    return first ? 0 : all - *n;
}

static bool is_weighted(const lookup_case *c, int i)
{
    return c->weighted >> i & 1;
}

static fleet_var *ids_data(const lookup_scene *s, int i)
{
    const lookup_slot *slot = &s->c->slot[i];

    if (is_weighted(s->c, i))
        return fleet_data_weighted(s->p, slot->name);
    return slot->width < 0 ? fleet_data_ragged(s->p, slot->name)
                           : fleet_data(s->p, slot->name, FLEET_INT64,
                                        (int64_t[]){-1, slot->width}, 2);
}

static fleet_var *lookup_of(lookup_scene *s, int i)
{
    const lookup_case *c = s->c;
    const lookup_slot *slot = &c->slot[i];
    int64_t dim = c->dim[slot->table];
    const fleet_sparse_embedding_options o = {.table =
                                                  lookup_tables[slot->table],
                                              .rows = c->rows,
                                              .initializer = c->first,
                                              .combiner = slot->combiner,
                                              .check_ids = c->check_ids,
                                              .learning_rate = c->learning_rate,
                                              .l2_decay = c->l2_decay};

    s->ids[i] = ids_data(s, i);
    if (c->most[i] == 0)
        return fleet_sparse_embedding(s->p, s->ids[i], dim, &o);
    return fleet_reshape(s->p,
                         fleet_sequence_embedding(s->p, s->ids[i], dim,
                                                  c->most[i],
                                                  c->keep_first >> i & 1, &o),
                         (int64_t[]){-1, c->most[i] * dim}, 2);
}

/* The mean of what is looked up times a number of its own for each element. */
static fleet_var *loss_of(lookup_scene *s, fleet_var *x, const char *name,
                          int64_t cols)
{
    fleet_var *by =
        fleet_data(s->p, name, FLEET_FLOAT32, (int64_t[]){-1, cols}, 2);

    return fleet_mean(s->p, fleet_mul(s->p, x, by));
}

static void build(lookup_scene *s)
{
    const lookup_case *c = s->c;

    for (int i = 0; i < c->n; i++) {
        s->out[i] = lookup_of(s, i);
        s->cols += out_cols(c, i);
    }
    if (c->concat) {
        s->all = fleet_concat(s->p, s->out, c->n, 1);
        s->loss = loss_of(s, s->all, "by", s->cols);
        return;
    }
    for (int i = 0; i < c->n; i++) {
        fleet_var *one = loss_of(s, s->out[i], by_names[i], out_cols(c, i));

        s->loss = s->loss ? fleet_add(s->p, s->loss, one) : one;
    }
}

void lookup_open(lookup_scene *s, const lookup_case *c)
{
    kit_options o = {.threads = c->threads,
                     .device = c->device,
                     .optimizer = c->optimizer ? c->optimizer : "sgd",
                     .learning_rate = 0.5f,
                     .clip = c->clip,
                     .norm_clip = c->norm_clip,
                     .merge = c->merge,
                     .make_rows = c->make_rows};

    *s = (lookup_scene){.c = c};
    s->f = kit_handle(&o);
    s->p = fleet_program_create(s->f);
    kit_place(s->p, &o);
    build(s);
    CHECK_OK(fleet_program_status(s->p));
    CHECK_OK(fleet_minimize(kit_optimizer(s->f, &o), s->loss));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
    for (int t = 0; t < 2; t++)
        plain_open(&s->table[t], lookup_tables[t], c->dim[t]);
}

void lookup_close(lookup_scene *s)
{
    for (int t = 0; t < 2; t++)
        plain_close(&s->table[t]);
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

/* --- a step in both ------------------------------------------------------- */

kit_batch *lookup_batch(const lookup_scene *s, int step)
{
    const lookup_case *c = s->c;
    kit_batch *b = kit_batch_new(c->batch);

    for (int i = 0; i < c->n; i++) {
        const lookup_slot *slot = &c->slot[i];

        if (slot->width < 0)
            kit_ragged(b, slot->name, 4, slot->below, step * 10 + i);
        else
            kit_ids(b, slot->name, slot->width, slot->below, step * 10 + i);
    }
    if (c->concat)
        kit_floats(b, "by", s->cols, step);
    for (int i = 0; !c->concat && i < c->n; i++)
        kit_floats(b, by_names[i], out_cols(c, i), step * 10 + i);
    for (int i = 0; i < c->n; i++)
        if (is_weighted(c, i))
            kit_weights(b, fleet_var_name(fleet_var_weights(s->ids[i])), i,
                        step * 10 + i + 1000);
    return b;
}

/* The ids of a sample in a slot that count. */
static const int64_t *ids_of(const lookup_scene *s, const kit_batch *b, int i,
                             int64_t sample, int64_t *n)
{
    const fleet_feed *f = &b->feed[i];
    const int64_t *id = f->data;

    *n = f->offsets ? f->offsets[sample + 1] - f->offsets[sample]
                    : s->c->slot[i].width;
    if (!f->offsets)
        return id + sample * *n;
    return id + f->offsets[sample] + kept_of(s->c, i, n);
}

/* The weights of a sample in a slot; NULL: it has none. */
static const float *weights_of(const lookup_scene *s, const kit_batch *b, int i,
                               int64_t sample)
{
    const fleet_var *w = fleet_var_weights(s->ids[i]);

    for (int f = 0; w && f < b->n; f++)
        if (strcmp(b->feed[f].name, fleet_var_name(w)) == 0) {
            const int64_t *at = b->feed[f].offsets + sample;
            int64_t n = at[1] - at[0];

            return (const float *)b->feed[f].data + at[0] +
                   kept_of(s->c, i, &n);
        }
    return NULL;
}

static uint64_t key_of(const lookup_scene *s, int64_t id)
{
    return s->c->rows ? (uint64_t)id % (uint64_t)s->c->rows : (uint64_t)id;
}

/* What the sum of a sample's n ids is multiplied by. */
static float factor_of(const lookup_slot *slot, int64_t n)
{
    if (slot->width >= 0 || n < 2)
        return 1.0f;
    return slot->combiner == FLEET_MEAN   ? 1.0f / (float)n
           : slot->combiner == FLEET_SQRT ? 1.0f / sqrtf((float)n)
                                          : 1.0f;
}

/* Row j of a sample of pooled ids, times its weight. */
static void plain_part(lookup_scene *s, int i, uint64_t key, const float *by,
                       float *part)
{
    plain_table *t = &s->table[s->c->slot[i].table];
    const float *w = t->w + plain_row(t, key) * t->dim;

    for (int64_t k = 0; k < t->dim; k++)
        part[k] = by ? *by * w[k] : w[k];
}

/* What slot i gives for a sample; *won: of a maximum, whose id by column. */
static void plain_pool(lookup_scene *s, const kit_batch *b, int i,
                       int64_t sample, float *out, int64_t *won)
{
    const lookup_slot *slot = &s->c->slot[i];
    int64_t n, dim = s->table[slot->table].dim;
    const int64_t *id = ids_of(s, b, i, sample, &n);
    const float *by = weights_of(s, b, i, sample);
    float part[MOST_DIM];

    memset(out, 0, (size_t)out_cols(s->c, i) * sizeof *out);
    for (int64_t j = 0; j < n; j++) {
        plain_part(s, i, key_of(s, id[j]), by ? by + j : NULL, part);
        for (int64_t k = 0; k < dim; k++) {
            bool wins = j == 0 || part[k] > out[k];

            if (is_wide(s->c, i))
                out[j * dim + k] = part[k];
            else if (slot->combiner != FLEET_MAX)
                out[k] = j > 0 ? out[k] + part[k] : part[k];
            else if (wins)
                out[k] = part[k];
            if (slot->width < 0 && wins)
                won[k] = j;
        }
    }
    for (int64_t k = 0; factor_of(slot, n) != 1.0f && k < dim; k++)
        out[k] *= factor_of(slot, n);
}

static void plain_lookup(lookup_scene *s, const kit_batch *b, int i,
                         int64_t sample, float *out)
{
    int64_t won[MOST_DIM];

    plain_pool(s, b, i, sample, out, won);
}

/* A slot's gradients of a sample, id by id. */
static void plain_gradient(lookup_scene *s, const kit_batch *b, int i,
                           int64_t sample, const float *g)
{
    const lookup_slot *slot = &s->c->slot[i];
    plain_table *t = &s->table[slot->table];
    int64_t n, won[MOST_DIM];
    const int64_t *id = ids_of(s, b, i, sample, &n);
    const float *by = weights_of(s, b, i, sample);
    float out[3 * MOST_DIM], part[MOST_DIM];

    plain_pool(s, b, i, sample, out, won);
    for (int64_t j = 0; j < n; j++) {
        const float *of = g + (is_wide(s->c, i) ? j * t->dim : 0);
        float factor = factor_of(slot, n);

        if (by)
            factor *= by[j];
        for (int64_t k = 0; k < t->dim; k++)
            part[k] =
                slot->width >= 0 || slot->combiner != FLEET_MAX || won[k] == j
                    ? of[k] * factor
                    : 0.0f;
        plain_add(t, key_of(s, id[j]), part, 1.0f);
    }
}

/* Gradients in the order of (sample, slot, position), then the update. */
static void plain_train(lookup_scene *s, const kit_batch *b)
{
    const lookup_case *c = s->c;
    float g[MOST_SLOTS * 3 * MOST_DIM];

    for (int64_t r = 0; r < c->batch; r++) {
        int64_t at = 0;

        for (int i = 0; i < c->n; i++) {
            int64_t cols = out_cols(c, i), all = c->concat ? s->cols : cols;
            const float *by = b->feed[c->concat ? c->n : c->n + i].data;

            by += r * all + (c->concat ? at : 0);
            for (int64_t k = 0; k < cols; k++)
                g[k] = 1.0f / (float)(c->batch * all) * by[k];
            plain_gradient(s, b, i, r, g);
            at += cols;
        }
    }
    for (int t = 0; t < 2; t++)
        plain_step(&s->table[t],
                   0.5f * (c->learning_rate > 0 ? c->learning_rate : 1),
                   c->l2_decay);
}

static void check_bits(const char *what, const float *got, const float *want,
                       int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            test_fail(__FILE__, __LINE__, "%s[%lld] is %.9g, not %.9g", what,
                      (long long)i, (double)got[i], (double)want[i]);
}

/* The outputs of the iteration that ran, before its update. */
static void check_outputs(lookup_scene *s, const kit_batch *b, const float *all)
{
    float want[3 * MOST_DIM];

    for (int64_t r = 0; r < s->c->batch; r++)
        for (int i = 0; i < s->c->n; i++) {
            plain_lookup(s, b, i, r, want);
            check_bits(s->c->slot[i].name, all, want, out_cols(s->c, i));
            all += out_cols(s->c, i);
        }
}

/* Run a batch; outputs come side by side, fetched together or one by one. */
static void run_and_fetch(lookup_scene *s, const kit_batch *b, float *all)
{
    fleet_feed feed[KIT_MOST_FEEDS];
    fleet_fetch fetch[MOST_SLOTS];
    int n = s->c->concat ? 1 : s->c->n, n_feed = kit_feeds(b, feed);
    int64_t at = 0;

    for (int i = 0; i < n; i++) {
        int64_t cols = s->c->concat ? s->cols : out_cols(s->c, i);

        fetch[i] = (fleet_fetch){
            .var = s->c->concat ? s->all : s->out[i],
            .data = malloc((size_t)(b->rows * cols) * sizeof *all),
            .size = (size_t)(b->rows * cols) * sizeof *all};
    }
    CHECK_OK(fleet_executor_run(s->e, feed, n_feed, fetch, n));
    for (int i = 0; i < n; i++) {
        int64_t cols = fetch[i].dims[1];

        for (int64_t r = 0; r < b->rows; r++)
            memcpy(all + r * s->cols + at, (float *)fetch[i].data + r * cols,
                   (size_t)cols * sizeof *all);
        at += cols;
        free(fetch[i].data);
    }
}

fl_rows *lookup_rows(const lookup_scene *s, int table)
{
    return fl_store_rows(s->f->store, lookup_tables[table]);
}

static void check_table(const lookup_scene *s, int which)
{
    const plain_table *t = &s->table[which];
    fl_rows *rows = lookup_rows(s, which);
    int used = 0;

    CHECK_OK(fl_store_to_host(s->f->store));
    for (int r = 0; r < t->n; r++) {
        fl_wanted_rows wanted = {0};
        float *row;

        CHECK_OK(fl_rows_bring(&wanted, rows, &t->key[r], 1));
        CHECK_OK(rows->methods->find(rows, &t->key[r], 1, &row));
        CHECK((row != NULL) == t->used[r]);
        used += t->used[r];
        if (row)
            check_bits(lookup_tables[which], row, t->w + r * t->dim, t->dim);
        fl_wanted_rows_done(&wanted);
    }
    CHECK_INT(rows->methods->count(rows), used);
}

/* Three steps of a case against the plain reference. */
void lookup_check(const lookup_case *c)
{
    float *all;
    lookup_scene s;

    lookup_open(&s, c);
    all = malloc((size_t)(c->batch * s.cols) * sizeof *all);
    for (int step = 0; step < 3; step++) {
        kit_batch *b = lookup_batch(&s, step);

        run_and_fetch(&s, b, all);
        check_outputs(&s, b, all);
        plain_train(&s, b);
        for (int t = 0; t < 2; t++)
            if (lookup_rows(&s, t))
                check_table(&s, t);
        kit_batch_free(b);
    }
    free(all);
    lookup_close(&s);
}

uint64_t lookup_hash(const lookup_case *c)
{
    lookup_scene s;
    uint64_t hash;

    lookup_open(&s, c);
    for (int step = 0; step < 3; step++) {
        kit_batch *b = lookup_batch(&s, step);

        CHECK_OK(kit_run(s.e, b));
        kit_batch_free(b);
    }
    hash = kit_hash(s.f);
    lookup_close(&s);
    return hash;
}
