/* ranks.c - C1, C2: the sum of floats over two ranks of one host, ours against
 * Gloo's (the fastest of its algorithms) and Open MPI's own, in the same two
 * processes and in turn, each with the writing of the numbers: in the group's
 * memory (get_memory), as gradients are, and, "-copy", in the caller's own.
 * Starts itself under mpirun. */
#include <libgen.h>
#include <limits.h>
#include <string.h>

#include "helper.h"
#include "runtime/device/comm.h"

#if HAVE_MPI && HAVE_GLOO

#include <mpi.h>

#include "base/error.h"
#include "collective/open.h"
#include "gloo_peer.h"

enum { ROUNDS = 18, MOST = 16 << 20 };

typedef struct bench {
    fl_comm *peers;
    gloo_peer *gloo;
    float *own, *shared;
    int rank;
} bench;

typedef struct size_row {
    const char *id;
    size_t n; /* floats */
    double gloo_floor, gloo_goal, mpi_floor, mpi_goal;
    int times; /* of ours and of MPI's in a round */
} size_row;

static const size_row rows[] = {
    {"C1", 84 * 1024 / 4, 0.15, 0.05, 1.0, 0.3, 400},
    {"C2-1mb", 1 << 18, 0.35, 0.1, 0, 0, 100},
    {"C2-64mb", 16 << 20, 0.5, 0.25, 0, 0, 2},
};

enum { OURS, COPY, OF_MPI, OF_GLOO };

static void sum_once(bench *b, int who, float *x, size_t n)
{
    if (who == OF_MPI)
        must(MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD) == MPI_SUCCESS,
             "MPI_Allreduce");
    else if (who >= OF_GLOO)
        gloo_sum(b->gloo, who - OF_GLOO, x, n);
    else
        must(b->peers->methods->all_reduce(b->peers, FL_ALL_SUM, FL_WIRE_F32, x,
                                           x, (int64_t)n, NULL) == FLEET_OK,
             fleet_last_error());
}

/* Microseconds. Each time the numbers are written anew, as gradients are: else
 * they would stay in the cache of who adds them up. */
static double time_of(bench *b, int who, size_t n, int times)
{
    float *x = who == OURS ? b->shared : b->own;
    double began;

    sum_once(b, who, x, n);
    MPI_Barrier(MPI_COMM_WORLD);
    began = now();
    for (int i = 0; i < times; i++) {
        memset(x, 0x3F, n * sizeof *x);
        sum_once(b, who, x, n);
    }
    return (now() - began) / times * 1e6;
}

static double best_gloo(bench *b, const size_row *r)
{
    int times = r->times < 20 ? r->times : r->times / 10;
    double best = 1e30;

    for (int i = 0; gloo_algorithms[i]; i++) {
        double t = time_of(b, OF_GLOO + i, r->n, times);

        best = t < best ? t : best;
    }
    return best;
}

static void print(pairs *p, const size_row *r, const char *kind, int is_mpi)
{
    char id[40];

    snprintf(id, sizeof id, "%s%s-%s", r->id, kind, is_mpi ? "mpi" : "gloo");
    if (*kind) /* no slower than the peer; the floors are of the other */
        pairs_print(p, id, 1, is_mpi ? r->mpi_floor : r->gloo_floor,
                    "us, at most",
                    is_mpi ? "Open MPI's MPI_Allreduce" : "Gloo");
    else
        pairs_print(p, id, is_mpi ? r->mpi_floor : r->gloo_floor,
                    is_mpi ? r->mpi_goal : r->gloo_goal, "us, at most",
                    is_mpi ? "Open MPI's MPI_Allreduce" : "Gloo");
}

static void measure(bench *b, const size_row *r)
{
    static pairs p[4];
    const char *kind[2] = {"", "-copy"};

    memset(p, 0, sizeof p);
    for (int i = 0; i < ROUNDS; i++) {
        double t[2], gloo, of_mpi;

        for (int k = 0; k < 4; k++)
            pair_begin(&p[k]);
        t[0] = time_of(b, OURS, r->n, r->times);
        gloo = best_gloo(b, r);
        t[1] = time_of(b, COPY, r->n, r->times);
        of_mpi = time_of(b, OF_MPI, r->n, r->times);
        for (int k = 0; k < 4; k++)
            pair_end(&p[k], t[k / 2], k % 2 ? of_mpi : gloo);
    }
    for (int k = 0; k < 4 && b->rank == 0; k++)
        if (k % 2 == 0 || r->mpi_floor > 0)
            print(&p[k], r, kind[k / 2], k % 2);
}

static void watch_the_other(int rank)
{
    int mine = (int)getpid(), pid[2];

    MPI_Allgather(&mine, 1, MPI_INT, pid, 1, MPI_INT, MPI_COMM_WORLD);
    pair_watch(pid[1 - rank]);
}

/* The folder that rank 0 has made. */
static void meet(bench *b)
{
    char folder[64] = "/tmp/fleet-gloo.XXXXXX", command[80];

    if (b->rank == 0)
        must(mkdtemp(folder) != NULL, "no folder in /tmp");
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    b->gloo = gloo_open(b->rank, 2, folder);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(command, sizeof command, "rm -r %s", folder);
    must(b->rank != 0 || system(command) == 0, "cannot remove a folder");
}

static int be_rank(int argc, char **argv)
{
    bench b = {0};
    void *memory = NULL;

    must(fl_comm_open("mpi", NULL, &b.peers) == FLEET_OK, fleet_last_error());
    b.rank = b.peers->rank;
    watch_the_other(b.rank);
    meet(&b);
    b.own = calloc(MOST, sizeof *b.own);
    must(b.own && b.peers->methods->get_memory(b.peers, MOST * sizeof *b.own,
                                               &memory) == FLEET_OK,
         fleet_last_error());
    b.shared = memory;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_wanted(argc, argv, rows[i].id))
            measure(&b, &rows[i]);
    b.peers->methods->free_memory(b.peers, memory);
    b.peers->methods->destroy(b.peers);
    free(b.own);
    return 0;
}

/* The plug-in lies a folder above this program. */
static void become_ranks(char **argv)
{
    char *more[] = {"mpirun",  "-n",        "2",   "--oversubscribe",
                    "--quiet", "--bind-to", "core"};
    char path[PATH_MAX], plugin[PATH_MAX + 4], *all[40] = {0};
    int n = 0;

    must(realpath("/proc/self/exe", path) != NULL, "no own path");
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        all[n++] = more[i];
    all[n++] = strdup(path);
    for (int i = 1; argv[i] && n < 39; i++)
        all[n++] = argv[i];
    snprintf(plugin, sizeof plugin, "%s/..", dirname(path));
    setenv("FLEET_PLUGIN_PATH", plugin, 1);
    execvp("mpirun", all);
    must(0, "no mpirun: Debian's openmpi-bin is not here");
}

int main(int argc, char **argv)
{
    if (!getenv("OMPI_COMM_WORLD_SIZE"))
        become_ranks(argv);
    return be_rank(argc, argv);
}

#else

int main(int argc, char **argv)
{
    static const char *const ids[] = {"C1-gloo", "C1-mpi", "C2-1mb-gloo",
                                      "C2-64mb-gloo"};

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (is_wanted(argc, argv, ids[i]))
            printf("{\"id\":\"%s\",\"ratio\":null,\"floor\":null,"
                   "\"absent\":\"%s\"}\n",
                   ids[i],
                   HAVE_MPI ? "libgloo-dev was not there when it was built"
                            : "libopenmpi-dev was not there");
    return 0;
}

#endif
