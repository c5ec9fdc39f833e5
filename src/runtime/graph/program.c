/* program.c - variables and nodes are added to a program. */
#include "runtime/graph/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/simd/row_storage.h"
#include "runtime/graph/param_attr.h"
#include "runtime/graph/table_options.h"

fleet_program *fl_program_create(fl_context *context, struct fl_store *store)
{
    fleet_program *p = fl_alloc(sizeof *p);

    if (p) {
        p->context = context;
        p->store = store;
        p->training.merge.steps = 1;
    }
    return p;
}

void fl_program_free(fleet_program *p)
{
    if (!p)
        return;
    fl_map_done(&p->names);
    fl_map_done(&p->stems);
    fl_free(p->var);
    fl_free(p->node);
    fl_arena_done(&p->arena);
    fl_place_done(&p->place);
    fl_free(p);
}

bool fl_program_ok(const fleet_program *p)
{
    return p && p->error.code == FLEET_OK;
}

/* A program that has run is whole: what it refuses does not make it worse. */
void *fl_program_failed(fleet_program *p, fleet_status code)
{
    if (!p->sealed && p->error.code == FLEET_OK)
        fl_error_take(&p->error, code);
    return NULL;
}

fleet_status fleet_program_status(const fleet_program *p)
{
    if (!p)
        return fl_fail(FLEET_EINVAL, "fleet_program_status: no program");
    return fl_error_raise(&p->error);
}

fleet_var *fleet_program_var(const fleet_program *p, const char *name)
{
    return p && name ? fl_map_get(&p->names, name) : NULL;
}

const char *fleet_var_name(const fleet_var *v)
{
    return v ? v->name : "";
}

fleet_dtype fleet_var_dtype(const fleet_var *v)
{
    return v ? v->dtype : (fleet_dtype)0;
}

int fleet_var_shape(const fleet_var *v, int64_t *dims)
{
    if (!v)
        return 0;
    for (int i = 0; dims && i < v->shape.n_dim; i++)
        dims[i] = v->shape.dim[i];
    return v->shape.n_dim;
}

int fleet_var_is_ragged(const fleet_var *v)
{
    return v && v->ragged;
}

const fleet_var *fleet_var_weights(const fleet_var *v)
{
    return v ? v->weights : NULL;
}

/* --- variables ----------------------------------------------------------- */

/* Executors may be reading what a program has that has run. */
static fleet_status check_open(const fleet_program *p, const char *name)
{
    return p->sealed
               ? fl_fail(FLEET_ESTATE,
                         "the program has run: \"%s\" can no longer be added",
                         name)
               : FLEET_OK;
}

static fleet_status add_var(fleet_program *p, const fleet_var *like,
                            const char *name, fleet_var **out)
{
    fleet_var *v;

    FL_TRY(check_open(p, name));
    FL_TRY(fl_grow(&p->var, &p->var_capacity, p->n_var + 1, sizeof *p->var));
    v = fl_arena_copy(&p->arena, like, sizeof *like);
    if (!v || !(v->name = fl_arena_strdup(&p->arena, name)))
        return FLEET_ENOMEM;
    v->program = p;
    v->id = (int)p->n_var;
    v->place = v->kind == FL_VAR_DATA || v->kind == FL_VAR_TEMP ? 0 : p->guard;
    FL_TRY(fl_map_put(&p->names, name, v));
    p->var[p->n_var++] = v;
    *out = v;
    return FLEET_OK;
}

static fleet_var *new_var(fleet_program *p, const fleet_var *like,
                          const char *name)
{
    fleet_var *v = NULL;
    fleet_status status;

    if (!name || !*name)
        status = fl_fail(FLEET_EINVAL, "a variable needs a name");
    else
        status = add_var(p, like, name, &v);
    return status == FLEET_OK ? v : fl_program_failed(p, status);
}

fleet_var *fl_program_data(fleet_program *p, const char *name,
                           fleet_dtype dtype, const fl_shape *shape,
                           bool ragged)
{
    fleet_var like = {
        .kind = FL_VAR_DATA, .dtype = dtype, .shape = *shape, .ragged = ragged};

    return fl_program_ok(p) ? new_var(p, &like, name) : NULL;
}

void fl_program_weigh(fleet_var *ids, fleet_var *weights)
{
    ids->weights = weights;
    weights->weighs = ids;
}

/* The same of what tables do with ids. */
static const char *differing_ids(const fl_table_ids *is,
                                 const fl_table_ids *want)
{
    if (want->check && !is->check)
        return "check_ids";
    if (want->fresh != FLEET_FRESH_INITIAL && want->fresh != is->fresh)
        return "fresh";
    if (want->storage != FLEET_ROW_FLOAT32 && want->storage != is->storage)
        return "storage";
    if (want->fresh == FLEET_FRESH_ROW && want->default_id != is->default_id)
        return "default_id";
    return fl_table_options_differ(&is->life, &want->life);
}

/* In the message about a name that two things have. */
static const char *kind_name(fl_var_kind kind)
{
    switch (kind) {
    case FL_VAR_DATA:
        return "a data variable";
    case FL_VAR_PARAM:
        return "a parameter";
    case FL_VAR_TABLE:
        return "a table";
    case FL_VAR_STATE:
        return "a metric's state";
    default:
        return "an operator's result";
    }
}

/* The program has a parameter of that name: the same one, if it fits. */
static fleet_var *share_param(fleet_program *p, fleet_var *old,
                              const fleet_var *like)
{
    bool fits =
        old->kind == like->kind && fl_shape_equal(&old->shape, &like->shape);
    const char *other =
        fits ? fl_param_attr_differ(&old->attr, &like->attr) : NULL;

    if (fits && !other)
        other = differing_ids(&old->ids, &like->ids);
    if (fits && !other)
        return old;
    if (other)
        fl_fail(FLEET_EEXIST,
                "\"%s\" is there already with another %s: who shares it states "
                "the same one, or none",
                old->name, other);
    else if (old->kind != like->kind)
        fl_fail(FLEET_EEXIST,
                "\"%s\" is the name of two things, %s and %s: variables, "
                "parameters and tables of a program share one set of names",
                old->name, kind_name(old->kind), kind_name(like->kind));
    else
        fl_fail(
            FLEET_EEXIST,
            "\"%s\" is there already with shape %s: it cannot be shared as %s",
            old->name, fl_shape_print(&old->shape).chars,
            fl_shape_print(&like->shape).chars);
    return fl_program_failed(p, FLEET_EEXIST);
}

static fleet_var *named_or_shared(fleet_program *p, fleet_var *like,
                                  const char *name, bool may_share,
                                  fleet_initializer fallback)
{
    fleet_var *old = fleet_program_var(p, name);

    if (old && may_share)
        return share_param(p, old, like);
    if (like->attr.initializer.kind == FLEET_INIT_DEFAULT)
        like->attr.initializer = fallback;
    return new_var(p, like, name);
}

/* "prefix.suffix", of any length: no two names may be cut to the same. */
static const char *dotted_name(fleet_program *p, const char *prefix,
                               const char *suffix)
{
    size_t size = strlen(prefix) + strlen(suffix) + 2;
    char *name = fl_arena_alloc(&p->arena, size);

    if (name)
        snprintf(name, size, "%s.%s", prefix, suffix);
    return name;
}

static bool attr_is_possible(fleet_program *p, const char *name,
                             const fleet_param_attr *a)
{
    fleet_status status = fl_param_attr_check(name, a);

    if (status != FLEET_OK)
        fl_program_failed(p, status);
    return status == FLEET_OK;
}

fleet_var *fl_program_param(fleet_program *p, const char *prefix,
                            const char *suffix, const fl_shape *shape,
                            const fleet_param_attr *attr,
                            fleet_initializer fallback)
{
    fleet_var like = {
        .kind = FL_VAR_PARAM, .dtype = FLEET_FLOAT32, .shape = *shape};
    const char *given = attr ? attr->name : NULL, *name;

    if (!fl_program_ok(p))
        return NULL;
    if (attr)
        like.attr = *attr;
    like.attr.name = NULL;
    name = given ? given : dotted_name(p, prefix, suffix);
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    return attr_is_possible(p, name, &like.attr)
               ? named_or_shared(p, &like, name, given != NULL, fallback)
               : NULL;
}

/* shape is the table's: its rows may be 0, which is no bound. */
fleet_status fl_table_ids_check(const char *name, const fl_shape *shape,
                                const fl_table_ids *ids)
{
    const int64_t rows = shape->dim[0];

    if (ids->fresh < FLEET_FRESH_INITIAL || ids->fresh > FLEET_FRESH_ROW)
        return fl_fail(FLEET_EINVAL, "%s: fresh %d does not exist", name,
                       (int)ids->fresh);
    FL_TRY(fl_table_options_check(name, &ids->life));
    FL_TRY(fl_accessor_vector_check(name, &ids->life.accessor, shape->dim[1],
                                    ids->storage));
    if (ids->storage < FLEET_ROW_FLOAT32 || ids->storage > FLEET_ROW_INT8)
        return fl_fail(FLEET_EINVAL, "%s: storage %d does not exist", name,
                       (int)ids->storage);
    if (ids->storage != FLEET_ROW_FLOAT32 && shape->dim[1] > FL_MOST_NARROW_DIM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: storage %s is for rows of at most %d weights, not "
                       "of %" PRId64,
                       name, fl_storage_names[ids->storage],
                       (int)FL_MOST_NARROW_DIM, shape->dim[1]);
    if (!ids->check)
        return FLEET_OK;
    if (rows == 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: check_ids needs rows, the number that ids are "
                       "below; it has none",
                       name);
    if (ids->fresh == FLEET_FRESH_ROW &&
        (ids->default_id < 0 || ids->default_id >= rows))
        return fl_fail(FLEET_EINVAL,
                       "%s: default_id %" PRId64 " is not in [0, %" PRId64 ")",
                       name, ids->default_id, rows);
    return FLEET_OK;
}

fleet_var *fl_program_table(fleet_program *p, const char *name,
                            const fl_shape *shape, const fleet_param_attr *attr,
                            const fl_table_ids *ids, fleet_initializer fallback)
{
    fleet_var like = {.kind = FL_VAR_TABLE,
                      .dtype = FLEET_FLOAT32,
                      .shape = *shape,
                      .attr = *attr,
                      .ids = *ids};
    fleet_status status;

    if (!fl_program_ok(p) || !attr_is_possible(p, name, attr))
        return NULL;
    status = fl_table_ids_check(name, shape, ids);
    if (status == FLEET_OK)
        status = fl_accessor_keep(&p->arena, &like.ids.life.accessor);
    return status == FLEET_OK ? named_or_shared(p, &like, name, true, fallback)
                              : fl_program_failed(p, status);
}

fleet_var *fl_program_state(fleet_program *p, const char *prefix,
                            const char *suffix, fleet_dtype dtype,
                            const fl_shape *shape)
{
    const char *name = fl_program_ok(p) ? dotted_name(p, prefix, suffix) : NULL;

    if (!name)
        return p ? fl_program_failed(p, FLEET_ENOMEM) : NULL;
    return fl_program_state_named(p, name, dtype, shape);
}

fleet_var *fl_program_state_named(fleet_program *p, const char *name,
                                  fleet_dtype dtype, const fl_shape *shape)
{
    fleet_var like = {.kind = FL_VAR_STATE, .dtype = dtype, .shape = *shape};

    return fl_program_ok(p) ? new_var(p, &like, name) : NULL;
}

/* How many names a stem has been asked for. */
static int64_t *counter_of(fleet_program *p, const char *stem)
{
    int64_t *n = fl_map_get(&p->stems, stem);

    if (n)
        return n;
    n = fl_arena_alloc(&p->arena, sizeof *n);
    return n && fl_map_put(&p->stems, stem, n) == FLEET_OK ? n : NULL;
}

fleet_status fl_program_count_names(fleet_program *p, const char *stem,
                                    int64_t count)
{
    int64_t *n = counter_of(p, stem);

    if (!n)
        return FLEET_ENOMEM;
    *n = count;
    return FLEET_OK;
}

const char *fl_program_name(fleet_program *p, const char *stem)
{
    int64_t *n = counter_of(p, stem);
    char name[200];

    if (!n)
        return NULL;
    do
        snprintf(name, sizeof name, "%.150s_%lld", stem, (long long)(*n)++);
    while (fl_map_get(&p->names, name));
    return fl_arena_strdup(&p->arena, name);
}

/* --- nodes --------------------------------------------------------------- */

static fleet_status copy_attrs(fleet_program *p, fl_node *n,
                               const fl_attr *attr, int n_attr)
{
    for (int i = 0; i < n_attr; i++) {
        fl_attr *a = &n->attr[i];

        *a = attr[i];
        a->name = fl_arena_strdup(&p->arena, attr[i].name);
        if (a->v)
            a->v = fl_arena_copy(&p->arena, attr[i].v,
                                 (size_t)a->n * sizeof *a->v);
        if (a->w)
            a->w = fl_arena_copy(&p->arena, attr[i].w,
                                 (size_t)a->n * sizeof *a->w);
        if (!a->name || (attr[i].v && !a->v) || (attr[i].w && !a->w))
            return FLEET_ENOMEM;
    }
    n->n_attr = n_attr;
    return FLEET_OK;
}

/* Outputs are named "<op>_<n>.tmp", the second one "<op>_<n>.tmp.1". */
static fleet_status name_outputs(fleet_program *p, const fl_node *n,
                                 char name[220])
{
    int64_t *count;

    if (p->output_name) {
        snprintf(name, 220, "%.200s", p->output_name);
        return FLEET_OK;
    }
    snprintf(name, 220, "%.150s.tmp", n->op->name);
    count = counter_of(p, name);
    if (!count)
        return FLEET_ENOMEM;
    snprintf(name, 220, "%.150s_%lld.tmp", n->op->name, (long long)(*count)++);
    return FLEET_OK;
}

static fleet_status add_outputs(fleet_program *p, fl_node *n)
{
    char stem[220], name[240];

    FL_TRY(name_outputs(p, n, stem));
    for (int i = 0; i < n->op->n_out; i++) {
        fleet_var like = {.kind = FL_VAR_TEMP, .dtype = FLEET_FLOAT32};

        snprintf(name, sizeof name, i ? "%s.%d" : "%s", stem, i);
        FL_TRY(add_var(p, &like, name, &n->out[i]));
        n->out[i]->producer = n;
    }
    return FLEET_OK;
}

static fleet_status add_node(fleet_program *p, fl_node *n, fleet_var *const *in,
                             int n_in, const fl_attr *attr, int n_attr)
{
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->program != p)
            return fl_fail(FLEET_EINVAL,
                           "%s: \"%s\" is a variable of another program",
                           n->op->name, in[i]->name);
    FL_TRY(
        fl_grow(&p->node, &p->node_capacity, p->n_node + 1, sizeof *p->node));
    n->in = fl_arena_copy(&p->arena, in, (size_t)n_in * sizeof *in);
    n->out = fl_arena_alloc(&p->arena, (size_t)n->op->n_out * sizeof *n->out);
    if (!n->in || !n->out)
        return FLEET_ENOMEM;
    n->n_in = n_in;
    FL_TRY(copy_attrs(p, n, attr, n_attr));
    FL_TRY(add_outputs(p, n));
    FL_TRY(n->op->infer(n));
    n->id = (int)p->n_node;
    n->stream = p->next_stream++;
    n->place = p->guard;
    p->node[p->n_node++] = n;
    return FLEET_OK;
}

fleet_var *fl_program_add(fleet_program *p, const fl_op *op,
                          fleet_var *const *in, int n_in, const fl_attr *attr,
                          int n_attr)
{
    fl_node *n;
    fleet_status status;

    if (!fl_program_ok(p))
        return NULL;
    status = check_open(p, op->name);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    n = fl_arena_alloc(&p->arena, sizeof *n);
    if (!n)
        return fl_program_failed(p, FLEET_ENOMEM);
    n->op = op;
    status = add_node(p, n, in, n_in, attr, n_attr);
    return status == FLEET_OK ? n->out[0] : fl_program_failed(p, status);
}

static void mark_producer(const fleet_var *v, bool *marked)
{
    if (v && v->producer)
        marked[v->producer->id] = true;
}

void fl_program_mark(const fleet_program *p, fleet_var *const *wanted, int n,
                     bool *marked)
{
    memset(marked, 0, p->n_node * sizeof *marked);
    for (int i = 0; i < n; i++)
        mark_producer(wanted[i], marked);
    /* a node stands after all that it reads */
    for (size_t i = p->n_node; i-- > 0;)
        for (int j = 0; marked[i] && j < p->node[i]->n_in; j++)
            mark_producer(p->node[i]->in[j], marked);
}

static bool is_run(const fl_node *n, const fleet_var *loss, const bool *fetched)
{
    for (int j = 0; j < n->op->n_out; j++)
        if (n->out[j] == loss || (fetched && fetched[n->out[j]->id]))
            return true;
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j] && n->in[j]->kind == FL_VAR_STATE)
            return true;
    return false;
}

void fl_program_mark_run(const fleet_program *p, const fleet_var *loss,
                         const bool *fetched, bool *marked)
{
    memset(marked, 0, p->n_node * sizeof *marked);
    for (size_t i = p->n_node; i-- > 0;) {
        const fl_node *n = p->node[i];

        marked[i] = marked[i] || is_run(n, loss, fetched);
        for (int j = 0; marked[i] && j < n->n_in; j++)
            mark_producer(n->in[j], marked);
    }
}

void fl_program_mark_trained(const fleet_program *p, bool *wants)
{
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];
        bool is_kept = v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE;

        wants[i] = v->keep_gradient || (is_kept && !v->attr.frozen);
    }
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];
        bool any = false;

        for (int j = 0; j < n->n_in; j++)
            any = any || (n->in[j] && wants[n->in[j]->id]);
        for (int j = 0; j < n->op->n_out; j++)
            wants[n->out[j]->id] = any && n->op->gradient;
    }
}

bool fl_program_reads(const fleet_program *p, const bool *marked,
                      const fleet_var *v)
{
    for (size_t i = 0; i < p->n_node; i++)
        for (int j = 0; marked[i] && j < p->node[i]->n_in; j++)
            if (p->node[i]->in[j] == v)
                return true;
    return false;
}
