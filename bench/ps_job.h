/* ps_job.h - a job of a benchmark with one server: the CTR model of R4
 * (embedding 9, tower 400-400-400, batch 1024, Adagrad), one thread for each
 * process. */
#pragma once

#include "helper.h"
#include "model.h"
#include "text.h"

typedef struct ps_job {
    int n_worker, a_sync;
    int gathered;             /* batches of a push, in half-async; 0: 1 */
    int beside;               /* and the weights come beside the computation */
    int batch;                /* samples; 0: 1,024 */
    long rows;                /* ids of each table; 0: the model's */
    long cache;               /* bytes of rows that a worker keeps */
    int staleness;            /* of them, in batches */
    int push_type, pull_type; /* fleet_wire_type */
    char endpoint[64];
} ps_job;

/* A role without servers trains by itself. */
static inline void ps_open(bench *b, const fleet_role *role, const ps_job *j)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;

    strategy.a_sync = j->a_sync;
    if (j->gathered)
        strategy.a_sync_configs.max_merge_var_num = j->gathered;
    strategy.a_sync_configs.independent_recv_thread = j->beside;
    strategy.a_sync_configs.vocab_cache_size = j->cache;
    strategy.a_sync_configs.cache_read_staleness = j->staleness;
    strategy.wire_configs.push_type = j->push_type;
    strategy.wire_configs.pull_type = j->pull_type;
    *b = (bench){.o = BENCH_DEFAULTS, .role = role};
    b->o.threads = 1;
    if (j->rows)
        b->o.rows = j->rows;
    if (j->batch)
        b->o.batch = j->batch;
    b->strategy = role->server_endpoints ? &strategy : NULL;
    b->random = (uint64_t)role->index; /* workers have other samples */
    open_bench(b);
}

/* For helper_start(); job: a ps_job. */
static inline void ps_serve(int say, void *job)
{
    const ps_job *j = job;
    fleet_role role = {.kind = FLEET_SERVER,
                       .server_endpoints = j->endpoint,
                       .worker_num = j->n_worker};
    static bench b;

    ps_open(&b, &role, j);
    check(fleet_init_server(b.f, NULL));
    helper_say(say, j->endpoint);
    check(fleet_run_server(b.f));
}

/* Samples per second of a pass over the worker's b->n_batch batches. */
static inline double ps_pass(bench *b, fleet_dataset *d)
{
    double began = now();

    check(fleet_train_from_dataset(b->e, d, NULL, NULL));
    return (double)b->n_batch * b->o.batch / (now() - began);
}
