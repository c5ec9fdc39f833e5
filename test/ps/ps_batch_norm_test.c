/* ps_batch_norm_test.c - batch_norm's moving averages in jobs: with servers in
 * sync the bits of one process that merges the workers' batches, whatever else
 * shapes its updates; in async and geo what batches were like. */
#define SUITE ps_batch_norm
#include "ps_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

enum { COLS = 5 };

static ps_job job_of(int servers, int lanes)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .how = {.normalized = true},
                    .file = {scene_file("a.txt", 200, 1)}};
}

static void check_bits(ps_job j)
{
    uint64_t want = ps_alone(&j, 2);

    j.workers = 2;
    CHECK(ps_hash(&j) == want);
}

TEST(sync_has_the_bits_of_one_process)
{
    check_bits(job_of(1, 1));
    check_bits(job_of(2, 3));
}

TEST(so_it_has_with_what_shapes_updates)
{
    ps_job j = job_of(2, 2);

    j.how.l2_decay = j.how.l1_decay = 0.01f;
    j.how.value_clip = 0.01f;
    check_bits(j);
    j.how.clip = 0.01f;
    check_bits(j);
}

TEST(so_it_has_with_rates_of_layers)
{
    ps_job j = job_of(2, 2);

    j.how.optimizer = "momentum";
    j.how.layers = "lars";
    check_bits(j);
    j.how.optimizer = "adam";
    j.how.layers = "lamb";
    check_bits(j);
}

/* Servers divide by the workers' batches: a worker that adds up its own has
 * divided what follows their mean. */
TEST(so_it_has_where_merged_gradients_are_added_up)
{
    ps_job j = job_of(2, 2);
    uint64_t want;

    j.how.sums = true;
    want = ps_alone(&j, 4);
    j.workers = 1;
    j.how.merge = 4;
    CHECK(ps_hash(&j) == want);
}

/* number[0]: by how much the worst average is off from that of all lines'
 * numbers, as the layer before makes them: they do not move far. */
static fleet_status look(ps_node *n)
{
    float mean[COLS], variance[COLS];

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 4));
    if (n->index == 0) {
        FL_TRY(fleet_parameter_get(n->s.f, "norm.mean", mean, COLS));
        FL_TRY(fleet_parameter_get(n->s.f, "norm.variance", variance, COLS));
        for (int j = 0; j < COLS; j++) {
            n->number[0] += fabs((double)mean[j]) > 0;
            n->number[1] += variance[j] > 0 && variance[j] < 1;
        }
    }
    return ps_end(n);
}

/* Variances begin at 1; the layer's are smaller: numbers in [-1, 1] by weights
 * that are about a half. */
TEST(async_and_geo_move_them_to_those_of_batches)
{
    for (int geo = 0; geo < 2; geo++) {
        ps_job j = job_of(1, 2);

        j.how.a_sync = true;
        j.how.geo = geo ? 3 : 0;
        j.work = look;
        ps_run(&j);
        ps_check(&j);
        CHECK(ps_worker(&j, 0)->number[0] == COLS);
        CHECK(ps_worker(&j, 0)->number[1] == COLS);
    }
}

enum { LOOKED_AT = 4 }; /* a node has room for them */

static fleet_status read_mean(ps_node *n)
{
    float mean[COLS];

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 4));
    FL_TRY(fleet_parameter_get(n->s.f, "norm.mean", mean, COLS));
    for (int j = 0; j < LOOKED_AT; j++)
        n->number[j] = (double)mean[j];
    return ps_end(n);
}

/* Of a job of one worker; with Adam, which a factor of gradients changes
 * little. */
static void means_of(bool merges, float clip, fleet_wire_type type,
                     double mean[LOOKED_AT])
{
    ps_job j = job_of(1, 2);

    j.workers = 1;
    j.how.a_sync = true;
    j.how.merged = merges ? 2 : 0;
    j.how.clip = clip;
    j.how.push_type = type;
    j.work = read_mean;
    ps_run(&j);
    ps_check(&j);
    memcpy(mean, ps_worker(&j, 0)->number, LOOKED_AT * sizeof *mean);
}

/* A clip that is worked in before gradients leave is none of theirs: by one
 * they would be a twentieth at most. */
TEST(a_clip_of_what_is_pushed_leaves_them_alone)
{
    for (int i = 0; i < 2; i++) {
        bool merges = i == 0;
        fleet_wire_type type = merges ? FLEET_WIRE_FP32 : FLEET_WIRE_BF16;
        double want[LOOKED_AT], got[LOOKED_AT];

        means_of(merges, 0, type, want);
        means_of(merges, 1e-2f, type, got);
        for (int j = 0; j < LOOKED_AT; j++)
            if (!(got[j] / want[j] > 0.3 && got[j] / want[j] < 3))
                test_fail(__FILE__, __LINE__, "column %d: %g, not some %g", j,
                          got[j], want[j]);
    }
}
