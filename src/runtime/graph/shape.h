/* shape.h - shapes whose first dimension may be the batch. */
#pragma once

#include <stdbool.h>

#include <fleet/program.h>

#include "base/text.h"

/* dim[0] < 0 stands for -dim[0] times the batch: -1 in what users write, -39
 * for what a reshape has folded 39 rows of each sample into. */
typedef struct fl_shape {
    int n_dim;
    int64_t dim[FLEET_MAX_DIM + 1]; /* room for a dimension put in front */
} fl_shape;

typedef struct fl_shape_text {
    char chars[160]; /* "[-1,32]" */
} fl_shape_text;

fl_shape fl_shape_make(const int64_t *dims, int n_dim);
fl_shape fl_shape_1(int64_t a);
fl_shape fl_shape_2(int64_t a, int64_t b);
fl_shape_text fl_shape_print(const fl_shape *s);

static inline bool fl_shape_batched(const fl_shape *s)
{
    return s->n_dim > 0 && s->dim[0] < 0;
}

/* A dimension as NumPy broadcasts it: the last one for 0; 1 in front of the
 * first. */
static inline int64_t fl_shape_from_end(const fl_shape *s, int i)
{
    return i < s->n_dim ? s->dim[s->n_dim - 1 - i] : 1;
}

bool fl_shape_equal(const fl_shape *a, const fl_shape *b);

/* Rows of a batch (or fixed ones), elements of a row, elements altogether. */
int64_t fl_shape_rows(const fl_shape *s, int64_t batch);
int64_t fl_shape_cols(const fl_shape *s);
int64_t fl_shape_count(const fl_shape *s, int64_t batch);

/* Beyond it a save's JSON could not tell two sizes apart. */
#define FL_MOST_DIM ((int64_t)1 << 53)

/* Positive dimensions, -1 in first place alone, no overflow: else FLEET_ESHAPE
 * for `what`. */
fleet_status fl_shape_check(const char *what, const int64_t *dims, int n_dim);

/* The same of an operator's result, which may have several rows a sample. */
fleet_status fl_shape_check_result(const char *what, const fl_shape *s);
