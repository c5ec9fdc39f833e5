/* op.h - what an operator is, and the nodes and variables of a program.
 *
 * To add an operator: write src/ops/NAME.c with a const fl_op and its builder
 * of ops.h or nn.h, its CUDA kernels in src/ops/NAME.cu, add NAME to
 * src/ops/ops.def, and a case to test/ops/ops_test.c. Nothing else changes.
 * docs/add-an-op.md shows all of it. */
#pragma once

#include <fleet/nn.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "runtime/graph/shape.h"

typedef struct fl_node fl_node;
typedef struct fl_lowering fl_lowering;

typedef enum fl_attr_type { FL_INT, FL_FLOAT, FL_INTS, FL_FLOATS } fl_attr_type;

enum { FL_MOST_FLOATS = 512 }; /* of an attribute */

typedef struct fl_attr {
    const char *name;
    fl_attr_type type;
    int64_t i;
    double f;
    const int64_t *v; /* FL_INTS: n of them */
    const float *w;   /* FL_FLOATS: likewise */
    int n;
} fl_attr;

#define FL_ATTR_INT(key, value)                                                \
    (fl_attr)                                                                  \
    {                                                                          \
        .name = key, .type = FL_INT, .i = (value)                              \
    }
#define FL_ATTR_FLOAT(key, value)                                              \
    (fl_attr)                                                                  \
    {                                                                          \
        .name = key, .type = FL_FLOAT, .f = (double)(value)                    \
    }
#define FL_ATTR_INTS(key, values, count)                                       \
    (fl_attr)                                                                  \
    {                                                                          \
        .name = key, .type = FL_INTS, .v = (values), .n = (count)              \
    }
#define FL_ATTR_FLOATS(key, values, count)                                     \
    (fl_attr)                                                                  \
    {                                                                          \
        .name = key, .type = FL_FLOATS, .w = (values), .n = (count)            \
    }

/* What the passes need to know of an op. */
enum {
    FL_OP_TAKES_ACTIVATION = 1, /* can apply one to its output */
    FL_OP_WRITES_COLUMNS = 2,   /* its outputs may be columns of another value;
                                   so may their gradients */
    FL_OP_CONCAT = 4,           /* out is its inputs side by side, if axis 1 */
    FL_OP_LOOKUP = 8,           /* in[0] is a table: nodes on one table are done
                                   together by the first of them */
    FL_OP_LEARNS_FIRST = 16     /* in[0] alone gets a gradient, and no label,
                                   mask or row number behind it */
};

typedef struct fl_op {
    const char *name;
    int n_out;
    int least_in, most_in; /* inputs; optional ones come last */
    const char *attrs; /* what a node of it has: "axis:i keep_dim:i", types i
                          (int), f (float), v (ints), w (floats);
                          NULL: nothing */
    unsigned traits;
    int activation; /* fleet_activation that this op is; 0: none */

    /* Set the shapes and dtypes of the outputs from the inputs and attributes,
     * or say why it cannot be done. */
    fleet_status (*infer)(fl_node *n);

    /* Add the steps of the forward computation, and of the backward one, to a
     * plan: lower.h has the words for it. gradient NULL: no gradient
     * passes. */
    fleet_status (*forward)(fl_lowering *l, const fl_node *n);
    fleet_status (*gradient)(fl_lowering *l, const fl_node *n);
} fl_op;

typedef enum fl_var_kind {
    FL_VAR_DATA,
    FL_VAR_PARAM, /* of the store */
    FL_VAR_TABLE, /* rows, of the store */
    FL_VAR_STATE, /* of the store: not trained */
    FL_VAR_TEMP   /* an operator's result */
} fl_var_kind;

extern const char *const fl_var_kind_names[]; /* NULL ends them */
extern const char *const fl_fresh_names[];    /* likewise */
extern const char *const fl_storage_names[];  /* likewise */

/* What a table does with ids, and how it keeps rows, as
 * fleet_sparse_embedding_options has it. */
typedef struct fl_table_ids {
    bool check;
    fleet_fresh fresh;
    int64_t default_id;
    fleet_table_options life;
    fleet_row_storage storage; /* of its rows */
} fl_table_ids;

/* How much memory a table may take; the rest of its rows is in a file. */
typedef struct fl_table_cap {
    int64_t bytes; /* 0: any */
    const char *folder;
} fl_table_cap;

struct fleet_var {
    fleet_program *program;
    const char *name;
    int id; /* its place in the program */
    fl_var_kind kind;
    fleet_dtype dtype;
    fl_shape shape;     /* FL_VAR_TABLE: [rows or 0, dim] */
    bool ragged;        /* any number of values per sample */
    fleet_var *weights; /* DATA: of its ids, or NULL */
    fleet_var *weighs;  /* DATA: the ids whose weights it has, or NULL */
    int64_t ids_below;  /* DATA: an operator takes ids in [0, that); 0: any */
    int64_t labels_to;  /* DATA: a loss takes labels in [0, that]; 0: none */
    fl_node *producer;  /* FL_VAR_TEMP */
    fleet_param_attr attr; /* PARAM, TABLE; its name is NULL */
    fl_table_ids ids;      /* TABLE */
    fl_table_cap cap;      /* TABLE; in saved programs it is not */
    fleet_place place;     /* PARAM, TABLE, STATE: of the guard under which it
                              was made; 0: none */
    bool keep_gradient;    /* its gradient can be read after an iteration, also
                              of data: for tests */
};

enum { FL_MAX_ATTR = 8, FL_MOST_RANDOM_STREAM = (1 << 22) - 1 };

struct fl_node {
    const fl_op *op;
    int id;     /* its place in the program */
    int stream; /* of its random numbers: its place in the program for which it
                   was made, whatever was pruned from that since */
    fleet_var **in; /* an absent optional input is NULL */
    int n_in;
    fleet_var **out;
    fl_attr attr[FL_MAX_ATTR];
    int n_attr;
    fleet_place place; /* of the guard; 0: the program's */
};

/* Attributes by name, which the builder has put. */
int64_t fl_node_int(const fl_node *n, const char *name);
double fl_node_float(const fl_node *n, const char *name);
const fl_attr *fl_node_attr(const fl_node *n, const char *name); /* or NULL */

/* An attribute as a member of `attrs`; the one of that name and type (a letter
 * of fl_op.attrs) from it. Lists are the arena's. */
fleet_status fl_attr_to_json(const fl_attr *a, fl_json *attrs);
fleet_status fl_attr_from_json(fl_attr *a, fl_arena *arena, const fl_at *attrs,
                               const char *name, char type);
