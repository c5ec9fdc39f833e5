/* lane_admit.c - whose messages a lane takes: of workers of its run, for its
 * process, of the latest process of each worker. */
#include <stdatomic.h>

#include "ps/server/lane_feed.h"
#include "ps/server/lane_replica.h"
#include "ps/server/lane_staleness.h"

/* A command that is under way goes on: it is the stream's step, whichever
 * process asked for it. A sum that waits for its clip is made anew. */
void fl_lane_forget_process(fl_ps_lane *l, uint32_t stream)
{
    fl_stream_state *s = &l->stream[stream];

    if (fl_contributes(s))
        l->norming = false;
    fl_stream_reset(l, s);
    s->ended = s->spoke = false;
    s->newest_request = s->reported = 0;
    s->newest_piece = 0;
    fl_lane_forget_pulls(l, (int)stream);
    fl_lane_forget_behind(l, (int)stream);
    fl_lane_unpark(l, s->reducing);
    s->reducing = NULL;
    fl_replica_forget_promise(l, stream);
    fl_lane_file_stream(l, stream);
    if (l->streams[FL_STREAMS_CONTRIBUTING].n == 0)
        l->pending_ms = -1;
}

void fl_lane_note_alive(fl_ps_lane *l, uint32_t stream, const fl_peer *from)
{
    fl_stream_state *s = &l->stream[stream];
    bool comes = !s->known;
    char name[FL_STREAM_NAME];

    if (s->absent) {
        FL_INFO(l->o.log, "server %d: %s is back after %.1f s", l->o.server,
                fl_lane_stream_name(l, name, stream),
                (double)(l->now_ms - s->heard_ms) / 1000);
        s->absent = false;
        fl_lane_note_progress(l, stream);
    }
    s->known = true;
    s->peer = *from;
    s->heard_ms = l->now_ms;
    if (comes)
        fl_lane_file_stream(l, stream);
}

/* A process that was replaced has no say any more; a new one forgets what the
 * old one had begun. */
static bool is_current(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    fl_stream_state *s = &l->stream[head->stream];

    if (head->incarnation < s->incarnation) {
        fl_lane_answer(l, head, from, FL_ANSWER_FENCED, FL_NOBODY);
        return false;
    }
    if (head->incarnation > s->incarnation) {
        fl_lane_forget_process(l, head->stream);
        s->incarnation = head->incarnation;
    }
    fl_lane_note_alive(l, head->stream, from);
    fl_lane_note_message(l);
    s->spoke = true;
    return true;
}

bool fl_lane_is_used(const fl_ps_lane *l)
{
    bool is_used = (l->busy && !l->loading) || l->saving;

    for (int i = 0; i < l->o.n_stream; i++)
        is_used = is_used || l->stream[i].done > 0 || l->stream[i].reduced > 0;
    return is_used;
}

void fl_lane_enter_run(fl_ps_lane *l)
{
    uint32_t run = atomic_load(&l->o.identity->run);

    if (run == l->run || l->replaying)
        return;
    if (l->o.log_goes && fl_lane_replica(l) == FL_REPLICA_GONE) {
        l->run = run; /* its log is another process's: it says where it is */
        return;
    }
    if (fl_lane_is_used(l)) {
        fl_lane_abort(l, FLEET_EPEER,
                      "a worker of another run has trained with this server");
        return;
    }
    if (fl_lane_record_run(l, run) != FLEET_OK) {
        fl_lane_fail(l);
        return;
    }
    for (int i = 0; i < l->o.n_stream; i++) {
        fl_stream_state *s = &l->stream[i];

        s->known = false;
        fl_staleness_forget(l, (uint32_t)i);
        fl_lane_forget_process(l, (uint32_t)i);
        s->incarnation = 0;
        s->nonce = 0;
        *s->who = 0;
    }
    l->run = run;
    l->begun_ms = l->now_ms;
}

/* A worker that outlived its servers, or was cut off from them, goes on sending
 * to their addresses. Nothing of it is taken, and the answer tells it that this
 * is another process. */
static bool is_for_this_process(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;
    char name[FL_STREAM_NAME];

    fl_lane_enter_run(l);
    if (head->job == fl_lane_job(l) && head->peer == l->o.identity->nonce &&
        head->generation == l->o.identity->generation)
        return true;
    if (!l->has_warned)
        FL_WARN(l->o.log, "server %d: %s is %s: nothing of it is taken",
                l->o.server, fl_lane_stream_name(l, name, head->stream),
                head->job == fl_lane_job(l)
                    ? "a worker of a server process that was replaced"
                    : "a worker of another run");
    l->has_warned = true;
    fl_counter_add(&l->counters.strays, 1);
    fl_lane_answer(l, head, from, FL_ANSWER_FENCED, FL_NOBODY);
    return false;
}

/* What is for a bucket must come to the lane that keeps it. */
static bool has_same_map(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (fl_view_map(head) == l->o.map->view ||
        !(fl_lane_kinds[head->kind].flags & FL_KIND_NEEDS_STORE))
        return true;
    fl_counter_add(&l->counters.strays, 1);
    fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_ESTATE,
                   "server %d keeps map %u of the buckets, worker %u map %u",
                   l->o.server, l->o.map->view, head->stream,
                   fl_view_map(head));
    return false;
}

/* A key speaks for its own worker alone. */
static bool has_its_key(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (from->sender == 0 || from->sender == (int64_t)head->stream + 1)
        return true;
    fl_counter_add(&l->counters.foreign, 1);
    if (from->sender < 0)
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a message of worker %u came without a key",
                       head->stream);
    else if (from->sender == FL_GUARD_CONTROL)
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "fleetctl has sent a message of worker %u: its key is "
                       "good for commands alone",
                       head->stream);
    else if (from->sender >= FL_GUARD_SERVER)
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "server %d has sent a message of worker %u: its key is "
                       "good for copies of lanes alone",
                       from->sender - FL_GUARD_SERVER, head->stream);
    else if (from->sender >= FL_GUARD_SUBSCRIBER)
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "subscriber %d has sent a message of worker %u: its key "
                       "is good for following alone",
                       from->sender - FL_GUARD_SUBSCRIBER, head->stream);
    else
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "worker %d has sent a message of worker %u: its key "
                       "does not speak for that one",
                       from->sender - 1, head->stream);
    return false;
}

/* With keys fleetctl has its own; without, a process of this machine may. */
static bool may_command(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (from->sender == FL_GUARD_CONTROL ||
        (from->sender == 0 && !from->is_far))
        return true;
    fl_counter_add(&l->counters.foreign, 1);
    if (from->is_far)
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a command of fleetctl came from another machine: "
                       "without keys commands are taken from this one alone");
    else
        fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                       "a command of fleetctl came with a key that is good for "
                       "other things: expected that of control 0");
    return false;
}

/* Of kind ADMIN. If it is refused it was counted, and answered. */
static bool is_command(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (head->stream != FL_CONTROL_STREAM || head->n_section != 1 ||
        l->msg.section[0].op != FL_SECTION_TEXT) {
        fl_counter_add(&l->counters.strays, 1);
        return false;
    }
    if (!may_command(l, from))
        return false;
    if (fl_msg_same_id(head->job, l->job))
        return true;
    fl_counter_add(&l->counters.strays, 1);
    fl_lane_refuse(l, head, from, FL_ANSWER_REFUSED, FLEET_EINVAL,
                   "a command of fleetctl is for another job: this server is "
                   "of \"%.100s\"",
                   l->o.job);
    return false;
}

/* Of this job, of a stream that there is. */
bool fl_lane_admit(fl_ps_lane *l, const fl_peer *from)
{
    const fl_msg_head *head = &l->msg.head;

    if (head->kind == FL_MSG_FEED)
        return fl_feed_admits(l, from);
    if (head->kind == FL_MSG_FOLLOW)
        return fl_replica_admits(l, from);
    if (head->kind == FL_MSG_ADMIN)
        return is_command(l, from);
    if (!has_its_key(l, from))
        return false;
    if (fl_lane_kinds[head->kind].flags & FL_KIND_OF_ANYBODY)
        return true; /* is answered in words */
    if (!fl_msg_same_id(head->job, l->job) ||
        head->stream >= (uint32_t)l->o.n_stream ||
        !fl_lane_kinds[head->kind].handler || head->incarnation == 0) {
        fl_counter_add(&l->counters.strays, 1);
        return false;
    }
    if (l->replaying) {
        fl_lane_answer_replaying(l, from);
        return false;
    }
    return is_for_this_process(l, from) && !fl_replica_is_past(l, from) &&
           is_current(l, from) && has_same_map(l, from);
}
