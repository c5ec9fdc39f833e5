/* inference_follow.c - a predictor that follows a feed: rows and weights change
 * between two runs, a few rows at a time. */
#include "fleet/inference_internal.h"

#include <string.h>

#include "base/memory.h"
#include "fleet/delta_feed.h"
#include "runtime/store/table.h"

enum { AT_ONCE = 512 }; /* rows that a run waits for at most */

/* Above all versions that rows may have from a save. */
#define FIRST_LIFE ((uint64_t)1 << 62)

/* --- between runs --------------------------------------------------------- */

void fl_predictor_begin_change(fleet_predictor *p)
{
    pthread_mutex_lock(&p->lock);
    p->changes++;
    while (p->n_running > 0)
        pthread_cond_wait(&p->may_change, &p->lock);
}

void fl_predictor_end_change(fleet_predictor *p)
{
    if (--p->changes == 0)
        pthread_cond_broadcast(&p->may_run);
    else
        pthread_cond_signal(&p->may_change);
    pthread_mutex_unlock(&p->lock);
}

/* --- parts ---------------------------------------------------------------- */

static fleet_status change_rows(fl_rows *rows, const uint64_t *key, int64_t n,
                                const float *value, uint64_t life)
{
    float *row[AT_ONCE];
    int64_t erased;

    if (!value)
        return rows->methods->erase(rows, key, n, &erased);
    FL_TRY(rows->methods->make(rows, key, n, row));
    for (int64_t i = 0; i < n; i++) {
        fl_rows_write(rows, row[i], value + i * rows->dim);
        fl_row_of(row[i])->changed_at = life;
    }
    return FLEET_OK;
}

static fleet_status apply_rows(fleet_predictor *p, const fleet_feed_part *part,
                               uint64_t life)
{
    fl_rows *rows = fl_store_rows(p->store, part->name);
    fleet_status status = FLEET_OK;

    if (!rows)
        return FLEET_OK;
    if (rows->dim != part->dim)
        return fl_fail(FLEET_ESHAPE,
                       "fleet_predictor_apply: rows of table \"%.200s\" have "
                       "%lld numbers, and those of the feed %lld",
                       part->name, (long long)rows->dim, (long long)part->dim);
    for (int64_t i = 0, n; i < part->n && status == FLEET_OK; i += n) {
        n = part->n - i < AT_ONCE ? part->n - i : AT_ONCE;
        fl_predictor_begin_change(p);
        status =
            change_rows(rows, part->key + i, n,
                        part->value ? part->value + i * part->dim : NULL, life);
        fl_predictor_end_change(p);
    }
    return status;
}

static fleet_status check_weights(const fleet_predictor *p,
                                  const fleet_feed_part *part)
{
    const fl_param *param = fl_store_param(p->store, part->name);

    if (!param || part->first + part->n <= param->n)
        return FLEET_OK;
    return fl_fail(FLEET_ESHAPE,
                   "fleet_predictor_apply: parameter \"%.200s\" has %lld "
                   "numbers, and the feed tells of number %lld",
                   part->name, (long long)param->n,
                   (long long)(part->first + part->n - 1));
}

static void write_weights(const fleet_predictor *p, const fleet_feed_part *part)
{
    const fl_param *param = fl_store_param(p->store, part->name);

    if (param)
        memcpy(param->flat->weight + param->offset + part->first, part->value,
               (size_t)part->n * sizeof *part->value);
}

/* All weights of a batch at once: they are of one version. */
static fleet_status apply_weights(fleet_predictor *p, const fleet_feed_batch *b)
{
    int n = 0;

    for (int i = 0; i < b->n_part; i++)
        if (b->part[i].kind == FLEET_FEED_WEIGHTS) {
            FL_TRY(check_weights(p, &b->part[i]));
            n++;
        }
    if (n == 0)
        return FLEET_OK;
    fl_predictor_begin_change(p);
    for (int i = 0; i < b->n_part; i++)
        if (b->part[i].kind == FLEET_FEED_WEIGHTS)
            write_weights(p, &b->part[i]);
    fl_predictor_end_change(p);
    return FLEET_OK;
}

/* --- rows of an earlier life ---------------------------------------------- */

typedef struct row_sweep {
    fleet_predictor *predictor;
    const fleet_delta_feed *feed;
    int lane;
    uint64_t life;
    fl_rows *rows;
    uint64_t key[AT_ONCE];
    int n;
} row_sweep;

static fleet_status erase_listed(row_sweep *s)
{
    int64_t erased;
    fleet_status status;

    if (s->n == 0)
        return FLEET_OK;
    fl_predictor_begin_change(s->predictor);
    status = s->rows->methods->erase(s->rows, s->key, s->n, &erased);
    fl_predictor_end_change(s->predictor);
    s->n = 0;
    return status;
}

/* The calling thread alone changes rows: runs may go on meanwhile. */
static fleet_status sweep_bucket(row_sweep *s, int bucket)
{
    const fl_page_layout layout = fl_table_layout(s->rows);

    for (int64_t i = 0; i < fl_table_bucket_of(s->rows, bucket).n; i++) {
        const fl_table_bucket b = fl_table_bucket_of(s->rows, bucket);
        const fl_row_head *head = fl_place_at(&layout, b.page, i);
        uint64_t key = *fl_place_key(&layout, b.page, i);

        if (head->erased || head->changed_at == s->life ||
            fleet_feed_lane_of(s->feed, key) != s->lane)
            continue;
        s->key[s->n++] = key;
        if (s->n == AT_ONCE)
            FL_TRY(erase_listed(s));
    }
    return FLEET_OK;
}

static fleet_status sweep_tables(fleet_predictor *p,
                                 const fleet_delta_feed *feed, int lane,
                                 uint64_t life)
{
    row_sweep s = {.predictor = p, .feed = feed, .lane = lane, .life = life};

    for (size_t i = 0; i < p->store->tables.n; i++) {
        s.rows = p->store->tables.entry[i].value;
        for (int b = 0; b < FL_N_BUCKET && fl_feed_tells(feed, s.rows->name);
             b++)
            FL_TRY(sweep_bucket(&s, b));
        FL_TRY(erase_listed(&s));
    }
    return FLEET_OK;
}

/* --- batches -------------------------------------------------------------- */

static fleet_status find_lane(fleet_predictor *p, int lane, fl_lane_life **out)
{
    if (lane >= p->n_followed) {
        FL_TRY(fl_grow(&p->followed, &p->followed_capacity, (size_t)lane + 1,
                       sizeof *p->followed));
        for (; p->n_followed <= lane; p->n_followed++)
            p->followed[p->n_followed] = (fl_lane_life){.life = FIRST_LIFE};
    }
    *out = &p->followed[lane];
    return FLEET_OK;
}

static fleet_status apply_batch(fleet_predictor *p,
                                const fleet_delta_feed *feed,
                                const fleet_feed_batch *b)
{
    fl_lane_life *lane;

    FL_TRY(find_lane(p, b->lane, &lane));
    if (b->begins) {
        lane->begins = true;
        lane->life++;
    }
    for (int i = 0; i < b->n_part; i++)
        if (b->part[i].kind != FLEET_FEED_WEIGHTS)
            FL_TRY(apply_rows(p, &b->part[i], lane->life));
    FL_TRY(apply_weights(p, b));
    if (!lane->begins || !b->complete)
        return FLEET_OK;
    lane->begins = false;
    return sweep_tables(p, feed, b->lane, lane->life);
}

fleet_status fleet_predictor_apply(fleet_predictor *p,
                                   const fleet_delta_feed *feed)
{
    const fleet_feed_batch *b;

    if (!p || !feed)
        return fl_fail(FLEET_EINVAL, "fleet_predictor_apply: NULL argument");
    b = fl_feed_given_out(feed);
    if (!b)
        return fl_fail(FLEET_EINVAL, "fleet_predictor_apply: the feed has "
                                     "given out nothing");
    FL_TRY(fl_context_check(&p->context));
    return apply_batch(p, feed, b);
}
