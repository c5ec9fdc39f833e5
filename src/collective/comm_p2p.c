/* comm_p2p.c - messages from rank to rank: each waits in its flow, and begins
 * with its size, so that the receiver sees what does not match. */
#include "collective/comm_p2p.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

static bool is_out(const fl_work *w)
{
    return w->call.kind == FL_CALL_SEND;
}

void fl_p2p_start(fl_comm_base *g, fl_work *w, int channel)
{
    fl_flow *f = &g->flow[w->call.root][channel][is_out(w) ? FL_OUT : FL_IN];

    w->head = w->call.n;
    w->head_moved = w->moved = 0;
    w->wait = fl_wait_for(g->comm.deadline_ms);
    w->next = NULL;
    if (f->first)
        f->last->next = w;
    else
        f->first = w;
    f->last = w;
    g->n_flowing++;
}

static fleet_status move_bytes(fl_comm_base *g, const fl_work *w, int channel,
                               void *p, int64_t n, int64_t *moved)
{
    if (is_out(w))
        return g->transport->write(g, w->call.root, channel, p, n, moved);
    return g->transport->read(g, w->call.root, channel, p, n, moved);
}

static fleet_status check_head(fl_comm_base *g, const fl_work *w)
{
    if (w->head == w->call.n)
        return FLEET_OK;
    return fl_comm_base_fail(
        g, fl_call_sizes_differ(w->call.root, w->head, g->comm.rank, w->call.n),
        true);
}

/* Some of its head, or of itself. */
static fleet_status move_some(fl_comm_base *g, fl_work *w, int channel,
                              bool *moved)
{
    int64_t size = (int64_t)sizeof w->head, n = 0;
    char *data = is_out(w) ? (char *)w->in : w->out;

    if (g->transport->message)
        return g->transport->message(g, w, moved);
    if (w->head_moved < size) {
        FL_TRY(move_bytes(g, w, channel, (char *)&w->head + w->head_moved,
                          size - w->head_moved, &n));
        w->head_moved += n;
        if (!is_out(w) && w->head_moved == size)
            FL_TRY(check_head(g, w));
    } else {
        FL_TRY(move_bytes(g, w, channel, data + w->moved, w->call.n - w->moved,
                          &n));
        w->moved += n;
    }
    if (n > 0)
        *moved = true;
    return FLEET_OK;
}

static fleet_status check_deadline(fl_comm_base *g, fl_work *w)
{
    if (fl_wait_left(&w->wait) > 0)
        return FLEET_OK;
    return fl_comm_base_fail(g,
                             fl_call_timed_out(w->call.root,
                                               g->comm.deadline_ms,
                                               g->comm.rank, &w->call),
                             true);
}

static fleet_status advance_flow(fl_comm_base *g, fl_flow *f, int channel,
                                 bool *moved)
{
    while (f->first) {
        fl_work *w = f->first;
        bool now = false;

        FL_TRY(move_some(g, w, channel, &now));
        if (!now)
            return check_deadline(g, w);
        *moved = true;
        w->wait = fl_wait_for(g->comm.deadline_ms);
        if (w->head_moved == (int64_t)sizeof w->head && w->moved == w->call.n) {
            f->first = w->next;
            if (f->first) /* its turn begins */
                f->first->wait = fl_wait_for(g->comm.deadline_ms);
            g->n_flowing--;
            fl_comm_base_finish(g, w, FLEET_OK);
        }
    }
    return FLEET_OK;
}

bool fl_p2p_is_awaited(const fl_comm_base *g, int rank, int channel, int way)
{
    const fl_work *w = g->flow[rank][channel][way].first;

    while (w && !atomic_load(&w->is_awaited))
        w = w->next;
    return w != NULL;
}

fleet_status fl_p2p_advance(fl_comm_base *g, bool *moved)
{
    *moved = false;
    for (int r = 0; r < g->comm.size; r++)
        for (int channel = 0; channel < FL_N_CHANNEL; channel++)
            for (int way = 0; way < FL_N_WAY; way++)
                FL_TRY(
                    advance_flow(g, &g->flow[r][channel][way], channel, moved));
    return FLEET_OK;
}

void fl_p2p_drop(fl_comm_base *g, fleet_status status)
{
    if (g->transport->drop)
        g->transport->drop(g);
    for (int r = 0; r < g->comm.size; r++)
        for (int i = 0; i < FL_N_CHANNEL * FL_N_WAY; i++) {
            fl_flow *f = &g->flow[r][i / FL_N_WAY][i % FL_N_WAY];

            while (f->first) {
                fl_work *w = f->first;

                f->first = w->next;
                g->n_flowing--;
                fl_comm_base_finish(g, w, status);
            }
        }
}

fleet_status fl_p2p_drive(fl_comm_base *g, fl_work *until)
{
    bool moved;

    do {
        uint32_t seen = g->transport->look ? g->transport->look(g) : 0;

        FL_TRY(fl_comm_base_check(g));
        FL_TRY(fl_p2p_advance(g, &moved));
        if (!moved)
            FL_TRY(g->transport->rest(g, seen));
    } while (until && !atomic_load(&until->done));
    return FLEET_OK;
}

static void start_message(fl_comm_base *g, fl_work *w, fl_call_kind kind,
                          int rank, const void *in, void *out, int64_t n)
{
    *w = (fl_work){.in = in, .out = out, .is_awaited = true};
    w->call = (fl_call){.kind = (int32_t)kind, .root = rank, .n = n};
    fl_p2p_start(g, w, FL_CHANNEL_CALL);
}

static fleet_status check_own(const fl_comm_base *g, const fl_p2p_set *x)
{
    int me = g->comm.rank;

    if (x->to[me] != x->from[me])
        return fl_fail(FLEET_EINVAL,
                       "all_to_all_v: rank %d has %" PRId64
                       " bytes for itself and expects %" PRId64,
                       me, x->to[me], x->from[me]);
    if (x->to[me] > 0)
        memmove(x->in[me], x->out[me], (size_t)x->to[me]);
    return FLEET_OK;
}

fleet_status fl_p2p_exchange(fl_comm_base *g, const fl_p2p_set *x)
{
    int size = g->comm.size, me = g->comm.rank;
    fleet_status status = check_own(g, x);
    fl_work *w;

    if (status != FLEET_OK)
        return fl_comm_base_fail(g, status, true);
    FL_TRY(FL_NEW(&w, (size_t)size * 2 * sizeof *w));
    for (int r = 0; r < size; r++) {
        if (r == me)
            continue;
        start_message(g, &w[2 * r], FL_CALL_SEND, r, x->out[r], NULL, x->to[r]);
        start_message(g, &w[2 * r + 1], FL_CALL_RECV, r, NULL, x->in[r],
                      x->from[r]);
    }
    for (int i = 0; status == FLEET_OK && i < 2 * size; i++)
        if (i / 2 != me && !atomic_load(&w[i].done))
            status = fl_p2p_drive(g, &w[i]);
    if (status != FLEET_OK)
        fl_p2p_drop(g, status); /* the works end with this call */
    fl_free(w);
    return status;
}

fleet_status fl_p2p_all_to_all(fl_comm_base *g, const fl_work *w)
{
    int size = g->comm.size;
    fl_p2p_set x = {.to = w->to, .from = w->from};
    fleet_status status;
    const char **out;
    char **in;

    FL_TRY(FL_NEW(&out, (size_t)size * 2 * sizeof *out));
    in = (char **)(out + size);
    out[0] = w->in;
    in[0] = w->out;
    for (int r = 1; r < size; r++) {
        out[r] = out[r - 1] + w->to[r - 1];
        in[r] = in[r - 1] + w->from[r - 1];
    }
    x.out = out;
    x.in = in;
    status = fl_p2p_exchange(g, &x);
    fl_free(out);
    return status;
}
