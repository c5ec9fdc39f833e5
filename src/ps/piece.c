/* piece.c - pieces of a worker's step, kept until it is applied: their columns
 * aligned, and values that came in fewer bytes read into floats. */
#include "ps/piece.h"

#include <string.h>

#include "ps/codec.h"

/* What was not aligned, copied; a list, so that it can be given back. */
typedef struct copied {
    struct copied *next;
    size_t size; /* of all of it */
    _Alignas(16) char bytes[];
} copied;

/* Memory of the piece; NULL, with a text. */
static void *take_memory(fl_piece *piece, size_t bytes)
{
    copied *copy = fl_packet_pool_take(piece->pool, sizeof *copy + bytes);

    if (!copy)
        return NULL;
    copy->size = sizeof *copy + bytes;
    copy->next = piece->copied;
    piece->copied = copy;
    return copy->bytes;
}

static fleet_status align_column(fl_piece *piece, fl_frame *column, size_t to)
{
    void *copy;

    if ((uintptr_t)column->data % to == 0)
        return FLEET_OK;
    copy = take_memory(piece, column->size);
    if (!copy)
        return fl_last_code();
    column->data = memcpy(copy, column->data, column->size);
    return FLEET_OK;
}

static fleet_status align_all(fl_piece *piece)
{
    for (int i = 0; i < piece->msg.head.n_section; i++) {
        FL_TRY(align_column(piece, &piece->msg.column[i][FL_AT_KEYS],
                            sizeof(uint64_t)));
        if (piece->msg.section[i].codec == FL_CODEC_F32)
            FL_TRY(align_column(piece, &piece->msg.column[i][FL_AT_VALUES],
                                sizeof(float)));
    }
    return FLEET_OK;
}

fleet_status fl_piece_create(fl_piece **piece, fl_packet_pool *pool,
                             fl_packet *p, const fl_msg *msg)
{
    fl_piece *one = fl_packet_pool_take(pool, sizeof *one);
    size_t n = msg->head.n_section;
    fleet_status status;

    *piece = one;
    if (!one)
        return fl_last_code();
    one->pool = pool;
    one->packet = fl_packet_keep(p);
    one->copied = NULL;
    one->next = NULL;
    one->msg.head = msg->head;
    memcpy(one->msg.section, msg->section, n * sizeof *msg->section);
    memcpy(one->msg.column, msg->column, n * sizeof *msg->column);
    status = align_all(one);
    if (status != FLEET_OK) {
        fl_piece_destroy(one);
        *piece = NULL;
    }
    return status;
}

void fl_piece_destroy(fl_piece *piece)
{
    while (piece) {
        fl_piece *next = piece->next;

        for (copied *c = piece->copied; c;) {
            copied *after = c->next;

            fl_packet_pool_give(piece->pool, c, c->size);
            c = after;
        }
        fl_packet_drop(piece->packet);
        fl_packet_pool_give(piece->pool, piece, sizeof *piece);
        piece = next;
    }
}

/* --- values in fewer bytes ------------------------------------------------ */

static int64_t block_floats(const fl_partition *layout, const fl_msg *msg,
                            int i, uint32_t number)
{
    uint64_t key = fl_key_at(&msg->column[i][FL_AT_KEYS], number);

    return fl_block_size(layout->param[key >> 32], (int64_t)(key & UINT32_MAX));
}

static size_t section_floats(const fl_msg *msg, int i,
                             const fl_partition *layout)
{
    const fl_section *s = &msg->section[i];
    int64_t n = 0;

    if (s->op == FL_SECTION_ROWS)
        return s->n_key * (size_t)layout->table[s->table]->dim;
    for (uint32_t j = 0; j < s->n_key; j++)
        n += block_floats(layout, msg, i, j);
    return (size_t)n;
}

size_t fl_piece_wide_bytes(const fl_msg *msg, const fl_partition *layout)
{
    size_t n = 0;

    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].codec != FL_CODEC_F32)
            n += section_floats(msg, i, layout);
    return n * sizeof(float);
}

static fleet_status widen_section(fl_piece *piece, int i,
                                  const fl_partition *layout)
{
    fl_msg *msg = &piece->msg;
    fl_section *s = &msg->section[i];
    fl_codec codec = (fl_codec)s->codec;
    size_t bytes = section_floats(msg, i, layout) * sizeof(float);
    const char *from = msg->column[i][FL_AT_VALUES].data;
    float *to = take_memory(piece, bytes), *at = to;

    if (!to)
        return fl_last_code();
    if (s->op == FL_SECTION_ROWS)
        fl_codec_read(codec, to, from, s->n_key, layout->table[s->table]->dim);
    for (uint32_t j = 0; s->op == FL_SECTION_DENSE && j < s->n_key; j++) {
        int64_t n = block_floats(layout, msg, i, j);

        fl_codec_read(codec, at, from, 1, n);
        from += fl_codec_bytes(codec, n);
        at += n;
    }
    msg->column[i][FL_AT_VALUES] = (fl_frame){to, bytes};
    s->codec = FL_CODEC_F32;
    return FLEET_OK;
}

fleet_status fl_piece_widen(fl_piece *piece, const fl_partition *layout)
{
    for (int i = 0; i < piece->msg.head.n_section; i++)
        if (piece->msg.section[i].codec != FL_CODEC_F32)
            FL_TRY(widen_section(piece, i, layout));
    return FLEET_OK;
}
