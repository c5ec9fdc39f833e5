/* leases.c - leases that were given, and the batches that they are of. */
#include "data/layout/leases.h"

#include <inttypes.h>

#include "base/memory.h"

void fl_leases_init(fl_leases *l, const fl_stream_spec *spec)
{
    *l = (fl_leases){.spec = spec};
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->granted, NULL);
}

void fl_leases_done(fl_leases *l)
{
    fl_free(l->at);
    pthread_cond_destroy(&l->granted);
    pthread_mutex_destroy(&l->lock);
}

int64_t fl_leases_find(fl_leases *l, int64_t number)
{
    const int64_t size = l->spec->lease_batches;
    const size_t which = (size_t)(number / size);
    int64_t batch = -1;

    pthread_mutex_lock(&l->lock);
    while (l->n <= which && !l->stopped)
        pthread_cond_wait(&l->granted, &l->lock);
    if (!l->stopped)
        batch = l->at[which] * size + number % size;
    pthread_mutex_unlock(&l->lock);
    return batch;
}

void fl_leases_stop(fl_leases *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopped = true;
    pthread_cond_broadcast(&l->granted);
    pthread_mutex_unlock(&l->lock);
}

static fleet_status grant(fl_leases *l, int64_t lease)
{
    const int64_t before = l->n > 0 ? l->at[l->n - 1] : -1;
    fleet_status status;

    if (lease <= before || lease > INT64_MAX / l->spec->lease_batches - 1)
        return fl_fail(FLEET_EFORMAT,
                       "lease %" PRId64 " of the data has come behind lease "
                       "%" PRId64,
                       lease, before);
    pthread_mutex_lock(&l->lock);
    status = fl_grow(&l->at, &l->capacity, l->n + 1, sizeof *l->at);
    if (status == FLEET_OK) {
        l->at[l->n++] = lease;
        pthread_cond_broadcast(&l->granted);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Only the caller's thread grants, so that it may look without the lock. */
fleet_status fl_leases_ask(fl_leases *l, int64_t had)
{
    while (had >= (int64_t)l->n * l->spec->lease_batches) {
        int64_t lease = -1;

        FL_TRY(l->spec->next_lease(l->spec->job, (int64_t)l->n, &lease));
        FL_TRY(grant(l, lease));
    }
    return FLEET_OK;
}

void fl_leases_count(fl_leases *l, int64_t samples)
{
    l->samples += samples;
    l->batches++;
}

void fl_leases_log(fl_leases *l)
{
    if (!l->told && l->spec->log)
        FL_INFO(l->spec->log,
                "dataset: this worker had %zu leases, of %" PRId64
                " samples in %" PRId64 " batches",
                l->n, l->samples, l->batches);
    l->told = true;
}
