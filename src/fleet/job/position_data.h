/* position_data.h - what data a position is of, so that a pass goes on over the
 * same ones only. */
#pragma once

#include "base/json/json.h"
#include "data/io/paths.h"
#include "fleet/job/handle.h"

/* What a position in the middle of a pass is of: files, seed, how batches are
 * cut. For fl_json_free(). */
fleet_status fl_position_data(const fleet_dataset *d, fl_json **data);

/* Its part that says which files these are, into an object. */
fleet_status fl_position_files(const fl_paths *files, fl_json *json);
