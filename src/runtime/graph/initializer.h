/* initializer.h - first values, as a function of (seed, name[, key]). */
#pragma once

#include "runtime/graph/shape.h"

/* An initializer with its scale worked out: what can make any element. */
typedef struct fl_filler {
    fleet_initializer_kind kind; /* CONSTANT, UNIFORM, NORMAL, TRUNCATED */
    float a, b;
    uint64_t seed;     /* of the handle */
    uint64_t stream;   /* of the name */
    int64_t vector_at; /* not 0: elements of a row from this one on begin as 0,
                          and get values later, all at once */
} fl_filler;

/* The same by the numbers themselves: fan_in and fan_out count units, for the
 * kinds that use them. */
fleet_initializer fl_initializer_of(const fleet_initializer *i, int64_t fan_in,
                                    int64_t fan_out);
fl_filler fl_filler_make(const fleet_initializer *i, int64_t fan_in,
                         int64_t fan_out, uint64_t seed, const char *name);

/* n elements of a parameter, from `first` on, which is a multiple of 4. */
void fl_filler_dense(const fl_filler *f, int64_t first, float *out, int64_t n);

/* The n elements of a row: of the sequence (this seed, its key). */
uint64_t fl_filler_row_seed(const fl_filler *f);
void fl_filler_row(const fl_filler *f, uint64_t key, float *out, int64_t n);

/* Those elements' values: out[vector_at] to out[n - 1]. */
void fl_filler_vector(const fl_filler *f, uint64_t key, float *out, int64_t n);

/* FLEET_EINVAL for an initializer that cannot be, naming `what`. */
fleet_status fl_initializer_check(const char *what, const fleet_initializer *i);
