/* wire_type.h - the types of elements that ranks send: their sizes and names;
 * and checks of the arguments of a call on any communicator. */
#pragma once

#include "base/error.h"
#include "runtime/device/comm.h"

enum { FL_MOST_ELEMENT = 8 }; /* bytes */

int64_t fl_wire_size(fl_wire_type type);
const char *fl_wire_name(fl_wire_type type); /* "f32" */
const char *fl_reduce_name(fl_reduce how);   /* "sum" */

/* Checks of arguments, for the call of that name. */
fleet_status fl_check_reduce(const char *call, fl_reduce how, fl_wire_type type,
                             int64_t n);
fleet_status fl_check_bytes(const char *call, int64_t bytes);
fleet_status fl_check_rank(const char *call, const char *what, int rank,
                           int size);
fleet_status fl_check_counts(const int64_t *to, const int64_t *from, int size);
