/* lane_follow.c - a lane that follows another one: it asks for records and
 * applies them, and leads when a worker wants it to. */
#include "ps/server/lane_follow.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "ps/server/lane_copy.h"

enum { ASKS_OF_PEER = 8 }; /* so often in a peer deadline it is heard of */

/* --- asking --------------------------------------------------------------- */

/* The first record that it does not have; 0: it does not know its leader. A
 * load or a write that is being done again may fail. */
static uint64_t first_wanted(const fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    if (!r->attached)
        return 0;
    return fl_lane_replay_waits(l) ? r->want - 1 : r->want;
}

static void begin_ask(fl_ps_lane *l, fl_msg_writer *w)
{
    fl_replica *r = l->replica;
    const fl_msg_head head = {.version = FL_MSG_VERSION,
                              .kind = FL_MSG_FOLLOW,
                              .flags = FL_MSG_CRC_ALL,
                              .job = fl_lane_job(l),
                              .peer = l->o.identity->nonce,
                              .generation = l->o.identity->generation,
                              .view = fl_replica_view(l),
                              .stream = FL_REPLICA_STREAM,
                              .incarnation = l->o.process,
                              .step = first_wanted(l),
                              .request = ++r->asked};

    r->asked_ms = l->now_ms;
    fl_msg_begin(w, l->o.pool, &head);
    if (l->o.seeks)
        w->head.flags |= FL_MSG_COMMAND;
}

static void end_ask(fl_ps_lane *l, fl_msg_writer *w)
{
    fl_packet *p;

    if (fl_msg_end(w, true, &p) != FLEET_OK)
        return; /* it asks again soon */
    l->host.ask(l->host.arg, p);
    fl_packet_drop(p);
}

/* Until it is a copy, it says where workers find it. */
static void ask_leader(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    fl_msg_writer w;

    begin_ask(l, &w);
    if (r->view == FL_VIEW_NONE && l->o.address)
        fl_msg_text(&w, FL_SECTION_HELLO, l->o.address[l->o.lane]);
    end_ask(l, &w);
}

/* Two copies that were the same are not: whichever is wrong, the job must not
 * go on with either. */
void fl_follower_fail(fl_ps_lane *l)
{
    fl_msg_writer w;
    fl_error error;
    fleet_status code = fl_last_code();

    fl_fail_in(code, "the replica of server %d, lane %d", l->o.server,
               l->o.lane);
    fl_error_take(&error, code);
    begin_ask(l, &w);
    w.head.flags |= FL_MSG_STOP;
    w.head.request = (uint64_t)code;
    fl_msg_text(&w, FL_SECTION_TEXT, error.text);
    end_ask(l, &w);
    fl_lane_abort(l, code, error.text);
}

/* --- leading -------------------------------------------------------------- */

/* It has every record of which a worker was told. Workers find it one after
 * the other. */
static void lead(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    r->fencing = true;
    r->led_ms = l->now_ms;
    fl_replica_stand_alone(l, r->view + FL_VIEW_TAKEN);
    fl_log_line(l->o.log, l->o.no_move ? FLEET_LOG_WARNING : FLEET_LOG_INFO,
                "server %d, lane %d: its replica leads now, at update %" PRId64
                " (view %u)",
                l->o.server, l->o.lane, l->version, r->view);
    fl_lane_end_replay(l, FLEET_OK, NULL, l->awake.looked_ms);
    for (int i = 0; i < l->o.n_stream; i++)
        if (!l->stream[i].left)
            l->stream[i].heard_ms += (FL_REPLICA_PATIENCE - 1) * l->o.peer_ms;
    fl_follower_fence(l);
}

static void lead_if_wanted(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    if (r->voted && !fl_lane_replay_waits(l) && r->at == r->batch_size &&
        l->state == FL_LANE_RUNS)
        lead(l);
}

/* One that is dead never answers, and what is for it is kept: after a while it
 * is told seldom. */
void fl_follower_fence(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    int64_t patience_ms = FL_REPLICA_PATIENCE * l->o.peer_ms;
    int64_t every_ms = l->now_ms - r->led_ms > patience_ms
                           ? patience_ms
                           : l->o.peer_ms / ASKS_OF_PEER;

    if (l->now_ms - r->asked_ms >= every_ms || r->asked_ms == 0)
        ask_leader(l);
}

/* One that is no copy yet may have the address of a leader that is dead, and
 * must not be taken for that one: it says nothing. */
void fl_follower_hears(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    fl_replica *r = l->replica;

    if (!r->attached || head->peer != l->o.identity->nonce)
        return;
    if (head->kind == FL_MSG_ABORT) {
        fl_lane_aborted(l, from, NULL);
        return;
    }
    if (head->kind == FL_MSG_HEARTBEAT && l->o.log_goes)
        fl_lane_answer(l, head, from, FL_ANSWER_OK, FL_NOBODY);
    if (head->kind != FL_MSG_HEARTBEAT || r->view == FL_VIEW_NONE)
        return; /* until it leads: it is sent again */
    if (fl_view_of(head) == r->view + FL_VIEW_TAKEN &&
        head->stream < (uint32_t)l->o.n_stream &&
        !l->stream[head->stream].left) {
        fl_server_enter_run(l->o.identity, fl_msg_run(head->job));
        r->voted = true;
    }
    lead_if_wanted(l);
    fl_lane_answer(l, &l->msg.head, from, FL_ANSWER_OK, FL_NOBODY);
}

/* --- records -------------------------------------------------------------- */

/* As far as it gets: a load or a write takes its time. */
static void apply_batch(fl_ps_lane *l)
{
    fl_replica *r = l->replica;

    while (r->at < r->batch_size && !fl_lane_replay_waits(l) &&
           l->state == FL_LANE_RUNS) {
        uint64_t lsn;
        fl_journal_record record;

        lsn = r->batch_size - r->at < FL_JOURNAL_RECORD_SIZE
                  ? UINT64_MAX
                  : fl_journal_record_lsn(r->batch + r->at);
        if (lsn > r->want ||
            !fl_journal_record_read(r->batch + r->at, r->batch_size - r->at,
                                    lsn, &record)) {
            r->at = r->batch_size; /* damaged on its way: it asks again */
            return;
        }
        r->at += fl_journal_record_bytes(record.size);
        if (lsn < r->want)
            continue;
        if (fl_lane_replay(l, &record, l->awake.looked_ms) != FLEET_OK) {
            fl_follower_fail(l);
            return;
        }
        r->want = record.kind == FL_LANE_RECORD_WHOLE ? FL_COPY_BEHIND + 1
                                                      : r->want + 1;
    }
}

static void go_on(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    apply_batch(l);
    if (r->at < r->batch_size || l->state != FL_LANE_RUNS)
        return;
    lead_if_wanted(l);
    if (fl_replica_follows(l) && !fl_lane_replay_waits(l))
        ask_leader(l);
}

static fleet_status take_batch(fl_ps_lane *l)
{
    fl_replica *r = l->replica;
    const fl_frame *f = &l->msg.column[0][FL_AT_BYTES];

    if (l->msg.head.n_section < 1 ||
        l->msg.section[0].op != FL_SECTION_RECORDS || r->at < r->batch_size)
        return FLEET_OK;
    FL_TRY(fl_grow(&r->batch, &r->batch_capacity, f->size + 1, 1));
    memcpy(r->batch, f->data, f->size);
    r->at = 0;
    r->batch_size = f->size;
    return FLEET_OK;
}

/* Of the process that this one follows. Which one that is says the first answer
 * to any of its lanes, which are threads: then it is that process, too, as
 * workers look for the one that they know. */
static bool is_of_leader(fl_server_identity *of, const fl_msg_head *head)
{
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&of->nonce, &none, head->peer))
        atomic_store(&of->generation, head->generation);
    return atomic_load(&of->nonce) == head->peer;
}

static void enter_run_of(fl_ps_lane *l, const fl_msg_head *head)
{
    if (!fl_msg_run(head->job))
        return;
    fl_server_enter_run(l->o.identity, fl_msg_run(head->job));
    if (l->run == 0)
        l->run = fl_msg_run(head->job);
}

/* The leader does without it. One that says that it has given way does not: its
 * workers come to this copy. */
static void is_dropped(fl_ps_lane *l)
{
    FL_WARN(l->o.log,
            "server %d, lane %d: the lane goes on without this replica, which "
            "was not heard of in time",
            l->o.server, l->o.lane);
    l->replica->dropped = true;
    l->state = FL_LANE_LEFT;
}

/* Its first word: it begins as this one does, or it was at work before and
 * tells what it is. */
static fleet_status attach(fl_ps_lane *l)
{
    bool late = l->msg.head.status == FL_ANSWER_COMING;
    fl_replica *r = l->replica;

    if (r->attached || (!late && l->msg.head.status != FL_ANSWER_OK))
        return FLEET_OK;
    r->attached = true;
    r->late = late;
    return r->load && !late ? fl_lane_replay_load(l, r->load) : FLEET_OK;
}

/* With all that workers were told this is a copy, of the epoch that the leader
 * says. */
static void enter_epoch(fl_ps_lane *l)
{
    uint32_t view = fl_view_of(&l->msg.head);

    if (l->replica->view == FL_VIEW_NONE && fl_view_part(view) == FL_VIEW_BOTH)
        l->replica->view = view;
}

static void hear_words(fl_ps_lane *l)
{
    if (l->msg.head.status != FL_ANSWER_OK)
        return; /* it is asked again soon */
    enter_epoch(l);
    if (take_batch(l) == FLEET_OK)
        go_on(l);
    else
        fl_follower_fail(l);
}

static void hear_leader(fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    fl_replica *r = l->replica;

    enter_run_of(l, head);
    r->heard_ms = l->now_ms;
    if (attach(l) != FLEET_OK) {
        fl_follower_fail(l);
    } else if (head->status == FL_ANSWER_FAILED) {
        fl_lane_abort_as_told(l, head->step,
                              "the lane that it follows has failed");
    } else if (head->status == FL_ANSWER_FENCED) {
        if (fl_view_part(fl_view_of(head)) != FL_VIEW_TAKEN)
            is_dropped(l);
    } else if (head->flags & FL_MSG_LEAVE) {
        l->state = FL_LANE_LEFT;
    } else {
        hear_words(l);
    }
}

void fl_lane_follow(fl_ps_lane *l, fl_packet *p, int64_t now_ms)
{
    const fl_msg_head *head = &l->msg.head;
    fl_replica *r = l->replica;

    l->now_ms = fl_awake_at(&l->awake, now_ms);
    if (fl_msg_decode(p, &l->msg) != FLEET_OK || head->kind != FL_MSG_ANSWER ||
        !fl_msg_same_id(head->job, l->job) || l->state != FL_LANE_RUNS ||
        head->stream != FL_REPLICA_STREAM || !is_of_leader(l->o.identity, head))
        return;
    if (r->role == FL_REPLICA_FOLLOWS)
        hear_leader(l);
    else if (fl_view_of(head) == r->view)
        r->fencing = false;
}

void fl_lane_begin_follow(fl_ps_lane *l, const char *load, int64_t now_ms)
{
    fl_lane_begin_replay(l, now_ms);
    l->replica->load = load;
    ask_leader(l);
}

bool fl_lane_is_late(const fl_ps_lane *l)
{
    return l->replica && l->replica->late;
}

void fl_lane_found_leader(fl_ps_lane *l, int64_t now_ms)
{
    l->now_ms = fl_awake_at(&l->awake, now_ms);
    l->o.seeks = false;
    if (fl_replica_follows(l) && l->state == FL_LANE_RUNS)
        ask_leader(l);
}

void fl_lane_seek_no_more(fl_ps_lane *l)
{
    if (fl_replica_follows(l) && !l->replica->attached &&
        l->state == FL_LANE_RUNS)
        l->state = FL_LANE_LEFT;
}

void fl_lane_cannot_follow(fl_ps_lane *l)
{
    if (l->state == FL_LANE_RUNS)
        fl_follower_fail(l);
}

/* --- deadlines ------------------------------------------------------------ */

/* The leader may have gone on without it, or the job may have ended: that is no
 * failure of what else its process does. */
static void is_unwanted(fl_ps_lane *l, int64_t silent_ms)
{
    FL_WARN(l->o.log,
            "server %d, lane %d: its replica ends: for %.1f s it has heard "
            "neither of the lane that it follows nor of a worker",
            l->o.server, l->o.lane, (double)silent_ms / 1000);
    l->state = FL_LANE_LEFT;
}

static void is_not_found(fl_ps_lane *l, int64_t silent_ms)
{
    char text[200];

    snprintf(text, sizeof text,
             "server %d, lane %d, which this replica follows, has not answered "
             "within %.1f s (connect deadline)",
             l->o.server, l->o.lane, (double)silent_ms / 1000);
    if (!l->o.comes_again) {
        fl_lane_abort(l, FLEET_ETIMEDOUT, text);
        return;
    }
    FL_WARN(l->o.log, "%s: the job, which goes on without it, may have ended",
            text);
    l->state = FL_LANE_LEFT;
}

/* Workers have the peer deadline, and their pauses, to find it, if it is a copy
 * by now. */
static void await_leader(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;
    int64_t silent_ms = l->now_ms - r->heard_ms;
    bool attached = r->attached, is_copy = r->view != FL_VIEW_NONE;
    int64_t most_ms = (is_copy ? 2 * FL_REPLICA_PATIENCE : 1) * l->o.peer_ms;

    if (attached && fl_all_have_left(l) && silent_ms > l->o.peer_ms) {
        l->state = FL_LANE_LEFT;
        return;
    }
    if (attached && silent_ms > most_ms)
        is_unwanted(l, silent_ms);
    else if (!attached && silent_ms > l->o.connect_ms)
        is_not_found(l, silent_ms);
}

void fl_follower_tick(fl_ps_lane *l)
{
    const fl_replica *r = l->replica;

    if (r->at < r->batch_size || r->voted)
        go_on(l);
    if (!fl_replica_follows(l) || l->state != FL_LANE_RUNS)
        return;
    if (l->now_ms - r->asked_ms >= l->o.peer_ms / ASKS_OF_PEER)
        ask_leader(l);
    await_leader(l);
}
