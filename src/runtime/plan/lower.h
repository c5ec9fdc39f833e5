/* lower.h - lowering: the functions by which forward() and gradient() of an
 * operator (op.h) and passes add values and steps to a plan.
 *
 * Failures are sticky: a value of -1 may be handed on, and the lowering fails
 * as a whole at the end.
 */
#pragma once

#include "runtime/plan/plan.h"

/* What passes on the graph decided about a node. */
typedef struct fl_node_plan {
    bool skip;                 /* another node's steps do its work */
    fleet_var *out;            /* in place of out[0]; NULL: out[0] */
    const fl_node *activation; /* what is fused into it; NULL: nothing */
    int group; /* lookups of one table: 1 + the id of the first */
    int saved; /* a value that forward() leaves for gradient() */
} fl_node_plan;

/* What passes decided about a variable: it lies in another's columns. */
typedef struct fl_var_plan {
    fleet_var *inside; /* NULL: on its own */
    int64_t column;
    int readers; /* nodes that read it */
} fl_var_plan;

struct fl_lowering {
    const fleet_program *program;
    fl_plan *plan;
    fleet_status status; /* sticky */
    fl_phase phase;
    fl_engine engine;
    struct fl_segment *segment; /* of nodes, see recompute.h; NULL: there are
                                   none */
    int at_segment, stage;
    bool *needed;  /* nodes that run, by id */
    bool *wants;   /* variables that need a gradient, by id */
    bool *fetched; /* variables, by id */
    int *value;    /* of variables, -1: not yet */
    int *gradient; /* the same */
    fl_node_plan *node;
    fl_var_plan *var;
    struct fl_pending *pending; /* contributions to be added */
    size_t n_pending, pending_capacity;
};

/* For passes on the graph: does one node alone use the variable, which is not
 * fetched? Its producer may then make something else of it. */
bool fl_is_private(const fl_lowering *l, const fleet_var *v);

/* A new value like this one. */
int fl_value_like(fl_lowering *l, const fl_value *like);

/* n floats, one after the other: of the store, or PERSISTENT, at `pointer`. */
int fl_flat_value(fl_lowering *l, fl_value_kind kind, const char *name,
                  int64_t n, void *pointer);

/* The forward value of a variable. */
int fl_value_of(fl_lowering *l, const fleet_var *v);

/* Let a variable's value be another one's memory, in the variable's shape. */
void fl_value_view(fl_lowering *l, const fleet_var *v, int value);

/* Output i of a node as the plan has it (a fused activation's, perhaps). */
const fleet_var *fl_out(const fl_lowering *l, const fl_node *n, int i);

/* The gradient that a variable has got so far; -1: none. */
int fl_gradient_of(fl_lowering *l, const fleet_var *v);

/* Where a step is to store this node's contribution to a variable's gradient,
 * all of it; -1: it is not wanted. If the variable has one the sum is formed
 * afterwards, so that a kernel always finishes its own sum. */
int fl_gradient_to(fl_lowering *l, const fleet_var *v);
bool fl_gradient_wanted(const fl_lowering *l, const fleet_var *v);

/* The contribution is a view of a value that is not needed any more: `column`
 * elements from its start, with its row stride. */
void fl_gradient_view(fl_lowering *l, const fleet_var *v, int value,
                      int64_t column);

/* A value for a group's gradient; shared: in the memory that all ranks map and
 * reduce from, if the group has any. */
int fl_flat_gradient(fl_lowering *l, const fl_flat *g, const char *name,
                     bool shared);

/* The plan's fl_update_now: the scalars of an update. Made by the first pass
 * that asks. */
int fl_update_value(fl_lowering *l);

/* State i of the optimizer's rule, of a group's weights. */
int fl_state_value(fl_lowering *l, const fl_flat *g, int i);

/* n elements of a flat value, from the first on. */
int fl_stretch(fl_lowering *l, int value, const char *name, int64_t first,
               int64_t n);

/* Memory for between a node's own steps. */
int fl_temp(fl_lowering *l, const char *name, fleet_dtype dtype,
            const fl_shape *shape);

/* An object of the executor's, zeroed at its start. */
int fl_object(fl_lowering *l, const char *name, size_t size);

/* The same for a step of FL_PULL to write: one for each slot. */
int fl_object_per_slot(fl_lowering *l, const char *name, size_t size);

/* A copy for fl_step.config; NULL without memory, which is remembered. */
const void *fl_config(fl_lowering *l, const void *config, size_t size);

/* Add a step. Operands in the order the kernel knows them by; -1 is an absent
 * one and stays in place. */
void fl_emit(fl_lowering *l, const fl_kernel *kernel, const fl_node *node,
             const void *config, const fl_operand *operand, int n);

#define FL_R(value)                                                            \
    {                                                                          \
        (value), FL_READ                                                       \
    }
#define FL_W(value)                                                            \
    {                                                                          \
        (value), FL_WRITE                                                      \
    }
#define FL_RW(value)                                                           \
    {                                                                          \
        (value), FL_READ_WRITE                                                 \
    }
#define FL_EMIT(l, kernel, node, config, ...)                                  \
    fl_emit(l, kernel, node, config, (const fl_operand[]){__VA_ARGS__},        \
            (int)(sizeof((fl_operand[]){__VA_ARGS__}) / sizeof(fl_operand)))

/* Operands that are collected, for fl_emit(). */
typedef struct fl_operands {
    fl_operand *o;
    int n;
} fl_operands;

fleet_status fl_operands_begin(fl_lowering *l, fl_operands *all, int most);
void fl_operands_add(fl_operands *all, int value, fl_mode mode);

/* Which variables may be fetched: by var id; NULL: none. Where steps run, which
 * outlives the plan; NULL: all of them on the host. */
fleet_status fl_plan_build(const fleet_program *program, fl_store *store,
                           int64_t batch, bool training, const bool *fetched,
                           const fl_place *placing, fl_plan **plan);

/* The same for each member of a crew, all on the host. */
fleet_status fl_plan_build_for(const fl_crew_kind *crew,
                               const fleet_program *program, fl_store *store,
                               int64_t batch, bool training,
                               const bool *fetched, const fl_place *placing,
                               fl_plan **plan);
