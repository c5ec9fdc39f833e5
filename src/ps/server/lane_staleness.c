/* lane_staleness.c - see lane_staleness.h: the streams' clocks, the slowest of
 * them, and the histogram.
 *
 * The least clock is looked for among all streams when the last stream that had
 * it has gone on: once for a step of the slowest worker, whatever the other
 * workers do meanwhile. */
#include "ps/server/lane_staleness.h"

/* --- the slowest ---------------------------------------------------------- */

static const fl_stream_list *slowest(const fl_ps_lane *l)
{
    return &l->streams[FL_STREAMS_SLOWEST];
}

static bool is_slowest(const fl_ps_lane *l, uint32_t stream)
{
    return l->stream[stream].link[FL_STREAMS_SLOWEST].in;
}

/* The least clock of the streams that count, but for one; false: there is no
 * other. */
static bool find_least(const fl_ps_lane *l, uint32_t but_for, uint64_t *clock,
                       uint32_t *stream)
{
    bool any = false;

    for (uint32_t i = 0; i < (uint32_t)l->o.n_stream; i++) {
        const fl_stream_state *s = &l->stream[i];

        if (!s->has_clock || i == but_for || (any && s->clock >= *clock))
            continue;
        any = true;
        *clock = s->clock;
        *stream = i;
    }
    return any;
}

/* No stream has the least clock any more: pulls may be answered. */
static void find_slowest(fl_ps_lane *l)
{
    uint32_t first = 0;

    l->can_serve = true;
    if (!find_least(l, FL_NOBODY, &l->least_clock, &first))
        return;
    for (uint32_t i = first; i < (uint32_t)l->o.n_stream; i++)
        if (l->stream[i].has_clock && l->stream[i].clock == l->least_clock)
            fl_lane_put_last(l, i, FL_STREAMS_SLOWEST);
}

/* It goes on, or does not count any more. */
static void leave_slowest(fl_ps_lane *l, uint32_t stream)
{
    if (!is_slowest(l, stream))
        return;
    fl_lane_take_out(l, stream, FL_STREAMS_SLOWEST);
    if (slowest(l)->n == 0)
        find_slowest(l);
    l->can_serve = l->can_serve || slowest(l)->n == 1; /* its own pulls */
}

/* --- clocks --------------------------------------------------------------- */

static void join(fl_ps_lane *l, uint32_t stream)
{
    fl_stream_state *s = &l->stream[stream];

    s->has_clock = true;
    if (slowest(l)->n == 0) /* it is the only one */
        l->least_clock = s->clock;
    s->clock = l->least_clock;
    fl_lane_put_last(l, stream, FL_STREAMS_SLOWEST);
}

static void stop_counting(fl_ps_lane *l, uint32_t stream)
{
    l->stream[stream].has_clock = false;
    leave_slowest(l, stream);
}

/* One that has a clock keeps it, also on a lane that was made again from its
 * journal and has not heard of it yet. */
void fl_staleness_file_stream(fl_ps_lane *l, uint32_t stream)
{
    fl_stream_state *s = &l->stream[stream];
    bool counts = fl_staleness_is_bounded(l) && fl_is_active(s) &&
                  (s->known || s->has_clock);

    if (counts && !s->has_clock)
        join(l, stream);
    else if (!counts && s->has_clock)
        stop_counting(l, stream);
}

void fl_staleness_step(fl_ps_lane *l, uint32_t stream)
{
    if (!fl_staleness_is_bounded(l))
        return;
    l->stream[stream].contributed++;
    l->stream[stream].clock++;
    leave_slowest(l, stream);
}

void fl_staleness_forget(fl_ps_lane *l, uint32_t stream)
{
    l->stream[stream].contributed = 0;
    stop_counting(l, stream); /* it joins anew */
}

/* --- a lane that is made again -------------------------------------------- */

void fl_staleness_replay_step(fl_ps_lane *l, uint32_t stream)
{
    if (!fl_staleness_is_bounded(l))
        return;
    if (!l->stream[stream].has_clock)
        join(l, stream);
    fl_staleness_step(l, stream);
}

/* As lane_update.c closes a pass: no stream counts at that moment. */
void fl_staleness_replay_pass(fl_ps_lane *l, const fl_stream_record *stream,
                              uint32_t n)
{
    if (!fl_staleness_is_bounded(l))
        return;
    for (uint32_t i = 0; i < (uint32_t)l->o.n_stream; i++)
        if (l->stream[i].has_clock)
            stop_counting(l, i);
    for (uint32_t i = 0; i < n; i++)
        join(l, stream[i].stream);
}

void fl_staleness_restore(fl_ps_lane *l)
{
    for (uint32_t i = 0; i < (uint32_t)l->o.n_stream; i++)
        if (is_slowest(l, i))
            fl_lane_take_out(l, i, FL_STREAMS_SLOWEST);
    find_slowest(l);
}

/* --- pulls ---------------------------------------------------------------- */

/* A pull says from how many contributions of its process on its values are
 * used, and one more: 0 is a pull that nothing is trained with. */
static bool has_clock(const fl_ps_lane *l, const fl_msg_head *head)
{
    return fl_staleness_is_bounded(l) && head->kind == FL_MSG_PULL &&
           head->step > 0 && l->stream[head->stream].has_clock;
}

/* Some of these contributions may be on their way. */
static uint64_t clock_of_pull(const fl_ps_lane *l, const fl_msg_head *head)
{
    const fl_stream_state *s = &l->stream[head->stream];
    uint64_t before = head->step - 1;

    return s->clock + (before > s->contributed ? before - s->contributed : 0);
}

/* The stream alone has the least clock: other streams' is one more at least. */
static bool is_alone(const fl_ps_lane *l, uint32_t stream)
{
    return slowest(l)->n == 1 && is_slowest(l, stream);
}

/* Every worker has what it has done itself: it does not wait for its own
 * step. */
static uint64_t staleness_of(const fl_ps_lane *l, const fl_msg_head *head)
{
    uint64_t clock = clock_of_pull(l, head), least = l->least_clock;
    uint32_t other;

    if (is_alone(l, head->stream) &&
        (clock <= least + 1 || !find_least(l, head->stream, &least, &other)))
        return 0;
    return clock > least ? clock - least : 0;
}

bool fl_staleness_holds(const fl_ps_lane *l, const fl_msg_head *head)
{
    return has_clock(l, head) && staleness_of(l, head) > l->o.max_staleness;
}

uint32_t fl_staleness_waits_for(const fl_ps_lane *l, const fl_msg_head *head)
{
    uint32_t stream = slowest(l)->first;
    uint64_t clock;

    if (!fl_staleness_holds(l, head))
        return FL_NOBODY;
    if (is_alone(l, head->stream))
        find_least(l, head->stream, &clock, &stream);
    else if (stream == head->stream)
        stream = l->stream[stream].link[FL_STREAMS_SLOWEST].after;
    return stream;
}

uint32_t fl_staleness_blame(const fl_ps_lane *l, uint32_t stream)
{
    const fl_stream_state *s;

    if (stream == FL_NOBODY)
        return stream;
    s = &l->stream[stream];
    return s->has_clock && s->clock - l->least_clock > l->o.max_staleness
               ? slowest(l)->first
               : stream;
}

void fl_staleness_count(fl_ps_lane *l, const fl_msg_head *head)
{
    fl_lane_counters *n = &l->counters;
    const struct {
        uint64_t most;
        atomic_uint_least64_t *counter;
    } bin[] = {{0, &n->stale_0},
               {1, &n->stale_1},
               {2, &n->stale_2},
               {4, &n->stale_3_to_4},
               {8, &n->stale_5_to_8},
               {16, &n->stale_9_to_16},
               {32, &n->stale_17_to_32},
               {64, &n->stale_33_to_64},
               {UINT64_MAX, &n->stale_over_64}};
    uint64_t staleness;
    size_t i = 0;

    if (!has_clock(l, head))
        return;
    staleness = staleness_of(l, head);
    while (staleness > bin[i].most)
        i++;
    fl_counter_add(bin[i].counter, 1);
}
