/* working_set.h - the rows of a table that a pass needs: listed by key, sent to
 * a GPU's memory in bulk, and written back at the end. Home of the rows is the
 * table, in the host's memory, or in a file if it has a cap.
 *
 *   fl_pass_keys_add(&w.keys, pool, key, n);         for each batch of the pass
 *   fl_working_set_begin(&w, store, gpu, rows);
 *   ... the pass is trained ...
 *   fl_working_set_move(&w, store, &next, fits, &n);   another part of it
 *   ... that is trained ...
 *   fl_working_set_end(&w, store, false);
 *
 * Threads: begin, move and end under the store's lock, held for writing.
 */
#pragma once

#include "runtime/store/table_gpu.h"
#include "runtime/store/store.h"
#include "runtime/working_set/staged_rows.h"
#include "runtime/working_set/pass_keys.h"

typedef struct fl_working_set {
    fl_row_subset subset; /* first: the table's view of it */
    fl_pass_keys keys;
    fl_rows *rows;        /* NULL: it is not on a GPU */
    fl_table_gpu *on_gpu; /* of these */
} fl_working_set;

/* The table's rows of these keys are on the GPU when it returns, and no other
 * rows of it. FLEET_ENOMEM: they do not fit. On failure all is as it was. */
fleet_status fl_working_set_begin(fl_working_set *w, fl_store *s, fl_gpu *gpu,
                                  fl_rows *rows);

/* The next keys become the set's, and the other way round. It is not on a
 * GPU. */
void fl_working_set_take(fl_working_set *w, fl_staged_rows *next);

/* The rows of the next keys (staged_rows.h) in place of the set's rows. Rows
 * of both stay on the GPU: *handed_over of them. If both do not fit beside each
 * other (fits false, or the GPU refuses) all rows go home first, and
 * *handed_over is 0. `next` then has the old keys. FLEET_ENOMEM: they do not
 * fit at all, and no rows are on the GPU. On another failure what has not gone
 * home is on the GPU. */
fleet_status fl_working_set_move(fl_working_set *w, fl_store *s,
                                 fl_staged_rows *next, bool fits,
                                 int64_t *handed_over);

/* They are at home again, and their memory on the GPU is free. On failure they
 * are still on the GPU, and it may be called again; lost: they are given up,
 * and the table is as it was before the pass, but for rows that have come
 * back. */
fleet_status fl_working_set_end(fl_working_set *w, fl_store *s, bool lost);

/* One that is not on a GPU. */
void fl_working_set_done(fl_working_set *w);
