/* ps_gather.c - P10: training in half-async, with pushes of four batches, over
 * training in async. One server and one worker for each, of one thread, by tcp;
 * the CTR model of R4 (embedding 9, tower 400-400-400, Adagrad) from text, in
 * batches of 128: there weights are most of what is sent. The worker trains a pass in half-async, then a pass in async, in turn.
 *
 *   P10          samples per second; weights are used when they have come
 *   P10-waits    the same; a batch waits for them
 *   P10-bytes    bytes of a batch, to and from the server, at most
 *   P10-updates  updates of the server for a batch, at most
 */
#include <linux/tcp.h>
#include <sys/socket.h>

#include "fleet/job/handle.h"
#include "ps_job.h"
#include "runtime/plan/remote.h"

enum { BATCHES = 64, BATCH = 128, ROUNDS = 15, GATHERED = 4 };

/* One of the two trainings. */
typedef struct side {
    ps_job job;
    bench b;
    fleet_dataset *d;
    double rate, bytes, updates; /* of the last pass: a second, a batch */
} side;

/* Bytes of all tcp connections of this process, in both directions. */
static double tcp_bytes(void)
{
    double sum = 0;

    for (int fd = 3; fd < 256; fd++) {
        struct tcp_info i;
        socklen_t size = sizeof i;

        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &size) == 0)
            sum += (double)i.tcpi_bytes_acked + (double)i.tcpi_bytes_received;
    }
    return sum;
}

static void train(side *s)
{
    const fl_remote *x = s->b.f->store->remote;
    double bytes = tcp_bytes(), updates = (double)x->updates;

    s->rate = ps_pass(&s->b, s->d);
    s->bytes = (tcp_bytes() - bytes) / BATCHES;
    s->updates = ((double)x->updates - updates) / BATCHES;
}

static void open_side(side *s, const char *path)
{
    fleet_role role = {.worker_num = 1, .server_endpoints = s->job.endpoint};

    ps_open(&s->b, &role, &s->job);
    s->b.n_batch = BATCHES;
    check(fleet_init_worker(s->b.f));
    write_text(&s->b, path);
    s->d = open_text(&s->b, &path, 1);
}

/* What the sides have done, each pass over that of async after it. */
typedef struct results {
    pairs beside, waits, bytes, updates;
} results;

static void compare(side *async, side *beside, side *waits, results *r)
{
    for (int round = -1; round < ROUNDS; round++) {
        pair_begin(&r->beside);
        train(beside);
        train(async);
        if (round < 0) { /* the first one makes rows */
            train(waits);
            continue;
        }
        pair_end(&r->beside, beside->rate, async->rate);
        pair_begin(&r->waits);
        train(waits);
        train(async);
        pair_end(&r->waits, waits->rate, async->rate);
        r->bytes.pair[r->bytes.n++] = (pair){waits->bytes, async->bytes, 0};
        r->updates.pair[r->updates.n++] =
            (pair){waits->updates, async->updates, 0};
    }
}

static void print(results *r)
{
    pairs_print(&r->beside, "P10", 1.2, 1.6, "samples/s", "async");
    pairs_print(&r->waits, "P10-waits", 1.1, 1.4, "samples/s", "async");
    pairs_print(&r->bytes, "P10-bytes", 0.40, 0.33, "bytes a batch, at most",
                "async");
    pairs_print(&r->updates, "P10-updates", 0.25, 0.25,
                "updates a batch, at most", "async");
}

int main(void)
{
    static side s[] = {{.job = {.n_worker = 1, .a_sync = 1, .batch = BATCH}},
                       {.job = {.n_worker = 1,
                                .a_sync = 1,
                                .batch = BATCH,
                                .gathered = GATHERED,
                                .beside = 1}},
                       {.job = {.n_worker = 1,
                                .a_sync = 1,
                                .batch = BATCH,
                                .gathered = GATHERED}}};
    enum { SIDES = sizeof s / sizeof *s };
    static results r;
    helper server[SIDES];
    char path[64];

    setenv("FLEET_TRANSPORT", "tcp", 1);
    for (int i = 0; i < SIDES; i++) {
        free_endpoint(s[i].job.endpoint);
        server[i] = helper_start(ps_serve, &s[i].job);
    }
    snprintf(path, sizeof path, "/tmp/fleet-p10.%d", getpid());
    for (int i = 0; i < SIDES; i++)
        open_side(&s[i], path);
    compare(&s[0], &s[1], &s[2], &r);
    for (int i = 0; i < SIDES; i++) {
        check(fleet_stop_worker(s[i].b.f));
        close_bench(&s[i].b);
        helper_end(&server[i]);
    }
    unlink(path);
    print(&r);
}
