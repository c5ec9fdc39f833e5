/* lane_pull.c - reads: rows and blocks of a version, sums over tables. A worker
 * that has left too much unread gets more when it has read. Pulls and steps for
 * rows that a table has out of memory are parked until these are ready. */
#include <stdio.h>

#include "ps/server/lane_budget.h"
#include "ps/server/lane_feed.h"
#include "ps/server/lane_staleness.h"
#include "ps/plain_keys.h"

/* --- rows that may be out of memory --------------------------------------- */

bool fl_lane_want(fl_ps_lane *l, const fl_msg *msg, fl_wanted_list **list)
{
    if (fl_aggregate_want(&l->aggregate, msg, l->now_ms, list) == FLEET_OK)
        return true;
    fl_lane_fail(l);
    return false;
}

/* false: the lane has failed. *missing NULL: all are in memory. */
static bool look_for_rows(fl_ps_lane *l, const fl_wanted_list *list,
                          const fl_wanted_list **missing)
{
    if (fl_wanted_list_missing(list, missing) == FLEET_OK)
        return true;
    fl_lane_fail(l);
    return false;
}

bool fl_lane_has_rows(fl_ps_lane *l, const fl_wanted_list *list)
{
    const fl_wanted_list *missing;

    if (!look_for_rows(l, list, &missing))
        return false;
    l->looks_again = l->looks_again || missing;
    return !missing;
}

void fl_lane_forget_rows(fl_ps_lane *l, fl_wanted_list **list)
{
    fl_wanted_list **last = list;

    if (!l->busy) {
        fl_wanted_list_release(list);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *last = l->unwanted;
    l->unwanted = *list;
    *list = NULL;
}

void fl_lane_command_had_store(fl_ps_lane *l)
{
    fl_wanted_list_release(&l->unwanted);
    l->rows_since_ms = l->now_ms;
    l->looks_again = true;
}

bool fl_lane_looks_again(const fl_ps_lane *l)
{
    return l->looks_again && !l->busy && l->state == FL_LANE_RUNS;
}

void fl_lane_look_again(fl_ps_lane *l, int64_t now_ms)
{
    if (!fl_lane_looks_again(l))
        return;
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    l->looks_again = false;
    l->can_serve = true;
    fl_lane_advance(l);
}

/* --- their deadline ------------------------------------------------------- */

static void check_list(fl_ps_lane *l, const fl_wanted_list *list)
{
    const fl_wanted_list *missing;
    int64_t since;
    char text[256];

    if (!look_for_rows(l, list, &missing) || !missing)
        return;
    since = missing->since_ms > l->rows_since_ms ? missing->since_ms
                                                 : l->rows_since_ms;
    if (l->now_ms - since <= l->o.step_ms)
        return;
    snprintf(
        text, sizeof text,
        "server %d: rows of table \"%.100s\" have not come into memory for "
        "%.1f s (step deadline)",
        l->o.server, missing->rows.rows->name,
        (double)(l->now_ms - since) / 1000);
    fl_lane_abort(l, FLEET_ETIMEDOUT, text);
}

void fl_lane_check_rows(fl_ps_lane *l)
{
    for (int i = 0; i < l->o.n_stream && !l->busy; i++) {
        check_list(l, l->stream[i].wanted);
        for (const fl_parked *p = l->stream[i].pulls; p; p = p->next)
            check_list(l, p->wanted);
    }
}

/* --- pulls ---------------------------------------------------------------- */

static void answer_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_row_cache *cache = l->stream[l->msg.head.stream].row_cache;
    fl_msg_writer w;

    fl_counter_add(&l->counters.pulls, 1);
    fl_staleness_count(l, &l->msg.head);
    l->answered_ms = l->now_ms;
    fl_lane_begin_answer(l, &w, &l->msg.head, FL_ANSWER_OK, FL_NOBODY);
    for (int i = 0; i < l->msg.head.n_section && w.status == FLEET_OK; i++)
        w.status = fl_aggregate_read(&l->aggregate, p, &l->msg, i, &w, cache);
    fl_lane_end_answer(l, &w, from);
}

/* Is it parked already? */
static bool is_parked(fl_ps_lane *l, const fl_peer *from)
{
    fl_parked *p = l->stream[l->msg.head.stream].pulls;

    while (p && p->head.request != l->msg.head.request)
        p = p->next;
    if (p)
        p->from = *from;
    return p != NULL;
}

static bool wants_rows(const fl_msg *msg)
{
    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].op != FL_SECTION_DENSE)
            return true;
    return false;
}

/* NULL: there is no room for it. Else it takes over the rows that it wants. */
static fl_parked *append_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p,
                              size_t bytes, fl_wanted_list **wanted)
{
    fl_parked **at = &l->stream[l->msg.head.stream].pulls;

    while (*at)
        at = &(*at)->next;
    *at = fl_lane_park(l, from, p);
    if (!*at)
        return NULL;
    (*at)->answer_bytes = bytes;
    (*at)->wants_rows = wants_rows(&l->msg);
    (*at)->wanted = *wanted;
    *wanted = NULL;
    l->n_pull++;
    return *at;
}

static void park_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p,
                      size_t bytes, fl_wanted_list **wanted)
{
    const fl_parked *one = append_pull(l, from, p, bytes, wanted);

    if (one && !one->wanted && /* all of its rows are in memory */
        fl_aggregate_find(&l->aggregate, p, &l->msg,
                          l->stream[l->msg.head.stream].row_cache) != FLEET_OK)
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
}

/* Its version has come; its worker has to read first. */
static void defer_pull(fl_ps_lane *l, fl_parked *one)
{
    if (one && !one->deferred)
        fl_counter_add(&l->counters.deferred, 1);
    if (one)
        one->deferred = l->deferred = true;
}

/* The slowest worker is too far behind: lane_staleness.h. */
static void hold_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p,
                      size_t bytes, fl_wanted_list **wanted)
{
    if (append_pull(l, from, p, bytes, wanted))
        fl_counter_add(&l->counters.held, 1);
}

/* Of parameters and tables that there are, and of a size that workers ask
 * for. */
static fleet_status check_pull(const fl_ps_lane *l, size_t *bytes)
{
    FL_TRY(fl_aggregate_check(&l->aggregate, &l->msg));
    *bytes = fl_aggregate_answer_bytes(&l->aggregate, &l->msg);
    if (*bytes > FL_MOST_UNREAD)
        return fl_fail(FLEET_EINVAL, "it asks for %zu bytes: expected %zu",
                       *bytes, FL_MOST_UNREAD);
    return FLEET_OK;
}

/* Its version has come (0: any has), in async its worker's own step is applied,
 * and its rows are in memory. */
static bool can_answer(fl_ps_lane *l, uint32_t stream, uint64_t version,
                       const fl_wanted_list *wanted)
{
    return version <= (uint64_t)l->version &&
           !fl_waits_for_rows(l, &l->stream[stream]) &&
           fl_lane_has_rows(l, wanted);
}

static void take_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p,
                      size_t bytes)
{
    uint32_t stream = l->msg.head.stream;
    fl_wanted_list *wanted = NULL;

    if (fl_lane_want(l, &l->msg, &wanted)) {
        if (!can_answer(l, stream, fl_lane_wanted(l), wanted)) {
            if (l->state == FL_LANE_RUNS)
                park_pull(l, from, p, bytes, &wanted);
        } else if (fl_staleness_holds(l, &l->msg.head)) {
            hold_pull(l, from, p, bytes, &wanted);
        } else if (!fl_lane_may_answer(l, stream, bytes)) {
            defer_pull(l, append_pull(l, from, p, bytes, &wanted));
        } else {
            answer_pull(l, from, p);
        }
    }
    fl_lane_forget_rows(l, &wanted);
}

/* One with plain keys. */
static void take_plain_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    uint64_t version = fl_lane_wanted(l);
    char name[FL_STREAM_NAME];
    size_t bytes;

    if (check_pull(l, &bytes) != FLEET_OK)
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a pull of %s: %s",
                       fl_lane_stream_name(l, name, l->msg.head.stream),
                       fleet_last_error());
    else if (is_parked(l, from))
        return;
    else if (version && version < (uint64_t)l->version)
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a pull of %s is of version %llu, but this is %lld, "
                       "after a load: all workers must make the same calls in "
                       "the same order",
                       fl_lane_stream_name(l, name, l->msg.head.stream),
                       (unsigned long long)version, (long long)l->version);
    else
        take_pull(l, from, p, bytes);
}

void fl_lane_pull(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_packet *plain;
    fleet_status status = fl_plain_keys(l->o.pool, p, &l->msg, &plain);
    char name[FL_STREAM_NAME];

    if (status == FLEET_OK)
        take_plain_pull(l, from, plain);
    else if (status == FLEET_EINVAL)
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a pull of %s: %s",
                       fl_lane_stream_name(l, name, l->msg.head.stream),
                       fleet_last_error());
    else
        fl_lane_abort(l, status, fleet_last_error());
    fl_packet_drop(plain);
}

/* A pull whose worker has to read first keeps those behind it waiting, too. */
static void serve_stream(fl_ps_lane *l, uint32_t stream, bool dense_alone)
{
    fl_stream_state *s = &l->stream[stream];
    fl_parked **at = &s->pulls;

    while (!l->busy && l->state == FL_LANE_RUNS && *at) {
        fl_parked *one = *at;

        if ((dense_alone && one->wants_rows) ||
            fl_staleness_holds(l, &one->head) ||
            !can_answer(l, stream, one->version, one->wanted)) {
            at = &one->next;
            continue;
        }
        if (!fl_lane_may_answer(l, stream, one->answer_bytes)) {
            defer_pull(l, one);
            return;
        }
        *at = one->next;
        one->next = NULL;
        l->n_pull--;
        if (fl_msg_decode(one->packet, &l->msg) == FLEET_OK)
            answer_pull(l, &one->from, one->packet);
        fl_lane_unpark(l, one);
    }
}

/* Answer parked pulls whose version has come; dense_alone: only pulls that want
 * no rows. */
void fl_lane_serve_parked(fl_ps_lane *l, bool dense_alone)
{
    if (l->busy || !l->can_serve)
        return;
    for (int i = 0; i < l->o.n_stream && l->n_pull > 0; i++)
        serve_stream(l, (uint32_t)i, dense_alone);
    l->can_serve = dense_alone;
}

/* The longer no worker has read anything, the longer it takes to look again. */
static int resume_pulls(fl_ps_lane *l)
{
    int64_t wait_ms;

    if (!l->deferred)
        return -1;
    if (!l->busy && l->now_ms > l->looked_ms) {
        l->looked_ms = l->now_ms;
        l->deferred = false;
        l->can_serve = true;
        fl_lane_serve_parked(l, false);
    }
    wait_ms = 1 + (l->now_ms - l->answered_ms) / 4;
    return !l->deferred ? -1 : wait_ms > 1000 ? 1000 : (int)wait_ms;
}

int fl_lane_resume(fl_ps_lane *l, int64_t now_ms)
{
    int pulls_ms, feed_ms;

    if (!l->deferred && !l->feed)
        return -1;
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    pulls_ms = resume_pulls(l);
    feed_ms = fl_feed_serve(l);
    return pulls_ms < 0 || (feed_ms >= 0 && feed_ms < pulls_ms) ? feed_ms
                                                                : pulls_ms;
}

/* Of l->msg: one that exists? */
static bool read_query(const fl_ps_lane *l, fl_lane_command *command)
{
    const fl_section *s = &l->msg.section[0];

    if (l->msg.head.n_section != 1)
        return false;
    if (s->op == FL_SECTION_READ && s->columns & FL_COLUMN_BYTES) {
        *command = (fl_lane_command){.kind = FL_COMMAND_READ};
        return true;
    }
    *command =
        (fl_lane_command){.kind = FL_COMMAND_HASH, .table = (int)s->table};
    return s->op == FL_SECTION_HASH &&
           s->table < (uint32_t)l->o.layout->n_table;
}

static fleet_status begin_query(fl_ps_lane *l)
{
    if (l->command.kind == FL_COMMAND_READ) {
        l->command.text = fl_msg_get_text(&l->msg, FL_SECTION_READ);
        FL_TRY(l->command.text ? FLEET_OK : FLEET_ENOMEM);
    }
    return l->host.begin(l->host.arg, &l->command);
}

void fl_lane_query(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    fl_lane_command command;

    if (!read_query(l, &command)) {
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "worker %u asks for what there is not",
                       l->msg.head.stream);
        return;
    }
    if (l->saving || l->frozen) {
        fl_lane_park_behind(l, from, p);
        return;
    }
    l->busy = true;
    l->command = command;
    l->requester = (fl_parked){
        .from = *from, .packet = fl_packet_keep(p), .head = l->msg.head};
    if (begin_query(l) != FLEET_OK)
        fl_lane_end_command(l, fl_last_code(), fleet_last_error(),
                            (uint64_t[2]){0});
}
