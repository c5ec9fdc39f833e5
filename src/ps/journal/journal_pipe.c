/* journal_pipe.c - a queue of records' bytes under a lock; a put waits while
 * it is full. */
#include "ps/journal/journal_pipe.h"

#include <pthread.h>
#include <string.h>

#include "base/memory.h"

struct fl_journal_pipe {
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t taken;
    size_t most;
    void (*ring)(void *arg);
    void *arg;
    char *bytes;
    size_t from, used, capacity;
    uint64_t last; /* LSN */
    bool ended, stopped;
    fl_error error;
};

fleet_status fl_journal_pipe_create(fl_journal_pipe **pipe, size_t most,
                                    void (*ring)(void *arg), void *arg)
{
    FL_TRY(FL_NEW(pipe, sizeof **pipe));
    pthread_mutex_init(&(*pipe)->lock, NULL);
    pthread_cond_init(&(*pipe)->taken, NULL);
    (*pipe)->most = most;
    (*pipe)->ring = ring;
    (*pipe)->arg = arg;
    return FLEET_OK;
}

void fl_journal_pipe_destroy(fl_journal_pipe *p)
{
    if (!p)
        return;
    pthread_cond_destroy(&p->taken);
    pthread_mutex_destroy(&p->lock);
    fl_free(p->bytes);
    fl_free(p);
}

/* --- putting -------------------------------------------------------------- */

/* What was taken is given up once it is the larger part. */
static void move_to_front(fl_journal_pipe *p)
{
    if (p->from <= p->used / 2)
        return;
    memmove(p->bytes, p->bytes + p->from, p->used - p->from);
    p->used -= p->from;
    p->from = 0;
}

static fleet_status put_into(void *arg, uint16_t kind,
                             const fl_journal_part *part, size_t n)
{
    fl_journal_pipe *p = arg;
    fleet_status status;

    pthread_mutex_lock(&p->lock);
    while (!p->stopped && p->used - p->from >= p->most)
        pthread_cond_wait(&p->taken, &p->lock);
    move_to_front(p);
    status = p->stopped
                 ? fl_fail(FLEET_EPEER, "the records are not taken any more")
                 : fl_journal_append(&p->bytes, &p->capacity, &p->used,
                                     p->last + 1, kind, part, n);
    p->last += status == FLEET_OK;
    pthread_mutex_unlock(&p->lock);
    if (p->ring)
        p->ring(p->arg);
    return status;
}

static fleet_status commit_nothing(void *arg)
{
    (void)arg;
    return FLEET_OK;
}

fl_journal_sink fl_journal_pipe_sink(fl_journal_pipe *p)
{
    return (fl_journal_sink){p, put_into, commit_nothing};
}

void fl_journal_pipe_end(fl_journal_pipe *p, fleet_status status)
{
    pthread_mutex_lock(&p->lock);
    fl_error_take(&p->error, status);
    p->ended = true;
    pthread_mutex_unlock(&p->lock);
    if (p->ring)
        p->ring(p->arg);
}

/* --- taking --------------------------------------------------------------- */

void fl_journal_pipe_stop(fl_journal_pipe *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_signal(&p->taken);
    pthread_mutex_unlock(&p->lock);
}

static fleet_status take_from(fl_journal_pipe *p, size_t most, char **bytes,
                              size_t *capacity, size_t *size)
{
    size_t n = fl_journal_batch(p->bytes + p->from, p->used - p->from, most);

    FL_TRY(fl_grow(bytes, capacity, n, 1));
    if (n > 0)
        memcpy(*bytes, p->bytes + p->from, n);
    *size = n;
    p->from += n;
    if (p->from == p->used)
        p->from = p->used = 0;
    pthread_cond_signal(&p->taken);
    return FLEET_OK;
}

fleet_status fl_journal_pipe_take(fl_journal_pipe *p, size_t most, char **bytes,
                                  size_t *capacity, size_t *size, bool *over)
{
    fleet_status status;

    *size = 0;
    pthread_mutex_lock(&p->lock);
    status = p->error.code == FLEET_OK
                 ? take_from(p, most, bytes, capacity, size)
                 : fl_error_raise(&p->error);
    *over = status == FLEET_OK && p->ended && p->used == 0 && *size == 0;
    pthread_mutex_unlock(&p->lock);
    return status;
}
