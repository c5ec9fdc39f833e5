/* feed_fetch.c - feeds checked and bound, fetches copied out. */
#include "runtime/exec/feed_fetch.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/plan_cache.h"
#include "runtime/exec/prefetch.h"

static const fleet_feed *find_feed(const fleet_feed *feed, int n,
                                   const char *name)
{
    for (int i = 0; i < n; i++)
        if (feed[i].name && strcmp(feed[i].name, name) == 0)
            return &feed[i];
    return NULL;
}

/* Every feed has a variable, and none comes twice. */
static fleet_status check_names(const fleet_executor *e, const fleet_feed *feed,
                                int n)
{
    for (int i = 0; i < n; i++) {
        const fleet_var *v = fleet_program_var(e->program, feed[i].name);

        if (!feed[i].name)
            return fl_fail(FLEET_EINVAL, "feed %d of %d: its name is NULL", i,
                           n);
        if (!v || v->kind != FL_VAR_DATA)
            return fl_fail(FLEET_ENOENT,
                           "feed \"%s\": the program has no data variable of "
                           "that name",
                           feed[i].name);
        if (find_feed(feed, i, feed[i].name))
            return fl_fail(FLEET_EINVAL, "feed \"%s\" is there twice",
                           feed[i].name);
    }
    return FLEET_OK;
}

static fleet_status wrong_shape(const fleet_var *v, const fleet_feed *f)
{
    int n = f->n_dim < FLEET_MAX_DIM ? f->n_dim : FLEET_MAX_DIM;
    fl_shape got = fl_shape_make(f->dims, f->dims && n > 0 ? n : 0);

    return fl_fail(FLEET_ESHAPE, "feed \"%s\": expected shape %s, got %s",
                   v->name,
                   v->ragged ? "[-1], the rows alone, with offsets"
                             : fl_shape_print(&v->shape).chars,
                   fl_shape_print(&got).chars);
}

static fleet_status check_offsets(const fleet_var *v, const fleet_feed *f)
{
    const int64_t *at = f->offsets;

    if (!at || at[0] != 0)
        return fl_fail(FLEET_EINVAL,
                       "feed \"%s\": ragged, so it needs offsets from 0 on",
                       v->name);
    for (int64_t i = 0; i < f->dims[0]; i++)
        if (at[i + 1] < at[i])
            return fl_fail(FLEET_EINVAL,
                           "feed \"%s\": offset %" PRId64 " falls from %" PRId64
                           " to %" PRId64,
                           v->name, i + 1, at[i], at[i + 1]);
    return FLEET_OK;
}

/* Agreement with the variable; *batch is set by the first batched feed. */
static fleet_status check_feed(const fleet_var *v, const fleet_feed *f,
                               int64_t *batch, const char **first)
{
    int n_dim = v->ragged ? 1 : v->shape.n_dim;
    bool batched = v->ragged || fl_shape_batched(&v->shape);

    if (f->dtype != v->dtype)
        return fl_fail(FLEET_EDTYPE, "feed \"%s\": expected %s, got %s",
                       v->name, fleet_dtype_name(v->dtype),
                       fleet_dtype_name(f->dtype));
    if (batched && f->dims && f->n_dim == n_dim && f->dims[0] == 0)
        return fl_fail(FLEET_ESHAPE,
                       "feed \"%s\": a batch of 0 rows: expected 1 or more",
                       v->name);
    if (!f->dims || f->n_dim != n_dim || f->dims[0] < 1)
        return wrong_shape(v, f);
    for (int i = batched; i < n_dim; i++)
        if (f->dims[i] != v->shape.dim[i])
            return wrong_shape(v, f);
    if (v->ragged)
        FL_TRY(check_offsets(v, f));
    else if (f->offsets)
        return fl_fail(FLEET_EINVAL,
                       "feed \"%s\": offsets, but it is not ragged", v->name);
    if (!f->data && (!v->ragged || f->offsets[f->dims[0]] > 0))
        return fl_fail(FLEET_EINVAL, "feed \"%s\": data is NULL", v->name);
    if (!batched)
        return FLEET_OK;
    if (*first && *batch != f->dims[0])
        return fl_fail(FLEET_ESHAPE,
                       "feed \"%s\" has %" PRId64 " rows, but \"%s\" has "
                       "%" PRId64,
                       v->name, f->dims[0], *first, *batch);
    *first = v->name;
    *batch = f->dims[0];
    return FLEET_OK;
}

/* Weights are as many as their ids, in every row. */
static fleet_status check_weights(const fleet_executor *e, int64_t batch)
{
    for (size_t i = 0; i < e->program->n_var; i++) {
        const fleet_var *v = e->program->var[i];
        const int64_t *ids, *weights;

        if (!v->weights)
            continue;
        ids = e->input[i].offsets;
        weights = e->input[v->weights->id].offsets;
        if (!ids || !weights || ids == weights)
            continue;
        for (int64_t row = 0; row < batch; row++)
            if (ids[row + 1] != weights[row + 1])
                return fl_fail(
                    FLEET_EINVAL,
                    "feed \"%s\": %" PRId64 " weights in row %" PRId64
                    ", but \"%s\" has %" PRId64 " ids",
                    v->weights->name, weights[row + 1] - weights[row], row,
                    v->name, ids[row + 1] - ids[row]);
    }
    return FLEET_OK;
}

fleet_status fl_executor_bind(fleet_executor *e, const fleet_feed *feed, int n,
                              int64_t *batch)
{
    const char *first = NULL;

    *batch = 1;
    FL_TRY(check_names(e, feed, n));
    memset(e->input, 0, e->program->n_var * sizeof *e->input);
    for (size_t i = 0; i < e->program->n_var; i++) {
        const fleet_var *v = e->program->var[i];
        const fleet_feed *f =
            v->kind == FL_VAR_DATA ? find_feed(feed, n, v->name) : NULL;

        if (!f)
            continue;
        FL_TRY(check_feed(v, f, batch, &first));
        e->input[i] = (fl_input){f->data ? f->data : "", f->offsets};
    }
    return check_weights(e, *batch);
}

static fleet_status check_complete(const fleet_executor *e, const fl_plan *plan)
{
    for (size_t i = 0; i < e->program->n_var; i++) {
        const fleet_var *v = e->program->var[i];

        if (v->kind == FL_VAR_DATA && !e->input[i].data &&
            plan->value_of[i] >= 0)
            return fl_fail(
                FLEET_ENOENT, "feed \"%s\" is missing: expected %s%s %s",
                v->name, v->ragged ? "ragged " : "", fleet_dtype_name(v->dtype),
                fl_shape_print(&v->shape).chars);
    }
    return FLEET_OK;
}

/* Rows of a value, without gaps; what the store keeps, where it is valid. */
static fleet_status copy_out(fleet_executor *e, void *to, int value,
                             int64_t rows)
{
    const fl_plan *plan = e->last->plan;
    const fl_value *v = &plan->value[value];
    const void *stored = fl_store_memory(plan, &plan->value[v->root]);

    if (stored)
        FL_TRY(fl_mirror_use(e->store, stored, v->on_gpu, false));
    return e->last->backend->read(e->last, value, rows, to);
}

/* Does the plan compute it, and is there room for it? Sets the fetch's
 * dimensions. */
static fleet_status check_fetch(const fleet_executor *e, const fl_plan *plan,
                                int64_t batch, fleet_fetch *f)
{
    int at = plan->value_of[fl_executor_own_var(e, f->var)->id];
    const fl_value *v;
    size_t size;

    if (at < 0)
        return fl_fail(FLEET_EINVAL, "fetch: \"%s\" is not computed",
                       f->var->name);
    v = &plan->value[at];
    if (plan->gathers && plan->value[v->root].kind == FL_VALUE_PARAM)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fetch: \"%s\" is a parameter in another shape, which "
                       "ranks share out (strategy.sharding_configs.stage %d): "
                       "fleet_parameter_get() gives it",
                       f->var->name, e->store->share.stage);
    f->n_dim = v->shape.n_dim;
    for (int i = 0; i < v->shape.n_dim; i++)
        f->dims[i] = v->shape.dim[i];
    f->dims[0] = fl_shape_rows(&v->shape, batch);
    size = (size_t)fl_shape_count(&v->shape, batch) *
           fleet_dtype_size(f->var->dtype);
    if (f->data && f->size < size)
        return fl_fail(FLEET_ESHAPE,
                       "fetch: \"%s\" is %zu bytes, but there is room for %zu",
                       f->var->name, size, f->size);
    return FLEET_OK;
}

fleet_status fl_executor_fetch(fleet_executor *e, fleet_fetch *f)
{
    const fl_plan *plan = e->last->plan;
    const fl_value *v;
    fleet_status status;
    int at;
    bool shared; /* another executor may be changing it */

    FL_TRY(check_fetch(e, plan, e->last_batch, f));
    if (!f->data)
        return FLEET_OK;
    at = plan->value_of[fl_executor_own_var(e, f->var)->id];
    v = &plan->value[at];
    shared = v->kind == FL_VALUE_PARAM || v->kind == FL_VALUE_STATE;
    FL_TRY(e->backend->synchronize(e));
    if (shared)
        pthread_rwlock_rdlock(&e->store->lock);
    status = copy_out(e, f->data, at, f->dims[0]);
    if (shared)
        pthread_rwlock_unlock(&e->store->lock);
    return status;
}

/* --- what is fetched ------------------------------------------------------ */

static bool reads_kind(const fl_node *n, fl_var_kind kind)
{
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j] && n->in[j]->kind == kind)
            return true;
    return false;
}

/* Does a weight have to be gathered for v alone? run: room for marks. */
static bool gathers_more(const fleet_executor *e, const fleet_var *v, bool *run)
{
    const fleet_program *p = e->program;
    bool *more = run + p->n_node, *fetched = more + p->n_node;

    fl_program_mark_run(p, p->training.loss, NULL, run);
    fetched[v->id] = true;
    fl_program_mark_run(p, p->training.loss, fetched, more);
    for (size_t i = 0; i < p->n_node; i++)
        if (more[i] && !run[i] && reads_kind(p->node[i], FL_VAR_PARAM))
            return true;
    return false;
}

/* Ranks that share out weights gather them in one order, whatever each of them
 * fetches. What is fetched is not computed again, nor what it was made of. */
static fleet_status check_gathers(const fleet_executor *e, const fleet_var *v)
{
    const fleet_program *p = e->program;
    bool *run, more;

    if (!e->training || !fl_store_shards_weights(e->store) || !v->producer ||
        v == p->training.loss)
        return FLEET_OK;
    FL_TRY(FL_NEW(&run, 2 * p->n_node + p->n_var));
    more = gathers_more(e, v, run);
    fl_free(run);
    if (more)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fetch: \"%s\" needs weights that training does not, "
                       "and ranks that share them out "
                       "(strategy.sharding_configs.stage %d) gather the same "
                       "ones: fetch it with an executor for tests",
                       v->name, e->store->share.stage);
    if (p->training.recompute.on && !reads_kind(v->producer, FL_VAR_STATE))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fetch: \"%s\": with strategy.recompute, ranks that "
                       "share out weights (strategy.sharding_configs.stage %d) "
                       "fetch the loss and metrics alone: fetch it with an "
                       "executor for tests",
                       v->name, e->store->share.stage);
    return FLEET_OK;
}

fleet_status fl_executor_want(fleet_executor *e, const fleet_var *user)
{
    const fleet_var *v = fl_executor_own_var(e, user);

    if (user && !v)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fetch: \"%s\" is computed in another stage than this "
                       "process's",
                       user->name);
    if (!v || v->program != e->program)
        return fl_fail(FLEET_EINVAL,
                       "fetch: %s%s%s is not a variable of the "
                       "executor's program",
                       v ? "\"" : "", v ? v->name : "NULL", v ? "\"" : "");
    if (v->kind == FL_VAR_TABLE || v->ragged)
        return fl_fail(FLEET_EUNSUPPORTED, "fetch: \"%s\" is %s", v->name,
                       v->ragged ? "ragged" : "a table");
    if (v->kind == FL_VAR_PARAM && fl_store_shards_weights(e->store))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fetch: \"%s\" is a parameter, which ranks share out "
                       "(strategy.sharding_configs.stage %d): "
                       "fleet_parameter_get() gives it",
                       v->name, e->store->share.stage);
    if (e->fetched[v->id])
        return FLEET_OK;
    FL_TRY(check_gathers(e, v));
    if (e->micro > 0)
        return fl_fail(FLEET_ESTATE,
                       "fetch: \"%s\" is new, and a merge group is under way: "
                       "fetch it from the group's first batch on",
                       v->name);
    e->fetched[v->id] = true;
    fl_executor_forget_plans(e);
    return FLEET_OK;
}

fleet_status fleet_executor_run(fleet_executor *e, const fleet_feed *feed,
                                int n_feed, fleet_fetch *fetch, int n_fetch)
{
    int64_t batch;
    fl_compiled *c = NULL;

    if (!e || (n_feed > 0 && !feed) || (n_fetch > 0 && !fetch))
        return fl_fail(FLEET_EINVAL, "fleet_executor_run: NULL argument");
    FL_TRY(fl_context_check(e->context));
    for (int i = 0; i < n_fetch; i++)
        FL_TRY(fl_executor_want(e, fetch[i].var));
    FL_TRY(fl_executor_bind(e, feed, n_feed, &batch));
    FL_TRY(fl_executor_plan(e, batch, &c));
    FL_TRY(check_complete(e, c->plan));
    for (int i = 0; i < n_fetch; i++) /* a refused call has trained nothing */
        FL_TRY(check_fetch(e, c->plan, batch, &fetch[i]));
    FL_TRY(fl_executor_catch_up(e));
    FL_TRY(fl_executor_iterate(e, batch));
    for (int i = 0; i < n_fetch; i++)
        FL_TRY(fl_executor_fetch(e, &fetch[i]));
    return FLEET_OK;
}
