/* parser.h - a parser turns the raw lines of a batch into values. Each format
 * has one; any thread of a stream may run it. */
#pragma once

#include "data/layout/batch_buffer.h"
#include "data/layout/slot_names.h"
#include "data/text/csv_cells.h"
#include "data/text/text_kernels.h"

typedef struct fl_parser fl_parser;
typedef struct fl_scratch fl_scratch;

/* Parse buffer->lines into buffer->batch, whose index is set already. */
typedef fleet_status fl_parse(const fl_parser *p, fl_scratch *scratch,
                              fl_batch_buffer *buffer);

/* What the threads of a stream share; no thread writes to it, but for `place`
 * of a file that was just opened, before its first line is handed on. */
struct fl_parser {
    const fl_stream_spec *spec;
    fl_layout layout;
    const fl_kernels *kernels;
    fl_parse *parse;
    int **place;  /* csv: [file][column], where it stands in the line */
    int *n_place; /* csv: how many cells a line of the file has; 0: not known */
    fl_slot_names names; /* of formats whose lines name their slots */
    float pixel[256];
    bool *cached; /* lines are rows of caches, set before the first; NULL:
                     there are none */
};

/* What each thread has for itself. */
struct fl_scratch {
    fl_tokens tokens;
    uint64_t id[FL_READ_MOST + FL_READ_SLACK];
    fl_criteo_tile tile;
    char *labelled; /* criteo: lines that have got a label */
    size_t labelled_capacity;
    size_t *used;  /* values in each ragged slot */
    int64_t *seen; /* json_lines: the row after which each slot was read last */
    char *text;    /* json_lines: what a string with backslashes means */
    size_t text_capacity;
    char *row; /* parquet: a row that a shuffle has moved, as a block */
    size_t row_capacity;
    fl_csv_cells cells;
};

/* Make what spec needs; parse is the format's, or what computes statistics. */
fleet_status fl_parser_init(fl_parser *p, const fl_stream_spec *spec,
                            fl_parse *parse);
void fl_parser_done(fl_parser *p);

fleet_status fl_scratch_create(fl_scratch **scratch, const fl_parser *p);
void fl_scratch_destroy(fl_scratch *s);

/* What was parsed has no id and no label that is out of its slot's bounds; the
 * buffer still has the lines of the batch. Formats without lines are left to
 * the model. */
fleet_status fl_parser_check_bounds(const fl_parser *p,
                                    const fl_batch_buffer *buffer);

/* "id" or "id:weight" of a weighted slot, in [s, end); an id without a weight
 * has 1. *colon: where the id ends. False: the weight is no finite number. */
bool fl_cut_weight(const char *s, const char *end, const char **colon,
                   float *weight);

/* FLEET_EFORMAT: "FILE:LINE: slot "NAME": expected WHAT, got "TEXT"". slot may
 * be NULL; without a text it is the end of the line. */
fleet_status fl_bad_line(const fl_parser *p, const fl_line *line,
                         const char *slot, const char *what, const char *text,
                         const char *end);
