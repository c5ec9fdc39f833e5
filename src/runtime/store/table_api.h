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

#include <stdatomic.h>
#include <string.h>

#include <fleet/nn.h>

#include "base/hash.h"
#include "runtime/graph/filter_shape.h"
#include "runtime/graph/initializer.h"
#include "runtime/optim/narrow_rows.h"
#include "runtime/optim/own_optimizers.h"
#include "runtime/simd/simd.h"

enum { FL_BUCKET_BITS = 10, FL_N_BUCKET = 1 << FL_BUCKET_BITS };
enum { FL_PART_BITS = 3, FL_N_PART = 1 << FL_PART_BITS };
enum { FL_ROWS_WAIT_MS = 60000 };

static inline int fl_bucket_of(uint64_t hash)
{
    return (int)(hash >> (64 - FL_BUCKET_BITS));
}

static inline int fl_part_of(uint64_t hash)
{
    return (int)(hash >> (64 - FL_PART_BITS));
}

typedef struct fl_rows fl_rows;

/* What a table has, at this moment. */
typedef struct fl_rows_stat {
    int64_t rows;
    int64_t cold_rows;    /* of them: in a file, and not in memory */
    uint64_t row_bytes;   /* of rows in memory: keys, heads, weights, states */
    uint64_t index_bytes; /* of what finds them */
    uint64_t free_bytes;  /* that the next rows and their index get first */
    uint64_t epoch;
    uint64_t file_bytes; /* of the file with the cold rows */
    uint64_t changed_at; /* the newest of a row, or of one that is gone and was
                            in the file; 0: none has changed */
} fl_rows_stat;

typedef fleet_status fl_row_visitor(void *arg, int bucket, uint64_t key,
                                    const float *row);

/* What becomes of a row that is judged: it stays, maybe changed; it is erased;
 * it stays, and leaves the memory if it is in it. */
typedef enum fl_row_verdict {
    FL_ROW_STAYS,
    FL_ROW_GOES,
    FL_ROW_IS_COLD
} fl_row_verdict;

/* The row is behind its head. */
typedef fl_row_verdict fl_row_judge(void *arg, struct fl_row_head *head);

/* A pointer to a row leads to its weights, as the table keeps them (storage),
 * with its states behind them. Where weights may be no floats, fl_rows_read()
 * and fl_rows_write() have them as such, and fl_rows_states() the states.
 *
 * A pointer to a row is good until the row goes: rows do not move. So pointers
 * that are remembered are good while the table's epoch (fl_rows_epoch()) is
 * what it was when they were got, and are looked for again when it differs. It
 * grows with erase, with clear, and when rows leave the memory, which want and
 * release may bring about; never with find and make. */
typedef struct fl_rows_class {
    /* row[i] of key[i]: its weights, dim of them, or NULL for an unknown key.
     * Calls whose keys are of different parts may run at once. */
    fleet_status (*find)(fl_rows *r, const uint64_t *key, int64_t n,
                         float **row);

    /* The same, but unknown keys become rows with their initial values, state
     * of the rule included. On failure the rows that were made stay. */
    fleet_status (*make)(fl_rows *r, const uint64_t *key, int64_t n,
                         float **row);

    /* Two steps to rows that may be out of memory; all three NULL: none ever
     * is. want asks for the rows of these keys, of which some may be unknown,
     * and does not wait; find and make may be called with them when is_ready,
     * which is asked again and again, has said so, and until release. Till then
     * they stay, whatever else is wanted. *token, of n keys or of none, is
     * never 0. FLEET_ENOMEM, by want or is_ready: they do not fit beside the
     * rows of other tokens. A token is released once, after an error of
     * is_ready, too; clear and erase leave it as it is. */
    fleet_status (*want)(fl_rows *r, const uint64_t *key, int64_t n,
                         uint64_t *token);
    fleet_status (*is_ready)(fl_rows *r, uint64_t token, bool *ready);
    void (*release)(fl_rows *r, uint64_t token);

    /* Rows of these keys will be wanted soon: those out of memory should come
     * now. It does not wait, and promises nothing. NULL: as the three above. */
    void (*expect)(fl_rows *r, const uint64_t *key, int64_t n);

    /* By a thread that may wait for a disk, between two looks: it reads itself
     * what the token needs. NULL: likewise, or it would be of no help. */
    void (*help)(fl_rows *r, uint64_t token);

    /* From now on rows carry n_state floats per weight, and behind these n_row
     * floats per row, all of that first value. FLEET_ESTATE once there are rows
     * of another kind. */
    fleet_status (*set_state)(fl_rows *r, int n_state, int n_row,
                              float initial);

    /* From now on weights are kept so. FLEET_ESTATE once there are rows, or
     * FLEET_EUNSUPPORTED. */
    fleet_status (*set_storage)(fl_rows *r, fleet_row_storage storage);

    int64_t (*count)(const fl_rows *r);

    /* What follows runs alone: no other call at the same time. */

    void (*clear)(fl_rows *r); /* no rows, as at the start */

    /* The rows of these keys, of any part, are unknown again, and new rows get
     * their memory; keys that are unknown already are passed over. Keys of
     * different parts may be erased at once. *erased: how many rows went. On
     * failure some of them may have gone. A snapshot of the table (snapshot.h)
     * is told before, as of any change. */
    fleet_status (*erase)(fl_rows *r, const uint64_t *key, int64_t n,
                          int64_t *erased);

    /* Judge every row, in any order. On failure some have been judged. NULL:
     * the rows are all in memory, where fl_bucket_walk (table.h) has them. */
    fleet_status (*judge)(fl_rows *r, fl_row_judge *judge, void *arg);

    /* Call visit for every row, bucket by bucket, in each by growing key. */
    fleet_status (*each)(const fl_rows *r, fl_row_visitor *visit, void *arg);

    /* The same for the rows that were changed after version `since`: rows
     * that were made or loaded, and not updated since, are of version 0. It
     * reads the head of every row, and sorts the changed ones alone (adr/0040
     * has what that takes). */
    fleet_status (*each_changed)(const fl_rows *r, uint64_t since,
                                 fl_row_visitor *visit, void *arg);

    /* Reads the head of every row, as each_changed. */
    fleet_status (*stat)(const fl_rows *r, fl_rows_stat *stat);

    bool hashes; /* make, erase and clear keep live_hash.h's sums */

    /* Of saves beside training: table_snapshot.h. NULL: there are none. */
    const struct fl_snapshot_class *snapshot;

    void (*destroy)(fl_rows *r);
} fl_rows_class;

/* Arrays that a change of a table's rows needs, kept for the next one. */
typedef struct fl_life_scratch {
    struct fl_life_key *fresh, *strange;
    struct fl_row_age *old;
    float **block; /* of a Bloom filter, of each key */
    size_t fresh_capacity, strange_capacity, old_capacity, block_capacity;
} fl_life_scratch;

/* What an accessor keeps of a row, behind its states; of it the last one is
 * FL_SEEN_DAYS times the slot, and the unseen days, and FL_SEEN_VECTOR if the
 * row has its vector. And what travels of it with a gradient. */
enum { FL_AT_SHOW, FL_AT_CLICK, FL_AT_DELTA_SCORE, FL_AT_SEEN, FL_N_ACCESSOR };
enum { FL_AT_SLOT = 2, FL_N_PUSHED };
enum { FL_N_WAITING = FL_AT_CLICK + 1 }; /* of a key that waits for a score */
enum { FL_SEEN_DAYS = 4096, FL_SEEN_VECTOR = 1 << 23, FL_MOST_SLOT = 2047 };

/* How many updates were done at a time: rows have versions, and no times. */
typedef struct fl_life_mark {
    uint64_t updates;
    int64_t seconds;
} fl_life_mark;

enum { FL_LIFE_MARKS = 40 };

/* Which keys become rows, and which rows go (runtime/life/life.h has the
 * functions). */
typedef struct fl_life {
    fleet_table_options o;
    fl_rows *waiting; /* how many updates have had a gradient of a key that is
                         no row yet; NULL: that does not matter */
    fl_rows *filter;  /* blocks of a Bloom filter of keys; NULL: there is
                           none */
    fl_filter_shape shape;
    uint64_t emptied_at; /* updates when a shrink has emptied the filter */
    int64_t bucket_rows; /* what each bucket may have; 0: any number */
    fl_life_mark mark[FL_LIFE_MARKS]; /* of ttl_seconds, the oldest first */
    int n_mark;
    uint64_t loaded_at; /* updates when it was loaded: rows that have not
                           changed since have the version 0 */
    fl_life_scratch scratch[FL_N_PART];
} fl_life;

/* Hears of what no update says: rows that go, and what is written by hand. One
 * call at a time. */
typedef struct fl_change_watch {
    /* The row of that key is gone; or it was written, as by that version. */
    void (*row)(struct fl_change_watch *w, const fl_rows *rows, uint64_t key,
                uint64_t version, bool gone);
    /* n weights of a dense parameter, from that one on. */
    void (*weights)(struct fl_change_watch *w, const char *param, int64_t first,
                    int64_t n);
} fl_change_watch;

/* Which rows of a table a GPU has, if not all: a pass's
 * (runtime/working_set/working_set.h). */
typedef struct fl_row_subset {
    int64_t n; /* keys: the GPU never has more rows */

    /* Visit each row that the table has of them, in any order. */
    fleet_status (*each)(const struct fl_row_subset *s, fl_rows *rows,
                         fl_row_visitor *visit, void *arg);

    /* n rows from the GPU, `stride` bytes each (fl_device_rows.row): the
     * table's, whose keys they have, become as they are. */
    fleet_status (*keep)(const struct fl_row_subset *s, fl_rows *rows,
                         const char *from, size_t stride, int64_t n);
} fl_row_subset;

struct fl_rows {
    const fl_rows_class *methods;
    const fl_row_subset *subset; /* of its rows, that a GPU has; NULL: all */
    const char *name;
    int64_t dim;
    int64_t modulo;            /* ids are taken modulo this; 0: as they are */
    bool remote;               /* a name: the rows are on servers */
    fleet_row_storage storage; /* of the weights: see fl_rows_read() */
    int n_state;               /* floats per weight that the rule keeps */
    int n_row; /* floats per row that it keeps, behind n_state */
    float initial_state;
    _Atomic uint64_t epoch;
    int64_t wait_ms;                  /* for rows that are wanted */
    fl_filler filler;                 /* of an unknown row */
    fleet_param_attr attr;            /* of the variable; set by the store */
    const fleet_optimizer *optimizer; /* of its own; NULL: the store's */
    fl_life *life; /* NULL: every key becomes a row; by the store */
    bool counts;   /* it is the `waiting` of another table: no rule changes it,
                      and it has no states */
    int64_t cap_bytes;         /* of the variable; 0: none */
    fl_change_watch *watch;    /* NULL: none */
    struct fl_live_hash *live; /* live_hash.h; NULL: none is kept */
    struct fl_key_log *keys;   /* key_log.h; likewise */
};

/* --- weights -------------------------------------------------------------- */

static inline bool fl_rows_are_floats(const fl_rows *r)
{
    return r->storage == FLEET_ROW_FLOAT32;
}

/* A row's weights, dim of them. */
static inline void fl_rows_read(const fl_rows *r, float *out, const float *row)
{
    if (fl_rows_are_floats(r))
        memcpy(out, row, (size_t)r->dim * sizeof *out);
    else
        fl_simd_best()->read_weights(r->storage, out, row, r->dim);
}

/* Rounded to nearest: what was read is written to the bit. */
static inline void fl_rows_write(const fl_rows *r, float *row, const float *w)
{
    if (fl_rows_are_floats(r))
        memcpy(row, w, (size_t)r->dim * sizeof *row);
    else
        fl_simd_best()->write_weights(r->storage, row, w, r->dim, NULL);
}

static inline float *fl_rows_states(const fl_rows *r, float *row)
{
    return row + fl_storage_words(r->storage, r->dim);
}

/* --- states --------------------------------------------------------------- */

/* Floats of a row's record behind its weights: n_state times dim, then n_row.
 * What copies, saves or sends whole rows asks this, and never counts itself. */
static inline int64_t fl_rows_floats(const fl_rows *r)
{
    return r->dim * r->n_state + r->n_row;
}

/* Floats that a row's record takes. */
static inline int64_t fl_rows_record(const fl_rows *r)
{
    return fl_storage_words(r->storage, r->dim) + fl_rows_floats(r);
}

/* A row as its weights and, unless `states` is false, the floats behind them,
 * one behind the other as floats. */
static inline void fl_rows_read_all(const fl_rows *r, float *out,
                                    const float *row, bool states)
{
    fl_rows_read(r, out, row);
    if (states)
        memcpy(out + r->dim, fl_rows_states(r, (float *)(uintptr_t)row),
               (size_t)fl_rows_floats(r) * sizeof *out);
}

/* n of the rule's as a new row has them. */
static inline void fl_rows_first_floats(const fl_rows *r, float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = r->initial_state;
}

static inline bool fl_rows_has_accessor(const fl_rows *r)
{
    return r->life && r->life->o.accessor.kind == FLEET_CTR_ACCESSOR;
}

/* All that is behind a new row's weights: an accessor has counted nothing. */
static inline void fl_rows_first_states(const fl_rows *r, float *to)
{
    int64_t n = fl_rows_floats(r);
    int64_t shown = fl_rows_has_accessor(r) ? FL_N_ACCESSOR : 0;

    fl_rows_first_floats(r, to, n - shown);
    for (int64_t i = n - shown; i < n; i++)
        to[i] = 0;
}

/* What set_state changes of the common part. */
static inline void fl_rows_note_state(fl_rows *r, int n_state, int n_row,
                                      float initial)
{
    r->n_state = n_state;
    r->n_row = n_row;
    r->initial_state = initial;
}

static inline bool fl_rows_has_state(const fl_rows *r, int n_state, int n_row,
                                     float initial)
{
    return r->n_state == n_state && r->n_row == n_row &&
           r->initial_state == initial;
}

/* --- updates -------------------------------------------------------------- */

/* That updates its rows: the table's own, or that of all other parameters. */
static inline const fleet_optimizer *fl_rows_optimizer(
    const fleet_optimizer *all, const fl_rows *r)
{
    return r->optimizer ? r->optimizer : all;
}

/* The scalars of the table's update after `done` updates; `all` is of
 * the optimizer of all other parameters. */
static inline fl_update fl_rows_update(const fl_rows *r, const fl_update *all,
                                       int64_t done)
{
    return fl_own_update(r->optimizer, &r->attr, all, done);
}

/* --- epochs --------------------------------------------------------------- */

/* A number of updates, or a version, that moves; not below 0. */
static inline uint64_t fl_version_moved(uint64_t version, int64_t by)
{
    return by < 0 && version < (uint64_t)-by ? 0 : version + (uint64_t)by;
}

static inline uint64_t fl_rows_epoch(const fl_rows *r)
{
    return atomic_load_explicit(&r->epoch, memory_order_relaxed);
}

/* For a table itself: rows have gone. */
static inline void fl_rows_next_epoch(fl_rows *r)
{
    atomic_fetch_add_explicit(&r->epoch, 1, memory_order_relaxed);
}

/* --- accessors ------------------------------------------------------------ */

/* Numbers that a gradient of a row is made of, as it is summed and pushed: dim,
 * and what the accessor counts. */
static inline int64_t fl_rows_pushed(const fl_rows *r)
{
    return r->dim + (fl_rows_has_accessor(r) ? FL_N_PUSHED : 0);
}

/* The accessor's numbers of a row: the last ones of its record. */
static inline const float *fl_rows_shown(const fl_rows *r, const float *row)
{
    return row + fl_rows_record(r) - FL_N_ACCESSOR;
}

/* Do updates need the keys of the rows that they change? For rounding, and for
 * vectors that begin late. */
static inline bool fl_rows_need_keys(const fl_rows *r)
{
    return !fl_rows_are_floats(r) || r->filler.vector_at > 0;
}

/* What came of an accessor with two gradients, of one: shows and clicks add up,
 * and the lower slot stays, whatever comes first. to may be a or b. */
static inline void fl_add_pushed(const fl_rows *r, float *to, const float *a,
                                 const float *b)
{
    if (!fl_rows_has_accessor(r))
        return;
    to += r->dim;
    a += r->dim;
    b += r->dim;
    to[FL_AT_SHOW] = a[FL_AT_SHOW] + b[FL_AT_SHOW];
    to[FL_AT_CLICK] = a[FL_AT_CLICK] + b[FL_AT_CLICK];
    to[FL_AT_SLOT] =
        a[FL_AT_SLOT] < b[FL_AT_SLOT] ? a[FL_AT_SLOT] : b[FL_AT_SLOT];
}

/* --- making them ---------------------------------------------------------- */

/* Makes a table; name is not copied. */
typedef fleet_status fl_rows_maker(const char *name, int64_t dim,
                                   int64_t modulo, const fl_filler *filler,
                                   fl_rows **rows);

/* How much memory a table may take, and where the rest of its rows is. */
typedef struct fl_rows_cap {
    int64_t bytes;      /* all memory of the table: rows, indexes, buffers; not
                           what walks over it take */
    const char *folder; /* of a file with the other rows; not copied */
    int by_hand;        /* 0: a thread reads and writes that file; n: the n-th
                           look of is_ready does, and each n-th one after it,
                           so that a run can be repeated: for tests */
    bool hurries;       /* rows go when no token has them, each into a page of
                           its own: for tests */
} fl_rows_cap;

typedef fleet_status fl_capped_maker(const char *name, int64_t dim,
                                     int64_t modulo, const fl_filler *filler,
                                     const fl_rows_cap *cap, fl_rows **rows);

/* What every maker does with the common part. */
static inline void fl_rows_init(fl_rows *r, const fl_rows_class *methods,
                                const char *name, int64_t dim, int64_t modulo,
                                const fl_filler *filler)
{
    *r = (fl_rows){.methods = methods,
                   .name = name,
                   .dim = dim,
                   .modulo = modulo,
                   .wait_ms = FL_ROWS_WAIT_MS,
                   .filler = *filler};
}
