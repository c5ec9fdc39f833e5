/* lane_asked.c - what processes ask a lane that have a copy of it, or are to
 * have one or its log; and where it is, when it has gone. */
#include <inttypes.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "ps/server/lane_copy.h"
#include "ps/server/lane_internal.h"

/* --- questions of followers, and of newcomers ----------------------------- */

/* It cannot do what this one has done. Workers that have not come yet hear of
 * it as they come. */
static void follower_has_failed(fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    bool begins = atomic_load(&l->o.identity->unfollowed) > 0;
    char *why = fl_msg_get_text(&l->msg, FL_SECTION_TEXT);
    fleet_status code = fl_msg_code(head->request, FLEET_EPEER);

    if (begins)
        fl_lane_doom(l, code, why ? why : "its replica has failed");
    else
        fl_lane_abort(l, code, why ? why : "its replica has failed");
    fl_free(why);
}

/* Its question has just come: a taker that has died meanwhile, and is not
 * missed yet, does not get the lane. Nor does it when all workers have left:
 * it is told with the lane's end. */
static void hand_over(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    if (!r->moves || r->begins || r->proposes || l->busy || l->saving ||
        l->frozen || fl_all_have_left(l))
        return;
    FL_INFO(l->o.log,
            "server %d, lane %d: it goes to the process of server %d, with "
            "update %" PRId64 " (view %u)",
            l->o.server, l->o.lane, r->mover, l->version,
            r->view + FL_VIEW_TAKEN);
    fl_replica_give_way(l);
}

static void follower_asks(fl_ps_lane *l, const fl_question *q)
{
    fl_replica *r = l->replica;

    if (r->first > 1 && q->head.step < r->first)
        return;              /* it is late: that record is gone */
    if (q->head.step == 0) { /* it does not know its process yet, or loads */
        r->begun_ms = l->now_ms;
        fl_replica_say_lanes(l, q, FL_ANSWER_OK);
        return;
    }
    if (!r->attached)
        atomic_fetch_sub(&l->o.identity->unfollowed, 1);
    r->question = *q;
    r->attached = r->asks = true;
    r->process = q->head.incarnation;
    r->heard_ms = l->now_ms;
    fl_replica_acknowledge(l, q->head.step);
    if (r->from < r->used)
        fl_replica_send_kept(l);
    hand_over(l);
}

/* Another process than the follower's. It may be one of before, that has slept;
 * or the follower has died, and is not missed yet. */
static void stranger_asks(fl_ps_lane *l, const fl_question *q)
{
    fl_replica *r = l->replica;

    if (fl_view_of(&q->head) != FL_VIEW_NONE) {
        fl_replica_answer(l, q, FL_ANSWER_FENCED, fl_replica_view_of(l), 0);
        return;
    }
    fl_replica_say_lanes(l, q, FL_ANSWER_COMING);
    if (l->now_ms - r->heard_ms > l->o.peer_ms / 2)
        r->proposes = true;
}

void fl_lane_follow_asked(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &l->msg.head;
    const fl_question q = {*from, *head};
    fl_replica *r = l->replica;
    bool known = !r->attached || head->incarnation == r->process;

    (void)p;
    if (head->flags & FL_MSG_COMMAND) { /* where copies of its lanes are */
        fl_replica_say_copies(l, &q);
        return;
    }
    if (head->peer != 0 && head->peer != l->o.identity->nonce)
        return; /* it follows another process */
    if (r->role == FL_REPLICA_LEADS && known && head->flags & FL_MSG_STOP) {
        follower_has_failed(l);
        return;
    }
    if (r->role == FL_REPLICA_LEADS &&
        fl_view_of(head) == r->view + FL_VIEW_TAKEN)
        fl_replica_give_way(l);
    if (r->role == FL_REPLICA_ALONE)
        fl_copy_newcomer_asks(l, &q);
    else if (r->role != FL_REPLICA_LEADS)
        fl_replica_answer(l, &q, FL_ANSWER_FENCED, fl_replica_view_of(l), 0);
    else if (known)
        follower_asks(l, &q);
    else
        stranger_asks(l, &q);
}

/* --- one that has gone ---------------------------------------------------- */

/* A worker that was started again knows the lane's first place alone, and asks
 * by heartbeats. All else is sent again, to the right place. */
void fl_lane_say_home(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &l->msg.head;
    char address[FL_LANE_TEXT];
    uint32_t view;
    fl_msg_writer w;

    (void)p;
    if (head->kind != FL_MSG_HEARTBEAT ||
        !l->host.home(l->host.arg, &view, address))
        return;
    l->replica->view = view;
    fl_lane_begin_answer(l, &w, head, FL_ANSWER_FENCED, FL_NOBODY);
    w.head.flags |= FL_MSG_CRC_ALL;
    w.head.piece = (uint16_t)fl_view_epoch(view);
    fl_msg_text(&w, FL_SECTION_HELLO, address);
    fl_lane_end_answer(l, &w, from);
}
