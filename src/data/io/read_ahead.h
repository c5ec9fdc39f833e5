/* read_ahead.h - a source that a thread of its own reads ahead of its turn,
 * into a queue with a bound, so that several commands run and several files are
 * unpacked at once though their bytes are wanted in order. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "data/io/source.h"

typedef struct fl_read_ahead fl_read_ahead;

/* As for fl_source_open(). That the file cannot be opened is reported by
 * reading, or by fl_read_ahead_wait(), which blocks until that is known. */
fleet_status fl_read_ahead_start(fl_read_ahead **ahead, const char *path,
                                 const fl_source_options *o);
fleet_status fl_read_ahead_wait(fl_read_ahead *a);

/* As fl_source_read(). */
fleet_status fl_read_ahead_read(fl_read_ahead *a, void *to, size_t size,
                                size_t *got);

/* As fl_unpack_share(), of what was taken from the queue. */
double fl_read_ahead_share(fl_read_ahead *a);

/* Unless it was read to its end the wakeup must have come. NULL is fine. */
void fl_read_ahead_close(fl_read_ahead *a);
