/* text_reader.h - the reader of text formats: the lines of a list of files. */
#pragma once

#include "data/parse/reader.h"

fleet_status fl_text_reader_open(fl_reader **r, const fl_reader_env *env);
