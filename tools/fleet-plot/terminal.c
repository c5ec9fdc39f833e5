/* terminal.c - curves of marks, or of dots of Braille (Unicode, U+2800). */
#include "terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* Of a run's curve, and of its validations beside it. */
static const char marks[] = "*o+x#@%&=~^!$:?;";
static const char validation_marks[] = "abcdefghijklmnop";
_Static_assert(sizeof marks == MOST_RUNS + 1 &&
                   sizeof validation_marks == MOST_RUNS + 1,
               "a mark for each run");

/* Colours of text that are readable on dark and on light. */
static const int colours[] = {36, 33, 32, 35, 31, 34, 96, 93,
                              92, 95, 91, 94, 37, 90, 97, 39};

enum { LABELS = 8, MOST_LABEL = 40 };

/* Cells of a panel, each with the dots and the curve that has drawn last. */
typedef struct cell {
    unsigned char dots;
    char mark; /* 0: nothing */
    int run;
} cell;

typedef struct grid {
    int width, height;  /* cells */
    int dots_x, dots_y; /* of a cell */
    cell *at;
    int step; /* every other dot of a validation is drawn */
} grid;

/* --- dots ----------------------------------------------------------------- */

/* Braille's dots are numbered down the left column, then down the right one,
 * and then those that were added below. */
static unsigned char dot_of(int x, int y)
{
    static const unsigned char bit[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

    return bit[y][x];
}

static void put_dot(grid *g, const curve *c, int x, int y)
{
    cell *to;

    if (x < 0 || y < 0 || x >= g->width * g->dots_x ||
        y >= g->height * g->dots_y)
        return;
    to = &g->at[y / g->dots_y * g->width + x / g->dots_x];
    to->dots |= dot_of(x % g->dots_x, y % g->dots_y);
    to->mark = c->is_validation ? validation_marks[c->run] : marks[c->run];
    to->run = c->run;
}

/* One dot for each column, or row, whichever are more. */
static void put_line(grid *g, const curve *c, int x0, int y0, int x1, int y1)
{
    const int dx = x1 - x0, dy = y1 - y0;
    const int n = abs(dx) > abs(dy) ? abs(dx) : abs(dy);

    for (int i = 0; i <= n; i++) {
        const double part = n > 0 ? (double)i / n : 0;

        if (!c->is_validation || g->step++ % 2 == 0)
            put_dot(g, c, x0 + (int)lround(part * dx),
                    y0 + (int)lround(part * dy));
    }
}

static int dot_x(const grid *g, const panel *p, double x)
{
    return (int)lround(scale_at(&p->x, x) * (g->width * g->dots_x - 1));
}

static int dot_y(const grid *g, const panel *p, double y)
{
    return (int)lround((1 - scale_at(&p->y, y)) * (g->height * g->dots_y - 1));
}

/* Validations of ASCII are marks alone. */
static void put_curve(grid *g, const panel *p, const curve *c)
{
    const bool lines = !c->is_validation || g->dots_x > 1;
    const bin *before = NULL;

    for (size_t i = 0; i < c->s->n; i++) {
        const bin *b = &c->s->bin[i];
        const int x = dot_x(g, p, b->from), y = dot_y(g, p, b->first);

        if (before && !b->behind_gap && lines)
            put_line(g, c, dot_x(g, p, before->to), dot_y(g, p, before->last),
                     x, y);
        g->step = 0;
        put_line(g, c, x, dot_y(g, p, b->least), x, dot_y(g, p, b->most));
        before = b;
    }
}

/* --- text ----------------------------------------------------------------- */

static void begin_colour(const terminal *t, int of_run, FILE *to)
{
    if (t->colours)
        fprintf(to, "\x1b[%dm", colours[of_run]);
}

static void end_colour(const terminal *t, FILE *to)
{
    if (t->colours)
        fputs("\x1b[0m", to);
}

/* U+2800 and its dots, in UTF-8. */
static void write_dots(unsigned char dots, FILE *to)
{
    putc(0xe2, to);
    putc(0xa0 | dots >> 6, to);
    putc(0x80 | (dots & 0x3f), to);
}

static void write_cells(const terminal *t, const grid *g, int row, FILE *to)
{
    const cell *at = &g->at[row * g->width];
    int end = g->width;

    while (end > 0 && !at[end - 1].mark)
        end--;
    for (int i = 0; i < end; i++) {
        const bool has = at[i].mark;

        if (has)
            begin_colour(t, at[i].run, to);
        if (has && t->braille)
            write_dots(at[i].dots, to);
        else
            putc(has ? at[i].mark : ' ', to);
        if (has)
            end_colour(t, to);
    }
}

/* The tick whose place is in that row. */
static const char *tick_in(const panel *p, int row, int rows)
{
    for (int i = 0; i < p->y.n_tick; i++) {
        const double at = (p->y.tick[i] - p->y.low) / (p->y.high - p->y.low);

        if (lround((1 - at) * (rows - 1)) == row)
            return p->y.text[i];
    }
    return "";
}

/* Below the panel, each in the middle of its place, unless it would touch the
 * one before. */
static void write_steps(const panel *p, int width, axis by, FILE *to)
{
    int at_column = 0;

    fprintf(to, "%*s  ", LABELS, "");
    for (int i = 0; i < p->x.n_tick; i++) {
        const int n = (int)strlen(p->x.text[i]);
        const double at = (p->x.tick[i] - p->x.low) / (p->x.high - p->x.low);
        int begin = (int)lround(at * (width - 1)) - n / 2;

        begin = begin < 0 ? 0 : begin;
        begin = begin + n > width ? width - n : begin;
        if (begin < 0 || (at_column > 0 && begin < at_column + 2))
            continue;
        fprintf(to, "%*s%s", begin - at_column, "", p->x.text[i]);
        at_column = begin + n;
    }
    fprintf(to, "  %s\n", by == BY_TIME ? "seconds" : axis_name[by]);
}

static void write_panel(const terminal *t, const chart *c, panel *p,
                        const grid *g, FILE *to)
{
    const char *bar = t->braille ? "\u2502" : "|";

    scale_ticks(&p->y, (g->height + 1) / 2);
    scale_ticks(&p->x, g->width / 8 > 1 ? g->width / 8 : 1);
    fprintf(to, "%s\n", column_name[p->shown]);
    for (int row = 0; row < g->height; row++) {
        fprintf(to, "%*s %s", LABELS, tick_in(p, row, g->height), bar);
        write_cells(t, g, row, to);
        putc('\n', to);
    }
    fprintf(to, "%*s %s", LABELS, "", t->braille ? "\u2514" : "+");
    for (int i = 0; i < g->width; i++)
        fputs(t->braille ? "\u2500" : "-", to);
    putc('\n', to);
    write_steps(p, g->width, c->by, to);
}

fleet_status terminal_draw(const terminal *t, chart *c, FILE *to)
{
    grid g = {.width = t->width - LABELS - 2,
              .height = t->height,
              .dots_x = t->braille ? 2 : 1,
              .dots_y = t->braille ? 4 : 1};
    const size_t n = (size_t)g.width * (size_t)g.height;

    FL_TRY(FL_NEW(&g.at, n * sizeof *g.at));
    for (int i = 0; i < c->n; i++) {
        panel *p = &c->panel[i];

        memset(g.at, 0, n * sizeof *g.at);
        for (int k = 0; k < p->n; k++)
            put_curve(&g, p, &p->curve[k]);
        write_panel(t, c, p, &g, to);
    }
    fl_free(g.at);
    return FLEET_OK;
}

/* --- what they came to ---------------------------------------------------- */

/* The best loss is the least one, of what is a score the largest one. */
static void add_found(fl_text *text, const run *r, column k, const char *of)
{
    const series *s = &r->of[k];
    const bool is_score = k == VALIDATION_AUC || k == VALIDATION_ACCURACY;

    if (s->n == 0)
        return;
    fl_text_add(text, ", %s %.6g", column_name[k], s->last);
    if (k <= VALIDATION_ACCURACY && k != LOSS)
        fl_text_add(text, " (best %.6g at %s %.9g)",
                    is_score ? s->most : s->least, of,
                    is_score ? s->most_x : s->least_x);
}

static void add_run(fl_text *text, const chart *c, int i)
{
    const run *r = &c->runs->run[i];
    const char *of = c->by == BY_TIME ? "second" : axis_name[c->by];
    char label[FL_MOST_ESCAPED];

    snprintf(label, sizeof label, "%.200s", r->label);
    fl_text_escape(label, sizeof label);
    fl_text_add(text, "%s: %lld lines", label, (long long)r->lines);
    for (int k = 0; k < N_COLUMN; k++)
        add_found(text, r, (column)k, of);
    for (int k = 0; k < N_COLUMN; k++)
        if (r->of[k].n_lost > 0)
            fl_text_add(text, "; %lld without %s", (long long)r->of[k].n_lost,
                        column_name[k]);
}

static bool has_validation(const chart *c, int of_run)
{
    bool has = false;

    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->panel[i].n; k++)
            has = has || (c->panel[i].curve[k].is_validation &&
                          c->panel[i].curve[k].run == of_run);
    return has;
}

fleet_status terminal_summary(const terminal *t, const chart *c, FILE *to)
{
    for (int i = 0; i < (int)c->runs->n; i++) {
        fl_text text = {0};

        begin_colour(t, i, to);
        if (!t->braille)
            fprintf(to, "%c ", marks[i]);
        else
            fputs("\u2501 ", to);
        end_colour(t, to);
        add_run(&text, c, i);
        if (!t->braille && has_validation(c, i))
            fl_text_add(&text, "; validations: %c", validation_marks[i]);
        fputs(fl_text_chars(&text), to);
        putc('\n', to);
        fl_text_done(&text);
        FL_TRY(text.status);
    }
    return FLEET_OK;
}
