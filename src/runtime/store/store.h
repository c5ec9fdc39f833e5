/* store.h - what training changes and checkpoints keep: parameters with their
 * optimizer's state, tables, states. By name; executors of several programs
 * share one store.
 *
 * Parameters lie in flat groups: one array of weights and one per state of the
 * rule, in segments of 64-byte alignment, the last layer first, so that a
 * finished backward pass leaves a growing range ready to be sent. A group is
 * made of all that one program brings; it never moves.
 */
#pragma once

#include <pthread.h>

#include "runtime/store/mirror.h"
#include "runtime/optim/optimizer.h"
#include "runtime/graph/program.h"
#include "runtime/store/table_api.h"

/* A dense parameter is cut into blocks of that many floats, which never cross a
 * parameter: units of the update, of norms, and of what servers share out. */
enum { FL_BLOCK = 16384 };

typedef struct fl_flat {
    float *weight; /* NULL: other ranks have all but `own` of it */
    float *own;    /* where ranks share out weights: [first, end) of them, which
                      count while weight is NULL; else NULL */
    float *state[FL_MAX_STATE]; /* of the optimizer's rule; else NULL */
    int64_t first, end;         /* floats whose states these are */
    float *residual[2]; /* of dgc: momentum, and what is left to send; else
                           NULL */
    float *gradient;    /* in memory that all ranks map, from which they reduce
                           it; NULL: each plan has its own */
    int64_t n;          /* floats, paddings included */
    struct fl_flat *next;
} fl_flat;

typedef struct fl_param {
    const char *name;
    fl_shape shape;
    fleet_param_attr attr;
    fleet_optimizer *optimizer; /* its own; NULL: that of the store */
    fl_flat *flat;              /* NULL: the store keeps no block of it */
    int64_t offset, n;          /* floats in the group */
    int64_t *block;   /* where each of its blocks is in the group, -1: not in
                          this store; NULL: all are, one behind the other */
    bool other_stage; /* of a job in stages: this process's steps do without
                         it */
} fl_param;

/* Blocks from 0 on. */
static inline int64_t fl_blocks_of(const fl_param *p)
{
    return (p->n + FL_BLOCK - 1) / FL_BLOCK;
}

/* Floats of a block; 0: there is no such block. */
static inline int64_t fl_block_size(const fl_param *p, int64_t block)
{
    int64_t left = p->n - block * FL_BLOCK;

    if (block < 0 || block >= fl_blocks_of(p))
        return 0;
    return left < FL_BLOCK ? left : FL_BLOCK;
}

/* Where the group has it; -1: the store does not keep it. */
static inline int64_t fl_block_offset(const fl_param *p, int64_t block)
{
    return p->block ? p->block[block] : p->offset + block * FL_BLOCK;
}

/* The block's weights; NULL: other processes have them. */
static inline float *fl_block_weights(const fl_param *p, int64_t block)
{
    const int64_t at = fl_block_offset(p, block);
    const fl_flat *g = p->flat;

    if (at < 0 || (!g->weight && (at < g->first || at >= g->end)))
        return NULL;
    return g->weight ? g->weight + at : g->own + (at - g->first);
}

/* Which blocks of dense parameters a store keeps; of the parameter are name,
 * shape, attr and n known. keeps NULL: all. */
struct fl_store;
typedef struct fl_block_filter {
    bool (*keeps)(const struct fl_store *s, const void *arg, const fl_param *p,
                  int64_t block);
    const void *arg;
} fl_block_filter;

typedef struct fl_state {
    const char *name;
    fleet_dtype dtype;
    fl_shape shape;
    void *data;
    size_t size;
} fl_state;

/* Of ranks that update on their own; see exec/localsgd_schedule.c. */
typedef struct fl_localsgd {
    int64_t since; /* updates since the weights of all ranks were equal */
    int64_t steps; /* adaptive: until the next mean; 0: as it starts */
    double loss, learning_rate; /* adaptive: the first ones; 0: none yet */
} fl_localsgd;

/* Of ranks that share out the optimizer's states of dense parameters; zeros:
 * nothing is shared out. See sharding.c. */
typedef struct fl_share {
    int rank, ranks;
    int stage; /* 2: gradients, too; 3: and weights; less: states alone */
} fl_share;

typedef struct fl_store {
    fl_context *context;
    fl_rows_maker *make_rows; /* of tables in this process */
    fl_rows_maker
        *make_remote_table;       /* of tables on servers; NULL: no servers */
    fl_capped_maker *make_capped; /* of tables with a cap; NULL: they have all
                                     rows in memory, as if they had none */
    fl_arena arena;
    fl_map params, tables, states; /* fl_param, fl_rows, fl_state */
    fl_flat *flats;
    fl_block_filter filter;     /* set before anything is added */
    fleet_optimizer *optimizer; /* NULL until something is trained */
    struct fl_remote
        *remote;      /* servers, sharded tables; NULL: this store has all */
    bool dense_local; /* workers are ranks: dense parameters stay with
                                 them where nothing else is said */
    struct fl_agree *agree; /* with ranks that train the same; NULL: none */
    fl_share share;         /* set before states are made */
    fl_layerwise layerwise; /* as servers update what they keep */
    int64_t n_joined; /* times that ranks have joined or left: plans are made
                         for one of them */
    struct fleet_executor *trainer; /* made the last update; NULL: it is gone */
    int n_flat;                     /* merge groups under way */
    bool half_loaded;               /* a load stopped half-way */
    const fl_rows *half_table;      /* of this table alone; NULL: of all */
    bool partial; /* the rest of the tables' rows is on ranks that this process
                    has not joined, or has left */
    struct fl_snapshot *snapshot; /* that a save is written from; NULL: none */
    bool sums; /* what changes it are sums of what workers have changed in their
                  copies: it has no states of an optimizer */
    bool gpu_passes; /* tables on a GPU have a pass's rows in its memory
                        alone, and home is the host's memory */
    bool joins;      /* of a server's handle: lanes have stores of their own */
    int64_t updates; /* done; drives the learning rate */
    bool counts_no_batch; /* pushes are of no batches: of a heter worker,
                             whose trainers count them */
    int worker, workers;  /* which of a job's workers this process is, of how
                            many; zeros: it is alone */
    fl_scaling scaling;   /* of the loss, in float16 */
    int64_t known_skips;  /* how many of scaling.skipped `updates` leaves
                            out: a GPU may have skipped more */
    fl_plateau_state plateau; /* loaded before training; reports 0: none */
    fl_localsgd local;
    fl_change_watch *watch; /* of dense parameters; NULL: none */
    fl_mirror *mirrors;     /* what GPUs have of it */
    uint64_t n_written;     /* calls of fl_store_written() */
    pthread_mutex_t mirror_lock;
    pthread_rwlock_t lock; /* written: a training step, a load */
} fl_store;

fleet_status fl_store_create(fl_context *context, fl_rows_maker *make_rows,
                             fl_store **store);
void fl_store_destroy(fl_store *s);

/* Do other processes train it, too? */
static inline bool fl_store_is_shared(const fl_store *s)
{
    return s->remote || s->agree;
}

/* The rule that it is trained by, whose states it keeps; NULL: none. Of a dense
 * parameter, and of the rows of a table. */
static inline const fleet_optimizer *fl_param_optimizer(const fl_store *s,
                                                        const fl_param *p)
{
    return p->optimizer ? p->optimizer : s->optimizer;
}

static inline const fl_rule *fl_store_rule(const fl_store *s, const fl_param *p)
{
    return s->optimizer && !s->sums ? fl_rule_of(fl_param_optimizer(s, p)->kind)
                                    : NULL;
}

static inline const fl_rule *fl_store_row_rule(const fl_store *s,
                                               const fl_rows *r)
{
    return s->optimizer && !s->sums && !r->counts
               ? fl_rule_of(fl_rows_optimizer(s->optimizer, r)->kind)
               : NULL;
}

/* How many numbers it keeps for each weight of a dense parameter; a flat group
 * has room for as many as any of its parameters has. */
static inline int fl_store_states(const fl_store *s, const fl_param *p)
{
    const fl_rule *rule = fl_store_rule(s, p);

    return rule ? rule->n_state : 0;
}

int fl_flat_states(const fl_store *s, const fl_flat *g);

/* Are the optimizer's states of dense parameters on several ranks? */
static inline bool fl_store_is_sharded(const fl_store *s)
{
    return s->share.ranks > 1;
}

/* And their gradients? Then plans have the gradient of this rank's part alone
 * (fl_dense.first), once ranks have summed it. */
static inline bool fl_store_shards_gradients(const fl_store *s)
{
    return fl_store_is_sharded(s) && s->share.stage >= 2;
}

/* And the weights? Then a rank that trains has its part of them alone
 * (fl_flat.own), see reduce/whole_weights.h. */
static inline bool fl_store_shards_weights(const fl_store *s)
{
    return fl_store_is_sharded(s) && s->share.stage >= 3;
}

/* Where a rank's part of the group begins, and the part before it ends: at a
 * block of a parameter, or the group's end. */
int64_t fl_share_first(const fl_store *s, const fl_flat *g, int rank);

/* In a job with servers, do they keep it? */
static inline bool fl_param_is_remote(const fl_store *s, const fl_param *p)
{
    return p->attr.ps == FLEET_PS_BY_MODE ? !s->dense_local
                                          : p->attr.ps == FLEET_PS_SERVERS;
}

static inline bool fl_table_is_remote(const fleet_param_attr *a)
{
    return a->ps != FLEET_PS_RANKS;
}

/* How many tables have rows in this process; other ranks may have the rest of
 * them. */
int fl_store_own_tables(const fl_store *s);

/* FLEET_ESTATE if it has one rank's rows alone. */
fleet_status fl_store_whole(const fl_store *s);

/* FLEET_ESTATE if it is a server's handle's, if a load stopped half-way, until
 * one succeeds, or if it has one rank's rows alone. */
fleet_status fl_store_check(const fl_store *s);

/* Make what the program needs and the store does not have yet, with first
 * values. FLEET_EEXIST for a name that it has with another shape: then
 * nothing is made. Without memory what was made stays, whole. */
fleet_status fl_store_add(fl_store *s, const fleet_program *p);

/* Train with this optimizer: make room for its states. A store has one. */
fleet_status fl_store_train(fl_store *s, fleet_optimizer *o);

/* As it was made: its weights, and its states in this process. Under the lock,
 * in the host's memory. */
void fl_store_first_values(const fl_store *s, const fl_param *p);
/* n floats of a state of a dense parameter; of rows: fl_rows_first_floats(). */
void fl_store_first_states(const fl_store *s, const fl_param *p, float *state,
                           int64_t n);

fl_param *fl_store_param(const fl_store *s, const char *name);
fl_rows *fl_store_rows(const fl_store *s, const char *name);
fl_state *fl_store_state(const fl_store *s, const char *name);
fleet_status fl_store_reset_states(fl_store *s);

/* Forget what only this rank has (local updates): the store was loaded
 * again. */
void fl_store_forget_own(fl_store *s);
