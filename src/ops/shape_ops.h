/* shape_ops.h - the configurations of the kernels of shape_ops.c, for both
 * their halves. */
#pragma once

#include <stdint.h>

/* A row of each input is n_piece pieces; they go `column` elements into pieces
 * of the output. */
typedef struct fl_concat_piece {
    int64_t size, column, whole, n_piece;
} fl_concat_piece;

/* concat         out <- n inputs, a piece each
 * concat.grad    one input's gradient <- out's, one piece */
typedef struct fl_concat_config {
    int n;
    fl_concat_piece *piece;
} fl_concat_config;
