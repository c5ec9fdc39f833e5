/* ps_recovery.c - K6: a server of one table (dim 16, Adagrad, 152 bytes a row in
 * a snapshot) with strategy.log `process` is killed and started again: from its
 * process's first line until a step of its worker is done, beside which nothing
 * else happens. Its folder holds the newest snapshot and what was done behind
 * it. With MB of rows to fill; default: 100 and 1,000 of them.
 *
 *   K6-resume  seconds until the worker goes on, 100 MB; at most
 *   K6-read    the same, 1 GB, over the seconds in which its files are read, by
 *              reads of 1 MB, from the disk; at most
 *
 * Before each of both the files are dropped from memory, as far as the kernel
 * does so. Needs three times the bytes on the disk below TMPDIR.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fleet/fleet.h>

#include "helper.h"

enum { DIM = 16, ROW_BYTES = 8 + 16 + 2 * 4 * DIM, BATCH = 32768 };
enum { LANES = 2, SMALL = 64, READ_BYTES = 1 << 20 };

typedef struct job {
    char endpoint[64], folder[200];
    long rows;
    atomic_int filled;
    atomic_long steps; /* small ones, behind that */
    fleet *f;
    fleet_program *p;
    fleet_var *loss;
} job;

static job *all;

static void open_job(const fleet_role *role)
{
    const fleet_options options = {.role = role,
                                   .num_threads = 1,
                                   .server_lanes = LANES,
                                   .log_level = FLEET_LOG_INFO};
    const fleet_sparse_embedding_options table = {.table = "t"};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *id;

    s.log = FLEET_DURABLE_PROCESS;
    s.log_configs.folder = all->folder;
    s.log_configs.file_bytes = all->rows * ROW_BYTES / (LANES * 16);
    check(fleet_init(&all->f, &options));
    all->p = fleet_program_create(all->f);
    id = fleet_data(all->p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    all->loss =
        fleet_mean(all->p, fleet_sparse_embedding(all->p, id, DIM, &table));
    check(fleet_minimize(fleet_distributed_optimizer(
                             all->f, fleet_adagrad(all->f, 0.1f, NULL), &s),
                         all->loss));
}

static void serve(int say, void *arg)
{
    const fleet_role role = {.kind = FLEET_SERVER,
                             .server_endpoints = all->endpoint,
                             .worker_num = 1};

    (void)arg;
    open_job(&role);
    check(fleet_init_server(all->f, NULL));
    helper_say(say, all->endpoint);
    check(fleet_run_server(all->f));
}

static void step(fleet_executor *e, long first, long n)
{
    static int64_t id[BATCH];
    const int64_t dims[] = {n, 1};
    const fleet_feed feed = {"id", FLEET_INT64, id, dims, 2, NULL};

    for (long i = 0; i < n; i++)
        id[i] = (first + i) % all->rows;
    check(fleet_executor_run(e, &feed, 1, NULL, 0));
}

/* Each row once; then few of them, until it is ended. */
static void work(int say, void *arg)
{
    const fleet_role role = {.server_endpoints = all->endpoint,
                             .worker_num = 1};
    fleet_executor *e;

    (void)arg;
    helper_say(say, "");
    open_job(&role);
    e = fleet_executor_create(all->p, NULL);
    must(e != NULL, fleet_last_error());
    check(fleet_init_worker(all->f));
    for (long i = 0; i < all->rows; i += BATCH)
        step(e, i, BATCH);
    atomic_store(&all->filled, 1);
    for (long i = 0;; i += SMALL) {
        step(e, i, SMALL);
        atomic_fetch_add(&all->steps, 1);
    }
}

/* --- its files ------------------------------------------------------------ */

/* Of a folder and those below; read, or dropped from memory. */
static double walk(const char *folder, int reads)
{
    static char buffer[READ_BYTES];
    DIR *dir = opendir(folder);
    double bytes = 0;
    struct dirent *e;

    must(dir != NULL, folder);
    while ((e = readdir(dir)) != NULL) {
        char path[600];
        ssize_t n;
        int fd;

        if (*e->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_type == DT_DIR) {
            bytes += walk(path, reads);
            continue;
        }
        fd = open(path, O_RDONLY | O_CLOEXEC);
        must(fd >= 0, path);
        while (reads && (n = read(fd, buffer, sizeof buffer)) > 0)
            bytes += (double)n;
        if (!reads) {
            fsync(fd);
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        close(fd);
    }
    closedir(dir);
    return bytes;
}

/* Seconds of processors that a process has taken: where others compute, too,
 * that says more than the time. */
static double cpu_of(pid_t pid)
{
    char path[64], line[600], *at;
    unsigned long user = 0, system_ = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    must(f && fgets(line, sizeof line, f) && fclose(f) == 0, path);
    at = strrchr(line, ')');
    must(at &&
             sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                    &user, &system_) == 2,
         path);
    return (double)(user + system_) / (double)sysconf(_SC_CLK_TCK);
}

/* --- one size ------------------------------------------------------------- */

typedef struct result {
    double bytes, read_s, resume_s, cpu_s;
} result;

static void await_steps(long more)
{
    long end = atomic_load(&all->steps) + more;

    while (atomic_load(&all->steps) < end)
        usleep(500);
}

static result recover(double mb, int cold)
{
    helper server, worker;
    double began;
    char line[300];
    result r;

    all->rows = (long)(mb * 1e6 / ROW_BYTES);
    atomic_store(&all->filled, 0);
    snprintf(all->folder, sizeof all->folder, "%s/fleet-k6.%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    free_endpoint(all->endpoint);
    server = helper_start(serve, NULL);
    worker = helper_start(work, NULL);
    while (!atomic_load(&all->filled))
        usleep(1000);
    await_steps(200);
    helper_end(&server);
    if (cold)
        walk(all->folder, 0);
    began = now();
    r.bytes = walk(all->folder, 1);
    r.read_s = now() - began;
    if (cold)
        walk(all->folder, 0);
    began = now();
    server = helper_start(serve, NULL);
    await_steps(1);
    r.resume_s = now() - began;
    r.cpu_s = cpu_of(server.pid);
    fprintf(stderr,
            "%.0f MB of rows, %s: %.0f MB of files read in %.2f s, "
            "back in %.2f s, %.2f s of processors\n",
            mb, cold ? "from the disk" : "from memory", r.bytes * 1e-6,
            r.read_s, r.resume_s, r.cpu_s);
    helper_end(&worker);
    helper_end(&server);
    snprintf(line, sizeof line, "rm -rf %s", all->folder);
    must(system(line) == 0, line);
    return r;
}

static void print_row(const char *id, double ratio, double floor_, double goal,
                      double ours, double peer, const char *name)
{
    printf("{\"id\":\"%s\",\"ratio\":%.3f,\"floor\":%.2f,\"goal\":%.2f,"
           "\"ours\":%.6g,\"peer\":%.6g,\"unit\":\"s, at most\","
           "\"peer_name\":\"%s\",\"rounds\":1}\n",
           id, ratio, floor_, goal, ours, peer, name);
}

int main(int argc, char **argv)
{
    result r;

    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(all != MAP_FAILED, "no memory");
    for (int i = 1; i < argc; i++)
        for (int cold = 0; cold < 2; cold++)
            recover(atof(argv[i]), cold);
    if (argc > 1)
        return 0;
    r = recover(100, 1);
    print_row("K6-resume", r.resume_s / 3, 1, 1, r.resume_s, 3, "3 s");
    r = recover(1000, 1);
    print_row("K6-read", r.resume_s / r.read_s, 2, 2, r.resume_s, r.read_s,
              "its files read");
    return 0;
}
