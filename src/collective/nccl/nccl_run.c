/* nccl_run.c - the calls of ranks on GPUs. NCCL's own reductions serve where
 * they compute what comm.h promises: integers, and sums of float32 and float64
 * in any order. The other reductions (in an order, in half precision, the
 * largest of what may be NaN) are exchanges of chunks, a sum in rank order, and
 * a gathering. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "collective/nccl/nccl_internal.h"
#include "collective/wire_type.h"

enum { ROOM = 64 << 20 /* bytes, for chunks of all ranks */ };

static int ranks_of(const fl_nccl *n)
{
    return n->base.comm.size;
}

/* --- exchanges ----------------------------------------------------------- */

/* What goes to a rank and comes from it, in bytes. */
typedef struct part {
    const char *out;
    char *in;
    int64_t to, from;
} part;

static fleet_status send_and_receive(fl_nccl *n, const part *p)
{
    for (int r = 0; r < ranks_of(n); r++) {
        if (r == n->base.comm.rank)
            continue;
        if (p[r].to > 0)
            FL_NCCL_CALL(n, Send, p[r].out, (size_t)p[r].to, FL_NCCL_U8, r,
                         n->comm, n->queue);
        if (p[r].from > 0)
            FL_NCCL_CALL(n, Recv, p[r].in, (size_t)p[r].from, FL_NCCL_U8, r,
                         n->comm, n->queue);
    }
    return FLEET_OK;
}

static fleet_status exchange_parts(fl_nccl *n, const part *p)
{
    const part *own = &p[n->base.comm.rank];
    fleet_status status;
    fl_error e;
    int result;

    if (own->to > 0 && own->in != own->out)
        FL_NCCL_CUDA(n, fl_cu_copy(n->queue, own->in, own->out, own->to));
    FL_TRY(fl_nccl_check(n, n->lib->GroupStart(), "ncclGroupStart"));
    status = send_and_receive(n, p);
    fl_error_take(&e, status);
    result = n->lib->GroupEnd();
    return status == FLEET_OK ? fl_nccl_check(n, result, "ncclGroupEnd")
                              : fl_error_raise(&e);
}

/* --- reductions by exchanges --------------------------------------------- */

/* Every rank reduces a chunk of up to `each` elements. Rank r's chunk begins at
 * element begin + r * step of each rank's `in`. */
typedef struct chunks {
    fl_nccl *n;
    const fl_work *w;
    int64_t size; /* of an element */
    int64_t each, begin, step, end;
    part *part;
} chunks;

static fleet_status make_room(fl_nccl *n, int64_t bytes)
{
    if (bytes <= n->room_bytes)
        return FLEET_OK;
    fl_cu_free(n->queue, n->room);
    n->room = NULL;
    n->room_bytes = 0;
    FL_NCCL_CUDA(n, fl_cu_alloc(n->queue, bytes, &n->room));
    n->room_bytes = bytes;
    return FLEET_OK;
}

static fleet_status open_chunks(chunks *c, fl_nccl *n, const fl_work *w,
                                int64_t most)
{
    int64_t ranks = ranks_of(n);

    *c = (chunks){.n = n, .w = w};
    c->size = fl_wire_size((fl_wire_type)w->call.type);
    c->each = fl_least(most, ROOM / (ranks * c->size));
    FL_TRY(make_room(n, ranks * c->each * c->size));
    return FL_NEW(&c->part, (size_t)ranks * sizeof *c->part);
}

static int64_t begin_of(const chunks *c, int rank)
{
    return fl_least(c->begin + rank * c->step, c->end);
}

static int64_t length_of(const chunks *c, int rank)
{
    return fl_least(c->each, c->end - begin_of(c, rank));
}

/* The chunks of all ranks for this one, reduced, to `out`. */
static fleet_status reduce_own(const chunks *c, char *out)
{
    int me = c->n->base.comm.rank;
    int64_t own = length_of(c, me);
    char *room = c->n->room;
    const fl_cu_reduce f = {.how = (fl_reduce)c->w->call.how,
                            .type = (fl_wire_type)c->w->call.type,
                            .in = room,
                            .step = own,
                            .size = ranks_of(c->n),
                            .out = out,
                            .n = own};

    for (int r = 0; r < ranks_of(c->n); r++)
        c->part[r] =
            (part){.out = (const char *)c->w->in + begin_of(c, r) * c->size,
                   .to = length_of(c, r) * c->size,
                   .in = room + r * own * c->size,
                   .from = own * c->size};
    FL_TRY(exchange_parts(c->n, c->part));
    FL_NCCL_CUDA(c->n, fl_cu_reduce_run(c->n->queue, &f));
    return FLEET_OK;
}

/* The chunk of `out` of each rank to all ranks. */
static fleet_status gather_chunks(const chunks *c)
{
    fl_nccl *n = c->n;
    int me = n->base.comm.rank;
    char *out = c->w->out, *own = out + begin_of(c, me) * c->size;

    if (c->end - c->begin >= c->each * ranks_of(n)) {
        FL_NCCL_CALL(n, AllGather, own, out + c->begin * c->size,
                     (size_t)(c->each * c->size), FL_NCCL_U8, n->comm,
                     n->queue);
        return FLEET_OK;
    }
    for (int r = 0; r < ranks_of(n); r++)
        c->part[r] = (part){.out = own,
                            .to = length_of(c, me) * c->size,
                            .in = out + begin_of(c, r) * c->size,
                            .from = length_of(c, r) * c->size};
    return exchange_parts(n, c->part);
}

static fleet_status reduce_by_chunks(fl_nccl *n, const fl_work *w)
{
    int64_t ranks = ranks_of(n), all = w->call.n;
    fleet_status status;
    chunks c;

    FL_TRY(open_chunks(&c, n, w, (all + ranks - 1) / ranks));
    c.step = c.each;
    c.end = all;
    for (status = FLEET_OK; status == FLEET_OK && c.begin < all;
         c.begin += c.each * ranks) {
        status = reduce_own(&c, (char *)w->out +
                                    begin_of(&c, n->base.comm.rank) * c.size);
        if (status == FLEET_OK)
            status = gather_chunks(&c);
    }
    fl_free(c.part);
    return status;
}

/* Pieces of all ranks' parts. The last ones may be shorter: of all alike. */
static fleet_status scatter_by_chunks(fl_nccl *n, const fl_work *w)
{
    int64_t all = w->call.n;
    fleet_status status;
    chunks c;

    FL_TRY(open_chunks(&c, n, w, all));
    c.step = all;
    c.end = all * ranks_of(n);
    for (status = FLEET_OK; status == FLEET_OK && c.begin < all;
         c.begin += c.each) {
        c.each = fl_least(c.each, all - c.begin);
        status = reduce_own(&c, (char *)w->out + c.begin * c.size);
    }
    fl_free(c.part);
    return status;
}

/* --- reductions by NCCL -------------------------------------------------- */

static const fl_nccl_type type_of[FL_N_WIRE] = {
    [FL_WIRE_F32] = FL_NCCL_F32, [FL_WIRE_F64] = FL_NCCL_F64,
    [FL_WIRE_I32] = FL_NCCL_I32, [FL_WIRE_I64] = FL_NCCL_I64,
    [FL_WIRE_U8] = FL_NCCL_U8,
};

static const fl_nccl_op op_of[FL_N_REDUCE] = {
    [FL_ALL_SUM] = FL_NCCL_SUM,
    [FL_ALL_MEAN] = FL_NCCL_SUM, /* NCCL's own divides before it adds */
    [FL_ALL_MAX] = FL_NCCL_MAX,
    [FL_ALL_MIN] = FL_NCCL_MIN,
};

/* Does NCCL compute what is promised? */
static bool is_its_own(const fl_nccl *n, const fl_call *c)
{
    bool is_sum = c->how == FL_ALL_SUM || c->how == FL_ALL_MEAN;

    if (c->type == FL_WIRE_F32 || c->type == FL_WIRE_F64)
        return is_sum && !n->base.comm.ordered;
    return type_of[c->type] != 0;
}

/* all_reduce or reduce_scatter. */
static fleet_status reduce_values(fl_nccl *n, const fl_work *w)
{
    const fl_call *c = &w->call;
    bool scatters = c->kind == FL_CALL_REDUCE_SCATTER;
    fl_wire_type type = (fl_wire_type)c->type;
    int64_t bytes = c->n * fl_wire_size(type);

    if (ranks_of(n) == 1) {
        if (w->in != w->out)
            FL_NCCL_CUDA(n, fl_cu_copy(n->queue, w->out, w->in, bytes));
        return FLEET_OK;
    }
    if (!is_its_own(n, c))
        return scatters ? scatter_by_chunks(n, w) : reduce_by_chunks(n, w);
    if (scatters)
        FL_NCCL_CALL(n, ReduceScatter, w->in, w->out, (size_t)c->n,
                     (int)type_of[type], (int)op_of[c->how], n->comm, n->queue);
    else
        FL_NCCL_CALL(n, AllReduce, w->in, w->out, (size_t)c->n,
                     (int)type_of[type], (int)op_of[c->how], n->comm, n->queue);
    if (c->how == FL_ALL_MEAN)
        FL_NCCL_CUDA(n, fl_cu_mean(n->queue, type, w->out, c->n, ranks_of(n)));
    return FLEET_OK;
}

/* --- copies -------------------------------------------------------------- */

/* What rank `from` has for `to`, and what that one expects. */
static fleet_status check_pair(fl_nccl *n, int from, int to)
{
    int64_t has, expects;

    memcpy(&has, fl_nccl_data_of(n, from) + (size_t)to * sizeof has,
           sizeof has);
    memcpy(&expects,
           fl_nccl_data_of(n, to) + (size_t)(ranks_of(n) + from) * sizeof has,
           sizeof expects);
    if (has == expects)
        return FLEET_OK;
    fl_call_sizes_differ(from, has, to, expects);
    return fl_comm_base_fail(&n->base, FLEET_EINVAL, false);
}

static fleet_status match_counts(fl_nccl *n, const fl_work *w)
{
    size_t size = (size_t)ranks_of(n), bytes = size * sizeof(int64_t);
    fleet_status status;
    int64_t *counts;

    FL_TRY(FL_NEW(&counts, 2 * bytes));
    memcpy(counts, w->to, bytes);
    memcpy(counts + size, w->from, bytes);
    status = fl_nccl_match(n, &w->call, counts, 2 * bytes);
    fl_free(counts);
    for (int a = 0; a < ranks_of(n); a++)
        for (int b = 0; status == FLEET_OK && b < ranks_of(n); b++)
            status = check_pair(n, a, b);
    return status;
}

static fleet_status all_to_all(fl_nccl *n, const fl_work *w)
{
    const char *out = w->in;
    char *in = w->out;
    fleet_status status;
    part *p;

    FL_TRY(FL_NEW(&p, (size_t)ranks_of(n) * sizeof *p));
    for (int r = 0; r < ranks_of(n); r++) {
        p[r] = (part){out, in, w->to[r], w->from[r]};
        out += w->to[r];
        in += w->from[r];
    }
    status = exchange_parts(n, p);
    fl_free(p);
    return status;
}

/* --- smaller communicators ------------------------------------------------ */

/* Each rank listens, in case that it is rank 0 of its child. */
typedef struct split_entry {
    int32_t color, key;
    char address[FL_RENDEZVOUS_NAME];
} split_entry;

static split_entry entry_of(const fl_nccl *n, int rank)
{
    split_entry s;

    memcpy(&s, fl_nccl_data_of(n, rank), sizeof s);
    s.address[sizeof s.address - 1] = 0;
    return s;
}

static fleet_status listen_beside(const fl_nccl *n, split_entry *own, int *fd)
{
    char name[FL_RENDEZVOUS_NAME], beside[FL_RENDEZVOUS_NAME + 8],
        bound[FL_RENDEZVOUS_NAME];
    char *port;

    fl_rendezvous_client_name(n->client, name);
    port = strrchr(name, ':');
    if (port)
        *port = 0;
    snprintf(beside, sizeof beside, "tcp://%s:0", name);
    FL_TRY(fl_rendezvous_listen(beside, fd, bound));
    memcpy(own->address, bound, sizeof bound);
    return FLEET_OK;
}

static bool is_before(split_entry a, int rank_a, split_entry b, int rank_b)
{
    return a.key < b.key || (a.key == b.key && rank_a < rank_b);
}

/* A rank's number in its child. */
static int number_in_child(const fl_nccl *n, int rank)
{
    split_entry own = entry_of(n, rank);
    int number = 0;

    for (int r = 0; r < ranks_of(n); r++) {
        split_entry s = entry_of(n, r);

        number += s.color == own.color && is_before(s, r, own, rank);
    }
    return number;
}

/* This rank's number in its child; the entry of the child's rank 0; the keys of
 * the child's ranks, if there are any. */
static void number_child(const fl_nccl *n, fl_rendezvous_handshake *h,
                         split_entry *first, fl_rank_keys *keys)
{
    split_entry own = entry_of(n, n->base.comm.rank);

    h->rank = number_in_child(n, n->base.comm.rank);
    h->size = 0;
    for (int r = 0; r < ranks_of(n); r++) {
        split_entry s = entry_of(n, r);
        int number;

        if (s.color != own.color)
            continue;
        h->size++;
        number = number_in_child(n, r);
        if (number == 0)
            *first = s;
        if (keys->of)
            memcpy(keys->of[number], n->keys.of[r], sizeof *keys->of);
    }
}

static fleet_status open_child(fl_nccl *n, int fd, fl_comm **child)
{
    fl_comm_options o = fl_comm_base_options(&n->base);
    fl_rendezvous_options r = n->rendezvous;
    fl_rank_keys keys = n->keys;
    split_entry first = {0};
    fleet_status status;

    o.device = n->device;
    if (r.keys) {
        status = FL_NEW(&keys.of, (size_t)ranks_of(n) * sizeof *keys.of);
        if (status != FLEET_OK) {
            close(fd);
            return status;
        }
        r.keys = &keys;
    }
    number_child(n, &r.own, &first, &keys);
    snprintf(r.own.job, sizeof r.own.job, "%.90s/%d.%d", n->rendezvous.own.job,
             n->n_split, first.color);
    r.address = first.address;
    r.listener = r.own.rank == 0 ? fd : 0;
    if (r.own.rank != 0)
        close(fd);
    status = fl_nccl_join(&r, &o, child);
    explicit_bzero(keys.secret, sizeof keys.secret);
    fl_free(keys.of);
    return status;
}

static fleet_status nccl_split(fl_nccl *n, const fl_work *w)
{
    split_entry own = {.color = (int32_t)w->call.extra[0],
                       .key = (int32_t)w->call.extra[1]};
    fleet_status status;
    int fd = -1;

    n->n_split++;
    if (own.color >= 0)
        FL_TRY(listen_beside(n, &own, &fd));
    status = fl_nccl_match(n, &w->call, &own, sizeof own);
    if (status == FLEET_OK && own.color >= 0)
        return open_child(n, fd, w->out);
    if (fd >= 0)
        close(fd);
    return status;
}

/* --- all calls ----------------------------------------------------------- */

static fleet_status get_memory(fl_nccl *n, const fl_work *w)
{
    void **memory = w->out;
    fleet_status status;
    int result = fl_cu_alloc(n->queue, w->call.n, memory);

    if (result)
        return fl_fail(FLEET_ENOMEM, "nccl: no %" PRId64 " bytes on device %d",
                       w->call.n, n->device);
    FL_NCCL_CUDA(n, fl_cu_zero(n->queue, *memory, w->call.n));
    status = fl_nccl_finish(n, &w->call);
    if (status != FLEET_OK) {
        fl_cu_free(n->queue, *memory);
        *memory = NULL;
    }
    return status;
}

static fleet_status queue_call(fl_nccl *n, const fl_work *w)
{
    switch (w->call.kind) {
    case FL_CALL_ALL_REDUCE:
    case FL_CALL_REDUCE_SCATTER:
        return reduce_values(n, w);
    case FL_CALL_ALL_GATHER:
        FL_NCCL_CALL(n, AllGather, w->in, w->out, (size_t)w->call.n, FL_NCCL_U8,
                     n->comm, n->queue);
        return FLEET_OK;
    case FL_CALL_BROADCAST:
        FL_NCCL_CALL(n, Broadcast, w->in, w->out, (size_t)w->call.n, FL_NCCL_U8,
                     w->call.root, n->comm, n->queue);
        return FLEET_OK;
    default:
        return all_to_all(n, w);
    }
}

static fleet_status run_staged(fl_nccl *n, const fl_work *w)
{
    fl_nccl_staging v;
    fleet_status status = fl_nccl_stage(n, w, &v);

    if (status == FLEET_OK)
        status = queue_call(n, &v.work);
    if (status == FLEET_OK)
        status = fl_nccl_finish(n, &w->call);
    return fl_nccl_unstage(n, &v, status);
}

fleet_status fl_nccl_run(fl_nccl *n, const fl_work *w)
{
    const fl_call *c = &w->call;

    if (w->after)
        FL_NCCL_CUDA(n, fl_cu_after(n->queue, w->after));
    if (c->kind == FL_CALL_SPLIT)
        return nccl_split(n, w);
    if (fl_nccl_is_small_gather(c))
        return fl_nccl_gather_small(n, w);
    if (c->kind == FL_CALL_ALL_TO_ALL)
        FL_TRY(match_counts(n, w));
    else
        FL_TRY(fl_nccl_match(n, c, NULL, 0));
    if (c->kind == FL_CALL_MEMORY)
        return get_memory(n, w);
    if (c->kind == FL_CALL_BARRIER ||
        (c->n == 0 && c->kind != FL_CALL_ALL_TO_ALL))
        return FLEET_OK;
    return run_staged(n, w);
}
