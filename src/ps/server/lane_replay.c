/* lane_replay.c - a lane made again from its journal: each record is checked,
 * and applied as its unit was. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/aggregate/update_view.h"
#include "ps/server/lane_follow.h"
#include "ps/server/lane_staleness.h"

void fl_lane_begin_replay(fl_ps_lane *l, int64_t now_ms)
{
    fl_lane_begin_load(l, now_ms);
    l->replaying = true;
}

bool fl_lane_replay_waits(const fl_ps_lane *l)
{
    return l->replay_waits;
}

/* Of the command that is done again, too. */
static uint64_t own_progress(const fl_ps_lane *l)
{
    return l->replayed + (l->replay_waits && l->host.progress
                              ? l->host.progress(l->host.arg)
                              : 0);
}

/* A lane that has read its log waits for the server's other lanes. */
uint64_t fl_lane_replay_progress(const fl_ps_lane *l)
{
    uint64_t bytes, total;

    if (!l->host.loading || !l->host.loading(l->host.arg, &bytes, &total))
        bytes = 0;
    return own_progress(l) + bytes;
}

/* --- what comes meanwhile ------------------------------------------------- */

/* Whose process it is and which steps the lane has is not known yet. A request
 * that is answered WAITING has no other deadline than the step deadline,
 * without progress of the lane's. */
void fl_lane_answer_replaying(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (fl_replica_follows(l)) {
        fl_follower_hears(l, from);
        return;
    }
    if (head->peer != l->o.identity->nonce)
        return;
    switch (head->kind) {
    case FL_MSG_ABORT:
        fl_lane_aborted(l, from, NULL);
        break;
    case FL_MSG_HEARTBEAT:
        fl_lane_answer(l, head, from, FL_ANSWER_OK, FL_NOBODY);
        break;
    case FL_MSG_BYE:
        break;
    default:
        fl_lane_answer(l, head, from, FL_ANSWER_WAITING, FL_NOBODY);
    }
}

/* --- reading a record ----------------------------------------------------- */

static fleet_status is_short(void)
{
    return fl_fail(FLEET_ECORRUPT, "it is too short");
}

/* n streams, whose next step, or number for a sum, it is. */
static fleet_status read_streams(fl_ps_lane *l, fl_record_reader *b, uint32_t n,
                                 bool reduced, const fl_stream_record **streams)
{
    const fl_stream_record *s =
        n <= (uint32_t)l->o.n_stream ? fl_record_take(b, n * sizeof *s) : NULL;

    *streams = s;
    if (!s)
        return is_short();
    for (uint32_t i = 0; i < n; i++) {
        uint64_t next;

        if (s[i].stream >= (uint32_t)l->o.n_stream)
            return fl_fail(FLEET_ECORRUPT, "worker %u of %d", s[i].stream,
                           l->o.n_stream);
        next = (reduced ? l->stream[s[i].stream].reduced
                        : l->stream[s[i].stream].done) +
               1;
        if (s[i].step != next)
            return fl_fail(FLEET_ECORRUPT,
                           "%s %" PRIu64 " of worker %u, expected %" PRIu64,
                           reduced ? "sum" : "step", s[i].step, s[i].stream,
                           next);
    }
    return FLEET_OK;
}

static fleet_status read_section(fl_record_reader *b, fl_piece *piece)
{
    int i = piece->msg.head.n_section;
    fl_frame *column = piece->msg.column[i];
    fl_section_view s;

    if (!fl_section_take(b, &s))
        return is_short();
    memset(column, 0, sizeof piece->msg.column[i]);
    piece->msg.section[i] =
        (fl_section){.table = s.head->table,
                     .op = (uint16_t)s.head->op,
                     .columns = FL_COLUMN_KEYS | FL_COLUMN_VALUES,
                     .n_key = s.head->n_key};
    column[FL_AT_KEYS].size = s.head->n_key * sizeof *s.key;
    column[FL_AT_KEYS].data = (void *)(uintptr_t)s.key;
    column[FL_AT_VALUES].size = (size_t)s.head->n_float * sizeof *s.value;
    column[FL_AT_VALUES].data = (void *)(uintptr_t)s.value;
    piece->msg.head.n_section++;
    return FLEET_OK;
}

/* As pieces of one step, whose columns lie in the record. */
static fleet_status read_sections(fl_ps_lane *l, fl_record_reader *b,
                                  uint32_t n)
{
    size_t n_piece = n / FL_MSG_MOST_SECTION + 1;

    FL_TRY(fl_grow(&l->replay_piece, &l->replay_capacity, n_piece,
                   sizeof *l->replay_piece));
    for (size_t i = 0; i < n_piece; i++) {
        fl_piece *piece = &l->replay_piece[i];

        piece->next = i + 1 < n_piece ? piece + 1 : NULL;
        piece->msg.head =
            (fl_msg_head){.kind = FL_MSG_STEP, .stream = 0, .n_section = 0};
        for (uint32_t j = 0; n > 0 && j < FL_MSG_MOST_SECTION; j++, n--)
            FL_TRY(read_section(b, piece));
        FL_TRY(fl_aggregate_check(&l->aggregate, &piece->msg));
    }
    return FLEET_OK;
}

/* --- applying ------------------------------------------------------------- */

static void step_is_over(fl_ps_lane *l, const fl_stream_record *r)
{
    l->stream[r->stream].done = r->step;
    fl_counter_add(&l->counters.steps, 1);
    fl_lane_file_stream(l, r->stream);
}

static fleet_status compare_hashes(fl_ps_lane *l, fl_record_reader *b,
                                   uint32_t n)
{
    const uint64_t *hash = fl_record_take(b, n * sizeof *hash);

    if (!hash)
        return is_short();
    FL_TRY(fl_aggregate_live_compare(&l->aggregate, hash, n));
    return fl_aggregate_live_check(&l->aggregate);
}

/* Rows that are in a file come first: nothing else has to be done meanwhile. */
static fleet_status bring_rows(const fl_ps_lane *l, fl_wanted_list **wanted)
{
    for (const fl_piece *p = l->replay_piece; p; p = p->next)
        FL_TRY(fl_aggregate_want(&l->aggregate, &p->msg, l->now_ms, wanted));
    return fl_wanted_list_wait(*wanted);
}

static fleet_status apply_sections(fl_ps_lane *l, const fl_update_record *r)
{
    fl_aggregate_begin(&l->aggregate);
    FL_TRY(fl_aggregate_add(&l->aggregate, l->replay_piece, false, NULL));
    fl_aggregate_apply_dense(&l->aggregate, l->version, r->n_batch, r->clip,
                             &r->settings);
    l->version++;
    l->o.layout->store->updates = l->version;
    FL_TRY(fl_aggregate_apply_rows(&l->aggregate));
    fl_aggregate_live_after(&l->aggregate, l->version);
    return FLEET_OK;
}

static fleet_status apply_update(fl_ps_lane *l, const fl_update_record *r)
{
    fl_wanted_list *wanted = NULL;
    fleet_status status = bring_rows(l, &wanted);

    if (status == FLEET_OK)
        status = apply_sections(l, r);
    fl_wanted_list_release(&wanted);
    return status;
}

static fleet_status replay_update(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_update_record *r = fl_record_take(b, sizeof *r);
    const fl_stream_record *stream;

    if (!r)
        return is_short();
    if (r->version != (uint64_t)l->version)
        return fl_fail(FLEET_ECORRUPT,
                       "an update of version %" PRIu64 ", expected %" PRId64,
                       r->version, l->version);
    if (!l->o.layout->store->optimizer)
        return fl_fail(FLEET_ECORRUPT, "an update, and nothing is trained");
    FL_TRY(fl_update_settings_check(&r->settings));
    FL_TRY(read_streams(l, b, r->n_stream, false, &stream));
    FL_TRY(read_sections(l, b, r->n_section));
    FL_TRY(compare_hashes(l, b, r->n_hash));
    FL_TRY(apply_update(l, r));
    fl_counter_add(&l->counters.updates, 1);
    l->last_clip = r->clip;
    for (uint32_t i = 0; i < r->n_stream; i++) {
        if (r->stops)
            l->stream[stream[i].stream].stop_step = stream[i].step;
        fl_staleness_replay_step(l, stream[i].stream);
        step_is_over(l, &stream[i]);
    }
    return FLEET_OK;
}

/* The streams of a pass that has closed, or one that has left. */
static fleet_status replay_streams(fl_ps_lane *l, fl_record_reader *b,
                                   bool leave)
{
    uint32_t n = (uint32_t)(b->left / sizeof(fl_stream_record));
    const fl_stream_record *stream;

    FL_TRY(read_streams(l, b, n, false, &stream));
    for (uint32_t i = 0; i < n; i++) {
        l->stream[stream[i].stream].left = leave;
        step_is_over(l, &stream[i]);
    }
    if (!leave)
        fl_staleness_replay_pass(l, stream, n);
    return FLEET_OK;
}

static fleet_status replay_bye(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_bye_record *r = fl_record_take(b, sizeof *r);

    if (!r)
        return is_short();
    if (r->stream >= (uint32_t)l->o.n_stream || !l->stream[r->stream].left)
        return fl_fail(FLEET_ECORRUPT, "stream %u has not left", r->stream);
    l->stream[r->stream].heard = true;
    fl_lane_file_stream(l, r->stream);
    return FLEET_OK;
}

static fleet_status replay_reduced(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_reduced_record *r = fl_record_take(b, sizeof *r);
    const fl_stream_record *stream;
    const double *numbers;

    if (!r)
        return is_short();
    FL_TRY(read_streams(l, b, r->n_stream, true, &stream));
    numbers = fl_record_take(b, r->n * sizeof *numbers);
    if (!numbers)
        return is_short();
    fl_free(l->reduced);
    l->n_reduced = 0;
    l->reduced = fl_alloc_array((size_t)r->n + 1, sizeof *l->reduced);
    if (!l->reduced)
        return FLEET_ENOMEM;
    if (r->n > 0)
        memcpy(l->reduced, numbers, r->n * sizeof *numbers);
    l->n_reduced = (int)r->n;
    l->reduced_how = r->how;
    l->reduced_first = r->first;
    for (uint32_t i = 0; i < r->n_stream; i++)
        l->stream[stream[i].stream].reduced = stream[i].step;
    return FLEET_OK;
}

/* Leases that the stream was given, one after the other. */
static fleet_status replay_leases(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_lease_record *r = fl_record_take(b, sizeof *r);
    const uint64_t *lease;

    if (!r || !(lease = fl_record_take(b, (size_t)r->n * sizeof *lease)))
        return is_short();
    if (r->stream >= (uint32_t)l->o.n_stream)
        return fl_fail(FLEET_ECORRUPT, "worker %u of %d", r->stream,
                       l->o.n_stream);
    for (uint32_t i = 0; i < r->n; i++)
        FL_TRY(fl_lease_give(&l->leases, r->stream, &r->pass, r->sums,
                             r->first + i, lease[i]));
    return FLEET_OK;
}

/* The server's lanes are made again at once, and one may have written down a
 * later run than another one: the server is of the latest. */
void fl_server_enter_run(fl_server_identity *of, uint32_t run)
{
    uint32_t now = atomic_load(&of->run);

    while ((now == 0 || fl_run_is_later(run, now)) &&
           !atomic_compare_exchange_weak(&of->run, &now, run))
        continue;
}

static fleet_status replay_run(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_run_record *r = fl_record_take(b, sizeof *r);

    if (!r)
        return is_short();
    fl_server_enter_run(l->o.identity, r->run);
    l->run = r->run;
    for (int i = 0; i < l->o.n_stream; i++) {
        l->stream[i].incarnation = 0;
        l->stream[i].nonce = 0;
        *l->stream[i].who = 0;
    }
    return FLEET_OK;
}

static fleet_status replay_place(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_place_record *r = fl_record_take(b, sizeof *r);
    fl_stream_state *s;

    if (!r)
        return is_short();
    if (r->stream >= (uint32_t)l->o.n_stream)
        return fl_fail(FLEET_ECORRUPT, "worker %u of %d", r->stream,
                       l->o.n_stream);
    s = &l->stream[r->stream];
    s->incarnation = r->incarnation;
    s->nonce = r->nonce;
    s->no_log = r->no_log;
    snprintf(s->who, sizeof s->who, "%.*s", (int)sizeof r->who - 1, r->who);
    return FLEET_OK;
}

/* --- commands ------------------------------------------------------------- */

static void command_is_over(fl_ps_lane *l, const fl_stream_record *r)
{
    l->stream[r->stream].command_step = r->step;
    step_is_over(l, r);
}

static const char *command_name(fl_job_command kind)
{
    return kind == FL_COMMAND_LOAD ? "load" : "write";
}

/* Done again, by the host. What became of it once is known. */
static fleet_status begin_again(fl_ps_lane *l, fl_job_command kind,
                                const char *request, size_t size)
{
    l->command =
        (fl_lane_command){.kind = kind, .text = fl_strndup(request, size)};
    if (!l->command.text)
        return FLEET_ENOMEM;
    FL_TRY(l->host.begin(l->host.arg, &l->command));
    l->replay_waits = true;
    return FLEET_OK;
}

/* It has come to that. FLEET_ECORRUPT: once it came to something else. */
static fleet_status end_again(fl_ps_lane *l, fleet_status status,
                              const char *text)
{
    fl_job_command kind = l->command.kind;

    if (l->replay_waits) /* as far as it got */
        l->replayed = own_progress(l);
    l->replay_waits = false;
    fl_lane_note_change(l, status);
    fl_free(l->command.text);
    l->command = (fl_lane_command){.kind = FL_COMMAND_LOAD};
    if (status == l->replay_status)
        return FLEET_OK;
    return fl_fail(status == FLEET_ENOMEM ? status : FLEET_ECORRUPT,
                   "a %s came to \"%s\" once, and to \"%s\" when it was done "
                   "again: %.300s",
                   command_name(kind), fleet_status_name(l->replay_status),
                   fleet_status_name(status), text ? text : "it is well");
}

fleet_status fl_lane_replay_load(fl_ps_lane *l, const char *text)
{
    l->replay_status = FLEET_OK;
    return begin_again(l, FL_COMMAND_LOAD, text, strlen(text));
}

static fleet_status replay_command(fl_ps_lane *l, fl_record_reader *b)
{
    const fl_command_record *r = fl_record_take(b, sizeof *r);
    const fl_stream_record *stream,
        one = {.stream = r ? r->stream : 0, .step = r ? r->step : 0};
    fl_record_reader streams = {(const char *)&one, sizeof one};
    const char *answer, *request;
    fleet_status status;
    fl_stream_state *s;

    if (!r || !(answer = fl_record_take(b, r->answer_size)) ||
        !(request = fl_record_take(b, r->request_size)))
        return is_short();
    FL_TRY(read_streams(l, &streams, 1, false, &stream));
    s = &l->stream[r->stream];
    fl_free(s->command_text);
    s->command_text = r->has_answer ? fl_strndup(answer, r->answer_size) : NULL;
    if (r->has_answer && !s->command_text)
        return FLEET_ENOMEM;
    s->command_status = l->replay_status = (fleet_status)r->status;
    command_is_over(l, &one);
    if (r->request_size == 0)
        return FLEET_OK;
    status = begin_again(l, (fl_job_command)r->kind, request, r->request_size);
    return status == FLEET_OK ? status
                              : end_again(l, status, fleet_last_error());
}

void fl_lane_replay_command_done(fl_ps_lane *l, fleet_status status,
                                 const char *text)
{
    status = end_again(l, status, text);
    if (status == FLEET_OK)
        return;
    fl_lane_name_server(l, status);
    if (fl_replica_follows(l))
        fl_follower_fail(l);
    else
        fl_lane_end_replay(l, status, fleet_last_error(), l->now_ms);
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status replay_record(fl_ps_lane *l, const fl_journal_record *r)
{
    fl_record_reader b = {r->data, r->size};

    switch ((fl_lane_record_kind)r->kind) {
    case FL_LANE_RECORD_RUN:
        return replay_run(l, &b);
    case FL_LANE_RECORD_PLACE:
        return replay_place(l, &b);
    case FL_LANE_RECORD_UPDATE:
        return replay_update(l, &b);
    case FL_LANE_RECORD_LEAVE:
        return replay_streams(l, &b, true);
    case FL_LANE_RECORD_BYE:
        return replay_bye(l, &b);
    case FL_LANE_RECORD_PASS:
        return replay_streams(l, &b, false);
    case FL_LANE_RECORD_REDUCED:
        return replay_reduced(l, &b);
    case FL_LANE_RECORD_COMMAND:
        return replay_command(l, &b);
    case FL_LANE_RECORD_LEASE:
        return replay_leases(l, &b);
    case FL_LANE_RECORD_STATE:
    case FL_LANE_RECORD_DENSE:
    case FL_LANE_RECORD_TABLE:
    case FL_LANE_RECORD_ROWS:
    case FL_LANE_RECORD_WHOLE:
    case FL_LANE_RECORD_LIFE:
        return fl_lane_restore(l, r);
    }
    return fl_fail(FLEET_ECORRUPT, "it is of kind %u", r->kind);
}

fleet_status fl_lane_replay(fl_ps_lane *l, const fl_journal_record *r,
                            int64_t now_ms)
{
    fleet_status status;

    l->now_ms = fl_awake_at(&l->awake, now_ms);
    l->replayed++;
    status = replay_record(l, r);
    if (status == FLEET_OK)
        return status;
    if (status == FLEET_ENOMEM)
        fl_fail_in(status, "record %" PRIu64 " of the log cannot be applied",
                   r->lsn);
    else
        status = fl_fail_in(FLEET_ECORRUPT,
                            "record %" PRIu64 " of the log is none of this "
                            "lane",
                            r->lsn);
    return fl_lane_name_server(l, status);
}

/* A worker has all of its deadline to be heard of again, anew. */
void fl_lane_end_replay(fl_ps_lane *l, fleet_status status, const char *why,
                        int64_t now_ms)
{
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    l->begun_ms = l->now_ms;
    l->replaying = l->replay_waits = l->busy = false;
    for (int i = 0; i < l->o.n_stream; i++)
        l->stream[i].heard_ms = l->now_ms;
    fl_free(l->replay_piece);
    l->replay_piece = NULL;
    l->replay_capacity = 0;
    fl_lane_end_load(l, status, why);
    fl_lane_advance(l);
}
