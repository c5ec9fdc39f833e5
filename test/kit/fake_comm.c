/* fake_comm.c - see fake_comm.h. */
#define _GNU_SOURCE
#define SUITE fake_comm
#include "fake_comm.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "runtime/simd/simd.h"

/* Called once, when all ranks are there. */
typedef void join(fake_group *g);

static fake_rank *rank_of(fl_comm *p)
{
    return (fake_rank *)(void *)p;
}

static fleet_status broken(fake_group *g)
{
    return *g->why ? fl_fail(FLEET_EPEER, "%s", g->why) : FLEET_OK;
}

static fleet_status wait_for_round(fake_group *g, int64_t round)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20 * TEST_SLOWNESS;
    while (g->round == round && !*g->why)
        if (pthread_cond_timedwait(&g->changed, &g->lock, &until) == ETIMEDOUT)
            return fl_fail(FLEET_ETIMEDOUT, "%d of %d ranks came", g->n_here,
                           g->n);
    return g->round == round ? broken(g) : FLEET_OK;
}

static void check_same(const fake_group *g)
{
    for (int r = 1; r < g->n; r++)
        if (strcmp(g->call[r], g->call[0]) != 0 || g->size[r] != g->size[0])
            test_fail(__FILE__, __LINE__,
                      "rank %d calls %s of %lld, rank 0 %s of %lld", r,
                      g->call[r], (long long)g->size[r], g->call[0],
                      (long long)g->size[0]);
}

static fleet_status meet(fake_rank *r, const char *name, const void *in,
                         void *out, int64_t size, join *all)
{
    fake_group *g = r->group;
    fleet_status status;
    size_t n = strlen(r->calls);

    if (++r->n_call == g->fail_at && r->p.rank == 1)
        return fl_fail(FLEET_EIO, "rank 1 cannot go on");
    snprintf(r->calls + n, sizeof r->calls - n, " %s%lld", name,
             (long long)size);
    pthread_mutex_lock(&g->lock);
    status = broken(g);
    if (status == FLEET_OK) {
        g->call[r->p.rank] = name;
        g->in[r->p.rank] = in;
        g->out[r->p.rank] = out;
        g->size[r->p.rank] = size;
        if (++g->n_here == g->n) {
            check_same(g);
            all(g);
            g->n_here = 0;
            g->round++;
            pthread_cond_broadcast(&g->changed);
        } else {
            status = wait_for_round(g, g->round);
        }
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

#define SUM_OF(type)                                                           \
    static void sum_##type(fake_group *g)                                      \
    {                                                                          \
        for (int64_t i = 0; i < g->size[0]; i++) {                             \
            type sum = ((const type *)g->in[0])[i];                            \
            for (int r = 1; r < g->n; r++)                                     \
                sum += ((const type *)g->in[r])[i];                            \
            for (int r = 0; r < g->n; r++)                                     \
                ((type *)g->out[r])[i] = sum;                                  \
        }                                                                      \
    }
SUM_OF(float)
SUM_OF(double)

static void sum_half(fake_group *g)
{
    const fl_simd *t = fl_simd_best();

    for (int64_t i = 0; i < g->size[0]; i++) {
        float sum, x;
        uint16_t half;

        t->from_half(&sum, (const uint16_t *)g->in[0] + i, 1);
        for (int r = 1; r < g->n; r++) {
            t->from_half(&x, (const uint16_t *)g->in[r] + i, 1);
            sum += x;
        }
        t->to_half(&half, &sum, 1);
        for (int r = 0; r < g->n; r++)
            ((uint16_t *)g->out[r])[i] = half;
    }
}

/* Rank r's n floats of all ranks, where it wants them, which may be where they
 * were. */
static void sum_parts(fake_group *g)
{
    for (int to = 0; to < g->n; to++)
        for (int64_t i = 0; i < g->size[0]; i++) {
            const int64_t at = to * g->size[0] + i;
            float sum = ((const float *)g->in[0])[at];

            for (int r = 1; r < g->n; r++)
                sum += ((const float *)g->in[r])[at];
            ((float *)g->out[to])[i] = sum;
        }
}

/* What is begun is done when it is waited for. */
static fleet_status begin(fake_rank *r, const fake_work *like, fl_work **work)
{
    fake_work *w = &r->work[r->n_work++ % FAKE_MOST_WORK];

    if (++r->n_call == r->group->fail_at && r->p.rank == 1)
        return fl_fail(FLEET_EIO, "rank 1 cannot go on");
    *w = *like;
    *work = (fl_work *)(void *)w;
    return FLEET_OK;
}

static fleet_status all_reduce(fl_comm *p, fl_reduce how, fl_wire_type type,
                               const void *in, void *out, int64_t n,
                               fl_work **work)
{
    CHECK(how == FL_ALL_SUM);
    if (work)
        return begin(rank_of(p), &(fake_work){type, in, out, n, false}, work);
    if (type == FL_WIRE_F16)
        return meet(rank_of(p), "half", in, out, n, sum_half);
    CHECK(type == FL_WIRE_F32 || type == FL_WIRE_F64);
    return meet(rank_of(p), "reduce", in, out, n,
                type == FL_WIRE_F32 ? sum_float : sum_double);
}

static fleet_status wait(fl_comm *p, fl_work **work)
{
    fake_work *w = (fake_work *)(void *)*work;

    *work = NULL;
    if (w && w->scatters)
        return meet(rank_of(p), "scatter", w->in, w->out, w->n, sum_parts);
    return w ? all_reduce(p, FL_ALL_SUM, w->type, w->in, w->out, w->n, NULL)
             : FLEET_OK;
}

static fleet_status reduce_scatter(fl_comm *p, fl_reduce how, fl_wire_type type,
                                   const void *in, void *out, int64_t n,
                                   fl_work **work)
{
    CHECK(how == FL_ALL_SUM && type == FL_WIRE_F32 && work);
    return begin(rank_of(p), &(fake_work){type, in, out, n, true}, work);
}

static void gather(fake_group *g)
{
    for (int to = 0; to < g->n; to++)
        for (int r = 0; r < g->n; r++)
            memmove((char *)g->out[to] + r * g->size[0], g->in[r],
                    (size_t)g->size[0]);
}

static fleet_status all_gather(fl_comm *p, const void *in, void *out,
                               int64_t bytes, fl_work **work)
{
    CHECK(!work);
    return meet(rank_of(p), "gather", in, out, bytes, gather);
}

typedef struct parts {
    const int64_t *to, *from;
    const char *in;
    char *out;
} parts;

static const char *part_for(const parts *p, int rank)
{
    const char *at = p->in;

    for (int r = 0; r < rank; r++)
        at += p->to[r];
    return at;
}

static void swap_parts(fake_group *g)
{
    for (int to = 0; to < g->n; to++) {
        const parts *mine = g->in[to];
        char *at = mine->out;

        for (int from = 0; from < g->n; from++) {
            const parts *theirs = g->in[from];

            CHECK(theirs->to[to] == mine->from[from]);
            if (mine->from[from] > 0)
                memcpy(at, part_for(theirs, to), (size_t)mine->from[from]);
            at += mine->from[from];
        }
    }
}

static fleet_status all_to_all_v(fl_comm *p, const void *in,
                                 const int64_t *to_bytes, void *out,
                                 const int64_t *from_bytes, fl_work **work)
{
    const parts mine = {to_bytes, from_bytes, in, out};

    CHECK(!work);
    return meet(rank_of(p), "swap", &mine, NULL, 0, swap_parts);
}

/* `in` of a rank is the number of the root. */
static void copy_root(fake_group *g)
{
    const int root = *(const int *)g->in[0];

    for (int r = 0; r < g->n; r++) {
        CHECK_INT(*(const int *)g->in[r], root);
        if (r != root)
            memcpy(g->out[r], g->out[root], (size_t)g->size[0]);
    }
}

static fleet_status broadcast(fl_comm *p, void *data, int64_t bytes, int root,
                              fl_work **work)
{
    CHECK(!work && root >= 0 && root < p->size);
    return meet(rank_of(p), "broadcast", &root, data, bytes, copy_root);
}

static void nothing(fake_group *g)
{
    (void)g;
}

static fleet_status barrier(fl_comm *p)
{
    return meet(rank_of(p), "barrier", NULL, NULL, 0, nothing);
}

static void give_up(fl_comm *p, const char *why)
{
    fake_group *g = rank_of(p)->group;

    pthread_mutex_lock(&g->lock);
    if (!*g->why)
        snprintf(g->why, sizeof g->why, "rank %d: %s", p->rank, why);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* It lends none. */
static void free_memory(fl_comm *p, void *memory)
{
    (void)p;
    CHECK(!memory);
}

static void leave(fl_comm *p)
{
    (void)p;
}

static const fl_comm_class methods = {
    .name = "fake",
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all_v = all_to_all_v,
    .broadcast = broadcast,
    .barrier = barrier,
    .wait = wait,
    .free_memory = free_memory,
    .abort = give_up,
    .destroy = leave,
};

void fake_group_open(fake_group *g, int n)
{
    CHECK(n <= FAKE_MOST_RANKS);
    memset(g, 0, sizeof *g);
    g->n = n;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    for (int i = 0; i < n; i++) {
        g->rank[i].p = (fl_comm){&methods, i, n, true, 20000};
        g->rank[i].group = g;
        g->rank[i].rounds.comm = &g->rank[i].p;
    }
}

void fake_group_close(fake_group *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
}

typedef struct job {
    fake_rank *rank;
    fake_rank_work *work;
    void *arg;
} job;

static void *live(void *arg)
{
    job *j = arg;

    j->work(j->rank, j->arg);
    return NULL;
}

void fake_group_run(fake_group *g, fake_rank_work *work, void *arg)
{
    pthread_t thread[FAKE_MOST_RANKS];
    job j[FAKE_MOST_RANKS];

    for (int i = 0; i < g->n; i++) {
        j[i] = (job){&g->rank[i], work, arg};
        CHECK(pthread_create(&thread[i], NULL, live, &j[i]) == 0);
    }
    for (int i = 0; i < g->n; i++)
        pthread_join(thread[i], NULL);
}
