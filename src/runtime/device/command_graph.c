/* command_graph.c - lists of commands for a GPU, and their CUDA graphs. */
#include "runtime/device/command_graph.h"

#include <string.h>

#include "base/memory.h"

struct fl_command_graph {
    fl_gpu_commands all;
    fl_graph *graph;
    bool seen;  /* it was queued once */
    int failed; /* captures */
    int pause;  /* times to be queued one by one before the next capture */
    fl_command_graph *next;
};

enum {
    FEW = 4,     /* commands that are not worth a graph */
    MOST = 64,   /* lists of an owner; a plan has a few for each region */
    TRIES = 4,   /* captures of a list that fail, then it goes without */
    PAUSE = 16,  /* the first pause between two of them; then twice as long */
    SMALL = 4096 /* bytes that a kernel copies */
};

/* --- commands ------------------------------------------------------------ */

fleet_status fl_gpu_commands_add(fl_gpu_commands *all,
                                 const fl_gpu_command *work)
{
    FL_TRY(fl_grow(&all->work, &all->capacity, all->n + 1, sizeof *work));
    all->work[all->n++] = *work;
    return FLEET_OK;
}

void fl_gpu_commands_done(fl_gpu_commands *all)
{
    fl_free(all->work);
    *all = (fl_gpu_commands){0};
}

/* Is it a copy of a few words? The host's memory is pinned in all of them. */
static bool is_small(const fl_gpu_rows *r)
{
    uintptr_t all = (uintptr_t)r->to | (uintptr_t)r->from | r->bytes;

    return r->kind != FL_ON_DEVICE && r->n == 1 && r->bytes <= SMALL &&
           all % sizeof(uint32_t) == 0;
}

fleet_status fl_gpu_command_queue(fl_gpu *g, const fl_gpu_command *w)
{
    if (w->kernel)
        return w->kernel->run(g->d, g->queue, w->step);
    if (w->filled)
        return g->m->fill(g->d, g->queue, w->filled, 0xff, w->bytes);
    if (is_small(&w->rows))
        return g->m->copy_words(g->d, g->queue, w->rows.to, w->rows.from,
                                w->rows.bytes / sizeof(uint32_t));
    return fl_gpu_copy(g, &w->rows);
}

static fleet_status queue_all(fl_gpu *g, const fl_gpu_commands *all)
{
    for (size_t i = 0; i < all->n; i++)
        FL_TRY(fl_gpu_command_queue(g, &all->work[i]));
    return FLEET_OK;
}

static bool is_same(const fl_gpu_commands *a, const fl_gpu_commands *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const fl_gpu_command *x = &a->work[i], *y = &b->work[i];
        const fl_gpu_rows *r = &x->rows, *s = &y->rows;

        if (x->kernel != y->kernel || x->step != y->step ||
            x->filled != y->filled || x->bytes != y->bytes || r->to != s->to ||
            r->from != s->from || r->ld_to != s->ld_to ||
            r->ld_from != s->ld_from || r->bytes != s->bytes || r->n != s->n ||
            r->kind != s->kind)
            return false;
    }
    return true;
}

/* --- lists --------------------------------------------------------------- */

void fl_command_graphs_drop(fl_gpu *g, fl_command_graph **known)
{
    while (*known) {
        fl_command_graph *s = *known;

        *known = s->next;
        g->m->graph_destroy(g->d, s->graph);
        fl_gpu_commands_done(&s->all);
        fl_free(s);
    }
}

/* Addresses that have changed leave lists that are never queued again. */
static fleet_status make_room(fl_gpu *g, fl_command_graph **known)
{
    int n = 0;

    for (const fl_command_graph *s = *known; s; s = s->next)
        n++;
    if (n < MOST)
        return FLEET_OK;
    FL_TRY(fl_gpu_wait(g));
    fl_command_graphs_drop(g, known);
    return FLEET_OK;
}

static fleet_status find_list(fl_gpu *g, fl_command_graph **known,
                              const fl_gpu_commands *all,
                              fl_command_graph **found)
{
    fl_command_graph *s = *known;

    while (s && !is_same(&s->all, all))
        s = s->next;
    *found = s;
    if (s)
        return FLEET_OK;
    FL_TRY(make_room(g, known));
    FL_TRY(FL_NEW(&s, sizeof *s));
    s->next = *known;
    *known = *found = s;
    FL_TRY(fl_grow(&s->all.work, &s->all.capacity, all->n, sizeof *all->work));
    memcpy(s->all.work, all->work, all->n * sizeof *all->work);
    s->all.n = all->n;
    return FLEET_OK;
}

/* --- graphs -------------------------------------------------------------- */

static fleet_status capture_list(fl_gpu *g, fl_command_graph *s)
{
    fleet_status status, ended;
    fl_error first;

    FL_TRY(g->m->capture_begin(g->d, g->queue));
    status = queue_all(g, &s->all);
    fl_error_take(&first, status);
    ended = g->m->capture_end(g->d, g->queue, &s->graph);
    if (status == FLEET_OK)
        return ended;
    g->m->graph_destroy(g->d, s->graph);
    s->graph = NULL;
    return fl_error_raise(&first); /* not what capture_end() said of it */
}

/* The list is queued without a graph; later there may be more memory. */
static void put_off(fl_gpu *g, fl_command_graph *s, fl_log *log)
{
    s->pause = PAUSE << s->failed++;
    if (!g->warned_no_graphs)
        FL_WARN(log,
                "gpu:%d: no CUDA graph of a step (failure 1 of %d, then it "
                "goes without): %s",
                g->d->ordinal, TRIES, fleet_last_error());
    g->warned_no_graphs = true;
    fl_error_clear();
}

static bool is_due(fl_command_graph *s)
{
    if (!s->seen || s->graph || s->failed == TRIES)
        return false;
    if (s->pause == 0)
        return true;
    s->pause--;
    return false;
}

fleet_status fl_command_graph_queue(fl_gpu *g, fl_command_graph **known,
                                    const fl_gpu_commands *all, fl_log *log)
{
    fl_command_graph *s;

    if (all->n < FEW)
        return queue_all(g, all);
    FL_TRY(find_list(g, known, all, &s));
    if (is_due(s) && capture_list(g, s) != FLEET_OK)
        put_off(g, s, log);
    s->seen = true;
    return s->graph ? g->m->graph_launch(g->d, g->queue, s->graph)
                    : queue_all(g, all);
}
