/* slot_names.c - the table of slots' names. */
#include "data/layout/slot_names.h"

#include "base/memory.h"

static void add_name(fl_slot_names *n, const char *text, int slot)
{
    const size_t size = strlen(text);
    uint64_t word = 0;
    size_t i;

    memcpy(&word, text, size < 8 ? size : 8);
    i = fl_slot_name_place(n, word, size);
    while (n->place[i].slot >= 0)
        i = (i + 1) & n->mask;
    n->place[i] = (fl_slot_name){word, text, size, slot};
}

fleet_status fl_slot_names_init(fl_slot_names *n, const fl_layout *l)
{
    size_t places = 16;

    while (places < 4 * (size_t)l->n_field)
        places *= 2;
    n->mask = places - 1;
    n->place = fl_alloc_array(places, sizeof *n->place);
    if (!n->place)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < places; i++)
        n->place[i].slot = -1;
    for (int i = 0; i < l->n_field; i++)
        add_name(n, l->field[i].name, i);
    return FLEET_OK;
}

void fl_slot_names_done(fl_slot_names *n)
{
    fl_free(n->place);
    *n = (fl_slot_names){0};
}
