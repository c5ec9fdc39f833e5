/* live_hash.c - a hash of a table's rows that is kept as they change. */
#include "runtime/store/live_hash.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/store/table.h"

_Static_assert(FL_HASH_SHIFT == 64 - FL_BUCKET_BITS, "entries are buckets");

static void hash_rows(const fl_rows *r, fl_hash_sum *to, const uint64_t *key,
                      float *const *row, int64_t n, bool out)
{
    const fl_row_hash h = {to, key, fl_rows_record(r)};

    fl_simd_best()->hash_rows(&h, (const float *const *)row, n, out);
}

void fl_live_hash_out_of(const fl_rows *r, const uint64_t *key,
                         float *const *row, int64_t n)
{
    hash_rows(r, r->live->bucket, key, row, n, true);
}

void fl_live_hash_into(const fl_rows *r, const uint64_t *key, float *const *row,
                       int64_t n)
{
    hash_rows(r, r->live->bucket, key, row, n, false);
}

int64_t fl_live_hash_apart_of(float *const *row, int64_t n)
{
    enum { MOST = 256, SLOT_BITS = 10, SLOTS = 1 << SLOT_BITS };
    uint16_t seen[SLOTS] = {0}; /* number + 1 */
    const int most = n < MOST ? (int)n : MOST;

    for (int i = 0; i < most; i++) {
        uint64_t hash = (uint64_t)(uintptr_t)row[i] * 0x9e3779b97f4a7c15u;
        uint64_t at = hash >> (64 - SLOT_BITS);

        for (; seen[at]; at = (at + 1) % SLOTS)
            if (row[seen[at] - 1] == row[i])
                return i;
        seen[at] = (uint16_t)(i + 1);
    }
    return most;
}

void fl_live_hash_clear(const fl_rows *r)
{
    if (r->live)
        memset(r->live->bucket, 0, sizeof r->live->bucket);
}

uint64_t fl_live_hash_sum(const fl_rows *r)
{
    const fl_live_hash *h = r->live;
    uint32_t sum[FL_HASH_LANES] = {0};

    for (int i = 0; h && i < FL_N_BUCKET; i++)
        for (int j = 0; j < FL_HASH_LANES; j++)
            sum[j] += h->bucket[i][j];
    return fl_hash(sum, sizeof sum, 0);
}

/* --- hashed again --------------------------------------------------------- */

static fleet_status add_again(void *arg, int bucket, uint64_t key,
                              const float *row)
{
    const fl_rows *r = arg;
    float *at = (float *)(uintptr_t)row;

    (void)bucket;
    hash_rows(r, r->live->again, &key, &at, 1, false);
    return FLEET_OK;
}

static fleet_status hash_again(const fl_rows *r)
{
    memset(r->live->again, 0, sizeof r->live->again);
    return r->methods->each(r, add_again, (void *)(uintptr_t)r);
}

fleet_status fl_live_hash_begin(fl_rows *r)
{
    fleet_status status;

    if (r->live || !r->methods->hashes)
        return FLEET_OK;
    FL_TRY(FL_NEW(&r->live, sizeof *r->live));
    status = hash_again(r);
    if (status == FLEET_OK) {
        memcpy(r->live->bucket, r->live->again, sizeof r->live->bucket);
        return FLEET_OK;
    }
    fl_free(r->live);
    r->live = NULL;
    return status;
}

static fleet_status compare(const fl_rows *r, int bucket)
{
    if (memcmp(r->live->bucket[bucket], r->live->again[bucket],
               sizeof r->live->bucket[bucket]) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_ECORRUPT,
                   "table \"%s\", bucket %d of %d: its rows are not those that "
                   "were written: something else has changed them, such as "
                   "memory that has lost a bit",
                   r->name, bucket, FL_N_BUCKET);
}

fleet_status fl_live_hash_check(const fl_rows *r)
{
    if (!r->live)
        return FLEET_OK;
    FL_TRY(hash_again(r));
    for (int i = 0; i < FL_N_BUCKET; i++)
        FL_TRY(compare(r, i));
    return FLEET_OK;
}

/* A key that has lost a bit is hashed into another bucket, and missing in its
 * own. */
fleet_status fl_live_hash_check_bucket(const fl_rows *r, int bucket, int64_t *n)
{
    fl_bucket_walk h;

    *n = 0;
    if (!r->live || !fl_is_table(r))
        return FLEET_OK;
    memset(r->live->again[bucket], 0, sizeof r->live->again[bucket]);
    for (h = fl_bucket_walk_of(r, bucket); fl_bucket_walk_next(&h); ++*n) {
        float *row = fl_bucket_walk_row(&h);

        hash_rows(r, r->live->again, &h.key, &row, 1, false);
    }
    return compare(r, bucket);
}
