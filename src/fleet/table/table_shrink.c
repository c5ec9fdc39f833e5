/* table_shrink.c - rows that have lived too long go, in all processes that have
 * some: fleet_shrink(). */
#include <time.h>

#include "base/memory.h"
#include "fleet/save/table_part.h"
#include "fleet/servers.h"
#include "fleet/table/table_call.h"

static const char call_name[] = "fleet_shrink";

typedef struct shrink_call {
    fleet *f;
    const fl_rows *only; /* NULL: all tables */
    int64_t now;         /* of the first worker */
} shrink_call;

static bool shrinks(const fl_rows *r)
{
    return r->life && (r->life->o.ttl_updates > 0 ||
                       r->life->o.ttl_seconds > 0 || fl_rows_has_accessor(r));
}

static fleet_status shrink_table(const shrink_call *c, const fl_rows *r)
{
    char *text = NULL;
    fleet_status status = fl_table_shrink_text(r->name, c->now, &text);

    if (status == FLEET_OK)
        status = fl_call_write(c->f, r->remote, text);
    fl_free(text);
    return status;
}

static fleet_status shrink_all(void *arg)
{
    const shrink_call *c = arg;
    const fl_map *tables = &c->f->store->tables;

    for (size_t i = 0; i < tables->n; i++) {
        const fl_rows *r = tables->entry[i].value;

        if (shrinks(r) && (!c->only || r == c->only))
            FL_TRY(shrink_table(c, r));
    }
    return FLEET_OK;
}

static fleet_status find_only(fleet *f, const char *table, fl_rows **only)
{
    *only = NULL;
    if (!table)
        return fl_add_programs(f);
    FL_TRY(fl_call_table(f, call_name, table, only));
    return shrinks(*only)
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "%s: table \"%s\" has no life.ttl_updates, no "
                         "life.ttl_seconds, nor life.accessor: nothing in it "
                         "is too old",
                         call_name, table);
}

static bool any_shrinks(const fl_store *s)
{
    for (size_t i = 0; i < s->tables.n; i++)
        if (shrinks(s->tables.entry[i].value))
            return true;
    return false;
}

static fleet_status check_time(int64_t now)
{
    return now >= 0 && now <= FL_MOST_SECONDS
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "fleet_shrink_at: %lld seconds: expected 0 to 2^53",
                         (long long)now);
}

/* All workers have the same tables: where nothing is to be done, no worker
 * waits. */
fleet_status fleet_shrink_at(fleet *f, const char *table, int64_t seconds)
{
    shrink_call c = {.f = f, .now = seconds};
    fl_rows *only = NULL;
    fleet_status status;

    FL_TRY(fl_handle_check_writer(f, call_name));
    status = find_only(f, table, &only);
    c.only = only;
    if (status == FLEET_OK)
        status = check_time(seconds);
    if (status == FLEET_OK && !any_shrinks(f->store))
        return FLEET_OK;
    return fl_call_together(f, call_name, table, status, shrink_all, &c);
}

fleet_status fleet_shrink(fleet *f, const char *table)
{
    return fleet_shrink_at(f, table, (int64_t)time(NULL));
}
