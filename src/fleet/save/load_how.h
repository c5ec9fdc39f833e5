/* load_how.h - what is loaded of a save, and how: as options, and as the text
 * that other processes are told. */
#pragma once

#include <fleet/io.h>

#include "base/json/json.h"

/* What is loaded of a save, and how. All-zero fields are defaults. */
typedef struct fl_load_how {
    fleet_load_options o;
    const char *table;  /* that one alone; NULL: all of the store */
    const char *source; /* its name in the save; NULL: the same, or that of
                           the only table of the save */
    bool wider;         /* the save may have fewer columns */
    bool own_filler;    /* unknown rows begin as they do now, not as in the
                           save */
} fl_load_how;

/* What a load that keeps rows takes: a delta, or a checkpoint. */
#define FL_WHAT_ADDS "delta"

/* What the save must be; NULL: anything that has what is loaded. */
const char *fl_load_how_what(const fl_load_how *how);

/* FLEET_EINVAL, naming the option that is none of its choices. */
fleet_status fl_load_options_check(const fleet_load_options *o);

/* As a text, for fl_free(), to other processes; and back: the texts belong to
 * the json. */
fleet_status fl_load_how_print(const fl_load_how *how, const char *path,
                               char **text);
fleet_status fl_load_how_read(const fl_json *json, fl_load_how *how,
                              const char **path);
