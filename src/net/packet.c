/* packet.c - packets, and a pool of memory blocks by size class. */
#include "net/packet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"

/* --- blocks --------------------------------------------------------------- */

enum { N_CLASS = 4 * 64 };

struct fl_packet_pool {
    pthread_mutex_t lock;
    uint64_t generation; /* of fork() */
    size_t idle, most;   /* bytes */
    size_t out;          /* blocks that are in use, and 1 for the handle */
    void *free[N_CLASS]; /* lists; the link is the block's first bytes */
};

/* Classes are four to a power of two, so that a fifth of a block is wasted at
 * most: 64, 80, 96, 112, 128, 160, ... bytes. */
static int class_of(size_t size)
{
    size_t n = size < FL_CACHE_LINE ? FL_CACHE_LINE - 1 : size - 1;
    int power = 63 - __builtin_clzll(n);

    return 4 * power + (int)(n >> (power - 2) & 3);
}

static size_t class_size(int c)
{
    return (size_t)(c % 4 + 5) << (c / 4 - 2);
}

/* A child of fork() has its parent's lock as some thread may have held it. */
static bool is_ours(const fl_packet_pool *pool)
{
    return pool->generation == fl_fork_generation();
}

/* Unlocks, with one block, or the handle, less in use. */
static void drop_pool(fl_packet_pool *pool)
{
    bool last = --pool->out == 0;

    pthread_mutex_unlock(&pool->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&pool->lock);
    fl_free(pool);
}

static void *take_idle(fl_packet_pool *pool, int c)
{
    void *block = pool->free[c];

    if (!block)
        return NULL;
    fl_show(block, class_size(c));
    memcpy(&pool->free[c], block, sizeof block);
    pool->idle -= class_size(c);
    return block;
}

void *fl_packet_pool_take(fl_packet_pool *pool, size_t size)
{
    int c = class_of(size);
    void *block;

    if (size > SIZE_MAX / 4 || !is_ours(pool)) {
        fl_fail(is_ours(pool) ? FLEET_ENOMEM : FLEET_ESTATE,
                "no packet of %zu bytes: %s", size,
                is_ours(pool) ? "out of memory" : "made before fork()");
        return NULL;
    }
    pthread_mutex_lock(&pool->lock);
    block = take_idle(pool, c);
    pool->out++;
    pthread_mutex_unlock(&pool->lock);
    if (!block)
        block = fl_alloc(class_size(c));
    if (!block) {
        pthread_mutex_lock(&pool->lock);
        drop_pool(pool);
    }
    return block;
}

static void give_block(fl_packet_pool *pool, void *block, int c)
{
    size_t size = class_size(c);
    bool keep;

    if (!is_ours(pool))
        return;
    pthread_mutex_lock(&pool->lock);
    keep = pool->idle + size <= pool->most;
    if (keep) {
        memcpy(block, &pool->free[c], sizeof block);
        pool->free[c] = block;
        pool->idle += size;
        /* all but its link, which LeakSanitizer follows */
        fl_hide((char *)block + sizeof block, size - sizeof block);
    }
    drop_pool(pool);
    if (!keep)
        fl_free(block);
}

void fl_packet_pool_give(fl_packet_pool *pool, void *block, size_t size)
{
    give_block(pool, block, class_of(size));
}

fleet_status fl_packet_pool_create(fl_packet_pool **pool, size_t most)
{
    FL_TRY(FL_NEW(pool, sizeof **pool));
    pthread_mutex_init(&(*pool)->lock, NULL);
    (*pool)->generation = fl_fork_generation();
    (*pool)->most = most;
    (*pool)->out = 1;
    return FLEET_OK;
}

void fl_packet_pool_destroy(fl_packet_pool *pool)
{
    if (!pool || !is_ours(pool))
        return;
    pthread_mutex_lock(&pool->lock);
    pool->most = 0; /* nothing becomes idle any more */
    for (int c = 0; c < N_CLASS; c++)
        while (pool->free[c])
            fl_free(take_idle(pool, c));
    drop_pool(pool);
}

/* --- packets -------------------------------------------------------------- */

enum {
    FEW = 16,           /* frames without an array of their own */
    AROUND_FRAME = 128, /* bytes that ZeroMQ takes for one: its own record, and
                           that record's place in a queue */
};

typedef struct made_packet {
    fl_packet packet; /* the first: a fl_packet of a pool is one of these */
    fl_packet_pool *pool;
    uint8_t size_class[FL_MOST_FRAME]; /* a frame's size may have shrunk */
    fl_frame few[FEW];
} made_packet;

_Static_assert(N_CLASS <= 256, "a class fits");

static void give_frame_array(made_packet *m)
{
    fl_packet *p = &m->packet;

    if (p->frame != m->few)
        fl_packet_pool_give(m->pool, p->frame,
                            (size_t)p->frame_capacity * sizeof *p->frame);
}

static void release_made(fl_packet *p)
{
    made_packet *m = (made_packet *)p;

    for (int i = 0; i < p->n_frame; i++)
        give_block(m->pool, p->frame[i].data, m->size_class[i]);
    give_frame_array(m);
    fl_packet_pool_give(m->pool, m, sizeof *m);
}

fleet_status fl_packet_create(fl_packet_pool *pool, fl_packet **p)
{
    made_packet *m = fl_packet_pool_take(pool, sizeof *m);

    *p = m ? &m->packet : NULL;
    if (!m)
        return fl_last_code();
    m->pool = pool;
    m->packet = (fl_packet){.refs = 1,
                            .frame_capacity = FEW,
                            .frame = m->few,
                            .release = release_made};
    return FLEET_OK;
}

static fleet_status grow_frames(made_packet *m)
{
    fl_packet *p = &m->packet;
    int more = 4 * p->frame_capacity < FL_MOST_FRAME ? 4 * p->frame_capacity
                                                     : FL_MOST_FRAME;
    fl_frame *frame;

    if (p->n_frame == FL_MOST_FRAME)
        return fl_fail(FLEET_EINVAL, "a packet has %d frames at most",
                       FL_MOST_FRAME);
    frame = fl_packet_pool_take(m->pool, (size_t)more * sizeof *frame);
    if (!frame)
        return fl_last_code();
    memcpy(frame, p->frame, (size_t)p->n_frame * sizeof *frame);
    give_frame_array(m);
    p->frame = frame;
    p->frame_capacity = more;
    return FLEET_OK;
}

void *fl_packet_add(fl_packet *p, size_t size)
{
    made_packet *m = (made_packet *)p;
    void *data;

    if (p->n_frame == p->frame_capacity && grow_frames(m) != FLEET_OK)
        return NULL;
    data = fl_packet_pool_take(m->pool, size);
    if (!data)
        return NULL;
    m->size_class[p->n_frame] = (uint8_t)class_of(size);
    p->frame[p->n_frame++] = (fl_frame){data, size};
    p->bytes += size;
    return data;
}

void fl_packet_charge(fl_packet *p, fl_ledger *ledger, int account)
{
    const made_packet *m = (const made_packet *)p;
    size_t bytes = sizeof *m;

    for (int i = 0; i < p->n_frame; i++) {
        size_t size = p->frame[i].size;

        bytes += class_size(m->size_class[i]) + AROUND_FRAME;
        bytes += i > 0 && size < FL_COPIED_BELOW ? size : 0;
    }
    p->ledger = ledger;
    p->account = account;
    p->charged = bytes;
    fl_ledger_charge(ledger, account, bytes);
}

fl_packet *fl_packet_keep(fl_packet *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void fl_packet_drop(fl_packet *p)
{
    fl_ledger *ledger;
    size_t charged;
    int account;

    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) > 1)
        return;
    ledger = p->ledger;
    account = p->account;
    charged = p->charged;
    p->release(p);
    if (ledger)
        fl_ledger_credit(ledger, account, charged);
}
