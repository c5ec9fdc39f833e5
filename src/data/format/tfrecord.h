/* tfrecord.h - records of TFRecord files, each a tf.Example, whose features are
 * slots by their names. */
#pragma once

#include "data/parse/parser.h"

fl_parse fl_parse_tfrecord;
