/* lane_feed.c - subscribers: which processes may ask, what they are answered,
 * how much of the lane's time that takes, and how they hear of the end. */
#include "ps/server/lane_feed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "ps/server/lane_budget.h"
#include "ps/server/lane_replica.h"

/* Work is counted in rows that are looked at, about 100 ns each: a tenth of a
 * millisecond's worth comes back with each millisecond, so that workers have
 * nine tenths whatever subscribers ask for. An answer is 8,192 rows, a ms. */
enum {
    WORK_PER_MS = 1000,
    MOST_WORK = 16384,   /* that is saved up */
    WORK_OF_ANSWER = 50, /* of an empty one */
    BYTES_PER_WORK = 512
};

/* --- which processes may ask ---------------------------------------------- */

static uint32_t number_of(const fl_msg_head *head)
{
    return head->stream & ~FL_FEED_STREAM;
}

/* A key speaks for its own subscriber alone, and no worker's for any. */
static bool has_its_key(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (from->sender == 0 ||
        from->sender == FL_GUARD_SUBSCRIBER + (int64_t)number_of(head))
        return true;
    fl_counter_add(&l->counters.foreign, 1);
    fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                   "a message of subscriber %u came with a key that does not "
                   "speak for it, or without one",
                   number_of(head));
    return false;
}

static bool is_for_this_process(const fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;

    return head->job == fl_lane_job(l) && head->peer == l->o.identity->nonce &&
           head->generation == l->o.identity->generation;
}

/* Of a job that is not this one, a HELLO alone is answered: in words. */
bool fl_feed_admits(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (!(head->stream & FL_FEED_STREAM) || head->n_section != 1 ||
        (!fl_msg_same_id(head->job, l->job) &&
         l->msg.section[0].op != FL_SECTION_HELLO)) {
        fl_counter_add(&l->counters.strays, 1);
        return false;
    }
    return has_its_key(l, from);
}

/* --- the first message ---------------------------------------------------- */

static fleet_status put_tables(const fl_ps_lane *l, fl_json *json)
{
    const fl_partition *layout = l->o.layout;
    fl_json *list;

    FL_TRY(fl_json_put_array(json, "tables", &list));
    for (int i = 0; i < layout->n_table; i++) {
        const fl_rows *rows = layout->table[i];
        fl_json *one = fl_json_object();

        FL_TRY(fl_json_append(list, one));
        FL_TRY(fl_json_put(one, "name", fl_json_string(rows->name)));
        FL_TRY(
            fl_json_put(one, "dim", fl_json_int(rows->counts ? 0 : rows->dim)));
    }
    return FLEET_OK;
}

static fleet_status put_params(const fl_ps_lane *l, fl_json *json)
{
    const fl_partition *layout = l->o.layout;
    fl_json *list;

    FL_TRY(fl_json_put_array(json, "params", &list));
    for (int i = 0; i < layout->n_param; i++) {
        fl_json *one = fl_json_object();

        FL_TRY(fl_json_append(list, one));
        FL_TRY(
            fl_json_put(one, "name", fl_json_string(layout->param[i]->name)));
        FL_TRY(fl_json_put(one, "n", fl_json_int(layout->param[i]->n)));
    }
    return FLEET_OK;
}

/* What there is to follow: numbers are places in these lists. */
static char *describe_job(const fl_ps_lane *l)
{
    fl_json *json = fl_json_object();
    fleet_status status;
    char *text = NULL;

    FL_GOTO(done, fl_json_put(json, "sync", fl_json_bool(l->o.sync)));
    FL_GOTO(done,
            fl_json_put(json, "servers", fl_json_int(l->o.layout->n_server)));
    FL_GOTO(done, put_tables(l, json));
    FL_GOTO(done, put_params(l, json));
    text = fl_json_print(json, false);
done:
    fl_json_free(json);
    return text;
}

static void answer_hello(fl_ps_lane *l, const fl_peer *from)
{
    char *text = describe_job(l);
    fl_msg_writer w;

    if (!text) {
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
        return;
    }
    fl_lane_begin_answer(l, &w, &l->msg.head, FL_ANSWER_OK, FL_NOBODY);
    w.head.step = (uint64_t)l->o.server;
    w.head.flags |= FL_MSG_CRC_ALL;
    for (int i = 0; i < l->o.n_lane; i++)
        fl_msg_text(&w, FL_SECTION_HELLO, l->o.address[i]);
    fl_msg_text(&w, FL_SECTION_TEXT, text);
    fl_free(text);
    fl_lane_end_answer(l, &w, from);
}

/* A subscriber looks for all lanes of a server where that is. */
static const char is_elsewhere[] =
    "a lane has gone to another process, where a feed does not find it";

static bool all_are_here(const fl_ps_lane *l)
{
    bool all = atomic_load(&l->o.identity->moved) == 0;

    for (int i = 0; i < l->o.n_lane; i++)
        all = all && l->o.address[i]; /* one that has come has its own alone */
    return all;
}

static void refuse_moved(fl_ps_lane *l, const fl_peer *from)
{
    fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EUNSUPPORTED,
                   "subscriber %u: %s", number_of(&l->msg.head), is_elsewhere);
}

/* A server that loads, or is made again from its journal, has nothing yet. */
static void take_hello(fl_ps_lane *l, const fl_peer *from)
{
    uint64_t bytes, total;
    char *job = fl_msg_get_text(&l->msg, FL_SECTION_HELLO);

    if (!job || strcmp(job, l->o.job) != 0)
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "the subscriber follows job \"%.100s\", this server is "
                       "of \"%s\"",
                       job ? job : "", l->o.job);
    else if (!all_are_here(l))
        refuse_moved(l, from);
    else if (l->replaying || fl_lane_is_loading(l, &bytes, &total) ||
             (l->run == 0 && l->o.server > 0))
        fl_lane_answer(l, &l->msg.head, from, FL_ANSWER_COMING, FL_NOBODY);
    else
        answer_hello(l, from);
    fl_free(job);
}

/* --- places --------------------------------------------------------------- */

static fleet_status check_dense(const fl_ps_lane *l)
{
    size_t bytes = fl_aggregate_feed_most_dense(&l->aggregate);

    if (bytes <= FL_SLICE_DENSE)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "a lane has %zu bytes of dense parameters: a feed can bring "
                   "%d of each; more servers, or lanes, have less each",
                   bytes, (int)FL_SLICE_DENSE);
}

/* Rows that were written by hand before have the version of the next update. */
static fleet_status begin_feed(fl_ps_lane *l)
{
    fl_feed *f;
    fleet_status status;

    FL_TRY(check_dense(l)); /* before the list, which is large, is made */
    FL_TRY(FL_NEW(&f, sizeof *f));
    status = fl_feed_log_begin(&f->log, l->o.layout, l->o.most_changes);
    if (status != FLEET_OK) {
        fl_free(f);
        return status;
    }
    if (l->aggregate.life > 0)
        f->log.written = (uint64_t)l->version + 1;
    f->epoch = fl_mix((uint64_t)l->o.identity->nonce << 32 ^
                      (uint64_t)l->now_ms << 5 ^ (uint64_t)l->o.lane) |
               1;
    f->budget = MOST_WORK;
    f->counted_ms = l->now_ms;
    f->left_ms = -1;
    l->feed = f;
    l->aggregate.feed = &f->log;
    return FLEET_OK;
}

void fl_feed_done(fl_ps_lane *l)
{
    if (!l->feed)
        return;
    l->aggregate.feed = NULL;
    fl_feed_log_done(&l->feed->log);
    fl_free(l->feed);
    l->feed = NULL;
}

/* The subscriber's place, or a free one, which it gets; NULL: there is none. A
 * process that has come in place of another one has its place, too. */
static fl_subscriber *find_place(fl_feed *f, const fl_msg_head *head)
{
    fl_subscriber *free_one = NULL;

    for (int i = 0; i < FL_MOST_SUBSCRIBER; i++) {
        fl_subscriber *s = &f->subscriber[i];

        if (s->incarnation == 0)
            free_one = free_one ? free_one : s;
        else if (s->number == number_of(head))
            return s;
    }
    return free_one;
}

static fl_subscriber *take_place(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    fl_subscriber *s;

    if (!l->feed && begin_feed(l) != FLEET_OK) {
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, fl_last_code(),
                       "subscriber %u: %s", number_of(head),
                       fleet_last_error());
        return NULL;
    }
    s = find_place(l->feed, head);
    if (!s) {
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EEXIST,
                       "subscriber %u: %d others follow this job, and there is "
                       "room for no more",
                       number_of(head), (int)FL_MOST_SUBSCRIBER);
        return NULL;
    }
    if (s->incarnation != head->incarnation)
        *s = (fl_subscriber){.number = number_of(head),
                             .incarnation = head->incarnation,
                             .dense_ms = l->now_ms};
    s->peer = *from;
    s->heard_ms = l->now_ms;
    return s;
}

/* --- questions ------------------------------------------------------------ */

static bool read_position(const fl_msg *msg, fl_feed_position *p)
{
    const fl_frame *bytes = &msg->column[0][FL_AT_BYTES];

    if (msg->section[0].op != FL_SECTION_FEED || bytes->size != sizeof *p)
        return false;
    memcpy(p, bytes->data, sizeof *p);
    return true;
}

/* One that waits and asks again hears that the lane lives. */
static void take_question(fl_ps_lane *l, const fl_peer *from)
{
    fl_feed_position position;
    fl_subscriber *s;

    if (!read_position(&l->msg, &position) || l->msg.head.incarnation == 0) {
        fl_counter_add(&l->counters.bad, 1);
        return;
    }
    if (!l->feed && l->busy) { /* what a command writes is not in a list yet */
        fl_lane_answer(l, &l->msg.head, from, FL_ANSWER_WAITING, FL_NOBODY);
        return;
    }
    s = take_place(l, from);
    if (!s)
        return;
    if (s->asks && s->request.request == l->msg.head.request)
        fl_lane_answer(l, &l->msg.head, from, FL_ANSWER_WAITING, FL_NOBODY);
    s->asks = true;
    s->request = l->msg.head;
    s->position = position;
    fl_feed_serve(l);
}

void fl_lane_feed(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    (void)p;
    if (l->error.code != FLEET_OK) {
        fl_lane_refuse(l, &l->msg.head, from, FL_ANSWER_REFUSED, l->error.code,
                       "%s", l->error.text);
    } else if (l->msg.section[0].op == FL_SECTION_HELLO) {
        take_hello(l, from);
    } else if (l->replica && l->replica->moves &&
               l->replica->role == FL_REPLICA_GONE) {
        refuse_moved(l, from);
    } else if (l->replaying) {
        fl_lane_answer(l, &l->msg.head, from, FL_ANSWER_WAITING, FL_NOBODY);
    } else {
        fl_lane_enter_run(l);
        if (is_for_this_process(l))
            take_question(l, from);
        else
            fl_lane_answer(l, &l->msg.head, from, FL_ANSWER_FENCED, FL_NOBODY);
    }
}

/* --- what it is answered -------------------------------------------------- */

/* What it has is of another feed, or the list has gone on without it: then it
 * gets what has changed since, unless rows have gone that it would not hear of.
 * Is all that it has void? */
static bool continue_from(fl_ps_lane *l, fl_subscriber *s)
{
    fl_feed *f = l->feed;
    fl_feed_position *p = &s->position;
    bool lost = p->table == 0 && p->end < f->log.begin;

    if (p->epoch == f->epoch && !lost &&
        fl_aggregate_feed_check(&l->aggregate, p) == FLEET_OK)
        return false;
    if (p->epoch == f->epoch && lost) {
        bool begins = f->log.gone_end > p->end;

        if (l->now_ms >= f->warn_ms) {
            f->warn_ms = l->now_ms + FL_FEED_WARN_MS;
            FL_WARN(l->o.log,
                    "server %d, lane %d: subscriber %u is too slow: the list "
                    "of changes has gone on without it, and it gets %s",
                    l->o.server, l->o.lane, s->number,
                    begins ? "everything" : "the rows that have changed since");
        }
        fl_aggregate_feed_begin(&l->aggregate, f->epoch,
                                begins ? FL_FEED_ALL : p->version, p);
        return begins;
    }
    fl_aggregate_feed_begin(&l->aggregate, f->epoch, FL_FEED_ALL, p);
    return true;
}

static bool wants_blocks(const fl_ps_lane *l, const fl_subscriber *s, bool more)
{
    return !more || l->now_ms - s->dense_ms >= FL_FEED_DENSE_MS;
}

static void put_answer(fl_ps_lane *l, fl_subscriber *s, uint64_t flags,
                       fl_msg_writer *w)
{
    fl_feed *f = l->feed;
    fl_feed_answer answer = {.flags = flags, .version = (uint64_t)l->version};
    size_t blocks = 0;
    void *bytes = NULL;

    if (fl_msg_section(w, FL_SECTION_FEED, 0))
        bytes = fl_msg_column(w, FL_COLUMN_BYTES, sizeof answer);
    fl_aggregate_feed_write(&l->aggregate, &f->rows, w);
    if (wants_blocks(l, s, flags & FL_FLAG_MORE)) {
        blocks = fl_aggregate_feed_dense(&l->aggregate, &s->position);
        fl_aggregate_feed_blocks(&l->aggregate, &s->position, w);
        s->dense_ms = l->now_ms;
    }
    answer.position = s->position;
    if (bytes)
        memcpy(bytes, &answer, sizeof answer);
    f->budget -= WORK_OF_ANSWER + f->rows.looked +
                 (int64_t)((f->rows.bytes + blocks) / BYTES_PER_WORK);
}

/* A question of what has been told already, and not the same one again, says
 * that the answer before it has come. */
static void note_end(fl_subscriber *s, const fl_feed_position *asked)
{
    if (s->told != 0 && s->told != s->request.request &&
        memcmp(asked, &s->position, sizeof *asked) == 0)
        s->over = true;
    else
        s->told = s->request.request;
}

static void answer_question(fl_ps_lane *l, int slot)
{
    fl_subscriber *s = &l->feed->subscriber[slot];
    const fl_feed_position asked = s->position;
    uint64_t flags = continue_from(l, s) ? FL_FLAG_BEGINS : 0;
    fl_msg_writer w;
    fl_packet *p;

    if (fl_aggregate_feed_rows(&l->aggregate, &s->position, &l->feed->rows) !=
        FLEET_OK) {
        fl_lane_fail(l);
        return;
    }
    if (!fl_aggregate_feed_has_all(&l->aggregate, &s->position))
        flags |= FL_FLAG_MORE;
    else if (fl_all_have_left(l))
        flags |= FL_FLAG_OVER;
    s->asks = false;
    fl_lane_begin_answer(l, &w, &s->request, FL_ANSWER_OK, FL_NOBODY);
    put_answer(l, s, flags, &w);
    if (flags & FL_FLAG_OVER)
        note_end(s, &asked);
    if (fl_msg_end(&w, w.head.flags & FL_MSG_CRC_ALL, &p) != FLEET_OK)
        fl_lane_abort(l, FLEET_ENOMEM, fleet_last_error());
    else
        fl_lane_send_feed(l, &s->peer, slot, p);
}

static bool can_answer(const fl_ps_lane *l, int slot)
{
    const fl_subscriber *s = &l->feed->subscriber[slot];

    return s->incarnation != 0 && s->asks && fl_lane_may_feed(l, slot);
}

static void earn_budget(fl_ps_lane *l)
{
    fl_feed *f = l->feed;

    f->budget += (l->now_ms - f->counted_ms) * WORK_PER_MS;
    f->budget = f->budget < MOST_WORK ? f->budget : MOST_WORK;
    f->counted_ms = l->now_ms;
}

int fl_feed_serve(fl_ps_lane *l)
{
    fl_feed *f = l->feed;
    const int first = f ? f->next : 0;
    bool waits = false;

    if (!f || l->state != FL_LANE_RUNS)
        return -1;
    earn_budget(l);
    for (int i = 0; i < FL_MOST_SUBSCRIBER; i++) {
        int slot = (first + i) % FL_MOST_SUBSCRIBER;

        if (!can_answer(l, slot))
            continue;
        if (l->busy || f->budget <= 0) {
            waits = true;
            continue;
        }
        answer_question(l, slot);
        if (l->state != FL_LANE_RUNS)
            return -1;
        f->next = slot + 1;
    }
    return !waits || l->busy ? -1 : (int)(-f->budget / WORK_PER_MS) + 1;
}

/* --- what befalls the lane ------------------------------------------------ */

/* A write is in the list of changes; a load is another model. */
void fl_feed_note_command(fl_ps_lane *l)
{
    if (!l->feed || l->command.kind != FL_COMMAND_LOAD)
        return;
    l->feed->epoch = fl_mix(l->feed->epoch + 2) | 1;
    fl_feed_log_restart(&l->feed->log);
}

void fl_feed_tick(fl_ps_lane *l)
{
    for (int i = 0; l->feed && i < FL_MOST_SUBSCRIBER; i++) {
        fl_subscriber *s = &l->feed->subscriber[i];

        if (s->incarnation == 0 || l->now_ms - s->heard_ms <= l->o.peer_ms)
            continue;
        if (l->o.lane == 0)
            FL_INFO(l->o.log,
                    "server %d: subscriber %u was not heard of for %.1f s: its "
                    "place is free",
                    l->o.server, s->number,
                    (double)(l->now_ms - s->heard_ms) / 1000);
        *s = (fl_subscriber){0};
    }
}

/* Subscribers that still ask get the rest, for a while. */
bool fl_feed_is_heard(fl_ps_lane *l)
{
    fl_feed *f = l->feed;

    if (!f)
        return true;
    if (f->left_ms < 0)
        f->left_ms = l->now_ms;
    if (l->now_ms - f->left_ms > FL_FEED_LINGER_MS)
        return true;
    for (int i = 0; i < FL_MOST_SUBSCRIBER; i++) {
        const fl_subscriber *s = &f->subscriber[i];

        if (s->incarnation != 0 && !s->over &&
            l->now_ms - s->heard_ms <= FL_FEED_ACTIVE_MS)
            return false;
    }
    return true;
}

static void tell_all(fl_ps_lane *l, fleet_status code, const char *text)
{
    for (int i = 0; l->feed && i < FL_MOST_SUBSCRIBER; i++) {
        const fl_subscriber *s = &l->feed->subscriber[i];
        const fl_msg_head head = {.version = FL_MSG_VERSION,
                                  .kind = FL_MSG_ABORT,
                                  .job = fl_lane_job(l),
                                  .generation = l->o.identity->generation,
                                  .peer = l->o.identity->nonce,
                                  .stream = FL_FEED_STREAM | s->number,
                                  .step = (uint64_t)code};
        fl_msg_writer w;
        fl_packet *p;

        if (s->incarnation == 0)
            continue;
        fl_msg_begin(&w, l->o.pool, &head);
        fl_msg_text(&w, FL_SECTION_TEXT, text);
        if (fl_msg_end(&w, true, &p) == FLEET_OK)
            fl_lane_send_feed(l, &s->peer, i, p);
    }
}

void fl_feed_abort(fl_ps_lane *l)
{
    tell_all(l, l->error.code, l->error.text);
}

void fl_feed_moves(fl_ps_lane *l)
{
    tell_all(l, FLEET_EUNSUPPORTED, is_elsewhere);
}
