/* sharding.c - strategy.sharding: each rank keeps the optimizer's states of its
 * part of the dense parameters, and updates that part alone; then all get all
 * weights. So Rajbhandari et al. 2019, "ZeRO" (arXiv:1910.02054), its optimizer
 * state partitioning; reduce_scatter.c has the gradients of stage 2. Of stage 3
 * nothing is sent after an update: gather_weights.c does it before the weights
 * are used.
 *
 * Parts are stretches of a group that begin at blocks of parameters, so that a
 * save's records are of one rank each. Norms and ratios are of all gradients,
 * as without sharding, and so all bits are the same. Plans have the same steps
 * on all ranks, also where a part is empty: calls are in one order.
 */
#include <string.h>

#include "runtime/plan/agree.h"
#include "runtime/plan/pass.h"
#include "runtime/reduce/all_reduce_gpu.h"

/* --- share.weights: all ranks' parts, piece by piece --------------------- */

enum { PIECE = 65536 }; /* floats: what lies in between stays in the caches */

typedef struct gathering {
    const fl_store *store;
    fl_gpu *gpu;    /* in whose memory weights are gathered; NULL: the host's */
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

/* --- the same in a GPU's memory: each part from its rank to all ----------- */

/* Parts lie where they belong on every rank, and nothing is staged. */
static fleet_status send_run(const fl_instance *in, const fl_range *r)
{
    const gathering *c = in->step->config;
    fl_comm *p = c->store->agree->comm;
    float *weight = fl_ptr(in, WEIGHT);

    (void)r;
    FL_TRY(p->methods->after(p, c->gpu->queue));
    for (int from = 0; from < p->size; from++) {
        int64_t n = c->first[from + 1] - c->first[from];

        if (n > 0)
            FL_TRY(p->methods->broadcast(p, weight + c->first[from],
                                         n * (int64_t)sizeof *weight, from,
                                         NULL));
    }
    return FLEET_OK;
}

static const fl_kernel kernel_send = {
    .name = "share.weights",
    .split = FL_SPLIT_PARTS,
    .run = send_run,
    .reduces = 1u << WEIGHT,
};

static void emit_gather(fl_lowering *l, const fl_dense *d)
{
    const fl_store *s = l->plan->store;
    int ranks = s->share.ranks;
    gathering c = {.store = s,
                   .gpu = fl_comm_gpu_of_plan(l->plan),
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
    if (c.gpu) {
        FL_EMIT(l, &kernel_send, NULL, fl_config(l, &c, sizeof c),
                FL_RW(d->weight));
        return;
    }
    c.piece = c.most < PIECE ? c.most : PIECE;
    room = fl_shape_1(ranks * c.piece);
    FL_EMIT(l, &kernel_gather, NULL, fl_config(l, &c, sizeof c),
            FL_RW(d->weight),
            FL_W(fl_temp(l, "weights of all", FLEET_FLOAT32, &room)));
}

/* --- the pass ------------------------------------------------------------ */

fleet_status fl_pass_sharding(fl_lowering *l, bool *applied)
{
    fl_plan *plan = l->plan;

    if (!plan->training || !plan->store->agree ||
        !fl_store_is_sharded(plan->store) ||
        fl_store_shards_weights(plan->store))
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
