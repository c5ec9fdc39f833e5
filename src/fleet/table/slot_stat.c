/* slot_stat.c - what the rows of each slot of a table have, added up over the
 * processes that keep it: fleet_table_slot_stat(). */
#include <stdlib.h>

#include "base/memory.h"
#include "fleet/save/table_part.h"
#include "fleet/save/table_slots.h"
#include "fleet/table/table_call.h"

static const char call_name[] = "fleet_table_slot_stat";

typedef struct slot_list {
    fleet_slot_statistics *of;
    size_t n, capacity;
} slot_list;

static fleet_slot_statistics *entry_of(slot_list *l, int slot)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->of[i].slot == slot)
            return &l->of[i];
    if (fl_grow(&l->of, &l->capacity, l->n + 1, sizeof *l->of) != FLEET_OK)
        return NULL;
    l->of[l->n] = (fleet_slot_statistics){.slot = slot};
    return &l->of[l->n++];
}

static fleet_status add_part(const char *text, slot_list *l)
{
    fl_slot_counts c;
    fleet_status status = fl_slot_counts_read(text, &c);

    for (int64_t i = 0; i < c.n && status == FLEET_OK; i++) {
        fleet_slot_statistics *one = entry_of(l, (int)c.slot[i]);

        if (!one) {
            status = FLEET_ENOMEM;
            break;
        }
        one->rows += c.rows[i];
        one->hot_rows += c.hot[i];
        one->shows += c.shows[i];
        one->clicks += c.clicks[i];
    }
    fl_slot_counts_done(&c);
    return status;
}

static int by_slot(const void *a, const void *b)
{
    const fleet_slot_statistics *x = a, *y = b;

    return x->slot - y->slot;
}

static fleet_status ask_parts(fleet *f, const char *table, slot_list *l)
{
    fl_answers a = {0};
    fl_rows *rows;
    char *text = NULL;
    fleet_status status;

    FL_TRY(fl_call_table(f, call_name, table, &rows));
    if (!fl_rows_has_accessor(rows))
        return fl_fail(FLEET_EINVAL,
                       "%s: table \"%s\" has no life.accessor: its rows know "
                       "no slot",
                       call_name, table);
    status = fl_table_slots_text(table, &text);
    if (status == FLEET_OK)
        status = fl_call_read(f, rows, text, &a);
    fl_free(text);
    for (int i = 0; i < a.n && status == FLEET_OK; i++)
        status = add_part(a.of[i], l);
    fl_answers_done(&a);
    return status;
}

fleet_status fleet_table_slot_stat(fleet *f, const char *table,
                                   fleet_slot_statistics *list, int room,
                                   int *n)
{
    slot_list l = {0};
    fleet_status status;

    FL_TRY(fl_handle_check_worker(f, call_name));
    if (!n || room < 0 || (room > 0 && !list))
        return fl_fail(FLEET_EINVAL, "%s: nowhere to put %d of them", call_name,
                       room);
    status = ask_parts(f, table, &l);
    if (status == FLEET_OK) {
        if (l.n > 1)
            qsort(l.of, l.n, sizeof *l.of, by_slot);
        for (int i = 0; i < room && (size_t)i < l.n; i++)
            list[i] = l.of[i];
        *n = (int)l.n;
    }
    fl_free(l.of);
    return status;
}
