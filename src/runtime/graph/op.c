/* op.c - names of kinds; attributes of nodes, by name and as JSON. */
#include "runtime/graph/op.h"

#include <float.h>
#include <string.h>

#include "base/json/json_write.h"

const char *const fl_var_kind_names[] = {"data",  "param", "table",
                                         "state", "temp",  NULL};
const char *const fl_fresh_names[] = {"initial", "zeros", "row", NULL};
const char *const fl_storage_names[] = {"float32", "float16", "bfloat16",
                                        "int8", NULL};

const fl_attr *fl_node_attr(const fl_node *n, const char *name)
{
    for (int i = 0; i < n->n_attr; i++)
        if (strcmp(n->attr[i].name, name) == 0)
            return &n->attr[i];
    return NULL;
}

int64_t fl_node_int(const fl_node *n, const char *name)
{
    return fl_node_attr(n, name)->i;
}

double fl_node_float(const fl_node *n, const char *name)
{
    return fl_node_attr(n, name)->f;
}

/* --- as JSON -------------------------------------------------------------- */

static fleet_status put_list(fl_json *attrs, const fl_attr *a)
{
    fl_json *list;

    FL_TRY(fl_json_put_array(attrs, a->name, &list));
    for (int i = 0; i < a->n; i++)
        FL_TRY(fl_json_append(list, a->type == FL_INTS
                                        ? fl_json_int(a->v[i])
                                        : fl_json_double((double)a->w[i], 9)));
    return FLEET_OK;
}

fleet_status fl_attr_to_json(const fl_attr *a, fl_json *attrs)
{
    switch (a->type) {
    case FL_INT:
        return fl_json_put(attrs, a->name, fl_json_int(a->i));
    case FL_FLOAT:
        return fl_json_put(attrs, a->name, fl_json_double(a->f, 17));
    default:
        return put_list(attrs, a);
    }
}

static fleet_status read_ints(fl_attr *a, fl_arena *arena, const fl_at *at)
{
    int64_t *v;

    a->type = FL_INTS;
    a->n = fl_at_count(at);
    if (!fl_at_is_array(at) || a->n > FLEET_MAX_DIM)
        return fl_at_expected(at, "up to 8 integers");
    a->v = v = fl_arena_alloc(arena, (size_t)(a->n + 1) * sizeof *v);
    for (int i = 0; v && i < a->n; i++) {
        fl_at one = fl_at_index(at, i);

        FL_TRY(fl_at_int(&one, -FL_MOST_DIM, FL_MOST_DIM, &v[i]));
    }
    return v ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status read_floats(fl_attr *a, fl_arena *arena, const fl_at *at)
{
    float *w;

    a->type = FL_FLOATS;
    a->n = fl_at_count(at);
    if (!fl_at_is_array(at) || a->n > FL_MOST_FLOATS)
        return fl_at_expected(at, "up to 512 numbers");
    a->w = w = fl_arena_alloc(arena, (size_t)(a->n + 1) * sizeof *w);
    for (int i = 0; w && i < a->n; i++) {
        fl_at one = fl_at_index(at, i);
        double number = 0;

        FL_TRY(fl_at_double(&one, -(double)FLT_MAX, (double)FLT_MAX, &number));
        w[i] = (float)number;
    }
    return w ? FLEET_OK : FLEET_ENOMEM;
}

fleet_status fl_attr_from_json(fl_attr *a, fl_arena *arena, const fl_at *attrs,
                               const char *name, char type)
{
    fl_at at = fl_at_key(attrs, name);

    FL_TRY(fl_at_required(&at));
    *a = (fl_attr){.name = name};
    switch (type) {
    case 'i':
        a->type = FL_INT;
        return fl_at_int(&at, -((int64_t)1 << 53), (int64_t)1 << 53, &a->i);
    case 'f':
        a->type = FL_FLOAT;
        return fl_at_double(&at, -1e300, 1e300, &a->f);
    case 'v':
        return read_ints(a, arena, &at);
    default:
        return read_floats(a, arena, &at);
    }
}
