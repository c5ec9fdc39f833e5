/* gradient_merge.c - pass gradient_merge: gradients of several batches are
 * added up, and one update uses the sums. */
#include <string.h>

#include "runtime/lookup/lookup.h"
#include "runtime/plan/gradients.h"
#include "runtime/plan/pass.h"
#include "runtime/reduce/bucket_layout.h"
#include "runtime/simd/simd.h"

/* The gradient of a group's first batch is copied, the gradients of later
 * batches are added. */
static fleet_status merge_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, 2);
    int64_t n;
    float *sum = fl_block_of(in, 0, r, &n);
    const float *g = fl_block_of(in, 1, r, &n);

    if (now->micro == 0)
        memcpy(sum, g, (size_t)n * sizeof *sum);
    else
        fl_simd_best()->add(sum, sum, g, n);
    return FLEET_OK;
}

static const fl_kernel kernel_merge = {
    .name = "merge.dense",
    .split = FL_SPLIT_PARTS,
    .prepare = fl_split_blocks,
    .run = merge_run,
};

/* Several executors may have a merge group under way: its sums are the plan's
 * own. */
static void emit_merge(fl_lowering *l, const fl_dense *d, int64_t offset,
                       int64_t n)
{
    bool whole = n == d->flat->n;
    int sum =
        whole ? d->gradient : fl_stretch(l, d->gradient, "merged", offset, n);
    int one = whole ? d->one : fl_stretch(l, d->one, "bucket", offset, n);

    FL_EMIT(l, &kernel_merge, NULL, NULL, FL_W(sum), FL_R(one),
            FL_R(l->plan->update));
}

fleet_status fl_pass_gradient_merge(fl_lowering *l, bool *applied)
{
    if (!l->plan->training || l->plan->group == 1)
        return FLEET_OK;
    *applied = true;
    l->phase = FL_MERGE;
    fl_update_value(l);
    for (size_t i = 0; i < l->plan->n_dense; i++) {
        fl_dense *d = &l->plan->dense[i];

        if (d->gradient < 0)
            continue;
        d->one = d->gradient;
        d->gradient = fl_flat_gradient(l, d->flat, "merged gradients", false);
        if (d->gradient >= 0)
            l->plan->value[d->gradient].merged = true;
        if (l->plan->store->agree) {
            fl_each_bucket(l, d, emit_merge);
            fl_each_pushed(l, d, emit_merge);
        } else {
            emit_merge(l, d, 0, d->flat->n);
        }
    }
    for (size_t i = 0; i < l->plan->n_sparse; i++)
        fl_lookup_merge(l, &l->plan->sparse[i]);
    return l->status;
}
