/* ctr_internal.h - what click models make of their slots. */
#pragma once

#include "base/error.h"
#include "fleet/applications/ctr.h"
#include "fleet/applications/model_parts.h"
#include "runtime/graph/program.h"

enum { FL_PADDLE_DENSE = 13, FL_PADDLE_IDS = 26 };

/* Options with PaddleRec's choices filled in. */
struct fl_ctr {
    fleet_program *p;
    fleet_ctr_options o;
    fleet_dense_slot dense;
    fleet_id_slot ids[FL_PADDLE_IDS];
    char name[FL_PADDLE_IDS][12]; /* any int, or compilers see one cut off */
    int64_t dense_dim;            /* numbers of all dense slots */
    int64_t n_field;    /* ids of all id slots; a ragged one counts as one */
    fleet_var *numbers; /* [B, dense_dim], NULL: none */
    fleet_var **part;   /* per id slot */
    fl_loss_weights weights;
    fleet_var *log_q; /* NULL: none */
};

/* How the model's options say that a slot's table "<table><suffix>" is. */
fleet_sparse_embedding_options fl_ctr_table(fl_ctr *c, const fleet_id_slot *s,
                                            const char *suffix,
                                            fleet_initializer first);

/* The rows of an id slot, of table "<table><suffix>". */
fleet_var *fl_ctr_slot_rows(fl_ctr *c, int i, int64_t dim, const char *suffix,
                            fleet_initializer first);

/* Rows of all slots of a role side by side, [B, N]; `last`, if it is not NULL,
 * behind them. NULL: there is neither, or the program has failed. */
fleet_var *fl_ctr_rows_of(fl_ctr *c, fleet_slot_role role, int64_t dim,
                          const char *suffix, fleet_initializer first,
                          fleet_var *last);

/* The same of features. */
fleet_var *fl_ctr_rows(fl_ctr *c, int64_t dim, const char *suffix,
                       fleet_initializer first, fleet_var *last);

/* The same, then the numbers, each as a vector of the parameter of that name:
 * [B, fields dim]. */
fleet_var *fl_ctr_fields(fl_ctr *c, int64_t dim, const char *suffix,
                         const char *numbers, fleet_initializer first);
int64_t fl_ctr_n_field(const fl_ctr *c); /* a number is a field, too */

/* Rows of embedding_dim, then the numbers as they are. */
fleet_var *fl_ctr_input(fl_ctr *c);

/* Hidden layers "tower_0", ..., of the options, or these; the same, then
 * "tower_out" without activation. */
fleet_var *fl_ctr_hidden(fl_ctr *c, fleet_var *x, const int64_t *hidden,
                         int n_hidden);
fleet_var *fl_ctr_tower(fl_ctr *c, fleet_var *x, const int64_t *hidden,
                        int n_hidden, int64_t out);

/* Of factorization machines (fm.c): a weight of each id and number, summed; and
 * vectors of all fields, [B, fields dim]. */
fleet_var *fl_ctr_linear(fl_ctr *c);
fleet_var *fl_ctr_vectors(fl_ctr *c, int64_t dim);
