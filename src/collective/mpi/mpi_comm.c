/* mpi_group.c - ranks of several hosts: MPI's own algorithms, which are begun
 * and looked after, never waited for, so that every wait has its deadline and
 * hears of the others' failures.
 *
 * Before a call of all ranks each tells every other what it calls: a difference
 * is named, and so is a rank that does not come. Reductions that MPI does not
 * have (an order, half precision, the largest with NaN) are an exchange of
 * chunks, sums in rank order, and another exchange.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/mpi/mpi.h"

enum {
    MOST_MOVED = 4 << 20, /* bytes of a stream at a time */
    TAG_CALL = FL_N_CHANNEL,
    TAG_NOTICE,
    FLUSH_MS = 200,
    LEAST_FLUSH_MS = 20
};

/* --- hearing and telling ------------------------------------------------- */

static fleet_status check(fl_mpi_group *m)
{
    int is_here = 0;

    FL_TRY(fl_comm_base_check(&m->base));
    if (fl_mpi_is_given_up()) {
        fl_fail(FLEET_EPEER, "another group of this process has failed");
        return fl_comm_base_fail(&m->base, FLEET_EPEER, false);
    }
    FL_MPI(MPI_Test(&m->hears, &is_here, MPI_STATUS_IGNORE));
    if (!is_here)
        return FLEET_OK;
    fl_fail((fleet_status)m->heard.code, "%.499s", m->heard.text);
    fl_mpi_give_up();
    return fl_comm_base_fail(&m->base, (fleet_status)m->heard.code, false);
}

/* What is sent may still lie here: MPI moves it on when it is called. */
static void flush(fl_mpi_group *m, int64_t began_ms)
{
    int is_there;

    while (fl_now_ms() - began_ms < LEAST_FLUSH_MS)
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, m->comm, &is_there,
                   MPI_STATUS_IGNORE);
}

/* What others have not taken by then stays with MPI: its memory, too. */
static void tell(fl_comm_base *g, const fl_error *e)
{
    fl_mpi_group *m = fl_mpi_of(g);
    size_t size = (size_t)g->comm.size;
    MPI_Request *sent;
    int64_t began = fl_now_ms();
    int is_done = 0, n = 0;
    fl_mpi_notice *out = fl_alloc(sizeof *out + size * sizeof *sent);

    if (!out)
        return;
    sent = (MPI_Request *)(out + 1);
    out->code = (int32_t)e->code;
    memcpy(out->text, e->text, sizeof out->text - 1);
    for (int r = 0; r < g->comm.size; r++)
        if (r != g->comm.rank &&
            MPI_Isend(out, sizeof *out, MPI_BYTE, r, TAG_NOTICE, m->comm,
                      &sent[n]) == MPI_SUCCESS)
            n++;
    while (!is_done && fl_now_ms() - began < FLUSH_MS)
        MPI_Testall(n, sent, &is_done, MPI_STATUSES_IGNORE);
    flush(m, began);
    fl_mpi_give_up();
    if (is_done)
        fl_free(out);
}

/* --- waiting ------------------------------------------------------------- */

/* One look at everything but what is waited for. */
static fleet_status look_around(fl_mpi_group *m, int64_t began_ns)
{
    bool moved;

    FL_TRY(check(m));
    if (m->base.n_streaming > 0)
        FL_TRY(fl_p2p_advance(&m->base, &moved));
    fl_mpi_pause(began_ns);
    return FLEET_OK;
}

static bool is_late(const fl_mpi_group *m, int64_t began_ns)
{
    return fl_now_ns() - began_ns > m->base.comm.deadline_ms * 1000000;
}

static fleet_status too_late(fl_mpi_group *m, const char *who,
                             const fl_call *call)
{
    char text[FL_CALL_TEXT];

    fl_call_text(call, text);
    fl_fail(FLEET_ETIMEDOUT,
            "%s did not come within %" PRId64 " ms: rank %d waits in %s", who,
            m->base.comm.deadline_ms, m->base.comm.rank, text);
    return fl_comm_base_fail(&m->base, FLEET_ETIMEDOUT, true);
}

fleet_status fl_mpi_finish(fl_mpi_group *m, MPI_Request *request,
                           const fl_call *call)
{
    int64_t began = fl_now_ns();
    int is_done = 0;

    for (;;) {
        FL_MPI(MPI_Test(request, &is_done, MPI_STATUS_IGNORE));
        if (is_done)
            return FLEET_OK;
        if (is_late(m, began))
            return too_late(m, "some rank", call);
        FL_TRY(look_around(m, began));
    }
}

/* Which rank's call has not come. */
static fleet_status who_is_late(fl_mpi_group *m, const fl_call *call)
{
    char who[40] = "some rank";
    int has_come;

    for (int r = 0; r < m->base.comm.size; r++) {
        FL_MPI(MPI_Request_get_status(m->request[2 * r], &has_come,
                                      MPI_STATUS_IGNORE));
        if (!has_come) {
            snprintf(who, sizeof who, "rank %d", r);
            break;
        }
    }
    return too_late(m, who, call);
}

static fleet_status gather_calls(fl_mpi_group *m, const fl_call *call)
{
    int size = m->base.comm.size, is_done = 0;
    int64_t began = fl_now_ns();

    for (;;) {
        FL_MPI(
            MPI_Testall(2 * size, m->request, &is_done, MPI_STATUSES_IGNORE));
        if (is_done)
            return FLEET_OK;
        if (is_late(m, began))
            return who_is_late(m, call);
        FL_TRY(look_around(m, began));
    }
}

/* All ranks are in this call, and in the same. */
static fleet_status match(fl_mpi_group *m, const fl_call *call)
{
    int size = m->base.comm.size, me = m->base.comm.rank;

    m->call[me] = *call;
    for (int r = 0; r < size; r++) {
        m->request[2 * r] = m->request[2 * r + 1] = MPI_REQUEST_NULL;
        if (r == me)
            continue;
        FL_MPI(MPI_Irecv(&m->call[r], sizeof *call, MPI_BYTE, r, TAG_CALL,
                         m->comm, &m->request[2 * r]));
        FL_MPI(MPI_Isend(&m->call[me], sizeof *call, MPI_BYTE, r, TAG_CALL,
                         m->comm, &m->request[2 * r + 1]));
    }
    FL_TRY(gather_calls(m, call));
    for (int r = 1; r < size; r++)
        if (!fl_call_matches(&m->call[0], &m->call[r])) {
            fl_call_differs(0, &m->call[0], r, &m->call[r]);
            return fl_comm_base_fail(&m->base, FLEET_EINVAL, false);
        }
    return FLEET_OK;
}

/* --- streams ------------------------------------------------------------- */

static fleet_status progress(fl_mpi_group *m, fl_mpi_channel *c, int64_t *moved)
{
    int is_done = 0;

    FL_MPI(MPI_Test(&c->request, &is_done, MPI_STATUS_IGNORE));
    *moved = is_done ? c->n : 0;
    if (is_done) {
        c->n = 0;
        m->moved_ns = fl_now_ns();
    }
    return FLEET_OK;
}

static int at_once(int64_t n)
{
    return (int)(n < MOST_MOVED ? n : MOST_MOVED);
}

static fleet_status stream_write(fl_comm_base *g, int to, int lane,
                                 const void *p, int64_t n, int64_t *moved)
{
    fl_mpi_group *m = fl_mpi_of(g);
    fl_mpi_channel *c = &m->channel[to][lane][FL_OUT];

    *moved = 0;
    if (n == 0)
        return FLEET_OK;
    if (c->n == 0) {
        c->n = at_once(n);
        FL_MPI(
            MPI_Isend(p, at_once(n), MPI_BYTE, to, lane, m->comm, &c->request));
    }
    return progress(m, c, moved);
}

static fleet_status stream_read(fl_comm_base *g, int from, int lane, void *p,
                                int64_t n, int64_t *moved)
{
    fl_mpi_group *m = fl_mpi_of(g);
    fl_mpi_channel *c = &m->channel[from][lane][FL_IN];

    *moved = 0;
    if (n == 0)
        return FLEET_OK;
    if (c->n == 0) {
        c->n = at_once(n);
        FL_MPI(MPI_Irecv(p, at_once(n), MPI_BYTE, from, lane, m->comm,
                         &c->request));
    }
    return progress(m, c, moved);
}

static uint32_t look(fl_comm_base *g)
{
    (void)g;
    return 0;
}

static fleet_status rest(fl_comm_base *g, uint32_t seen)
{
    (void)seen;
    FL_TRY(check(fl_mpi_of(g)));
    fl_mpi_pause(fl_mpi_of(g)->moved_ns);
    return FLEET_OK;
}

static void wake(fl_comm_base *g)
{
    (void)g; /* rests are short */
}

/* --- its life ------------------------------------------------------------ */

static fleet_status run(fl_comm_base *g, fl_work *w)
{
    FL_TRY(match(fl_mpi_of(g), &w->call));
    return fl_mpi_run(fl_mpi_of(g), w);
}

static void free_memory(fl_comm_base *g, void *memory)
{
    (void)g;
    fl_free(memory);
}

static void close_group(fl_mpi_group *m)
{
    fl_comm_base_done(&m->base);
    fl_free(m->channel);
    fl_free(m->call);
    fl_free(m->request);
    fl_free(m);
}

/* The communicator stays until MPI ends: to free it is a call of all ranks.
 * What MPI still has after a failure must stay, too. */
static void destroy(fl_comm_base *g)
{
    fl_mpi_group *m = fl_mpi_of(g);

    if (fl_mpi_is_given_up())
        return;
    MPI_Cancel(&m->hears);
    MPI_Wait(&m->hears, MPI_STATUS_IGNORE); /* of a receive: at once */
    close_group(m);
}

static const fl_transport carrier = {
    .run = run,
    .write = stream_write,
    .read = stream_read,
    .look = look,
    .rest = rest,
    .wake = wake,
    .report = tell,
    .free_memory = free_memory,
    .destroy = destroy,
};

static fleet_status make(fl_mpi_group *m, int rank, int size,
                         const fl_comm_options *options)
{
    size_t n = (size_t)size;

    FL_TRY(fl_comm_base_init(&m->base, &carrier, "mpi", options, rank, size));
    FL_TRY(FL_NEW(&m->channel, n * sizeof *m->channel));
    FL_TRY(FL_NEW(&m->call, n * sizeof *m->call));
    FL_TRY(FL_NEW(&m->request, 2 * n * sizeof(MPI_Request)));
    FL_MPI(MPI_Irecv(&m->heard, sizeof m->heard, MPI_BYTE, MPI_ANY_SOURCE,
                     TAG_NOTICE, m->comm, &m->hears));
    return FLEET_OK;
}

fleet_status fl_mpi_group_open(MPI_Comm comm, const fl_comm_options *options,
                               fl_comm **peers)
{
    int rank, size, level;
    fleet_status status;
    fl_mpi_group *m;

    FL_MPI(MPI_Comm_rank(comm, &rank));
    FL_MPI(MPI_Comm_size(comm, &size));
    FL_MPI(MPI_Query_thread(&level));
    if (level < MPI_THREAD_MULTIPLE)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "mpi: ranks on several hosts need MPI_THREAD_MULTIPLE; "
                       "the program began MPI with thread level %d",
                       level);
    FL_TRY(FL_NEW(&m, sizeof *m));
    m->comm = comm;
    status = make(m, rank, size, options);
    if (status == FLEET_OK)
        *peers = &m->base.comm;
    else
        close_group(m);
    return status;
}
