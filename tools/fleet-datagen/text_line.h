/* text_line.h - lines as text, each with its end of line. */
#pragma once

#include "data_line.h"

/* Room for any of them, records included: numbers take less than 24 bytes,
 * names less than 16, and what a record has besides is less than 80. */
enum { MOST_LINE = (MOST_DENSE + MOST_SLOT + 2) * 40 };

/* Each writes a line to `to`, and gives its end. */
typedef char *text_line_put(const data_line *l, char *to);

text_line_put text_line_multislot, text_line_csv, text_line_criteo,
    text_line_slot_text, text_line_json;

/* An index for each count and, behind those, for each id of each slot. */
char *text_line_libsvm(const hidden_model *m, const hidden_line *l, char *to);
