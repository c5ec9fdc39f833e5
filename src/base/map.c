/* map.c - names to pointers, by open addressing. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

static uint32_t *find_slot(const fl_map *m, const char *name)
{
    size_t i = fl_hash(name, strlen(name), 0) & (m->n_slot - 1);

    while (m->slot[i] && strcmp(m->entry[m->slot[i] - 1].name, name) != 0)
        i = (i + 1) & (m->n_slot - 1);
    return &m->slot[i];
}

static fleet_status widen(fl_map *m)
{
    size_t n = m->n_slot ? 2 * m->n_slot : 16;
    uint32_t *slot = fl_alloc_array(n, sizeof *slot);

    if (!slot)
        return FLEET_ENOMEM;
    fl_free(m->slot);
    m->slot = slot;
    m->n_slot = n;
    for (size_t i = 0; i < m->n; i++)
        *find_slot(m, m->entry[i].name) = (uint32_t)i + 1;
    return FLEET_OK;
}

fleet_status fl_map_put(fl_map *m, const char *name, void *value)
{
    if (fl_map_get(m, name))
        return fl_fail(FLEET_EEXIST, "the name \"%s\" is taken", name);
    if (2 * (m->n + 1) > m->n_slot)
        FL_TRY(widen(m));
    FL_TRY(fl_grow(&m->entry, &m->capacity, m->n + 1, sizeof *m->entry));

    char *copy = fl_strdup(name);
    if (!copy)
        return FLEET_ENOMEM;
    m->entry[m->n] = (fl_map_entry){copy, value};
    *find_slot(m, name) = (uint32_t)++m->n;
    return FLEET_OK;
}

void *fl_map_get(const fl_map *m, const char *name)
{
    uint32_t at = m->n_slot ? *find_slot(m, name) : 0;

    return at ? m->entry[at - 1].value : NULL;
}

static int by_name(const void *a, const void *b)
{
    const fl_map_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

fl_map_entry *fl_map_sorted(const fl_map *m)
{
    fl_map_entry *e = fl_alloc_array(m->n, sizeof *e);

    if (e && m->n) {
        memcpy(e, m->entry, m->n * sizeof *e);
        qsort(e, m->n, sizeof *e, by_name);
    }
    return e;
}

void fl_map_done(fl_map *m)
{
    for (size_t i = 0; i < m->n; i++)
        fl_free(m->entry[i].name);
    fl_free(m->entry);
    fl_free(m->slot);
    *m = (fl_map){0};
}
