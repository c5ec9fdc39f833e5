/* place.h - where a program's steps run: on the host alone, or also on a
 * GPU. */
#pragma once

#include <fleet/program.h>

#include "base/map.h"
#include "runtime/device/gpu.h"

typedef struct fl_place {
    fl_gpu *gpu;      /* NULL: all is on the host */
    bool on_gpu;      /* what has no guard runs on it */
    bool allow_cpu;   /* what has no kernel on it runs on the host */
    bool no_graphs;   /* steps are queued one by one */
    bool strict_fp32; /* also of a GPU that only guards name */
    fl_map warned;    /* kernels that it was said of; under the GPU's lock */
} fl_place;

void fl_place_done(fl_place *p);

/* Does what has that place, a guard's or 0, run on the GPU? */
bool fl_place_is_gpu(const fl_place *at, fleet_place place);

/* "cpu", "gpu", "gpu:1", for at most 24 bytes; 0 is "". */
typedef struct fl_place_text {
    char chars[24];
} fl_place_text;

fl_place_text fl_place_print(fleet_place place);

/* An executor's, which has a user's share of the GPU: the program's, if it has
 * none of its own. */
fleet_status fl_place_of(const fl_place *program, fleet_place own, fl_place *p);
