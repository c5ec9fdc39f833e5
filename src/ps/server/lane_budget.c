/* lane_budget.c - a worker's share of a lane's memory: what is counted, and
 * what is too much. */
#include "ps/server/lane_budget.h"

#include <string.h>

/* --- requests that are kept ----------------------------------------------- */

/* A parked message takes more than its bytes; and many small ones make a list
 * that is walked through. */
enum { AROUND_PARKED = 4 << 10 };

/* Of a step the bytes share the room of open steps. */
static size_t open_part(int kind, const fl_packet *p)
{
    return kind == FL_MSG_STEP ? p->bytes : 0;
}

static size_t parked_part(int kind, const fl_packet *p)
{
    return AROUND_PARKED + (kind == FL_MSG_STEP ? 0 : p->bytes);
}

/* A stream has one sum over workers at most; there is room for it besides. */
bool fl_lane_may_park(fl_ps_lane *l, const fl_packet *p)
{
    const fl_stream_state *s = &l->stream[l->msg.head.stream];
    int kind = l->msg.head.kind;
    size_t open = s->open_bytes + s->behind_bytes + open_part(kind, p);
    size_t parked = s->parked_bytes + parked_part(kind, p);

    if (kind == FL_MSG_REDUCE ||
        (open <= l->o.most_open && parked <= l->o.most_parked))
        return true;
    fl_counter_add(&l->counters.dropped, 1);
    return false;
}

void fl_lane_count_parked(fl_ps_lane *l, fl_parked *p)
{
    fl_stream_state *s = &l->stream[p->head.stream];
    size_t open = open_part(p->head.kind, p->packet);
    size_t parked = parked_part(p->head.kind, p->packet);

    p->counts = true;
    s->behind_bytes += open;
    s->parked_bytes += parked;
    fl_counter_add(&l->counters.parked_bytes, open + parked);
}

void fl_lane_uncount_parked(fl_ps_lane *l, fl_parked *p)
{
    fl_stream_state *s = &l->stream[p->head.stream];
    size_t open = open_part(p->head.kind, p->packet);
    size_t parked = parked_part(p->head.kind, p->packet);

    if (!p->counts)
        return;
    p->counts = false;
    s->behind_bytes -= open;
    s->parked_bytes -= parked;
    fl_counter_add(&l->counters.parked_bytes, -(uint64_t)(open + parked));
}

/* --- answers that are not read -------------------------------------------- */

bool fl_lane_may_answer(const fl_ps_lane *l, uint32_t stream, size_t bytes)
{
    size_t held = fl_ledger_held(l->ledger, (int)stream);

    return held == 0 || held + bytes <= l->o.most_unread;
}

/* A worker's own account, on its present connection; all other peers share
 * one, so that none of them can take a worker's share. */
static int account_of(const fl_ps_lane *l, const fl_peer *peer, uint32_t stream)
{
    const fl_stream_state *s;

    if (stream >= (uint32_t)l->o.n_stream)
        return l->o.n_stream;
    s = &l->stream[stream];
    return s->known && s->peer.size == peer->size &&
                   memcmp(s->peer.id, peer->id, peer->size) == 0
               ? (int)stream
               : l->o.n_stream;
}

static int account_of_place(const fl_ps_lane *l, int place)
{
    return l->o.n_stream + 1 + place;
}

bool fl_lane_may_feed(const fl_ps_lane *l, int place)
{
    return fl_ledger_held(l->ledger, account_of_place(l, place)) <
           l->o.most_small;
}

void fl_lane_send_feed(fl_ps_lane *l, const fl_peer *to, int place,
                       fl_packet *p)
{
    fl_packet_charge(p, l->ledger, account_of_place(l, place));
    l->host.send(l->host.arg, to, p);
    fl_packet_drop(p);
}

bool fl_lane_charge(fl_ps_lane *l, const fl_peer *to, uint32_t stream,
                    fl_packet *p)
{
    int account = account_of(l, to, stream);
    size_t most = l->o.most_small;

    if (account < l->o.n_stream)
        most += l->o.most_unread;
    if (fl_ledger_held(l->ledger, account) >= most) {
        fl_counter_add(&l->counters.unanswered, 1);
        return false;
    }
    fl_packet_charge(p, l->ledger, account);
    return true;
}

void fl_lane_send(fl_ps_lane *l, const fl_peer *to, uint32_t stream,
                  fl_packet *p)
{
    if (fl_lane_charge(l, to, stream, p))
        l->host.send(l->host.arg, to, p);
    fl_packet_drop(p);
}
