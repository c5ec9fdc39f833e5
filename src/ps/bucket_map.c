/* bucket_map.c - maps of buckets, and sets of them. */
#include "ps/bucket_map.h"

fl_bucket_set fl_bucket_range(int first, int end)
{
    fl_bucket_set s = {0};

    for (int b = first; b < end; b++)
        s.bit[b / 64] |= (uint64_t)1 << (b % 64);
    return s;
}

int fl_bucket_set_count(const fl_bucket_set *s)
{
    int n = 0;

    for (int i = 0; i < FL_N_BUCKET / 64; i++)
        n += __builtin_popcountll(s->bit[i]);
    return n;
}

/* Where share i of n begins, of the range [first, end). */
static int share_begins(int first, int end, int i, int n)
{
    return first + i * (end - first) / n;
}

static void share_server(fl_bucket_map *m, int server, int n_server, int n_lane)
{
    int first = share_begins(0, FL_N_BUCKET, server, n_server);
    int end = share_begins(0, FL_N_BUCKET, server + 1, n_server);

    for (int b = first; n_lane == 0 && b < end; b++)
        m->lane[b] = FL_LANE_UNKNOWN;
    for (int i = 0; i < n_lane; i++)
        for (int b = share_begins(first, end, i, n_lane);
             b < share_begins(first, end, i + 1, n_lane); b++)
            m->lane[b] = fl_lane_of_server(server, i);
}

void fl_bucket_map_begin(fl_bucket_map *m, int n_server, const int *n_lane)
{
    m->view = 0;
    for (int s = 0; s < n_server; s++)
        share_server(m, s, n_server, n_lane[s]);
}

fl_bucket_set fl_bucket_map_own(const fl_bucket_map *m, int server, int lane)
{
    fl_bucket_set own = {0};

    for (int b = 0; b < FL_N_BUCKET; b++)
        if (m->lane[b] == fl_lane_of_server(server, lane))
            own.bit[b / 64] |= (uint64_t)1 << (b % 64);
    return own;
}
