/* load.c - reading saves: every part is walked twice, to check it and to bring
 * it into a store. */
#include "fleet/save/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "fleet/save/manifest.h"
#include "runtime/exec/executor.h"
#include "runtime/lookup/wanted_rows.h"

/* --- parts ---------------------------------------------------------------- */

typedef struct part {
    const char *folder, *file;
    char *data;
    size_t size, at;
} part;

/* One record: its header, then what follows it. */
typedef struct record {
    fl_record head;
    const fl_saved_item *item;
    const char *payload;
} record;

typedef fleet_status visit_record(void *arg, const record *r);

static fleet_status part_damaged(const part *p, const char *why)
{
    return fl_fail(FLEET_ECORRUPT, "%s/%s: damaged: %s at byte %zu", p->folder,
                   p->file, why, p->at);
}

static size_t payload_size(const fl_saved_item *item, const fl_record *h)
{
    size_t width = 1 + (size_t)item->n_state;

    if (h->kind == FL_RECORD_DENSE)
        return (size_t)h->n * width * sizeof(float);
    return (size_t)h->n * (sizeof(uint64_t) + sizeof(uint32_t) +
                           width * (size_t)item->shape.dim[1] * sizeof(float));
}

static fleet_status check_head(const part *p, const fl_saved *s,
                               const fl_record *h, fl_saved_item **item)
{
    bool dense = h->kind == FL_RECORD_DENSE;
    int64_t left;

    if (h->magic != FL_RECORD_MAGIC || (!dense && h->kind != FL_RECORD_ROWS) ||
        h->item >= (uint32_t)(dense ? s->n_param : s->n_table))
        return part_damaged(p, "no record");
    *item = &(dense ? s->param : s->table)[h->item];
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

static fleet_status walk_part(part *p, const fl_saved *s, visit_record *visit,
                              void *arg)
{
    while (p->at < p->size) {
        fl_saved_item *item = NULL;
        record r;
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
                              visit_record *visit, void *arg)
{
    fl_at sum_at = fl_at_key(entry, "xxh64");
    fleet_status status;
    int64_t size = 0;
    uint64_t sum;
    part p = {.folder = s->folder.path, .file = ""};

    FL_TRY(fl_manifest_int(entry, "size", 0, (int64_t)1 << 53, &size));
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

static fleet_status each_record(const fl_saved *s, visit_record *visit,
                                void *arg)
{
    fl_at root = fl_at_root(s->manifest), list = fl_at_key(&root, "parts");

    if (!fl_at_is_array(&list))
        return fl_at_expected(&list, "an array");
    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e))
        FL_TRY(read_part(s, &e, visit, arg));
    return FLEET_OK;
}

/* Each part is read, and walked through, twice. */
static fleet_status expect_parts(const fl_saved *s)
{
    fl_at root = fl_at_root(s->manifest), list = fl_at_key(&root, "parts");

    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e)) {
        int64_t size = 0;

        FL_TRY(fl_manifest_int(&e, "size", 0, (int64_t)1 << 53, &size));
        fl_file_expect(4 * (uint64_t)size);
    }
    return FLEET_OK;
}

static fleet_status count_record(void *arg, const record *r)
{
    fl_saved *s = arg;
    bool dense = r->head.kind == FL_RECORD_DENSE;
    fl_saved_item *item = &(dense ? s->param : s->table)[r->head.item];

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

/* *again: it failed, and another save has taken its place meanwhile. */
static fleet_status use_once(const char *path, const char *what,
                             fl_saved_user *use, void *arg, bool *again)
{
    fl_saved s = {0};
    fleet_status status;

    FL_GOTO(done, fl_source_folder_open(&s.folder, path));
    FL_GOTO(done, fl_manifest_open(&s, what));
    FL_GOTO(done, expect_parts(&s));
    FL_GOTO(done, each_record(&s, count_record, &s));
    FL_GOTO(done, check_blocks(&s));
    FL_GOTO(done, check_seen(&s, s.param, s.n_param, "numbers"));
    FL_GOTO(done, check_seen(&s, s.table, s.n_table, "rows"));
    status = use(arg, &s);
done:
    *again = status != FLEET_OK && fl_source_folder_replaced(&s.folder);
    fl_source_folder_close(&s.folder);
    fl_json_free(s.manifest);
    fl_free(s.block);
    fl_free(s.param);
    fl_free(s.table);
    fl_map_done(&s.params);
    fl_map_done(&s.tables);
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
    for (int i = 0; again && i < TRIES; i++)
        status = use_once(path, what, use, arg, &again);
    if (again)
        status =
            fl_fail(FLEET_EIO, "%s was replaced %d times while it was read",
                    path, TRIES);
    return status == FLEET_OK ? FLEET_OK : fl_fail_in(status, "load");
}

/* --- into a store --------------------------------------------------------- */

/* The optimizer's states must be the saved ones; without one, none are read. */
static fleet_status check_states(const fl_saved_item *item,
                                 const fl_store *store)
{
    const fl_rule *rule;
    bool same;

    if (!store->optimizer)
        return FLEET_OK;
    rule = fl_rule_of(store->optimizer->kind);
    same = item->n_state == rule->n_state;
    for (int i = 0; same && i < rule->n_state; i++)
        same = strcmp(item->state[i], rule->state[i]) == 0;
    return same ? FLEET_OK
                : fl_fail(FLEET_ESHAPE,
                          "\"%s\" was saved with the states of another "
                          "optimizer than %s",
                          item->name, rule->name);
}

static fleet_status check_item(const fl_saved *s, const fl_store *store,
                               const fl_saved_item *item, const char *name,
                               const fl_shape *shape)
{
    if (!item)
        return fl_fail(FLEET_ENOENT, "%s has no \"%s\"", s->folder.path, name);
    if (!fl_shape_equal(&item->shape, shape))
        return fl_fail(FLEET_ESHAPE, "\"%s\" has shape %s, but %s in %s", name,
                       fl_shape_print(shape).chars,
                       fl_shape_print(&item->shape).chars, s->folder.path);
    return check_states(item, store);
}

static fleet_status check_fit(fl_saved *s, const fl_store *store)
{
    for (size_t i = 0; i < store->params.n; i++) {
        const fl_param *p = store->params.entry[i].value;

        FL_TRY(check_item(s, store, fl_map_get(&s->params, p->name), p->name,
                          &p->shape));
    }
    for (size_t i = 0; i < store->tables.n; i++) {
        const fl_rows *r = store->tables.entry[i].value;
        fl_shape shape = fl_shape_2(r->modulo, r->dim);

        FL_TRY(check_item(s, store, fl_map_get(&s->tables, r->name), r->name,
                          &shape));
    }
    return FLEET_OK;
}

static void apply_dense(const record *r, const fl_param *p)
{
    const fl_flat *g = p->flat;
    size_t bytes = (size_t)r->head.n * sizeof(float);
    int64_t at = fl_block_offset(p, r->head.index);

    memcpy(g->weight + at, r->payload, bytes);
    if (at < g->first || at >= g->end)
        return; /* its states are another rank's */
    for (int i = 0; i < r->item->n_state; i++)
        if (g->state[i])
            memcpy(g->state[i] + (at - g->first),
                   r->payload + (size_t)(1 + i) * bytes, bytes);
}

/* A row of a save, and how many of its numbers the table has, too. */
typedef struct saved_row {
    uint64_t key;
    const char *step, *values;
    size_t bytes;
} saved_row;

static fleet_status apply_row(const saved_row *from, fl_rows *rows)
{
    fl_wanted_rows wanted = {0};
    fleet_status status = fl_rows_bring(&wanted, rows, &from->key, 1);
    float *row;

    if (status == FLEET_OK)
        status = rows->methods->make(rows, &from->key, 1, &row);
    if (status == FLEET_OK) {
        memcpy(&fl_row_of(row)->step, from->step, sizeof(uint32_t));
        memcpy(row, from->values, from->bytes);
    }
    fl_wanted_rows_done(&wanted);
    return status;
}

static fleet_status apply_rows(const record *r, fl_rows *rows)
{
    size_t n = (size_t)r->head.n;
    size_t width = (1 + (size_t)r->item->n_state) * (size_t)rows->dim;
    size_t kept = (1 + (size_t)rows->n_state) * (size_t)rows->dim;
    const char *keys = r->payload, *steps = keys + n * sizeof(uint64_t);
    const char *values = steps + n * sizeof(uint32_t);

    for (size_t i = 0; i < n; i++) {
        saved_row one = {.step = steps + i * sizeof(uint32_t),
                         .values = values + i * width * sizeof(float),
                         .bytes =
                             (kept < width ? kept : width) * sizeof(float)};

        memcpy(&one.key, keys + i * sizeof one.key, sizeof one.key);
        if (fl_bucket_of(fl_mix(one.key)) != (int)r->head.index)
            return fl_fail(FLEET_ECORRUPT,
                           "a row of \"%s\" is in another bucket than its own",
                           rows->name);
        FL_TRY(apply_row(&one, rows));
    }
    return FLEET_OK;
}

/* A save that goes into a store. */
typedef struct applying {
    fl_saved *saved;
    fl_store *store;
    const fl_bucket_set *rows; /* whose rows; NULL: all */
} applying;

static fleet_status apply_record(void *arg, const record *r)
{
    const applying *a = arg;
    fl_rows *rows;

    if (r->head.kind == FL_RECORD_DENSE) {
        const fl_param *p = fl_store_param(a->store, r->item->name);

        if (p && fl_block_offset(p, r->head.index) >= 0)
            apply_dense(r, p);
        return FLEET_OK;
    }
    rows = fl_store_rows(a->store, r->item->name);
    if (!rows || rows->remote ||
        (a->rows && !fl_bucket_set_has(a->rows, (int)r->head.index)))
        return FLEET_OK;
    a->saved->table[r->head.item].own += (int64_t)r->head.n;
    return apply_rows(r, rows);
}

/* A key that stands twice was counted twice. */
static fleet_status check_counts(const fl_saved *s, const fl_store *store)
{
    for (size_t i = 0; i < store->tables.n; i++) {
        const fl_rows *r = store->tables.entry[i].value;
        const fl_saved_item *item = fl_map_get(&s->tables, r->name);

        if (r->methods->count(r) != item->own)
            return fl_fail(FLEET_ECORRUPT,
                           "%s: damaged: the parts hold %lld different rows of "
                           "\"%s\", not %lld",
                           s->folder.path, (long long)r->methods->count(r),
                           r->name, (long long)item->own);
    }
    return FLEET_OK;
}

static fleet_status apply_all(fl_saved *s, fl_store *store,
                              const fl_bucket_set *rows)
{
    /* a lane's store never has more: it is whole */
    bool part_of_rows =
        !store->filter.keeps && rows && fl_bucket_set_count(rows) < FL_N_BUCKET;
    applying a = {s, store, rows};

    if (store->n_flat > 0)
        return fl_fail(FLEET_ESTATE, "load: a merge group is under way: end it "
                                     "with fleet_executor_flush()");
    FL_TRY(check_fit(s, store));
    store->half_loaded = true;
    for (size_t i = 0; i < store->tables.n; i++) {
        fl_rows *r = store->tables.entry[i].value;

        r->methods->clear(r);
        r->filler = ((fl_saved_item *)fl_map_get(&s->tables, r->name))->filler;
    }
    for (int i = 0; i < s->n_table; i++)
        s->table[i].own = 0;
    FL_TRY(each_record(s, apply_record, &a));
    FL_TRY(check_counts(s, store));
    store->updates = s->updates;
    if (s->scaling.scale > 0) {
        store->scaling = s->scaling;
        store->known_skips = 0;
    }
    fl_store_forget_own(store);
    store->half_loaded = false;
    store->partial = part_of_rows && fl_store_own_tables(store) > 0;
    return FLEET_OK;
}

fleet_status fl_saved_apply(fl_saved *s, fl_store *store,
                            const fl_bucket_set *rows)
{
    fleet_status status;

    FL_TRY(fl_store_synchronize(store)); /* it would count in what was loaded */
    pthread_rwlock_wrlock(&store->lock);
    status = fl_store_to_host(store); /* what is not loaded stays */
    if (status == FLEET_OK) {
        status = apply_all(s, store, rows);
        fl_store_written(store);
    }
    pthread_rwlock_unlock(&store->lock);
    return status;
}
