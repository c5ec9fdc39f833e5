/* save_changes.c - rows that have changed: rows of a newer version, and rows
 * whose keys came or went. */
#include "fleet/save/save_changes.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"

fleet_status fl_save_changes_begin(fl_save_changes *c, fl_save_link *link,
                                   const fl_rows *r)
{
    fleet_status status;

    if (!fl_key_log_knows(r, link->base, &c->since))
        return fl_fail(FLEET_ESTATE,
                       "save: what has changed of \"%s\" since the save before "
                       "is not known",
                       r->name);
    status = fl_key_log_keys(r, &c->key, &c->n);
    if (status == FLEET_ESTATE) /* lost while training goes on */
        link->refused = true;
    FL_TRY(status);
    return FL_NEW(&c->is_here, ((size_t)c->n + 1) * sizeof *c->is_here);
}

void fl_save_changes_done(fl_save_changes *c)
{
    fl_free(c->key);
    fl_free(c->is_here);
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

bool fl_save_changes_has(fl_save_changes *c, uint64_t key,
                         const fl_row_head *head)
{
    const uint64_t *found =
        c->n > 0 ? bsearch(&key, c->key, (size_t)c->n, sizeof key, compare_keys)
                 : NULL;

    if (found)
        c->is_here[found - c->key] = true;
    return found || head->changed_at > c->since;
}

void fl_save_changes_gone(fl_save_changes *c)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->n; i++)
        if (!c->is_here[i])
            c->key[n++] = c->key[i];
    c->n = n;
}

void fl_save_check_link(const fl_save *s)
{
    uint64_t since;

    for (int i = 0; s->link && i < s->n_table; i++) {
        const fl_rows *r = s->table[i];

        if (r && !s->store->snapshot)
            fl_key_log_freeze(r);
        if (r && s->link->base && !fl_key_log_knows(r, s->link->base, &since))
            s->link->refused = true;
    }
}

fleet_status fl_save_put_version(const fl_save *s, fl_json *m)
{
    const bool chained = s->link && s->link->base;

    FL_TRY(
        fl_json_put(m, "version",
                    fl_json_int(chained ? FL_SAVE_CHAINED : FL_SAVE_VERSION)));
    return chained ? fl_json_put(m, "chain", fl_json_copy(s->link->chain))
                   : FLEET_OK;
}

fleet_status fl_save_note_link(const fl_save *s, const char *manifest,
                               uint64_t hash)
{
    fl_json *json = NULL;
    fl_at root, list;

    if (!s->link)
        return FLEET_OK;
    FL_TRY(fl_json_parse(manifest, strlen(manifest), FL_MANIFEST, &json));
    root = fl_at_root(json);
    list = fl_at_key(&root, "parts");
    s->link->hash = hash;
    s->link->bytes = 0;
    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e)) {
        fl_at at = fl_at_key(&e, "size");
        int64_t size = 0;

        if (fl_at_int(&at, 0, FL_MOST_EXACT, &size) == FLEET_OK)
            s->link->bytes += size;
    }
    fl_json_free(json);
    return FLEET_OK;
}
