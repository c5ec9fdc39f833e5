/* layout.h - the slots of a spec with their defaults filled in, and for csv the
 * columns that feed them. */
#pragma once

#include <stdbool.h>

#include "data/layout/spec.h"

typedef struct fl_column {
    const char *name; /* or position, as a text */
    fleet_transform transform;
    double mean, deviation; /* where it standardizes */
} fl_column;

typedef struct fl_field {
    const char *name;
    bool is_id;
    bool weighted; /* ids may have weights */
    int64_t dim;   /* -1: ragged */
    fl_slot_bounds bounds;
    /* what its texts are hashed with: by default its position */
    uint64_t seed;
    uint64_t none; /* the id of an empty text */
    const char *const *equals;
    int n_equals;
    bool required;
    int first_column, n_column;
    const int *from; /* of a made slot: the slots that it is made of */
    int n_from;
    const float *buckets;
    int n_bucket; /* 0: it is a cross */
    int n_alike;  /* fields from this on that may hold a single id each */
} fl_field;

/* Bytes of one of its values. */
static inline size_t fl_field_size(const fl_field *f)
{
    return f->is_id ? sizeof(int64_t) : sizeof(float);
}

typedef struct fl_layout {
    fl_field *field;
    int n_field; /* that lines have; */
    int n_made;  /* behind them: made of slots in front */
    int *from;
    fl_column *column; /* of all fields, in their order */
    int n_column;
    const char *missing; /* never NULL */
    size_t missing_size;
    char separator;
} fl_layout;

/* spec must have passed fl_spec_check(); its statistics may be
 * missing. */
fleet_status fl_layout_init(fl_layout *l, const fl_stream_spec *spec);
void fl_layout_done(fl_layout *l);

enum { FL_MOST_CROSSED = 8 };

/* How many of the slots lines have: the first ones. */
int fl_count_read_slots(const fleet_slot *slots, int n_slot);

/* The slot of that name among the first n; -1: there is none. */
int fl_slot_named(const fleet_slot *slots, int n, const char *name);

/* Do lines of the format say which slot a value is of? Then a slot may be
 * missing, and what no slot asks for may hold anything. */
bool fl_slots_by_name(fleet_format format);

/* Have files of the format columns, which slots are made of by transforms? */
bool fl_has_columns(fleet_format format);

/* By fleet_transform, as configurations and saves say it; NULL at the end. */
extern const char *const fl_transform_names[];

bool fl_standardizes(fleet_transform t);

/* What stands in a slot's column by default and by its list. */
fleet_transform fl_transform_of(const fleet_slot *slot, int column);
bool fl_slot_is_id(const fleet_slot *slot);
int64_t fl_slot_dim(const fleet_slot *slot);

/* Columns of all slots that standardize. */
int fl_count_standardized(const fleet_slot *slots, int n_slot);

/* The command that is none: NULL. */
const char *fl_command_of(const fl_stream_spec *spec);
