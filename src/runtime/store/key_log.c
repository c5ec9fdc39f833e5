/* key_log.c - keys that came or went, of each part in its own order. */
#include "runtime/store/key_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Keys of a part before a table that is small is saved whole; of a large one it
 * is a share of its rows. */
enum { LEAST_KEYS = 8192, SHARE = 4 };

typedef struct part_keys {
    pthread_mutex_t lock;
    uint64_t *key;
    size_t n, capacity;
    size_t frozen; /* of them, in the save that is made */
    size_t most;
    uint64_t losses; /* how often it lost all */
    uint64_t losses_frozen;
} part_keys;

struct fl_key_log {
    part_keys part[FL_N_PART];
    uint64_t token; /* of the last save; 0: none */
    uint64_t updates;
    uint64_t losses_saved; /* by then */
};

/* --- made, freed ---------------------------------------------------------- */

fleet_status fl_key_log_begin(fl_rows *r)
{
    if (r->keys || r->remote)
        return FLEET_OK;
    FL_TRY(FL_NEW(&r->keys, sizeof *r->keys));
    for (int i = 0; i < FL_N_PART; i++)
        pthread_mutex_init(&r->keys->part[i].lock, NULL);
    fl_key_log_freeze(r);
    return FLEET_OK;
}

void fl_key_log_end(fl_rows *r)
{
    for (int i = 0; r->keys && i < FL_N_PART; i++) {
        pthread_mutex_destroy(&r->keys->part[i].lock);
        fl_free(r->keys->part[i].key);
    }
    fl_free(r->keys);
    r->keys = NULL;
}

/* --- keys ----------------------------------------------------------------- */

/* Under the lock. */
static void lose(part_keys *p)
{
    fl_free(p->key);
    p->key = NULL;
    p->n = p->capacity = p->frozen = 0;
    p->losses++;
}

void fl_key_log_add(fl_key_log *log, uint64_t key)
{
    part_keys *p = &log->part[fl_part_of(fl_mix(key))];

    pthread_mutex_lock(&p->lock);
    if (p->n >= p->most ||
        fl_grow(&p->key, &p->capacity, p->n + 1, sizeof *p->key) != FLEET_OK)
        lose(p);
    else
        p->key[p->n++] = key;
    pthread_mutex_unlock(&p->lock);
}

void fl_key_log_lose(const fl_rows *r)
{
    for (int i = 0; r->keys && i < FL_N_PART; i++) {
        part_keys *p = &r->keys->part[i];

        pthread_mutex_lock(&p->lock);
        lose(p);
        pthread_mutex_unlock(&p->lock);
    }
}

static uint64_t losses_of(const fl_key_log *log)
{
    uint64_t n = 0;

    for (int i = 0; i < FL_N_PART; i++)
        n += log->part[i].losses_frozen;
    return n;
}

/* --- saves ---------------------------------------------------------------- */

void fl_key_log_freeze(const fl_rows *r)
{
    size_t room;

    if (!r->keys)
        return;
    room = (size_t)r->methods->count(r) / (SHARE * FL_N_PART);
    room = room > LEAST_KEYS ? room : LEAST_KEYS;
    for (int i = 0; i < FL_N_PART; i++) {
        part_keys *p = &r->keys->part[i];

        pthread_mutex_lock(&p->lock);
        /* saves that fail, one after the other, do not let it grow on */
        p->most = (p->n < room ? p->n : room) + room;
        p->frozen = p->n;
        p->losses_frozen = p->losses;
        pthread_mutex_unlock(&p->lock);
    }
}

bool fl_key_log_knows(const fl_rows *r, uint64_t token, uint64_t *since)
{
    const fl_key_log *log = r->keys;

    if (!log || token == 0 || log->token != token ||
        log->losses_saved != losses_of(log))
        return false;
    *since = log->updates;
    return true;
}

static int smaller_first(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static int64_t each_once(uint64_t *key, int64_t n)
{
    int64_t m = 0;

    if (n > 1)
        qsort(key, (size_t)n, sizeof *key, smaller_first);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || key[i] != key[i - 1])
            key[m++] = key[i];
    return m;
}

/* What was frozen may be lost by now: then this is no save that another one
 * adds to, and its own keys are lost, too. */
static fleet_status copy_part(part_keys *p, uint64_t **key, size_t *capacity,
                              int64_t *n)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&p->lock);
    if (p->losses != p->losses_frozen)
        status = fl_fail(FLEET_ESTATE, "what rows came and went is not known "
                                       "any more");
    else
        status = fl_grow(key, capacity, (size_t)*n + p->frozen, sizeof **key);
    if (status == FLEET_OK && p->frozen > 0) {
        memcpy(*key + *n, p->key, p->frozen * sizeof **key);
        *n += (int64_t)p->frozen;
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

fleet_status fl_key_log_keys(const fl_rows *r, uint64_t **key, int64_t *n)
{
    fleet_status status = FLEET_OK;
    size_t capacity = 0;

    *key = NULL;
    *n = 0;
    for (int i = 0; i < FL_N_PART && status == FLEET_OK; i++)
        status = copy_part(&r->keys->part[i], key, &capacity, n);
    if (status == FLEET_OK)
        *n = each_once(*key, *n);
    else
        fl_free(*key);
    return status;
}

void fl_key_log_saved(const fl_rows *r, uint64_t token, uint64_t updates)
{
    if (!r->keys)
        return;
    for (int i = 0; i < FL_N_PART; i++) {
        part_keys *p = &r->keys->part[i];

        pthread_mutex_lock(&p->lock);
        if (p->losses == p->losses_frozen && p->frozen > 0) {
            memmove(p->key, p->key + p->frozen,
                    (p->n - p->frozen) * sizeof *p->key);
            p->n -= p->frozen;
            p->frozen = 0;
        }
        pthread_mutex_unlock(&p->lock);
    }
    r->keys->losses_saved = losses_of(r->keys);
    r->keys->token = token;
    r->keys->updates = updates;
}
