/* train_kit.h - made-up batches and two small models, for tests that train. */
#pragma once

#include <stdbool.h>

#include <fleet/fleet.h>

#include "runtime/store/table_api.h"

/* In [-1, 1), a function of its arguments alone. */
float kit_noise(int64_t i, int stream);

/* --- batches ------------------------------------------------------------- */

enum { KIT_MOST_FEEDS = 32 };

typedef struct kit_batch {
    int64_t rows;
    fleet_feed feed[KIT_MOST_FEEDS];
    int64_t dims[KIT_MOST_FEEDS][2];
    int n;
} kit_batch;

kit_batch *kit_batch_new(int64_t rows);
void kit_batch_free(kit_batch *b);

/* Feeds [rows, dim] of numbers, of ids in [0, below), of ragged ids with 0 to
 * `most` of them per row. What was made comes back, to be changed. */
float *kit_floats(kit_batch *b, const char *name, int64_t dim, int stream);
int64_t *kit_ids(kit_batch *b, const char *name, int64_t dim, int64_t below,
                 int stream);
int64_t *kit_ragged(kit_batch *b, const char *name, int most, int64_t below,
                    int stream);

/* Ragged numbers, 0 to `most` of them per row; weights for the feed of that
 * number, ragged as its ids are. */
float *kit_ragged_floats(kit_batch *b, const char *name, int most, int stream);
float *kit_weights(kit_batch *b, const char *name, int of, int stream);

/* Without the feeds that the program has no variable for. */
void kit_keep(kit_batch *b, const fleet_program *p);

/* The feeds for fleet_executor_run(); returns their number. */
int kit_feeds(const kit_batch *b, fleet_feed feed[KIT_MOST_FEEDS]);

/* The same batch with its first rows alone; it owns nothing. */
kit_batch kit_head(const kit_batch *b, int64_t rows);

/* --- models -------------------------------------------------------------- */

/* All-zero fields are defaults. */
typedef struct kit_options {
    int threads;           /* 0: 1 */
    const char *optimizer; /* a rule's name; NULL: adam */
    float learning_rate;   /* 0: 0.05 */
    float l2_decay, l1_decay, clip, value_clip, norm_clip;
    int merge; /* batches per update; 0: 1 */
    bool sum;  /* they are not averaged */
    bool bf16; /* by strategy.amp: begin such a test with kit_need_bf16(), if
                  it is of the CPU */
    bool fp16; /* the same, of float16: on a GPU */
    const fleet_amp_configs *scaling; /* then; NULL: Fleet's */
    const char *group;  /* own rule of parameters "tower_?.w"; NULL: none */
    const char *layers; /* lars, which makes it momentum, lamb; NULL: neither */
    float layer_decay, layer_coeff, layer_epsilon; /* 0: Fleet's; LAMB has a
                                                      decay alone */
    int64_t max_batch;
    uint64_t seed;             /* 0: 7 */
    const char *device;        /* of the program; NULL: nothing is said */
    const char *guard;         /* of the model's operators; NULL: none */
    bool unreached;            /* an MLP with a layer "unreached" that the loss
                                  does not depend on */
    bool normalized;           /* with a second loss, behind a batch_norm
                                  "norm" of the numbers */
    bool allow_cpu, no_graphs; /* of the place */
    const fleet_role *role;    /* NULL: as the environment says */
    void (*choose)(fleet_distributed_strategy *s); /* what else is in it */
    fl_rows_maker *make_rows; /* of tables; NULL: as they are */
} kit_options;

typedef enum kit_kind { KIT_MLP, KIT_CTR, KIT_POOLED, KIT_SEQUENCE } kit_kind;

typedef struct kit_model {
    kit_kind kind;
    fleet *f;
    fleet_program *p;
    fleet_optimizer *o;
    fleet_model m;
    fleet_executor *e; /* trains */
} kit_model;

/* An MLP of 20 numbers and 5 classes; a wide&deep with slots of one, of three
 * and of any number of ids, in two tables; one whose slots are pooled in every
 * way, with weights and without, of ids and of numbers; one of a history. */
void kit_open(kit_model *m, kit_kind kind, const kit_options *options);
void kit_build(kit_model *m, kit_kind kind,
               const kit_options *options); /* no executor yet */
void kit_close(kit_model *m);

/* A handle and an optimizer as the options say, for models of a test's own. */
fleet *kit_handle(const kit_options *options);
fleet_optimizer *kit_optimizer(fleet *f, const kit_options *options);

/* The optimizer of a rule by its name in rules.def, with default numbers, or
 * Adam whose rows have steps of their own. */
#define KIT_ROW_ADAM "adam row_steps"
fleet_optimizer *kit_rule(fleet *f, const char *name, float rate);
fleet_optimizer *kit_own_rule(fleet *f, const char *name, float rate);

/* Weights "tower_?.w" of the handle's first program become a group of o's,
 * whose rule, with other numbers than o's, is that one. */
void kit_group(fleet *f, fleet_optimizer *o, const char *rule);

/* All of these names, from 0 on; NULL: there are no more. */
const char *kit_rule_name(int i);

/* Where the options say that a program, and what is built next, is. */
void kit_place(fleet_program *p, const kit_options *options);

/* An input of numbers, or of ids, [-1, dim]. */
fleet_var *kit_data(fleet_program *p, const char *name, int64_t dim);
fleet_var *kit_data_ids(fleet_program *p, const char *name, int64_t dim);

/* fleet_distributed_optimizer() fails, with that status and such a text. */
void kit_refused(fleet *f, fleet_optimizer *o,
                 const fleet_distributed_strategy *s, fleet_status status,
                 const char *words);

/* Skip the test, with the reason, where products of bfloat16 are not there. */
void kit_need_bf16(void);

/* What a model is fed with. */
kit_batch *kit_batch_for(const kit_model *m, int64_t rows, int seed);

/* One iteration; with a fetch, or for the loss. */
fleet_status kit_run(fleet_executor *e, const kit_batch *b);
fleet_status kit_fetch(fleet_executor *e, const kit_batch *b,
                       const fleet_var *var, float *out, int64_t n);
float kit_step(fleet_executor *e, const kit_batch *b, const fleet_var *loss);

/* Train so many batches of that size; the parameters' hash. */
uint64_t kit_train(kit_model *m, int64_t rows, int batches);
uint64_t kit_hash(fleet *f);
