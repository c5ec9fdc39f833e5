/* table_gpu.h - the rows of a table in a GPU's memory: the mirror of an
 * fl_rows (mirror.h), which moves as a whole, and the room that updates need.
 *
 * Kernels make rows, and the host knows their number only when an update's
 * count has come back. So the table gets room for the case that every key of
 * the updates under way is new; only without that much memory the host waits
 * for the count.
 *
 * erase, each, each_changed and stat are the host table's, between
 * fl_store_to_host() and, after an erase, fl_store_written(), with which the
 * table is sent again. Rows that were erased while the GPU had newer ones are
 * not fetched over them: FLEET_ESTATE.
 *
 * Where tables have the rows of a pass on the GPU alone (fl_store.gpu_passes) a
 * table is sent, and fetched, as its subset says (fl_rows.subset), which has
 * room for all of its keys from the start. Without one it is FLEET_ESTATE.
 *
 * Threads: under the GPU's lock; room and counts also under the store's, held
 * for writing.
 */
#pragma once

#include "runtime/store/lookup_kernels.h"
#include "runtime/store/mirror.h"
#include "runtime/store/table_api.h"

typedef struct fl_table_gpu {
    fl_mirror mirror;   /* first; host: fl_rows, on_gpu: fl_device_rows */
    fl_device_rows now; /* as on the GPU, but for n, which kernels change */
    int64_t offered;    /* keys of all updates that got room */
    int64_t known, known_at; /* rows, after that many of them */
    uint64_t epoch;          /* of the host's table when it was sent */
    bool by_pass;            /* it has a subset, or is not on the GPU */
} fl_table_gpu;

/* As an update's iteration writes it to pinned memory. */
typedef struct fl_rows_count {
    int64_t n, offered;
} fl_rows_count;

/* What n rows of a table take in a GPU's memory. */
int64_t fl_table_gpu_bytes(const fl_rows *rows, int64_t n);

/* A row as the GPU has it, in fl_table_gpu_stride() bytes; weights: of the
 * host's table. */
int64_t fl_table_gpu_stride(const fl_rows *rows);
void fl_table_gpu_write_row(const fl_rows *rows, char *to, uint64_t key,
                            const float *weights);

/* FLEET_EUNSUPPORTED: rows of the table may be out of memory, and it is not in
 * passes that some of them come to the GPU. */
fleet_status fl_table_gpu_make(struct fl_store *s, fl_gpu *gpu, fl_rows *rows,
                               fl_table_gpu **x);

/* Before an update of at most that many keys is queued. FLEET_ENOMEM: all is
 * as it was. */
fleet_status fl_table_gpu_room(fl_table_gpu *x, int64_t keys);

/* After it: the copy of the count that is to be queued; and when it has
 * come. */
fl_gpu_rows fl_table_gpu_count(const fl_table_gpu *x, fl_rows_count *pinned);
void fl_table_gpu_counted(fl_table_gpu *x, const fl_rows_count *count);

/* Another subset of the table's rows, of which the GPU has some. */
typedef struct fl_row_change {
    const char *staged; /* n_staged rows that it does not have, as it will */
    int64_t n_staged;
    const uint64_t *shared; /* n_shared keys, of rows that it has, or that are
                               not made yet */
    int64_t n_shared;
    int64_t n;           /* keys of all: the room */
    int64_t handed_over; /* out: rows of shared keys that it has */
} fl_row_change;

/* The table on the GPU, which has its newest rows, has the other subset: rows
 * of shared keys stay in its memory, and all other rows it had come home.
 * FLEET_ENOMEM: it has no room for both at once. On failure it is as it was,
 * but for rows that have come home as well. */
fleet_status fl_table_gpu_change(fl_table_gpu *x, fl_row_change *to);
