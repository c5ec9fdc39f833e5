/* memory_preload.c - the thread, and how it is waited for. */
#include "data/memory_preload.h"

#include <time.h>

#include "base/memory.h"
#include "base/thread.h"

enum { JOB_MS = 50 }; /* how often a wait asks how the job does */

struct fl_memory_preload {
    fl_stream_spec spec;
    fl_paths files;
    fl_statistics statistics;
    fl_cache_state cache;
    int first_file;
    fl_memory_limit limit;
    uint64_t generation; /* of the process, see fl_fork_generation() */
    pthread_t thread;
    bool started;
    atomic_bool stop;

    pthread_mutex_t lock; /* over these */
    pthread_cond_t ended;
    bool over;
    fl_error error;
    fl_sample_memory held;
};

static fleet_status is_stopped(void *preload)
{
    fl_memory_preload *p = preload;

    return atomic_load(&p->stop) ? fl_fail(FLEET_ESTATE, "a preload was ended")
                                 : FLEET_OK;
}

static void *run_thread(void *preload)
{
    fl_memory_preload *p = preload;
    fl_sample_memory held = {.n_block = 0};
    fleet_status status =
        fl_sample_memory_load(&held, &p->spec, p->first_file, &p->limit);

    pthread_mutex_lock(&p->lock);
    p->held = held;
    if (status != FLEET_OK)
        fl_error_take(&p->error, status);
    p->over = true;
    pthread_cond_broadcast(&p->ended);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void init_lock(fl_memory_preload *p)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static fleet_status copy_spec(fl_memory_preload *p, const fl_stream_spec *spec,
                              const fl_paths *files)
{
    p->spec = *spec;
    FL_TRY(fl_paths_copy(&p->files, files));
    p->spec.files = (const char *const *)p->files.path + p->first_file;
    if (spec->statistics) {
        FL_TRY(fl_statistics_copy(&p->statistics, spec->statistics));
        p->spec.statistics = &p->statistics;
    }
    if (spec->cache)
        p->spec.cache = &p->cache;
    p->spec.job_status = is_stopped;
    p->spec.job = p;
    return FLEET_OK;
}

fleet_status fl_memory_preload_start(fl_memory_preload **preload,
                                     const fl_stream_spec *spec, int first_file,
                                     const fl_paths *files,
                                     const fl_memory_limit *limit)
{
    fleet_status status;
    fl_memory_preload *p;

    FL_TRY(FL_NEW(&p, sizeof *p));
    p->generation = fl_fork_generation();
    p->first_file = first_file;
    p->limit = *limit;
    init_lock(p);
    FL_GOTO(failed, copy_spec(p, spec, files));
    FL_GOTO(failed,
            fl_thread_start(&p->thread, run_thread, p, "reading into memory"));
    p->started = true;
    *preload = p;
    return FLEET_OK;
failed:
    fl_memory_preload_destroy(p);
    return status;
}

/* Under the lock. */
static void wait_a_while(fl_memory_preload *p)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += JOB_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&p->ended, &p->lock, &until);
}

fleet_status fl_memory_preload_wait(fl_memory_preload *p,
                                    const fl_stream_spec *spec, bool *over,
                                    fl_sample_memory *m)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&p->lock);
    while (!p->over && status == FLEET_OK) {
        wait_a_while(p);
        status = p->over ? FLEET_OK : spec->job_status(spec->job);
    }
    *over = p->over;
    if (p->over && p->error.code != FLEET_OK) {
        status = fl_error_raise(&p->error);
    } else if (p->over) {
        *m = p->held;
        p->held = (fl_sample_memory){.n_block = 0};
        m->files = p->files;
        p->files = (fl_paths){.n = 0};
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

fl_sample_memory *fl_memory_preload_look(fl_memory_preload *p,
                                         const atomic_bool *stop,
                                         const fl_paths **files)
{
    bool has;

    pthread_mutex_lock(&p->lock);
    while (!p->over && !atomic_load(stop))
        pthread_cond_wait(&p->ended, &p->lock);
    has = p->over && p->error.code == FLEET_OK && !atomic_load(stop);
    pthread_mutex_unlock(&p->lock);
    *files = &p->files;
    return has ? &p->held : NULL;
}

void fl_memory_preload_wake(fl_memory_preload *p)
{
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->ended);
    pthread_mutex_unlock(&p->lock);
}

bool fl_memory_preload_is_over(fl_memory_preload *p)
{
    bool over;

    pthread_mutex_lock(&p->lock);
    over = p->over;
    pthread_mutex_unlock(&p->lock);
    return over;
}

void fl_memory_preload_destroy(fl_memory_preload *p)
{
    /* After fork() its thread is the parent's. */
    if (!p || p->generation != fl_fork_generation())
        return;
    atomic_store(&p->stop, true);
    if (p->started)
        pthread_join(p->thread, NULL);
    fl_sample_memory_done(&p->held);
    fl_paths_done(&p->files);
    fl_statistics_done(&p->statistics);
    fl_free(p->cache.whole);
    pthread_cond_destroy(&p->ended);
    pthread_mutex_destroy(&p->lock);
    fl_free(p);
}
