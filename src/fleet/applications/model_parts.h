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

/* What samples count in a loss. */
typedef struct fl_loss_weights {
    fleet_var *sample;    /* each sample's weight; NULL: all have 1 */
    float pos_weight;     /* of the samples of label 1; 0: 1 */
    const float *classes; /* a weight for each class; NULL: all have 1 */
    int n_class;
} fl_loss_weights;

/* fleet_log_loss(), or the weighted one; pos_weight 0: 1. */
fleet_var *fl_model_log_loss(fleet_program *p, fleet_var *prediction,
                             fleet_var *label, float pos_weight);

/* Is there one for each class, or none? Else FLEET_EINVAL. */
fleet_status fl_model_check_classes(const char *model, const float *weights,
                                    int n, int64_t classes);

/* The mean of samples' losses, with weights if `weight` is not NULL. */
fleet_var *fl_model_loss(fleet_program *p, fleet_var *loss, fleet_var *weight);

/* Prediction and loss of m, of a logit [B, 1] or of logits of several classes;
 * its label is set. */
void fl_model_finish_binary(fleet_program *p, fleet_var *logit,
                            const fl_loss_weights *w, fleet_model *m);
void fl_model_finish_classes(fleet_program *p, fleet_var *logits,
                             const fl_loss_weights *w, fleet_model *m);
