/* sampling.c - rows drawn, and a batch of these alone. */
#include "data/layout/sampling.h"

#include <string.h>

#include "base/hash.h"

static bool is_negative(const fl_layout *l, int slot, const fl_batch_buffer *b,
                        int64_t row)
{
    const void *values = b->batch.slot[slot].values;

    return l->field[slot].is_id ? ((const int64_t *)values)[row] == 0
                                : ((const float *)values)[row] == 0;
}

static bool is_drawn(const fl_stream_spec *s, const fl_line *line)
{
    const char *path = s->files[line->file], *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path; /* folders may be elsewhere */
    const uint64_t file = fl_hash(name, strlen(name), s->negative_seed);
    const uint64_t x = fl_mix(file + fl_mix((uint64_t)line->number));

    return (double)(x >> 11) * 0x1p-53 < s->negative_rate;
}

/* n values of one of the slot's arrays go to an earlier place. */
static void move_values(void *array, size_t size, int64_t to, int64_t from,
                        int64_t n)
{
    if (array && n > 0)
        memmove((char *)array + (size_t)to * size,
                (const char *)array + (size_t)from * size, (size_t)n * size);
}

/* Row `from` becomes row `to`, which is not behind it. */
static void move_row(const fl_layout *l, fl_batch_buffer *b, int64_t to,
                     int64_t from)
{
    for (int i = 0; i < l->n_field + l->n_made; i++) {
        const fl_field *f = &l->field[i];
        fl_slot_data *s = &b->batch.slot[i];
        const int64_t at = f->dim < 0 ? s->offsets[to] : to * f->dim;
        const int64_t begin = f->dim < 0 ? s->offsets[from] : from * f->dim;
        const int64_t n = f->dim < 0 ? s->offsets[from + 1] - begin : f->dim;

        move_values(s->values, fl_field_size(f), at, begin, n);
        if (f->weighted)
            move_values(s->weights, sizeof *s->weights, at, begin, n);
        if (f->dim < 0)
            s->offsets[to + 1] = at + n;
    }
}

void fl_sampling_drop(const fl_stream_spec *spec, const fl_layout *l,
                      fl_batch_buffer *buffer)
{
    int64_t kept = 0;

    for (int64_t row = 0; row < buffer->batch.rows; row++)
        if (!is_negative(l, spec->negative_slot, buffer, row) ||
            is_drawn(spec, &buffer->lines.line[row]))
            move_row(l, buffer, kept++, row);
    buffer->batch.rows = kept;
}
