/* ps_save.c - K2: a save of servers' tables while an async worker trains the
 * CTR model of R4 from text (embedding 9, tower 400-400-400, batch 1024,
 * Adagrad; some 4 million rows). Worker 1 trains, one thread; worker 0 saves in the
 * midst of each pass, but for the first one, which makes the rows.
 *
 *   K2-throughput  batches per second while a save is written, over those before
 *   K2-pause       ms: how much longer than the median before the slowest batch
 *                  in 100 takes meanwhile
 *   K2-memory      the most memory of the server's process meanwhile, more than
 *                  before, over what its tables take
 */
#include <stdatomic.h>
#include <sys/mman.h>

#include "ps_job.h"

enum { BATCHES = 192, PASSES = 6, BEFORE = 60, MOST_GAPS = BATCHES * PASSES };
enum { ROWS = 8000000 }; /* ids; half of them come */

/* What the processes share. */
typedef struct shared {
    ps_job job;
    pid_t server;
    atomic_int pass, batch; /* where worker 1 is */
    atomic_int saving;      /* pass + 1 while it is saved in; 0: it is not */
    double before[MOST_GAPS], during[MOST_GAPS]; /* seconds between batches */
    int n_before, n_during;
    double table_kb, more_kb; /* of the server's memory */
} shared;

static shared *all;

/* kB of a line of /proc/PID/status. */
static double status_kb(pid_t pid, const char *key)
{
    char path[64], line[200];
    double kb = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "r");
    must(f != NULL, path);
    while (kb < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kb = atof(line + strlen(key));
    fclose(f);
    must(kb >= 0, key);
    return kb;
}

static void forget_peak(pid_t pid)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)pid);
    f = fopen(path, "w");
    must(f && fputs("5", f) >= 0 && fclose(f) == 0, path);
}

/* --- worker 1 ------------------------------------------------------------- */

static int note_batch(void *user, int64_t batches, int64_t samples)
{
    static double last;
    static int was_saving;
    double t = now();
    int saving = atomic_load(&all->saving) != 0;

    (void)user, (void)samples;
    if (batches > 1 && atomic_load(&all->pass) > 0) {
        if (saving && was_saving)
            all->during[all->n_during++] = t - last;
        else if (!saving && !was_saving && batches <= BEFORE)
            all->before[all->n_before++] = t - last;
    }
    was_saving = saving;
    last = t;
    atomic_store(&all->batch, (int)batches);
    return 0;
}

/* Batches with other ids, until there are BATCHES of them. */
static void write_batches(bench *b, const char *path)
{
    FILE *f = fopen(path, "w");

    must(f != NULL, path);
    for (int n = 0; n < BATCHES; n += b->n_batch) {
        for (int i = 0; i < b->n_batch; i++)
            for (int j = 0; j < b->o.batch; j++)
                write_sample(f, b, i, j);
        make_batches(b);
    }
    must(fclose(f) == 0, path);
}

/* --- worker 0 ------------------------------------------------------------- */

static void save_once(bench *b, int pass)
{
    char path[80];
    double resident;

    while (atomic_load(&all->pass) != pass || atomic_load(&all->batch) < BEFORE)
        usleep(500);
    snprintf(path, sizeof path, "/tmp/fleet-k2.%d", (int)getppid());
    resident = status_kb(all->server, "VmRSS:");
    forget_peak(all->server);
    atomic_store(&all->saving, pass + 1);
    check(fleet_save_persistables(b->f, path));
    atomic_store(&all->saving, 0);
    if (status_kb(all->server, "VmHWM:") - resident > all->more_kb)
        all->more_kb = status_kb(all->server, "VmHWM:") - resident;
    all->table_kb = resident;
}

/* --- both ----------------------------------------------------------------- */

static void work(int index, const char *const path[2])
{
    const fleet_train_options watch = {.on_batch = note_batch};
    fleet_role role = {
        .index = index, .worker_num = 2, .server_endpoints = all->job.endpoint};
    static bench b;
    fleet_dataset *d;

    ps_open(&b, &role, &all->job);
    check(fleet_init_worker(b.f));
    if (index == 1)
        write_batches(&b, path[1]);
    else
        b.n_batch = 1, write_text(&b, path[0]);
    check(fleet_barrier_worker(b.f));
    d = open_text(&b, path, 2);
    for (int pass = 0; pass < PASSES; pass++) {
        if (index == 1)
            atomic_store(&all->batch, 0), atomic_store(&all->pass, pass);
        check(fleet_barrier_worker(b.f));
        if (index == 0 && pass > 0)
            save_once(&b, pass);
        check(
            fleet_train_from_dataset(b.e, d, index == 1 ? &watch : NULL, NULL));
    }
    check(fleet_stop_worker(b.f));
    close_bench(&b);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double mean(const double *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

static void print_row(const char *id, double ratio, double floor_, double goal,
                      double ours, double peer, const char *unit,
                      const char *name)
{
    printf("{\"id\":\"%s\",\"ratio\":%.3f,\"floor\":%.2f,\"goal\":%.2f,"
           "\"ours\":%.6g,\"peer\":%.6g,\"unit\":\"%s\",\"peer_name\":\"%s\","
           "\"rounds\":%d}\n",
           id, ratio, floor_, goal, ours, peer, unit, name, PASSES - 1);
}

static void print_rows(void)
{
    double before, during, slowest, usual;

    must(all->n_before > 0 && all->n_during > 0, "no batch beside a save");
    before = mean(all->before, all->n_before);
    during = mean(all->during, all->n_during);
    qsort(all->before, (size_t)all->n_before, sizeof(double), by_size);
    qsort(all->during, (size_t)all->n_during, sizeof(double), by_size);
    usual = all->before[all->n_before / 2];
    slowest = all->during[(all->n_during * 99 + 99) / 100 - 1];
    print_row("K2-throughput", before / during, 0.7, 0.85, 1 / during,
              1 / before, "batches/s", "the same before the save");
    print_row("K2-pause", (slowest - usual) * 1e3, 20, 5, slowest * 1e3,
              usual * 1e3, "ms, at most", "the median before the save");
    print_row("K2-memory", all->more_kb / all->table_kb, 0.25, 0.10,
              all->more_kb / 1024, all->table_kb / 1024, "MB, at most",
              "the server before the save");
}

int main(void)
{
    char path[2][64];
    const char *const paths[2] = {path[0], path[1]};
    pid_t worker[2];
    helper server;

    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(all != MAP_FAILED, "no memory");
    all->job = (ps_job){.n_worker = 2, .a_sync = 1, .rows = ROWS};
    free_endpoint(all->job.endpoint);
    server = helper_start(ps_serve, &all->job);
    all->server = server.pid;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "/tmp/fleet-k2.%d.%d", getpid(), i);
    for (int i = 0; i < 2; i++) {
        worker[i] = fork();
        if (worker[i] == 0) {
            work(i, paths);
            exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;

        must(waitpid(worker[i], &status, 0) > 0 && status == 0,
             "a worker has failed");
    }
    helper_end(&server);
    print_rows();
    for (int i = 0; i < 2; i++)
        unlink(path[i]);
    snprintf(path[0], sizeof path[0], "rm -rf /tmp/fleet-k2.%d", getpid());
    must(system(path[0]) == 0, path[0]);
    return 0;
}
