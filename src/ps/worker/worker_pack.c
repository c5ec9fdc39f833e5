/* worker_pack.c - keys as they stand in a message; a push written for each
 * lane, in pieces: gradients of rows and of blocks, as they are or in fewer
 * bytes. */
#include <string.h>

#include "base/memory.h"
#include "ps/codec_keys.h"
#include "ps/residuals.h"
#include "ps/worker/worker_internal.h"
#include "runtime/simd/simd.h"

/* --- keys ----------------------------------------------------------------- */

static fleet_status sort_lane(fl_worker *w, fl_lane_keys *k)
{
    fl_lane_keys *scratch = &w->sorting;

    FL_TRY(fl_grow(&scratch->key, &scratch->key_capacity, (size_t)k->n,
                   sizeof *k->key));
    FL_TRY(fl_grow(&scratch->at, &scratch->at_capacity, (size_t)k->n,
                   sizeof(void *)));
    for (int t = 0; t < w->layout.n_table; t++)
        fl_keys_sort(k->key + k->first[t], (void **)k->at + k->first[t],
                     k->first[t + 1] - k->first[t], scratch->key, scratch->at);
    return FLEET_OK;
}

fleet_status fl_worker_sort_keys(fl_worker *w, fl_lane_keys *keys)
{
    for (int l = 0; w->wire.packs_keys && l < w->n_lane; l++)
        FL_TRY(sort_lane(w, &keys[l]));
    return FLEET_OK;
}

static fleet_status write_packed(fl_msg_writer *writer, fl_section *s,
                                 const uint64_t *key, int64_t n)
{
    void *to = fl_msg_column(writer, FL_COLUMN_KEYS, fl_keys_most_bytes(n));

    if (!to)
        return writer->status;
    s->codec |= (uint8_t)FL_PACKED_KEYS;
    fl_msg_shorten(writer, fl_keys_pack(to, key, n));
    return FLEET_OK;
}

fleet_status fl_worker_write_keys(const fl_worker *w, fl_msg_writer *writer,
                                  const uint64_t *key, int64_t n)
{
    fl_section *s;
    void *to;

    if (writer->status != FLEET_OK) /* there may be no section */
        return writer->status;
    s = &writer->section[writer->n_section - 1];
    if (w->wire.packs_keys && s->op == FL_SECTION_ROWS)
        return write_packed(writer, s, key, n);
    to = fl_msg_column(writer, FL_COLUMN_KEYS, (size_t)n * sizeof *key);
    if (to && n > 0)
        memcpy(to, key, (size_t)n * sizeof *key);
    return writer->status;
}

/* --- sharing out ---------------------------------------------------------- */

static fleet_status share_out(fl_worker *w, const fl_push_rows *t)
{
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_push_part *part = &t->part[p];

        for (int64_t i = 0; i < part->n; i++) {
            uint64_t key = part->key[part->which ? part->which[i] : i];
            fl_lane_keys *k = fl_worker_keys_for(w, w->push_keys, key);

            if (!k)
                return FLEET_ENOMEM;
            k->key[k->n] = key;
            ((const float **)k->at)[k->n++] = part->grad[i];
        }
    }
    return FLEET_OK;
}

static fleet_status share_out_all(fl_worker *w, const fl_push *p)
{
    for (int l = 0; l < w->n_lane; l++)
        w->push_keys[l].n = 0;
    for (int t = 0; t < w->layout.n_table; t++) {
        for (int l = 0; l < w->n_lane; l++)
            w->push_keys[l].first[t] = w->push_keys[l].n;
        for (int i = 0; i < p->n_table; i++)
            if (p->table[i].rows == w->layout.table[t])
                FL_TRY(share_out(w, &p->table[i]));
    }
    for (int l = 0; l < w->n_lane; l++)
        w->push_keys[l].first[w->layout.n_table] = w->push_keys[l].n;
    return fl_worker_sort_keys(w, w->push_keys);
}

/* --- packing -------------------------------------------------------------- */

typedef struct packing {
    fl_worker *w;
    const fl_push *push;
    int part; /* FL_STEP_BEGINS, FL_STEP_ENDS, both */
    int lane;
    size_t bytes; /* in the piece that is being written */
    bool open;
    fl_msg_writer writer;
    float *values; /* where the next ones are made that travel in fewer bytes */
} packing;

static fl_request *request_of(packing *a)
{
    return &a->w->pushing[a->lane];
}

static fleet_status end_piece(packing *a)
{
    a->open = false;
    return fl_client_add(a->w->client, request_of(a), &a->writer);
}

/* A section for `bytes` bytes of values, in this piece or the next. */
static fleet_status begin_section(packing *a, fl_section_op op, int table,
                                  int n, fl_codec codec, size_t bytes)
{
    fl_section *s;

    if (a->open && (a->bytes + bytes > a->w->piece_bytes ||
                    a->writer.n_section >= FL_MSG_MOST_SECTION - 1))
        FL_TRY(end_piece(a));
    if (!a->open) {
        fl_client_begin(a->w->client, a->lane, request_of(a), &a->writer,
                        FL_MSG_STEP, a->w->step, 0);
        a->bytes = 0;
        a->open = true;
    }
    s = fl_msg_section(&a->writer, op, (uint32_t)table);
    if (s) {
        s->n_key = (uint32_t)n;
        s->codec = (uint8_t)codec;
        s->version = (uint64_t)a->w->remote.updates;
        s->n_batch = (uint32_t)a->push->n_batch;
    }
    a->bytes += bytes;
    return a->writer.status;
}

/* Servers know no scale of this worker's loss. A push that travels in fewer
 * bytes has its clip, too, which changes from push to push: residuals have been
 * clipped. So have rows of it that travel as they are. */
static float clip_of(const packing *a)
{
    return a->w->wire.push == FL_CODEC_F32 ? 1.0f : a->push->clip;
}

static void scale_values(const packing *a, float *values, int64_t n, float clip)
{
    float factor = fl_push_factor(a->push) * clip;

    if (factor != 1.0f)
        fl_simd_best()->scale(values, values, factor, 0.0f, n);
}

/* Values that were made in the worker's memory, of n rows of a table; and of a
 * block. */
static fleet_status write_rows(packing *a, int table, const uint64_t *key,
                               int64_t n, fl_codec codec, void *to)
{
    fl_residuals *r = a->w->residuals;
    int64_t dim = a->w->layout.table[table]->dim;

    if (r)
        FL_TRY(fl_residuals_add_rows(r, table, key, a->values, n));
    fl_codec_write(codec, to, a->values, r != NULL, n, dim);
    a->values += n * dim;
    return FLEET_OK;
}

static fleet_status write_block(packing *a, uint64_t key, int64_t n, void *to)
{
    fl_residuals *r = a->w->residuals;

    if (r)
        FL_TRY(fl_residuals_add_block(r, key, a->values, n));
    fl_codec_write(a->w->wire.push, to, a->values, r != NULL, 1, n);
    a->values += n;
    return FLEET_OK;
}

/* Shows and clicks are counted exactly. */
static fl_codec codec_of(const fl_worker *w, const fl_rows *rows)
{
    return fl_rows_has_accessor(rows)
               ? FL_CODEC_F32
               : fl_codec_of_rows(w->wire.push, rows->dim);
}

static fleet_status pack_rows(packing *a, int table, const uint64_t *key,
                              const float *const *grad, int64_t n)
{
    const fl_rows *rows = a->w->layout.table[table];
    int64_t dim = fl_rows_pushed(rows);
    fl_codec codec = codec_of(a->w, rows);
    size_t bytes = (size_t)n * fl_codec_bytes(codec, dim);
    float *values;
    void *to;

    FL_TRY(begin_section(a, FL_SECTION_ROWS, table, (int)n, codec, bytes));
    FL_TRY(fl_worker_write_keys(a->w, &a->writer, key, n));
    to = fl_msg_column(&a->writer, FL_COLUMN_VALUES, bytes);
    if (!to)
        return a->writer.status;
    values = codec == FL_CODEC_F32 ? to : a->values;
    fl_simd_best()->gather(&(fl_gather_args){.out = (float *[]){values},
                                             .ld = (int64_t[]){dim},
                                             .row = grad,
                                             .n = n,
                                             .n_feature = 1,
                                             .dim = dim});
    if (dim == rows->dim)
        scale_values(a, values, n * dim, clip_of(a));
    for (int64_t i = 0; dim > rows->dim && i < n; i++)
        scale_values(a, values + i * dim, rows->dim, clip_of(a));
    return codec == FL_CODEC_F32 ? FLEET_OK
                                 : write_rows(a, table, key, n, codec, to);
}

static fleet_status pack_table(packing *a, int table)
{
    const fl_lane_keys *k = &a->w->push_keys[a->lane];
    const fl_rows *rows = a->w->layout.table[table];
    int64_t dim = fl_rows_pushed(rows);
    fl_codec codec = codec_of(a->w, rows);
    int64_t most = (int64_t)(a->w->piece_bytes / fl_codec_bytes(codec, dim));
    int64_t end = k->first[table + 1];

    most = most < 1 ? 1 : most;
    for (int64_t i = k->first[table]; i < end; i += most)
        FL_TRY(pack_rows(a, table, k->key + i, (const float **)k->at + i,
                         end - i < most ? end - i : most));
    return FLEET_OK;
}

/* The lane's blocks of what is pushed: w->push_block and push_grad. */
static int list_blocks(packing *a)
{
    fl_worker *w = a->w;
    const fl_lane_blocks *all = &w->block[a->lane];
    int n = 0;

    for (int i = 0; i < all->n; i++) {
        const float *grad = w->grad_of[all->key[i] >> 32];

        if (!grad)
            continue;
        w->push_block[n] = all->key[i];
        w->push_grad[n++] =
            grad + (int64_t)(all->key[i] & UINT32_MAX) * FL_BLOCK;
    }
    return n;
}

static int64_t block_size(const fl_worker *w, uint64_t key)
{
    return (int64_t)(fl_block_at(&w->layout, key).bytes / sizeof(float));
}

static fleet_status pack_block(packing *a, int number, char *to)
{
    const fl_worker *w = a->w;
    uint64_t key = w->push_block[number];
    int64_t n = block_size(w, key);
    bool as_is = w->wire.push == FL_CODEC_F32;
    float *values = as_is ? (float *)(void *)to : a->values;

    memcpy(values, w->push_grad[number], (size_t)n * sizeof *values);
    scale_values(
        a, values, n,
        fl_push_param_factor(a->push, w->layout.param[key >> 32], clip_of(a)));
    return as_is ? FLEET_OK : write_block(a, key, n, to);
}

static fleet_status pack_blocks(packing *a, int first, int n)
{
    const fl_worker *w = a->w;
    fl_codec codec = w->wire.push;
    size_t bytes = 0;
    char *to;

    for (int i = first; i < first + n; i++)
        bytes += fl_codec_bytes(codec, block_size(w, w->push_block[i]));
    FL_TRY(begin_section(a, FL_SECTION_DENSE, 0, n, codec, bytes));
    FL_TRY(fl_worker_write_keys(w, &a->writer, w->push_block + first, n));
    to = fl_msg_column(&a->writer, FL_COLUMN_VALUES, bytes);
    for (int i = first; to && i < first + n; i++) {
        FL_TRY(pack_block(a, i, to));
        to += fl_codec_bytes(codec, block_size(w, w->push_block[i]));
    }
    return a->writer.status;
}

/* The last piece says that it is, of how many batches the step is, and how its
 * update is made. */
static fleet_status close_step(packing *a)
{
    const fl_update_settings *settings = &a->push->settings;
    void *values;

    FL_TRY(begin_section(a, FL_SECTION_CLIP, 0, 0, FL_CODEC_F32,
                         sizeof *settings));
    a->writer.section[a->writer.n_section - 1].learning_rate =
        a->w->wire.push == FL_CODEC_F32 ? a->push->clip : 1.0f;
    values = fl_msg_column(&a->writer, FL_COLUMN_VALUES, sizeof *settings);
    if (!values)
        return a->writer.status;
    memcpy(values, settings, sizeof *settings);
    a->writer.head.flags =
        FL_MSG_END_OF_STEP | (a->w->remote.wants_stop ? FL_MSG_STOP : 0);
    return end_piece(a);
}

static fleet_status pack_lane(packing *a)
{
    int n = list_blocks(a), most = fl_worker_blocks(a->w, a->w->wire.push);

    if (a->part & FL_STEP_BEGINS)
        fl_client_cancel(a->w->client, request_of(a));
    for (int i = 0; i < n; i += most)
        FL_TRY(pack_blocks(a, i, n - i < most ? n - i : most));
    for (int i = 0; i < a->w->layout.n_table; i++)
        FL_TRY(pack_table(a, i));
    if (a->part & FL_STEP_ENDS)
        return close_step(a);
    return a->open ? end_piece(a) : FLEET_OK;
}

/* Room for all values of a push that travels in fewer bytes. */
static fleet_status make_values(packing *a)
{
    fl_worker *w = a->w;
    int64_t n = 0;

    if (w->wire.push == FL_CODEC_F32)
        return FLEET_OK;
    for (int i = 0; i < w->layout.n_param; i++)
        n += w->grad_of[i] ? w->layout.param[i]->n : 0;
    for (int l = 0; l < w->n_lane; l++)
        for (int t = 0; t < w->layout.n_table; t++)
            n += (w->push_keys[l].first[t + 1] - w->push_keys[l].first[t]) *
                 w->layout.table[t]->dim;
    FL_TRY(
        fl_grow(&w->values, &w->values_capacity, (size_t)n, sizeof *w->values));
    a->values = w->values;
    if (w->residuals)
        fl_residuals_begin(w->residuals);
    return FLEET_OK;
}

fleet_status fl_worker_pack(fl_worker *w, const fl_push *p, int part)
{
    packing a = {.w = w, .push = p, .part = part};
    fleet_status status = share_out_all(w, p);

    for (int i = 0; i < w->layout.n_param; i++) {
        w->grad_of[i] = NULL;
        for (int j = 0; j < p->n_param; j++)
            if (p->param[j].param == w->layout.param[i])
                w->grad_of[i] = p->param[j].grad;
    }
    if (status == FLEET_OK)
        status = make_values(&a);
    for (; status == FLEET_OK && a.lane < w->n_lane; a.lane++)
        status = pack_lane(&a);
    if (status != FLEET_OK && a.open)
        fl_packet_drop(a.writer.packet);
    return status;
}
