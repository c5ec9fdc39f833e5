/* program.h - the inside of a program, and how builders add to it. */
#pragma once

#include "base/memory.h"
#include "base/map.h"
#include "runtime/device/context.h"
#include "runtime/graph/op.h"
#include "runtime/graph/place.h"
#include "runtime/graph/training.h"

struct fl_store;

struct fleet_program {
    fl_context *context;
    struct fl_store *store; /* where its parameters, tables and states live */
    fl_arena arena;
    fl_map names; /* of variables */
    fl_map stems; /* of names made up: how many of each */
    fleet_var **var;
    size_t n_var, var_capacity;
    fl_node **node;
    size_t n_node, node_capacity;
    fl_training training;
    fl_place place;
    fleet_place guard;          /* of nodes to come; 0: none */
    _Atomic bool sealed;        /* it has run */
    int next_stream;            /* of the next node */
    bool for_test;              /* a clone that is not trained */
    bool predicts;              /* a predictor's: ids without a row are fresh */
    fl_error error;             /* the first failure; code FLEET_OK: none */
    struct fl_stage_link *link; /* of a stage's program, to the next stage;
                                   NULL: it is no such program */
    fleet_program *stage;    /* of a program that a job trains in stages: what
                             this process trains of it; NULL: nothing that an
                             executor of its user would run */
    bool staged;             /* a job trains it in stages */
    int n_cut;               /* how many nodes it had then */
    void *owner;             /* the handle, for the facade */
    const char *output_name; /* of the next node's first output, when a saved
                                program is read; else NULL */
};

fleet_program *fl_program_create(fl_context *context, struct fl_store *store);
void fl_program_free(fleet_program *p);

/* Builders. Each returns NULL once the program has failed. */
fleet_var *fl_program_data(fleet_program *p, const char *name,
                           fleet_dtype dtype, const fl_shape *shape,
                           bool ragged);

/* Let a ragged variable of float32 be the weights of ragged ids. */
void fl_program_weigh(fleet_var *ids, fleet_var *weights);

/* A parameter "<prefix>.<suffix>", or attr->name. One of that name and
 * shape is shared, unless attr asks for something else than it has.
 * fallback is the initializer when attr has none. */
fleet_var *fl_program_param(fleet_program *p, const char *prefix,
                            const char *suffix, const fl_shape *shape,
                            const fleet_param_attr *attr,
                            fleet_initializer fallback);
fleet_var *fl_program_table(fleet_program *p, const char *name,
                            const fl_shape *shape, const fleet_param_attr *attr,
                            const fl_table_ids *ids,
                            fleet_initializer fallback);
fleet_status fl_table_ids_check(const char *name, const fl_shape *shape,
                                const fl_table_ids *ids);
fleet_var *fl_program_state(fleet_program *p, const char *prefix,
                            const char *suffix, fleet_dtype dtype,
                            const fl_shape *shape);
fleet_var *fl_program_state_named(fleet_program *p, const char *name,
                                  fleet_dtype dtype, const fl_shape *shape);

/* A node and its outputs; NULL, with the program failed, if infer refuses.
 * The first output is returned. An entry of in may be NULL if optional. */
fleet_var *fl_program_add(fleet_program *p, const fl_op *op,
                          fleet_var *const *in, int n_in, const fl_attr *attr,
                          int n_attr);

/* "<stem>_<n>" for a layer without a name; its n is `count` from now on. */
const char *fl_program_name(fleet_program *p, const char *stem);
fleet_status fl_program_count_names(fleet_program *p, const char *stem,
                                    int64_t count);

/* Remember the failure that is under way; returns NULL for the builder. */
void *fl_program_failed(fleet_program *p, fleet_status code);
bool fl_program_ok(const fleet_program *p);

/* Which nodes must run so that `wanted` variables exist: marks by node id. */
void fl_program_mark(const fleet_program *p, fleet_var *const *wanted, int n,
                     bool *marked);
/* Which nodes an iteration runs: what is fetched (by variable; NULL: nothing),
 * what the loss needs (NULL: none), and what counts in a state. */
void fl_program_mark_run(const fleet_program *p, const fleet_var *loss,
                         const bool *fetched, bool *marked);

/* Which variables want a gradient, of a program that trains: parameters and
 * tables that are trained, what is computed of these, and variables whose
 * gradient is kept. */
void fl_program_mark_trained(const fleet_program *p, bool *wants);

/* Does a marked node read it? */
bool fl_program_reads(const fleet_program *p, const bool *marked,
                      const fleet_var *v);
