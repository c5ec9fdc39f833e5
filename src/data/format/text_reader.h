/* text_reader.h - the reader of text formats: the lines of a list of files. */
#ifndef FL_DATA_FORMAT_TEXT_READER_H
#define FL_DATA_FORMAT_TEXT_READER_H

#include "data/format/reader.h"

fleet_status fl_text_reader_open(fl_reader **r, const fl_reader_env *env);

#endif
