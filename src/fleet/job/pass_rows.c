/* pass_rows.c - passes: ids are listed, rows come and go, parts follow each
 * other. */
#include "fleet/job/pass_rows.h"

#include <inttypes.h>

#include "base/memory.h"
#include "runtime/exec/executor.h"

static int merge_steps(const fleet_psgpu *g)
{
    return g->program->training.merge.steps;
}

/* --- ids ------------------------------------------------------------------ */

static int64_t ids_of(const fleet_slot *slot, const fl_slot_data *data,
                      int64_t rows)
{
    return data->offsets ? data->offsets[rows]
                         : rows * (slot->dim > 0 ? slot->dim : 1);
}

static fleet_status take_ids(fl_pass_table *t, const fleet_dataset *d,
                             const fl_batch *b)
{
    uint64_t modulo = (uint64_t)t->var->shape.dim[0];

    for (int i = 0; i < t->n_slot; i++) {
        const fl_slot_data *data = &b->slot[t->slot[i]];
        int64_t n = ids_of(&d->slots[t->slot[i]], data, b->rows);
        const uint64_t *id = data->values;

        FL_TRY(fl_grow(&t->key, &t->key_capacity, t->n_key + (size_t)n,
                       sizeof *t->key));
        for (int64_t k = 0; k < n; k++)
            t->key[t->n_key++] = modulo ? id[k] % modulo : id[k];
    }
    return FLEET_OK;
}

/* The next merge group; at the end of the pass what is left, or nothing. */
static fleet_status read_group(fleet_psgpu *g)
{
    int64_t end = g->read + merge_steps(g);

    for (int i = 0; i < g->n_table; i++)
        g->table[i].n_key = 0;
    while (g->read < end) {
        fl_batch *b;
        fleet_status status = fl_stream_next(g->stream, &b);

        if (status == FLEET_EEND)
            break;
        FL_TRY(status);
        for (int i = 0; i < g->n_table && status == FLEET_OK; i++)
            status = take_ids(&g->table[i], g->d, b);
        fl_stream_release(g->stream, b);
        FL_TRY(status);
        g->read++;
        g->has_group = true;
    }
    return FLEET_OK;
}

static int64_t bytes_of_part(const fleet_psgpu *g)
{
    int64_t bytes = 0;

    for (int i = 0; i < g->n_table; i++) {
        const fl_pass_table *t = &g->table[i];

        bytes += fl_table_gpu_bytes(fl_store_rows(g->f->store, t->var->name),
                                    fl_pass_keys_count(&t->set.keys));
    }
    return bytes;
}

static int64_t rows_of_part(const fleet_psgpu *g)
{
    int64_t n = 0;

    for (int i = 0; i < g->n_table; i++)
        n += fl_pass_keys_count(&g->table[i].set.keys);
    return n;
}

static fleet_status add_group(fleet_psgpu *g)
{
    fl_pool *pool = g->f->context.pool;
    bool got = fl_pool_acquire(pool);
    fleet_status status = FLEET_OK;

    for (int i = 0; i < g->n_table && status == FLEET_OK; i++) {
        fl_pass_table *t = &g->table[i];

        fl_pass_keys_mark(&t->set.keys);
        status = fl_pass_keys_add(&t->set.keys, got ? pool : NULL, t->key,
                                  (int64_t)t->n_key);
    }
    if (got)
        fl_pool_release(pool);
    return status;
}

static fleet_status group_too_large(const fleet_psgpu *g)
{
    return fl_fail(FLEET_ENOMEM,
                   "the rows of %d batch%s, %" PRId64 " to %" PRId64
                   ", take %" PRId64 " bytes of gpu:%d's memory, and %" PRId64
                   " are allowed: a part of a pass cannot be smaller",
                   merge_steps(g), merge_steps(g) > 1 ? "es" : "", g->end,
                   g->read - 1, bytes_of_part(g), g->device, g->memory_bytes);
}

/* From `end` on, as many merge groups as fit; at least one. */
static fleet_status list_part(fleet_psgpu *g)
{
    for (int i = 0; i < g->n_table; i++)
        fl_pass_keys_clear(&g->table[i].set.keys);
    g->first = g->end;
    g->is_last = false;
    for (;;) {
        if (!g->has_group)
            FL_TRY(read_group(g));
        if (!g->has_group) {
            g->is_last = true;
            return FLEET_OK;
        }
        FL_TRY(add_group(g));
        if (g->end > g->first && g->most > 0 && bytes_of_part(g) > g->most) {
            for (int i = 0; i < g->n_table; i++)
                fl_pass_keys_back(&g->table[i].set.keys);
            return FLEET_OK;
        }
        if (g->memory_bytes > 0 && bytes_of_part(g) > g->memory_bytes)
            return group_too_large(g);
        g->has_group = false;
        g->end = g->read;
    }
}

/* --- rows ----------------------------------------------------------------- */

static fleet_status send_home(fleet_psgpu *g, bool lost)
{
    fleet_status status = FLEET_OK;

    pthread_rwlock_wrlock(&g->f->store->lock);
    for (int i = 0; i < g->n_table && (lost || status == FLEET_OK); i++) {
        fleet_status one =
            fl_working_set_end(&g->table[i].set, g->f->store, lost);

        status = status == FLEET_OK ? one : status;
    }
    pthread_rwlock_unlock(&g->f->store->lock);
    return status;
}

static fleet_status bring_rows(fleet_psgpu *g)
{
    fl_store *s = g->f->store;
    fleet_status status = FLEET_OK;

    pthread_rwlock_wrlock(&s->lock);
    for (int i = 0; i < g->n_table && status == FLEET_OK; i++) {
        fl_pass_table *t = &g->table[i];

        status = fl_working_set_begin(&t->set, s, g->gpu,
                                      fl_store_rows(s, t->var->name));
    }
    pthread_rwlock_unlock(&s->lock);
    if (status != FLEET_OK) /* they have not changed */
        (void)send_home(g, true);
    return status;
}

/* Over what is left of the pass. */
static fleet_status open_stream(fleet_psgpu *g)
{
    fl_stream_close(g->stream);
    g->stream = NULL;
    FL_TRY(fl_dataset_open(g->d, true, g->bounds, &g->stream));
    g->has_group = false;
    g->end = g->read = g->d->at.batch;
    return FLEET_OK;
}

static void say_part(const fleet_psgpu *g)
{
    const long long pass = (long long)g->d->at.pass + 1;
    double mb = (double)bytes_of_part(g) * 1e-6;

    if (g->part == 1 && g->is_last)
        FL_INFO(&g->f->context.log,
                "pass %lld: %" PRId64 " rows, %.3f MB, on gpu:%d", pass,
                rows_of_part(g), mb, g->device);
    else
        FL_INFO(&g->f->context.log,
                "pass %lld does not fit into gpu:%d's memory and is cut: part "
                "%d%s, batches %" PRId64 " to %" PRId64 ", %" PRId64
                " rows, %.3f MB",
                pass, g->device, g->part, g->is_last ? ", the last" : "",
                g->first, g->end - 1, rows_of_part(g), mb);
}

/* Where the GPU has less memory than that parts get smaller, down to one merge
 * group. */
static fleet_status begin_part(fleet_psgpu *g)
{
    for (;;) {
        fleet_status status;

        FL_TRY(list_part(g));
        status = bring_rows(g);
        if (status == FLEET_OK)
            break;
        if (status != FLEET_ENOMEM || g->end - g->first <= merge_steps(g))
            return status;
        g->most = bytes_of_part(g) / 2;
        fl_error_clear();
        FL_TRY(open_stream(g));
    }
    g->part++;
    g->fresh = true;
    say_part(g);
    return FLEET_OK;
}

/* --- a pass --------------------------------------------------------------- */

static void close_pass(fleet_psgpu *g)
{
    fl_stream_close(g->stream);
    g->stream = NULL;
    for (int i = 0; i < g->n_table; i++) {
        fl_working_set_done(&g->table[i].set);
        fl_free(g->table[i].slot);
        fl_free(g->table[i].key);
    }
    fl_free(g->table);
    fl_free(g->bounds);
    g->table = NULL;
    g->bounds = NULL;
    g->n_table = 0;
    fl_gpu_close(g->gpu);
    g->gpu = NULL;
    g->begun = false;
}

static fleet_status begin_pass(fleet_psgpu *g)
{
    g->most = g->memory_bytes;
    g->part = 0;
    FL_TRY(open_stream(g));
    return begin_part(g);
}

fleet_status fl_psgpu_begin(fleet_psgpu *g)
{
    fleet_status status = begin_pass(g);

    if (status == FLEET_OK)
        g->begun = true;
    else
        close_pass(g);
    return status;
}

fleet_status fl_psgpu_end(fleet_psgpu *g, bool lost)
{
    fleet_status status = send_home(g, lost);

    if (status == FLEET_OK || lost)
        close_pass(g);
    return status;
}

fleet_status fl_psgpu_enter(fleet_psgpu *g, fleet_executor *e)
{
    if (!e->store->gpu_passes)
        return FLEET_OK;
    if (!g || !g->begun)
        return fl_fail(FLEET_ESTATE,
                       "fleet_train_from_dataset: "
                       "a_sync_configs.use_ps_gpu: no pass has begun on this "
                       "dataset: call fleet_psgpu_begin_pass() before");
    if (e->program != g->program || e->place.gpu != g->gpu)
        return fl_fail(FLEET_ESTATE,
                       "fleet_train_from_dataset: the pass that has begun is "
                       "of another program than this executor's, or the "
                       "executor is not on gpu:%d",
                       g->device);
    if (!g->fresh || g->part > 1 || g->d->at.batch != g->first) {
        FL_TRY(send_home(g, false));
        FL_TRY(begin_pass(g));
    }
    e->in_pass = true;
    return FLEET_OK;
}

fleet_status fl_psgpu_batch(fleet_psgpu *g, fleet_executor *e, int64_t number)
{
    if (!e->in_pass)
        return FLEET_OK;
    if (number >= g->end) {
        FL_TRY(fleet_executor_flush(e));
        FL_TRY(send_home(g, false));
        FL_TRY(begin_part(g));
    }
    g->fresh = false;
    return number >= g->first && number < g->end
               ? FLEET_OK
               : fl_fail(FLEET_ESTATE,
                         "batch %" PRId64 " is in no part of the pass that "
                         "has begun: its samples have changed since",
                         number);
}

/* --- freed ---------------------------------------------------------------- */

void fl_psgpu_forget_dataset(fleet_psgpu *g)
{
    if (!g)
        return;
    fl_stream_close(g->stream);
    g->stream = NULL;
    g->d = NULL;
}

void fl_psgpu_destroy(fleet_psgpu *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_table; i++)
        if (g->table[i].set.rows)
            g->table[i].set.rows->subset = NULL;
    close_pass(g);
    if (g->d)
        g->d->psgpu = NULL;
    g->f->psgpu = NULL;
    for (int i = 0; i < g->n_slot; i++)
        fl_free(g->slot[i]);
    fl_free(g->slot);
    fl_free(g->slot_dim);
    fl_free(g);
}
