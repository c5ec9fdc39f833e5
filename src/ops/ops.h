/* ops.h - the operators, by name. */
#pragma once

#include "runtime/plan/lower.h"

#define FL_OP(name) extern const fl_op fl_op_##name;
#include "ops/ops.def"
#undef FL_OP

/* The operator of that name; NULL: there is none. */
const fl_op *fl_op_find(const char *name);

/* One more, for good: FLEET_EEXIST, if there is one of that name; and one that
 * was registered so. Threads: any. */
fleet_status fl_register_op(const fl_op *op);
const fl_op *fl_find_registered_op(const char *name);

/* All of them; NULL ends the list. */
extern const fl_op *const fl_ops[];

/* --- what kernels have in common ----------------------------------------- */

/* One function as two kernels: by rows for what has a batch, else whole. */
typedef struct fl_kernel_pair {
    fl_kernel rows, whole;
} fl_kernel_pair;

#define FL_KERNEL_PAIR(title, function)                                        \
    {                                                                          \
        {.name = (title), .split = FL_SPLIT_ROWS, .run = (function)},          \
        {                                                                      \
            .name = (title), .split = FL_SPLIT_PARTS, .run = (function)        \
        }                                                                      \
    }

static inline const fl_kernel *fl_kernel_for(const fl_kernel_pair *p,
                                             const fleet_var *v)
{
    return fl_shape_batched(&v->shape) ? &p->rows : &p->whole;
}

/* sum <- parts: the sum of its rows, in their order. */
extern const fl_kernel fl_kernel_sum_parts;

/* Rows and elements of the range in an operand; all of a value without a
 * batch. */
static inline int64_t fl_range_rows(const fl_instance *in, int i,
                                    const fl_range *r)
{
    const fl_arg *a = &in->arg[i];

    return a->factor ? (r->end - r->begin) * a->factor : a->rows;
}

static inline int64_t fl_range_count(const fl_instance *in, int i,
                                     const fl_range *r)
{
    return fl_range_rows(in, i, r) * in->arg[i].cols;
}

/* --- what builders and infer() have in common ---------------------------- */

/* An input that may be absent: then NULL, of which the value and the gradient
 * are -1 (lower.h). */
static inline fleet_var *fl_input_of(const fl_node *n, int i)
{
    return i < n->n_in ? n->in[i] : NULL;
}

/* FLEET_EDTYPE, FLEET_ESHAPE with the op's name and both sides in the text. */
fleet_status fl_want_dtype(const fl_node *n, int in, fleet_dtype dtype);
fleet_status fl_want_shape(const fl_node *n, int in, const char *what);

/* The attribute "axis" is a dimension of the first input, from that one on;
 * else FLEET_EINVAL. */
fleet_status fl_want_axis(const fl_node *n, int least);

/* The input is ragged, and the attribute "max_len" how many of a sample's are
 * kept. */
fleet_status fl_want_sequence(const fl_node *n, int in);

/* A label [B, 1]: int64, or float32 as well. */
fleet_status fl_want_label(const fl_node *n, int in, bool float_too);

/* Of as many rows as the first input, which is a batch, too. */
fleet_status fl_want_rows(const fl_node *n, int in);

/* in[i] as [rows, cols]: what a matrix kernel sees. */
int64_t fl_in_cols(const fl_node *n, int i);

/* out[i] gets a shape; float32. */
void fl_set_out(const fl_node *n, int i, const fl_shape *shape);

/* For builders: false if the program has failed or an input is NULL, which is a
 * failure; a NULL program is FLEET_EINVAL of the thread. */
bool fl_builder_ready(fleet_program *p, const fleet_var *x);

/* The builder of an operator of one value, or two, whose arguments infer()
 * checks. */
fleet_var *fl_build_of_one(fleet_program *p, const fl_op *op, fleet_var *x,
                           const fl_attr *attr, int n_attr);
fleet_var *fl_build_of_two(fleet_program *p, const fl_op *op, fleet_var *x,
                           fleet_var *y, const fl_attr *attr, int n_attr);
