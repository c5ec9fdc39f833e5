/* cold_internal.h - the inside of a table with a cap: its parts, their places,
 * the rows that come, its thread. Shared by cold_table.c (methods),
 * cold_places.c (rows in memory), cold_wanted.c (tokens), cold_file.c (the file
 * and the thread), cold_each.c (walks) and cold_snapshot.c. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/cold/cold_index.h"
#include "runtime/cold/cold_pages.h"
#include "runtime/cold/cold_table.h"
#include "runtime/store/table.h"

/* What a place has: no row; one that is read; one; the wish for one that is
 * unknown; what was erased while a token had it; a row that cannot be read. */
typedef enum fl_cold_state {
    FL_PLACE_FREE,
    FL_PLACE_COMES,
    FL_PLACE_HAS_ROW,
    FL_PLACE_UNKNOWN,
    FL_PLACE_ERASED,
    FL_PLACE_FAILED
} fl_cold_state;

/* A row's head, weights and states lie behind it. */
typedef struct fl_cold_place {
    uint64_t key;
    uint32_t pins; /* tokens that want it */
    uint8_t state; /* fl_cold_state */
    bool used;     /* since the clock came by */
} fl_cold_place;

_Static_assert(sizeof(fl_cold_place) == 16, "rows keep their alignment");

/* Before a row in the file. The check is XXH64 of the row, seeded with its key,
 * its spot and the file's number: a row of another place is damaged, too. */
typedef struct fl_cold_head {
    uint64_t key, check;
} fl_cold_head;

/* A row that is to come: into that place, from that spot. */
typedef struct fl_cold_read {
    uint32_t place, spot;
} fl_cold_read;

/* Rows that were asked for, and the places that they have, `got` of them. A
 * place's number has the part in its top bits. */
typedef struct fl_wanted_places {
    struct fl_wanted_places *next; /* of tokens that are not in use */
    uint64_t *key;
    uint32_t *place;
    size_t key_capacity, place_capacity;
    int64_t n, got, seen; /* seen: how many of them have come */
    char *rows;           /* FL_COLD_BATCH rows, of a thread that helps */
    size_t rows_capacity;
    uint32_t parts; /* a bit for each part that it has places of */
    uint32_t tried; /* a bit for each part that has written again */
} fl_wanted_places;

enum { FL_PLACE_BITS = 32 - FL_PART_BITS };
enum { FL_COLD_ERROR = 400 };

typedef struct fl_cold_part {
    pthread_mutex_t lock; /* of all that is below */

    char **chunk;   /* of 1 << chunk_shift places each */
    uint32_t *used; /* by chunk: places that are not free */
    uint32_t n_chunk, most_places;
    size_t chunk_capacity, used_capacity;
    uint32_t *free; /* places */
    size_t n_free, free_capacity;
    uint32_t hand;  /* of the clock */
    uint32_t n_row; /* places that have a row */
    uint32_t *slot; /* open addressing: a place's number + 1, by key */
    uint32_t n_slot, n_keyed;

    fl_cold_index index;
    fl_cold_pages pages;

    fl_cold_read *read; /* rows that are to come */
    size_t n_read, read_capacity;
    int n_coming;        /* places that wait for the thread */
    bool stuck;          /* an image could not be written */
    bool tries_again;    /* and is written once more */
    fleet_status status; /* of the last failure, and its text */
    char error[FL_COLD_ERROR];

    uint64_t newest; /* changed_at of rows that went into pages */
    fl_cold_counts counts;
} fl_cold_part;

typedef struct fl_cold_table {
    fl_rows rows; /* first: a table is an fl_rows */
    fl_rows_cap cap;
    int fd;
    uint64_t nonce;   /* of the file */
    size_t row_bytes; /* head, weights, states */
    size_t place_bytes;
    int chunk_shift;
    int group_shift;   /* groups of a bucket: 1 << that */
    size_t part_bytes; /* the cap's share */
    atomic_uint_least64_t n_extent;
    fl_cold_part part[FL_N_PART];

    pthread_mutex_t token_lock;
    fl_wanted_places *unused;

    pthread_mutex_t io_lock;
    pthread_cond_t io_wanted, io_idle;
    pthread_t thread;
    bool has_thread, stops, is_busy;
    uint32_t work;    /* a bit for each part that has some */
    atomic_int looks; /* of is_ready, by hand */
    char *rows_read;  /* the thread's: FL_COLD_BATCH rows with their heads */
} fl_cold_table;

static inline fl_cold_table *fl_cold_of(const fl_rows *r)
{
    return (fl_cold_table *)(uintptr_t)r;
}

static inline int fl_cold_part_number(const fl_cold_table *t,
                                      const fl_cold_part *p)
{
    return (int)(p - t->part);
}

static inline fl_cold_place *fl_cold_place_of(const fl_cold_table *t,
                                              const fl_cold_part *p,
                                              uint32_t number)
{
    uint32_t in_chunk = number & ((1u << t->chunk_shift) - 1);

    return (fl_cold_place *)(void *)(p->chunk[number >> t->chunk_shift] +
                                     in_chunk * t->place_bytes);
}

static inline fl_row_head *fl_cold_place_row(fl_cold_place *at)
{
    return (fl_row_head *)(void *)(at + 1);
}

static inline fl_cold_state fl_cold_place_is(const fl_cold_place *at)
{
    return (fl_cold_state)at->state;
}

static inline void fl_cold_place_becomes(fl_cold_place *at, fl_cold_state state)
{
    at->state = (uint8_t)state;
}

/* --- which rows: cold_places.c, under the part's lock --------------------- */

/* A key's group in its part's index, and its tag. */
static inline uint32_t fl_cold_group(const fl_cold_table *t, uint64_t hash)
{
    return (uint32_t)(hash << FL_PART_BITS >>
                      (64 - (FL_BUCKET_BITS - FL_PART_BITS) - t->group_shift));
}

static inline uint16_t fl_cold_tag(uint64_t hash)
{
    return (uint16_t)(fl_mix_secretly(hash) >> 48);
}

/* The key's place; NULL: it has none. */
fl_cold_place *fl_cold_place_find(const fl_cold_table *t, const fl_cold_part *p,
                                  uint64_t key, uint64_t hash,
                                  uint32_t *number);

/* A place for the key, taken from another row if need be; *at NULL: none, and
 * in p->stuck whether a failed write is why. *gone: a row went. */
fleet_status fl_cold_place_take(fl_cold_table *t, fl_cold_part *p, uint64_t key,
                                uint64_t hash, fl_cold_place **at,
                                uint32_t *number, bool *gone);

/* The row goes into the file; *went false: its page waits for the disk. */
fleet_status fl_cold_place_evict(fl_cold_table *t, fl_cold_part *p,
                                 uint32_t number, bool *went);

/* Its row is erased; a place that a token has stays the token's. */
void fl_cold_place_erase(fl_cold_table *t, fl_cold_part *p, uint32_t number);

/* Nothing is in it any more. Its key is forgotten. */
void fl_cold_place_free(fl_cold_table *t, fl_cold_part *p, uint32_t number);
void fl_cold_place_forget_key(const fl_cold_table *t, fl_cold_part *p,
                              uint32_t number);
void fl_cold_places_done(fl_cold_table *t, fl_cold_part *p);
size_t fl_cold_memory(const fl_cold_table *t, const fl_cold_part *p);

/* As many places as the cap leaves. */
void fl_cold_set_most(const fl_cold_table *t, fl_cold_part *p);

/* --- tokens: cold_wanted.c ------------------------------------------------ */

fleet_status fl_cold_want(fl_rows *r, const uint64_t *key, int64_t n,
                          uint64_t *token);
fleet_status fl_cold_is_ready(fl_rows *r, uint64_t token, bool *ready);
void fl_cold_release(fl_rows *r, uint64_t token);
void fl_cold_expect(fl_rows *r, const uint64_t *key, int64_t n);
void fl_cold_help(fl_rows *r, uint64_t token);

/* A row has come, or has not, into the place; spot is where it was. Under the
 * lock. */
void fl_cold_row_came(fl_cold_table *t, fl_cold_part *p, fl_cold_read which,
                      fleet_status status, const fl_cold_head *row);

/* --- the file: cold_file.c ------------------------------------------------ */

fleet_status fl_cold_file_open(fl_cold_table *t);
void fl_cold_file_close(fl_cold_table *t);

/* head: room for a row's bytes behind it. */
void fl_cold_seal(const fl_cold_table *t, int part, uint32_t spot,
                  fl_cold_head *head);

/* The rows of n spots of a part, all in the file: row i, with its head, comes
 * to rows + i * spot_bytes, and what became of it into status[i]: FLEET_EIO or
 * FLEET_ECORRUPT by name. Without the lock; at[i] is where spot i is in the
 * file. */
enum { FL_COLD_BATCH = 64 };
void fl_cold_read_spots(const fl_cold_table *t, int part, const uint32_t *spot,
                        const int64_t *at, int n, char *rows,
                        fleet_status *status);

/* n rows of one page, in the file, at spots that follow each other, with their
 * heads; under the lock. */
fleet_status fl_cold_read_run(const fl_cold_table *t, int part, uint32_t spot,
                              int n, char *rows);

/* The row of one spot, in the file or in an image; under the lock. */
fleet_status fl_cold_read_spot(const fl_cold_table *t, const fl_cold_part *p,
                               uint32_t spot, fl_cold_head *row);

/* Rows to read, an image to write: under the lock. */
static inline bool fl_cold_has_work(const fl_cold_part *p)
{
    return p->n_read > 0 ||
           (p->pages.n_waits > 0 && (!p->stuck || p->tries_again));
}

/* These parts have work; and until all of it is done. */
void fl_cold_wake(fl_cold_table *t, uint32_t parts);
void fl_cold_wait_idle(fl_cold_table *t);

/* Rows of a part that are to be read are, by the calling thread, into this
 * buffer first. */
void fl_cold_read_part(fl_cold_table *t, fl_cold_part *p, char *rows);

/* The calling thread does all of it: cap.by_hand. */
void fl_cold_work(fl_cold_table *t);

/* The spot of a key's row that is in the file, and its bytes; *found false:
 * there is none. Under the lock. */
fleet_status fl_cold_find(const fl_cold_table *t, const fl_cold_part *p,
                          uint64_t key, fl_cold_head *row, uint32_t *spot,
                          bool *found);

/* --- walks: cold_each.c --------------------------------------------------- */

fleet_status fl_cold_each(const fl_rows *r, fl_row_visitor *visit, void *arg);
fleet_status fl_cold_each_changed(const fl_rows *r, uint64_t since,
                                  fl_row_visitor *visit, void *arg);
fleet_status fl_cold_stat(const fl_rows *r, fl_rows_stat *stat);

/* A bucket's rows in the file: how many, their spots unless it is NULL, sorted.
 * Under the lock. */
uint32_t fl_cold_list_spots(const fl_cold_table *t, const fl_cold_part *p,
                            int bucket, uint32_t *spot);

/* --- all rows judged: cold_judge.c ---------------------------------------- */

fleet_status fl_cold_judge(fl_rows *r, fl_row_judge *judge, void *arg);

/* --- saves beside training: cold_snapshot.c ------------------------------- */

extern const struct fl_snapshot_class fl_cold_snapshots;
