/* criteo.c - the Criteo display ads log: label, 13 integers, 26 texts, split by
 * tabs.
 *
 * Kernels take the cells that are as most are, integers of up to seven digits
 * and texts of eight bytes, a tile of lines at a time. They mark the others,
 * which are done here one by one.
 */
#include <stdio.h>

#include "base/hash.h"
#include "data/parse.h"

enum { LABEL, DENSE, FIRST_ID }; /* slots, by position */

typedef struct where {
    const fl_parser *p;
    const fl_line *line; /* the tile's first */
    const fl_criteo_tile *tile;
    fl_batch_buffer *box;
    size_t first; /* its row */
} where;

static float *floats(const where *w, int slot, size_t row, size_t dim)
{
    return (float *)w->box->batch.slot[slot].values + (w->first + row) * dim;
}

static uint64_t *labels(const where *w)
{
    return (uint64_t *)w->box->batch.slot[LABEL].values + w->first;
}

static uint64_t *ids(const where *w, int id)
{
    return (uint64_t *)w->box->batch.slot[FIRST_ID + id].values + w->first;
}

static fleet_status read_label(const where *w, int row, const char *s,
                               const char *end)
{
    if (fl_parse_u64(s, end, labels(w) + row))
        return FLEET_OK;
    return fl_bad_line(w->p, &w->line[row], "label", "an integer from 0", s,
                       end);
}

static fleet_status read_integer(const where *w, int row, int i, const char *s,
                                 const char *end)
{
    float *out = floats(w, DENSE, (size_t)row, FL_CRITEO_DENSE) + i;
    double x;

    if (!fl_parse_double(s, end, &x))
        return fl_bad_line(w->p, &w->line[row], "dense_input",
                           "a finite number", s, end);
    *out = (float)((x - fl_criteo_low[i]) / fl_criteo_range[i]);
    if (*out - *out == 0.0f)
        return FLEET_OK;
    return fl_bad_line(w->p, &w->line[row], "dense_input",
                       "a number that is finite as float32", s, end);
}

static uint64_t odd_id(const where *w, int id, const char *s, const char *end)
{
    const fl_field *f = &w->p->layout.field[FIRST_ID + id];

    return s == end ? f->none : fl_hash(s, (size_t)(end - s), f->seed);
}

static fleet_status read_odd(const where *w, int row)
{
    const uint32_t *ends = w->tile->end[row];
    const char *text = w->line[row].text;

    for (uint64_t odd = w->tile->odd[row]; odd; odd &= odd - 1) {
        int cell = __builtin_ctzll(odd), id = cell - 1 - FL_CRITEO_DENSE;
        const char *s = cell > 0 ? text + ends[cell - 1] + 1 : text;
        const char *end = text + ends[cell];

        if (cell == 0)
            FL_TRY(read_label(w, row, s, end));
        else if (id < 0)
            FL_TRY(read_integer(w, row, cell - 1, s, end));
        else
            ids(w, id)[row] = odd_id(w, id, s, end);
    }
    return FLEET_OK;
}

static fleet_status wrong_cells(const where *w, int row, int n)
{
    const fl_line *line = &w->line[row];
    char what[60];

    snprintf(what, sizeof what, "40 cells split by tabs (%d%s here)", n,
             n > FL_CRITEO_CELLS ? " or more" : "");
    return fl_bad_line(w->p, line, NULL, what, line->text,
                       line->text + line->size);
}

/* Cut lines up to one that has not 40 cells; how many there are before it. */
static int cut_lines(const where *w, fl_criteo_tile *tile, int rows, int *cells)
{
    *cells = FL_CRITEO_CELLS;
    for (int r = 0; r < rows; r++) {
        const fl_line *line = &w->line[r];

        *cells = w->p->kernels->criteo_cut(line->text, line->size, tile, r);
        if (*cells != FL_CRITEO_CELLS)
            return r;
    }
    return rows;
}

static fleet_status read_tile(const where *w, fl_criteo_tile *tile, int rows)
{
    const fl_kernels *k = w->p->kernels;
    int cells, whole = cut_lines(w, tile, rows, &cells);

    k->criteo_dense(tile, whole, floats(w, DENSE, 0, FL_CRITEO_DENSE));
    for (int i = 0; i < FL_CRITEO_IDS; i++)
        k->hash_eights(tile->text[i], whole, (uint64_t)(FIRST_ID + i),
                       ids(w, i));
    memcpy(labels(w), tile->label, (size_t)whole * sizeof *tile->label);
    for (int r = 0; r < whole; r++)
        if (tile->odd[r])
            FL_TRY(read_odd(w, r));
    return whole == rows ? FLEET_OK : wrong_cells(w, whole, cells);
}

fleet_status fl_parse_criteo(const fl_parser *p, fl_scratch *scratch,
                             fl_batch_buffer *box)
{
    const size_t n = box->lines.n;

    FL_TRY(fl_batch_buffer_begin(box, &p->layout, (int64_t)n));
    for (size_t i = 0; i < n; i += FL_CRITEO_TILE) {
        size_t left = n - i;
        where w = {.p = p,
                   .line = &box->lines.line[i],
                   .tile = &scratch->tile,
                   .box = box,
                   .first = i};

        FL_TRY(read_tile(&w, &scratch->tile,
                         left < FL_CRITEO_TILE ? (int)left : FL_CRITEO_TILE));
    }
    return FLEET_OK;
}
