/* data_line.h - a line of made-up data as fields with names, whatever it is
 * written as. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "hidden_model.h"
#include "sequence_model.h"

enum { MOST_FIELD = MOST_SLOT + 2 };

typedef enum field_kind {
    LABEL_FIELD,
    COUNT_FIELD,   /* most formats have log(1 + it) */
    ID_FIELD,      /* 32 bits */
    HISTORY_FIELD, /* ids, any number of them */
    ITEM_FIELD,    /* an id that histories may have */
    LOG_Q_FIELD
} field_kind;

/* What a slot is fed with. */
typedef struct data_field {
    char name[24];
    field_kind kind;
    int n; /* values of this line */
    int most;
    const int64_t *value;
    const double *real; /* of a LOG_Q_FIELD, which has no value */
} data_field;

typedef struct data_line {
    int n;
    data_field field[MOST_FIELD];
} data_line;

/* click, counts, slot_0, slot_1, ...: those of l, whatever it is made to hold
 * later. */
void data_line_of_log(const hidden_model *m, const hidden_line *l,
                      data_line *to);

/* click, history and item; of pairs history, item and log_q. As the lines have
 * histories of their own length, after each data_line_measure(). */
void data_line_of_sequence(const sequence_model *m, const sequence_line *l,
                           data_line *to);
void data_line_measure(data_line *line, const sequence_line *l);

bool data_field_has_ids(const data_field *f);
