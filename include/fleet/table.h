/* table.h - rows and weights by hand: what tables have, rows by key, parameters
 * by name; one table saved, loaded, exported as text and imported.
 *
 * Tables and parameters are named as in saves: a table as
 * fleet_sparse_embedding_options.table, a parameter as fleet_program_dump()
 * lists it ("fc_0.w"). They are there from the first call of this header, or
 * executor, after the programs were built.
 *
 * In a job with servers or ranks, between fleet_init_worker() and
 * fleet_stop_worker():
 *
 *   reads   (fleet_table_stat, fleet_table_get, fleet_parameter_get) change
 *           nothing. With servers any worker calls them at any time, also while
 *           others train, and sees what it has pushed itself. Of a table that
 *           ranks share out one rank calls them; the others serve it when they
 *           wait, as they do for fleet_params_hash()
 *   writes  (fleet_table_set, fleet_parameter_set, and loads and imports of a
 *           table) are calls of all workers, as fleet_load_model() between two
 *           passes: what the first worker gives is written, once, between the
 *           same two steps of all workers, and all return when it is. What is
 *           wrong with one worker's call fails all of them, and nothing is
 *           written
 *
 * A batch that is under way in another thread's executor of the same handle is
 * waited for. None of these calls is for a server's handle: FLEET_ESTATE.
 *
 * Threads: any; calls that write wait for executors.
 */
#ifndef FLEET_TABLE_H
#define FLEET_TABLE_H

#include <fleet/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- what there is -------------------------------------------------------- */

/* A parameter or a table of the handle's programs. */
typedef struct fleet_parameter_info {
    const char *name; /* the handle's */
    int is_table;
    int64_t dims[FLEET_MAX_DIM]; /* of a table: rows (0: unbounded) and dim */
    int n_dim;
    int n_state; /* floats that the optimizer keeps for each weight */
} fleet_parameter_info;

/* fleet_parameter_list - parameters, then tables, in the order in which they
 * were made. Fills list[0 .. room), and sets *n to how many there are: call it
 * with 0 and NULL first. */
FLEET_API fleet_status fleet_parameter_list(fleet *fleet,
                                            fleet_parameter_info *list,
                                            int room, int *n);

/* What a table has now, added up over the processes that keep it. */
typedef struct fleet_table_statistics {
    int64_t dim, n_state;
    int64_t rows;
    int64_t row_bytes;   /* of them: keys, weights, states, heads */
    int64_t index_bytes; /* of what finds them */
    int64_t free_bytes;  /* that the next rows get first */
    int parts;           /* processes, or lanes of servers, that share it */
    int64_t most_rows;   /* of one of them */
} fleet_table_statistics;

/* fleet_table_stat - reads the head of every row: 10 ns each.
 *
 *   FLEET_ENOENT  there is no such table
 */
FLEET_API fleet_status fleet_table_stat(fleet *fleet, const char *table,
                                        fleet_table_statistics *stat);

/* --- rows ----------------------------------------------------------------- */

/* fleet_table_get - n rows by key: row i's weights into values[i * dim ..], dim
 * of them, its states behind one another into states[i * n_state * dim ..]
 * unless that is NULL, and into found[i], unless that is NULL, whether there is
 * such a row. One that is not is not made: its values are those that it would
 * begin with. A key may stand more than once.
 *
 *   FLEET_ENOENT  there is no such table
 *   FLEET_ESHAPE  dim is not the table's
 *   FLEET_EINVAL  NULL with n > 0, n below 0; a key of a bounded table that is
 *                 not below its rows (ids are taken modulo rows, keys are not);
 *                 states of a table whose optimizer keeps none
 *   FLEET_ESTATE  see above
 */
FLEET_API fleet_status fleet_table_get(fleet *fleet, const char *table,
                                       const uint64_t *key, int64_t n,
                                       int64_t dim, float *values,
                                       float *states, int *found);

/* fleet_table_set - write n rows; those that are unknown are made. states NULL:
 * rows keep theirs, and new ones begin with the first ones. Of workers but the
 * first one table alone is looked at, and n may be 0.
 *
 *   FLEET_ENUMERIC  a number that is not finite, with its key and column
 *   FLEET_EINVAL    a key that stands twice; and as fleet_table_get()
 *   FLEET_ENOMEM    in this process or in a server: some of the rows may have
 *                   been written
 */
FLEET_API fleet_status fleet_table_set(fleet *fleet, const char *table,
                                       const uint64_t *key, int64_t n,
                                       int64_t dim, const float *values,
                                       const float *states);

/* --- dense parameters ----------------------------------------------------- */

/* fleet_parameter_get - its n weights, row-major, as they are now, also where
 * servers keep them.
 *
 *   FLEET_ENOENT  there is no such parameter
 *   FLEET_ESHAPE  it does not have n weights
 */
FLEET_API fleet_status fleet_parameter_get(fleet *fleet, const char *name,
                                           float *values, int64_t n);

/* fleet_parameter_set - write all of its weights; its states stay. Of workers
 * but the first one the name alone is looked at.
 *
 *   FLEET_ENUMERIC  a number that is not finite
 *   and as fleet_parameter_get()
 */
FLEET_API fleet_status fleet_parameter_set(fleet *fleet, const char *name,
                                           const float *values, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
