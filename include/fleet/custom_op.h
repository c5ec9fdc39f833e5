/* custom_op.h - operators of a program's own: a name, a function for the shapes
 * of its results, one that computes them, and one for gradients.
 *
 * A custom operator is registered once in a process, and is then an operator as
 * all others are: programs have it, plans and dumps, saves and predictors, on
 * servers, by ranks, with several threads. A program that is loaded needs its
 * operators registered before: FLEET_EUNSUPPORTED names the one that is not.
 * All processes of a job register the same ones; servers, which compute
 * nothing, need none.
 *
 * What it is given and gives are dense tensors, row-major. Results are float32.
 * Whoever computes with a batch, [-1, ...], is given its rows in parts: dims[0]
 * of a call's tensors is how many rows it has. Results must not depend on how a
 * batch is cut, unless the operator says `whole_batch`; then the bits of a
 * training do not depend on the number of threads, as for all operators.
 *
 * Threads: `shape` is called by the thread that builds or loads the program,
 * and again, for the same answer, by each thread of a predictor or executor
 * that makes a plan. `forward` and `backward` are called by the handle's
 * compute threads, and by the threads of predictors and of executors, for
 * different rows, with `whole_batch` one at a time for each executor. All may
 * be called several at a time, and must not call back into the handle, but for
 * fleet_custom_fail() and what reads attributes. `user` is theirs to share.
 */
#ifndef FLEET_CUSTOM_OP_H
#define FLEET_CUSTOM_OP_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FLEET_CUSTOM_MOST_IN = 8,
    FLEET_CUSTOM_MOST_OUT = 4,
    FLEET_CUSTOM_MOST_ATTR = 8
};

typedef struct fleet_custom_tensor {
    fleet_dtype dtype;
    int n_dim;
    int64_t dims[FLEET_MAX_DIM]; /* of a shape: dims[0] is -1 of a batch, -39
                                    where 39 rows are folded into a sample; of
                                    a call: its rows, of a batch those that the
                                    call has */
    void *data; /* of a shape NULL; of a call on a GPU in its memory */
} fleet_custom_tensor;

/* The attributes of a node, by the names that the operator lists. */
typedef struct fleet_custom_attrs fleet_custom_attrs;

/* fleet_custom_attr_int, fleet_custom_attr_float - an attribute's value; of a
 * name that is no such attribute, or of NULL, 0. */
FLEET_API int64_t fleet_custom_attr_int(const fleet_custom_attrs *attrs,
                                        const char *name);
FLEET_API double fleet_custom_attr_float(const fleet_custom_attrs *attrs,
                                         const char *name);

/* fleet_custom_fail - for `shape`, `forward` and `backward` to leave with: the
 * text becomes fleet_last_error() of whoever built or ran the program, behind
 * the operator's name. Returns status, or FLEET_EINVAL if that is FLEET_OK or
 * no status. text NULL: there is none. */
FLEET_API fleet_status fleet_custom_fail(fleet_status status, const char *text);

/* Shapes: `in` is what a node gets, `out` what it has to say. */
typedef struct fleet_custom_shape {
    void *user;
    const fleet_custom_attrs *attrs;
    int n_in, n_out;
    const fleet_custom_tensor *in;
    fleet_custom_tensor *out; /* n_dim and dims, for `shape` to set; at first
                                 those of in[0] */
    int64_t saved; /* for `shape` to set: floats for each row of out[0] that
                      forward() writes for backward(); at first 0 */
} fleet_custom_shape;

/* What is computed now. */
typedef struct fleet_custom_call {
    void *user;
    const fleet_custom_attrs *attrs;
    int n_in, n_out;
    const fleet_custom_tensor *in;
    const fleet_custom_tensor *out; /* forward(): to be written whole */
    float *saved; /* forward(): to be written, backward(): to be read: rows of
                     out[0] by `saved`; NULL without */

    /* backward(): gradients of the results, data NULL where none has come,
     * which is a gradient of zeros; and of the inputs, to be written whole,
     * data NULL where none is wanted. The gradient of an input without a batch
     * is that of the call's rows alone: the library adds up those of all calls,
     * in one order. */
    const fleet_custom_tensor *out_grad, *in_grad;

    int64_t first; /* the call's first sample */
    int64_t batch; /* samples of the batch */
    void *stream;  /* of CUDA: a cudaStream_t; else NULL */
} fleet_custom_call;

/* All-zero fields are defaults. */
typedef struct fleet_custom_op {
    const char *name; /* letters, digits and _, at most 63; no operator's of the
                         library */
    int n_in;         /* inputs, 1 to 8 */
    int n_out;        /* results, up to 4; 0: 1 */
    const char *attrs; /* "alpha:f width:i": a node's attributes, f a number
                          up to 1e300, i an integer of up to 53 bits; up to 8;
                          NULL: none */
    fleet_status (*shape)(fleet_custom_shape *shape); /* NULL: one result, as
                                                         in[0]. It checks types
                                                         and shapes, too */
    fleet_status (*forward)(const fleet_custom_call *call);
    fleet_status (*backward)(
        const fleet_custom_call *call); /* NULL: no gradient
                                                                passes */
    int whole_batch; /* nonzero: a call has all rows; results may then do
                        without a batch, and depend on several rows */

    /* The same on a GPU: they queue kernels on call->stream, and neither wait
     * nor allocate; a call has all rows, and in_grad of inputs without a batch
     * is of all of them. NULL: the operator runs on the CPU, and what it needs
     * is copied. */
    fleet_status (*cuda_forward)(const fleet_custom_call *call);
    fleet_status (*cuda_backward)(const fleet_custom_call *call);

    void *user; /* handed to each of them; it must outlive all programs */
} fleet_custom_op;

/* fleet_custom_op_register - from now on programs of this process may have it,
 * up to the process's end. It is copied, but for `user`.
 *
 *   FLEET_EEXIST  the name is an operator's, or is registered
 *   FLEET_EINVAL  what it has is no operator, named
 *   FLEET_ENOMEM
 *
 * Threads: any, at any time. */
FLEET_API fleet_status fleet_custom_op_register(const fleet_custom_op *op);

/* An attribute of a node; of type f `f`, of type i `i`. */
typedef struct fleet_custom_attr {
    const char *name;
    double f;
    int64_t i;
} fleet_custom_attr;

/* fleet_custom - a node of a registered operator. `in` has as many variables as
 * it takes, `attr` its attributes in any order; one that is left out is 0.
 * Returns the first result; `out`, unless it is NULL, gets all of them.
 *
 *   FLEET_ENOENT  no operator of that name is registered
 *   FLEET_EINVAL  other inputs or attributes than it has, named; or whatever
 *                 `shape` says */
FLEET_API fleet_var *fleet_custom(fleet_program *program, const char *name,
                                  fleet_var *const *in, int n_in,
                                  const fleet_custom_attr *attr, int n_attr,
                                  fleet_var **out);

/* fleet_check_gradient - does an operator's backward() fit its forward()? Both
 * are called on the CPU, once and many times, on `in` and without a program:
 * the gradient of a weighted sum of all results is compared with central
 * differences, for each element of the float32 inputs.
 *
 * in[i].dims[0] is -n of an input that is a batch, here of n rows, as many in
 * each of them (else FLEET_ESHAPE); data is not changed. A difference of more
 * than `tolerance` times the largest element of that input's gradient (0: 0.01,
 * for what single precision leaves of a difference) is FLEET_ENUMERIC, which
 * names input, element and both numbers; an operator without backward
 * FLEET_EUNSUPPORTED; else as fleet_custom(), and what forward() and backward()
 * return. */
FLEET_API fleet_status fleet_check_gradient(const char *name,
                                            const fleet_custom_tensor *in,
                                            int n_in,
                                            const fleet_custom_attr *attr,
                                            int n_attr, double tolerance);

#ifdef __cplusplus
}
#endif

#endif
