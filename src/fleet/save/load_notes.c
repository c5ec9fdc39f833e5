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

void fl_saved_note_shape(const fl_saved *s, const fl_store *store,
                         const fl_saved_item *item, const fl_shape *shape)
{
    FL_INFO(&store->context->log,
            "load: \"%s\" has shape %s, but %s in %s: it is initialized",
            item->name, fl_shape_print(shape).chars,
            fl_shape_print(&item->shape).chars, s->folder.path);
}

void fl_saved_note_shown(const fl_saved *s, const fl_store *store,
                         const fl_saved_item *item, const fl_rows *r)
{
    if (r && fl_rows_has_accessor(r) && !item->accessor)
        FL_INFO(&store->context->log,
                "load: %s does not say how often the rows of table \"%s\" "
                "were shown: until an update sees one of them, no shrink goes "
                "by its score",
                s->folder.path, r->name);
}

void fl_saved_note_absent(const fl_saved *s, const fl_store *store,
                          const fleet_load_options *o)
{
    note_missing(s, store, o);
    note_extra(s, store);
    for (int i = 0; i < s->n_table; i++)
        fl_saved_note_shown(s, store, &s->table[i],
                            fl_store_rows(store, s->table[i].name));
}
