/* ps_flood.c - K3: what a flood of handshakes costs a job with keys. One server,
 * one worker, the CTR model of R4 (embedding 9, tower 400-400-400, batch 1024,
 * Adagrad) from text, by tcp. In every other pass a stranger comes 1,000 times
 * a second and says what a client has said once, so that the server computes, and
 * the stranger does not.
 *
 *   K3-sync, K3-async   samples per second beside the flood, over those without
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <zmq.h>

#include "net/keys.h"
#include "ps_job.h"

enum { BATCHES = 48, ROUNDS = 15 };

/* What the processes of a job share. */
typedef struct shared {
    ps_job job;
    char folder[64];
    atomic_bool flooded;  /* now */
    atomic_long answered; /* strangers, so far */
    long counted;         /* of them while a pass was measured, which took */
    double seconds;
    pair rate[ROUNDS];
} shared;

/* --- the stranger --------------------------------------------------------- */

/* What a client with keys says first, by ZMTP 3.1: a greeting, then HELLO in a
 * frame of a command. A server has to open it, makes a pair of keys for the
 * connection and answers; what was said once is as good the next time. */
enum { GREETING = 64, HELLO = 202, WELCOME = 170 };
enum { PEERS = 200, AT_ONCE = 10, PAUSE_NS = 10000000 };

typedef struct stranger {
    char said[GREETING + HELLO];
    int fd[PEERS]; /* -1: not connected */
} stranger;

static int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(fd >= 0, "no socket");
    return fd;
}

static int listen_at(char address[64])
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = tcp_socket();

    must(bind(fd, (struct sockaddr *)&a, size) == 0 && listen(fd, 1) == 0 &&
             getsockname(fd, (struct sockaddr *)&a, &size) == 0,
         "cannot listen");
    snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(a.sin_port));
    return fd;
}

/* A client of ZeroMQ's, which is told that it has reached a server. */
static void record(stranger *f, const char *folder)
{
    char greeting[GREETING] = "\xff\0\0\0\0\0\0\0\0\x7f\3\1CURVE";
    char address[64], public_key[FL_KEY_SIZE], secret[FL_KEY_SIZE];
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    int none = 0, listener = listen_at(address), fd;
    fl_keys *job;

    greeting[32] = 1; /* as a server */
    check(fl_keys_read(&job, folder, false, 0));
    must(zmq_curve_keypair(public_key, secret) == 0, "no CURVE");
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, job->known[FL_ROLE_SERVER][0],
                   FL_KEY_SIZE - 1);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public_key, FL_KEY_SIZE - 1);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret, FL_KEY_SIZE - 1);
    must(zmq_connect(socket, address) == 0, "cannot connect");
    fd = accept(listener, NULL, NULL);
    must(write(fd, greeting, sizeof greeting) == sizeof greeting &&
             recv(fd, f->said, sizeof f->said, MSG_WAITALL) == sizeof f->said,
         "no HELLO");
    close(fd);
    close(listener);
    zmq_close(socket);
    zmq_ctx_term(context);
    fl_keys_destroy(job);
}

static void come(stranger *f, int i, const struct sockaddr_in *to)
{
    f->fd[i] = tcp_socket();
    must(connect(f->fd[i], (const struct sockaddr *)to, sizeof *to) == 0 &&
             send(f->fd[i], f->said, sizeof f->said, MSG_NOSIGNAL) ==
                 sizeof f->said,
         "a stranger cannot connect");
}

/* Has he had an answer? */
static bool go(stranger *f, int i)
{
    char answer[GREETING + WELCOME];
    ssize_t n;

    if (f->fd[i] < 0)
        return false;
    n = recv(f->fd[i], answer, sizeof answer, MSG_DONTWAIT);
    close(f->fd[i]);
    f->fd[i] = -1;
    return n == sizeof answer;
}

/* Each time the next of them, which came 200 ms ago, go and come again. */
static void flood(int say, void *arg)
{
    shared *s = arg;
    stranger f;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timespec at;

    record(&f, s->folder);
    memset(f.fd, -1, sizeof f.fd);
    to.sin_port = htons((uint16_t)atoi(strrchr(s->job.endpoint, ':') + 1));
    helper_say(say, "stranger");
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (int i = 0;; i = (i + 1) % PEERS) {
        atomic_fetch_add(&s->answered, go(&f, i));
        if (atomic_load(&s->flooded))
            come(&f, i, &to);
        if (i % AT_ONCE)
            continue;
        at.tv_nsec += PAUSE_NS;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

/* --- the worker ----------------------------------------------------------- */

static double flooded_pass(shared *s, bench *b, fleet_dataset *d)
{
    long before = atomic_load(&s->answered);
    double began, rate;

    atomic_store(&s->flooded, true);
    while (atomic_load(&s->answered) == before) /* it has begun */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    before = atomic_load(&s->answered);
    began = now();
    rate = ps_pass(b, d);
    s->seconds += now() - began;
    s->counted += atomic_load(&s->answered) - before;
    atomic_store(&s->flooded, false);
    return rate;
}

static void work(shared *s)
{
    fleet_role role = {.worker_num = 1, .server_endpoints = s->job.endpoint};
    pairs all = {.n = 0};
    static bench b;
    fleet_dataset *d;
    char path[80];
    const char *file = path;

    snprintf(path, sizeof path, "%s/text", s->folder);
    ps_open(&b, &role, &s->job);
    b.n_batch = BATCHES;
    write_text(&b, path);
    check(fleet_init_worker(b.f));
    d = open_text(&b, &file, 1);
    ps_pass(&b, d); /* makes rows */
    for (int r = 0; r < ROUNDS; r++) {
        double peer, ours;

        pair_begin(&all);
        peer = ps_pass(&b, d);
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

    *s = (shared){.job = {.n_worker = 1, .a_sync = a_sync}};
    make_keys(s);
    free_endpoint(s->job.endpoint);
    server = helper_start(ps_serve, &s->job);
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
