/* age.c - versions of times, by marks that calls of fleet_shrink() leave. */
#include "runtime/life/age.h"

#include <string.h>

/* Marks of that time, at most: with the one before them there is room. */
enum { PER_TTL = 32 };
_Static_assert(PER_TTL + 2 <= FL_LIFE_MARKS, "room for all marks");

void fl_age_add_mark(fl_life *life, fl_life_mark now)
{
    int64_t apart = (life->o.ttl_seconds + PER_TTL - 1) / PER_TTL;
    int n = life->n_mark;

    if (n == FL_LIFE_MARKS ||
        (n > 0 && now.seconds - life->mark[n - 1].seconds < apart))
        return;
    life->mark[life->n_mark++] = now;
}

/* The marks before the last one that is old enough are not needed again. */
static void drop_marks(fl_life *life, int before)
{
    life->n_mark -= before;
    memmove(life->mark, life->mark + before,
            (size_t)life->n_mark * sizeof *life->mark);
}

static uint64_t limit_by_seconds(fl_life *life, uint64_t updates, int64_t now)
{
    int last = life->n_mark - 1, old;

    if (last >= 0 && now < life->mark[last].seconds)
        now = life->mark[last].seconds;
    for (old = last; old >= 0; old--)
        if (life->mark[old].seconds <= now - life->o.ttl_seconds)
            break;
    if (old > 0) {
        drop_marks(life, old);
        old = 0;
    }
    fl_age_add_mark(life, (fl_life_mark){updates, now});
    return old < 0 ? 0 : life->mark[0].updates + 1;
}

/* The last ttl updates are those after updates - ttl. */
static uint64_t limit_by_updates(const fl_life *life, uint64_t updates)
{
    uint64_t ttl = (uint64_t)life->o.ttl_updates;

    return ttl > 0 && updates >= ttl ? updates - ttl + 1 : 0;
}

uint64_t fl_age_limit(fl_life *life, uint64_t updates, int64_t now)
{
    uint64_t a = limit_by_updates(life, updates), b = 0;

    if (life->o.ttl_seconds > 0)
        b = limit_by_seconds(life, updates, now);
    return a > b ? a : b;
}

void fl_age_move(fl_life *life, int64_t by)
{
    life->loaded_at = fl_version_moved(life->loaded_at, by);
    life->emptied_at = fl_version_moved(life->emptied_at, by);
    for (int i = 0; i < life->n_mark; i++)
        life->mark[i].updates = fl_version_moved(life->mark[i].updates, by);
}
