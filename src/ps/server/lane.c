/* lane.c - a lane: packets handed to the handler of their kind (message.def),
 * answers, commands. */
#include "ps/server/lane.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "ps/server/lane_budget.h"
#include "ps/server/lane_feed.h"
#include "ps/server/lane_replica.h"

/* --- life ----------------------------------------------------------------- */

static int row_caches(const fl_ps_lane *l)
{
    return l->o.layout->n_table * FL_N_ROW_CACHE;
}

/* An update of several streams sums their rows: it looks for them anew. */
static fleet_status make_streams(fl_ps_lane *l)
{
    bool alone = !l->o.sync || l->o.n_stream == 1;

    FL_TRY(FL_NEW(&l->stream, (size_t)l->o.n_stream * sizeof *l->stream));
    for (int i = 0; i < l->o.n_stream; i++) {
        fl_stream_state *s = &l->stream[i];

        s->last = &s->open;
        s->heter = i >= l->o.n_stream - l->o.n_heter;
        if (alone)
            FL_TRY(FL_NEW(&s->row_cache,
                          (size_t)row_caches(l) * sizeof *s->row_cache));
    }
    return FLEET_OK;
}

fleet_status fl_lane_create(fl_ps_lane **lane, const fl_lane_options *o,
                            const fl_lane_host *host, int64_t now_ms)
{
    fleet_status status;
    fl_ps_lane *l;

    *lane = NULL;
    FL_TRY(FL_NEW(&l, sizeof *l));
    l->o = *o;
    l->o.most_open = o->most_open ? o->most_open : FL_MOST_OPEN;
    l->o.most_parked = o->most_parked ? o->most_parked : FL_MOST_PARKED;
    l->o.most_unread = o->most_unread ? o->most_unread : FL_MOST_UNREAD;
    l->o.most_small = o->most_small ? o->most_small : FL_MOST_SMALL;
    l->host = *host;
    l->job = fl_msg_job(o->job, 0);
    l->run = atomic_load(&o->identity->run);
    l->awake = fl_awake_from(now_ms, fl_awake_step(o->peer_ms));
    l->now_ms = l->begun_ms = now_ms;
    l->pending_ms = -1;
    l->last_behind = &l->behind;
    fl_lease_init(&l->leases, o->n_stream);
    l->version = o->layout->store->updates;
    status = fl_aggregate_init(&l->aggregate, o->layout,
                               fl_bucket_map_own(o->map, o->server, o->lane));
    if (status == FLEET_OK && o->live_hash > 0)
        status = fl_aggregate_live_begin(&l->aggregate, o->live_hash);
    if (status == FLEET_OK)
        status = make_streams(l);
    if (status == FLEET_OK)
        status =
            fl_ledger_create(&l->ledger, o->n_stream + 1 + FL_MOST_SUBSCRIBER);
    if (status == FLEET_OK && o->replica != FL_NO_REPLICA)
        status = fl_replica_begin(l);
    if (status != FLEET_OK) {
        fl_lane_destroy(l);
        return status;
    }
    fl_lane_file_all(l);
    *lane = l;
    return FLEET_OK;
}

void fl_lane_unpark(fl_ps_lane *l, fl_parked *p)
{
    while (p) {
        fl_parked *next = p->next;

        fl_lane_forget_rows(l, &p->wanted);
        fl_lane_uncount_parked(l, p);
        fl_packet_drop(p->packet);
        fl_packet_pool_give(p->pool, p, sizeof *p);
        p = next;
    }
}

void fl_lane_forget_pulls(fl_ps_lane *l, int stream)
{
    fl_stream_state *s = &l->stream[stream];

    for (const fl_parked *p = s->pulls; p; p = p->next)
        l->n_pull--;
    fl_lane_unpark(l, s->pulls);
    s->pulls = NULL;
}

void fl_lane_forget_behind(fl_ps_lane *l, int stream)
{
    fl_parked **list = &l->behind;

    if (!l->stream[stream].behind)
        return;
    while (*list) {
        fl_parked *one = *list;

        if (one->head.stream != (uint32_t)stream) {
            list = &one->next;
            continue;
        }
        *list = one->next;
        one->next = NULL;
        fl_lane_unpark(l, one);
    }
    l->last_behind = list;
    l->stream[stream].behind = NULL;
}

void fl_lane_destroy(fl_ps_lane *l)
{
    if (!l)
        return;
    l->busy = false; /* no command has the store any more */
    for (int i = 0; l->stream && i < l->o.n_stream; i++) {
        fl_piece_destroy(l->stream[i].open);
        fl_lane_forget_rows(l, &l->stream[i].wanted);
        fl_lane_unpark(l, l->stream[i].reducing);
        fl_lane_unpark(l, l->stream[i].pulls);
        fl_row_cache_done(l->stream[i].row_cache, row_caches(l));
        fl_free(l->stream[i].command_text);
    }
    fl_wanted_list_release(&l->unwanted);
    fl_lane_unpark(l, l->behind);
    fl_packet_drop(l->requester.packet);
    fl_free(l->command.text);
    fl_free(l->cut);
    fl_free(l->reduced);
    fl_lease_done(&l->leases);
    fl_free(l->stream);
    fl_feed_done(l);
    fl_aggregate_done(&l->aggregate);
    fl_record_parts_done(&l->record);
    fl_free(l->replay_piece);
    fl_replica_done(l);
    fl_ledger_drop(l->ledger);
    fl_free(l);
}

fl_lane_state fl_lane_state_of(const fl_ps_lane *l)
{
    return l->state;
}

const fl_error *fl_lane_error(const fl_ps_lane *l)
{
    return &l->error;
}

fl_replica_role fl_lane_replica(const fl_ps_lane *l)
{
    return l->replica ? l->replica->role : FL_NO_REPLICA;
}

bool fl_lane_was_fenced(const fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    return r && (r->role == FL_REPLICA_GONE || r->dropped);
}

int64_t fl_lane_version(const fl_ps_lane *l)
{
    return l->version;
}

/* --- answers -------------------------------------------------------------- */

/* How far the stream is, and what it may send. A subscriber or a replica has no
 * such account. */
static fl_msg_answer standing_of(const fl_ps_lane *l, uint32_t stream)
{
    const fl_stream_state *s;
    size_t used, credit;

    if (stream >= (uint32_t)l->o.n_stream)
        return (fl_msg_answer){0};
    s = &l->stream[stream];
    used = s->open_bytes + s->behind_bytes;
    credit = used < l->o.most_open ? l->o.most_open - used : 0;
    return (fl_msg_answer){
        .applied = s->done,
        .durable = s->done,
        .credit_bytes = credit < UINT32_MAX ? (uint32_t)credit : UINT32_MAX};
}

void fl_lane_begin_answer(fl_ps_lane *l, fl_msg_writer *w,
                          const fl_msg_head *to, fl_msg_status status,
                          uint32_t missing)
{
    fl_msg_head head = *to;

    head.kind = FL_MSG_ANSWER;
    head.flags &= FL_MSG_CRC_ALL; /* what it asks with, it is answered with */
    head.status = (uint8_t)status;
    head.n_section = 0;
    head.job = fl_lane_job(l);
    head.peer = l->o.identity->nonce;
    head.generation = l->o.identity->generation;
    head.view = fl_replica_view(l);
    fl_msg_begin(w, l->o.pool, &head);
    w->answer = standing_of(l, to->stream);
    w->answer.missing_stream = missing;
}

void fl_lane_end_answer(fl_ps_lane *l, fl_msg_writer *w, const fl_peer *to)
{
    fl_packet *p;

    if (fl_msg_end(w, w->head.flags & FL_MSG_CRC_ALL, &p) != FLEET_OK) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return;
    }
    if (!fl_replica_holds(l, to, &w->head, p))
        fl_lane_send(l, to, w->head.stream, p);
}

void fl_lane_answer(fl_ps_lane *l, const fl_msg_head *to, const fl_peer *peer,
                    fl_msg_status status, uint32_t missing)
{
    fl_msg_writer w;

    fl_lane_begin_answer(l, &w, to, status, missing);
    if (status == FL_ANSWER_WAITING)
        w.answer.applied = fl_lane_progress_of(l, missing);
    fl_lane_end_answer(l, &w, peer);
}

void fl_lane_refuse(fl_ps_lane *l, const fl_msg_head *to, const fl_peer *peer,
                    fl_msg_status status, fleet_status code, const char *format,
                    ...)
{
    char text[900];
    fl_msg_writer w;
    uint64_t unsaid;
    va_list args;

    va_start(args, format);
    fl_format(text, sizeof text, format, args);
    va_end(args);
    if (fl_refusals_tell(&l->refusals, peer, l->now_ms, &unsaid)) {
        if (unsaid > 0)
            FL_WARN(l->o.log,
                    "server %d: %" PRIu64 " more were refused since the last "
                    "line",
                    l->o.server, unsaid);
        FL_WARN(l->o.log, "server %d: refused: %s", l->o.server, text);
    }
    fl_lane_begin_answer(l, &w, to, status, FL_NOBODY);
    w.head.job = to->job; /* his own, or he would not listen */
    w.head.step = (uint64_t)code;
    w.head.flags |= FL_MSG_CRC_ALL;
    fl_msg_text(&w, FL_SECTION_TEXT, text);
    fl_lane_end_answer(l, &w, peer);
}

/* --- the end -------------------------------------------------------------- */

static void send_abort(fl_ps_lane *l, const fl_peer *to, uint32_t stream)
{
    fl_msg_head head = {.version = FL_MSG_VERSION,
                        .kind = FL_MSG_ABORT,
                        .job = fl_lane_job(l),
                        .generation = l->o.identity->generation,
                        .view = fl_replica_view(l),
                        .peer = l->o.identity->nonce,
                        .stream = stream,
                        .step = (uint64_t)l->error.code};
    fl_msg_writer w;
    fl_packet *p;

    l->stream[stream].told = true;
    fl_msg_begin(&w, l->o.pool, &head);
    fl_msg_text(&w, FL_SECTION_TEXT, l->error.text);
    if (fl_msg_end(&w, true, &p) != FLEET_OK)
        return; /* the peer deadline says the rest */
    fl_lane_send(l, to, stream, p);
}

void fl_lane_abort(fl_ps_lane *l, fleet_status code, const char *why)
{
    char text[sizeof l->error.text];

    if (l->state == FL_LANE_FAILED)
        return;
    snprintf(text, sizeof text, "%s", why);
    l->state = FL_LANE_FAILED;
    fl_fail(code, "%s", text);
    fl_error_take(&l->error, code);
    for (int i = 0; i < l->o.n_stream; i++)
        if (l->stream[i].known && !l->stream[i].left)
            send_abort(l, &l->stream[i].peer, (uint32_t)i);
    fl_feed_abort(l);
    fl_replica_abort(l);
}

void fl_lane_fail(fl_ps_lane *l)
{
    fl_lane_abort(l, fl_last_code(), fleet_last_error());
}

void fl_lane_abort_as_told(fl_ps_lane *l, uint64_t code, const char *otherwise)
{
    char *why = fl_msg_get_text(&l->msg, FL_SECTION_TEXT);

    fl_lane_abort(l, fl_msg_code(code, FLEET_EPEER), why ? why : otherwise);
    fl_free(why);
}

void fl_lane_aborted(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    char *why = fl_msg_get_text(&l->msg, FL_SECTION_TEXT);

    (void)from;
    (void)p;
    fl_lane_give_up(l, fl_msg_code(l->msg.head.step, FLEET_EPEER),
                    why ? why : "a worker has given up");
    fl_free(why);
}

/* --- packets -------------------------------------------------------------- */

fl_parked *fl_lane_park(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_parked *parked;

    if (!fl_lane_may_park(l, p)) {
        fl_lane_answer(
            l, &l->msg.head, from, FL_ANSWER_WAITING,
            l->busy ? FL_NOBODY
                    : fl_lane_waits_for(l, &l->msg.head, fl_lane_wanted(l)));
        return NULL;
    }
    parked = fl_packet_pool_take(l->o.pool, sizeof *parked);
    if (!parked) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return NULL;
    }
    *parked = (fl_parked){.pool = l->o.pool,
                          .from = *from,
                          .packet = fl_packet_keep(p),
                          .head = l->msg.head,
                          .version = fl_lane_wanted(l)};
    fl_lane_count_parked(l, parked);
    return parked;
}

static bool same_request(const fl_msg_head *a, const fl_msg_head *b)
{
    return a->stream == b->stream && a->kind == b->kind &&
           a->request == b->request && a->piece == b->piece;
}

void fl_lane_park_behind(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_parked **of_stream = &l->stream[l->msg.head.stream].behind, *one;

    for (one = *of_stream; one; one = one->next_of_stream)
        if (same_request(&one->head, &l->msg.head))
            return;
    if (l->requester.packet && same_request(&l->requester.head, &l->msg.head))
        return;
    one = fl_lane_park(l, from, p);
    if (!one)
        return;
    *l->last_behind = one;
    l->last_behind = &one->next;
    one->next_of_stream = *of_stream;
    *of_stream = one;
}

const fl_lane_kind fl_lane_kinds[FL_MSG_KINDS] = {
#define FL_MESSAGE(KIND, name, flags, handler)                                 \
    [FL_MSG_##KIND] = {flags, handler},
#include "net/message.def"
#undef FL_MESSAGE
};

/* Of l->msg. A save beside training is a step of its stream, which goes on
 * after it. */
static bool waits_for_command(const fl_ps_lane *l)
{
    return l->busy ||
           (l->saving && l->msg.head.stream == l->requester.head.stream);
}

/* A part of a step that is not whole. */
static bool can_wait(const fl_ps_lane *l)
{
    return l->msg.head.kind == FL_MSG_STEP &&
           !l->stream[l->msg.head.stream].complete;
}

/* What has come behind steps that wait is for a lane that has made them. */
static fleet_status end_wait(fl_ps_lane *l, fl_packet *p)
{
    if (!l->gathers || can_wait(l))
        return FLEET_OK;
    fl_lane_advance(l);
    return fl_msg_decode(p, &l->msg); /* updates have messages of their own */
}

static void handle_message(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    bool waits = l->gathers && can_wait(l);
    uint32_t stream = l->msg.head.stream;

    fl_lane_kinds[l->msg.head.kind].handler(l, from, p);
    if (stream < (uint32_t)l->o.n_stream) /* of a HELLO it may be any */
        fl_lane_file_stream(l, stream);
    if (!waits)
        fl_lane_advance(l);
}

void fl_lane_gather(fl_ps_lane *l, bool more)
{
    bool ends = l->gathers && !more;

    l->gathers = more;
    if (ends && l->state == FL_LANE_RUNS)
        fl_lane_advance(l);
}

void fl_lane_receive(fl_ps_lane *l, const fl_peer *from, fl_packet *p,
                     int64_t now_ms)
{
    fleet_status status = fl_msg_decode(p, &l->msg);
    int flags;

    l->now_ms = fl_awake_at(&l->awake, now_ms);
    if (status == FLEET_EUNSUPPORTED && l->msg.head.kind == FL_MSG_HELLO) {
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED,
                       FLEET_EUNSUPPORTED,
                       "the worker speaks protocol %d, this server %d",
                       l->msg.head.version, (int)FL_MSG_VERSION);
        return;
    }
    if (status != FLEET_OK)
        fl_counter_add(&l->counters.bad, 1);
    if (status != FLEET_OK || !fl_lane_admit(l, from) ||
        end_wait(l, p) != FLEET_OK)
        return;
    flags = fl_lane_kinds[l->msg.head.kind].flags;
    if (l->error.code != FLEET_OK && !(flags & FL_KIND_OF_ANYBODY))
        send_abort(l, from, l->msg.head.stream);
    else if (flags & FL_KIND_NEEDS_STORE && waits_for_command(l))
        fl_lane_park_behind(l, from, p);
    else
        handle_message(l, from, p);
}

/* --- commands ------------------------------------------------------------- */

static void answer_query(fl_ps_lane *l, fleet_status status, const char *text,
                         const uint64_t sums[2])
{
    fl_msg_writer w;
    void *bytes = NULL;

    fl_lane_begin_answer(l, &w, &l->requester.head,
                         status == FLEET_OK ? FL_ANSWER_OK : FL_ANSWER_FAILED,
                         FL_NOBODY);
    w.head.step = (uint64_t)status;
    if (text)
        fl_msg_text(&w, FL_SECTION_TEXT, text);
    else if (fl_msg_section(&w, FL_SECTION_HASH, (uint32_t)l->command.table))
        bytes = fl_msg_column(&w, FL_COLUMN_BYTES, 2 * sizeof *sums);
    if (bytes)
        memcpy(bytes, sums, 2 * sizeof *sums);
    fl_lane_end_answer(l, &w, &l->requester.from);
}

/* The stream's step is over, whatever it has come to, and that is remembered: a
 * worker that has lost the answer asks again. */
static void finish_command(fl_ps_lane *l, fleet_status status, const char *text)
{
    fl_stream_state *s = &l->stream[l->requester.head.stream];

    if (fl_lane_record_command(l, status, text) != FLEET_OK) {
        fl_lane_fail(l);
        return;
    }
    fl_free(s->command_text);
    s->command_text = text ? fl_strdup(text) : NULL;
    if (text && !s->command_text)
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
    s->command_status = status;
    s->command_step = ++s->done;
    fl_counter_add(&l->counters.steps, 1);
    fl_lane_note_progress(l, l->requester.head.stream);
    if (s->complete) /* else its process was replaced meanwhile */
        fl_stream_reset(l, s);
    fl_lane_file_stream(l, l->requester.head.stream);
    fl_lane_answer_command(l, &l->requester.head, &l->requester.from);
}

/* What came meanwhile, in its order. */
void fl_lane_catch_up(fl_ps_lane *l)
{
    fl_parked *one = l->behind;

    l->behind = NULL;
    l->last_behind = &l->behind;
    for (const fl_parked *p = one; p; p = p->next)
        l->stream[p->head.stream].behind = NULL;
    while (one) {
        fl_parked *next = one->next;

        fl_lane_uncount_parked(l, one); /* it may be parked anew */
        if (l->error.code == FLEET_OK &&
            fl_msg_decode(one->packet, &l->msg) == FLEET_OK) {
            if (waits_for_command(l))
                fl_lane_park_behind(l, &one->from, one->packet);
            else
                handle_message(l, &one->from, one->packet);
        }
        one->next = NULL;
        fl_lane_unpark(l, one);
        one = next;
    }
}

void fl_lane_note_change(fl_ps_lane *l, fleet_status status)
{
    if (l->command.kind == FL_COMMAND_LOAD ||
        l->command.kind == FL_COMMAND_WRITE)
        l->aggregate.life++; /* also if it has failed half-way */
    fl_aggregate_live_forget(&l->aggregate);
    if (l->command.kind == FL_COMMAND_LOAD && status == FLEET_OK)
        l->version = l->o.layout->store->updates;
}

/* What a log cannot do again: a write that has failed half-way, for a reason
 * that may be gone by then. */
static bool is_past_replay(const fl_ps_lane *l, fleet_status status)
{
    return l->command.kind == FL_COMMAND_WRITE && l->o.journal.put &&
           (status == FLEET_ENOMEM || status == FLEET_EIO ||
            status == FLEET_ETIMEDOUT);
}

void fl_lane_end_command(fl_ps_lane *l, fleet_status status, const char *text,
                         const uint64_t sums[2])
{
    l->busy = l->saving = false;
    l->can_serve = true;
    fl_lane_command_had_store(l);
    fl_lane_note_change(l, status);
    fl_feed_note_command(l);
    if (l->loading)
        fl_lane_end_load(l, status, text);
    else if (is_past_replay(l, status))
        fl_lane_abort(l, status, text ? text : fleet_status_name(status));
    else if (l->requester.packet)
        answer_query(l, status, text, sums);
    else
        finish_command(l, status, text);
    fl_packet_drop(l->requester.packet);
    fl_free(l->command.text);
    l->requester = (fl_parked){0};
    l->command = (fl_lane_command){0};
}

void fl_lane_command_done(fl_ps_lane *l, fleet_status status, const char *text,
                          uint64_t sum, uint64_t rows, int64_t now_ms)
{
    const uint64_t sums[2] = {sum, rows};

    l->now_ms = fl_awake_at(&l->awake, now_ms);
    if (l->replaying) {
        fl_lane_replay_command_done(l, status, text);
        return;
    }
    fl_lane_end_command(l, status, text, sums);
    fl_lane_advance(l);
    fl_lane_catch_up(l);
}
