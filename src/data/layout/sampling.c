/* sampling.c - rows drawn, and a batch of these alone. */
#include "data/layout/sampling.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"

bool fl_sampling_drops(const fl_stream_spec *spec)
{
    return spec->negative_rate > 0 || spec->draw_most > 0;
}

void fl_sampling_none(fl_stream_spec *spec)
{
    spec->negative_rate = spec->draw_most = 0;
}

static bool is_negative(const fl_layout *l, int slot, const fl_batch_buffer *b,
                        int64_t row)
{
    const void *values = b->batch.slot[slot].values;

    return l->field[slot].is_id ? ((const int64_t *)values)[row] == 0
                                : ((const float *)values)[row] == 0;
}

/* In [0, 1). */
static double draw_of(const fl_stream_spec *s, const fl_line *line)
{
    const char *path = s->files[line->file], *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path; /* folders may be elsewhere */
    const uint64_t file = fl_hash(name, strlen(name), s->draw_seed);
    const uint64_t x = fl_mix(file + fl_mix((uint64_t)line->number));

    return (double)(x >> 11) * 0x1p-53;
}

static fleet_status bad_weight(const fl_stream_spec *s, const fl_layout *l,
                               const fl_line *line, float weight)
{
    return fl_fail(FLEET_EFORMAT,
                   "%s:%lld: slot \"%s\": samples are drawn by it: expected 0 "
                   "or more, got %g",
                   s->files[line->file], (long long)line->number,
                   l->field[s->draw_slot].name, (double)weight);
}

static float weight_of(const fl_stream_spec *s, const fl_batch_buffer *b,
                       int64_t row)
{
    return ((const float *)b->batch.slot[s->draw_slot].values)[row];
}

fleet_status fl_sampling_check(const fl_stream_spec *spec, const fl_layout *l,
                               const fl_batch_buffer *buffer)
{
    if (spec->draw_most == 0)
        return FLEET_OK;
    for (int64_t row = 0; row < buffer->batch.rows; row++) {
        const float weight = weight_of(spec, buffer, row);

        if (!(weight >= 0))
            return bad_weight(spec, l, &buffer->lines.line[row], weight);
    }
    return FLEET_OK;
}

/* The chance of a row, which may be above 1. */
static double chance_of(const fl_stream_spec *s, const fl_layout *l,
                        const fl_batch_buffer *b, int64_t row)
{
    const double chance =
        s->negative_rate > 0 && is_negative(l, s->negative_slot, b, row)
            ? s->negative_rate
            : 1;

    return s->draw_most == 0
               ? chance
               : chance * ((double)weight_of(s, b, row) / s->draw_most);
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
        if (draw_of(spec, &buffer->lines.line[row]) <
            chance_of(spec, l, buffer, row))
            move_row(l, buffer, kept++, row);
    buffer->batch.rows = kept;
}
