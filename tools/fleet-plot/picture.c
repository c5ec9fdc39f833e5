/* picture.c - panels in two columns, below what the colours mean. */
#include "picture.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

/* Colours that people tell apart who see colours otherwise (Okabe, Ito 2008),
 * without their yellow, then darker ones. */
static const uint32_t colours[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
                                   0xe69f00, 0x56b4e9, 0x000000, 0x999999,
                                   0x003a5c, 0x7a3600, 0x005c43, 0x84376a,
                                   0x8a6000, 0x1f6f99, 0x5b2a86, 0x6b8e23};
_Static_assert(sizeof colours / sizeof *colours == MOST_RUNS,
               "a colour for each run");

enum {
    INK = 0x202020,
    FAINT = 0xe2e2e2,
    LETTERS = 9, /* the height of a capital */
    MARGIN = 10,
    SWATCH = 22,
    KEY_LINE = 20,
    LEFT = 64, /* of a panel: numbers */
    ABOVE = 26,
    BELOW = 38,
    DASH = 6,
    MARKS = 80 /* validations that have room for a mark each */
};

typedef struct frame {
    double left, top, right, bottom;
} frame;

/* --- what the colours mean ------------------------------------------------ */

static void label_of(const run *r, char text[64])
{
    snprintf(text, 64, "%.60s", r->label);
    fl_text_escape(text, 64);
}

/* Where its next one begins; a line is begun where it would not fit. */
static void place_key(const chart *c, int i, int width, double *x, double *y)
{
    char text[64];
    double wide;

    label_of(&c->runs->run[i], text);
    wide = SWATCH + 6 + canvas_text_width(LETTERS, text);
    if (*x > MARGIN && *x + wide > width - MARGIN) {
        *x = MARGIN;
        *y += KEY_LINE;
    }
    *x += wide + 2 * MARGIN;
}

/* to NULL: how high they will be. */
static double draw_keys(const chart *c, int width, canvas *to)
{
    double x = MARGIN, y = MARGIN;
    char text[64];

    for (int i = 0; i < (int)c->runs->n; i++) {
        double begin, wide;

        place_key(c, i, width, &x, &y);
        if (!to)
            continue;
        label_of(&c->runs->run[i], text);
        wide = SWATCH + 6 + canvas_text_width(LETTERS, text) + 2 * MARGIN;
        begin = x - wide;
        canvas_line(to, begin, y + 5, begin + SWATCH, y + 5, 3);
        canvas_ink(to, colours[i]);
        canvas_text(to, begin + SWATCH + 6, y + LETTERS, LETTERS, text);
        canvas_ink(to, INK);
    }
    return y + KEY_LINE;
}

/* --- a panel's sides ------------------------------------------------------ */

static double place_x(const frame *f, const panel *p, double x)
{
    return f->left + scale_at(&p->x, x) * (f->right - f->left);
}

static double place_y(const frame *f, const panel *p, double y)
{
    return f->bottom - scale_at(&p->y, y) * (f->bottom - f->top);
}

static double tick_place(const scale *s, int i)
{
    return (s->tick[i] - s->low) / (s->high - s->low);
}

static void draw_grid(canvas *to, const frame *f, const panel *p)
{
    for (int i = 0; i < p->x.n_tick; i++) {
        const double x =
            round(f->left + tick_place(&p->x, i) * (f->right - f->left));

        canvas_line(to, x, f->top, x, f->bottom, 1);
    }
    for (int i = 0; i < p->y.n_tick; i++) {
        const double y =
            round(f->bottom - tick_place(&p->y, i) * (f->bottom - f->top));

        canvas_line(to, f->left, y, f->right, y, 1);
    }
    canvas_ink(to, FAINT);
}

static void draw_numbers(canvas *to, const frame *f, const panel *p)
{
    double free_from = 0;

    for (int i = 0; i < p->x.n_tick; i++) {
        const double wide = canvas_text_width(LETTERS, p->x.text[i]);
        const double x =
            f->left + tick_place(&p->x, i) * (f->right - f->left) - wide / 2;

        if (x < free_from || x + wide > to->width)
            continue;
        canvas_text(to, x, f->bottom + LETTERS + 6, LETTERS, p->x.text[i]);
        free_from = x + wide + 8;
    }
    for (int i = 0; i < p->y.n_tick; i++) {
        const double wide = canvas_text_width(LETTERS, p->y.text[i]);
        const double y =
            f->bottom - tick_place(&p->y, i) * (f->bottom - f->top);

        canvas_text(to, f->left - wide - 6, y + LETTERS / 2.0, LETTERS,
                    p->y.text[i]);
    }
}

static void draw_sides(canvas *to, const frame *f, panel *p, axis by)
{
    const char *below = by == BY_TIME ? "seconds" : axis_name[by];
    const double middle = (f->left + f->right) / 2;

    scale_ticks(&p->x, (int)((f->right - f->left) / 80));
    scale_ticks(&p->y, (int)((f->bottom - f->top) / 36));
    draw_grid(to, f, p);
    canvas_line(to, f->left, f->top, f->left, f->bottom, 1);
    canvas_line(to, f->left, f->bottom, f->right, f->bottom, 1);
    draw_numbers(to, f, p);
    canvas_text(to, f->left, f->top - 9, LETTERS, column_name[p->shown]);
    canvas_text(to, middle - canvas_text_width(LETTERS, below) / 2,
                f->bottom + 2 * LETTERS + 14, LETTERS, below);
    canvas_ink(to, INK);
}

/* --- curves --------------------------------------------------------------- */

/* done: how much of the curve is drawn, in pixels, by which dashes go on. */
static void draw_dashes(canvas *to, double x0, double y0, double x1, double y1,
                        double *done)
{
    const double length = hypot(x1 - x0, y1 - y0);
    double at = 0;

    while (at < length) {
        const double phase = fmod(*done, 2 * DASH);
        const double left = (phase < DASH ? DASH : 2 * DASH) - phase;
        const double end = fmin(at + fmax(left, 1e-3), length);

        if (phase < DASH)
            canvas_line(to, x0 + (x1 - x0) * at / length,
                        y0 + (y1 - y0) * at / length,
                        x0 + (x1 - x0) * end / length,
                        y0 + (y1 - y0) * end / length, 1.6);
        *done += end - at;
        at = end;
    }
}

static void draw_step(canvas *to, const curve *c, double x0, double y0,
                      double x1, double y1, double *done)
{
    if (c->is_validation)
        draw_dashes(to, x0, y0, x1, y1, done);
    else
        canvas_line(to, x0, y0, x1, y1, 1.8);
}

static bool is_of_validations(column k)
{
    return k >= VALIDATION_LOSS && k <= VALIDATION_ACCURACY;
}

/* From the bin before it: not over a gap. */
static void draw_bin(canvas *to, const frame *f, const panel *p, const curve *c,
                     size_t i, double *done)
{
    const bin *b = &c->s->bin[i], *before = i > 0 ? b - 1 : NULL;
    const double x = place_x(f, p, b->from), y = place_y(f, p, b->first);
    const double end = place_x(f, p, b->to);

    if (before && !b->behind_gap)
        draw_step(to, c, place_x(f, p, before->to), place_y(f, p, before->last),
                  x, y, done);
    else
        canvas_line(to, x, y, x, y, 1.8);
    if (b->least < b->most)
        canvas_line(to, x, place_y(f, p, b->least), x, place_y(f, p, b->most),
                    1.8);
    if (end > x)
        draw_step(to, c, x, place_y(f, p, b->last), end, place_y(f, p, b->last),
                  done);
    if (c->s->n <= MARKS && (c->is_validation || is_of_validations(p->shown)))
        canvas_line(to, x, y, x, y, 4);
}

/* Its end has a mark: what is shorter than the others is seen to be. */
static void draw_curve(canvas *to, const frame *f, const panel *p,
                       const curve *c)
{
    const bin *last = &c->s->bin[c->s->n - 1];
    const double x = place_x(f, p, last->to), y = place_y(f, p, last->last);
    double done = 0;

    for (size_t i = 0; i < c->s->n; i++)
        draw_bin(to, f, p, c, i, &done);
    canvas_line(to, x, y, x, y, 5);
    canvas_ink(to, colours[c->run]);
}

static void draw_panel(canvas *to, const frame *f, panel *p, axis by)
{
    draw_sides(to, f, p, by);
    to->top = (int)f->top - 4; /* room for marks */
    to->bottom = (int)f->bottom + 4;
    for (int i = 0; i < p->n; i++)
        draw_curve(to, f, p, &p->curve[i]);
    to->top = 0;
    to->bottom = to->height - 1;
}

/* --- all ------------------------------------------------------------------ */

static int columns_of(const chart *c)
{
    return c->n > 1 ? 2 : 1;
}

fleet_status picture_draw(chart *c, int width, int height, canvas *to)
{
    const int columns = columns_of(c), rows = (c->n + columns - 1) / columns;
    const int keys = (int)draw_keys(c, width, NULL);
    const double wide = (double)width / columns;

    FL_TRY(canvas_make(to, width, keys + rows * height + MARGIN));
    draw_keys(c, width, to);
    for (int i = 0; i < c->n; i++) {
        const double left = wide * (i % columns);
        const double top = keys + (double)height * (i / columns);
        const frame f = {.left = round(left + LEFT),
                         .top = top + ABOVE,
                         .right = round(left + wide - 2 * MARGIN),
                         .bottom = top + height - BELOW};

        draw_panel(to, &f, &c->panel[i], c->by);
    }
    return FLEET_OK;
}
