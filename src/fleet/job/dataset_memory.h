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

/* One more over the pass that is trained, for a thread ahead of the training:
 * a stop that is wanted does not end it. */
fleet_status fl_dataset_memory_open_ahead(fleet_dataset *d,
                                          const fl_slot_bounds *bounds,
                                          fl_stream **stream);

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
