/* ps_cache.c - P12: training in async with a server and a worker that keeps
 * rows, over training in one process: the CTR model of R4 (embedding 9, tower
 * 400-400-400, batch 1024, Adagrad) from text, one thread per process, ids of
 * Zipf's law in each slot. The worker trains a pass by itself, then a pass with
 * the server, in turn.
 *
 *   P12        samples per second
 *   P12-bytes  keys and values that are pulled, over those without a cache
 */
#include <math.h>

#include "ps_job.h"

/* So that nine of ten rows of a batch are hits. */
enum { BATCHES = 64, ROUNDS = 15, IDS = 2000, STALENESS = 100 };
static const double EXPONENT = 1.05;

/* Room for all rows, of 9 numbers. */
enum { CACHE = IDS * N_ID * (80 + 16) };

/* The shares of ranks, added up. */
static double *zipf_shares(void)
{
    double *sum = malloc(IDS * sizeof *sum), all = 0;

    for (int i = 0; i < IDS; i++)
        sum[i] = all += pow(i + 1, -EXPONENT);
    for (int i = 0; i < IDS; i++)
        sum[i] /= all;
    return sum;
}

static int draw_rank(const double *sum, double x)
{
    int low = 0, high = IDS - 1;

    while (low < high) {
        int middle = (low + high) / 2;

        if (sum[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* In place of the model's: each slot has ids of its own. */
static void draw_ids(bench *b)
{
    double *sum = zipf_shares();
    uint64_t random = 7;
    int n = b->o.batch;

    for (int i = 0; i < b->n_batch; i++)
        for (int j = 0; j < n * N_ID; j++)
            b->id[i][j] =
                (int64_t)draw_rank(sum, (double)(next_random(&random) >> 11) *
                                            0x1p-53) *
                    N_ID +
                j / n;
    free(sum);
}

static void open_text_of(bench *alone, bench *with, fleet_dataset *d[2],
                         const char *path)
{
    alone->n_batch = with->n_batch = BATCHES;
    draw_ids(alone);
    write_text(alone, path);
    d[0] = open_text(alone, &path, 1);
    d[1] = open_text(with, &path, 1);
}

/* What the cache has done since `before`, in shares of all rows. */
static pair shares(bench *with, const fleet_cache_statistics *before,
                   double *hits)
{
    const double row = 8 + 9 * sizeof(float);
    fleet_cache_statistics c;
    double all;

    check(fleet_cache_stat(with->f, &c));
    all = (double)(c.rows - before->rows);
    *hits = (double)(c.unasked - before->unasked + c.unchanged -
                     before->unchanged) /
            all;
    return (pair){all * row - (double)(c.saved_bytes - before->saved_bytes),
                  all * row, 0};
}

static void compare(bench *alone, bench *with, fleet_dataset *d[2])
{
    pairs rate = {.n = 0}, bytes = {.n = 0};
    fleet_cache_statistics before;
    double hits, ours, peer;

    for (int r = -1; r < ROUNDS; r++) {
        check(fleet_cache_stat(with->f, &before));
        pair_begin(&rate);
        peer = ps_pass(alone, d[0]);
        ours = ps_pass(with, d[1]);
        if (r < 0) /* the first one makes rows */
            continue;
        pair_end(&rate, ours, peer);
        bytes.pair[bytes.n++] = shares(with, &before, &hits);
    }
    fprintf(stderr, "P12: hits %.3f of the rows of a batch, %.0f rows kept\n",
            hits, (double)before.kept);
    pairs_print(&rate, "P12", 0.9, 0.97, "samples/s",
                "the same worker without a server");
    pairs_print(&bytes, "P12-bytes", 0.15, 0.10, "bytes, at most",
                "without a cache");
}

int main(void)
{
    static ps_job job = {
        .n_worker = 1, .a_sync = 1, .cache = CACHE, .staleness = STALENESS};
    fleet_role near = {.worker_num = 1};
    fleet_role far = {.worker_num = 1, .server_endpoints = job.endpoint};
    static bench alone, with;
    fleet_dataset *d[2];
    helper server;
    char path[64];

    free_endpoint(job.endpoint);
    server = helper_start(ps_serve, &job);
    snprintf(path, sizeof path, "/tmp/fleet-p12.%d", getpid());
    ps_open(&with, &far, &job);
    check(fleet_init_worker(with.f));
    ps_open(&alone, &near, &job);
    open_text_of(&alone, &with, d, path);
    compare(&alone, &with, d);
    unlink(path);
    check(fleet_stop_worker(with.f));
    close_bench(&with);
    close_bench(&alone);
    helper_end(&server);
    return 0;
}
