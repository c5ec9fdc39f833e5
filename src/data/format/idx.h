/* idx.h - MNIST's format: pixels in one file, labels in another. */
#pragma once

#include "data/parse/reader.h"

fl_parse fl_parse_idx;
fleet_status fl_idx_reader_open(fl_reader **r, const fl_reader_env *env);

/* Its slots, for fl_free(): the width of an image is in the header of the file
 * of images. */
fleet_status fl_idx_slots(const char *images, fleet_slot **slots, int *n);
