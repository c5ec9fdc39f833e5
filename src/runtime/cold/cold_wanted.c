/* cold_wanted.c - tokens: rows are pinned that are in memory, places are given
 * to rows that are in the file and to unknown ones, and what is in the file
 * comes. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/cold/cold_internal.h"

enum { EXPECT_CHUNK = 512 };

static uint32_t wide_number(const fl_cold_table *t, const fl_cold_part *p,
                            uint32_t number)
{
    return (uint32_t)fl_cold_part_number(t, p) << FL_PLACE_BITS | number;
}

static fl_cold_part *part_of_wide(fl_cold_table *t, uint32_t wide)
{
    return &t->part[wide >> FL_PLACE_BITS];
}

static uint32_t number_of_wide(uint32_t wide)
{
    return wide & ((1u << FL_PLACE_BITS) - 1);
}

/* --- rows that come ------------------------------------------------------- */

static void place_fails(fl_cold_part *p, fl_cold_place *at, fleet_status status)
{
    p->status = status;
    snprintf(p->error, sizeof p->error, "%s", fleet_last_error());
    fl_cold_place_becomes(at, FL_PLACE_FAILED);
}

/* The row of a spot that may have the place's key; without such a spot there is
 * no row. */
static void look_at(fl_cold_table *t, fl_cold_part *p, uint32_t number,
                    uint32_t from)
{
    fl_cold_place *at = fl_cold_place_of(t, p, number);
    uint64_t hash = fl_mix(at->key);
    fl_cold_read one = {.place = number};
    const char *bytes;

    if (!fl_cold_index_next(&p->index, fl_cold_group(t, hash),
                            fl_cold_tag(hash), from, &one.spot)) {
        p->counts.unknown++;
        fl_cold_place_becomes(at, FL_PLACE_UNKNOWN);
        return;
    }
    bytes = fl_cold_pages_find(&p->pages, one.spot);
    if (bytes) {
        fl_cold_row_came(t, p, one, FLEET_OK,
                         (const fl_cold_head *)(const void *)bytes);
        return;
    }
    if (fl_grow(&p->read, &p->read_capacity, p->n_read + 1, sizeof *p->read) !=
        FLEET_OK) {
        place_fails(p, at, FLEET_ENOMEM);
        return;
    }
    p->read[p->n_read++] = one;
    p->n_coming++;
    fl_cold_place_becomes(at, FL_PLACE_COMES);
}

void fl_cold_row_came(fl_cold_table *t, fl_cold_part *p, fl_cold_read which,
                      fleet_status status, const fl_cold_head *row)
{
    fl_cold_place *at = fl_cold_place_of(t, p, which.place);
    uint64_t hash = fl_mix(at->key);

    if (status != FLEET_OK) {
        place_fails(p, at, status);
    } else if (row->key != at->key) {
        look_at(t, p, which.place, which.spot + 1);
    } else {
        memcpy(fl_cold_place_row(at), row + 1, t->row_bytes);
        fl_cold_index_remove(&p->index, fl_cold_group(t, hash),
                             fl_cold_tag(hash), which.spot);
        fl_cold_pages_leave(&p->pages, which.spot);
        p->n_row++;
        p->counts.misses++;
        fl_cold_place_becomes(at, FL_PLACE_HAS_ROW);
    }
    if (at->pins == 0 && (fl_cold_place_is(at) == FL_PLACE_UNKNOWN ||
                          fl_cold_place_is(at) == FL_PLACE_FAILED)) {
        fl_cold_place_forget_key(t, p, which.place);
        fl_cold_place_free(t, p, which.place);
    }
}

/* --- tokens --------------------------------------------------------------- */

static fleet_status new_token(fl_cold_table *t, const uint64_t *key, int64_t n,
                              fl_wanted_places **out)
{
    fl_wanted_places *w;
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&t->token_lock);
    w = t->unused;
    if (w)
        t->unused = w->next;
    pthread_mutex_unlock(&t->token_lock);
    if (!w)
        FL_TRY(FL_NEW(&w, sizeof *w));
    w->n = w->got = w->seen = 0;
    w->tried = w->parts = 0;
    *out = w;
    status = fl_grow(&w->key, &w->key_capacity, (size_t)n, sizeof *w->key);
    if (status == FLEET_OK)
        status =
            fl_grow(&w->place, &w->place_capacity, (size_t)n, sizeof *w->place);
    if (status != FLEET_OK)
        return status;
    if (n > 0)
        memcpy(w->key, key, (size_t)n * sizeof *key);
    w->n = n;
    return FLEET_OK;
}

/* What it cannot go on for: a disk that takes no rows, or too many rows that
 * are in use. FLEET_OK: it has to wait for the thread. */
static fleet_status why_no_place(fl_cold_table *t, fl_cold_part *p,
                                 fl_wanted_places *w)
{
    uint32_t part = 1u << fl_cold_part_number(t, p);

    if (p->stuck && !(w->tried & part)) { /* the disk may have room again */
        w->tried |= part;
        p->tries_again = true;
    }
    if (p->stuck && !p->tries_again)
        return fl_fail(p->status, "%s", p->error);
    if (p->n_coming > 0 || p->pages.n_waits > 0)
        return FLEET_OK;
    return fl_fail(
        FLEET_ENOMEM,
        "table \"%s\": the rows in use at once do not fit into its "
        "memory_cap_bytes, %lld: in one of its %d parts all places are taken, "
        "%u of %zu bytes, beside %zu bytes for where %lld rows are in the file",
        t->rows.name, (long long)t->cap.bytes, FL_N_PART,
        p->n_chunk << t->chunk_shift, t->place_bytes,
        fl_cold_index_bytes(&p->index), (long long)p->index.count);
}

/* *wide UINT32_MAX: not now. */
static fleet_status pin(fl_cold_table *t, fl_cold_part *p, fl_wanted_places *w,
                        uint32_t *wide, bool *gone)
{
    uint64_t key = w->key[w->got], hash = fl_mix(key);
    uint32_t number;
    fl_cold_place *at = fl_cold_place_find(t, p, key, hash, &number);

    *wide = UINT32_MAX;
    if (at) {
        p->counts.hits++;
    } else {
        FL_TRY(fl_cold_place_take(t, p, key, hash, &at, &number, gone));
        if (!at)
            return why_no_place(t, p, w);
        at->pins = 1; /* or it would be given up at once */
        look_at(t, p, number, 0);
        at->pins = 0;
    }
    at->pins++;
    at->used = true;
    *wide = wide_number(t, p, number);
    return FLEET_OK;
}

/* Keys that are one part's, and follow each other, take its lock once. */
static fleet_status pin_run(fl_cold_table *t, fl_wanted_places *w,
                            uint32_t *parts, bool *gone, bool *waits)
{
    int part = fl_part_of(fl_mix(w->key[w->got]));
    fl_cold_part *p = &t->part[part];
    fleet_status status = FLEET_OK;
    uint32_t wide = 0;

    pthread_mutex_lock(&p->lock);
    while (status == FLEET_OK && wide != UINT32_MAX && w->got < w->n &&
           fl_part_of(fl_mix(w->key[w->got])) == part) {
        w->parts |= 1u << part;
        status = pin(t, p, w, &wide, gone);
        if (status == FLEET_OK && wide != UINT32_MAX)
            w->place[w->got++] = wide;
    }
    if (fl_cold_has_work(p))
        *parts |= 1u << part;
    pthread_mutex_unlock(&p->lock);
    *waits = wide == UINT32_MAX;
    return status;
}

/* As many of its keys as get a place now. */
static fleet_status pin_more(fl_cold_table *t, fl_wanted_places *w)
{
    fleet_status status = FLEET_OK;
    uint32_t parts = 0;
    bool gone = false, waits = false;

    while (status == FLEET_OK && !waits && w->got < w->n)
        status = pin_run(t, w, &parts, &gone, &waits);
    if (gone)
        fl_rows_next_epoch(&t->rows);
    if (parts)
        fl_cold_wake(t, parts);
    return status;
}

fleet_status fl_cold_want(fl_rows *r, const uint64_t *key, int64_t n,
                          uint64_t *token)
{
    fl_cold_table *t = fl_cold_of(r);
    fl_wanted_places *w = NULL;
    fleet_status status = new_token(t, key, n, &w);

    if (status == FLEET_OK)
        status = pin_more(t, w);
    *token = (uint64_t)(uintptr_t)w;
    if (status != FLEET_OK && w)
        fl_cold_release(r, *token);
    return status;
}

/* Places of one part that follow each other, of the token's which were not seen
 * yet; *came false: one of them has not come. */
static fleet_status see_run(fl_cold_table *t, fl_wanted_places *w, bool *came)
{
    fl_cold_part *p = part_of_wide(t, w->place[w->seen]);
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&p->lock);
    while (*came && status == FLEET_OK && w->seen < w->got &&
           part_of_wide(t, w->place[w->seen]) == p) {
        uint32_t number = number_of_wide(w->place[w->seen]);
        fl_cold_state is = fl_cold_place_is(fl_cold_place_of(t, p, number));

        *came = is != FL_PLACE_COMES;
        if (is == FL_PLACE_FAILED)
            status = fl_fail(p->status, "%s", p->error);
        w->seen += *came;
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

fleet_status fl_cold_is_ready(fl_rows *r, uint64_t token, bool *ready)
{
    fl_wanted_places *w = (fl_wanted_places *)(uintptr_t)token;
    fl_cold_table *t = fl_cold_of(r);
    bool came = true;

    *ready = false;
    if (t->cap.by_hand > 0 &&
        atomic_fetch_add(&t->looks, 1) % t->cap.by_hand == t->cap.by_hand - 1)
        fl_cold_work(t);
    if (w->got < w->n)
        FL_TRY(pin_more(t, w));
    while (came && w->seen < w->got)
        FL_TRY(see_run(t, w, &came));
    *ready = w->seen == w->n;
    return FLEET_OK;
}

/* Without memory for its rows the thread reads them alone. */
void fl_cold_help(fl_rows *r, uint64_t token)
{
    fl_wanted_places *w = (fl_wanted_places *)(uintptr_t)token;
    fl_cold_table *t = fl_cold_of(r);
    size_t size = t->part[0].pages.spot_bytes;

    if (t->cap.by_hand > 0 || fl_grow(&w->rows, &w->rows_capacity,
                                      FL_COLD_BATCH * size, 1) != FLEET_OK)
        return;
    for (int i = 0; i < FL_N_PART; i++)
        if (w->parts >> i & 1)
            fl_cold_read_part(t, &t->part[i], w->rows);
}

/* A row that cannot go now, in a table that hurries, stays. */
static void unpin(fl_cold_table *t, fl_cold_part *p, uint32_t number,
                  bool *gone)
{
    fl_cold_place *at = fl_cold_place_of(t, p, number);
    fl_cold_state is = fl_cold_place_is(at);
    bool went = false;

    if (--at->pins > 0 || is == FL_PLACE_COMES)
        return;
    if (is == FL_PLACE_HAS_ROW) {
        if (t->cap.hurries &&
            fl_cold_place_evict(t, p, number, &went) == FLEET_OK)
            *gone = *gone || went;
        return;
    }
    if (is != FL_PLACE_ERASED)
        fl_cold_place_forget_key(t, p, number);
    fl_cold_place_free(t, p, number);
}

void fl_cold_release(fl_rows *r, uint64_t token)
{
    fl_wanted_places *w = (fl_wanted_places *)(uintptr_t)token;
    fl_cold_table *t = fl_cold_of(r);
    uint32_t parts = 0;
    bool gone = false;

    for (int64_t i = 0; i < w->got;) {
        fl_cold_part *p = part_of_wide(t, w->place[i]);

        pthread_mutex_lock(&p->lock);
        while (i < w->got && part_of_wide(t, w->place[i]) == p)
            unpin(t, p, number_of_wide(w->place[i++]), &gone);
        if (gone && fl_cold_has_work(p))
            parts |= 1u << fl_cold_part_number(t, p);
        pthread_mutex_unlock(&p->lock);
    }
    if (gone)
        fl_rows_next_epoch(r);
    if (parts)
        fl_cold_wake(t, parts);
    pthread_mutex_lock(&t->token_lock);
    w->next = t->unused;
    t->unused = w;
    pthread_mutex_unlock(&t->token_lock);
}

/* --- rows that will be wanted --------------------------------------------- */

/* A row that is in the file gets a place that no token has; false: there is
 * none. What is unknown needs none. */
static bool expect_key(fl_cold_table *t, fl_cold_part *p, uint64_t key,
                       uint64_t hash, bool *gone)
{
    uint32_t number, spot;
    fl_cold_place *at = fl_cold_place_find(t, p, key, hash, &number);

    if (at) {
        at->used = true;
        return true;
    }
    if (!fl_cold_index_next(&p->index, fl_cold_group(t, hash),
                            fl_cold_tag(hash), 0, &spot))
        return true;
    if (fl_cold_place_take(t, p, key, hash, &at, &number, gone) != FLEET_OK ||
        !at)
        return false;
    p->counts.ahead++;
    at->pins = 1;
    look_at(t, p, number, 0);
    unpin(t, p, number, gone);
    return true;
}

static uint32_t expect_chunk(fl_cold_table *t, const uint64_t *key, int64_t n,
                             bool *gone)
{
    uint64_t hash[EXPECT_CHUNK];
    uint32_t parts = 0, work = 0;

    for (int64_t i = 0; i < n; i++) {
        hash[i] = fl_mix(key[i]);
        parts |= 1u << fl_part_of(hash[i]);
    }
    for (int part = 0; part < FL_N_PART; part++) {
        fl_cold_part *p = &t->part[part];
        bool goes_on = true;

        if (!(parts >> part & 1))
            continue;
        pthread_mutex_lock(&p->lock);
        for (int64_t i = 0; i < n && goes_on; i++)
            if (fl_part_of(hash[i]) == part)
                goes_on = expect_key(t, p, key[i], hash[i], gone);
        if (fl_cold_has_work(p))
            work |= 1u << part;
        pthread_mutex_unlock(&p->lock);
    }
    return work;
}

void fl_cold_expect(fl_rows *r, const uint64_t *key, int64_t n)
{
    fl_cold_table *t = fl_cold_of(r);
    bool gone = false;

    for (int64_t i = 0; i < n; i += EXPECT_CHUNK) {
        uint32_t work = expect_chunk(
            t, key + i, n - i < EXPECT_CHUNK ? n - i : EXPECT_CHUNK, &gone);

        if (work)
            fl_cold_wake(t, work);
    }
    if (gone)
        fl_rows_next_epoch(r);
}
