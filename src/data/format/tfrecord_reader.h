/* tfrecord_reader.h - the reader of TFRecord files: the records of a list of
 * files. A record's "line" is its bytes and their checksum behind them, which
 * the parser compares. */
#pragma once

#include "data/parse/reader.h"

enum { FL_TFRECORD_SUM = 4 }; /* bytes of a checksum */

fleet_status fl_tfrecord_reader_open(fl_reader **r, const fl_reader_env *env);
