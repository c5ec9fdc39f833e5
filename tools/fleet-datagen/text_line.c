/* text_line.c - fields of lines as words, cells and JSON. */
#include "text_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static char *put_value(const data_field *f, int i, char *to)
{
    if (f->kind == COUNT_FIELD)
        return to + sprintf(to, "%.6g", log1p((double)f->value[i]));
    if (f->kind == LOG_Q_FIELD)
        return to + sprintf(to, "%.6g", f->real[i]);
    return to + sprintf(to, "%" PRId64, f->value[i]);
}

/* The last character is what stood between words. */
static char *end_line(char *to)
{
    to[-1] = '\n';
    return to;
}

char *text_line_multislot(const data_line *l, char *to)
{
    for (int i = 0; i < l->n; i++) {
        const data_field *f = &l->field[i];

        to += sprintf(to, "%d ", f->n);
        for (int k = 0; k < f->n; k++) {
            to = put_value(f, k, to);
            *to++ = ' ';
        }
    }
    return end_line(to);
}

/* Counts as they are; ids as texts of 8 hex digits, but where two columns have
 * the same ones, as texts are hashed by their column. */
static char *put_cell(const data_field *f, int i, char *to)
{
    if (f->kind == ID_FIELD)
        return to + sprintf(to, "%08" PRIx64, f->value[i]);
    if (f->kind == COUNT_FIELD)
        return to + sprintf(to, "%" PRId64, f->value[i]);
    return put_value(f, i, to);
}

/* A history's columns are as many as it has items at most. */
static char *put_cells(const data_line *l, char by, char *to)
{
    for (int i = 0; i < l->n; i++) {
        const data_field *f = &l->field[i];

        for (int k = 0; k < f->most; k++) {
            if (k < f->n)
                to = put_cell(f, k, to);
            *to++ = by;
        }
    }
    return end_line(to);
}

char *text_line_csv(const data_line *l, char *to)
{
    return put_cells(l, ',', to);
}

char *text_line_criteo(const data_line *l, char *to)
{
    return put_cells(l, '\t', to);
}

char *text_line_slot_text(const data_line *l, char *to)
{
    for (int i = 0; i < l->n; i++) {
        const data_field *f = &l->field[i];

        for (int k = 0; k < f->n; k++) {
            to += sprintf(to, "%s:", f->name);
            to = put_value(f, k, to);
            *to++ = ' ';
        }
    }
    return end_line(to);
}

static char *put_list(const data_field *f, char *to)
{
    *to++ = '[';
    for (int k = 0; k < f->n; k++) {
        to = put_value(f, k, to);
        *to++ = ',';
    }
    to[-1] = ']';
    return to;
}

char *text_line_json(const data_line *l, char *to)
{
    *to++ = '{';
    for (int i = 0; i < l->n; i++) {
        const data_field *f = &l->field[i];

        to += sprintf(to, "%s\"%s\":", i > 0 ? "," : "", f->name);
        to = f->kind == COUNT_FIELD || f->kind == HISTORY_FIELD
                 ? put_list(f, to)
                 : put_value(f, 0, to);
    }
    *to++ = '}';
    *to++ = '\n';
    return to;
}

char *text_line_libsvm(const hidden_model *m, const hidden_line *l, char *to)
{
    to += sprintf(to, "%" PRId64 " ", l->label);
    for (int i = 0; i < m->n_dense; i++)
        to += sprintf(to, "%d:%.6g ", 1 + i, log1p((double)l->count[i]));
    for (int s = 0; s < m->n_slot; s++)
        to += sprintf(to, "%" PRId64 ":1 ",
                      1 + m->n_dense + s * m->n_id + l->rank[s]);
    return end_line(to);
}
