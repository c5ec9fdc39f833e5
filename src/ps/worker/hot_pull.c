/* hot_pull.c - which rows of a pull are asked for, and what is kept of those
 * that come. */
#include "ps/worker/hot_pull.h"

#include <string.h>

#include "base/memory.h"
#include "ps/worker/worker_internal.h"

/* Rows of a lane that are asked for with their versions. */
typedef struct known_rows {
    uint64_t *key;
    fl_hot_row **row;
    const float ***out;
    int64_t n;
    size_t key_capacity, row_capacity, out_capacity;
    int64_t *first; /* by table, and behind the last */
    uint32_t life;
} known_rows;

/* A pull's. */
typedef struct hot_slot {
    fl_hot_row **held;
    int64_t n_held;
    size_t held_capacity;
    known_rows *known; /* by lane */
    uint64_t version;  /* wanted */
    uint32_t batch;
    bool trains; /* and is no test */
    bool narrow; /* it brings values in fewer bytes */
} hot_slot;

struct fl_hot_pull {
    fl_hot_rows rows;
    uint32_t staleness;
    uint32_t batch, fence; /* rows of before that batch are asked for again */
    uint32_t *life;        /* by lane: of its rows, as far as it is known */
    bool *pushed;          /* by table */
    hot_slot slot[FL_N_SLOT];
    fl_hot_counts counts;
};

/* --- held rows ------------------------------------------------------------ */

static fleet_status hold_row(hot_slot *s, int slot, fl_hot_row *row)
{
    uint8_t bit = (uint8_t)(1u << slot);

    if (row->slots & bit)
        return FLEET_OK;
    FL_TRY(fl_grow(&s->held, &s->held_capacity, (size_t)s->n_held + 1,
                   sizeof(fl_hot_row *)));
    s->held[s->n_held++] = row;
    row->slots |= bit;
    return FLEET_OK;
}

void fl_hot_pull_release(fl_worker *w, int slot)
{
    hot_slot *s;

    if (!w->hot || slot >= FL_N_SLOT)
        return;
    s = &w->hot->slot[slot];
    for (int64_t i = 0; i < s->n_held; i++)
        s->held[i]->slots &= (uint8_t) ~(1u << slot);
    s->n_held = 0;
    for (int l = 0; s->known && l < w->n_lane; l++)
        s->known[l].n = 0;
}

void fl_hot_pull_fence(fl_worker *w)
{
    if (w->hot)
        w->hot->fence = ++w->hot->batch;
}

/* --- what is asked for ---------------------------------------------------- */

void fl_hot_pull_start(fl_worker *w, int slot, uint64_t version, bool now)
{
    fl_hot_pull *h = w->hot;
    hot_slot *s;

    if (!h || slot >= FL_N_SLOT)
        return;
    fl_hot_pull_release(w, slot);
    s = &h->slot[slot];
    s->trains = !now;
    s->narrow = !now && w->wire.pull != FL_CODEC_F32;
    s->version = version;
    s->batch = h->batch += s->trains;
    for (int l = 0; l < w->n_lane; l++)
        s->known[l].life = h->life[l];
}

/* The batch after one that asks comes before the answer as a rule, because its
 * rows are pulled ahead: it takes what there is, if it may. So a row is asked
 * for again one batch early. */
static bool is_young(const fl_hot_pull *h, const hot_slot *s,
                     const fl_hot_row *row)
{
    uint32_t age = s->batch - row->batch;

    return age <= h->staleness &&
           (age + 1 < h->staleness || s->batch - row->asked <= 1);
}

static bool is_good(const fl_worker *w, const hot_slot *s, int lane,
                    const fl_hot_row *row)
{
    const fl_hot_pull *h = w->hot;

    if (!s->trains || row->batch < h->fence || row->life != h->life[lane])
        return false;
    if (row->narrow != s->narrow)
        return false;
    return w->remote.sync ? row->version == s->version : is_young(h, s, row);
}

static fleet_status list_known(known_rows *k, fl_hot_row *row,
                               const float **out)
{
    size_t n = (size_t)k->n + 1;

    FL_TRY(fl_grow(&k->key, &k->key_capacity, n, sizeof *k->key));
    FL_TRY(fl_grow(&k->row, &k->row_capacity, n, sizeof(fl_hot_row *)));
    FL_TRY(fl_grow(&k->out, &k->out_capacity, n, sizeof(const float **)));
    k->key[k->n] = row->key;
    k->row[k->n] = row;
    k->out[k->n++] = out;
    return FLEET_OK;
}

static fleet_status list_key(fl_worker *w, int slot, uint64_t key,
                             const float **out)
{
    fl_lane_keys *k = fl_worker_keys_for(w, w->slot[slot].keys, key);

    if (!k)
        return FLEET_ENOMEM;
    k->key[k->n] = key;
    ((const float ***)k->at)[k->n++] = out;
    return FLEET_OK;
}

static int lane_of(const fl_worker *w, uint64_t key)
{
    return w->n_lane == 1 ? 0 : w->owner[fl_bucket_of(fl_mix(key))];
}

static fleet_status use_kept(fl_worker *w, int slot, int table, fl_hot_row *row,
                             const float **out)
{
    fl_hot_pull *h = w->hot;

    FL_TRY(hold_row(&h->slot[slot], slot, row));
    row->trained = h->pushed[table];
    *out = fl_hot_values(row);
    h->counts.unasked++;
    h->counts.saved += (int64_t)sizeof row->key +
                       h->rows.table[table].dim * (int64_t)sizeof(float);
    return FLEET_OK;
}

static fleet_status share_row(fl_worker *w, int slot, int table,
                              fl_hot_row *row, const float **out)
{
    hot_slot *s = &w->hot->slot[slot];
    int lane = lane_of(w, row->key);

    row->used = true;
    if (is_good(w, s, lane, row))
        return use_kept(w, slot, table, row, out);
    row->asked = s->batch;
    if (row->narrow || s->narrow) /* NEWER is of whole values */
        return list_key(w, slot, row->key, out);
    if (row->trained || row->life != w->hot->life[lane])
        return list_key(w, slot, row->key, out);
    FL_TRY(hold_row(s, slot, row));
    return list_known(&s->known[lane], row, out);
}

static fleet_status share_part(fl_worker *w, int slot, int table,
                               const fl_pull_part *part)
{
    const fl_hot_table *t = &w->hot->rows.table[table];
    fl_hot_row *row[FL_HOT_AT_ONCE];

    for (int64_t i = 0, n; i < part->n; i += n) {
        n = part->n - i < FL_HOT_AT_ONCE ? part->n - i : FL_HOT_AT_ONCE;
        fl_hot_rows_find(t, part->key + i, n, row);
        for (int64_t j = 0; j < n; j++)
            FL_TRY(row[j] ? share_row(w, slot, table, row[j], &part->row[i + j])
                          : list_key(w, slot, part->key[i + j],
                                     &part->row[i + j]));
    }
    w->hot->counts.rows += (uint64_t)part->n;
    return FLEET_OK;
}

fleet_status fl_hot_pull_share_out(fl_worker *w, int slot, int table,
                                   const fl_pull_rows *t)
{
    for (int p = 0; p < FL_N_PART; p++)
        FL_TRY(share_part(w, slot, table, &t->part[p]));
    return FLEET_OK;
}

void fl_hot_pull_mark(fl_worker *w, int slot, int table)
{
    for (int l = 0; l < w->n_lane; l++) {
        known_rows *k = &w->hot->slot[slot].known[l];

        k->first[table] = k->n;
    }
}

const uint64_t *fl_hot_pull_known(const fl_worker *w, int slot, int lane,
                                  int table, int64_t *first, int64_t *end)
{
    const known_rows *k = &w->hot->slot[slot].known[lane];

    *first = k->first[table];
    *end = k->first[table + 1];
    return k->key;
}

void fl_hot_pull_put_versions(const fl_worker *w, int slot, int lane,
                              const fl_pull_piece *piece, fl_msg_writer *writer)
{
    const known_rows *k = &w->hot->slot[slot].known[lane];
    char *to = fl_msg_column(writer, FL_COLUMN_VERSIONS,
                             (size_t)piece->n * sizeof(uint64_t));

    writer->section[writer->n_section - 1].n_batch = k->life;
    for (int64_t i = 0; to && i < piece->n; i++)
        memcpy(to + (size_t)i * sizeof(uint64_t),
               &k->row[piece->first + i]->version, sizeof(uint64_t));
}

/* --- what comes ----------------------------------------------------------- */

static bool has_bit(const fl_frame *bits, int64_t i)
{
    return ((const uint8_t *)bits->data)[i / 8] >> (i % 8) & 1;
}

bool fl_hot_pull_is_sound(const fl_worker *w, const fl_pull_piece *piece,
                          const fl_msg *msg, int i)
{
    const fl_frame *bits = &msg->column[i][FL_AT_BYTES];
    size_t width = (size_t)w->layout.table[piece->table]->dim * sizeof(float);
    int64_t n = 0;

    if (msg->section[i].op != FL_SECTION_NEWER ||
        bits->size != (size_t)(piece->n + 7) / 8)
        return false;
    for (int64_t j = 0; j < piece->n; j++)
        n += has_bit(bits, j);
    return n == (int64_t)msg->section[i].n_key &&
           msg->column[i][FL_AT_VALUES].size == (size_t)n * width;
}

/* An answer may be of before one that has come already: then what is kept is
 * newer. */
static bool is_of_now(const fl_hot_pull *h, int lane, const fl_section *from)
{
    if (from->n_batch > h->life[lane])
        h->life[lane] = from->n_batch;
    return from->n_batch == h->life[lane];
}

static void put_values(const hot_slot *s, const fl_section *from,
                       const float *values, int64_t dim, bool trained,
                       fl_hot_row *row)
{
    if (row->life == from->n_batch && row->version > from->version)
        return;
    if (row->slots && row->narrow != s->narrow) /* which would see it change */
        return;
    if (values)
        memcpy(fl_hot_values(row), values, (size_t)dim * sizeof *values);
    row->version = from->version;
    row->life = from->n_batch;
    row->batch = s->batch;
    row->asked = row->asked < s->batch ? s->batch : row->asked;
    row->trained = trained;
    row->narrow = s->narrow;
}

void fl_hot_pull_place(fl_worker *w, int slot, int lane,
                       const fl_pull_piece *piece, const fl_msg *msg, int i,
                       const float *values)
{
    fl_hot_pull *h = w->hot;
    hot_slot *s = &h->slot[slot];
    const known_rows *k = &s->known[lane];
    const fl_section *from = &msg->section[i];
    int64_t dim = w->layout.table[piece->table]->dim;
    bool now = is_of_now(h, lane, from);
    bool trained = s->trains && h->pushed[piece->table];

    for (int64_t j = 0; j < piece->n; j++) {
        fl_hot_row *row = k->row[piece->first + j];
        bool came = has_bit(&msg->column[i][FL_AT_BYTES], j);

        *k->out[piece->first + j] = came ? values : fl_hot_values(row);
        if (now)
            put_values(s, from, came ? values : NULL, dim, trained, row);
        values += came ? dim : 0;
        h->counts.unchanged += !came;
        h->counts.saved += came ? 0 : dim * (int64_t)sizeof(float);
        h->counts.saved -= (int64_t)sizeof row->version;
    }
}

static fl_hot_row *place_for(fl_hot_pull *h, fl_hot_table *t, uint64_t key)
{
    fl_hot_row *row;

    fl_hot_rows_find(t, &key, 1, &row); /* it may have come since */
    return row ? row : fl_hot_rows_add(&h->rows, t, key);
}

void fl_hot_pull_keep(fl_worker *w, int slot, int lane,
                      const fl_pull_piece *piece, const fl_section *section,
                      const float *values)
{
    fl_hot_pull *h = w->hot;
    hot_slot *s = &h->slot[slot];
    fl_hot_table *t = &h->rows.table[piece->table];
    const uint64_t *key = w->slot[slot].keys[lane].key + piece->first;
    bool trained = s->trains && h->pushed[piece->table];
    fl_hot_row *row[FL_HOT_AT_ONCE];

    if (!is_of_now(h, lane, section))
        return;
    for (int64_t i = 0, n; i < piece->n; i += n) {
        n = piece->n - i < FL_HOT_AT_ONCE ? piece->n - i : FL_HOT_AT_ONCE;
        fl_hot_rows_find(t, key + i, n, row);
        for (int64_t j = 0; j < n; j++, values += t->dim) {
            if (!row[j] || row[j]->key != key[i + j]) /* it was replaced */
                row[j] = place_for(h, t, key[i + j]);
            if (row[j])
                put_values(s, section, values, t->dim, trained, row[j]);
        }
    }
}

/* --- pushes --------------------------------------------------------------- */

void fl_hot_pull_pushed(fl_worker *w, const fl_push *p)
{
    for (int i = 0; w->hot && i < p->n_table; i++)
        for (int t = 0; t < w->layout.n_table; t++)
            if (w->layout.table[t] == p->table[i].rows)
                w->hot->pushed[t] = true;
}

/* --- life ----------------------------------------------------------------- */

static fleet_status make_slot(const fl_worker *w, hot_slot *s)
{
    size_t n = (size_t)w->layout.n_table + 1;

    FL_TRY(FL_NEW(&s->known, (size_t)w->n_lane * sizeof *s->known));
    for (int l = 0; l < w->n_lane; l++)
        FL_TRY(FL_NEW(&s->known[l].first, n * sizeof *s->known[l].first));
    return FLEET_OK;
}

static fleet_status make_all(fl_worker *w, fl_hot_pull *h, size_t bytes)
{
    FL_TRY(FL_NEW(&h->life, (size_t)w->n_lane * sizeof *h->life));
    FL_TRY(FL_NEW(&h->pushed, (size_t)w->layout.n_table * sizeof *h->pushed));
    for (int i = 0; i < FL_N_SLOT; i++)
        FL_TRY(make_slot(w, &h->slot[i]));
    return fl_hot_rows_make(&h->rows, (const fl_rows *const *)w->layout.table,
                            w->layout.n_table, bytes);
}

fleet_status fl_hot_pull_begin(fl_worker *w, size_t bytes, uint32_t staleness)
{
    if (w->layout.n_table == 0)
        return FLEET_OK;
    FL_TRY(FL_NEW(&w->hot, sizeof *w->hot));
    w->hot->staleness = staleness;
    return make_all(w, w->hot, bytes);
}

static void slot_done(hot_slot *s, int n_lane)
{
    for (int l = 0; s->known && l < n_lane; l++) {
        fl_free(s->known[l].key);
        fl_free(s->known[l].row);
        fl_free(s->known[l].out);
        fl_free(s->known[l].first);
    }
    fl_free(s->known);
    fl_free(s->held);
}

void fl_hot_pull_done(fl_worker *w)
{
    fl_hot_pull *h = w->hot;

    if (!h)
        return;
    for (int i = 0; i < FL_N_SLOT; i++)
        slot_done(&h->slot[i], w->n_lane);
    fl_hot_rows_done(&h->rows);
    fl_free(h->life);
    fl_free(h->pushed);
    fl_free(h);
    w->hot = NULL;
}

fl_hot_counts fl_hot_pull_counted(const fl_worker *w)
{
    fl_hot_counts c = {0};

    if (!w->hot)
        return c;
    c = w->hot->counts;
    c.replaced = w->hot->rows.n_replaced;
    c.bytes = w->hot->rows.bytes;
    c.kept = (uint64_t)fl_hot_rows_count(&w->hot->rows);
    return c;
}
