/* check_spec.h - the checks of a spec; an error names the dataset slot. */
#pragma once

#include "data/layout/spec.h"

/* FLEET_ECONFIG or FLEET_EINVAL for a spec that cannot be: columns and dim that
 * do not agree, a transform that the dtype does not have, n_thread < 1, ... The
 * statistics may still be missing. */
fleet_status fl_spec_check(const fl_stream_spec *spec);

/* The parts of it that need no files: all but slots and files; slots, *at is
 * the one that is refused. */
fleet_status fl_spec_check_options(const fl_stream_spec *spec);
fleet_status fl_spec_check_slots(const fl_stream_spec *spec, int *at);

/* Has the spec statistics for all columns that are standardized? */
fleet_status fl_spec_check_statistics(const fl_stream_spec *spec);
