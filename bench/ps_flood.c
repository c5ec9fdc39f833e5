/* ps_flood.c - K3: what a flood of handshakes costs a job with keys. One server,
 * one worker, the CTR model of R4 (embedding 9, tower 400-400-400, batch 1024,
 * Adagrad) from text, by tcp. In every other pass a stranger comes some 1,000
 * times a second with a key of its own, which the server refuses. Where there are
 * two processors, what the stranger computes is taken from the job, too.
 *
 *   K3-sync, K3-async   samples per second beside the flood, over those without
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <zmq.h>

#include "helper.h"
#include "model.h"
#include "net/keys.h"
#include "text.h"

enum { BATCHES = 48, ROUNDS = 15 };

static void check(fleet_status status)
{
    must(status == FLEET_OK, fleet_last_error());
}

/* What the processes of a job share. */
typedef struct shared {
    int a_sync;
    char endpoint[64], folder[64];
    atomic_bool flooded; /* now */
    atomic_long refused; /* handshakes, so far */
    long counted;        /* of them while a pass was measured, which took */
    double seconds;
    pair rate[ROUNDS];
} shared;

static void open_side(bench *b, const fleet_role *role, const shared *s)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;

    strategy.a_sync = s->a_sync;
    *b = (bench){.o = BENCH_DEFAULTS, .role = role};
    b->o.threads = 1;
    b->strategy = &strategy;
    open_bench(b);
    b->n_batch = BATCHES;
}

static void serve(int say, void *arg)
{
    shared *s = arg;
    fleet_role role = {
        .kind = FLEET_SERVER, .server_endpoints = s->endpoint, .worker_num = 1};
    static bench b;

    open_side(&b, &role, s);
    check(fleet_init_server(b.f, NULL));
    helper_say(say, s->endpoint);
    check(fleet_run_server(b.f));
}

/* --- the stranger --------------------------------------------------------- */

enum { SOCKETS = 200, AT_ONCE = 10, PAUSE_NS = 10000000 };

typedef struct stranger {
    void *context, *socket[SOCKETS], *monitor[SOCKETS];
    fl_key public_key, secret, server;
    char address[80];
    long next;
} stranger;

static void open_stranger(stranger *f, const shared *s)
{
    fl_keys *job;

    *f = (stranger){.context = zmq_ctx_new()};
    zmq_ctx_set(f->context, ZMQ_MAX_SOCKETS,
                8 * SOCKETS); /* many are closing */
    check(fl_keys_read(&job, s->folder, false, 0));
    memcpy(f->server, job->server[0], sizeof f->server);
    fl_keys_destroy(job);
    must(zmq_curve_keypair(f->public_key, f->secret) == 0, "no CURVE");
    snprintf(f->address, sizeof f->address, "tcp://%s", s->endpoint);
}

static void go(stranger *f, int i)
{
    if (!f->socket[i])
        return;
    zmq_close(f->socket[i]);
    zmq_close(f->monitor[i]);
    f->socket[i] = NULL;
}

static void come(stranger *f, int i)
{
    int none = 0;
    char events[40];

    go(f, i);
    snprintf(events, sizeof events, "inproc://events-%ld", f->next++);
    f->socket[i] = zmq_socket(f->context, ZMQ_DEALER);
    f->monitor[i] = zmq_socket(f->context, ZMQ_PAIR);
    must(f->socket[i] && f->monitor[i], "a stranger has no socket");
    zmq_setsockopt(f->socket[i], ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(f->socket[i], ZMQ_CURVE_SERVERKEY, f->server,
                   sizeof f->server - 1);
    zmq_setsockopt(f->socket[i], ZMQ_CURVE_PUBLICKEY, f->public_key,
                   sizeof f->public_key - 1);
    zmq_setsockopt(f->socket[i], ZMQ_CURVE_SECRETKEY, f->secret,
                   sizeof f->secret - 1);
    zmq_socket_monitor(f->socket[i], events, ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
    must(zmq_connect(f->monitor[i], events) == 0 &&
             zmq_connect(f->socket[i], f->address) == 0,
         "a stranger cannot connect");
}

/* An event has two frames. */
static long refusals(stranger *f, int i)
{
    char frame[256];
    long n = 0;

    while (f->socket[i] &&
           zmq_recv(f->monitor[i], frame, sizeof frame, ZMQ_DONTWAIT) >= 0)
        n++;
    return n / 2;
}

/* Those that came 200 ms ago have been refused, and come again. */
static void flood(int say, void *arg)
{
    shared *s = arg;
    stranger f = {.context = NULL};
    struct timespec at;
    struct rlimit most;

    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    helper_say(say, "stranger");
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (int i = 0;; i = (i + AT_ONCE) % SOCKETS) {
        if (!f.context && atomic_load(&s->flooded))
            open_stranger(&f, s);
        for (int k = i; f.context && k < i + AT_ONCE; k++) {
            atomic_fetch_add(&s->refused, refusals(&f, k));
            if (atomic_load(&s->flooded))
                come(&f, k);
            else
                go(&f, k);
        }
        at.tv_nsec += PAUSE_NS;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

/* --- the worker ----------------------------------------------------------- */

static double pass(bench *b, fleet_dataset *d)
{
    double began = now();

    check(fleet_train_from_dataset(b->e, d, NULL, NULL));
    return (double)BATCHES * b->o.batch / (now() - began);
}

static double flooded_pass(shared *s, bench *b, fleet_dataset *d)
{
    long before = atomic_load(&s->refused);
    double began, rate;

    atomic_store(&s->flooded, true);
    while (atomic_load(&s->refused) == before) /* it has begun */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    before = atomic_load(&s->refused);
    began = now();
    rate = pass(b, d);
    s->seconds += now() - began;
    s->counted += atomic_load(&s->refused) - before;
    atomic_store(&s->flooded, false);
    return rate;
}

static void work(shared *s)
{
    fleet_role role = {.worker_num = 1, .server_endpoints = s->endpoint};
    pairs all = {.n = 0};
    static bench b;
    fleet_dataset *d;
    char path[80];
    const char *file = path;

    snprintf(path, sizeof path, "%s/text", s->folder);
    open_side(&b, &role, s);
    write_text(&b, path);
    check(fleet_init_worker(b.f));
    d = open_text(&b, &file, 1);
    pass(&b, d); /* makes rows */
    for (int r = 0; r < ROUNDS; r++) {
        double peer, ours;

        pair_begin(&all);
        peer = pass(&b, d);
        ours = flooded_pass(s, &b, d);
        s->rate[r] = (pair){ours, peer, pair_foreign(&all)};
    }
    check(fleet_stop_worker(b.f));
    close_bench(&b);
    unlink(path);
}

/* --- a job ---------------------------------------------------------------- */

static void make_keys(shared *s)
{
    snprintf(s->folder, sizeof s->folder, "/tmp/fleet-k3.%d", getpid());
    check(fl_keys_make(s->folder, 1, 1));
    setenv("FLEET_KEYS", s->folder, 1);
    setenv("FLEET_TRANSPORT", "tcp", 1);
}

static void remove_keys(const shared *s)
{
    static const char *const name[] = {"public", "server-0.secret",
                                       "worker-0.secret"};
    char path[128];

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        snprintf(path, sizeof path, "%s/%s", s->folder, name[i]);
        unlink(path);
    }
    rmdir(s->folder);
}

static void run_job(int a_sync, const char *id)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pairs all = {.n = ROUNDS};
    helper server, by;
    pid_t worker;
    int status;

    *s = (shared){.a_sync = a_sync};
    make_keys(s);
    free_endpoint(s->endpoint);
    server = helper_start(serve, s);
    by = helper_start(flood, s);
    worker = fork();
    if (worker == 0) {
        work(s);
        exit(0);
    }
    must(waitpid(worker, &status, 0) > 0 && status == 0, "a worker has failed");
    helper_end(&by);
    helper_end(&server);
    remove_keys(s);
    memcpy(all.pair, s->rate, sizeof s->rate);
    fprintf(stderr, "%s: %.0f handshakes a second\n", id,
            (double)s->counted / s->seconds);
    pairs_print(&all, id, 0.8, 0.9, "samples/s", "no flood");
    fflush(stdout);
    munmap(s, sizeof *s);
}

int main(int argc, char **argv)
{
    if (is_wanted(argc, argv, "K3-sync"))
        run_job(0, "K3-sync");
    if (is_wanted(argc, argv, "K3-async"))
        run_job(1, "K3-async");
    return 0;
}
