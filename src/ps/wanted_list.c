/* wanted_list.c - rows asked for, section by section. */
#include "ps/wanted_list.h"

#include <string.h>

#include "base/memory.h"

static fleet_status ask(fl_wanted_list *one, fl_rows *rows, const void *keys,
                        int64_t n)
{
    uint64_t *aligned = fl_alloc_array((size_t)n, sizeof *aligned);
    fleet_status status = FLEET_ENOMEM;

    if (aligned && n > 0)
        memcpy(aligned, keys, (size_t)n * sizeof *aligned);
    if (aligned)
        status = fl_wanted_rows_ask(&one->rows, rows, aligned, n);
    fl_free(aligned);
    return status;
}

fleet_status fl_wanted_list_add(fl_wanted_list **list, fl_rows *rows,
                                const void *keys, int64_t n, int64_t now_ms)
{
    fl_wanted_list *one;
    fleet_status status;

    FL_TRY(FL_NEW(&one, sizeof *one));
    status = ask(one, rows, keys, n);
    if (status != FLEET_OK) {
        fl_free(one);
        return status;
    }
    one->since_ms = now_ms;
    one->next = *list;
    *list = one;
    return FLEET_OK;
}

fleet_status fl_wanted_list_missing(const fl_wanted_list *list,
                                    const fl_wanted_list **missing)
{
    for (*missing = list; *missing; *missing = (*missing)->next) {
        bool ready;

        FL_TRY(fl_wanted_rows_ready(&(*missing)->rows, &ready));
        if (!ready)
            break;
    }
    return FLEET_OK;
}

fleet_status fl_wanted_list_wait(const fl_wanted_list *list)
{
    for (; list; list = list->next)
        FL_TRY(fl_wanted_rows_wait(&list->rows));
    return FLEET_OK;
}

void fl_wanted_list_release(fl_wanted_list **list)
{
    while (*list) {
        fl_wanted_list *next = (*list)->next;

        fl_wanted_rows_done(&(*list)->rows);
        fl_free(*list);
        *list = next;
    }
}
