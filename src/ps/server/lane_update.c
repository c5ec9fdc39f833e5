/* lane_step.c - streams' steps: pieces collected, updates made, commands begun,
 * passes ended. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_internal.h"

void fl_stream_reset(fl_stream_state *s)
{
    fl_piece_destroy(s->open);
    s->open = NULL;
    s->last = &s->open;
    s->open_bytes = 0;
    s->next_piece = s->flags = 0;
    s->complete = false;
}

uint32_t fl_lane_missing(const fl_ps_lane *l)
{
    for (int i = 0; i < l->o.n_stream; i++)
        if (fl_is_active(&l->stream[i]) && !l->stream[i].complete)
            return (uint32_t)i;
    return FL_NOBODY;
}

/* --- pieces --------------------------------------------------------------- */

/* What closes a contribution: how many batches it is of, and its clip. */
static const fl_section *closing_section(const fl_msg *msg)
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
          msg->section[0].op != FL_SECTION_LOAD)))
        return fl_fail(FLEET_EINVAL, "an act that is none");
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
 * float16 have overflowed. */
static fleet_status check_batches(const fl_ps_lane *l,
                                  const fl_section *closing)
{
    bool ranks = l->o.layout->store->dense_local;
    int most = INT32_MAX / l->o.n_stream;
    int least = ranks || (l->o.scaled && l->o.sync) ? 0 : 1;

    if (closing && closing->n_batch >= (uint32_t)least &&
        closing->n_batch <= (uint32_t)most)
        return closing->n_batch > 0 || ranks ? FLEET_OK : check_nothing(l);
    return fl_fail(FLEET_EINVAL,
                   "it says that it is of %u batches: expected %d to %d",
                   closing ? (unsigned)closing->n_batch : 0u, least, most);
}

static fleet_status check_piece(const fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    int control = head->flags & FL_MSG_CONTROL;

    if (control)
        return check_control(&l->msg, control);
    if (head->flags & FL_MSG_END_OF_STEP)
        FL_TRY(check_batches(l, closing_section(&l->msg)));
    if (!l->o.layout->store->optimizer)
        return fl_fail(FLEET_ESTATE, "nothing is trained here");
    return fl_aggregate_check(&l->aggregate, &l->msg);
}

static void refuse_piece(fl_ps_lane *l, const fl_peer *from)
{
    fl_stream_reset(&l->stream[l->msg.head.stream]);
    fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                   "step %llu of worker %u: %s",
                   (unsigned long long)l->msg.head.step, l->msg.head.stream,
                   fleet_last_error());
}

static void close_step(fl_ps_lane *l, fl_stream_state *s, const fl_peer *from)
{
    const fl_section *closing = closing_section(&l->msg);

    s->complete = true;
    s->flags = l->msg.head.flags;
    s->request = l->msg.head;
    s->from = *from;
    s->n_batch = closing ? closing->n_batch : 0;
    s->clip = closing ? closing->learning_rate : 1.0f;
    if (fl_contributes(s) && l->pending_ms < 0)
        l->pending_ms = l->now_ms;
}

/* The piece that is next: kept until its step is applied. */
static void take_piece(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head head = l->msg.head;
    fl_stream_state *s = &l->stream[head.stream];
    fl_piece *piece;

    if (s->open_bytes + p->bytes > l->o.most_open || head.piece == UINT16_MAX) {
        fl_fail(FLEET_EUNSUPPORTED,
                "it is larger than %zu bytes, the most that a server takes",
                l->o.most_open);
        refuse_piece(l, from);
        return;
    }
    if (check_piece(l) != FLEET_OK) {
        refuse_piece(l, from);
        return;
    }
    if (fl_piece_create(&piece, l->o.pool, p, &l->msg) != FLEET_OK) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return;
    }
    *s->last = piece;
    s->last = &piece->next;
    s->open_bytes += p->bytes;
    s->next_piece++;
    if (head.flags & FL_MSG_END_OF_STEP)
        close_step(l, s, from);
    else
        fl_lane_answer(l, &head, from, FL_ANSWER_OK, FL_NOBODY);
}

static void answer_norms(fl_ps_lane *l, const fl_stream_state *s);

static bool has_clip_norm(const fl_ps_lane *l)
{
    const fleet_optimizer *o = l->o.layout->store->optimizer;

    return l->o.sync && o && o->clip_norm > 0;
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

/* The step is applied. A worker that clips gets the factor, too: the factor may
 * have come from another worker before this one had all norms. */
static void answer_applied(fl_ps_lane *l, const fl_msg_head *to,
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
    s = has_clip_norm(l) ? fl_msg_section(&w, FL_SECTION_CLIP, 0) : NULL;
    if (s)
        s->learning_rate = l->last_clip;
    fl_lane_end_answer(l, &w, peer);
}

/* The piece has come before: it is answered again, not taken again. */
static void repeat_piece(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head head = l->msg.head;
    fl_stream_state *s = &l->stream[head.stream];

    l->counts.duplicates++;
    if (head.step <= s->done || !(head.flags & FL_MSG_END_OF_STEP)) {
        answer_applied(l, &head, from);
        return;
    }
    s->request = head;
    s->from = *from;
    if (l->norming && fl_contributes(s))
        answer_norms(l, s);
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
        l->counts.gaps++;
        fl_lane_answer(l, &head, from, FL_ANSWER_GAP, FL_NOBODY);
    } else {
        take_piece(l, from, p);
    }
}

/* --- updates -------------------------------------------------------------- */

/* The stream's step is over: number, pieces, answer. */
static void finish_step(fl_ps_lane *l, fl_stream_state *s)
{
    fl_msg_head head = s->request;
    fl_peer from = s->from;

    s->done++;
    l->counts.steps++;
    fl_stream_reset(s);
    answer_applied(l, &head, &from);
}

static bool takes_part(const fl_ps_lane *l, int stream, int only)
{
    return fl_contributes(&l->stream[stream]) && (only < 0 || stream == only);
}

/* Sum up the contributions: all of them, or that of one stream. */
static fleet_status sum_up(fl_ps_lane *l, int only)
{
    int n = 0;

    for (int i = 0; i < l->o.n_stream; i++)
        n += takes_part(l, i, only);
    fl_aggregate_begin(&l->aggregate);
    for (int i = 0; i < l->o.n_stream; i++)
        if (takes_part(l, i, only))
            FL_TRY(fl_aggregate_add(&l->aggregate, l->stream[i].open, n > 1,
                                    l->stream[i].row_cache));
    return FLEET_OK;
}

static uint32_t count_batches(const fl_ps_lane *l, int only)
{
    uint32_t n = 0;

    for (int i = 0; i < l->o.n_stream; i++)
        if (takes_part(l, i, only))
            n += l->stream[i].n_batch;
    return n > 0 ? n : 1; /* 0: there is nothing to divide */
}

/* Weights that are waited for travel while the rows change. */
static void apply_update(fl_ps_lane *l, int only, float clip)
{
    fl_aggregate_apply_dense(&l->aggregate, l->version, count_batches(l, only),
                             clip);
    l->version++;
    l->o.layout->store->updates = l->version;
    fl_lane_serve_parked(l, true);
    if (fl_aggregate_apply_rows(&l->aggregate) != FLEET_OK) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return;
    }
    l->counts.updates++;
    l->norming = false;
    l->last_clip = clip;
    l->pending_ms = -1;
    for (int i = 0; i < l->o.n_stream; i++)
        if (takes_part(l, i, only))
            finish_step(l, &l->stream[i]);
}

/* --- clip by global norm -------------------------------------------------- */

static fleet_status put_norms(fl_ps_lane *l, fl_msg_writer *w)
{
    size_t most = (size_t)fl_aggregate_most_norm(&l->aggregate) + 1;
    uint64_t *key = fl_alloc_array(most, sizeof *key);
    double *sum = fl_alloc_array(most, sizeof *sum);
    fleet_status status = FLEET_ENOMEM;
    fl_section *s;
    int64_t n = 0;

    if (key && sum)
        status = fl_aggregate_norms(
            &l->aggregate, 1.0f / (float)count_batches(l, -1), key, sum, &n);
    s = fl_msg_section(w, FL_SECTION_NORMS, 0);
    if (status == FLEET_OK && s) {
        void *keys, *values;

        s->n_key = (uint32_t)n;
        keys = fl_msg_column(w, FL_COLUMN_KEYS, (size_t)n * sizeof *key);
        values = fl_msg_column(w, FL_COLUMN_VALUES, (size_t)n * sizeof *sum);
        if (keys && values && n > 0) {
            memcpy(keys, key, (size_t)n * sizeof *key);
            memcpy(values, sum, (size_t)n * sizeof *sum);
        }
    }
    fl_free(key);
    fl_free(sum);
    return status;
}

static void answer_norms(fl_ps_lane *l, const fl_stream_state *s)
{
    fl_msg_writer w;

    fl_lane_begin_answer(l, &w, &s->request, FL_ANSWER_NORMS, FL_NOBODY);
    if (put_norms(l, &w) != FLEET_OK) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        fl_packet_drop(w.packet);
        return;
    }
    fl_lane_end_answer(l, &w, &s->from);
}

void fl_lane_clip(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head head = l->msg.head;
    fl_stream_state *s = &l->stream[head.stream];
    const fl_section *factor = closing_section(&l->msg);

    (void)p;
    if (head.step <= s->done) {
        answer_applied(l, &head, from);
        return;
    }
    if (!l->norming || head.step != s->done + 1 || !fl_contributes(s)) {
        fl_lane_answer(l, &head, from, FL_ANSWER_GAP, FL_NOBODY);
        return;
    }
    s->request = head;
    s->from = *from;
    apply_update(l, -1, factor ? factor->learning_rate : 1.0f);
}

/* --- what can go on, goes on ---------------------------------------------- */

/* All streams in the pass have brought their part, and there is at least one
 * such stream. */
static bool is_full(const fl_ps_lane *l)
{
    bool any = false;

    for (int i = 0; i < l->o.n_stream; i++) {
        const fl_stream_state *s = &l->stream[i];

        if (fl_is_active(s) && !fl_contributes(s))
            return false;
        any = any || (fl_is_active(s) && fl_contributes(s));
    }
    return any;
}

static bool update_together(fl_ps_lane *l)
{
    if (l->norming || !is_full(l))
        return false;
    if (sum_up(l, -1) != FLEET_OK) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return false;
    }
    if (!has_clip_norm(l)) {
        apply_update(l, -1, 1.0f);
        return true;
    }
    l->norming = true;
    for (int i = 0; i < l->o.n_stream && l->norming; i++)
        if (fl_contributes(&l->stream[i]))
            answer_norms(l, &l->stream[i]);
    return false;
}

static bool update_alone(fl_ps_lane *l)
{
    bool any = false;

    for (int i = 0; i < l->o.n_stream && l->state == FL_LANE_RUNS; i++) {
        if (!fl_contributes(&l->stream[i]))
            continue;
        any = true;
        if (sum_up(l, i) == FLEET_OK)
            apply_update(l, i, l->stream[i].clip);
        else
            fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
    }
    return any;
}

static bool begin_command(fl_ps_lane *l)
{
    for (int i = 0; i < l->o.n_stream; i++) {
        fl_stream_state *s = &l->stream[i];
        fl_section_op op;

        if (!s->complete || !(s->flags & FL_MSG_COMMAND))
            continue;
        l->busy = true;
        l->requester = (fl_parked){.head = s->request, .from = s->from};
        op = (fl_section_op)s->open->msg.section[0].op;
        l->command.kind =
            op == FL_SECTION_LOAD ? FL_COMMAND_LOAD : FL_COMMAND_SAVE;
        l->command.text = fl_msg_get_text(&s->open->msg, op);
        if (l->command.text)
            l->host.begin(l->host.arg, &l->command);
        else
            fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return true;
    }
    return false;
}

/* Streams that leave, and streams whose pass is over: they are part of no
 * update. */
static bool take_ends(fl_ps_lane *l)
{
    bool any = false;

    for (int i = 0; i < l->o.n_stream; i++) {
        fl_stream_state *s = &l->stream[i];

        if (!s->complete)
            continue;
        if (s->flags & FL_MSG_LEAVE) {
            s->left = any = true;
            fl_parked_forget(&l->pulls, i); /* no process waits for them */
            finish_step(l, s);
        } else if (s->flags & FL_MSG_PASS_END && !s->ended) {
            s->ended = any = true;
        }
    }
    return any;
}

/* No stream is in the pass any more: it closes, and the next one is open to
 * all. */
static bool close_pass(fl_ps_lane *l)
{
    bool any = false;

    for (int i = 0; i < l->o.n_stream; i++) {
        if (fl_is_active(&l->stream[i]))
            return false;
        any = any || l->stream[i].ended;
    }
    if (!any)
        l->state = FL_LANE_LEFT;
    for (int i = 0; any && i < l->o.n_stream; i++) {
        fl_stream_state *s = &l->stream[i];

        if (s->ended && !s->left) {
            s->ended = false;
            finish_step(l, s);
        }
        s->ended = false;
    }
    return any;
}

void fl_lane_advance(fl_ps_lane *l)
{
    bool more = true;

    while (more && !l->busy && l->state == FL_LANE_RUNS) {
        more = take_ends(l);
        if (begin_command(l))
            break;
        more = (l->o.sync ? update_together(l) : update_alone(l)) || more;
        if (l->state == FL_LANE_RUNS)
            more = close_pass(l) || more;
    }
    fl_lane_serve_parked(l, false);
    fl_lane_try_reduce(l);
}
