/* lease_queue.c - which leases each worker has, and which one comes next. */
#include "ps/lease_queue.h"

#include <inttypes.h>

#include "base/memory.h"

void fl_lease_init(fl_lease_queue *q, int n_worker)
{
    *q = (fl_lease_queue){.n_worker = n_worker};
}

void fl_lease_done(fl_lease_queue *q)
{
    for (int i = 0; q->list && i < q->n_worker; i++)
        fl_free(q->list[i].at);
    fl_free(q->list);
    fl_lease_init(q, q->n_worker);
}

static bool is_of(const fl_lease_queue *q, const fl_lease_pass *p)
{
    return q->list && q->pass.pass == p->pass &&
           q->pass.dataset == p->dataset && q->pass.batches == p->batches;
}

static fleet_status fail_other_pass(const fl_lease_queue *q, uint32_t worker,
                                    const fl_lease_pass *p)
{
    return fl_fail(FLEET_EINVAL,
                   "worker %u asks for a lease of %u batches of pass %" PRIu64
                   " of dataset %u, and others have leases of %u batches of "
                   "pass %" PRIu64 " of dataset %u: all workers train the same "
                   "passes, with the same lease_lines and batch_size",
                   worker, p->batches, p->pass, p->dataset, q->pass.batches,
                   q->pass.pass, q->pass.dataset);
}

fleet_status fl_lease_find(const fl_lease_queue *q, uint32_t worker,
                           const fl_lease_pass *pass, uint64_t sums,
                           uint64_t number, uint64_t *lease, bool *fresh)
{
    const bool same = is_of(q, pass);
    const size_t given = same ? q->list[worker].n : 0;

    if (!same && q->list && sums <= q->sums)
        return fail_other_pass(q, worker, pass);
    if (number > given)
        return fl_fail(FLEET_EINVAL,
                       "worker %u asks for lease %" PRIu64
                       " of its own, and has had %zu",
                       worker, number + 1, given);
    *fresh = number == given;
    *lease = !*fresh ? q->list[worker].at[number] : same ? q->next : 0;
    return FLEET_OK;
}

static fleet_status begin_pass(fl_lease_queue *q, const fl_lease_pass *pass,
                               uint64_t sums)
{
    fl_lease_list *list = fl_alloc_array((size_t)q->n_worker, sizeof *list);

    if (!list)
        return FLEET_ENOMEM;
    fl_lease_done(q);
    q->list = list;
    q->pass = *pass;
    q->sums = sums;
    return FLEET_OK;
}

fleet_status fl_lease_give(fl_lease_queue *q, uint32_t worker,
                           const fl_lease_pass *pass, uint64_t sums,
                           uint64_t number, uint64_t lease)
{
    fl_lease_list *l;

    if (!is_of(q, pass))
        FL_TRY(begin_pass(q, pass, sums));
    l = &q->list[worker];
    if (number != l->n || (l->n > 0 && lease <= l->at[l->n - 1]))
        return fl_fail(FLEET_ECORRUPT,
                       "lease %" PRIu64 " as lease %" PRIu64
                       " of worker %u, which has had %zu",
                       lease, number + 1, worker, l->n);
    FL_TRY(fl_grow(&l->at, &l->capacity, l->n + 1, sizeof *l->at));
    l->at[l->n++] = lease;
    q->next = lease >= q->next ? lease + 1 : q->next;
    return FLEET_OK;
}
