/* evict.c - the oldest rows of a bucket, by their heads, are found and
 * erased. */
#include "runtime/life/evict.h"

#include <stdlib.h>

#include "base/memory.h"
#include "runtime/life/accessor.h"
#include "runtime/life/age.h"
#include "runtime/store/key_log.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/table.h"

/* Of a full bucket such a part goes at once: finding the oldest rows reads the
 * heads of all. */
enum { SHARE = 8 };

typedef struct fl_row_age {
    uint64_t changed_at, key;
} fl_row_age;

static int older_first(const void *a, const void *b)
{
    const fl_row_age *x = a, *y = b;

    if (x->changed_at != y->changed_at)
        return x->changed_at < y->changed_at ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The rows of a bucket whose last change was before that version; *n of them
 * in s->old. */
static fleet_status list_older(const fl_rows *r, int bucket, uint64_t version,
                               fl_life_scratch *s, int64_t *n)
{
    fl_bucket_walk h = fl_bucket_walk_of(r, bucket);

    *n = 0;
    FL_TRY(
        fl_grow(&s->old, &s->old_capacity, (size_t)h.bucket.n, sizeof *s->old));
    while (fl_bucket_walk_next(&h))
        if (h.head->changed_at < version)
            s->old[(*n)++] = (fl_row_age){h.head->changed_at, h.key};
    return FLEET_OK;
}

static fleet_status let_go(const struct fl_snapshot *frozen, fl_rows *r,
                           const fl_row_age *old, int64_t n)
{
    int64_t erased;

    for (int64_t i = 0; i < n; i++) {
        if (frozen)
            FL_TRY(fl_snapshot_change(frozen, r, &old[i].key, 1));
        FL_TRY(r->methods->erase(r, &old[i].key, 1, &erased));
        if (r->watch)
            r->watch->row(r->watch, r, old[i].key, 0, true);
    }
    return FLEET_OK;
}

fleet_status fl_life_make_room(const fl_life_update *u, fl_rows *r, int bucket,
                               int64_t wanted, int64_t *fit)
{
    const int64_t most = fl_life_bucket_rows(u->rows->life);
    const fl_table_bucket b = fl_table_bucket_of(r, bucket);
    fl_life_scratch *s = &u->rows->life->scratch[u->part];
    int64_t has = b.n - b.holes, out = has + wanted - most, n;

    *fit = wanted;
    if (out <= 0)
        return FLEET_OK;
    FL_TRY(list_older(r, bucket, u->version, s, &n));
    if (out < most / SHARE)
        out = most / SHARE;
    if (out < n)
        qsort(s->old, (size_t)n, sizeof *s->old, older_first);
    else
        out = n;
    FL_TRY(let_go(u->frozen, r, s->old, out));
    *fit = most - (has - out);
    *fit = *fit < 0 ? 0 : *fit < wanted ? *fit : wanted;
    return FLEET_OK;
}

/* Rows whose last change, or load, was before that version. */
static fleet_status shrink_rows(fl_life *life, fl_rows *r, uint64_t version)
{
    for (int i = 0; i < FL_N_BUCKET; i++) {
        int64_t n;

        FL_TRY(list_older(r, i, version, &life->scratch[0], &n));
        FL_TRY(let_go(NULL, r, life->scratch[0].old, n));
    }
    return FLEET_OK;
}

/* Its keys have no ages: it is as old as what it has counted first. */
static void empty_filter(fl_life *life, uint64_t updates, uint64_t limit)
{
    if (!life->filter || limit <= life->emptied_at)
        return;
    life->filter->methods->clear(life->filter);
    life->emptied_at = updates;
}

/* A row of a table with that life, or of its keys that wait for a score. */
static bool decays_away(const fl_life *life, const fl_rows *r, float *row)
{
    const fleet_accessor *a = &life->o.accessor;

    return r == life->waiting ? fl_accessor_decay(a, row)
                              : fl_accessor_shrink(a, fl_accessor_of(r, row));
}

/* All rows of a bucket decay; n of them, in s->old, go. */
static fleet_status decay(fl_life *life, const fl_rows *r, int bucket,
                          int64_t *n)
{
    fl_life_scratch *s = &life->scratch[0];
    fl_bucket_walk h = fl_bucket_walk_of(r, bucket);

    *n = 0;
    FL_TRY(
        fl_grow(&s->old, &s->old_capacity, (size_t)h.bucket.n, sizeof *s->old));
    while (fl_bucket_walk_next(&h)) {
        float *row = fl_bucket_walk_row(&h);

        fl_live_hash_out(r, &h.key, &row, 1);
        if (decays_away(life, r, row))
            s->old[(*n)++] = (fl_row_age){0, h.key};
        fl_live_hash_in(r, &h.key, &row, 1);
    }
    return FLEET_OK;
}

static fleet_status shrink_by_score(fl_life *life, fl_rows *r)
{
    fl_key_log_lose(r);
    for (int i = 0; i < FL_N_BUCKET; i++) {
        int64_t n;

        FL_TRY(decay(life, r, i, &n));
        FL_TRY(let_go(NULL, r, life->scratch[0].old, n));
    }
    return FLEET_OK;
}

/* Of rows that may be out of memory, with an accessor. */
static fl_row_verdict judge_row(void *arg, fl_row_head *head)
{
    const fl_rows *rows = arg;
    const fleet_accessor *a = &rows->life->o.accessor;
    float *x = fl_accessor_of(rows, (float *)(void *)(head + 1));

    if (fl_accessor_shrink(a, x))
        return FL_ROW_GOES;
    return fl_accessor_is_cold(a, x) ? FL_ROW_IS_COLD : FL_ROW_STAYS;
}

fleet_status fl_life_shrink(fl_rows *rows, uint64_t updates, int64_t now)
{
    fl_life *life = rows->life;
    uint64_t limit = life ? fl_age_limit(life, updates, now) : 0;

    if (fl_rows_has_accessor(rows))
        fl_key_log_lose(rows);
    if (fl_rows_has_accessor(rows) && rows->methods->judge)
        return rows->methods->judge(rows, judge_row, rows);
    if (fl_rows_has_accessor(rows))
        FL_TRY(shrink_by_score(life, rows));
    if (life && life->o.entry.kind == FLEET_SHOW_CLICK_ENTRY)
        FL_TRY(shrink_by_score(life, life->waiting));
    if (limit == 0 || limit <= life->loaded_at)
        return FLEET_OK;
    empty_filter(life, updates, limit);
    FL_TRY(shrink_rows(life, rows, limit));
    return life->waiting ? shrink_rows(life, life->waiting, limit) : FLEET_OK;
}

typedef struct written_save {
    const fl_rows *rows;
    fleet_save_mode mode;
} written_save;

static fl_row_verdict note_saved(void *arg, fl_row_head *head)
{
    const written_save *s = arg;

    fl_accessor_saved(&s->rows->life->o.accessor, s->mode,
                      fl_accessor_of(s->rows, (float *)(void *)(head + 1)));
    return FL_ROW_STAYS;
}

fleet_status fl_life_saved(fl_rows *rows, fleet_save_mode mode)
{
    fl_key_log_lose(rows);
    if (rows->methods->judge)
        return rows->methods->judge(rows, note_saved,
                                    &(written_save){rows, mode});
    for (int i = 0; i < FL_N_BUCKET; i++)
        for (fl_bucket_walk h = fl_bucket_walk_of(rows, i);
             fl_bucket_walk_next(&h);) {
            float *row = fl_bucket_walk_row(&h);

            fl_live_hash_out(rows, &h.key, &row, 1);
            fl_accessor_saved(&rows->life->o.accessor, mode,
                              fl_accessor_of(rows, row));
            fl_live_hash_in(rows, &h.key, &row, 1);
        }
    return FLEET_OK;
}

typedef struct vector_count {
    const fl_rows *rows;
    int64_t n;
} vector_count;

static fleet_status count_vector(void *arg, int bucket, uint64_t key,
                                 const float *row)
{
    vector_count *c = arg;

    (void)bucket;
    (void)key;
    c->n += fl_has_vector(fl_rows_shown(c->rows, row));
    return FLEET_OK;
}

fleet_status fl_life_count_vectors(const fl_rows *rows, int64_t *n)
{
    vector_count c = {.rows = rows};

    *n = 0;
    if (rows->filler.vector_at == 0 || !fl_rows_has_accessor(rows))
        return FLEET_OK;
    FL_TRY(rows->methods->each(rows, count_vector, &c));
    *n = c.n;
    return FLEET_OK;
}
