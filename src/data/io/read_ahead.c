/* read_ahead.c - the thread and its queue, a ring that grows to its bound. */
#include "data/io/read_ahead.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"

enum { FIRST_RING = 1 << 20, LAST_RING = 32 << 20 };

struct fl_read_ahead {
    const char *path;
    fl_source_options o;
    pthread_t thread;

    pthread_mutex_t lock; /* over all below */
    pthread_cond_t change;
    char *ring;
    size_t capacity, begin, used; /* begin .. begin + used, around the end */
    double share;                 /* of the file that was read, */
    double produced;              /* and the bytes that it came to */
    bool opened, ended, stop;
    fl_error error; /* how it ended */
};

/* A longer ring, with what is in it at its begin. Under the lock. */
static fleet_status grow_queue(fl_read_ahead *a)
{
    size_t capacity = a->capacity ? 2 * a->capacity : FIRST_RING;
    size_t first = a->capacity - a->begin;
    char *ring = fl_alloc(capacity);

    if (!ring)
        return FLEET_ENOMEM;
    if (first > a->used)
        first = a->used;
    if (a->used > 0) {
        memcpy(ring, a->ring + a->begin, first);
        memcpy(ring + first, a->ring, a->used - first);
    }
    fl_free(a->ring);
    a->ring = ring;
    a->capacity = capacity;
    a->begin = 0;
    return FLEET_OK;
}

/* Where the next bytes go, and how many in one piece; waits for room. */
static fleet_status find_room(fl_read_ahead *a, char **to, size_t *size)
{
    fleet_status status = FLEET_OK;
    size_t at;

    pthread_mutex_lock(&a->lock);
    if (a->used == a->capacity && a->capacity < LAST_RING)
        status = grow_queue(a);
    while (status == FLEET_OK && a->used == a->capacity && !a->stop)
        pthread_cond_wait(&a->change, &a->lock);
    if (a->stop)
        status = FLEET_ESTATE;
    if (status == FLEET_OK) {
        at = a->begin + a->used;
        at -= at >= a->capacity ? a->capacity : 0;
        *to = a->ring + at;
        *size = at >= a->begin ? a->capacity - at : a->begin - at;
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

static void set_flag(fl_read_ahead *a, bool *what)
{
    pthread_mutex_lock(&a->lock);
    *what = true;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
}

static fleet_status read_all(fl_read_ahead *a, fl_source *s)
{
    size_t size, got = 1;
    double share;
    char *to;

    while (got > 0) {
        FL_TRY(find_room(a, &to, &size));
        FL_TRY(fl_source_read(s, to, size, &got));
        share = fl_source_share(s);
        pthread_mutex_lock(&a->lock);
        a->used += got;
        a->share = share;
        a->produced += (double)got;
        pthread_cond_broadcast(&a->change);
        pthread_mutex_unlock(&a->lock);
    }
    return FLEET_OK;
}

static void *read_in_thread(void *arg)
{
    fl_read_ahead *a = arg;
    fl_source *s = NULL;
    fleet_status status = fl_source_open(&s, a->path, &a->o);

    if (status == FLEET_OK) {
        set_flag(a, &a->opened);
        status = read_all(a, s);
    }
    if (status != FLEET_OK)
        fl_error_take(&a->error, status);
    fl_source_close(s);
    set_flag(a, &a->ended);
    return NULL;
}

fleet_status fl_read_ahead_start(fl_read_ahead **ahead, const char *path,
                                 const fl_source_options *o)
{
    fleet_status status;
    fl_read_ahead *a;

    FL_TRY(FL_NEW(&a, sizeof *a));
    a->path = path;
    a->o = *o;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
    status = fl_thread_start(&a->thread, read_in_thread, a, "reading ahead");
    if (status != FLEET_OK) {
        pthread_cond_destroy(&a->change);
        pthread_mutex_destroy(&a->lock);
        fl_free(a);
        return status;
    }
    *ahead = a;
    return FLEET_OK;
}

fleet_status fl_read_ahead_wait(fl_read_ahead *a)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&a->lock);
    while (!a->opened && !a->ended)
        pthread_cond_wait(&a->change, &a->lock);
    if (!a->opened)
        status = fl_error_raise(&a->error);
    pthread_mutex_unlock(&a->lock);
    return status;
}

static size_t take_bytes(fl_read_ahead *a, char *to, size_t size)
{
    size_t n = a->used < size ? a->used : size;
    size_t first = a->capacity - a->begin;

    if (first > n)
        first = n;
    memcpy(to, a->ring + a->begin, first);
    memcpy(to + first, a->ring, n - first);
    a->used -= n;
    a->begin += n;
    a->begin -= a->begin >= a->capacity ? a->capacity : 0;
    return n;
}

fleet_status fl_read_ahead_read(fl_read_ahead *a, void *to, size_t size,
                                size_t *got)
{
    fleet_status status = FLEET_OK;

    *got = 0;
    pthread_mutex_lock(&a->lock);
    while (a->used == 0 && !a->ended)
        pthread_cond_wait(&a->change, &a->lock);
    if (a->used > 0) {
        *got = take_bytes(a, to, size);
        pthread_cond_broadcast(&a->change);
    } else {
        status = fl_error_raise(&a->error);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

double fl_read_ahead_share(fl_read_ahead *a)
{
    double share;

    pthread_mutex_lock(&a->lock);
    share =
        a->produced > 0 ? a->share * (1 - (double)a->used / a->produced) : 0;
    pthread_mutex_unlock(&a->lock);
    return share;
}

void fl_read_ahead_close(fl_read_ahead *a)
{
    if (!a)
        return;
    set_flag(a, &a->stop);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    fl_free(a->ring);
    fl_free(a);
}
