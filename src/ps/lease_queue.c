/* lease_queue.c - which leases each worker has, and which one comes next. */
#include "ps/lease_queue.h"

#include <inttypes.h>

#include "base/memory.h"

enum { MOST_BEFORE = 64 };

void fl_lease_init(fl_lease_queue *q, int n_worker)
{
    *q = (fl_lease_queue){.n_worker = n_worker};
}

static void free_lists(fl_lease_queue *q)
{
    for (int i = 0; q->list && i < q->n_worker; i++)
        fl_free(q->list[i].at);
    fl_free(q->list);
}

static void drop_pass(fl_lease_queue **link)
{
    fl_lease_queue *q = *link;

    *link = q->before;
    free_lists(q);
    fl_free(q);
}

void fl_lease_done(fl_lease_queue *q)
{
    while (q->before)
        drop_pass(&q->before);
    free_lists(q);
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
    const fl_lease_queue *at = q;
    size_t given;

    while (at && !is_of(at, pass))
        at = at->before;
    given = at ? at->list[worker].n : 0;
    *fresh = number >= given;
    *lease = !*fresh ? at->list[worker].at[number] : at ? at->next : 0;
    if (*fresh && at != q && q->list && sums <= q->sums)
        return fail_other_pass(q, worker, pass);
    if (number > given)
        return fl_fail(FLEET_EINVAL,
                       "worker %u asks for lease %" PRIu64
                       " of its own, and has had %zu",
                       worker, number + 1, given);
    return FLEET_OK;
}

/* Is there a later pass of its dataset? */
static bool is_old(const fl_lease_queue *q, const fl_lease_queue *of)
{
    while (q != of && q->pass.dataset != of->pass.dataset)
        q = q->before;
    return q != of;
}

/* The pass just before this one stays in any case. */
static void forget_old(fl_lease_queue *q)
{
    int n = 0;

    for (fl_lease_queue **link = &q->before->before; *link;)
        if (is_old(q, *link) || ++n >= MOST_BEFORE)
            drop_pass(link);
        else
            link = &(*link)->before;
}

/* Room for the pass, or the place of one that goes on. */
static fleet_status make_room(fl_lease_queue *q, const fl_lease_pass *pass,
                              fl_lease_queue **room)
{
    fl_lease_queue **link = &q->before;

    while (*link && !is_of(*link, pass))
        link = &(*link)->before;
    *room = *link;
    if (*room) {
        *link = (*room)->before;
        return FLEET_OK;
    }
    FL_TRY(FL_NEW(room, sizeof **room));
    (*room)->list = fl_alloc_array((size_t)q->n_worker, sizeof *q->list);
    if ((*room)->list)
        return FLEET_OK;
    fl_free(*room);
    return FLEET_ENOMEM;
}

static fleet_status begin_pass(fl_lease_queue *q, const fl_lease_pass *pass,
                               uint64_t sums)
{
    const fl_lease_queue last = *q;
    fl_lease_queue *room;

    FL_TRY(make_room(q, pass, &room));
    *q = (fl_lease_queue){.n_worker = q->n_worker,
                          .pass = *pass,
                          .sums = sums,
                          .next = room->next,
                          .list = room->list,
                          .before = q->before};
    if (!last.list) {
        fl_free(room);
        return FLEET_OK;
    }
    *room = last;
    room->before = q->before; /* without what goes on */
    q->before = room;
    forget_old(q);
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
