/* mpi_comm.c - ranks of several hosts: MPI's own algorithms, which are begun
 * and polled, never waited for, so that every wait has its deadline and sees
 * the failures of other ranks.
 *
 * Before a call of all ranks each sends every other what it calls: a difference
 * is named, and so is a rank that does not come.
 */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "collective/mpi/mpi_internal.h"

enum {
    MOST_MOVED = 4 << 20, /* bytes of a channel at a time */
    TAG_CALL = FL_N_CHANNEL,
    TAG_NOTICE,
    FLUSH_MS = 200,
    LEAST_FLUSH_MS = 20
};

/* --- failures of other ranks ---------------------------------------------- */

static fleet_status check_failure(fl_mpi_comm *m)
{
    int has_come = 0;

    FL_TRY(fl_comm_base_check(&m->base));
    if (fl_mpi_is_given_up()) {
        fl_fail(FLEET_EPEER, "another group of this process has failed");
        return fl_comm_base_fail(&m->base, FLEET_EPEER, false);
    }
    FL_MPI(MPI_Test(&m->notice_request, &has_come, MPI_STATUS_IGNORE));
    if (!has_come)
        return FLEET_OK;
    fl_fail((fleet_status)m->notice.code, "%.499s", m->notice.text);
    fl_mpi_give_up();
    return fl_comm_base_fail(&m->base, (fleet_status)m->notice.code, false);
}

/* What other ranks have not received by then stays with MPI: its memory,
 * too. */
static void report_failure(fl_comm_base *g, const fl_error *e)
{
    fl_mpi_comm *m = fl_mpi_of(g);
    size_t size = (size_t)g->comm.size;
    MPI_Request *sent;
    int64_t began = fl_now_ms();
    int is_done = 0, has_come, n = 0;
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
    /* MPI moves on what is sent only when it is called */
    while (fl_now_ms() - began < LEAST_FLUSH_MS)
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTICE, m->comm, &has_come,
                   MPI_STATUS_IGNORE);
    fl_mpi_give_up();
    if (is_done)
        fl_free(out);
}

/* --- waiting ------------------------------------------------------------- */

static fleet_status advance_messages(void *arg)
{
    fl_mpi_comm *m = arg;
    bool moved;

    FL_TRY(check_failure(m));
    return m->base.n_flowing > 0 ? fl_p2p_advance(&m->base, &moved) : FLEET_OK;
}

static fleet_status fail_timed_out(fl_mpi_comm *m, int missing,
                                   const fl_call *call)
{
    const fl_comm *p = &m->base.comm;

    return fl_comm_base_fail(
        &m->base, fl_call_timed_out(missing, p->deadline_ms, p->rank, call),
        true);
}

fleet_status fl_mpi_finish(fl_mpi_comm *m, MPI_Request *request,
                           const fl_call *call)
{
    bool is_done;

    FL_TRY(fl_mpi_poll(request, 1, m->base.comm.deadline_ms, advance_messages,
                       m, &is_done));
    return is_done ? FLEET_OK : fail_timed_out(m, -1, call);
}

static fleet_status gather_calls(fl_mpi_comm *m, const fl_call *call)
{
    int size = m->base.comm.size, has_come = 1, r;
    bool is_done;

    FL_TRY(fl_mpi_poll(m->request, 2 * size, m->base.comm.deadline_ms,
                       advance_messages, m, &is_done));
    if (is_done)
        return FLEET_OK;
    for (r = 0; r < size && has_come; r++)
        FL_MPI(MPI_Request_get_status(m->request[2 * r], &has_come,
                                      MPI_STATUS_IGNORE));
    return fail_timed_out(m, has_come ? -1 : r - 1, call);
}

/* All ranks are in this call, and in the same. */
static fleet_status match_calls(fl_mpi_comm *m, const fl_call *call)
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

/* --- messages ------------------------------------------------------------ */

static fleet_status test_channel(fl_mpi_comm *m, fl_mpi_channel *c,
                                 int64_t *moved)
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

static fleet_status write_some(fl_comm_base *g, int to, int channel,
                               const void *p, int64_t n, int64_t *moved)
{
    fl_mpi_comm *m = fl_mpi_of(g);
    fl_mpi_channel *c = &m->channel[to][channel][FL_OUT];

    *moved = 0;
    if (n == 0)
        return FLEET_OK;
    if (c->n == 0) {
        c->n = fl_least(n, MOST_MOVED);
        FL_MPI(MPI_Isend(p, (int)c->n, MPI_BYTE, to, channel, m->comm,
                         &c->request));
    }
    return test_channel(m, c, moved);
}

static fleet_status read_some(fl_comm_base *g, int from, int channel, void *p,
                              int64_t n, int64_t *moved)
{
    fl_mpi_comm *m = fl_mpi_of(g);
    fl_mpi_channel *c = &m->channel[from][channel][FL_IN];

    *moved = 0;
    if (n == 0)
        return FLEET_OK;
    if (c->n == 0) {
        c->n = fl_least(n, MOST_MOVED);
        FL_MPI(MPI_Irecv(p, (int)c->n, MPI_BYTE, from, channel, m->comm,
                         &c->request));
    }
    return test_channel(m, c, moved);
}

static fleet_status mpi_rest(fl_comm_base *g, uint32_t seen)
{
    (void)seen;
    FL_TRY(check_failure(fl_mpi_of(g)));
    fl_mpi_pause(fl_mpi_of(g)->moved_ns);
    return FLEET_OK;
}

/* --- life ---------------------------------------------------------------- */

static fleet_status mpi_run(fl_comm_base *g, fl_work *w)
{
    FL_TRY(match_calls(fl_mpi_of(g), &w->call));
    return fl_mpi_run(fl_mpi_of(g), w);
}

static void free_memory(fl_comm_base *g, void *memory)
{
    (void)g;
    fl_free(memory);
}

static void free_comm(fl_mpi_comm *m)
{
    fl_comm_base_done(&m->base);
    fl_free(m->channel);
    fl_free(m->call);
    fl_free(m->request);
    fl_free(m);
}

/* The MPI_Comm stays until MPI ends: to free it is a call of all ranks.
 * What MPI still has after a failure must stay, too. */
static void mpi_destroy(fl_comm_base *g)
{
    fl_mpi_comm *m = fl_mpi_of(g);

    if (fl_mpi_is_given_up())
        return;
    MPI_Cancel(&m->notice_request);
    MPI_Wait(&m->notice_request, MPI_STATUS_IGNORE); /* of a receive: at once */
    free_comm(m);
}

static const fl_transport transport = {
    .run = mpi_run,
    .write = write_some,
    .read = read_some,
    .rest = mpi_rest,
    .report = report_failure,
    .free_memory = free_memory,
    .destroy = mpi_destroy,
};

static fleet_status make_comm(fl_mpi_comm *m, int rank, int size,
                              const fl_comm_options *options)
{
    size_t n = (size_t)size;

    FL_TRY(fl_comm_base_init(&m->base, &transport, "mpi", options, rank, size));
    FL_TRY(FL_NEW(&m->channel, n * sizeof *m->channel));
    FL_TRY(FL_NEW(&m->call, n * sizeof *m->call));
    FL_TRY(FL_NEW(&m->request, 2 * n * sizeof(MPI_Request)));
    FL_MPI(MPI_Irecv(&m->notice, sizeof m->notice, MPI_BYTE, MPI_ANY_SOURCE,
                     TAG_NOTICE, m->comm, &m->notice_request));
    return FLEET_OK;
}

fleet_status fl_mpi_comm_open(MPI_Comm comm, const fl_comm_options *options,
                              fl_comm **out)
{
    int rank, size, level;
    fleet_status status;
    fl_mpi_comm *m;

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
    status = make_comm(m, rank, size, options);
    if (status == FLEET_OK)
        *out = &m->base.comm;
    else
        free_comm(m);
    return status;
}
