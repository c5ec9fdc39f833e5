/* lane_streams.c - which streams are missing, and which have brought what:
 * lists that a lane looks at in place of all its streams. */
#include "ps/server/lane_staleness.h"

/* Does the stream belong into that list as it is now? */
static bool belongs(const fl_stream_state *s, fl_stream_list_kind kind)
{
    bool over = s->complete && s->flags & FL_MSG_PASS_END && s->ended;

    switch (kind) {
    case FL_STREAMS_MISSING:
        return fl_is_active(s) && !s->complete;
    case FL_STREAMS_CONTRIBUTING:
        return fl_contributes(s);
    case FL_STREAMS_CONTROL:
        return s->complete && s->flags & FL_MSG_CONTROL && !over;
    case FL_STREAMS_ENDED:
        return s->ended && !s->left;
    case FL_STREAMS_LEFT:
        return s->left;
    case FL_STREAMS_HEARD:
        return s->left && s->heard;
    case FL_STREAMS_REDUCING:
        return s->reducing != NULL;
    default: /* FL_STREAMS_UNREDUCED */
        return !s->left && !s->reducing && !s->heter;
    }
}

void fl_lane_take_out(fl_ps_lane *l, uint32_t stream, fl_stream_list_kind kind)
{
    fl_stream_list *list = &l->streams[kind];
    fl_stream_state *s = &l->stream[stream];
    uint32_t before = s->link[kind].before, after = s->link[kind].after;

    *(before == FL_NOBODY ? &list->first
                          : &l->stream[before].link[kind].after) = after;
    *(after == FL_NOBODY ? &list->last : &l->stream[after].link[kind].before) =
        before;
    s->link[kind].in = false;
    list->n--;
}

void fl_lane_put_last(fl_ps_lane *l, uint32_t stream, fl_stream_list_kind kind)
{
    fl_stream_list *list = &l->streams[kind];
    fl_stream_state *s = &l->stream[stream];

    s->link[kind].in = true;
    s->link[kind].before = list->last;
    s->link[kind].after = FL_NOBODY;
    *(list->n == 0 ? &list->first : &l->stream[list->last].link[kind].after) =
        stream;
    list->last = stream;
    list->n++;
}

void fl_lane_file_stream(fl_ps_lane *l, uint32_t stream)
{
    for (int i = 0; i < FL_STREAMS_SLOWEST; i++) {
        fl_stream_list_kind kind = (fl_stream_list_kind)i;
        bool in = belongs(&l->stream[stream], kind);

        if (in && !l->stream[stream].link[kind].in)
            fl_lane_put_last(l, stream, kind);
        else if (!in && l->stream[stream].link[kind].in)
            fl_lane_take_out(l, stream, kind);
    }
    fl_staleness_file_stream(l, stream);
}

void fl_lane_file_all(fl_ps_lane *l)
{
    for (int kind = 0; kind < FL_STREAM_LISTS; kind++)
        l->streams[kind] =
            (fl_stream_list){.first = FL_NOBODY, .last = FL_NOBODY};
    for (int i = 0; i < l->o.n_stream; i++)
        fl_lane_file_stream(l, (uint32_t)i);
}

/* In lists of missing streams it goes behind all other streams. */
void fl_lane_note_progress(fl_ps_lane *l, uint32_t stream)
{
    static const fl_stream_list_kind kinds[] = {
        FL_STREAMS_MISSING, FL_STREAMS_UNREDUCED, FL_STREAMS_SLOWEST};

    l->stream[stream].progress++;
    l->stream[stream].progress_ms = l->now_ms;
    l->latest = stream;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (l->stream[stream].link[kinds[i]].in) {
            fl_lane_take_out(l, stream, kinds[i]);
            fl_lane_put_last(l, stream, kinds[i]);
        }
}

uint32_t fl_lane_missing(const fl_ps_lane *l)
{
    return l->norming
               ? l->latest
               : fl_staleness_blame(l, l->streams[FL_STREAMS_MISSING].first);
}

uint32_t fl_lane_missing_reduce(const fl_ps_lane *l)
{
    return fl_staleness_blame(l, l->streams[FL_STREAMS_UNREDUCED].first);
}
