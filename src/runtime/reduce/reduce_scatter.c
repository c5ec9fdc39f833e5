/* reduce_scatter.c - sums of gradients that ranks share out. So Rajbhandari et
 * al. 2019, "ZeRO" (arXiv:1910.02054), its gradient partitioning.
 *
 * A rank's part is a stretch of the group, as that of its states (sharding.c),
 * so a bucket is mostly of one or two ranks. If one rank summed all of it, all
 * other ranks would wait: each sums an equal chunk, and an all_to_all_v brings
 * the chunks to where they belong.
 *
 * At most two buckets are alive: the one whose gradients are being computed,
 * and the one before it, which the ranks are summing. The step that begins a
 * sum first ends the one before it.
 */
#include "runtime/reduce/reduce_scatter.h"

#include <string.h>

#include "base/error.h"
#include "runtime/device/trace.h"
#include "runtime/plan/agree.h"
#include "runtime/plan/gradients.h"
#include "runtime/reduce/all_reduce_gpu.h"
#include "runtime/reduce/bucket_layout.h"

enum { THE_UPDATE, WORKS, PART, ENDED, BEGUN };

/* Floats that no parameter has. */
typedef struct gap {
    int64_t at, n;
} gap;

/* A bucket. */
typedef struct bucket {
    const fl_store *store;
    fl_gpu *gpu; /* in whose memory; NULL: in the host's */
    int number;  /* which work it is */
    int value;   /* of the bucket */
    int part;    /* value: this rank's part, which steps write on every rank, so
                    that all have the same order of steps */
    int64_t at;  /* where in it the sum goes, if any of it is this rank's */
    int64_t n;   /* floats, with which chunks of all ranks are of one size */
    const gap *gap;
    int n_gap;
    const int64_t *to, *from; /* bytes of this rank's chunk for each rank, and
                                 of each rank's chunk for this one */
} bucket;

/* What a step does: end the sum of one bucket, begin that of another. */
typedef struct reduce_config {
    const bucket *ended, *begun; /* NULL: none */
} reduce_config;

/* --- the steps ------------------------------------------------------------ */

static float *chunk_of(const bucket *b, float *data)
{
    const fl_comm *p = b->store->agree->comm;

    return data + p->rank * (b->n / p->size);
}

/* What lies between parameters was another value's before. */
static fleet_status clear_gaps(const bucket *b, float *data)
{
    for (int i = 0; i < b->n_gap; i++) {
        const size_t bytes = (size_t)b->gap[i].n * sizeof *data;
        float *at = data + b->gap[i].at;

        if (b->gpu)
            FL_TRY(b->gpu->m->fill(b->gpu->d, b->gpu->queue, at, 0, bytes));
        else
            memset(at, 0, bytes);
    }
    return FLEET_OK;
}

/* A rank that has joined adds -0.0, which changes no sum. */
static fleet_status make_ready(const bucket *b, float *data, bool joins)
{
    const fl_reduced on_gpu = {data, b->n, FL_WIRE_F32, joins};

    if (!joins)
        FL_TRY(clear_gaps(b, data));
    if (b->gpu)
        return fl_reduced_follows(&on_gpu, b->gpu, b->store->agree->comm);
    for (int64_t i = 0; joins && i < b->n; i++)
        data[i] = -0.0f;
    return FLEET_OK;
}

static fleet_status begin_sum(const bucket *b, float *data, bool joins,
                              fl_work **work)
{
    fl_comm *p = b->store->agree->comm;

    FL_TRY(make_ready(b, data, joins));
    fl_trace_begin(b->store->context->trace, "reduce_scatter", b->number,
                   b->n * (int64_t)sizeof *data);
    return p->methods->reduce_scatter(p, FL_ALL_SUM, FL_WIRE_F32, data,
                                      chunk_of(b, data), b->n / p->size, work);
}

/* Chunks are in the order of the group, and so are parts: nothing is moved
 * before or after it is sent. */
static fleet_status end_sum(const bucket *b, float *data, float *part,
                            fl_work **work)
{
    fl_comm *p = b->store->agree->comm;

    FL_TRY(p->methods->wait(p, work));
    FL_TRY(p->methods->all_to_all_v(p, chunk_of(b, data), b->to, part + b->at,
                                    b->from, NULL));
    fl_trace_end(b->store->context->trace, "reduce_scatter", b->number);
    return FLEET_OK;
}

static fleet_status reduce_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    const reduce_config *c = in->step->config;
    fl_work **work = fl_ptr(in, WORKS);

    (void)r;
    if (c->ended)
        FL_TRY(end_sum(c->ended, fl_ptr(in, ENDED), fl_ptr(in, PART),
                       &work[c->ended->number]));
    return c->begun ? begin_sum(c->begun, fl_ptr(in, BEGUN), now->joins,
                                &work[c->begun->number])
                    : FLEET_OK;
}

static const fl_kernel kernel_reduce = {
    .name = "reduce_scatter",
    .split = FL_SPLIT_PARTS,
    .run = reduce_run,
    .reduces = 1u << PART | 1u << ENDED | 1u << BEGUN,
};

static void emit_reduce(fl_lowering *l, const bucket *ended,
                        const bucket *begun)
{
    const reduce_config c = {ended, begun};
    const int works = l->plan->works;

    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &kernel_reduce, NULL, fl_config(l, &c, sizeof c),
            FL_R(l->plan->update), FL_RW(works), FL_W(ended ? ended->part : -1),
            FL_RW(ended ? ended->value : -1), FL_RW(begun ? begun->value : -1));
    l->engine = FL_ENGINE_COMPUTE;
}

/* The bucket whose sum is begun last, and that no step ends yet. */
static const bucket *last_begun(const fl_plan *plan)
{
    for (size_t i = plan->n_step; i-- > 0;)
        if (plan->step[i]->kernel == &kernel_reduce)
            return ((const reduce_config *)plan->step[i]->config)->begun;
    return NULL;
}

/* --- buckets -------------------------------------------------------------- */

typedef struct range {
    int64_t begin, end;
} range;

static int64_t common(range a, range b)
{
    int64_t begin = a.begin > b.begin ? a.begin : b.begin;
    int64_t end = a.end < b.end ? a.end : b.end;

    return end > begin ? end - begin : 0;
}

/* Floats of a group by rank: what is the rank's own, and what it sums of a
 * bucket. */
static range part_of(const fl_store *s, const fl_flat *g, int rank)
{
    return (range){fl_share_first(s, g, rank), fl_share_first(s, g, rank + 1)};
}

static range chunk_at(range all, int64_t size, int rank)
{
    range c = {all.begin + rank * size, all.begin + (rank + 1) * size};

    c.begin = c.begin < all.end ? c.begin : all.end;
    c.end = c.end < all.end ? c.end : all.end;
    return c;
}

static void find_exchange(const fl_store *s, const fl_flat *g, range all,
                          int64_t size, int64_t *to, int64_t *from)
{
    const int me = s->share.rank;

    for (int r = 0; r < s->share.ranks; r++) {
        to[r] = common(chunk_at(all, size, me), part_of(s, g, r)) *
                (int64_t)sizeof(float);
        from[r] = common(chunk_at(all, size, r), part_of(s, g, me)) *
                  (int64_t)sizeof(float);
    }
}

/* Behind each parameter of the bucket, and at its end. */
static int find_gaps(const fl_store *s, const fl_flat *g, range all, int64_t n,
                     gap *to)
{
    int64_t at = 0;
    int count = 0;

    for (size_t i = 0; i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;
        const int64_t begin = p->offset - all.begin;

        if (p->flat != g || p->offset < all.begin || p->offset >= all.end)
            continue;
        if (begin > at)
            to[count++] = (gap){at, begin - at};
        at = begin + p->n;
    }
    if (at < n)
        to[count++] = (gap){at, n - at};
    return count;
}

/* Let what lies in these floats of the group's gradient lie in the bucket. */
static void move_views(fl_plan *plan, int from, range all, int to)
{
    for (size_t i = 0; i < plan->n_value; i++) {
        fl_value *v = &plan->value[i];

        if (v->root != from || (int)i == from || v->column < all.begin ||
            v->column >= all.end)
            continue;
        v->root = to;
        v->column -= all.begin;
        v->kind = FL_VALUE_TEMP;
    }
}

/* Room for 16 floats of each rank at least: chunks are whole cache lines. */
static int64_t whole_chunks(int64_t n, int ranks)
{
    const int64_t unit = 16 * ranks;

    return (n + unit - 1) / unit * unit;
}

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bucket *make_bucket(fl_lowering *l, const fl_dense *d, range all)
{
    const fl_store *s = l->plan->store;
    fl_arena *arena = &l->plan->arena;
    const int ranks = s->share.ranks;
    const int64_t n = whole_chunks(all.end - all.begin, ranks);
    const bool mine = common(all, part_of(s, d->flat, s->share.rank)) > 0;
    const fl_shape shape = fl_shape_1(n);
    bucket *b = fl_arena_alloc(arena, sizeof *b);
    int64_t *bytes = fl_arena_alloc(arena, 2 * (size_t)ranks * sizeof *bytes);
    gap *gaps = fl_arena_alloc(arena, (s->params.n + 1) * sizeof *gaps);

    if (!b || !bytes || !gaps) {
        l->status = FLEET_ENOMEM;
        return NULL;
    }
    find_exchange(s, d->flat, all, n / ranks, bytes, bytes + ranks);
    *b = (bucket){.store = s,
                  .gpu = fl_comm_gpu_of_plan(l->plan),
                  .number = l->plan->n_work++,
                  .value = fl_temp(l, "bucket", FLEET_FLOAT32, &shape),
                  .part = d->gradient,
                  .at = mine ? max_of(all.begin, d->first) - d->first : 0,
                  .n = n,
                  .gap = gaps,
                  .n_gap = find_gaps(s, d->flat, all, n, gaps),
                  .to = bytes,
                  .from = bytes + ranks};
    return b;
}

static void emit_bucket(fl_lowering *l, const fl_dense *d, int64_t offset,
                        int64_t n)
{
    const range all = {offset, offset + n};
    const bucket *before = last_begun(l->plan);
    bucket *b = l->status == FLEET_OK ? make_bucket(l, d, all) : NULL;

    if (!b || b->value < 0)
        return;
    move_views(l->plan, d->one, all, b->value);
    l->phase = FL_REDUCE_BEGIN;
    emit_reduce(l, before, b);
}

void fl_emit_reduce_scatter(fl_lowering *l, fl_dense *d)
{
    const int64_t n = max_of(d->flat->end - d->flat->first, 1);

    d->one = d->gradient;
    d->first = d->flat->first;
    d->gradient =
        fl_flat_value(l, FL_VALUE_PERSISTENT, "part of gradients", n, NULL);
    if (d->gradient < 0)
        return;
    fl_each_bucket(l, d, emit_bucket);
    l->plan->value[d->one].kind = FL_VALUE_TEMP; /* no step touches it now */
}

void fl_emit_reduce_scatter_end(fl_lowering *l)
{
    const bucket *last = last_begun(l->plan);

    l->phase = FL_UPDATE;
    if (last)
        emit_reduce(l, last, NULL);
}
