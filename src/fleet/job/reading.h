/* reading.h - how lines become what a model takes, as a save has it: the format
 * and the slots of the dataset that trained, without its files. */
#pragma once

#include "base/json/json.h"
#include "base/memory.h"
#include "data/layout/statistics.h"
#include "fleet/job/handle.h"

typedef struct fl_reading {
    fl_arena arena; /* of all below */
    fleet_format format;
    char separator, comment;
    int header;
    int64_t skip_lines;
    const char *missing;
    fleet_slot *slots;
    uint64_t *seeds; /* by slot: what texts are hashed with */
    int n_slot;
    int label;     /* which slot; -1: none */
    bool is_piped; /* lines are what a pipe_command makes of the files */
    fl_statistics statistics; /* of the slots that standardize */
} fl_reading;

/* For a manifest. label: the name of the slot; NULL: none is. For
 * fl_json_free(); NULL of a dataset that has no slots before its files. */
fleet_status fl_reading_save(const fleet_dataset *d, const char *label,
                             fl_json **json);

/* Out of a manifest's `reader`, with its `statistics`, which may be absent;
 * checked as a dataset's options are. The texts are copies. */
fleet_status fl_reading_load(fl_reading *r, const fl_at *reader,
                             const fl_at *statistics);
void fl_reading_done(fl_reading *r);
