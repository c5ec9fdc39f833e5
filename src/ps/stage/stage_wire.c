/* stage_wire.c - values of stages into sections, and out of them. Frames may
 * lie anywhere, so what is read is copied. */
#include "ps/stage/stage_wire.h"

#include "base/memory.h"

/* --- writing -------------------------------------------------------------- */

static int64_t elements_of(const fl_stage_value *v)
{
    return v->offsets ? v->offsets[v->rows] - v->offsets[0] : v->rows * v->cols;
}

static void copy_rows(char *to, const fl_stage_value *v, size_t size)
{
    const char *from = v->data;

    if (v->offsets || v->ld == v->cols) {
        const int64_t first = v->offsets ? v->offsets[0] : 0;

        memcpy(to, from + (size_t)first * size, (size_t)elements_of(v) * size);
        return;
    }
    for (int64_t r = 0; r < v->rows; r++)
        memcpy(to + (size_t)(r * v->cols) * size,
               from + (size_t)(r * v->ld) * size, (size_t)v->cols * size);
}

static bool write_offsets(fl_msg_writer *w, fl_section *s,
                          const fl_stage_value *v)
{
    size_t n = (size_t)v->rows + 1;
    uint64_t *to = fl_msg_column(w, FL_COLUMN_KEYS, n * sizeof *to);

    s->n_key = (uint32_t)n;
    for (size_t i = 0; to && i < n; i++)
        to[i] = (uint64_t)(v->offsets[i] - v->offsets[0]);
    return to != NULL;
}

fleet_status fl_stage_write(fl_msg_writer *w, int number,
                            const fl_stage_value *v)
{
    const size_t size = fleet_dtype_size(v->var->dtype);
    const size_t bytes = (size_t)elements_of(v) * size;
    fl_section *s;
    char *to;

    if (bytes > FL_MOST_FRAME_BYTES)
        return fl_fail(FLEET_EINVAL,
                       "\"%.200s\" of %lld rows has %zu bytes: expected %d at "
                       "most, to cross to another stage: make batches smaller",
                       v->var->name, (long long)v->rows, bytes,
                       (int)FL_MOST_FRAME_BYTES);
    s = fl_msg_section(w, FL_SECTION_TENSOR, (uint32_t)number);
    if (!s)
        return fl_last_code();
    s->version = (uint64_t)v->rows;
    if (v->offsets && !write_offsets(w, s, v))
        return fl_last_code();
    to = fl_msg_column(w, FL_COLUMN_BYTES, bytes);
    if (!to)
        return fl_last_code();
    if (bytes > 0)
        copy_rows(to, v, size);
    return FLEET_OK;
}

void fl_stage_set_capacity(fl_msg_writer *w, int64_t capacity)
{
    if (w->n_section > 0)
        w->section[0].n_batch = (uint32_t)capacity;
}

/* --- reading -------------------------------------------------------------- */

fleet_status fl_stage_capacity(const fl_msg *msg, int64_t *capacity)
{
    const uint32_t n = msg->head.n_section > 0 ? msg->section[0].n_batch : 0;

    if (n == 0 || n > FL_MOST_FRAME_BYTES)
        return fl_fail(FLEET_EFORMAT,
                       "a batch has come of a plan for %u samples",
                       (unsigned)n);
    *capacity = (int64_t)n;
    return FLEET_OK;
}

void fl_stage_buffer_done(fl_stage_buffer *r)
{
    fl_free(r->data);
    fl_free(r->offsets);
    *r = (fl_stage_buffer){0};
}

static fleet_status find_section(const fl_msg *msg, int number,
                                 const fleet_var *var, const fl_section **s,
                                 const fl_frame **column)
{
    for (int i = 0; i < msg->head.n_section; i++)
        if (msg->section[i].op == FL_SECTION_TENSOR &&
            msg->section[i].table == (uint32_t)number &&
            msg->section[i].columns & FL_COLUMN_BYTES) {
            *s = &msg->section[i];
            *column = msg->column[i];
            return FLEET_OK;
        }
    return fl_fail(FLEET_EFORMAT, "the message lacks value %d, \"%.200s\"",
                   number, var->name);
}

static fleet_status wrong_size(const fleet_var *var, size_t got, int64_t want)
{
    return fl_fail(FLEET_EFORMAT,
                   "\"%.200s\" has come with %zu bytes: expected %lld",
                   var->name, got, (long long)want);
}

static fleet_status read_offsets(const fl_section *s, const fl_frame *keys,
                                 const fleet_var *var, fl_stage_buffer *room)
{
    if (!(s->columns & FL_COLUMN_KEYS) || s->n_key != s->version + 1)
        return fl_fail(
            FLEET_EFORMAT, "\"%.200s\" has come with %u offsets for %llu rows",
            var->name, (unsigned)s->n_key, (unsigned long long)s->version);
    FL_TRY(fl_grow(&room->offsets, &room->offsets_capacity, s->n_key,
                   sizeof *room->offsets));
    memcpy(room->offsets, keys->data, keys->size);
    for (uint32_t i = 0; i < s->n_key; i++)
        if (room->offsets[i] < (i > 0 ? room->offsets[i - 1] : 0) ||
            room->offsets[i] > FL_MOST_FRAME_BYTES ||
            (i == 0 && room->offsets[0] != 0))
            return fl_fail(FLEET_EFORMAT,
                           "\"%.200s\" has come with an offset %lld", var->name,
                           (long long)room->offsets[i]);
    return FLEET_OK;
}

/* Samples of a batched variable, or all of one that is not. */
static bool count_rows(const fleet_var *var, size_t bytes, fl_stage_value *v)
{
    const size_t size = fleet_dtype_size(var->dtype);
    const int64_t n = (int64_t)(bytes / size);

    v->cols = v->ld = fl_shape_count(&var->shape, 1);
    v->rows = v->cols > 0 ? n / v->cols : 0;
    return v->rows > 0 && v->rows * v->cols * (int64_t)size == (int64_t)bytes &&
           (fl_shape_batched(&var->shape) || v->rows == 1);
}

static fleet_status read_ragged(const fl_section *s, const fl_frame *column,
                                fl_stage_buffer *room, fl_stage_value *v)
{
    const int64_t size = (int64_t)fleet_dtype_size(v->var->dtype);

    if (s->version == 0 || s->version > FL_MOST_FRAME_BYTES)
        return fl_fail(FLEET_EFORMAT, "\"%.200s\" has come with %llu rows",
                       v->var->name, (unsigned long long)s->version);
    FL_TRY(read_offsets(s, &column[FL_AT_KEYS], v->var, room));
    v->rows = (int64_t)s->version;
    v->cols = v->ld = 1;
    v->offsets = room->offsets;
    return (int64_t)column[FL_AT_BYTES].size == elements_of(v) * size
               ? FLEET_OK
               : wrong_size(v->var, column[FL_AT_BYTES].size,
                            elements_of(v) * size);
}

fleet_status fl_stage_read(const fl_msg *msg, int number, const fleet_var *var,
                           fl_stage_buffer *room, fl_stage_value *v)
{
    const fl_section *s;
    const fl_frame *column, *bytes;

    FL_TRY(find_section(msg, number, var, &s, &column));
    bytes = &column[FL_AT_BYTES];
    *v = (fl_stage_value){.var = var};
    if (var->ragged)
        FL_TRY(read_ragged(s, column, room, v));
    else if (!count_rows(var, bytes->size, v))
        return fl_fail(FLEET_EFORMAT,
                       "\"%.200s\" has come with %zu bytes, which are no rows "
                       "of %lld numbers",
                       var->name, bytes->size, (long long)v->cols);
    FL_TRY(fl_grow(&room->data, &room->data_capacity, bytes->size + 1, 1));
    if (bytes->size > 0)
        memcpy(room->data, bytes->data, bytes->size);
    v->data = room->data;
    return FLEET_OK;
}

fleet_status fl_stage_read_into(const fl_msg *msg, int number,
                                const fl_stage_value *v)
{
    const size_t row = (size_t)v->cols * fleet_dtype_size(v->var->dtype);
    const size_t step = (size_t)v->ld * fleet_dtype_size(v->var->dtype);
    const fl_section *s;
    const fl_frame *column;
    const char *from;

    FL_TRY(find_section(msg, number, v->var, &s, &column));
    if (column[FL_AT_BYTES].size != (size_t)v->rows * row)
        return wrong_size(v->var, column[FL_AT_BYTES].size,
                          v->rows * (int64_t)row);
    from = column[FL_AT_BYTES].data;
    for (int64_t r = 0; r < v->rows; r++)
        memcpy((char *)v->data + (size_t)r * step, from + (size_t)r * row, row);
    return FLEET_OK;
}
