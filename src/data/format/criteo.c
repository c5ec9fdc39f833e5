/* criteo.c - the Criteo display ads log: label, 13 integers, 26 texts, split by
 * tabs.
 *
 * Kernels take the cells that are as most are, integers of up to seven digits
 * and texts of eight bytes, a tile of lines at a time. They mark the other
 * cells, which this file reads one by one.
 */
#include "data/format/criteo.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

enum { LABEL, DENSE, FIRST_ID }; /* slots, by position */

#define NO_LABEL "0\t"
enum { LABEL_SIZE = sizeof NO_LABEL - 1 };

typedef struct where {
    const fl_parser *p;
    const fl_line *line; /* the tile's first */
    const fl_criteo_tile *tile;
    fl_batch_buffer *buffer;
    size_t first; /* its row */
} where;

static float *floats_of(const where *w, int slot, size_t row, size_t dim)
{
    return (float *)w->buffer->batch.slot[slot].values + (w->first + row) * dim;
}

static uint64_t *labels_of(const where *w)
{
    return (uint64_t *)w->buffer->batch.slot[LABEL].values + w->first;
}

static uint64_t *ids_of(const where *w, int id)
{
    return (uint64_t *)w->buffer->batch.slot[FIRST_ID + id].values + w->first;
}

static fleet_status read_integer(const where *w, int row, int i, const char *s,
                                 const char *end)
{
    float *out = floats_of(w, DENSE, (size_t)row, FL_CRITEO_DENSE) + i;
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

static fleet_status read_odd(const where *w, int row)
{
    const uint32_t *ends = w->tile->end[row];
    const char *text = w->line[row].text;

    for (uint64_t odd = w->tile->odd[row]; odd; odd &= odd - 1) {
        int cell = __builtin_ctzll(odd), id = cell - 1 - FL_CRITEO_DENSE;
        const char *s = cell > 0 ? text + ends[cell - 1] + 1 : text;
        const char *end = text + ends[cell];

        if (cell == 0 && !fl_parse_u64(s, end, labels_of(w) + row))
            return fl_bad_line(w->p, &w->line[row], "label",
                               "an integer from 0", s, end);
        if (cell > 0 && id < 0)
            FL_TRY(read_integer(w, row, cell - 1, s, end));
        if (id >= 0) {
            const fl_field *f = &w->p->layout.field[FIRST_ID + id];

            ids_of(w, id)[row] =
                s == end ? f->none : fl_hash(s, (size_t)(end - s), f->seed);
        }
    }
    return FLEET_OK;
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
    const fl_line *wrong = &w->line[whole];
    const int added = w->p->spec->no_label;
    char what[60];

    k->criteo_dense(tile, whole, floats_of(w, DENSE, 0, FL_CRITEO_DENSE));
    for (int i = 0; i < FL_CRITEO_IDS; i++)
        k->hash_eights(tile->text[i], whole, (uint64_t)(FIRST_ID + i),
                       ids_of(w, i));
    memcpy(labels_of(w), tile->label, (size_t)whole * sizeof *tile->label);
    for (int r = 0; r < whole; r++)
        if (tile->odd[r])
            FL_TRY(read_odd(w, r));
    if (whole == rows)
        return FLEET_OK;
    snprintf(what, sizeof what, "%d cells split by tabs (%d%s here)",
             FL_CRITEO_CELLS - added, cells - added,
             cells > FL_CRITEO_CELLS ? " or more" : "");
    return fl_bad_line(w->p, wrong, NULL, what,
                       wrong->text + added * LABEL_SIZE,
                       wrong->text + wrong->size);
}

/* Lines of files without labels get one, which nothing looks at. */
static fleet_status put_labels(fl_scratch *scratch, const fl_line *line, int n,
                               fl_line *to)
{
    size_t size = FL_TEXT_PAD, at = FL_TEXT_PAD;

    for (int i = 0; i < n; i++)
        size += line[i].size + LABEL_SIZE + FL_TEXT_PAD;
    FL_TRY(fl_grow(&scratch->labelled, &scratch->labelled_capacity, size, 1));
    for (int i = 0; i < n; i++) {
        char *text = scratch->labelled + at;

        memcpy(text, NO_LABEL, LABEL_SIZE);
        memcpy(text + LABEL_SIZE, line[i].text, line[i].size);
        to[i] = line[i];
        to[i].text = text;
        to[i].size += LABEL_SIZE;
        at += to[i].size + FL_TEXT_PAD;
    }
    return FLEET_OK;
}

fleet_status fl_parse_criteo(const fl_parser *p, fl_scratch *scratch,
                             fl_batch_buffer *buffer)
{
    const size_t n = buffer->lines.n;

    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)n));
    for (size_t i = 0; i < n; i += FL_CRITEO_TILE) {
        const int rows = n - i < FL_CRITEO_TILE ? (int)(n - i) : FL_CRITEO_TILE;
        fl_line labelled[FL_CRITEO_TILE];
        where w = {.p = p,
                   .line = &buffer->lines.line[i],
                   .tile = &scratch->tile,
                   .buffer = buffer,
                   .first = i};

        if (p->spec->no_label) {
            FL_TRY(put_labels(scratch, w.line, rows, labelled));
            w.line = labelled;
        }
        FL_TRY(read_tile(&w, &scratch->tile, rows));
    }
    return FLEET_OK;
}

fleet_status fl_criteo_slots(const char *file, fleet_slot **slots, int *n)
{
    static const char *const names[FL_CRITEO_IDS] = {
        "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",
        "10", "11", "12", "13", "14", "15", "16", "17", "18",
        "19", "20", "21", "22", "23", "24", "25", "26"};
    fleet_slot *s = fl_alloc_array(2 + FL_CRITEO_IDS, sizeof *s);

    (void)file;
    if (!s)
        return FLEET_ENOMEM;
    s[0] = (fleet_slot){.name = "label", .dtype = FLEET_INT64, .dim = 1};
    s[1] = (fleet_slot){
        .name = "dense_input", .dtype = FLEET_FLOAT32, .dim = FL_CRITEO_DENSE};
    for (int i = 0; i < FL_CRITEO_IDS; i++)
        s[2 + i] =
            (fleet_slot){.name = names[i], .dtype = FLEET_INT64, .dim = 1};
    *slots = s;
    *n = 2 + FL_CRITEO_IDS;
    return FLEET_OK;
}
