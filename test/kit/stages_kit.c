/* stages_kit.c - see stages_kit.h. */
#define SUITE stages_kit
#include "stages_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/store/store_hash.h"
#include "test.h"

stages_model stages_model_of(stages_builder *build)
{
    static const fleet_dense_slot dense[] = {{.name = "x", .dim = 3}};
    static const fleet_id_slot ids[] = {
        {.name = "a"}, {.name = "b", .table = "own"}, {.name = "c", .dim = -1}};
    static const int64_t hidden[] = {8, 6};
    stages_model m = {.build = build,
                      .ctr = {.dense = dense,
                              .n_dense = 1,
                              .ids = ids,
                              .n_ids = 3,
                              .embedding_dim = 4,
                              .hidden = hidden,
                              .n_hidden = 2}};

    return m;
}

kit_batch *stages_batch(int64_t rows, int seed)
{
    kit_batch *b = kit_batch_new(rows);

    kit_ids(b, "label", 1, 2, 10 * seed + 1);
    kit_floats(b, "x", 3, 10 * seed + 2);
    kit_ids(b, "a", 1, 30, 10 * seed + 3);
    kit_ids(b, "b", 1, 30, 10 * seed + 4);
    kit_ragged(b, "c", 3, 30, 10 * seed + 5);
    return b;
}

/* --- the whole ------------------------------------------------------------ */

void stages_whole_build(stages_whole *w, const stages_model *how)
{
    *w = (stages_whole){.f = kit_handle(&how->how)};
    w->p = fleet_program_create(w->f);
    CHECK(how->build(w->p, &how->ctr, &w->m) != NULL);
    CHECK_OK(fleet_minimize(kit_optimizer(w->f, &how->how), w->m.loss));
}

void stages_whole_close(stages_whole *w)
{
    fleet_executor_destroy(w->e);
    fleet_destroy(w->f);
}

/* --- from stage to stage -------------------------------------------------- */

/* Without gaps, and ragged data with their offsets. */
static fleet_feed copy_value(const fl_stage_value *v, int64_t *dims)
{
    const size_t size = fleet_dtype_size(v->var->dtype);
    const int64_t n = v->offsets ? v->offsets[v->rows] : v->rows * v->cols;
    char *to = malloc((size_t)n * size + 1);
    int64_t *offsets = NULL;

    for (int64_t r = 0; !v->offsets && r < v->rows; r++)
        memcpy(to + (size_t)(r * v->cols) * size,
               (const char *)v->data + (size_t)(r * v->ld) * size,
               (size_t)v->cols * size);
    if (v->offsets) {
        memcpy(to, v->data, (size_t)n * size);
        offsets = malloc((size_t)(v->rows + 1) * sizeof *offsets);
        memcpy(offsets, v->offsets, (size_t)(v->rows + 1) * sizeof *offsets);
    }
    memcpy(dims, v->var->shape.dim, sizeof v->var->shape.dim);
    dims[0] = v->rows;
    return (fleet_feed){.name = v->var->name,
                        .dtype = v->var->dtype,
                        .data = to,
                        .dims = dims,
                        .n_dim = v->offsets ? 1 : v->var->shape.n_dim,
                        .offsets = offsets};
}

static fleet_status send_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    stages_one *from = (stages_one *)(void *)link;
    stages_sent *sent = &from->sent[b->number];

    CHECK(b->trains && b->n_value <= KIT_MOST_FEEDS);
    CHECK(b->number < STAGES_FLIGHT && from->n_sent == b->number);
    from->n_sent = b->number + 1;
    for (int i = 0; i < b->n_value; i++)
        sent->feed[i] = copy_value(&b->value[i], sent->dims[i]);
    sent->n = b->n_value;
    if (from->all->watch)
        from->all->watch(from->all->arg, from->number, b);
    return FLEET_OK;
}

static fleet_status run_next(stages_one *next, stages_sent *sent, float *loss)
{
    fleet_fetch fetch = {.var = next->loss, .data = loss, .size = sizeof *loss};
    fleet_status status =
        fleet_executor_run(next->e, sent->feed, sent->n, &fetch, 1);

    for (int i = 0; i < sent->n; i++) {
        free((void *)(uintptr_t)sent->feed[i].data);
        free((void *)(uintptr_t)sent->feed[i].offsets);
    }
    return status;
}

static fleet_status receive_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    stages_one *from = (stages_one *)(void *)link, *next = from + 1;

    CHECK(b->alone || from->n_sent == link->n_in_flight);
    CHECK(from->n_sent > b->number && from->n_received == b->number);
    from->n_received++;
    if (b->last)
        from->n_sent = from->n_received = 0;
    FL_TRY(run_next(next, &from->sent[b->number], b->loss));
    for (int i = 0; i < b->n_gradient; i++) {
        fl_stage_value *g = &b->gradient[i];

        CHECK(g->ld == g->cols);
        FL_TRY(fl_stage_gradient(next->e,
                                 fleet_program_var(next->p, g->var->name),
                                 g->data, g->rows * g->cols));
    }
    if (from->all->watch)
        from->all->watch(from->all->arg, from->number, b);
    return FLEET_OK;
}

void stages_open(stages *s, const fl_cut *cut, const stages_model *how)
{
    CHECK(cut->n_stage <= STAGES_MOST);
    s->n = cut->n_stage;
    for (int i = 0; i < s->n; i++) {
        stages_one *one = &s->one[i];

        *one = (stages_one){.link = {send_batch, receive_batch, 0},
                            .all = s,
                            .number = i,
                            .f = kit_handle(&how->how)};
        CHECK_OK(
            fl_stage_program(one->f, cut, i, &one->link, &one->p, &one->loss));
        CHECK_OK(fleet_minimize(kit_optimizer(one->f, &how->how), one->loss));
        one->e = fleet_executor_create(one->p, NULL);
        CHECK(one->e != NULL);
    }
}

void stages_close(stages *s)
{
    for (int i = 0; i < s->n; i++) {
        fleet_executor_destroy(s->one[i].e);
        fleet_destroy(s->one[i].f);
    }
}

fleet_status stages_run(stages *s, const kit_batch *b, float *loss)
{
    const stages_one *first = &s->one[0];
    fleet_feed feed[KIT_MOST_FEEDS], own[KIT_MOST_FEEDS];
    fleet_fetch fetch = {
        .var = first->loss, .data = loss, .size = sizeof *loss};
    int n = kit_feeds(b, feed), n_own = 0;

    for (int i = 0; i < n; i++)
        if (fleet_program_var(first->p, feed[i].name))
            own[n_own++] = feed[i];
    return fleet_executor_run(first->e, own, n_own, &fetch, 1);
}

/* --- what is trained ------------------------------------------------------ */

static void check_params(const fl_store *part, const fl_store *whole, size_t *n)
{
    for (size_t i = 0; i < part->params.n; i++) {
        const fl_param *a = part->params.entry[i].value;
        const fl_param *b = fl_store_param(whole, a->name);

        CHECK(b && b->n == a->n);
        CHECK(memcmp(a->flat->weight + a->offset, b->flat->weight + b->offset,
                     (size_t)a->n * sizeof(float)) == 0);
    }
    *n += part->params.n;
}

static void check_tables(const fleet_program *p, const fl_store *part,
                         const fl_store *whole)
{
    for (size_t i = 0; i < p->n_var; i++) {
        uint64_t a, b;

        if (p->var[i]->kind != FL_VAR_TABLE)
            continue;
        CHECK_OK(fl_store_hash_rows(fl_store_rows(part, p->var[i]->name), &a));
        CHECK_OK(fl_store_hash_rows(fl_store_rows(whole, p->var[i]->name), &b));
        CHECK(a == b && a != 0);
    }
}

void stages_check_kept(const stages *s, const fleet *whole)
{
    size_t n = 0;

    for (int i = 0; i < s->n; i++) {
        check_params(s->one[i].f->store, whole->store, &n);
        check_tables(s->one[i].p, s->one[i].f->store, whole->store);
    }
    CHECK_INT((int)n, (int)whole->store->params.n);
}
