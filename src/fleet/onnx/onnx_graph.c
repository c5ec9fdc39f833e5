/* onnx_graph.c - nodes, constants and values of a model of ONNX in an arena. */
#include "fleet/onnx/onnx_graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/store/store.h"

fleet_status fl_onnx_init(fl_onnx *x, const fleet_program *p, fl_store *store)
{
    *x = (fl_onnx){.program = p, .store = store, .whole = {.name = "fleet"}};
    x->at = &x->whole;
    x->value = fl_arena_alloc(&x->arena, (p->n_var + 1) * sizeof *x->value);
    return x->value ? FLEET_OK : FLEET_ENOMEM;
}

void fl_onnx_done(fl_onnx *x)
{
    fl_map_done(&x->known);
    fl_arena_done(&x->arena);
}

const char *fl_onnx_failed(fl_onnx *x, fleet_status status)
{
    if (x->status == FLEET_OK)
        x->status = status;
    return NULL;
}

void *fl_onnx_room(fl_onnx *x, size_t n, size_t size)
{
    void *p = NULL;
    size_t bytes;

    if (x->status != FLEET_OK)
        return NULL;
    if (!__builtin_mul_overflow(n, size, &bytes))
        p = fl_arena_alloc(&x->arena, bytes);
    if (!p)
        fl_onnx_failed(x, fl_fail(FLEET_ENOMEM, "onnx: no memory"));
    return p;
}

const char *fl_onnx_text(fl_onnx *x, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int n;

    if (x->status != FLEET_OK)
        return NULL;
    va_start(args, format);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text = fl_onnx_room(x, (size_t)n + 1, 1);
    if (text) {
        va_start(args, format);
        vsnprintf(text, (size_t)n + 1, format, args);
        va_end(args);
    }
    return text;
}

/* No variable has it. */
static const char *made_up_name(fl_onnx *x, const char *op)
{
    const char *name;

    do
        name = fl_onnx_text(x, "/%s_%d", op, x->n_made++);
    while (name && fleet_program_var(x->program, name));
    return name;
}

const char *fl_onnx_known(const fl_onnx *x, const char *what)
{
    return x->status == FLEET_OK && what ? fl_map_get(&x->known, what) : NULL;
}

const char *fl_onnx_remember(fl_onnx *x, const char *what, const char *name)
{
    fl_onnx_node *node = x->at->last_node;

    if (node && node->out[0] == name)
        node->is_known = true;
    if (x->status == FLEET_OK)
        x->status = fl_map_put(&x->known, what, (void *)(uintptr_t)name);
    return x->status == FLEET_OK ? name : NULL;
}

/* --- nodes ---------------------------------------------------------------- */

static bool copy_names(fl_onnx *x, fl_onnx_node *node, const char *const *in,
                       size_t n)
{
    node->in = fl_onnx_room(x, n + 1, sizeof *node->in);
    for (size_t i = 0; node->in && i < n; i++) {
        if (!in[i])
            return false;
        node->in[node->n_in++] = in[i];
    }
    return node->in;
}

const char *const *fl_onnx_put_many(fl_onnx *x, const char *op,
                                    const char *const *in, size_t n, int n_out)
{
    fl_onnx_node *node = fl_onnx_room(x, 1, sizeof *node);

    if (!node || !copy_names(x, node, in, n))
        return NULL;
    node->op = op;
    node->domain = "";
    node->out = fl_onnx_room(x, (size_t)n_out, sizeof *node->out);
    for (; node->out && node->n_out < n_out; node->n_out++)
        node->out[node->n_out] = made_up_name(x, op);
    if (x->status != FLEET_OK)
        return NULL;
    if (x->at->last_node)
        x->at->last_node->next = node;
    else
        x->at->node = node;
    x->at->last_node = x->newest = node;
    return node->out;
}

const char *fl_onnx_put(fl_onnx *x, const char *op, const char *const *in,
                        size_t n)
{
    const char *const *out = fl_onnx_put_many(x, op, in, n, 1);

    return out ? out[0] : NULL;
}

static fl_onnx_attr *new_attr(fl_onnx *x, const char *name,
                              fl_onnx_attr_type type)
{
    static fl_onnx_attr nowhere;
    fl_onnx_node *node = x->newest;

    if (x->status != FLEET_OK || !node || node->n_attr == FL_ONNX_MOST_ATTR)
        return &nowhere;
    node->attr[node->n_attr] = (fl_onnx_attr){.name = name, .type = type};
    return &node->attr[node->n_attr++];
}

void fl_onnx_with_int(fl_onnx *x, const char *name, int64_t value)
{
    new_attr(x, name, FL_ONNX_ATTR_INT)->i = value;
}

void fl_onnx_with_ints(fl_onnx *x, const char *name, const int64_t *v, int n)
{
    int64_t *copy = fl_onnx_room(x, (size_t)n, sizeof *copy);
    fl_onnx_attr *a;

    if (!copy)
        return;
    memcpy(copy, v, (size_t)n * sizeof *copy);
    a = new_attr(x, name, FL_ONNX_ATTR_INTS);
    a->ints = copy;
    a->n = n;
}

void fl_onnx_with_float(fl_onnx *x, const char *name, double value)
{
    new_attr(x, name, FL_ONNX_ATTR_FLOAT)->f = (float)value;
}

void fl_onnx_with_text(fl_onnx *x, const char *name, const char *value)
{
    new_attr(x, name, FL_ONNX_ATTR_TEXT)->text = value;
}

void fl_onnx_with_tensor(fl_onnx *x, const char *name,
                         const fl_onnx_tensor *value)
{
    new_attr(x, name, FL_ONNX_ATTR_TENSOR)->tensor = value;
}

void fl_onnx_with_graph(fl_onnx *x, const char *name,
                        const fl_onnx_graph *value)
{
    new_attr(x, name, FL_ONNX_ATTR_GRAPH)->graph = value;
}

void fl_onnx_is_ml(fl_onnx *x)
{
    if (x->status == FLEET_OK)
        x->newest->domain = "ai.onnx.ml";
    x->has_ml = true;
}

/* --- constants ------------------------------------------------------------ */

const char *fl_onnx_weights(fl_onnx *x, const fl_onnx_tensor *tensor)
{
    fl_onnx_tensor *t = fl_onnx_room(x, 1, sizeof *t);

    if (!t || !tensor->name)
        return NULL;
    *t = *tensor;
    if (x->last_tensor)
        x->last_tensor->next = t;
    else
        x->tensor = t;
    x->last_tensor = t;
    return t->name;
}

/* Of these bytes, unless `what` is known. */
static const char *constant_of(fl_onnx *x, const char *what, fl_onnx_tensor t,
                               const void *data)
{
    const char *name = fl_onnx_known(x, what);
    void *copy;

    if (name || !what)
        return name;
    copy = fl_onnx_room(x, t.size + 1, 1);
    t.name = made_up_name(x, "Constant");
    if (!copy || !t.name)
        return NULL;
    memcpy(copy, data, t.size);
    t.data = copy;
    return fl_onnx_remember(x, what, fl_onnx_weights(x, &t));
}

const char *fl_onnx_number(fl_onnx *x, double value)
{
    float f = (float)value;

    return constant_of(
        x, fl_onnx_text(x, "number %a", (double)f),
        (fl_onnx_tensor){.type = FL_ONNX_FLOAT, .size = sizeof f}, &f);
}

const char *fl_onnx_integer(fl_onnx *x, int64_t value)
{
    return constant_of(
        x, fl_onnx_text(x, "integer %" PRId64, value),
        (fl_onnx_tensor){.type = FL_ONNX_INT64, .size = sizeof value}, &value);
}

const char *fl_onnx_ints(fl_onnx *x, const int64_t *v, int64_t n)
{
    fl_text what = {0};
    const char *name;

    for (int64_t i = 0; i < n; i++)
        fl_text_add(&what, " %" PRId64, v[i]);
    if (what.status != FLEET_OK)
        fl_onnx_failed(x, what.status);
    name = constant_of(x, fl_onnx_text(x, "integers%s", fl_text_chars(&what)),
                       (fl_onnx_tensor){.type = FL_ONNX_INT64,
                                        .n_dim = 1,
                                        .dim = {n},
                                        .size = (size_t)n * sizeof *v},
                       v);
    fl_text_done(&what);
    return name;
}

const char *fl_onnx_int1(fl_onnx *x, int64_t value)
{
    return fl_onnx_ints(x, &value, 1);
}

const char *fl_onnx_filled(fl_onnx *x, double value, int64_t n)
{
    float *data = fl_onnx_room(x, (size_t)n, sizeof *data);

    for (int64_t i = 0; data && i < n; i++)
        data[i] = (float)value;
    return data
               ? constant_of(x,
                             fl_onnx_text(x, "%" PRId64 " times %a", n, value),
                             (fl_onnx_tensor){.type = FL_ONNX_FLOAT,
                                              .n_dim = 1,
                                              .dim = {n},
                                              .size = (size_t)n * sizeof *data},
                             data)
               : NULL;
}

/* --- values --------------------------------------------------------------- */

static const char *put_param(fl_onnx *x, const fleet_var *v)
{
    const fl_param *p = fl_store_param(x->store, v->name);
    fl_onnx_tensor t = {
        .name = v->name, .type = FL_ONNX_FLOAT, .n_dim = v->shape.n_dim};
    void *copy;

    if (!p)
        return fl_onnx_failed(x, fl_fail(FLEET_ENOENT,
                                         "onnx: there is no parameter \"%s\"",
                                         v->name));
    memcpy(t.dim, v->shape.dim, sizeof t.dim);
    t.size = (size_t)p->n * sizeof(float);
    copy = fl_onnx_room(x, t.size, 1); /* the predictor's may change soon */
    if (!copy)
        return NULL;
    t.data = memcpy(copy, p->flat->weight + p->offset, t.size);
    return fl_onnx_weights(x, &t);
}

const char *fl_onnx_of(fl_onnx *x, const fleet_var *v)
{
    if (!v)
        return x->status == FLEET_OK ? "" : NULL;
    if (x->status == FLEET_OK && !x->value[v->id]) {
        if (v->kind == FL_VAR_PARAM)
            x->value[v->id] = put_param(x, v);
        else
            fl_onnx_failed(x, fl_fail(FLEET_EUNSUPPORTED,
                                      "onnx: \"%s\" cannot be an input of a "
                                      "node",
                                      v->name));
    }
    return x->status == FLEET_OK ? x->value[v->id] : NULL;
}

void fl_onnx_set(fl_onnx *x, const fleet_var *v, const char *name)
{
    fl_onnx_node *node = x->at->last_node;

    if (x->status != FLEET_OK)
        return;
    /* where the value was made just now it gets the variable's name */
    if (node && node->n_out == 1 && node->out[0] == name && !node->is_known) {
        name = node->out[0] = v->name;
        node->is_known = true;
    }
    x->value[v->id] = name;
}

const char *fl_onnx_cast(fl_onnx *x, const char *v, fl_onnx_type to)
{
    v = FL_ONNX(x, "Cast", v);
    fl_onnx_with_int(x, "to", to);
    return v;
}

const char *fl_onnx_reshape(fl_onnx *x, const char *v, const fl_shape *shape)
{
    fl_shape s = *shape;

    if (fl_shape_batched(&s))
        s.dim[0] = -1;
    return FL_ONNX(x, "Reshape", v, fl_onnx_ints(x, s.dim, s.n_dim));
}

const char *fl_onnx_unsqueeze(fl_onnx *x, const char *v, int64_t axis)
{
    return FL_ONNX(x, "Unsqueeze", v, fl_onnx_int1(x, axis));
}

const char *fl_onnx_slice(fl_onnx *x, const char *v, int64_t axis,
                          int64_t start, int64_t end)
{
    return FL_ONNX(x, "Slice", v, fl_onnx_int1(x, start), fl_onnx_int1(x, end),
                   fl_onnx_int1(x, axis));
}

const char *fl_onnx_concat(fl_onnx *x, int64_t axis, const char *const *in,
                           size_t n)
{
    const char *out = fl_onnx_put(x, "Concat", in, n);

    fl_onnx_with_int(x, "axis", axis);
    return out;
}

const char *fl_onnx_gather(fl_onnx *x, const char *v, const char *index,
                           int64_t axis)
{
    v = FL_ONNX(x, "Gather", v, index);
    fl_onnx_with_int(x, "axis", axis);
    return v;
}

/* --- inputs and outputs --------------------------------------------------- */

fl_onnx_value *fl_onnx_value_of(fl_onnx *x, const char *name, fl_onnx_type type,
                                const fl_shape *shape)
{
    fl_onnx_value *v = fl_onnx_room(x, 1, sizeof *v);

    if (!v)
        return NULL;
    v->name = name;
    v->type = type;
    v->n_dim = shape->n_dim;
    memcpy(v->dim, shape->dim, sizeof v->dim);
    if (fl_shape_batched(shape))
        v->text[0] = shape->dim[0] == -1
                         ? "batch"
                         : fl_onnx_text(x, "%" PRId64 "*batch", -v->dim[0]);
    return v;
}

static void append_value(fl_onnx_value **first, fl_onnx_value **last,
                         fl_onnx_value *v)
{
    if (!v)
        return;
    if (*last)
        (*last)->next = v;
    else
        *first = v;
    *last = v;
}

void fl_onnx_input(fl_onnx *x, fl_onnx_value *v)
{
    append_value(&x->at->input, &x->at->last_input, v);
}

void fl_onnx_output(fl_onnx *x, fl_onnx_value *v)
{
    append_value(&x->at->output, &x->at->last_output, v);
}
