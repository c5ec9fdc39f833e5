/* cold_table.c - a table with a cap: made, laid out, its rows found, made and
 * erased. */
#include "runtime/cold/cold_table.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/cold/cold_internal.h"
#include "runtime/cold/cold_memory.h"
#include "runtime/store/key_log.h"

enum { ROW_ALIGN = 16, MOST_CHUNK = 2 << 20 };

/* Of a part's bytes: of one chunk of places at most, of images that wait at
 * most. */
enum { CHUNK_SHARE = 16, WAITING_SHARE = 16 };
enum { LOST_SHARE = 16 };
enum { LEAST_WAITING = 2, MOST_WAITING = 256 };

/* A group of the index should have GROUP_ROWS rows, if the file has RATIO times
 * as many as the memory. */
enum { GROUP_ROWS = 256, RATIO = 10, MOST_GROUP_SHIFT = 6 };

/* --- layout --------------------------------------------------------------- */

static size_t padded(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* A chunk is some pages of the system: not much of the last one is lost. */
static int chunk_shift_of(const fl_cold_table *t)
{
    size_t most = t->part_bytes / CHUNK_SHARE;
    int shift = 0;

    most = most < MOST_CHUNK ? most : MOST_CHUNK;
    while (t->place_bytes << (shift + 1) <= most)
        shift++;
    for (int more = 0; more < 2; more++) {
        size_t bytes = t->place_bytes << shift;

        if (fl_cold_memory_of(bytes) - bytes > bytes / LOST_SHARE)
            shift++;
    }
    return shift;
}

static int group_shift_of(const fl_cold_table *t)
{
    int64_t bytes =
        (int64_t)t->place_bytes + t->rows.dim * (int64_t)sizeof(float);
    int64_t rows = RATIO * t->cap.bytes / bytes; /* with one state */
    int shift = 0;

    while (shift < MOST_GROUP_SHIFT &&
           rows > ((int64_t)GROUP_ROWS * FL_N_BUCKET) << shift)
        shift++;
    return shift;
}

static int most_waiting(const fl_cold_table *t)
{
    size_t n = t->part_bytes / WAITING_SHARE / FL_COLD_PAGE_BYTES;

    if (t->cap.hurries)
        return MOST_WAITING;
    return n < LEAST_WAITING  ? LEAST_WAITING
           : n > MOST_WAITING ? MOST_WAITING
                              : (int)n;
}

/* A table without rows: how long they are, and what follows from that.
 * FLEET_ENOMEM: it is as it was. */
static fleet_status lay_out(fl_cold_table *t, int n_state, int n_row)
{
    size_t floats = (size_t)(t->rows.dim * (1 + n_state) + n_row);
    size_t bytes =
        padded(sizeof(fl_row_head) + floats * sizeof(float), sizeof(uint64_t));
    size_t spot = sizeof(fl_cold_head) + bytes;
    char *rows;

    FL_TRY(FL_NEW(&rows, FL_COLD_BATCH * spot));
    fl_free(t->rows_read);
    t->rows_read = rows;
    t->row_bytes = bytes;
    t->place_bytes = padded(sizeof(fl_cold_place) + bytes, ROW_ALIGN);
    t->chunk_shift = chunk_shift_of(t);
    for (int i = 0; i < FL_N_PART; i++)
        fl_cold_pages_init(&t->part[i].pages, spot,
                           t->cap.hurries ? 1 : fl_cold_spots_of_page(spot),
                           most_waiting(t), &t->n_extent);
    return FLEET_OK;
}

static fleet_status open_indexes(fl_cold_table *t)
{
    uint32_t buckets = FL_N_BUCKET / FL_N_PART;

    t->group_shift = group_shift_of(t);
    for (int i = 0; i < FL_N_PART; i++)
        FL_TRY(
            fl_cold_index_open(&t->part[i].index, buckets << t->group_shift));
    return FLEET_OK;
}

static void empty_part(fl_cold_table *t, fl_cold_part *p)
{
    fl_cold_places_done(t, p);
    fl_cold_index_clear(&p->index);
    fl_cold_pages_done(&p->pages);
    fl_free(p->read);
    p->read = NULL;
    p->n_read = p->read_capacity = 0;
    p->newest = 0;
    p->stuck = p->tries_again = false;
}

/* --- methods -------------------------------------------------------------- */

static fleet_status not_wanted(const fl_cold_table *t, uint64_t key)
{
    return fl_fail(FLEET_ESTATE,
                   "table \"%s\": row %" PRIu64 " was not waited for: it may "
                   "be in the file",
                   t->rows.name, key);
}

static void begin_row(const fl_cold_table *t, fl_cold_part *p,
                      fl_cold_place *at)
{
    const fl_rows *r = &t->rows;
    float *w = (float *)(void *)(fl_cold_place_row(at) + 1);

    *fl_cold_place_row(at) = (fl_row_head){0};
    fl_filler_row(&r->filler, at->key, w, r->dim);
    fl_rows_first_states(r, w + r->dim);
    fl_key_log_made(r, at->key, w);
    fl_cold_place_becomes(at, FL_PLACE_HAS_ROW);
    p->n_row++;
}

/* The rows of keys that are one part's and follow each other, from key[i] on;
 * i then is behind them. */
static fleet_status find_run(fl_cold_table *t, const uint64_t *key, int64_t n,
                             bool make, float **row, int64_t *i)
{
    int part = fl_part_of(fl_mix(key[*i]));
    fl_cold_part *p = &t->part[part];
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&p->lock);
    for (; *i < n && status == FLEET_OK; ++*i) {
        uint64_t hash = fl_mix(key[*i]);
        uint32_t number;
        fl_cold_place *at;

        if (fl_part_of(hash) != part)
            break;
        at = fl_cold_place_find(t, p, key[*i], hash, &number);
        if (!at || at->pins == 0 || fl_cold_place_is(at) == FL_PLACE_COMES)
            status = not_wanted(t, key[*i]);
        else if (fl_cold_place_is(at) == FL_PLACE_UNKNOWN && make)
            begin_row(t, p, at);
        row[*i] = at && fl_cold_place_is(at) == FL_PLACE_HAS_ROW
                      ? (float *)(void *)(fl_cold_place_row(at) + 1)
                      : NULL;
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

static fleet_status cold_find(fl_rows *r, const uint64_t *key, int64_t n,
                              float **row)
{
    for (int64_t i = 0; i < n;)
        FL_TRY(find_run(fl_cold_of(r), key, n, false, row, &i));
    return FLEET_OK;
}

static fleet_status cold_make(fl_rows *r, const uint64_t *key, int64_t n,
                              float **row)
{
    for (int64_t i = 0; i < n;)
        FL_TRY(find_run(fl_cold_of(r), key, n, true, row, &i));
    return FLEET_OK;
}

static int64_t cold_count(const fl_rows *r)
{
    fl_cold_table *t = fl_cold_of(r);
    int64_t n = 0;

    for (int i = 0; i < FL_N_PART; i++) {
        fl_cold_part *p = &t->part[i];

        pthread_mutex_lock(&p->lock);
        n += p->n_row + p->index.count;
        pthread_mutex_unlock(&p->lock);
    }
    return n;
}

static bool is_wanted(const fl_cold_table *t, const fl_cold_part *p)
{
    for (uint32_t i = 0; i < p->n_chunk << t->chunk_shift; i++) {
        const fl_cold_place *at = fl_cold_place_of(t, p, i);

        if (fl_cold_place_is(at) != FL_PLACE_FREE && at->pins > 0)
            return true;
    }
    return false;
}

void fl_cold_place_erase(fl_cold_table *t, fl_cold_part *p, uint32_t number)
{
    fl_cold_place *at = fl_cold_place_of(t, p, number);

    p->n_row -= fl_cold_place_is(at) == FL_PLACE_HAS_ROW;
    fl_cold_place_forget_key(t, p, number);
    if (at->pins > 0)
        fl_cold_place_becomes(at, FL_PLACE_ERASED);
    else
        fl_cold_place_free(t, p, number);
}

static void clear_part(fl_cold_table *t, fl_cold_part *p)
{
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->n_chunk << t->chunk_shift; i++) {
        fl_cold_state is = fl_cold_place_is(fl_cold_place_of(t, p, i));

        if (is != FL_PLACE_FREE && is != FL_PLACE_ERASED)
            fl_cold_place_erase(t, p, i);
    }
    fl_cold_index_clear(&p->index);
    fl_cold_pages_done(&p->pages);
    p->stuck = p->tries_again = false;
    p->newest = 0;
    if (!is_wanted(t, p))
        fl_cold_places_done(t, p);
    pthread_mutex_unlock(&p->lock);
}

static void cold_clear(fl_rows *r)
{
    fl_cold_table *t = fl_cold_of(r);

    fl_cold_wait_idle(t);
    for (int i = 0; i < FL_N_PART; i++)
        clear_part(t, &t->part[i]);
    atomic_store(&t->n_extent, 0);
    fl_key_log_cleared(r);
    fl_rows_next_epoch(r);
}

fleet_status fl_cold_find(const fl_cold_table *t, const fl_cold_part *p,
                          uint64_t key, fl_cold_head *row, uint32_t *spot,
                          bool *found)
{
    uint64_t hash = fl_mix(key);
    uint32_t from = 0;

    *found = false;
    while (!*found && fl_cold_index_next(&p->index, fl_cold_group(t, hash),
                                         fl_cold_tag(hash), from, spot)) {
        FL_TRY(fl_cold_read_spot(t, p, *spot, row));
        *found = row->key == key;
        from = *spot + 1;
    }
    return FLEET_OK;
}

static fleet_status erase_key(fl_cold_table *t, fl_cold_part *p, uint64_t key,
                              fl_cold_head *row, int64_t *erased)
{
    uint64_t hash = fl_mix(key);
    uint32_t number, spot;
    fl_cold_place *at = fl_cold_place_find(t, p, key, hash, &number);
    float *in_memory, *in_file;
    bool found;

    if (at && fl_cold_place_is(at) != FL_PLACE_FAILED) {
        if (fl_cold_place_is(at) == FL_PLACE_HAS_ROW) {
            in_memory = (float *)(void *)(fl_cold_place_row(at) + 1);
            fl_key_log_gone(&t->rows, key, in_memory);
            ++*erased;
            fl_cold_place_erase(t, p, number);
        }
        return FLEET_OK;
    }
    FL_TRY(fl_cold_find(t, p, key, row, &spot, &found));
    if (!found)
        return FLEET_OK;
    in_file = (float *)(void *)((fl_row_head *)(void *)(row + 1) + 1);
    fl_key_log_gone(&t->rows, key, in_file);
    fl_cold_index_remove(&p->index, fl_cold_group(t, hash), fl_cold_tag(hash),
                         spot);
    fl_cold_pages_leave(&p->pages, spot);
    ++*erased;
    return FLEET_OK;
}

static fleet_status cold_erase(fl_rows *r, const uint64_t *key, int64_t n,
                               int64_t *erased)
{
    fl_cold_table *t = fl_cold_of(r);
    fl_cold_head *row = fl_alloc(sizeof *row + t->row_bytes);
    fleet_status status = row ? FLEET_OK : FLEET_ENOMEM;

    *erased = 0;
    fl_cold_wait_idle(t);
    for (int64_t i = 0; i < n && status == FLEET_OK; i++) {
        fl_cold_part *p = &t->part[fl_part_of(fl_mix(key[i]))];

        pthread_mutex_lock(&p->lock);
        status = erase_key(t, p, key[i], row, erased);
        pthread_mutex_unlock(&p->lock);
    }
    if (*erased > 0)
        fl_rows_next_epoch(r);
    fl_free(row);
    return status;
}

static fleet_status cold_set_state(fl_rows *r, int n_state, int n_row,
                                   float initial)
{
    fl_cold_table *t = fl_cold_of(r);

    if (fl_rows_has_state(r, n_state, n_row, initial))
        return FLEET_OK;
    if (cold_count(r) > 0)
        return fl_fail(FLEET_ESTATE,
                       "table \"%s\" has rows without this optimizer's state: "
                       "minimize before loading",
                       r->name);
    fl_cold_wait_idle(t);
    for (int i = 0; i < FL_N_PART; i++)
        if (is_wanted(t, &t->part[i]))
            return fl_fail(FLEET_ESTATE, "table \"%s\" has rows in use",
                           r->name);
    for (int i = 0; i < FL_N_PART; i++)
        empty_part(t, &t->part[i]);
    FL_TRY(lay_out(t, n_state, n_row));
    fl_rows_note_state(r, n_state, n_row, initial);
    atomic_store(&t->n_extent, 0);
    return FLEET_OK;
}

static void cold_destroy(fl_rows *r)
{
    fl_cold_table *t = fl_cold_of(r);

    fl_cold_file_close(t);
    for (int i = 0; i < FL_N_PART; i++) {
        empty_part(t, &t->part[i]);
        fl_cold_index_done(&t->part[i].index);
        pthread_mutex_destroy(&t->part[i].lock);
    }
    fl_free(t->rows_read);
    while (t->unused) {
        fl_wanted_places *next = t->unused->next;

        fl_free(t->unused->key);
        fl_free(t->unused->rows);
        fl_free(t->unused->place);
        fl_free(t->unused);
        t->unused = next;
    }
    pthread_mutex_destroy(&t->token_lock);
    pthread_mutex_destroy(&t->io_lock);
    pthread_cond_destroy(&t->io_wanted);
    pthread_cond_destroy(&t->io_idle);
    fl_free(t);
}

static const fl_rows_class cold_methods = {
    .find = cold_find,
    .make = cold_make,
    .want = fl_cold_want,
    .is_ready = fl_cold_is_ready,
    .release = fl_cold_release,
    .expect = fl_cold_expect,
    .help = fl_cold_help,
    .set_state = cold_set_state,
    .count = cold_count,
    .clear = cold_clear,
    .erase = cold_erase,
    .judge = fl_cold_judge,
    .each = fl_cold_each,
    .each_changed = fl_cold_each_changed,
    .stat = fl_cold_stat,
    .hashes = true,
    .snapshot = &fl_cold_snapshots,
    .destroy = cold_destroy,
};

fleet_status fl_cold_make(const char *name, int64_t dim, int64_t modulo,
                          const fl_filler *filler, const fl_rows_cap *cap,
                          fl_rows **rows)
{
    fleet_status status;
    fl_cold_table *t;

    FL_TRY(FL_NEW(&t, sizeof *t));
    fl_rows_init(&t->rows, &cold_methods, name, dim, modulo, filler);
    fl_secret_draw();
    t->cap = *cap;
    t->fd = -1;
    t->part_bytes = (size_t)cap->bytes / FL_N_PART;
    pthread_mutex_init(&t->token_lock, NULL);
    pthread_mutex_init(&t->io_lock, NULL);
    pthread_cond_init(&t->io_wanted, NULL);
    pthread_cond_init(&t->io_idle, NULL);
    for (int i = 0; i < FL_N_PART; i++)
        pthread_mutex_init(&t->part[i].lock, NULL);
    status = lay_out(t, 0, 0);
    if (status == FLEET_OK)
        status = open_indexes(t);
    if (status == FLEET_OK)
        status = fl_cold_file_open(t);
    if (status != FLEET_OK)
        cold_destroy(&t->rows);
    else
        *rows = &t->rows;
    return status;
}

bool fl_is_cold(const fl_rows *r)
{
    return r->methods == &cold_methods;
}

void fl_cold_count(const fl_rows *r, fl_cold_counts *c)
{
    fl_cold_table *t = fl_cold_of(r);

    *c = (fl_cold_counts){0};
    for (int i = 0; i < FL_N_PART; i++) {
        fl_cold_part *p = &t->part[i];

        pthread_mutex_lock(&p->lock);
        c->hits += p->counts.hits;
        c->misses += p->counts.misses;
        c->unknown += p->counts.unknown;
        c->ahead += p->counts.ahead;
        c->evicted += p->counts.evicted;
        c->reads += p->counts.reads;
        c->writes += p->counts.writes;
        c->cold += p->index.count;
        c->memory_bytes += (int64_t)fl_cold_memory(t, p);
        pthread_mutex_unlock(&p->lock);
    }
    c->file_bytes = (int64_t)atomic_load(&t->n_extent) * FL_COLD_EXTENT *
                    (int64_t)t->part[0].pages.page_bytes;
}
