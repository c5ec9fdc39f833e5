/* applications.h - models ready to train, in the shapes of PaddleRec: click
 * models, models of several labels, and a multi-layer perceptron.
 * docs/models.md has them side by side: papers, shapes, names of parameters.
 *
 * A builder adds its data variables, layers and loss to the program. With
 * all-zero options a click model is PaddleRec's for Criteo's display ads: label
 * "label", 13 numbers "dense_input", one id in each of the slots "1" .. "26".
 *
 * Names of what is trained, for fleet_param_set_ps() and fleet_program_var():
 * the tower's layers have "tower_0.w", "tower_0.b", "tower_1.w", ...,
 * "tower_out.w", "tower_out.b" (fleet_mlp() alike); tables are "embedding" or
 * what the slots say, and where a model has a second one, it is beside each.
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

enum { FLEET_MOST_TASKS = 8 };

/* A label of several, and what its loss counts. */
typedef struct fleet_task_options {
    const char *label;       /* required; [B, 1] */
    fleet_dtype label_dtype; /* 0: int64 */
    float weight;            /* of its loss in the sum, above 0; 0: 1 */
} fleet_task_options;

typedef struct fleet_ctr_options {
    const char *label;       /* NULL: "label"; [B, 1] */
    fleet_dtype label_dtype; /* 0: int64 */
    const fleet_dense_slot *dense;
    int n_dense;
    const fleet_id_slot *ids; /* none: PaddleRec's 26; with no dense slots
                                 either also its numbers, unless no_dense */
    int n_ids;
    int no_dense;          /* nonzero: PaddleRec's ids without the numbers */
    int64_t embedding_dim; /* 0: the model's, mostly 9 */
    const int64_t *hidden; /* units of the tower's layers; NULL: PaddleRec's */
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

    /* Of single models, whose builders say which; with others FLEET_EINVAL. 0,
     * NULL: the model's default. */
    int64_t cross_layers;  /* 1 to 64 */
    int64_t low_rank;      /* of the cross layers' matrices; 0: whole */
    int64_t experts;       /* 1 to 64 */
    int parallel;          /* nonzero: the tower is beside the cross layers */
    const int64_t *bottom; /* units of layers in front */
    int n_bottom;
    int self_interaction; /* nonzero: dots of vectors with themselves, too */
    const int64_t *attention; /* units of the layers of attention */
    int n_attention;
    int64_t heads;      /* of each; 1 to 1024, divides their units */
    int no_residual;    /* nonzero: they do not add what they get */
    const int64_t *cin; /* rows of the layers of interactions */
    int n_cin;
    int64_t expert_units;            /* 1 to 4096, of each expert */
    int64_t shared_experts;          /* 1 to 64 */
    int64_t levels;                  /* 1 to 16 */
    const fleet_task_options *tasks; /* of models of several labels */
    int n_tasks;                     /* 2 to FLEET_MOST_TASKS */
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

/* What a builder made of a task. */
typedef struct fleet_task {
    fleet_var *label;
    fleet_var *prediction; /* [B, 1] probability of label 1 */
    fleet_var *loss;       /* [1], the mean, without the task's weight */
} fleet_task;

/* What a builder made. */
typedef struct fleet_model {
    fleet_var *label;      /* of several tasks: the first one's */
    fleet_var *prediction; /* [B, 1] probability of label 1, of several tasks
                              the first one's; several classes (ctr_dnn: 2):
                              [B, classes] */
    fleet_var *loss;       /* [1], the mean, of several tasks the sum of theirs
                              times their weights: for fleet_minimize() */
    int n_task;            /* 0: there are no others */
    fleet_task task[FLEET_MOST_TASKS]; /* the first n_task */
    fleet_var *conversion; /* esmm: [B, 1] probability of a conversion behind a
                              click; else NULL */
} fleet_model;

/* --- click models --------------------------------------------------------- */

/* Each returns model->loss, or NULL with the failure kept in the program.
 *
 * Sigmoid and log loss, unless said otherwise; "fields" are a vector of
 * embedding_dim for each id slot, and for each number one that is learned,
 * in parameter "dense_second", and scaled by it; "first order" is a weight
 * for each id (tables "<table>_first") and for each number ("dense_first"). */

/* First order and a number, "bias". */
FLEET_API fleet_var *fleet_logistic_regression(fleet_program *program,
                                               const fleet_ctr_options *options,
                                               fleet_model *model);

/* First order, fleet_fm_interaction() of the fields, "bias" (Rendle 2010). */
FLEET_API fleet_var *fleet_fm(fleet_program *program,
                              const fleet_ctr_options *options,
                              fleet_model *model);

/* The same by fleet_ffm_interaction() (Juan et al. 2016): a row has
 * embedding_dim numbers for each field. */
FLEET_API fleet_var *fleet_ffm(fleet_program *program,
                               const fleet_ctr_options *options,
                               fleet_model *model);

/* First order, and a tower, of 64, on fleet_bi_interaction() of the fields (He
 * and Chua 2017). */
FLEET_API fleet_var *fleet_nfm(fleet_program *program,
                               const fleet_ctr_options *options,
                               fleet_model *model);

/* A linear layer on the numbers, "wide", plus a tower of 512-256-128-32 on
 * embeddings and numbers (Cheng et al. 2016). With wide_ids also a weight for
 * each id, in tables "<table>_wide". */
FLEET_API fleet_var *fleet_wide_deep(fleet_program *program,
                                     const fleet_ctr_options *options,
                                     fleet_model *model);

/* A tower of 512-256-128-32 on embeddings and numbers, softmax of two
 * classes. */
FLEET_API fleet_var *fleet_ctr_dnn(fleet_program *program,
                                   const fleet_ctr_options *options,
                                   fleet_model *model);

/* First order, fleet_fm_interaction() of the fields, and a tower of
 * 400-400-400 on them (Guo et al. 2017). */
FLEET_API fleet_var *fleet_deepfm(fleet_program *program,
                                  const fleet_ctr_options *options,
                                  fleet_model *model);

/* First order, a tower of 400-400 on the fields, and a layer "cin_out" on
 * fleet_cin() of them, of `cin` rows, 200-200-200 (Lian et al. 2018). */
FLEET_API fleet_var *fleet_xdeepfm(fleet_program *program,
                                   const fleet_ctr_options *options,
                                   fleet_model *model);

/* fleet_cross_layer() "cross_0", ..., 2 of them or `cross_layers`, and beside
 * them hidden layers of 512-256-128, on embeddings and numbers; "tower_out" is
 * on both (Wang et al. 2017). */
FLEET_API fleet_var *fleet_dcn(fleet_program *program,
                               const fleet_ctr_options *options,
                               fleet_model *model);

/* fleet_cross_layer_v2(), with `low_rank` and `experts`, 2 of them or
 * `cross_layers`, on embeddings of 40 and a vector for each number, of a layer
 * "dense" on all; a tower of 768-768 on them, or beside them with `parallel`
 * (Wang et al. 2021). */
FLEET_API fleet_var *fleet_dcn_v2(fleet_program *program,
                                  const fleet_ctr_options *options,
                                  fleet_model *model);

/* Layers on the numbers, "bottom_0", ..., of `bottom` units, 512-256-64, and
 * "bottom_out" of embedding_dim, 16; fleet_pairwise_dot() of their vector and
 * those of all ids; a tower of 512-256 on vector and dots (Naumov et al. 2019).
 * Without numbers there are no layers on them. */
FLEET_API fleet_var *fleet_dlrm(fleet_program *program,
                                const fleet_ctr_options *options,
                                fleet_model *model);

/* fleet_multi_head_attention() "attention_0", ..., of `attention` units,
 * 64-64-64, and `heads`, 2, over the fields, of embedding_dim 16, with layers
 * "attention_<i>_residual" and normalization "attention_<i>_norm"; a layer
 * "attention_out" on the result, plus a tower of 400-400-400 on the fields,
 * unless there are 0 hidden layers (Song et al. 2019). */
FLEET_API fleet_var *fleet_autoint(fleet_program *program,
                                   const fleet_ctr_options *options,
                                   fleet_model *model);

/* --- models of several labels --------------------------------------------- */

/* A tower "task_<i>_0", ..., "task_<i>_out" for each of `tasks`, of 8, on
 * what the model makes of embeddings and numbers. `label` and `label_dtype`
 * are 0. */

/* The same for all tasks: layers "bottom_0", ..., of `bottom` units, 117
 * (Caruana 1997). */
FLEET_API fleet_var *fleet_share_bottom(fleet_program *program,
                                        const fleet_ctr_options *options,
                                        fleet_model *model);

/* `experts`, 8, of `expert_units`, 16, which are the columns of a layer
 * "experts", in the proportions of the softmax of each task's layer "gate_<i>"
 * (Ma et al. 2018, MMoE). */
FLEET_API fleet_var *fleet_mmoe(fleet_program *program,
                                const fleet_ctr_options *options,
                                fleet_model *model);

/* The same in `levels`, 1: each task has `experts`, 3, of its own,
 * "level_<k>_experts_<i>", and `shared_experts`, 2, "level_<k>_shared", in the
 * proportions of "level_<k>_gate_<i>"; what the next level's shared experts get
 * is mixed by "level_<k>_gate_shared" (Tang et al. 2020). */
FLEET_API fleet_var *fleet_ple(fleet_program *program,
                               const fleet_ctr_options *options,
                               fleet_model *model);

/* Two towers of 256-64 on embeddings of 12 and numbers: of a click, and of a
 * conversion behind it (Ma et al. 2018, ESMM). The first label is the click,
 * the second one the conversion, of all samples: its probability is the
 * product, and model->conversion the second factor. */
FLEET_API fleet_var *fleet_esmm(fleet_program *program,
                                const fleet_ctr_options *options,
                                fleet_model *model);

/* --- others --------------------------------------------------------------- */

/* Layers, softmax cross-entropy. */
FLEET_API fleet_var *fleet_mlp(fleet_program *program,
                               const fleet_mlp_options *options,
                               fleet_model *model);

#ifdef __cplusplus
}
#endif

#endif
