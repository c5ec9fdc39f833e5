/* bucket_map.h - which lane of which server keeps each bucket, and sets of
 * buckets. A key, or a block of a dense parameter, hashes to one of FL_N_BUCKET
 * buckets; so results do not depend on how many servers and lanes there are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/store/table_api.h"

enum { FL_MOST_SERVER = 128, FL_MOST_LANE = 16 };

/* The buckets that a lane, a server or a rank keeps. */
typedef struct fl_bucket_set {
    uint64_t bit[FL_N_BUCKET / 64];
} fl_bucket_set;

/* Buckets [first, end). */
fl_bucket_set fl_bucket_range(int first, int end);
int fl_bucket_set_count(const fl_bucket_set *s);

static inline bool fl_bucket_set_has(const fl_bucket_set *s, int bucket)
{
    return s->bit[bucket / 64] >> (bucket % 64) & 1;
}

/* A lane's number in a map. */
static inline uint16_t fl_lane_of_server(int server, int lane)
{
    return (uint16_t)(server * FL_MOST_LANE + lane);
}
#define FL_LANE_UNKNOWN UINT16_MAX

/* A worker's messages carry the number of its map, and a lane takes them if it
 * has the same one. In map 0 servers have ranges of about equal length, in
 * their order, and so have the lanes of a server. */
typedef struct fl_bucket_map {
    uint32_t view;
    uint16_t lane[FL_N_BUCKET]; /* fl_lane_of_server(), or FL_LANE_UNKNOWN */
} fl_bucket_map;

/* Map 0 of servers that have n_lane[s] lanes each. 0: how many that server has
 * is not known, and neither is which of them keeps what. */
void fl_bucket_map_begin(fl_bucket_map *m, int n_server, const int *n_lane);

/* What that lane keeps. */
fl_bucket_set fl_bucket_map_own(const fl_bucket_map *m, int server, int lane);
