/* parquet_kit.c - see parquet_kit.h. */
#define SUITE parquet_kit
#include "parquet_kit.h"
#include "test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/memory.h"
#include "runtime/device/plugin.h"

const fl_parquet_table *parquet_table(void)
{
    const fl_plugin *plugin;

    setenv("FLEET_PLUGIN_PATH", test_beside("."), 1);
    if (fl_plugin_open("arrow", &plugin) != FLEET_OK)
        test_skip("%s", fleet_last_error());
    CHECK(plugin->parquet != NULL);
    return plugin->parquet;
}

static fl_parquet_kind kind_of(char letter)
{
    switch (tolower(letter)) {
    case 'i':
        return FL_PARQUET_INT;
    case 'u':
        return FL_PARQUET_UINT;
    case 'r':
        return FL_PARQUET_REAL;
    default:
        return FL_PARQUET_TEXT;
    }
}

void parquet_open(parquet_sheet *s, const char *path, const char *const *name,
                  const char *kinds)
{
    *s = (parquet_sheet){.table = parquet_table(), .n = (int)strlen(kinds)};
    for (int i = 0; i < s->n; i++)
        s->column[i] = (fl_parquet_column){name[i], kind_of(kinds[i]),
                                           isupper(kinds[i]) != 0};
    CHECK_OK(s->table->create(path, s->column, s->n, &s->writer));
}

/* The row of a column that is no list. */
static void put_there(parquet_sheet *s, int column, bool there)
{
    parquet_cells *c = &s->cells[column];

    if (s->column[column].is_list)
        return;
    CHECK_OK(fl_grow(&c->there, &c->there_capacity, c->rows + 1, 1));
    c->there[c->rows++] = there;
}

static void put_value(parquet_sheet *s, int column, uint64_t bits)
{
    parquet_cells *c = &s->cells[column];

    CHECK_OK(
        fl_grow(&c->values, &c->values_capacity, c->n + 1, sizeof *c->values));
    c->values[c->n++] = bits;
}

void parquet_int(parquet_sheet *s, int column, int64_t x)
{
    put_value(s, column, (uint64_t)x);
    put_there(s, column, true);
}

void parquet_real(parquet_sheet *s, int column, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    put_value(s, column, bits);
    put_there(s, column, true);
}

static void add_text(parquet_sheet *s, int column, const char *text, size_t n)
{
    parquet_cells *c = &s->cells[column];
    size_t at;

    CHECK_OK(
        fl_grow(&c->begins, &c->begins_capacity, c->n + 2, sizeof *c->begins));
    if (c->n == 0)
        c->begins[0] = 0;
    at = c->begins[c->n];
    CHECK_OK(fl_grow(&c->bytes, &c->bytes_capacity, at + n + 1, 1));
    memcpy(c->bytes + at, text, n);
    c->begins[++c->n] = (uint32_t)(at + n);
}

void parquet_text(parquet_sheet *s, int column, const char *text, size_t n)
{
    add_text(s, column, text, n);
    put_there(s, column, true);
}

void parquet_null(parquet_sheet *s, int column)
{
    if (s->column[column].kind == FL_PARQUET_TEXT)
        add_text(s, column, "", 0);
    else
        put_value(s, column, 0);
    put_there(s, column, false);
}

void parquet_list(parquet_sheet *s, int column)
{
    parquet_cells *c = &s->cells[column];

    CHECK_OK(fl_grow(&c->offsets, &c->offsets_capacity, c->rows + 2,
                     sizeof *c->offsets));
    c->offsets[0] = 0;
    c->offsets[++c->rows] = (uint32_t)c->n;
}

void parquet_group(parquet_sheet *s)
{
    fl_parquet_piece piece[PARQUET_MOST];

    for (int i = 0; i < s->n; i++) {
        const parquet_cells *c = &s->cells[i];
        const bool text = s->column[i].kind == FL_PARQUET_TEXT;

        CHECK_INT(c->rows, s->cells[0].rows);
        piece[i] = (fl_parquet_piece){
            .n = c->n,
            .values = text ? (void *)c->begins : (void *)c->values,
            .bytes = c->bytes,
            .offsets = s->column[i].is_list ? c->offsets : NULL,
            .there = s->column[i].is_list ? NULL : c->there};
    }
    CHECK_OK(s->table->write(s->writer, (int64_t)s->cells[0].rows, piece));
    for (int i = 0; i < s->n; i++)
        s->cells[i].n = s->cells[i].rows = 0;
}

void parquet_close(parquet_sheet *s)
{
    if (s->cells[0].rows > 0)
        parquet_group(s);
    CHECK_OK(s->table->finish(s->writer));
    s->table->abandon(s->writer);
    for (int i = 0; i < s->n; i++) {
        parquet_cells *c = &s->cells[i];

        fl_free(c->values);
        fl_free(c->begins);
        fl_free(c->offsets);
        fl_free(c->bytes);
        fl_free(c->there);
    }
}

/* --- Adult ---------------------------------------------------------------- */

enum { ADULT_COLUMNS = 15 };

static const char *const adult_names[ADULT_COLUMNS] = {
    "age",     "workclass",  "fnlwgt",       "education", "edunum",
    "marital", "occupation", "relationship", "race",      "sex",
    "gain",    "loss",       "hours",        "country",   "income"};
static const char adult_kinds[] = "itititttttiiitt";

/* A line of "a, b, c" as a row; false: it has no 15 cells. */
static bool put_line(parquet_sheet *s, char *line)
{
    char *cell = strtok(line, ",\n");
    int i = 0;

    for (; cell && i < ADULT_COLUMNS; i++, cell = strtok(NULL, ",\n")) {
        cell += strspn(cell, " ");
        if (adult_kinds[i] == 'i')
            parquet_int(s, i, atoll(cell));
        else
            parquet_text(s, i, cell, strlen(cell));
    }
    return i == ADULT_COLUMNS;
}

void parquet_adult(const char *csv, const char *parquet, int rows)
{
    const char *source = getenv("FLEET_SOURCE");
    char path[1000], line[400];
    FILE *text = fopen(csv, "w");
    parquet_sheet s;
    gzFile from;

    parquet_open(&s, parquet, adult_names, adult_kinds);
    snprintf(path, sizeof path, "%s/samples/data/adult/adult.data.gz",
             source ? source : ".");
    from = gzopen(path, "rb");
    if (!from)
        test_skip("there is no %s", path);
    for (int i = 0; i < rows && gzgets(from, line, sizeof line); i++) {
        fputs(line, text);
        CHECK(put_line(&s, line));
        if (i % 7000 == 6999)
            parquet_group(&s);
    }
    gzclose(from);
    fclose(text);
    parquet_close(&s);
}
