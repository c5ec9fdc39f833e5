/* load_chain.c - a save and the links of its chain: of each row the newest
 * record counts. */
#include "fleet/save/load_chain.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/save/manifest.h"
#include "fleet/save/row_ages.h"

/* A key that a link behind the base has. */
typedef struct newest {
    uint64_t key;
    int32_t link; /* the newest one; n_link: the save itself */
    int32_t is_row;
} newest;

typedef struct fl_saved_newer {
    newest *of;
    size_t n, capacity;
} fl_saved_newer;

/* --- which saves ---------------------------------------------------------- */

fleet_status fl_chain_entry_read(const fl_at *at, fl_chain_entry *e)
{
    fl_at hash = fl_at_key(at, "xxh64");

    FL_TRY(fl_manifest_text(at, "folder", &e->folder));
    if (!*e->folder || *e->folder == '.' || strchr(e->folder, '/'))
        return fl_fail(FLEET_ECORRUPT,
                       "%s: \"%s\" is no name of a save beside "
                       "this one",
                       at->path, e->folder);
    return fl_at_hex(&hash, &e->hash);
}

static bool same_names(const fl_saved_item *a, const fl_saved_item *b)
{
    if (a->n_state != b->n_state || a->n_row != b->n_row)
        return false;
    for (int i = 0; i < a->n_state + a->n_row; i++)
        if (strcmp(a->state[i], b->state[i]) != 0)
            return false;
    return true;
}

/* Do their records say the same? */
static bool same_table(const fl_saved_item *a, const fl_saved_item *b)
{
    return strcmp(a->name, b->name) == 0 &&
           fl_shape_equal(&a->shape, &b->shape) && same_names(a, b) &&
           a->accessor == b->accessor && a->ages == b->ages;
}

static fleet_status check_tables(const fl_saved *s, const fl_saved *link)
{
    if (link->n_table != s->n_table)
        return fl_fail(FLEET_ECORRUPT,
                       "it has %d tables, and the save that adds to it has %d",
                       link->n_table, s->n_table);
    for (int i = 0; i < s->n_table; i++)
        if (!same_table(&s->table[i], &link->table[i]))
            return fl_fail(FLEET_ECORRUPT,
                           "it has other tables than the save that adds to it: "
                           "\"%s\"",
                           s->table[i].name);
    return FLEET_OK;
}

static fleet_status open_link(const fl_saved *s, const char *parent,
                              const fl_chain_entry *e, fl_saved *link)
{
    char *path = fl_path_join(parent, e->folder);
    fleet_status status = path ? FLEET_OK : FLEET_ENOMEM;

    if (status == FLEET_OK)
        status = fl_source_folder_open(&link->folder, path);
    fl_free(path);
    FL_TRY(status);
    FL_TRY(fl_manifest_open(link, "checkpoint"));
    if (link->hash != e->hash)
        return fl_fail(FLEET_ECORRUPT,
                       "its manifest has the hash %016llx, not %016llx: "
                       "another save has taken its place",
                       (unsigned long long)link->hash,
                       (unsigned long long)e->hash);
    fl_source_folder_rest(&link->folder);
    if (link->chained != (link != s->link))
        return fl_fail(FLEET_ECORRUPT, "%s",
                       link->chained ? "it has not all rows, as it adds to "
                                       "others itself"
                                     : "it adds to none");
    FL_TRY(check_tables(s, link));
    if (link->updates > s->updates)
        return fl_fail(FLEET_ECORRUPT,
                       "it has %lld updates, and what adds to it %lld",
                       (long long)link->updates, (long long)s->updates);
    return FLEET_OK;
}

static fleet_status open_links(fl_saved *s, const fl_at *chain,
                               const char *parent)
{
    for (fl_at at = fl_at_first(chain); at.json; fl_at_next(chain, &at)) {
        fl_saved *link = &s->link[s->n_link];
        fl_chain_entry e = {.folder = ""};
        fleet_status status;

        FL_TRY(fl_chain_entry_read(&at, &e));
        link->folder.fd = -1;
        s->n_link++;
        status = open_link(s, parent, &e, link);
        if (status == FLEET_ENOMEM || status == FLEET_EIO)
            return status; /* nothing is wrong with the save */
        if (status != FLEET_OK)
            return fl_fail(FLEET_ECORRUPT,
                           "%s: what it adds to, link %d of %d, \"%s\": %s",
                           s->folder.path, s->n_link, fl_at_count(chain),
                           e.folder, fleet_last_error());
    }
    return FLEET_OK;
}

fleet_status fl_chain_open(fl_saved *s, const char *path)
{
    fl_at root = fl_at_root(s->manifest), chain = fl_at_key(&root, "chain");
    int n = fl_at_count(&chain);
    fleet_status status;
    char *parent;

    if (!s->chained)
        return FLEET_OK;
    if (!fl_at_is_array(&chain) || n < 1 || n > FL_MOST_LINKS)
        return fl_at_expected(&chain, "the saves that this one adds to");
    FL_TRY(FL_NEW(&s->link, (size_t)n * sizeof *s->link));
    parent = fl_path_join(path, ".."); /* where a symbolic link leads to */
    status = parent ? open_links(s, &chain, parent) : FLEET_ENOMEM;
    fl_free(parent);
    return status;
}

static fleet_status name_links(const fl_saved *s, fl_chain_visitor *visit,
                               void *arg)
{
    fl_at root = fl_at_root(s->manifest), chain = fl_at_key(&root, "chain");

    for (fl_at at = fl_at_first(&chain); at.json; fl_at_next(&chain, &at)) {
        fl_chain_entry e = {.folder = ""};

        FL_TRY(fl_chain_entry_read(&at, &e));
        FL_TRY(visit(arg, e.folder));
    }
    return FLEET_OK;
}

fleet_status fl_chain_names(const char *path, fl_chain_visitor *visit,
                            void *arg)
{
    fl_saved s = {0};
    fleet_status status = fl_source_folder_open(&s.folder, path);

    if (status == FLEET_OK)
        status = fl_manifest_open(&s, NULL);
    if (status == FLEET_OK)
        status = name_links(&s, visit, arg);
    fl_saved_close(&s);
    return status;
}

void fl_chain_close(fl_saved *s)
{
    for (int i = 0; i < s->n_link; i++)
        fl_saved_close(&s->link[i]);
    for (int i = 0; s->newer && i < s->n_table; i++)
        fl_free(s->newer[i].of);
    fl_free(s->newer);
    fl_free(s->link);
}

/* --- which rows ----------------------------------------------------------- */

static const fl_saved *link_at(const fl_saved *s, int i)
{
    return i < s->n_link ? &s->link[i] : s;
}

typedef struct gathering {
    fl_saved *s;
    int link;
} gathering;

static fleet_status gather_keys(void *arg, const fl_saved_record *r)
{
    const gathering *g = arg;
    fl_saved_newer *newer = &g->s->newer[r->head.item];
    const size_t n = (size_t)r->head.n;

    if (r->head.kind != FL_RECORD_ROWS && r->head.kind != FL_RECORD_GONE)
        return FLEET_OK;
    FL_TRY(
        fl_grow(&newer->of, &newer->capacity, newer->n + n, sizeof *newer->of));
    for (size_t i = 0; i < n; i++) {
        newest *to = &newer->of[newer->n++];

        memcpy(&to->key, r->payload + i * sizeof to->key, sizeof to->key);
        to->link = g->link;
        to->is_row = r->head.kind == FL_RECORD_ROWS;
    }
    return FLEET_OK;
}

/* By key, of one key the newest first. */
static int compare_newest(const void *a, const void *b)
{
    const newest *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->link > y->link ? -1 : x->link < y->link;
}

static fleet_status keep_newest(const fl_saved *s, int table)
{
    fl_saved_newer *newer = &s->newer[table];
    newest one, before = {0};
    size_t n = 0;

    if (newer->n > 1)
        qsort(newer->of, newer->n, sizeof *newer->of, compare_newest);
    for (size_t i = 0; i < newer->n; i++, before = one) {
        one = newer->of[i];
        if (i > 0 && one.key == before.key && one.link == before.link)
            return fl_fail(FLEET_ECORRUPT,
                           "%s: damaged: key %llu of \"%s\" stands twice",
                           link_at(s, one.link)->folder.path,
                           (unsigned long long)one.key, s->table[table].name);
        if (i == 0 || one.key != before.key)
            newer->of[n++] = one;
    }
    newer->n = n;
    return FLEET_OK;
}

static int compare_key(const void *key, const void *entry)
{
    const uint64_t *x = key;
    const newest *y = entry;

    return *x < y->key ? -1 : *x > y->key;
}

/* Is the row that the link has of the key the newest one? */
static bool is_newest(const fl_saved_newer *newer, uint64_t key, int link)
{
    const newest *found = newer->n > 0 ? bsearch(&key, newer->of, newer->n,
                                                 sizeof *newer->of, compare_key)
                                       : NULL;

    return found ? found->link == link : link == 0;
}

static fleet_status count_base(void *arg, const fl_saved_record *r)
{
    const gathering *g = arg;
    fl_saved_item *item;

    if (r->head.kind != FL_RECORD_ROWS)
        return FLEET_OK;
    item = &g->s->table[r->head.item];
    for (size_t i = 0; i < (size_t)r->head.n; i++) {
        uint64_t key;

        memcpy(&key, r->payload + i * sizeof key, sizeof key);
        item->n += is_newest(&g->s->newer[r->head.item], key, 0);
    }
    return FLEET_OK;
}

fleet_status fl_chain_count(fl_saved *s)
{
    gathering g = {.s = s};

    FL_TRY(FL_NEW(&s->newer, ((size_t)s->n_table + 1) * sizeof *s->newer));
    for (g.link = 1; g.link <= s->n_link; g.link++)
        FL_TRY(fl_saved_each_own(link_at(s, g.link), gather_keys, &g));
    for (int i = 0; i < s->n_table; i++) {
        FL_TRY(keep_newest(s, i));
        s->table[i].n = 0;
        for (size_t j = 0; j < s->newer[i].n; j++)
            s->table[i].n += s->newer[i].of[j].is_row;
    }
    FL_TRY(fl_saved_each_own(&s->link[0], count_base, &g));
    for (int i = 0; i < s->n_table; i++)
        s->table[i].seen = s->table[i].n;
    return FLEET_OK;
}

/* --- records -------------------------------------------------------------- */

/* A link that is read for a visitor of the whole. */
typedef struct emitting {
    const fl_saved *s;
    int link;
    int64_t later; /* updates between the link and the whole */
    fl_saved_visitor *visit;
    void *arg;
    char *payload; /* of the rows that are left */
    size_t capacity;
} emitting;

static int64_t age_then(const emitting *e, const char *at)
{
    int64_t age;

    memcpy(&age, at, sizeof age);
    return age == FL_NO_AGE || age >= FL_NO_AGE - e->later ? FL_NO_AGE
                                                           : age + e->later;
}

static size_t count_newest(const emitting *e, const fl_saved_record *r)
{
    size_t n = 0;

    for (size_t i = 0; i < (size_t)r->head.n; i++) {
        uint64_t key;

        memcpy(&key, r->payload + i * sizeof key, sizeof key);
        n += is_newest(&e->s->newer[r->head.item], key, e->link);
    }
    return n;
}

static void copy_newest(const emitting *e, const fl_saved_record *r,
                        const fl_saved_record *to)
{
    const size_t bytes = (size_t)fl_saved_width(r->item) * sizeof(float);
    const fl_saved_rows from = fl_saved_rows_of(r), out = fl_saved_rows_of(to);
    size_t n = 0;

    for (size_t i = 0; i < (size_t)r->head.n; i++) {
        uint64_t key;
        int64_t age;

        memcpy(&key, from.keys + i * sizeof key, sizeof key);
        if (!is_newest(&e->s->newer[r->head.item], key, e->link))
            continue;
        memcpy((char *)(uintptr_t)out.keys + n * sizeof key, &key, sizeof key);
        if (r->item->ages) {
            age = age_then(e, from.ages + i * sizeof age);
            memcpy((char *)(uintptr_t)out.ages + n * sizeof age, &age,
                   sizeof age);
        }
        memcpy((char *)(uintptr_t)out.steps + n * sizeof(uint32_t),
               from.steps + i * sizeof(uint32_t), sizeof(uint32_t));
        memcpy((char *)(uintptr_t)out.values + n * bytes,
               from.values + i * bytes, bytes);
        n++;
    }
}

/* A record of the link, of the rows that no later one has. */
static fleet_status emit_rows(void *arg, const fl_saved_record *r)
{
    emitting *e = arg;
    fl_saved_record to = {.head = r->head, .item = &e->s->table[r->head.item]};
    size_t n, row;

    if (r->head.kind != FL_RECORD_ROWS)
        return FLEET_OK;
    n = count_newest(e, r);
    if (n == 0)
        return FLEET_OK;
    row = sizeof(uint64_t) + fl_saved_age_bytes(r->item) + sizeof(uint32_t) +
          (size_t)fl_saved_width(r->item) * sizeof(float);
    FL_TRY(fl_grow(&e->payload, &e->capacity, n * row, 1));
    to.head.n = n;
    to.payload = e->payload;
    copy_newest(e, r, &to);
    return e->visit(e->arg, &to);
}

static fleet_status emit_own(void *arg, const fl_saved_record *r)
{
    const emitting *e = arg;

    return r->head.kind == FL_RECORD_GONE ? FLEET_OK : e->visit(e->arg, r);
}

fleet_status fl_chain_each(const fl_saved *s, fl_saved_visitor *visit,
                           void *arg)
{
    emitting e = {.s = s, .visit = visit, .arg = arg};
    fleet_status status = FLEET_OK;

    for (; e.link < s->n_link && status == FLEET_OK; e.link++) {
        e.later = s->updates - s->link[e.link].updates;
        status = fl_saved_each_own(&s->link[e.link], emit_rows, &e);
    }
    fl_free(e.payload);
    return status == FLEET_OK ? fl_saved_each_own(s, emit_own, &e) : status;
}
