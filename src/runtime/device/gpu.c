/* gpu.c - GPUs that are in use: opened once, shared, locked, waited for. */
#define _GNU_SOURCE
#include "runtime/device/gpu.h"

#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "runtime/device/plugin.h"

enum { DEADLINE_MS = 60000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fl_gpu *opened;

/* The plug-in's devices. Whatever the plug-in lacks, there is no device. */
static fleet_status find_table(const fl_device_table **table)
{
    const fl_plugin *p;
    fleet_status status = fl_plugin_open("cuda", &p);

    if (status != FLEET_OK)
        return fl_fail_in(FLEET_ENODEVICE,
                          "no GPU can be used without libfleet_cuda.so");
    *table = p->devices;
    if (*table && (*table)->version == FL_DEVICE_VERSION &&
        (*table)->size >= sizeof **table)
        return FLEET_OK;
    return fl_fail(FLEET_ENODEVICE,
                   "plug-in 'cuda' brings devices of version %u; this is "
                   "version %d",
                   *table ? (*table)->version : 0, FL_DEVICE_VERSION);
}

static void close_one(fl_gpu *g)
{
    if (g->d && fl_gpu_is_ours(g)) {
        if (g->copied)
            g->m->event_destroy(g->d, g->copied);
        g->m->stream_destroy(g->d, g->copies);
        g->m->stream_destroy(g->d, g->queue);
        g->m->destroy(g->d);
    }
    pthread_mutex_destroy(&g->lock);
    fl_free(g);
}

static void make_lock(fl_gpu *g)
{
    pthread_mutexattr_t again;

    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->lock, &again);
    pthread_mutexattr_destroy(&again);
}

static fleet_status init_gpu(fl_gpu *g, int ordinal)
{
    const fl_device_table *table = NULL;

    FL_TRY(find_table(&table));
    FL_TRY(fl_plugin_passed_over("cuda",
                                 table->open(ordinal, &g->options, &g->d)));
    g->m = g->d->methods;
    FL_TRY(g->m->stream_create(g->d, &g->queue));
    FL_TRY(g->m->stream_create(g->d, &g->copies));
    return g->m->event_create(g->d, false, &g->copied);
}

static fleet_status open_one(int ordinal, const fl_device_options *o,
                             fl_gpu **gpu)
{
    fleet_status status;

    FL_TRY(FL_NEW(gpu, sizeof **gpu));
    (*gpu)->options = *o;
    (*gpu)->deadline_ms = DEADLINE_MS;
    (*gpu)->fork_generation = fl_fork_generation();
    make_lock(*gpu);
    status = init_gpu(*gpu, ordinal);
    if (status == FLEET_OK) {
        (*gpu)->next = opened;
        opened = *gpu;
    } else {
        close_one(*gpu);
        *gpu = NULL;
    }
    return status;
}

static bool is_same_gpu(const fl_gpu *g, int ordinal,
                        const fl_device_options *o)
{
    return g->d->ordinal == ordinal &&
           g->options.strict_fp32 == o->strict_fp32 &&
           g->fork_generation == fl_fork_generation();
}

fleet_status fl_gpu_open(int ordinal, const fl_device_options *o, fl_gpu **gpu)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&lock);
    *gpu = opened;
    while (*gpu && !is_same_gpu(*gpu, ordinal, o))
        *gpu = (*gpu)->next;
    if (!*gpu)
        status = open_one(ordinal, o, gpu);
    if (*gpu)
        (*gpu)->users++;
    pthread_mutex_unlock(&lock);
    return status;
}

fl_gpu *fl_gpu_share(fl_gpu *g)
{
    pthread_mutex_lock(&lock);
    if (g)
        g->users++;
    pthread_mutex_unlock(&lock);
    return g;
}

void fl_gpu_close(fl_gpu *g)
{
    bool last = false;

    pthread_mutex_lock(&lock);
    if (g && --g->users == 0) {
        fl_gpu **at = &opened;

        last = true;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
    }
    pthread_mutex_unlock(&lock);
    if (last)
        close_one(g);
}

bool fl_gpu_is_ours(const fl_gpu *g)
{
    return g->fork_generation == fl_fork_generation();
}

void fl_gpu_lock(fl_gpu *g)
{
    if (g)
        pthread_mutex_lock(&g->lock);
}

void fl_gpu_unlock(fl_gpu *g)
{
    if (g)
        pthread_mutex_unlock(&g->lock);
}

fleet_status fl_gpu_host_alloc(fl_gpu *g, size_t bytes, char **p)
{
    fleet_status status;
    void *made;

    *p = NULL;
    if (!g)
        return FL_NEW(p, bytes);
    fl_gpu_lock(g);
    status = g->m->alloc_pinned(g->d, bytes, &made);
    fl_gpu_unlock(g);
    FL_TRY(status);
    memset(made, 0, bytes);
    *p = made;
    return FLEET_OK;
}

void fl_gpu_host_free(fl_gpu *g, char *p)
{
    if (!g)
        fl_free(p);
    if (!g || !p || !fl_gpu_is_ours(g))
        return;
    fl_gpu_lock(g);
    if (fl_gpu_wait(g) == FLEET_OK) /* else a copy may still write it */
        g->m->free_pinned(g->d, p);
    fl_gpu_unlock(g);
}

fleet_status fl_gpu_wait(fl_gpu *g)
{
    /* In this order: a wait for idle copies says nothing of a GPU that was
     * given up (device.h). */
    FL_TRY(g->m->stream_wait(g->d, g->queue, g->deadline_ms));
    FL_TRY(g->m->stream_wait(g->d, g->copies, g->deadline_ms));
    g->copying = false;
    return FLEET_OK;
}

fleet_status fl_gpu_copy_queued(fl_gpu *g)
{
    g->copying = true;
    return g->m->event_record(g->d, g->copied, g->queue);
}

fleet_status fl_gpu_wait_copies(fl_gpu *g)
{
    if (g->copying)
        FL_TRY(g->m->event_wait(g->d, g->copied, g->deadline_ms));
    g->copying = false;
    return FLEET_OK;
}

fleet_status fl_gpu_copy_on(fl_gpu *g, fl_queue *q, const fl_gpu_rows *r)
{
    bool whole = r->n == 1 || (r->ld_to == r->bytes && r->ld_from == r->bytes);

    if (r->n == 0 || r->bytes == 0)
        return FLEET_OK;
    return whole ? g->m->copy(g->d, q, r->to, r->from, r->n * r->bytes, r->kind)
                 : g->m->copy_rows(g->d, q, r->to, r->ld_to, r->from,
                                   r->ld_from, r->bytes, r->n, r->kind);
}

fleet_status fl_gpu_copy(fl_gpu *g, const fl_gpu_rows *r)
{
    return fl_gpu_copy_on(g, g->queue, r);
}
