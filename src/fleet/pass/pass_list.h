/* pass_list.h - the ids of a pass, listed part after part by a stream of its
 * own, which goes over the pass ahead of the training. A part is as many
 * batches, whole merge groups, as a limit of bytes allows; its keys become the
 * keys of the tables' next rows (staged_rows.h).
 *
 * Threads: one at a time; another one may set fleet_psgpu.stop.
 */
#pragma once

#include <fleet/psgpu.h>

#include "fleet/job/dataset.h"
#include "runtime/working_set/working_set.h"

/* A table whose rows the GPU has in a pass. */
typedef struct fl_pass_table {
    fl_working_set set;
    fl_staged_rows next; /* the thread's */
    fl_rows *rows;
    const fleet_var *var;
    int *slot; /* of the dataset, whose ids it looks up */
    int n_slot;
    uint64_t *key; /* of the merge group that was read last; the thread's */
    size_t n_key, key_capacity;
} fl_pass_table;

typedef struct fl_pass_list fl_pass_list;
typedef fleet_status fl_pass_open(fleet_psgpu *g, fl_pass_list *l);

struct fl_pass_list {
    fl_pass_open *open; /* the stream, from batch `from` on */
    fl_stream *stream;  /* NULL: closed */
    int64_t from;
    int64_t most;       /* bytes of a part; 0: any */
    int64_t first, end; /* batches of the part that was listed last */
    bool is_last;
    int64_t read;   /* batches that the stream has brought */
    bool has_group; /* a merge group was read that is in no part yet */
};

/* The pass is listed anew. */
fleet_status fl_pass_list_begin(fleet_psgpu *g, fl_pass_list *l, int64_t most);

/* From the end of the part that was listed last on, as many merge groups as
 * fit; at least one. Where *g's stop is set what is listed counts for
 * nothing. FLEET_ENOMEM: one is more than memory_bytes. */
fleet_status fl_pass_list_part(fleet_psgpu *g, fl_pass_list *l);

/* Its first part: all of the pass, if that fits into memory_bytes; else parts
 * of which two do. learned: bytes that parts have come down to where
 * memory_bytes is 0. */
fleet_status fl_pass_list_first(fleet_psgpu *g, fl_pass_list *l,
                                int64_t learned);

void fl_pass_list_close(fl_pass_list *l);

/* What the rows take that the GPU has, and that were listed last. */
int64_t fl_pass_bytes(const fleet_psgpu *g);
int64_t fl_pass_next_bytes(const fleet_psgpu *g);
