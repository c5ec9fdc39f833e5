/* lane_push.c - pushes: the pieces of a worker's step are checked, recognised
 * if they have come before, and kept until the step is whole. */
#include <string.h>

#include "ps/server/lane_internal.h"
#include "ps/plain_keys.h"

void fl_stream_reset(fl_ps_lane *l, fl_stream_state *s)
{
    fl_counter_add(&l->counters.open_bytes, -(uint64_t)s->open_bytes);
    fl_lane_forget_rows(l, &s->wanted);
    fl_piece_destroy(s->open);
    s->open = NULL;
    s->last = &s->open;
    s->open_bytes = 0;
    s->next_piece = s->flags = 0;
    s->complete = s->recorded = false;
}

/* --- pieces --------------------------------------------------------------- */

const fl_section *fl_lane_closing_section(const fl_msg *msg)
{
    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].op == FL_SECTION_CLIP)
            return &msg->section[i];
    return NULL;
}

/* A step without a contribution is one thing, and one piece. */
static fleet_status check_control(const fl_msg *msg, int control)
{
    const fl_msg_head *head = &msg->head;
    bool command = control == FL_MSG_COMMAND;

    if (control & (control - 1) || head->piece > 0 ||
        !(head->flags & FL_MSG_END_OF_STEP))
        return fl_fail(FLEET_EINVAL, "flags 0x%x in piece %u",
                       (unsigned)head->flags, (unsigned)head->piece);
    if (!command && head->n_section > 0)
        return fl_fail(FLEET_EINVAL, "gradients after the pass");
    if (command &&
        (head->n_section != 1 || !(msg->section[0].columns & FL_COLUMN_BYTES) ||
         (msg->section[0].op != FL_SECTION_SAVE &&
          msg->section[0].op != FL_SECTION_LOAD &&
          msg->section[0].op != FL_SECTION_WRITE)))
        return fl_fail(FLEET_EINVAL, "a command that does not exist");
    return FLEET_OK;
}

static bool has_gradients(const fl_msg *msg)
{
    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].op != FL_SECTION_CLIP && msg->section[i].n_key > 0)
            return true;
    return false;
}

/* Gradients of 0 batches are not finite, and would be added to the other
 * workers' gradients. */
static fleet_status check_nothing(const fl_ps_lane *l)
{
    const fl_piece *before = l->stream[l->msg.head.stream].open;
    bool any = has_gradients(&l->msg);

    for (; before && !any; before = before->next)
        any = has_gradients(&before->msg);
    return any ? fl_fail(FLEET_EINVAL, "it says that it is of 0 batches, and "
                                       "brings gradients")
               : FLEET_OK;
}

/* Its numbers are added up over the workers. 0: a rank whose pass is over, or
 * for which another one speaks; in sync a worker alone, whose gradients in
 * float16 have overflowed; in sync a heter worker, whose batches are its
 * trainers'. */
static fleet_status check_batches(const fl_ps_lane *l,
                                  const fl_section *closing)
{
    bool ranks = l->o.layout->store->dense_local;
    bool heter = l->o.sync && l->stream[l->msg.head.stream].heter;
    int most = heter ? 0 : INT32_MAX / l->o.n_stream;
    int least = heter || ranks || (l->o.scaled && l->o.sync) ? 0 : 1;

    if (closing && closing->n_batch >= (uint32_t)least &&
        closing->n_batch <= (uint32_t)most)
        return closing->n_batch > 0 || ranks || heter ? FLEET_OK
                                                      : check_nothing(l);
    return fl_fail(FLEET_EINVAL,
                   "it says that it is of %u batches: expected %d to %d",
                   closing ? (unsigned)closing->n_batch : 0u, least, most);
}

/* How the worker's optimizer is set now. */
static fleet_status read_settings(const fl_msg *msg, fl_update_settings *s)
{
    const fl_section *closing = fl_lane_closing_section(msg);
    const fl_frame *values = &msg->column[closing - msg->section][FL_AT_VALUES];

    if (values->size != sizeof *s)
        return fl_fail(FLEET_EINVAL,
                       "%zu bytes of optimizer settings: expected %zu",
                       values->size, sizeof *s);
    memcpy(s, values->data, sizeof *s);
    return fl_update_settings_check(s);
}

/* The last piece of a contribution. */
static fleet_status check_closing(const fl_ps_lane *l)
{
    fl_update_settings settings;

    FL_TRY(check_batches(l, fl_lane_closing_section(&l->msg)));
    return read_settings(&l->msg, &settings);
}

static fleet_status check_piece(const fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    int control = head->flags & FL_MSG_CONTROL;

    if (control)
        return check_control(&l->msg, control);
    if (head->flags & FL_MSG_END_OF_STEP)
        FL_TRY(check_closing(l));
    if (!l->o.layout->store->optimizer)
        return fl_fail(FLEET_ESTATE, "nothing is trained here");
    return fl_aggregate_check(&l->aggregate, &l->msg);
}

static void refuse_piece(fl_ps_lane *l, const fl_peer *from)
{
    char name[FL_STREAM_NAME];

    fl_stream_reset(l, &l->stream[l->msg.head.stream]);
    fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                   "step %llu of %s: %s", (unsigned long long)l->msg.head.step,
                   fl_lane_stream_name(l, name, l->msg.head.stream),
                   fleet_last_error());
}

static void close_step(fl_ps_lane *l, fl_stream_state *s, const fl_peer *from)
{
    const fl_section *closing = fl_lane_closing_section(&l->msg);

    s->complete = true;
    s->flags = l->msg.head.flags;
    s->request = l->msg.head;
    s->from = *from;
    s->n_batch = closing ? closing->n_batch : 0;
    if (fl_contributes(s)) /* they have been checked */
        read_settings(&l->msg, &s->settings);
    s->clip = closing ? closing->learning_rate : 1.0f;
    if (fl_contributes(s) && l->pending_ms < 0)
        l->pending_ms = l->now_ms;
}

static bool has_room(const fl_ps_lane *l, const fl_stream_state *s,
                     size_t bytes)
{
    return s->open_bytes + bytes <= l->o.most_open;
}

static void refuse_large(fl_ps_lane *l, const fl_peer *from)
{
    fl_fail(FLEET_EUNSUPPORTED,
            "it is larger than %zu bytes, the most that a server takes",
            l->o.most_open);
    refuse_piece(l, from);
}

/* With its values as floats; NULL: the lane has failed. */
static fl_piece *keep_piece(fl_ps_lane *l, fl_packet *p)
{
    fl_piece *piece;
    fleet_status status = fl_piece_create(&piece, l->o.pool, p, &l->msg);

    if (status == FLEET_OK)
        status = fl_piece_widen(piece, l->o.layout);
    if (status == FLEET_OK)
        return piece;
    fl_piece_destroy(piece);
    fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
    return NULL;
}

/* The piece that is next, with plain keys: kept until its step is applied. */
static void take_plain_piece(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head head = l->msg.head;
    fl_stream_state *s = &l->stream[head.stream];
    fl_piece *piece;
    size_t bytes;

    if (check_piece(l) != FLEET_OK) {
        refuse_piece(l, from);
        return;
    }
    bytes = p->bytes + fl_piece_wide_bytes(&l->msg, l->o.layout);
    if (!has_room(l, s, bytes)) {
        refuse_large(l, from);
        return;
    }
    piece = keep_piece(l, p);
    if (!piece)
        return;
    *s->last = piece;
    s->last = &piece->next;
    s->open_bytes += bytes;
    fl_counter_add(&l->counters.open_bytes, bytes);
    s->next_piece++;
    if (!fl_lane_want(l, &piece->msg, &s->wanted))
        return;
    if (head.flags & FL_MSG_END_OF_STEP)
        close_step(l, s, from);
    else
        fl_lane_answer(l, &head, from, FL_ANSWER_OK, FL_NOBODY);
}

static void take_piece(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &l->msg.head;
    fl_packet *plain;
    fleet_status status;

    if (!has_room(l, &l->stream[head->stream], p->bytes) ||
        head->piece == UINT16_MAX) {
        refuse_large(l, from);
        return;
    }
    status = fl_plain_keys(l->o.pool, p, &l->msg, &plain);
    if (status == FLEET_OK)
        take_plain_piece(l, from, plain);
    else if (status == FLEET_EINVAL)
        refuse_piece(l, from);
    else
        fl_lane_abort(l, status, fleet_last_error());
    fl_packet_drop(plain);
}

void fl_lane_answer_command(fl_ps_lane *l, const fl_msg_head *to,
                            const fl_peer *peer)
{
    const fl_stream_state *s = &l->stream[to->stream];
    fl_msg_writer w;

    fl_lane_begin_answer(l, &w, to,
                         s->command_status == FLEET_OK ? FL_ANSWER_OK
                                                       : FL_ANSWER_FAILED,
                         FL_NOBODY);
    w.head.step = (uint64_t)s->command_status;
    if (s->command_text)
        fl_msg_text(&w, FL_SECTION_TEXT, s->command_text);
    fl_lane_end_answer(l, &w, peer);
}

/* A worker that clips gets the factor, too: the factor may have come from
 * another worker before this one had all norms. */
void fl_lane_answer_applied(fl_ps_lane *l, const fl_msg_head *to,
                            const fl_peer *peer)
{
    const fl_stream_state *stream = &l->stream[to->stream];
    fl_msg_writer w;
    fl_section *s;

    if (stream->command_step > 0 && to->step == stream->command_step) {
        fl_lane_answer_command(l, to, peer);
        return;
    }
    fl_lane_begin_answer(l, &w, to, FL_ANSWER_OK, FL_NOBODY);
    if (stream->stop_step > 0 && to->step == stream->stop_step)
        w.head.flags |= FL_MSG_STOP;
    s = fl_lane_has_clip_norm(l) ? fl_msg_section(&w, FL_SECTION_CLIP, 0)
                                 : NULL;
    if (s)
        s->learning_rate = l->last_clip;
    fl_lane_end_answer(l, &w, peer);
}

/* The piece has come before: it is answered again, not taken again. */
static void repeat_piece(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head head = l->msg.head;
    fl_stream_state *s = &l->stream[head.stream];

    fl_counter_add(&l->counters.duplicates, 1);
    if (head.step <= s->done || !(head.flags & FL_MSG_END_OF_STEP)) {
        fl_lane_answer_applied(l, &head, from);
        return;
    }
    s->request = head;
    s->from = *from;
    if (l->norming && fl_contributes(s))
        fl_lane_answer_norms(l, s);
}

void fl_lane_step(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head head = l->msg.head;
    const fl_stream_state *s = &l->stream[head.stream];

    if (head.step <= s->done || (head.step == s->done + 1 &&
                                 (s->complete || head.piece < s->next_piece))) {
        repeat_piece(l, from);
    } else if (s->left || head.step > s->done + 1 ||
               head.piece > s->next_piece) {
        fl_counter_add(&l->counters.gaps, 1);
        fl_lane_answer(l, &head, from, FL_ANSWER_GAP, FL_NOBODY);
    } else {
        take_piece(l, from, p);
    }
}
