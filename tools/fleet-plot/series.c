/* series.c - bins that become twice as wide when there are too many. */
#include "series.h"

#include "base/memory.h"

static void note_extremes(series *s, double x, double y)
{
    if (s->n_number == 0 || y < s->least) {
        s->least = y;
        s->least_x = x;
    }
    if (s->n_number == 0 || y > s->most) {
        s->most = y;
        s->most_x = x;
    }
    s->last = y;
    s->last_x = x;
    s->n_number++;
}

static void join(bin *to, const bin *next)
{
    to->to = next->to;
    to->last = next->last;
    to->least = next->least < to->least ? next->least : to->least;
    to->most = next->most > to->most ? next->most : to->most;
    to->behind_gap = to->behind_gap || next->behind_gap;
}

static void halve(series *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        bin both = s->bin[2 * i];

        join(&both, &s->bin[2 * i + 1]);
        s->bin[i] = both;
    }
    s->n /= 2;
    s->in_bin *= 2;
    s->in_last = s->in_bin;
}

fleet_status series_add(series *s, double x, double y)
{
    const bin one = {.from = x,
                     .to = x,
                     .first = y,
                     .last = y,
                     .least = y,
                     .most = y,
                     .behind_gap = s->gap};

    if (s->in_bin == 0)
        s->in_bin = s->in_last = 1;
    if (s->n > 0 && s->in_last < s->in_bin) {
        join(&s->bin[s->n - 1], &one);
        s->in_last++;
    } else {
        if (s->n == MOST_BINS)
            halve(s);
        FL_TRY(fl_grow(&s->bin, &s->capacity, s->n + 1, sizeof *s->bin));
        s->bin[s->n++] = one;
        s->in_last = 1;
    }
    s->gap = false;
    note_extremes(s, x, y);
    return FLEET_OK;
}

void series_lose(series *s)
{
    s->n_lost++;
    s->gap = s->n > 0;
}

void series_done(series *s)
{
    fl_free(s->bin);
    *s = (series){0};
}
