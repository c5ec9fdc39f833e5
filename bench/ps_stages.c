/* ps_stages.c - P15: a process of a job that fleetrun starts, with heter workers
 * or without: the CTR model of R4 (embedding 9, tower 400-400-400, batch 1024,
 * Adagrad) from text, stage 0 the embeddings and stage 1 the tower. Worker 0
 * prints the samples per second of all workers, the median of passes.
 *
 *   ps_stages A_SYNC BATCHES [TOWER]   BATCHES: of a worker, in flight, or, in
 *                                      sync without heter workers, merged
 *
 * FLEET_NUM_THREADS is of workers and servers; HETER_THREADS of heter workers.
 */
#include <stdlib.h>
#include <unistd.h>

#include "helper.h"
#include "model.h"
#include "text.h"

enum { N_BATCH = 6, PASSES = 3, MOST_WORKERS = 8 };

static void guard(const bench *b)
{
    if (fleet_heter_worker_num(b->f) == 0)
        return;
    check(fleet_device_guard_from(b->p, "concat_0.tmp", "cpu"));
    check(fleet_device_guard_from(b->p, "fc_0.tmp", "gpu"));
}

static fleet_distributed_strategy choose(int a_sync, int batches)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    const int stages = getenv("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST") != NULL;

    s.a_sync = a_sync;
    s.pipeline = stages && batches > 1;
    if (s.pipeline)
        s.pipeline_configs.accumulate_steps = batches;
    s.gradient_merge = !stages && !a_sync && batches > 1;
    if (s.gradient_merge)
        s.gradient_merge_configs.k_steps = batches;
    return s;
}

/* The files of a job are named after its fleetrun. */
static fleet_dataset *open_share(bench *b, int workers,
                                 char path[MOST_WORKERS][64])
{
    const char *all[MOST_WORKERS];

    for (int i = 0; i < workers; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/fleet-p15.%d.%d", getppid(), i);
        all[i] = path[i];
    }
    write_text(b, path[fleet_worker_index(b->f)]);
    check(fleet_barrier_worker(b->f));
    return open_text(b, all, workers);
}

static void train(bench *b, const char *how)
{
    static char path[MOST_WORKERS][64];
    fleet_dataset *d = open_share(b, fleet_worker_num(b->f), path);
    double rate[PASSES];

    for (int i = -1; i < PASSES; i++) {
        fleet_train_result r;
        double began;

        check(fleet_barrier_worker(b->f));
        began = now();
        check(fleet_train_from_dataset(b->e, d, NULL, &r));
        check(fleet_barrier_worker(b->f));
        if (i >= 0) /* the first one makes rows */
            rate[i] = (double)r.samples / (now() - began);
    }
    qsort(rate, PASSES, sizeof *rate, ascending);
    unlink(path[fleet_worker_index(b->f)]);
    if (fleet_is_first_worker(b->f))
        printf("{\"job\":\"%s\",\"samples_per_s\":%.6g}\n", how,
               rate[PASSES / 2]);
}

int main(int argc, char **argv)
{
    static bench b = {.o = BENCH_DEFAULTS, .guard = guard};
    const char *role = getenv("TRAINING_ROLE");
    const char *threads = getenv(role && strcmp(role, "HETER_TRAINER") == 0
                                     ? "HETER_THREADS"
                                     : "FLEET_NUM_THREADS");
    fleet_distributed_strategy s;

    must(argc > 2, "usage: ps_stages A_SYNC BATCHES [TOWER], under fleetrun");
    s = choose(atoi(argv[1]), atoi(argv[2]));
    b.strategy = &s;
    b.o.threads = threads ? atoi(threads) : 1;
    if (argc > 3)
        b.o.fc = argv[3];
    b.random = (uint64_t)getpid();
    open_bench(&b);
    b.n_batch = N_BATCH;
    if (fleet_is_server(b.f)) {
        check(fleet_init_server(b.f, NULL));
        check(fleet_run_server(b.f));
    } else {
        check(fleet_init_worker(b.f));
        if (fleet_is_heter_worker(b.f))
            check(fleet_run_heter_worker(b.f));
        else
            train(&b, argv[1]);
        if (!fleet_is_heter_worker(b.f))
            check(fleet_stop_worker(b.f));
    }
    close_bench(&b);
    return 0;
}
