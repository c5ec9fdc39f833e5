/* lane_liveness.c - heartbeats, progress and deadlines: they tell a worker that
 * is slow from one that hangs, and from one that is gone. */
#include <stdio.h>

#include "ps/server/lane_copy.h"
#include "ps/server/lane_feed.h"
#include "ps/server/lane_replica.h"
#include "ps/server/lane_staleness.h"

/* --- progress ------------------------------------------------------------- */

/* A worker that has not come is the connect deadline's affair, and one that is
 * to be started again the restart deadline's. */
static bool is_awaited(const fl_stream_state *s)
{
    return !s->known || s->absent;
}

uint64_t fl_lane_progress_of(const fl_ps_lane *l, uint32_t missing)
{
    if (missing == FL_NOBODY && l->replaying)
        return fl_lane_replay_progress(l);
    if (missing == FL_NOBODY && !l->busy && !l->saving && !l->frozen)
        return atomic_load(&l->counters.pulls);
    if (missing == FL_NOBODY)
        return l->host.progress ? l->host.progress(l->host.arg) : 0;
    return is_awaited(&l->stream[missing]) ? (uint64_t)l->now_ms
                                           : l->stream[missing].progress;
}

uint32_t fl_lane_waits_for(const fl_ps_lane *l, const fl_msg_head *request,
                           uint64_t version)
{
    return version <= (uint64_t)l->version ? fl_staleness_waits_for(l, request)
                                           : fl_lane_missing(l);
}

/* A repeated message is no progress, and neither is a heartbeat, which says
 * only whether its worker has got on. */
void fl_lane_note_message(fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    fl_stream_state *s = &l->stream[head->stream];
    bool newer;

    if (head->kind == FL_MSG_HEARTBEAT) {
        newer = head->step != s->reported;
        s->reported = head->step;
    } else {
        newer = head->request > s->newest_request ||
                (head->request == s->newest_request &&
                 head->piece > s->newest_piece);
        if (newer) {
            s->newest_request = head->request;
            s->newest_piece = head->piece;
        }
    }
    if (newer)
        fl_lane_note_progress(l, head->stream);
}

/* --- heartbeats ----------------------------------------------------------- */

/* FL_NOBODY: its step is the command, or comes after it, or waits for rows. A
 * sum waits for a clip, which the stream itself may send. */
static uint32_t step_waits_for(const fl_ps_lane *l, const fl_stream_state *s)
{
    uint32_t missing = fl_lane_missing(l);

    if (l->norming && fl_contributes(s))
        return s->request.stream;
    return l->busy || ((l->saving || l->frozen) && s->flags & FL_MSG_COMMAND) ||
                   fl_waits_for_rows(l, s) || missing == s->request.stream
               ? FL_NOBODY
               : missing;
}

/* The lane is alive, and so is every request that the worker waits for. */
void fl_lane_heartbeat(fl_ps_lane *l, const fl_peer *from, fl_packet *packet)
{
    fl_msg_head head = l->msg.head;
    const fl_stream_state *s = &l->stream[head.stream];
    fl_msg_writer w;

    (void)packet;
    for (const fl_parked *p = s->pulls; p; p = p->next)
        fl_lane_answer(l, &p->head, from, FL_ANSWER_WAITING,
                       fl_lane_waits_for(l, &p->head, p->version));
    for (const fl_parked *p = s->behind; p; p = p->next_of_stream)
        fl_lane_answer(l, &p->head, from, FL_ANSWER_WAITING, FL_NOBODY);
    if (l->busy && l->requester.packet &&
        l->requester.head.stream == head.stream)
        fl_lane_answer(l, &l->requester.head, from, FL_ANSWER_WAITING,
                       FL_NOBODY);
    if (s->complete)
        fl_lane_answer(l, &s->request, from, FL_ANSWER_WAITING,
                       step_waits_for(l, s));
    if (s->reducing)
        fl_lane_answer(l, &s->reducing->head, from, FL_ANSWER_WAITING,
                       fl_lane_missing_reduce(l));
    fl_replica_heartbeat(l, from);
    fl_lane_begin_answer(l, &w, &head, FL_ANSWER_OK, FL_NOBODY);
    fl_copy_tell(l, &w);
    fl_lane_end_answer(l, &w, from);
}

/* --- deadlines ------------------------------------------------------------ */

/* Its process may have died, and another one may be on its way. */
static bool waits_out(fl_ps_lane *l, int i)
{
    fl_stream_state *s = &l->stream[i];
    int64_t silent_ms = l->now_ms - s->heard_ms;
    char name[FL_STREAM_NAME];

    if (silent_ms > l->o.restart_ms || s->no_log)
        return false;
    if (!s->absent)
        FL_WARN(l->o.log,
                "server %d: %s%s%s%s was not heard of for %.1f s: it is waited "
                "for, until it is started again, for %.1f s at most (restart "
                "deadline)",
                l->o.server, fl_lane_stream_name(l, name, (uint32_t)i),
                *s->who ? " (" : "", s->who, *s->who ? ")" : "",
                (double)silent_ms / 1000, (double)l->o.restart_ms / 1000);
    s->absent = true;
    return true;
}

/* Where workers of other jobs are. */
static const char *why_not_again(const fl_ps_lane *l, const fl_stream_state *s)
{
    if (l->o.restart_ms > 0 && s->no_log)
        return "; it has left no log, and so cannot be started again";
    return l->o.no_restart ? l->o.no_restart : "";
}

/* A server that has come back knows workers of the process before, which may
 * have died with it: they may be about to be started again, too. */
static void check_coming(fl_ps_lane *l, int i)
{
    const fl_stream_state *s = &l->stream[i];
    bool again = s->nonce && !s->no_log && l->o.restart_ms > l->o.connect_ms;
    int64_t most_ms = again ? l->o.restart_ms : l->o.connect_ms;
    char text[600], name[FL_STREAM_NAME];

    if (l->now_ms - l->begun_ms <= most_ms)
        return;
    snprintf(text, sizeof text,
             "%s has not come within %.1f s (%s deadline)%s%s%s",
             fl_lane_stream_name(l, name, (uint32_t)i), (double)most_ms / 1000,
             again ? "restart" : "connect",
             s->nonce && s->no_log ? why_not_again(l, s) : "",
             *l->turned_away ? "; the last one that was refused: " : "",
             l->turned_away);
    fl_lane_abort(l, FLEET_ETIMEDOUT, text);
}

/* Workers say hello to a server's first lane; to its other lanes they come when
 * all servers have answered, and the first lane misses a worker that is gone by
 * then. */
static void check_stream(fl_ps_lane *l, int i)
{
    const fl_stream_state *s = &l->stream[i];
    char text[600], name[FL_STREAM_NAME];

    if (s->left || (!s->known && l->o.lane > 0))
        return;
    if (!s->known) {
        check_coming(l, i);
    } else if (l->now_ms - s->heard_ms > fl_replica_peer_ms(l) &&
               !waits_out(l, i)) {
        snprintf(text, sizeof text,
                 "%s%s%s%s is gone: server %d has not heard of it for "
                 "%.1f s (%s deadline)%s",
                 fl_lane_stream_name(l, name, (uint32_t)i), *s->who ? " (" : "",
                 s->who, *s->who ? ")" : "", l->o.server,
                 (double)(l->now_ms - s->heard_ms) / 1000,
                 s->absent ? "restart" : "peer", why_not_again(l, s));
        fl_lane_abort(l, FLEET_EPEER, text);
    }
}

/* Since when the waiting step has waited without progress of what it waits for:
 * a worker's part, a factor that any worker may send, or a command. */
static int64_t stalled_since(const fl_ps_lane *l)
{
    uint32_t missing = fl_lane_missing(l);
    int64_t since = l->now_ms;

    if (l->busy || l->frozen)
        since = l->command_ms;
    else if (missing == FL_NOBODY)
        since = l->pending_ms;
    else if (!is_awaited(&l->stream[missing]))
        since = l->stream[missing].progress_ms;
    return since > l->pending_ms ? since : l->pending_ms;
}

static void watch_command(fl_ps_lane *l)
{
    uint64_t progress = fl_lane_progress_of(l, FL_NOBODY);

    if (!(l->busy || l->saving || l->frozen) || progress != l->command_progress)
        l->command_ms = l->now_ms;
    l->command_progress = progress;
}

static const char *what_holds_update(const fl_ps_lane *l)
{
    if (l->busy)
        return "a save or a load";
    if (l->frozen)
        return "a snapshot";
    return l->norming ? "its clip" : "rows that are out of memory";
}

static void step_is_late(fl_ps_lane *l, int64_t stalled_ms)
{
    uint32_t missing = fl_lane_missing(l);
    double waited = (double)stalled_ms / 1000;
    char text[256], name[FL_STREAM_NAME];

    if (!l->busy && !l->norming && missing != FL_NOBODY)
        snprintf(text, sizeof text,
                 "%s has kept the others waiting for %.1f s, without "
                 "progress (step deadline)",
                 fl_lane_stream_name(l, name, missing), waited);
    else
        snprintf(text, sizeof text,
                 "server %d has a step that waits for %s, for %.1f s without "
                 "progress (step deadline)",
                 l->o.server, what_holds_update(l), waited);
    fl_lane_abort(l, FLEET_ETIMEDOUT, text);
}

/* In async a step waits for a command, or for rows: fl_lane_check_rows(). */
static void check_step(fl_ps_lane *l)
{
    int64_t stalled_ms = l->now_ms - stalled_since(l);

    if (stalled_ms > l->o.step_ms && (l->o.sync || l->busy))
        step_is_late(l, stalled_ms);
}

void fl_lane_tick(fl_ps_lane *l, int64_t now_ms)
{
    fl_lane_resume(l, now_ms);
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    if (l->state != FL_LANE_RUNS || fl_replica_tick(l) || fl_lane_tick_load(l))
        return;
    for (int i = 0; i < l->o.n_stream && l->state == FL_LANE_RUNS; i++)
        check_stream(l, i);
    fl_feed_tick(l);
    if (l->state == FL_LANE_RUNS && !l->busy)
        fl_lane_try_end(l);
    watch_command(l);
    if (l->state == FL_LANE_RUNS)
        fl_lane_check_rows(l);
    if (l->state == FL_LANE_RUNS && l->pending_ms >= 0)
        check_step(l);
}

/* --- a lane that goes to another process ---------------------------------- */

void fl_lane_await_taker(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    if (r->role == FL_REPLICA_LEADS && r->begins && !r->proposes &&
        l->now_ms - r->move_ms > 2 * l->o.peer_ms) {
        FL_WARN(l->o.log,
                "server %d, lane %d: its move is given up: not all workers "
                "reach it in the process of server %d",
                l->o.server, l->o.lane, r->mover);
        r->proposes = true; /* alone, when all know */
    }
    r->moves = r->copy || r->role != FL_REPLICA_ALONE ||
               l->now_ms - r->move_ms <= l->o.peer_ms;
    if (!r->moves)
        FL_WARN(l->o.log,
                "server %d, lane %d: its move is given up: the process of "
                "server %d has not asked for it within the peer deadline",
                l->o.server, l->o.lane, r->mover);
}

/* Workers that went over say nothing more to a copy that has given the lane
 * away. */
static int64_t lingers_ms(const fl_ps_lane *l)
{
    return l->replica->moves ? l->o.peer_ms / 2
                             : FL_REPLICA_PATIENCE * l->o.peer_ms;
}

/* Its process may go on with other lanes: what this one has kept is another
 * process's to keep. */
void fl_lane_linger(fl_ps_lane *l)
{
    const fl_partition *layout = l->o.layout;
    fl_replica *r = l->replica;

    if (l->now_ms - r->gone_ms <= lingers_ms(l))
        return;
    if (!l->o.signpost || !r->moves)
        l->state = FL_LANE_LEFT;
    if (!r->moves || r->cleared || l->busy || l->saving || l->frozen)
        return;
    r->cleared = true;
    for (int i = 0; i < layout->n_table; i++)
        layout->table[i]->methods->clear(layout->table[i]);
}
