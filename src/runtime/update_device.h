/* update_device.h - what an update is told on a device: in place of an
 * fl_update_now (plan.h), in device memory, written before an iteration. */
#ifndef FL_RUNTIME_UPDATE_DEVICE_H
#define FL_RUNTIME_UPDATE_DEVICE_H

#include "runtime/rule.h"

typedef struct fl_device_update {
    fl_update u; /* correct_a_at, correct_b_at: device memory */
    float clip_norm;
    int32_t micro; /* which batch of the merge group this is, from 0 */
} fl_device_update;

#endif
