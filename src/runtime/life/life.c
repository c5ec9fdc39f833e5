/* life.c - keys that become rows; see life.h. */
#include "runtime/life/life.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/rng.h"
#include "runtime/life/accessor.h"
#include "runtime/life/evict.h"
#include "runtime/life/filter.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/snapshot.h"

enum { CHUNK = 256 };

static uint64_t key_of(const fl_life_update *u, int64_t i)
{
    return u->key[u->which ? u->which[i] : i];
}

static fl_life_scratch *scratch_of(const fl_life_update *u)
{
    return &u->rows->life->scratch[u->part];
}

static fleet_status list_newcomers(const fl_life_update *u, float *const *row,
                                   int64_t *n)
{
    fl_life_scratch *s = scratch_of(u);
    size_t count = 0;

    for (int64_t i = 0; i < u->n; i++)
        count += row[i] == NULL;
    FL_TRY(fl_grow(&s->fresh, &s->fresh_capacity, count, sizeof *s->fresh));
    *n = 0;
    for (int64_t i = 0; i < u->n; i++)
        if (!row[i])
            s->fresh[(*n)++] = (fl_life_key){.key = key_of(u, i), .at = i};
    return FLEET_OK;
}

/* --- probability ---------------------------------------------------------- */

/* In [0, 1), of the key alone: another sequence than that of its initial
 * value. */
static float chance_of(const fl_rows *r, uint64_t key)
{
    float x;

    fl_rng_uniform(fl_mix(fl_filler_row_seed(&r->filler)), key, 0, 0.0f, 1.0f,
                   &x, 1);
    return x;
}

static int64_t draw(const fl_life_update *u, int64_t n)
{
    const fleet_entry *e = &u->rows->life->o.entry;
    fl_life_key *fresh = scratch_of(u)->fresh;
    int64_t left = 0;

    for (int64_t i = 0; i < n; i++)
        if ((double)chance_of(u->rows, fresh[i].key) < e->probability)
            fresh[left++] = fresh[i];
    return left;
}

/* --- rows are made -------------------------------------------------------- */

static int by_bucket(const void *a, const void *b)
{
    const fl_life_key *x = a, *y = b;
    int i = fl_bucket_of(fl_mix(x->key)), j = fl_bucket_of(fl_mix(y->key));

    if (i != j)
        return i < j ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static int64_t end_of_bucket(const fl_life_key *k, int64_t i, int64_t n)
{
    int bucket = fl_bucket_of(fl_mix(k[i].key));

    while (i < n && fl_bucket_of(fl_mix(k[i].key)) == bucket)
        i++;
    return i;
}

typedef void begin_row(const fl_life_update *u, const fl_life_key *k,
                       float *made, float **row);

static fleet_status make_run(const fl_life_update *u, fl_rows *r,
                             const fl_life_key *k, int64_t n, begin_row *begin,
                             float **row)
{
    for (int64_t i = 0; i < n; i++) {
        float *made = NULL;

        FL_TRY(r->methods->make(r, &k[i].key, 1, &made));
        begin(u, &k[i], made, row);
    }
    return FLEET_OK;
}

/* Of a table with most_rows bucket by bucket: the lowest keys, as many as
 * fit. */
static fleet_status make_rows(const fl_life_update *u, fl_rows *r,
                              fl_life_key *k, int64_t n, begin_row *begin,
                              float **row)
{
    if (fl_life_bucket_rows(u->rows->life) == 0)
        return make_run(u, r, k, n, begin, row);
    if (n > 1)
        qsort(k, (size_t)n, sizeof *k, by_bucket);
    for (int64_t i = 0, end; i < n; i = end) {
        int64_t fit;

        end = end_of_bucket(k, i, n);
        FL_TRY(fl_life_make_room(u, r, fl_bucket_of(fl_mix(k[i].key)), end - i,
                                 &fit));
        FL_TRY(make_run(u, r, k + i, fit, begin, row));
    }
    return FLEET_OK;
}

/* --- counts --------------------------------------------------------------- */

static bool waits_for_score(const fl_life_update *u)
{
    return u->rows->life->o.entry.kind == FLEET_SHOW_CLICK_ENTRY;
}

/* What the update counts of a key, into count[]. */
static void add_update(const fl_life_update *u, const fl_life_key *k,
                       float *count)
{
    if (waits_for_score(u)) {
        const float *pushed = u->grad[k->at] + u->rows->dim;

        count[FL_AT_SHOW] += pushed[FL_AT_SHOW];
        count[FL_AT_CLICK] += pushed[FL_AT_CLICK];
    } else {
        *count += 1;
    }
}

static bool is_enough(const fl_life_update *u, const float *count)
{
    const fleet_table_options *o = &u->rows->life->o;

    return waits_for_score(u)
               ? fl_accessor_score(&o->accessor, count[FL_AT_SHOW],
                                   count[FL_AT_CLICK]) >= o->entry.score
               : *count >= (float)o->entry.count;
}

static void keep_count(const fl_life_update *u, const fl_life_key *k,
                       float *count)
{
    const fl_rows *waiting = u->rows->life->waiting;

    fl_live_hash_out(waiting, &k->key, &count, 1);
    add_update(u, k, count);
    fl_live_hash_in(waiting, &k->key, &count, 1);
    fl_row_of(count)->changed_at = u->version;
    fl_row_of(count)->step++;
}

static void begin_count(const fl_life_update *u, const fl_life_key *k,
                        float *made, float **row)
{
    (void)row;
    keep_count(u, k, made);
}

/* It has come once more; enough: it waits no longer. */
static fleet_status count_up(const fl_life_update *u, fl_life_key *k,
                             float *count, bool *enough)
{
    fl_rows *waiting = u->rows->life->waiting;
    int64_t erased;

    if (u->frozen)
        FL_TRY(fl_snapshot_change(u->frozen, waiting, &k->key, 1));
    if (waits_for_score(u)) {
        k->show = count[FL_AT_SHOW];
        k->click = count[FL_AT_CLICK];
    }
    keep_count(u, k, count);
    *enough = is_enough(u, count);
    return *enough ? waiting->methods->erase(waiting, &k->key, 1, &erased)
                   : FLEET_OK;
}

/* The first update of a key; enough: it need not wait. */
static bool counts_at_once(const fl_life_update *u, const fl_life_key *k)
{
    float count[FL_N_WAITING] = {0};

    add_update(u, k, count);
    return is_enough(u, count);
}

/* The update has its key twice, and the first time was enough: so it comes in
 * again with the same counts. */
static void let_in_again(const fl_life_key *fresh, int64_t n, fl_life_key *k)
{
    while (n-- > 0)
        if (fresh[n].key == k->key) {
            k->show = fresh[n].show;
            k->click = fresh[n].click;
            return;
        }
}

/* Where the next key of either kind goes. */
typedef struct sorted_keys {
    int64_t n_fresh, n_strange;
} sorted_keys;

static fleet_status count_chunk(const fl_life_update *u, const fl_life_key *c,
                                int64_t n, sorted_keys *to)
{
    fl_rows *waiting = u->rows->life->waiting;
    fl_life_scratch *s = scratch_of(u);
    uint64_t key[CHUNK];
    float *count[CHUNK];

    for (int64_t i = 0; i < n; i++)
        key[i] = c[i].key;
    FL_TRY(waiting->methods->find(waiting, key, n, count));
    for (int64_t i = 0; i < n; i++) {
        fl_life_key one = c[i];
        bool enough = count[i] && fl_row_of(count[i])->erased;

        if (enough)
            let_in_again(s->fresh, to->n_fresh, &one);
        else if (count[i])
            FL_TRY(count_up(u, &one, count[i], &enough));
        else if (counts_at_once(u, &one))
            enough = true;
        else
            s->strange[to->n_strange++] = one;
        if (enough)
            s->fresh[to->n_fresh++] = one;
    }
    return FLEET_OK;
}

/* Keys that have come often enough stay in the list of n. Keys that come for
 * the first time are counted last: their rows take what room is left. */
static fleet_status count_all(const fl_life_update *u, int64_t *n)
{
    fl_life_scratch *s = scratch_of(u);
    sorted_keys to = {0, 0};

    FL_TRY(fl_grow(&s->strange, &s->strange_capacity, (size_t)*n,
                   sizeof *s->strange));
    for (int64_t i = 0; i < *n; i += CHUNK)
        FL_TRY(
            count_chunk(u, s->fresh + i, *n - i < CHUNK ? *n - i : CHUNK, &to));
    *n = to.n_fresh;
    return make_rows(u, u->rows->life->waiting, s->strange, to.n_strange,
                     begin_count, NULL);
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status let_in(const fl_life_update *u, int64_t *n)
{
    const fl_life *life = u->rows->life;

    if (life->o.entry.kind == FLEET_PROBABILITY_ENTRY)
        *n = draw(u, *n);
    if (life->filter)
        return fl_filter_count(u, scratch_of(u)->fresh, n);
    return life->waiting ? count_all(u, n) : FLEET_OK;
}

/* What the update changes is not what has changed longest ago. */
static fleet_status protect_rows(const fl_life_update *u, float *const *row)
{
    if (fl_life_bucket_rows(u->rows->life) == 0)
        return FLEET_OK;
    for (int64_t i = 0; i < u->n; i++) {
        const uint64_t key = key_of(u, i);

        if (!row[i])
            continue;
        if (u->frozen)
            FL_TRY(fl_snapshot_change(u->frozen, u->rows, &key, 1));
        fl_row_of(row[i])->changed_at = u->version;
    }
    return FLEET_OK;
}

static void keep_made(const fl_life_update *u, const fl_life_key *k,
                      float *made, float **row)
{
    if (waits_for_score(u)) {
        float *x = fl_accessor_of(u->rows, made);

        fl_live_hash_out(u->rows, &k->key, &made, 1);
        x[FL_AT_SHOW] = k->show;
        x[FL_AT_CLICK] = k->click;
        x[FL_AT_DELTA_SCORE] =
            fl_accessor_score(&u->rows->life->o.accessor, k->show, k->click);
        fl_live_hash_in(u->rows, &k->key, &made, 1);
    }
    fl_row_of(made)->changed_at = u->version;
    row[k->at] = made;
}

fleet_status fl_life_admit(const fl_life_update *u, float **row)
{
    int64_t n;

    FL_TRY(list_newcomers(u, row, &n));
    if (n == 0)
        return FLEET_OK;
    FL_TRY(let_in(u, &n));
    FL_TRY(protect_rows(u, row));
    return make_rows(u, u->rows, scratch_of(u)->fresh, n, keep_made, row);
}

int64_t fl_life_keep(float **row, const float **grad, uint64_t *key, int64_t n)
{
    int64_t left = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!row[i])
            continue;
        row[left] = row[i];
        grad[left] = grad[i];
        if (key)
            key[left] = key[i];
        left++;
    }
    return left;
}
