/* table_cap.c - the cap of a table: checked, one for all of its layers. */
#include "runtime/graph/table_cap.h"

#include <inttypes.h>
#include <string.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "runtime/graph/table_options.h"

static fleet_status check_cap(const char *name, const fl_table_cap *cap)
{
    bool has_folder = cap->folder && *cap->folder;

    if (cap->bytes < 0 || cap->bytes > FL_MOST_EXACT ||
        (cap->bytes > 0 && cap->bytes < FL_LEAST_CAP))
        return fl_fail(FLEET_EINVAL,
                       "%s: memory_cap_bytes %" PRId64 ": expected 0, or %d "
                       "to 2^53 - 1",
                       name, cap->bytes, FL_LEAST_CAP);
    if (cap->bytes > 0 && !has_folder)
        return fl_fail(FLEET_EINVAL,
                       "%s: memory_cap_bytes needs cold_folder, where the rows "
                       "are that have no room in memory",
                       name);
    if (cap->bytes == 0 && has_folder)
        return fl_fail(FLEET_EINVAL,
                       "%s: cold_folder is for memory_cap_bytes, which is 0",
                       name);
    return FLEET_OK;
}

/* Of a life what asks for nothing but each row, and what an update brings. */
static fleet_status check_life(const fleet_var *table, bool is_new,
                               const fl_table_cap *cap)
{
    const fleet_table_options *o = &table->ids.life;
    const char *has =
        o->entry.kind != FLEET_ENTRY_ALL &&
                o->entry.kind != FLEET_PROBABILITY_ENTRY
            ? "an entry that counts keys"
        : o->most_rows > 0 || o->most_bytes > 0    ? "most_rows or most_bytes"
        : o->ttl_updates > 0 || o->ttl_seconds > 0 ? "a time to live"
                                                   : NULL;

    if (cap->bytes > 0 && has)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "\"%s\" has memory_cap_bytes and %s "
                       "(fleet_table_options): that goes by rows, or counts "
                       "keys, that are all in memory",
                       table->name, has);
    if (is_new && cap->bytes == 0 && o->accessor.ssd_unseenday_threshold != 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "\"%s\" has ssd_unseenday_threshold %g without "
                       "memory_cap_bytes: there is no file for its rows",
                       table->name,
                       (double)o->accessor.ssd_unseenday_threshold);
    return FLEET_OK;
}

static bool is_same(const fl_table_cap *a, const fl_table_cap *b)
{
    return a->bytes == b->bytes &&
           (a->bytes == 0 || strcmp(a->folder, b->folder) == 0);
}

fleet_var *fl_table_with_cap(fleet_program *p, fleet_var *table, bool is_new,
                             const fl_table_cap *cap)
{
    fleet_status status;

    if (!table)
        return NULL;
    status = check_cap(table->name, cap);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    status = check_life(table, is_new, cap);
    if (status != FLEET_OK)
        return fl_program_failed(p, status);
    if (cap->bytes == 0)
        return table;
    if (table->ids.storage != FLEET_ROW_FLOAT32) {
        fl_fail(FLEET_EUNSUPPORTED,
                "\"%s\" has memory_cap_bytes and a storage: rows in a file "
                "are of float32",
                table->name);
        return fl_program_failed(p, FLEET_EUNSUPPORTED);
    }
    if (!is_new && !is_same(&table->cap, cap)) {
        fl_fail(FLEET_EEXIST,
                "\"%s\" is there already with another memory_cap_bytes or "
                "cold_folder: a layer that shares it states the same, or none",
                table->name);
        return fl_program_failed(p, FLEET_EEXIST);
    }
    table->cap.bytes = cap->bytes;
    if (is_new)
        table->cap.folder = fl_arena_strdup(&p->arena, cap->folder);
    return table->cap.folder ? table : fl_program_failed(p, FLEET_ENOMEM);
}
