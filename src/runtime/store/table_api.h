/* table_api.h - rows by 64-bit key, wherever they live: the interface between
 * the operators that use a table and what keeps it (table.h in this process;
 * its copy on a GPU is table_gpu.h's). If servers keep the rows (remote.h) a
 * table is its name, its numbers and its first values: find and make are not
 * called.
 *
 * A key hashes (fl_mix) to one of FL_N_BUCKET buckets by its top bits, and
 * buckets make FL_N_PART parts. Calls for different parts may run at once on
 * different threads; that is how one lookup uses several.
 */
#pragma once

#include "base/hash.h"
#include "runtime/graph/initializer.h"
#include "runtime/optim/rule.h"

enum { FL_BUCKET_BITS = 10, FL_N_BUCKET = 1 << FL_BUCKET_BITS };
enum { FL_PART_BITS = 3, FL_N_PART = 1 << FL_PART_BITS };

static inline int fl_bucket_of(uint64_t hash)
{
    return (int)(hash >> (64 - FL_BUCKET_BITS));
}

static inline int fl_part_of(uint64_t hash)
{
    return (int)(hash >> (64 - FL_PART_BITS));
}

typedef struct fl_rows fl_rows;

typedef struct fl_rows_class {
    /* row[i] of key[i]: its weights, dim of them, or NULL for an unknown key.
     * A pointer stays valid as long as the table. All keys are of one part. */
    fleet_status (*find)(fl_rows *r, const uint64_t *key, int64_t n,
                         float **row);

    /* The same, but unknown keys become rows with their initial values, state
     * of the rule included. On failure the rows that were made stay. */
    fleet_status (*make)(fl_rows *r, const uint64_t *key, int64_t n,
                         float **row);

    /* From now on rows carry n_state floats per weight, of that first value.
     * FLEET_ESTATE once there are rows of another kind. */
    fleet_status (*set_state)(fl_rows *r, int n_state, float initial);

    int64_t (*count)(const fl_rows *r);
    void (*clear)(fl_rows *r); /* no rows, as at the start */

    /* Call visit for every row, bucket by bucket, in each by growing key. */
    fleet_status (*each)(const fl_rows *r,
                         fleet_status (*visit)(void *arg, int bucket,
                                               const float *row),
                         void *arg);
    void (*destroy)(fl_rows *r);
} fl_rows_class;

struct fl_rows {
    const fl_rows_class *methods;
    const char *name;
    int64_t dim;
    int64_t modulo; /* ids are taken modulo this; 0: as they are */
    bool remote;    /* a name: the rows are on servers */
    int n_state;    /* floats per weight that the rule keeps */
    float initial_state;
    fl_filler filler;      /* of an unknown row */
    fleet_param_attr attr; /* of the variable; set by the store */
};

/* Makes a table; name is not copied. */
typedef fleet_status fl_rows_maker(const char *name, int64_t dim,
                                   int64_t modulo, const fl_filler *filler,
                                   fl_rows **rows);

/* What every maker does with the common part. */
static inline void fl_rows_init(fl_rows *r, const fl_rows_class *methods,
                                const char *name, int64_t dim, int64_t modulo,
                                const fl_filler *filler)
{
    *r = (fl_rows){.methods = methods,
                   .name = name,
                   .dim = dim,
                   .modulo = modulo,
                   .filler = *filler};
}
