/* device_list.h - a list of a step's configuration, copied to device memory
 * when the step is prepared: for kernels whose state is one. */
#pragma once

#include "runtime/device/cuda/cuda.h"

typedef struct fl_device_list {
    void *copy;
} fl_device_list;

static inline fleet_status fl_device_list_make(fl_device *d, fl_queue *q,
                                               fl_device_list *l,
                                               const void *from, size_t bytes)
{
    const fl_device_class *m = d->methods;

    FL_TRY(m->alloc(d, q, bytes, &l->copy));
    return m->copy(d, q, l->copy, from, bytes, FL_TO_DEVICE);
}

static inline void fl_device_list_drop(fl_device *d, fl_device_list *l)
{
    d->methods->free(d, nullptr, l->copy);
    l->copy = nullptr;
}
