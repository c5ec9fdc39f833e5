/* canvas.c - a pixel has as much ink as its middle is within a line. */
#include "canvas.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "letters.h"

fleet_status canvas_make(canvas *c, int width, int height)
{
    const size_t n = (size_t)width * (size_t)height;

    *c = (canvas){.width = width,
                  .height = height,
                  .right = width - 1,
                  .bottom = height - 1};
    FL_TRY(FL_NEW(&c->pixel, n * 3));
    FL_TRY(FL_NEW(&c->cover, n * sizeof *c->cover));
    memset(c->pixel, 255, n * 3);
    return FLEET_OK;
}

void canvas_done(canvas *c)
{
    fl_free(c->pixel);
    fl_free(c->cover);
    *c = (canvas){0};
}

static double within(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* From the point (x, y) to the line. */
static double distance(double x, double y, double x0, double y0, double dx,
                       double dy)
{
    const double square = dx * dx + dy * dy;
    const double along =
        square > 0 ? within(((x - x0) * dx + (y - y0) * dy) / square, 0, 1) : 0;

    return hypot(x - x0 - along * dx, y - y0 - along * dy);
}

static void cover_row(canvas *c, int y, double x0, double y0, double dx,
                      double dy, double half)
{
    const double reach = half + 1;
    double from = fmin(x0, x0 + dx), to = fmax(x0, x0 + dx);
    float *row = &c->cover[(size_t)y * (size_t)c->width];

    /* of a slanted line, what is near this row */
    if (fabs(dy) > 1) {
        const double a = x0 + dx * within((y - reach - y0) / dy, 0, 1);
        const double b = x0 + dx * within((y + reach - y0) / dy, 0, 1);

        from = fmin(a, b);
        to = fmax(a, b);
    }
    from = within(floor(from - reach), c->left, c->right + 1);
    to = within(ceil(to + reach), c->left - 1, c->right);
    for (int x = (int)from; x <= (int)to; x++) {
        const double far = distance(x, y, x0, y0, dx, dy);
        const float much = (float)within(half + 0.5 - far, 0, 1);

        row[x] = row[x] > much ? row[x] : much;
    }
}

void canvas_line(canvas *c, double x0, double y0, double x1, double y1,
                 double width)
{
    const double reach = width / 2 + 1;
    const double from =
        within(floor(fmin(y0, y1) - reach), c->top, c->bottom + 1);
    const double to = within(ceil(fmax(y0, y1) + reach), c->top - 1, c->bottom);

    for (int y = (int)from; y <= (int)to; y++)
        cover_row(c, y, x0, y0, x1 - x0, y1 - y0, width / 2);
}

/* --- letters -------------------------------------------------------------- */

/* The next character's strokes; of what is none of ASCII one box for each of
 * UTF-8. */
static const char *next_letter(const char **text)
{
    const unsigned char c = (unsigned char)*(*text)++;

    while (((unsigned char)**text & 0xc0) == 0x80 && c >= 0x80)
        (*text)++;
    return letter_strokes(c);
}

static void draw_letter(canvas *c, double x, double y, double unit,
                        const char *stroke)
{
    const double width = fmax(1, unit * 0.85);

    while (*stroke) {
        double from_x = x + unit * (stroke[0] - '0');
        double from_y = y + unit * (stroke[1] - '0' - LETTER_BASE);

        for (stroke += 2; *stroke && *stroke != ' '; stroke += 2) {
            const double to_x = x + unit * (stroke[0] - '0');
            const double to_y = y + unit * (stroke[1] - '0' - LETTER_BASE);

            canvas_line(c, from_x, from_y, to_x, to_y, width);
            from_x = to_x;
            from_y = to_y;
        }
        stroke += *stroke == ' ';
    }
}

void canvas_text(canvas *c, double x, double y, double height, const char *text)
{
    const double unit = height / LETTER_BASE;

    while (*text) {
        draw_letter(c, x, y, unit, next_letter(&text));
        x += unit * LETTER_WIDTH;
    }
}

double canvas_text_width(double height, const char *text)
{
    int n = 0;

    while (*text) {
        next_letter(&text);
        n++;
    }
    return n > 0 ? height / LETTER_BASE * (n * LETTER_WIDTH - 2) : 0;
}

/* --- ink ------------------------------------------------------------------ */

void canvas_ink(canvas *c, uint32_t colour)
{
    const size_t n = (size_t)c->width * (size_t)c->height;

    for (size_t i = 0; i < n; i++) {
        const float much = c->cover[i];

        if (much <= 0)
            continue;
        for (int k = 0; k < 3; k++) {
            uint8_t *to = &c->pixel[3 * i + (size_t)k];
            const float ink = (float)(colour >> (16 - 8 * k) & 255);

            *to = (uint8_t)lrintf((float)*to + ((ink - (float)*to) * much));
        }
        c->cover[i] = 0;
    }
}
