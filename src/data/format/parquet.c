/* parquet.c - columns to values, each by its transform. What is read of a text,
 * and of an integer as a text, is what csv.c reads of a cell. */
#include "data/format/parquet.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/format/csv.h"
#include "data/format/parquet_block.h"

/* Rows of a block that go to a batch. */
typedef struct block_rows {
    const fl_parser *p;
    fl_scratch *scratch;
    fl_batch_buffer *buffer;
    const fl_line *line; /* of the first */
    const fl_parquet_block *b;
    size_t from, n; /* of the block */
    size_t row;     /* of the batch */
} block_rows;

/* A value's place. */
typedef struct value_place {
    const block_rows *r;
    const fl_line *line;
    const fl_field *f;
    int column;
    const fl_parquet_slice *s;
    size_t i;   /* of the slice */
    size_t out; /* of the slot */
} value_place;

/* --- blocks --------------------------------------------------------------- */

/* With a shuffle each line is a row by itself. */
static fleet_status open_row(block_rows *r)
{
    const int n = r->p->layout.n_column;
    const size_t size = fl_parquet_row_room(r->line->size, n);
    fl_scratch *s = r->scratch;
    fl_parquet_block *b;

    FL_TRY(fl_grow(&s->row, &s->row_capacity, size + 2 * FL_TEXT_PAD, 1));
    b = (fl_parquet_block *)(void *)(s->row + FL_TEXT_PAD);
    fl_parquet_row_open(r->line->text, n, b);
    r->b = b;
    r->from = 0;
    r->n = 1;
    return FLEET_OK;
}

/* The rows that begin with line i of the buffer. */
static fleet_status open_rows(block_rows *r, const fl_batch_buffer *buffer,
                              size_t i)
{
    r->line = &buffer->lines.line[i];
    r->row = i;
    if (r->p->spec->shuffle > 0)
        return open_row(r);
    r->b = (const fl_parquet_block *)(const void *)r->line->text;
    r->from = r->line->size;
    r->n = fl_lines_together(&buffer->lines, i);
    return FLEET_OK;
}

/* --- values --------------------------------------------------------------- */

static fl_cell text_of(const fl_parquet_block *b, const fl_parquet_slice *s,
                       size_t i)
{
    const uint32_t *begin = fl_parquet_at(b, s->values);
    const char *bytes = fl_parquet_at(b, s->bytes);

    return (fl_cell){bytes + begin[i], bytes + begin[i + 1]};
}

static double number_of(const fl_parquet_block *b, const fl_parquet_slice *s,
                        size_t i)
{
    const void *values = fl_parquet_at(b, s->values);

    return s->kind == FL_PARQUET_INT    ? (double)((const int64_t *)values)[i]
           : s->kind == FL_PARQUET_UINT ? (double)((const uint64_t *)values)[i]
                                        : ((const double *)values)[i];
}

/* A number as a text with room around it. */
typedef struct number_text {
    char room[2 * FL_TEXT_PAD + 40];
    fl_cell cell;
} number_text;

static const fl_cell *print_number(const value_place *v, number_text *t)
{
    const void *values = fl_parquet_at(v->r->b, v->s->values);
    char *to = t->room + FL_TEXT_PAD;
    int n;

    memset(t->room, 0, sizeof t->room);
    if (v->s->kind == FL_PARQUET_INT)
        n = snprintf(to, 40, "%" PRId64, ((const int64_t *)values)[v->i]);
    else if (v->s->kind == FL_PARQUET_UINT)
        n = snprintf(to, 40, "%" PRIu64, ((const uint64_t *)values)[v->i]);
    else
        n = snprintf(to, 40, "%.17g", ((const double *)values)[v->i]);
    t->cell = (fl_cell){to, to + n};
    return &t->cell;
}

static fleet_status refuse_number(const value_place *v, const char *what)
{
    number_text t;
    const fl_cell *cell = print_number(v, &t);

    return fl_bad_line(v->r->p, v->line, v->f->name, what, cell->text,
                       cell->end);
}

/* As it is, or by its logarithm and the column's statistics. */
static fleet_status put_float(const value_place *v, float *out)
{
    const fl_column *c = &v->r->p->layout.column[v->column];
    double x = number_of(v->r->b, v->s, v->i);

    if (!isfinite(x))
        return refuse_number(v, "a finite number");
    if (!fl_csv_log(c, &x))
        return refuse_number(v, "a number above -1, for log1p");
    if (c->transform == FLEET_TRANSFORM_NONE && v->s->kind == FL_PARQUET_INT)
        *out = (float)((const int64_t *)fl_parquet_at(v->r->b,
                                                      v->s->values))[v->i];
    else if (c->transform == FLEET_TRANSFORM_NONE &&
             v->s->kind == FL_PARQUET_UINT)
        *out = (float)((const uint64_t *)fl_parquet_at(v->r->b,
                                                       v->s->values))[v->i];
    else
        *out = (float)fl_csv_standard(c, x);
    return isfinite(*out)
               ? FLEET_OK
               : refuse_number(v, "a number that is finite as float32");
}

static int slot_of(const value_place *v)
{
    return (int)(v->f - v->r->p->layout.field);
}

static fleet_status put_cell(const value_place *v, const fl_cell *cell)
{
    return fl_csv_value(v->r->p, v->line, v->f, v->column, cell,
                        &v->r->buffer->batch.slot[slot_of(v)], v->out);
}

static fleet_status put_number(const value_place *v)
{
    const fleet_transform t = v->r->p->layout.column[v->column].transform;
    void *values = v->r->buffer->batch.slot[slot_of(v)].values;
    const int64_t *from = fl_parquet_at(v->r->b, v->s->values);
    number_text text;

    if (t == FLEET_EQUALS || t == FLEET_HASH)
        return put_cell(v, print_number(v, &text));
    if (!v->f->is_id)
        return put_float(v, (float *)values + v->out);
    if (v->s->kind == FL_PARQUET_INT && from[v->i] < 0)
        return refuse_number(v, "an id (an integer from 0 to 2^64 - 1)");
    ((int64_t *)values)[v->out] = from[v->i];
    return FLEET_OK;
}

static fleet_status put_value(const value_place *v)
{
    fl_cell cell;

    if (v->s->kind != FL_PARQUET_TEXT)
        return put_number(v);
    cell = text_of(v->r->b, v->s, v->i);
    return put_cell(v, &cell);
}

static fleet_status put_missing(const value_place *v)
{
    static const char nothing[2 * FL_TEXT_PAD];

    return put_cell(v,
                    &(fl_cell){nothing + FL_TEXT_PAD, nothing + FL_TEXT_PAD});
}

/* --- dense slots ---------------------------------------------------------- */

/* Numbers as they are: no null, no transform. */
static bool is_plain(const value_place *v)
{
    return v->s->kind != FL_PARQUET_TEXT && !v->s->there && !v->s->offsets &&
           v->r->p->layout.column[v->column].transform == FLEET_TRANSFORM_NONE;
}

/* False: one of them is negative, where that can be. */
static bool copy_ids(const value_place *v, size_t k)
{
    const block_rows *r = v->r;
    const size_t dim = (size_t)v->f->dim, n = r->n;
    const int64_t *from =
        (const int64_t *)fl_parquet_at(r->b, v->s->values) + r->from;
    int64_t *to =
        (int64_t *)r->buffer->batch.slot[slot_of(v)].values + r->row * dim + k;
    int64_t any = 0;

    for (size_t i = 0; i < n; i++) {
        any |= from[i];
        to[i * dim] = from[i];
    }
    return any >= 0 || v->s->kind == FL_PARQUET_UINT;
}

/* False: one of them is not finite: its difference from itself is not 0. */
static bool copy_floats(const value_place *v, size_t k)
{
    const block_rows *r = v->r;
    const size_t dim = (size_t)v->f->dim, n = r->n;
    const void *values = fl_parquet_at(r->b, v->s->values);
    float *to =
        (float *)r->buffer->batch.slot[slot_of(v)].values + r->row * dim + k;
    bool bad = false;

    if (v->s->kind == FL_PARQUET_INT)
        for (size_t i = 0; i < n; i++)
            to[i * dim] = (float)((const int64_t *)values)[r->from + i];
    else if (v->s->kind == FL_PARQUET_UINT)
        for (size_t i = 0; i < n; i++)
            to[i * dim] = (float)((const uint64_t *)values)[r->from + i];
    else
        for (size_t i = 0; i < n; i++) {
            const float x = (float)((const double *)values)[r->from + i];

            bad |= x - x != 0;
            to[i * dim] = x;
        }
    return !bad;
}

/* A column that has one value of each row: the k-th of its slot. Where one of
 * plain numbers cannot be, the way by single values says which. */
static fleet_status read_single(value_place *v, size_t k)
{
    const block_rows *r = v->r;
    const size_t dim = (size_t)v->f->dim;

    if (is_plain(v) && (v->f->is_id ? copy_ids(v, k) : copy_floats(v, k)))
        return FLEET_OK;
    for (size_t i = 0; i < r->n; i++) {
        size_t from, to;

        fl_parquet_range(r->b, v->s, r->from + i, &from, &to);
        v->line = &r->line[i];
        v->i = from;
        v->out = (r->row + i) * dim + k;
        FL_TRY(from < to ? put_value(v) : put_missing(v));
    }
    return FLEET_OK;
}

static fleet_status refuse_count(const value_place *v, size_t n)
{
    char what[80], got[40];

    snprintf(what, sizeof what, "%" PRId64 " values, as its dim, or none",
             v->f->dim);
    snprintf(got, sizeof got, "%zu", n);
    return fl_bad_line(v->r->p, v->line, v->f->name, what, got,
                       got + strlen(got));
}

/* A column of lists that are as long as the slot is wide. */
static fleet_status read_wide(value_place *v)
{
    const block_rows *r = v->r;
    const size_t dim = (size_t)v->f->dim;

    for (size_t i = 0; i < r->n; i++) {
        size_t from, to;

        fl_parquet_range(r->b, v->s, r->from + i, &from, &to);
        v->line = &r->line[i];
        if (to != from && to - from != dim)
            return refuse_count(v, to - from);
        for (size_t k = 0; k < dim; k++) {
            v->i = from + k;
            v->out = (r->row + i) * dim + k;
            FL_TRY(from < to ? put_value(v) : put_missing(v));
        }
    }
    return FLEET_OK;
}

/* --- ragged slots --------------------------------------------------------- */

/* A text that is missing is no value, as in csv. */
static bool is_missing(const value_place *v)
{
    fl_cell cell;

    if (v->s->kind != FL_PARQUET_TEXT)
        return false;
    cell = text_of(v->r->b, v->s, v->i);
    return fl_csv_is_missing(v->r->p, &cell);
}

static fleet_status add_value(value_place *v, int slot)
{
    const block_rows *r = v->r;
    size_t *used = &r->scratch->used[slot];
    fl_cell cell;

    if (r->p->layout.column[v->column].transform == FLEET_WORDS) {
        cell = text_of(r->b, v->s, v->i);
        return fl_csv_words(r->p, v->f, r->scratch, r->buffer, &cell);
    }
    if (*used >= r->buffer->capacity[slot])
        FL_TRY(fl_batch_buffer_room(r->buffer, &r->p->layout, slot, *used + 1));
    v->out = (*used)++;
    return put_value(v);
}

/* All values of a row, column by column. */
static fleet_status read_ragged_row(value_place *v, int slot, size_t i)
{
    const block_rows *r = v->r;
    const size_t before = r->scratch->used[slot];
    const int first = v->f->first_column;

    v->line = &r->line[i];
    for (int k = 0; k < v->f->n_column; k++) {
        size_t to;

        v->column = first + k;
        v->s = &r->b->column[v->column];
        fl_parquet_range(r->b, v->s, r->from + i, &v->i, &to);
        for (; v->i < to; v->i++)
            if (!is_missing(v))
                FL_TRY(add_value(v, slot));
    }
    if (v->f->required && r->scratch->used[slot] == before)
        return fl_bad_line(r->p, v->line, v->f->name, "a value that is there",
                           "", "");
    r->buffer->batch.slot[slot].offsets[r->row + i + 1] =
        (int64_t)r->scratch->used[slot];
    return FLEET_OK;
}

static fleet_status read_ragged(value_place *v)
{
    const int slot = slot_of(v);

    for (size_t i = 0; i < v->r->n; i++)
        FL_TRY(read_ragged_row(v, slot, i));
    return FLEET_OK;
}

/* --- batches -------------------------------------------------------------- */

static fleet_status read_field(value_place *v)
{
    const fl_field *f = v->f;

    if (f->dim < 0)
        return read_ragged(v);
    for (int k = 0; k < f->n_column; k++) {
        v->column = f->first_column + k;
        v->s = &v->r->b->column[v->column];
        FL_TRY(v->s->offsets ? read_wide(v) : read_single(v, (size_t)k));
    }
    return FLEET_OK;
}

/* A bad row's error has its column and group, too. */
static fleet_status say_where(const value_place *v, fleet_status status)
{
    if (status != FLEET_EFORMAT)
        return status;
    return fl_fail(status, "%.800s (column \"%.60s\", row group %" PRIu32 ")",
                   fleet_last_error(), v->r->p->layout.column[v->column].name,
                   v->r->b->group);
}

static fleet_status read_rows(const block_rows *r)
{
    for (int i = 0; i < r->p->layout.n_field; i++) {
        value_place v = {.r = r, .f = &r->p->layout.field[i]};

        FL_TRY(say_where(&v, read_field(&v)));
    }
    return FLEET_OK;
}

fleet_status fl_parse_parquet(const fl_parser *p, fl_scratch *scratch,
                              fl_batch_buffer *buffer)
{
    block_rows r = {.p = p, .scratch = scratch, .buffer = buffer};

    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)buffer->lines.n));
    memset(scratch->used, 0, (size_t)p->layout.n_field * sizeof *scratch->used);
    for (size_t i = 0; i < buffer->lines.n; i += r.n) {
        FL_TRY(open_rows(&r, buffer, i));
        FL_TRY(read_rows(&r));
    }
    return FLEET_OK;
}

/* --- statistics ----------------------------------------------------------- */

/* The number in a column that standardizes; *any is false if it is missing. */
static fleet_status take_number(const value_place *v, double *x, bool *any)
{
    const fl_column *c = &v->r->p->layout.column[v->column];
    fl_cell cell;

    *any = !is_missing(v);
    if (!*any)
        return FLEET_OK;
    if (v->s->kind == FL_PARQUET_TEXT) {
        cell = text_of(v->r->b, v->s, v->i);
        return fl_csv_number(v->r->p, v->line, v->f, c, &cell, x);
    }
    *x = number_of(v->r->b, v->s, v->i);
    if (!isfinite(*x))
        return refuse_number(v, "a finite number");
    return fl_csv_log(c, x) ? FLEET_OK
                            : refuse_number(v, "a number above -1, for log1p");
}

static fleet_status note_column(value_place *v, int which,
                                void (*note)(void *to, int which, double x),
                                void *to)
{
    const block_rows *r = v->r;

    v->s = &r->b->column[v->column];
    for (size_t i = 0; i < r->n; i++) {
        size_t end;

        v->line = &r->line[i];
        fl_parquet_range(r->b, v->s, r->from + i, &v->i, &end);
        for (; v->i < end; v->i++) {
            bool any = false;
            double x = 0;

            FL_TRY(take_number(v, &x, &any));
            if (any)
                note(to, which, x);
        }
    }
    return FLEET_OK;
}

static fleet_status note_rows(const block_rows *r,
                              void (*note)(void *to, int which, double x),
                              void *to)
{
    const fl_layout *l = &r->p->layout;
    int which = 0;

    for (int i = 0; i < l->n_field; i++) {
        value_place v = {.r = r, .f = &l->field[i]};

        for (int k = 0; k < v.f->n_column; k++) {
            v.column = v.f->first_column + k;
            if (fl_standardizes(l->column[v.column].transform))
                FL_TRY(say_where(&v, note_column(&v, which++, note, to)));
        }
    }
    return FLEET_OK;
}

fleet_status fl_parquet_note_numbers(
    const fl_parser *p, fl_scratch *scratch, const fl_batch_buffer *buffer,
    void (*note)(void *to, int which, double x), void *to)
{
    block_rows r = {.p = p, .scratch = scratch};

    for (size_t i = 0; i < buffer->lines.n; i += r.n) {
        FL_TRY(open_rows(&r, buffer, i));
        FL_TRY(note_rows(&r, note, to));
    }
    return FLEET_OK;
}
