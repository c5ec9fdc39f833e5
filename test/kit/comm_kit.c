/* comm_kit.c - ranks are started, watched and cleaned up: see comm_kit.h. */
#define _GNU_SOURCE
#define SUITE comm_kit
#include "comm_kit.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/shm/shm.h"

enum { MOST_RANKS = 8, LONG_MS = 20000, LIMIT_MS = 100000 };

const comm_kit_part comm_kit_all = {.name = "all"};

const comm_kit_part *comm_kit_part_named(const char *name)
{
    if (strcmp(name, comm_kit_all.name) == 0)
        return &comm_kit_all;
    for (const comm_kit_part *p = comm_kit_healthy; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    for (const comm_kit_part *p = comm_kit_misused; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

fl_comm_options comm_kit_options(const comm_kit_part *part, bool ordered)
{
    int64_t ms = part->deadline_ms ? part->deadline_ms * TEST_PATIENCE
                                   : (int64_t)LONG_MS * TEST_SLOWNESS;

    return (fl_comm_options){.ordered = ordered, .deadline_ms = ms};
}

/* --- shared memory, without MPI ------------------------------------------- */

static void *prepare_shm(int size)
{
    void *memory = mmap(NULL, fl_shm_bytes(size), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    for (int r = 0; r < size; r++)
        fl_shm_prepare(memory, r, size);
    return memory;
}

static fleet_status open_shm(void *shared, const fl_comm_options *o, int rank,
                             int size, fl_comm **p)
{
    return fl_shm_open(shared, rank, size, "shm", o, NULL, p);
}

static void clean_shm(void *shared, int size)
{
    munmap(shared, fl_shm_bytes(size));
}

const comm_kit_place comm_kit_shm = {prepare_shm, open_shm, clean_shm, NULL};

/* --- ranks of the kit's own ---------------------------------------------- */

typedef struct rank_set {
    const comm_kit_part *part;
    comm_kit_way way;
    void *shared;
    int size;
} rank_set;

static void be_rank(const rank_set *c, int rank)
{
    fl_comm_options o = comm_kit_options(c->part, c->way.ordered);
    fl_comm *p;

    CHECK_OK(c->way.place->open(c->shared, &o, rank, c->size, &p));
    CHECK_INT(p->rank, rank);
    CHECK_INT(p->size, c->size);
    c->part->run(p);
    p->methods->destroy(p);
}

static pid_t fork_rank(const rank_set *c, int rank)
{
    pid_t child = test_fork();

    if (child > 0)
        return child;
    be_rank(c, rank);
    _exit(0); /* what is lost is looked for where ranks are threads */
}

/* 0, or what it ended with; it is killed if it does not end. */
static int end_of(pid_t child)
{
    int status = -1;

    if (!test_ends_within(child, LIMIT_MS * TEST_SLOWNESS))
        kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return status;
}

static void check_end(const rank_set *c, int rank, int status)
{
    if (c->part->is_killed && rank == c->size - 1)
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else if (status != 0)
        test_fail(__FILE__, __LINE__, "%s: rank %d of %d ended with %x",
                  c->part->name, rank, c->size, (unsigned)status);
}

static void run_processes(const rank_set *c)
{
    pid_t child[MOST_RANKS];

    for (int r = 0; r < c->size; r++)
        child[r] = fork_rank(c, r);
    for (int r = 0; r < c->size; r++)
        check_end(c, r, end_of(child[r]));
}

typedef struct rank_thread {
    pthread_t thread;
    const rank_set *set;
    int rank;
} rank_thread;

static void *thread_rank(void *arg)
{
    rank_thread *t = arg;

    be_rank(t->set, t->rank);
    return NULL;
}

static void run_threads(const rank_set *c)
{
    rank_thread t[MOST_RANKS];

    for (int r = 0; r < c->size; r++) {
        t[r] = (rank_thread){.set = c, .rank = r};
        CHECK(pthread_create(&t[r].thread, NULL, thread_rank, &t[r]) == 0);
    }
    for (int r = 0; r < c->size; r++)
        pthread_join(t[r].thread, NULL);
}

static void run_here(const comm_kit_part *part, comm_kit_way way, int size)
{
    const rank_set c = {part, way, way.place->prepare(size), size};

    if (strcmp(way.name, "threads") == 0)
        run_threads(&c);
    else
        run_processes(&c);
    way.place->clean(c.shared, size);
}

/* --- under mpirun -------------------------------------------------------- */

static void need_mpi(void)
{
    if (access(test_beside("libfleet_mpi.so"), R_OK) != 0)
        test_skip("libfleet_mpi.so was not built: Open MPI is not here");
    if (system("command -v mpirun >/dev/null") != 0)
        test_skip("no mpirun: Debian's openmpi-bin is not here");
}

/* All output to a file of the test's folder, which is shown if it fails. */
static void exec_mpirun(const comm_kit_part *part, comm_kit_way way, int size,
                        const char *folder, const char *output)
{
    int out = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char n[12];

    snprintf(n, sizeof n, "%d", size);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("TMPDIR", folder, 1);
    if (strcmp(way.name, "mpi-apart") == 0)
        setenv("FLEET_MPI_WINDOW", "0", 1);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(99);
    execlp("mpirun", "mpirun", "-n", n, "--oversubscribe", "--bind-to", "none",
           "--enable-recovery", "--mca", "btl_vader_single_copy_mechanism",
           "none", test_beside("mpi-rank"), part->name,
           way.ordered ? "ordered" : "free", folder, (char *)NULL);
    _exit(98);
}

static void show(const char *path)
{
    char line[500];
    FILE *f = fopen(path, "r");

    while (f && fgets(line, sizeof line, f))
        fputs(line, stderr);
    if (f)
        fclose(f);
}

/* Each rank leaves a file when it has done its part. */
static void run_mpi(const comm_kit_part *part, comm_kit_way way, int size)
{
    const char *folder = test_folder(), *output = test_path("mpirun.out");
    int status, n_rank = size - part->is_killed;
    char name[40];
    pid_t child;

    need_mpi();
    for (int r = 0; r < size; r++) {
        snprintf(name, sizeof name, "%s.%d", part->name, r);
        unlink(test_path(name));
    }
    child = test_fork();
    if (child == 0)
        exec_mpirun(part, way, size, folder, output);
    status = end_of(child);
    for (int r = 0; r < n_rank; r++) {
        snprintf(name, sizeof name, "%s.%d", part->name, r);
        if (access(test_path(name), F_OK) == 0)
            continue;
        show(output);
        test_fail(__FILE__, __LINE__, "%s, %s: rank %d of %d did not do it",
                  way.name, part->name, r, size);
    }
    if (!part->fails && status != 0) {
        show(output);
        test_fail(__FILE__, __LINE__, "%s, %s: mpirun ended with %x", way.name,
                  part->name, (unsigned)status);
    }
}

void comm_kit_run(const comm_kit_part *part, comm_kit_way way, int size)
{
    if (way.place)
        run_here(part, way, size);
    else
        run_mpi(part, way, size);
}

pid_t comm_kit_begin(const comm_kit_part *part, comm_kit_way way, int size)
{
    pid_t child = test_fork();

    if (child > 0)
        return child;
    comm_kit_run(part, way, size);
    _exit(0);
}

void comm_kit_end(const comm_kit_part *part, pid_t child)
{
    int status = end_of(child);

    if (status != 0)
        test_fail(__FILE__, __LINE__, "%s: a group ended with %x", part->name,
                  (unsigned)status);
}

static void run_at_once(const comm_kit_part *part, comm_kit_way way, int least,
                        int most)
{
    pid_t child[MOST_RANKS];

    for (int size = least; size <= most; size++)
        child[size] = comm_kit_begin(part, way, size);
    for (int size = least; size <= most; size++)
        comm_kit_end(part, child[size]);
}

void comm_kit_run_sizes(const char *name, comm_kit_way way, int least)
{
    const comm_kit_part *part = comm_kit_part_named(name);
    bool processes = strcmp(way.name, "processes") == 0;
    int most = 4, room = way.place && way.place->most ? way.place->most() : 4;

    if (room < most)
        most = room;
#ifdef __SANITIZE_THREAD__
    if (processes)
        least = most = most < 3 ? most : 3;
#endif
    if (processes && part->deadline_ms > 0)
        run_at_once(part, way, least, most);
    else
        for (int size = least; size <= most; size++)
            comm_kit_run(part, way, size);
}
