/* batch_buffer.c - batches' memory: made, grown, freed. */
#include "data/layout/batch_buffer.h"

#include "base/memory.h"

/* Kernels write whole vectors: past the last row there is room for one. */
enum { SLACK = FL_CACHE_LINE / sizeof(float) };

fleet_status fl_batch_buffer_create(fl_batch_buffer **buffer,
                                    const fl_layout *l)
{
    const size_t n = (size_t)(l->n_field + l->n_made);
    fl_batch_buffer *b;

    FL_TRY(FL_NEW(&b, sizeof *b));
    b->batch.slot = fl_alloc_array(n, sizeof *b->batch.slot);
    b->capacity = fl_alloc_array(n, sizeof *b->capacity);
    b->weight_capacity = fl_alloc_array(n, sizeof *b->weight_capacity);
    b->offset_capacity = fl_alloc_array(n, sizeof *b->offset_capacity);
    if (!b->batch.slot || !b->capacity || !b->weight_capacity ||
        !b->offset_capacity) {
        fl_batch_buffer_destroy(b, l, NULL);
        return FLEET_ENOMEM;
    }
    *buffer = b;
    return FLEET_OK;
}

void fl_batch_buffer_destroy(fl_batch_buffer *buffer, const fl_layout *l,
                             fl_blocks *blocks)
{
    if (!buffer)
        return;
    for (int i = 0; buffer->batch.slot && i < l->n_field + l->n_made; i++) {
        fl_free(buffer->batch.slot[i].values);
        fl_free(buffer->batch.slot[i].offsets);
        fl_free(buffer->batch.slot[i].weights);
    }
    if (blocks)
        fl_lines_done(&buffer->lines, blocks);
    fl_free(buffer->bad);
    fl_free(buffer->packed);
    fl_free(buffer->batch.slot);
    fl_free(buffer->capacity);
    fl_free(buffer->weight_capacity);
    fl_free(buffer->offset_capacity);
    fl_free(buffer);
}

fleet_status fl_batch_buffer_begin_slot(fl_batch_buffer *buffer,
                                        const fl_layout *l, int i)
{
    const int64_t rows = buffer->batch.rows;
    fl_slot_data *s = &buffer->batch.slot[i];
    const fl_field *f = &l->field[i];
    size_t padded = ((size_t)rows + FL_ROW_PAD - 1) / FL_ROW_PAD * FL_ROW_PAD;
    size_t n;

    if (f->dim < 0) {
        FL_TRY(fl_grow(&s->offsets, &buffer->offset_capacity[i],
                       (size_t)rows + 1, sizeof *s->offsets));
        s->offsets[0] = 0;
        return fl_batch_buffer_room(buffer, l, i, padded);
    }
    if (__builtin_mul_overflow(padded, (size_t)f->dim, &n))
        return fl_fail(FLEET_ENOMEM,
                       "slot \"%s\": no memory for %lld rows of %lld values",
                       f->name, (long long)rows, (long long)f->dim);
    return fl_grow(&s->values, &buffer->capacity[i], n + SLACK,
                   fl_field_size(f));
}

fleet_status fl_batch_buffer_begin(fl_batch_buffer *buffer, const fl_layout *l,
                                   int64_t rows)
{
    buffer->batch.rows = rows;
    for (int i = 0; i < l->n_field; i++)
        FL_TRY(fl_batch_buffer_begin_slot(buffer, l, i));
    return FLEET_OK;
}

fleet_status fl_batch_buffer_room(fl_batch_buffer *buffer, const fl_layout *l,
                                  int slot, size_t n)
{
    fl_slot_data *s = &buffer->batch.slot[slot];

    if (l->field[slot].weighted)
        FL_TRY(fl_grow(&s->weights, &buffer->weight_capacity[slot], n,
                       sizeof *s->weights));
    return fl_grow(&s->values, &buffer->capacity[slot], n,
                   fl_field_size(&l->field[slot]));
}
