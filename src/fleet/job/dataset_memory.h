/* dataset_memory.h - what an in-memory dataset has besides: its samples, and in
 * which order passes take them. */
#pragma once

#include "data/memory_preload.h"
#include "data/memory_reader.h"
#include "fleet/job/dataset.h"

typedef enum fl_shuffle_kind {
    FL_SHUFFLE_GLOBAL, /* over all workers: samples lie so */
    FL_SHUFFLE_LOCAL,  /* of the worker's samples, by the view */
    FL_SHUFFLE_SLOTS,  /* of some slots' values */
    FL_N_SHUFFLE
} fl_shuffle_kind;

enum { FL_NEVER = -1 };

typedef struct fl_dataset_memory {
    fl_sample_memory held;
    bool loaded;
    int64_t n_loaded; /* samples that the load has brought */
    fl_json *files;   /* what they are of, see position_data.h */
    fl_memory_view view;
    bool *moved;                /* by slot, for the view; NULL: none */
    int64_t of[FL_N_SHUFFLE];   /* for which pass each was made; or FL_NEVER */
    fl_memory_preload *preload; /* NULL: none is under way */
    fl_json *preload_files;
    fl_json *pass_order; /* of the pass that is under way or was stopped, see
                            fl_dataset_memory_order(); NULL: the files' */
} fl_dataset_memory;

/* For which pass a shuffle from now on is: the next one; if that was stopped
 * the one for which it was shuffled as it began. */
fleet_status fl_dataset_shuffle_pass(fleet_dataset *d, fl_shuffle_kind kind,
                                     int64_t *pass);

/* A stream for the next pass, as fl_dataset_open() says. */
fleet_status fl_dataset_memory_open(fleet_dataset *d, bool shared,
                                    const fl_slot_bounds *bounds,
                                    fl_stream **stream);

/* One more over the pass that is trained, from batch *first on, for a thread
 * ahead of the training: a stop that is wanted does not end it. *first
 * FL_WHERE_IT_IS: from where the pass is on, which it says. */
enum { FL_WHERE_IT_IS = -1 };

fleet_status fl_dataset_memory_open_ahead(fleet_dataset *d,
                                          const fl_slot_bounds *bounds,
                                          int64_t *first, fl_stream **stream);

/* The samples of the pass behind the one that is trained, as that pass takes
 * them if it is shuffled as this one is. */
typedef struct fl_next_samples {
    fl_memory_preload *preload; /* which reads them; NULL: they are this pass's,
                                   once more */
    fl_sample_memory again;     /* these */
    fl_stream_spec spec;
    fl_memory_view view;
    int64_t shuffled_for; /* of its order; or FL_NEVER */
    int64_t pass;         /* its number */
    uint64_t seed;        /* of an order for it */
    uint64_t load;        /* which samples */
} fl_next_samples;

/* In a pass. False: nothing is being read, and it is not `again`. */
bool fl_dataset_memory_next(fleet_dataset *d, bool again, fl_next_samples *n);

/* From another thread, while the pass is not over: until the samples are read,
 * or *stop is set and it is woken, or the reading has failed; false then. What
 * fails is said by fleet_dataset_wait_preload_done(). */
bool fl_next_samples_wait(fl_next_samples *n, const atomic_bool *stop);
void fl_next_samples_wake(fl_next_samples *n);
bool fl_next_samples_are_there(const fl_next_samples *n); /* no wait is long */

/* They are read: a stream over all of the pass, closed before they become the
 * dataset's. n stays where it is meanwhile. */
fleet_status fl_next_samples_open(fl_next_samples *n,
                                  const fl_slot_bounds *bounds,
                                  fl_stream **stream);

/* Is the pass that the dataset is about to begin that one? in_any_order: of the
 * same samples, in whatever order. */
bool fl_dataset_memory_is_next(const fleet_dataset *d, const fl_next_samples *n,
                               bool in_any_order);

/* FLEET_ESTATE unless its list of files may change now. */
fleet_status fl_dataset_memory_check_list(const fleet_dataset *d);

/* Then a list of files is for the next load, and ends no pass. */
static inline bool fl_dataset_memory_was_loaded(const fleet_dataset *d)
{
    return d->memory && d->memory->files;
}

/* For saves: in which order passes take the samples; NULL: as the files have
 * them. */
fleet_status fl_dataset_memory_order(const fleet_dataset *d, fl_json **order);

/* Free the samples; the dataset stays one in memory. Then it has none, of
 * which none was shuffled. */
void fl_dataset_memory_release(fl_dataset_memory *m);
void fl_dataset_memory_done(fleet_dataset *d); /* of queue datasets nothing */
