/* clip_remote.c - the clip by global norm of ranks, where servers or other
 * ranks keep rows, or servers dense parameters. */
#include "runtime/reduce/clip_remote.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/plan/agree.h"
#include "runtime/reduce/push_args.h"
#include "runtime/plan/norm_list.h"

typedef struct clip_config {
    fl_push_args push;
    const fl_param_norm *norm; /* n_norm of them */
    int first_norm, n_norm;    /* operands */
} clip_config;

/* --- in async, what servers keep ------------------------------------------ */

/* A table's rows of all parts; for fl_free(). */
static fl_norm_row *all_rows(const fl_push_rows *t, int64_t *n)
{
    int64_t most = 0;
    fl_norm_row *row;

    for (int i = 0; i < FL_N_PART; i++)
        most += t->part[i].n;
    row = fl_alloc_array((size_t)most + 1, sizeof *row);
    *n = 0;
    for (int i = 0; row && i < FL_N_PART; i++) {
        const fl_push_part *p = &t->part[i];

        for (int64_t k = 0; k < p->n; k++)
            row[(*n)++] =
                fl_norm_row_of(p->key[p->which ? p->which[k] : k], p->grad[k]);
    }
    return row;
}

static fleet_status square_rows(const fl_push_rows *t, float scale, double *sum)
{
    int64_t n;
    fl_norm_row *row = all_rows(t, &n);

    if (!row)
        return FLEET_ENOMEM;
    fl_norm_sort(row, n);
    for (int64_t k = 0; k < n; k++)
        *sum += fl_square_sum(row[k].grad, t->rows->dim, scale);
    fl_free(row);
    return FLEET_OK;
}

/* Squares of what this worker itself pushes to servers, of the mean over its
 * batches. */
static fleet_status own_squares(const fl_push *p, double *sum)
{
    float scale = p->n_batch > 0 ? fl_push_factor(p) / (float)p->n_batch : 0.0f;

    *sum = 0;
    for (int i = 0; i < p->n_param; i++)
        *sum += fl_square_sum(p->param[i].grad, p->param[i].param->n, scale);
    for (int t = 0; t < p->n_table; t++)
        if (fl_table_is_remote(&p->table[t].rows->attr))
            FL_TRY(square_rows(&p->table[t], scale, sum));
    return FLEET_OK;
}

/* Gradients for servers are never added up then; the ranks have one factor all
 * the same: by the mean of their squares, a further item of the list. */
static fleet_status clip_unsummed(const fl_store *s, const fl_push *p,
                                  const fl_norm_list *all, float *factor)
{
    fl_comm *comm = s->agree->comm;
    double sum[2] = {0, p->n_batch > 0};

    FL_TRY(own_squares(p, &sum[0]));
    FL_TRY(comm->methods->all_reduce(comm, FL_ALL_SUM, FL_WIRE_F64, sum, sum, 2,
                                     NULL));
    *factor = fl_clip_factor(fl_norm_list_sum(all) + sum[0] / sum[1],
                             s->optimizer->clip_norm);
    return FLEET_OK;
}

/* --- clip.rows ------------------------------------------------------------ */

static bool servers_keep_any(const fl_store *s)
{
    return fl_remote_has_dense(s) ||
           (size_t)fl_store_own_tables(s) < s->tables.n;
}

static fleet_status find_factor(const fl_store *s, const fl_push *p,
                                fl_norm_list *all, float *factor)
{
    bool sync = s->remote->sync;

    if (sync || fl_store_own_tables(s) > 0)
        FL_TRY(s->remote->methods->clip(s->remote, p, all, factor));
    return sync || !servers_keep_any(s) ? FLEET_OK
                                        : clip_unsummed(s, p, all, factor);
}

static void put_dense(const fl_instance *in, const fl_norm_list *all)
{
    const clip_config *c = in->step->config;

    for (int i = 0; i < c->n_norm; i++) {
        int64_t n;
        double *to = fl_norm_list_of(all, c->norm[i].param, &n);

        memcpy(to, fl_ptr(in, c->first_norm + i), (size_t)n * sizeof *to);
    }
}

static fleet_status clip_run(const fl_instance *in, const fl_range *r)
{
    const clip_config *c = in->step->config;
    fl_update_now *now = fl_ptr(in, FL_PUSH_UPDATE);
    const fl_store *s = c->push.store;
    fleet_status status;
    fl_norm_list all;
    fl_push p;

    (void)r;
    if (now->skip)
        return FLEET_OK;
    FL_TRY(fl_push_of(in, &c->push, &p));
    FL_TRY(fl_norm_list_make(&all, s));
    put_dense(in, &all);
    status = find_factor(s, &p, &all, &now->u.clip);
    fl_norm_list_done(&all);
    return status;
}

static const fl_kernel kernel_clip = {
    .name = "clip.rows",
    .split = FL_SPLIT_PARTS,
    .run = clip_run,
};

fleet_status fl_emit_clip_remote(fl_lowering *l, const fl_param_norm *norm,
                                 int n)
{
    clip_config c = {.push = fl_push_args_of(l), .norm = norm, .n_norm = n};
    fl_operands all;

    FL_TRY(fl_operands_begin(l, &all, fl_push_most_operands(l->plan) + n));
    fl_operands_add(&all, fl_update_value(l), FL_READ_WRITE);
    fl_operands_add(&all, -1, FL_WRITE); /* the room: fl_push_add_room() */
    if (fl_remote_has_dense(l->plan->store))
        FL_TRY(fl_push_add_params(l, &all, &c.push));
    fl_push_add_tables(l->plan, &all, &c.push);
    c.first_norm = all.n;
    for (int i = 0; i < n; i++)
        fl_operands_add(&all, norm[i].value, FL_READ);
    fl_push_add_gradients(l->plan, &all);
    fl_push_add_room(l, &all, &c.push);
    l->engine = FL_ENGINE_COMM;
    fl_emit(l, &kernel_clip, NULL, fl_config(l, &c, sizeof c), all.o, all.n);
    l->engine = FL_ENGINE_COMPUTE;
    return l->status;
}
