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
