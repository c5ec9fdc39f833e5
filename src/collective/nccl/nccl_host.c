/* nccl_host.c - operands in the host's memory: they are copied to the GPU, and
 * results back; and what ranks agree on again and again, which needs no GPU. So
 * one communicator serves for all calls. */
#include <string.h>

#include "collective/nccl/nccl_internal.h"
#include "collective/wire_type.h"

static int64_t sum_of(const int64_t *x, int n)
{
    int64_t all = 0;

    for (int i = 0; i < n; i++)
        all += x[i];
    return all;
}

/* Bytes that a call reads and writes. */
static void count_bytes(const fl_nccl *n, const fl_work *w, int64_t *in,
                        int64_t *out)
{
    int ranks = n->base.comm.size;

    *in = *out = w->call.n;
    switch (w->call.kind) {
    case FL_CALL_ALL_REDUCE:
        *in = *out = w->call.n * fl_wire_size((fl_wire_type)w->call.type);
        break;
    case FL_CALL_REDUCE_SCATTER:
        *out = w->call.n * fl_wire_size((fl_wire_type)w->call.type);
        *in = *out * ranks;
        break;
    case FL_CALL_ALL_GATHER:
        *out = w->call.n * ranks;
        break;
    case FL_CALL_ALL_TO_ALL:
        *in = sum_of(w->to, ranks);
        *out = sum_of(w->from, ranks);
        break;
    case FL_CALL_SEND:
        *out = 0;
        break;
    case FL_CALL_RECV:
        *in = 0;
        break;
    default: /* of a broadcast both are the same */
        break;
    }
}

/* A copy of these bytes on the GPU. */
static fleet_status copy_to_gpu(fl_nccl *n, const void *host, int64_t bytes,
                                void **made)
{
    FL_NCCL_CUDA(n, fl_cu_alloc(n->copies, bytes, made));
    FL_NCCL_CUDA(n, fl_cu_copy(n->copies, *made, host, bytes));
    FL_NCCL_CUDA(n, fl_cu_record(n->copied, n->copies));
    FL_NCCL_CUDA(n, fl_cu_after(n->queue, n->copied));
    return FLEET_OK;
}

/* Both from one piece, as far as they overlap. */
static fleet_status copy_both(fl_nccl *n, fl_nccl_staging *v, int64_t n_in,
                              int64_t n_out)
{
    const char *in = v->work.in, *out = v->work.out;
    const char *begin = in < out ? in : out;
    const char *end = in + n_in > out + n_out ? in + n_in : out + n_out;
    char *made;

    FL_TRY(copy_to_gpu(n, begin, end - begin, &v->made[0]));
    made = v->made[0];
    v->work.in = made + (in - begin);
    v->work.out = made + (out - begin);
    return FLEET_OK;
}

fleet_status fl_nccl_stage(fl_nccl *n, const fl_work *w, fl_nccl_staging *v)
{
    int64_t n_in, n_out;
    bool is_in, is_out;

    *v = (fl_nccl_staging){.work = {.call = w->call,
                                    .in = w->in,
                                    .out = w->out,
                                    .to = w->to,
                                    .from = w->from}};
    count_bytes(n, w, &n_in, &n_out);
    is_in = n_in > 0 && fl_cu_is_host(w->in);
    is_out = n_out > 0 && fl_cu_is_host(w->out);
    if (is_out) {
        v->back = w->out;
        v->n_back = n_out;
    }
    if (is_in && is_out && (const char *)w->in < (char *)w->out + n_out &&
        (char *)w->out < (const char *)w->in + n_in)
        return copy_both(n, v, n_in, n_out);
    if (is_in) {
        FL_TRY(copy_to_gpu(n, w->in, n_in, &v->made[0]));
        v->work.in = v->made[0];
    }
    if (is_out) {
        FL_NCCL_CUDA(n, fl_cu_alloc(n->queue, n_out, &v->made[1]));
        v->work.out = v->made[1];
    }
    return FLEET_OK;
}

/* The call is done on the GPU; later messages may be on its queue. */
fleet_status fl_nccl_unstage(fl_nccl *n, fl_nccl_staging *v,
                             fleet_status status)
{
    if (status == FLEET_OK && v->n_back > 0) {
        int result = fl_cu_copy(n->copies, v->back, v->work.out, v->n_back);

        if (result == 0)
            result = fl_cu_wait(n->copies);
        status = fl_nccl_cuda(n, result, "a copy to the host");
    }
    for (int i = 0; i < 2; i++)
        fl_cu_free(n->queue, v->made[i]);
    *v = (fl_nccl_staging){0};
    return status;
}

/* --- by the rendezvous server --------------------------------------------- */

enum { FEW = 128 /* bytes of a rank, which can go with its call */ };

bool fl_nccl_is_small_gather(const fl_call *c)
{
    return c->kind == FL_CALL_ALL_GATHER && c->n > 0 && c->n <= FEW;
}

/* Between the two memories, or within the host's. */
static fleet_status copy_any(fl_nccl *n, void *to, const void *from,
                             int64_t bytes, bool is_host)
{
    if (is_host)
        memcpy(to, from, (size_t)bytes);
    else
        FL_NCCL_CUDA(n, fl_cu_copy(n->copies, to, from, bytes));
    return is_host ? FLEET_OK
                   : fl_nccl_cuda(n, fl_cu_wait(n->copies), "a small copy");
}

/* What is on the queue is waited for first, with a deadline. */
fleet_status fl_nccl_gather_small(fl_nccl *n, const fl_work *w)
{
    bool from_host = fl_cu_is_host(w->in), to_host = fl_cu_is_host(w->out);
    int64_t bytes = w->call.n;
    char own[FEW];

    if (!from_host || !to_host)
        FL_TRY(fl_nccl_finish(n, &w->call));
    FL_TRY(copy_any(n, own, w->in, bytes, from_host));
    FL_TRY(fl_nccl_match(n, &w->call, own, (size_t)bytes));
    for (int r = 0; r < n->base.comm.size; r++)
        FL_TRY(copy_any(n, (char *)w->out + r * bytes, fl_nccl_data_of(n, r),
                        bytes, to_host));
    return FLEET_OK;
}
