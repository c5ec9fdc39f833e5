/* load_into.c - a save that is brought into a store: what both have is compared
 * first, then values go by name. */
#include "fleet/save/load_into.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/save/load_notes.h"
#include "fleet/save/load_states.h"
#include "fleet/save/load_tables.h"
#include "fleet/save/row_ages.h"
#include "runtime/exec/executor.h"
#include "runtime/life/accessor.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/key_log.h"
#include "runtime/store/store_check.h"

/* A save that goes into a store. */
typedef struct applying {
    fl_saved *saved;
    fl_store *store;
    const fl_bucket_set *rows; /* whose rows; NULL: all */
    const fl_load_how *how;
} applying;

/* --- what is compared ----------------------------------------------------- */

static fleet_status check_item(const fl_saved *s, fl_saved_item *item,
                               const char *name, const fl_shape *shape,
                               const fl_rule *rule, const fleet_load_options *o)
{
    if (!item && o->on_missing != FLEET_MISSING_REFUSE)
        return FLEET_OK;
    if (!item)
        return fl_fail(FLEET_ENOENT, "%s has no \"%s\"", s->folder.path, name);
    if (!fl_shape_equal(&item->shape, shape))
        return fl_fail(FLEET_ESHAPE, "\"%s\" has shape %s, but %s in %s", name,
                       fl_shape_print(shape).chars,
                       fl_shape_print(&item->shape).chars, s->folder.path);
    return fl_saved_check_states(rule, item, o);
}

static fleet_status check_extra(const fl_saved *s, const fl_store *store)
{
    for (int i = 0; i < s->n_param; i++)
        if (!fl_store_param(store, s->param[i].name))
            return fl_fail(FLEET_ENOENT,
                           "no program has the parameter \"%s\" of %s, and "
                           "on_extra refuses what is not wanted",
                           s->param[i].name, s->folder.path);
    for (int i = 0; i < s->n_table; i++)
        if (!fl_store_rows(store, s->table[i].name))
            return fl_fail(FLEET_ENOENT,
                           "no program has the table \"%s\" of %s, and "
                           "on_extra refuses what is not wanted",
                           s->table[i].name, s->folder.path);
    return FLEET_OK;
}

static bool has_other_shape(const fl_saved_item *item, const fl_param *p)
{
    return item && !fl_shape_equal(&item->shape, &p->shape);
}

static fleet_status check_param(const fl_saved *s, const fl_store *store,
                                const fl_param *p, const fleet_load_options *o)
{
    fl_saved_item *item = fl_map_get(&s->params, p->name);
    fleet_status status;

    if (has_other_shape(item, p) && o->on_shape == FLEET_SHAPE_INITIALIZE)
        return FLEET_OK;
    status =
        check_item(s, item, p->name, &p->shape, fl_store_rule(store, p), o);
    return has_other_shape(item, p)
               ? fl_fail(status,
                         "%s: on_shape \"initialize\" has it begin anew",
                         fleet_last_error())
               : status;
}

static fleet_status check_all(const applying *a)
{
    const fl_store *store = a->store;
    const fl_saved *s = a->saved;

    for (size_t i = 0; i < store->params.n; i++)
        FL_TRY(check_param(s, store, store->params.entry[i].value, &a->how->o));
    for (size_t i = 0; i < store->tables.n; i++) {
        const fl_rows *r = store->tables.entry[i].value;
        fl_saved_item *item = fl_map_get(&s->tables, r->name);
        fl_shape shape = fl_shape_2(r->modulo, r->dim);

        if (r->counts && !item)
            continue; /* the save counts no keys */
        FL_TRY(check_item(s, item, r->name, &shape, fl_store_row_rule(store, r),
                          &a->how->o));
    }
    return a->how->o.on_extra == FLEET_EXTRA_REFUSE ? check_extra(s, store)
                                                    : FLEET_OK;
}

/* --- one table ------------------------------------------------------------ */

static fl_saved_item *find_source(const fl_saved *s, const fl_load_how *how)
{
    if (how->source)
        return fl_map_get(&s->tables, how->source);
    if (s->n_table == 1)
        return &s->table[0];
    return fl_map_get(&s->tables, how->table);
}

static fleet_status check_key(void *arg, const fl_saved_record *r)
{
    const applying *a = arg;
    const fl_rows *rows = fl_store_rows(a->store, a->how->table);

    if (r->head.kind != FL_RECORD_ROWS ||
        r->item != find_source(a->saved, a->how))
        return FLEET_OK;
    for (uint64_t i = 0; i < r->head.n; i++) {
        uint64_t key;

        memcpy(&key, r->payload + i * sizeof key, sizeof key);
        if (key >= (uint64_t)rows->modulo)
            return fl_fail(FLEET_ESHAPE,
                           "\"%s\" has rows 0 to %lld, but \"%s\" in %s the "
                           "row %llu",
                           rows->name, (long long)rows->modulo - 1,
                           r->item->name, a->saved->folder.path,
                           (unsigned long long)key);
    }
    return FLEET_OK;
}

static fleet_status check_table(applying *a)
{
    const fl_load_how *how = a->how;
    const fl_rows *rows = fl_store_rows(a->store, how->table);
    fl_saved_item *item = find_source(a->saved, how);
    const char *source = how->source ? how->source : how->table;
    int64_t dim;

    if (!rows)
        return fl_fail(FLEET_ENOENT, "there is no table \"%s\"", how->table);
    if (!item)
        return fl_fail(FLEET_ENOENT, "%s has no table \"%s\"",
                       a->saved->folder.path, source);
    dim = item->shape.dim[1];
    if (dim > rows->dim || (dim < rows->dim && !how->wider))
        return fl_fail(FLEET_ESHAPE,
                       "\"%s\" has %lld columns, but \"%s\" in %s %lld%s",
                       rows->name, (long long)rows->dim, item->name,
                       a->saved->folder.path, (long long)dim,
                       dim < rows->dim ? ": a narrower one is loaded with "
                                         "`wider` alone"
                                       : "");
    FL_TRY(fl_saved_check_states(fl_store_row_rule(a->store, rows), item,
                                 &how->o));
    if (rows->modulo == 0 || item->shape.dim[0] == rows->modulo)
        return FLEET_OK;
    return fl_saved_each(a->saved, check_key, a);
}

/* --- dense parameters ----------------------------------------------------- */

static void apply_dense(const applying *a, const fl_saved_record *r,
                        const fl_param *p)
{
    const fl_rule *rule = fl_store_rule(a->store, p);
    const fl_flat *g = p->flat;
    size_t bytes = (size_t)r->head.n * sizeof(float);
    int64_t at = fl_block_offset(p, r->head.index);

    memcpy(g->weight + at, r->payload, bytes);
    if (at < g->first || at >= g->end)
        return; /* its states are another rank's */
    for (int i = 0; rule && i < rule->n_state; i++) {
        int from = r->item->state_at[i];

        if (g->state[i] && from >= 0)
            memcpy(g->state[i] + (at - g->first),
                   r->payload + (size_t)(1 + from) * bytes, bytes);
        else if (g->state[i])
            fl_store_first_states(a->store, p, g->state[i] + (at - g->first),
                                  (int64_t)r->head.n);
    }
}

/* --- rows ----------------------------------------------------------------- */

/* A row of a save. */
typedef struct saved_row {
    uint64_t key;
    int64_t age; /* FL_NO_AGE: it has none, or the table asks for none */
    uint32_t step;
    const float *values;
    const fl_saved_item *item;
} saved_row;

/* Where a record of dim weights and n_state arrays has its i-th state. */
static int64_t state_at(int64_t dim, int n_state, int i)
{
    return i < n_state ? dim * (1 + i) : dim * (1 + n_state) + (i - n_state);
}

/* A narrower row leaves the other columns as they are. */
static void fill_weights(const fl_rows *rows, float *row, const saved_row *from)
{
    size_t bytes = (size_t)from->item->shape.dim[1] * sizeof *row;
    float w[FL_MOST_NARROW_DIM];

    if (fl_rows_are_floats(rows)) {
        memcpy(row, from->values, bytes);
        return;
    }
    fl_rows_read(rows, w, row);
    memcpy(w, from->values, bytes);
    fl_rows_write(rows, row, w);
}

/* What a save does not say of a row that is there stays as it is. */
static void fill_counts(const saved_row *from, const fl_rows *rows, float *row,
                        bool is_new)
{
    if (from->item->accessor)
        memcpy(fl_accessor_of(rows, row),
               from->values + fl_saved_width(from->item) - FL_N_ACCESSOR,
               FL_N_ACCESSOR * sizeof *row);
    else if (is_new)
        fl_accessor_uncounted(&rows->life->o.accessor,
                              fl_accessor_of(rows, row));
}

static void fill_row(const applying *a, const saved_row *from,
                     const fl_rows *rows, float *row, bool is_new)
{
    const fl_rule *rule = fl_store_row_rule(a->store, rows);
    int64_t dim = from->item->shape.dim[1];
    bool fresh = false;

    fill_weights(rows, row, from);
    for (int i = 0; rule && i < rule->n_state + rule->n_row; i++) {
        int64_t n = i < rule->n_state ? dim : 1;
        float *state = fl_rows_states(rows, row) +
                       state_at(rows->dim, rule->n_state, i) - rows->dim;
        int at = from->item->state_at[i];

        if (at >= 0)
            memcpy(state, from->values + state_at(dim, from->item->n_state, at),
                   (size_t)n * sizeof *state);
        else
            fl_rows_first_floats(rows, state, n);
        fresh = fresh || at < 0;
    }
    if (fl_rows_has_accessor(rows)) {
        fill_counts(from, rows, row, is_new);
        fl_accessor_find_vector(rows, row);
    }
    fl_row_of(row)->step = fresh || a->how->o.restart ? 0 : from->step;
    fl_row_of(row)->changed_at =
        fl_row_changed_at(from->age, a->store->updates);
}

static fleet_status apply_row(const applying *a, const saved_row *from,
                              fl_rows *rows)
{
    fl_wanted_rows wanted = {0};
    fleet_status status = fl_rows_bring(&wanted, rows, &from->key, 1);
    float *before = NULL, *row;

    if (status == FLEET_OK && a->how->o.keep_rows)
        status = rows->methods->find(rows, &from->key, 1, &before);
    if (status == FLEET_OK)
        status = rows->methods->make(rows, &from->key, 1, &row);
    if (status == FLEET_OK) {
        fl_live_hash_out(rows, &from->key, &row, 1);
        fill_row(a, from, rows, row, !before);
        fl_live_hash_in(rows, &from->key, &row, 1);
    }
    fl_wanted_rows_done(&wanted);
    return status;
}

static bool takes_ages(const applying *a, const fl_saved_item *item,
                       const fl_rows *rows)
{
    return item->ages && fl_row_ages_saved(a->store, rows);
}

/* Each lane and each rank has written the same, or in async about the same: the
 * first one's is taken. */
static void apply_life(const applying *a, const fl_saved_record *r,
                       fl_rows *rows)
{
    fl_saved_item *item = &a->saved->table[r->head.item];

    if (!rows || rows->remote || !rows->life || item->has_life ||
        !takes_ages(a, r->item, rows))
        return;
    item->has_life = true;
    fl_life_read(rows->life, a->store->updates, r->payload, r->head.n,
                 a->how->o.keep_rows);
}

static fleet_status apply_rows(const applying *a, const fl_saved_record *r,
                               fl_rows *rows)
{
    size_t n = (size_t)r->head.n;
    size_t width = (size_t)fl_saved_width(r->item);
    const fl_saved_rows at = fl_saved_rows_of(r);
    const bool has_ages = takes_ages(a, r->item, rows);

    for (size_t i = 0; i < n; i++) {
        saved_row one = {.item = r->item, .age = FL_NO_AGE};

        memcpy(&one.key, at.keys + i * sizeof one.key, sizeof one.key);
        if (has_ages)
            memcpy(&one.age, at.ages + i * sizeof one.age, sizeof one.age);
        memcpy(&one.step, at.steps + i * sizeof one.step, sizeof one.step);
        one.values = (const float *)(const void *)(at.values +
                                                   i * width * sizeof(float));
        if (fl_bucket_of(fl_mix(one.key)) != (int)r->head.index)
            return fl_fail(FLEET_ECORRUPT,
                           "a row of \"%s\" is in another bucket than its own",
                           r->item->name);
        FL_TRY(apply_row(a, &one, rows));
    }
    return FLEET_OK;
}

/* --- all of it ------------------------------------------------------------ */

static fl_saved_item *source_of(const applying *a, const fl_rows *rows)
{
    if (!a->how->table)
        return fl_map_get(&a->saved->tables, rows->name);
    return strcmp(rows->name, a->how->table) == 0
               ? find_source(a->saved, a->how)
               : NULL;
}

static fleet_status apply_record(void *arg, const fl_saved_record *r)
{
    const applying *a = arg;
    fl_rows *rows;

    if (r->head.kind == FL_RECORD_DENSE) {
        const fl_param *p =
            a->how->table ? NULL : fl_store_param(a->store, r->item->name);

        if (p && !has_other_shape(r->item, p) &&
            fl_block_offset(p, r->head.index) >= 0)
            apply_dense(a, r, p);
        return FLEET_OK;
    }
    rows = fl_saved_target(a->saved, a->store, a->how, r->item);
    if (r->head.kind == FL_RECORD_LIFE)
        return apply_life(a, r, rows), FLEET_OK;
    if (!rows || rows->remote ||
        (a->rows && !fl_bucket_set_has(a->rows, (int)r->head.index)))
        return FLEET_OK;
    a->saved->table[r->head.item].own += (int64_t)r->head.n;
    return apply_rows(a, r, rows);
}

/* A key that stands twice was counted twice. */
static fleet_status check_counts(const applying *a)
{
    for (size_t i = 0; i < a->store->tables.n; i++) {
        const fl_rows *r = a->store->tables.entry[i].value;
        const fl_saved_item *item = source_of(a, r);

        if (item && !a->how->o.keep_rows && r->methods->count(r) != item->own)
            return fl_fail(FLEET_ECORRUPT,
                           "%s: damaged: the parts hold %lld different rows of "
                           "\"%s\", not %lld",
                           a->saved->folder.path,
                           (long long)r->methods->count(r), item->name,
                           (long long)item->own);
    }
    return FLEET_OK;
}

/* Of the store, once it is loaded. */
static int64_t updates_after(const applying *a)
{
    return a->how->table       ? a->store->updates
           : a->how->o.restart ? 0
                               : a->saved->updates;
}

/* Do the rows stay of a table that the save lacks? A filter's counts do where
 * their table does, and begin anew beside one that is loaded. */
static bool stays(const applying *a, const fl_rows *r)
{
    const fl_rows *of = r->counts ? fl_load_counted(a->store, r) : r;

    return a->how->table || (a->how->o.on_missing != FLEET_MISSING_INITIALIZE &&
                             !source_of(a, of));
}

/* Rows of before go; what is still unknown starts as it would have where it was
 * saved. */
static void begin_tables(const applying *a)
{
    for (size_t i = 0; i < a->store->tables.n; i++) {
        fl_rows *r = a->store->tables.entry[i].value;
        const fl_saved_item *item = source_of(a, r);

        if (item ? !a->how->o.keep_rows : !stays(a, r))
            r->methods->clear(r);
        if (item && !a->how->o.keep_rows && !a->how->own_filler &&
            item->shape.dim[1] == r->dim)
            fl_load_take_filler(a->store, item, r);
        if (item && r->life)
            fl_load_begin_life(a->store, r->life,
                               a->how->o.keep_rows && takes_ages(a, item, r));
    }
}

static void begin_params(const applying *a)
{
    for (size_t i = 0; i < a->store->params.n; i++) {
        const fl_param *p = a->store->params.entry[i].value;
        const fl_saved_item *item = fl_map_get(&a->saved->params, p->name);

        if (item ? has_other_shape(item, p)
                 : a->how->o.on_missing == FLEET_MISSING_INITIALIZE)
            fl_store_first_values(a->store, p);
    }
}

/* Before rows are brought, whose ages count back from it. */
static void begin_updates(const applying *a)
{
    fl_load_move_ages(a->store, updates_after(a),
                      a->how->o.keep_rows ||
                          a->how->o.on_missing == FLEET_MISSING_KEEP);
    a->store->updates = updates_after(a);
}

/* A lane's workers say its learning rate, and lanes load at the same time. */
static void take_plateau(fl_store *store, const fl_plateau_state *p)
{
    if (store->filter.keeps)
        return;
    if (store->optimizer)
        fl_optimizer_resume_plateau(store->optimizer, p);
    else
        store->plateau = *p;
}

/* What is of the store as a whole. */
static void apply_counts(const applying *a)
{
    const fl_saved *s = a->saved;
    fl_store *store = a->store;

    if (s->scaling.scale > 0) {
        store->scaling = s->scaling;
        store->known_skips = 0;
    }
    take_plateau(store, &s->plateau);
    fl_store_forget_own(store);
}

static fleet_status apply_all(applying *a)
{
    fl_store *store = a->store;
    /* a lane's store never has more: it is whole */
    bool part_of_rows = !store->filter.keeps && a->rows &&
                        fl_bucket_set_count(a->rows) < FL_N_BUCKET;
    const fl_rows *table =
        a->how->table ? fl_store_rows(store, a->how->table) : NULL;
    bool mends = !store->half_loaded || !table || store->half_table == table;

    if (store->n_flat > 0)
        return fl_fail(FLEET_ESTATE, "load: a merge group is under way: end it "
                                     "with fleet_executor_flush()");
    FL_TRY(fl_store_check_weights(store));
    FL_TRY(a->how->table ? check_table(a) : check_all(a));
    for (size_t i = 0; i < store->tables.n; i++)
        fl_key_log_lose(store->tables.entry[i].value);
    store->half_table = mends ? table : NULL;
    store->half_loaded = true;
    begin_tables(a);
    if (!a->how->table)
        begin_params(a);
    if (!a->how->table)
        begin_updates(a);
    for (int i = 0; i < a->saved->n_table; i++) {
        a->saved->table[i].own = 0;
        a->saved->table[i].has_life = false;
    }
    FL_TRY(fl_saved_each(a->saved, apply_record, a));
    FL_TRY(check_counts(a));
    if (!a->how->table)
        apply_counts(a);
    store->half_loaded = !mends;
    store->partial = part_of_rows && fl_store_own_tables(store) > 0;
    return FLEET_OK;
}

fleet_status fl_saved_apply(fl_saved *s, fl_store *store,
                            const fl_bucket_set *rows, const fl_load_how *how)
{
    applying a = {s, store, rows, how};
    fleet_status status;

    FL_TRY(fl_store_synchronize(store)); /* it would count in what was loaded */
    pthread_rwlock_wrlock(&store->lock);
    status = fl_store_to_host(store); /* what is not loaded stays */
    if (status == FLEET_OK) {
        status = apply_all(&a);
        fl_store_written(store);
    }
    pthread_rwlock_unlock(&store->lock);
    return status;
}

/* --- what is said --------------------------------------------------------- */

/* Where the saved table goes in this process; NULL: nowhere. */
fl_rows *fl_saved_target(const fl_saved *s, const fl_store *store,
                         const fl_load_how *how, const fl_saved_item *item)
{
    if (!how->table)
        return fl_store_rows(store, item->name);
    return item == find_source(s, how) ? fl_store_rows(store, how->table)
                                       : NULL;
}

void fl_saved_note(const fl_saved *s, const fl_store *store,
                   const fl_load_how *how)
{
    if (how->table) {
        const fl_rows *rows = fl_store_rows(store, how->table);

        fl_saved_note_states(find_source(s, how), store,
                             fl_store_row_rule(store, rows));
        fl_saved_note_shown(s, store, find_source(s, how), rows);
        return;
    }
    fl_saved_note_absent(s, store, &how->o);
    for (int i = 0; i < s->n_param; i++) {
        const fl_param *p = fl_store_param(store, s->param[i].name);

        if (p && has_other_shape(&s->param[i], p))
            fl_saved_note_shape(s, store, &s->param[i], &p->shape);
        else if (p)
            fl_saved_note_states(&s->param[i], store, fl_store_rule(store, p));
    }
    for (int i = 0; i < s->n_table; i++) {
        const fl_rows *rows = fl_store_rows(store, s->table[i].name);

        if (rows)
            fl_saved_note_states(&s->table[i], store,
                                 fl_store_row_rule(store, rows));
    }
}
