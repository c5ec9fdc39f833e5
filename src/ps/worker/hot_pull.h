/* hot_pull.h - a worker's cache (a_sync_configs.vocab_cache_size): its pulls
 * ask lanes only for rows that it has not kept, or whose kept values will not
 * do.
 *
 *   kept, and of now     used without asking. In sync: of the very version that
 *                        is wanted, as of an earlier batch of the same update.
 *                        In async, with a bound r on the staleness of reads:
 *                        asked for at most r batches ago
 *   kept, not trained    asked for with the version of its values (section
 *                        NEWER): the lane sends it only if it has changed since
 *   any other            asked for as without a cache, and kept then
 *
 * A row that this worker has trained has changed: its version would be sent in
 * vain. A test asks for each row, and so does the first batch after a pass, a
 * barrier, a load or a write. Rows that are loaded or written have no new
 * version; so a lane counts the lives of its rows, says with each answer in
 * which it was read, and a worker uses nothing of an earlier one.
 *
 * Named after HET (Miao et al. 2022), whose cache bounds the staleness of reads
 * and of writes; docs/adr/0056 says what is different. */
#pragma once

#include "ps/hot_rows.h"
#include "ps/worker/worker.h"

typedef struct fl_hot_pull fl_hot_pull;

/* What has become of the rows that batches asked for. */
typedef struct fl_hot_counts {
    uint64_t rows;        /* all of them, each once in a batch */
    uint64_t unasked;     /* used as they were kept */
    uint64_t unchanged;   /* asked for, and not sent */
    uint64_t replaced;    /* kept ones that made room */
    int64_t saved;        /* bytes: keys and values that did not travel, less
                             versions that did */
    uint64_t bytes, kept; /* now: memory, rows */
} fl_hot_counts;

/* From now on, of a worker that has pulled nothing: `bytes` of memory at most;
 * staleness: of reads, in async. Without tables nothing happens.
 * fl_worker_done() ends it. FLEET_EINVAL: that is too little memory. */
fleet_status fl_hot_pull_begin(fl_worker *w, size_t bytes, uint32_t staleness);
void fl_hot_pull_done(fl_worker *w);

/* All is asked for again before it is used. */
void fl_hot_pull_fence(fl_worker *w);

fl_hot_counts fl_hot_pull_counted(const fl_worker *w); /* zero: no cache */

/* --- of a pull (worker.c) ------------------------------------------------- */

/* A slot lets go what it points to. */
void fl_hot_pull_release(fl_worker *w, int slot);

/* A pull begins, of that version in sync; now: for a test. */
void fl_hot_pull_start(fl_worker *w, int slot, uint64_t version, bool now);

/* The keys of that table begin; behind the last: of none. */
void fl_hot_pull_mark(fl_worker *w, int slot, int table);

/* Keys of a table: what is used as it is kept gets its place, the other keys
 * are put into the slot's keys, or are known. */
fleet_status fl_hot_pull_share_out(fl_worker *w, int slot, int table,
                                   const fl_pull_rows *t);

/* Keys of a lane and table that are known, first to *end. */
const uint64_t *fl_hot_pull_known(const fl_worker *w, int slot, int lane,
                                  int table, int64_t *first, int64_t *end);

/* What is said of known keys, in the section that was begun last. */
void fl_hot_pull_put_versions(const fl_worker *w, int slot, int lane,
                              const fl_pull_piece *piece,
                              fl_msg_writer *writer);

/* Is section i the answer to that piece of known keys? */
bool fl_hot_pull_is_sound(const fl_worker *w, const fl_pull_piece *piece,
                          const fl_msg *msg, int i);

/* Rows have come, at `values`: of known keys, of which the section says which,
 * to where they are wanted; of other keys they are kept. */
void fl_hot_pull_place(fl_worker *w, int slot, int lane,
                       const fl_pull_piece *piece, const fl_msg *msg, int i,
                       const float *values);
void fl_hot_pull_keep(fl_worker *w, int slot, int lane,
                      const fl_pull_piece *piece, const fl_section *section,
                      const float *values);

/* Rows of these tables are pushed. */
void fl_hot_pull_pushed(fl_worker *w, const fl_push *p);
