/* event_log.h - numbers of a training in a file that TensorBoard reads: records
 * as TensorFlow frames them (tensorflow/core/lib/io/record_writer.h), each an
 * Event (tensorflow/core/util/event.proto). A process writes a file of its own.
 * Its first event has TensorBoard forget what earlier ones have written, and it
 * will write again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "fleet/watch/histogram.h"

typedef struct fl_event_log {
    int fd;     /* -1: not open */
    char *path; /* of the file */
    int64_t size;
    bool has_failed; /* the last record, which was said */
    fl_log *log;
} fl_event_log;

/* A number of a step; what is not finite is left out. */
typedef struct fl_event_scalar {
    const char *tag;
    double value;
} fl_event_scalar;

/* A new file in the folder, which is made if it does not exist, in one that
 * does. step: the first that will be written; older ones from that step on are
 * out. FLEET_EIO: the path and the reason are named. */
fleet_status fl_event_log_open(fl_event_log *e, const char *folder,
                               int64_t step, fl_log *log);

/* One event. One that the disk refuses is a warning. */
fleet_status fl_event_log_add(fl_event_log *e, int64_t step,
                              const fl_event_scalar *scalar, int n);

/* Numbers of a step, of which none are shown where there are none. */
typedef struct fl_event_histogram {
    const char *tag;
    fl_histogram of;
} fl_event_histogram;

/* One event with all of them; as above. */
fleet_status fl_event_log_add_histograms(fl_event_log *e, int64_t step,
                                         const fl_event_histogram *histogram,
                                         int n);

/* What was added is on the disk. */
void fl_event_log_flush(fl_event_log *e);
void fl_event_log_close(fl_event_log *e);
