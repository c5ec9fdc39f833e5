/* strategy.h - how a program is trained: Fleet's DistributedStrategy.
 *
 * Every field is honoured, or has nothing to act on, which the log and
 * fleet_strategy_dump() say, or is refused by name (FLEET_EUNSUPPORTED) when it
 * is set: there is no silent knob. Switches are 0 or 1. Field names and
 * defaults are Fleet's, but a_sync_configs.k_steps is 0 by default, and setting
 * a_sync changes no other field. docs/strategy.md has the range and default of
 * each field, its fate in each mode, and where names are not Fleet's.
 *
 * Threads: fleet_strategy_dump() and what sets up a training are one thread's
 * at a time per handle; fleet_distributed_strategy_default() is any thread's.
 */
#ifndef FLEET_STRATEGY_H
#define FLEET_STRATEGY_H

#include <fleet/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fleet_a_sync_configs {
    int64_t k_steps; /* 0: sync or async; > 0, with a_sync 1 and servers: geo,
                        in which workers train copies of their own and exchange
                        with the servers every so many updates */

    /* With a_sync 1 and servers any of these off its default is the mode
     * half-async. A worker adds up the gradients of max_merge_var_num batches
     * and pushes their mean, without waiting unless send_queue_size pushes are
     * under way, and pulls dense weights after every
     * min_send_grad_num_before_recv pushes: for the next batch, or
     * (independent_recv_thread 1) for whichever batch is next when they have
     * come. docs/modes.md. */
    int max_merge_var_num;
    int send_queue_size;
    int independent_recv_thread;
    int min_send_grad_num_before_recv;
    int thread_pool_size; /* 1: see docs/strategy.md, as for the next three */
    int send_wait_times;
    int runtime_split_send_recv;
    int launch_barrier;
    int lr_decay_steps;
    int use_ps_gpu;
    int max_staleness; /* of libfleet: how many steps a worker may be ahead of
                          the slowest one when it pulls; -1: any. 0 is not sync:
                          each worker's step is an update of its own */

    /* Of libfleet, after MindSpore and HET: a worker keeps rows of the servers'
     * tables, within so many bytes (0: none; else at least 8 rows of each
     * table), in sync, too. With cache_read_staleness 0 a kept row is used only
     * if its server says that it has not changed; with r > 0, in async, also
     * without asking for up to r batches of this worker. docs/modes.md. */
    int64_t vocab_cache_size;
    int cache_read_staleness;
    int cache_write_staleness; /* 0: max_merge_var_num is for that */
} fleet_a_sync_configs;

/* How the numbers of pushes and pulls travel between workers and servers. JSON
 * has the names "fp32", "fp16", "bf16", "int8". */
typedef enum fleet_wire_type {
    FLEET_WIRE_FP32, /* as they are: the default */
    FLEET_WIRE_FP16, /* 2 bytes: 11 bits, from 6e-8 to 65504 */
    FLEET_WIRE_BF16, /* 2 bytes: 8 bits, float's range */
    FLEET_WIRE_INT8  /* a byte, and 2 more for each 256 of a row or of 16,384
                        floats of a dense parameter, which share a scale; rows
                        of 1 or 2 numbers travel as bf16 */
} fleet_wire_type;

/* Of libfleet; docs/modes.md has what it saves, and costs. What a push rounds
 * away is kept by its worker and added to the next push of that row or block
 * (error_feedback 1), which takes a float for each weight there. Pulls of
 * training are rounded to nearest; servers keep floats, and tests, saves,
 * loads, hashes, fleet_table_get() and _set() are exact. All processes of a job
 * must have the same. */
typedef struct fleet_wire_configs {
    int push_type;      /* gradients: a fleet_wire_type */
    int pull_type;      /* weights */
    int error_feedback; /* 1; 0: what a push rounds away is lost */
    int pack_keys; /* 1: keys of rows travel sorted and packed, in geo, too */
} fleet_wire_configs;

/* What a server's updates survive. JSON has the names "none", "process",
 * "power". */
typedef enum fleet_durability {
    FLEET_DURABLE_NONE,    /* nothing: the last save is what is left */
    FLEET_DURABLE_PROCESS, /* the end of its process, by kill -9 as well */
    FLEET_DURABLE_POWER    /* a crash of its machine */
} fleet_durability;

typedef struct fleet_recompute_configs {
    /* Names of variables, results of operators, with commas between them:
     * fleet_var_name(), or as fleet_program_dump() shows them. They are copied
     * with the strategy. fleet_minimize(): FLEET_EINVAL for none, or one that
     * no operator computes, FLEET_ENOENT for one that the program has not. */
    const char *checkpoints;
} fleet_recompute_configs;

/* Of libfleet, with servers: each server writes what it is about to apply into
 * a log, before it answers. The process that is started in place of one that
 * has died, with the same command, makes it again from the log, to the bit,
 * while workers wait; docs/recovery.md. */
typedef struct fleet_log_configs {
    /* Of the logs: FOLDER/server-N, and FOLDER/worker-N where workers can be
     * started again, too; for the job's time, on a disk that a process which is
     * started again finds again. NULL: FLEET_LOG_FOLDER. */
    const char *folder;
    int64_t file_bytes;      /* 64 MiB: a file of a log is closed there */
    int restart_deadline_ms; /* 120,000: how long a worker waits for a server
                                that it does not hear of, and a server for a
                                worker; at least the peer
                                deadline */
} fleet_log_configs;

typedef struct fleet_gradient_merge_configs {
    int k_steps; /* batches per update; with servers, of each worker */
    int avg;     /* 1: the update is of their mean, 0: of their sum */
} fleet_gradient_merge_configs;

typedef struct fleet_pipeline_configs {
    /* Batches of a worker that are in flight, 1 to 64. In sync an update is of
     * all of them, as with gradient_merge; in async of each by itself. */
    int accumulate_steps;
} fleet_pipeline_configs;

typedef struct fleet_amp_configs {
    /* Of float16 alone: what the loss is multiplied by, and after how many
     * updates in a row that were made, or were skipped because they were not
     * finite, it changes by which factor. */
    float init_loss_scaling;
    int incr_every_n_steps;
    int decr_every_n_nan_or_inf;
    float incr_ratio;
    float decr_ratio;
    int use_dynamic_loss_scaling; /* 0: it never changes */

    /* Names with commas between them, "fc,matmul"; NULL: none. They are copied
     * with the strategy. */
    const char *custom_white_list; /* operators: what takes narrow ones, does
                                      so anyway */
    const char *custom_black_list; /* operators that compute in float */
    const char *custom_black_varnames; /* variables: operators that touch one
                                          compute in float */
    int use_pure_fp16;
    int use_fp16_guard; /* of use_pure_fp16 alone */
    int use_bf16;       /* 1: bfloat16, 0: float16 */
} fleet_amp_configs;

typedef struct fleet_localsgd_configs {
    int k_steps;
    int begin_step;
} fleet_localsgd_configs;

typedef struct fleet_dgc_configs {
    int rampup_begin_step;
    int rampup_step;
    float sparsity;
} fleet_dgc_configs;

/* lars: Momentum becomes LARS; lamb: Adam becomes LAMB. Each dense parameter
 * then has a rate of its own; tables have not. docs/strategy.md has the
 * formulas. */
typedef struct fleet_lars_configs {
    float lars_coeff;
    float lars_weight_decay;
    float epsilon; /* of the ratio's denominator */
} fleet_lars_configs;

typedef struct fleet_lamb_configs {
    float lamb_weight_decay;
} fleet_lamb_configs;

/* sharding: each rank keeps and updates its part of the optimizer's states of
 * dense parameters; from stage 2 on it keeps the gradients of that part alone,
 * which gradient_merge, dgc, fp16_allreduce and use_hierarchical_allreduce do
 * not go with. With stage 3 it keeps the weights of that part alone, too, while
 * it trains, and gathers those of a layer for as long as the layer uses them:
 * what reads weights otherwise then waits for the other ranks. */
typedef struct fleet_sharding_configs {
    int stage;           /* 1: states; 2: gradients, too; 3: and weights */
    int sharding_degree; /* 0: all ranks; else their number */
} fleet_sharding_configs;

typedef struct fleet_distributed_strategy {
    /* 1, beside servers and with workers that are ranks: dense parameters are
     * summed by the ranks, tables stay on the servers (hybrid). Workers without
     * servers always sum. With 0, ranks beside servers are plain workers; 1
     * beside servers is refused unless the workers are ranks.
     * docs/collective.md. */
    int is_collective;

    /* With servers: 0 sync, every step of all workers is one update, of the
     * mean of their gradients; 1 async, each worker's is applied as it comes.
     * Without servers it has no effect. docs/servers.md says what each
     * promises. */
    int a_sync;
    fleet_a_sync_configs a_sync_configs;
    fleet_wire_configs wire_configs;
    int log; /* a fleet_durability; FLEET_LOG says it where this is
                FLEET_DURABLE_NONE */
    fleet_log_configs log_configs;

    /* Of libfleet, with servers: 0; n: each lane keeps a hash of its rows as
     * they change, and looks at them again, so that memory that has lost a bit
     * ends the job with table and bucket, and is not trained on. Dense
     * parameters are hashed after each n-th update, and again before the next
     * one; 1: after each. docs/servers.md has the bounds, and the cost. */
    int live_hash;

    /* Of libfleet, with servers: 1; 2: each lane has a second copy, in the
     * process of the next server, which goes on at once when the first one's
     * dies, to the same bits. For 2 servers or more in ps-sync and ps-async,
     * without a log; FLEET_REPLICAS says it where this is 1.
     * docs/recovery.md has what it survives, and the cost. */
    int replicas;

    int gradient_merge;
    fleet_gradient_merge_configs gradient_merge_configs;

    /* In a job of stages (docs/heter.md): several batches of a worker are in
     * flight between it and its heter worker. */
    int pipeline;
    fleet_pipeline_configs pipeline_configs;

    /* Products of matrices take narrow numbers: float16, on GPUs, in every
     * mode, or with amp_configs.use_bf16 bfloat16, on CPUs, too. */
    int amp;
    fleet_amp_configs amp_configs;
    /* Activations between checkpoints are computed again in the backward pass,
     * and need no memory from the forward pass on, for the time of one forward
     * pass more: to the same bits, in every mode and on GPUs. Not with amp. */
    int recompute;
    fleet_recompute_configs recompute_configs;
    int localsgd;
    fleet_localsgd_configs localsgd_configs;
    int adaptive_localsgd;
    fleet_localsgd_configs
        adaptive_localsgd_configs; /* k_steps: init_k_steps */
    int dgc;
    fleet_dgc_configs dgc_configs;
    int lars;
    fleet_lars_configs lars_configs;
    int lamb;
    fleet_lamb_configs lamb_configs;
    int sharding;
    fleet_sharding_configs sharding_configs;

    int sync_nccl_allreduce;
    int nccl_comm_num;
    int use_hierarchical_allreduce;
    int hierarchical_allreduce_inter_nranks;
    int sync_batch_norm; /* fleet_batch_norm() by all ranks' batches */
    int fuse_all_reduce_ops;
    int fuse_grad_size_in_MB; /* of 2^20 bytes; 0: each parameter by itself */
    float last_comm_group_size_MB; /* of the same */
    int find_unused_parameters;    /* they are found with 0, too: a plan has
                                   gradients of those that the loss reaches */
    int calc_comm_same_stream;
    int fp16_allreduce;
    int gradient_scale_sum; /* Fleet's scale_strategy: 0 "avg", 1 "sum" */
    int deterministic;      /* fixed order of every sum over workers: what sync
                               does anyway; refused in async */
} fleet_distributed_strategy;

#define FLEET_DISTRIBUTED_STRATEGY_INIT fleet_distributed_strategy_default()

/* fleet_distributed_strategy_default - Fleet's defaults: what a strategy starts
 * from. All zeros, which are the defaults of other structs, are none here: most
 * fields then are out of range, or ask for something. */
FLEET_API fleet_distributed_strategy fleet_distributed_strategy_default(void);

/* fleet_distributed_optimizer - the optimizer, to be used under the strategy
 * (copied; NULL: the default). Returns it, or NULL: see fleet_last_error().
 *
 *   FLEET_EUNSUPPORTED  a field that this version does not honour, or not with
 *                       this optimizer (lars, lamb)
 *   FLEET_EINVAL        a field that cannot be so, or two that contradict
 *   FLEET_ESTATE        another strategy, after fleet_minimize()
 */
FLEET_API fleet_optimizer *fleet_distributed_optimizer(
    fleet *fleet, fleet_optimizer *optimizer,
    const fleet_distributed_strategy *strategy);

/* fleet_minimize - train the program of `loss` [1] to make it small, under the
 * strategy that was given with the optimizer. Executors made afterwards train.
 *
 *   FLEET_ESTATE  the program has run, or is trained already
 *   FLEET_ESHAPE  loss is not [1]
 *   FLEET_EUNSUPPORTED  `ps` of a parameter or table asks for servers or ranks
 *                 that this job has not: it is named
 *   FLEET_EINVAL  optimizer is NULL; after a fleet_distributed_optimizer() that
 *                 failed it is that call's failure, whose text follows
 *
 * A loss whose gradient reaches nothing that is trained, such as an accuracy,
 * is a warning.
 *
 * fleet_executor_create() then fails with FLEET_EUNSUPPORTED if another
 * optimizer already trains in this handle: all its programs share one.
 */
FLEET_API fleet_status fleet_minimize(fleet_optimizer *optimizer,
                                      fleet_var *loss);

/* fleet_get_loss_scaling - what the loss is multiplied by now, in a training in
 * float16 (amp without use_bf16). Waits for what is under way.
 *
 *   FLEET_ESTATE  there is no such training
 *   another code  a batch under way has failed
 */
FLEET_API fleet_status fleet_get_loss_scaling(fleet *fleet, float *scale);

/* fleet_strategy_dump - for each field what was asked and what became of it,
 * and the passes that applied. Text for fleet_free(); NULL: see
 * fleet_last_error(). Call it after fleet_minimize(). */
FLEET_API char *fleet_strategy_dump(fleet *fleet);

#ifdef __cplusplus
}
#endif

#endif
