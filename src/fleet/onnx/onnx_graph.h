/* onnx_graph.h - a model of ONNX while it is built: nodes, weights, inputs and
 * outputs, in an arena. What nodes pass on has a name, and is known by it.
 *
 * Building is sticky: after a failure, which `status` keeps, a call does
 * nothing and its name is NULL, so that an operator's form in ONNX reads as a
 * formula. */
#pragma once

#include "base/map.h"
#include "base/memory.h"
#include "runtime/graph/program.h"

/* TensorProto.DataType. */
typedef enum fl_onnx_type {
    FL_ONNX_FLOAT = 1,
    FL_ONNX_INT64 = 7,
    FL_ONNX_BOOL = 9
} fl_onnx_type;

/* Weights or constants, row-major. Of an attribute the name is "". */
typedef struct fl_onnx_tensor {
    const char *name;
    fl_onnx_type type;
    int n_dim;
    int64_t dim[FLEET_MAX_DIM + 1];
    const void *data;
    size_t size;
    struct fl_onnx_tensor *next;
} fl_onnx_tensor;

/* AttributeProto.AttributeType. */
typedef enum fl_onnx_attr_type {
    FL_ONNX_ATTR_FLOAT = 1,
    FL_ONNX_ATTR_INT = 2,
    FL_ONNX_ATTR_TEXT = 3,
    FL_ONNX_ATTR_TENSOR = 4,
    FL_ONNX_ATTR_GRAPH = 5,
    FL_ONNX_ATTR_INTS = 7
} fl_onnx_attr_type;

typedef struct fl_onnx_attr {
    const char *name;
    fl_onnx_attr_type type;
    float f;
    int64_t i;
    const char *text;
    const fl_onnx_tensor *tensor;
    const struct fl_onnx_graph *graph;
    const int64_t *ints; /* n of them */
    int n;
} fl_onnx_attr;

enum { FL_ONNX_MOST_ATTR = 5 };

typedef struct fl_onnx_node {
    const char *op, *domain; /* domain "": ONNX's own */
    const char **in, **out;
    int n_in, n_out;
    fl_onnx_attr attr[FL_ONNX_MOST_ATTR];
    int n_attr;
    bool is_known; /* its output's name is in use already */
    struct fl_onnx_node *next;
} fl_onnx_node;

/* An input or an output. A dimension is a number, or below 0 a name in text. */
typedef struct fl_onnx_value {
    const char *name;
    fl_onnx_type type;
    int n_dim;
    int64_t dim[FLEET_MAX_DIM + 1];
    const char *text[FLEET_MAX_DIM + 1];
    struct fl_onnx_value *next;
} fl_onnx_value;

typedef struct fl_onnx_graph {
    const char *name;
    fl_onnx_node *node, *last_node;
    fl_onnx_value *input, *last_input, *output, *last_output;
} fl_onnx_graph;

typedef struct fl_onnx {
    fl_arena arena;
    const fleet_program *program;
    struct fl_store *store;
    fl_onnx_graph whole, *at; /* at: where nodes go, `whole` or a body in it */
    fl_onnx_tensor *tensor, *last_tensor; /* of all graphs */
    fl_map known;       /* names of what was built already, by what it is */
    const char **value; /* names of the program's variables, by id; NULL: not
                           yet */
    fl_onnx_node *newest;
    int n_made;  /* names that were made up */
    bool has_ml; /* a node is of domain "ai.onnx.ml" */
    fleet_status status;
} fl_onnx;

fleet_status fl_onnx_init(fl_onnx *x, const fleet_program *p,
                          struct fl_store *store);
void fl_onnx_done(fl_onnx *x);

/* Keep a failure; NULL. */
const char *fl_onnx_failed(fl_onnx *x, fleet_status status);

/* Room in the arena, or NULL. */
void *fl_onnx_room(fl_onnx *x, size_t n, size_t size);

/* --- nodes ---------------------------------------------------------------- */

/* A node of ONNX's own domain, and its output. An input "" is absent. */
const char *fl_onnx_put(fl_onnx *x, const char *op, const char *const *in,
                        size_t n);
#define FL_ONNX(x, op, ...)                                                    \
    fl_onnx_put(x, op, (const char *const[]){__VA_ARGS__},                     \
                sizeof((const char *const[]){__VA_ARGS__}) /                   \
                    sizeof(const char *))

/* Of n_out outputs: their names, or NULL. */
const char *const *fl_onnx_put_many(fl_onnx *x, const char *op,
                                    const char *const *in, size_t n, int n_out);

/* Attributes of the newest node. */
void fl_onnx_with_int(fl_onnx *x, const char *name, int64_t value);
void fl_onnx_with_ints(fl_onnx *x, const char *name, const int64_t *v, int n);
void fl_onnx_with_float(fl_onnx *x, const char *name, double value);
void fl_onnx_with_text(fl_onnx *x, const char *name, const char *value);
void fl_onnx_with_tensor(fl_onnx *x, const char *name,
                         const fl_onnx_tensor *value);
void fl_onnx_with_graph(fl_onnx *x, const char *name,
                        const fl_onnx_graph *value);

/* The newest node is of domain "ai.onnx.ml". */
void fl_onnx_is_ml(fl_onnx *x);

/* --- constants: equal ones are one ---------------------------------------- */

const char *fl_onnx_number(fl_onnx *x, double value);   /* [] float */
const char *fl_onnx_integer(fl_onnx *x, int64_t value); /* [] int64 */
const char *fl_onnx_ints(fl_onnx *x, const int64_t *v, int64_t n); /* [n] */
const char *fl_onnx_int1(fl_onnx *x, int64_t value);               /* [1] */
const char *fl_onnx_filled(fl_onnx *x, double value, int64_t n); /* [n] float */

/* Weights; the data are the arena's. */
const char *fl_onnx_weights(fl_onnx *x, const fl_onnx_tensor *tensor);

/* --- values --------------------------------------------------------------- */

/* The name of a variable of the program; a parameter's weights go out with its
 * first use. NULL stands for an input that is absent, and is "". */
const char *fl_onnx_of(fl_onnx *x, const fleet_var *v);

/* The variable's value is that one from now on. */
void fl_onnx_set(fl_onnx *x, const fleet_var *v, const char *name);

const char *fl_onnx_cast(fl_onnx *x, const char *v, fl_onnx_type to);
const char *fl_onnx_reshape(fl_onnx *x, const char *v, const fl_shape *shape);
const char *fl_onnx_unsqueeze(fl_onnx *x, const char *v, int64_t axis);
const char *fl_onnx_slice(fl_onnx *x, const char *v, int64_t axis,
                          int64_t start, int64_t end);
const char *fl_onnx_concat(fl_onnx *x, int64_t axis, const char *const *in,
                           size_t n);
const char *fl_onnx_gather(fl_onnx *x, const char *v, const char *index,
                           int64_t axis);

/* What was built before under a text that says what it is; NULL: nothing.
 * Returns the name. */
const char *fl_onnx_known(const fl_onnx *x, const char *what);
const char *fl_onnx_remember(fl_onnx *x, const char *what, const char *name);
const char *fl_onnx_text(fl_onnx *x, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- inputs and outputs of the graph that is built ------------------------ */

/* Of a shape whose first dimension below 0 is the batch, or several rows of
 * each sample. */
fl_onnx_value *fl_onnx_value_of(fl_onnx *x, const char *name, fl_onnx_type type,
                                const fl_shape *shape);
void fl_onnx_input(fl_onnx *x, fl_onnx_value *v);
void fl_onnx_output(fl_onnx *x, fl_onnx_value *v);
