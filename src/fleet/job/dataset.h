/* dataset.h - the inside of a dataset: copies of its options and files, and the
 * statistics that go with it. */
#pragma once

#include "base/memory.h"
#include "data/io/paths.h"
#include "data/stream.h"
#include "fleet/job/position.h"

/* Batches that a crew trains together, and their samples. */
typedef struct fl_round {
    int n_batch;
    int64_t n_sample;
} fl_round;

struct fleet_dataset {
    fleet *fleet;
    fl_arena arena; /* slots and strings */
    fleet_dataset_options options;
    const fleet_slot *slots;
    int n_slot;
    const fleet_slot *own_slots; /* of a format that has slots of its own */
    fl_paths files;
    fl_cache_state cache; /* of these */
    bool read_once;       /* these, of which some come once, have been read */
    fl_statistics statistics;
    bool has_statistics;
    fl_position at; /* of its training passes */
    int begun;  /* the how-manieth of the handle to train; 0: it has not yet */
    bool noted; /* that passes over other files count */
    const fleet_executor *trainer; /* of the pass under way, whose loss is not
                                      in `at`; NULL: none */
    bool stops; /* a wait for its data ends where a stop is wanted */
    int64_t from_batch, from_samples; /* where that pass began, in this job */
    int64_t last_run; /* of its executor's iterations the last one that `at`
                         counts */
    int most_held;    /* batches that a pass holds at once; 0: as streams do */
    int in_round;     /* that it holds and has not begun to train */
    fl_round round;   /* that is trained now */
    bool updates_alone; /* each batch of a round is an update by itself */
    double share;       /* of this pass that was read, 0 to 1 */
    struct fl_dataset_memory *memory; /* NULL: a queue dataset */
    struct fleet_psgpu *psgpu;        /* whose passes are over it; NULL: none */
    void (*forget_psgpu)(
        struct fleet_psgpu *g); /* that one: the dataset goes */
    fleet_dataset *next;
};

/* A stream for the next pass: over this worker's share, for training, from
 * where that is on, or over all there is. A share is FLEET_ESTATE in a server.
 * bounds: see spec.h; they must outlive the stream. */
fleet_status fl_dataset_open(fleet_dataset *d, bool shared,
                             const fl_slot_bounds *bounds, fl_stream **stream);

/* The same of its files, also where it trains from memory, all of them. */
fleet_status fl_dataset_open_files(fleet_dataset *d, fl_stream **stream);

/* What a stream of it reads: its files, with its options. */
fl_stream_spec fl_dataset_spec(fleet_dataset *d);

/* Does this process train? FLEET_ESTATE: a server, or a heter worker. */
fleet_status fl_dataset_check_worker(const fleet_dataset *d);

/* This worker's part of a training pass: its block of the files, from
 * *first_file on, if there is one for each worker, else every n-th batch of all
 * of them. */
fleet_status fl_dataset_share(const fleet_dataset *d, fl_stream_spec *spec,
                              int64_t *first_file);

/* The seed of what is shuffled for a pass. */
uint64_t fl_dataset_seed(const fleet_dataset *d, int64_t pass, int64_t of);

/* What both kinds of datasets begin with; call names them in errors. */
fleet_dataset *fl_dataset_create(fleet *f, const fleet_dataset_options *o,
                                 const char *call);

/* Has it columns that are standardized? */
bool fl_dataset_standardizes(const fleet_dataset *d);

/* For a save: the statistics of the first dataset that has some, the training
 * data's; NULL if none has. */
fleet_status fl_statistics_of(const fleet *f, fl_json **json);

/* Make the statistics that standardize needs, if the dataset has none yet: its
 * files are read for them. */
fleet_status fl_dataset_need_statistics(fleet_dataset *d);

/* Take over a copy; FLEET_ESHAPE if they are not of as many columns. */
fleet_status fl_dataset_set_statistics(fleet_dataset *d,
                                       const fl_statistics *s);
fleet_status fl_dataset_fits(const fleet_dataset *d, const fl_statistics *s);
