/* chart.c - which curves a panel has, from where to where, and round numbers
 * along its sides. */
#include "chart.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"

/* --- scales --------------------------------------------------------------- */

static double on_scale(const scale *s, double x)
{
    return s->log ? log10(x) : x;
}

double scale_at(const scale *s, double x)
{
    return (on_scale(s, x) - s->low) / (s->high - s->low);
}

/* The next of 1, 2, 5, 10, ... that is not below. */
static double round_up(double x)
{
    const double ten = pow(10, floor(log10(x)));
    const double digit = x / ten;

    return ten * (digit <= 1.0000001   ? 1
                  : digit <= 2.0000001 ? 2
                  : digit <= 5.0000001 ? 5
                                       : 10);
}

/* So that numbers that are a step apart look other. */
static int decimals(double step)
{
    int n = (int)ceil(-log10(step) - 1e-9);

    return n < 0 ? 0 : n;
}

static void write_tick(char text[TICK_TEXT], double x, double step,
                       double largest)
{
    if (x == 0)
        snprintf(text, TICK_TEXT, "0");
    else if (largest >= 1e9 || step < 1e-6)
        snprintf(text, TICK_TEXT, "%.4g", x);
    else if (largest >= 1e6)
        snprintf(text, TICK_TEXT, "%.*fM", decimals(step / 1e6), x / 1e6);
    else if (largest >= 1e4)
        snprintf(text, TICK_TEXT, "%.*fk", decimals(step / 1e3), x / 1e3);
    else
        snprintf(text, TICK_TEXT, "%.*f", decimals(step), x);
}

static void add_tick(scale *s, double x, double step, double largest)
{
    char *text = s->text[s->n_tick];

    s->tick[s->n_tick++] = x;
    if (s->log)
        snprintf(text, TICK_TEXT, "%.3g", pow(10, x));
    else
        write_tick(text, fabs(x) < step / 1e6 ? 0 : x, step, largest);
}

void scale_ticks(scale *s, int n)
{
    const double wanted = round_up((s->high - s->low) / (n < 1 ? 1 : n));
    const double step = s->whole ? fmax(wanted, 1) : wanted;
    const double largest = fmax(fabs(s->low), fabs(s->high));

    s->n_tick = 0;
    for (double i = ceil(s->low / step - 1e-9);
         i * step <= s->high + step * 1e-9 && s->n_tick < MOST_TICKS; i++)
        add_tick(s, i * step, step, largest);
}

/* Room above and below what is drawn; what never changes lies in the middle. */
static void make_room(scale *s, double share)
{
    const double middle = (s->low + s->high) / 2;
    double half = (s->high - s->low) / 2 * (1 + share);

    if (half <= fabs(middle) * 1e-12)
        half = middle != 0 ? fabs(middle) * 0.1 : 1;
    s->low = middle - half;
    s->high = middle + half;
}

/* --- panels --------------------------------------------------------------- */

static void widen(scale *s, double low, double high)
{
    s->low = fmin(s->low, on_scale(s, low));
    s->high = fmax(s->high, on_scale(s, high));
}

static void add_curve(panel *p, const series *s, int of_run, bool validation)
{
    if (s->n == 0)
        return;
    p->curve[p->n++] =
        (curve){.s = s, .run = of_run, .is_validation = validation};
    widen(&p->x, s->bin[0].from, s->bin[s->n - 1].to);
    for (size_t i = 0; i < s->n; i++)
        widen(&p->x, s->bin[i].from, s->bin[i].to);
    widen(&p->y, s->least, s->most);
}

/* Logarithms are of what is above 0. */
static bool can_be_log(const run_list *runs)
{
    bool can = true;

    for (size_t i = 0; i < runs->n; i++)
        for (int k = LOSS; k <= VALIDATION_LOSS; k++)
            can = can &&
                  (runs->run[i].of[k].n == 0 || runs->run[i].of[k].least > 0);
    return can;
}

static void make_panel(const run_list *runs, column shown, bool log, bool whole,
                       panel *p)
{
    *p = (panel){.shown = shown};
    p->x.low = p->y.low = (double)INFINITY;
    p->x.high = p->y.high = (double)-INFINITY;
    p->y.log = log;
    p->x.whole = whole;
    for (size_t i = 0; i < runs->n; i++) {
        const run *r = &runs->run[i];

        add_curve(p, &r->of[shown], (int)i, false);
        if (shown == LOSS)
            add_curve(p, &r->of[VALIDATION_LOSS], (int)i, true);
    }
    if (p->n == 0)
        return;
    make_room(&p->x, 0);
    make_room(&p->y, 0.08);
}

/* Panels that lie side by side have the same steps below them. */
static void share_width(chart *c)
{
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->n; k++) {
            c->panel[i].x.low = fmin(c->panel[i].x.low, c->panel[k].x.low);
            c->panel[i].x.high = fmax(c->panel[i].x.high, c->panel[k].x.high);
        }
}

fleet_status chart_make(const run_list *runs, axis by,
                        const bool show[N_COLUMN], bool log, chart *c)
{
    *c = (chart){.runs = runs, .by = by};
    if (log && !can_be_log(runs))
        return fl_fail(FLEET_EINVAL,
                       "--log: expected losses above 0, got one that is not");
    for (int i = 0; i < N_COLUMN; i++) {
        if (!show[i])
            continue;
        make_panel(runs, (column)i, log && i == LOSS, by != BY_TIME,
                   &c->panel[c->n]);
        c->n += c->panel[c->n].n > 0;
    }
    share_width(c);
    return c->n > 0 ? FLEET_OK
                    : fl_fail(FLEET_ENOENT,
                              "there is nothing to draw yet: no line has a "
                              "number of what is shown");
}
