/* table_text.h - a table as text, written and read: docs/formats.md. */
#pragma once

#include "base/file.h"
#include "base/file/file_writer.h"
#include "fleet/save/load.h"

/* What the first line says. */
typedef struct fl_table_text_head {
    int64_t rows, dim;
    bool states;        /* each row has its updates and states */
    int n_state, n_row; /* as fl_rule's */
    bool accessor;      /* behind them stand the FL_N_ACCESSOR of one */
    const char *state[FL_MAX_NAME];
} fl_table_text_head;

/* Numbers of a row: its weights and states. */
static inline int64_t fl_table_text_width(const fl_table_text_head *h)
{
    return h->dim * (1 + h->n_state) + h->n_row +
           (h->accessor ? FL_N_ACCESSOR : 0);
}

/* What is written of a row besides its weights: all; what an accessor counts,
 * if there is one; nothing. */
typedef enum fl_table_text_kind {
    FL_TEXT_WEIGHTS,
    FL_TEXT_COUNTS,
    FL_TEXT_STATES
} fl_table_text_kind;

/* The save of one table, to a file that is open. */
fleet_status fl_table_text_write(const fl_saved *s, fl_table_text_kind kind,
                                 fl_writer *w);

/* Called for the first line, with row NULL, then for each row: its weights,
 * then its states. */
typedef struct fl_table_text_row {
    uint64_t key;
    uint32_t step; /* updates of the row */
    const float *values;
} fl_table_text_row;

typedef fleet_status fl_table_text_visitor(void *arg,
                                           const fl_table_text_head *head,
                                           const fl_table_text_row *row);

/* FLEET_EFORMAT, with file and line; what the visitor refuses is named so,
 * too. */
fleet_status fl_table_text_read(const char *path, fl_table_text_visitor *visit,
                                void *arg);
