/* custom.c - operators that programs register: their list, and their nodes. */
#include "ops/custom/custom.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ops/custom/custom_kernels.h"
#include "runtime/graph/program.h"

/* --- what a function of the user's says ----------------------------------- */

static bool is_status(fleet_status status)
{
    return strcmp(fleet_status_name(status), "FLEET_?") != 0;
}

fleet_status fleet_custom_fail(fleet_status status, const char *text)
{
    return fl_fail(status == FLEET_OK || !is_status(status) ? FLEET_EINVAL
                                                            : status,
                   "%s", text ? text : "it gives no reason");
}

fleet_status fl_custom_said(const fl_custom *c, const char *function,
                            fleet_status status)
{
    if (status == FLEET_OK)
        return FLEET_OK;
    if (!is_status(status))
        return fl_fail(FLEET_EINVAL, "%s: %s() returned %d, which is no status",
                       c->spec.name, function, (int)status);
    if (fleet_last_status() != status)
        return fl_fail(status, "%s: %s() returned %s", c->spec.name, function,
                       fleet_status_name(status));
    return fl_fail_in(status, "%s: %s()", c->spec.name, function);
}

static const fl_attr *find_attr(const fleet_custom_attrs *attrs,
                                const char *name)
{
    for (int i = 0; attrs && name && i < attrs->n; i++)
        if (strcmp(attrs->attr[i].name, name) == 0)
            return &attrs->attr[i];
    return NULL;
}

int64_t fleet_custom_attr_int(const fleet_custom_attrs *attrs, const char *name)
{
    const fl_attr *a = find_attr(attrs, name);

    return a && a->type == FL_INT ? a->i : 0;
}

double fleet_custom_attr_float(const fleet_custom_attrs *attrs,
                               const char *name)
{
    const fl_attr *a = find_attr(attrs, name);

    return a && a->type == FL_FLOAT ? a->f : 0;
}

/* --- shapes --------------------------------------------------------------- */

fleet_custom_tensor fl_custom_tensor_of(const fleet_var *v)
{
    fleet_custom_tensor t = {.dtype = v->dtype, .n_dim = v->shape.n_dim};

    memcpy(t.dims, v->shape.dim, (size_t)t.n_dim * sizeof *t.dims);
    return t;
}

fleet_status fl_custom_shape(const fl_custom *c, const fl_attr *attr,
                             int n_attr, const fleet_custom_tensor *in,
                             fleet_custom_tensor *out, int64_t *saved)
{
    const fleet_custom_attrs attrs = {attr, n_attr};
    fleet_custom_shape s = {.user = c->spec.user,
                            .attrs = &attrs,
                            .n_in = c->spec.n_in,
                            .n_out = c->spec.n_out,
                            .in = in,
                            .out = out};

    for (int i = 0; i < c->spec.n_out; i++) {
        out[i] = in[0];
        out[i].dtype = FLEET_FLOAT32;
        out[i].data = NULL;
    }
    fl_error_clear();
    if (c->spec.shape)
        FL_TRY(fl_custom_said(c, "shape", c->spec.shape(&s)));
    *saved = s.saved;
    return s.saved >= 0 && s.saved < FL_MOST_DIM
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "%s: shape() wants %lld floats of a row saved",
                         c->spec.name, (long long)s.saved);
}

/* The rows that a batch has for each sample, negative; 0: there is no batch. */
static int64_t batch_of(const fl_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (fl_shape_batched(&n->in[i]->shape))
            return n->in[i]->shape.dim[0];
    return 0;
}

bool fl_custom_is_whole(const fl_node *n)
{
    return fl_custom_of(n)->spec.whole_batch || batch_of(n) == 0;
}

static fleet_status check_inputs(const fl_node *n)
{
    int64_t batch = batch_of(n);

    for (int i = 0; i < n->n_in; i++) {
        const fleet_var *v = n->in[i];

        if (!v)
            return fl_fail(FLEET_EINVAL, "%s: input %d is absent", n->op->name,
                           i);
        if (v->dtype != FLEET_INT64)
            FL_TRY(fl_want_dtype(n, i, FLEET_FLOAT32));
        else
            FL_TRY(fl_want_dtype(n, i, FLEET_INT64));
        if (!fl_custom_is_whole(n) && fl_shape_batched(&v->shape) &&
            v->shape.dim[0] != batch)
            return fl_fail(FLEET_ESHAPE,
                           "%s: \"%s\" %s has not as many rows as the other "
                           "inputs",
                           n->op->name, v->name,
                           fl_shape_print(&v->shape).chars);
    }
    return FLEET_OK;
}

static fleet_status check_out(const fl_node *n, int i,
                              const fleet_custom_tensor *t)
{
    int64_t batch = batch_of(n);
    fl_shape shape;

    if (t->n_dim < 1 || t->n_dim > FLEET_MAX_DIM)
        return fl_fail(FLEET_ESHAPE,
                       "%s: shape() gives result %d %d dimensions", n->op->name,
                       i, t->n_dim);
    shape = fl_shape_make(t->dims, t->n_dim);
    if (shape.dim[0] < 0 ? shape.dim[0] != batch : !fl_custom_is_whole(n))
        return fl_fail(FLEET_ESHAPE,
                       "%s: shape() gives result %d %s, of %lld rows a sample; "
                       "expected %lld",
                       n->op->name, i, fl_shape_print(&shape).chars,
                       shape.dim[0] < 0 ? (long long)-shape.dim[0] : 0,
                       (long long)-batch);
    FL_TRY(fl_shape_check_result(n->op->name, &shape));
    fl_set_out(n, i, &shape);
    return FLEET_OK;
}

static fleet_status infer(fl_node *n)
{
    const fl_custom *c = fl_custom_of(n);
    fleet_custom_tensor in[FLEET_CUSTOM_MOST_IN], out[FLEET_CUSTOM_MOST_OUT];
    int64_t saved;
    fl_shape rows;

    FL_TRY(check_inputs(n));
    for (int i = 0; i < n->n_in; i++)
        in[i] = fl_custom_tensor_of(n->in[i]);
    FL_TRY(fl_custom_shape(c, n->attr, n->n_attr, in, out, &saved));
    for (int i = 0; i < c->spec.n_out; i++)
        FL_TRY(check_out(n, i, &out[i]));
    if (saved == 0)
        return FLEET_OK;
    rows = fl_shape_2(n->out[0]->shape.dim[0], saved);
    return fl_shape_check_result(n->op->name, &rows);
}

/* --- registered ----------------------------------------------------------- */

static bool is_name(const char *name, size_t n)
{
    enum { MOST = 63 };

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return n > 0 && n <= MOST;
}

/* "name:f name:i", as fl_op.attrs. */
static bool are_attrs(const char *list)
{
    int n = 0;

    while (list && *list) {
        size_t length = strcspn(list, ":");

        if (!is_name(list, length) || list[length] != ':' ||
            (list[length + 1] != 'f' && list[length + 1] != 'i') ||
            ++n > FLEET_CUSTOM_MOST_ATTR)
            return false;
        list += length + 2;
        if (*list && *list++ != ' ')
            return false;
    }
    return true;
}

static fleet_status check(const fleet_custom_op *op)
{
    if (!op || !op->name || !is_name(op->name, strlen(op->name)))
        return fl_fail(FLEET_EINVAL,
                       "fleet_custom_op_register: name \"%.80s\"; expected "
                       "letters, digits and _, at most 63",
                       op && op->name ? op->name : "(null)");
    if (op->n_in < 1 || op->n_in > FLEET_CUSTOM_MOST_IN || op->n_out < 0 ||
        op->n_out > FLEET_CUSTOM_MOST_OUT)
        return fl_fail(FLEET_EINVAL,
                       "fleet_custom_op_register: %s has %d inputs and %d "
                       "results; expected 1 to %d and up to %d",
                       op->name, op->n_in, op->n_out, (int)FLEET_CUSTOM_MOST_IN,
                       (int)FLEET_CUSTOM_MOST_OUT);
    if (!are_attrs(op->attrs))
        return fl_fail(FLEET_EINVAL,
                       "fleet_custom_op_register: %s: attributes \"%s\"; "
                       "expected up to %d such as \"alpha:f width:i\"",
                       op->name, op->attrs, (int)FLEET_CUSTOM_MOST_ATTR);
    if (!op->forward)
        return fl_fail(FLEET_EINVAL,
                       "fleet_custom_op_register: %s has no forward", op->name);
    if ((op->cuda_backward && !op->backward) ||
        (op->cuda_forward && op->backward && !op->cuda_backward) ||
        (op->cuda_backward && !op->cuda_forward))
        return fl_fail(FLEET_EINVAL,
                       "fleet_custom_op_register: %s: what it has on CPUs it "
                       "has on GPUs, or nothing",
                       op->name);
    return FLEET_OK;
}

static void free_custom(fl_custom *c)
{
    fl_free(c->name);
    fl_free(c->attrs);
    fl_free(c->grad);
    fl_free(c);
}

/* Two texts as one. */
static char *join(const char *text, const char *more)
{
    size_t size = strlen(text) + strlen(more) + 1;
    char *all = fl_alloc(size);

    if (all)
        snprintf(all, size, "%s%s", text, more);
    return all;
}

static fleet_status fill(fl_custom *c, const fleet_custom_op *op)
{
    c->name = join(op->name, "");
    c->attrs = join(op->attrs ? op->attrs : "", "");
    c->grad = join(op->name, ".grad");
    if (!c->name || !c->attrs || !c->grad)
        return FLEET_ENOMEM;
    c->spec = *op;
    c->spec.name = c->name;
    c->spec.attrs = c->attrs;
    c->spec.n_out = op->n_out ? op->n_out : 1;
    c->op = (fl_op){.name = c->name,
                    .n_out = c->spec.n_out,
                    .least_in = op->n_in,
                    .most_in = op->n_in,
                    .attrs = c->attrs,
                    .infer = infer};
    fl_custom_make_kernels(c);
    return fl_register_op(&c->op);
}

fleet_status fleet_custom_op_register(const fleet_custom_op *op)
{
    fl_custom *c;
    fleet_status status;

    FL_TRY(check(op));
    FL_TRY(FL_NEW(&c, sizeof *c));
    status = fill(c, op);
    if (status != FLEET_OK)
        free_custom(c);
    return status;
}

/* --- nodes ---------------------------------------------------------------- */

static const fleet_custom_attr *given(const fleet_custom_attr *attr, int n,
                                      const char *name, size_t length)
{
    for (int i = 0; i < n; i++)
        if (attr[i].name && strlen(attr[i].name) == length &&
            memcmp(attr[i].name, name, length) == 0)
            return &attr[i];
    return NULL;
}

/* A save has no other numbers: a model with them could not be loaded. */
static fleet_status check_value(const fl_custom *c, const fl_attr *attr)
{
    const int64_t most = (int64_t)1 << 53;

    if (attr->type == FL_FLOAT ? fabs(attr->f) <= 1e300
                               : attr->i >= -most && attr->i <= most)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "fleet_custom: attribute \"%s\" of %s is %.17g; expected a "
                   "number up to %s",
                   attr->name, c->name,
                   attr->type == FL_FLOAT ? attr->f : (double)attr->i,
                   attr->type == FL_FLOAT ? "1e300" : "2^53");
}

fleet_status fl_custom_attrs_of(fl_arena *arena, const fl_custom *c,
                                const fleet_custom_attr *attr, int n,
                                fl_attr *out, int *n_out)
{
    int used = 0;

    *n_out = 0;
    for (const char *list = c->attrs; list && *list;) {
        size_t length = strcspn(list, ":");
        const fleet_custom_attr *a = given(attr, n, list, length);
        fl_attr *to = &out[(*n_out)++];
        char *name = fl_arena_alloc(arena, length + 1);

        if (!name)
            return FLEET_ENOMEM;
        memcpy(name, list, length);
        *to = list[length + 1] == 'f' ? FL_ATTR_FLOAT(name, a ? a->f : 0)
                                      : FL_ATTR_INT(name, a ? a->i : 0);
        FL_TRY(check_value(c, to));
        used += a != NULL;
        list += length + 2;
        list += *list == ' ';
    }
    return used == n
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "fleet_custom: attributes of %s are \"%s\", each "
                         "once; %d of %d given are none of them",
                         c->name, c->attrs, n - used, n);
}

fleet_status fl_custom_find(const char *name, int n_in, const fl_custom **c)
{
    const fl_op *op = name ? fl_find_registered_op(name) : NULL;

    if (!op)
        return fl_fail(FLEET_ENOENT,
                       "fleet_custom: no operator \"%.80s\" is registered",
                       name ? name : "(null)");
    *c = (const fl_custom *)(const void *)op;
    if (n_in != (*c)->spec.n_in)
        return fl_fail(FLEET_EINVAL, "fleet_custom: %s takes %d inputs, got %d",
                       name, (*c)->spec.n_in, n_in);
    return FLEET_OK;
}

fleet_var *fleet_custom(fleet_program *p, const char *name,
                        fleet_var *const *in, int n_in,
                        const fleet_custom_attr *attr, int n_attr,
                        fleet_var **out)
{
    fl_attr attrs[FLEET_CUSTOM_MOST_ATTR];
    const fl_custom *c = NULL;
    fleet_status status;
    fleet_var *first;
    int n = 0;

    if (!p)
        fl_fail(FLEET_EINVAL,
                "fleet_custom: a layer needs a program, got NULL");
    if (!fl_program_ok(p))
        return NULL;
    status = fl_custom_find(name, in ? n_in : 0, &c);
    for (int i = 0; status == FLEET_OK && i < n_in; i++)
        if (!fl_builder_ready(p, in[i]))
            return NULL;
    if (status == FLEET_OK)
        status = fl_custom_attrs_of(&p->arena, c, attr,
                                    attr && n_attr > 0 ? n_attr : 0, attrs, &n);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    first = fl_program_add(p, &c->op, in, n_in, attrs, n);
    for (int i = 0; first && out && i < c->spec.n_out; i++)
        out[i] = first->producer->out[i];
    return first;
}
