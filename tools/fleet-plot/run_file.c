/* run_file.c - lines of a metrics_log, one after the other. */
#include "run_file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "fleet/watch/metric_log.h"

const char *const column_name[] = {"loss",
                                   "validation_loss",
                                   "validation_auc",
                                   "validation_logloss",
                                   "validation_accuracy",
                                   "learning_rate",
                                   "samples_per_s",
                                   NULL};
const char *const axis_name[] = {"step", "samples", "time", NULL};

/* A line of a metrics_log has some 400 bytes. */
enum { MOST_LINE = 1 << 16, MOST_CELLS = 24 };

typedef struct reading {
    const char *path, *label;
    FILE *file;
    axis by;
    bool all, csv;
    int cells;    /* of a row of CSV */
    int64_t line; /* its number */
    char *text;   /* of the line, MOST_LINE + 2 bytes */
    size_t length;
    bool is_whole; /* it has its newline */
    run_list *to;
    size_t first;  /* in the list: the file's first run */
    int64_t n_run; /* of the file */
} reading;

/* The numbers of a line: NAN where it has the key and no number, and where it
 * has no such key `has` is false. */
typedef struct numbers {
    double x, time, of[N_COLUMN];
    bool has_x, has_time, has[N_COLUMN];
} numbers;

/* Differences of larger ones would not be finite. */
static bool can_be_drawn(double x)
{
    return fabs(x) <= 1e300;
}

static fleet_status refuse(const reading *r, const char *expected)
{
    char got[FL_MOST_ESCAPED];

    snprintf(got, sizeof got, "%.60s", r->text);
    fl_text_escape(got, sizeof got);
    return fl_fail(FLEET_EFORMAT, "%s:%lld: expected %s, got \"%s\"%s", r->path,
                   (long long)r->line, expected, got,
                   r->length > 60 ? "..." : "");
}

/* --- runs ----------------------------------------------------------------- */

static void run_done(run *x)
{
    for (int i = 0; i < N_COLUMN; i++)
        series_done(&x->of[i]);
    fl_free(x->label);
    *x = (run){0};
}

void runs_done(run_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        run_done(&l->run[i]);
    fl_free(l->run);
    *l = (run_list){0};
}

/* Where the last one counts alone the one before goes. */
static fleet_status begin_run(reading *r, const char *id, size_t n)
{
    run_list *l = r->to;
    run *new;

    if (!r->all && r->n_run > 0)
        run_done(&l->run[--l->n]);
    FL_TRY(fl_grow(&l->run, &l->capacity, l->n + 1, sizeof *l->run));
    new = &l->run[l->n];
    *new = (run){.label = fl_strdup(r->label)};
    l->n++;
    r->n_run++;
    snprintf(new->id, sizeof new->id, "%.*s", n < 16 ? (int)n : 16, id);
    return new->label ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status add_line(reading *r, const numbers *line)
{
    run *to = &r->to->run[r->to->n - 1];
    double x = r->by == BY_TIME ? line->time : line->x;
    /* a line of a validation alone has no batch, so that no loss is missing */
    const bool stands = to->lines > 0 && line->x == to->newest;

    if (!to->has_begun && line->has_time) {
        to->has_begun = true;
        to->begun = line->time;
    }
    if (r->by == BY_TIME ? !line->has_time : !line->has_x)
        return refuse(r, r->by == BY_TIME      ? "a number \"time\""
                         : r->by == BY_SAMPLES ? "a number \"samples\""
                                               : "a number \"step\"");
    x -= r->by == BY_TIME ? to->begun : 0;
    for (int i = 0; i < N_COLUMN; i++) {
        if (line->has[i] && can_be_drawn(line->of[i]))
            FL_TRY(series_add(&to->of[i], x, line->of[i]));
        else if (line->has[i] && !stands)
            series_lose(&to->of[i]);
    }
    to->newest = line->x;
    to->lines++;
    return FLEET_OK;
}

/* --- JSON ----------------------------------------------------------------- */

/* null is a number that is not known. */
static fleet_status take_number(reading *r, const fl_at *line, const char *key,
                                bool *has, double *x)
{
    const fl_at at = fl_at_key(line, key);
    char expected[60];

    *has = at.json != NULL;
    *x = (double)NAN;
    if (!at.json || fl_at_is_null(&at))
        return FLEET_OK;
    snprintf(expected, sizeof expected, "a number \"%s\"", key);
    return fl_at_double(&at, (double)-INFINITY, (double)INFINITY, x) == FLEET_OK
               ? FLEET_OK
               : refuse(r, expected);
}

static fleet_status take_object(reading *r, const fl_at *line)
{
    const fl_at of_run = fl_at_key(line, "run");
    const char *id = NULL;
    numbers n = {0};

    FL_TRY(take_number(r, line, "time", &n.has_time, &n.time));
    if (of_run.json) {
        if (fl_at_string(&of_run, &id) != FLEET_OK)
            return refuse(r, "a string \"run\"");
        FL_TRY(begin_run(r, id, strlen(id)));
        r->to->run[r->to->n - 1].has_begun = n.has_time && can_be_drawn(n.time);
        r->to->run[r->to->n - 1].begun = n.time;
        return FLEET_OK;
    }
    if (r->n_run == 0)
        return refuse(r, "a line that begins with {\"run\":");
    FL_TRY(take_number(r, line, r->by == BY_SAMPLES ? "samples" : "step",
                       &n.has_x, &n.x));
    n.has_x = n.has_x && can_be_drawn(n.x);
    n.has_time = n.has_time && can_be_drawn(n.time);
    for (int i = 0; i < N_COLUMN; i++)
        FL_TRY(take_number(r, line, column_name[i], &n.has[i], &n.of[i]));
    return add_line(r, &n);
}

static fleet_status take_json(reading *r)
{
    fl_json *json;
    fl_at line;
    fleet_status status = fl_json_parse(r->text, r->length, r->path, &json);

    if (status != FLEET_OK)
        return status == FLEET_ENOMEM ? status : refuse(r, "a line of JSON");
    line = fl_at_root(json);
    status = fl_at_is_object(&line) ? take_object(r, &line)
                                    : refuse(r, "an object of JSON");
    fl_json_free(json);
    return status;
}

/* --- CSV ------------------------------------------------------------------ */

/* Which of them is it? They stand as in fl_metric_columns[]. -1: none. */
static int cell_of(const char *name)
{
    const char *at = fl_metric_columns;
    const size_t n = strlen(name);

    for (int i = 0; *at; i++) {
        const size_t length = strcspn(at, ",");

        if (length == n && memcmp(at, name, n) == 0)
            return i;
        at += length + (at[length] == ',');
    }
    return -1;
}

/* In place. How many there are; one more than MOST_CELLS if there are more. */
static int split(char *text, char *cell[MOST_CELLS])
{
    int n = 0;

    for (;; text++) {
        if (n < MOST_CELLS)
            cell[n] = text;
        n++;
        text = strchr(text, ',');
        if (!text || n > MOST_CELLS)
            return n;
        *text = 0;
    }
}

/* An empty one is not known. */
static bool take_cell(char *const cell[], const char *name, bool *has,
                      double *x)
{
    const char *text = cell[cell_of(name)];
    char *end;

    *x = (double)NAN;
    *has = true;
    if (!*text)
        return true;
    *x = fl_text_number(text, &end);
    return *end == 0 && end > text;
}

static bool take_cells(const reading *r, char *const cell[], numbers *n)
{
    bool good =
        take_cell(cell, axis_name[r->by == BY_SAMPLES], &n->has_x, &n->x) &&
        take_cell(cell, "time", &n->has_time, &n->time);

    n->has_x = can_be_drawn(n->x);
    n->has_time = can_be_drawn(n->time);
    for (int i = 0; good && i < N_COLUMN; i++) {
        good = take_cell(cell, column_name[i], &n->has[i], &n->of[i]);
        /* a row without a validation has empty cells of it */
        if (i >= VALIDATION_LOSS && i <= VALIDATION_ACCURACY)
            n->has[i] = *cell[cell_of(column_name[i])] != 0;
    }
    return good;
}

static fleet_status take_row(reading *r)
{
    const run *last;
    char *cell[MOST_CELLS], row[MOST_LINE + 2], expected[60];
    numbers n = {0};

    memcpy(row, r->text, r->length + 1);
    snprintf(expected, sizeof expected,
             "a run and %d numbers with commas between them", r->cells - 1);
    if (split(row, cell) != r->cells || strlen(row) != 16)
        return refuse(r, expected);
    last = r->n_run > 0 ? &r->to->run[r->to->n - 1] : NULL;
    if (!last || strcmp(last->id, cell[0]) != 0)
        FL_TRY(begin_run(r, cell[0], strlen(cell[0])));
    return take_cells(r, cell, &n) ? add_line(r, &n) : refuse(r, expected);
}

/* --- a file --------------------------------------------------------------- */

/* *more: there was one. */
static fleet_status next_line(reading *r, bool *more)
{
    int c = 0;

    r->length = 0;
    while (r->length <= MOST_LINE && (c = getc_unlocked(r->file)) != EOF &&
           c != '\n')
        r->text[r->length++] = (char)c;
    r->text[r->length] = 0;
    if (ferror(r->file))
        return fl_fail(FLEET_EIO, "cannot read %s: %s", r->path,
                       strerror(errno));
    r->line++;
    r->is_whole = c == '\n';
    *more = r->is_whole || r->length > 0;
    return r->length <= MOST_LINE ? FLEET_OK
                                  : refuse(r, "lines of at most 65,536 bytes");
}

/* Further columns may be behind those that are drawn. */
static bool begins_columns(reading *r)
{
    const size_t n = strlen(fl_metric_columns);

    r->csv = strncmp(r->text, fl_metric_columns, n) == 0 &&
             (r->text[n] == 0 || r->text[n] == ',');
    r->cells = cell_of("time") + 1;
    for (const char *at = r->text + n; r->csv && *at; at++)
        r->cells += *at == ',';
    return r->csv;
}

static fleet_status take_line(reading *r)
{
    static const char begins[] = "{\"run\":";

    if (memchr(r->text, 0, r->length))
        return refuse(r, "text");
    if (r->line > 1)
        return r->csv ? take_row(r) : take_json(r);
    if (begins_columns(r))
        return FLEET_OK;
    if (strncmp(r->text, begins, strlen(begins)) != 0)
        return refuse(r,
                      "a metrics_log: {\"run\":, or the names of its columns "
                      "with commas between them");
    return take_json(r);
}

/* One that is being written, or that a crash has cut off, tells nothing. */
static fleet_status read_lines(reading *r)
{
    bool more;

    for (;;) {
        FL_TRY(next_line(r, &more));
        if (!more)
            break;
        if (!r->is_whole) {
            fprintf(stderr,
                    "fleet-plot: %s: its last line is not whole: left out\n",
                    r->path);
            break;
        }
        FL_TRY(take_line(r));
    }
    return r->n_run > 0 ? FLEET_OK
                        : fl_fail(FLEET_EFORMAT,
                                  "%s is empty: expected lines of a "
                                  "metrics_log, of one run at least",
                                  r->path);
}

/* Several of one file are told apart by their ids. */
static fleet_status label_runs(const reading *r)
{
    for (size_t i = r->first; r->n_run > 1 && r->all && i < r->to->n; i++) {
        run *one = &r->to->run[i];
        fl_text label = {0};

        fl_text_add(&label, "%s %.4s", one->label, one->id);
        FL_TRY(label.status);
        fl_free(one->label);
        one->label = label.chars;
    }
    if (r->n_run > 1 && !r->all)
        fprintf(stderr,
                "fleet-plot: %s has %lld runs: the last one is drawn, --all "
                "draws each\n",
                r->path, (long long)r->n_run);
    return FLEET_OK;
}

static fleet_status read_runs(reading *r)
{
    FL_TRY(FL_NEW(&r->text, MOST_LINE + 2));
    FL_TRY(read_lines(r));
    return label_runs(r);
}

fleet_status runs_read(run_list *l, const char *path, const char *label,
                       axis by, bool all)
{
    const bool is_input = strcmp(path, "-") == 0;
    reading r = {.path = is_input ? "standard input" : path,
                 .label = label,
                 .by = by,
                 .all = all,
                 .to = l,
                 .first = l->n};
    fleet_status status;

    r.file = is_input ? stdin : fopen(path, "re");
    if (!r.file)
        return fl_fail(FLEET_EIO, "cannot open %s: %s", path, strerror(errno));
    status = read_runs(&r);
    fl_free(r.text);
    if (!is_input)
        fclose(r.file);
    return status;
}
