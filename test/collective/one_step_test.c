/* one_step_test.c - one step of SGD by 2 ranks of mpirun, a half of the batch
 * each, is that of one process with all of it: within 1e-6 of the largest
 * weight of each parameter, and of each row. */
#define _GNU_SOURCE
#define SUITE one_step
#include "launch_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

enum { HALF = 25 };

static void by_all_batches(fleet_distributed_strategy *s)
{
    s->sync_batch_norm = 1;
}

static kit_options how = {
    .optimizer = "sgd", .learning_rate = 0.1f, .max_batch = 2 * HALF};

static void normalize(void)
{
    how.normalized = true;
    how.choose = by_all_batches;
}

/* --- half of a batch ----------------------------------------------------- */

static void cut_feed(fleet_feed *feed, const int64_t *dims, int64_t first)
{
    size_t size = fleet_dtype_size(feed->dtype);
    int64_t skipped = feed->offsets ? feed->offsets[first] : first * dims[1];

    feed->data = (const char *)feed->data + (size_t)skipped * size;
    if (feed->offsets && skipped > 0) {
        static int64_t offsets[KIT_MOST_FEEDS][HALF + 1];
        static int n;
        int64_t *own = offsets[n++];

        for (int i = 0; i <= HALF; i++)
            own[i] = feed->offsets[first + i] - skipped;
        feed->offsets = own;
    }
}

static kit_batch half_of(const kit_batch *all, int rank)
{
    kit_batch half = kit_head(all, HALF);

    for (int i = 0; i < half.n; i++)
        cut_feed(&half.feed[i], all->dims[i], rank * HALF);
    return half;
}

/* --- a rank -------------------------------------------------------------- */

/* This program, once more: TEST_ONE_STEP is where the first rank saves. */
__attribute__((constructor)) static void be_a_rank(void)
{
    const char *save = getenv("TEST_ONE_STEP"), *kind = getenv("TEST_KIND");
    kit_batch *all, half;
    kit_model m;

    if (!save || !kind)
        return;
    test_ends_process = true;
    if (getenv("TEST_NORMALIZED"))
        normalize();
    kit_open(&m, (kit_kind)atoi(kind), &how);
    CHECK_OK(fleet_init_worker(m.f));
    all = kit_batch_for(&m, 2 * HALF, 3);
    half = half_of(all, fleet_worker_index(m.f));
    CHECK_OK(kit_run(m.e, &half));
    CHECK_INT(m.f->store->updates, 1);
    if (fleet_is_first_worker(m.f))
        CHECK_OK(fleet_save_persistables(m.f, save));
    CHECK_OK(fleet_barrier_worker(m.f));
    CHECK_OK(fleet_stop_worker(m.f));
    kit_batch_free(all);
    kit_close(&m);
    exit(0);
}

/* --- what both came to --------------------------------------------------- */

static void check_floats(const char *name, const float *got, const float *want,
                         int64_t n)
{
    float most = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(got[i] - want[i]));
        largest = fmaxf(largest, fabsf(want[i]));
    }
    if (!(most <= 1e-6f * largest))
        test_fail(__FILE__, __LINE__, "%s: weights of %g differ by %g", name,
                  (double)largest, (double)most);
}

static const float *weights_of(const fl_param *p)
{
    return p->flat->weight + p->offset;
}

static int check_params(const fl_store *got, const fl_store *want)
{
    for (size_t i = 0; i < want->params.n; i++) {
        const fl_param *b = want->params.entry[i].value;
        const fl_param *a = fl_store_param(got, b->name);

        CHECK(a != NULL);
        check_floats(b->name, weights_of(a), weights_of(b), b->n);
    }
    return (int)want->params.n;
}

typedef struct both {
    fl_rows *got;
    int64_t dim, n;
} both;

static fleet_status check_row(void *arg, int bucket, uint64_t key,
                              const float *row)
{
    both *b = arg;
    float *got;

    (void)bucket;
    FL_TRY(b->got->methods->find(b->got, &key, 1, &got));
    CHECK(got != NULL);
    check_floats(b->got->name, got, row, b->dim);
    b->n++;
    return FLEET_OK;
}

static int64_t check_tables(const fl_store *got, const fl_store *want)
{
    int64_t n = 0;

    for (size_t i = 0; i < want->tables.n; i++) {
        const fl_rows *r = want->tables.entry[i].value;
        both b = {fl_map_get(&got->tables, r->name), r->dim, 0};

        CHECK_OK(r->methods->each(r, check_row, &b));
        CHECK_INT(b.n, b.got->methods->count(b.got));
        n += b.n;
    }
    return n;
}

static void train_by_ranks(kit_kind kind, const char *save)
{
    char text[12];

    launch_need_mpirun();
    snprintf(text, sizeof text, "%d", (int)kind);
    setenv("TEST_KIND", text, 1);
    setenv("TEST_ONE_STEP", save, 1);
    setenv("SELF", test_program(), 1);
    launch_deadline_ms = 60000;
    if (launch_run("--nproc_per_node 2", "exec $SELF") != 0)
        test_fail(__FILE__, __LINE__, "%s", launch_log("workerlog.0"));
    unsetenv("TEST_ONE_STEP");
}

static void check_one_step(kit_kind kind, int64_t least_rows)
{
    const char *save = test_path("save");
    kit_model ranks, one;
    kit_batch *all;
    uint64_t before;

    train_by_ranks(kind, save);
    kit_open(&ranks, kind, &how);
    kit_open(&one, kind, &how);
    CHECK_OK(fleet_load_model(ranks.f, save));
    before = kit_hash(one.f);
    all = kit_batch_for(&one, 2 * HALF, 3);
    CHECK_OK(kit_run(one.e, all));
    CHECK(kit_hash(one.f) != before);
    CHECK(check_params(ranks.f->store, one.f->store) >= 6);
    CHECK(check_tables(ranks.f->store, one.f->store) >= least_rows);
    kit_batch_free(all);
    kit_close(&ranks);
    kit_close(&one);
}

TEST_LIMIT(ranks_of_an_mlp_take_the_step_of_twice_the_batch, 120)
{
    check_one_step(KIT_MLP, 0);
}

TEST_LIMIT(ranks_of_wide_and_deep_take_the_step_of_twice_the_batch, 120)
{
    check_one_step(KIT_CTR, 100);
}

/* By the statistics of both halves, which are those of the whole. */
TEST_LIMIT(so_they_do_with_sync_batch_norm, 120)
{
    normalize();
    setenv("TEST_NORMALIZED", "1", 1);
    check_one_step(KIT_CTR, 100);
}
