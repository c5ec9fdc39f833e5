/* load_notes.c - what the log says of a load: names that one of both lacks. */
#include "fleet/save/load_notes.h"

static void note_missing(const fl_saved *s, const fl_store *store,
                         const fleet_load_options *o)
{
    const char *what =
        o->on_missing == FLEET_MISSING_KEEP ? "kept as it is" : "initialized";

    for (size_t i = 0; i < store->params.n; i++)
        if (!fl_map_get(&s->params, store->params.entry[i].name))
            FL_INFO(&store->context->log,
                    "load: %s has no parameter \"%s\": it is %s",
                    s->folder.path, store->params.entry[i].name, what);
    for (size_t i = 0; i < store->tables.n; i++)
        if (!fl_map_get(&s->tables, store->tables.entry[i].name) &&
            !((const fl_rows *)store->tables.entry[i].value)->counts)
            FL_INFO(&store->context->log,
                    "load: %s has no table \"%s\": it is %s", s->folder.path,
                    store->tables.entry[i].name, what);
}

static void note_extra(const fl_saved *s, const fl_store *store)
{
    for (int i = 0; i < s->n_param; i++)
        if (!fl_store_param(store, s->param[i].name))
            FL_INFO(&store->context->log,
                    "load: no program has the parameter \"%s\" of %s: it is "
                    "left out",
                    s->param[i].name, s->folder.path);
    for (int i = 0; i < s->n_table; i++)
        if (!fl_store_rows(store, s->table[i].name))
            FL_INFO(&store->context->log,
                    "load: no program has the table \"%s\" of %s: it is left "
                    "out",
                    s->table[i].name, s->folder.path);
}

/* Which is as if they had not been shown. */
static void note_shown(const fl_saved *s, const fl_store *store)
{
    for (int i = 0; i < s->n_table; i++) {
        const fl_rows *r = fl_store_rows(store, s->table[i].name);

        if (r && fl_rows_has_accessor(r) && !s->table[i].accessor)
            FL_WARN(&store->context->log,
                    "load: %s does not say how often the rows of table \"%s\" "
                    "were shown: a shrink before that lets them go, unless "
                    "delete_threshold is below 0",
                    s->folder.path, r->name);
    }
}

void fl_saved_note_absent(const fl_saved *s, const fl_store *store,
                          const fleet_load_options *o)
{
    note_missing(s, store, o);
    note_extra(s, store);
    note_shown(s, store);
}
