/* lane_reduce.c - the coordinator: numbers of all workers, added up in the
 * streams' order when the last has come. Of no numbers it is a barrier. A
 * stream's reductions are counted, so that a repeated one is answered and not
 * counted again; streams that have left are not waited for. And leases, which
 * workers get one after the other. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_internal.h"

static void answer_sum(fl_ps_lane *l, const fl_msg_head *to,
                       const fl_peer *peer)
{
    size_t bytes = (size_t)l->n_reduced * sizeof *l->reduced;
    fl_msg_writer w;
    void *values;

    fl_lane_begin_answer(l, &w, to, FL_ANSWER_OK, FL_NOBODY);
    fl_msg_section(&w, FL_SECTION_REDUCE, 0);
    values = fl_msg_column(&w, FL_COLUMN_VALUES, bytes);
    if (values && bytes)
        memcpy(values, l->reduced, bytes);
    fl_lane_end_answer(l, &w, peer);
}

void fl_lane_reduce(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &l->msg.head;
    fl_stream_state *s = &l->stream[head->stream];

    if (p->bytes > l->o.most_parked || head->n_section != 1 ||
        l->msg.section[0].op != FL_SECTION_REDUCE ||
        l->msg.section[0].table > FL_REDUCTION_PASS ||
        l->msg.column[0][FL_AT_VALUES].size % sizeof(double)) {
        fl_counter_add(&l->counters.bad, 1);
    } else if (head->step == s->reduced && s->reduced > 0) {
        answer_sum(l, head, from); /* once more: the answer was lost */
    } else if (head->step != s->reduced + 1) {
        fl_counter_add(&l->counters.gaps, 1);
    } else if (s->reducing) {
        s->reducing->from = *from;
    } else {
        s->reducing = fl_lane_park(l, from, p);
    }
}

/* How a worker's number joins the result so far. */
static double join_number(uint32_t how, double a, double b)
{
    switch (how) {
    case FL_REDUCTION_MAX:
        return a > b ? a : b;
    case FL_REDUCTION_MIN:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

/* The first contribution makes the room. */
static fleet_status begin_sum(fl_ps_lane *l, int n)
{
    fl_free(l->reduced);
    l->reduced = fl_alloc_array((size_t)n + 1, sizeof *l->reduced);
    l->n_reduced = l->reduced ? n : 0;
    l->reduced_how = l->msg.section[0].table;
    l->reduced_first = l->msg.head.stream;
    return l->reduced ? FLEET_OK : FLEET_ENOMEM;
}

/* What a worker has called, for the error that workers' calls differ. */
static void name_call(char *text, size_t size, uint32_t how, int n)
{
    static const char *const name[] = {"sum", "maximum", "minimum"};

    if (n == 0)
        snprintf(text, size, "a barrier or a load");
    else if (how == FL_REDUCTION_PASS)
        snprintf(text, size, "the end of a training pass");
    else
        snprintf(text, size, "a %s of %d number%s", name[how], n,
                 n == 1 ? "" : "s");
}

/* Each later contribution must have as many numbers as the first, and the same
 * reduction. */
static fleet_status check_same(const fl_ps_lane *l, int n)
{
    uint32_t how = l->msg.section[0].table;
    char mine[64], theirs[64];

    if (n == l->n_reduced && (n == 0 || how == l->reduced_how))
        return FLEET_OK;
    name_call(mine, sizeof mine, how, n);
    name_call(theirs, sizeof theirs, l->reduced_how, l->n_reduced);
    return fl_fail(FLEET_EINVAL,
                   "worker %u has come to %s, worker %u to %s: all workers "
                   "must make the same calls in the same order",
                   l->msg.head.stream, mine, l->reduced_first, theirs);
}

static fleet_status add_numbers(fl_ps_lane *l, bool first)
{
    const fl_frame *values = &l->msg.column[0][FL_AT_VALUES];
    int n = (int)(values->size / sizeof(double));

    FL_TRY(first ? begin_sum(l, n) : check_same(l, n));
    for (int i = 0; i < n; i++) {
        double x;

        memcpy(&x, (const char *)values->data + (size_t)i * sizeof x, sizeof x);
        l->reduced[i] =
            first ? x : join_number(l->reduced_how, l->reduced[i], x);
    }
    return FLEET_OK;
}

static fleet_status add_all(fl_ps_lane *l)
{
    bool first = true;

    for (int i = 0; i < l->o.n_stream; i++) {
        const fl_parked *p = l->stream[i].reducing;

        if (!p)
            continue;
        FL_TRY(fl_msg_decode(p->packet, &l->msg));
        FL_TRY(add_numbers(l, first));
        first = false;
    }
    return FLEET_OK;
}

void fl_lane_try_reduce(fl_ps_lane *l)
{
    if (l->streams[FL_STREAMS_REDUCING].n == 0 || l->state != FL_LANE_RUNS ||
        fl_lane_missing_reduce(l) != FL_NOBODY)
        return;
    if (add_all(l) != FLEET_OK || fl_lane_record_reduced(l) != FLEET_OK) {
        fl_lane_fail(l);
        return;
    }
    for (int i = 0; i < l->o.n_stream; i++) {
        fl_stream_state *s = &l->stream[i];

        if (!s->reducing)
            continue;
        s->reduced++;
        answer_sum(l, &s->reducing->head, &s->reducing->from);
        fl_lane_unpark(l, s->reducing);
        s->reducing = NULL;
        fl_lane_note_progress(l, (uint32_t)i);
        fl_lane_file_stream(l, (uint32_t)i);
    }
}

/* --- leases --------------------------------------------------------------- */

static void answer_lease(fl_ps_lane *l, const fl_peer *to, uint64_t lease)
{
    fl_msg_writer w;
    void *bytes;

    fl_lane_begin_answer(l, &w, &l->msg.head, FL_ANSWER_OK, FL_NOBODY);
    fl_msg_section(&w, FL_SECTION_LEASE, 0);
    bytes = fl_msg_column(&w, FL_COLUMN_BYTES, sizeof lease);
    if (bytes)
        memcpy(bytes, &lease, sizeof lease);
    fl_lane_end_answer(l, &w, to);
}

/* Written down before a worker has it. */
static fleet_status give_lease(fl_ps_lane *l, const fl_lease_question *q,
                               uint64_t lease)
{
    const fl_msg_head *head = &l->msg.head;

    FL_TRY(fl_lane_record_lease(l, head->stream, &q->pass, head->step,
                                q->number, lease));
    FL_TRY(fl_lease_give(&l->leases, head->stream, &q->pass, head->step,
                         q->number, lease));
    fl_counter_add(&l->counters.leases, 1);
    fl_lane_note_progress(l, head->stream);
    return FLEET_OK;
}

static void lease_for(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    const bool late = head->step < l->stream[head->stream].reduced;
    fleet_status status;
    fl_lease_question q;
    uint64_t lease;
    bool fresh;

    memcpy(&q, l->msg.column[0][FL_AT_BYTES].data, sizeof q);
    status = fl_lease_find(&l->leases, head->stream, &q.pass, head->step,
                           q.number, &lease, &fresh);
    if (late && (status != FLEET_OK || fresh)) {
        fl_counter_add(&l->counters.gaps, 1);
        return;
    }
    if (status != FLEET_OK) {
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL, "%s",
                       fleet_last_error());
        return;
    }
    if (fresh && give_lease(l, &q, lease) != FLEET_OK)
        fl_lane_fail(l);
    else
        answer_lease(l, from, lease);
}

/* Its step is how many sums the worker has made: a question of a pass that is
 * over, which comes late, is known by it, and gets nothing that is new. It gets
 * what the worker had: one that is started again behind the end of its pass
 * asks so, until it has made the sums behind it again. */
void fl_lane_lease(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &l->msg.head;

    (void)p;
    if (head->n_section != 1 || l->msg.section[0].op != FL_SECTION_LEASE ||
        l->msg.column[0][FL_AT_BYTES].size != sizeof(fl_lease_question))
        fl_counter_add(&l->counters.bad, 1);
    else if (l->o.sync || l->o.server != 0 || l->o.lane != 0)
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "worker %u asks for a lease: lane 0 of server 0 has "
                       "them, where workers update apart",
                       head->stream);
    else if (head->step > l->stream[head->stream].reduced)
        fl_counter_add(&l->counters.gaps, 1);
    else
        lease_for(l, from);
}
