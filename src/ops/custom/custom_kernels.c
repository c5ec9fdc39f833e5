/* custom_kernels.c - how functions of registered operators are called.
 *
 *   NAME        results, saved <- inputs
 *   NAME.grad   gradients of inputs <- gradients of results, results, saved,
 *               inputs
 *
 * Forward goes slice by slice. So does backward, as parts that are the slices:
 * an input without a batch gets a gradient from each of them, which
 * fl_kernel_sum_parts adds up in one order.
 */
#include "ops/custom/custom_kernels.h"

#include <string.h>

typedef struct custom_config {
    const fl_custom *custom;
    const fl_node *node;
    bool saves;
    bool in_parts[FLEET_CUSTOM_MOST_IN]; /* its gradient is summed up */
} custom_config;

/* --- calls ---------------------------------------------------------------- */

/* What a call is made of; operands come in the order of the kernel. */
typedef struct call_tensors {
    fleet_custom_tensor in[FLEET_CUSTOM_MOST_IN], in_grad[FLEET_CUSTOM_MOST_IN];
    fleet_custom_tensor out[FLEET_CUSTOM_MOST_OUT],
        out_grad[FLEET_CUSTOM_MOST_OUT];
    fleet_custom_attrs attrs;
    fleet_custom_call call;
} call_tensors;

static fleet_custom_tensor tensor_of(const fleet_var *v, int64_t samples,
                                     void *data)
{
    fleet_custom_tensor t = fl_custom_tensor_of(v);

    if (t.dims[0] < 0)
        t.dims[0] *= -samples;
    t.data = data;
    return t;
}

/* Operand i of the kernel: on the host of a range, on a GPU all of it. */
typedef void *operand_of(const void *from, int i, const fl_range *r);

static void *on_host(const void *from, int i, const fl_range *r)
{
    const fl_instance *in = from;

    return in->arg[i].base ? fl_rows_any(in, i, r) : NULL;
}

static void *on_gpu(const void *from, int i, const fl_range *r)
{
    const fl_device_step *s = from;

    (void)r;
    return s->arg[i].data;
}

static void begin_call(call_tensors *t, const custom_config *c,
                       const fl_range *r)
{
    const fleet_custom_op *spec = &c->custom->spec;

    t->attrs = (fleet_custom_attrs){c->node->attr, c->node->n_attr};
    t->call = (fleet_custom_call){.user = spec->user,
                                  .attrs = &t->attrs,
                                  .n_in = spec->n_in,
                                  .n_out = spec->n_out,
                                  .in = t->in,
                                  .out = t->out,
                                  .first = r->begin,
                                  .batch = r->batch};
}

/* Operands: results, saved, inputs. */
static void make_forward(call_tensors *t, const custom_config *c,
                         const fl_range *r, operand_of *at, const void *from)
{
    const fl_node *n = c->node;
    int n_out = c->custom->spec.n_out;

    begin_call(t, c, r);
    for (int i = 0; i < n_out; i++)
        t->out[i] = tensor_of(n->out[i], r->end - r->begin, at(from, i, r));
    t->call.saved = c->saves ? at(from, n_out, r) : NULL;
    for (int i = 0; i < n->n_in; i++)
        t->in[i] =
            tensor_of(n->in[i], r->end - r->begin, at(from, n_out + 1 + i, r));
}

/* Operands: gradients of inputs, gradients of results, results, saved,
 * inputs. */
static void make_backward(call_tensors *t, const custom_config *c,
                          const fl_range *r, operand_of *at, const void *from)
{
    const fl_node *n = c->node;
    int n_in = n->n_in, n_out = c->custom->spec.n_out;
    int64_t samples = r->end - r->begin;

    begin_call(t, c, r);
    t->call.in_grad = t->in_grad;
    t->call.out_grad = t->out_grad;
    for (int i = 0; i < n_in; i++) {
        t->in_grad[i] = tensor_of(n->in[i], samples, at(from, i, r));
        t->in[i] =
            tensor_of(n->in[i], samples, at(from, n_in + 2 * n_out + 1 + i, r));
    }
    for (int i = 0; i < n_out; i++) {
        t->out_grad[i] = tensor_of(n->out[i], samples, at(from, n_in + i, r));
        t->out[i] =
            tensor_of(n->out[i], samples, at(from, n_in + n_out + i, r));
    }
    t->call.saved = c->saves ? at(from, n_in + 2 * n_out, r) : NULL;
}

/* --- on CPUs -------------------------------------------------------------- */

static fleet_status call_forward(const fl_instance *in, const fl_range *r)
{
    const custom_config *c = in->step->config;
    call_tensors t;

    make_forward(&t, c, r, on_host, in);
    fl_error_clear();
    return fl_custom_said(c->custom, "forward",
                          c->custom->spec.forward(&t.call));
}

/* The rows of all of the batch. */
static fl_range whole_of(const fl_range *r)
{
    fl_range all = *r;

    all.begin = 0;
    all.end = r->batch;
    return all;
}

static fleet_status forward_whole(const fl_instance *in, const fl_range *r)
{
    fl_range all = whole_of(r);

    return call_forward(in, &all);
}

/* A part's gradient of an input without a batch is a row of its operand. */
static void use_parts(call_tensors *t, const fl_instance *in, int64_t part)
{
    const custom_config *c = in->step->config;

    for (int i = 0; i < c->node->n_in; i++)
        if (c->in_parts[i])
            t->in_grad[i].data =
                (float *)t->in_grad[i].data + part * in->arg[i].cols;
}

static fleet_status call_backward(const fl_instance *in, const fl_range *r,
                                  int64_t part)
{
    const custom_config *c = in->step->config;
    call_tensors t;

    make_backward(&t, c, r, on_host, in);
    use_parts(&t, in, part);
    fl_error_clear();
    return fl_custom_said(c->custom, "backward",
                          c->custom->spec.backward(&t.call));
}

static fleet_status backward_prepare(fl_instance *in)
{
    in->n_part = (int)((in->batch + in->slice - 1) / in->slice);
    return FLEET_OK;
}

/* Of a short batch the last parts have no rows: they add nothing. */
static void clear_parts(const fl_instance *in, int64_t part)
{
    const custom_config *c = in->step->config;

    for (int i = 0; i < c->node->n_in; i++)
        if (c->in_parts[i])
            memset((float *)fl_ptr(in, i) + part * in->arg[i].cols, 0,
                   (size_t)in->arg[i].cols * sizeof(float));
}

static fleet_status backward_run(const fl_instance *in, const fl_range *r)
{
    fl_range rows = *r;

    rows.begin = r->begin * in->slice;
    rows.end = rows.begin + in->slice;
    if (rows.end > r->batch)
        rows.end = r->batch;
    if (rows.begin < rows.end)
        return call_backward(in, &rows, r->begin);
    clear_parts(in, r->begin);
    return FLEET_OK;
}

static fleet_status backward_whole(const fl_instance *in, const fl_range *r)
{
    fl_range all = whole_of(r);

    return call_backward(in, &all, 0);
}

/* --- on GPUs -------------------------------------------------------------- */

static fleet_status gpu_forward(fl_device *d, fl_queue *q,
                                const fl_device_step *s)
{
    const custom_config *c = s->config;
    fl_range all = {.end = s->batch, .batch = s->batch};
    call_tensors t;

    (void)d;
    make_forward(&t, c, &all, on_gpu, s);
    t.call.stream = q;
    fl_error_clear();
    return fl_custom_said(c->custom, "cuda_forward",
                          c->custom->spec.cuda_forward(&t.call));
}

/* All rows are the first part: the other parts add nothing. */
static fleet_status clear_other_parts(fl_device *d, fl_queue *q,
                                      const fl_device_step *s)
{
    const custom_config *c = s->config;

    for (int i = 0; i < c->node->n_in; i++) {
        const fl_device_arg *a = &s->arg[i];
        size_t row = (size_t)a->cols * sizeof(float);

        if (c->in_parts[i] && a->rows > 1)
            FL_TRY(d->methods->fill(d, q, (char *)a->data + row, 0,
                                    (size_t)(a->rows - 1) * row));
    }
    return FLEET_OK;
}

static fleet_status gpu_backward(fl_device *d, fl_queue *q,
                                 const fl_device_step *s)
{
    const custom_config *c = s->config;
    fl_range all = {.end = s->batch, .batch = s->batch};
    call_tensors t;

    FL_TRY(clear_other_parts(d, q, s));
    make_backward(&t, c, &all, on_gpu, s);
    t.call.stream = q;
    fl_error_clear();
    return fl_custom_said(c->custom, "cuda_backward",
                          c->custom->spec.cuda_backward(&t.call));
}

/* --- lowering ------------------------------------------------------------- */

static custom_config *make_config(fl_lowering *l, const fl_node *n,
                                  int64_t *saved)
{
    const fl_custom *custom = fl_custom_of(n);
    fleet_custom_tensor in[FLEET_CUSTOM_MOST_IN], out[FLEET_CUSTOM_MOST_OUT];
    custom_config *c = fl_arena_alloc(&l->plan->arena, sizeof *c);

    for (int i = 0; i < n->n_in; i++)
        in[i] = fl_custom_tensor_of(n->in[i]);
    if (!c ||
        fl_custom_shape(custom, n->attr, n->n_attr, in, out, saved) != FLEET_OK)
        return NULL;
    c->custom = custom;
    c->node = n;
    c->saves = *saved > 0;
    return c;
}

static int make_saved(fl_lowering *l, const fl_node *n, int64_t saved)
{
    fl_shape shape = fl_shape_2(n->out[0]->shape.dim[0], saved);

    return saved > 0 ? fl_temp(l, "saved", FLEET_FLOAT32, &shape) : -1;
}

static fleet_status forward(fl_lowering *l, const fl_node *n)
{
    const fl_custom *custom = fl_custom_of(n);
    int64_t saved = 0;
    custom_config *c = make_config(l, n, &saved);
    int n_out = custom->spec.n_out;
    fl_operands all;

    if (!c)
        return fl_last_code();
    l->node[n->id].saved = make_saved(l, n, saved);
    FL_TRY(fl_operands_begin(l, &all, n_out + 1 + n->n_in));
    for (int i = 0; i < n_out; i++)
        fl_operands_add(&all, fl_value_of(l, n->out[i]), FL_WRITE);
    fl_operands_add(&all, l->node[n->id].saved, FL_WRITE);
    for (int i = 0; i < n->n_in; i++)
        fl_operands_add(&all, fl_value_of(l, n->in[i]), FL_READ);
    fl_emit(l,
            fl_custom_is_whole(n) ? &custom->forward_whole : &custom->forward,
            n, c, all.o, all.n);
    return FLEET_OK;
}

/* Where an input's gradient goes: *to, or memory for that of each part. */
static int gradient_of_input(fl_lowering *l, const fl_node *n, int i,
                             custom_config *c, int *to)
{
    const fleet_var *v = n->in[i];
    int64_t parts = (l->plan->batch + l->plan->slice - 1) / l->plan->slice;
    fl_shape shape = fl_shape_2(parts, fl_shape_count(&v->shape, 1));

    *to = v->dtype == FLEET_FLOAT32 ? fl_gradient_to(l, v) : -1;
    if (*to < 0 || parts == 1 || fl_custom_is_whole(n) ||
        fl_shape_batched(&v->shape))
        return *to;
    c->in_parts[i] = true;
    return fl_temp(l, "parts", FLEET_FLOAT32, &shape);
}

static void add_read(fl_lowering *l, fl_operands *all, const fl_node *n,
                     int saved)
{
    int n_out = n->op->n_out;

    for (int i = 0; i < n_out; i++)
        fl_operands_add(all, fl_gradient_of(l, n->out[i]), FL_READ);
    for (int i = 0; i < n_out; i++)
        fl_operands_add(all, fl_value_of(l, n->out[i]), FL_READ);
    fl_operands_add(all, saved, FL_READ);
    for (int i = 0; i < n->n_in; i++)
        fl_operands_add(all, fl_value_of(l, n->in[i]), FL_READ);
}

static fleet_status gradient(fl_lowering *l, const fl_node *n)
{
    const fl_custom *custom = fl_custom_of(n);
    int to[FLEET_CUSTOM_MOST_IN], parts[FLEET_CUSTOM_MOST_IN];
    int64_t saved = 0;
    custom_config *c = make_config(l, n, &saved);
    fl_operands all;

    if (!c)
        return fl_last_code();
    FL_TRY(fl_operands_begin(l, &all, 2 * n->n_in + 2 * n->op->n_out + 1));
    for (int i = 0; i < n->n_in; i++) {
        parts[i] = gradient_of_input(l, n, i, c, &to[i]);
        fl_operands_add(&all, parts[i], FL_WRITE);
    }
    add_read(l, &all, n, l->node[n->id].saved);
    fl_emit(l,
            fl_custom_is_whole(n) ? &custom->backward_whole : &custom->backward,
            n, c, all.o, all.n);
    for (int i = 0; i < n->n_in; i++)
        if (parts[i] != to[i])
            FL_EMIT(l, &fl_kernel_sum_parts, n, NULL, FL_W(to[i]),
                    FL_R(parts[i]));
    return FLEET_OK;
}

void fl_custom_make_kernels(fl_custom *c)
{
    const fleet_custom_op *spec = &c->spec;
    bool gpu = spec->cuda_forward != NULL;

    c->on_gpu[0] = (fl_device_kernel){
        .name = spec->name, .dtype = FLEET_FLOAT32, .run = gpu_forward};
    c->on_gpu[1] = (fl_device_kernel){
        .name = c->grad, .dtype = FLEET_FLOAT32, .run = gpu_backward};
    c->forward = (fl_kernel){.name = spec->name,
                             .split = FL_SPLIT_ROWS,
                             .run = call_forward,
                             .on_host = !gpu,
                             .device = gpu ? &c->on_gpu[0] : NULL};
    c->forward_whole = c->forward;
    c->forward_whole.split = FL_SPLIT_PARTS;
    c->forward_whole.n_part = 1;
    c->forward_whole.run = forward_whole;
    c->backward = (fl_kernel){.name = c->grad,
                              .split = FL_SPLIT_PARTS,
                              .prepare = backward_prepare,
                              .run = backward_run,
                              .on_host = !gpu,
                              .device = gpu ? &c->on_gpu[1] : NULL};
    c->backward_whole = c->backward;
    c->backward_whole.prepare = NULL;
    c->backward_whole.n_part = 1;
    c->backward_whole.run = backward_whole;
    c->op.forward = forward;
    c->op.gradient = spec->backward ? gradient : NULL;
}
