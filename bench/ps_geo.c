/* ps_geo.c - P11: geo mode, the MLP of R10 in batches of 128, an exchange every
 * 100 steps, with two workers and a server, one thread per process, over two
 * processes that train by themselves. Workers make so many steps by themselves,
 * all at once, then as many with the server, in turn. */
#include <sys/mman.h>

#include "helper.h"
#include "model.h"

enum { WORKERS = 2, ROUNDS = 15, EVERY = 100, STEPS = 30 * EVERY };

typedef struct shared {
    char endpoint[64];
    pid_t pid[WORKERS];
    pair rate[WORKERS][ROUNDS];
} shared;

static void open_mlp(bench *b, const fleet_role *role)
{
    fleet_distributed_strategy geo = FLEET_DISTRIBUTED_STRATEGY_INIT;

    geo.a_sync_configs.k_steps = EVERY;
    *b = (bench){.o = BENCH_DEFAULTS, .role = role};
    b->o.model = "mlp";
    b->o.batch = 128;
    b->o.threads = 1;
    b->strategy = role->server_endpoints ? &geo : NULL;
    b->random = (uint64_t)role->index;
    open_bench(b);
}

static void serve(int say, void *arg)
{
    const shared *s = arg;
    const fleet_role role = {.kind = FLEET_SERVER,
                             .server_endpoints = s->endpoint,
                             .worker_num = WORKERS};
    static bench b;

    open_mlp(&b, &role);
    check(fleet_init_server(b.f, NULL));
    helper_say(say, s->endpoint);
    check(fleet_run_server(b.f));
}

/* Samples per second. */
static double make_steps(bench *b)
{
    double began = now();

    for (int i = 0; i < STEPS; i++)
        step(b);
    return (double)STEPS * b->o.batch / (now() - began);
}

static void compare(shared *s, int index, bench *alone, bench *with)
{
    pairs all = {.n = 0};

    for (int i = 0; i < WORKERS; i++) /* the server is watched already */
        if (s->pid[i] != getpid())
            pair_watch(s->pid[i]);
    for (int r = -1; r < ROUNDS; r++) {
        double ours, peer;

        check(fleet_barrier_worker(with->f));
        pair_begin(&all);
        peer = make_steps(alone);
        check(fleet_barrier_worker(with->f));
        ours = make_steps(with);
        if (r >= 0) /* the first one makes plans */
            s->rate[index][r] = (pair){ours, peer, pair_foreign(&all)};
    }
}

static void work(shared *s, int index)
{
    const fleet_role near = {.worker_num = 1, .index = 0};
    const fleet_role far = {
        .index = index, .worker_num = WORKERS, .server_endpoints = s->endpoint};
    static bench alone, with;

    open_mlp(&with, &far);
    check(fleet_init_worker(with.f));
    open_mlp(&alone, &near);
    compare(s, index, &alone, &with);
    check(fleet_stop_worker(with.f));
    close_bench(&with);
    close_bench(&alone);
}

static void print_row(const shared *s)
{
    pairs all = {.n = 0};

    for (int r = 0; r < ROUNDS; r++) {
        pair *sum = &all.pair[all.n++];

        for (int w = 0; w < WORKERS; w++) {
            sum->ours += s->rate[w][r].ours;
            sum->peer += s->rate[w][r].peer;
        }
        sum->foreign = s->rate[0][r].foreign;
    }
    pairs_print(&all, "P11", 0.85, 0.95, "samples/s",
                "as many workers by themselves");
}

int main(void)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t worker[WORKERS];
    helper server;

    *s = (shared){.rate = {{{0}}}};
    free_endpoint(s->endpoint);
    server = helper_start(serve, s);
    for (int i = 0; i < WORKERS; i++) {
        worker[i] = fork();
        if (worker[i] == 0) {
            s->pid[i] = getpid();
            work(s, i);
            exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        int status;

        must(waitpid(worker[i], &status, 0) > 0 && status == 0,
             "a worker has failed");
    }
    helper_end(&server);
    print_row(s);
    return 0;
}
