/* data_line.c - fields of lines. */
#include "data_line.h"

#include <stdio.h>

static data_field *add_field(data_line *to, const char *name, field_kind kind,
                             int n, const int64_t *value)
{
    data_field *f = &to->field[to->n++];

    *f = (data_field){.kind = kind, .n = n, .most = n, .value = value};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

void data_line_of_log(const hidden_model *m, const hidden_line *l,
                      data_line *to)
{
    char name[24];

    add_field(to, "click", LABEL_FIELD, 1, &l->label);
    if (m->n_dense > 0)
        add_field(to, "counts", COUNT_FIELD, m->n_dense, l->count);
    for (int s = 0; s < m->n_slot; s++) {
        snprintf(name, sizeof name, "slot_%d", s);
        add_field(to, name, ID_FIELD, 1, &l->id[s]);
    }
}

void data_line_of_sequence(const sequence_model *m, const sequence_line *l,
                           data_line *to)
{
    if (!m->pairs)
        add_field(to, "click", LABEL_FIELD, 1, &l->label);
    add_field(to, "history", HISTORY_FIELD, m->most, l->history);
    add_field(to, "item", ITEM_FIELD, 1, &l->item);
    if (m->pairs)
        add_field(to, "log_q", LOG_Q_FIELD, 1, NULL)->real = &l->log_q;
}

void data_line_measure(data_line *line, const sequence_line *l)
{
    for (int i = 0; i < line->n; i++)
        if (line->field[i].kind == HISTORY_FIELD)
            line->field[i].n = l->n;
}

bool data_field_has_ids(const data_field *f)
{
    return f->kind == ID_FIELD || f->kind == HISTORY_FIELD ||
           f->kind == ITEM_FIELD;
}
