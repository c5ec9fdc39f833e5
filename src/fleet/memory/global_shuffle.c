/* global_shuffle.c - all workers' samples in one order, shared out again. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/cache_file.h"
#include "fleet/memory/in_memory.h"
#include "fleet/memory/worker_swap.h"
#include "ps/worker/worker_io.h"

static const char call[] = "fleet_dataset_global_shuffle";

/* What the workers know of one another's samples. */
typedef struct plan {
    int64_t pass;
    fl_stream_spec spec;
    fl_memory_share share;
    fl_memory_origin origin;
    fl_permutation before, after;
} plan;

/* --- agreed --------------------------------------------------------------- */

/* All that has to be the same, as a number that a double holds. */
static double key_of(const fleet_dataset *d, const plan *p)
{
    const uint64_t words[] = {(uint64_t)p->pass,
                              (uint64_t)d->memory->of[FL_SHUFFLE_GLOBAL],
                              (uint64_t)d->options.batch_size,
                              d->fleet->context.seed, fl_cache_key(&p->spec)};

    return (double)(fl_hash(words, sizeof words, 0) >> 12);
}

static fleet_status check_same(fleet_dataset *d, const plan *p)
{
    const double key = key_of(d, p);
    double most[] = {key, -key};

    FL_TRY(fleet_metrics_max(d->fleet, most, 2));
    return most[0] == -most[1]
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "%s: workers differ: expected the same seed, pass, "
                         "batch_size and slots in all, and the same shuffles "
                         "before",
                         call);
}

/* Workers that share files by batches have loaded every n-th batch: the places
 * that they have in the order of the files. Not so with bad lines, which make
 * batches short. */
static fleet_status find_origin(fleet_dataset *d, plan *p, const double *rows)
{
    const fl_role *r = &d->fleet->role;
    const bool by_batches = d->options.format == FLEET_IDX ||
                            d->memory->held.files.n < (size_t)r->worker_num;
    bool fits = by_batches;

    for (int w = 0; w < r->worker_num; w++) {
        fits =
            fits && (uint64_t)rows[w] == fl_memory_rows(&p->share, (uint64_t)w);
        p->origin.first += w < r->index ? (uint64_t)rows[w] : 0;
    }
    p->origin.shared = fits;
    if (d->memory->of[FL_SHUFFLE_GLOBAL] == FL_NEVER)
        return FLEET_OK;
    fl_permutation_init(
        &p->before, p->share.rows,
        fl_dataset_seed(d, d->memory->of[FL_SHUFFLE_GLOBAL], 0));
    p->origin.shared = true;
    p->origin.before = &p->before;
    return FLEET_OK;
}

static fleet_status count_rows(fleet_dataset *d, plan *p, double *rows)
{
    const fl_role *r = &d->fleet->role;

    rows[r->index] = (double)d->memory->held.rows;
    FL_TRY(fleet_metrics_sum(d->fleet, rows, r->worker_num));
    p->share = (fl_memory_share){.batch = (uint64_t)d->options.batch_size,
                                 .n = (uint64_t)r->worker_num};
    for (int w = 0; w < r->worker_num; w++)
        p->share.rows += (uint64_t)rows[w];
    fl_permutation_init(&p->after, p->share.rows,
                        fl_dataset_seed(d, p->pass, 0));
    return find_origin(d, p, rows);
}

static fleet_status make_plan(fleet_dataset *d, plan *p)
{
    fleet_status status;
    double *rows;

    p->spec = fl_dataset_spec(d);
    FL_TRY(fl_dataset_shuffle_pass(d, FL_SHUFFLE_GLOBAL, &p->pass));
    FL_TRY(check_same(d, p));
    FL_TRY(FL_NEW(&rows, (size_t)d->fleet->role.worker_num * sizeof *rows));
    status = count_rows(d, p, rows);
    fl_free(rows);
    return status;
}

/* --- moved ---------------------------------------------------------------- */

static fleet_status swap_samples(fleet_dataset *d, const plan *p,
                                 fl_worker_swap *swap, fl_sample_memory *m)
{
    const fl_memory_limit limit = {.most = d->options.memory_limit,
                                   .used = d->memory->held.bytes};

    FL_TRY(fl_worker_swap_open(swap, d->fleet));
    return fl_memory_exchange(&d->memory->held, &p->origin, &p->share,
                              &p->after, &p->spec, &swap->rounds, &limit, m);
}

/* All have their new samples, or each keeps its old ones. */
static fleet_status agree_on(fleet_dataset *d, fleet_status status)
{
    double failed = status != FLEET_OK;
    fl_error kept;

    if (status != FLEET_OK)
        fl_error_take(&kept, status);
    if (status == FLEET_OK || status != FLEET_ETIMEDOUT) {
        const fleet_status agreed = fleet_metrics_max(d->fleet, &failed, 1);

        if (status == FLEET_OK && agreed != FLEET_OK)
            return agreed;
    }
    if (status != FLEET_OK)
        return fl_error_raise(&kept);
    return failed > 0
               ? fl_fail(FLEET_EPEER, "%s: another worker has failed", call)
               : FLEET_OK;
}

/* What a worker has sent may be on its way until all agree: a swap that is
 * closed before loses it. */
static fleet_status move_samples(fleet_dataset *d, const plan *p,
                                 fl_sample_memory *m)
{
    fl_worker_swap swap;
    fleet_status status = agree_on(d, swap_samples(d, p, &swap, m));

    fl_worker_swap_close(&swap);
    return status;
}

static void take_samples(fleet_dataset *d, const plan *p, fl_sample_memory *m)
{
    fl_dataset_memory *to = d->memory;

    m->files = to->held.files;
    m->bad_lines = to->held.bad_lines;
    to->held.files = (fl_paths){.n = 0};
    fl_sample_memory_done(&to->held);
    to->held = *m;
    to->view.shuffled = false;
    fl_in_memory_move_none(to);
    to->of[FL_SHUFFLE_LOCAL] = FL_NEVER;
    to->of[FL_SHUFFLE_GLOBAL] = p->pass;
}

/* It would wait for workers that have shuffled long ago. */
static fleet_status check_worker(const fleet *f)
{
    FL_TRY(fl_handle_check_worker(f, call));
    if (f->worker_io && fl_worker_io_from(f->worker_io))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: worker %d was started again, and the other workers "
                       "do not shuffle again for it: expected local_shuffle in "
                       "jobs whose workers are started again",
                       call, f->role.index);
    return FLEET_OK;
}

fleet_status fleet_dataset_global_shuffle(fleet_dataset *d)
{
    fl_sample_memory m = {.n_block = 0};
    plan p = {.pass = 0};

    FL_TRY(fl_in_memory_check(d, call));
    if (d->fleet->role.worker_num == 1)
        return fleet_dataset_local_shuffle(d);
    FL_TRY(check_worker(d->fleet));
    FL_TRY(make_plan(d, &p));
    if (p.share.rows > 0) {
        const fleet_status status = move_samples(d, &p, &m);

        if (status != FLEET_OK) {
            fl_sample_memory_done(&m);
            return status;
        }
        take_samples(d, &p, &m);
    }
    return FLEET_OK;
}
