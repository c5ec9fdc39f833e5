/* single.c - a communicator of one rank: what is reduced is copied. */
#include "collective/single.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "collective/wire_type.h"

/* A message that this rank has sent itself and not received; the first is the
 * oldest. */
typedef struct message {
    struct message *next;
    int64_t bytes;
    char data[];
} message;

typedef struct single {
    fl_comm comm; /* first */
    message *sent;
    struct single_work *made;
    fleet_status abort_code; /* FLEET_EPEER after abort() */
    char why[500];
} single;

/* Only a message that has not been sent yet is ever in progress. */
typedef struct single_work {
    struct single_work *previous;
    void *data;
    int64_t bytes;
} single_work;
static single_work nothing; /* the work of every other call */

static fleet_status check_not_aborted(const fl_comm *p)
{
    const single *s = (const single *)p;

    return s->abort_code ? fl_fail(s->abort_code, "%s", s->why) : FLEET_OK;
}

static fleet_status copy_result(fl_comm *p, const void *in, void *out,
                                int64_t bytes, fl_work **work)
{
    FL_TRY(check_not_aborted(p));
    if (in != out && bytes > 0)
        memmove(out, in, (size_t)bytes);
    if (work)
        *work = (fl_work *)&nothing;
    return FLEET_OK;
}

static fleet_status all_reduce(fl_comm *p, fl_reduce how, fl_wire_type type,
                               const void *in, void *out, int64_t n,
                               fl_work **work)
{
    FL_TRY(fl_check_reduce("all_reduce", how, type, n));
    return copy_result(p, in, out, n * fl_wire_size(type), work);
}

static fleet_status reduce_scatter(fl_comm *p, fl_reduce how, fl_wire_type type,
                                   const void *in, void *out, int64_t n,
                                   fl_work **work)
{
    FL_TRY(fl_check_reduce("reduce_scatter", how, type, n));
    return copy_result(p, in, out, n * fl_wire_size(type), work);
}

static fleet_status all_gather(fl_comm *p, const void *in, void *out,
                               int64_t bytes, fl_work **work)
{
    FL_TRY(fl_check_bytes("all_gather", bytes));
    return copy_result(p, in, out, bytes, work);
}

static fleet_status all_to_all_v(fl_comm *p, const void *in,
                                 const int64_t *to_bytes, void *out,
                                 const int64_t *from_bytes, fl_work **work)
{
    FL_TRY(fl_check_counts(to_bytes, from_bytes, 1));
    if (to_bytes[0] != from_bytes[0])
        return fl_fail(FLEET_EINVAL,
                       "all_to_all_v: rank 0 has %" PRId64
                       " bytes for rank 0, which expects %" PRId64,
                       to_bytes[0], from_bytes[0]);
    return copy_result(p, in, out, to_bytes[0], work);
}

static fleet_status single_broadcast(fl_comm *p, void *data, int64_t bytes,
                                     int root, fl_work **work)
{
    FL_TRY(fl_check_bytes("broadcast", bytes));
    FL_TRY(fl_check_rank("broadcast", "root", root, 1));
    return copy_result(p, data, data, bytes, work);
}

static fleet_status single_send(fl_comm *p, const void *data, int64_t bytes,
                                int to, fl_work **work)
{
    single *s = (single *)p;
    message **end = &s->sent, *m;

    FL_TRY(fl_check_bytes("send", bytes));
    FL_TRY(fl_check_rank("send", "receiver", to, 1));
    FL_TRY(FL_NEW(&m, sizeof *m + (size_t)bytes));
    m->bytes = bytes;
    while (*end)
        end = &(*end)->next;
    *end = m;
    return copy_result(p, data, m->data, bytes, work);
}

static fleet_status receive_message(single *s, void *data, int64_t bytes)
{
    message *m = s->sent;
    fleet_status status;

    if (!m)
        return fl_fail(FLEET_ESTATE,
                       "recv: the only rank has sent itself nothing");
    if (m->bytes != bytes)
        return fl_fail(FLEET_EINVAL,
                       "recv: rank 0 sends %" PRId64
                       " bytes to rank 0, which expects %" PRId64,
                       m->bytes, bytes);
    status = copy_result(&s->comm, m->data, data, bytes, NULL);
    s->sent = m->next;
    fl_free(m);
    return status;
}

static fleet_status single_recv(fl_comm *p, void *data, int64_t bytes, int from,
                                fl_work **work)
{
    single *s = (single *)p;
    single_work *w;

    FL_TRY(fl_check_bytes("recv", bytes));
    FL_TRY(fl_check_rank("recv", "sender", from, 1));
    FL_TRY(check_not_aborted(p));
    if (!work)
        return receive_message(s, data, bytes);
    FL_TRY(FL_NEW(&w, sizeof *w));
    *w = (single_work){.previous = s->made, .data = data, .bytes = bytes};
    s->made = w;
    *work = (fl_work *)w;
    return FLEET_OK;
}

static fleet_status single_wait(fl_comm *p, fl_work **work)
{
    single *s = (single *)p;
    single_work **at = &s->made, *w = (single_work *)*work;
    fleet_status status;

    *work = NULL;
    FL_TRY(check_not_aborted(p));
    if (!w || w == &nothing)
        return FLEET_OK;
    while (*at != w)
        at = &(*at)->previous;
    *at = w->previous;
    status = receive_message(s, w->data, w->bytes);
    fl_free(w);
    return status;
}

static fleet_status single_barrier(fl_comm *p)
{
    return check_not_aborted(p);
}

static fleet_status single_split(fl_comm *p, int color, int key,
                                 fl_comm **child)
{
    (void)key;
    *child = NULL;
    FL_TRY(check_not_aborted(p));
    if (color < -1)
        return fl_fail(FLEET_EINVAL, "split: the color is %d, not -1 or more",
                       color);
    return color == -1 ? FLEET_OK : fl_comm_single(child);
}

static fleet_status get_memory(fl_comm *p, int64_t bytes, void **memory)
{
    FL_TRY(check_not_aborted(p));
    FL_TRY(fl_check_bytes("get_memory", bytes));
    return FL_NEW(memory, (size_t)bytes);
}

static void free_memory(fl_comm *p, void *memory)
{
    (void)p;
    fl_free(memory);
}

static void give_up(fl_comm *p, const char *why)
{
    single *s = (single *)p;

    if (s->abort_code)
        return;
    fl_fail(FLEET_EPEER, "rank 0 gave up: %.450s", why);
    strncpy(s->why, fleet_last_error(), sizeof s->why - 1);
    s->abort_code = FLEET_EPEER;
}

static void single_destroy(fl_comm *p)
{
    single *s = (single *)p;
    single_work *previous;
    message *next;

    if (!s)
        return;
    for (single_work *w = s->made; w; w = previous) {
        previous = w->previous;
        fl_free(w);
    }
    for (message *m = s->sent; m; m = next) {
        next = m->next;
        fl_free(m);
    }
    fl_free(s);
}

static const fl_comm_class methods = {
    .name = "self",
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all_v = all_to_all_v,
    .broadcast = single_broadcast,
    .send = single_send,
    .recv = single_recv,
    .barrier = single_barrier,
    .wait = single_wait,
    .split = single_split,
    .get_memory = get_memory,
    .free_memory = free_memory,
    .abort = give_up,
    .destroy = single_destroy,
};

fleet_status fl_comm_single(fl_comm **comm)
{
    single *s;

    *comm = NULL;
    FL_TRY(FL_NEW(&s, sizeof *s));
    s->comm = (fl_comm){.methods = &methods,
                        .size = 1,
                        .ordered = true,
                        .deadline_ms = FL_COMM_DEADLINE_MS};
    *comm = &s->comm;
    return FLEET_OK;
}
