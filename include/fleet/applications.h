/* applications.h - models ready to train: wide&deep (Cheng et al. 2016),
 * ctr-dnn and DeepFM (Guo et al. 2017) in the shapes of PaddleRec, and a
 * multi-layer perceptron.
 *
 * A builder adds its data variables, layers and loss to the program. With
 * all-zero options it is PaddleRec's model for Criteo's display ads: label
 * "label", 13 numbers "dense_input", one id in each of the slots "1" .. "26".
 *
 * Names of what is trained, for fleet_param_set_ps() and fleet_program_var():
 * the tower's layers have "tower_0.w", "tower_0.b", "tower_1.w", ...,
 * "tower_out.w", "tower_out.b" (fleet_mlp() alike); tables are "embedding" or
 * what the slots say. wide_deep also has "wide.w", "wide.b" and, with wide_ids,
 * a table "<table>_wide" beside each; deepfm a table "<table>_first" beside
 * each, and the parameters "dense_first" and "dense_second".
 */
#ifndef FLEET_APPLICATIONS_H
#define FLEET_APPLICATIONS_H

#include <fleet/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A slot of numbers. */
typedef struct fleet_dense_slot {
    const char *name;
    int64_t dim;             /* 0: 1; -1: any number, which count as one */
    fleet_combiner combiner; /* of dim -1: how they become one */
} fleet_dense_slot;

/* A slot of ids. */
typedef struct fleet_id_slot {
    const char *name;
    int64_t dim;             /* ids per sample; -1: any number; 0: 1 */
    fleet_combiner combiner; /* of dim -1 */
    const char *table;       /* NULL: "embedding", shared by all such slots */
    int weighted;            /* nonzero, of dim -1: each id has a weight */
} fleet_id_slot;

typedef struct fleet_ctr_options {
    const char *label;       /* NULL: "label"; [B, 1] */
    fleet_dtype label_dtype; /* 0: int64 */
    const fleet_dense_slot *dense;
    int n_dense;
    const fleet_id_slot *ids; /* none: PaddleRec's 26; with no dense slots
                                 either also its numbers, unless no_dense */
    int n_ids;
    int no_dense;          /* nonzero: PaddleRec's ids without the numbers */
    int64_t embedding_dim; /* 0: 9 */
    const int64_t *hidden; /* units of the tower's layers; NULL: PaddleRec's
                              512-256-128-32, deepfm 400-400-400 */
    int n_hidden;
    int64_t rows; /* of each table: ids modulo this; 0: unbounded */
    int wide_ids; /* wide_deep: also one weight per id */

    /* of each table, as in fleet_sparse_embedding_options */
    int check_ids;
    fleet_fresh fresh;
    int64_t default_id;
    fleet_table_options life;
    int64_t memory_cap_bytes;
    const char *cold_folder;
    fleet_row_storage storage;

    const char *weight; /* a slot [B, 1] float32: of each sample in the loss,
                           see fleet_weighted_loss(). Predictions and metrics
                           do without. NULL: all have 1 */
} fleet_ctr_options;

typedef struct fleet_mlp_options {
    const char *input;     /* NULL: "image"; [B, dim] float32 */
    int64_t dim;           /* required */
    const char *label;     /* NULL: "label"; [B, 1] int64 */
    int64_t classes;       /* required, at least 2 */
    const int64_t *hidden; /* NULL: 128-64 */
    int n_hidden;
    fleet_activation activation; /* 0: relu */
    const char *weight;          /* as in fleet_ctr_options */
} fleet_mlp_options;

/* What a builder made. */
typedef struct fleet_model {
    fleet_var *label;
    fleet_var *prediction; /* [B, 1] probability of label 1; several classes
                              (ctr_dnn: 2): [B, classes] */
    fleet_var *loss;       /* [1], the mean: for fleet_minimize() */
} fleet_model;

/* Each returns model->loss, or NULL with the failure kept in the program. */

/* A linear layer on the numbers plus a tower on embeddings and numbers, summed,
 * sigmoid, log loss. */
FLEET_API fleet_var *fleet_wide_deep(fleet_program *program,
                                     const fleet_ctr_options *options,
                                     fleet_model *model);

/* A tower on embeddings and numbers, softmax of two classes. */
FLEET_API fleet_var *fleet_ctr_dnn(fleet_program *program,
                                   const fleet_ctr_options *options,
                                   fleet_model *model);

/* First order, factorization machine over all fields, and a tower; sigmoid, log
 * loss. A number is a field whose vector is learned and scaled by it. */
FLEET_API fleet_var *fleet_deepfm(fleet_program *program,
                                  const fleet_ctr_options *options,
                                  fleet_model *model);

/* Layers, softmax cross-entropy. */
FLEET_API fleet_var *fleet_mlp(fleet_program *program,
                               const fleet_mlp_options *options,
                               fleet_model *model);

#ifdef __cplusplus
}
#endif

#endif
