/* program_json.c - a program as JSON, for inference models: the variables and
 * nodes that compute some of its variables. What is read is checked as if a
 * user had built it. */
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "runtime/graph/initializer.h"
#include "runtime/graph/program.h"
#include "runtime/graph/program_json.h"

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

/* A table's rules for ids, where they are not the defaults. */
static fleet_status put_table_ids(fl_json *o, const fl_table_ids *ids)
{
    if (ids->check)
        FL_TRY(fl_json_put(o, "check_ids", fl_json_bool(true)));
    if (ids->storage != FLEET_ROW_FLOAT32)
        FL_TRY(fl_json_put(o, "storage",
                           fl_json_string(fl_storage_names[ids->storage])));
    if (ids->fresh == FLEET_FRESH_INITIAL)
        return FLEET_OK;
    FL_TRY(fl_json_put(o, "fresh", fl_json_string(fl_fresh_names[ids->fresh])));
    if (ids->fresh != FLEET_FRESH_ROW)
        return FLEET_OK;
    return fl_json_put(o, "default_id", fl_json_hex((uint64_t)ids->default_id));
}

static fleet_status put_var(fl_json *list, const fleet_var *v)
{
    fl_json *o = fl_json_object();
    const fleet_initializer *f = &v->attr.initializer;

    FL_TRY(fl_json_append(list, o));
    FL_TRY(fl_json_put(o, "name", fl_json_string(v->name)));
    FL_TRY(fl_json_put(o, "kind", fl_json_string(fl_var_kind_names[v->kind])));
    FL_TRY(fl_json_put(o, "dtype", fl_json_string(fleet_dtype_name(v->dtype))));
    FL_TRY(put_ints(o, "shape", v->shape.dim, v->shape.n_dim));
    if (v->ragged)
        FL_TRY(fl_json_put(o, "ragged", fl_json_bool(true)));
    if (v->kind != FL_VAR_TABLE)
        return FLEET_OK;
    FL_TRY(fl_json_put(o, "initializer", fl_json_int(f->kind)));
    FL_TRY(fl_json_put(o, "a", fl_json_double((double)f->a, 9)));
    FL_TRY(fl_json_put(o, "b", fl_json_double((double)f->b, 9)));
    return put_table_ids(o, &v->ids);
}

static fleet_status put_attr(fl_json *attrs, const fl_attr *a)
{
    switch (a->type) {
    case FL_INT:
        return fl_json_put(attrs, a->name, fl_json_int(a->i));
    case FL_FLOAT:
        return fl_json_put(attrs, a->name, fl_json_double(a->f, 17));
    default:
        return put_ints(attrs, a->name, a->v, a->n);
    }
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

static fleet_status put_node(fl_json *list, const fl_node *n)
{
    fl_json *o = fl_json_object(), *attrs;

    FL_TRY(fl_json_append(list, o));
    FL_TRY(fl_json_put(o, "op", fl_json_string(n->op->name)));
    FL_TRY(put_names(o, "in", n->in, n->n_in));
    FL_TRY(put_names(o, "out", n->out, n->op->n_out));
    attrs = fl_json_object();
    FL_TRY(fl_json_put(o, "attrs", attrs));
    for (int i = 0; i < n->n_attr; i++)
        FL_TRY(put_attr(attrs, &n->attr[i]));
    return FLEET_OK;
}

static fleet_status put_all(const fleet_program *p, const bool *marked,
                            fl_json *object)
{
    fl_json *vars, *nodes;

    FL_TRY(fl_json_put_array(object, "vars", &vars));
    FL_TRY(fl_json_put_array(object, "nodes", &nodes));
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->kind != FL_VAR_TEMP &&
            fl_program_reads(p, marked, p->var[i]))
            FL_TRY(put_var(vars, p->var[i]));
    for (size_t i = 0; i < p->n_node; i++)
        if (marked[i])
            FL_TRY(put_node(nodes, p->node[i]));
    return FLEET_OK;
}

fleet_status fl_program_to_json(const fleet_program *p, fleet_var *const *fetch,
                                int n_fetch, fl_json **json)
{
    bool *marked = fl_alloc(p->n_node);
    fleet_status status;

    *json = fl_json_object();
    if (!marked || !*json)
        status = FLEET_ENOMEM;
    else {
        fl_program_mark(p, fetch, n_fetch, marked);
        status = put_all(p, marked, *json);
    }
    fl_free(marked);
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

static fleet_status read_table_ids(const fl_at *var, fl_table_ids *ids)
{
    fl_at check = fl_at_key(var, "check_ids"), fresh = fl_at_key(var, "fresh");
    fl_at id = fl_at_key(var, "default_id");
    fl_at storage = fl_at_key(var, "storage");
    int which = FLEET_FRESH_INITIAL, kept = FLEET_ROW_FLOAT32;

    *ids = (fl_table_ids){0};
    FL_TRY(fl_at_bool(&check, &ids->check));
    FL_TRY(fl_at_choice(&fresh, fl_fresh_names, &which));
    ids->fresh = (fleet_fresh)which;
    FL_TRY(fl_at_choice(&storage, fl_storage_names, &kept));
    ids->storage = (fleet_row_storage)kept;
    if (ids->fresh == FLEET_FRESH_ROW)
        return fl_at_hex(&id, (uint64_t *)&ids->default_id);
    return FLEET_OK;
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

static fleet_status read_table(fleet_program *p, const fl_at *at,
                               const char *name, const fl_shape *shape)
{
    fleet_param_attr attr = {.frozen = 1};
    fl_table_ids ids;

    if (shape->n_dim != 2)
        return fl_fail(FLEET_ESHAPE, "\"%s\": a table has two dimensions",
                       name);
    FL_TRY(read_initializer(at, &attr.initializer));
    FL_TRY(read_table_ids(at, &ids));
    fl_program_table(p, name, shape, &attr, &ids, attr.initializer);
    return FLEET_OK;
}

static fleet_status read_var(fleet_program *p, const fl_at *at)
{
    fl_at kind_at = fl_at_key(at, "kind"), dtype_at = fl_at_key(at, "dtype");
    fl_at shape_at = fl_at_key(at, "shape"),
          ragged_at = fl_at_key(at, "ragged");
    fleet_param_attr attr = {.frozen = 1};
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
        fl_program_data(p, name, dtypes[dtype], &shape, ragged);
        break;
    case FL_VAR_PARAM:
        attr.name = name;
        fl_program_param(p, "", "", &shape, &attr,
                         (fleet_initializer){FLEET_INIT_CONSTANT, 0, 0});
        break;
    case FL_VAR_TABLE:
        FL_TRY(read_table(p, at, name, &shape));
        break;
    case FL_VAR_STATE:
        fl_program_state_named(p, name, dtypes[dtype], &shape);
        break;
    default:
        return fl_at_expected(&kind_at, "a variable that is not computed");
    }
    return fleet_program_status(p);
}

static fleet_status read_attr(fleet_program *p, const fl_at *attrs,
                              const char *name, char type, fl_attr *a)
{
    fl_at at = fl_at_key(attrs, name);
    int64_t *v;

    FL_TRY(fl_at_required(&at));
    *a = (fl_attr){.name = name};
    if (type == 'i') {
        a->type = FL_INT;
        return fl_at_int(&at, -((int64_t)1 << 53), (int64_t)1 << 53, &a->i);
    }
    if (type == 'f') {
        a->type = FL_FLOAT;
        return fl_at_double(&at, -1e300, 1e300, &a->f);
    }
    a->type = FL_INTS;
    a->n = fl_at_count(&at);
    if (!fl_at_is_array(&at) || a->n > FLEET_MAX_DIM)
        return fl_at_expected(&at, "up to 8 integers");
    a->v = v = fl_arena_alloc(&p->arena, (size_t)(a->n + 1) * sizeof *v);
    for (int i = 0; v && i < a->n; i++) {
        fl_at one = fl_at_index(&at, i);

        FL_TRY(fl_at_int(&one, -FL_MOST_DIM, FL_MOST_DIM, &v[i]));
    }
    return v ? FLEET_OK : FLEET_ENOMEM;
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
        FL_TRY(read_attr(p, attrs, name, list[length + 1], &attr[(*n)++]));
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

static fleet_status read_node(fleet_program *p, const fl_at *at,
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
    p->output_name = NULL;
    if (op->n_out >= 1) {
        fl_at first = fl_at_index(&out_at, 0);

        FL_TRY(fl_at_string(&first, &p->output_name));
    }
    fl_program_add(p, op, in, n_in, attr, n_attr);
    p->output_name = NULL;
    return fleet_program_status(p);
}

fleet_status fl_program_from_json(fleet_program *p, const fl_at *at,
                                  fl_op_finder *find)
{
    fl_at vars = fl_at_key(at, "vars"), nodes = fl_at_key(at, "nodes");

    if (!fl_at_is_array(&vars))
        return fl_at_expected(&vars, "an array of variables");
    if (!fl_at_is_array(&nodes))
        return fl_at_expected(&nodes, "an array of nodes");
    for (fl_at e = fl_at_first(&vars); e.json; fl_at_next(&vars, &e))
        FL_TRY(read_var(p, &e));
    for (fl_at e = fl_at_first(&nodes); e.json; fl_at_next(&nodes, &e))
        FL_TRY(read_node(p, &e, find));
    return FLEET_OK;
}
