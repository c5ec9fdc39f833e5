/* bucket_layout.c - which stretches of a group's gradient ranks reduce in one
 * call. */
#include "runtime/reduce/bucket_layout.h"

#include "runtime/plan/gradients.h"
#include "runtime/reduce/dgc.h"

/* Neighbours in a group that are reduced in one call: whole parameters, in the
 * order in which their gradients are ready. */
typedef struct bucket {
    int64_t offset, n;
    bool dgc; /* of one parameter */
    bool last;
} bucket;

/* The last one is for the gradients that come last, and is waited for. */
static bool is_full(const fl_lowering *l, const bucket *b, int64_t left)
{
    const fl_training *t = &l->program->training;

    return b->dgc || b->n >= t->all_reduce.bucket ||
           (!b->last && left <= t->all_reduce.last_bucket);
}

/* But for the padding between the two. */
static bool lies_behind(const bucket *b, const fl_param *p)
{
    return p->offset - (b->offset + b->n) < 16;
}

static int64_t floats_of(const fl_lowering *l, const fl_dense *d)
{
    const fl_map *params = &l->plan->store->params;
    int64_t n = 0;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == d->flat && fl_is_updated_locally(l, p))
            n += p->n;
    }
    return n;
}

void fl_each_bucket(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit)
{
    const fl_map *params = &l->plan->store->params;
    int64_t left = floats_of(l, d);
    bucket b = {0};

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat != d->flat || !fl_is_updated_locally(l, p))
            continue;
        if (b.n > 0 && (is_full(l, &b, left) || !lies_behind(&b, p) ||
                        fl_dgc_takes(l, p))) {
            emit(l, d, b.offset, b.n);
            b.n = 0;
        }
        if (b.n == 0)
            b = (bucket){.offset = p->offset,
                         .dgc = fl_dgc_takes(l, p),
                         .last = left <=
                                 l->program->training.all_reduce.last_bucket};
        b.n = p->offset + p->n - b.offset;
        left -= p->n;
    }
    if (b.n > 0)
        emit(l, d, b.offset, b.n);
}

void fl_each_pushed(fl_lowering *l, const fl_dense *d, fl_bucket_emitter *emit)
{
    const fl_map *params = &l->plan->store->params;

    for (size_t i = 0; i < params->n; i++) {
        const fl_param *p = params->entry[i].value;

        if (p->flat == d->flat && fl_is_pushed(l, p))
            emit(l, d, p->offset, p->n);
    }
}
