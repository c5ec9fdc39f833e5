/* client.c - requests of a worker to lanes: sent, answered, given up. */
#include "ps/worker/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { FIRST_WINDOW = 16 << 20 };

fleet_status fl_client_create(fl_client **client, const fl_client_options *o,
                              const fl_client_host *host)
{
    FL_TRY(FL_NEW(client, sizeof **client));
    (*client)->o = *o;
    (*client)->host = *host;
    (*client)->job = fl_msg_job(o->job, 0);
    return FLEET_OK;
}

void fl_client_destroy(fl_client *c)
{
    if (!c)
        return;
    fl_free(c->lane);
    fl_free(c);
}

int64_t fl_client_awake(fl_client *c, int64_t now_ms)
{
    if (!c->began)
        c->awake = fl_awake_from(now_ms, fl_awake_step(c->o.peer_ms));
    c->began = true;
    return fl_awake_at(&c->awake, now_ms);
}

fleet_status fl_client_add_lane(fl_client *c, const char *name, int64_t now_ms)
{
    fl_client_lane *l;

    FL_TRY(fl_grow(&c->lane, &c->lane_capacity, (size_t)c->n_lane + 1,
                   sizeof *c->lane));
    l = &c->lane[c->n_lane++];
    *l = (fl_client_lane){.heard_ms = fl_client_awake(c, now_ms),
                          .window = c->o.window ? c->o.window : FIRST_WINDOW};
    snprintf(l->name, sizeof l->name, "%s", name);
    return FLEET_OK;
}

const char *fl_client_lane_name(const fl_client *c, int lane)
{
    return c->lane[lane].name;
}

void fl_client_set_incarnation(fl_client *c, uint32_t incarnation)
{
    c->incarnation = incarnation;
}

void fl_client_set_run(fl_client *c, uint32_t run)
{
    c->job = fl_msg_job(c->o.job, run);
}

void fl_client_set_view(fl_client *c, uint32_t view)
{
    c->view = view;
}

void fl_client_set_peer(fl_client *c, int lane, uint32_t nonce)
{
    c->lane[lane].peer = nonce;
}

/* --- requests ------------------------------------------------------------- */

void fl_request_clear(fl_request *r)
{
    for (int i = 0; i < r->n_piece; i++)
        fl_packet_drop(r->piece[i]);
    fl_packet_drop(r->answer);
    *r = (fl_request){.piece = r->piece, .piece_capacity = r->piece_capacity};
}

void fl_request_done(fl_request *r)
{
    fl_request_clear(r);
    fl_free(r->piece);
    *r = (fl_request){0};
}

fl_msg_head fl_client_head(const fl_client *c, int lane, fl_msg_kind kind)
{
    return (fl_msg_head){.version = FL_MSG_VERSION,
                         .kind = (uint8_t)kind,
                         .job = c->job,
                         .stream = c->o.stream,
                         .incarnation = c->incarnation,
                         .peer = c->lane[lane].peer,
                         .view = fl_view_with(c->view, c->lane[lane].view),
                         .timeout_ms = (uint32_t)c->o.request_ms};
}

void fl_client_begin(fl_client *c, int lane, fl_request *r, fl_msg_writer *w,
                     fl_msg_kind kind, uint64_t step, uint16_t flags)
{
    fl_msg_head head = fl_client_head(c, lane, kind);

    if (r->n_piece == 0)
        r->id = ++c->requests;
    r->lane = lane;
    r->kind = (uint8_t)kind;
    r->leaves = flags & FL_MSG_LEAVE;
    head.flags = flags;
    head.step = step;
    head.request = r->id;
    head.piece = (uint16_t)r->n_piece;
    fl_msg_begin(w, c->o.pool, &head);
}

fleet_status fl_client_add(fl_client *c, fl_request *r, fl_msg_writer *w)
{
    size_t capacity = (size_t)r->piece_capacity;
    fl_packet *p;

    FL_TRY(fl_msg_end(w, c->o.whole_sums, &p));
    if (fl_grow(&r->piece, &capacity, (size_t)r->n_piece + 1,
                sizeof *r->piece) != FLEET_OK) {
        fl_packet_drop(p);
        return FLEET_ENOMEM;
    }
    r->piece_capacity = (int)capacity;
    r->piece[r->n_piece++] = p;
    return FLEET_OK;
}

void fl_client_send_pieces(fl_client *c, int lane, int64_t now_ms)
{
    fl_client_lane *l = &c->lane[lane];

    for (fl_request *r = l->first; r; r = r->next)
        while (r->n_sent < r->n_piece) {
            fl_packet *p = r->piece[r->n_sent];

            if (l->in_flight > 0 && l->in_flight + p->bytes > l->window)
                return;
            if (r->begun_ms < 0)
                r->begun_ms = now_ms;
            r->n_sent++;
            r->in_flight += p->bytes;
            l->in_flight += p->bytes;
            r->sent_ms = now_ms;
            r->heartbeat = c->heartbeats;
            c->host.send(c->host.arg, fl_client_number(c, lane, l->at), p);
        }
}

void fl_client_send(fl_client *c, fl_request *r, int64_t now_ms)
{
    fl_request **at = &c->lane[r->lane].first;

    now_ms = fl_client_awake(c, now_ms);
    r->next = NULL;
    r->begun_ms = -1;
    r->waiting_ms = -1;
    r->missing = UINT32_MAX;
    if (c->error.code != FLEET_OK) {
        r->state = FL_REQUEST_DONE;
        return;
    }
    r->state = FL_REQUEST_SENT;
    while (*at)
        at = &(*at)->next;
    *at = r;
    fl_client_send_pieces(c, r->lane, now_ms);
}

void fl_client_unlink(fl_client *c, fl_request *r)
{
    fl_client_lane *l = &c->lane[r->lane];
    fl_request **at = &l->first;

    while (*at && *at != r)
        at = &(*at)->next;
    if (*at)
        *at = r->next;
    l->in_flight -= r->in_flight;
    r->in_flight = 0;
    r->next = NULL;
}

void fl_request_go_on(fl_client *c, fl_request *r)
{
    fl_client_unlink(c, r);
    fl_packet_drop(r->answer);
    r->answer = NULL;
    r->state = FL_REQUEST_IDLE;
    r->status = FL_ANSWER_OK;
    r->lost = r->normed = false;
    r->n_sent = r->n_taken = r->n_piece;
}

void fl_client_cancel(fl_client *c, fl_request *r)
{
    if (r->state == FL_REQUEST_SENT)
        fl_client_unlink(c, r);
    fl_request_clear(r);
}

void fl_client_forget(fl_client *c, fl_request *r, int n)
{
    for (int i = 0; r && i < n; i++) {
        fl_client_cancel(c, &r[i]);
        fl_request_done(&r[i]);
    }
    fl_free(r);
}

const fl_msg *fl_client_answer(fl_client *c, const fl_request *r)
{
    if (!r->answer || fl_msg_decode(r->answer, &c->msg) != FLEET_OK)
        return NULL;
    return &c->msg;
}

fleet_status fl_client_result(fl_client *c, const fl_request *r,
                              const char *what)
{
    const fl_msg *msg;
    fleet_status code = FLEET_EINVAL;
    char *text;

    if (!r->answer)
        return fl_client_status(c);
    if (r->status == FL_ANSWER_OK || r->status == FL_ANSWER_NORMS)
        return FLEET_OK;
    msg = fl_client_answer(c, r);
    text = msg ? fl_msg_get_text(msg, FL_SECTION_TEXT) : NULL;
    if (msg)
        code = fl_msg_code(msg->head.step, code);
    fl_fail(code, "%s: %s says: %s", what, c->lane[r->lane].name,
            text ? text : "no");
    fl_free(text);
    return code;
}

void fl_client_say(fl_client *c, int lane, int copy, fl_msg_head *head)
{
    fl_msg_writer w;
    fl_packet *p;

    fl_msg_begin(&w, c->o.pool, head);
    if (fl_msg_end(&w, false, &p) != FLEET_OK)
        return; /* the next heartbeat is in time, too */
    c->host.send(c->host.arg, fl_client_number(c, lane, copy), p);
    fl_packet_drop(p);
}

/* --- failing -------------------------------------------------------------- */

static void send_abort(fl_client *c, int lane)
{
    fl_msg_head head = fl_client_head(c, lane, FL_MSG_ABORT);
    fl_msg_writer w;
    fl_packet *p;

    head.step = (uint64_t)c->error.code;
    fl_msg_begin(&w, c->o.pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, c->error.text);
    if (fl_msg_end(&w, true, &p) != FLEET_OK)
        return; /* they will miss us */
    for (int i = 0; i <= fl_client_has_other(c, &c->lane[lane]); i++)
        c->host.send(c->host.arg, fl_client_number(c, lane, i), p);
    fl_packet_drop(p);
}

void fl_client_fail(fl_client *c, fleet_status code, const char *why, bool tell)
{
    char text[sizeof c->error.text];

    if (c->error.code != FLEET_OK)
        return;
    snprintf(text, sizeof text, "%s", why);
    fl_fail(code, "%s", text);
    fl_error_take(&c->error, code);
    for (int i = 0; i < c->n_lane; i++) {
        while (c->lane[i].first) {
            fl_request *r = c->lane[i].first;

            fl_client_unlink(c, r);
            r->state = FL_REQUEST_DONE;
        }
        if (tell)
            send_abort(c, i);
    }
}

fleet_status fl_client_status(const fl_client *c)
{
    return fl_error_raise(&c->error);
}

uint64_t fl_client_progress(const fl_client *c)
{
    return c->progress;
}

/* --- answers -------------------------------------------------------------- */

static fl_request *find_request(const fl_client_lane *l, uint64_t id)
{
    fl_request *r = l->first;

    while (r && r->id != id)
        r = r->next;
    return r;
}

/* All pieces up to this one have arrived. */
static void take_pieces(fl_client_lane *l, fl_request *r, int piece)
{
    for (; r->n_taken <= piece && r->n_taken < r->n_sent; r->n_taken++) {
        size_t bytes = r->piece[r->n_taken]->bytes;

        bytes = bytes < r->in_flight ? bytes : r->in_flight;
        r->in_flight -= bytes;
        l->in_flight -= bytes;
    }
}

/* It may go when all have heard. */
static void leave_lane(fl_client *c, int lane)
{
    fl_msg_head head = fl_client_head(c, lane, FL_MSG_BYE);

    c->lane[lane].left = true;
    fl_client_say(c, lane, c->lane[lane].at, &head);
}

void fl_client_say_bye(fl_client *c)
{
    for (int i = 0; i < c->n_lane; i++)
        if (!c->lane[i].left)
            leave_lane(c, i);
}

/* Progress of another worker is not passed on as this worker's: two that wait
 * for each other would never end. That of the lane's own work is. */
static void receive_waiting(fl_client *c, fl_request *r, int64_t now_ms)
{
    const fl_msg_answer *a = &c->msg.answer;
    bool same = r->waiting_ms >= 0 && a->missing_stream == r->missing;

    if (same && a->applied == r->progress)
        return;
    c->progress += same && r->missing == UINT32_MAX;
    r->waiting_ms = now_ms;
    r->missing = a->missing_stream;
    r->progress = a->applied;
}

/* The lane has that piece; of a step that was sent again with its clip the
 * norms are known. */
static bool is_of_earlier_piece(const fl_request *r, const fl_msg_head *head)
{
    return head->piece + 1 < r->n_piece &&
           (head->status == FL_ANSWER_OK || head->status == FL_ANSWER_NORMS);
}

/* The step waits for this worker's clip. If that is on its way, or the norms
 * have not come, one of them is lost, and the step is to be sent again. */
static bool waits_for_clip(const fl_client *c, const fl_request *r)
{
    return (r->kind == FL_MSG_STEP || r->kind == FL_MSG_CLIP) && !r->normed &&
           c->msg.answer.missing_stream == c->o.stream;
}

static void keep_answer(fl_request *r, fl_msg_status status, fl_packet *p)
{
    fl_packet_drop(r->answer);
    r->answer = fl_packet_keep(p);
    r->status = status;
}

/* The step is on the lane, which goes on with its clip. */
static void receive_norms(fl_client *c, fl_client_lane *l, fl_request *r,
                          fl_packet *p)
{
    take_pieces(l, r, r->n_piece - 1);
    r->heartbeat = c->heartbeats;
    r->normed = true;
    r->lost = false;
    keep_answer(r, FL_ANSWER_NORMS, p);
}

static void receive_answer(fl_client *c, fl_client_lane *l, fl_request *r,
                           fl_packet *p, int64_t now_ms)
{
    const fl_msg_head *head = &c->msg.head;

    switch ((fl_msg_status)head->status) {
    case FL_ANSWER_WAITING:
        if (waits_for_clip(c, r))
            break;
        take_pieces(l, r, r->n_piece - 1);
        r->heartbeat = c->heartbeats;
        receive_waiting(c, r, now_ms);
        break;
    case FL_ANSWER_GAP:
        r->lost = true;
        break;
    case FL_ANSWER_FENCED:
        fl_client_fail(c, FLEET_EEXIST,
                       "another process has taken this worker's place", false);
        break;
    default:
        c->progress++;
        if (is_of_earlier_piece(r, head)) {
            take_pieces(l, r, head->piece);
            break;
        }
        if (head->status == FL_ANSWER_NORMS) {
            receive_norms(c, l, r, p);
            break;
        }
        fl_client_unlink(c, r);
        r->state = FL_REQUEST_DONE;
        r->stops = head->flags & FL_MSG_STOP;
        r->normed = false;
        keep_answer(r, (fl_msg_status)head->status, p);
        if (r->leaves && r->status == FL_ANSWER_OK && !c->o.holds_bye)
            leave_lane(c, r->lane);
    }
}

static void receive_abort(fl_client *c, int lane)
{
    char *why = fl_msg_get_text(&c->msg, FL_SECTION_TEXT);
    char text[900];

    if (why && strstr(why, " (told by ")) /* a server was told, too */
        snprintf(text, sizeof text, "%.700s", why);
    else
        snprintf(text, sizeof text, "%.700s (told by %s)",
                 why ? why : "the job has failed", c->lane[lane].name);
    fl_client_fail(c, fl_msg_code(c->msg.head.step, FLEET_EPEER), text, true);
    fl_free(why);
}

/* The answer of a library that speaks otherwise: no use to ask again. */
static void receive_other_version(fl_client *c, int lane)
{
    const fl_request *r = find_request(&c->lane[lane], c->msg.head.request);
    char text[400];

    if (!r || r->kind != FL_MSG_HELLO)
        return;
    snprintf(text, sizeof text, "%s speaks protocol %d, this worker %d",
             c->lane[lane].name, c->msg.head.version, (int)FL_MSG_VERSION);
    fl_client_fail(c, FLEET_EUNSUPPORTED, text, false);
}

/* Another process has the lane's address now, and knows nothing of what this
 * worker has sent. The servers of this run hear of it; one of a new run does
 * not heed it. */
static bool is_replaced(fl_client *c, int lane)
{
    const fl_msg_head *head = &c->msg.head;
    const fl_client_lane *l = &c->lane[lane];
    uint32_t run = fl_msg_run(c->job);
    bool same_run =
        run == 0 || fl_msg_run(head->job) == 0 || fl_msg_run(head->job) == run;
    char text[300];

    if (same_run && (l->peer == 0 || head->peer == l->peer) &&
        head->generation == 0)
        return false;
    snprintf(text, sizeof text, "%s has been replaced%s", l->name,
             same_run ? " by another process"
                      : ": this is a worker of another run");
    if (!fl_client_part(c, lane, text))
        fl_client_fail(c, FLEET_EPEER, text, true);
    return true;
}

void fl_client_receive(fl_client *c, int lane, fl_packet *p, int64_t now_ms)
{
    fleet_status status = fl_msg_decode(p, &c->msg);
    int copy = lane / c->n_lane;
    fl_client_lane *l;
    fl_request *r;

    lane -= copy * c->n_lane;
    l = &c->lane[lane];
    now_ms = fl_client_awake(c, now_ms);
    if (status == FLEET_EUNSUPPORTED)
        receive_other_version(c, lane);
    if (status != FLEET_OK || !fl_msg_same_id(c->msg.head.job, c->job) ||
        c->msg.head.stream != c->o.stream ||
        (fl_client_has_other(c, l) &&
         !fl_client_hears(c, lane, copy, now_ms)) ||
        is_replaced(c, lane))
        return;
    if (fl_client_is_away(c, l, now_ms))
        fl_client_came_back(c, l, now_ms);
    l->heard_ms = now_ms;
    if (c->msg.head.kind == FL_MSG_ABORT) {
        receive_abort(c, lane);
        return;
    }
    if (c->msg.head.kind != FL_MSG_ANSWER)
        return;
    if (c->msg.answer.credit_bytes > 0)
        l->window = c->msg.answer.credit_bytes;
    if (c->msg.head.request & FL_MSG_OF_HEARTBEAT) {
        uint64_t number = c->msg.head.request & ~FL_MSG_OF_HEARTBEAT;

        if (number > l->heard_heartbeat)
            l->heard_heartbeat = number;
        fl_client_hear_address(c, lane);
        return;
    }
    r = find_request(l, c->msg.head.request);
    if (r)
        receive_answer(c, l, r, p, now_ms);
    if (c->error.code == FLEET_OK)
        fl_client_send_pieces(c, lane, now_ms);
}
