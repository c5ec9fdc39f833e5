/* spec.h - what a stream reads: a format, slots, files, and which of the
 * batches are this process's. */
#pragma once

#include <fleet/dataset.h>

#include "base/log.h"
#include "data/layout/statistics.h"

enum { FL_N_FORMAT = FLEET_PARQUET + 1 };

/* What the values of a slot are, besides what its type says. */
typedef struct fl_slot_bounds {
    int64_t ids_below; /* ids below that; 0: any */
    int64_t labels_to; /* labels from 0 to that; 0: any number */
} fl_slot_bounds;

/* What a dataset knows of its files' caches. */
typedef struct fl_cache_state {
    bool is_off;     /* one could not be made: it is not tried again */
    uint64_t *whole; /* identities of caches whose checksums were all right */
    size_t n_whole, whole_capacity;
} fl_cache_state;

typedef struct fl_stream_spec {
    fleet_format format;
    const fleet_slot *slots; /* kept, not copied: must outlive the stream */
    int n_slot;
    const fl_slot_bounds *bounds; /* by slot; NULL: none has any */
    int64_t batch_size;
    int64_t batch_bytes; /* of lines of text, with which a batch ends early; 0:
                            there is no such number */
    int n_thread;
    int most_held;            /* batches that the caller may hold; as many
                                as streams let it, or more */
    const char *pipe_command; /* NULL: none */
    int64_t pipe_timeout_ms;  /* of an input that brings nothing; 0: none */
    int64_t shuffle;
    int64_t max_bad_lines; /* that a pass leaves out; 0: one is an error */
    uint64_t seed; /* of the shuffle: already mixed with pass and file */
    char separator, comment;
    int header;
    int64_t skip_lines;
    const char *missing;
    double negative_rate; /* of samples whose label is 0, the share that is
                             kept; 0: all are */
    int negative_slot;    /* the label; of dim 1 */
    double draw_most;     /* a sample of weight w is kept with the chance w over
                         this; 0: all are */
    int draw_slot;        /* of weights; float, of dim 1 */
    uint64_t draw_seed;   /* of both */
    fl_cache_state *cache;               /* NULL: files have no caches */
    const struct fl_memory_view *memory; /* in place of files, whose names are
                                            said in errors; NULL: none */
    const fl_statistics *statistics;     /* NULL: no slot standardizes */

    const char *const *files; /* in their order; idx: images, labels */
    int n_file;
    bool any_file;    /* also a FIFO, and "-": standard input; not idx */
    const char *text; /* NULL, or text_size bytes in place of what is in the
                         one file, whose name stays; it must outlive the
                         stream */
    size_t text_size;

    const uint64_t *seeds; /* by slot: what its texts are hashed with; NULL: its
                              position. Criteo's are its own */
    bool no_label; /* criteo, idx: the files have no labels, which read as 0 */

    /* of every share_count batches the share_index-th is handed out */
    int64_t share_index, share_count; /* 0, 1: all */
    int64_t joined; /* of these that many are handed out as one batch, which is
                       not for first_batch; 0: each by itself */
    int64_t first_batch; /* how many of our batches are passed over first; none
                            that has no row without its bad lines counts */
    /* In place of shares: batches are handed out by leases, lease i being of
     * the batches from i * lease_batches on. When all batches of the leases so
     * far were handed out the caller's thread asks for the number-th lease,
     * from 0 on, which is behind the one before; the data's end ends it. NULL:
     * the stream has none. */
    fleet_status (*next_lease)(void *job, int64_t number, int64_t *lease);
    int64_t lease_batches;
    fl_log *log;

    /* How the job does that the stream is a part of: asked now and then while
     * batches are waited for, which ends with what it says if that is not
     * FLEET_OK. NULL: there is none. */
    fleet_status (*job_status)(void *job);
    void *job;
} fl_stream_spec;
