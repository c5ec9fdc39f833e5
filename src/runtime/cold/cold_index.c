/* cold_index.c - sorted groups of tags and spots in one array. */
#include "runtime/cold/cold_index.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/cold/cold_memory.h"

/* Room of a group behind its entries: a share of them, and some more. */
enum { SHARE = 16, MORE = 8 };

static uint64_t order_of(const fl_cold_entry *e)
{
    return (uint64_t)e->tag << 32 | e->spot;
}

/* Where in the group the first entry is that is not below. */
static uint32_t lower_bound(const fl_cold_index *x, uint32_t group,
                            uint64_t order)
{
    const fl_cold_entry *e = x->entry + x->first[group];
    uint32_t low = 0, n = x->n[group];

    while (n > 0) {
        uint32_t half = n / 2;

        if (order_of(&e[low + half]) < order) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

fleet_status fl_cold_index_open(fl_cold_index *x, uint32_t n_group)
{
    x->n_group = n_group;
    FL_TRY(FL_NEW(&x->first, (n_group + 1) * sizeof *x->first));
    return FL_NEW(&x->n, n_group * sizeof *x->n);
}

static void free_entries(fl_cold_index *x)
{
    if (x->entry)
        fl_cold_memory_free(x->entry, x->first[x->n_group] * sizeof *x->entry);
    x->entry = NULL;
}

void fl_cold_index_clear(fl_cold_index *x)
{
    free_entries(x);
    x->count = 0;
    if (!x->first || !x->n)
        return;
    memset(x->first, 0, (x->n_group + 1) * sizeof *x->first);
    memset(x->n, 0, x->n_group * sizeof *x->n);
}

void fl_cold_index_done(fl_cold_index *x)
{
    free_entries(x);
    fl_free(x->first);
    fl_free(x->n);
    *x = (fl_cold_index){0};
}

static uint32_t room_of(uint32_t n)
{
    return n + n / SHARE + MORE;
}

/* All groups, without room, at the array's begin. */
static void close_up(fl_cold_index *x)
{
    uint32_t at = 0;

    for (uint32_t g = 0; g < x->n_group; g++) {
        if (x->n[g] > 0)
            memmove(x->entry + at, x->entry + x->first[g],
                    x->n[g] * sizeof *x->entry);
        x->first[g] = at;
        at += x->n[g];
    }
}

static size_t bytes_of(uint64_t entries)
{
    return (size_t)entries * sizeof(fl_cold_entry);
}

/* Each group gets room again: they move apart within the array, which grows,
 * the last one first. */
static fleet_status spread(fl_cold_index *x)
{
    uint32_t had = x->first[x->n_group], end;
    fl_cold_entry *entry;
    uint64_t all = 0;

    for (uint32_t g = 0; g < x->n_group; g++)
        all += room_of(x->n[g]);
    if (all > UINT32_MAX)
        return fl_fail(FLEET_EUNSUPPORTED, "%llu rows in one part of a file",
                       (unsigned long long)all);
    end = (uint32_t)all > had ? (uint32_t)all : had;
    entry = fl_cold_memory_widen(x->entry, bytes_of(had), bytes_of(end));
    if (!entry)
        return FLEET_ENOMEM;
    x->entry = entry;
    close_up(x);
    x->first[x->n_group] = end;
    for (uint32_t g = x->n_group; g-- > 0;) {
        uint32_t from = x->first[g];

        end -= room_of(x->n[g]);
        memmove(entry + end, entry + from, x->n[g] * sizeof *entry);
        x->first[g] = end;
    }
    return FLEET_OK;
}

fleet_status fl_cold_index_put(fl_cold_index *x, uint32_t group, uint16_t tag,
                               uint32_t spot)
{
    const fl_cold_entry new = {tag, spot};
    fl_cold_entry *e;
    uint32_t at;

    if (x->n[group] == x->first[group + 1] - x->first[group])
        FL_TRY(spread(x));
    at = lower_bound(x, group, order_of(&new));
    e = x->entry + x->first[group] + at;
    memmove(e + 1, e, (x->n[group] - at) * sizeof *e);
    *e = new;
    x->n[group]++;
    x->count++;
    return FLEET_OK;
}

bool fl_cold_index_next(const fl_cold_index *x, uint32_t group, uint16_t tag,
                        uint32_t from, uint32_t *spot)
{
    const fl_cold_entry wanted = {tag, from};
    uint32_t at;
    const fl_cold_entry *e;

    if (x->n[group] == 0)
        return false;
    at = lower_bound(x, group, order_of(&wanted));
    e = x->entry + x->first[group] + at;
    if (at == x->n[group] || e->tag != tag)
        return false;
    *spot = e->spot;
    return true;
}

void fl_cold_index_remove(fl_cold_index *x, uint32_t group, uint16_t tag,
                          uint32_t spot)
{
    const fl_cold_entry old = {tag, spot};
    uint32_t at = lower_bound(x, group, order_of(&old));
    fl_cold_entry *e = x->entry + x->first[group] + at;

    x->n[group]--;
    x->count--;
    memmove(e, e + 1, (x->n[group] - at) * sizeof *e);
}

size_t fl_cold_index_bytes(const fl_cold_index *x)
{
    return fl_cold_memory_of(x->first[x->n_group] * sizeof *x->entry) +
           x->n_group * (sizeof *x->first + sizeof *x->n);
}
