/* aggregate.c - contributions checked and summed. */
#include "ps/aggregate/aggregate_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "ps/aggregate/aggregate_live.h"
#include "ps/codec.h"
#include "runtime/simd/simd.h"

enum { PREFETCH = 16 }; /* keys whose places in a set are needed soon */

/* --- rows that pulls have found ------------------------------------------- */

void fl_row_cache_forget(fl_row_cache *f, int n)
{
    for (int i = 0; f && i < n; i++) {
        fl_packet_drop(f[i].packet);
        f[i].packet = NULL;
        f[i].n = 0;
    }
}

void fl_row_cache_done(fl_row_cache *f, int n)
{
    fl_row_cache_forget(f, n);
    for (int i = 0; f && i < n; i++)
        fl_free(f[i].row);
    fl_free(f);
}

/* The rows of these keys, if a cached pull had the same keys, and no row of the
 * table has gone since; else NULL. */
static float *const *cached_rows(const fl_row_cache *f, const fl_frame *keys,
                                 uint64_t epoch)
{
    for (int i = 0; f && i < FL_N_ROW_CACHE; i++)
        if (f[i].n > 0 && f[i].epoch == epoch &&
            (size_t)f[i].n * sizeof(uint64_t) == keys->size &&
            memcmp(f[i].key, keys->data, keys->size) == 0)
            return f[i].row;
    return NULL;
}

/* --- an aggregate's own arrays -------------------------------------------- */

static bool is_ours(const fl_aggregate *u, const fl_param *p, int64_t block)
{
    return fl_bucket_set_has(&u->own,
                             fl_block_bucket(u->layout->store, p, block));
}

static int count_blocks(const fl_aggregate *u)
{
    int n = 0;

    for (int i = 0; i < u->layout->n_param; i++)
        for (int64_t b = 0; b < fl_blocks_of(u->layout->param[i]); b++)
            n += is_ours(u, u->layout->param[i], b);
    return n;
}

static void list_blocks(fl_aggregate *u)
{
    const fl_partition *l = u->layout;

    for (int i = 0; i < l->n_param; i++) {
        u->first_block[i] = u->n_block;
        for (int64_t b = 0; b < fl_blocks_of(l->param[i]); b++)
            if (is_ours(u, l->param[i], b))
                u->block[u->n_block++] =
                    (fl_aggregate_block){.param = l->param[i],
                                         .number = i,
                                         .block = b,
                                         .n = fl_block_size(l->param[i], b)};
    }
    u->first_block[l->n_param] = u->n_block;
}

static int64_t widest_row(const fl_partition *layout)
{
    int64_t dim = 1;

    for (int i = 0; i < layout->n_table; i++)
        if (layout->table[i]->dim > dim)
            dim = layout->table[i]->dim;
    return dim;
}

fleet_status fl_aggregate_init(fl_aggregate *u, const fl_partition *layout,
                               fl_bucket_set own)
{
    fleet_status status;

    *u = (fl_aggregate){.layout = layout, .own = own};
    u->table = fl_alloc_array((size_t)layout->n_table + 1, sizeof *u->table);
    u->first_block =
        fl_alloc_array((size_t)layout->n_param + 1, sizeof *u->first_block);
    u->block = fl_alloc_array((size_t)count_blocks(u) + 1, sizeof *u->block);
    u->first = fl_alloc_array((size_t)widest_row(layout), sizeof *u->first);
    if (layout->store->sums)
        u->changes =
            fl_alloc_array((size_t)layout->n_table + 1, sizeof *u->changes);
    if (!u->table || !u->first_block || !u->block || !u->first ||
        (layout->store->sums && !u->changes)) {
        fl_aggregate_done(u);
        return FLEET_ENOMEM;
    }
    list_blocks(u);
    status = fl_aggregate_init_layers(u);
    if (status != FLEET_OK)
        fl_aggregate_done(u);
    return status;
}

void fl_aggregate_done(fl_aggregate *u)
{
    for (int i = 0; u->table && i < u->layout->n_table; i++) {
        fl_aggregate_rows *t = &u->table[i];

        fl_free(t->key);
        fl_free(t->grad);
        fl_free(t->target);
        fl_key_set_done(&t->set);
        fl_free(t->sum);
        fl_free(t->sum_of);
    }
    for (int i = 0; i < u->n_block; i++)
        fl_free(u->block[i].sum);
    for (int i = 0; u->changes && i < u->layout->n_table; i++)
        fl_change_log_done(&u->changes[i]);
    fl_aggregate_live_done(u);
    fl_free(u->changes);
    fl_free(u->squares);
    fl_free(u->table);
    fl_free(u->block);
    fl_free(u->first);
    fl_free(u->first_block);
    *u = (fl_aggregate){0};
}

/* The block of that key; NULL: there is none, or it is another lane's. */
static fl_aggregate_block *find_block(const fl_aggregate *u, uint64_t key)
{
    uint64_t param = key >> 32;
    int64_t block = (int64_t)(key & UINT32_MAX);
    int low, high;

    if (param >= (uint64_t)u->layout->n_param)
        return NULL;
    low = u->first_block[param];
    high = u->first_block[param + 1];
    while (low < high) {
        int middle = (low + high) / 2;

        if (u->block[middle].block == block)
            return &u->block[middle];
        if (u->block[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* --- checks --------------------------------------------------------------- */

/* Values come with a step; a pull's must fit into a frame of the answer, and
 * what they are read from into memory. */
static fleet_status check_values(const fl_frame *values, uint64_t floats,
                                 size_t bytes, bool step)
{
    if (step && values->size != bytes)
        return fl_fail(FLEET_EINVAL, "%" PRIu64 " numbers came with %zu bytes",
                       floats, values->size);
    if (floats * sizeof(float) > FL_MOST_FRAME_BYTES)
        return fl_fail(FLEET_EINVAL,
                       "%" PRIu64 " numbers at once, more than %d bytes",
                       floats, FL_MOST_FRAME_BYTES);
    return FLEET_OK;
}

static fleet_status check_dense(const fl_aggregate *u, const fl_section *s,
                                const fl_frame *column, bool step)
{
    uint64_t floats = 0;
    size_t bytes = 0;

    for (uint32_t i = 0; i < s->n_key; i++) {
        const fl_aggregate_block *b =
            find_block(u, fl_key_at(&column[FL_AT_KEYS], i));

        if (!b)
            return fl_fail(FLEET_EINVAL, "block %u of parameter %u is not here",
                           (unsigned)fl_key_at(&column[FL_AT_KEYS], i),
                           (unsigned)(fl_key_at(&column[FL_AT_KEYS], i) >> 32));
        floats += (uint64_t)b->n;
        bytes += fl_codec_bytes((fl_codec)s->codec, b->n);
    }
    return check_values(&column[FL_AT_VALUES], floats, bytes, step);
}

static fleet_status check_rows(const fl_aggregate *u, const fl_section *s,
                               const fl_frame *column, bool step)
{
    /* the only lane of the job: no key is another's */
    bool owns_all = fl_bucket_set_count(&u->own) == FL_N_BUCKET;
    const fl_rows *rows;
    int64_t width; /* of a row, or of its gradient */
    size_t bytes;  /* of one */

    if (s->table >= (uint32_t)u->layout->n_table)
        return fl_fail(FLEET_EINVAL, "there is no table %u",
                       (unsigned)s->table);
    rows = u->layout->table[s->table];
    width = step ? fl_rows_pushed(rows) : rows->dim;
    bytes = fl_codec_bytes((fl_codec)s->codec, rows->dim);
    if (width > rows->dim && s->codec != FL_CODEC_F32)
        return fl_fail(FLEET_EINVAL,
                       "gradients of table \"%s\", which has an accessor, in "
                       "fewer bytes than float32",
                       rows->name);
    if (width > rows->dim)
        bytes = (size_t)width * sizeof(float);
    for (uint32_t i = 0; !owns_all && i < s->n_key; i++)
        if (!fl_bucket_set_has(&u->own, fl_bucket_of(fl_mix(fl_key_at(
                                            &column[FL_AT_KEYS], i)))))
            return fl_fail(FLEET_EINVAL,
                           "a row of table \"%s\" is another lane's",
                           rows->name);
    return check_values(&column[FL_AT_VALUES], s->n_key * (uint64_t)width,
                        s->n_key * bytes, step);
}

static fleet_status check_newer(const fl_aggregate *u, const fl_section *s,
                                const fl_frame *column)
{
    if (s->n_key > 0 && !column[FL_AT_VERSIONS].data)
        return fl_fail(FLEET_EINVAL, "%u versions that did not come",
                       (unsigned)s->n_key);
    return check_rows(u, s, column, false);
}

static fleet_status check_section(const fl_aggregate *u, const fl_section *s,
                                  const fl_frame *column, bool step)
{
    if (s->n_key > 0 && !column[FL_AT_KEYS].data)
        return fl_fail(FLEET_EINVAL, "%u keys that did not come",
                       (unsigned)s->n_key);
    if (s->op == FL_SECTION_DENSE)
        return check_dense(u, s, column, step);
    if (s->op == FL_SECTION_ROWS)
        return check_rows(u, s, column, step);
    if (s->op == FL_SECTION_NEWER && !step)
        return check_newer(u, s, column);
    if (s->op == FL_SECTION_CLIP && step)
        return FLEET_OK;
    if (s->op == FL_SECTION_CHANGED && !step && u->changes && s->n_key == 0 &&
        s->table < (uint32_t)u->layout->n_table)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL, "section of kind %u in a %s", (unsigned)s->op,
                   step ? "step" : "pull");
}

fleet_status fl_aggregate_check(const fl_aggregate *u, const fl_msg *msg)
{
    bool step = msg->head.kind == FL_MSG_STEP;

    for (int i = 0; i < msg->head.n_section; i++)
        FL_TRY(check_section(u, &msg->section[i], msg->column[i], step));
    return FLEET_OK;
}

/* --- summing -------------------------------------------------------------- */

void fl_aggregate_begin(fl_aggregate *u)
{
    for (int i = 0; i < u->n_block; i++)
        u->block[i].grad = NULL;
    for (int i = 0; i < u->layout->n_table; i++) {
        fl_aggregate_rows *t = &u->table[i];

        t->n = t->n_sum = 0;
        t->epoch = fl_rows_epoch(u->layout->table[i]);
        t->set.n = 0;
        if (t->set.slot)
            memset(t->set.slot, 0, t->set.n_slot * sizeof *t->set.slot);
    }
}

static fleet_status add_block(fl_aggregate_block *b, const float *grad)
{
    if (!b->grad) {
        b->grad = grad;
        return FLEET_OK;
    }
    if (!b->sum)
        FL_TRY(FL_NEW(&b->sum, (size_t)b->n * sizeof *b->sum));
    fl_simd_best()->add(b->sum, b->grad, grad, b->n);
    b->grad = b->sum;
    return FLEET_OK;
}

static fleet_status add_dense(fl_aggregate *u, const fl_section *s,
                              const fl_frame *column)
{
    const float *grad = column[FL_AT_VALUES].data;

    for (uint32_t i = 0; i < s->n_key; i++) {
        fl_aggregate_block *b =
            find_block(u, fl_key_at(&column[FL_AT_KEYS], i));

        FL_TRY(add_block(b, grad));
        grad += b->n;
    }
    return FLEET_OK;
}

/* The only contribution: rows are used where they lie. */
static void list_rows(fl_aggregate_rows *t, const fl_section *s,
                      const fl_frame *column, int64_t width,
                      const fl_row_cache *cache)
{
    const float *grad = column[FL_AT_VALUES].data;
    float *const *row = cached_rows(cache, &column[FL_AT_KEYS], t->epoch);

    if (s->n_key > 0)
        memcpy(t->key + t->n, column[FL_AT_KEYS].data,
               s->n_key * sizeof *t->key);
    for (uint32_t i = 0; i < s->n_key; i++, t->n++) {
        t->grad[t->n] = grad + (int64_t)i * width;
        t->target[t->n] = row ? row[i] : NULL;
    }
}

/* Add to row `at` what came for it again: from then on it has a sum of its
 * own. */
static void add_again(fl_aggregate_rows *t, uint32_t at, const float *grad,
                      const fl_rows *rows)
{
    int64_t width = fl_rows_pushed(rows);
    const float *first = t->grad[at];
    float *sum;

    if (t->sum_of[at]) /* it may have moved */
        first = t->sum + (int64_t)(t->sum_of[at] - 1) * width;
    else
        t->sum_of[at] = (uint32_t)++t->n_sum;
    sum = t->sum + (int64_t)(t->sum_of[at] - 1) * width;
    fl_simd_best()->add(sum, first, grad, rows->dim);
    fl_add_pushed(rows, sum, first, grad);
}

static fleet_status sum_rows(fl_aggregate_rows *t, const fl_section *s,
                             const fl_frame *column, const fl_rows *rows,
                             const fl_row_cache *cache)
{
    int64_t width = fl_rows_pushed(rows);
    const float *grad = column[FL_AT_VALUES].data;
    const fl_frame *keys = &column[FL_AT_KEYS];
    float *const *row = cached_rows(cache, keys, t->epoch);

    FL_TRY(fl_key_set_room(&t->set, s->n_key));
    FL_TRY(fl_grow(&t->sum_of, &t->sum_of_capacity, (size_t)(t->n + s->n_key),
                   sizeof *t->sum_of));
    FL_TRY(fl_grow(&t->sum, &t->sum_capacity,
                   (size_t)((t->n_sum + s->n_key) * width), sizeof *t->sum));
    for (uint32_t i = 0; i < s->n_key; i++, grad += width) {
        uint64_t key = fl_key_at(keys, i);
        bool is_new;
        uint32_t at;

        if (i + PREFETCH < s->n_key)
            fl_key_set_prefetch(&t->set, fl_key_at(keys, i + PREFETCH));
        at = fl_key_set_add(&t->set, key, &is_new);
        if (!is_new) {
            add_again(t, at, grad, rows);
            continue;
        }
        t->key[t->n] = key;
        t->sum_of[t->n] = 0;
        t->target[t->n] = row ? row[i] : NULL;
        t->grad[t->n++] = grad;
    }
    return FLEET_OK;
}

static fleet_status add_section(fl_aggregate *u, const fl_section *s,
                                const fl_frame *column, bool many,
                                const fl_row_cache *cache)
{
    if (s->op == FL_SECTION_CLIP)
        return FLEET_OK;
    if (s->op == FL_SECTION_DENSE)
        return add_dense(u, s, column);
    fl_aggregate_rows *t = &u->table[s->table];
    const fl_rows *rows = u->layout->table[s->table];
    size_t n = (size_t)(t->n + s->n_key);

    if (cache)
        cache += s->table * FL_N_ROW_CACHE;
    FL_TRY(fl_grow(&t->key, &t->key_capacity, n, sizeof *t->key));
    FL_TRY(fl_grow(&t->grad, &t->grad_capacity, n, sizeof *t->grad));
    FL_TRY(fl_grow(&t->target, &t->target_capacity, n, sizeof *t->target));
    if (many)
        return sum_rows(t, s, column, rows, cache);
    list_rows(t, s, column, fl_rows_pushed(rows), cache);
    return FLEET_OK;
}

fleet_status fl_aggregate_add(fl_aggregate *u, const fl_piece *pieces,
                              bool many, const fl_row_cache *cache)
{
    for (const fl_piece *p = pieces; p; p = p->next)
        for (int i = 0; i < p->msg.head.n_section; i++)
            FL_TRY(add_section(u, &p->msg.section[i], p->msg.column[i], many,
                               cache));
    for (int i = 0; i < u->layout->n_table; i++) {
        fl_aggregate_rows *t = &u->table[i];
        int64_t width = fl_rows_pushed(u->layout->table[i]);

        for (int64_t j = 0; t->n_sum > 0 && j < t->n; j++)
            if (t->sum_of[j]) /* sums may have moved while they were made */
                t->grad[j] = t->sum + (int64_t)(t->sum_of[j] - 1) * width;
    }
    return FLEET_OK;
}

/* --- records -------------------------------------------------------------- */

/* Of a section at most: no more than a message's may have. */
enum { RECORD_FLOATS = 4 << 20, RECORD_BLOCKS = RECORD_FLOATS / FL_BLOCK };

static int64_t rows_at_once(int64_t width)
{
    return width < RECORD_FLOATS ? RECORD_FLOATS / width : 1;
}

static fleet_status make_record(const fl_aggregate *u, fl_record_parts *to)
{
    size_t n = (size_t)u->n_block / RECORD_BLOCKS + 1;

    for (int i = 0; i < u->layout->n_table; i++)
        n += (size_t)(u->table[i].n /
                      rows_at_once(fl_rows_pushed(u->layout->table[i]))) +
             1;
    FL_TRY(fl_grow(&to->key, &to->key_capacity, (size_t)u->n_block + 1,
                   sizeof *to->key));
    return fl_grow(&to->section, &to->section_capacity, n, sizeof *to->section);
}

/* Blocks from `first` on that have a gradient, RECORD_BLOCKS at most; *first
 * becomes the block after them. */
static fleet_status record_blocks(const fl_aggregate *u, int *first,
                                  fl_record_parts *to)
{
    uint64_t *key = to->key + *first;
    size_t floats = 0;
    uint32_t n = 0;
    int end = *first;

    for (; end < u->n_block && n < RECORD_BLOCKS; end++)
        if (u->block[end].grad) {
            key[n++] = fl_block_key(u->block[end].number, u->block[end].block);
            floats += (size_t)u->block[end].n;
        }
    if (n > 0)
        FL_TRY(fl_record_section(to, FL_SECTION_DENSE, 0, key, n, floats));
    for (int i = *first; i < end; i++)
        if (u->block[i].grad)
            FL_TRY(fl_journal_add(&to->parts, u->block[i].grad,
                                  (size_t)u->block[i].n * sizeof(float)));
    *first = end;
    return fl_record_pad(to, floats);
}

static fleet_status record_rows(const fl_aggregate *u, int table,
                                fl_record_parts *to)
{
    const fl_aggregate_rows *t = &u->table[table];
    int64_t width = fl_rows_pushed(u->layout->table[table]);
    int64_t most = rows_at_once(width);

    for (int64_t i = 0, n; i < t->n; i += n) {
        n = t->n - i < most ? t->n - i : most;
        FL_TRY(fl_record_section(to, FL_SECTION_ROWS, (uint32_t)table,
                                 t->key + i, (uint32_t)n, (size_t)(n * width)));
        for (int64_t j = i; j < i + n; j++)
            FL_TRY(fl_journal_add(&to->parts, t->grad[j],
                                  (size_t)width * sizeof(float)));
        FL_TRY(fl_record_pad(to, (size_t)(n * width)));
    }
    return FLEET_OK;
}

fleet_status fl_aggregate_record(const fl_aggregate *u, fl_record_parts *to)
{
    FL_TRY(make_record(u, to));
    for (int i = 0; i < u->n_block;)
        FL_TRY(record_blocks(u, &i, to));
    for (int i = 0; i < u->layout->n_table; i++)
        FL_TRY(record_rows(u, i, to));
    return FLEET_OK;
}
