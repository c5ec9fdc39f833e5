/* client_liveness.c - heartbeats, requests sent again, and deadlines: they tell
 * a lost message from a slow server, and a slow server from a dead one, which
 * may have a replica. */
#include "ps/worker/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/locality.h"

/* What is under way is waited for from now on. */
static void begin_anew(fl_client_lane *l, int64_t now_ms)
{
    for (fl_request *r = l->first; r; r = r->next) {
        if (r->begun_ms >= 0)
            r->begun_ms = now_ms;
        if (r->waiting_ms >= 0)
            r->waiting_ms = now_ms;
    }
}

void fl_client_watch(fl_client *c, bool watch, int64_t now_ms)
{
    now_ms = fl_client_awake(c, now_ms);
    c->watching = watch;
    c->heartbeat_at_ms = now_ms;
    for (int i = 0; i < c->n_lane; i++) {
        c->lane[i].heard_ms = now_ms;
        begin_anew(&c->lane[i], now_ms);
    }
}

/* --- a server that may come back ------------------------------------------ */

/* Two heartbeats without an answer are no proof, and none is needed: for such a
 * lane deadlines wait. */
bool fl_client_is_away(const fl_client *c, const fl_client_lane *l,
                       int64_t now_ms)
{
    return c->o.restart_ms > 0 && c->watching && !l->left &&
           now_ms - l->heard_ms > 2 * c->o.heartbeat_ms;
}

void fl_client_came_back(fl_client *c, fl_client_lane *l, int64_t now_ms)
{
    begin_anew(l, now_ms);
    if (l->missed)
        FL_INFO(c->o.log, "%s is heard of again, after %.1f s", l->name,
                (double)(now_ms - l->heard_ms) / 1000);
    l->missed = false;
}

static void miss_lane(fl_client *c, fl_client_lane *l, int64_t now_ms)
{
    if (l->missed || now_ms - l->heard_ms <= c->o.peer_ms)
        return;
    l->missed = true;
    if (c->o.replicas) {
        FL_WARN(c->o.log,
                "nothing was heard of %s for %.1f s: its replica is looked "
                "for, for %.1f s at most (%d peer deadlines)",
                l->name, (double)(now_ms - l->heard_ms) / 1000,
                (double)c->o.restart_ms / 1000,
                (int)(c->o.restart_ms / c->o.peer_ms));
        return;
    }
    FL_WARN(c->o.log,
            "nothing was heard of %s for %.1f s: it is waited for until it "
            "comes back, for %.1f s at most (log_configs.restart_deadline_ms)",
            l->name, (double)(now_ms - l->heard_ms) / 1000,
            (double)c->o.restart_ms / 1000);
}

/* Any lane is: other servers must not take the wait for this worker's fault,
 * which is all that its progress says to them. */
static bool waits_for_server(const fl_client *c, int64_t now_ms)
{
    for (int i = 0; i < c->n_lane; i++)
        if (fl_client_is_away(c, &c->lane[i], now_ms))
            return true;
    return false;
}

/* --- heartbeats ----------------------------------------------------------- */

/* With a log a lane goes to another process without a time in which both have
 * it: the old place says so, or the new one, if the old one has died as it did.
 * docs/adr/0131. */
static bool moves_with_log(const fl_client *c)
{
    return c->o.restart_ms > 0 && !c->o.replicas;
}

/* It was told where the lane is about to go; both places are asked. */
static bool is_about_to_go(const fl_client *c, const fl_client_lane *l)
{
    return moves_with_log(c) && !l->left && l->knows > fl_view_epoch(l->view);
}

/* Or, to a lane that was left, a farewell once more. That it knows a lane's
 * next place it says when that one has answered. */
static void say_heartbeat(fl_client *c, int lane, int copy)
{
    fl_msg_head head = fl_client_head(
        c, lane, c->lane[lane].left ? FL_MSG_BYE : FL_MSG_HEARTBEAT);

    head.request = c->heartbeats | FL_MSG_OF_HEARTBEAT;
    head.step = c->progress;
    if (!is_about_to_go(c, &c->lane[lane]) || c->lane[lane].other_ms > 0)
        head.piece = (uint16_t)c->lane[lane].knows;
    fl_client_say(c, lane, copy, &head);
}

enum { MOST_ASKED = 256, SELDOM = 64 };

/* What is sent to a place that is silent lies in memory until it speaks: where
 * the move was given up, it never does. */
static bool is_worth_asking(const fl_client *c, fl_client_lane *l)
{
    return l->asked_other++ < MOST_ASKED || c->heartbeats % SELDOM == 0;
}

static void send_heartbeats(fl_client *c, int64_t now_ms)
{
    c->heartbeats++;
    c->progress += waits_for_server(c, now_ms);
    c->heartbeat_at_ms = now_ms + c->o.heartbeat_ms;
    for (int i = 0; i < c->n_lane; i++) {
        say_heartbeat(c, i, c->lane[i].at);
        if (is_about_to_go(c, &c->lane[i]) && is_worth_asking(c, &c->lane[i]))
            say_heartbeat(c, i, c->lane[i].at ^ 1);
    }
}

void fl_client_send_again(fl_client *c, fl_request *r, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[r->lane];

    l->in_flight -= r->in_flight;
    r->in_flight = 0;
    r->n_sent = r->n_taken = 0;
    r->lost = false;
    fl_client_send_pieces(c, r->lane, now_ms);
}

/* --- two copies of each lane ----------------------------------------------
 * Which one leads? A worker hears it from either of them, or decides it: once
 * it has made the other copy lead it never goes back, and once it has promised
 * the leader to stay, it goes only if another worker has made the other copy
 * lead. docs/adr/0076. */

/* Messages name the server whose process has the lane. */
static void swap_names(fl_client_lane *l)
{
    char name[FL_LANE_NAME];

    if (!*l->other_name)
        return;
    memcpy(name, l->name, sizeof name);
    memcpy(l->name, l->other_name, sizeof name);
    memcpy(l->other_name, name, sizeof name);
}

/* From now on the other copy is the lane: it has all that was answered, and
 * gets all else again. */
static void go_over(fl_client *c, int lane, uint32_t view, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];

    if (c->o.replicas)
        FL_WARN(c->o.log, "%s: lane %d is led by its replica now (view %u)",
                l->name, lane, view);
    else
        FL_INFO(c->o.log, "%s: lane %d is in another process now (view %u)",
                l->name, lane, view);
    swap_names(l);
    l->at ^= 1;
    l->view = view;
    fl_client_came_back(c, l, now_ms);
    l->heard_ms = now_ms;
    l->heard_heartbeat = 0;
    say_heartbeat(c, lane, l->at);
    for (fl_request *r = l->first; r; r = r->next)
        fl_client_send_again(c, r, now_ms);
}

/* Of this job's run and process; what is not is told apart elsewhere. A copy
 * that has no record yet does not know its run. */
static bool is_of_lane(const fl_client *c, const fl_client_lane *l)
{
    const fl_msg_head *head = &c->msg.head;

    return (head->job == c->job || fl_msg_run(head->job) == 0) &&
           head->peer == l->peer;
}

static void hear_other(fl_client *c, int lane, uint32_t view, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];

    if (!is_of_lane(c, l) || c->msg.head.kind != FL_MSG_ANSWER || l->left)
        return;
    if (l->other_ms == 0) /* the leader is told with its next answer */
        c->heartbeat_at_ms = now_ms;
    l->other_ms = now_ms;
    l->asked_other = 0;
    l->other_view = view;
    if (view > l->view && fl_view_part(view) == FL_VIEW_TAKEN)
        go_over(c, lane, view, now_ms);
}

/* A lane that moves would go where this worker cannot follow: that it knows of
 * the epoch it says when it has heard of the other copy, too. */
static bool has_yet_to_meet(fl_client *c, int lane, uint32_t view,
                            int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];

    if (c->o.replicas || fl_view_part(view) != FL_VIEW_BOTH ||
        fl_view_epoch(view) != l->knows || l->other_ms > 0)
        return false;
    if (now_ms - l->asked_ms >= c->o.heartbeat_ms / 4) {
        l->asked_ms = now_ms;
        say_heartbeat(c, lane, l->at ^ 1);
    }
    return true;
}

/* It has gone to a place of which this worker has not heard: the answer to a
 * heartbeat names it. */
static bool goes_elsewhere(fl_client *c, int lane, uint32_t view)
{
    if (!moves_with_log(c) || fl_view_epoch(view) == c->lane[lane].knows)
        return false;
    if (c->msg.head.request & FL_MSG_OF_HEARTBEAT)
        fl_client_hear_address(c, lane);
    return true;
}

bool fl_client_hears(fl_client *c, int lane, int copy, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];
    uint32_t view = fl_view_of(&c->msg.head);

    if (copy != l->at) {
        hear_other(c, lane, view, now_ms);
        return false;
    }
    if (!is_of_lane(c, l))
        return true;
    if (view == FL_VIEW_NONE)
        return false; /* another process where it was */
    if (view < l->view)
        return fl_view_part(l->view) != FL_VIEW_TAKEN;
    if (view == l->view)
        return true;
    if (fl_view_part(view) == FL_VIEW_TAKEN) { /* this one has led */
        if (!l->left && !goes_elsewhere(c, lane, view))
            go_over(c, lane, view, now_ms);
        return false;
    }
    if (has_yet_to_meet(c, lane, view, now_ms))
        return true;
    l->view = view; /* a promise, which the next heartbeat says */
    c->heartbeat_at_ms = now_ms;
    return true;
}

/* From now on that process has the other copy, which is none before the view
 * says so. */
void fl_client_hear_address(fl_client *c, int lane)
{
    const fl_msg_head *head = &c->msg.head;
    fl_client_lane *l = &c->lane[lane];
    fleet_status status = FLEET_OK;
    char *address, name[FL_LANE_NAME] = "";

    if (head->n_section < 1 || c->msg.section[0].op != FL_SECTION_HELLO ||
        head->piece == l->knows)
        return;
    address = fl_msg_get_text(&c->msg, FL_SECTION_HELLO);
    if (!address)
        return; /* it is told again */
    if (c->host.moved)
        status = c->host.moved(
            c->host.arg, fl_client_number(c, lane, l->at ^ 1), address, name);
    fl_free(address);
    if (status != FLEET_OK)
        return;
    memcpy(l->other_name, name, sizeof name);
    l->knows = head->piece;
    l->other_ms = l->asked_ms = 0;
    l->asked_other = 0;
    if (c->o.replicas)
        FL_INFO(c->o.log, "%s: lane %d gets its replica again", l->name, lane);
}

/* It is late with an answer: it may be cut off from its replica, or not lead
 * any more. */
static bool is_late(const fl_client *c, const fl_client_lane *l, int64_t now_ms)
{
    return l->first && l->first->begun_ms >= 0 &&
           now_ms - l->first->begun_ms > c->o.peer_ms;
}

void fl_client_look_for_leader(fl_client *c, int lane, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];
    int64_t silent_ms = now_ms - l->heard_ms;

    if (!c->watching || l->left ||
        (silent_ms <= c->o.peer_ms / 2 && !is_late(c, l, now_ms)))
        return;
    if (silent_ms > c->o.peer_ms && fl_view_part(l->view) == FL_VIEW_BOTH &&
        l->other_ms > 0 && l->other_view == l->view &&
        now_ms - l->other_ms <= 2 * c->o.heartbeat_ms)
        go_over(c, lane, l->view + FL_VIEW_TAKEN, now_ms);
    else if (now_ms - l->asked_ms >= c->o.heartbeat_ms) {
        l->asked_ms = now_ms;
        say_heartbeat(c, lane, l->at ^ 1);
    }
}

/* --- deadlines ------------------------------------------------------------ */

static bool is_lost(const fl_client *c, const fl_request *r, int64_t now_ms)
{
    bool idle = r->n_sent < r->n_piece && r->n_sent == r->n_taken;

    if (now_ms - r->sent_ms < c->o.heartbeat_ms)
        return false;
    if (r->lost || r->kind == FL_MSG_HELLO)
        return true;
    /* what waits for the window is not under way */
    return !idle && c->lane[r->lane].heard_heartbeat > r->heartbeat;
}

static void check_request(fl_client *c, const fl_request *r, int64_t now_ms)
{
    const fl_client_lane *l = &c->lane[r->lane];
    char text[400];

    if (r->kind == FL_MSG_HELLO || r->normed)
        return; /* has a deadline of its own; waits for this worker */
    if (r->waiting_ms >= 0 && now_ms - r->waiting_ms > c->o.step_ms) {
        char whom[FL_STREAM_NAME] = "its own work"; /* a save, a load */

        if (r->missing != UINT32_MAX)
            fl_stream_name(whom, r->missing, c->o.n_stream, c->o.n_heter);
        snprintf(text, sizeof text,
                 "a %s has waited %.1f s at %s for %s, without progress (step "
                 "deadline)",
                 fl_msg_kind_name(r->kind),
                 (double)(now_ms - r->waiting_ms) / 1000, l->name, whom);
        fl_client_fail(c, FLEET_ETIMEDOUT, text, true);
    } else if (r->waiting_ms < 0 && r->begun_ms >= 0 &&
               now_ms - r->begun_ms > c->o.request_ms) {
        snprintf(text, sizeof text,
                 "%s has not answered a %s for %.1f s (request deadline)",
                 l->name, fl_msg_kind_name(r->kind),
                 (double)(now_ms - r->begun_ms) / 1000);
        fl_client_fail(c, FLEET_ETIMEDOUT, text, true);
    }
}

/* Nothing but the stream's last step is under way to the lane. */
static bool is_leaving(const fl_client_lane *l)
{
    return l->first && l->first->leaves && !l->first->next;
}

bool fl_client_part(fl_client *c, int lane, const char *why)
{
    fl_client_lane *l = &c->lane[lane];
    fl_request *r = l->first;

    if (l->left)
        return true;
    if (!is_leaving(l))
        return false;
    FL_WARN(c->o.log,
            "%s; it has answered all but that this worker has left, so the "
            "worker ends well",
            why);
    fl_client_unlink(c, r);
    r->state = FL_REQUEST_DONE;
    r->status = FL_ANSWER_OK;
    l->left = true;
    return true;
}

/* Nothing was heard of the lane for as long as it is waited for. */
static void lose_lane(fl_client *c, int lane, int64_t silent_ms)
{
    const fl_client_lane *l = &c->lane[lane];
    double seconds = (double)silent_ms / 1000;
    char text[400];

    if (c->o.replicas)
        snprintf(text, sizeof text,
                 "both copies of lane %d are gone, of %s: nothing was heard of "
                 "the one that led for %.1f s, and the other one does not "
                 "answer or follows no more (%d peer deadlines)",
                 lane, l->name, seconds, (int)(c->o.restart_ms / c->o.peer_ms));
    else
        snprintf(text, sizeof text,
                 "%s is gone: nothing was heard of it for %.1f s (%s)", l->name,
                 seconds,
                 c->o.restart_ms > c->o.peer_ms
                     ? "log_configs.restart_deadline_ms"
                     : "peer deadline");
    if (!fl_client_part(c, lane, text))
        fl_client_fail(c, FLEET_EPEER, text, true);
}

static void check_lane(fl_client *c, int lane, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];
    bool returns = c->o.restart_ms > c->o.peer_ms;
    int64_t most_ms = returns ? c->o.restart_ms : c->o.peer_ms, silent_ms;
    bool away;

    if (fl_client_may_turn(c, l)) { /* that may take all of the deadline */
        fl_client_look_for_leader(c, lane, now_ms);
        most_ms = most_ms > FL_REPLICA_PATIENCE * c->o.peer_ms
                      ? most_ms
                      : FL_REPLICA_PATIENCE * c->o.peer_ms;
    }
    if (!c->o.replicas && !c->o.waits_to_leave && is_leaving(l) &&
        c->o.request_ms < most_ms)
        most_ms = c->o.request_ms;
    silent_ms = c->watching && !l->left ? now_ms - l->heard_ms : 0;
    away = fl_client_is_away(c, l, now_ms);
    if (silent_ms > most_ms) {
        lose_lane(c, lane, silent_ms);
        return;
    }
    if (away)
        miss_lane(c, l, now_ms);
    for (fl_request *r = l->first; r && c->error.code == FLEET_OK;
         r = r->next) {
        if (is_lost(c, r, now_ms))
            fl_client_send_again(c, r, now_ms);
        if (!away)
            check_request(c, r, now_ms);
    }
}

void fl_client_tick(fl_client *c, int64_t now_ms)
{
    now_ms = fl_client_awake(c, now_ms);
    if (c->error.code != FLEET_OK)
        return;
    if (c->watching && now_ms >= c->heartbeat_at_ms)
        send_heartbeats(c, now_ms);
    for (int i = 0; i < c->n_lane && c->error.code == FLEET_OK; i++)
        check_lane(c, i, now_ms);
}
