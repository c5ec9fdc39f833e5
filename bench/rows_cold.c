/* rows_cold.c - T1: training with a table of ten times its memory cap: R4's
 * model at dimension 9 (26 slots, Adagrad, one thread), ids of a Zipf
 * distribution with exponent 0.99, and uniform ones, over the same model with
 * all rows in memory. The rows are there from the start; both end with the same
 * hash. The next batch is known a step ahead, as passes over a dataset know it.
 *
 *   rows_cold [ID...]    FLEET_BENCH_COLD=FOLDER: where the file is (/var/tmp);
 *                        FLEET_BENCH_CAP: the cap in MB (32);
 *                        FLEET_BENCH_DROP=1: the system forgets the file's pages
 *                        before each step, so that each row is read from the
 *                        device
 *
 * "iops" is what the device of the folder does: reads of 4 KB at random places,
 * 8 at a time, past the page cache. "rss" is by how much the process has grown,
 * over the cap.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <time.h>

#include "fleet/job/handle.h"
#include "helper.h"
#include "model.h"
#include "runtime/cold/cold_internal.h"
#include "runtime/exec/prefetch.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/store.h"

enum { STEPS = 64, ROUNDS = 3, CHUNK = 1 << 12, ROW_BYTES = 112, TIMES = 10 };

typedef struct kind {
    const char *id;
    double skew; /* 0: uniform */
    int capped;
} kind;

static const char *folder(void)
{
    const char *f = getenv("FLEET_BENCH_COLD");

    return f ? f : "/var/tmp";
}

static int64_t cap_bytes(void)
{
    const char *mb = getenv("FLEET_BENCH_CAP");

    return (int64_t)(mb ? atoi(mb) : 32) << 20;
}

static double resident(void) /* bytes */
{
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    must(f && fscanf(f, "%ld %ld", &all, &pages) == 2, "no /proc/self/statm");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* As lookups make them, from ids 0 .. rows - 1. */
static void make_rows(const bench *b, fl_rows *r)
{
    static uint64_t key[CHUNK];
    static float *row[CHUNK];

    for (long at = 0; at < b->o.rows; at += CHUNK) {
        long n = b->o.rows - at < CHUNK ? b->o.rows - at : CHUNK;
        fl_wanted_rows w = {0};

        for (long i = 0; i < n; i++)
            key[i] = (uint64_t)(at + i);
        must(fl_rows_bring(&w, r, key, n) == FLEET_OK &&
                 r->methods->make(r, key, n, row) == FLEET_OK,
             fleet_last_error());
        fl_wanted_rows_done(&w);
    }
}

/* Zipf's distribution as YCSB draws it (Gray et al. 1994). */
static void draw_ids(bench *b, double skew)
{
    double n = (double)b->o.rows, zeta = 0, two = 1 + pow(0.5, skew), eta;

    for (long i = 1; skew > 0 && i <= b->o.rows; i++)
        zeta += pow(1 / (double)i, skew);
    eta = (1 - pow(2 / n, 1 - skew)) / (1 - two / zeta);
    for (int i = 0; i < b->n_batch; i++)
        for (int j = 0; j < b->o.batch * N_ID; j++) {
            double u = (double)(next_random(&b->random) >> 11) * 0x1p-53;
            double uz = u * zeta, at;

            if (skew == 0)
                at = u * n;
            else if (uz < two)
                at = uz < 1 ? 0 : 1;
            else
                at = n * pow(eta * u - eta + 1, 1 / (1 - skew));
            b->id[i][j] = (int64_t)(at < n ? at : n - 1);
        }
}

static void look_ahead(const bench *b, fl_input *input)
{
    int next = b->at % b->n_batch; /* b->at counts up in step() */

    for (int s = 0; s < N_ID; s++)
        input[fleet_program_var(b->p, b->name[s])->id].data =
            b->id[next] + s * b->o.batch;
    fl_executor_prefetch(b->e, input, b->o.batch);
}

static void forget_pages(const fl_rows *r)
{
    int fd = fl_is_cold(r) ? fl_cold_of(r)->fd : -1;

    if (!getenv("FLEET_BENCH_DROP") || fd < 0)
        return;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static double run_steps(bench *b, const fl_rows *r, fl_input *input,
                        double *most)
{
    double took = 0;

    for (int i = 0; i < STEPS; i++) {
        double began;

        forget_pages(r);
        began = now();
        b->at++;
        look_ahead(b, input);
        b->at--;
        step(b);
        took += now() - began;
        *most = fmax(*most, resident());
    }
    return took;
}

/* In a process of its own. */
static void measure(int say, void *arg)
{
    static bench b = {.o = BENCH_DEFAULTS};
    const kind *k = arg;
    double s[ROUNDS], before, most = 0;
    uint64_t hash = 0;
    fl_input *input;
    fl_cold_counts c = {0};
    fl_rows *r;
    char text[120];

    b.o.threads = 1;
    b.o.rows = (long)(cap_bytes() * TIMES / ROW_BYTES);
    b.cap_bytes = k->capped ? cap_bytes() : 0;
    b.cold_folder = k->capped ? folder() : NULL;
    open_bench(&b);
    draw_ids(&b, k->skew);
    step(&b); /* the store is there */
    input = calloc(b.p->n_var, sizeof *input);
    r = fl_store_rows(b.f->store, "embedding");
    must(r != NULL, "no table");
    before = resident();
    make_rows(&b, r);
    run_steps(&b, r, input, &most);
    for (int i = 0; i < ROUNDS; i++)
        s[i] = run_steps(&b, r, input, &most);
    qsort(s, ROUNDS, sizeof *s, ascending);
    must(fleet_params_hash(b.f, &hash) == FLEET_OK, fleet_last_error());
    if (k->capped)
        fl_cold_count(r, &c);
    snprintf(text, sizeof text, "%.6g %016llx %.4g %.4g %lld",
             STEPS * b.o.batch / s[ROUNDS / 2], (unsigned long long)hash,
             (most - before) / (double)cap_bytes(),
             (double)c.misses / (double)(c.hits + c.misses + 1),
             (long long)c.file_bytes);
    helper_say(say, text);
}

/* --- the device ------------------------------------------------------------ */

enum { FILE_BYTES = 256 << 20, BLOCK = 4096, READERS = 8 };

typedef struct reader {
    int fd;
    uint64_t random;
    double until;
    long n;
} reader;

static void *read_blocks(void *arg)
{
    reader *r = arg;
    void *block = NULL;

    must(posix_memalign(&block, BLOCK, BLOCK) == 0, "no memory");
    while (now() < r->until) {
        off_t at =
            (off_t)(next_random(&r->random) % (FILE_BYTES / BLOCK)) * BLOCK;

        must(pread(r->fd, block, BLOCK, at) == BLOCK, "cannot read");
        r->n++;
    }
    free(block);
    return NULL;
}

static double measure_iops(void)
{
    int fd = open(folder(), O_RDWR | O_TMPFILE | O_DIRECT | O_CLOEXEC, 0600);
    pthread_t thread[READERS];
    reader r[READERS];
    void *part = NULL;
    double began;
    long n = 0;

    if (fd < 0)
        return 0;
    must(posix_memalign(&part, BLOCK, 1 << 20) == 0, "no memory");
    memset(part, 1, 1 << 20);
    for (int i = 0; i < FILE_BYTES >> 20; i++)
        must(write(fd, part, 1 << 20) == 1 << 20, "cannot write");
    fdatasync(fd);
    began = now();
    for (int i = 0; i < READERS; i++) {
        r[i] = (reader){fd, (uint64_t)i, began + 1, 0};
        pthread_create(&thread[i], NULL, read_blocks, &r[i]);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        n += r[i].n;
    }
    free(part);
    close(fd);
    return (double)n / (now() - began);
}

/* --- both ------------------------------------------------------------------ */

typedef struct result {
    double rate, rss, missed;
    unsigned long long hash;
    long long file;
} result;

static result run_kind(kind k)
{
    helper h = helper_start(measure, &k);
    result r;

    waitpid(h.pid, NULL, 0);
    must(sscanf(h.address, "%lf %llx %lf %lf %lld", &r.rate, &r.hash, &r.rss,
                &r.missed, &r.file) == 5,
         "a helper has said something else");
    return r;
}

static void compare(const char *id, double skew, double floor, double goal,
                    double iops)
{
    result peer = run_kind((kind){id, skew, 0});
    result ours = run_kind((kind){id, skew, 1});

    must(ours.hash == peer.hash, "the hashes differ");
    printf("{\"id\": \"%s\", \"ratio\": %.3f, \"floor\": %g, \"goal\": %g, "
           "\"ours\": %.0f, \"peer\": %.0f, \"unit\": \"samples/s\", "
           "\"peer_name\": \"all rows in memory\", \"rounds\": %d, "
           "\"cap_mb\": %lld, \"rss\": %.3f, \"missed\": %.3f, "
           "\"file_mb\": %lld, \"iops\": %.0f}\n",
           id, ours.rate / peer.rate, floor, goal, ours.rate, peer.rate, ROUNDS,
           (long long)cap_bytes() >> 20, ours.rss, ours.missed, ours.file >> 20,
           iops);
    fflush(stdout);
    must(ours.rss <= 1.1, "it has grown by more than the cap and a tenth");
}

int main(int argc, char **argv)
{
    double iops = measure_iops();

    if (is_wanted(argc, argv, "T1-zipf"))
        compare("T1-zipf", 0.99, 0.5, 0.8, iops);
    if (is_wanted(argc, argv, "T1-uniform"))
        compare("T1-uniform", 0, 0.05, 0.1, iops);
    return 0;
}
