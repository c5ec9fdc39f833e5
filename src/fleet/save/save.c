/* save.c - writing saves: parts first, then the manifest, then the folder takes
 * the place of the one before. */
#include "fleet/save/save.h"

#include <stdio.h>
#include <string.h>

#include "base/file/file_writer.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/row_ages.h"
#include "fleet/save/save_changes.h"
#include "fleet/save/save_training.h"
#include "runtime/exec/executor.h"
#include "runtime/life/accessor.h"
#include "runtime/simd/simd.h"
#include "runtime/store/snapshot.h"
#include "runtime/store/store_check.h"
#include "base/folder.h"

enum { PART_BYTES = 256 << 20 };

/* The part that is being written; a full one is followed by the next. */
typedef struct parts {
    const char *folder, *prefix;
    fl_json *list; /* for the manifest */
    fl_writer writer;
    bool open;
    int n;
} parts;

static fleet_status close_part(parts *p)
{
    fl_json *entry;
    uint64_t size, hash;
    char name[64];

    p->open = false;
    snprintf(name, sizeof name, "%s%05d", p->prefix, p->n++);
    FL_TRY(fl_writer_close(&p->writer, &size, &hash));
    entry = fl_json_object();
    FL_TRY(fl_json_append(p->list, entry));
    FL_TRY(fl_json_put(entry, "file", fl_json_string(name)));
    FL_TRY(fl_json_put(entry, "size", fl_json_int((int64_t)size)));
    return fl_json_put(entry, "xxh64", fl_json_hex(hash));
}

static fleet_status begin_record(parts *p, const fl_record *r)
{
    char name[64];

    if (p->open && p->writer.written > PART_BYTES)
        FL_TRY(close_part(p));
    if (!p->open) {
        snprintf(name, sizeof name, "%s%05d", p->prefix, p->n);
        p->open = true;
        FL_TRY(fl_writer_open(&p->writer, p->folder, name));
    }
    fl_writer_put(&p->writer, r, sizeof *r);
    return p->writer.status;
}

static int state_count(const fl_save *s, const fl_param *p)
{
    return s->states ? fl_store_states(s->store, p) : 0;
}

/* The rule whose states of rows are saved; NULL: none are. */
static const fl_rule *row_rule(const fl_save *s, const fl_rows *r)
{
    return s->states ? fl_store_row_rule(s->store, r) : NULL;
}

/* Is what is behind the weights of rows saved? An accessor's numbers are also
 * without an optimizer. */
static bool saves_states(const fl_save *s, const fl_rows *r)
{
    return row_rule(s, r) || (s->states && fl_rows_has_accessor(r));
}

static bool saves_ages(const fl_save *s, const fl_rows *r)
{
    return s->states && fl_row_ages_saved(s->store, r);
}

/* That the save is of. */
static int64_t updates_of(const fl_save *s)
{
    const fl_snapshot *frozen = s->store->snapshot;

    return frozen ? fl_snapshot_updates(frozen) : s->store->updates;
}

/* --- dense ---------------------------------------------------------------- */

/* Does this process write the block? Where ranks share out
 * the optimizer's states, the rank that has the block's states writes it. */
static bool writes_block(const fl_save *s, const fl_param *p, int64_t block)
{
    const fl_flat *g = p->flat;
    int64_t place = fl_block_offset(p, block);

    if (!s->own)
        return true;
    if (fl_store_is_sharded(s->store))
        return place >= g->first && place < g->end;
    return fl_bucket_set_has(s->own, fl_block_bucket(s->store, p, block));
}

/* The block's weights (-1) or states as they are to be saved. */
static const float *floats_of(const fl_save *s, const fl_param *p,
                              int64_t block, int state)
{
    const fl_flat *g = p->flat;
    int64_t at = fl_block_offset(p, block) - (state < 0 ? 0 : g->first);

    if (s->store->snapshot)
        return fl_snapshot_floats(s->store->snapshot, g, state) + at;
    return state < 0 ? fl_block_weights(p, block) : g->state[state] + at;
}

static fleet_status write_param(const fl_save *s, parts *p, int item)
{
    const fl_param *param = s->param[item];

    for (int64_t block = 0; block < fl_blocks_of(param); block++) {
        int64_t n = fl_block_size(param, block);
        fl_record r = {FL_RECORD_MAGIC, FL_RECORD_DENSE, (uint32_t)item,
                       (uint32_t)block, (uint64_t)n};
        size_t bytes = (size_t)n * sizeof(float);

        if (!writes_block(s, param, block))
            continue;
        FL_TRY(begin_record(p, &r));
        for (int i = -1; i < state_count(s, param); i++)
            fl_writer_put(&p->writer, floats_of(s, param, block, i), bytes);
        FL_TRY(p->writer.status);
    }
    return FLEET_OK;
}

/* --- rows ----------------------------------------------------------------- */

/* Rows of the bucket under way: keys, ages, steps, then values row by row. */
typedef struct bucket_rows {
    parts *parts;
    const fl_rows *rows;
    bool states, ages;
    int64_t updates; /* that ages count back from */
    int item, bucket;
    int64_t n;
    uint64_t *key;
    int64_t *age;
    uint32_t *step;
    float *value;
    size_t key_capacity, age_capacity, step_capacity, value_capacity;
    int64_t width; /* floats that are saved of a row */
    fleet_save_mode mode;
    float least_show;
    fl_save_changes *changes; /* NULL: all rows are written */
    int64_t total;            /* rows */
} bucket_rows;

static bool is_in(const bucket_rows *b, const float *row)
{
    const float *x;

    if (!fl_rows_has_accessor(b->rows))
        return true;
    x = fl_rows_shown(b->rows, row);
    return fl_accessor_saves(&b->rows->life->o.accessor, b->mode, x) &&
           x[FL_AT_SHOW] >= b->least_show;
}

static fleet_status flush_bucket(bucket_rows *b)
{
    fl_record r = {FL_RECORD_MAGIC, FL_RECORD_ROWS, (uint32_t)b->item,
                   (uint32_t)b->bucket, (uint64_t)b->n};
    fl_writer *w = &b->parts->writer;

    if (b->n == 0)
        return FLEET_OK;
    FL_TRY(begin_record(b->parts, &r));
    fl_writer_put(w, b->key, (size_t)b->n * sizeof *b->key);
    if (b->ages)
        fl_writer_put(w, b->age, (size_t)b->n * sizeof *b->age);
    fl_writer_put(w, b->step, (size_t)b->n * sizeof *b->step);
    fl_writer_put(w, b->value, (size_t)(b->n * b->width) * sizeof *b->value);
    b->total += b->n;
    b->n = 0;
    return w->status;
}

/* As the row stays once the save is in its place: a process that loads it goes
 * on as this one. */
static void put_row(const bucket_rows *b, float *to, const float *row)
{
    fl_rows_read_all(b->rows, to, row, b->states);
    if (b->states && fl_rows_has_accessor(b->rows))
        fl_accessor_saved(&b->rows->life->o.accessor, b->mode,
                          to + b->width - FL_N_ACCESSOR);
}

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    bucket_rows *b = arg;
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    size_t n;

    if (!is_in(b, row) ||
        (b->changes && !fl_save_changes_has(b->changes, key, head)))
        return FLEET_OK;
    if (bucket != b->bucket)
        FL_TRY(flush_bucket(b));
    b->bucket = bucket;
    n = (size_t)b->n + 1;
    FL_TRY(fl_grow(&b->key, &b->key_capacity, n, sizeof *b->key));
    FL_TRY(fl_grow(&b->age, &b->age_capacity, n, sizeof *b->age));
    FL_TRY(fl_grow(&b->step, &b->step_capacity, n, sizeof *b->step));
    FL_TRY(fl_grow(&b->value, &b->value_capacity, n * (size_t)b->width,
                   sizeof *b->value));
    b->key[b->n] = key;
    b->age[b->n] = fl_row_age(head->changed_at, b->updates);
    b->step[b->n] = head->step;
    put_row(b, b->value + b->n * b->width, row);
    b->n++;
    return FLEET_OK;
}

static fleet_status write_life(parts *p, const fl_life *life, int item,
                               int64_t updates)
{
    const fl_record r = {FL_RECORD_MAGIC, FL_RECORD_LIFE, (uint32_t)item, 0,
                         (uint64_t)life->n_mark};
    int64_t numbers[FL_MOST_LIFE];
    size_t n = fl_life_write(life, updates, numbers);

    FL_TRY(begin_record(p, &r));
    fl_writer_put(&p->writer, numbers, n * sizeof *numbers);
    return p->writer.status;
}

static fleet_status write_gone(parts *p, const fl_save_changes *c, int item)
{
    const fl_record r = {FL_RECORD_MAGIC, FL_RECORD_GONE, (uint32_t)item, 0,
                         (uint64_t)c->n};

    if (c->n == 0)
        return FLEET_OK;
    FL_TRY(begin_record(p, &r));
    fl_writer_put(&p->writer, c->key, (size_t)c->n * sizeof *c->key);
    return p->writer.status;
}

/* The rows that are of the save. */
static fleet_status visit_rows(const fl_save *s, bucket_rows *b)
{
    const fl_snapshot *frozen = s->store->snapshot;

    return frozen ? fl_snapshot_each(frozen, b->rows, add_row, b)
                  : b->rows->methods->each(b->rows, add_row, b);
}

static fleet_status write_rows(const fl_save *s, bucket_rows *b)
{
    fl_save_changes changes = {0};
    fleet_status status = FLEET_OK;

    if (s->link && s->link->base) {
        status = fl_save_changes_begin(&changes, s->link, b->rows);
        b->changes = &changes;
    }
    if (status == FLEET_OK)
        status = visit_rows(s, b);
    if (status == FLEET_OK)
        status = flush_bucket(b);
    if (status == FLEET_OK && b->changes) {
        fl_save_changes_gone(&changes);
        status = write_gone(b->parts, &changes, b->item);
    }
    if (status == FLEET_OK && s->link)
        fl_key_log_saved(b->rows, s->link->token, (uint64_t)b->updates);
    fl_save_changes_done(&changes);
    return status;
}

static fleet_status write_table(const fl_save *s, parts *p, int item)
{
    const fl_rows *r = s->table[item];
    bool states = saves_states(s, r);
    bucket_rows b = {.parts = p,
                     .rows = r,
                     .states = states,
                     .ages = saves_ages(s, r),
                     .updates = updates_of(s),
                     .item = item,
                     .bucket = -1,
                     .width = r->dim + (states ? fl_rows_floats(r) : 0),
                     .mode = s->mode,
                     .least_show = s->least_shows ? s->least_shows[item] : 0};
    fleet_status status = write_rows(s, &b);

    if (status == FLEET_OK && b.ages && r->life)
        status = write_life(p, r->life, item, b.updates);
    if (s->written)
        s->written[item] = b.total;
    fl_free(b.key);
    fl_free(b.age);
    fl_free(b.step);
    fl_free(b.value);
    return status;
}

/* --- the manifest --------------------------------------------------------- */

static fleet_status put_names(fl_json *entry, const char *key,
                              const char *const *name, int n)
{
    fl_json *list = fl_json_array();

    FL_TRY(fl_json_put(entry, key, list));
    for (int i = 0; i < n; i++)
        FL_TRY(fl_json_append(list, fl_json_string(name[i])));
    return FLEET_OK;
}

/* rule NULL: no states. */
static fleet_status put_states(const fl_rule *rule, fl_json *entry)
{
    static const char *const none[] = {NULL};

    return put_names(entry, "states", rule ? rule->state : none,
                     rule ? rule->n_state : 0);
}

static fleet_status put_param(const fl_save *s, fl_json *list,
                              const fl_param *p)
{
    fl_json *entry = fl_json_object(), *shape;

    FL_TRY(fl_json_append(list, entry));
    FL_TRY(fl_json_put(entry, "name", fl_json_string(p->name)));
    FL_TRY(fl_json_put(entry, "dtype", fl_json_string("float32")));
    FL_TRY(fl_json_put_array(entry, "shape", &shape));
    for (int i = 0; i < p->shape.n_dim; i++)
        FL_TRY(fl_json_append(shape, fl_json_int(p->shape.dim[i])));
    return put_states(s->states ? fl_store_rule(s->store, p) : NULL, entry);
}

/* What a table's optimizer is, besides its states of weights. */
static fleet_status put_rule(const fl_save *s, const fl_rows *r,
                             const fl_rule *rule, fl_json *entry)
{
    const fleet_optimizer *o = fl_rows_optimizer(s->store->optimizer, r);

    if (rule->n_row > 0)
        FL_TRY(put_names(entry, "row_states", rule->state + rule->n_state,
                         rule->n_row));
    FL_TRY(fl_json_put(entry, "rule", fl_json_string(rule->name)));
    return r->optimizer && fl_optimizer_has_moments(o)
               ? fl_json_put(entry, "row_steps",
                             fl_json_bool(fl_optimizer_has_row_steps(o)))
               : FLEET_OK;
}

static fleet_status put_table(const fl_save *s, fl_json *list, int item)
{
    const fl_rows *r = s->table[item];
    fl_json *entry = fl_json_object();
    const fl_filler *f = &r->filler;
    const fl_rule *rule = row_rule(s, r);

    FL_TRY(fl_json_append(list, entry));
    FL_TRY(fl_json_put(entry, "name", fl_json_string(r->name)));
    FL_TRY(fl_json_put(entry, "dim", fl_json_int(r->dim)));
    FL_TRY(fl_json_put(entry, "modulo", fl_json_int(r->modulo)));
    FL_TRY(fl_json_put(entry, "rows",
                       fl_json_int(s->elsewhere ? s->elsewhere->rows[item]
                                   : s->written ? s->written[item]
                                                : r->methods->count(r))));
    FL_TRY(fl_json_put(entry, "initializer", fl_json_int(f->kind)));
    FL_TRY(fl_json_put(entry, "a", fl_json_double((double)f->a, 9)));
    FL_TRY(fl_json_put(entry, "b", fl_json_double((double)f->b, 9)));
    FL_TRY(fl_json_put(entry, "seed", fl_json_hex(f->seed)));
    if (f->vector_at > 0)
        FL_TRY(fl_json_put(entry, "vector_at", fl_json_int(f->vector_at)));
    FL_TRY(put_states(rule, entry));
    if (saves_states(s, r) && fl_rows_has_accessor(r))
        FL_TRY(fl_json_put(entry, "accessor", fl_json_bool(true)));
    if (saves_ages(s, r))
        FL_TRY(fl_json_put(entry, "ages", fl_json_bool(true)));
    return rule ? put_rule(s, r, rule, entry) : FLEET_OK;
}

static fleet_status put_cuts(const fl_save *s, fl_json *m)
{
    fl_at cuts = fl_at_root(s->elsewhere ? s->elsewhere->cuts : NULL);

    return fl_at_count(&cuts) > 0
               ? fl_json_put(m, "cuts", fl_json_copy(cuts.json))
               : FLEET_OK;
}

static fleet_status put_extra(const fl_save *s, fl_json *m)
{
    return fl_json_put(m, "extra",
                       fl_json_words(s->extra, (int64_t)s->extra_size, 1));
}

static fleet_status describe_save(const fl_save *s, fl_json *m,
                                  fl_json *part_list)
{
    fl_json *params, *tables;

    FL_TRY(fl_json_put(m, "parts", part_list));
    FL_TRY(fl_json_put(m, "format", fl_json_string("libfleet")));
    FL_TRY(fl_save_put_version(s, m));
    FL_TRY(fl_json_put(m, "what", fl_json_string(s->what)));
    FL_TRY(fl_json_put(m, "library", fl_json_string(fleet_version())));
    FL_TRY(fl_json_put(m, "isa", fl_json_string(fl_simd_best()->isa)));
    FL_TRY(fl_json_put(m, "seed", fl_json_hex(s->store->context->seed)));
    FL_TRY(fl_json_put(
        m, "updates",
        fl_json_int(s->elsewhere ? s->elsewhere->updates : s->store->updates)));
    FL_TRY(put_cuts(s, m));
    FL_TRY(fl_save_put_training(s, m));
    FL_TRY(fl_json_put_array(m, "params", &params));
    for (int i = 0; i < s->n_param; i++)
        FL_TRY(put_param(s, params, s->param[i]));
    FL_TRY(fl_json_put_array(m, "tables", &tables));
    for (int i = 0; i < s->n_table; i++)
        FL_TRY(put_table(s, tables, i));
    if (s->program)
        FL_TRY(fl_json_put(m, "program", fl_json_copy(s->program)));
    if (s->reader)
        FL_TRY(fl_json_put(m, "reader", fl_json_copy(s->reader)));
    if (s->statistics)
        FL_TRY(fl_json_put(m, "statistics", fl_json_copy(s->statistics)));
    if (s->positions)
        FL_TRY(fl_json_put(m, "positions", fl_json_copy(s->positions)));
    if (s->extra)
        FL_TRY(put_extra(s, m));
    return FLEET_OK;
}

/* The list of parts is the manifest's from now on. */
static fleet_status write_manifest(const fl_save *s, const char *folder,
                                   fl_json *part_list)
{
    fl_json *m = fl_json_object();
    char sum[20], *text = NULL;
    fleet_status status;
    uint64_t hash;

    FL_GOTO(done, describe_save(s, m, part_list));
    text = fl_json_print(m, true);
    FL_GOTO(done, text ? FLEET_OK : FLEET_ENOMEM);
    FL_GOTO(done,
            fl_file_write(folder, FL_MANIFEST, text, strlen(text), &hash));
    FL_GOTO(done, fl_save_note_link(s, text, hash));
    snprintf(sum, sizeof sum, "%016llx\n", (unsigned long long)hash);
    status = fl_file_write(folder, FL_MANIFEST_SUM, sum, strlen(sum), NULL);
done:
    fl_free(text);
    fl_json_free(m);
    return status;
}

fleet_status fl_save_parts(const fl_save *s, const char *folder,
                           const char *prefix, fl_json *list)
{
    parts p = {.folder = folder, .prefix = prefix, .list = list};
    fleet_status status = FLEET_OK;

    fl_save_check_link(s);
    if (s->link && s->link->refused)
        return FLEET_OK;
    for (int i = 0; i < s->n_param && status == FLEET_OK; i++)
        if (s->param[i])
            status = write_param(s, &p, i);
    for (int i = 0; i < s->n_table && status == FLEET_OK; i++)
        if (s->table[i])
            status = write_table(s, &p, i);
    if (p.open) {
        fleet_status closed = close_part(&p);

        status = status == FLEET_OK ? closed : status;
    }
    return s->link && s->link->refused ? FLEET_OK : status;
}

static fleet_status write_all(const fl_save *s, const char *folder)
{
    fl_json *list = fl_json_array();
    fleet_status status;

    if (!list)
        return FLEET_ENOMEM;
    status = s->elsewhere
                 ? s->elsewhere->write(s->elsewhere->arg, s, folder, list)
                 : fl_save_parts(s, folder, "part-", list);
    if (status == FLEET_OK && s->link && s->link->refused)
        status = fl_fail(FLEET_ESTATE, "save: what has changed since the save "
                                       "before is not known");
    if (status == FLEET_OK)
        return write_manifest(s, folder, list);
    fl_json_free(list);
    return status;
}

/* Gathered gradients are in no save. */
static fleet_status check_store(const fl_save *s)
{
    FL_TRY(fl_store_check(s->store));
    if (!s->elsewhere)
        FL_TRY(fl_store_check_weights(s->store));
    if (s->states && fl_store_is_sharded(s->store) && !s->elsewhere)
        return fl_fail(FLEET_ESTATE,
                       "save: strategy.sharding has the optimizer's states on "
                       "%d ranks, which save together: between "
                       "fleet_init_worker() and fleet_stop_worker()",
                       s->store->share.ranks);
    if (s->states && s->store->n_flat > 0)
        return fl_fail(FLEET_ESTATE, "save: a merge group is under way: end it "
                                     "with fleet_executor_flush()");
    return FLEET_OK;
}

/* A folder that is replaced must be a save and nothing else: many programs have
 * files called manifest.json. */
static bool is_ours(const char *name)
{
    return strncmp(name, "manifest.", 9) == 0 || strncmp(name, "part-", 5) == 0;
}

static fleet_status begin_folder(fl_folder *folder, const char *path)
{
    *folder = (fl_folder){0};
    if (!path || !*path)
        return fl_fail(FLEET_EINVAL, "save: there is no path");
    return fl_folder_begin(folder, path, FL_MANIFEST_SUM, is_ours);
}

void fl_save_remove(const char *path)
{
    fl_folder_remove_ours(path, is_ours);
}

fleet_status fl_save_check(const char *path)
{
    fl_folder folder;
    fleet_status status = begin_folder(&folder, path);

    fl_folder_cancel(&folder);
    return status;
}

fleet_status fl_save_write(const fl_save *s, const char *path)
{
    fl_folder folder;
    fleet_status status;

    FL_TRY(fl_store_synchronize(s->store));
    status = begin_folder(&folder, path);
    if (status == FLEET_OK) {
        pthread_rwlock_rdlock(&s->store->lock);
        status = check_store(s);
        if (status == FLEET_OK)
            status = fl_store_to_host(s->store);
        if (status == FLEET_OK)
            status = write_all(s, folder.temp);
        pthread_rwlock_unlock(&s->store->lock);
    }
    if (status == FLEET_OK)
        status = fl_folder_commit(&folder);
    fl_folder_cancel(&folder);
    return status;
}
