/* save_chain.c - what the last saves were, and what the next one is. */
#include "fleet/train/save_chain.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/load_chain.h"

typedef struct fl_save_chain {
    char *folder;
    fl_json *links; /* all that the next one adds to, as a manifest has them */
    uint64_t token; /* of the last one */
    int n;          /* behind the base */
    int64_t base_bytes, bytes; /* of the base, and of all behind it */
} fl_save_chain;

void fl_save_chain_end(fleet *f)
{
    if (f->chain) {
        fl_free(f->chain->folder);
        fl_json_free(f->chain->links);
    }
    fl_free(f->chain);
    f->chain = NULL;
}

/* --- what is on the disk -------------------------------------------------- */

static bool has_hash(const char *path, uint64_t hash)
{
    char want[20], *text = NULL, *sum = fl_path_join(path, FL_MANIFEST_SUM);
    size_t size = 0;
    bool same;

    snprintf(want, sizeof want, "%016llx\n", (unsigned long long)hash);
    same = sum && fl_file_read(sum, &text, &size) == FLEET_OK &&
           strcmp(text, want) == 0;
    fl_free(text);
    fl_free(sum);
    return same;
}

static bool is_there(const fl_save_chain *c, const fl_at *at)
{
    fl_chain_entry e = {.folder = ""};
    char *path;
    bool there;

    if (fl_chain_entry_read(at, &e) != FLEET_OK)
        return false;
    path = fl_path_join(c->folder, e.folder);
    there = path && has_hash(path, e.hash);
    fl_free(path);
    return there;
}

/* A user may have removed one of them. */
static bool goes_on(const fl_save_chain *c, const fleet_save_every *o)
{
    fl_at list;

    if (!c || strcmp(c->folder, o->folder) != 0 || c->n >= o->incremental ||
        c->bytes >= c->base_bytes)
        return false;
    list = fl_at_root(c->links);
    for (fl_at at = fl_at_first(&list); at.json; fl_at_next(&list, &at))
        if (!is_there(c, &at))
            return false;
    return true;
}

/* --- one save ------------------------------------------------------------- */

static fleet_status begin_chain(const fleet_save_every *o, fleet *f)
{
    fl_save_chain_end(f);
    FL_TRY(FL_NEW(&f->chain, sizeof *f->chain));
    f->chain->folder = fl_strdup(o->folder);
    f->chain->links = fl_json_array();
    return f->chain->folder && f->chain->links ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status add_link(fl_save_chain *c, const fl_save_link *link,
                             const char *path)
{
    const char *slash = strrchr(path, '/');
    fl_json *entry = fl_json_object();

    FL_TRY(fl_json_append(c->links, entry));
    FL_TRY(
        fl_json_put(entry, "folder", fl_json_string(slash ? slash + 1 : path)));
    FL_TRY(fl_json_put(entry, "xxh64", fl_json_hex(link->hash)));
    c->n += link->base != 0;
    c->base_bytes = link->base ? c->base_bytes : link->bytes;
    c->bytes = link->base ? c->bytes + link->bytes : 0;
    c->token = link->token;
    return FLEET_OK;
}

static fleet_status save(const fleet_save_every *o, fleet *f, const char *path)
{
    return o->save ? o->save(o->user, f, path)
                   : fleet_save_persistables(f, path);
}

/* A save that fails, or was made as another one, ends the chain. */
static fleet_status save_link(const fleet_save_every *o, fleet *f,
                              const char *path, fl_save_link *link)
{
    fleet_status status;

    f->link = link;
    f->link_path = path;
    status = save(o, f, path);
    f->link = NULL;
    f->link_path = NULL;
    if (status == FLEET_OK && link->hash)
        status = add_link(f->chain, link, path);
    if (status != FLEET_OK || !link->hash)
        fl_save_chain_end(f);
    return status;
}

static uint64_t new_token(void)
{
    return fl_mix((uint64_t)fl_now_ns() ^ (uint64_t)getpid() << 40) | 1;
}

fleet_status fl_save_chain_write(const fleet_save_every *o, fleet *f,
                                 const char *path)
{
    fl_save_link link = {.token = new_token()};
    fleet_status status;

    if (o->incremental == 0)
        return save(o, f, path);
    if (goes_on(f->chain, o)) {
        link.base = f->chain->token;
        link.chain = f->chain->links;
        status = save_link(o, f, path, &link);
        if (!link.refused)
            return status;
        FL_INFO(&f->context.log,
                "%s: not all know what has changed: all rows are saved", path);
        link = (fl_save_link){.token = new_token()};
    }
    status = begin_chain(o, f);
    return status == FLEET_OK ? save_link(o, f, path, &link) : status;
}
