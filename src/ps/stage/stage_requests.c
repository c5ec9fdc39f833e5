/* stage_requests.c - what trainers ask a stage's socket: hellos, batches, ends,
 * and the same again. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/stage/stage_server_internal.h"

/* --- answers -------------------------------------------------------------- */

void fl_stage_begin_message(const fl_stage_server *s, const fl_msg_head *to,
                            fl_msg_kind kind, fl_msg_status status,
                            fl_msg_writer *w)
{
    fl_msg_head head = *to;

    head.version = FL_MSG_VERSION;
    head.kind = (uint8_t)kind;
    head.flags = FL_MSG_CRC_ALL;
    head.status = (uint8_t)status;
    head.n_section = 0;
    head.piece = 0;
    head.job = fl_msg_job(s->o.job, s->o.run);
    head.peer = s->nonce;
    head.generation = 0;
    fl_msg_begin(w, s->pool, &head);
}

void fl_stage_begin_answer(const fl_stage_server *s, const fl_msg_head *to,
                           fl_msg_status status, fl_msg_writer *w)
{
    fl_stage_begin_message(s, to, FL_MSG_ANSWER, status, w);
    w->answer.missing_stream = UINT32_MAX;
}

/* What cannot be sent is asked for again. */
static void send_answer(fl_stage_server *s, const fl_peer *to, fl_msg_writer *w)
{
    fl_packet *p;

    if (fl_msg_end(w, true, &p) != FLEET_OK)
        return;
    fl_socket_send(s->socket, to, p);
    fl_packet_drop(p);
}

static void answer_briefly(fl_stage_server *s, const fl_peer *to,
                           const fl_msg_head *head, fl_msg_status status)
{
    fl_msg_writer w;

    fl_stage_begin_answer(s, head, status, &w);
    send_answer(s, to, &w);
}

static void refuse_request(fl_stage_server *s, const fl_peer *to,
                           const fl_msg_head *head, const char *why)
{
    fl_msg_head coded = *head;
    fl_msg_writer w;

    coded.step = FLEET_EINVAL;
    fl_stage_begin_answer(s, &coded, FL_ANSWER_REFUSED, &w);
    fl_msg_text(&w, FL_SECTION_TEXT, why);
    send_answer(s, to, &w);
}

/* Its batch waits: for another trainer's, or for this process. */
static void say_waiting(fl_stage_server *s, const fl_stage_peer *t,
                        const fl_stage_request *q)
{
    const int missing = s->awaited == FL_STAGE_NOBODY ||
                                fl_stage_peer_of(s, (uint32_t)s->awaited) == t
                            ? FL_STAGE_NOBODY
                            : s->awaited;
    fl_msg_writer w;

    fl_stage_begin_answer(s, &q->asked, FL_ANSWER_WAITING, &w);
    w.answer.missing_stream =
        missing == FL_STAGE_NOBODY ? UINT32_MAX : (uint32_t)missing;
    w.answer.applied = missing == FL_STAGE_NOBODY
                           ? s->progress
                           : fl_stage_peer_of(s, (uint32_t)missing)->progress;
    send_answer(s, &t->peer, &w);
}

/* --- hello ---------------------------------------------------------------- */

/* The first line that differs, of both. */
static void name_difference(const char *own, const char *other, char *text,
                            size_t size)
{
    size_t a, b;

    for (;; own += a + (own[a] != 0), other += b + (other[b] != 0)) {
        a = strcspn(own, "\n");
        b = strcspn(other, "\n");
        if (a != b || memcmp(own, other, a) != 0 || !own[a] || !other[b])
            break;
    }
    snprintf(text, size,
             "the stages are cut otherwise: \"%.*s\" there, \"%.*s\" at the "
             "trainer: all processes must have the same guards and strategy",
             (int)(a < 200 ? a : 200), own, (int)(b < 200 ? b : 200), other);
}

/* Said once more, or of a process that goes on with the trainer's log. */
static bool is_later(const fl_stage_server *s, const fl_stage_peer *t,
                     const fl_msg_head *head)
{
    return head->incarnation == t->incarnation ||
           (s->o.stage_log && head->incarnation > t->incarnation);
}

static void take_hello(fl_stage_server *s, const fl_peer *from)
{
    const fl_msg_head *head = &s->msg.head;
    fl_stage_peer *t = fl_stage_peer_of(s, head->stream);
    char *said = fl_msg_get_text(&s->msg, FL_SECTION_HELLO);
    char why[600] = "";

    if (head->job != fl_msg_job(s->o.job, s->o.run))
        snprintf(why, sizeof why, "the trainer is of another run of the job");
    else if (!said || strcmp(said, s->o.boundary) != 0)
        name_difference(s->o.boundary, said ? said : "", why, sizeof why);
    else if (t->known && !is_later(s, t, head))
        snprintf(why, sizeof why,
                 "another process is worker %u, and has been here",
                 (unsigned)head->stream);
    fl_free(said);
    if (*why) {
        refuse_request(s, from, head, why);
        return;
    }
    t->known = true;
    t->peer = *from;
    t->incarnation = head->incarnation;
    answer_briefly(s, from, head, FL_ANSWER_OK);
}

/* --- requests ------------------------------------------------------------- */

/* It may be lost. */
void fl_stage_keep_answer(fl_stage_request *q, fl_packet *p)
{
    fl_packet_drop(q->batch);
    fl_packet_drop(q->answer);
    q->batch = NULL;
    q->answer = p;
}

/* It may be sent: with a log, once it is written down. */
static bool is_answered(const fl_stage_server *s, const fl_stage_peer *t,
                        const fl_stage_request *q)
{
    return q->answer && (t->whole || !s->o.stage_log);
}

/* Requests of that number come: nothing of the one before is under way. */
static void begin_number(const fl_stage_server *s, fl_stage_peer *t,
                         uint64_t number)
{
    for (int i = 0; i < s->o.n_in_flight; i++) {
        fl_packet_drop(t->request[i].answer);
        fl_packet_drop(t->request[i].batch);
        t->request[i] = (fl_stage_request){.batch = NULL};
    }
    t->number = number;
    t->n_taken = t->n_answered = 0;
    t->whole = false;
}

fl_stage_record fl_stage_record_of(const fl_stage_server *s,
                                   const fl_stage_peer *t, uint64_t number)
{
    return (fl_stage_record){.number = number,
                             .step = s->step,
                             .updates = s->updates,
                             .n_over = s->n_over,
                             .n_ended = t->n_ended,
                             .run = s->o.run,
                             .left = (uint32_t)t->left + t->told};
}

static void fail_here(fl_stage_server *s)
{
    if (s->error.code == FLEET_OK)
        fl_error_take(&s->error, fl_last_code());
    fl_error_clear();
    pthread_cond_signal(&s->came);
}

static bool is_end(const fl_msg_head *head)
{
    return head->flags & (FL_MSG_PASS_END | FL_MSG_LEAVE);
}

/* A trainer ends a pass when its update is on all lanes, which it may hear of
 * before this process does. Its record takes the place of its batch's, so it
 * says that the step is made: the next process would make another one by that
 * number, of which lanes would believe that they have it. */
fl_stage_record fl_stage_record_of_end(const fl_stage_server *s,
                                       const fl_stage_peer *t, uint64_t number)
{
    fl_stage_record r = fl_stage_record_of(s, t, number);
    const bool is_made = t->trained_at == s->step + 1;

    r.step += is_made;
    r.updates += is_made;
    return r;
}

/* The end of a pass or of all needs no other thread. */
static void take_end(fl_stage_server *s, fl_stage_peer *t)
{
    const fl_msg_head *head = &s->msg.head;
    fl_stage_request *q = &t->request[0];
    fl_stage_record r;
    fl_msg_writer w;
    fl_packet *p;

    fl_stage_begin_answer(s, head, FL_ANSWER_OK, &w);
    if (fl_msg_end(&w, true, &p) != FLEET_OK)
        return; /* it comes again */
    if (head->flags & FL_MSG_PASS_END) {
        t->n_ended++;
        t->ended_at = head->step;
    }
    t->left = head->flags & FL_MSG_LEAVE;
    r = fl_stage_record_of_end(s, t, head->step);
    if (s->o.stage_log && fl_stage_log_write(s->o.stage_log, (int)head->stream,
                                             &r, NULL, NULL) != FLEET_OK) {
        fl_packet_drop(p);
        fail_here(s);
        return;
    }
    begin_number(s, t, head->step);
    t->whole = true;
    q->answered = *head;
    fl_stage_keep_answer(q, p);
    q->answer_is_new = true;
}

static bool write_anew(fl_stage_server *s, fl_stage_request *q,
                       const fl_msg_head *head)
{
    fl_msg_writer w;
    fl_packet *p;

    if (fl_msg_decode(q->answer, &s->again) != FLEET_OK)
        return false;
    fl_stage_begin_answer(s, head, FL_ANSWER_OK, &w);
    fl_msg_copy_sections(&w, &s->again);
    if (fl_msg_end(&w, true, &p) != FLEET_OK)
        return false;
    q->answered = *head;
    fl_packet_drop(q->answer);
    q->answer = p;
    return true;
}

bool fl_stage_head_anew(fl_stage_server *s, fl_stage_request *q,
                        const fl_msg_head *head)
{
    if ((q->answered.request == head->request &&
         q->answered.incarnation == head->incarnation) ||
        write_anew(s, q, head))
        return true;
    fl_error_clear();
    return false;
}

static void take_batch(fl_stage_server *s, fl_stage_peer *t,
                       fl_stage_request *q, fl_packet *p)
{
    q->asked = s->msg.head;
    if (q->batch || q->answer) {
        say_waiting(s, t, q);
        return;
    }
    t->progress++;
    q->batch = fl_packet_keep(p);
    pthread_cond_signal(&s->came);
}

/* Of that number nothing was heard yet. */
static void take_number(fl_stage_server *s, fl_stage_peer *t, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;

    if (!is_end(head)) {
        begin_number(s, t, head->step);
        take_batch(s, t, &t->request[head->piece], p);
        return;
    }
    t->progress++;
    take_end(s, t);
    pthread_cond_signal(&s->came);
}

/* All that has that number was answered. */
static bool is_behind(const fl_stage_peer *t, uint64_t number)
{
    return number < t->number || (number == t->number && t->whole);
}

/* Numbers grow. A trainer's process that goes on for one that died ends passes
 * again that had been ended. */
static void take_request(fl_stage_server *s, fl_stage_peer *t, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;
    const bool has_place = head->piece < s->o.n_in_flight;
    fl_stage_request *q = &t->request[has_place ? head->piece : 0];

    if (has_place && head->step == t->number && is_answered(s, t, q))
        q->answer_is_new = fl_stage_head_anew(s, q, head);
    else if (is_behind(t, head->step) && is_end(head))
        answer_briefly(s, &t->peer, head, FL_ANSWER_OK);
    else if (has_place && head->step == t->number && !t->whole && !is_end(head))
        take_batch(s, t, q, p);
    else if (has_place && head->step > t->number && t->whole && !t->left)
        take_number(s, t, p);
    else
        refuse_request(s, &t->peer, head,
                       "a batch that is not the trainer's next");
}

static void take_abort(fl_stage_server *s)
{
    char *why = fl_msg_get_text(&s->msg, FL_SECTION_TEXT);

    if (s->error.code == FLEET_OK) {
        fl_fail(fl_msg_code(s->msg.head.step, FLEET_EPEER), "%.800s",
                why ? why : "a trainer has failed");
        fl_error_take(&s->error, fl_last_code());
        fl_error_clear();
    }
    fl_free(why);
    pthread_cond_signal(&s->came);
}

/* Of a process that has said hello, and means this one. */
static void take_known(fl_stage_server *s, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;
    fl_stage_peer *t = fl_stage_peer_of(s, head->stream);

    if (head->kind == FL_MSG_ABORT) {
        take_abort(s);
        return;
    }
    t->peer = *from;
    if (head->kind == FL_MSG_FORWARD) {
        take_request(s, t, p);
    } else if (head->kind == FL_MSG_HEARTBEAT) {
        for (int i = 0; i < s->o.n_in_flight; i++)
            if (t->request[i].batch ||
                (t->request[i].answer && !is_answered(s, t, &t->request[i])))
                say_waiting(s, t, &t->request[i]);
        answer_briefly(s, from, head, FL_ANSWER_OK);
    }
}

/* Strangers, workers of other heter workers, and senders whose key is of
 * another process than brings the worker's batches, are not answered. */
static bool is_let_in(const fl_stage_server *s, const fl_peer *from)
{
    const fl_msg_head *head = &s->msg.head;

    return fl_msg_same_id(head->job, s->job) &&
           head->stream - (uint32_t)s->o.first_trainer <
               (uint32_t)s->o.n_trainer &&
           (!s->guard || from->sender == 0 ||
            from->sender == fl_stage_key_of(s, head->stream) + 1);
}

void fl_stage_take_packet(fl_stage_server *s, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;
    fl_stage_peer *t;

    if (fl_msg_decode(p, &s->msg) != FLEET_OK || !is_let_in(s, from)) {
        fl_error_clear();
        return;
    }
    if (head->kind == FL_MSG_HELLO) {
        take_hello(s, from);
        return;
    }
    t = fl_stage_peer_of(s, head->stream);
    if (s->o.stage_log && !t->known && head->peer == s->nonce) {
        t->known = true; /* it has said hello to the process before */
        t->incarnation = head->incarnation;
    }
    if (!t->known || t->incarnation != head->incarnation ||
        head->peer != s->nonce || head->job != fl_msg_job(s->o.job, s->o.run))
        answer_briefly(s, from, head, FL_ANSWER_FENCED);
    else
        take_known(s, from, p);
}
