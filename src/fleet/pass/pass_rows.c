/* pass_rows.c - passes: rows come and go, parts follow each other. */
#include "fleet/pass/pass_rows.h"

#include <inttypes.h>

#include "base/memory.h"
#include "base/thread.h"
#include "fleet/job/dataset_memory.h"
#include "runtime/device/trace.h"
#include "runtime/exec/executor.h"

static int64_t rows_of_part(const fleet_psgpu *g)
{
    int64_t n = 0;

    for (int i = 0; i < g->n_table; i++)
        n += fl_pass_keys_count(&g->table[i].set.keys);
    return n;
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
static void take_listed(fleet_psgpu *g, const fl_pass_list *l)
{
    g->first = l->first;
    g->end = l->end;
    g->is_last = l->is_last;
    g->handed_over = 0;
}

/* No rows are on the GPU. */
static fleet_status bring_rows(fleet_psgpu *g)
{
    fl_store *s = g->f->store;
    fleet_status status = FLEET_OK;

    take_listed(g, &g->list);
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

static void say_part(const fleet_psgpu *g)
{
    const long long pass = (long long)g->d->at.pass + 1;
    double mb = (double)fl_pass_bytes(g) * 1e-6;

    if (g->part == 1 && g->is_last)
        FL_INFO(&g->f->context.log,
                "pass %lld: %" PRId64 " rows, %.3f MB, on gpu:%d, %" PRId64
                " rows handed over",
                pass, rows_of_part(g), mb, g->device, g->handed_over);
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
    g->n_part++;
    g->fresh = true;
    say_part(g);
}

/* Over what is left of the pass. */
static fleet_status open_rest(fleet_psgpu *g, fl_pass_list *l)
{
    l->from = FL_WHERE_IT_IS;
    return fl_dataset_memory_open_ahead(g->d, g->bounds, &l->from, &l->stream);
}

/* The GPU had no room for a part: a third, so that there is some for the next
 * one beside it. */
static fleet_status list_less(fleet_psgpu *g)
{
    const int64_t most = fl_pass_bytes(g) / 3;

    fl_error_clear();
    FL_TRY(fl_pass_list_begin(g, &g->list, most));
    return fl_pass_list_part(g, &g->list);
}

static bool can_be_less(const fleet_psgpu *g)
{
    return g->end - g->first > g->program->training.merge.steps;
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

fleet_status fl_psgpu_stage(fleet_psgpu *g)
{
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

    fl_trace_begin(trace_of(g), "pass.prepare", g->n_part + 1, 0);
    status = fl_pass_list_part(g, &g->list);
    if (status == FLEET_OK)
        status = fl_psgpu_stage(g);
    if (status != FLEET_OK)
        fl_error_take(&g->why, status);
    fl_trace_end(trace_of(g), "pass.prepare", g->n_part + 1);
    atomic_store(&g->is_over, true);
    return NULL;
}

/* The first batch of a part is about to be trained. */
static fleet_status start_preparing(fleet_psgpu *g)
{
    fl_trace_begin(trace_of(g), "pass.train", g->n_part, fl_pass_bytes(g));
    g->is_traced = true;
    g->next.is_tried = false;
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
    const bool is_ours = g->f->context.fork_generation == fl_fork_generation();

    if (g->prepares && is_ours) { /* else it is the parent's */
        atomic_store(&g->stop, true);
        if (g->is_last)
            fl_next_samples_wake(&g->next.samples);
        pthread_join(g->preparer, NULL);
    }
    g->prepares = false;
    atomic_store(&g->stop, false);
}

static fleet_status move_rows(fleet_psgpu *g, const fl_pass_list *l)
{
    bool fits = g->memory_bytes == 0 ||
                fl_pass_bytes(g) + fl_pass_next_bytes(g) <= g->memory_bytes;
    fleet_status status = FLEET_OK;
    int64_t n;

    take_listed(g, l);
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
    status = move_rows(g, &g->list);
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
        fl_trace_end(trace_of(g), "pass.train", g->n_part);
    if (g)
        g->is_traced = false;
}

/* --- a pass --------------------------------------------------------------- */

static void close_pass(fleet_psgpu *g)
{
    stop_preparing(g);
    fl_pass_list_close(&g->list);
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
    g->begun = g->next.is_here = false;
}

static fleet_status note_pass(fleet_psgpu *g)
{
    return fl_pass_note_begin(&g->note, &g->f->context.log, &g->d->at);
}

static fleet_status begin_pass(fleet_psgpu *g)
{
    g->part = 0;
    g->list.open = open_rest;
    for (int i = 0; i < g->n_table; i++)
        g->table[i].rows = fl_store_rows(g->f->store, g->table[i].var->name);
    FL_TRY(fl_pass_list_first(g, &g->list, 0));
    FL_TRY(note_pass(g));
    return begin_part(g);
}

fleet_status fl_psgpu_begin(fleet_psgpu *g)
{
    fleet_status status = begin_pass(g);

    g->next.is_expected = false;
    if (status == FLEET_OK)
        g->begun = true;
    else
        close_pass(g);
    return status;
}

fleet_status fl_psgpu_begin_here(fleet_psgpu *g)
{
    fl_pass_list *l = &g->list;
    fleet_status status;

    *l = (fl_pass_list){.open = open_rest,
                        .from = g->end,
                        .most = g->next.list.most,
                        .end = g->end,
                        .read = g->end};
    FL_TRY(fl_dataset_memory_open_ahead(g->d, g->bounds, &l->from, &l->stream));
    status = note_pass(g);
    if (status != FLEET_OK) { /* the samples would have a reader for good */
        fl_pass_list_close(l);
        return status;
    }
    g->part = 0;
    g->begun = true;
    g->next.is_here = g->next.is_expected = false;
    part_has_begun(g);
    return FLEET_OK;
}

/* The GPU has the next pass's first part, and what both need has stayed. */
static bool leave_for_next(fleet_psgpu *g)
{
    if (!fl_next_pass_wait(g) || g->n_table == 0)
        return false;
    if (move_rows(g, &g->next.list) != FLEET_OK) {
        fl_error_clear();
        return false;
    }
    fl_pass_list_close(&g->list);
    g->next.is_here = true;
    g->begun = false;
    return true;
}

fleet_status fl_psgpu_drop(fleet_psgpu *g, bool lost)
{
    fleet_status status;

    stop_preparing(g); /* it may wait for the store's lock */
    status = send_home(g, lost);
    if (status == FLEET_OK || lost)
        close_pass(g);
    return status;
}

fleet_status fl_psgpu_end(fleet_psgpu *g)
{
    return leave_for_next(g) ? FLEET_OK : fl_psgpu_drop(g, false);
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
    if (number >= g->end && g->prepares && !g->is_last)
        FL_TRY(next_part(g, e));
    if (g->fresh)
        FL_TRY(start_preparing(g));
    if (g->is_last)
        fl_next_pass_try(g);
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
    fl_pass_list_close(&g->list);
    g->d = NULL;
}

void fl_psgpu_destroy(fleet_psgpu *g)
{
    if (!g)
        return;
    stop_preparing(g);
    if (!g->begun && g->f->context.fork_generation == fl_fork_generation())
        fl_pass_note_remove(&g->note);
    fl_pass_note_done(&g->note);
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
