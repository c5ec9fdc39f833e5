/* client_liveness.c - heartbeats, requests sent again, and deadlines: they tell
 * a lost message from a slow server, and a slow server from a dead one. */
#include "ps/worker/client_internal.h"

#include <stdio.h>

void fl_client_watch(fl_client *c, bool watch, int64_t now_ms)
{
    now_ms = fl_client_awake(c, now_ms);
    c->watching = watch;
    c->heartbeat_at_ms = now_ms;
    for (int i = 0; i < c->n_lane; i++)
        c->lane[i].heard_ms = now_ms;
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
    for (fl_request *r = l->first; r; r = r->next) {
        if (r->begun_ms >= 0)
            r->begun_ms = now_ms;
        if (r->waiting_ms >= 0)
            r->waiting_ms = now_ms;
    }
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

static void send_heartbeats(fl_client *c, int64_t now_ms)
{
    c->heartbeats++;
    c->progress += waits_for_server(c, now_ms);
    c->heartbeat_at_ms = now_ms + c->o.heartbeat_ms;
    for (int i = 0; i < c->n_lane; i++) {
        fl_msg_head head = fl_client_head(
            c, i, c->lane[i].left ? FL_MSG_BYE : FL_MSG_HEARTBEAT);

        head.request = c->heartbeats | 1ull << 63;
        head.step = c->progress;
        fl_client_say(c, i, &head);
    }
}

/* Send all of it again. */
static void send_again(fl_client *c, fl_request *r, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[r->lane];

    l->in_flight -= r->in_flight;
    r->in_flight = 0;
    r->n_sent = r->n_taken = 0;
    r->lost = false;
    fl_client_send_pieces(c, r->lane, now_ms);
}

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
        char whom[32] = "its own work"; /* a save, a load, a hash */

        if (r->missing != UINT32_MAX)
            snprintf(whom, sizeof whom, "worker %u", (unsigned)r->missing);
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

static void check_lane(fl_client *c, int lane, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];
    int64_t silent_ms = c->watching && !l->left ? now_ms - l->heard_ms : 0;
    bool returns = c->o.restart_ms > c->o.peer_ms;
    int64_t most_ms = returns ? c->o.restart_ms : c->o.peer_ms;
    bool away = fl_client_is_away(c, l, now_ms);
    char text[400];

    if (is_leaving(l) && c->o.request_ms < most_ms)
        most_ms = c->o.request_ms;
    if (silent_ms > most_ms) {
        snprintf(text, sizeof text,
                 "%s is gone: nothing was heard of it for %.1f s (%s)", l->name,
                 (double)silent_ms / 1000,
                 returns ? "log_configs.restart_deadline_ms" : "peer deadline");
        if (!fl_client_part(c, lane, text))
            fl_client_fail(c, FLEET_EPEER, text, true);
        return;
    }
    if (away)
        miss_lane(c, l, now_ms);
    for (fl_request *r = l->first; r && c->error.code == FLEET_OK;
         r = r->next) {
        if (is_lost(c, r, now_ms))
            send_again(c, r, now_ms);
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
