/* program.h - a program: the static graph that a model is described as, once.
 *
 * A program holds variables and the forward operators between them. The layers
 * of nn.h add to it; fleet_minimize() says what to train; executors and
 * datasets run it. What runs it first, or dumps its plan, makes it immutable:
 * later additions are refused with FLEET_ESTATE, which is not kept.
 *
 * Shapes have up to 8 dimensions, row-major. -1 stands only in first place: the
 * batch, whose size each feed sets.
 *
 * Errors are sticky, so a model reads like its formula and is checked once: a
 * builder given a NULL variable returns NULL and adds nothing (FLEET_EINVAL, if
 * nothing failed before), and the first failure stays in the program.
 * fleet_program_status() returns its code and makes its text the one that
 * fleet_last_error() gives.
 *
 * Ownership: what a builder returns belongs to the program and dies with it.
 * Strings and option structs are read during the call and never kept.
 *
 * Threads: one thread builds a program. Then it is read-only, and any number of
 * executors, each used by one thread at a time, may share it.
 */
#ifndef FLEET_PROGRAM_H
#define FLEET_PROGRAM_H

#include <fleet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fleet fleet;
typedef struct fleet_program fleet_program;
typedef struct fleet_var fleet_var;

enum { FLEET_MAX_DIM = 8 };

/* fleet_program_create - an empty program of the handle. NULL: no memory, or
 * a NULL handle. It dies with the handle if not destroyed before. */
FLEET_API fleet_program *fleet_program_create(fleet *fleet);

/* fleet_program_destroy - and all its variables; its executors must be gone.
 * NULL is fine. */
FLEET_API void fleet_program_destroy(fleet_program *program);

/* Where a program, or one of its operators, runs: on the CPU, or on GPU i as
 * CUDA counts the visible ones. 0: nothing is said, which is the CPU. */
typedef int fleet_place;
#define FLEET_CPU     (-1)
#define FLEET_GPU(i)  ((i) + 1)
#define FLEET_ANY_GPU (-2) /* of a guard alone: "gpu" */

/* All-zero fields are defaults. */
typedef struct fleet_place_options {
    int allow_cpu;   /* an operator without a kernel on the GPU runs on the CPU,
                        with one warning that names it; 0: it is an error */
    int strict_fp32; /* products in float32; 0: in TF32 */
    int no_graphs;   /* each kernel of a step is started by itself; 0: what
                        comes again is one launch of a CUDA graph */
} fleet_place_options;

/* fleet_program_place - run the program at the place: its operators, but for
 * operators under a guard, and the updates of what it trains. Rows of tables
 * that this process keeps for itself go to the place with their lookups; rows
 * of servers and of ranks stay on the CPU, and what they give and get is copied
 * (docs/gpu.md). A program uses one GPU; the programs of a handle that share
 * parameters use the same one. options may be NULL. Only processes that compute
 * call it: a server has no steps, and needs no GPU. Several ranks have a GPU
 * each: fleet_worker_gpu() (init.h) says which one a worker should take.
 *
 *   FLEET_ENODEVICE    with what is missing: the plug-in libfleet_cuda.so, a
 *                      driver, a GPU, that one, one that is newer
 *   FLEET_EUNSUPPORTED operators are guarded for another GPU
 *   FLEET_ESTATE       the program has run
 *   FLEET_EINVAL       no such place
 */
FLEET_API fleet_status fleet_program_place(fleet_program *program,
                                           fleet_place place,
                                           const fleet_place_options *options);

/* fleet_device_guard - what is added to the program from now on, operators and
 * the parameters, tables and states that are made for them, carries the device
 * (Fleet's device_guard()), which fleet_program_dump() shows; NULL: nothing is
 * said of what follows.
 *
 *   "cpu"    it runs on the CPU, wherever the program does
 *   "gpu"    on the GPU that the program uses (fleet_program_place(), "gpu:N"),
 *            or on the CPU if it uses none: so that a program with such guards
 *            runs on any machine
 *   "gpu:0"  on that GPU, wherever the program runs, which it opens
 *
 * Copies between the two are put in. Where devices change a program can be cut
 * into stages (FLEET_DUMP_STAGES, docs/heter.md).
 *
 *   FLEET_EINVAL  another word; else as fleet_program_place() */
FLEET_API fleet_status fleet_device_guard(fleet_program *program,
                                          const char *device);

/* fleet_device_guard_from - the same of operators that are there already: of
 * the one that computes the variable `var`, and of all that were added after
 * it. So a model of applications.h, which one call builds, gets a device from
 * one of its layers on. A parameter that an earlier operator reads keeps what
 * it has.
 *
 *   FLEET_ENOENT  the program has no variable of that name
 *   FLEET_EINVAL  it is not computed; or as fleet_device_guard() */
FLEET_API fleet_status fleet_device_guard_from(fleet_program *program,
                                               const char *var,
                                               const char *device);

/* fleet_place_parse - "cpu", "gpu:1"; FLEET_EINVAL for anything else. */
FLEET_API fleet_status fleet_place_parse(const char *device,
                                         fleet_place *place);

/* fleet_program_status - FLEET_OK, or the first failure while building. */
FLEET_API fleet_status fleet_program_status(const fleet_program *program);

/* fleet_program_dump - the program as text. `how` is one of
 *
 *   FLEET_DUMP_TEXT   variables and operators, a line each
 *   FLEET_DUMP_DOT    a Graphviz digraph
 *   FLEET_DUMP_PLAN   the steps of one iteration for batches of `batch`
 *                     samples: with backward and updates once fleet_minimize()
 *                     was called; regions, lanes, memory
 *   FLEET_DUMP_PLAN_DOT  the same as a Graphviz digraph
 *   FLEET_DUMP_JSON   all of the program: for fleet_program_from_json()
 *   FLEET_DUMP_STAGES how it is cut where its guards change the device, once
 *                     fleet_minimize() was called: for each stage its device,
 *                     operators and parameters, and what crosses to the next
 *                     one, with the bytes of a batch of `batch` samples
 *                     (docs/heter.md). NULL where it cannot be cut:
 *                     fleet_last_error() says by which operator
 *
 * Returns text for fleet_free(), or NULL: see fleet_last_error().
 */
typedef enum fleet_dump {
    FLEET_DUMP_TEXT,
    FLEET_DUMP_DOT,
    FLEET_DUMP_PLAN,
    FLEET_DUMP_PLAN_DOT,
    FLEET_DUMP_JSON,
    FLEET_DUMP_STAGES
} fleet_dump;

FLEET_API char *fleet_program_dump(fleet_program *program, fleet_dump how,
                                   int64_t batch);

/* fleet_program_from_json - the program that FLEET_DUMP_JSON wrote, as one of
 * this handle: variables, parameters with their attributes, tables with the
 * lives of their rows, operators, the numbers by which later layers get their
 * names. It dumps as the same text, and trains to the same bits, with the seed
 * of the handle that it was written from. Not in the text: weights, which are
 * in saves; the loss and the optimizer, so fleet_minimize() comes again; the
 * place (fleet_program_place()), though guards are. Operators of the user's own
 * have to be registered before. It may run, train and be added to as any other.
 * It dies with the handle if not destroyed before.
 *
 * NULL, see fleet_last_error(): FLEET_ECONFIG for what is no JSON, and with the
 * path of what is wrong, what was expected and what came; else as the builders
 * fail. */
FLEET_API fleet_program *fleet_program_from_json(fleet *fleet,
                                                 const char *json);

/* fleet_program_clone - a program of its own with the same variables, which go
 * by the same names (fleet_program_var()), the same operators and the same
 * place. It shares parameters, tables and the states of metrics with the first
 * one: what that trains is what this one computes with. With for_test nonzero
 * (Paddle's Program.clone(for_test=True)) dropout and batch_norm are as in
 * inference for good, losses and metrics are kept, and fleet_minimize() refuses
 * it (FLEET_ESTATE). With 0 it is as fleet_program_create()'s; that the first
 * one is trained is not taken over. NULL, see fleet_last_error(). */
FLEET_API fleet_program *fleet_program_clone(const fleet_program *program,
                                             int for_test);

/* fleet_program_prune - a clone, which is for tests if the program is one, of
 * what n variables of the program need: the operators that compute the targets,
 * and what these read (Paddle's Program._prune, and its normalize_program).
 * Random numbers of the operators that stay are the same: without its metrics a
 * program trains to the same bits.
 *
 * NULL, see fleet_last_error(): FLEET_EINVAL for no targets, or one that is
 * NULL, another program's, or not computed. */
FLEET_API fleet_program *fleet_program_prune(const fleet_program *program,
                                             fleet_var *const *targets, int n);

/* fleet_free - what libfleet handed out for the caller to free. */
FLEET_API void fleet_free(void *p);

/* fleet_program_var - the variable of that name, NULL if there is none. */
FLEET_API fleet_var *fleet_program_var(const fleet_program *program,
                                       const char *name);

FLEET_API const char *fleet_var_name(const fleet_var *var);
FLEET_API fleet_dtype fleet_var_dtype(const fleet_var *var);

/* fleet_var_shape - dimensions into dims[FLEET_MAX_DIM], unless that is NULL;
 * returns their number.
 * A ragged variable's are -1 and 1, however many values a sample has. */
FLEET_API int fleet_var_shape(const fleet_var *var, int64_t *dims);

/* fleet_var_is_ragged - nonzero for a variable with any number of values per
 * sample: those of fleet_data_ragged(), fleet_data_ragged_floats() and
 * fleet_data_weighted(). */
FLEET_API int fleet_var_is_ragged(const fleet_var *var);

/* fleet_var_weights - the weights of ids of fleet_data_weighted(), also in the
 * program of a predictor; NULL of any other variable. */
FLEET_API const fleet_var *fleet_var_weights(const fleet_var *var);

/* How a parameter, or an unknown row, starts. All of it is a function of the
 * handle's seed and the parameter's name (a row's: and its key), so that it
 * does not depend on order, threads or machines. All-zero is the layer's own
 * choice, which its documentation names. */
typedef enum fleet_initializer_kind {
    FLEET_INIT_DEFAULT,
    FLEET_INIT_CONSTANT,         /* a */
    FLEET_INIT_UNIFORM,          /* in [a, b) */
    FLEET_INIT_NORMAL,           /* mean a, deviation b */
    FLEET_INIT_TRUNCATED_NORMAL, /* the same, cut at a +- 2b */
    FLEET_INIT_XAVIER_UNIFORM,   /* Glorot and Bengio 2010: in +-sqrt(6 /
                                    (fan_in + fan_out)) */
    FLEET_INIT_XAVIER_NORMAL,    /* deviation sqrt(2 / (fan_in + fan_out)) */
    FLEET_INIT_KAIMING_UNIFORM,  /* He et al. 2015: in +-sqrt(6 / fan_in) */
    FLEET_INIT_KAIMING_NORMAL    /* deviation sqrt(2 / fan_in) */
} fleet_initializer_kind;

typedef struct fleet_initializer {
    fleet_initializer_kind kind;
    float a, b;
} fleet_initializer;

/* What keeps a parameter or a table in a hybrid job: a job with servers, whose
 * workers are ranks. In other jobs there is one answer for all, and another one
 * is refused by name; a job of one process warns. */
typedef enum fleet_ps {
    FLEET_PS_BY_MODE, /* tables are on the servers, dense parameters by ranks */
    FLEET_PS_SERVERS, /* pulled from servers and pushed to them */
    FLEET_PS_RANKS    /* dense: summed by the ranks; a table: shared out over
                         them */
} fleet_ps;

/* What can be said about a parameter. All-zero fields are defaults. */
typedef struct fleet_param_attr {
    const char *name; /* NULL: from the layer's name. A name that the program
                         has with the same shape is shared, not made anew;
                         the fields below then are defaults or those it has:
                         else FLEET_EEXIST */
    fleet_initializer initializer;
    float learning_rate; /* factor on the optimizer's; 0: 1 */
    float l2_decay;      /* in place of the optimizer's; 0: the optimizer's */
    int no_decay;        /* nonzero: none at all */
    int frozen;          /* nonzero: not trained */
    fleet_ps ps;         /* what keeps it in a hybrid job */
    float average; /* above 0, below 1: it is no weight, but a moving average of
                      what an operator gives as its gradient, as
                      fleet_batch_norm() does. An update makes it average x
                      itself + (1 - average) x the mean of that over batches
                      and workers; no optimizer's rule, rate, clip or decay
                      has a part in it. 0: it is trained */
} fleet_param_attr;

/* fleet_param_set_ps - say what keeps the parameter or table of that name, in
 * place of what was said when it was made. docs/collective.md. It is the
 * parameter's own name ("fc_0.w"), not that of its layer;
 * fleet_program_dump() lists all. Whether the job has such keepers is known
 * later: fleet_minimize() then gives FLEET_EUNSUPPORTED.
 *
 *   FLEET_ENOENT  the program has no such variable
 *   FLEET_EINVAL  it is no parameter and no table; ps is none of the three
 *   FLEET_ESTATE  the program is trained already (fleet_minimize()), or has run
 */
FLEET_API fleet_status fleet_param_set_ps(fleet_program *program,
                                          const char *name, fleet_ps ps);

#ifdef __cplusplus
}
#endif

#endif
