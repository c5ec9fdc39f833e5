/* lane_replica.c - a lane that leads another one: records that are kept until
 * the follower has them, answers that wait for it, and how it goes on without
 * one. */
#include "ps/server/lane_replica.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_budget.h"
#include "ps/server/lane_copy.h"
#include "ps/server/lane_feed.h"
#include "ps/server/lane_follow.h"

/* --- records -------------------------------------------------------------- */

static fleet_status keep_record(fl_ps_lane *l, uint16_t kind,
                                const fl_journal_part *part, size_t n)
{
    fl_replica *r = l->replica;
    size_t used;

    if (r->from > r->used / 2) { /* what the follower has is given up */
        memmove(r->log, r->log + r->from, r->used - r->from);
        r->used -= r->from;
        r->from = 0;
    }
    used = r->used;
    FL_TRY(fl_journal_append(&r->log, &r->capacity, &r->used, r->last + 1, kind,
                             part, n));
    r->last++;
    fl_counter_add(&l->counters.replicated, r->used - used);
    return FLEET_OK;
}

/* It has a follower, or makes one. */
static bool keeps_records(const fl_replica *r)
{
    return r->role == FL_REPLICA_LEADS || fl_copy_is_behind(r);
}

static fleet_status put_for_replica(void *arg, uint16_t kind,
                                    const fl_journal_part *part, size_t n)
{
    fl_ps_lane *l = arg;
    const fl_replica *r = l->replica;

    if (r->next.put)
        FL_TRY(r->next.put(r->next.arg, kind, part, n));
    return keeps_records(r) ? keep_record(l, kind, part, n) : FLEET_OK;
}

static size_t bytes_at(const fl_replica *r, size_t at)
{
    return fl_journal_record_bytes(fl_journal_record_size(r->log + at));
}

static void drop_first(fl_replica *r)
{
    r->from += bytes_at(r, r->from);
    r->first++;
    if (r->from == r->used)
        r->from = r->used = 0;
}

/* --- answers to the follower ---------------------------------------------- */

static void begin_answer(fl_ps_lane *l, fl_msg_writer *w, const fl_question *q,
                         fl_msg_status status, uint32_t view)
{
    fl_lane_begin_answer(l, w, &q->head, status, FL_NOBODY);
    w->head.view = fl_view_with(l->o.map->view, view);
}

static void end_answer(fl_ps_lane *l, fl_msg_writer *w, const fl_question *q)
{
    fl_packet *p;

    if (fl_msg_end(w, w->head.flags & FL_MSG_CRC_ALL, &p) != FLEET_OK)
        return; /* it asks again */
    l->host.send(l->host.arg, &q->peer, p);
    fl_packet_drop(p);
}

static void say_addresses(fl_ps_lane *l, const fl_question *q,
                          fl_msg_status status, int first, int n)
{
    fl_msg_writer w;

    begin_answer(l, &w, q, status, fl_replica_view_of(l));
    for (int i = first; l->o.address && i < first + n; i++)
        fl_msg_text(&w, FL_SECTION_HELLO,
                    l->o.address[i] ? l->o.address[i] : "{}");
    end_answer(l, &w, q);
}

void fl_replica_say_lanes(fl_ps_lane *l, const fl_question *q,
                          fl_msg_status status)
{
    say_addresses(l, q, status, 0, l->o.n_lane);
}

void fl_replica_answer(fl_ps_lane *l, const fl_question *q,
                       fl_msg_status status, uint32_t view, uint16_t flags)
{
    fl_msg_writer w;

    begin_answer(l, &w, q, status, view);
    w.head.flags |= flags;
    end_answer(l, &w, q);
}

void fl_replica_say_copies(fl_ps_lane *l, const fl_question *q)
{
    say_addresses(l, q, FL_ANSWER_OK, l->o.n_lane, l->o.n_also);
}

/* They have sums of their own. */
void fl_replica_send(fl_ps_lane *l, const fl_question *q, uint32_t view,
                     const char *records, size_t bytes)
{
    fl_msg_writer w;
    void *to = NULL;

    begin_answer(l, &w, q, FL_ANSWER_OK, view);
    w.head.flags = 0;
    if (fl_msg_section(&w, FL_SECTION_RECORDS, 0))
        to = fl_msg_column(&w, FL_COLUMN_BYTES, bytes);
    if (to)
        memcpy(to, records, bytes);
    end_answer(l, &w, q);
}

size_t fl_replica_batch(const fl_replica *r)
{
    return fl_journal_batch(r->log + r->from, r->used - r->from,
                            FL_REPLICA_BATCH);
}

void fl_replica_send_kept(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    r->asks = false;
    fl_replica_send(l, &r->question, fl_replica_view_of(l), r->log + r->from,
                    fl_replica_batch(r));
}

static fleet_status commit_for_replica(void *arg)
{
    fl_ps_lane *l = arg;
    fl_replica *r = l->replica;

    if (r->next.commit)
        FL_TRY(r->next.commit(r->next.arg));
    if (r->role == FL_REPLICA_LEADS && r->asks && r->from < r->used)
        fl_replica_send_kept(l);
    else if (r->copy)
        fl_copy_goes_on(l);
    return FLEET_OK;
}

/* --- answers that wait ---------------------------------------------------- */

/* What says nothing of the lane's state goes out. */
static bool must_wait(const fl_msg_head *head)
{
    return head->kind == FL_MSG_ANSWER &&
           !(head->request & FL_MSG_OF_HEARTBEAT) &&
           (head->status == FL_ANSWER_OK || head->status == FL_ANSWER_NORMS ||
            head->status == FL_ANSWER_FAILED);
}

bool fl_replica_holds(fl_ps_lane *l, const fl_peer *to, const fl_msg_head *head,
                      fl_packet *p)
{
    fl_replica *r = l->replica;
    fl_held_answer *h;

    if (!r || !must_wait(head) ||
        (r->role != FL_REPLICA_LEADS && r->role != FL_REPLICA_GONE &&
         !fl_copy_joins(r)) ||
        r->last <= r->acked)
        return false;
    if (r->role == FL_REPLICA_GONE) { /* a command has ended, say */
        fl_packet_drop(p);
        return true;
    }
    h = fl_lane_charge(l, to, head->stream, p)
            ? fl_packet_pool_take(l->o.pool, sizeof *h)
            : NULL;
    if (!h) {
        fl_packet_drop(p); /* the worker asks again */
        return true;
    }
    *h =
        (fl_held_answer){.to = *to, .head = *head, .lsn = r->last, .packet = p};
    *r->last_held = h;
    r->last_held = &h->next;
    fl_counter_add(&l->counters.held_answers, 1);
    return true;
}

/* Answers that have waited for a record up to that one go out, or (send false)
 * nowhere. They weigh already. */
static void send_held(fl_ps_lane *l, uint64_t lsn, bool send)
{
    fl_replica *r = l->replica;

    while (r->held && r->held->lsn <= lsn) {
        fl_held_answer *h = r->held;

        r->held = h->next;
        if (send)
            l->host.send(l->host.arg, &h->to, h->packet);
        fl_packet_drop(h->packet);
        fl_packet_pool_give(l->o.pool, h, sizeof *h);
    }
    if (!r->held)
        r->last_held = &r->held;
}

void fl_replica_acknowledge(fl_ps_lane *l, uint64_t want)
{
    fl_replica *r = l->replica;

    if (want == 0 || want - 1 <= r->acked || want - 1 > r->last)
        return;
    r->acked = want - 1;
    while (r->first <= r->acked)
        drop_first(r);
    send_held(l, r->acked, true);
}

void fl_replica_heartbeat(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    fl_replica *r = l->replica;

    if (!r)
        return;
    if (r->copy)
        fl_copy_heartbeat(l);
    if (r->begins)
        fl_copy_hear_epoch(l);
    if (r->proposes && fl_view_of(head) == r->view + FL_VIEW_ALONE)
        r->promised[head->stream] = true;
    for (const fl_held_answer *h = r->held; h; h = h->next)
        if (h->head.stream == head->stream)
            fl_lane_answer(l, &h->head, from, FL_ANSWER_WAITING, FL_NOBODY);
}

void fl_replica_forget_promise(fl_ps_lane *l, uint32_t stream)
{
    if (!l->replica)
        return;
    l->replica->promised[stream] = false;
    if (l->replica->copy)
        fl_copy_forget_worker(l, stream);
}

/* --- views ---------------------------------------------------------------- */

void fl_replica_keep(fl_ps_lane *l, uint64_t first)
{
    fl_replica *r = l->replica;

    r->first = first;
    r->last = r->acked = first - 1;
    for (int i = 0; i < l->o.n_stream; i++)
        r->left[i] = l->stream[i].left ? r->last : 0;
    l->o.journal = (fl_journal_sink){l, put_for_replica, commit_for_replica};
}

void fl_replica_forget_follower(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    fl_free(r->log);
    r->log = NULL;
    r->from = r->used = r->capacity = 0;
    r->asks = r->attached = r->proposes = r->begins = false;
    l->o.journal = r->next;
    send_held(l, UINT64_MAX, r->role == FL_REPLICA_ALONE);
}

void fl_replica_stand_alone(fl_ps_lane *l, uint32_t view)
{
    fl_replica *r = l->replica;

    r->role = FL_REPLICA_ALONE;
    r->view = view;
    r->moves = false;
    fl_replica_forget_follower(l);
}

/* So that none waits for its next heartbeat. */
static void tell_workers(fl_ps_lane *l)
{
    for (int i = 0; i < l->o.n_stream; i++) {
        const fl_stream_state *s = &l->stream[i];
        const fl_msg_head head = {.version = FL_MSG_VERSION,
                                  .kind = FL_MSG_HEARTBEAT,
                                  .stream = (uint32_t)i,
                                  .incarnation = s->incarnation,
                                  .request = FL_MSG_OF_HEARTBEAT};

        if (s->known && !s->left)
            fl_lane_answer(l, &head, &s->peer, FL_ANSWER_FENCED, FL_NOBODY);
    }
}

/* A worker has made the follower lead. What was not answered is not this
 * lane's to answer. */
void fl_replica_give_way(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    if (!r->moves)
        FL_WARN(l->o.log,
                "server %d, lane %d: its replica leads now (view %u), this "
                "copy has none to serve any more",
                l->o.server, l->o.lane, r->view + FL_VIEW_TAKEN);
    r->role = FL_REPLICA_GONE;
    r->view += FL_VIEW_TAKEN;
    r->gone_ms = l->now_ms;
    fl_replica_forget_follower(l);
    if (!r->moves)
        return;
    atomic_fetch_add(&l->o.identity->moved, 1);
    tell_workers(l);
    fl_feed_moves(l);
}

bool fl_replica_is_past(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    const fl_replica *r = l->replica;

    if (!r)
        return false;
    if (r->role == FL_REPLICA_LEADS &&
        fl_view_of(head) == r->view + FL_VIEW_TAKEN)
        fl_replica_give_way(l);
    if (r->role != FL_REPLICA_GONE)
        return false;
    if (r->moves)
        l->replica->gone_ms = l->now_ms;
    if (l->o.log_goes)
        fl_lane_say_home(l, from, NULL);
    else
        fl_lane_answer(l, head, from, FL_ANSWER_FENCED, FL_NOBODY);
    return true;
}

void fl_replica_note_left(fl_ps_lane *l, uint32_t stream)
{
    if (l->replica)
        l->replica->left[stream] = l->replica->last;
}

/* The follower heeds no worker of which it knows that it has left. */
static bool all_have_promised(const fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    for (int i = 0; i < l->o.n_stream; i++)
        if (!r->promised[i] && !l->stream[i].heard &&
            (r->left[i] == 0 || r->left[i] > r->acked))
            return false;
    return true;
}

static void propose(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    if (!r->proposes)
        FL_WARN(l->o.log,
                "server %d, lane %d: nothing was heard of its replica for "
                "%.1f s: the lane goes on alone as soon as all workers know",
                l->o.server, l->o.lane,
                (double)(l->now_ms - r->heard_ms) / 1000);
    r->proposes = true;
    if (!all_have_promised(l))
        return;
    FL_WARN(l->o.log, "server %d, lane %d: it goes on without a replica",
            l->o.server, l->o.lane);
    fl_replica_stand_alone(l, r->view + FL_VIEW_ALONE);
    fl_lane_advance(l);
}

/* Of its replica and of all workers nothing is heard: if the job goes on it
 * does elsewhere, and if not there is no process to tell. */
static bool is_isolated(const fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    int64_t patience_ms = FL_REPLICA_PATIENCE * l->o.peer_ms;
    bool any = false;

    for (int i = 0; i < l->o.n_stream; i++) {
        const fl_stream_state *s = &l->stream[i];

        if (!s->known || s->left)
            continue;
        any = true;
        if (l->now_ms - s->heard_ms <= patience_ms)
            return false;
    }
    return r->proposes && l->now_ms - r->heard_ms > (any ? 1 : 2) * patience_ms;
}

static void await_follower(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    char text[200];

    if (is_isolated(l)) {
        fl_replica_give_way(l);
        return;
    }

    if (r->attached && (r->proposes || l->now_ms - r->heard_ms > l->o.peer_ms))
        propose(l);
    if (r->attached || l->now_ms - r->begun_ms <= l->o.connect_ms)
        return;
    snprintf(text, sizeof text,
             "the replica of server %d, lane %d has not come within %.1f s "
             "(connect deadline)",
             l->o.server, l->o.lane, (double)l->o.connect_ms / 1000);
    fl_lane_abort(l, FLEET_ETIMEDOUT, text);
}

bool fl_replica_tick(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    if (!r)
        return false;
    if (r->copy)
        fl_copy_tick(l);
    if (r->moves)
        fl_lane_await_taker(l);
    if (r->role == FL_REPLICA_LEADS)
        await_follower(l);
    else if (r->role == FL_REPLICA_FOLLOWS)
        fl_follower_tick(l);
    else if (r->role == FL_REPLICA_GONE)
        fl_lane_linger(l);
    else if (r->fencing)
        fl_follower_fence(l);
    return r->role == FL_REPLICA_FOLLOWS || r->role == FL_REPLICA_GONE;
}

int64_t fl_replica_peer_ms(const fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    bool cut_off;

    if (!r || r->role != FL_REPLICA_LEADS)
        return l->o.peer_ms;
    cut_off = r->proposes || l->now_ms - r->heard_ms > l->o.peer_ms / 2;
    return (cut_off ? 2 * FL_REPLICA_PATIENCE : FL_REPLICA_PATIENCE - 1) *
           l->o.peer_ms;
}

/* --- whose questions it takes --------------------------------------------- */

static bool is_of_server(const fl_ps_lane *l, const fl_peer *from, int step)
{
    int n = l->o.layout->n_server;

    return from->sender == 0 ||
           from->sender == FL_GUARD_SERVER + (l->o.server + step + n) % n;
}

/* It hears everything, and may end the job: the server's own process or that of
 * the next one has it, or of the one that the lane goes to, and no other key
 * speaks for that. The process of the server before this one asks where copies
 * of its lanes are. */
static bool has_its_key(const fl_ps_lane *l, const fl_peer *from)
{
    if (l->msg.head.flags & FL_MSG_COMMAND)
        return is_of_server(l, from, -1);
    if (l->replica->told)
        return from->sender == 0 ||
               from->sender == FL_GUARD_SERVER + l->replica->mover;
    return is_of_server(l, from, 0) || is_of_server(l, from, 1);
}

bool fl_replica_admits(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    bool follows = l->replica && head->stream == FL_REPLICA_STREAM &&
                   fl_msg_same_id(head->job, l->job) &&
                   (l->replica->role != FL_REPLICA_FOLLOWS ||
                    head->flags & FL_MSG_COMMAND);

    if (follows && has_its_key(l, from))
        return true;
    fl_counter_add(follows ? &l->counters.foreign : &l->counters.strays, 1);
    return false;
}

/* --- the end -------------------------------------------------------------- */

bool fl_replica_may_end(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    if (r && r->copy)
        return fl_copy_may_end(l);
    if (!r || r->role != FL_REPLICA_LEADS || !r->attached ||
        l->now_ms - r->heard_ms > l->o.peer_ms)
        return true;
    if (!r->asks || r->from < r->used)
        return false;
    fl_replica_answer(l, &r->question, FL_ANSWER_OK, fl_replica_view_of(l),
                      FL_MSG_LEAVE);
    return true;
}

void fl_replica_abort(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    fl_msg_writer w;

    if (!r || r->role != FL_REPLICA_LEADS || !r->asks)
        return;
    begin_answer(l, &w, &r->question, FL_ANSWER_FAILED, fl_replica_view_of(l));
    w.head.step = (uint64_t)l->error.code;
    fl_msg_text(&w, FL_SECTION_TEXT, l->error.text);
    end_answer(l, &w, &r->question);
}

/* --- life ----------------------------------------------------------------- */

static fleet_status make_replica(fl_ps_lane *l)
{
    fl_replica *r;

    FL_TRY(FL_NEW(&l->replica, sizeof *l->replica));
    r = l->replica;
    r->role = l->o.replica;
    r->view = r->role == FL_REPLICA_FOLLOWS ? FL_VIEW_NONE : FL_VIEW_BOTH;
    r->next = l->o.journal;
    r->want = 1;
    r->last_held = &r->held;
    r->heard_ms = r->begun_ms = l->now_ms;
    FL_TRY(FL_NEW(&r->promised, (size_t)l->o.n_stream * sizeof *r->promised));
    FL_TRY(FL_NEW(&r->left, (size_t)l->o.n_stream * sizeof *r->left));
    return FL_NEW(&r->said, (size_t)l->o.n_stream * sizeof *r->said);
}

fleet_status fl_replica_begin_alone(fl_ps_lane *l)
{
    fleet_status status = make_replica(l);

    if (status != FLEET_OK) {
        fl_replica_done(l);
        return status;
    }
    l->replica->role = FL_REPLICA_ALONE;
    l->replica->view = FL_VIEW_ALONE; /* no copy is one until there is an
                                         epoch of both */
    return FLEET_OK;
}

fleet_status fl_replica_begin(fl_ps_lane *l)
{
    FL_TRY(make_replica(l));
    fl_replica_keep(l, 1);
    if (l->replica->role == FL_REPLICA_LEADS)
        atomic_fetch_add(&l->o.identity->unfollowed, 1);
    return FLEET_OK;
}

void fl_replica_done(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    if (!r)
        return;
    send_held(l, UINT64_MAX, false);
    fl_copy_destroy(r);
    fl_free(r->log);
    fl_free(r->promised);
    fl_free(r->said);
    fl_free(r->left);
    fl_free(r->batch);
    fl_free(r);
    l->replica = NULL;
}
