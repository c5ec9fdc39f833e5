/* difference.h - the weights of saves, in memory, and how two saves differ. */
#pragma once

#include "base/json/json_write.h"
#include "fleet/save/load.h"

typedef struct gathered_key {
    uint64_t key;
    int64_t at; /* which row of `weight` */
} gathered_key;

/* A parameter, or a table with its rows' keys, which grow. */
typedef struct gathered_item {
    char *name;
    bool is_table;
    fl_shape shape;
    int64_t n;     /* numbers, or rows */
    int64_t n_row; /* that have come */
    float *weight;
    gathered_key *key;
} gathered_item;

typedef struct gathered {
    const char *only; /* a parameter; NULL: all there is */
    gathered_item *item;
    int n;
} gathered;

/* gathered_done() in any case. */
fleet_status gather_save(const char *path, gathered *g);
void gathered_done(gathered *g);
const gathered_item *gathered_find(const gathered *g, bool is_table,
                                   const char *name); /* NULL: none */

/* A line for each parameter and table of either. *same: nothing differs. */
fleet_status print_difference(const char *old, const char *new, bool *same);

/* Numbers in lines have so many digits: all that a float has. */
enum { DIGITS = 9 };
fleet_status print_line(fl_json *line); /* the line goes */
