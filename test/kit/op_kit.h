/* op_kit.h - one check for every operator: forward against a plain reference in
 * double, every gradient against central differences of that reference, for
 * several batch sizes, with one thread and with several.
 */
#pragma once

#include <stdbool.h>

#include <fleet/fleet.h>

enum { KIT_MAX_IN = 4, KIT_MAX_DIM = 4 };

/* An array of doubles with a shape; dim[0] is the batch where batched. */
typedef struct ref_tensor {
    int n_dim;
    int64_t dim[KIT_MAX_DIM];
    double *data;
    int64_t count;
} ref_tensor;

/* out comes with its shape and room for its elements. */
typedef void reference(const ref_tensor *const *in, ref_tensor *out);

typedef struct kit_input {
    int64_t dims[KIT_MAX_DIM]; /* as fleet_data() takes them */
    int n_dim;
    bool is_param; /* no batch */
    bool is_ids;   /* int64 in [0, high), no gradient */
    double low, high;
} kit_input;

typedef struct op_case {
    const char *op;    /* its name in ops.def */
    const char *title; /* what is special about this case */
    kit_input in[KIT_MAX_IN];
    int n_in;
    fleet_var *(*build)(fleet_program *p, fleet_var **in);
    reference *ref;
    double tolerance; /* 0: 2e-5, relative to the largest element */
    bool no_gradient;
    bool bf16; /* trained with strategy.amp; inputs and coefficients are of
                  bfloat16 already */
} op_case;

extern const op_case op_cases[]; /* title NULL ends them */
extern const op_case math_cases[], shape_cases[], norm_cases[], loss_cases[],
    batch_norm_cases[], interaction_cases[];
extern const op_case sequence_cases[], conv_cases[];
extern const op_case *const op_families[]; /* all of these; NULL ends them */

void check_case(const op_case *c, int64_t batch, int threads);
void check_cases(const op_case *c, int64_t batch, int threads);

/* Let `visit` see an executor of the case that has run a batch. */
void visit_case(const op_case *c, int64_t batch,
                void (*visit)(void *arg, fleet_executor *e), void *arg);

/* A case whose program is built and has run a batch, with what was fed. */
typedef struct case_view {
    fleet *f;
    fleet_var *const *in; /* of the case */
    fleet_var *out;
    const fleet_feed *feed; /* of in's data, n_feed of them */
    int n_feed;
} case_view;

void view_case(const op_case *c, int64_t batch,
               void (*view)(void *arg, const case_view *v), void *arg);

/* What a builder refuses with that status and such words. in[0] is "x", [B, 4];
 * from in[1] on is what `more`, unless it is NULL, makes for each. */
typedef struct op_refusal {
    fleet_var *(*build)(fleet_program *p, fleet_var **in);
    fleet_status status;
    const char *words;
} op_refusal;

void check_refusals(const op_refusal *r, size_t n,
                    void (*more)(fleet_program *p, fleet_var **in));
