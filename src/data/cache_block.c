/* cache_block.c - columns packed, checked and unpacked. */
#include "data/cache_block.h"

#include <string.h>

#include "base/memory.h"

static uint64_t padded_size(uint64_t size)
{
    return (size + 7) / 8 * 8;
}

static const void *at_of(const fl_cache_block *b, uint64_t place)
{
    return (const char *)b + place;
}

static const uint32_t *offsets_of(const fl_cache_block *b, int field)
{
    return at_of(b, b->field[field].offsets);
}

/* --- made ----------------------------------------------------------------- */

/* Bytes that hold each of these ids. */
static uint64_t width_of(const uint64_t *id, size_t n)
{
    uint64_t all = 0;

    for (size_t i = 0; i < n; i++)
        all |= id[i];
    return all < (uint64_t)1 << 8    ? 1
           : all < (uint64_t)1 << 16 ? 2
           : all < (uint64_t)1 << 32 ? 4
                                     : 8;
}

#define NARROW(TYPE)                                                           \
    for (size_t i = 0; i < n; i++)                                             \
    ((TYPE *)to)[i] = (TYPE)id[i]

static void put_ids(void *to, uint64_t width, const uint64_t *id, size_t n)
{
    if (width == 1)
        NARROW(uint8_t);
    else if (width == 2)
        NARROW(uint16_t);
    else if (width == 4)
        NARROW(uint32_t);
    else if (n > 0)
        memcpy(to, id, n * sizeof *id);
}

typedef struct packing {
    const fl_layout *l;
    fl_batch_buffer *buffer;
    uint64_t size; /* of what is placed or written */
} packing;

static size_t count_of(const packing *p, int field)
{
    const fl_field *f = &p->l->field[field];
    const fl_batch *b = &p->buffer->batch;

    return (size_t)(f->dim < 0 ? b->slot[field].offsets[b->rows]
                               : b->rows * f->dim);
}

static uint64_t place_bytes(packing *p, uint64_t size)
{
    const uint64_t at = p->size;

    p->size += padded_size(size);
    return at;
}

static fl_cache_field place_field(packing *p, int i)
{
    const fl_field *f = &p->l->field[i];
    const size_t n = count_of(p, i);
    const uint64_t rows = (uint64_t)p->buffer->batch.rows;
    fl_cache_field at = {
        .width = f->is_id ? width_of(p->buffer->batch.slot[i].values, n)
                          : sizeof(float)};

    at.values = place_bytes(p, n * at.width);
    at.offsets = f->dim < 0 ? place_bytes(p, (rows + 1) * sizeof(uint32_t)) : 0;
    at.weights = f->weighted ? place_bytes(p, n * sizeof(float)) : 0;
    return at;
}

static void put_field(const packing *p, int i, fl_cache_block *b)
{
    const fl_slot_data *s = &p->buffer->batch.slot[i];
    const fl_cache_field *at = &b->field[i];
    const size_t n = count_of(p, i);
    char *base = (char *)b;
    uint32_t *offset = (uint32_t *)(void *)(base + at->offsets);

    if (p->l->field[i].is_id)
        put_ids(base + at->values, at->width, s->values, n);
    else if (n > 0)
        memcpy(base + at->values, s->values, n * sizeof(float));
    for (uint64_t r = 0; at->offsets && r <= b->rows; r++)
        offset[r] = (uint32_t)s->offsets[r];
    if (at->weights && n > 0)
        memcpy(base + at->weights, s->weights, n * sizeof(float));
}

/* Also without lines. */
static bool follow_one_another(const fl_lines *lines)
{
    for (size_t i = 1; i < lines->n; i++)
        if (lines->line[i].number != lines->line[0].number + (int64_t)i)
            return false;
    return true;
}

fleet_status fl_cache_block_make(const fl_layout *l, fl_batch_buffer *buffer)
{
    const size_t rows = (size_t)buffer->batch.rows;
    const size_t head =
        sizeof(fl_cache_block) + (size_t)l->n_field * sizeof(fl_cache_field);
    packing p = {l, buffer, head};
    const bool follow = follow_one_another(&buffer->lines);
    const uint64_t numbers =
        follow ? 0 : place_bytes(&p, rows * sizeof(uint32_t));
    fl_cache_field *at;
    fl_cache_block *b;

    FL_TRY(FL_NEW(&at, (size_t)l->n_field * sizeof *at));
    for (int i = 0; i < l->n_field; i++) {
        if (l->field[i].dim < 0 && count_of(&p, i) > UINT32_MAX) {
            fl_free(at);
            return fl_fail(FLEET_EUNSUPPORTED, "too many values for a cache");
        }
        at[i] = place_field(&p, i);
    }
    buffer->packed_size = p.size;
    fleet_status status =
        fl_grow(&buffer->packed, &buffer->packed_capacity, p.size, 1);
    if (status == FLEET_OK) {
        memset(buffer->packed, 0, p.size);
        b = (fl_cache_block *)(void *)buffer->packed;
        b->rows = rows;
        b->number = buffer->lines.n > 0 ? buffer->lines.line[0].number : 0;
        b->numbers = numbers;
        memcpy(b->field, at, (size_t)l->n_field * sizeof *at);
        for (size_t r = 0; numbers && r < rows; r++)
            ((uint32_t *)(void *)(buffer->packed + numbers))[r] =
                (uint32_t)(buffer->lines.line[r].number - b->number);
        for (int i = 0; i < l->n_field; i++)
            put_field(&p, i, b);
    }
    fl_free(at);
    return status;
}

/* --- checked -------------------------------------------------------------- */

static bool lies_within(uint64_t at, uint64_t n, uint64_t width, size_t size)
{
    return at % 8 == 0 && at <= size && (n == 0 || (size - at) / n >= width);
}

static bool offsets_rise(const fl_cache_block *b, int i)
{
    const uint32_t *offset = offsets_of(b, i);

    if (offset[0] != 0)
        return false;
    for (uint64_t r = 0; r < b->rows; r++)
        if (offset[r + 1] < offset[r])
            return false;
    return true;
}

static bool field_holds(const fl_cache_block *b, int i, size_t size,
                        const fl_field *f)
{
    const fl_cache_field *at = &b->field[i];
    const bool ragged = f->dim < 0;
    uint64_t n = 0;

    if (f->is_id ? at->width != 1 && at->width != 2 && at->width != 4 &&
                       at->width != 8
                 : at->width != sizeof(float))
        return false;
    if (ragged != (at->offsets != 0) || f->weighted != (at->weights != 0))
        return false;
    if (ragged &&
        (!lies_within(at->offsets, b->rows + 1, sizeof(uint32_t), size) ||
         !offsets_rise(b, i)))
        return false;
    if (ragged)
        n = offsets_of(b, i)[b->rows];
    else if (__builtin_mul_overflow(b->rows, (uint64_t)f->dim, &n))
        return false;
    return lies_within(at->values, n, at->width, size) &&
           (!at->weights || lies_within(at->weights, n, sizeof(float), size));
}

bool fl_cache_block_holds(const fl_cache_block *b, size_t size,
                          const fl_layout *l)
{
    const size_t head = sizeof *b + (size_t)l->n_field * sizeof(fl_cache_field);

    if (size < head || b->rows > UINT32_MAX ||
        (b->numbers &&
         !lies_within(b->numbers, b->rows, sizeof(uint32_t), size)))
        return false;
    for (int i = 0; i < l->n_field; i++)
        if (!field_holds(b, i, size, &l->field[i]))
            return false;
    return true;
}

int64_t fl_cache_block_number(const fl_cache_block *b, uint64_t row)
{
    const uint32_t *number = at_of(b, b->numbers);

    return b->number + (b->numbers ? (int64_t)number[row] : (int64_t)row);
}

/* --- back into values ----------------------------------------------------- */

typedef uint32_t four_words __attribute__((vector_size(16), aligned(4)));
typedef uint64_t four_ids __attribute__((vector_size(32), aligned(8)));

/* Most ids take four bytes. */
static void widen_words(uint64_t *to, const uint32_t *from, size_t n)
{
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        four_words w = *(const four_words *)(const void *)(from + i);

        *(four_ids *)(void *)(to + i) = __builtin_convertvector(w, four_ids);
    }
    for (; i < n; i++)
        to[i] = from[i];
}

/* n values of the slot from its first-th on. */
static void copy_values(const fl_cache_block *b, const fl_field *f, int i,
                        uint64_t first, size_t n, void *to)
{
    const fl_cache_field *at = &b->field[i];
    const void *from = at_of(b, at->values + first * at->width);

    if (n == 0)
        return;
    if (!f->is_id || at->width == 8)
        memcpy(to, from, n * at->width);
    else if (at->width == 4)
        widen_words(to, from, n);
    else if (at->width == 2)
        for (size_t k = 0; k < n; k++)
            ((uint64_t *)to)[k] = ((const uint16_t *)from)[k];
    else
        for (size_t k = 0; k < n; k++)
            ((uint64_t *)to)[k] = ((const uint8_t *)from)[k];
}

/* Room for n values more of a ragged slot; where they go. */
static fleet_status add_room(const fl_layout *l, fl_batch_buffer *buffer, int i,
                             size_t *used, size_t n, size_t *first)
{
    *first = used[i];
    used[i] += n;
    return used[i] <= buffer->capacity[i]
               ? FLEET_OK
               : fl_batch_buffer_room(buffer, l, i, used[i]);
}

static fleet_status copy_ragged(const fl_cache_block *b, uint64_t from,
                                uint64_t to, const fl_layout *l, int i,
                                fl_batch_buffer *buffer, size_t *used,
                                size_t row)
{
    fl_slot_data *out = &buffer->batch.slot[i];
    const uint32_t *offset = offsets_of(b, i);
    const size_t n = offset[to] - offset[from];
    size_t first;

    FL_TRY(add_room(l, buffer, i, used, n, &first));
    for (uint64_t r = from; r < to; r++)
        out->offsets[row + (r - from) + 1] =
            (int64_t)(first + (offset[r + 1] - offset[from]));
    copy_values(b, &l->field[i], i, offset[from], n,
                (char *)out->values + first * fl_field_size(&l->field[i]));
    if (l->field[i].weighted && n > 0)
        memcpy(out->weights + first,
               (const float *)at_of(b, b->field[i].weights) + offset[from],
               n * sizeof(float));
    return FLEET_OK;
}

fleet_status fl_cache_field_copy(const fl_cache_block *b, int i, uint64_t from,
                                 uint64_t to, const fl_layout *l,
                                 fl_batch_buffer *buffer, size_t *used,
                                 size_t row)
{
    const fl_field *f = &l->field[i];
    const uint64_t dim = (uint64_t)f->dim;

    if (f->dim < 0)
        return copy_ragged(b, from, to, l, i, buffer, used, row);
    copy_values(b, f, i, from * dim, (size_t)((to - from) * dim),
                (char *)buffer->batch.slot[i].values +
                    row * dim * fl_field_size(f));
    return FLEET_OK;
}

fleet_status fl_cache_block_copy(const fl_cache_block *b, uint64_t from,
                                 uint64_t to, const fl_layout *l,
                                 fl_batch_buffer *buffer, size_t *used,
                                 size_t row)
{
    for (int i = 0; i < l->n_field; i++)
        FL_TRY(fl_cache_field_copy(b, i, from, to, l, buffer, used, row));
    return FLEET_OK;
}

/* --- a row by itself: its values side by side, wide ----------------------- */

static uint64_t values_in_row(const fl_cache_block *b, uint64_t row,
                              const fl_field *f, int i, uint64_t *first)
{
    const uint32_t *offset;

    if (f->dim >= 0) {
        *first = row * (uint64_t)f->dim;
        return (uint64_t)f->dim;
    }
    offset = offsets_of(b, i) + row;
    *first = offset[0];
    return offset[1] - offset[0];
}

fleet_status fl_cache_row_size(const fl_cache_block *b, uint64_t row,
                               const fl_layout *l, uint32_t *out)
{
    uint64_t size = 0, first;

    for (int i = 0; i < l->n_field; i++) {
        const fl_field *f = &l->field[i];
        const uint64_t n = values_in_row(b, row, f, i, &first);

        size += f->dim < 0 ? sizeof n : 0;
        size += n * (fl_field_size(f) + (f->weighted ? sizeof(float) : 0));
    }
    *out = (uint32_t)size;
    return size <= UINT32_MAX
               ? FLEET_OK
               : fl_fail(FLEET_EUNSUPPORTED,
                         "line %lld: a sample of %llu bytes: a shuffle moves "
                         "samples of less than 4 GiB",
                         (long long)fl_cache_block_number(b, row),
                         (unsigned long long)size);
}

void fl_cache_row_make(const fl_cache_block *b, uint64_t row,
                       const fl_layout *l, char *to)
{
    for (int i = 0; i < l->n_field; i++) {
        const fl_field *f = &l->field[i];
        uint64_t first, n = values_in_row(b, row, f, i, &first), id;

        if (f->dim < 0) {
            memcpy(to, &n, sizeof n);
            to += sizeof n;
        }
        for (uint64_t k = 0; f->is_id && k < n; k++, to += sizeof id) {
            copy_values(b, f, i, first + k, 1, &id);
            memcpy(to, &id, sizeof id);
        }
        if (!f->is_id)
            copy_values(b, f, i, first, n, to);
        to += f->is_id ? 0 : n * sizeof(float);
        if (!f->weighted)
            continue;
        memcpy(to, (const float *)at_of(b, b->field[i].weights) + first,
               n * sizeof(float));
        to += n * sizeof(float);
    }
}

bool fl_cache_row_holds(const char *from, size_t size, const fl_layout *l)
{
    uint64_t n;

    for (int i = 0; i < l->n_field; i++) {
        const fl_field *f = &l->field[i];
        const size_t each =
            fl_field_size(f) + (f->weighted ? sizeof(float) : 0);

        n = (uint64_t)f->dim;
        if (f->dim < 0) {
            if (size < sizeof n)
                return false;
            memcpy(&n, from, sizeof n);
            from += sizeof n;
            size -= sizeof n;
        }
        if (n > size / each)
            return false;
        from += n * each;
        size -= n * each;
    }
    return size == 0;
}

fleet_status fl_cache_row_copy(const char *from, const fl_layout *l,
                               fl_batch_buffer *buffer, size_t *used,
                               size_t row)
{
    for (int i = 0; i < l->n_field; i++) {
        const fl_field *f = &l->field[i];
        const size_t size = fl_field_size(f);
        fl_slot_data *out = &buffer->batch.slot[i];
        uint64_t n = (uint64_t)f->dim;
        size_t first = row * n;

        if (f->dim < 0) {
            memcpy(&n, from, sizeof n);
            from += sizeof n;
            FL_TRY(add_room(l, buffer, i, used, n, &first));
            out->offsets[row + 1] = (int64_t)used[i];
        }
        if (n > 0)
            memcpy((char *)out->values + first * size, from, n * size);
        from += n * size;
        if (!f->weighted)
            continue;
        if (n > 0)
            memcpy(out->weights + first, from, n * sizeof(float));
        from += n * sizeof(float);
    }
    return FLEET_OK;
}
