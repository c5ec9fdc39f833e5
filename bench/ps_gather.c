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
#include "ps_side.h"

enum { BATCHES = 64, BATCH = 128, ROUNDS = 15, GATHERED = 4 };

/* What the sides have done, each pass over that of async after it. */
typedef struct results {
    pairs beside, waits, bytes, updates;
} results;

static void compare(side *async, side *beside, side *waits, results *r)
{
    for (int round = -1; round < ROUNDS; round++) {
        pair_begin(&r->beside);
        side_train(beside);
        side_train(async);
        if (round < 0) { /* the first one makes rows */
            side_train(waits);
            continue;
        }
        pair_end(&r->beside, beside->rate, async->rate);
        pair_begin(&r->waits);
        side_train(waits);
        side_train(async);
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
        side_open(&s[i], path, BATCHES);
    compare(&s[0], &s[1], &s[2], &r);
    for (int i = 0; i < SIDES; i++) {
        check(fleet_stop_worker(s[i].b.f));
        close_bench(&s[i].b);
        helper_end(&server[i]);
    }
    unlink(path);
    print(&r);
}
