/* pass_rows.c - passes: ids are listed, rows come and go, parts follow each
 * other. */
#include "fleet/job/pass_rows.h"

#include <inttypes.h>

#include "base/memory.h"
#include "base/thread.h"
#include "fleet/job/dataset_memory.h"
#include "runtime/device/trace.h"
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

static int64_t bytes_of_keys(const fl_pass_table *t, const fl_pass_keys *keys)
{
    return fl_table_gpu_bytes(t->rows, fl_pass_keys_count(keys));
}

/* Of the part that the GPU has. */
static int64_t bytes_of_part(const fleet_psgpu *g)
{
    int64_t bytes = 0;

    for (int i = 0; i < g->n_table; i++)
        bytes += bytes_of_keys(&g->table[i], &g->table[i].set.keys);
    return bytes;
}

static int64_t bytes_of_next(const fleet_psgpu *g)
{
    int64_t bytes = 0;

    for (int i = 0; i < g->n_table; i++)
        bytes += bytes_of_keys(&g->table[i], &g->table[i].next.keys);
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

        fl_pass_keys_mark(&t->next.keys);
        status = fl_pass_keys_add(&t->next.keys, got ? pool : NULL, t->key,
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
                   merge_steps(g), merge_steps(g) > 1 ? "es" : "", g->next_end,
                   g->read - 1, bytes_of_next(g), g->device, g->memory_bytes);
}

/* From the end of the part that was listed last on, as many merge groups as
 * fit; at least one. */
static fleet_status list_part(fleet_psgpu *g)
{
    for (int i = 0; i < g->n_table; i++)
        fl_pass_keys_clear(&g->table[i].next.keys);
    g->next_first = g->next_end;
    g->next_is_last = false;
    while (!atomic_load(&g->stop)) {
        if (!g->has_group)
            FL_TRY(read_group(g));
        if (!g->has_group) {
            g->next_is_last = true;
            return FLEET_OK;
        }
        FL_TRY(add_group(g));
        if (g->next_end > g->next_first && g->most > 0 &&
            bytes_of_next(g) > g->most) {
            for (int i = 0; i < g->n_table; i++)
                fl_pass_keys_back(&g->table[i].next.keys);
            return FLEET_OK;
        }
        if (g->memory_bytes > 0 && bytes_of_next(g) > g->memory_bytes)
            return group_too_large(g);
        g->has_group = false;
        g->next_end = g->read;
    }
    return FLEET_OK;
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

/* The part that was listed is the one that is trained. */
static void take_listed(fleet_psgpu *g)
{
    g->first = g->next_first;
    g->end = g->next_end;
    g->is_last = g->next_is_last;
    g->handed_over = 0;
}

/* No rows are on the GPU. */
static fleet_status bring_rows(fleet_psgpu *g)
{
    fl_store *s = g->f->store;
    fleet_status status = FLEET_OK;

    take_listed(g);
    pthread_rwlock_wrlock(&s->lock);
    for (int i = 0; i < g->n_table; i++)
        fl_working_set_take(&g->table[i].set, &g->table[i].next);
    for (int i = 0; i < g->n_table && status == FLEET_OK; i++)
        status =
            fl_working_set_begin(&g->table[i].set, s, g->gpu, g->table[i].rows);
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
    FL_TRY(fl_dataset_memory_open_ahead(g->d, g->bounds, &g->stream));
    g->has_group = false;
    g->next_end = g->read = g->d->at.batch;
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
                " rows, %.3f MB, %" PRId64 " rows handed over",
                pass, g->device, g->part, g->is_last ? ", the last" : "",
                g->first, g->end - 1, rows_of_part(g), mb, g->handed_over);
}

static void part_has_begun(fleet_psgpu *g)
{
    g->part++;
    g->fresh = true;
    say_part(g);
}

/* The GPU had no room for a part: a third, so that there is some for the next
 * one beside it. */
static fleet_status list_less(fleet_psgpu *g)
{
    g->most = bytes_of_part(g) / 3;
    fl_error_clear();
    FL_TRY(open_stream(g));
    return list_part(g);
}

static bool can_be_less(const fleet_psgpu *g)
{
    return g->end - g->first > merge_steps(g);
}

/* That was listed. Where the GPU has less memory than that parts get smaller,
 * down to one merge group. */
static fleet_status begin_part(fleet_psgpu *g)
{
    for (;;) {
        fleet_status status = bring_rows(g);

        if (status == FLEET_OK)
            break;
        if (status != FLEET_ENOMEM || !can_be_less(g))
            return status;
        FL_TRY(list_less(g));
    }
    part_has_begun(g);
    return FLEET_OK;
}

/* --- the next part, beside training --------------------------------------- */

static fl_trace *trace_of(const fleet_psgpu *g)
{
    return g->f->context.trace;
}

static fleet_status prepare_part(fleet_psgpu *g)
{
    FL_TRY(list_part(g));
    for (int i = 0; i < g->n_table; i++) {
        fl_pass_table *t = &g->table[i];

        FL_TRY(fl_staged_rows_stage(&t->next, &t->set.keys, g->f->store,
                                    t->rows, &g->stop));
    }
    return FLEET_OK;
}

static void *run_preparer(void *arg)
{
    fleet_psgpu *g = arg;
    fleet_status status;

    fl_trace_begin(trace_of(g), "pass.prepare", g->part + 1, 0);
    status = prepare_part(g);
    if (status != FLEET_OK)
        fl_error_take(&g->why, status);
    fl_trace_end(trace_of(g), "pass.prepare", g->part + 1);
    atomic_store(&g->is_over, true);
    return NULL;
}

/* The first batch of a part is about to be trained. */
static fleet_status start_preparing(fleet_psgpu *g)
{
    fl_trace_begin(trace_of(g), "pass.train", g->part, bytes_of_part(g));
    g->is_traced = true;
    if (g->is_last)
        return FLEET_OK;
    atomic_store(&g->stop, false);
    atomic_store(&g->is_over, false);
    g->why = (fl_error){.code = FLEET_OK};
    FL_TRY(fl_thread_start(&g->preparer, run_preparer, g, "fl-next-part"));
    g->prepares = true;
    return FLEET_OK;
}

static fleet_status wait_for_next(fleet_psgpu *g)
{
    pthread_join(g->preparer, NULL);
    g->prepares = false;
    return g->why.code == FLEET_OK ? FLEET_OK : fl_error_raise(&g->why);
}

/* What it has is not needed. */
static void stop_preparing(fleet_psgpu *g)
{
    if (g->prepares) {
        atomic_store(&g->stop, true);
        if (g->f->context.fork_generation == fl_fork_generation())
            pthread_join(g->preparer, NULL); /* else it is the parent's */
        g->prepares = false;
    }
    atomic_store(&g->stop, false);
}

static fleet_status move_rows(fleet_psgpu *g)
{
    bool fits = g->memory_bytes == 0 ||
                bytes_of_part(g) + bytes_of_next(g) <= g->memory_bytes;
    fleet_status status = FLEET_OK;
    int64_t n;

    take_listed(g);
    pthread_rwlock_wrlock(&g->f->store->lock);
    for (int i = 0; i < g->n_table && status == FLEET_OK; i++) {
        fl_pass_table *t = &g->table[i];

        status = fl_working_set_move(&t->set, g->f->store, &t->next, fits, &n);
        g->handed_over += n;
    }
    pthread_rwlock_unlock(&g->f->store->lock);
    return status;
}

static fleet_status next_part(fleet_psgpu *g, fleet_executor *e)
{
    fleet_status status;

    FL_TRY(fleet_executor_flush(e));
    fl_psgpu_leave(g);
    FL_TRY(wait_for_next(g));
    status = move_rows(g);
    if (status == FLEET_OK) {
        part_has_begun(g);
        return FLEET_OK;
    }
    if (status != FLEET_ENOMEM || !can_be_less(g))
        return status;
    FL_TRY(send_home(g, false));
    FL_TRY(list_less(g));
    return begin_part(g);
}

void fl_psgpu_leave(fleet_psgpu *g)
{
    if (g && g->is_traced)
        fl_trace_end(trace_of(g), "pass.train", g->part);
    if (g)
        g->is_traced = false;
}

/* --- a pass --------------------------------------------------------------- */

static void close_pass(fleet_psgpu *g)
{
    stop_preparing(g);
    fl_stream_close(g->stream);
    g->stream = NULL;
    for (int i = 0; i < g->n_table; i++) {
        fl_working_set_done(&g->table[i].set);
        fl_staged_rows_done(&g->table[i].next);
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

/* All of the pass, if that fits; else parts of which two do. */
static fleet_status list_first(fleet_psgpu *g)
{
    g->most = g->memory_bytes;
    FL_TRY(open_stream(g));
    FL_TRY(list_part(g));
    if (g->next_is_last || g->most == 0)
        return FLEET_OK;
    g->most /= 2;
    FL_TRY(open_stream(g));
    return list_part(g);
}

static fleet_status begin_pass(fleet_psgpu *g)
{
    g->part = 0;
    for (int i = 0; i < g->n_table; i++)
        g->table[i].rows = fl_store_rows(g->f->store, g->table[i].var->name);
    FL_TRY(list_first(g));
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
    fleet_status status;

    stop_preparing(g); /* it may wait for the store's lock */
    status = send_home(g, lost);
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
        stop_preparing(g);
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
    if (number >= g->end && g->prepares)
        FL_TRY(next_part(g, e));
    if (g->fresh)
        FL_TRY(start_preparing(g));
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
    stop_preparing(g);
    fl_stream_close(g->stream);
    g->stream = NULL;
    g->d = NULL;
}

void fl_psgpu_destroy(fleet_psgpu *g)
{
    if (!g)
        return;
    stop_preparing(g);
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
