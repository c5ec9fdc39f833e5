/* gpu_ids.c - what of a plan's part on a GPU depends on how many ids a batch
 * has: memory of ragged feeds, of lookups' positions, of tables' rows.
 *
 * Feeds and positions grow by half, before a batch that needs it is fed; that
 * waits for all that is under way, and steps are prepared anew. */
#include "runtime/exec/gpu/gpu_ids.h"

#include <inttypes.h>

#include "base/memory.h"
#include "runtime/exec/gpu/gpu_run.h"
#include "runtime/lookup/lookup_gpu.h"
#include "runtime/optim/own_optimizers.h"

static size_t aligned_bytes(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* --- feeds --------------------------------------------------------------- */

static bool is_feed(const fl_value *v, size_t i)
{
    return v->kind == FL_VALUE_FEED && v->on_gpu && v->root == (int)i;
}

size_t fl_gpu_plan_offsets_at(const fl_value *v)
{
    return aligned_bytes((size_t)v->most_ids * sizeof(int64_t));
}

static size_t feed_bytes(const fl_plan *plan, const fl_value *v)
{
    if (!v->var->ragged)
        return aligned_bytes(fl_value_bytes(plan, v));
    return fl_gpu_plan_offsets_at(v) +
           aligned_bytes((size_t)(plan->batch + 1) * sizeof(int64_t));
}

static size_t lay_out_feeds(fl_plan *plan)
{
    size_t bytes = 0;

    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (!is_feed(v, i))
            continue;
        if (v->var->ragged && v->most_ids == 0)
            v->most_ids = plan->batch;
        v->staged_at = bytes;
        bytes += feed_bytes(plan, v);
    }
    return bytes;
}

fleet_status fl_gpu_plan_place_feeds(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;
    fl_gpu *g = t->gpu;
    size_t bytes = lay_out_feeds(c->plan);
    fleet_status status = FLEET_OK;
    char *feed[2] = {NULL, NULL};

    for (int s = 0; s < 2 && status == FLEET_OK; s++) {
        void *made = NULL;

        status = g->m->alloc(g->d, g->queue, bytes, &made);
        feed[s] = made;
        if (status == FLEET_OK)
            status = g->m->fill(g->d, g->queue, made, 0, bytes);
    }
    for (int s = 0; s < 2; s++)
        g->m->free(g->d, g->queue, status == FLEET_OK ? t->feed[s] : feed[s]);
    FL_TRY(status);
    for (int s = 0; s < 2; s++)
        t->feed[s] = feed[s];
    t->feed_bytes = bytes;
    return FLEET_OK;
}

/* --- positions ----------------------------------------------------------- */

static int64_t ids_of_feed(const fl_plan *plan, const fleet_var *v)
{
    for (size_t i = 0; i < plan->n_value; i++)
        if (is_feed(&plan->value[i], i) && plan->value[i].var == v)
            return plan->value[i].most_ids;
    return 0;
}

static int64_t capacity_of(const fl_plan *plan, const fl_numbered *k)
{
    int64_t n = 0;

    if (k->of)
        return k->times * capacity_of(plan, k->of);
    for (int i = 0; i < k->n_slot; i++) {
        const fleet_var *ids = k->slot[i].ids;

        n += ids->ragged ? ids_of_feed(plan, ids)
                         : plan->batch * fl_shape_cols(&ids->shape);
    }
    return n;
}

static fleet_status check_capacities(const fl_plan *plan)
{
    for (const fl_numbered *k = plan->numbered; k; k = k->next) {
        int64_t n = capacity_of(plan, k);

        if (n >= INT32_MAX)
            return fl_fail(FLEET_EINVAL,
                           "table \"%s\": too many ids in a %s: room for "
                           "%" PRId64 " would be needed on gpu:%d",
                           k->table->name, k->of ? "merge group" : "batch", n,
                           plan->place->gpu->d->ordinal);
    }
    return FLEET_OK;
}

/* An array for `capacity` positions, and one more; its contents stay. */
static fleet_status resize_value(fl_compiled *c, size_t i, int64_t capacity)
{
    fl_value *v = &c->plan->value[i], like = *v;
    fl_gpu_plan *t = c->gpu;
    fl_gpu *g = t->gpu;
    void *made;

    like.shape.dim[0] = capacity + 1;
    if (t->stored[i] && v->shape.dim[0] >= like.shape.dim[0])
        return FLEET_OK;
    FL_TRY(g->m->alloc(g->d, g->queue, fl_value_bytes(c->plan, &like), &made));
    if (t->stored[i])
        FL_TRY(g->m->copy(g->d, g->queue, made, t->stored[i],
                          fl_value_bytes(c->plan, v), FL_ON_DEVICE));
    g->m->free(g->d, g->queue, t->stored[i]);
    t->stored[i] = made;
    v->shape = like.shape;
    return FLEET_OK;
}

static fleet_status resize_all(fl_compiled *c, fl_numbered *k)
{
    int64_t capacity = capacity_of(c->plan, k);

    for (size_t i = 0; i < c->plan->n_value; i++)
        if (c->plan->value[i].positions == &k->config)
            FL_TRY(resize_value(c, i, capacity));
    if (capacity > k->config.capacity)
        k->config.capacity = capacity;
    return FLEET_OK;
}

fleet_status fl_gpu_plan_make_positions(fl_compiled *c)
{
    lay_out_feeds(c->plan);
    FL_TRY(check_capacities(c->plan));
    for (fl_numbered *k = c->plan->numbered; k; k = k->next)
        FL_TRY(resize_all(c, k));
    return FLEET_OK;
}

/* --- a batch with more ids ----------------------------------------------- */

static int64_t ids_fed(const fl_value *v, const fl_input *input, int64_t batch)
{
    return input[v->var->id].offsets[batch];
}

static bool has_outgrown(const fl_plan *plan, const fl_input *input,
                         int64_t batch)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        const fl_value *v = &plan->value[i];

        if (is_feed(v, i) && v->var->ragged &&
            ids_fed(v, input, batch) > v->most_ids)
            return true;
    }
    return false;
}

static void want_ids(fl_plan *plan, const fl_input *input, int64_t batch)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];
        int64_t n, more = v->most_ids + v->most_ids / 2;

        if (!is_feed(v, i) || !v->var->ragged)
            continue;
        n = ids_fed(v, input, batch);
        if (n > v->most_ids)
            v->most_ids = n > more ? n : more;
        if (v->most_ids > INT32_MAX) /* too many, and no sum overflows */
            v->most_ids = INT32_MAX;
    }
}

/* Room for the ids that are wanted. If it fails, what has moved is only larger
 * than it had to be. */
static fleet_status make_larger(fl_compiled *c)
{
    FL_TRY(check_capacities(c->plan));
    FL_TRY(fl_gpu_plan_unprepare(c));
    for (fl_numbered *k = c->plan->numbered; k; k = k->next)
        FL_TRY(resize_all(c, k));
    FL_TRY(fl_gpu_plan_place_feeds(c));
    return fl_gpu_wait(c->gpu->gpu); /* feeds are copied on another queue */
}

static fleet_status grow_for(fl_compiled *c, const fl_input *input,
                             int64_t batch)
{
    fl_plan *plan = c->plan;
    fleet_status status;
    int64_t *before;

    FL_TRY(FL_NEW(&before, plan->n_value * sizeof *before));
    for (size_t i = 0; i < plan->n_value; i++)
        before[i] = plan->value[i].most_ids;
    want_ids(plan, input, batch);
    status = make_larger(c);
    for (size_t i = 0; status != FLEET_OK && i < plan->n_value; i++)
        plan->value[i].most_ids = before[i];
    fl_free(before);
    if (status != FLEET_OK)
        lay_out_feeds(plan);
    else
        status = fl_gpu_plan_place_pinned(c);
    return status;
}

static int64_t ids_of_batch(const fl_numbered *k, const fl_input *input,
                            int64_t batch)
{
    int64_t n = 0;

    for (int i = 0; i < k->n_slot; i++) {
        const fleet_var *ids = k->slot[i].ids;

        n += ids->ragged ? input[ids->id].offsets[batch]
                         : batch * fl_shape_cols(&ids->shape);
    }
    return n;
}

fleet_status fl_gpu_plan_begin_ids(fl_compiled *c, const fl_input *input,
                                   int64_t batch, int micro)
{
    if (has_outgrown(c->plan, input, batch))
        FL_TRY(grow_for(c, input, batch));
    for (fl_lookup_gpu *x = c->plan->lookups; x; x = x->next)
        if (x->trained)
            x->keys = (micro > 0 ? x->keys : 0) +
                      ids_of_batch(x->trained, input, batch);
    return FLEET_OK;
}

/* --- tables -------------------------------------------------------------- */

/* What never changes is copied once. */
static fleet_status find_corrections(fl_compiled *c, const fleet_optimizer *o,
                                     const float **on_gpu)
{
    fl_store *store = c->plan->store;
    float *of[2] = {o->correct_a, o->correct_b};
    fl_mirror *m;

    for (int i = 0; fl_optimizer_has_row_steps(o) && i < 2; i++) {
        FL_TRY(fl_mirror_make(store, c->gpu->gpu, of[i],
                              o->n_correct * sizeof(float), &m));
        FL_TRY(fl_mirror_use(store, of[i], true, false));
        on_gpu[i] = m->on_gpu;
    }
    return FLEET_OK;
}

static fleet_status check_number(const char *name, int own)
{
    if (own < FL_MOST_OWN)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "\"%s\" has an optimizer of its own, after %d others: that "
                   "many can be trained on a GPU",
                   name, FL_MOST_OWN);
}

/* Of dense parameters that the plan updates. */
static fleet_status check_groups(const fl_plan *plan)
{
    const fleet_optimizer *all = plan->store->optimizer;

    for (size_t i = 0; plan->training && i < all->n_own; i++)
        if (all->own[i].is_param)
            FL_TRY(check_number(
                all->own[i].name,
                fl_optimizer_own_number(all, all->own[i].name, true)));
    return FLEET_OK;
}

static fleet_status find_optimizer(fl_compiled *c, const fl_rows *rows)
{
    const fleet_optimizer *all = c->plan->store->optimizer;
    int own = fl_optimizer_own_number(all, rows->name, false);

    FL_TRY(check_number(rows->name, own));
    return find_corrections(c, fl_rows_optimizer(all, rows),
                            c->gpu->correct[1 + own]);
}

fleet_status fl_gpu_plan_find_tables(fl_compiled *c)
{
    const fl_plan *plan = c->plan;
    fl_gpu_plan *t = c->gpu;

    FL_TRY(check_groups(plan));
    for (fl_lookup_gpu *x = plan->lookups; x; x = x->next) {
        fl_rows *rows = fl_store_rows(plan->store, x->table->name);

        FL_TRY(fl_table_gpu_make(plan->store, t->gpu, rows, &x->on_gpu));
        t->stored[x->rows] = x->on_gpu->mirror.on_gpu;
        if (x->trained)
            FL_TRY(find_optimizer(c, rows));
    }
    return FLEET_OK;
}

fleet_status fl_gpu_plan_make_room(fleet_executor *e, fl_compiled *c)
{
    (void)e;
    for (fl_lookup_gpu *x = c->plan->lookups; x; x = x->next)
        if (x->trained)
            FL_TRY(fl_table_gpu_room(x->on_gpu, x->keys));
    return FLEET_OK;
}

/* --- counts -------------------------------------------------------------- */

size_t fl_gpu_plan_count_bytes(const fl_compiled *c)
{
    size_t n = 0;

    for (const fl_lookup_gpu *x = c->plan->lookups; x; x = x->next)
        n++;
    return aligned_bytes(n * sizeof(fl_rows_count));
}

fleet_status fl_gpu_plan_copy_counts(fl_compiled *c)
{
    fl_gpu_plan *t = c->gpu;
    fl_rows_count *count = (fl_rows_count *)(void *)(t->pinned + t->counts_at);

    for (fl_lookup_gpu *x = c->plan->lookups; x; x = x->next, count++)
        if (x->trained)
            FL_TRY(
                fl_gpu_plan_put(t, &(fl_gpu_command){.rows = fl_table_gpu_count(
                                                         x->on_gpu, count)}));
    return FLEET_OK;
}

void fl_gpu_plan_read_counts(const fl_compiled *c, const char *pinned)
{
    const fl_rows_count *count =
        (const fl_rows_count *)(const void *)(pinned + c->gpu->counts_at);

    for (fl_lookup_gpu *x = c->plan->lookups; x; x = x->next, count++)
        if (x->trained)
            fl_table_gpu_counted(x->on_gpu, count);
}
