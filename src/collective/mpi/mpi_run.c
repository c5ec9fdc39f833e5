/* mpi_run.c - the calls of communicators on several hosts. Reductions that MPI
 * does not have (in an order, in half precision, of the largest with NaN) are
 * made of messages: each rank gets its chunk of all ranks, adds it up in rank
 * order, and sends it to all. */
#include <string.h>

#include "base/memory.h"
#include "collective/reduce_kernels.h"
#include "collective/mpi/mpi_internal.h"
#include "collective/wire_type.h"

enum {
    MOST_AT_ONCE = 64 << 20, /* elements, or bytes, of a call of MPI's */
    CHUNK = 128 * 1024       /* elements that a rank reduces at a time */
};

/* --- reductions by messages ---------------------------------------------- */

typedef struct chunks {
    fl_mpi_comm *m;
    const fl_work *w;
    int64_t size; /* of an element */
    char *room;   /* a chunk of each rank */
    const char **out;
    char **in;
    int64_t *to, *from;
} chunks;

static fleet_status open_chunks(chunks *c, fl_mpi_comm *m, const fl_work *w)
{
    size_t n = (size_t)m->base.comm.size;
    fleet_status status;

    *c = (chunks){.m = m, .w = w};
    c->size = fl_wire_size((fl_wire_type)w->call.type);
    FL_TRY(FL_NEW(&c->out, n * 2 * (sizeof(char *) + sizeof(int64_t))));
    c->in = (char **)(c->out + n);
    c->to = (int64_t *)(c->in + n);
    c->from = c->to + n;
    status = FL_NEW(&c->room, n * (size_t)(CHUNK * c->size));
    if (status != FLEET_OK)
        fl_free(c->out);
    return status;
}

static void free_chunks(chunks *c)
{
    fl_free(c->room);
    fl_free(c->out);
}

static fleet_status exchange_chunks(chunks *c)
{
    return fl_p2p_exchange(&c->m->base, &(fl_p2p_set){.out = c->out,
                                                      .to = c->to,
                                                      .in = c->in,
                                                      .from = c->from});
}

/* What came of n elements of each rank becomes n of `out`. */
static void reduce_chunks(const chunks *c, char *out, int64_t n)
{
    void *to[1] = {out};

    if (n > 0)
        fl_reduce_run(&(fl_reduce_args){.how = (fl_reduce)c->w->call.how,
                                        .type = (fl_wire_type)c->w->call.type,
                                        .in = (const void *const *)c->in,
                                        .n_in = c->m->base.comm.size,
                                        .out = to,
                                        .n_out = 1,
                                        .n = n});
}

/* Rank r's chunk begins at begin + r * step and has up to `each` elements. */
static int64_t chunk_of(const chunks *c, int rank, int64_t begin, int64_t step,
                        int64_t each, int64_t end)
{
    int64_t at = fl_least(begin + rank * step, end);

    c->out[rank] = (const char *)c->w->in + at * c->size;
    c->in[rank] = c->room + rank * CHUNK * c->size;
    return fl_least(each, end - at) * c->size;
}

static fleet_status reduce_piece(chunks *c, int64_t begin, int64_t each)
{
    int size = c->m->base.comm.size, me = c->m->base.comm.rank;
    int64_t n = c->w->call.n, own, at;
    char *out = c->w->out;

    for (int r = 0; r < size; r++)
        c->to[r] = chunk_of(c, r, begin, each, each, n);
    own = c->to[me];
    for (int r = 0; r < size; r++)
        c->from[r] = own;
    FL_TRY(exchange_chunks(c));
    at = fl_least(begin + me * each, n) * c->size;
    reduce_chunks(c, out + at, own / c->size);

    for (int r = 0; r < size; r++) {
        c->in[r] = out + fl_least(begin + r * each, n) * c->size;
        c->out[r] = out + at;
        c->from[r] = c->to[r];
        c->to[r] = own;
    }
    c->from[me] = own;
    return exchange_chunks(c);
}

static fleet_status reduce_by_chunks(fl_mpi_comm *m, const fl_work *w)
{
    int64_t size = m->base.comm.size, n = w->call.n;
    int64_t each = fl_least((n + size - 1) / size, CHUNK);
    fleet_status status = FLEET_OK;
    chunks c;

    FL_TRY(open_chunks(&c, m, w));
    for (int64_t i = 0; status == FLEET_OK && i < n; i += each * size)
        status = reduce_piece(&c, i, each);
    free_chunks(&c);
    return status;
}

static fleet_status scatter_piece(chunks *c, int64_t begin)
{
    int size = c->m->base.comm.size;
    int64_t n = c->w->call.n, bytes = fl_least(CHUNK, n - begin) * c->size;

    for (int r = 0; r < size; r++) {
        chunk_of(c, r, begin, n, CHUNK, n * size);
        c->to[r] = c->from[r] = bytes;
    }
    FL_TRY(exchange_chunks(c));
    reduce_chunks(c, (char *)c->w->out + begin * c->size, bytes / c->size);
    return FLEET_OK;
}

static fleet_status reduce_scatter(fl_mpi_comm *m, const fl_work *w)
{
    fleet_status status = FLEET_OK;
    chunks c;

    FL_TRY(open_chunks(&c, m, w));
    for (int64_t i = 0; status == FLEET_OK && i < w->call.n; i += CHUNK)
        status = scatter_piece(&c, i);
    free_chunks(&c);
    return status;
}

/* --- what MPI does ------------------------------------------------------- */

/* MPI's type for a reduction that MPI does, or none. MPI does not say what the
 * largest of floats is if there is a NaN, and in sums of bytes Open MPI 4.1's
 * AVX kernels stop at 255. */
static MPI_Datatype type_of(const fl_call *c)
{
    bool is_sum = c->how == FL_ALL_SUM || c->how == FL_ALL_MEAN;

    switch (c->type) {
    case FL_WIRE_F32:
        return is_sum ? MPI_FLOAT : MPI_DATATYPE_NULL;
    case FL_WIRE_F64:
        return is_sum ? MPI_DOUBLE : MPI_DATATYPE_NULL;
    case FL_WIRE_I32:
        return MPI_INT32_T;
    case FL_WIRE_I64:
        return MPI_INT64_T;
    case FL_WIRE_U8:
        return is_sum ? MPI_DATATYPE_NULL : MPI_UINT8_T;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static void make_mean(const fl_call *c, void *out, int size)
{
    float *f = out, f_one_nth = 1.0f / (float)size;
    double *d = out, d_one_nth = 1.0 / (double)size;

    if (c->type == FL_WIRE_F32)
        for (int64_t i = 0; i < c->n; i++)
            f[i] *= f_one_nth;
    else
        for (int64_t i = 0; i < c->n; i++)
            d[i] *= d_one_nth;
}

static fleet_status all_reduce(fl_mpi_comm *m, const fl_work *w)
{
    int64_t size = fl_wire_size((fl_wire_type)w->call.type);
    MPI_Datatype type = type_of(&w->call);
    MPI_Op op = w->call.how == FL_ALL_MAX   ? MPI_MAX
                : w->call.how == FL_ALL_MIN ? MPI_MIN
                                            : MPI_SUM;

    if (m->base.comm.ordered || type == MPI_DATATYPE_NULL)
        return reduce_by_chunks(m, w);
    for (int64_t i = 0; i < w->call.n; i += MOST_AT_ONCE) {
        const void *in = (const char *)w->in + i * size;
        char *out = (char *)w->out + i * size;
        MPI_Request request;

        FL_MPI(MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out,
                              (int)fl_least(MOST_AT_ONCE, w->call.n - i), type,
                              op, m->comm, &request));
        FL_TRY(fl_mpi_finish(m, &request, &w->call));
    }
    if (w->call.how == FL_ALL_MEAN)
        make_mean(&w->call, w->out, m->base.comm.size);
    return FLEET_OK;
}

static fleet_status gather_by_messages(fl_mpi_comm *m, const fl_work *w)
{
    fl_work all = {.in = w->in, .out = w->out};
    fleet_status status;
    chunks c;

    all.call.type = FL_WIRE_U8;
    FL_TRY(open_chunks(&c, m, &all));
    for (int r = 0; r < m->base.comm.size; r++) {
        c.out[r] = w->in;
        c.in[r] = (char *)w->out + r * w->call.n;
        c.to[r] = c.from[r] = w->call.n;
    }
    status = exchange_chunks(&c);
    free_chunks(&c);
    return status;
}

static fleet_status all_gather(fl_mpi_comm *m, const fl_work *w)
{
    const char *own = (char *)w->out + m->base.comm.rank * w->call.n;
    MPI_Request request;

    if (w->call.n > MOST_AT_ONCE)
        return gather_by_messages(m, w);
    FL_MPI(MPI_Iallgather(w->in == own ? MPI_IN_PLACE : w->in, (int)w->call.n,
                          MPI_BYTE, w->out, (int)w->call.n, MPI_BYTE, m->comm,
                          &request));
    return fl_mpi_finish(m, &request, &w->call);
}

static fleet_status mpi_broadcast(fl_mpi_comm *m, const fl_work *w)
{
    for (int64_t i = 0; i < w->call.n; i += MOST_AT_ONCE) {
        MPI_Request request;

        FL_MPI(MPI_Ibcast((char *)w->out + i,
                          (int)fl_least(MOST_AT_ONCE, w->call.n - i), MPI_BYTE,
                          w->call.root, m->comm, &request));
        FL_TRY(fl_mpi_finish(m, &request, &w->call));
    }
    return FLEET_OK;
}

/* All ranks are in the call now. That their calls match does not say so: a rank
 * that is late finds what other ranks had sent before they gave up. */
static fleet_status confirm(fl_mpi_comm *m, const fl_work *w)
{
    MPI_Request all;

    FL_MPI(MPI_Ibarrier(m->comm, &all));
    return fl_mpi_finish(m, &all, &w->call);
}

static fleet_status mpi_split(fl_mpi_comm *m, const fl_work *w)
{
    fl_comm_options o = fl_comm_base_options(&m->base);
    int color = (int)w->call.extra[0];
    MPI_Comm comm;

    FL_TRY(confirm(m, w)); /* MPI_Comm_split() has no deadline */
    FL_MPI(MPI_Comm_split(m->comm, color < 0 ? MPI_UNDEFINED : color,
                          (int)w->call.extra[1], &comm));
    return color < 0 ? FLEET_OK : fl_mpi_open(comm, &o, w->out);
}

fleet_status fl_mpi_run(fl_mpi_comm *m, const fl_work *w)
{
    switch (w->call.kind) {
    case FL_CALL_ALL_REDUCE:
        return all_reduce(m, w);
    case FL_CALL_REDUCE_SCATTER:
        return reduce_scatter(m, w);
    case FL_CALL_ALL_GATHER:
        return all_gather(m, w);
    case FL_CALL_ALL_TO_ALL:
        return fl_p2p_all_to_all(&m->base, w);
    case FL_CALL_BROADCAST:
        return mpi_broadcast(m, w);
    case FL_CALL_SPLIT:
        return mpi_split(m, w);
    case FL_CALL_MEMORY:
        FL_TRY(confirm(m, w));
        return FL_NEW((void **)w->out, (size_t)w->call.n);
    default:
        return confirm(m, w);
    }
}
