/* csv.c - cells to values, each by its column's transform. */
#include "data/format/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

/* --- where the columns stand ---------------------------------------------- */

void fl_csv_places(const fl_parser *p, int file)
{
    for (int i = 0; i < p->layout.n_column; i++)
        p->place[file][i] = atoi(p->layout.column[i].name);
    p->n_place[file] = 0;
}

static bool cell_is(const fl_cell *cell, const char *text, size_t size)
{
    return (size_t)(cell->end - cell->text) == size &&
           memcmp(cell->text, text, size) == 0;
}

/* A name that no cell has may be a position. */
static fleet_status find_column(const fl_parser *p, const fl_csv_cells *cells,
                                const fl_line *line, const char *name,
                                int *place)
{
    const char *file = p->spec->files[line->file];
    size_t size = strlen(name);
    int found = -1;

    for (size_t i = 0; i < cells->n; i++) {
        if (!cell_is(&cells->cell[i], name, size))
            continue;
        if (found >= 0)
            return fl_fail(FLEET_EFORMAT,
                           "%.500s: its header has the column \"%.60s\" twice",
                           file, name);
        found = (int)i;
    }
    if (found < 0 && size > 0 && size < 10 &&
        strspn(name, "0123456789") == size && (size_t)atoi(name) < cells->n)
        found = atoi(name);
    if (found < 0)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s: its header has no column \"%.60s\"", file,
                       name);
    *place = found;
    return FLEET_OK;
}

static fleet_status cut_cells(const fl_parser *p, fl_csv_cells *cells,
                              const fl_line *line)
{
    const char *wrong;

    FL_TRY(fl_csv_cells_cut(cells, p->kernels, line->text, line->size,
                            p->layout.separator, &wrong));
    return wrong ? fl_bad_line(p, line, NULL, wrong, line->text,
                               line->text + line->size)
                 : FLEET_OK;
}

fleet_status fl_csv_header(const fl_parser *p, fl_csv_cells *cells,
                           const fl_line *line)
{
    FL_TRY(cut_cells(p, cells, line));
    for (int i = 0; i < p->layout.n_column; i++)
        FL_TRY(find_column(p, cells, line, p->layout.column[i].name,
                           &p->place[line->file][i]));
    p->n_place[line->file] = (int)cells->n;
    return FLEET_OK;
}

static fleet_status wrong_cells(const fl_parser *p, const fl_line *line,
                                const fl_csv_cells *cells, int want)
{
    char what[100];

    snprintf(what, sizeof what, "%d cells%s (%zu here)", want,
             p->n_place[line->file] ? ", as its header has" : " or more",
             cells->n);
    return fl_bad_line(p, line, NULL, what, line->text,
                       line->text + line->size);
}

fleet_status fl_csv_cut(const fl_parser *p, fl_csv_cells *cells,
                        const fl_line *line)
{
    const int *place = p->place[line->file];
    const int exact = p->n_place[line->file];

    FL_TRY(cut_cells(p, cells, line));
    if (exact > 0)
        return cells->n == (size_t)exact ? FLEET_OK
                                         : wrong_cells(p, line, cells, exact);
    for (int i = 0; i < p->layout.n_column; i++)
        if ((size_t)place[i] >= cells->n)
            return wrong_cells(p, line, cells, place[i] + 1);
    return FLEET_OK;
}

/* --- from a cell to a value ----------------------------------------------- */

bool fl_csv_is_missing(const fl_parser *p, const fl_cell *cell)
{
    return cell->text == cell->end ||
           cell_is(cell, p->layout.missing, p->layout.missing_size);
}

bool fl_csv_log(const fl_column *column, double *x)
{
    if (column->transform != FLEET_LOG1P &&
        column->transform != FLEET_LOG1P_STANDARDIZE)
        return true;
    if (!(*x > -1.0))
        return false;
    *x = log1p(*x);
    return true;
}

double fl_csv_standard(const fl_column *column, double x)
{
    return fl_standardizes(column->transform)
               ? (x - column->mean) / column->deviation
               : x;
}

fleet_status fl_csv_number(const fl_parser *p, const fl_line *line,
                           const fl_field *f, const fl_column *column,
                           const fl_cell *cell, double *x)
{
    if (!fl_parse_double(cell->text, cell->end, x))
        return fl_bad_line(p, line, f->name, "a finite number", cell->text,
                           cell->end);
    if (!fl_csv_log(column, x))
        return fl_bad_line(p, line, f->name, "a number above -1, for log1p",
                           cell->text, cell->end);
    return FLEET_OK;
}

static bool is_one_of(const fl_field *f, const fl_cell *cell)
{
    for (int i = 0; i < f->n_equals; i++)
        if (cell_is(cell, f->equals[i], strlen(f->equals[i])))
            return true;
    return false;
}

typedef struct place {
    const fl_parser *p;
    const fl_line *line;
    const fl_field *f;
} place;

static fleet_status to_float(const place *at, const fl_column *column,
                             const fl_cell *cell, float *out)
{
    double x;

    if (fl_csv_is_missing(at->p, cell)) {
        *out = 0.0f;
        return FLEET_OK;
    }
    if (column->transform == FLEET_EQUALS) {
        *out = is_one_of(at->f, cell) ? 1.0f : 0.0f;
        return FLEET_OK;
    }
    if (column->transform == FLEET_TRANSFORM_NONE) {
        if (fl_parse_float(cell->text, cell->end, out))
            return FLEET_OK;
        return fl_bad_line(at->p, at->line, at->f->name, "a finite number",
                           cell->text, cell->end);
    }
    FL_TRY(fl_csv_number(at->p, at->line, at->f, column, cell, &x));
    *out = (float)fl_csv_standard(column, x);
    if (isfinite(*out))
        return FLEET_OK;
    return fl_bad_line(at->p, at->line, at->f->name,
                       "a number that is finite as float32", cell->text,
                       cell->end);
}

static fleet_status to_id(const place *at, const fl_column *column,
                          const fl_cell *cell, int64_t *out)
{
    uint64_t id;

    if (column->transform == FLEET_EQUALS) {
        *out = !fl_csv_is_missing(at->p, cell) && is_one_of(at->f, cell);
    } else if (fl_csv_is_missing(at->p, cell)) {
        *out = (int64_t)at->f->none;
    } else if (column->transform == FLEET_HASH) {
        *out = (int64_t)fl_hash(cell->text, (size_t)(cell->end - cell->text),
                                at->f->seed);
    } else if (fl_parse_u64(cell->text, cell->end, &id)) {
        *out = (int64_t)id;
    } else {
        return fl_bad_line(at->p, at->line, at->f->name,
                           "an id (an integer from 0 to 2^64 - 1)", cell->text,
                           cell->end);
    }
    return FLEET_OK;
}

/* The cell without the weight that it ends with. */
static fleet_status cut_weight(const place *at, const fl_cell *cell,
                               fl_cell *id, float *weight)
{
    *id = *cell;
    if (fl_cut_weight(cell->text, cell->end, &id->end, weight) &&
        id->end > id->text)
        return FLEET_OK;
    return fl_bad_line(at->p, at->line, at->f->name,
                       "an id, and behind its last colon a finite number",
                       cell->text, cell->end);
}

static fleet_status to_value(const place *at, int column, const fl_cell *cell,
                             fl_slot_data *out, size_t index)
{
    const fl_column *c = &at->p->layout.column[column];
    fl_cell id;

    if (at->f->required && fl_csv_is_missing(at->p, cell))
        return fl_bad_line(at->p, at->line, at->f->name, "a cell that is there",
                           cell->text, cell->end);
    if (at->f->weighted) {
        FL_TRY(cut_weight(at, cell, &id, &out->weights[index]));
        cell = &id;
    }
    return at->f->is_id ? to_id(at, c, cell, (int64_t *)out->values + index)
                        : to_float(at, c, cell, (float *)out->values + index);
}

fleet_status fl_csv_value(const fl_parser *p, const fl_line *line,
                          const fl_field *f, int column, const fl_cell *cell,
                          fl_slot_data *out, size_t index)
{
    const place at = {p, line, f};

    return to_value(&at, column, cell, out, index);
}

/* --- batches -------------------------------------------------------------- */

static bool is_of_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || (unsigned char)c >= 128;
}

static size_t word_size(const char *s, const char *end)
{
    size_t n = 0;

    while (s + n < end && is_of_word(s[n]))
        n++;
    return n;
}

/* The id of a word, whose letters of ASCII are small ones. */
static fleet_status hash_word(const fl_field *f, fl_scratch *scratch,
                              const char *word, size_t n, uint64_t *id)
{
    FL_TRY(fl_grow(&scratch->text, &scratch->text_capacity, n, 1));
    for (size_t i = 0; i < n; i++)
        scratch->text[i] = word[i] >= 'A' && word[i] <= 'Z'
                               ? (char)(word[i] + 'a' - 'A')
                               : word[i];
    *id = fl_hash(scratch->text, n, f->seed);
    return FLEET_OK;
}

fleet_status fl_csv_words(const fl_parser *p, const fl_field *f,
                          fl_scratch *scratch, fl_batch_buffer *buffer,
                          const fl_cell *cell)
{
    const int slot = (int)(f - p->layout.field);
    size_t *used = &scratch->used[slot];

    for (const char *s = cell->text; s < cell->end;) {
        const size_t n = word_size(s, cell->end);

        if (n == 0) {
            s++;
            continue;
        }
        FL_TRY(fl_batch_buffer_room(buffer, &p->layout, slot, *used + 1));
        FL_TRY(hash_word(f, scratch, s, n,
                         (uint64_t *)buffer->batch.slot[slot].values + *used));
        ++*used;
        s += n;
    }
    return FLEET_OK;
}

/* A ragged field has no value for a cell that is missing. */
static fleet_status read_field(const place *at, fl_scratch *scratch, size_t row,
                               fl_batch_buffer *buffer)
{
    const int slot = (int)(at->f - at->p->layout.field);
    const fl_csv_cells *cells = &scratch->cells;
    fl_slot_data *out = &buffer->batch.slot[slot];
    size_t *used = &scratch->used[slot];
    const int *where = at->p->place[at->line->file] + at->f->first_column;
    const bool ragged = at->f->dim < 0;
    const size_t before = *used;

    for (int i = 0; i < at->f->n_column; i++) {
        const fl_cell *cell = &cells->cell[where[i]];

        const int column = at->f->first_column + i;

        if (ragged && fl_csv_is_missing(at->p, cell))
            continue;
        if (at->p->layout.column[column].transform == FLEET_WORDS) {
            FL_TRY(fl_csv_words(at->p, at->f, scratch, buffer, cell));
            continue;
        }
        if (ragged && *used >= buffer->capacity[slot])
            FL_TRY(
                fl_batch_buffer_room(buffer, &at->p->layout, slot, *used + 1));
        FL_TRY(to_value(at, column, cell, out, (*used)++));
    }
    if (at->f->required && *used == before)
        return fl_bad_line(at->p, at->line, at->f->name,
                           "a value that is there", at->line->text,
                           at->line->text + at->line->size);
    if (ragged)
        out->offsets[row + 1] = (int64_t)*used;
    return FLEET_OK;
}

static fleet_status begin_batch(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer)
{
    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)buffer->lines.n));
    for (int i = 0; i < p->layout.n_field; i++) {
        const fl_field *f = &p->layout.field[i];

        scratch->used[i] = 0;
        if (f->dim < 0)
            FL_TRY(fl_batch_buffer_room(buffer, &p->layout, i,
                                        buffer->lines.n * (size_t)f->n_column));
    }
    return FLEET_OK;
}

fleet_status fl_parse_csv(const fl_parser *p, fl_scratch *scratch,
                          fl_batch_buffer *buffer)
{
    FL_TRY(begin_batch(p, scratch, buffer));
    for (size_t r = 0; r < buffer->lines.n; r++) {
        const fl_line *line = &buffer->lines.line[r];

        FL_TRY(fl_csv_cut(p, &scratch->cells, line));
        for (int i = 0; i < p->layout.n_field; i++) {
            const place at = {p, line, &p->layout.field[i]};

            FL_TRY(read_field(&at, scratch, r, buffer));
        }
    }
    return FLEET_OK;
}
