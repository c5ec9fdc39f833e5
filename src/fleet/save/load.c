/* load.c - reading saves: every part is walked twice, to check it and to use
 * it. */
#include "fleet/save/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/save/load_chain.h"
#include "fleet/save/manifest.h"
#include "fleet/save/row_ages.h"
#include "runtime/store/table_api.h"

/* --- parts ---------------------------------------------------------------- */

typedef struct part {
    const char *folder, *file;
    char *data;
    size_t size, at;
} part;

static fleet_status part_damaged(const part *p, const char *why)
{
    return fl_fail(FLEET_ECORRUPT, "%s/%s: damaged: %s at byte %zu", p->folder,
                   p->file, why, p->at);
}

static size_t payload_size(const fl_saved_item *item, const fl_record *h)
{
    if (h->kind == FL_RECORD_DENSE)
        return (size_t)h->n * (1 + (size_t)item->n_state) * sizeof(float);
    if (h->kind == FL_RECORD_LIFE)
        return fl_life_numbers(h->n) * sizeof(int64_t);
    if (h->kind == FL_RECORD_GONE)
        return (size_t)h->n * sizeof(uint64_t);
    return (size_t)h->n *
           (sizeof(uint64_t) + fl_saved_age_bytes(item) + sizeof(uint32_t) +
            (size_t)fl_saved_width(item) * sizeof(float));
}

static fleet_status check_head(const part *p, const fl_saved *s,
                               const fl_record *h, fl_saved_item **item)
{
    bool dense = h->kind == FL_RECORD_DENSE;
    int64_t left;

    if (h->magic != FL_RECORD_MAGIC || h->kind < FL_RECORD_DENSE ||
        h->kind > FL_RECORD_GONE ||
        h->item >= (uint32_t)(dense ? s->n_param : s->n_table))
        return part_damaged(p, "no record");
    *item = &(dense ? s->param : s->table)[h->item];
    if (h->kind == FL_RECORD_LIFE)
        return (*item)->ages && h->n <= FL_LIFE_MARKS
                   ? FLEET_OK
                   : part_damaged(p, "marks that cannot be");
    if (h->kind == FL_RECORD_GONE)
        return s->chained && h->n <= p->size
                   ? FLEET_OK
                   : part_damaged(p, "keys that cannot be");
    if (h->n > (uint64_t)(*item)->n || h->n > p->size)
        return part_damaged(p, "a record that is too large");
    if (!dense)
        return h->index < FL_N_BUCKET
                   ? FLEET_OK
                   : part_damaged(p, "a bucket that is none");
    left = (*item)->n - (int64_t)h->index * FL_BLOCK;
    if (left <= 0 || h->n != (uint64_t)(left < FL_BLOCK ? left : FL_BLOCK))
        return part_damaged(p, "a block that does not fit its parameter");
    return FLEET_OK;
}

static fleet_status walk_part(part *p, const fl_saved *s,
                              fl_saved_visitor *visit, void *arg)
{
    while (p->at < p->size) {
        fl_saved_item *item = NULL;
        fl_saved_record r;
        size_t size;

        if (p->size - p->at < sizeof r.head)
            return part_damaged(p, "half a record");
        memcpy(&r.head, p->data + p->at, sizeof r.head);
        FL_TRY(check_head(p, s, &r.head, &item));
        size = payload_size(item, &r.head);
        if (p->size - p->at - sizeof r.head < size)
            return part_damaged(p, "half a record");
        r.item = item;
        r.payload = p->data + p->at + sizeof r.head;
        FL_TRY(visit(arg, &r));
        p->at += sizeof r.head + size;
        FL_TRY(fl_file_go_on(sizeof r.head + size));
    }
    return FLEET_OK;
}

static fleet_status read_part(const fl_saved *s, const fl_at *entry,
                              fl_saved_visitor *visit, void *arg)
{
    fl_at sum_at = fl_at_key(entry, "xxh64");
    fleet_status status;
    int64_t size = 0;
    uint64_t sum;
    part p = {.folder = s->folder.path, .file = ""};

    FL_TRY(fl_manifest_int(entry, "size", 0, FL_MOST_EXACT, &size));
    FL_TRY(fl_at_hex(&sum_at, &sum));
    FL_TRY(fl_manifest_text(entry, "file", &p.file));
    if (!*p.file ||
        strchr(p.file, '/')) /* it must not lead out of the folder */
        return fl_fail(FLEET_ECORRUPT, "%s: \"%s\" is no part's name",
                       entry->path, p.file);
    FL_TRY(fl_source_folder_checked(&s->folder, p.file, (uint64_t)size, sum,
                                    &p.data));
    p.size = (size_t)size;
    status = walk_part(&p, s, visit, arg);
    fl_free(p.data);
    return status;
}

static fleet_status read_parts(const fl_saved *s, fl_saved_visitor *visit,
                               void *arg)
{
    fl_at root = fl_at_root(s->manifest), list = fl_at_key(&root, "parts");

    if (!fl_at_is_array(&list))
        return fl_at_expected(&list, "an array");
    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e))
        FL_TRY(read_part(s, &e, visit, arg));
    return FLEET_OK;
}

/* Links rest between two readings: there may be more of them than files may be
 * open. One that was replaced meanwhile has parts with other sums. */
fleet_status fl_saved_each_own(const fl_saved *s, fl_saved_visitor *visit,
                               void *arg)
{
    fl_saved again = *s;
    fleet_status status;

    if (s->folder.fd >= 0)
        return read_parts(s, visit, arg);
    status = fl_source_folder_open(&again.folder, s->folder.path);
    if (status == FLEET_OK)
        status = read_parts(&again, visit, arg);
    fl_source_folder_close(&again.folder);
    return status;
}

fleet_status fl_saved_each(const fl_saved *s, fl_saved_visitor *visit,
                           void *arg)
{
    return s->n_link > 0 ? fl_chain_each(s, visit, arg)
                         : fl_saved_each_own(s, visit, arg);
}

/* Each part is read, and walked through, twice. */
static fleet_status expect_parts(const fl_saved *s)
{
    fl_at root = fl_at_root(s->manifest), list = fl_at_key(&root, "parts");

    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e)) {
        int64_t size = 0;

        FL_TRY(fl_manifest_int(&e, "size", 0, FL_MOST_EXACT, &size));
        fl_file_expect(4 * (uint64_t)size);
    }
    return FLEET_OK;
}

/* The keys of a record rise, and all are its bucket's. */
static fleet_status check_keys(const fl_saved *s, const fl_saved_record *r)
{
    uint64_t key, before = 0;

    for (size_t i = 0; i < (size_t)r->head.n; i++, before = key) {
        memcpy(&key, r->payload + i * sizeof key, sizeof key);
        if (fl_bucket_of(fl_mix(key)) != (int)r->head.index ||
            (i > 0 && key <= before))
            return fl_fail(FLEET_ECORRUPT,
                           "%s: damaged: key %llu of \"%s\" stands %s",
                           s->folder.path, (unsigned long long)key,
                           s->table[r->head.item].name,
                           i > 0 && key == before  ? "twice"
                           : i > 0 && key < before ? "behind a larger one"
                                                   : "in another key's place");
    }
    return FLEET_OK;
}

static fleet_status count_record(void *arg, const fl_saved_record *r)
{
    fl_saved *s = arg;
    bool dense = r->head.kind == FL_RECORD_DENSE;
    fl_saved_item *item = &(dense ? s->param : s->table)[r->head.item];

    if (r->head.kind == FL_RECORD_LIFE || r->head.kind == FL_RECORD_GONE)
        return FLEET_OK;
    if (r->head.kind == FL_RECORD_ROWS)
        FL_TRY(check_keys(s, r));
    if (dense) {
        FL_TRY(fl_grow(&s->block, &s->block_capacity, s->n_block + 1,
                       sizeof *s->block));
        s->block[s->n_block++] =
            (uint64_t)r->head.item << 32 | (uint64_t)r->head.index;
    }
    item->seen += (int64_t)r->head.n;
    return FLEET_OK;
}

static int smaller_first(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* A block that stands twice would make up for one that is missing. What is kept
 * of blocks grows with the records in the parts, not with the number that the
 * manifest promises. */
static fleet_status check_blocks(fl_saved *s)
{
    if (s->n_block > 1)
        qsort(s->block, s->n_block, sizeof *s->block, smaller_first);
    for (size_t i = 1; i < s->n_block; i++)
        if (s->block[i] == s->block[i - 1])
            return fl_fail(FLEET_ECORRUPT,
                           "%s: damaged: block %u of \"%s\" stands twice",
                           s->folder.path, (unsigned)s->block[i],
                           s->param[s->block[i] >> 32].name);
    return FLEET_OK;
}

static fleet_status check_seen(const fl_saved *s, const fl_saved_item *item,
                               int n, const char *unit)
{
    for (int i = 0; i < n; i++)
        if (item[i].seen != item[i].n)
            return fl_fail(FLEET_ECORRUPT,
                           "%s: damaged: the parts hold %lld %s of \"%s\", not "
                           "%lld",
                           s->folder.path, (long long)item[i].seen, unit,
                           item[i].name, (long long)item[i].n);
    return FLEET_OK;
}

/* Of its own parts. */
static fleet_status check_parts(fl_saved *s)
{
    FL_TRY(expect_parts(s));
    FL_TRY(fl_saved_each_own(s, count_record, s));
    FL_TRY(check_blocks(s));
    FL_TRY(check_seen(s, s->param, s->n_param, "numbers"));
    return check_seen(s, s->table, s->n_table, "rows");
}

void fl_saved_close(fl_saved *s)
{
    fl_source_folder_close(&s->folder);
    fl_json_free(s->manifest);
    fl_free(s->block);
    fl_free(s->param);
    fl_free(s->table);
    fl_map_done(&s->params);
    fl_map_done(&s->tables);
}

static fleet_status check_links(fl_saved *s)
{
    for (int i = 0; i < s->n_link; i++)
        FL_TRY(check_parts(&s->link[i]));
    return s->n_link > 0 ? fl_chain_count(s) : FLEET_OK;
}

/* *again: it failed, and another save has taken its place meanwhile. */
static fleet_status use_once(const char *path, const char *what,
                             fl_saved_user *use, void *arg, bool *again)
{
    fl_saved s = {0};
    fleet_status status;

    FL_GOTO(done, fl_source_folder_open(&s.folder, path));
    FL_GOTO(done, fl_manifest_open(&s, what));
    FL_GOTO(done, fl_chain_open(&s, path));
    FL_GOTO(done, check_parts(&s));
    FL_GOTO(done, check_links(&s));
    status = use(arg, &s);
done:
    *again = status != FLEET_OK && fl_source_folder_replaced(&s.folder);
    fl_chain_close(&s);
    fl_saved_close(&s);
    return status;
}

fleet_status fl_saved_use(const char *path, const char *what,
                          fl_saved_user *use, void *arg)
{
    enum { TRIES = 20 };
    fleet_status status = FLEET_OK;
    bool again = true;

    if (!path)
        return fl_fail(FLEET_EINVAL, "load: the path is NULL");
    if (!*path)
        return fl_fail(FLEET_EINVAL, "load: the path is empty");
    for (int i = 0; again && i < TRIES; i++)
        status = use_once(path, what, use, arg, &again);
    if (again)
        status =
            fl_fail(FLEET_EIO, "%s was replaced %d times while it was read",
                    path, TRIES);
    return status == FLEET_OK ? FLEET_OK : fl_fail_in(status, "load");
}
