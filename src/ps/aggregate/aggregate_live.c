/* aggregate_live.c - hashes of a lane's rows and blocks, kept and compared. */
#include "ps/aggregate/aggregate_live.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "ps/aggregate/aggregate_internal.h"
#include "runtime/store/live_hash.h"

struct fl_aggregate_live {
    int every;
    bool holds;         /* block[] is what blocks have */
    fl_hash_sum *block; /* of each block */
    int64_t credit;     /* rows that were changed, and not spent */
    int table, bucket;  /* that are looked at next */
};

fleet_status fl_aggregate_live_begin(fl_aggregate *u, int every)
{
    FL_TRY(FL_NEW(&u->live, sizeof *u->live));
    u->live->every = every;
    FL_TRY(FL_NEW(&u->live->block,
                  ((size_t)u->n_block + 1) * sizeof *u->live->block));
    for (int i = 0; i < u->layout->n_table; i++)
        FL_TRY(fl_live_hash_begin(u->layout->table[i]));
    fl_aggregate_live_after(u, 0);
    return FLEET_OK;
}

void fl_aggregate_live_done(fl_aggregate *u)
{
    if (u->live)
        fl_free(u->live->block);
    fl_free(u->live);
    u->live = NULL;
}

/* --- blocks --------------------------------------------------------------- */

/* Weights and states, as rows of one entry, whose keys say which. */
static void hash_block(const fl_aggregate_block *b, fl_hash_sum to)
{
    const fl_flat *flat = b->param->flat;
    int64_t at = fl_block_offset(b->param, b->block);

    memset(to, 0, sizeof(fl_hash_sum));
    for (int i = -1; i < FL_MAX_STATE; i++) {
        const float *of = i < 0 ? flat->weight : flat->state[i];
        /* the top bits of the mixed key are 0: it is of the first entry */
        uint64_t key = fl_unmix((uint64_t)(2 * (i + 1)));
        const fl_row_hash h = {(fl_hash_sum *)to, &key, b->n};

        if (!of)
            continue;
        of += at;
        fl_simd_best()->hash_rows(&h, &of, 1, false);
    }
}

static fleet_status check_blocks(const fl_aggregate *u)
{
    for (int i = 0; u->live->holds && i < u->n_block; i++) {
        const fl_aggregate_block *b = &u->block[i];
        fl_hash_sum now;

        hash_block(b, now);
        if (memcmp(now, u->live->block[i], sizeof now) != 0)
            return fl_fail(FLEET_ECORRUPT,
                           "parameter \"%s\", floats %" PRId64 " to %" PRId64
                           ": they or their states are not those that the last "
                           "update has left: something else has changed them, "
                           "such as memory that has lost a bit",
                           b->param->name, b->block * FL_BLOCK,
                           b->block * FL_BLOCK + b->n - 1);
    }
    return FLEET_OK;
}

static void hash_blocks(fl_aggregate *u)
{
    for (int i = 0; i < u->n_block; i++)
        hash_block(&u->block[i], u->live->block[i]);
    u->live->holds = true;
}

/* --- rows ----------------------------------------------------------------- */

static void next_bucket(fl_aggregate *u)
{
    fl_aggregate_live *l = u->live;

    if (++l->bucket < FL_N_BUCKET)
        return;
    l->bucket = 0;
    l->table = (l->table + 1) % u->layout->n_table;
}

/* Buckets of other lanes are passed over. */
static fleet_status check_rows(fl_aggregate *u)
{
    fl_aggregate_live *l = u->live;

    while (u->layout->n_table > 0 && l->credit > 0) {
        int64_t n;

        if (fl_bucket_set_has(&u->own, l->bucket)) {
            FL_TRY(fl_live_hash_check_bucket(u->layout->table[l->table],
                                             l->bucket, &n));
            l->credit -= (n + FL_LIVE_EMPTY) * FL_LIVE_SHARE;
        } else {
            l->credit--;
        }
        next_bucket(u);
    }
    return FLEET_OK;
}

/* --- both ----------------------------------------------------------------- */

fleet_status fl_aggregate_live_check(fl_aggregate *u)
{
    if (!u->live)
        return FLEET_OK;
    FL_TRY(check_blocks(u));
    return check_rows(u);
}

void fl_aggregate_live_after(fl_aggregate *u, int64_t updates)
{
    if (!u->live)
        return;
    for (int i = 0; i < u->layout->n_table; i++)
        u->live->credit += u->table[i].n;
    u->live->holds = false; /* they have changed */
    if (updates % u->live->every == 0)
        hash_blocks(u);
}

void fl_aggregate_live_forget(fl_aggregate *u)
{
    if (u->live)
        u->live->holds = false;
}

/* --- records -------------------------------------------------------------- */

size_t fl_aggregate_live_most(const fl_aggregate *u)
{
    return u->live ? (size_t)u->layout->n_table + 1 : 0;
}

size_t fl_aggregate_live_hashes(const fl_aggregate *u, uint64_t *to)
{
    size_t n = 0;

    if (!u->live)
        return 0;
    for (int i = 0; i < u->layout->n_table; i++)
        to[n++] = fl_live_hash_sum(u->layout->table[i]);
    if (u->live->holds)
        to[n++] = fl_hash(u->live->block,
                          (size_t)u->n_block * sizeof *u->live->block, 0);
    return n;
}

fleet_status fl_aggregate_live_compare(fl_aggregate *u, const uint64_t *hash,
                                       size_t n)
{
    const size_t n_table = (size_t)u->layout->n_table;

    if (!u->live || n == 0)
        return FLEET_OK;
    if (n < n_table || n > n_table + 1)
        return fl_fail(FLEET_ECORRUPT, "%zu hashes of %zu tables", n, n_table);
    for (size_t i = 0; i < n_table; i++)
        if (hash[i] != fl_live_hash_sum(u->layout->table[i]))
            return fl_fail(FLEET_ECORRUPT,
                           "table \"%s\" has other rows than when this was "
                           "written",
                           u->layout->table[i]->name);
    if (n == n_table)
        return FLEET_OK;
    if (!u->live->holds)
        hash_blocks(u);
    if (hash[n_table] !=
        fl_hash(u->live->block, (size_t)u->n_block * sizeof *u->live->block, 0))
        return fl_fail(FLEET_ECORRUPT,
                       "dense parameters are other ones than when this was "
                       "written");
    return FLEET_OK;
}
