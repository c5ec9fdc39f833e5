/* mirror.c - the mirrors of a store: a list with a lock of its own, since
 * readers of the store may come at the same time. The GPU's lock is taken
 * before it, as an iteration may hold that one already. */
#include "runtime/store/mirror.h"

#include "base/memory.h"
#include "runtime/store/store.h"

/* The GPU of all of them, locked; NULL: the store has none, or the first is
 * being made, and only its maker may copy it yet. */
static fl_gpu *lock_all(fl_store *s)
{
    fl_gpu *gpu;

    pthread_mutex_lock(&s->mirror_lock);
    gpu = s->mirrors ? s->mirrors->gpu : NULL;
    pthread_mutex_unlock(&s->mirror_lock);
    fl_gpu_lock(gpu);
    pthread_mutex_lock(&s->mirror_lock);
    return gpu;
}

static void unlock_all(fl_store *s, fl_gpu *gpu)
{
    pthread_mutex_unlock(&s->mirror_lock);
    fl_gpu_unlock(gpu);
}

static fl_mirror *find_mirror(const fl_store *s, const void *host)
{
    fl_mirror *m = s->mirrors;

    while (m && m->host != host)
        m = m->next;
    return m;
}

/* --- arrays -------------------------------------------------------------- */

static fleet_status copy_array(fl_mirror *m, bool on_gpu)
{
    fl_gpu *g = m->gpu;

    if (on_gpu)
        return g->m->copy(g->d, g->queue, m->on_gpu, m->host, m->bytes,
                          FL_TO_DEVICE);
    FL_TRY(
        g->m->copy(g->d, g->queue, m->host, m->on_gpu, m->bytes, FL_TO_HOST));
    return fl_gpu_wait(g);
}

static void destroy_array(fl_mirror *m)
{
    if (fl_gpu_is_ours(m->gpu))
        m->gpu->m->free(m->gpu->d, m->gpu->queue, m->on_gpu);
    fl_free(m);
}

static const fl_mirror_class arrays = {copy_array, destroy_array, NULL};

static fleet_status make_array(fl_gpu *gpu, void *host, size_t bytes,
                               fl_mirror **mirror)
{
    fleet_status status;

    (void)host;
    FL_TRY(FL_NEW(mirror, sizeof **mirror));
    (*mirror)->methods = &arrays;
    (*mirror)->bytes = bytes;
    status = gpu->m->alloc(gpu->d, gpu->queue, bytes, &(*mirror)->on_gpu);
    if (status != FLEET_OK)
        fl_free(*mirror);
    return status;
}

/* --- all of them --------------------------------------------------------- */

static fleet_status make_one(fl_store *s, fl_gpu *gpu, void *host, size_t bytes,
                             fl_mirror_maker *make, fl_mirror **mirror)
{
    fleet_status status = make(gpu, host, bytes, mirror);

    if (status != FLEET_OK) {
        *mirror = NULL;
        return status;
    }
    (*mirror)->gpu = fl_gpu_share(gpu);
    (*mirror)->host = host;
    (*mirror)->gpu_is_old = true;
    (*mirror)->next = s->mirrors;
    s->mirrors = *mirror;
    return FLEET_OK;
}

static fleet_status check_gpu(const fl_mirror *m, const fl_gpu *gpu)
{
    if (m->gpu == gpu)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "the handle's parameters are on gpu:%d%s already: its "
                   "programs use one GPU, in one way",
                   m->gpu->d->ordinal,
                   m->gpu->options.strict_fp32 ? " (strict_fp32)" : "");
}

fleet_status fl_mirror_of(fl_store *s, fl_gpu *gpu, void *host, size_t bytes,
                          fl_mirror_maker *make, fl_mirror **mirror)
{
    fleet_status status;

    fl_gpu_lock(gpu);
    pthread_mutex_lock(&s->mirror_lock);
    *mirror = find_mirror(s, host);
    status = *mirror ? check_gpu(*mirror, gpu)
                     : make_one(s, gpu, host, bytes, make, mirror);
    unlock_all(s, gpu);
    return status;
}

fleet_status fl_mirror_make(fl_store *s, fl_gpu *gpu, void *host, size_t bytes,
                            fl_mirror **mirror)
{
    return fl_mirror_of(s, gpu, host, bytes, make_array, mirror);
}

static fleet_status bring_up_to_date(fl_mirror *m, bool on_gpu)
{
    bool *is_old = on_gpu ? &m->gpu_is_old : &m->host_is_old;

    if (!*is_old)
        return FLEET_OK;
    FL_TRY(fl_gpu_wait(m->gpu)); /* with a deadline; the copy has none */
    FL_TRY(m->methods->copy(m, on_gpu));
    *is_old = false;
    return FLEET_OK;
}

fleet_status fl_mirror_use(fl_store *s, const void *host, bool on_gpu,
                           bool writes)
{
    fl_gpu *gpu = lock_all(s);
    fleet_status status = FLEET_OK;
    fl_mirror *m;

    m = find_mirror(s, host);
    if (m)
        status = bring_up_to_date(m, on_gpu);
    if (m && writes && status == FLEET_OK)
        *(on_gpu ? &m->host_is_old : &m->gpu_is_old) = true;
    unlock_all(s, gpu);
    return status;
}

fleet_status fl_mirror_leave(fl_store *s, const void *host, bool lost)
{
    fl_gpu *gpu = lock_all(s);
    fl_mirror *m = find_mirror(s, host);
    fleet_status status = m ? bring_up_to_date(m, false) : FLEET_OK;

    if (m && (status == FLEET_OK || lost)) {
        m->host_is_old = false;
        m->gpu_is_old = true;
        m->methods->leave(m);
    }
    unlock_all(s, gpu);
    return status;
}

bool fl_store_on_gpu(fl_store *s)
{
    bool any;

    pthread_mutex_lock(&s->mirror_lock);
    any = s->mirrors != NULL;
    pthread_mutex_unlock(&s->mirror_lock);
    return any;
}

fleet_status fl_store_to_host(fl_store *s)
{
    fl_gpu *gpu = lock_all(s);
    fleet_status status = FLEET_OK;

    for (fl_mirror *m = s->mirrors; m && status == FLEET_OK; m = m->next)
        status = bring_up_to_date(m, false);
    unlock_all(s, gpu);
    return status;
}

void fl_store_written(fl_store *s)
{
    pthread_mutex_lock(&s->mirror_lock);
    s->n_written++;
    for (fl_mirror *m = s->mirrors; m; m = m->next) {
        m->gpu_is_old = true;
        m->host_is_old = false;
    }
    pthread_mutex_unlock(&s->mirror_lock);
}

uint64_t fl_store_times_written(fl_store *s)
{
    uint64_t n;

    pthread_mutex_lock(&s->mirror_lock);
    n = s->n_written;
    pthread_mutex_unlock(&s->mirror_lock);
    return n;
}

void fl_mirrors_destroy(fl_store *s)
{
    while (s->mirrors) {
        fl_mirror *m = s->mirrors;
        fl_gpu *gpu = m->gpu, *ours = fl_gpu_is_ours(gpu) ? gpu : NULL;

        s->mirrors = m->next;
        fl_gpu_lock(ours);
        m->methods->destroy(m);
        fl_gpu_unlock(ours);
        fl_gpu_close(gpu);
    }
}
