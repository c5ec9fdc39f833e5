/* row_ages.c - versions as ages, and back. */
#include "fleet/save/row_ages.h"

#include <string.h>

#include "base/json/json.h"
#include "runtime/life/age.h"

static bool goes_by_age(const fl_rows *r)
{
    const fleet_table_options *o = r->life ? &r->life->o : NULL;

    return o && (o->ttl_updates > 0 || o->ttl_seconds > 0 || o->most_rows > 0 ||
                 o->most_bytes > 0);
}

bool fl_row_ages_saved(const fl_store *store, const fl_rows *r)
{
    for (size_t i = 0; r->counts && i < store->tables.n; i++) {
        const fl_rows *of = store->tables.entry[i].value;

        if (of->life && of->life->waiting == r)
            return goes_by_age(of);
    }
    return goes_by_age(r);
}

int64_t fl_row_age(uint64_t changed_at, int64_t updates)
{
    return changed_at == 0 ? FL_NO_AGE : updates - (int64_t)changed_at;
}

/* What would have changed before the first update is of its time, and nothing
 * has after the next one. */
uint64_t fl_row_changed_at(int64_t age, int64_t updates)
{
    age = age < -1 ? -1 : age;
    return age == FL_NO_AGE || age >= updates ? 0 : (uint64_t)(updates - age);
}

size_t fl_life_write(const fl_life *life, int64_t updates, int64_t *to)
{
    size_t n = FL_LIFE_NUMBERS;

    to[0] = updates - (int64_t)life->loaded_at;
    to[1] = updates - (int64_t)life->emptied_at;
    for (int i = 0; i < life->n_mark; i++) {
        to[n++] = updates - (int64_t)life->mark[i].updates;
        to[n++] = life->mark[i].seconds;
    }
    return n;
}

void fl_life_read(fl_life *life, int64_t updates, const char *record,
                  uint64_t n_mark, bool keeps)
{
    int64_t x[FL_MOST_LIFE];
    uint64_t loaded_at;
    size_t n = FL_LIFE_NUMBERS;

    memcpy(x, record, fl_life_numbers(n_mark) * sizeof *x);
    loaded_at = fl_row_changed_at(x[0], updates);
    life->loaded_at =
        keeps && life->loaded_at > loaded_at ? life->loaded_at : loaded_at;
    life->emptied_at = fl_row_changed_at(x[1], updates);
    life->n_mark = 0;
    for (uint64_t i = 0; i < n_mark; i++, n += FL_MARK_NUMBERS)
        if (life->o.ttl_seconds > 0 && x[n + 1] >= 0 &&
            x[n + 1] <= FL_MOST_EXACT)
            fl_age_add_mark(
                life,
                (fl_life_mark){fl_row_changed_at(x[n], updates), x[n + 1]});
}
