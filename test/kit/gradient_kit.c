/* gradient_kit.c - see gradient_kit.h. */
#define SUITE gradient_kit
#include "gradient_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/compile.h"
#include "runtime/lookup/lookup_data.h"

typedef struct row {
    const char *table;
    uint64_t key;
    int64_t dim;
    float *first, *g; /* initial weights; gradient */
} row;

typedef struct dense {
    char name[64];
    int64_t n;
    float *first, *g;
} dense;

enum { MOST_DENSE = 32, MOST_ROWS = 4000 };

struct gradients {
    kit_kind kind;
    dense dense[MOST_DENSE];
    int n_dense;
    row row[MOST_ROWS];
    int n_row;
    bool any;
};

gradients *gradients_new(const kit_model *m)
{
    gradients *g = calloc(1, sizeof *g);

    g->kind = m->kind;
    return g;
}

void gradients_free(gradients *g)
{
    for (int i = 0; i < g->n_dense; i++) {
        free(g->dense[i].first);
        free(g->dense[i].g);
    }
    for (int i = 0; i < g->n_row; i++) {
        free(g->row[i].first);
        free(g->row[i].g);
    }
    free(g);
}

static float *copy_of(const float *x, int64_t n)
{
    float *copy = malloc((size_t)n * sizeof *copy);

    memcpy(copy, x, (size_t)n * sizeof *copy);
    return copy;
}

static void add_to(float *sum, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += g[i];
}

/* --- reading ------------------------------------------------------------- */

/* The first weights of all parameters. */
static void read_first(gradients *g, const kit_model *m)
{
    const fl_store *s = m->f->store;

    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;
        dense *d = &g->dense[g->n_dense++];

        CHECK(g->n_dense <= MOST_DENSE);
        strcpy(d->name, p->name);
        d->n = p->n;
        d->first = copy_of(p->flat->weight + p->offset, p->n);
    }
}

static void add_dense(gradients *g, const kit_model *m)
{
    const fl_plan *plan = m->e->last->plan;

    for (int i = 0; i < g->n_dense; i++) {
        dense *d = &g->dense[i];
        int at = plan->gradient_of[fleet_program_var(m->p, d->name)->id];
        const float *got = fl_compiled_pointer(m->e->last, at);

        CHECK(at >= 0);
        if (d->g)
            add_to(d->g, got, d->n);
        else
            d->g = copy_of(got, d->n);
    }
}

static void add_row(gradients *g, const fl_rows *rows, uint64_t key,
                    const float *got)
{
    row *r;

    for (int i = 0; i < g->n_row; i++)
        if (g->row[i].key == key && strcmp(g->row[i].table, rows->name) == 0) {
            add_to(g->row[i].g, got, rows->dim);
            return;
        }
    r = &g->row[g->n_row++];
    CHECK(g->n_row <= MOST_ROWS);
    r->table = strcmp(rows->name, "embedding") == 0     ? "embedding"
               : strcmp(rows->name, "second") == 0      ? "second"
               : strcmp(rows->name, "second_wide") == 0 ? "second_wide"
                                                        : "embedding_wide";
    r->key = key;
    r->dim = rows->dim;
    r->first = malloc((size_t)rows->dim * sizeof(float));
    fl_filler_row(&rows->filler, key, r->first, rows->dim);
    r->g = copy_of(got, rows->dim);
}

static void add_rows(gradients *g, const kit_model *m)
{
    const fl_plan *plan = m->e->last->plan;

    for (size_t i = 0; i < plan->n_sparse; i++) {
        const fl_lookup *k =
            fl_compiled_pointer(m->e->last, plan->sparse[i].lookup);

        for (int p = 0; p < FL_N_PART; p++) {
            const fl_lookup_part *part = &k->part[p];

            for (int64_t j = 0; j < part->n_grad; j++)
                add_row(g, k->rows, part->keys.key[part->which[j]],
                        part->grad[j]);
        }
    }
}

void gradients_add(gradients *g, const kit_batch *b)
{
    kit_model m; /* a new one: the first weights */

    kit_open(&m, g->kind, &(kit_options){.optimizer = "sgd"});
    if (!g->any)
        read_first(g, &m);
    g->any = true;
    CHECK_OK(kit_run(m.e, b));
    add_dense(g, &m);
    add_rows(g, &m);
    kit_close(&m);
}

/* --- by hand ------------------------------------------------------------- */

static double square_of(const float *g, int64_t n, float scale)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)(g[i] * scale) * (double)(g[i] * scale);
    return sum;
}

double gradients_square(const gradients *g, float scale)
{
    double sum = 0;

    for (int i = 0; i < g->n_dense; i++)
        sum += square_of(g->dense[i].g, g->dense[i].n, scale);
    for (int i = 0; i < g->n_row; i++)
        sum += square_of(g->row[i].g, g->row[i].dim, scale);
    return sum;
}

static void check_weights(const char *name, const float *got,
                          const float *first, const float *g, int64_t n,
                          const sgd_step *s)
{
    for (int64_t i = 0; i < n; i++) {
        float scaled = g[i] * s->scale, clipped = scaled * s->clip;
        float decay = s->decay * first[i], all = clipped + decay;
        float step = s->rate * all, want = first[i] - step;
        double off = fabs((double)got[i] - (double)want);
        bool good = off <= s->tolerance * fabs((double)step);

        if (s->tolerance > 0) /* and the weight is rounded */
            good = good || off <= 0x1p-23 * fabs((double)want);

        if (!good)
            test_fail(__FILE__, __LINE__, "%s[%lld] is %.9g, not %.9g", name,
                      (long long)i, (double)got[i], (double)want);
    }
}

/* With the clip by a norm of its own. */
static sgd_step step_of(const sgd_step *all, double squares)
{
    sgd_step one = *all;

    if (all->norm > 0 && sqrt(squares) > all->norm)
        one.clip = (float)(all->norm / sqrt(squares));
    return one;
}

static double table_square(const gradients *g, const char *table, float scale)
{
    double sum = 0;

    for (int i = 0; i < g->n_row; i++)
        if (strcmp(g->row[i].table, table) == 0)
            sum += square_of(g->row[i].g, g->row[i].dim, scale);
    return sum;
}

void gradients_check(const gradients *g, const kit_model *m,
                     const sgd_step *step)
{
    int64_t rows = 0;

    for (int i = 0; i < g->n_dense; i++) {
        const dense *d = &g->dense[i];
        const fl_param *p = fl_store_param(m->f->store, d->name);

        sgd_step one = step_of(step, square_of(d->g, d->n, step->scale));

        check_weights(d->name, p->flat->weight + p->offset, d->first, d->g,
                      d->n, &one);
    }
    for (int i = 0; i < g->n_row; i++) {
        const row *r = &g->row[i];
        fl_rows *table = fl_store_rows(m->f->store, r->table);
        float *w;

        CHECK_OK(table->methods->find(table, &r->key, 1, &w));
        CHECK(w != NULL);
        sgd_step one = step_of(step, table_square(g, r->table, step->scale));

        check_weights(r->table, w, r->first, r->g, r->dim, &one);
    }
    for (size_t i = 0; i < m->f->store->tables.n; i++) {
        const fl_rows *table = m->f->store->tables.entry[i].value;

        rows += table->methods->count(table);
    }
    CHECK_INT(rows, g->n_row);
}
