/* onnx_write.c - a built model as a file: in the messages of onnx.proto, which
 * protobuf-c packs straight into it. Weights are not copied. */
#include "fleet/onnx/onnx_write.h"

#include <stdio.h>
#include <string.h>

#include <fleet/base.h>

#include "fleet/predict/predict_output.h"
#include "onnx.pb-c.h"

/* What a parser of protobuf takes. */
#define MOST_BYTES ((size_t)INT32_MAX)

enum { IR_VERSION = 9, OPSET = 20, OPSET_ML = 4 };
enum { EXTERNAL_ALIGNMENT = 4096, LOCATION_EXTERNAL = 1 };

/* A model on its way into messages. */
typedef struct message_maker {
    fl_onnx *x;
    const char *location; /* of external data; NULL: there are none */
    size_t external;      /* bytes of them */
} message_maker;

fleet_status fl_onnx_can_write(void)
{
    return FLEET_OK;
}

/* protobuf-c's texts are not const. */
static char *own_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* --- tensors -------------------------------------------------------------- */

static Onnx__StringStringEntryProto *make_entry(fl_onnx *x, const char *key,
                                                const char *value)
{
    Onnx__StringStringEntryProto *e = fl_onnx_room(x, 1, sizeof *e);

    if (!e)
        return NULL;
    onnx__string_string_entry_proto__init(e);
    e->key = own_text(key);
    e->value = own_text(value);
    return e;
}

static void put_external(message_maker *m, Onnx__TensorProto *to,
                         const fl_onnx_tensor *t)
{
    fl_onnx *x = m->x;

    m->external = (m->external + EXTERNAL_ALIGNMENT - 1) / EXTERNAL_ALIGNMENT *
                  EXTERNAL_ALIGNMENT;
    to->external_data = fl_onnx_room(x, 3, sizeof *to->external_data);
    if (!to->external_data)
        return;
    to->n_external_data = 3;
    to->external_data[0] = make_entry(x, "location", m->location);
    to->external_data[1] =
        make_entry(x, "offset", fl_onnx_text(x, "%zu", m->external));
    to->external_data[2] =
        make_entry(x, "length", fl_onnx_text(x, "%zu", t->size));
    to->has_data_location = 1;
    to->data_location = LOCATION_EXTERNAL;
    m->external += t->size;
}

static bool is_external(const message_maker *m, const fl_onnx_tensor *t)
{
    return m->location && t->size >= FL_ONNX_LEAST_EXTERNAL;
}

static Onnx__TensorProto *make_tensor(message_maker *m, const fl_onnx_tensor *t,
                                      bool may_be_external)
{
    Onnx__TensorProto *to = fl_onnx_room(m->x, 1, sizeof *to);

    if (!to)
        return NULL;
    onnx__tensor_proto__init(to);
    to->name = own_text(t->name);
    to->n_dims = (size_t)t->n_dim;
    to->dims = (int64_t *)(uintptr_t)t->dim;
    to->has_data_type = 1;
    to->data_type = (int32_t)t->type;
    if (may_be_external && is_external(m, t)) {
        put_external(m, to, t);
    } else {
        to->has_raw_data = 1;
        to->raw_data.len = t->size;
        to->raw_data.data = (uint8_t *)(uintptr_t)t->data;
    }
    return to;
}

/* --- inputs and outputs --------------------------------------------------- */

static Onnx__TensorShapeProto *make_shape(fl_onnx *x, const fl_onnx_value *v)
{
    Onnx__TensorShapeProto *s = fl_onnx_room(x, 1, sizeof *s);
    Onnx__TensorShapeProto__Dimension *dim =
        fl_onnx_room(x, (size_t)v->n_dim + 1, sizeof *dim);

    if (!s || !dim)
        return NULL;
    onnx__tensor_shape_proto__init(s);
    s->dim = fl_onnx_room(x, (size_t)v->n_dim + 1, sizeof *s->dim);
    for (int i = 0; s->dim && i < v->n_dim; i++) {
        onnx__tensor_shape_proto__dimension__init(&dim[i]);
        dim[i].dim_param = own_text(v->text[i]);
        dim[i].has_dim_value = !v->text[i];
        dim[i].dim_value = v->dim[i];
        s->dim[s->n_dim++] = &dim[i];
    }
    return s;
}

static Onnx__ValueInfoProto *make_value(fl_onnx *x, const fl_onnx_value *v)
{
    Onnx__ValueInfoProto *to = fl_onnx_room(x, 1, sizeof *to);
    Onnx__TypeProto *type = fl_onnx_room(x, 1, sizeof *type);
    Onnx__TypeProto__Tensor *tensor = fl_onnx_room(x, 1, sizeof *tensor);

    if (!to || !type || !tensor)
        return NULL;
    onnx__value_info_proto__init(to);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    to->name = own_text(v->name);
    to->type = type;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = (int32_t)v->type;
    tensor->shape = make_shape(x, v);
    return to;
}

static Onnx__ValueInfoProto **make_values(fl_onnx *x, const fl_onnx_value *v,
                                          size_t *n)
{
    Onnx__ValueInfoProto **to;
    size_t count = 0;

    for (const fl_onnx_value *i = v; i; i = i->next)
        count++;
    to = fl_onnx_room(x, count + 1, sizeof *to);
    for (; to && v; v = v->next)
        to[(*n)++] = make_value(x, v);
    return to;
}

/* --- nodes ---------------------------------------------------------------- */

static Onnx__GraphProto *make_graph(message_maker *m, const fl_onnx_graph *g);

static Onnx__AttributeProto *make_attr(message_maker *m, const fl_onnx_attr *a)
{
    Onnx__AttributeProto *to = fl_onnx_room(m->x, 1, sizeof *to);

    if (!to)
        return NULL;
    onnx__attribute_proto__init(to);
    to->name = own_text(a->name);
    to->has_type = 1;
    to->type = (int32_t)a->type;
    to->has_f = a->type == FL_ONNX_ATTR_FLOAT;
    to->f = a->f;
    to->has_i = a->type == FL_ONNX_ATTR_INT;
    to->i = a->i;
    to->has_s = a->type == FL_ONNX_ATTR_TEXT;
    to->s.data = (uint8_t *)(uintptr_t)a->text;
    to->s.len = a->text ? strlen(a->text) : 0;
    to->ints = (int64_t *)(uintptr_t)a->ints;
    to->n_ints = (size_t)a->n;
    if (a->tensor)
        to->t = make_tensor(m, a->tensor, false);
    if (a->graph)
        to->g = make_graph(m, a->graph);
    return to;
}

static Onnx__NodeProto *make_node(message_maker *m, const fl_onnx_node *n)
{
    Onnx__NodeProto *to = fl_onnx_room(m->x, 1, sizeof *to);

    if (!to)
        return NULL;
    onnx__node_proto__init(to);
    to->op_type = own_text(n->op);
    to->name = own_text(n->out[0]);
    to->domain = *n->domain ? own_text(n->domain) : NULL;
    to->n_input = (size_t)n->n_in;
    to->input = (char **)(uintptr_t)n->in;
    to->n_output = (size_t)n->n_out;
    to->output = (char **)(uintptr_t)n->out;
    to->attribute =
        fl_onnx_room(m->x, FL_ONNX_MOST_ATTR, sizeof *to->attribute);
    for (int i = 0; to->attribute && i < n->n_attr; i++)
        to->attribute[to->n_attribute++] = make_attr(m, &n->attr[i]);
    return to;
}

static Onnx__GraphProto *make_graph(message_maker *m, const fl_onnx_graph *g)
{
    Onnx__GraphProto *to = fl_onnx_room(m->x, 1, sizeof *to);
    size_t n = 0;

    if (!to)
        return NULL;
    onnx__graph_proto__init(to);
    to->name = own_text(g->name);
    for (const fl_onnx_node *i = g->node; i; i = i->next)
        n++;
    to->node = fl_onnx_room(m->x, n + 1, sizeof *to->node);
    for (const fl_onnx_node *i = g->node; to->node && i; i = i->next)
        to->node[to->n_node++] = make_node(m, i);
    to->input = make_values(m->x, g->input, &to->n_input);
    to->output = make_values(m->x, g->output, &to->n_output);
    return to;
}

/* --- the model ------------------------------------------------------------ */

static void put_tensors(message_maker *m, Onnx__GraphProto *to)
{
    size_t n = 0;

    for (const fl_onnx_tensor *i = m->x->tensor; i; i = i->next)
        n++;
    to->initializer = fl_onnx_room(m->x, n + 1, sizeof *to->initializer);
    for (const fl_onnx_tensor *i = m->x->tensor; to->initializer && i;
         i = i->next)
        to->initializer[to->n_initializer++] = make_tensor(m, i, true);
}

static void put_opset(fl_onnx *x, Onnx__ModelProto *to, const char *domain,
                      int64_t version)
{
    Onnx__OperatorSetIdProto *o = fl_onnx_room(x, 1, sizeof *o);

    if (!o)
        return;
    onnx__operator_set_id_proto__init(o);
    o->domain = own_text(domain);
    o->has_version = 1;
    o->version = version;
    to->opset_import[to->n_opset_import++] = o;
}

static Onnx__ModelProto *make_model(message_maker *m)
{
    fl_onnx *x = m->x;
    Onnx__ModelProto *to = fl_onnx_room(x, 1, sizeof *to);

    if (!to)
        return NULL;
    onnx__model_proto__init(to);
    to->has_ir_version = 1;
    to->ir_version = IR_VERSION;
    to->producer_name = own_text("libfleet");
    to->producer_version = own_text(fleet_version());
    to->opset_import = fl_onnx_room(x, 2, sizeof *to->opset_import);
    if (!to->opset_import)
        return NULL;
    put_opset(x, to, "", OPSET);
    if (x->has_ml)
        put_opset(x, to, "ai.onnx.ml", OPSET_ML);
    to->graph = make_graph(m, &x->whole);
    if (to->graph)
        put_tensors(m, to->graph);
    return x->status == FLEET_OK ? to : NULL;
}

/* --- files ---------------------------------------------------------------- */

typedef struct file_buffer {
    ProtobufCBuffer base;
    fl_score_file *file;
    fleet_status status;
} file_buffer;

static void append_bytes(ProtobufCBuffer *base, size_t n, const uint8_t *data)
{
    file_buffer *b = (file_buffer *)(void *)base;

    if (b->status == FLEET_OK)
        b->status = fl_score_file_put(b->file, data, n);
}

static fleet_status put_model(const Onnx__ModelProto *model,
                              fl_score_file *file)
{
    file_buffer b = {{append_bytes}, file, FLEET_OK};

    protobuf_c_message_pack_to_buffer(&model->base, &b.base);
    return b.status;
}

static fleet_status put_data(const message_maker *m, fl_score_file *file)
{
    static const char zeros[EXTERNAL_ALIGNMENT];
    size_t at = 0;

    for (const fl_onnx_tensor *t = m->x->tensor; t; t = t->next) {
        size_t over = at % EXTERNAL_ALIGNMENT;

        if (!is_external(m, t))
            continue;
        if (over > 0) {
            FL_TRY(fl_score_file_put(file, zeros, EXTERNAL_ALIGNMENT - over));
            at += EXTERNAL_ALIGNMENT - over;
        }
        FL_TRY(fl_score_file_put(file, t->data, t->size));
        at += t->size;
    }
    return FLEET_OK;
}

/* Both are whole, and on the disk, before either takes its place. data NULL:
 * there is none. */
static fleet_status write_files(const message_maker *m,
                                const Onnx__ModelProto *model, const char *path,
                                const char *data)
{
    fl_score_file file = {.fd = -1}, beside = {.fd = -1};
    fleet_status status;

    FL_GOTO(done, fl_score_file_open(&file, path));
    FL_GOTO(done, fl_score_file_open(&beside, data));
    FL_GOTO(done, put_data(m, &beside));
    FL_GOTO(done, put_model(model, &file));
    FL_GOTO(done, fl_score_file_finish(&beside));
    FL_GOTO(done, fl_score_file_finish(&file));
    FL_GOTO(done, fl_score_file_commit(&beside));
    FL_GOTO(done, fl_score_file_commit(&file));
done:
    fl_score_file_close(&beside);
    fl_score_file_close(&file);
    return status;
}

static const fl_onnx_tensor *largest_tensor(const fl_onnx *x)
{
    const fl_onnx_tensor *most = x->tensor;

    for (const fl_onnx_tensor *t = x->tensor; t; t = t->next)
        if (t->size > most->size)
            most = t;
    return most;
}

static fleet_status check_size(const fl_onnx *x, const char *path, size_t size,
                               bool external)
{
    const fl_onnx_tensor *most = largest_tensor(x);

    if (size <= MOST_BYTES)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "onnx: %s would have %zu bytes, and a message of protobuf "
                   "has at most %zu; the largest tensor is \"%s\", %zu bytes%s",
                   path, size, MOST_BYTES, most ? most->name : "",
                   most ? most->size : 0,
                   external ? ", and keys of rows cannot be in another file"
                            : ": ask for external_data");
}

fleet_status fl_onnx_write(fl_onnx *x, const char *path, bool external)
{
    const char *slash = strrchr(path, '/'), *data = NULL;
    message_maker m = {.x = x};
    Onnx__ModelProto *model;

    if (external)
        m.location = fl_onnx_text(x, "%s.data", slash ? slash + 1 : path);
    model = make_model(&m);
    if (!model)
        return x->status;
    FL_TRY(check_size(x, path, protobuf_c_message_get_packed_size(&model->base),
                      external));
    if (external) {
        data = fl_onnx_text(x, "%s.data", path);
        if (!data)
            return x->status;
    }
    return write_files(&m, model, path, data);
}
