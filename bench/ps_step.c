/* ps_step.c - P8, P9: training with a server, over training in one process: the
 * CTR model of R4 (embedding 9, tower 400-400-400, batch 1024, Adagrad) from
 * text, one thread per process. Workers train a pass by themselves, all at
 * once, then a pass with the server, in turn. */
#include <sys/mman.h>

#include "ps_job.h"

enum { BATCHES = 48, ROUNDS = 15, MOST_WORKER = 2 };

/* What the processes of a job share. */
typedef struct shared {
    ps_job job;
    const char *transport; /* NULL: as a user gets it */
    pid_t pid[MOST_WORKER];
    pair rate[MOST_WORKER][ROUNDS];
} shared;

/* --- a worker ------------------------------------------------------------- */

/* The file of each worker is its share of the job's; alone it has but one. */
static void open_texts(bench *alone, bench *with, const shared *s,
                       fleet_dataset *d[2], char path[MOST_WORKER][64],
                       int index)
{
    const char *all[MOST_WORKER] = {path[0], path[1]};

    write_text(alone, path[index]);
    check(fleet_barrier_worker(with->f));
    d[0] = open_text(alone, &all[index], 1);
    d[1] = open_text(with, all, s->job.n_worker);
}

static void compare(shared *s, int index, bench *alone, bench *with,
                    fleet_dataset *d[2])
{
    pairs all = {.n = 0};

    for (int i = 0; i < s->job.n_worker;
         i++) /* the server is watched already */
        if (s->pid[i] != getpid())
            pair_watch(s->pid[i]);
    for (int r = -1; r < ROUNDS; r++) {
        double ours, peer;

        check(fleet_barrier_worker(with->f));
        pair_begin(&all);
        peer = ps_pass(alone, d[0]);
        check(fleet_barrier_worker(with->f));
        ours = ps_pass(with, d[1]);
        if (r >= 0) /* the first one makes rows */
            s->rate[index][r] = (pair){ours, peer, pair_foreign(&all)};
    }
}

static void work(shared *s, int index, char path[MOST_WORKER][64])
{
    fleet_role near = {.worker_num = 1, .index = 0};
    fleet_role far = {.index = index,
                      .worker_num = s->job.n_worker,
                      .server_endpoints = s->job.endpoint};
    static bench alone, with;
    fleet_dataset *d[2];

    if (s->transport)
        setenv("FLEET_TRANSPORT", s->transport, 1);
    ps_open(&with, &far, &s->job);
    check(fleet_init_worker(with.f));
    ps_open(&alone, &near, &s->job);
    with.n_batch = alone.n_batch = BATCHES;
    open_texts(&alone, &with, s, d, path, index);
    compare(s, index, &alone, &with, d);
    check(fleet_stop_worker(with.f));
    close_bench(&with);
    close_bench(&alone);
}

/* --- a job ---------------------------------------------------------------- */

static void print_row(const shared *s, const char *id, double floor_,
                      double goal)
{
    pairs all = {.n = 0};

    for (int r = 0; r < ROUNDS; r++) {
        pair *sum = &all.pair[all.n++];

        for (int w = 0; w < s->job.n_worker; w++) {
            sum->ours += s->rate[w][r].ours;
            sum->peer += s->rate[w][r].peer;
        }
        sum->foreign = s->rate[0][r].foreign;
    }
    pairs_print(&all, id, floor_, goal, "samples/s",
                "as many workers by themselves");
    fflush(stdout);
}

static void run_job(int n_worker, int a_sync, const char *transport,
                    const char *id, double floor_, double goal)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char path[MOST_WORKER][64];
    pid_t worker[MOST_WORKER];
    helper server;

    *s = (shared){.job = {.n_worker = n_worker, .a_sync = a_sync},
                  .transport = transport};
    free_endpoint(s->job.endpoint);
    server = helper_start(ps_serve, &s->job);
    for (int i = 0; i < MOST_WORKER; i++)
        snprintf(path[i], sizeof path[i], "/tmp/fleet-p8.%d.%d", getpid(), i);
    for (int i = 0; i < n_worker; i++) {
        worker[i] = fork();
        if (worker[i] == 0) {
            s->pid[i] = getpid();
            work(s, i, path);
            exit(0);
        }
    }
    for (int i = 0; i < n_worker; i++) {
        int status;

        must(waitpid(worker[i], &status, 0) > 0 && status == 0,
             "a worker has failed");
    }
    helper_end(&server);
    for (int i = 0; i < n_worker; i++)
        unlink(path[i]);
    print_row(s, id, floor_, goal);
    munmap(s, sizeof *s);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *id;
        int n_worker, a_sync;
        const char *transport;
        double floor, goal;
    } row[] = {{"P8-sync", 1, 0, NULL, 0.82, 0.90},
               {"P8-sync-tcp", 1, 0, "tcp", 0.82, 0.90},
               {"P8-async", 1, 1, NULL, 0.93, 0.97},
               {"P8-async-tcp", 1, 1, "tcp", 0.93, 0.97},
               {"P9-sync", 2, 0, NULL, 0.72, 0.82},
               {"P9-sync-tcp", 2, 0, "tcp", 0.72, 0.82},
               {"P9-async", 2, 1, NULL, 0.80, 0.88},
               {"P9-async-tcp", 2, 1, "tcp", 0.80, 0.88}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (is_wanted(argc, argv, row[i].id))
            run_job(row[i].n_worker, row[i].a_sync, row[i].transport, row[i].id,
                    row[i].floor, row[i].goal);
    return 0;
}
