/* row_values.c - room for values, and rows that are whole. */
#include "data/parse/row_values.h"

#include <stdio.h>
#include <string.h>

fleet_status fl_row_values_begin(fl_row_values *v)
{
    const fl_layout *l = &v->parser->layout;

    FL_TRY(fl_batch_buffer_begin(v->buffer, l, (int64_t)v->buffer->lines.n));
    memset(v->scratch->used, 0, (size_t)l->n_field * sizeof *v->scratch->used);
    return FLEET_OK;
}

static fleet_status refuse_count(const fl_row_values *v, const fl_field *f,
                                 const char *or_none)
{
    char what[80];

    snprintf(what, sizeof what, "%lld values, as its dim%s", (long long)f->dim,
             or_none);
    return fl_bad_line(v->parser, v->line, f->name, what, v->line->text,
                       v->line->text + v->line->size);
}

fleet_status fl_row_values_add(fl_row_values *v, int slot, size_t *at)
{
    const fl_field *f = &v->parser->layout.field[slot];

    *at = v->scratch->used[slot]++;
    if (f->dim < 0)
        return *at < v->buffer->capacity[slot]
                   ? FLEET_OK
                   : fl_batch_buffer_room(v->buffer, &v->parser->layout, slot,
                                          *at + 1);
    return *at < (size_t)((v->row + 1) * f->dim) ? FLEET_OK
                                                 : refuse_count(v, f, "");
}

fleet_status fl_row_values_add_many(fl_row_values *v, int slot, size_t n,
                                    size_t *at)
{
    const fl_field *f = &v->parser->layout.field[slot];
    size_t *used = &v->scratch->used[slot];

    *at = *used;
    *used += n;
    if (f->dim < 0)
        return *used <= v->buffer->capacity[slot]
                   ? FLEET_OK
                   : fl_batch_buffer_room(v->buffer, &v->parser->layout, slot,
                                          *used);
    return *used <= (size_t)((v->row + 1) * f->dim) ? FLEET_OK
                                                    : refuse_count(v, f, "");
}

/* A dense slot of the row that has got nothing. */
static fleet_status fill_row(fl_row_values *v, int slot)
{
    const fl_field *f = &v->parser->layout.field[slot];
    const size_t size = fl_field_size(f), n = (size_t)f->dim;
    char *values = v->buffer->batch.slot[slot].values;

    if (v->scratch->used[slot] > (size_t)v->row * n)
        return refuse_count(v, f, f->required ? "" : ", or none");
    memset(values + (size_t)v->row * n * size, 0, n * size);
    v->scratch->used[slot] += n;
    return FLEET_OK;
}

fleet_status fl_row_values_end(fl_row_values *v)
{
    const fl_layout *l = &v->parser->layout;

    for (int i = 0; i < l->n_field; i++) {
        const fl_field *f = &l->field[i];
        const size_t used = v->scratch->used[i];
        int64_t *offsets = v->buffer->batch.slot[i].offsets;
        const size_t before =
            f->dim < 0 ? (size_t)offsets[v->row] : (size_t)(v->row * f->dim);

        if (f->required && used == before)
            return fl_bad_line(v->parser, v->line, f->name,
                               "a value that is there", v->line->text,
                               v->line->text + v->line->size);
        if (f->dim < 0)
            offsets[v->row + 1] = (int64_t)used;
        else if (used < (size_t)((v->row + 1) * f->dim))
            FL_TRY(fill_row(v, i));
    }
    return FLEET_OK;
}
