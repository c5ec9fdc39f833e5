/* example_record.h - lines as records of TFRecord files, each a tf.Example. */
#pragma once

#include "data_line.h"

/* The record of a line, of less than 40 bytes a count or id; its end. */
char *example_record_put(const data_line *l, char *to);
