/* aggregate_apply.c - an aggregate applied, its norms, and reads of what is
 * stored. */
#include "ps/aggregate/aggregate_internal.h"

#include <string.h>

#include "base/memory.h"
#include "ps/codec.h"
#include "runtime/life/accessor.h"
#include "runtime/life/life.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/norm.h"
#include "runtime/store/snapshot.h"
#include "runtime/simd/simd.h"
#include "runtime/store/table.h"

enum { CHUNK = 1024 };

/* --- norms: in the order of runtime/passes/clip_global_norm.c ------------- */

int64_t fl_aggregate_most_norm(const fl_aggregate *u)
{
    return u->n_block +
           (int64_t)u->layout->n_table * fl_bucket_set_count(&u->own);
}

static fleet_status table_norms(const fl_aggregate *u, int table, float scale,
                                uint64_t *key, double *sum, int64_t *n)
{
    const fl_aggregate_rows *t = &u->table[table];
    int64_t dim = u->layout->table[table]->dim;
    fl_norm_row *row = fl_alloc_array((size_t)t->n + 1, sizeof *row);

    if (!row)
        return FLEET_ENOMEM;
    for (int64_t i = 0; i < t->n; i++)
        row[i] = fl_norm_row_of(t->key[i], t->grad[i]);
    fl_norm_sort(row, t->n);
    for (int64_t i = 0; i < t->n; i++) {
        if (i == 0 || row[i].bucket != row[i - 1].bucket) {
            key[*n] = fl_block_key(u->layout->n_param + table, row[i].bucket);
            sum[(*n)++] = 0;
        }
        sum[*n - 1] += fl_square_sum(row[i].grad, dim, scale);
    }
    fl_free(row);
    return FLEET_OK;
}

fleet_status fl_aggregate_norms(fl_aggregate *u, float scale, uint64_t *key,
                                double *sum, int64_t *n)
{
    *n = 0;
    for (int i = 0; i < u->n_block; i++) {
        const fl_aggregate_block *b = &u->block[i];

        if (!b->grad || b->param->attr.average > 0)
            continue;
        key[*n] = fl_block_key(b->number, b->block);
        sum[(*n)++] = fl_square_sum(b->grad, b->n, scale);
    }
    for (int i = 0; i < u->layout->n_table; i++)
        FL_TRY(table_norms(u, i, scale, key, sum, n));
    return FLEET_OK;
}

/* --- applying ------------------------------------------------------------- */

static void apply_block(const fl_store *store, const fl_update *all,
                        const fl_aggregate_block *b)
{
    const fl_param *p = b->param;
    fl_update u =
        fl_own_update(p->optimizer, &p->attr, all, (int64_t)all->version - 1);
    int64_t at = fl_block_offset(p, b->block);
    float *s[FL_MAX_STATE] = {NULL};

    for (int i = 0; i < FL_MAX_STATE; i++)
        if (p->flat->state[i])
            s[i] = p->flat->state[i] + at;
    fl_optimizer_dense(fl_param_optimizer(store, p),
                       &p->attr)(&u, p->flat->weight + at, b->grad, s, b->n);
}

/* Changes of copies, as workers have made them. */
static void add_blocks(const fl_aggregate *u)
{
    for (int i = 0; i < u->n_block; i++) {
        const fl_aggregate_block *b = &u->block[i];

        if (b->grad) {
            float *w =
                b->param->flat->weight + fl_block_offset(b->param, b->block);

            fl_simd_best()->add(w, w, b->grad, b->n);
        }
    }
}

/* The same of rows, each once, which keep the version, too. */
static void add_rows(const fl_rows *rows, const fl_update *u,
                     const uint64_t *key, float *const *w,
                     const float *const *g, int64_t n)
{
    fl_live_hash_out(rows, key, w, n);
    for (int64_t i = 0; i < n; i++) {
        fl_simd_best()->add(w[i], w[i], g[i], rows->dim);
        fl_row_of(w[i])->changed_at = u->version;
        fl_row_of(w[i])->step++;
    }
    fl_live_hash_in(rows, key, w, n);
}

static void change_rows(const fl_store *s, const fl_rows *rows,
                        const fl_update *u, const uint64_t *key,
                        float *const *w, const float *const *g, int64_t n)
{
    if (!s->sums)
        fl_rows_change(rows, s->optimizer, u, key, w, g, n);
    for (int64_t i = 0, m; s->sums && i < n; i += m) {
        m = fl_live_hash_apart(rows, w + i, n - i);
        add_rows(rows, u, key + i, w + i, g + i, m);
    }
}

typedef fleet_status find_method(fl_rows *, const uint64_t *, int64_t,
                                 float **);

/* Fill in the rows that are not known yet: NULL in row[]. n is at most CHUNK;
 * keys need not be aligned. */
static fleet_status find_others(find_method *find, fl_rows *rows,
                                const void *keys, int64_t n, float **row)
{
    uint64_t key[CHUNK];
    float *other[CHUNK];
    int64_t at[CHUNK], missing = 0;

    for (int64_t i = 0; i < n; i++)
        if (!row[i]) {
            memcpy(&key[missing], (const char *)keys + (size_t)i * sizeof *key,
                   sizeof *key);
            at[missing++] = i;
        }
    if (missing > 0)
        FL_TRY(find(rows, key, missing, other));
    for (int64_t i = 0; i < missing; i++)
        row[at[i]] = other[i];
    return FLEET_OK;
}

void fl_aggregate_apply_dense(fl_aggregate *u, int64_t done, uint32_t n_batch,
                              float clip, const fl_update_settings *settings)
{
    fl_optimizer_update(u->layout->store->optimizer, done, (int)n_batch,
                        &u->update);
    fl_update_settings_apply(settings, &u->update);
    u->update.clip = clip;
    if (u->layout->store->sums) {
        add_blocks(u);
        return;
    }
    if (u->layout->store->layerwise.rule != FL_NO_LAYERS) {
        fl_aggregate_apply_layers(u);
        return;
    }
    for (int i = 0; i < u->n_block; i++)
        if (u->block[i].grad)
            apply_block(u->layout->store, &u->update, &u->block[i]);
}

/* Of a table with a life: what has no row when this returns is left out. */
static fleet_status admit_rows(const fl_aggregate *u, fl_aggregate_rows *t,
                               fl_rows *rows)
{
    const fl_life_update life = {.rows = rows,
                                 .key = t->key,
                                 .grad = t->grad,
                                 .n = t->n,
                                 .version = u->update.version,
                                 .frozen = u->layout->store->snapshot};

    for (int64_t j = 0; j < t->n; j += CHUNK)
        FL_TRY(find_others(rows->methods->find, rows, t->key + j,
                           t->n - j < CHUNK ? t->n - j : CHUNK, t->target + j));
    FL_TRY(fl_life_admit(&life, t->target));
    t->n = fl_life_keep(t->target, t->grad, t->key, t->n);
    return FLEET_OK;
}

static void note_blocks(const fl_aggregate *u)
{
    fl_feed_log_next(u->feed);
    for (int i = 0; i < u->n_block; i++)
        if (u->block[i].grad)
            fl_feed_log_block(u->feed, u->block[i].number, u->block[i].block);
}

/* In chunks, so that rows that were found are still near when they change. */
fleet_status fl_aggregate_apply_rows(fl_aggregate *u)
{
    const fl_partition *l = u->layout;

    if (u->feed)
        note_blocks(u);
    for (int i = 0; i < l->n_table; i++) {
        fl_aggregate_rows *t = &u->table[i];
        fl_rows *rows = l->table[i];
        fl_update one =
            fl_rows_update(rows, &u->update, (int64_t)u->update.version - 1);

        if (t->n > 0 && t->epoch != fl_rows_epoch(rows))
            memset(t->target, 0, (size_t)t->n * sizeof *t->target);
        if (rows->life && t->n > 0)
            FL_TRY(admit_rows(u, t, rows));
        for (int64_t j = 0; j < t->n; j += CHUNK) {
            int64_t n = t->n - j < CHUNK ? t->n - j : CHUNK;

            if (l->store->snapshot)
                FL_TRY(fl_snapshot_change(l->store->snapshot, rows, t->key + j,
                                          n));
            FL_TRY(find_others(rows->methods->make, rows, t->key + j, n,
                               t->target + j));
            change_rows(l->store, rows, &one, t->key + j, t->target + j,
                        t->grad + j, n);
            if (fl_rows_has_accessor(rows))
                fl_accessor_update(rows, t->key + j, t->target + j, t->grad + j,
                                   n);
            if (u->changes)
                FL_TRY(fl_change_log_add(&u->changes[i], rows, t->key + j, n,
                                         one.version));
            if (u->feed)
                fl_feed_log_rows(u->feed, i, t->key + j, n, one.version);
        }
    }
    return FLEET_OK;
}

/* --- rows that may be out of memory --------------------------------------- */

/* By their keys. */
static bool asks_for_rows(const fl_section *s)
{
    return s->op == FL_SECTION_ROWS || s->op == FL_SECTION_NEWER;
}

fleet_status fl_aggregate_want(const fl_aggregate *u, const fl_msg *msg,
                               int64_t now_ms, fl_wanted_list **list)
{
    for (int i = 0; i < msg->head.n_section; i++) {
        const fl_section *s = &msg->section[i];
        fl_rows *rows;

        if (!asks_for_rows(s))
            continue;
        rows = u->layout->table[s->table];
        if (rows->methods->want)
            FL_TRY(fl_wanted_list_add(
                list, rows, msg->column[i][FL_AT_KEYS].data, s->n_key, now_ms));
    }
    return FLEET_OK;
}

/* --- reading -------------------------------------------------------------- */

static int64_t floats_of(fl_block_place b)
{
    return (int64_t)(b.bytes / sizeof *b.weight);
}

static size_t dense_bytes(const fl_aggregate *u, const fl_section *s,
                          const fl_frame *column)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < s->n_key; i++)
        bytes +=
            fl_codec_bytes((fl_codec)s->codec,
                           floats_of(fl_block_at(
                               u->layout, fl_key_at(&column[FL_AT_KEYS], i))));
    return bytes;
}

static size_t page_bytes(const fl_change_log *g)
{
    return g->page_bytes > 0 ? g->page_bytes : FL_MSG_PIECE_BYTES;
}

/* What is not in one answer is in the next. */
static size_t changed_bytes(const fl_aggregate *u, const fl_section *s)
{
    const fl_change_log *g = &u->changes[s->table];
    size_t bytes = (size_t)fl_change_log_after(g, s->version) *
                   (size_t)u->layout->table[s->table]->dim * sizeof(float);

    return bytes < page_bytes(g) ? bytes : page_bytes(g);
}

size_t fl_aggregate_answer_bytes(const fl_aggregate *u, const fl_msg *msg)
{
    size_t bytes = 0;

    for (int i = 0; i < msg->head.n_section; i++) {
        const fl_section *s = &msg->section[i];

        if (s->op == FL_SECTION_DENSE)
            bytes += dense_bytes(u, s, msg->column[i]);
        else if (s->op == FL_SECTION_CHANGED)
            bytes += changed_bytes(u, s);
        else
            bytes += s->n_key * fl_codec_bytes((fl_codec)s->codec,
                                               u->layout->table[s->table]->dim);
    }
    return bytes;
}

static fleet_status read_dense(const fl_aggregate *u, const fl_section *s,
                               const fl_frame *column, fl_msg_writer *w)
{
    char *out = fl_msg_column(w, FL_COLUMN_VALUES, dense_bytes(u, s, column));

    for (uint32_t i = 0; out && i < s->n_key; i++) {
        fl_block_place b =
            fl_block_at(u->layout, fl_key_at(&column[FL_AT_KEYS], i));

        fl_codec_write((fl_codec)s->codec, out, b.weight, false, 1,
                       floats_of(b));
        out += fl_codec_bytes((fl_codec)s->codec, floats_of(b));
    }
    return w->status;
}

/* What does not fit into a frame is lost: it can be asked for by keys. */
static fleet_status read_changed(const fl_aggregate *u, const fl_section *s,
                                 fl_section *to, fl_msg_writer *w)
{
    fl_change_log *g = &u->changes[s->table];
    fl_rows *rows = u->layout->table[s->table];
    size_t width = (size_t)rows->dim * sizeof(float);
    fl_change_status found;
    uint64_t *key;
    float *out;

    FL_TRY(fl_change_log_read(g, rows, s->version,
                              (uint64_t)u->layout->store->updates,
                              page_bytes(g), &to->version, &found));
    if ((size_t)g->n_read * width > FL_MOST_FRAME_BYTES) {
        g->n_read = 0;
        found = FL_CHANGES_LOST;
        to->version = (uint64_t)u->layout->store->updates;
    }
    to->n_batch = (uint32_t)found;
    to->n_key = (uint32_t)g->n_read;
    key = fl_msg_column(w, FL_COLUMN_KEYS, (size_t)g->n_read * sizeof *key);
    out = fl_msg_column(w, FL_COLUMN_VALUES, (size_t)g->n_read * width);
    for (int64_t i = 0; key && out && i < g->n_read; i++) {
        memcpy(key + i, &g->key[i], sizeof *key);
        memcpy(out + i * rows->dim, g->row[i], width);
    }
    return w->status;
}

/* At most CHUNK rows, so that what was found is still near when it is read.
 * cached: rows that are known, and where the rest is remembered; or NULL. */
static fleet_status find_chunk(fl_rows *rows, const char *keys, int64_t n,
                               float **row, float **cached)
{
    memset(row, 0, (size_t)n * sizeof *row);
    if (cached)
        memcpy(row, cached, (size_t)n * sizeof *row);
    FL_TRY(find_others(rows->methods->find, rows, keys, n, row));
    if (cached)
        memcpy(cached, row, (size_t)n * sizeof *row);
    return FLEET_OK;
}

/* Rows as floats. First values are made in the answer itself. */
static void write_floats(fl_rows *rows, const char *keys, int64_t n, float *out,
                         float **row)
{
    uint64_t key;

    for (int64_t i = 0; i < n; i++)
        if (!row[i]) {
            memcpy(&key, keys + (size_t)i * sizeof key, sizeof key);
            row[i] = out + i * rows->dim;
            fl_rows_unknown(rows, key, row[i]);
        } else if (!fl_rows_are_floats(rows)) {
            fl_rows_read(rows, out + i * rows->dim, row[i]);
        }
    if (!fl_rows_are_floats(rows))
        return;
    fl_simd_best()->gather(&(fl_gather_args){.out = &out,
                                             .ld = &rows->dim,
                                             .row = (const float *const *)row,
                                             .n = n,
                                             .n_feature = 1,
                                             .dim = rows->dim});
}

/* Rows in fewer bytes. first: memory for a row. */
static void write_narrow(fl_rows *rows, const char *keys, int64_t n,
                         fl_codec codec, char *out, float **row, float *first)
{
    size_t width = fl_codec_bytes(codec, rows->dim);
    uint64_t key;

    for (int64_t i = 0; i < n; i++, out += width) {
        float *from = row[i];

        if (!from) {
            memcpy(&key, keys + (size_t)i * sizeof key, sizeof key);
            from = first;
            fl_rows_unknown(rows, key, first);
        } else if (!fl_rows_are_floats(rows)) {
            from = first;
            fl_rows_read(rows, first, row[i]);
        }
        fl_codec_write(codec, out, from, false, 1, rows->dim);
    }
}

/* Rows that the table does not have read as their first values. */
static fleet_status read_chunk(const fl_aggregate *u, const fl_section *s,
                               const char *keys, int64_t n, char *out,
                               float **cached)
{
    fl_rows *rows = u->layout->table[s->table];
    float *row[CHUNK];

    FL_TRY(find_chunk(rows, keys, n, row, cached));
    if (s->codec == FL_CODEC_F32)
        write_floats(rows, keys, n, (float *)(void *)out, row);
    else
        write_narrow(rows, keys, n, (fl_codec)s->codec, out, row, u->first);
    return FLEET_OK;
}

/* What is remembered of the rows that section i of the pull in p asks for, or
 * room for it, in place of the oldest; NULL: there is none. */
static float **cache_of(fl_row_cache *cache, fl_packet *p, const fl_msg *msg,
                        int i, uint64_t epoch)
{
    const void *key = msg->column[i][FL_AT_KEYS].data;
    int64_t n = msg->section[i].n_key;
    fl_row_cache *f, oldest;

    if (!cache)
        return NULL;
    f = cache + msg->section[i].table * FL_N_ROW_CACHE;
    for (int j = 0; j < FL_N_ROW_CACHE; j++)
        if (f[j].packet == p && f[j].key == key && f[j].epoch == epoch)
            return f[j].row;
    oldest = f[FL_N_ROW_CACHE - 1];
    memmove(f + 1, f, (FL_N_ROW_CACHE - 1) * sizeof *f);
    *f = oldest;
    fl_row_cache_forget(f, 1);
    if (fl_grow(&f->row, &f->capacity, (size_t)n, sizeof *f->row) != FLEET_OK)
        return NULL;
    if (n > 0)
        memset(f->row, 0, (size_t)n * sizeof *f->row);
    f->packet = fl_packet_keep(p);
    f->key = key;
    f->n = n;
    f->epoch = epoch;
    return f->row;
}

fleet_status fl_aggregate_find(const fl_aggregate *u, fl_packet *p,
                               const fl_msg *msg, fl_row_cache *cache)
{
    for (int i = 0; i < msg->head.n_section; i++) {
        const fl_section *s = &msg->section[i];
        const char *keys = msg->column[i][FL_AT_KEYS].data;
        fl_rows *rows;
        float **row;

        if (!asks_for_rows(s))
            continue;
        rows = u->layout->table[s->table];
        row = cache_of(cache, p, msg, i, fl_rows_epoch(rows));
        for (int64_t j = 0; row && j < s->n_key; j += CHUNK)
            FL_TRY(find_others(
                rows->methods->find, rows, keys + (size_t)j * sizeof(uint64_t),
                s->n_key - j < CHUNK ? s->n_key - j : CHUNK, row + j));
    }
    return FLEET_OK;
}

/* --- rows of which the reader has a version ------------------------------- */

/* A question for rows that have changed since, and its answer as it is made. */
typedef struct newer_rows {
    const fl_section *section;
    const fl_frame *column;
    fl_rows *rows;
    bool all; /* what the reader has is of another life */
    int64_t n;
    float *out; /* NULL: they are counted */
    uint8_t *bits;
} newer_rows;

static bool is_newer(const newer_rows *a, int64_t i, float *row)
{
    return a->all || !row ||
           fl_row_of(row)->changed_at >
               fl_key_at(&a->column[FL_AT_VERSIONS], i);
}

static void take_newer(newer_rows *a, int64_t i, const float *row)
{
    int64_t dim = a->rows->dim;

    a->n++;
    if (!a->out)
        return;
    a->bits[i / 8] |= (uint8_t)(1u << (i % 8));
    if (row)
        fl_rows_read(a->rows, a->out, row);
    else
        fl_rows_unknown(a->rows, fl_key_at(&a->column[FL_AT_KEYS], i), a->out);
    a->out += dim;
}

static fleet_status each_newer(newer_rows *a, float **cached)
{
    const char *keys = a->column[FL_AT_KEYS].data;
    int64_t n_key = a->section->n_key;
    float *row[CHUNK];

    a->n = 0;
    for (int64_t i = 0, n; i < n_key; i += n) {
        n = n_key - i < CHUNK ? n_key - i : CHUNK;
        FL_TRY(find_chunk(a->rows, keys + (size_t)i * sizeof(uint64_t), n, row,
                          cached ? cached + i : NULL));
        for (int64_t j = 0; j < n; j++)
            if (is_newer(a, i + j, row[j]))
                take_newer(a, i + j, row[j]);
    }
    return FLEET_OK;
}

/* They are counted first, because a column has its size when it is made. */
static fleet_status read_newer(const fl_aggregate *u, const fl_section *s,
                               const fl_frame *column, float **cached,
                               fl_section *to, fl_msg_writer *w)
{
    size_t bits = ((size_t)s->n_key + 7) / 8;
    newer_rows a = {.section = s,
                    .column = column,
                    .rows = u->layout->table[s->table],
                    .all = s->n_batch != u->life};
    float *out;

    FL_TRY(each_newer(&a, cached));
    to->n_key = (uint32_t)a.n;
    out = fl_msg_column(w, FL_COLUMN_VALUES,
                        (size_t)(a.n * a.rows->dim) * sizeof *out);
    a.bits = fl_msg_column(w, FL_COLUMN_BYTES, bits);
    if (w->status != FLEET_OK)
        return w->status;
    memset(a.bits, 0, bits);
    a.out = out;
    return each_newer(&a, cached);
}

fleet_status fl_aggregate_read(const fl_aggregate *u, fl_packet *p,
                               const fl_msg *msg, int i, fl_msg_writer *w,
                               fl_row_cache *cache)
{
    const fl_section *s = &msg->section[i];
    const char *keys = msg->column[i][FL_AT_KEYS].data;
    fl_section *to = fl_msg_section(w, (fl_section_op)s->op, s->table);
    int64_t n = s->n_key;
    fl_rows *rows;
    float **cached;
    size_t width;
    char *out;

    if (!to)
        return w->status;
    if (s->op == FL_SECTION_CHANGED)
        return read_changed(u, s, to, w);
    to->n_key = s->n_key;
    to->codec = s->codec;
    to->version = (uint64_t)u->layout->store->updates;
    if (s->op == FL_SECTION_DENSE)
        return read_dense(u, s, msg->column[i], w);
    to->n_batch = u->life;
    rows = u->layout->table[s->table];
    cached = cache_of(cache, p, msg, i, fl_rows_epoch(rows));
    if (s->op == FL_SECTION_NEWER)
        return read_newer(u, s, msg->column[i], cached, to, w);
    width = fl_codec_bytes((fl_codec)s->codec, rows->dim);
    out = fl_msg_column(w, FL_COLUMN_VALUES, (size_t)n * width);
    for (int64_t j = 0; out && j < n; j += CHUNK)
        FL_TRY(read_chunk(u, s, keys + (size_t)j * sizeof(uint64_t),
                          n - j < CHUNK ? n - j : CHUNK,
                          out + (size_t)j * width, cached ? cached + j : NULL));
    return w->status;
}
