/* comm_kit.h - what every group of ranks must do (runtime/device/comm.h),
 * whoever joins the ranks: parts, which each rank of a group runs, and ways to
 * start them. A rank is a process of its own, or, for ThreadSanitizer, a
 * thread. */
#pragma once

#include <sys/types.h>

#include "runtime/device/comm.h"

/* What one rank of a group does; it fails by CHECK. */
typedef struct comm_kit_part {
    const char *name;
    void (*run)(fl_comm *p);
    bool fails;          /* the group does */
    bool is_killed;      /* its last rank is, and must not be missed */
    bool stays_out;      /* the last rank; the others open no group */
    int64_t deadline_ms; /* 0: long */
} comm_kit_part;

/* comm_kit_hierarchy.c */
void comm_kit_by_groups(fl_comm *p);
void comm_kit_by_groups_one_gives_up(fl_comm *p);
void comm_kit_by_groups_one_is_killed(fl_comm *p);

const comm_kit_part *comm_kit_part_named(const char *name);

/* Each of them until the last, whose name is NULL. */
extern const comm_kit_part comm_kit_healthy[];
extern const comm_kit_part comm_kit_misused[];

/* All healthy ones, each in a group of its own. */
extern const comm_kit_part comm_kit_all;

/* How ranks that the kit itself starts are joined. */
typedef struct comm_kit_place {
    void *(*prepare)(int size); /* what they share, before they start */
    fleet_status (*open)(void *shared, const fl_comm_options *o, int rank,
                         int size, fl_comm **p);
    void (*clean)(void *shared, int size);
    int (*most)(void); /* ranks that there is room for; NULL: for any */
} comm_kit_place;
extern const comm_kit_place comm_kit_shm;

typedef struct comm_kit_way {
    const char *name; /* "processes", "threads", "mpi", "mpi-apart" */
    bool ordered;
    const comm_kit_place *place; /* of the first two */
} comm_kit_way;

/* Start that many ranks, let them run the part, and check that each of them
 * did; nothing of them is left. Skips the test where MPI is not there. */
void comm_kit_run(const comm_kit_part *part, comm_kit_way way, int size);

/* The same in a process of its own, so that several groups wait for their
 * deadlines at once; not under MPI. */
pid_t comm_kit_begin(const comm_kit_part *part, comm_kit_way way, int size);
void comm_kit_end(const comm_kit_part *part, pid_t child);

/* Of least to 4 ranks; of 3 processes alone under ThreadSanitizer, which sees
 * nothing of what is between them. */
void comm_kit_run_sizes(const char *part, comm_kit_way way, int least);

/* What a part's group is made with. */
fl_comm_options comm_kit_options(const comm_kit_part *part, bool ordered);

/* --- values --------------------------------------------------------------- */

/* A rank's n elements. */
void comm_kit_fill(void *out, fl_wire_type type, int rank, int64_t n);

/* What comes of all ranks' elements [begin, begin + n), in rank order. */
void comm_kit_want(void *out, fl_reduce how, fl_wire_type type, int size,
                   int64_t begin, int64_t n);

/* The same bits, but that any NaN is as good as another; or, with a tolerance,
 * numbers of f32 and f64 that are near. */
void comm_kit_check(const void *got, const void *want, fl_wire_type type,
                    int64_t n, double tolerance);
