/* comm_kit_hierarchy.c - ranks that sum by groups (collective/hierarchy.h): see
 * comm_kit.h. */
#define SUITE comm_kit_hierarchy
#include "comm_kit.h"
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "collective/reduce_kernels.h"
#include "collective/hierarchy.h"
#include "collective/wire_type.h"
#include "runtime/plan/agree.h"

enum { MOST_RANKS = 8 };

/* n elements of so many sources become one, in their order. */
static void fold(fl_reduce how, fl_wire_type type, char *const *in, int n_in,
                 void *out, int64_t n)
{
    fl_reduce_run(&(fl_reduce_args){.how = how,
                                    .type = type,
                                    .in = (const void *const *)in,
                                    .n_in = n_in,
                                    .out = &out,
                                    .n_out = 1,
                                    .n = n});
}

/* What comes of groups of `inner`: theirs first. */
static void want(fl_reduce how, fl_wire_type type, int size, int inner,
                 void *out, int64_t n)
{
    size_t bytes = (size_t)(n * fl_wire_size(type)) + 1;
    char *x[MOST_RANKS], *sum[MOST_RANKS];

    for (int r = 0; r < size; r++) {
        x[r] = calloc(bytes, 1);
        sum[r] = calloc(bytes, 1);
        comm_kit_fill(x[r], type, r, n);
    }
    for (int g = 0; g < size / inner; g++)
        fold(how, type, x + g * inner, inner, sum[g], n);
    fold(how, type, sum, size / inner, out, n);
    for (int r = 0; r < size; r++) {
        free(x[r]);
        free(sum[r]);
    }
}

static double tolerance(const fl_comm *p, fl_wire_type type)
{
    bool is_free = !p->ordered && strcmp(p->methods->name, "mpi") == 0;

    return is_free && type <= FL_WIRE_F64 ? 1e-4 : 0.0;
}

static void reduce(fl_comm *p, fl_comm *groups, int inner, fl_wire_type type,
                   int64_t n)
{
    size_t bytes = (size_t)(n * fl_wire_size(type)) + 1;
    char *in = calloc(bytes, 1), *out = calloc(bytes, 1);
    char *result = calloc(bytes, 1);
    fl_work *work = NULL;

    comm_kit_fill(in, type, p->rank, n);
    want(FL_ALL_SUM, type, p->size, inner, result, n);
    CHECK_OK(groups->methods->all_reduce(groups, FL_ALL_SUM, type, in, out, n,
                                         &work));
    CHECK_OK(groups->methods->wait(groups, &work));
    comm_kit_check(out, result, type, n, tolerance(p, type));
    CHECK_OK(
        groups->methods->all_reduce(groups, FL_ALL_SUM, type, in, in, n, NULL));
    CHECK(memcmp(in, out, bytes) == 0 || tolerance(p, type) > 0);
    free(in);
    free(out);
    free(result);
}

static void reduce_by(fl_comm *p, int inner)
{
    static const int64_t sizes[] = {0, 1, 1000, 65537};
    fl_comm *groups;
    float x = 1;

    CHECK_OK(fl_comm_hierarchy(p, inner, &groups));
    CHECK_INT(groups->rank, p->rank);
    CHECK_INT(groups->size, p->size);
    for (int i = 0; i < 4; i++)
        for (fl_wire_type type = 0; type < FL_N_WIRE; type++)
            reduce(p, groups, inner, type, sizes[i]);
    CHECK_FAILS(groups->methods->all_reduce(groups, FL_ALL_MEAN, FL_WIRE_F32,
                                            &x, &x, 1, NULL),
                FLEET_EUNSUPPORTED, "no means by groups");
    CHECK_FAILS(groups->methods->all_reduce(groups, FL_ALL_SUM, FL_WIRE_F32, &x,
                                            &x, -1, NULL),
                FLEET_EINVAL, "all_reduce: -1 elements");
    groups->methods->destroy(groups);
}

/* Whatever divides them. */
void comm_kit_by_groups(fl_comm *p)
{
    fl_comm *none;

    for (int inner = 1; inner <= p->size; inner++)
        if (p->size % inner == 0)
            reduce_by(p, inner);
    CHECK_FAILS(fl_comm_hierarchy(p, p->size + 1, &none), FLEET_EINVAL,
                "ranks cannot be cut into groups of");
    CHECK(none == NULL);
    CHECK_OK(p->methods->barrier(p));
}

static bool sees_processes(const fl_comm *p)
{
    return strcmp(p->methods->name, "shm") == 0 || !getenv("FLEET_MPI_WINDOW");
}

/* The last rank goes between two sums: who waits for another one than that rank
 * hears it from its own first rank. words: NULL, if that may take until the
 * deadline. */
static void hear_of_it(fl_comm *groups, const fl_agree *r, const char *words)
{
    float x = 1;
    fleet_status status = groups->methods->all_reduce(
        groups, FL_ALL_SUM, FL_WIRE_F32, &x, &x, 1, NULL);

    CHECK(status == FLEET_EPEER || (!words && status == FLEET_ETIMEDOUT));
    CHECK_CONTAINS(fleet_last_error(), "counted from 0: ");
    if (words)
        CHECK_CONTAINS(fleet_last_error(), words);
    fl_agree_abort(r, fleet_last_error());
}

static void one_goes(fl_comm *p, bool is_killed, const char *words)
{
    int inner = p->size % 2 == 0 ? 2 : p->size;
    fl_agree r = {.comm = p};
    float x = 1;

    CHECK_OK(fl_comm_hierarchy(p, inner, &r.hierarchy));
    CHECK_OK(r.hierarchy->methods->all_reduce(r.hierarchy, FL_ALL_SUM,
                                              FL_WIRE_F32, &x, &x, 1, NULL));
    if (p->methods->barrier(p) != FLEET_OK) /* the last one is through it */
        CHECK(p->rank < p->size - 1);
    else if (p->rank < p->size - 1)
        hear_of_it(r.hierarchy, &r, words);
    else if (is_killed)
        raise(SIGKILL);
    else
        fl_agree_abort(&r, words);
    r.hierarchy->methods->destroy(r.hierarchy);
}

void comm_kit_by_groups_one_gives_up(fl_comm *p)
{
    one_goes(p, false, "the data has ended");
}

void comm_kit_by_groups_one_is_killed(fl_comm *p)
{
    one_goes(p, true, sees_processes(p) ? "is dead: process" : NULL);
}
