/* mpi_rank.c - a rank that mpirun starts: does a part of the kit
 * (comm_kit.h) and leaves a file that says so.
 *
 *     mpi-rank PART ordered|free FOLDER
 */
#define SUITE comm_kit_rank
#include "comm_kit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/open.h"

enum { TOGETHER_MS = 10000 };

static void path_of(char path[4096], const char *folder, const char *part,
                    int rank)
{
    snprintf(path, 4096, "%s/%s.%d", folder, part, rank);
}

static void leave_file(const char *folder, const char *part, int rank)
{
    char path[4096];
    int fd;

    path_of(path, folder, part, rank);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
}

/* A rank that ends after a failure without MPI_Finalize() makes mpirun end the
 * others: it waits until they are done. */
static void wait_for_files(const char *folder, const comm_kit_part *part,
                           int size)
{
    int64_t until = fl_now_ms() + TOGETHER_MS * TEST_SLOWNESS;
    char path[4096];

    for (int r = 0; r < size - part->is_killed; r++) {
        path_of(path, folder, part->name, r);
        while (access(path, F_OK) != 0 && fl_now_ms() < until)
            usleep(5000);
    }
}

static int number_in(const char *variable)
{
    const char *text = getenv(variable);

    CHECK(text != NULL);
    return atoi(text);
}

/* Nobody knows who is missing: MPI has not begun. */
static void open_in_vain(const comm_kit_part *part, const char *folder)
{
    int rank = number_in("OMPI_COMM_WORLD_RANK");
    int size = number_in("OMPI_COMM_WORLD_SIZE");
    fl_comm_options o = comm_kit_options(part, false);
    fl_comm *p;

    if (rank < size - 1) {
        CHECK_FAILS(fl_comm_open("mpi", &o, &p), FLEET_ETIMEDOUT,
                    "mpi: not all ranks came to MPI_Init() within ");
        CHECK_FAILS(fl_comm_open("mpi", &o, &p), FLEET_EPEER, "mpi: ");
    }
    leave_file(folder, part->name, rank);
    wait_for_files(folder, part, size);
}

static void do_part(const comm_kit_part *part, bool ordered, const char *folder)
{
    fl_comm_options o = comm_kit_options(part, ordered);
    fl_comm *p;
    int size;

    CHECK_OK(fl_comm_open("mpi", &o, &p));
    size = p->size;
    part->run(p);
    if (folder)
        leave_file(folder, part->name, p->rank);
    if (part->fails)
        wait_for_files(folder, part, size);
    p->methods->destroy(p);
}

static void do_nothing(fl_comm *p)
{
    CHECK_OK(p->methods->barrier(p));
}

int main(int argc, char **argv)
{
    const comm_kit_part *part = argc == 4 ? comm_kit_part_named(argv[1]) : NULL;
    comm_kit_part last = {.name = comm_kit_all.name, .run = do_nothing};
    bool ordered;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test_ends_process = true;
    CHECK(part != NULL);
    ordered = strcmp(argv[2], "ordered") == 0;
    if (part->stays_out) {
        open_in_vain(part, argv[3]);
        return 0;
    }
    if (part != &comm_kit_all) {
        do_part(part, ordered, argv[3]);
        return 0;
    }
    for (part = comm_kit_healthy; part->name; part++)
        do_part(part, ordered, NULL);
    do_part(&last, ordered, argv[3]);
    return 0;
}
