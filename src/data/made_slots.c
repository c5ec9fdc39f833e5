/* made_slots.c - a batch's made slots, row by row, each from slots in front of
 * it.
 *
 * A cross has an id for each combination of its slots' ids, the last slot's
 * changing first: XXH64 of these ids, eight bytes each. */
#include "data/made_slots.h"

#include "base/hash.h"

enum { MOST_COMBINATIONS = 1 << 20 };

typedef struct making {
    const fl_parser *p;
    fl_batch_buffer *buffer;
    int slot;
    const fl_field *f; /* of the slot */
} making;

static const fl_slot_data *source_of(const making *m, int i, int64_t row,
                                     int64_t *begin, int64_t *n)
{
    const int slot = m->f->from[i];
    const fl_slot_data *s = &m->buffer->batch.slot[slot];
    const int64_t dim = m->p->layout.field[slot].dim;

    *begin = dim < 0 ? s->offsets[row] : row * dim;
    *n = dim < 0 ? s->offsets[row + 1] - *begin : dim;
    return s;
}

/* How many ids the row of the slot gets. */
static int64_t count_ids(const making *m, int64_t row)
{
    int64_t all = 1, begin, n;

    for (int i = 0; i < m->f->n_from; i++) {
        source_of(m, i, row, &begin, &n);
        if (__builtin_mul_overflow(all, n, &all))
            return MOST_COMBINATIONS + 1;
    }
    return all;
}

static void cross_row(const making *m, int64_t row, uint64_t *to, int64_t n)
{
    uint64_t key[FL_MOST_CROSSED];
    int64_t begin[FL_MOST_CROSSED], size[FL_MOST_CROSSED];
    const uint64_t *id[FL_MOST_CROSSED];
    const int n_from = m->f->n_from;

    for (int i = 0; i < n_from; i++)
        id[i] =
            (const uint64_t *)source_of(m, i, row, &begin[i], &size[i])->values;
    for (int64_t k = 0; k < n; k++) {
        int64_t rest = k;

        for (int i = n_from - 1; i >= 0; i--) {
            key[i] = id[i][begin[i] + rest % size[i]];
            rest /= size[i];
        }
        to[k] = fl_hash(key, (size_t)n_from * sizeof *key, m->f->seed);
    }
}

/* How many of the boundaries are not above the number. */
static uint64_t bucket_of(const fl_field *f, float x)
{
    int low = 0, high = f->n_bucket;

    while (low < high) {
        const int middle = (low + high) / 2;

        if (x >= f->buckets[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return (uint64_t)low;
}

static void bucket_row(const making *m, int64_t row, uint64_t *to, int64_t n)
{
    int64_t begin, same;
    const float *x = source_of(m, 0, row, &begin, &same)->values;

    for (int64_t k = 0; k < n; k++)
        to[k] = bucket_of(m->f, x[begin + k]);
}

static fleet_status refuse_row(const making *m, int64_t row)
{
    static const char more[] = "more";
    const fl_lines *l = &m->buffer->lines;

    return fl_bad_line(m->p, &l->line[row], m->f->name,
                       "at most 2^20 combinations of a sample's ids", more,
                       &more[sizeof more - 1]);
}

static fleet_status make_row(const making *m, int64_t row, size_t *used)
{
    const int64_t n = count_ids(m, row);
    fl_slot_data *out = &m->buffer->batch.slot[m->slot];
    uint64_t *to;

    if (n > MOST_COMBINATIONS)
        return refuse_row(m, row);
    if (m->f->dim < 0) {
        FL_TRY(fl_batch_buffer_room(m->buffer, &m->p->layout, m->slot,
                                    *used + (size_t)n));
        out->offsets[row + 1] = (int64_t)*used + n;
    }
    to = (uint64_t *)out->values + *used;
    *used += (size_t)n;
    if (m->f->n_bucket > 0)
        bucket_row(m, row, to, n);
    else
        cross_row(m, row, to, n);
    return FLEET_OK;
}

fleet_status fl_made_slots_fill(const fl_parser *p, fl_batch_buffer *buffer)
{
    const fl_layout *l = &p->layout;

    for (int i = 0; i < l->n_made; i++) {
        const int slot = l->n_field + i;
        const making m = {p, buffer, slot, &l->field[slot]};
        size_t used = 0;

        FL_TRY(fl_batch_buffer_begin_slot(buffer, l, slot));
        for (int64_t row = 0; row < buffer->batch.rows; row++)
            FL_TRY(make_row(&m, row, &used));
    }
    return FLEET_OK;
}
