/* lane_update.c - what becomes of whole steps: updates of all workers together
 * or of each alone, clip by global norm, commands begun, passes ended. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_feed.h"
#include "ps/server/lane_replica.h"
#include "ps/server/lane_staleness.h"

/* --- updates -------------------------------------------------------------- */

/* The stream's step is over: number, pieces, answer. */
static void finish_step(fl_ps_lane *l, fl_stream_state *s)
{
    fl_msg_head head = s->request;
    fl_peer from = s->from;

    s->done++;
    if (fl_contributes(s))
        fl_staleness_step(l, head.stream);
    fl_counter_add(&l->counters.steps, 1);
    fl_lane_note_progress(l, head.stream);
    fl_stream_reset(l, s);
    fl_lane_file_stream(l, head.stream);
    fl_lane_answer_applied(l, &head, &from);
}

/* The streams from `first` to before `end`: all of them, or the only one. */
typedef struct range {
    int first, end;
} range;

static range range_of(const fl_ps_lane *l, int only)
{
    return only < 0 ? (range){0, l->o.n_stream} : (range){only, only + 1};
}

static bool takes_part(const fl_ps_lane *l, int stream)
{
    return fl_contributes(&l->stream[stream]);
}

/* Sum up the contributions: all of them, or that of one stream. A heter
 * worker's may be of several batches, with a row or block in each: they are
 * behind one another in it, and summed as if each were a stream's. */
static fleet_status sum_up(fl_ps_lane *l, int only)
{
    int n = only < 0 ? l->streams[FL_STREAMS_CONTRIBUTING].n : 1;
    range r = range_of(l, only);

    fl_aggregate_begin(&l->aggregate);
    for (int i = r.first; i < r.end; i++)
        if (takes_part(l, i))
            FL_TRY(fl_aggregate_add(&l->aggregate, l->stream[i].open,
                                    n > 1 || l->stream[i].heter,
                                    l->stream[i].row_cache));
    return FLEET_OK;
}

static uint32_t count_batches(const fl_ps_lane *l, int only)
{
    range r = range_of(l, only);
    uint32_t n = 0;

    for (int i = r.first; i < r.end; i++)
        if (takes_part(l, i))
            n += l->stream[i].n_batch;
    return n > 0 ? n : 1; /* 0: there is nothing to divide */
}

/* The first worker's: in sync all workers have the same. */
static const fl_update_settings *settings_of(const fl_ps_lane *l, int only)
{
    int i = range_of(l, only).first;

    while (!takes_part(l, i))
        i++;
    return &l->stream[i].settings;
}

/* Their settings are not the same bytes. */
static fleet_status compare_two(const fl_ps_lane *l, uint32_t a, uint32_t b)
{
    char of_a[FL_STREAM_NAME], of_b[FL_STREAM_NAME];
    fl_text difference = {0};
    fleet_status status = FLEET_OK;

    fl_lane_stream_name(l, of_a, a);
    fl_lane_stream_name(l, of_b, b);
    if (fl_update_settings_differ(&l->stream[a].settings, of_a,
                                  &l->stream[b].settings, of_b, &difference))
        status = fl_fail(FLEET_EINVAL,
                         "workers do not train alike: %s: all of them must set "
                         "their optimizer to the same",
                         fl_text_chars(&difference));
    fl_text_done(&difference);
    return status;
}

/* Workers that update together must have set their optimizers alike. */
static fleet_status compare_settings(const fl_ps_lane *l)
{
    int first = -1;
    fleet_status status = FLEET_OK;

    for (int i = 0; i < l->o.n_stream && status == FLEET_OK; i++) {
        if (!takes_part(l, i))
            continue;
        first = first < 0 ? i : first;
        if (memcmp(&l->stream[first].settings, &l->stream[i].settings,
                   sizeof l->stream[i].settings) != 0)
            status = compare_two(l, (uint32_t)first, (uint32_t)i);
    }
    return status;
}

/* In async the record was written before, with records of other steps. */
static fleet_status record_together(fl_ps_lane *l, int only, float clip)
{
    if (!l->o.journal.put || only >= 0)
        return FLEET_OK;
    FL_TRY(fl_lane_record_update(l, l->version, -1, count_batches(l, -1), clip,
                                 settings_of(l, -1)));
    return fl_lane_commit(l);
}

/* One of the workers wants to stop: all of the update are told so, also when
 * they ask again. */
static void pass_on_stop(fl_ps_lane *l, range r)
{
    bool stops = false;

    for (int i = r.first; i < r.end; i++)
        stops = stops || (takes_part(l, i) && l->stream[i].flags & FL_MSG_STOP);
    for (int i = r.first; stops && i < r.end; i++)
        if (takes_part(l, i))
            l->stream[i].stop_step = l->stream[i].done + 1;
}

/* What memory has lost is not trained on. */
static fleet_status check_live(fl_ps_lane *l)
{
    fleet_status status = fl_aggregate_live_check(&l->aggregate);

    if (status == FLEET_OK)
        return status;
    fl_fail_in(status, "after %" PRId64 " updates", l->version);
    return fl_lane_name_server(l, status);
}

/* Weights that are waited for travel while the rows change. */
static void apply_update(fl_ps_lane *l, int only, float clip)
{
    range r = range_of(l, only);

    if (check_live(l) != FLEET_OK ||
        record_together(l, only, clip) != FLEET_OK) {
        fl_lane_fail(l);
        return;
    }
    fl_aggregate_apply_dense(&l->aggregate, l->version, count_batches(l, only),
                             clip, settings_of(l, only));
    l->version++;
    l->o.layout->store->updates = l->version;
    l->can_serve = l->can_serve || l->o.sync || l->deferred || l->looks_again;
    fl_lane_serve_parked(l, true);
    if (fl_aggregate_apply_rows(&l->aggregate) != FLEET_OK) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return;
    }
    fl_aggregate_live_after(&l->aggregate, l->version);
    fl_counter_add(&l->counters.updates, 1);
    l->norming = false;
    l->last_clip = clip;
    l->pending_ms = -1;
    pass_on_stop(l, r);
    for (int i = r.first; i < r.end; i++)
        if (takes_part(l, i))
            finish_step(l, &l->stream[i]);
}

/* --- clip by global norm -------------------------------------------------- */

bool fl_lane_has_clip_norm(const fl_ps_lane *l)
{
    const fleet_optimizer *o = l->o.layout->store->optimizer;

    return l->o.sync && o && o->clip_norm > 0;
}

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

void fl_lane_answer_norms(fl_ps_lane *l, const fl_stream_state *s)
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
    const fl_section *factor = fl_lane_closing_section(&l->msg);

    (void)p;
    if (head.step <= s->done) {
        fl_lane_answer_applied(l, &head, from);
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

/* A command that has come while a snapshot is written. Its stream's part of the
 * update comes behind it. */
static bool holds_command(const fl_ps_lane *l)
{
    uint32_t i = l->frozen ? l->streams[FL_STREAMS_CONTROL].first : FL_NOBODY;

    while (i != FL_NOBODY && !(l->stream[i].flags & FL_MSG_COMMAND))
        i = l->stream[i].link[FL_STREAMS_CONTROL].after;
    return i != FL_NOBODY;
}

/* All streams in the pass have brought their part, and there is at least one
 * such stream. Complete steps of other kinds have been taken. */
static bool is_full(const fl_ps_lane *l)
{
    return l->streams[FL_STREAMS_MISSING].n == 0 &&
           l->streams[FL_STREAMS_CONTRIBUTING].n > 0 && !holds_command(l);
}

/* The next stream whose step has its rows in memory, or has not, from this one
 * of the list on. */
static uint32_t next_stream(fl_ps_lane *l, uint32_t i, bool with_rows)
{
    while (i != FL_NOBODY &&
           fl_lane_has_rows(l, l->stream[i].wanted) != with_rows)
        i = l->stream[i].link[FL_STREAMS_CONTRIBUTING].after;
    return i;
}

static bool update_together(fl_ps_lane *l)
{
    uint32_t first = l->streams[FL_STREAMS_CONTRIBUTING].first;

    if (l->norming || !is_full(l) || next_stream(l, first, false) != FL_NOBODY)
        return false;
    if (compare_settings(l) != FLEET_OK || sum_up(l, -1) != FLEET_OK) {
        fl_lane_fail(l);
        return false;
    }
    if (!fl_lane_has_clip_norm(l)) {
        apply_update(l, -1, 1.0f);
        return true;
    }
    l->norming = true;
    for (int i = 0; i < l->o.n_stream && l->norming; i++)
        if (fl_contributes(&l->stream[i]))
            fl_lane_answer_norms(l, &l->stream[i]);
    return false;
}

/* The steps that are about to be applied, one after the other, are committed
 * together. */
static fleet_status record_alone(fl_ps_lane *l, uint32_t first)
{
    int64_t version = l->version;

    if (!l->o.journal.put)
        return FLEET_OK;
    for (uint32_t i = first; i != FL_NOBODY;) {
        fl_stream_state *s = &l->stream[i];

        FL_TRY(fl_lane_record_update(l, version++, (int)i,
                                     count_batches(l, (int)i), s->clip,
                                     &s->settings));
        s->recorded = true;
        i = next_stream(l, s->link[FL_STREAMS_CONTRIBUTING].after, true);
    }
    return fl_lane_commit(l);
}

/* The next one to be applied: with a journal it is what was recorded, and not
 * what has got its rows since. */
static uint32_t next_alone(fl_ps_lane *l, uint32_t i)
{
    if (!l->o.journal.put)
        return next_stream(l, i, true);
    while (i != FL_NOBODY && !l->stream[i].recorded)
        i = l->stream[i].link[FL_STREAMS_CONTRIBUTING].after;
    return i;
}

static bool update_alone(fl_ps_lane *l)
{
    const fl_stream_list *list = &l->streams[FL_STREAMS_CONTRIBUTING];
    uint32_t i = next_stream(l, list->first, true);
    bool any = i != FL_NOBODY;

    if (any && record_alone(l, i) != FLEET_OK)
        fl_lane_fail(l);
    while (i != FL_NOBODY && l->state == FL_LANE_RUNS) {
        uint32_t after = l->stream[i].link[FL_STREAMS_CONTRIBUTING].after;

        if (sum_up(l, (int)i) == FLEET_OK)
            apply_update(l, (int)i, l->stream[i].clip);
        else
            fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        i = next_alone(l, after);
    }
    return any;
}

/* What is in a save beside training. */
static fleet_status note_cut(fl_ps_lane *l)
{
    if (!l->cut)
        FL_TRY(FL_NEW(&l->cut, (size_t)l->o.n_stream * sizeof *l->cut));
    for (int i = 0; i < l->o.n_stream; i++)
        l->cut[i] = l->stream[i].done;
    l->command.done = l->cut;
    return FLEET_OK;
}

static fl_job_command command_of(fl_section_op op)
{
    return op == FL_SECTION_LOAD    ? FL_COMMAND_LOAD
           : op == FL_SECTION_WRITE ? FL_COMMAND_WRITE
                                    : FL_COMMAND_SAVE;
}

/* A save in async does not need the store for itself. */
static fleet_status start(fl_ps_lane *l, const fl_stream_state *s)
{
    fl_section_op op = (fl_section_op)s->open->msg.section[0].op;

    l->requester = (fl_parked){.head = s->request, .from = s->from};
    l->command.kind = command_of(op);
    l->command.text = fl_msg_get_text(&s->open->msg, op);
    l->command.beside_training = op == FL_SECTION_SAVE && !l->o.sync;
    l->saving = l->command.beside_training;
    l->busy = !l->saving;
    FL_TRY(l->command.text ? FLEET_OK : FLEET_ENOMEM);
    if (l->saving)
        FL_TRY(note_cut(l));
    return l->host.begin(l->host.arg, &l->command);
}

/* One at a time; the next one waits. */
static bool begin_command(fl_ps_lane *l)
{
    uint32_t next;

    for (uint32_t i = l->streams[FL_STREAMS_CONTROL].first; i != FL_NOBODY;
         i = next) {
        fl_stream_state *s = &l->stream[i];

        next = s->link[FL_STREAMS_CONTROL].after;
        if (!(s->flags & FL_MSG_COMMAND) || l->saving || l->frozen)
            continue;
        if (start(l, s) != FLEET_OK)
            fl_lane_end_command(l, fl_last_code(), fleet_last_error(),
                                (uint64_t[2]){0});
        return true;
    }
    return false;
}

/* Streams that leave, and streams whose pass is over: they are part of no
 * update. */
static bool take_ends(fl_ps_lane *l)
{
    bool any = false;
    uint32_t next;

    for (uint32_t i = l->streams[FL_STREAMS_CONTROL].first; i != FL_NOBODY;
         i = next) {
        fl_stream_state *s = &l->stream[i];

        next = s->link[FL_STREAMS_CONTROL].after;
        if (s->flags & FL_MSG_LEAVE) {
            if (fl_lane_record_leave(l, i) != FLEET_OK) {
                fl_lane_fail(l);
                return false;
            }
            s->left = any = true;
            fl_lane_forget_pulls(l, (int)i); /* no process waits for them */
            finish_step(l, s);
        } else if (s->flags & FL_MSG_PASS_END) {
            s->ended = any = true;
            fl_lane_file_stream(l, i);
        }
    }
    return any;
}

void fl_lane_try_end(fl_ps_lane *l)
{
    int64_t most_ms =
        l->o.restart_ms > l->o.peer_ms ? l->o.restart_ms : l->o.peer_ms;
    int silent = 0;

    if (!fl_all_have_left(l))
        return;
    for (int i = 0; i < l->o.n_stream; i++) {
        const fl_stream_state *s = &l->stream[i];

        if (!s->heard && l->now_ms - s->heard_ms <= most_ms)
            return;
        silent += !s->heard;
    }
    if (!fl_feed_is_heard(l) || !fl_replica_may_end(l))
        return;
    if (silent > 0)
        FL_INFO(l->o.log,
                "server %d, lane %d: of %d workers that have left nothing more "
                "was heard: the lane ends, as all have left",
                l->o.server, l->o.lane, silent);
    l->state = FL_LANE_LEFT;
}

void fl_lane_bye(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    uint32_t stream = l->msg.head.stream;
    fl_stream_state *s = &l->stream[stream];

    (void)from;
    (void)p;
    if (!s->left || s->heard)
        return;
    s->heard = true;
    if (fl_lane_record_bye(l, stream) != FLEET_OK)
        fl_lane_fail(l);
}

/* No stream is in the pass any more: it closes, and the next one is open to
 * all. */
static bool close_pass(fl_ps_lane *l)
{
    bool any = l->streams[FL_STREAMS_ENDED].n > 0;

    if (l->streams[FL_STREAMS_ENDED].n + l->streams[FL_STREAMS_LEFT].n <
        l->o.n_stream)
        return false;
    if (any && fl_lane_record_pass(l) != FLEET_OK) {
        fl_lane_fail(l);
        return false;
    }
    if (l->streams[FL_STREAMS_HEARD].n == l->o.n_stream &&
        fl_feed_is_heard(l) && fl_replica_may_end(l))
        l->state = FL_LANE_LEFT; /* else a tick says when */
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

    if (l->o.log_goes && fl_lane_replica(l) == FL_REPLICA_GONE)
        return; /* what it would do is another process's to do */
    while (more && !l->busy && l->state == FL_LANE_RUNS) {
        more = take_ends(l);
        if (l->state == FL_LANE_RUNS)
            more = begin_command(l) || more;
        if (l->busy || l->state != FL_LANE_RUNS)
            break;
        more = (l->o.sync ? update_together(l) : update_alone(l)) || more;
        if (l->state == FL_LANE_RUNS)
            more = close_pass(l) || more;
    }
    fl_lane_serve_parked(l, false);
    fl_lane_try_reduce(l);
}
