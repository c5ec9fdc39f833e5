/* parquet_file.c - columns of a group of rows, until it is written. */
#include "parquet_file.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "data/format/parquet_reader.h"

enum {
    MOST_COLUMN = MOST_DENSE + MOST_FIELD,
    GROUP_BYTES = 16 << 20, /* of values, about */
    MOST_ROWS = 1 << 16     /* of a group */
};

/* Of the values of a field, or of one of several counts. */
typedef struct value_column {
    int field, at;
    int64_t *value;    /* of 64 bits, whatever their kind */
    uint32_t *offsets; /* of a list: [rows + 1] */
    size_t n, capacity, offsets_capacity;
} value_column;

struct parquet_file {
    const fl_parquet_table *table;
    fl_parquet_writer *writer;
    int n;
    fl_parquet_column what[MOST_COLUMN];
    value_column column[MOST_COLUMN];
    char name[MOST_COLUMN][24];
    int64_t rows; /* that no group has yet */
    size_t bytes;
};

static fl_parquet_kind kind_of(const data_field *f)
{
    if (f->kind == LOG_Q_FIELD)
        return FL_PARQUET_REAL;
    return data_field_has_ids(f) ? FL_PARQUET_UINT : FL_PARQUET_INT;
}

static int count_columns(const data_field *f)
{
    return f->kind == COUNT_FIELD ? f->n : 1;
}

/* at: which count. */
static void add_column(parquet_file *f, const data_line *line, int field,
                       int at)
{
    const data_field *from = &line->field[field];
    const int i = f->n++;

    if (from->kind == COUNT_FIELD)
        snprintf(f->name[i], sizeof f->name[i], "count_%d", at);
    else
        snprintf(f->name[i], sizeof f->name[i], "%s", from->name);
    f->column[i] = (value_column){.field = field, .at = at};
    f->what[i] = (fl_parquet_column){.name = f->name[i],
                                     .kind = kind_of(from),
                                     .is_list = from->kind == HISTORY_FIELD};
}

fleet_status parquet_file_create(const char *path, const data_line *line,
                                 parquet_file **file)
{
    const fl_parquet_table *table;
    parquet_file *f;
    fleet_status status;

    *file = NULL;
    FL_TRY(fl_parquet_reader_table(&table));
    FL_TRY(FL_NEW(&f, sizeof *f));
    f->table = table;
    for (int i = 0; i < line->n; i++)
        for (int k = 0; k < count_columns(&line->field[i]); k++)
            add_column(f, line, i, k);
    status = table->create(path, f->what, f->n, &f->writer);
    if (status != FLEET_OK) {
        parquet_file_close(f);
        return status;
    }
    *file = f;
    return FLEET_OK;
}

static fleet_status write_group(parquet_file *f)
{
    static fl_parquet_piece piece[MOST_COLUMN];

    for (int i = 0; i < f->n; i++)
        piece[i] = (fl_parquet_piece){.n = f->column[i].n,
                                      .values = f->column[i].value,
                                      .offsets = f->column[i].offsets};
    FL_TRY(f->table->write(f->writer, f->rows, piece));
    for (int i = 0; i < f->n; i++)
        f->column[i].n = 0;
    f->rows = 0;
    f->bytes = 0;
    return FLEET_OK;
}

static fleet_status add_value(value_column *c, const data_field *f, int i)
{
    FL_TRY(fl_grow(&c->value, &c->capacity, c->n + 1, sizeof *c->value));
    if (f->kind == LOG_Q_FIELD)
        memcpy(&c->value[c->n++], &f->real[i], sizeof *c->value);
    else
        c->value[c->n++] = f->value[i];
    return FLEET_OK;
}

/* All values of a row of a list. */
static fleet_status add_list(value_column *c, const data_field *f, int64_t row)
{
    FL_TRY(fl_grow(&c->offsets, &c->offsets_capacity, (size_t)row + 2,
                   sizeof *c->offsets));
    c->offsets[0] = 0;
    for (int i = 0; i < f->n; i++)
        FL_TRY(add_value(c, f, i));
    c->offsets[row + 1] = (uint32_t)c->n;
    return FLEET_OK;
}

fleet_status parquet_file_add(parquet_file *f, const data_line *line)
{
    for (int i = 0; i < f->n; i++) {
        value_column *c = &f->column[i];
        const data_field *from = &line->field[c->field];
        const size_t before = c->n;

        FL_TRY(f->what[i].is_list ? add_list(c, from, f->rows)
                                  : add_value(c, from, c->at));
        f->bytes += (c->n - before) * sizeof *c->value;
    }
    f->rows++;
    return f->rows == MOST_ROWS || f->bytes >= GROUP_BYTES ? write_group(f)
                                                           : FLEET_OK;
}

fleet_status parquet_file_finish(parquet_file *f)
{
    if (f->rows > 0)
        FL_TRY(write_group(f));
    return f->table->finish(f->writer);
}

void parquet_file_close(parquet_file *f)
{
    if (!f)
        return;
    f->table->abandon(f->writer);
    for (int i = 0; i < f->n; i++) {
        fl_free(f->column[i].value);
        fl_free(f->column[i].offsets);
    }
    fl_free(f);
}
