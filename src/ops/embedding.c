/* embedding.c - rows of a dense table, and rows of an unbounded one.
 *
 *   embedding         ids [B, L], W [rows, dim] -> out [B, L dim]
 *                     dW[id] += the gradient of each of its uses, in the order
 *                     of (sample, place)
 *   sparse_embedding  the same with rows by 64-bit id, see lookup/lookup.h
 *   sequence_embedding  of ragged ids, side by side: -> out [B, T, dim]
 *
 * And what pools numbers as these pool rows:
 *
 *   sequence_pool     x ragged -> out [B, 1]; sums from the first number on, no
 *                     gradient
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <fleet/nn.h>

#include "ops/embedding.h"
#include "ops/ops.h"
#include "runtime/graph/table_cap.h"
#include "runtime/lookup/lookup.h"
#include "runtime/simd/simd.h"

enum { IN_TABLE, IN_IDS, IN_WEIGHTS };

/* --- embedding ----------------------------------------------------------- */

static fleet_status want_ids(const fl_node *n, bool ragged_too)
{
    const fleet_var *v = n->in[IN_IDS];

    if (v->dtype != FLEET_INT64 || (v->ragged && !ragged_too))
        return fl_fail(FLEET_EDTYPE, "%s: ids \"%s\" are %s%s, not int64",
                       n->op->name, v->name, v->ragged ? "ragged " : "",
                       fleet_dtype_name(v->dtype));
    if (!v->ragged && (!fl_shape_batched(&v->shape) || v->shape.n_dim != 2))
        return fl_want_shape(n, IN_IDS, "[-1,L]");
    return FLEET_OK;
}

/* Data that feed the ids are checked while they are read, too. */
static void bound_ids(const fl_node *n, int64_t rows)
{
    fleet_var *ids = n->in[IN_IDS];

    if (ids->ids_below == 0 || rows < ids->ids_below)
        ids->ids_below = rows;
}

/* A parameter, or a table, of rows. */
static fleet_status want_rows(const fl_node *n, fl_var_kind kind)
{
    const fleet_var *v = n->in[IN_TABLE];

    if (v->kind == kind && v->shape.n_dim == 2 && v->dtype == FLEET_FLOAT32)
        return FLEET_OK;
    return fl_want_shape(n, IN_TABLE, "a table of rows");
}

/* dim numbers for each id of a sample. */
static fleet_status set_rows(fl_node *n, int64_t ids, int64_t dim)
{
    const int64_t dims[] = {-1, ids, dim};
    fl_shape out;

    FL_TRY(fl_shape_check(n->op->name, dims, 3));
    out = fl_shape_2(-1, ids * dim);
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

static fleet_status embedding_infer(fl_node *n)
{
    FL_TRY(want_rows(n, FL_VAR_PARAM));
    FL_TRY(want_ids(n, false));
    bound_ids(n, n->in[IN_TABLE]->shape.dim[0]);
    return set_rows(n, fl_in_cols(n, IN_IDS), n->in[IN_TABLE]->shape.dim[1]);
}

/* Check an id; *row is -1 for the padding. */
static fleet_status row_of(const fl_instance *in, int64_t id, int64_t sample,
                           int64_t *row)
{
    const fl_embedding_config *c = in->step->config;

    *row = id == c->padding ? -1 : id;
    if (id >= 0 && id < c->rows)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "embedding: id %" PRId64 " of \"%s\" in row %" PRId64
                   " of the batch is not in [0, %" PRId64 ")",
                   id, in->step->node->in[IN_IDS]->name, sample, c->rows);
}

/* out <- ids, W */
static fleet_status embedding_run(const fl_instance *in, const fl_range *r)
{
    const fl_embedding_config *c = in->step->config;
    const int64_t *ids = fl_ptr(in, 1);
    const float *w = fl_ptr(in, 2);
    float *out = fl_rows_f32(in, 0, r);
    size_t bytes = (size_t)c->dim * sizeof *out;

    for (int64_t i = r->begin * c->per_row; i < r->end * c->per_row; i++) {
        int64_t row;

        FL_TRY(row_of(in, ids[i], i / c->per_row, &row));
        if (row < 0)
            memset(out, 0, bytes);
        else
            memcpy(out, w + row * c->dim, bytes);
        out += c->dim;
    }
    return FLEET_OK;
}

/* dW <- ids, g: a part owns some rows of W. */
static fleet_status embedding_grad_prepare(fl_instance *in)
{
    const fl_embedding_config *c = in->step->config;

    in->n_part = c->rows * c->dim < (1 << 16) ? 1 : 8;
    return FLEET_OK;
}

static fleet_status embedding_grad_run(const fl_instance *in, const fl_range *r)
{
    const fl_embedding_config *c = in->step->config;
    const int64_t *ids = fl_ptr(in, 1);
    const float *g = fl_ptr(in, 2);
    float *dw = fl_ptr(in, 0);
    int64_t first = c->rows * r->begin / in->n_part;
    int64_t last = c->rows * r->end / in->n_part;

    memset(dw + first * c->dim, 0,
           (size_t)((last - first) * c->dim) * sizeof *dw);
    for (int64_t i = 0; i < r->batch * c->per_row; i++)
        if (ids[i] >= first && ids[i] < last && ids[i] != c->padding) {
            float *row = dw + ids[i] * c->dim;

            fl_simd_best()->add(row, row, g + i * c->dim, c->dim);
        }
    return FLEET_OK;
}

static const fl_kernel kernel_embedding = {
    .name = "embedding", .split = FL_SPLIT_ROWS, .run = embedding_run};
static const fl_kernel kernel_embedding_grad = {.name = "embedding.grad",
                                                .split = FL_SPLIT_PARTS,
                                                .prepare =
                                                    embedding_grad_prepare,
                                                .run = embedding_grad_run};

static const void *make_config(fl_lowering *l, const fl_node *n)
{
    const fl_shape *w = &n->in[IN_TABLE]->shape;
    fl_embedding_config c = {w->dim[0], w->dim[1], fl_in_cols(n, IN_IDS),
                             fl_node_int(n, "padding")};

    return fl_config(l, &c, sizeof c);
}

static fleet_status embedding_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &kernel_embedding, n, make_config(l, n),
            FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[IN_IDS])),
            FL_R(fl_value_of(l, n->in[IN_TABLE])));
    return FLEET_OK;
}

static fleet_status embedding_gradient(fl_lowering *l, const fl_node *n)
{
    int to = fl_gradient_to(l, n->in[IN_TABLE]);

    if (to >= 0)
        FL_EMIT(l, &kernel_embedding_grad, n, make_config(l, n), FL_W(to),
                FL_R(fl_value_of(l, n->in[IN_IDS])),
                FL_R(fl_gradient_of(l, n->out[0])));
    return FLEET_OK;
}

const fl_op fl_op_embedding = {
    .name = "embedding",
    .n_out = 1,
    .least_in = 2,
    .most_in = 2,
    .attrs = "padding:i",
    .infer = embedding_infer,
    .forward = embedding_forward,
    .gradient = embedding_gradient,
};

static fleet_status check_table(const char *op, int64_t rows, int64_t dim)
{
    if (dim < 1 || dim > (1 << 20))
        return fl_fail(FLEET_ESHAPE, "%s: cannot have rows of %" PRId64, op,
                       dim);
    if (rows < 0 || rows > FL_MOST_DIM)
        return fl_fail(FLEET_ESHAPE, "%s: cannot have %" PRId64 " rows", op,
                       rows);
    return FLEET_OK;
}

fleet_var *fleet_embedding(fleet_program *p, fleet_var *ids, int64_t rows,
                           int64_t dim, const fleet_embedding_options *options)
{
    static const fleet_embedding_options defaults;
    const fleet_embedding_options *o = options ? options : &defaults;
    fleet_initializer uniform = {FLEET_INIT_UNIFORM, 0, 0};
    fleet_var *in[2] = {NULL, ids};
    int64_t padding = o->has_padding ? o->padding_id : -1;
    const char *name;
    fl_shape shape;

    if (!fl_builder_ready(p, ids))
        return NULL;
    if (rows < 1 || check_table("embedding", rows, dim) != FLEET_OK) {
        fl_fail(FLEET_ESHAPE,
                "embedding: cannot have %" PRId64 " rows of "
                "%" PRId64,
                rows, dim);
        return fl_program_failed(p, FLEET_ESHAPE);
    }
    if (o->has_padding && (padding < 0 || padding >= rows)) {
        fl_fail(FLEET_EINVAL,
                "embedding: padding_id %" PRId64 " is not in [0, %" PRId64 ")",
                padding, rows);
        return fl_program_failed(p, FLEET_EINVAL);
    }
    name = o->name ? o->name : fl_program_name(p, "embedding");
    if (!name)
        return fl_program_failed(p, FLEET_ENOMEM);
    uniform.b = sqrtf(1.0f / (float)rows);
    uniform.a = -uniform.b;
    shape = fl_shape_2(rows, dim);
    in[IN_TABLE] = fl_program_param(p, name, "w", &shape, &o->table, uniform);
    return fl_program_add(p, &fl_op_embedding, in, 2,
                          &FL_ATTR_INT("padding", padding), 1);
}

/* --- sparse_embedding ---------------------------------------------------- */

static fleet_status check_combiner(const fl_node *n)
{
    int64_t value = fl_node_int(n, "combiner");

    if (value < FLEET_SUM || value > FLEET_LAST)
        return fl_fail(FLEET_EINVAL, "%s: combiner %" PRId64 " does not exist",
                       n->op->name, value);
    return FLEET_OK;
}

static fleet_status want_combiner(const fl_node *n)
{
    const fleet_var *ids = n->in[IN_IDS];

    if (!fl_node_attr(n, "combiner"))
        return FLEET_OK;
    FL_TRY(check_combiner(n));
    if (fl_node_int(n, "combiner") == FLEET_SUM || ids->ragged)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "sparse_embedding: \"%s\" has a fixed number of ids, which "
                   "are not combined: a mean, an sqrt or a max is for ragged "
                   "ids",
                   ids->name);
}

/* A saved program says whose weights they are by this input alone. */
static fleet_status want_weights(const fl_node *n)
{
    fleet_var *ids = n->in[IN_IDS];
    fleet_var *w = n->n_in > IN_WEIGHTS ? n->in[IN_WEIGHTS] : NULL;

    if (!w)
        return FLEET_OK;
    if (!ids->ragged || !w->ragged || w->dtype != FLEET_FLOAT32 ||
        w->kind != FL_VAR_DATA)
        return fl_fail(FLEET_EDTYPE,
                       "%s: \"%s\" as weights of \"%s\": "
                       "expected ragged float32 data, and ragged ids",
                       n->op->name, w->name, ids->name);
    if ((ids->weights && ids->weights != w) || (w->weighs && w->weighs != ids))
        return fl_fail(FLEET_EINVAL,
                       "%s: \"%s\" as weights of \"%s\": they "
                       "are not each other's",
                       n->op->name, w->name, ids->name);
    fl_program_weigh(ids, w);
    return FLEET_OK;
}

/* What each lookup in a table of rows asks of its inputs. */
static fleet_status check_lookup(fl_node *n)
{
    const fleet_var *table = n->in[IN_TABLE], *ids = n->in[IN_IDS];

    FL_TRY(want_rows(n, FL_VAR_TABLE));
    FL_TRY(want_ids(n, true));
    if (ids->kind != FL_VAR_DATA)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: ids \"%s\" must be a data variable", n->op->name,
                       ids->name);
    FL_TRY(want_combiner(n));
    FL_TRY(want_weights(n));
    if (table->ids.check)
        bound_ids(n, table->shape.dim[0]);
    return FLEET_OK;
}

static fleet_status sparse_infer(fl_node *n)
{
    FL_TRY(check_lookup(n));
    return set_rows(n, n->in[IN_IDS]->ragged ? 1 : fl_in_cols(n, IN_IDS),
                    n->in[IN_TABLE]->shape.dim[1]);
}

/* The slots of all nodes that this one works for. */
static fl_lookup_slot *slots_of(fl_lowering *l, const fl_node *n, int *count)
{
    const fleet_program *p = l->program;
    fl_lookup_slot *slot =
        fl_arena_alloc(&l->plan->arena, p->n_node * sizeof *slot);

    *count = 0;
    for (size_t i = 0; slot && i < p->n_node; i++)
        if (l->node[i].group == n->id + 1) {
            slot[*count] = fl_lookup_slot_of(p->node[i]);
            slot[*count].nth_max = fl_lookup_count_max(slot, *count);
            ++*count;
        }
    return slot;
}

static fleet_status sparse_forward(fl_lowering *l, const fl_node *n)
{
    int count;
    fl_lookup_slot *slot = slots_of(l, n, &count);

    if (!slot)
        return FLEET_ENOMEM;
    l->node[n->id].saved =
        fl_lookup_forward(l, n, n->in[IN_TABLE], slot, count);
    return FLEET_OK;
}

static fleet_status sparse_gradient(fl_lowering *l, const fl_node *n)
{
    int count;
    fl_lookup_slot *slot = slots_of(l, n, &count);

    if (!slot)
        return FLEET_ENOMEM;
    if (fl_gradient_wanted(l, n->in[IN_TABLE]))
        fl_lookup_gradient(l, n, n->in[IN_TABLE], slot, count,
                           l->node[n->id].saved);
    return FLEET_OK;
}

const fl_op fl_op_sparse_embedding = {
    .name = "sparse_embedding",
    .n_out = 1,
    .least_in = 2,
    .most_in = 3, /* the last: the weights of weighted ids */
    .attrs = "combiner:i",
    .traits = FL_OP_WRITES_COLUMNS | FL_OP_LOOKUP,
    .infer = sparse_infer,
    .forward = sparse_forward,
    .gradient = sparse_gradient,
};

static fleet_status sequence_infer(fl_node *n)
{
    fl_shape out;

    FL_TRY(check_lookup(n));
    FL_TRY(fl_want_sequence(n, IN_IDS));
    out = fl_shape_2(-1, fl_node_int(n, "max_len"));
    out.dim[out.n_dim++] = n->in[IN_TABLE]->shape.dim[1];
    FL_TRY(fl_shape_check_result(n->op->name, &out));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

const fl_op fl_op_sequence_embedding = {
    .name = "sequence_embedding",
    .n_out = 1,
    .least_in = 2,
    .most_in = 3,
    .attrs = "max_len:i keep_first:i",
    .traits = FL_OP_WRITES_COLUMNS | FL_OP_LOOKUP,
    .infer = sequence_infer,
    .forward = sparse_forward,
    .gradient = sparse_gradient,
};

/* A node of either op, on the table of the options. */
static fleet_var *add_lookup(fleet_program *p, const fl_op *op, fleet_var *ids,
                             int64_t dim,
                             const fleet_sparse_embedding_options *o,
                             const fl_attr *attrs, int n_attr)
{
    fleet_param_attr attr = {.initializer = o->initializer,
                             .learning_rate = o->learning_rate,
                             .l2_decay = o->l2_decay,
                             .no_decay = o->no_decay,
                             .frozen = o->frozen,
                             .ps = o->ps};
    const fl_table_ids of_ids = {o->check_ids != 0, o->fresh, o->default_id,
                                 o->life, o->storage};
    fleet_initializer uniform = {FLEET_INIT_UNIFORM, 0, 0};
    fleet_var *in[3] = {NULL, ids, ids ? ids->weights : NULL};
    fleet_status status;
    fl_shape shape;
    size_t n_var;

    if (!fl_builder_ready(p, ids))
        return NULL;
    status = check_table(op->name, o->rows, dim);
    if (status == FLEET_OK)
        status = fl_initializer_check(op->name, &o->initializer);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    uniform.b = sqrtf(1.0f / (float)dim);
    uniform.a = -uniform.b;
    shape = fl_shape_2(o->rows, dim);
    n_var = p->n_var;
    in[IN_TABLE] = fl_program_table(p, o->table ? o->table : "embedding",
                                    &shape, &attr, &of_ids, uniform);
    in[IN_TABLE] =
        fl_table_with_cap(p, in[IN_TABLE], p->n_var > n_var,
                          &(fl_table_cap){o->memory_cap_bytes, o->cold_folder});
    return fl_program_add(p, op, in, in[IN_WEIGHTS] ? 3 : 2, attrs, n_attr);
}

fleet_var *fleet_sparse_embedding(fleet_program *p, fleet_var *ids, int64_t dim,
                                  const fleet_sparse_embedding_options *options)
{
    static const fleet_sparse_embedding_options defaults;
    const fleet_sparse_embedding_options *o = options ? options : &defaults;

    return add_lookup(p, &fl_op_sparse_embedding, ids, dim, o,
                      &FL_ATTR_INT("combiner", (int)o->combiner), 1);
}

fleet_var *fleet_sequence_embedding(
    fleet_program *p, fleet_var *ids, int64_t dim, int64_t max_len,
    int keep_first, const fleet_sparse_embedding_options *options)
{
    static const fleet_sparse_embedding_options defaults;
    const fleet_sparse_embedding_options *o = options ? options : &defaults;
    const fl_attr attrs[] = {FL_ATTR_INT("max_len", max_len),
                             FL_ATTR_INT("keep_first", keep_first != 0)};

    if (p && fl_program_ok(p) && o->combiner != FLEET_SUM)
        return fl_program_failed(
            p, fl_fail(FLEET_EINVAL,
                       "sequence_embedding: combiner %d; rows of a sequence "
                       "are not combined",
                       (int)o->combiner));
    return add_lookup(p, &fl_op_sequence_embedding, ids, dim, o, attrs, 2);
}

/* --- sequence_pool ------------------------------------------------------- */

static fleet_status pool_infer(fl_node *n)
{
    const fleet_var *x = n->in[0];
    fl_shape out = fl_shape_2(-1, 1);

    if (!x->ragged || x->dtype != FLEET_FLOAT32)
        return fl_fail(
            FLEET_EDTYPE, "sequence_pool: \"%s\" is %s%s, not ragged float32",
            x->name, x->ragged ? "ragged " : "", fleet_dtype_name(x->dtype));
    FL_TRY(check_combiner(n));
    fl_set_out(n, 0, &out);
    return FLEET_OK;
}

/* out <- x */
static fleet_status pool_run(const fl_instance *in, const fl_range *r)
{
    const fl_pool_config *c = in->step->config;
    const int64_t *offsets = (const int64_t *)(const void *)in->arg[1].base[1];
    const float *x = fl_ptr(in, 1);
    float *out = fl_rows_f32(in, 0, r);

    for (int64_t row = r->begin; row < r->end; row++, out += in->arg[0].ld)
        *out = fl_pool_numbers(x + offsets[row],
                               offsets[row + 1] - offsets[row], c->combiner);
    return FLEET_OK;
}

static const fl_kernel kernel_pool = {
    .name = "sequence_pool", .split = FL_SPLIT_ROWS, .run = pool_run};

static fleet_status pool_forward(fl_lowering *l, const fl_node *n)
{
    const fl_pool_config c = {(fleet_combiner)fl_node_int(n, "combiner")};

    FL_EMIT(l, &kernel_pool, n, fl_config(l, &c, sizeof c),
            FL_W(fl_value_of(l, n->out[0])), FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

const fl_op fl_op_sequence_pool = {
    .name = "sequence_pool",
    .n_out = 1,
    .least_in = 1,
    .most_in = 1,
    .attrs = "combiner:i",
    .traits = FL_OP_WRITES_COLUMNS,
    .infer = pool_infer,
    .forward = pool_forward,
};

fleet_var *fleet_sequence_pool(fleet_program *p, fleet_var *x,
                               fleet_combiner combiner)
{
    return fl_build_of_one(p, &fl_op_sequence_pool, x,
                           &FL_ATTR_INT("combiner", (int)combiner), 1);
}
