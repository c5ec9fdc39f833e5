/* norm_list.c - squares of the gradients of a whole update, in their order. */
#include "runtime/plan/norm_list.h"

#include "base/memory.h"

/* By name; each with `size` squares, or, if 0, one for each of its blocks. */
static fleet_status add_sorted(fl_norm_list *all, const fl_map *m, int64_t size)
{
    fl_map_entry *e = fl_map_sorted(m);

    for (size_t i = 0; e && i < m->n; i++) {
        const fl_param *p = e[i].value;
        int64_t n = size ? size : (p->n + FL_BLOCK - 1) / FL_BLOCK;

        all->item[all->n_item++] = e[i].value;
        all->first[all->n_item] = all->first[all->n_item - 1] + n;
    }
    fl_free(e);
    return e ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status make(fl_norm_list *all, const fl_store *s)
{
    size_t most = s->params.n + s->tables.n + 1;

    FL_TRY(FL_NEW(&all->item, most * sizeof *all->item));
    FL_TRY(FL_NEW(&all->first, most * sizeof *all->first));
    FL_TRY(add_sorted(all, &s->params, 0));
    FL_TRY(add_sorted(all, &s->tables, FL_N_BUCKET));
    return FL_NEW(&all->sum,
                  (size_t)(all->first[all->n_item] + 1) * sizeof *all->sum);
}

fleet_status fl_norm_list_make(fl_norm_list *all, const fl_store *s)
{
    fleet_status status;

    *all = (fl_norm_list){0};
    status = make(all, s);
    if (status != FLEET_OK)
        fl_norm_list_done(all);
    return status;
}

void fl_norm_list_done(fl_norm_list *all)
{
    fl_free(all->item);
    fl_free(all->first);
    fl_free(all->sum);
    *all = (fl_norm_list){0};
}

double *fl_norm_list_of(const fl_norm_list *all, const void *item, int64_t *n)
{
    int i = 0;

    while (all->item[i] != item)
        i++;
    *n = all->first[i + 1] - all->first[i];
    return all->sum + all->first[i];
}

double fl_norm_list_sum(const fl_norm_list *all)
{
    double squares = 0;

    for (int64_t i = 0; i < all->first[all->n_item]; i++)
        squares += all->sum[i];
    return squares;
}

float fl_norm_list_clip(const fl_norm_list *all, const fl_store *s)
{
    return fl_clip_factor(fl_norm_list_sum(all), s->optimizer->clip_norm);
}
