/* model_parts.h - what models are made of: inputs, towers, losses. */
#pragma once

#include <fleet/applications.h>

/* [-1, dim]; dim 0 is 1. */
fleet_var *fl_model_data(fleet_program *p, const char *name, fleet_dtype dtype,
                         int64_t dim);

/* The slot of samples' weights; NULL: of no name. */
fleet_var *fl_model_weight(fleet_program *p, const char *name);

/* A layer whose weights begin with a deviation of 1 / sqrt(inputs). */
fleet_var *fl_model_layer(fleet_program *p, fleet_var *x, const char *name,
                          int64_t units, fleet_activation activation);

/* The same on x [B, T, D]: each of the T places by itself. */
fleet_var *fl_model_place_layer(fleet_program *p, fleet_var *x,
                                const char *name, int64_t units,
                                fleet_activation activation);

/* Hidden layers "<name>_0", "<name>_1", ...; of none x itself. */
fleet_var *fl_model_hidden(fleet_program *p, fleet_var *x, const char *name,
                           const int64_t *hidden, int n_hidden,
                           fleet_activation activation);

/* Hidden layers, then "<name>_out" without activation. */
fleet_var *fl_model_tower(fleet_program *p, fleet_var *x, const char *name,
                          const int64_t *hidden, int n_hidden,
                          fleet_activation activation, int64_t out);

/* The mean of samples' losses, with weights if `weight` is not NULL. */
fleet_var *fl_model_loss(fleet_program *p, fleet_var *loss, fleet_var *weight);

/* Prediction and loss of m, of a logit [B, 1] or of logits of several classes;
 * its label is set. */
void fl_model_finish_binary(fleet_program *p, fleet_var *logit,
                            fleet_var *weight, fleet_model *m);
void fl_model_finish_classes(fleet_program *p, fleet_var *logits,
                             fleet_var *weight, fleet_model *m);
