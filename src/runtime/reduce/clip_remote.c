/* clip_remote.c - the clip by global norm of a store whose dense parameters are
 * updated in this process, and whose rows servers or other ranks update. */
#include "runtime/reduce/clip_remote.h"

#include "base/memory.h"
#include "runtime/plan/agree.h"
#include "runtime/reduce/push_args.h"
#include "runtime/store/norm.h"

typedef struct clip_config {
    fl_push_args push;
    int first_norm; /* operand: squares of dense gradients, in their order */
    int n_norm;
    const int *count; /* doubles of each */
} clip_config;

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

/* Squares of this worker's own rows, of the mean over its batches. */
static fleet_status own_squares(const fl_push *p, double *sum)
{
    float scale = p->n_batch > 0 ? fl_push_factor(p) / (float)p->n_batch : 0.0f;

    *sum = 0;
    for (int t = 0; t < p->n_table; t++) {
        int64_t n;
        fl_norm_row *row = all_rows(&p->table[t], &n);

        if (!row)
            return FLEET_ENOMEM;
        fl_norm_sort(row, n);
        for (int64_t k = 0; k < n; k++)
            *sum += fl_square_sum(row[k].grad, p->table[t].rows->dim, scale);
        fl_free(row);
    }
    return FLEET_OK;
}

/* In async rows for servers are never added up; dense weights have one factor
 * all the same: by the mean of the ranks' squares. */
static fleet_status clip_alone(const fl_store *s, const fl_push *p,
                               double squares, float *factor)
{
    fl_comm *comm = s->agree->comm;
    double sum[2] = {0, p->n_batch > 0};

    FL_TRY(own_squares(p, &sum[0]));
    FL_TRY(comm->methods->all_reduce(comm, FL_ALL_SUM, FL_WIRE_F64, sum, sum, 2,
                                     NULL));
    *factor =
        fl_clip_factor(squares + sum[0] / sum[1], s->optimizer->clip_norm);
    return FLEET_OK;
}

/* Before the update: in sync, and in ranks' own tables always. */
static bool rows_are_added_up(const fl_store *s)
{
    return s->remote->sync || fl_store_own_tables(s) > 0;
}

static fleet_status clip_run(const fl_instance *in, const fl_range *r)
{
    const clip_config *c = in->step->config;
    fl_update_now *now = fl_ptr(in, FL_PUSH_UPDATE);
    const fl_store *s = c->push.store;
    double squares = 0;
    fl_push p;

    (void)r;
    if (now->skip)
        return FLEET_OK;
    for (int i = 0; i < c->n_norm; i++)
        for (int j = 0; j < c->count[i]; j++)
            squares += ((const double *)fl_ptr(in, c->first_norm + i))[j];
    FL_TRY(fl_push_of(in, &c->push, &p));
    return rows_are_added_up(s)
               ? s->remote->methods->clip(s->remote, &p, squares, &now->u.clip)
               : clip_alone(s, &p, squares, &now->u.clip);
}

static const fl_kernel kernel_clip = {
    .name = "clip.rows",
    .split = FL_SPLIT_PARTS,
    .run = clip_run,
};

fleet_status fl_emit_clip_rows(fl_lowering *l, const fl_operand *norm,
                               const int *count, int n)
{
    clip_config c = {.push = fl_push_args_of(l), .n_norm = n, .count = count};
    fl_operands all;

    FL_TRY(fl_operands_begin(l, &all, fl_push_most_operands(l->plan) + n));
    fl_operands_add(&all, fl_update_value(l), FL_READ_WRITE);
    fl_operands_add(&all, -1, FL_WRITE); /* the room: fl_push_add_room() */
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
