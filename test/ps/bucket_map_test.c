/* bucket_map_test.c - maps of buckets: every bucket has exactly one lane,
 * however many servers and lanes there are, and the lane that it had in every
 * release. */
#define SUITE bucket_map
#include "test.h"

#include "ps/bucket_map.h"

/* The formula of map 0, which other versions and checkpoints know. */
static int begin_of(int i, int n, int first, int end)
{
    return first + i * (end - first) / n;
}

static void check_lane(const fl_bucket_map *m, int server, int lane, int first,
                       int end)
{
    fl_bucket_set own = fl_bucket_map_own(m, server, lane);

    CHECK_INT(fl_bucket_set_count(&own), end - first);
    for (int b = 0; b < FL_N_BUCKET; b++)
        CHECK(fl_bucket_set_has(&own, b) == (b >= first && b < end));
}

/* Lanes in their order take the buckets in theirs. */
static void check_cover(int n_server, const int *n_lane)
{
    fl_bucket_map m;

    fl_bucket_map_begin(&m, n_server, n_lane);
    CHECK_INT(m.view, 0);
    for (int s = 0; s < n_server; s++) {
        int first = begin_of(s, n_server, 0, FL_N_BUCKET);
        int end = begin_of(s + 1, n_server, 0, FL_N_BUCKET);

        for (int l = 0; l < n_lane[s]; l++)
            check_lane(&m, s, l, begin_of(l, n_lane[s], first, end),
                       begin_of(l + 1, n_lane[s], first, end));
    }
}

TEST(every_bucket_has_one_lane)
{
    int n_lane[FL_MOST_SERVER];

    for (int n = 1; n <= FL_MOST_SERVER; n += n < 10 ? 1 : 59)
        for (int l = 1; l <= FL_MOST_LANE; l++) {
            for (int s = 0; s < n; s++)
                n_lane[s] = 1 + (l + s) % FL_MOST_LANE;
            check_cover(n, n_lane);
        }
}

/* A server knows its own lanes, and the same of them as every worker. */
TEST(a_server_has_the_lanes_of_the_whole_map)
{
    const int all[] = {2, 3, 4}, own[] = {0, 3, 0};
    fl_bucket_map whole, part;

    fl_bucket_map_begin(&whole, 3, all);
    fl_bucket_map_begin(&part, 3, own);
    for (int b = 0; b < FL_N_BUCKET; b++)
        if (whole.lane[b] / FL_MOST_LANE == 1)
            CHECK_INT(part.lane[b], whole.lane[b]);
        else
            CHECK_INT(part.lane[b], FL_LANE_UNKNOWN);
}

TEST(a_set_need_not_be_a_range)
{
    fl_bucket_map m;
    fl_bucket_set own;

    fl_bucket_map_begin(&m, 2, (int[]){1, 1});
    m.lane[0] = m.lane[63] = m.lane[64] = fl_lane_of_server(1, 0);
    own = fl_bucket_map_own(&m, 1, 0);
    CHECK_INT(fl_bucket_set_count(&own), FL_N_BUCKET / 2 + 3);
    CHECK(fl_bucket_set_has(&own, 0) && !fl_bucket_set_has(&own, 1));
    CHECK(fl_bucket_set_has(&own, 63) && fl_bucket_set_has(&own, 64));
    own = fl_bucket_map_own(&m, 0, 0);
    CHECK(!fl_bucket_set_has(&own, 64) && fl_bucket_set_has(&own, 65));
}

TEST(a_range_is_a_set)
{
    fl_bucket_set s = fl_bucket_range(60, 70);

    CHECK_INT(fl_bucket_set_count(&s), 10);
    CHECK(!fl_bucket_set_has(&s, 59) && fl_bucket_set_has(&s, 60));
    CHECK(fl_bucket_set_has(&s, 69) && !fl_bucket_set_has(&s, 70));
    s = fl_bucket_range(0, FL_N_BUCKET);
    CHECK_INT(fl_bucket_set_count(&s), FL_N_BUCKET);
}
