/* sharding.c - strategy.sharding, stage 1: each rank keeps the optimizer's
 * states of its part of the dense parameters, and updates that part alone; then
 * all get all weights. So Rajbhandari et al. 2019, "ZeRO" (arXiv:1910.02054),
 * its optimizer state partitioning.
 *
 * Parts are stretches of a group that begin at blocks of parameters, so that a
 * save's records are of one rank each. Gradients are all ranks', as without
 * sharding: norms and ratios, and so all bits, are the same. Plans have the
 * same steps on all ranks, also where a part is empty: calls are in one order.
 */
#include <string.h>

#include "runtime/plan/pass.h"
#include "runtime/device/comm.h"
#include "runtime/passes/update.h"

/* --- parts --------------------------------------------------------------- */

/* Where the parameter's first block from `wanted` on begins; -1: there is
 * none. */
static int64_t next_block(const fl_param *p, int64_t wanted)
{
    int64_t blocks = 0;

    if (wanted > p->offset)
        blocks = (wanted - p->offset + FL_BLOCK - 1) / FL_BLOCK;
    return blocks * FL_BLOCK < p->n ? p->offset + blocks * FL_BLOCK : -1;
}

int64_t fl_share_first(const fl_store *s, const fl_flat *g, int rank)
{
    int ranks = fl_store_is_sharded(s) ? s->share.ranks : 1;
    int64_t wanted = (g->n * rank + ranks - 1) / ranks, best = g->n;

    for (size_t i = 0; rank > 0 && i < s->params.n; i++) {
        const fl_param *p = s->params.entry[i].value;
        int64_t at = p->flat == g ? next_block(p, wanted) : -1;

        if (at >= 0 && at < best)
            best = at;
    }
    return rank > 0 ? best : 0;
}

/* --- share.weights: all ranks' parts, piece by piece --------------------- */

enum { PIECE = 65536 }; /* floats: what lies in between stays in the caches */

typedef struct gathering {
    const fl_store *store;
    int64_t *first; /* of each rank's part; one more at the end */
    int64_t most;   /* floats of a part */
    int64_t piece;
} gathering;

enum { WEIGHT, ROOM };

/* How much of a rank's part lies in the piece that begins at `at`. */
static int64_t length_of(const gathering *c, int rank, int64_t at)
{
    int64_t left = c->first[rank + 1] - c->first[rank] - at;

    if (left <= 0)
        return 0;
    return left < c->piece ? left : c->piece;
}

static fleet_status gather_piece(const gathering *c, float *weight, float *room,
                                 int64_t at)
{
    fl_comm *p = c->store->agree->comm;
    float *mine = room + p->rank * c->piece;
    int64_t n = length_of(c, p->rank, at);

    if (n > 0)
        memcpy(mine, weight + c->first[p->rank] + at, (size_t)n * sizeof *mine);
    FL_TRY(p->methods->all_gather(p, mine, room,
                                  c->piece * (int64_t)sizeof *mine, NULL));
    for (int r = 0; r < p->size; r++) {
        n = r == p->rank ? 0 : length_of(c, r, at);
        if (n > 0)
            memcpy(weight + c->first[r] + at, room + r * c->piece,
                   (size_t)n * sizeof *weight);
    }
    return FLEET_OK;
}

static fleet_status gather_run(const fl_instance *in, const fl_range *r)
{
    const gathering *c = in->step->config;

    (void)r;
    for (int64_t at = 0; at < c->most; at += c->piece)
        FL_TRY(gather_piece(c, fl_ptr(in, WEIGHT), fl_ptr(in, ROOM), at));
    return FLEET_OK;
}

static const fl_kernel kernel_gather = {
    .name = "share.weights",
    .split = FL_SPLIT_PARTS,
    .run = gather_run,
};

static void emit_gather(fl_lowering *l, const fl_dense *d)
{
    const fl_store *s = l->plan->store;
    int ranks = s->share.ranks;
    gathering c = {.store = s,
                   .first = fl_arena_alloc(
                       &l->plan->arena, ((size_t)ranks + 1) * sizeof *c.first)};
    fl_shape room;

    if (!c.first) {
        l->status = FLEET_ENOMEM;
        return;
    }
    for (int r = 0; r <= ranks; r++)
        c.first[r] = fl_share_first(s, d->flat, r);
    for (int r = 0; r < ranks; r++)
        if (c.first[r + 1] - c.first[r] > c.most)
            c.most = c.first[r + 1] - c.first[r];
    c.piece = c.most < PIECE ? c.most : PIECE;
    room = fl_shape_1(ranks * c.piece);
    FL_EMIT(l, &kernel_gather, NULL, fl_config(l, &c, sizeof c),
            FL_RW(d->weight),
            FL_W(fl_temp(l, "weights of all", FLEET_FLOAT32, &room)));
}

/* --- share.squares ------------------------------------------------------- */

typedef struct squares {
    const fl_store *store;
    int begin, end; /* this rank's */
} squares;

/* The sum of one number and zeros is that number, in any order. */
static fleet_status squares_run(const fl_instance *in, const fl_range *r)
{
    const squares *c = in->step->config;
    fl_comm *p = c->store->agree->comm;
    int64_t n = in->arg[0].rows * in->arg[0].cols / (int64_t)sizeof(double);
    double *x = fl_ptr(in, 0);

    (void)r;
    for (int64_t i = 0; i < n; i++)
        if (i < c->begin || i >= c->end)
            x[i] = 0;
    return p->methods->all_reduce(p, FL_ALL_SUM, FL_WIRE_F64, x, x, n, NULL);
}

static const fl_kernel kernel_squares = {
    .name = "share.squares",
    .split = FL_SPLIT_PARTS,
    .run = squares_run,
};

void fl_emit_share_squares(fl_lowering *l, int value, int begin, int end)
{
    const squares c = {l->plan->store, begin, end};

    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &kernel_squares, NULL, fl_config(l, &c, sizeof c), FL_RW(value));
    l->engine = FL_ENGINE_COMPUTE;
}

/* --- the pass ------------------------------------------------------------ */

fleet_status fl_pass_sharding(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;

    if (!plan->training || !plan->store->agree ||
        !fl_store_is_sharded(plan->store))
        return FLEET_OK;
    l->phase = FL_UPDATE;
    l->engine = FL_ENGINE_COMM;
    for (size_t i = 0; i < plan->n_dense; i++)
        if (plan->dense[i].gradient >= 0) {
            emit_gather(l, &plan->dense[i]);
            *applied = true;
        }
    l->engine = FL_ENGINE_COMPUTE;
    return l->status;
}
