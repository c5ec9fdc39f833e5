/* idx.h - MNIST's format: pixels in one file, labels in another. */
#ifndef FL_DATA_FORMAT_IDX_H
#define FL_DATA_FORMAT_IDX_H

#include <stdint.h>

#include "base/error.h"

/* Pixels of an image, from the header of the file. */
fleet_status fl_idx_width(const char *images, int64_t *width);

#endif
