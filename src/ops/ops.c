/* ops.c - the table of operators, and what infer() and builders share. */
#include "ops/ops.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"

const fl_op *const fl_ops[] = {
#define FL_OP(name) &fl_op_##name,
#include "ops/ops.def"
#undef FL_OP
    NULL,
};

/* Operators of programs' own; the list only grows. */
typedef struct added {
    const fl_op *op;
    const struct added *next;
} added;

static _Atomic(const added *) first_added;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

const fl_op *fl_find_registered_op(const char *name)
{
    for (const added *a = first_added; a; a = a->next)
        if (strcmp(a->op->name, name) == 0)
            return a->op;
    return NULL;
}

const fl_op *fl_op_find(const char *name)
{
    for (int i = 0; fl_ops[i]; i++)
        if (strcmp(fl_ops[i]->name, name) == 0)
            return fl_ops[i];
    return fl_find_registered_op(name);
}

fleet_status fl_register_op(const fl_op *op)
{
    fleet_status status = FLEET_OK;
    added *a;

    FL_TRY(FL_NEW(&a, sizeof *a));
    pthread_mutex_lock(&adding);
    if (fl_op_find(op->name)) {
        status = fl_fail(FLEET_EEXIST, "there is an operator \"%s\" already",
                         op->name);
        fl_free(a);
    } else {
        *a = (added){op, first_added};
        first_added = a;
    }
    pthread_mutex_unlock(&adding);
    return status;
}

fleet_status fl_want_dtype(const fl_node *n, int in, fleet_dtype dtype)
{
    const fleet_var *v = n->in[in];

    if (v->dtype == dtype && !v->ragged && v->kind != FL_VAR_TABLE)
        return FLEET_OK;
    return fl_fail(FLEET_EDTYPE, "%s: \"%s\" is %s%s, not %s", n->op->name,
                   v->name,
                   v->ragged                 ? "ragged "
                   : v->kind == FL_VAR_TABLE ? "a table of "
                                             : "",
                   fleet_dtype_name(v->dtype), fleet_dtype_name(dtype));
}

fleet_status fl_want_shape(const fl_node *n, int in, const char *what)
{
    return fl_fail(FLEET_ESHAPE, "%s: \"%s\" has shape %s; expected %s",
                   n->op->name, n->in[in]->name,
                   fl_shape_print(&n->in[in]->shape).chars, what);
}

fleet_status fl_want_axis(const fl_node *n, int least)
{
    const fl_shape *x = &n->in[0]->shape;
    int64_t axis = fl_node_int(n, "axis");

    if (axis >= least && axis < x->n_dim)
        return FLEET_OK;
    return fl_fail(
        FLEET_EINVAL, "%s: axis %" PRId64 " of shape %s; expected %d to %d",
        n->op->name, axis, fl_shape_print(x).chars, least, x->n_dim - 1);
}

fleet_status fl_want_sequence(const fl_node *n, int in)
{
    enum { MOST = 1 << 16 };
    const fleet_var *v = n->in[in];
    int64_t most = fl_node_int(n, "max_len");

    if (!v->ragged)
        return fl_fail(FLEET_EDTYPE,
                       "%s: \"%s\" is %s of a fixed number, not "
                       "ragged",
                       n->op->name, v->name, fleet_dtype_name(v->dtype));
    if (most < 1 || most > MOST)
        return fl_fail(FLEET_EINVAL,
                       "%s: max_len %" PRId64 " of \"%s\"; expected 1 to %d",
                       n->op->name, most, v->name, MOST);
    return FLEET_OK;
}

fleet_status fl_want_label(const fl_node *n, int in, bool float_too)
{
    const fleet_var *v = n->in[in];

    if (v->ragged ||
        (v->dtype != FLEET_INT64 && !(float_too && v->dtype == FLEET_FLOAT32)))
        return fl_fail(FLEET_EDTYPE, "%s: label \"%s\" is %s%s, not int64%s",
                       n->op->name, v->name, v->ragged ? "ragged " : "",
                       fleet_dtype_name(v->dtype),
                       float_too ? " or float32" : "");
    if (!fl_shape_batched(&v->shape) || fl_shape_cols(&v->shape) != 1)
        return fl_want_shape(n, in, "[-1,1]");
    return FLEET_OK;
}

fleet_status fl_want_rows(const fl_node *n, int in)
{
    return n->in[in]->shape.dim[0] == n->in[0]->shape.dim[0]
               ? FLEET_OK
               : fl_want_shape(n, in, "as many rows as the input");
}

int64_t fl_in_cols(const fl_node *n, int i)
{
    return fl_shape_cols(&n->in[i]->shape);
}

void fl_set_out(const fl_node *n, int i, const fl_shape *shape)
{
    n->out[i]->dtype = FLEET_FLOAT32;
    n->out[i]->shape = *shape;
}

bool fl_builder_ready(fleet_program *p, const fleet_var *x)
{
    if (!p) {
        fl_fail(FLEET_EINVAL, "a layer needs a program, got NULL");
        return false;
    }
    if (!x && p->error.code == FLEET_OK)
        fl_program_failed(
            p, fl_fail(FLEET_EINVAL, "a layer was given NULL as its input"));
    return fl_program_ok(p);
}

fleet_var *fl_build_of_one(fleet_program *p, const fl_op *op, fleet_var *x,
                           const fl_attr *attr, int n_attr)
{
    return fl_builder_ready(p, x) ? fl_program_add(p, op, &x, 1, attr, n_attr)
                                  : NULL;
}

fleet_var *fl_build_of_two(fleet_program *p, const fl_op *op, fleet_var *x,
                           fleet_var *y, const fl_attr *attr, int n_attr)
{
    if (!fl_builder_ready(p, x) || !fl_builder_ready(p, y))
        return NULL;
    return fl_program_add(p, op, (fleet_var *[]){x, y}, 2, attr, n_attr);
}
