/* lane_copy.c - a lane that has lost its other copy makes it again, for a
 * process that asks for it: it sends what it is, and the records behind that,
 * while it goes on; then answers wait for the copy, and an epoch begins in
 * which it follows. docs/adr/0093. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/journal/journal_pipe.h"
#include "ps/server/lane_copy.h"

enum { MOST_AHEAD = 16 << 20 }; /* bytes that were written, and not sent */

/* lane_copy.h says what each is. */
typedef enum copy_phase { WAITS, GOES, WRITES, BEHIND, JOINS } copy_phase;

struct fl_lane_copy {
    copy_phase phase;
    uint32_t process, epoch;
    bool asks; /* and has no answer yet */
    fl_question question;
    int64_t heard_ms;
    int64_t known_ms; /* when there was no worker without one last */
    char *address;    /* where workers find it */
    bool *knows;      /* by stream: it has a way to it */

    fl_journal_pipe *pipe;
    bool writes; /* the host does, into the pipe: until then it has this, too */
    char *batch; /* of the pipe, and on its way */
    size_t batch_size, batch_capacity;
    uint64_t batch_last; /* LSN */

    uint64_t sent, most; /* bytes behind what the lane was, until it joins */
    uint64_t join_at;    /* the last record when it began to */
};

/* --- life ----------------------------------------------------------------- */

static void destroy(fl_lane_copy *c)
{
    if (!c)
        return;
    fl_journal_pipe_destroy(c->pipe);
    fl_free(c->batch);
    fl_free(c->address);
    fl_free(c->knows);
    fl_free(c);
}

void fl_copy_destroy(fl_replica *r)
{
    destroy(r->copy);
    destroy(r->ending);
    r->copy = r->ending = NULL;
}

static fleet_status make_copy(fl_ps_lane *l, uint32_t process)
{
    fl_replica *r = l->replica;

    FL_TRY(FL_NEW(&r->copy, sizeof *r->copy));
    r->copy->process = process;
    r->copy->known_ms = l->now_ms;
    return FL_NEW(&r->copy->knows,
                  (size_t)l->o.n_stream * sizeof *r->copy->knows);
}

/* The lane goes on alone. What writes for the copy is told, and ends soon. */
static void drop_copy(fl_ps_lane *l, const char *why)
{
    fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;

    FL_WARN(l->o.log, "server %d, lane %d: its %s: %s", l->o.server, l->o.lane,
            r->moves ? "move is given up" : "replica is not made again", why);
    r->moves = false;
    r->process = c->process;
    r->copy = NULL;
    if (c->writes) {
        fl_journal_pipe_stop(c->pipe);
        r->ending = c;
    } else {
        destroy(c);
    }
    fl_replica_forget_follower(l);
}

static uint32_t view_of(const fl_lane_copy *c)
{
    return c->epoch << 2 | FL_VIEW_BOTH;
}

/* --- writing what the lane is --------------------------------------------- */

static fleet_status freeze_for(fl_ps_lane *l, fl_lane_copy *c)
{
    size_t most = l->o.most_copy ? l->o.most_copy : MOST_AHEAD;
    fl_journal_sink to;
    fleet_status status;

    FL_TRY(fl_journal_pipe_create(&c->pipe, most, l->host.ring, l->host.arg));
    to = fl_journal_pipe_sink(c->pipe);
    FL_TRY(fl_lane_freeze(l, &to));
    c->writes = true;
    status = l->host.copy(l->host.arg, c);
    if (status == FLEET_OK)
        return status;
    c->writes = false;
    fl_lane_thaw(l, l->awake.looked_ms);
    return status;
}

/* Moves of a lane whose journal goes with it are counted on disk, or one that
 * came to nothing could be taken for the next one. */
static fleet_status count_epoch(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    uint32_t epoch = fl_view_epoch(r->view);

    r->epoch = (r->epoch > epoch ? r->epoch : epoch) + 1;
    if (l->o.log_goes)
        FL_TRY(l->host.count_move(l->host.arg, r->epoch, &r->epoch));
    return r->epoch <= FL_MOST_EPOCH
               ? FLEET_OK
               : fl_fail(FLEET_EUNSUPPORTED, "it was lost too often");
}

/* At a quiet moment. From then on records are kept; or its journal is about to
 * go. */
static void begin_copying(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;

    if (!fl_lane_may_freeze(l))
        return;
    if (count_epoch(l) != FLEET_OK) {
        drop_copy(l, fleet_last_error());
        return;
    }
    c->epoch = r->epoch;
    if (l->o.log_goes) {
        c->phase = GOES;
        FL_INFO(l->o.log,
                "server %d, lane %d: its log is about to go to server %d",
                l->o.server, l->o.lane, r->mover);
        return;
    }
    c->phase = WRITES;
    r->fencing = false;
    fl_replica_keep(l, FL_COPY_BEHIND + 1);
    FL_INFO(l->o.log,
            "server %d, lane %d: its replica is made%s, from update "
            "%" PRId64 " on",
            l->o.server, l->o.lane, r->moves ? ", to lead" : " again",
            l->version);
    if (freeze_for(l, c) != FLEET_OK)
        drop_copy(l, fleet_last_error());
}

void fl_lane_write_copy(const fl_ps_lane *l, fl_lane_copy *c)
{
    const fl_journal_sink to = fl_journal_pipe_sink(c->pipe);

    fl_journal_pipe_end(c->pipe, fl_lane_write_frozen(l, &to));
}

void fl_lane_stop_copy(fl_lane_copy *c)
{
    fl_journal_pipe_stop(c->pipe);
}

void fl_lane_copy_written(fl_ps_lane *l, fl_lane_copy *c, int64_t now_ms)
{
    fl_replica *r = l->replica;

    c->writes = false;
    if (r->ending == c) {
        destroy(c);
        r->ending = NULL;
    }
    fl_lane_thaw(l, now_ms);
    fl_copy_goes_on(l);
}

/* --- sending it ----------------------------------------------------------- */

/* What it does not have yet. A record of one's own is whole. */
static fleet_status take_batch(fl_ps_lane *l, fl_lane_copy *c, bool *over)
{
    size_t at = 0;

    FL_TRY(fl_journal_pipe_take(c->pipe, FL_REPLICA_BATCH, &c->batch,
                                &c->batch_capacity, &c->batch_size, over));
    for (; at < c->batch_size;
         at += fl_journal_record_bytes(fl_journal_record_size(c->batch + at)))
        c->batch_last = fl_journal_record_lsn(c->batch + at);
    fl_counter_add(&l->counters.replicated, c->batch_size);
    return FLEET_OK;
}

static void is_behind(const fl_replica *r, fl_lane_copy *c)
{
    c->phase = BEHIND;
    c->most = 2 * (r->used - r->from) + FL_REPLICA_BATCH;
}

static void send_written(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;
    uint64_t want = c->question.head.step;
    bool over = false;

    if (want > c->batch_last || c->batch_size == 0) {
        if (take_batch(l, c, &over) != FLEET_OK) {
            drop_copy(l, fleet_last_error());
            return;
        }
        if (over && !c->writes && want == FL_COPY_BEHIND + 1)
            is_behind(r, c);
        if (c->batch_size == 0)
            return;
    }
    c->asks = false;
    fl_replica_send(l, &c->question, r->view, c->batch, c->batch_size);
}

static bool all_know(const fl_ps_lane *l, const fl_lane_copy *c)
{
    for (int i = 0; i < l->o.n_stream; i++)
        if (!c->knows[i] && !l->stream[i].left)
            return false;
    return true;
}

/* It is nearly as far as the lane; or it has got twice of what it was behind,
 * and never will be, unless workers wait for it. */
static bool may_join(const fl_ps_lane *l, const fl_lane_copy *c)
{
    const fl_replica *r = l->replica;

    return c->phase == BEHIND && all_know(l, c) &&
           (r->used - r->from <= FL_REPLICA_BATCH || c->sent > c->most);
}

static void send_behind(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;
    bool joins = c->phase == JOINS;
    uint32_t view = joins ? view_of(c) : r->view;
    size_t bytes = fl_replica_batch(r);

    if (bytes == 0 && (!joins || fl_view_of(&c->question.head) == view))
        return; /* as soon as there is something */
    c->asks = false;
    c->sent += bytes;
    if (bytes > 0)
        fl_replica_send(l, &c->question, view, r->log + r->from, bytes);
    else
        fl_replica_answer(l, &c->question, FL_ANSWER_OK, view, 0);
}

/* All workers have a way to its next place. What they have sent, and were not
 * answered, they send to that place again, as they do when a server comes back:
 * so any moment will do in which nothing else has the lane. */
static void leave_log(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;
    fleet_status status;

    if (!all_know(l, c) || !fl_lane_may_freeze(l) || fl_all_have_left(l))
        return;
    status = l->host.leave(l->host.arg, r->mover, c->epoch << 2 | FL_VIEW_TAKEN,
                           c->address);
    if (status == FLEET_ECORRUPT) { /* it may be the other one's by now */
        fl_lane_fail(l);
        return;
    }
    if (status != FLEET_OK) {
        drop_copy(l, fleet_last_error());
        return;
    }
    FL_INFO(l->o.log,
            "server %d, lane %d: its log is server %d's, with update %" PRId64
            " (view %u)",
            l->o.server, l->o.lane, r->mover, l->version,
            c->epoch << 2 | FL_VIEW_TAKEN);
    r->view = c->epoch << 2;
    r->process = c->process;
    r->copy = NULL;
    destroy(c);
    fl_replica_give_way(l);
}

void fl_copy_goes_on(fl_ps_lane *l)
{
    fl_lane_copy *c = l->replica->copy;

    if (!c || l->state != FL_LANE_RUNS)
        return;
    if (c->phase == GOES) {
        leave_log(l);
        return;
    }
    if (c->phase == WRITES && c->asks)
        send_written(l);
    c = l->replica->copy;
    if (c && may_join(l, c)) {
        c->phase = JOINS;
        c->join_at = l->replica->last;
    }
    if (c && c->phase >= BEHIND && c->asks)
        send_behind(l);
}

void fl_lane_copy_goes_on(fl_ps_lane *l, int64_t now_ms)
{
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    if (l->replica)
        fl_copy_goes_on(l);
}

/* --- joining -------------------------------------------------------------- */

/* It knows of the epoch, and has all of which a worker was told before answers
 * waited for it. Workers know where it is. */
static void follow(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;

    r->role = FL_REPLICA_LEADS;
    r->view = view_of(c);
    r->process = c->process;
    r->question = c->question;
    r->asks = c->asks;
    r->heard_ms = c->heard_ms;
    r->attached = true;
    r->proposes = false;
    memset(r->promised, 0, (size_t)l->o.n_stream * sizeof *r->promised);
    memset(r->said, 0, (size_t)l->o.n_stream * sizeof *r->said);
    r->begins = true;
    r->move_ms = l->now_ms;
    r->copy = NULL;
    destroy(c);
}

/* An answer without records: the taker asks again at once, if it lives. */
static void ask_whether_taker_lives(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    if (!r->asks)
        return;
    r->asks = false;
    fl_replica_answer(l, &r->question, FL_ANSWER_OK, r->view, 0);
}

/* Now the lane may be lost: whatever worker there is makes the other one
 * lead. */
void fl_copy_hear_epoch(fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    fl_replica *r = l->replica;

    if (fl_view_epoch(fl_view_of(head)) != fl_view_epoch(r->view))
        return;
    r->said[head->stream] = true;
    for (int i = 0; i < l->o.n_stream; i++)
        if (!r->said[i] && !l->stream[i].left)
            return;
    r->begins = false;
    if (r->moves)
        ask_whether_taker_lives(l);
    else
        FL_INFO(l->o.log,
                "server %d, lane %d: it has a replica again (view %u)",
                l->o.server, l->o.lane, r->view);
}

static void take_acknowledged(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    const fl_lane_copy *c = r->copy;

    if (c->phase < BEHIND)
        return;
    fl_replica_acknowledge(l, c->question.head.step);
    if (c->phase == JOINS && r->acked >= c->join_at &&
        fl_view_of(&c->question.head) == view_of(c) && all_know(l, c))
        follow(l);
}

/* --- its questions -------------------------------------------------------- */

/* Is it the process that the copy is made for, or may it become that? */
static bool is_its_process(fl_ps_lane *l, const fl_question *q)
{
    fl_replica *r = l->replica;
    uint32_t process = q->head.incarnation;

    if (r->copy && r->copy->process == process)
        return true;
    if (r->told && process == r->process) { /* its move was given up */
        fl_replica_answer(l, q, FL_ANSWER_FENCED, FL_VIEW_ALONE, 0);
        return false;
    }
    if (process == r->process || fl_view_of(&q->head) != FL_VIEW_NONE) {
        fl_replica_answer(l, q, FL_ANSWER_FENCED, r->view, 0);
        return false;
    }
    if (r->told && !r->moves) { /* its move was given up: it comes too late */
        fl_replica_answer(l, q, FL_ANSWER_FENCED, FL_VIEW_ALONE, 0);
        return false;
    }
    if (r->copy || r->ending) {
        fl_replica_say_lanes(l, q, FL_ANSWER_COMING);
        return false;
    }
    if (make_copy(l, process) == FLEET_OK)
        return true;
    destroy(r->copy); /* it asks again */
    r->copy = NULL;
    return false;
}

static void has_failed(fl_ps_lane *l)
{
    char *why = fl_msg_get_text(&l->msg, FL_SECTION_TEXT);

    drop_copy(l, why ? why : "it has failed");
    fl_free(why);
}

void fl_copy_newcomer_asks(fl_ps_lane *l, const fl_question *q)
{
    fl_lane_copy *c;

    if (!is_its_process(l, q))
        return;
    c = l->replica->copy;
    c->heard_ms = l->now_ms;
    if (q->head.flags & FL_MSG_STOP) {
        has_failed(l);
        return;
    }
    if (!c->address)
        c->address = fl_msg_get_text(&l->msg, FL_SECTION_HELLO);
    if (c->phase == WAITS &&
        fl_all_have_left(l)) { /* it is told with the lane's end */
        c->question = *q;
        c->asks = true;
        return;
    }
    if (q->head.step > 0 && c->phase == WAITS)
        begin_copying(l);
    c = l->replica->copy;
    if (!c || q->head.step == 0 || c->phase <= GOES)
        fl_replica_say_lanes(l, q, FL_ANSWER_COMING);
    if (!c || q->head.step == 0 || c->phase == WAITS)
        return;
    c->question = *q;
    c->asks = true;
    take_acknowledged(l);
    fl_copy_goes_on(l);
}

/* --- workers -------------------------------------------------------------- */

void fl_copy_heartbeat(fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    fl_lane_copy *c = l->replica->copy;

    if (c->phase == WAITS || head->piece != c->epoch || c->knows[head->stream])
        return;
    c->knows[head->stream] = true;
    fl_copy_goes_on(l);
}

void fl_copy_tell(const fl_ps_lane *l, fl_msg_writer *w)
{
    const fl_lane_copy *c = l->replica ? l->replica->copy : NULL;

    if (!c || c->phase == WAITS || !c->address || c->knows[w->head.stream])
        return;
    w->head.flags |= FL_MSG_CRC_ALL;
    w->head.piece = (uint16_t)c->epoch;
    fl_msg_text(w, FL_SECTION_HELLO, c->address);
}

void fl_copy_forget_worker(fl_ps_lane *l, uint32_t stream)
{
    l->replica->copy->knows[stream] = false;
}

/* --- what the lane asks --------------------------------------------------- */

bool fl_copy_is_behind(const fl_replica *r)
{
    return r->copy && r->copy->phase >= WRITES;
}

bool fl_copy_joins(const fl_replica *r)
{
    return r->copy && r->copy->phase == JOINS;
}

bool fl_copy_may_end(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    fl_lane_copy *c = r->copy;

    if (l->now_ms - c->heard_ms > l->o.peer_ms)
        return true;
    if (!c->asks || (c->phase == JOINS && r->from < r->used))
        return false;
    c->asks = false;
    fl_replica_answer(l, &c->question, FL_ANSWER_OK, r->view, FL_MSG_LEAVE);
    return true;
}

void fl_copy_tick(fl_ps_lane *l)
{
    fl_lane_copy *c = l->replica->copy;

    if ((c->phase < BEHIND && c->phase != GOES) || all_know(l, c))
        c->known_ms = l->now_ms;
    if (l->now_ms - c->heard_ms > l->o.peer_ms)
        drop_copy(l, "its process was not heard of for the peer deadline");
    else if (l->replica->moves && l->now_ms - c->known_ms > 2 * l->o.peer_ms)
        drop_copy(l, "not all workers have a way to its process (its key?)");
    else if (c->phase != WAITS)
        fl_copy_goes_on(l);
}
