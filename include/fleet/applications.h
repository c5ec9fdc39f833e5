/* applications.h - models ready to train, in the shapes of PaddleRec: click
 * models, models of several labels and of sequences, and models of several
 * classes.
 * docs/models.md has them side by side: papers, shapes, names of parameters.
 *
 * A builder adds its data variables, layers and loss to the program. With
 * all-zero options a click model is PaddleRec's for Criteo's display ads: label
 * "label", 13 numbers "dense_input", one id in each of the slots "1" .. "26".
 *
 * Names of what is trained, for fleet_param_set_ps() and fleet_program_var():
 * the tower's layers have "tower_0.w", "tower_0.b", "tower_1.w", ...,
 * "tower_out.w", "tower_out.b" (fleet_mlp() and
 * fleet_lenet() alike); tables are "embedding" or
 * what the slots say, and where a model has a second one, it is beside each.
 */
#ifndef FLEET_APPLICATIONS_H
#define FLEET_APPLICATIONS_H

#include <fleet/conv.h>
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

/* What a slot of ids is to a model of sequences; other models have features
 * alone. */
typedef enum fleet_slot_role {
    FLEET_SLOT_FEATURE = 0, /* of the sample, or of its user */
    FLEET_SLOT_HISTORY = 1, /* what came before, the newest last; dim -1 */
    FLEET_SLOT_ITEM = 2,    /* what is scored; dim 1 */
    FLEET_SLOT_NEGATIVE = 3 /* what was not chosen */
} fleet_slot_role;

/* A slot of ids. */
typedef struct fleet_id_slot {
    const char *name;
    int64_t dim;             /* ids per sample; -1: any number; 0: 1 */
    fleet_combiner combiner; /* of dim -1 */
    const char *table;       /* NULL: "embedding", shared by all such slots */
    int weighted;            /* nonzero, of dim -1: each id has a weight */
    fleet_slot_role role;
} fleet_id_slot;

enum { FLEET_MOST_TASKS = 8 };

/* A label of several, and what its loss counts. */
typedef struct fleet_task_options {
    const char *label;       /* required; [B, 1] */
    fleet_dtype label_dtype; /* 0: int64 */
    float weight;            /* of its loss in the sum, above 0; 0: 1 */
    float pos_weight;        /* as in fleet_ctr_options */
} fleet_task_options;

typedef struct fleet_ctr_options {
    const char *label;       /* NULL: "label"; [B, 1] */
    fleet_dtype label_dtype; /* 0: int64 */
    int no_label; /* nonzero: each sample is a pair; of models of retrieval */
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
    int64_t blocks;                  /* of a Transformer; 1 to 64 */
    int64_t ffn_units;               /* of their inner layers; 1 to 1048576 */
    int normalize;     /* nonzero: vectors are divided by their lengths */
    float temperature; /* that dots are divided by; 1e-6 to 1e6; 0: 1 */
    const char *log_q; /* a slot [B, 1] float32: the logarithm of the item's
                          share of the samples, see fleet_in_batch_options.
                          NULL: nothing is corrected */
    int64_t max_len;   /* of a history, whose last so many ids count; 1 to
                        65,536 */
    float pos_weight;  /* of samples of label 1 in the loss, see
                          fleet_weighted_log_loss(); 1e-6 to 1e6; of models of
                          one label and probability */
    const float *class_weights; /* of ctr_dnn: of samples of each of its two
                                   classes, see fleet_weighted_mean() */
    int n_class_weights;
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
    const float *class_weights;  /* NULL, or one for each class, see
                                    fleet_weighted_mean() */
    int n_class_weights;
} fleet_mlp_options;

/* Of images, rows of channels x height x width numbers. */
typedef struct fleet_lenet_options {
    const char *input;               /* NULL: "image" */
    int64_t channels, height, width; /* 0: 1, 28, 28 */
    const char *label;               /* NULL: "label"; [B, 1] int64 */
    int64_t classes;                 /* at least 2; 0: 10 */
    const int64_t *hidden;           /* NULL: 120-84 */
    int n_hidden;
    fleet_activation activation; /* 0: relu */
    const char *weight;          /* as in fleet_ctr_options */
    const float *class_weights;  /* as in fleet_mlp_options */
    int n_class_weights;
} fleet_lenet_options;

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
    fleet_var *conversion;  /* esmm: [B, 1] probability of a conversion behind a
                              click; else NULL */
    fleet_var *user, *item; /* of models of retrieval and of sasrec: vectors
                               [B, N], of which the prediction is a function of
                               the dot; else NULL */
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

/* --- models of sequences -------------------------------------------------- */

/* What a user did before, in slots of role FLEET_SLOT_HISTORY, beside what is
 * scored now, in slots of role FLEET_SLOT_ITEM: as many, in the same order, one
 * for each thing that is known of an item (the item, its category). A history
 * and its item name the same table. Each place of a history is a vector of
 * embedding_dim numbers for each such slot, and so is the item; of a sample the
 * histories are equally long, and the first one says how long. Slots of
 * features, and numbers, come beside them. max_len is 50, and without slots
 * there are PaddleRec's: "hist_item_seq", "hist_cat_seq", "target_item",
 * "target_cat", of tables "item_emb" and "cat_emb".
 *
 * With slots of role FLEET_SLOT_NEGATIVE, as many as histories, dim -1, whose
 * ids are as many as the history's, some models learn each place, too: what it
 * says of the history's next id, and of the one that is there in the negatives.
 * The mean over a sample's places of the log losses of both dots is added to
 * its loss. */

/* Layers "attention_0", ..., "attention_out" of `attention` units, 80-40, relu,
 * score each place beside the item; the mean of the places, weighted by the
 * softmax of their scores over sqrt(N), goes through a layer "history" of N
 * units; a tower of 80-40 on it, the item, features and numbers, plus a weight
 * for each item (table "<table>_bias", of the first slot); embedding_dim is 64
 * (Zhou et al. 2018, Deep Interest Network). */
FLEET_API fleet_var *fleet_din(fleet_program *program,
                               const fleet_ctr_options *options,
                               fleet_model *model);

/* A Transformer over the history and the item behind it, of `blocks`, 1: a
 * vector of the place, of parameter "position", is added, then in each block
 * fleet_multi_head_attention() "block_<i>" of `heads`, 6, and layers
 * "block_<i>_ffn_0", leaky relu, of `ffn_units`, 512, and "block_<i>_ffn_1",
 * each with what it got added, and normalized: "block_<i>_norm_0", "..._1". A
 * tower of 1024-512-256, leaky relu, on what comes out at the item's place,
 * features and numbers; embedding_dim is 96, and a user's slot, "userid", comes
 * beside PaddleRec's (Chen et al. 2019, Behavior Sequence Transformer). */
FLEET_API fleet_var *fleet_bst(fleet_program *program,
                               const fleet_ctr_options *options,
                               fleet_model *model);

/* Causal self-attention over the history, in `blocks`, 2, of `heads`, 1: rows
 * times sqrt(N) plus "position"; in a block n = "block_<i>_norm_0" of it, a
 * query each, fleet_multi_head_attention() "block_<i>" of n and the rows, plus
 * n, and of that, normalized by "block_<i>_norm_1", f + layers
 * "block_<i>_ffn_0", relu, of `ffn_units`, N, and "block_<i>_ffn_1" of f. The
 * dot of the last place, normalized by "norm", and the item is the logit;
 * embedding_dim is 50 (Kang and McAuley 2018, SASRec). It has no features; with
 * negatives it is the paper's. */
FLEET_API fleet_var *fleet_sasrec(fleet_program *program,
                                  const fleet_ctr_options *options,
                                  fleet_model *model);

/* DIN with interests in place of items: fleet_gru() "gru" over the history,
 * layers "attention_0", ... of its states beside the item, and fleet_gru()
 * "augru" over the states, whose updates are weighted by the softmax of their
 * scores; its last state goes to a tower as din's. Of N units both; with
 * negatives the first one learns each place; embedding_dim is 64 (Zhou et al.
 * 2019, Deep Interest Evolution Network). */
FLEET_API fleet_var *fleet_dien(fleet_program *program,
                                const fleet_ctr_options *options,
                                fleet_model *model);

/* --- models of retrieval -------------------------------------------------- */

/* A vector of a user, or of what a user asks for, and one of the item, so that
 * the items of a large catalogue can be looked for by their dots: model->user
 * and model->item. Samples are pairs; the loss is
 * fleet_in_batch_softmax() of the items of a batch, by the item's id (that of
 * the first slot of role FLEET_SLOT_ITEM, if it has one), with log_q and
 * temperature. There are as many negatives as a batch has samples. A sample
 * counts what its label says: one of label 0 is no pair, but its item is among
 * the negatives. With no_label all are pairs, there is no label, and
 * fleet_evaluate() refuses. The prediction is the sigmoid of the dot over the
 * temperature. */

/* Layers "user_0", ..., "user_out" on features and numbers, and "item_0", ...,
 * "item_out" on slots of role FLEET_SLOT_ITEM, of `hidden` units, 300-300-128,
 * relu but for the last; with `normalize` the dot is a cosine; embedding_dim is
 * 64 (Huang et al. 2013, DSSM; Yi et al. 2019). */
FLEET_API fleet_var *fleet_two_tower(fleet_program *program,
                                     const fleet_ctr_options *options,
                                     fleet_model *model);

/* Layers "tower_0", ..., relu, of `hidden` units, 128-64-32, on features, what
 * was watched among them, pooled by its combiner, and numbers; the item is a
 * row of as many numbers, of table "<table>_out"; embedding_dim is 64
 * (Covington et al. 2016, YouTube). One slot of items. */
FLEET_API fleet_var *fleet_youtube_dnn(fleet_program *program,
                                       const fleet_ctr_options *options,
                                       fleet_model *model);

/* fleet_gru() "gru" over the history, of N units; its last state is the vector,
 * and the item's its rows. Histories, items and negatives are those of models
 * of sequences, without features; embedding_dim is 100 (Hidasi et al. 2016,
 * GRU4Rec). */
FLEET_API fleet_var *fleet_gru4rec(fleet_program *program,
                                   const fleet_ctr_options *options,
                                   fleet_model *model);

/* Skip-gram with negative samples: the slot of features is a word, the item one
 * beside it, the negatives, of dim n, words that were drawn. The word's vector
 * is a row, that of the others a row of "<table>_out", with a bias in
 * "<table>_bias", which begin with 0; the loss is the log loss of the item
 * being likely, and each negative unlikely. A label 0 says that the item was
 * drawn, too; beside negatives it may be left out (no_label). With a feature of
 * dim -1 the word is the mean, or sum, of several: CBOW. embedding_dim is 300
 * (Mikolov et al. 2013). */
FLEET_API fleet_var *fleet_word2vec(fleet_program *program,
                                    const fleet_ctr_options *options,
                                    fleet_model *model);

/* --- others --------------------------------------------------------------- */

/* fleet_calibrate - predictions [-1, 1], or [-1, 2] of two classes, of a model
 * that was trained on all positive samples and on this share of the negative
 * ones (fleet_dataset_options.negative_rate), as they are of all samples: p
 * becomes p / (p + (1 - p) / rate) (He et al. 2014, section 6.3). For
 * evaluations and inference models; losses and AUCs need the others no less.
 *
 *   FLEET_EINVAL   rate is not above 0, at most 1
 *   FLEET_ESHAPE   other predictions */
FLEET_API fleet_var *fleet_calibrate(fleet_program *program,
                                     fleet_var *prediction, float rate);

/* Layers, softmax cross-entropy. */
FLEET_API fleet_var *fleet_mlp(fleet_program *program,
                               const fleet_mlp_options *options,
                               fleet_model *model);

/* LeNet-5 (LeCun et al. 1998) as it is built today: fleet_conv2d() "conv_0" of
 * 6 filters of 5 x 5 with padding 2, "conv_1" of 16 of 5 x 5, each with an
 * activation and the largest of 2 x 2 behind it; then layers "tower_0", ...,
 * "tower_out"; softmax cross-entropy. options may be NULL. */
FLEET_API fleet_var *fleet_lenet(fleet_program *program,
                                 const fleet_lenet_options *options,
                                 fleet_model *model);

#ifdef __cplusplus
}
#endif

#endif
