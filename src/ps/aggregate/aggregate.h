/* aggregate.h - one update of a lane: the contributions of a step, summed in
 * the streams' order, and applied; and reading rows and blocks back.
 *
 * The first contribution to a row or block is used where it lies; a second one
 * makes a sum of its own. Arrays grow and are kept. */
#pragma once

#include "ps/change_log.h"
#include "ps/feed_log.h"
#include "ps/piece.h"
#include "ps/wanted_list.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/optim/update_settings.h"
#include "ps/aggregate/lane_record.h"
#include "runtime/store/layer_rule.h"

/* Where the rows of a pull's section were found, while it waited or when it was
 * answered: the push that follows brings the same keys as a rule, and need not
 * look for them again. */
typedef struct fl_row_cache {
    fl_packet *packet; /* the pull's, which has the keys; NULL: nothing yet */
    const void *key;
    int64_t n;
    float **row; /* NULL: the table does not have it */
    size_t capacity;
    uint64_t epoch; /* of the table, when they were found */
} fl_row_cache;

/* Entries of a table: of the last pull, and of the one before it, because the
 * pull of the next step comes before the push of this one. */
enum { FL_N_ROW_CACHE = 2 };

void fl_row_cache_forget(fl_row_cache *f, int n);
void fl_row_cache_done(fl_row_cache *f,
                       int n); /* and the memory; NULL is fine */

typedef struct fl_aggregate_rows fl_aggregate_rows;   /* of a table */
typedef struct fl_aggregate_block fl_aggregate_block; /* of a parameter */

typedef struct fl_aggregate_live fl_aggregate_live; /* aggregate_live.h */

typedef struct fl_aggregate {
    const fl_partition *layout;
    fl_bucket_set own;
    fl_aggregate_rows *table; /* layout->n_table */
    fl_aggregate_block *block;
    int n_block;
    int *first_block;       /* by param: of this lane's blocks; n_param + 1 */
    fl_update update;       /* that is being applied */
    fl_squares *squares;    /* of blocks; NULL: no lars, no lamb */
    fl_change_log *changes; /* by table; NULL: they are not asked for */
    fl_feed_log *feed;      /* NULL: no subscriber has come */
    uint32_t life; /* of the rows: grows when they have changed otherwise than
                      by updates, and so without new versions */
    float *first;  /* of a row that does not exist: its values */
    fl_aggregate_live *live; /* hashes of what is kept; NULL: there are none */
} fl_aggregate;

fleet_status fl_aggregate_init(fl_aggregate *u, const fl_partition *layout,
                               fl_bucket_set own);
void fl_aggregate_done(fl_aggregate *u);

/* Are all sections of parameters and tables that exist, and of this lane's keys
 * and blocks? FLEET_EINVAL with a text otherwise. */
fleet_status fl_aggregate_check(const fl_aggregate *u, const fl_msg *msg);

/* Begin anew; add a contribution: its pieces. `many`: other contributions
 * follow or went before, or it has a row or block in several pieces. cache:
 * rows that the stream's pulls have found, FL_N_ROW_CACHE entries for each
 * table, or NULL. The pieces must stay until the sum is applied. */
void fl_aggregate_begin(fl_aggregate *u);
fleet_status fl_aggregate_add(fl_aggregate *u, const fl_piece *pieces,
                              bool many, const fl_row_cache *cache);

/* Sums of squares of the mean, for a clip by global norm: keys and sums of
 * blocks and buckets that got a gradient; n of them, at most
 * fl_aggregate_most_norm().
 */
int64_t fl_aggregate_most_norm(const fl_aggregate *u);
fleet_status fl_aggregate_norms(fl_aggregate *u, float scale, uint64_t *key,
                                double *sum, int64_t *n);

/* Apply it: update number `done` (from 0), of n_batch batches, with the
 * workers' settings. First the blocks, then the rows. */
void fl_aggregate_apply_dense(fl_aggregate *u, int64_t done, uint32_t n_batch,
                              float clip, const fl_update_settings *settings);
fleet_status fl_aggregate_apply_rows(fl_aggregate *u);

/* The sections of a record of it, before it is applied. */
fleet_status fl_aggregate_record(const fl_aggregate *u, fl_record_parts *to);

/* --- rows that may be out of memory --------------------------------------- */

/* Ask for the rows of a pull or a piece, of tables that have such rows: they
 * are added to the list. What is below, and fl_aggregate_apply_rows(), is for
 * rows that are ready. */
fleet_status fl_aggregate_want(const fl_aggregate *u, const fl_msg *msg,
                               int64_t now_ms, fl_wanted_list **list);

/* --- reading -------------------------------------------------------------- */

/* Look for the rows of a pull that is answered later. cache: as
 * fl_aggregate_read() takes it; NULL: nothing is done. */
fleet_status fl_aggregate_find(const fl_aggregate *u, fl_packet *p,
                               const fl_msg *msg, fl_row_cache *cache);

/* How many bytes of values the answer to a pull has, which was checked, as they
 * travel. */
size_t fl_aggregate_answer_bytes(const fl_aggregate *u, const fl_msg *msg);

/* Answer section i of the pull in p: adds a section to w. cache: where to
 * remember what was found, as fl_aggregate_add() takes it, or NULL. */
fleet_status fl_aggregate_read(const fl_aggregate *u, fl_packet *p,
                               const fl_msg *msg, int i, fl_msg_writer *w,
                               fl_row_cache *cache);
