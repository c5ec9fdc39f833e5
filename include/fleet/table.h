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
 *   reads   (fleet_table_stat, fleet_table_slot_stat, fleet_table_get,
 *           fleet_parameter_get) change nothing. With servers any worker calls
 *           them at any time, also while others train, and sees what it has
 *           pushed itself. Of a table that ranks share out one rank calls them;
 *           the others serve it when they wait, as they do for
 *           fleet_params_hash()
 *   writes  (fleet_table_set, fleet_parameter_set, and loads and imports of a
 *           table) are calls of all workers, as fleet_load_model() between two
 *           passes: what the first worker gives is written, once, between the
 *           same two steps of all workers, and all return when it is. What is
 *           wrong with one worker's call fails all of them, and nothing is
 *           written
 *
 * Within a training pass of the handle, as in fleet_train_options.on_batch,
 * writes are FLEET_ESTATE, also in one process: rows of the next batch are
 * there already then, and they would reach it or not. Executors that are run by
 * hand have no passes.
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
    int n_state;     /* floats that the optimizer keeps for each weight */
    int n_row_state; /* and for each row; of a parameter 0 */
} fleet_parameter_info;

/* fleet_parameter_list - parameters, then tables, in the order in which they
 * were made. Fills list[0 .. room), and sets *n to how many there are: call it
 * with 0 and NULL first. */
FLEET_API fleet_status fleet_parameter_list(fleet *fleet,
                                            fleet_parameter_info *list,
                                            int room, int *n);

enum { FLEET_HOT_UPDATES = 1000 };

/* What a table has now, added up over the processes that keep it. */
typedef struct fleet_table_statistics {
    int64_t dim, n_state, n_row_state;
    int64_t rows;
    int64_t row_bytes;   /* of those in memory: keys, weights, states, heads */
    int64_t index_bytes; /* of what finds them */
    int64_t free_bytes;  /* that the next rows get first: memory is taken in
                            slabs and pages, of a table with few rows some 5 MB
                            for all of its 1,024 buckets */
    int parts;           /* processes, or lanes of servers, that share it */
    int64_t most_rows;   /* of one of them */
    int64_t cold_rows;   /* rows that are in files, and not in memory */
    int64_t file_bytes;  /* of these files */
    int64_t hot_rows;    /* rows that one of the job's last FLEET_HOT_UPDATES
                            updates has changed, in async pushes; hot_rows /
                            rows is how much of the table is in use */
    int64_t vector_rows; /* with life.accessor.embedx_dim: rows that have their
                            vector; else 0 */
} fleet_table_statistics;

/* fleet_table_stat - reads the head of every row: 10 ns each. Of a table with a
 * memory cap it reads the rows in files, too.
 *
 *   FLEET_ENOENT  there is no such table
 */
FLEET_API fleet_status fleet_table_stat(fleet *fleet, const char *table,
                                        fleet_table_statistics *stat);

/* What the rows of a slot have, of a table with life.accessor. */
typedef struct fleet_slot_statistics {
    int slot; /* numbered from 0 by the layers on the table; a row is of the
                     one that it was seen in last */
    int64_t rows, hot_rows; /* as above */
    double shows, clicks;   /* sums over the rows */
} fleet_slot_statistics;

/* fleet_table_slot_stat - of the slots that rows have, the first `room` ones
 * into list[], growing, and into *n how many there are: call it with 0 and NULL
 * first. It reads every row.
 *
 *   FLEET_ENOENT  there is no such table
 *   FLEET_EINVAL  it has no accessor, so that its rows know no slot; nowhere to
 *                 put them
 */
FLEET_API fleet_status fleet_table_slot_stat(fleet *fleet, const char *table,
                                             fleet_slot_statistics *list,
                                             int room, int *n);

/* --- a worker's cache ----------------------------------------------------- */

/* What a worker's cache (strategy.a_sync_configs.vocab_cache_size) has done
 * since fleet_init_worker(). Rows count once for each batch that has them, also
 * of tests; those that are not in `unasked` or `unchanged` were sent. */
typedef struct fleet_cache_statistics {
    int64_t rows;        /* that batches asked for */
    int64_t unasked;     /* of these: used as they were kept */
    int64_t unchanged;   /* asked for, and not sent: they had not changed */
    int64_t saved_bytes; /* of keys and values that did not travel, less those
                            of versions that did */
    int64_t kept, bytes; /* rows that it has now, and their memory */
    int64_t replaced;    /* rows that have made room for others */
} fleet_cache_statistics;

/* fleet_cache_stat - of this worker's cache, also after fleet_stop_worker(),
 * whose line in the log says the same.
 *
 *   FLEET_ESTATE  it has none: there is no fleet_init_worker() yet, no server,
 *                 no table on servers, or vocab_cache_size is 0
 */
FLEET_API fleet_status fleet_cache_stat(fleet *fleet,
                                        fleet_cache_statistics *stat);

/* --- rows ----------------------------------------------------------------- */

/* fleet_table_get - n rows by key: row i's weights into values[i * dim ..], dim
 * of them, its states behind one another into states[i * (n_state * dim +
 * n_row_state) ..], states of weights first, unless that is NULL, and into
 * found[i], unless that is NULL, whether there is such a row. One that is not
 * is not made: its values are those that it would begin with. A key may stand
 * more than once. The last four states of a table with an accessor are its
 * show, click, delta score, and 4096 slot + unseen days, with 2^23 more if the
 * row has its vector; of a row whose counts nobody knows the last one is
 * -1 - unseen days, with 2^23 less if it has its vector.
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
 * rows keep theirs, and new ones begin with the first ones; in a table with an
 * accessor no score judges these before their first update. Of workers but the
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

/* fleet_shrink - rows go that live too long (fleet_table_options): with
 * life.ttl_updates those that none of so many updates has changed, with
 * life.ttl_seconds those that were not changed for as long, and keys that have
 * waited for as long; with life.accessor those whose score, after the decay, is
 * too low, or that have not been seen for too many days. They are unknown keys
 * again. table NULL: of all such tables; of none is FLEET_OK.
 *
 * It is a write, see above: all workers call it, between two passes. Memory of
 * rows that have gone is kept for new ones of the table.
 *
 *   FLEET_ENOENT  there is no such table
 *   FLEET_EINVAL  the table has none of these
 *   FLEET_ESTATE  see above
 */
FLEET_API fleet_status fleet_shrink(fleet *fleet, const char *table);

/* fleet_shrink_at - the same, called at that time: seconds since a day that is
 * always the same, 0 to 2^53, for tables with life.ttl_seconds. fleet_shrink()
 * takes those since 1970, by the clock of the first worker; a log that is
 * trained again takes its own. Whichever, the first worker's time goes to all
 * processes, so that the same rows go everywhere; one that is earlier than the
 * call before counts as that one's.
 *
 *   FLEET_EINVAL  a time that is out of its range
 *   and the codes of fleet_shrink()
 */
FLEET_API fleet_status fleet_shrink_at(fleet *fleet, const char *table,
                                       int64_t seconds);

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

/* --- one table in a save -------------------------------------------------- */

/* fleet_save_one_table - a save of that table alone, with its states: as
 * fleet_save_persistables(), with its codes. FLEET_ENOENT: there is no such
 * table. */
FLEET_API fleet_status fleet_save_one_table(fleet *fleet, const char *table,
                                            const char *path);

/* How one table is loaded. All-zero fields are defaults. */
typedef struct fleet_load_table_options {
    const char *source;       /* its name in the save; NULL: that of the only
                                 table there, or else the same */
    fleet_load_states states; /* as fleet_load_options */
    int keep_rows; /* nonzero: rows that the save does not have stay; else they
                      go. Those that it has are replaced, states included */
    int wider;     /* nonzero: the save may have fewer columns than the table;
                      those behind them begin as in an unknown row */
    int restart;   /* nonzero: no row was updated */
} fleet_load_table_options;

/* fleet_load_one_table - a table from any save: of one table, a checkpoint, or
 * an inference model; nothing else is changed. The table takes over how the
 * saved one begins unknown rows; not with keep_rows, and not of fewer
 * columns.
 * Called as fleet_load_model(): of ranks by all before fleet_init_worker(), of
 * workers with servers by all; options are the first worker's then. options
 * may be NULL.
 *
 *   FLEET_ENOENT  there is no such table, here or in the save
 *   FLEET_ESHAPE  the save has more columns, or fewer without `wider`; a key
 *                 that is not below the rows of a bounded table; states of
 *                 another optimizer
 *   and the codes of fleet_load_model()
 */
FLEET_API fleet_status
fleet_load_one_table(fleet *fleet, const char *table, const char *path,
                     const fleet_load_table_options *options);

/* --- one table as text ---------------------------------------------------- */

/* All-zero fields are defaults. */
typedef struct fleet_export_options {
    int states; /* nonzero: also each row's updates and states */
    int counts; /* nonzero: of a table with an accessor also what it has counted
                   of each row, which states have, too */
} fleet_export_options;

/* fleet_export_table - a text that others read: of weights alone it is
 * word2vec's format (gensim's load_word2vec_format()). Numbers have 9 digits,
 * which is every bit of them; docs/formats.md. It is the first worker's, as
 * fleet_save_persistables(), and takes the place of an old file at once.
 * Meanwhile PATH.exporting has the table once more. options may be NULL.
 *
 *   FLEET_EINVAL  counts of a table without an accessor
 *   and the codes of fleet_save_one_table()
 */
FLEET_API fleet_status fleet_export_table(fleet *fleet, const char *table,
                                          const char *path,
                                          const fleet_export_options *options);

/* All-zero fields are defaults. */
typedef struct fleet_import_options {
    fleet_load_states states; /* of a text with states; one without any has them
                                 begin anew */
    int keep_rows, wider;     /* as fleet_load_table_options */
    const char *folder;       /* where the table is put meanwhile, in the folder
                           NAME.importing, which servers read; NULL: beside the
                           text */
} fleet_import_options;

/* fleet_import_table - what fleet_export_table() or another tool wrote, perhaps
 * packed by gzip. All of it is read and checked before anything is changed,
 * into this process's memory. With servers it is a write, see above; ranks all
 * call it before fleet_init_worker(). options may be NULL.
 *
 *   FLEET_EFORMAT  file and line, what was expected and what came: a line that
 *                  is no row, a number that is not finite, a key that stands
 *                  twice, another number of rows than the first line says
 *   FLEET_ENOENT   there is no such table
 *   FLEET_EIO      the text cannot be read, or the folder not be written
 *   and the codes of fleet_load_one_table()
 */
FLEET_API fleet_status fleet_import_table(fleet *fleet, const char *table,
                                          const char *path,
                                          const fleet_import_options *options);

#ifdef __cplusplus
}
#endif

#endif
