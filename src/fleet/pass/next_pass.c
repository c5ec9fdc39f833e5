/* next_pass.c - the thread beside the last part of a pass, and what becomes of
 * its work. */
#include "fleet/pass/next_pass.h"

#include "base/thread.h"
#include "fleet/pass/pass_rows.h"
#include "runtime/device/trace.h"

/* --- the thread ----------------------------------------------------------- */

static fleet_status open_next(fleet_psgpu *g, fl_pass_list *l)
{
    return fl_next_samples_open(&g->next.samples, g->bounds, &l->stream);
}

static bool prepare_first(fleet_psgpu *g)
{
    fl_pass_list *l = &g->next.list;
    fleet_status status;

    *l = (fl_pass_list){.open = open_next};
    status = fl_pass_list_first(g, l, g->list.most);
    if (status == FLEET_OK)
        status = fl_psgpu_stage(g);
    fl_pass_list_close(l); /* the samples move as the dataset takes them */
    return status == FLEET_OK;
}

static bool wait_for_samples(fleet_psgpu *g, fl_trace *t, int number)
{
    fl_next_samples *n = &g->next.samples;
    bool has;

    if (n->preload)
        fl_trace_begin(t, "pass.read", number, 0);
    has = fl_next_samples_wait(n, &g->stop);
    if (n->preload)
        fl_trace_end(t, "pass.read", number);
    return has;
}

static void *run(void *arg)
{
    fleet_psgpu *g = arg;
    fl_trace *t = g->f->context.trace;
    const int number = g->n_part + 1;

    if (wait_for_samples(g, t, number)) {
        fl_trace_begin(t, "pass.prepare", number, 0);
        g->next.is_ready = prepare_first(g);
        fl_trace_end(t, "pass.prepare", number);
    }
    atomic_store(&g->is_over, true);
    return NULL;
}

/* Without it the next pass is listed as it begins. */
void fl_next_pass_try(fleet_psgpu *g)
{
    fl_next_pass *n = &g->next;

    if (n->is_tried ||
        !fl_dataset_memory_next(g->d, n->is_expected, &n->samples))
        return;
    n->is_tried = true;
    n->is_ready = false;
    atomic_store(&g->stop, false);
    atomic_store(&g->is_over, false);
    g->prepares =
        fl_thread_start(&g->preparer, run, g, "fl-next-pass") == FLEET_OK;
    if (!g->prepares)
        fl_error_clear();
}

/* --- and on the caller's -------------------------------------------------- */

static bool is_behind(const fleet_psgpu *g)
{
    return g->d && g->d->at.batch == 0 && g->d->at.pass == g->next.samples.pass;
}

bool fl_next_pass_wait(fleet_psgpu *g)
{
    if (!g->prepares || !g->is_last || !is_behind(g) ||
        !fl_next_samples_are_there(&g->next.samples))
        return false;
    pthread_join(g->preparer, NULL);
    g->prepares = false;
    return g->next.is_ready;
}

/* A load may have replaced them, or their place in the training. */
static bool has_its_tables(const fleet_psgpu *g)
{
    for (int i = 0; i < g->n_table; i++)
        if (g->table[i].rows !=
            fl_store_rows(g->f->store, g->table[i].var->name))
            return false;
    return g->program == g->f->trained && g->gpu == g->program->place.gpu;
}

bool fl_next_pass_is_here(fleet_psgpu *g)
{
    if (!g->next.is_here || !has_its_tables(g))
        return false;
    if (fl_position_take(g->d) != FLEET_OK) { /* what begins will say it */
        fl_error_clear();
        return false;
    }
    return fl_dataset_memory_is_next(g->d, &g->next.samples,
                                     g->first == 0 && g->is_last);
}

void fl_next_pass_forget(fleet_psgpu *g)
{
    g->next.samples.load = FL_NO_LOAD;
}
