/* filter.c - counters of keys, in the blocks that are rows of a table. */
#include "runtime/life/filter.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/snapshot.h"

enum { CHUNK = 256 };

/* Of a key in its filter: all else is drawn from it. */
static uint64_t hash_of(const fl_rows *filter, uint64_t key)
{
    return fl_mix(fl_mix(key) ^ fl_filler_row_seed(&filter->filler));
}

/* The key of the row that has its counters: one that is in its own bucket. */
static uint64_t block_of(const fl_life *life, uint64_t key, uint64_t hash)
{
    uint64_t bucket = (uint64_t)fl_bucket_of(fl_mix(key));
    uint64_t block = fl_hash_below(hash, (uint64_t)life->shape.blocks);

    return fl_unmix(bucket << (64 - FL_BUCKET_BITS) | block);
}

/* A counter: some bits of the integer that a float has. */
typedef struct fl_counter {
    float *word;
    int shift;
} fl_counter;

static fl_counter counter_of(const fl_filter_shape *s, float *block,
                             uint64_t hash, int i)
{
    uint64_t drawn = fl_mix(hash + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15ULL);
    int64_t at =
        i * s->slice + (int64_t)fl_hash_below(drawn, (uint64_t)s->slice);

    return (fl_counter){block + 1 + at / s->per_word,
                        (int)(at % s->per_word) * s->bits};
}

static int64_t read_counter(const fl_filter_shape *s, fl_counter c)
{
    return (int64_t)((uint32_t)*c.word >> c.shift & ((1u << s->bits) - 1));
}

static void add_one(const fl_filter_shape *s, fl_counter c)
{
    if (read_counter(s, c) < s->count)
        *c.word = (float)((uint32_t)*c.word + (1u << c.shift));
}

/* What was loaded from a filter of another shape has counted other things. */
static void begin_block(const fl_filter_shape *s, float *block)
{
    if (block[0] == s->signature)
        return;
    memset(block, 0, (size_t)s->dim * sizeof *block);
    block[0] = s->signature;
}

static void count_key(const fl_life_update *u, uint64_t hash, float *block)
{
    const fl_life *life = u->rows->life;

    begin_block(&life->shape, block);
    for (int i = 0; i < life->shape.n_hash; i++)
        add_one(&life->shape, counter_of(&life->shape, block, hash, i));
    fl_row_of(block)->changed_at = u->version;
    fl_row_of(block)->step++;
}

static bool has_come(const fl_life *life, uint64_t key, float *block)
{
    const fl_filter_shape *s = &life->shape;
    uint64_t hash = hash_of(life->filter, key);

    for (int i = 0; i < s->n_hash; i++)
        if (read_counter(s, counter_of(s, block, hash, i)) < s->count)
            return false;
    return true;
}

static fleet_status count_chunk(const fl_life_update *u, const fl_life_key *k,
                                int64_t n, float **block)
{
    const fl_life *life = u->rows->life;
    fl_rows *filter = life->filter;
    uint64_t hash[CHUNK], key[CHUNK];

    for (int64_t i = 0; i < n; i++) {
        hash[i] = hash_of(filter, k[i].key);
        key[i] = block_of(life, k[i].key, hash[i]);
    }
    if (u->frozen)
        FL_TRY(fl_snapshot_change(u->frozen, filter, key, n));
    FL_TRY(filter->methods->make(filter, key, n, block));
    for (int64_t i = 0; i < n; i++) {
        fl_live_hash_out(filter, &key[i], &block[i], 1);
        count_key(u, hash[i], block[i]);
        fl_live_hash_in(filter, &key[i], &block[i], 1);
    }
    return FLEET_OK;
}

fleet_status fl_filter_count(const fl_life_update *u, fl_life_key *k,
                             int64_t *n)
{
    fl_life_scratch *s = &u->rows->life->scratch[u->part];
    int64_t left = 0;

    FL_TRY(
        fl_grow(&s->block, &s->block_capacity, (size_t)*n, sizeof *s->block));
    for (int64_t i = 0; i < *n; i += CHUNK)
        FL_TRY(count_chunk(u, k + i, *n - i < CHUNK ? *n - i : CHUNK,
                           s->block + i));
    for (int64_t i = 0; i < *n; i++)
        if (has_come(u->rows->life, k[i].key, s->block[i]))
            k[left++] = k[i];
    *n = left;
    return FLEET_OK;
}
