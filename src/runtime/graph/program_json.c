/* program_json.c - a program as JSON: the variables and nodes that compute some
 * of its variables, or all of it, or a stage. What is read is checked as if a
 * user had built it. */
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "runtime/graph/initializer.h"
#include "runtime/graph/param_json.h"
#include "runtime/graph/program.h"
#include "runtime/graph/program_json.h"
#include "runtime/graph/table_cap.h"

static const char *const dtype_names[] = {"float32", "int64", "float64", NULL};
static const fleet_dtype dtypes[] = {FLEET_FLOAT32, FLEET_INT64, FLEET_FLOAT64};

/* --- writing ------------------------------------------------------------- */

static fleet_status put_ints(fl_json *object, const char *key, const int64_t *v,
                             int n)
{
    fl_json *list = fl_json_array();

    FL_TRY(fl_json_put(object, key, list));
    for (int i = 0; i < n; i++)
        FL_TRY(fl_json_append(list, fl_json_int(v[i])));
    return FLEET_OK;
}

/* What is written of a program. */
typedef struct writing {
    const fleet_program *p;
    const bool *marked; /* nodes */
    const bool *given;  /* variables that other nodes compute, by id: they
                           become data; NULL: none */
    bool all;           /* variables too that no node reads */
    bool trains;        /* with what a training has to know */
} writing;

/* Does an accessor of a table that is written count by it? */
static bool is_shown(const writing *w, const fleet_var *v)
{
    for (size_t i = 0; v->kind == FL_VAR_DATA && i < w->p->n_var; i++) {
        const fleet_var *t = w->p->var[i];
        const fleet_accessor *a = &t->ids.life.accessor;
        bool names = t->kind == FL_VAR_TABLE &&
                     ((a->show && strcmp(a->show, v->name) == 0) ||
                      (a->click && strcmp(a->click, v->name) == 0));

        if (names && fl_program_reads(w->p, w->marked, t))
            return true;
    }
    return false;
}

static bool is_written(const writing *w, const fleet_var *v)
{
    if (w->given && w->given[v->id])
        return true;
    return v->kind != FL_VAR_TEMP &&
           (w->all || fl_program_reads(w->p, w->marked, v) ||
            (w->trains && is_shown(w, v)));
}

static fleet_status put_initializer(fl_json *o, const fleet_initializer *f)
{
    FL_TRY(fl_json_put(o, "initializer", fl_json_int(f->kind)));
    FL_TRY(fl_json_put(o, "a", fl_json_double((double)f->a, 9)));
    return fl_json_put(o, "b", fl_json_double((double)f->b, 9));
}

/* What is written only of a program that is to be trained. */
static fleet_status put_trained(const writing *w, fl_json *o,
                                const fleet_var *v)
{
    if (v->weighs && is_written(w, v->weighs))
        return fl_json_put(o, "weighs", fl_json_string(v->weighs->name));
    if (v->kind == FL_VAR_PARAM)
        FL_TRY(put_initializer(o, &v->attr.initializer));
    if (v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE)
        FL_TRY(fl_param_to_json(v, o));
    return v->kind == FL_VAR_TABLE ? fl_table_to_json(v, o) : FLEET_OK;
}

static fleet_status put_device(fl_json *o, fleet_place place)
{
    return place == 0
               ? FLEET_OK
               : fl_json_put(o, "device",
                             fl_json_string(fl_place_print(place).chars));
}

static fleet_status put_var(const writing *w, fl_json *list, const fleet_var *v)
{
    fl_var_kind kind = v->kind == FL_VAR_TEMP ? FL_VAR_DATA : v->kind;
    fl_json *o = fl_json_object();

    FL_TRY(fl_json_append(list, o));
    FL_TRY(fl_json_put(o, "name", fl_json_string(v->name)));
    FL_TRY(fl_json_put(o, "kind", fl_json_string(fl_var_kind_names[kind])));
    FL_TRY(fl_json_put(o, "dtype", fl_json_string(fleet_dtype_name(v->dtype))));
    FL_TRY(put_ints(o, "shape", v->shape.dim, v->shape.n_dim));
    if (v->ragged)
        FL_TRY(fl_json_put(o, "ragged", fl_json_bool(true)));
    if (v->kind == FL_VAR_TABLE) {
        FL_TRY(put_initializer(o, &v->attr.initializer));
        FL_TRY(fl_table_ids_to_json(&v->ids, o));
    }
    if (!w->trains)
        return FLEET_OK;
    FL_TRY(put_device(o, v->place));
    return put_trained(w, o, v);
}

static fleet_status put_names(fl_json *node, const char *key,
                              fleet_var *const *v, int n)
{
    fl_json *list;

    FL_TRY(fl_json_put_array(node, key, &list));
    for (int i = 0; i < n; i++)
        FL_TRY(fl_json_append(list, fl_json_string(v[i] ? v[i]->name : "")));
    return FLEET_OK;
}

/* `at`: its place among what is written. */
static fleet_status put_node(const writing *w, fl_json *list, const fl_node *n,
                             int at)
{
    fl_json *o = fl_json_object(), *attrs;

    FL_TRY(fl_json_append(list, o));
    FL_TRY(fl_json_put(o, "op", fl_json_string(n->op->name)));
    FL_TRY(put_names(o, "in", n->in, n->n_in));
    FL_TRY(put_names(o, "out", n->out, n->op->n_out));
    attrs = fl_json_object();
    FL_TRY(fl_json_put(o, "attrs", attrs));
    for (int i = 0; i < n->n_attr; i++)
        FL_TRY(fl_attr_to_json(&n->attr[i], attrs));
    if (w->trains)
        FL_TRY(put_device(o, n->place));
    return w->trains && n->stream != at
               ? fl_json_put(o, "stream", fl_json_int(n->stream))
               : FLEET_OK;
}

/* How many names each stem has been asked for: layers that are added later go
 * on from that number. */
static fleet_status put_stems(const fleet_program *p, fl_json *object)
{
    fl_json *o = fl_json_object();

    FL_TRY(fl_json_put(object, "stems", o));
    for (size_t i = 0; i < p->stems.n; i++) {
        const int64_t *n = p->stems.entry[i].value;

        FL_TRY(fl_json_put(o, p->stems.entry[i].name, fl_json_int(*n)));
    }
    return FLEET_OK;
}

static fleet_status put_all(const writing *w, fl_json *object)
{
    const fleet_program *p = w->p;
    fl_json *vars, *nodes;
    int n = 0;

    if (w->trains) {
        FL_TRY(fl_json_put(object, "trains", fl_json_bool(true)));
        FL_TRY(put_stems(p, object));
    }
    FL_TRY(fl_json_put_array(object, "vars", &vars));
    FL_TRY(fl_json_put_array(object, "nodes", &nodes));
    for (size_t i = 0; i < p->n_var; i++)
        if (is_written(w, p->var[i]))
            FL_TRY(put_var(w, vars, p->var[i]));
    for (size_t i = 0; i < p->n_node; i++)
        if (w->marked[i])
            FL_TRY(put_node(w, nodes, p->node[i], n++));
    return FLEET_OK;
}

/* targets NULL: all. */
static fleet_status to_json(const fleet_program *p, fleet_var *const *targets,
                            int n, bool trains, fl_json **json)
{
    bool *marked = fl_alloc(p->n_node);
    writing w = {.p = p, .marked = marked, .all = !targets, .trains = trains};
    fleet_status status;

    *json = fl_json_object();
    if (!marked || !*json)
        status = FLEET_ENOMEM;
    else {
        if (targets)
            fl_program_mark(p, targets, n, marked);
        else
            memset(marked, true, p->n_node * sizeof *marked);
        status = put_all(&w, *json);
    }
    fl_free(marked);
    if (status != FLEET_OK) {
        fl_json_free(*json);
        *json = NULL;
    }
    return status;
}

fleet_status fl_program_to_json(const fleet_program *p, fleet_var *const *fetch,
                                int n_fetch, fl_json **json)
{
    return to_json(p, fetch, n_fetch, false, json);
}

fleet_status fl_program_to_json_whole(const fleet_program *p,
                                      fleet_var *const *targets, int n_target,
                                      fl_json **json)
{
    return to_json(p, targets, n_target, true, json);
}

fleet_status fl_program_to_json_stage(const fleet_program *p,
                                      const bool *marked, const bool *given,
                                      fl_json **json)
{
    writing w = {.p = p, .marked = marked, .given = given, .trains = true};
    fleet_status status;

    *json = fl_json_object();
    if (!*json)
        return FLEET_ENOMEM;
    status = put_all(&w, *json);
    if (status != FLEET_OK) {
        fl_json_free(*json);
        *json = NULL;
    }
    return status;
}

/* --- reading ------------------------------------------------------------- */

static fleet_status read_shape(const fl_at *at, fl_shape *shape)
{
    int n = fl_at_count(at);

    *shape = (fl_shape){.n_dim = n};
    if (!fl_at_is_array(at) || n < 1 || n > FLEET_MAX_DIM)
        return fl_at_expected(at, "1 to 8 dimensions");
    for (int i = 0; i < n; i++) {
        fl_at d = fl_at_index(at, i);

        FL_TRY(fl_at_required(&d));
        FL_TRY(fl_at_int(&d, -1, FL_MOST_DIM, &shape->dim[i]));
    }
    return FLEET_OK;
}

static fleet_status read_name(const fl_at *object, const char *key,
                              const char **name)
{
    fl_at at = fl_at_key(object, key);

    FL_TRY(fl_at_required(&at));
    return fl_at_string(&at, name);
}

/* A table's rows may be 0; everything else is as users may write it. */
static fleet_status check_shape(const char *name, fl_var_kind kind,
                                const fl_shape *s)
{
    fl_shape copy = *s;

    if (kind == FL_VAR_TABLE && s->n_dim == 2 && s->dim[0] == 0)
        copy.dim[0] = 1;
    if (kind != FL_VAR_DATA && s->dim[0] < 0)
        return fl_fail(FLEET_ESHAPE, "\"%s\": it cannot have a batch", name);
    return fl_shape_check(name, copy.dim, copy.n_dim);
}

static fleet_status read_initializer(const fl_at *var, fleet_initializer *f)
{
    fl_at kind = fl_at_key(var, "initializer"), a = fl_at_key(var, "a");
    fl_at b = fl_at_key(var, "b");
    int64_t k = FLEET_INIT_CONSTANT;

    *f = (fleet_initializer){0};
    FL_TRY(fl_at_int(&kind, 0, FLEET_INIT_KAIMING_NORMAL, &k));
    FL_TRY(fl_at_float(&a, &f->a));
    FL_TRY(fl_at_float(&b, &f->b));
    f->kind = (fleet_initializer_kind)k;
    return fl_initializer_check(var->path, f);
}

/* Only ids, and numbers, may be of any number. */
static fleet_status check_ragged(const char *name, fl_var_kind kind,
                                 const fl_shape *s)
{
    if (kind == FL_VAR_DATA && s->n_dim == 2 && s->dim[0] == -1 &&
        s->dim[1] == 1)
        return FLEET_OK;
    return fl_fail(FLEET_ESHAPE, "\"%s\": ragged, but not data of [-1,1]",
                   name);
}

static fleet_status read_table(fleet_program *p, const fl_at *at, bool trains,
                               const char *name, const fl_shape *shape)
{
    fleet_param_attr attr = {.frozen = !trains};
    fl_table_cap cap = {0};
    fl_table_ids ids;
    fleet_var *table;

    if (shape->n_dim != 2)
        return fl_fail(FLEET_ESHAPE, "\"%s\": a table has two dimensions",
                       name);
    FL_TRY(read_initializer(at, &attr.initializer));
    FL_TRY(fl_table_ids_from_json(at, &ids));
    if (trains) {
        FL_TRY(fl_param_from_json(at, &attr));
        FL_TRY(fl_table_from_json(at, &ids.life, &cap));
    }
    table = fl_program_table(p, name, shape, &attr, &ids, attr.initializer);
    if (trains)
        fl_table_with_cap(p, table, true, &cap);
    return FLEET_OK;
}

static fleet_status read_param(fleet_program *p, const fl_at *at, bool trains,
                               const char *name, const fl_shape *shape)
{
    fleet_param_attr attr = {.name = name, .frozen = !trains};

    if (trains) {
        FL_TRY(read_initializer(at, &attr.initializer));
        FL_TRY(fl_param_from_json(at, &attr));
    }
    fl_program_param(p, "", "", shape, &attr,
                     (fleet_initializer){FLEET_INIT_CONSTANT, 0, 0});
    return FLEET_OK;
}

/* Weights stand after their ids. */
static fleet_status read_data(fleet_program *p, const fl_at *at,
                              const char *name, fleet_dtype dtype,
                              const fl_shape *shape, bool ragged)
{
    fl_at weighs_at = fl_at_key(at, "weighs");
    const char *of = NULL;
    fleet_var *v, *ids;

    FL_TRY(fl_at_string(&weighs_at, &of));
    v = fl_program_data(p, name, dtype, shape, ragged);
    if (!v || !of)
        return FLEET_OK;
    ids = fleet_program_var(p, of);
    if (!ids || ids == v || ids->kind != FL_VAR_DATA || ids->weights ||
        !ids->ragged || ids->dtype != FLEET_INT64 || !ragged ||
        dtype != FLEET_FLOAT32)
        return fl_at_expected(&weighs_at, "ragged ids before it, without "
                                          "weights, of ragged float32");
    fl_program_weigh(ids, v);
    return FLEET_OK;
}

static fleet_status read_kind(fleet_program *p, const fl_at *at, bool trains)
{
    fl_at kind_at = fl_at_key(at, "kind"), dtype_at = fl_at_key(at, "dtype");
    fl_at shape_at = fl_at_key(at, "shape"),
          ragged_at = fl_at_key(at, "ragged");
    const char *name = NULL;
    int kind = 0, dtype = 0;
    bool ragged = false;
    fl_shape shape;

    FL_TRY(read_name(at, "name", &name));
    FL_TRY(fl_at_required(&kind_at));
    FL_TRY(fl_at_choice(&kind_at, fl_var_kind_names, &kind));
    FL_TRY(fl_at_choice(&dtype_at, dtype_names, &dtype));
    if (dtypes[dtype] == FLEET_FLOAT64 && kind != FL_VAR_STATE)
        return fl_at_expected(&dtype_at, "float32 or int64");
    FL_TRY(fl_at_bool(&ragged_at, &ragged));
    FL_TRY(read_shape(&shape_at, &shape));
    FL_TRY(check_shape(name, (fl_var_kind)kind, &shape));
    if (ragged)
        FL_TRY(check_ragged(name, (fl_var_kind)kind, &shape));
    switch ((fl_var_kind)kind) {
    case FL_VAR_DATA:
        FL_TRY(read_data(p, at, name, dtypes[dtype], &shape, ragged));
        break;
    case FL_VAR_PARAM:
        FL_TRY(read_param(p, at, trains, name, &shape));
        break;
    case FL_VAR_TABLE:
        FL_TRY(read_table(p, at, trains, name, &shape));
        break;
    case FL_VAR_STATE:
        fl_program_state_named(p, name, dtypes[dtype], &shape);
        break;
    default:
        return fl_at_expected(&kind_at, "a variable that is not computed");
    }
    return fleet_program_status(p);
}

static fleet_status read_device(fleet_program *p, const fl_at *at)
{
    fl_at device_at = fl_at_key(at, "device");
    const char *device = NULL;

    FL_TRY(fl_at_string(&device_at, &device));
    return fleet_device_guard(p, device);
}

static fleet_status read_var(fleet_program *p, const fl_at *at, bool trains)
{
    if (trains)
        FL_TRY(read_device(p, at));
    FL_TRY(read_kind(p, at, trains));
    p->guard = 0;
    return FLEET_OK;
}

/* The attributes that the op's "name:type name:type" lists. */
static fleet_status read_attrs(fleet_program *p, const fl_at *attrs,
                               const char *list, fl_attr *attr, int *n)
{
    *n = 0;
    while (list && *list) {
        size_t length = strcspn(list, ":");
        char *name = fl_arena_alloc(&p->arena, length + 1);

        if (!name)
            return FLEET_ENOMEM;
        memcpy(name, list, length);
        FL_TRY(fl_attr_from_json(&attr[(*n)++], &p->arena, attrs, name,
                                 list[length + 1]));
        list += length + 2;
        list += *list == ' ';
    }
    return FLEET_OK;
}

/* May it be absent? Operators of any number of inputs want all of them. */
static bool is_optional(const fl_op *op, int input)
{
    return input >= op->least_in && op->most_in != INT32_MAX;
}

static fleet_status read_inputs(fleet_program *p, const fl_at *at,
                                const fl_op *op, fleet_var ***in, int *n_in)
{
    int n = fl_at_count(at);

    if (!fl_at_is_array(at) || n < op->least_in || n > op->most_in)
        return fl_at_expected(at, "as many inputs as the op has");
    *in = fl_arena_alloc(&p->arena, (size_t)(n + 1) * sizeof **in);
    if (!*in)
        return FLEET_ENOMEM;
    for (fl_at e = fl_at_first(at); e.json; fl_at_next(at, &e)) {
        const char *name = "";
        int i = e.index;

        FL_TRY(fl_at_string(&e, &name));
        (*in)[i] = fleet_program_var(p, name);
        if (!(*in)[i] && (*name || !is_optional(op, i)))
            return fl_fail(FLEET_ECONFIG, "%s: no variable \"%s\"", e.path,
                           name);
    }
    *n_in = n;
    return FLEET_OK;
}

/* The place of its guard, and the stream of its random numbers: streams of
 * nodes before it are lower. */
static fleet_status read_guard(fleet_program *p, const fl_at *at)
{
    fl_at stream_at = fl_at_key(at, "stream");
    int64_t stream = p->next_stream;

    FL_TRY(read_device(p, at));
    FL_TRY(
        fl_at_int(&stream_at, p->next_stream, FL_MOST_RANDOM_STREAM, &stream));
    p->next_stream = (int)stream;
    return FLEET_OK;
}

static fleet_status read_node(fleet_program *p, const fl_at *at, bool trains,
                              fl_op_finder *find)
{
    fl_at in_at = fl_at_key(at, "in"), out_at = fl_at_key(at, "out");
    fl_at attrs_at = fl_at_key(at, "attrs");
    const char *name = NULL;
    fl_attr attr[FL_MAX_ATTR];
    fleet_var **in = NULL;
    int n_in = 0, n_attr = 0;
    const fl_op *op;

    FL_TRY(read_name(at, "op", &name));
    op = find(name);
    if (!op)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s.op: there is no op \"%s\": a custom one has to be "
                       "registered before (fleet_custom_op_register)",
                       at->path, name);
    FL_TRY(read_inputs(p, &in_at, op, &in, &n_in));
    FL_TRY(read_attrs(p, &attrs_at, op->attrs, attr, &n_attr));
    if (!fl_at_is_array(&out_at) || fl_at_count(&out_at) != op->n_out)
        return fl_at_expected(&out_at, "as many outputs as the op has");
    if (trains)
        FL_TRY(read_guard(p, at));
    p->output_name = NULL;
    if (op->n_out >= 1) {
        fl_at first = fl_at_index(&out_at, 0);

        FL_TRY(fl_at_string(&first, &p->output_name));
    }
    fl_program_add(p, op, in, n_in, attr, n_attr);
    p->output_name = NULL;
    p->guard = 0;
    return fleet_program_status(p);
}

static fleet_status read_stems(fleet_program *p, const fl_at *stems)
{
    for (fl_at e = fl_at_first_member(stems); e.json;
         fl_at_next_member(stems, &e)) {
        int64_t count = 0;

        FL_TRY(fl_at_int(&e, 0, FL_MOST_EXACT / 2, &count));
        FL_TRY(fl_program_count_names(p, fl_at_name(&e), count));
    }
    return FLEET_OK;
}

fleet_status fl_program_from_json(fleet_program *p, const fl_at *at,
                                  fl_op_finder *find)
{
    fl_at vars = fl_at_key(at, "vars"), nodes = fl_at_key(at, "nodes");
    fl_at trains_at = fl_at_key(at, "trains"), stems = fl_at_key(at, "stems");
    bool trains = false;

    FL_TRY(fl_at_bool(&trains_at, &trains));
    if (!fl_at_is_array(&vars))
        return fl_at_expected(&vars, "an array of variables");
    if (!fl_at_is_array(&nodes))
        return fl_at_expected(&nodes, "an array of nodes");
    for (fl_at e = fl_at_first(&vars); e.json; fl_at_next(&vars, &e))
        FL_TRY(read_var(p, &e, trains));
    for (fl_at e = fl_at_first(&nodes); e.json; fl_at_next(&nodes, &e))
        FL_TRY(read_node(p, &e, trains, find));
    return trains ? read_stems(p, &stems) : FLEET_OK;
}
