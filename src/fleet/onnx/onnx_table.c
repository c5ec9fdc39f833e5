/* onnx_table.c - a table's rows as a tensor, and how ids find them in it. */
#include "fleet/onnx/onnx_table.h"

#include <inttypes.h>
#include <string.h>

#include "fleet/onnx/onnx_ragged.h"
#include "ops/ops.h"
#include "runtime/lookup/unknown_row.h"
#include "runtime/store/store.h"

enum { IN_TABLE, IN_IDS, IN_WEIGHTS };

/* --- rows ----------------------------------------------------------------- */

/* Its rows as they go out. */
typedef struct exported_table {
    fl_onnx *x;
    const fleet_var *var;
    fl_rows *rows;
    bool whole;   /* all of `rows`, each at the place of its id */
    int64_t *key; /* n of them; NULL: whole */
    float *row;
    int64_t n;
} exported_table;

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    exported_table *t = arg;
    int64_t at = t->whole ? (int64_t)key : t->n;

    (void)bucket;
    if (t->whole && key >= (uint64_t)t->rows->modulo)
        return FLEET_OK; /* no id has it */
    if (!t->whole)
        t->key[t->n++] = (int64_t)key;
    fl_rows_read(t->rows, t->row + at * t->rows->dim, row);
    return FLEET_OK;
}

/* As many as are trained, or as there are ids. Where most ids have a row, or
 * each has a first value of its own, all go out. */
static bool goes_out_whole(const exported_table *t)
{
    const fl_rows *r = t->rows;

    return r->modulo > 0 && (r->modulo / 2 <= r->methods->count(r) ||
                             !fl_unknown_is_one(&t->var->ids, r));
}

static fleet_status check_unknown(const exported_table *t)
{
    if (t->whole || fl_unknown_is_one(&t->var->ids, t->rows))
        return FLEET_OK;
    return fl_fail(
        FLEET_EUNSUPPORTED,
        "onnx: an id without a row in table \"%s\" reads as its initial value, "
        "which is drawn for each id, and ONNX cannot draw it: say what it "
        "reads as by fleet_predictor_set_fresh(), or fleet-export --fresh, or "
        "train with a number of `rows`",
        t->var->name);
}

/* Behind the rows of keys is that of unknown ones. */
static fleet_status read_rows(exported_table *t)
{
    const fl_rows *r = t->rows;
    int64_t count = t->whole ? r->modulo : r->methods->count(r) + 1;

    t->row = fl_onnx_room(t->x, (size_t)count, (size_t)r->dim * sizeof *t->row);
    t->key = fl_onnx_room(t->x, t->whole ? 1 : (size_t)count, sizeof *t->key);
    if (!t->row || !t->key)
        return FLEET_ENOMEM;
    for (int64_t i = 0; t->whole && i < count; i++)
        FL_TRY(fl_unknown_row(&t->var->ids, t->rows, (uint64_t)i,
                              t->row + i * r->dim));
    FL_TRY(r->methods->each(r, add_row, t));
    if (t->whole)
        t->n = count;
    else
        FL_TRY(
            fl_unknown_row(&t->var->ids, t->rows, 0, t->row + t->n * r->dim));
    return FLEET_OK;
}

static fleet_status export_rows(fl_onnx *x, const fleet_var *table,
                                exported_table *t)
{
    *t = (exported_table){
        .x = x, .var = table, .rows = fl_store_rows(x->store, table->name)};
    if (!t->rows)
        return fl_fail(FLEET_ENOENT, "onnx: there is no table \"%s\"",
                       table->name);
    t->whole = goes_out_whole(t);
    FL_TRY(check_unknown(t));
    return read_rows(t);
}

static const char *put_rows(fl_onnx *x, const exported_table *t)
{
    int64_t n = t->n + !t->whole;

    return fl_onnx_weights(
        x,
        &(fl_onnx_tensor){.name = t->var->name,
                          .type = FL_ONNX_FLOAT,
                          .n_dim = 2,
                          .dim = {n, t->rows->dim},
                          .data = t->row,
                          .size = (size_t)(n * t->rows->dim) * sizeof *t->row});
}

/* --- which row an id has -------------------------------------------------- */

/* Ids are taken modulo a number as numbers without a sign: 2^64 is added to
 * negative ones. */
static const char *modulo_of(fl_onnx *x, const char *ids, int64_t modulo)
{
    const int64_t over =
        (int64_t)((UINT64_MAX % (uint64_t)modulo + 1) % (uint64_t)modulo);
    const char *m = fl_onnx_integer(x, modulo);
    const char *more =
        FL_ONNX(x, "Where", FL_ONNX(x, "Less", ids, fl_onnx_integer(x, 0)),
                fl_onnx_integer(x, over), fl_onnx_integer(x, 0));

    ids = FL_ONNX(x, "Add", FL_ONNX(x, "Mod", ids, m), more);
    return FL_ONNX(x, "Mod", ids, m);
}

/* An id that is not in [0, modulo) gets a row that there is not, at which
 * Gather fails. */
static const char *checked_index(fl_onnx *x, const exported_table *t,
                                 const char *ids, const char *index)
{
    const char *low = FL_ONNX(x, "GreaterOrEqual", ids, fl_onnx_integer(x, 0));
    const char *high =
        FL_ONNX(x, "Less", ids, fl_onnx_integer(x, t->rows->modulo));

    return FL_ONNX(x, "Where", FL_ONNX(x, "And", low, high), index,
                   fl_onnx_integer(x, t->n + 1));
}

static fl_onnx_tensor *key_tensor(fl_onnx *x, const char *name,
                                  const int64_t *v, int64_t n)
{
    fl_onnx_tensor *t = fl_onnx_room(x, 1, sizeof *t);

    if (t)
        *t = (fl_onnx_tensor){.name = name,
                              .type = FL_ONNX_INT64,
                              .n_dim = 1,
                              .dim = {n},
                              .data = v,
                              .size = (size_t)n * sizeof *v};
    return t;
}

static const char *encode_ids(fl_onnx *x, const exported_table *t,
                              const char *ids)
{
    int64_t *place = fl_onnx_room(x, (size_t)t->n + 1, sizeof *place);
    const char *out;

    if (!place)
        return NULL;
    if (t->n == 0) /* all are unknown; an encoder needs a key */
        return FL_ONNX(x, "Mul", ids, fl_onnx_integer(x, 0));
    for (int64_t i = 0; i <= t->n; i++)
        place[i] = i;
    out = FL_ONNX(x, "LabelEncoder", ids);
    fl_onnx_is_ml(x);
    fl_onnx_with_tensor(x, "keys_tensor", key_tensor(x, "keys", t->key, t->n));
    fl_onnx_with_tensor(x, "values_tensor",
                        key_tensor(x, "values", place, t->n));
    fl_onnx_with_tensor(x, "default_tensor",
                        key_tensor(x, "default", place + t->n, 1));
    return out;
}

static const char *index_rows(fl_onnx *x, const exported_table *t,
                              const char *ids)
{
    const char *key = ids, *index;

    if (t->rows->modulo > 0 && !t->var->ids.check)
        key = modulo_of(x, ids, t->rows->modulo);
    index = t->whole ? key : encode_ids(x, t, key);
    return t->var->ids.check ? checked_index(x, t, ids, index) : index;
}

/* --- all lookups in a table ----------------------------------------------- */

/* The ids that are looked up, each variable once: with a fixed number in a
 * sample, and ragged. */
typedef struct looked_up {
    const fleet_var **fixed, **ragged;
    int n_fixed, n_ragged;
} looked_up;

static bool is_among(const fleet_var *const *v, int n, const fleet_var *one)
{
    for (int i = 0; i < n; i++)
        if (v[i] == one)
            return true;
    return false;
}

static bool find_ids(fl_onnx *x, const fleet_var *table, looked_up *l)
{
    const fleet_program *p = x->program;

    *l = (looked_up){fl_onnx_room(x, p->n_node, sizeof *l->fixed),
                     fl_onnx_room(x, p->n_node, sizeof *l->ragged), 0, 0};
    if (!l->fixed || !l->ragged)
        return false;
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];
        const fleet_var *ids;

        if (!(n->op->traits & FL_OP_LOOKUP) || n->in[IN_TABLE] != table)
            continue;
        ids = n->in[IN_IDS];
        if (ids->ragged && !is_among(l->ragged, l->n_ragged, ids))
            l->ragged[l->n_ragged++] = ids;
        if (!ids->ragged && !is_among(l->fixed, l->n_fixed, ids))
            l->fixed[l->n_fixed++] = ids;
    }
    return true;
}

static const char *what_of(fl_onnx *x, const fleet_var *table,
                           const fleet_var *ids)
{
    return fl_onnx_text(x, "rows of %s\n%s", table->name, ids->name);
}

static void remember_rows(fl_onnx *x, const fleet_var *table,
                          const fleet_var *ids, const char *name)
{
    fl_onnx_remember(x, what_of(x, table, ids), name);
}

/* A node with several outputs of these sizes. */
static const char *const *split_value(fl_onnx *x, const char *v,
                                      const char *sizes, int64_t axis, int n)
{
    const char *const in[] = {v, sizes};
    const char *const *out = fl_onnx_put_many(x, "Split", in, 2, n);

    fl_onnx_with_int(x, "axis", axis);
    return out;
}

/* Side by side: [batch, the sum of L]. */
static const char *join_fixed(fl_onnx *x, const looked_up *l, int64_t *cols)
{
    const char **in = fl_onnx_room(x, (size_t)l->n_fixed, sizeof *in);

    *cols = 0;
    for (int i = 0; in && i < l->n_fixed; i++) {
        in[i] = fl_onnx_of(x, l->fixed[i]);
        *cols += l->fixed[i]->shape.dim[1];
    }
    if (!in || l->n_fixed == 1)
        return in ? in[0] : NULL;
    return fl_onnx_concat(x, 1, in, (size_t)l->n_fixed);
}

/* `rows` are of all fixed ids, in any shape. */
static void share_fixed(fl_onnx *x, const fleet_var *table, const looked_up *l,
                        const char *rows, int64_t cols)
{
    int64_t dim = table->shape.dim[1];
    fl_shape flat = fl_shape_2(-1, cols * dim);
    int64_t *size = fl_onnx_room(x, (size_t)l->n_fixed, sizeof *size);
    const char *const *part = &rows;

    rows = fl_onnx_reshape(x, rows, &flat);
    for (int i = 0; size && i < l->n_fixed; i++)
        size[i] = l->fixed[i]->shape.dim[1] * dim;
    if (size && l->n_fixed > 1)
        part = split_value(x, rows, fl_onnx_ints(x, size, l->n_fixed), 1,
                           l->n_fixed);
    for (int i = 0; part && size && i < l->n_fixed; i++)
        remember_rows(x, table, l->fixed[i], part[i]);
}

/* Ids of all lookups one behind the other, and how many each has. */
static const char *join_all(fl_onnx *x, const looked_up *l, const char *fixed,
                            const char **sizes)
{
    size_t n = 0, room = (size_t)l->n_ragged + 1;
    const char **ids = fl_onnx_room(x, room, sizeof *ids);
    const char **size = fl_onnx_room(x, room, sizeof *size);
    const fl_shape flat = fl_shape_1(-1);

    if (!ids || !size)
        return NULL;
    if (fixed)
        ids[n++] = fl_onnx_reshape(x, fixed, &flat);
    for (int i = 0; i < l->n_ragged; i++)
        ids[n++] = fl_onnx_of(x, l->ragged[i]);
    if (n == 1)
        return ids[0];
    for (size_t i = 0; i < n; i++)
        size[i] = FL_ONNX(x, "Shape", ids[i]);
    *sizes = fl_onnx_concat(x, 0, size, n);
    return fl_onnx_concat(x, 0, ids, n);
}

static void look_up_all(fl_onnx *x, const fleet_var *table,
                        const exported_table *t, const looked_up *l)
{
    const char *weights = put_rows(x, t), *fixed = NULL, *sizes = NULL, *ids;
    const char *rows, *const *part = &rows;
    int64_t cols = 0;

    if (l->n_fixed > 0)
        fixed = join_fixed(x, l, &cols);
    ids = l->n_ragged > 0 ? join_all(x, l, fixed, &sizes) : fixed;
    rows = fl_onnx_gather(x, weights, index_rows(x, t, ids), 0);
    if (sizes)
        part = split_value(x, rows, sizes, 0, l->n_ragged + (fixed != NULL));
    if (!part)
        return;
    if (fixed)
        share_fixed(x, table, l, *part++, cols);
    for (int i = 0; i < l->n_ragged; i++)
        remember_rows(x, table, l->ragged[i], *part++);
}

const char *fl_onnx_look_up(fl_onnx *x, const fl_node *n)
{
    const fleet_var *table = n->in[IN_TABLE];
    const char *what = what_of(x, table, n->in[IN_IDS]);
    exported_table t;
    looked_up l;

    if (!what || fl_onnx_known(x, what))
        return fl_onnx_known(x, what);
    fl_onnx_failed(x, export_rows(x, table, &t));
    if (x->status == FLEET_OK && find_ids(x, table, &l))
        look_up_all(x, table, &t, &l);
    return fl_onnx_known(x, what);
}

/* --- the operators -------------------------------------------------------- */

/* Rows of ragged ids, times their weights. */
static const char *weighted_rows(fl_onnx *x, const fl_node *n)
{
    const fleet_var *weights = fl_input_of(n, IN_WEIGHTS);
    const char *rows = fl_onnx_look_up(x, n);

    return weights ? FL_ONNX(x, "Mul", rows,
                             fl_onnx_unsqueeze(x, fl_onnx_of(x, weights), 1))
                   : rows;
}

const char *fl_onnx_emit_sparse_embedding(fl_onnx *x, const fl_node *n,
                                          const char *type)
{
    const fleet_var *ids = n->in[IN_IDS];

    (void)type;
    if (!ids->ragged)
        return fl_onnx_look_up(x, n);
    return fl_onnx_pool(x, ids, weighted_rows(x, n),
                        n->in[IN_TABLE]->shape.dim[1],
                        (fleet_combiner)fl_node_int(n, "combiner"));
}

const char *fl_onnx_emit_sequence_embedding(fl_onnx *x, const fl_node *n,
                                            const char *type)
{
    const char *rows = fl_onnx_rows_and(x, weighted_rows(x, n),
                                        n->in[IN_TABLE]->shape.dim[1], 0);

    (void)type;
    return fl_onnx_pad_ragged(x, n, n->in[IN_IDS], rows);
}

/* Of a parameter: ids that are not in [0, rows) fail. The row of the padding
 * reads as zeros. */
const char *fl_onnx_emit_embedding(fl_onnx *x, const fl_node *n,
                                   const char *type)
{
    const fleet_var *table = n->in[IN_TABLE];
    int64_t padding = fl_node_int(n, "padding"), rows = table->shape.dim[0];
    const char *ids = fl_onnx_of(x, n->in[IN_IDS]);
    const char *index =
        FL_ONNX(x, "Where", FL_ONNX(x, "Less", ids, fl_onnx_integer(x, 0)),
                fl_onnx_integer(x, rows), ids);
    const char *out = fl_onnx_gather(x, fl_onnx_of(x, table), index, 0);

    (void)type;
    if (padding >= 0) {
        const char *padded =
            FL_ONNX(x, "Equal", ids, fl_onnx_integer(x, padding));

        out = FL_ONNX(x, "Where", fl_onnx_unsqueeze(x, padded, 2),
                      fl_onnx_number(x, 0), out);
    }
    return fl_onnx_reshape(x, out, &n->out[0]->shape);
}
