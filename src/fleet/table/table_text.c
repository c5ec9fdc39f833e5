/* table_text.c - a line with what there is, then a line for each row. Without
 * states that is word2vec's text format. */
#include "fleet/table/table_text.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/io/unpack.h"
#include "data/text/text_lines.h"

static const char updates_name[] = "updates";

/* Of an accessor's numbers, behind the states. */
static const char *const shown_names[FL_N_ACCESSOR] = {[FL_AT_SHOW] = "show",
                                                       [FL_AT_CLICK] = "click",
                                                       [FL_AT_DELTA_SCORE] =
                                                           "delta_score",
                                                       [FL_AT_SEEN] = "seen"};

/* --- writing -------------------------------------------------------------- */

typedef struct text_writer {
    fl_writer *file;
    fl_table_text_kind kind;
    fl_text line;
} text_writer;

static void put_numbers(fl_text *t, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        fl_text_add(t, " %.9g", (double)x[i]);
}

static fleet_status put_line(text_writer *w)
{
    fl_text_bytes(&w->line, "\n", 1);
    FL_TRY(w->line.status);
    fl_writer_put(w->file, w->line.chars, w->line.length);
    w->line.length = 0;
    return w->file->status;
}

static fleet_status write_rows(void *arg, const fl_saved_record *r)
{
    text_writer *w = arg;
    int64_t dim = r->item->shape.dim[1], n = (int64_t)r->head.n;
    int64_t width = fl_saved_width(r->item);
    const fl_saved_rows at = fl_saved_rows_of(r);
    const float *row = (const float *)(const void *)at.values;

    if (r->head.kind != FL_RECORD_ROWS)
        return FLEET_OK;
    for (int64_t i = 0; i < n; i++, row += width) {
        uint64_t key;
        uint32_t step;

        memcpy(&key, at.keys + i * (int64_t)sizeof key, sizeof key);
        memcpy(&step, at.steps + i * (int64_t)sizeof step, sizeof step);
        fl_text_add(&w->line, "%llu", (unsigned long long)key);
        put_numbers(&w->line, row, dim);
        if (w->kind == FL_TEXT_STATES) {
            fl_text_add(&w->line, " %u", (unsigned)step);
            put_numbers(&w->line, row + dim, width - dim);
        } else if (w->kind == FL_TEXT_COUNTS && r->item->accessor) {
            put_numbers(&w->line, row + width - FL_N_ACCESSOR, FL_N_ACCESSOR);
        }
        FL_TRY(put_line(w));
    }
    return FLEET_OK;
}

fleet_status fl_table_text_write(const fl_saved *s, fl_table_text_kind kind,
                                 fl_writer *w)
{
    const fl_saved_item *item = &s->table[0];
    const bool states = kind == FL_TEXT_STATES;
    const bool counts = kind != FL_TEXT_WEIGHTS && item->accessor;
    text_writer writer = {.file = w, .kind = kind};
    fleet_status status;

    fl_text_add(&writer.line, "%lld %lld", (long long)item->n,
                (long long)item->shape.dim[1]);
    if (states)
        fl_text_add(&writer.line, " %s", updates_name);
    for (int i = 0; states && i < item->n_state + item->n_row; i++)
        fl_text_add(&writer.line, " %s", item->state[i]);
    for (int i = 0; counts && i < FL_N_ACCESSOR; i++)
        fl_text_add(&writer.line, " %s", shown_names[i]);
    status = put_line(&writer);
    if (status == FLEET_OK)
        status = fl_saved_each(s, write_rows, &writer);
    fl_text_done(&writer.line);
    return status;
}

/* --- lines ---------------------------------------------------------------- */

/* A file, a line at a time; FL_TEXT_PAD bytes are readable around it. */
typedef struct line_reader {
    const char *path;
    fl_unpack *file;
    char *memory; /* the pad, then what was read and is no line yet */
    size_t capacity;
    size_t begin, end; /* of it, in memory */
    bool ended;
    int64_t number;
    const char *line; /* the last that was read */
    size_t size;
} line_reader;

static fleet_status wrong_line(const line_reader *r, const char *what)
{
    return fl_fail(FLEET_EFORMAT, "%s:%lld: %s", r->path, (long long)r->number,
                   what);
}

/* More bytes behind what is left, which moves to the front. */
static fleet_status read_more(line_reader *r)
{
    size_t left = r->end - r->begin, room = left + FL_BLOCK_SIZE, got = 0;

    if (left > FL_LINE_LIMIT) {
        r->number++;
        return wrong_line(r, "a line of more than 64 MB");
    }
    if (r->begin > FL_TEXT_PAD)
        memmove(r->memory + FL_TEXT_PAD, r->memory + r->begin, left);
    r->begin = FL_TEXT_PAD;
    r->end = FL_TEXT_PAD + left;
    FL_TRY(fl_grow(&r->memory, &r->capacity, room + 2 * FL_TEXT_PAD, 1));
    FL_TRY(fl_unpack_read(r->file, r->memory + r->end, FL_BLOCK_SIZE, &got));
    r->ended = got == 0;
    r->end += got;
    return FLEET_OK;
}

/* The next line without its end; false: there is none. */
static fleet_status next_line(line_reader *r, bool *any)
{
    size_t looked = 0;
    char *newline = NULL;

    *any = false;
    for (;;) {
        size_t left = r->end - r->begin;

        if (left > looked)
            newline =
                memchr(r->memory + r->begin + looked, '\n', left - looked);
        if (newline || r->ended)
            break;
        looked = left;
        FL_TRY(read_more(r));
    }
    if (!newline && r->begin == r->end)
        return FLEET_OK;
    r->line = r->memory + r->begin;
    r->size = newline ? (size_t)(newline - r->line) : r->end - r->begin;
    r->begin += r->size + (newline != NULL);
    r->number++;
    *any = true;
    return FLEET_OK;
}

/* The next word of a line: [*s, end of it); false: there is none. */
static bool next_word(const line_reader *r, const char **s, const char **end)
{
    const char *last = r->line + r->size;

    while (*s < last && fl_is_blank(**s))
        (*s)++;
    *end = *s;
    while (*end < last && !fl_is_blank(**end))
        (*end)++;
    return *end > *s;
}

/* --- reading -------------------------------------------------------------- */

/* A state of any rule by its name; *of_row: it is a row's, not a weight's. */
static const char *known_state(const char *s, size_t n, bool *of_row)
{
    for (int k = 0; k < FL_N_RULE; k++) {
        const fl_rule *rule = fl_rule_of((fl_rule_kind)k);

        for (int i = 0; i < rule->n_state + rule->n_row; i++) {
            *of_row = i >= rule->n_state;
            if (strlen(rule->state[i]) == n &&
                memcmp(rule->state[i], s, n) == 0)
                return rule->state[i];
        }
    }
    return NULL;
}

/* Weights' states come before rows'. */
static bool add_state(fl_table_text_head *h, const char *name, bool of_row)
{
    int n = h->n_state + h->n_row;

    if (!name || (of_row ? h->n_row == FL_MAX_ROW
                         : h->n_state == FL_MAX_STATE || h->n_row > 0))
        return false;
    for (int i = 0; i < n; i++)
        if (strcmp(h->state[i], name) == 0)
            return false;
    h->state[n] = name;
    h->n_state += !of_row;
    h->n_row += of_row;
    return true;
}

static bool is_word(const char *s, const char *end, const char *word)
{
    return (size_t)(end - s) == strlen(word) &&
           memcmp(s, word, strlen(word)) == 0;
}

/* They are the last words of the line. */
static fleet_status read_shown(const line_reader *r, const char *s,
                               fl_table_text_head *h)
{
    const char *end;

    for (int i = 0; i < FL_N_ACCESSOR; i++, s = end)
        if (!next_word(r, &s, &end) || !is_word(s, end, shown_names[i]))
            return wrong_line(r, "of what an accessor counts expected \"show "
                                 "click delta_score seen\"");
    h->accessor = true;
    return next_word(r, &s, &end)
               ? wrong_line(r, "expected the end of the line behind \"seen\"")
               : FLEET_OK;
}

static fleet_status read_states(const line_reader *r, const char *s,
                                fl_table_text_head *h)
{
    const char *end;

    if (!next_word(r, &s, &end))
        return FLEET_OK;
    if (is_word(s, end, shown_names[0]))
        return read_shown(r, s, h);
    h->states = is_word(s, end, updates_name);
    for (s = end; h->states && next_word(r, &s, &end); s = end) {
        bool of_row = false;
        const char *name;

        if (is_word(s, end, shown_names[0]))
            return read_shown(r, s, h);
        name = known_state(s, (size_t)(end - s), &of_row);

        if (!add_state(h, name, of_row))
            return wrong_line(r, "a state that no optimizer has");
    }
    return h->states
               ? FLEET_OK
               : wrong_line(r, "expected the end of the line, or \"updates\" "
                               "and the names of states, or \"show\" and what "
                               "else an accessor counts");
}

static fleet_status read_head(const line_reader *r, fl_table_text_head *h)
{
    const char *s = r->line, *end;
    uint64_t rows = 0, dim = 0;
    bool ok = next_word(r, &s, &end) && fl_parse_u64(s, end, &rows) &&
              rows <= FL_MOST_EXACT;

    s = end;
    ok = ok && next_word(r, &s, &end) && fl_parse_u64(s, end, &dim) &&
         dim >= 1 && dim <= 1 << 20;
    if (!ok)
        return wrong_line(r, "expected the number of rows and that of their "
                             "columns, 1 to 1048576");
    h->rows = (int64_t)rows;
    h->dim = (int64_t)dim;
    return read_states(r, end, h);
}

/* A text that is read. */
typedef struct table_text {
    line_reader reader;
    fl_table_text_head head;
    float *values;
    int64_t rows;
} table_text;

static fleet_status wrong_word(const line_reader *r, const char *what,
                               int64_t column, const char *s, const char *end)
{
    int n = end - s > 40 ? 40 : (int)(end - s);

    return n > 0
               ? fl_fail(FLEET_EFORMAT, "%s:%lld: %s %lld: \"%.*s\"", r->path,
                         (long long)r->number, what, (long long)column, n, s)
               : fl_fail(FLEET_EFORMAT,
                         "%s:%lld: %s %lld is missing: the line ends", r->path,
                         (long long)r->number, what, (long long)column);
}

static fleet_status read_numbers(const line_reader *r, const char **s,
                                 float *out, int64_t n, const char *what)
{
    const char *end;

    for (int64_t i = 0; i < n; i++) {
        if (!next_word(r, s, &end) || !fl_parse_float(*s, end, &out[i]))
            return wrong_word(r, what, i, *s, end);
        *s = end;
    }
    return FLEET_OK;
}

static fleet_status read_row(table_text *t, fl_table_text_row *row)
{
    const fl_table_text_head *h = &t->head;
    const line_reader *r = &t->reader;
    const char *s = r->line, *end;
    uint64_t step = 0;

    if (!next_word(r, &s, &end) || !fl_parse_u64(s, end, &row->key))
        return wrong_word(r, "the key in column", 0, s, end);
    s = end;
    FL_TRY(read_numbers(r, &s, t->values, h->dim, "weight"));
    if (h->states && (!next_word(r, &s, &end) || !fl_parse_u64(s, end, &step) ||
                      step > UINT32_MAX))
        return wrong_word(r, "the updates behind weight", h->dim - 1, s, end);
    if (h->states)
        s = end;
    FL_TRY(read_numbers(r, &s, t->values + h->dim,
                        fl_table_text_width(h) - h->dim,
                        "number of the states"));
    if (next_word(r, &s, &end))
        return wrong_line(r, "more numbers than the first line says");
    row->step = (uint32_t)step;
    row->values = t->values;
    return FLEET_OK;
}

static bool is_empty(const line_reader *r)
{
    const char *s = r->line, *end;

    return !next_word(r, &s, &end);
}

static fleet_status read_lines(table_text *t, fl_table_text_visitor *visit,
                               void *arg)
{
    line_reader *r = &t->reader;
    fl_table_text_row row;
    bool any;

    for (;;) {
        FL_TRY(next_line(r, &any));
        if (!any)
            break;
        if (is_empty(r))
            continue;
        FL_TRY(read_row(t, &row));
        if (t->rows++ == t->head.rows)
            return fl_fail(FLEET_EFORMAT,
                           "%s:%lld: another row, after the %lld of the first "
                           "line",
                           r->path, (long long)r->number,
                           (long long)t->head.rows);
        if (visit(arg, &t->head, &row) != FLEET_OK)
            return fl_fail_in(fl_last_code(), "%s:%lld", r->path,
                              (long long)r->number);
    }
    return t->rows == t->head.rows
               ? FLEET_OK
               : fl_fail(FLEET_EFORMAT,
                         "%s:%lld: the file ends after %lld of %lld rows",
                         r->path, (long long)r->number, (long long)t->rows,
                         (long long)t->head.rows);
}

static fleet_status read_all(table_text *t, fl_table_text_visitor *visit,
                             void *arg)
{
    size_t width;
    bool any = false;

    FL_TRY(next_line(&t->reader, &any));
    if (!any)
        return wrong_line(&t->reader, "the file is empty");
    FL_TRY(read_head(&t->reader, &t->head));
    width = (size_t)fl_table_text_width(&t->head);
    FL_TRY(FL_NEW(&t->values, width * sizeof *t->values));
    if (visit(arg, &t->head, NULL) != FLEET_OK)
        return fl_fail_in(fl_last_code(), "%s:1", t->reader.path);
    return read_lines(t, visit, arg);
}

fleet_status fl_table_text_read(const char *path, fl_table_text_visitor *visit,
                                void *arg)
{
    table_text t = {
        .reader = {.path = path, .begin = FL_TEXT_PAD, .end = FL_TEXT_PAD}};
    fleet_status status = fl_unpack_open(&t.reader.file, path);

    if (status == FLEET_OK)
        status = read_all(&t, visit, arg);
    fl_unpack_close(t.reader.file);
    fl_free(t.reader.memory);
    fl_free(t.values);
    return status;
}
