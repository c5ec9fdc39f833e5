/* manifest.c - the manifest of a save, read into the items of an fl_saved. */
#include "fleet/save/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "fleet/save/load_how.h"

fleet_status fl_manifest_int(const fl_at *object, const char *key, int64_t low,
                             int64_t high, int64_t *out)
{
    fl_at at = fl_at_key(object, key);

    FL_TRY(fl_at_required(&at));
    return fl_at_int(&at, low, high, out);
}

fleet_status fl_manifest_text(const fl_at *object, const char *key,
                              const char **out)
{
    fl_at at = fl_at_key(object, key);

    FL_TRY(fl_at_required(&at));
    return fl_at_string(&at, out);
}

static fleet_status read_names(const fl_at *at, int most, const char **name,
                               int *n)
{
    *n = fl_at_count(at);
    if (!fl_at_is_array(at) || *n > most)
        return fl_at_expected(at, "the names of up to 2 states");
    for (int i = 0; i < *n; i++) {
        fl_at one = fl_at_index(at, i);

        name[i] = "";
        FL_TRY(fl_at_string(&one, &name[i]));
    }
    return FLEET_OK;
}

static fleet_status read_states(const fl_at *entry, fl_saved_item *item)
{
    fl_at at = fl_at_key(entry, "states");

    return read_names(&at, FL_MAX_STATE, item->state, &item->n_state);
}

/* Tables alone have states of rows, and a save of none does not say so. */
static fleet_status read_row_states(const fl_at *entry, fl_saved_item *item)
{
    fl_at at = fl_at_key(entry, "row_states");

    return at.json ? read_names(&at, FL_MAX_ROW, item->state + item->n_state,
                                &item->n_row)
                   : FLEET_OK;
}

static fleet_status read_param(const fl_at *entry, fl_saved_item *item)
{
    fl_at shape = fl_at_key(entry, "shape");
    int64_t dims[FLEET_MAX_DIM] = {0};
    int n = fl_at_count(&shape);

    FL_TRY(fl_manifest_text(entry, "name", &item->name));
    if (!fl_at_is_array(&shape) || n < 1 || n > FLEET_MAX_DIM)
        return fl_at_expected(&shape, "1 to 8 dimensions");
    for (int i = 0; i < n; i++) {
        fl_at one = fl_at_index(&shape, i);

        FL_TRY(fl_at_int(&one, 1, FL_MOST_DIM, &dims[i]));
    }
    FL_TRY(fl_shape_check(item->name, dims, n));
    item->shape = fl_shape_make(dims, n);
    item->n = fl_shape_count(&item->shape, 1);
    return read_states(entry, item);
}

static fleet_status read_table(const fl_at *entry, fl_saved_item *item)
{
    fl_at a_at = fl_at_key(entry, "a"), b_at = fl_at_key(entry, "b");
    fl_at seed_at = fl_at_key(entry, "seed");
    fl_at accessor = fl_at_key(entry, "accessor");
    fl_at vector_at = fl_at_key(entry, "vector_at");
    fl_at ages = fl_at_key(entry, "ages");
    int64_t dim = 0, modulo = 0, kind = 0;
    fleet_initializer first = {0};

    FL_TRY(fl_manifest_text(entry, "name", &item->name));
    FL_TRY(fl_manifest_int(entry, "dim", 1, 1 << 20, &dim));
    FL_TRY(fl_manifest_int(entry, "modulo", 0, FL_MOST_DIM, &modulo));
    FL_TRY(fl_manifest_int(entry, "rows", 0, FL_MOST_EXACT, &item->n));
    FL_TRY(fl_manifest_int(entry, "initializer", FLEET_INIT_CONSTANT,
                           FLEET_INIT_KAIMING_NORMAL, &kind));
    FL_TRY(fl_at_float(&a_at, &first.a));
    FL_TRY(fl_at_float(&b_at, &first.b));
    item->is_table = true;
    item->shape = fl_shape_2(modulo, dim);
    first.kind = (fleet_initializer_kind)kind;
    FL_TRY(fl_initializer_check(item->name, &first));
    item->filler = fl_filler_make(&first, dim, dim, 0, item->name);
    FL_TRY(fl_at_hex(&seed_at, &item->filler.seed));
    FL_TRY(fl_at_int(&vector_at, 1, dim - 1, &item->filler.vector_at));
    FL_TRY(read_states(entry, item));
    FL_TRY(fl_at_bool(&accessor, &item->accessor));
    FL_TRY(fl_at_bool(&ages, &item->ages));
    return read_row_states(entry, item);
}

typedef fleet_status read_item(const fl_at *entry, fl_saved_item *item);

/* Records go by name: two things of one name would be taken for each other. */
static fleet_status read_items(const fl_at *list, read_item *read,
                               fl_saved_item **item, int *n, fl_map *names)
{
    if (!fl_at_is_array(list))
        return fl_at_expected(list, "an array");
    FL_TRY(FL_NEW(item, (size_t)fl_at_count(list) * sizeof **item));
    for (fl_at e = fl_at_first(list); e.json; fl_at_next(list, &e)) {
        fl_saved_item *one = &(*item)[(*n)++];

        FL_TRY(read(&e, one));
        if (fl_map_get(names, one->name))
            return fl_fail(FLEET_ECORRUPT, "%s: \"%s\" stands twice", e.path,
                           one->name);
        FL_TRY(fl_map_put(names, one->name, one));
    }
    return FLEET_OK;
}

/* A save of a training that scaled no loss has none. */
static fleet_status read_scaling(const fl_at *root, fl_scaling *scaling)
{
    fl_at at = fl_at_key(root, "loss_scaling"), scale;
    int64_t good = 0, bad = 0;
    double x = 0;

    if (!at.json)
        return FLEET_OK;
    scale = fl_at_key(&at, "scale");
    FL_TRY(fl_at_required(&scale));
    /* up to FLT_MAX as it is written, in 9 digits */
    FL_TRY(fl_at_double(&scale, 1e-30, 3.4028235e38, &x));
    FL_TRY(fl_manifest_int(&at, "good", 0, INT32_MAX, &good));
    FL_TRY(fl_manifest_int(&at, "bad", 0, INT32_MAX, &bad));
    *scaling = (fl_scaling){
        .scale = (float)x, .good = (int32_t)good, .bad = (int32_t)bad};
    return FLEET_OK;
}

/* Of a learning rate that falls when a metric stops improving. */
static fleet_status read_plateau(const fl_at *root, fl_plateau_state *p)
{
    fl_at at = fl_at_key(root, "plateau"), rate, best;
    double x = 0;

    if (!at.json)
        return FLEET_OK;
    rate = fl_at_key(&at, "learning_rate");
    best = fl_at_key(&at, "best");
    FL_TRY(fl_at_required(&rate));
    FL_TRY(fl_at_required(&best));
    FL_TRY(fl_at_double(&rate, 1e-45, 3.4028235e38, &x));
    p->learning_rate = (float)x;
    FL_TRY(fl_at_double(&best, -1.7976931348623157e308, 1.7976931348623157e308,
                        &p->best));
    FL_TRY(fl_manifest_int(&at, "bad", 0, FL_MOST_EXACT, &p->bad));
    FL_TRY(fl_manifest_int(&at, "cooling", 0, FL_MOST_EXACT, &p->cooling));
    return fl_manifest_int(&at, "reports", 1, FL_MOST_EXACT, &p->reports);
}

/* Saves that do not say so are from before 0.1.0: rows counted their own. */
static fleet_status read_row_steps(const fl_at *root, bool *row_steps)
{
    fl_at at = fl_at_key(root, "row_steps");

    *row_steps = true;
    return fl_at_bool(&at, row_steps);
}

/* A table whose entry does not say so is as the whole save. */
static fleet_status read_tables_row_steps(const fl_at *list, fl_saved *s)
{
    for (fl_at e = fl_at_first(list); e.json; fl_at_next(list, &e)) {
        fl_at at = fl_at_key(&e, "row_steps");

        s->table[e.index].row_steps = s->row_steps;
        FL_TRY(fl_at_bool(&at, &s->table[e.index].row_steps));
    }
    return FLEET_OK;
}

static bool adds(const char *what)
{
    return strcmp(what, FL_WHAT_ADDS) == 0;
}

static bool is_wanted(const char *found, const char *what)
{
    return strcmp(found, what) == 0 ||
           (adds(what) && strcmp(found, "checkpoint") == 0);
}

static const char *advice_for(const char *found)
{
    if (strcmp(found, "delta") == 0)
        return ": a delta is loaded with keep_rows, into what its base has "
               "left";
    if (strcmp(found, "cache") == 0)
        return ": hot rows are loaded by fleet_load_one_table()";
    return strcmp(found, "table") == 0
               ? ": a table is loaded by fleet_load_one_table()"
               : "";
}

static fleet_status read_manifest(fl_saved *s, const char *what)
{
    fl_at root = fl_at_root(s->manifest), seed = fl_at_key(&root, "seed");
    fl_at params = fl_at_key(&root, "params");
    fl_at tables = fl_at_key(&root, "tables");
    const char *format = "", *found = "";
    int64_t version = 0;

    FL_TRY(fl_manifest_text(&root, "format", &format));
    FL_TRY(fl_manifest_int(&root, "version", 0, INT32_MAX, &version));
    FL_TRY(fl_manifest_text(&root, "what", &found));
    s->chained = version == FL_SAVE_CHAINED;
    if (strcmp(format, "libfleet") != 0 ||
        (version != FL_SAVE_VERSION && !s->chained))
        return fl_fail(FLEET_EUNSUPPORTED,
                       "a save of format \"%s\" %lld; expected \"libfleet\" %d "
                       "or %d",
                       format, (long long)version, FL_SAVE_VERSION,
                       FL_SAVE_CHAINED);
    if (what && !is_wanted(found, what))
        return fl_fail(FLEET_EINVAL, "what was saved is \"%s\", not \"%s\"%s%s",
                       found, what, adds(what) ? " or \"checkpoint\"" : "",
                       advice_for(found));
    FL_TRY(fl_at_hex(&seed, &s->seed));
    FL_TRY(fl_manifest_int(&root, "updates", 0, FL_MOST_EXACT, &s->updates));
    FL_TRY(read_scaling(&root, &s->scaling));
    FL_TRY(read_plateau(&root, &s->plateau));
    FL_TRY(read_row_steps(&root, &s->row_steps));
    FL_TRY(read_items(&params, read_param, &s->param, &s->n_param, &s->params));
    FL_TRY(read_items(&tables, read_table, &s->table, &s->n_table, &s->tables));
    return read_tables_row_steps(&tables, s);
}

/* The manifest's text, checked against the sum beside it. */
static fleet_status read_checked(const fl_source_folder *f, char **text,
                                 size_t *size, uint64_t *hash)
{
    enum { SUM_SIZE = 17 }; /* digits and a newline */
    char *sum = NULL, want[SUM_SIZE + 1];
    fleet_status status;

    FL_TRY(fl_source_folder_read(f, FL_MANIFEST, text, size));
    *hash = fl_hash(*text, *size, 0);
    status = fl_source_folder_sized(f, FL_MANIFEST_SUM, SUM_SIZE, &sum);
    if (status == FLEET_OK)
        snprintf(want, sizeof want, "%016llx\n", (unsigned long long)*hash);
    if (status == FLEET_OK && strcmp(sum, want) != 0)
        status = fl_fail(FLEET_ECORRUPT,
                         "%s/%s: damaged: its checksum is not that in %s",
                         f->path, FL_MANIFEST, FL_MANIFEST_SUM);
    fl_free(sum);
    return status;
}

fleet_status fl_manifest_open(fl_saved *s, const char *what)
{
    char *text = NULL;
    size_t size;
    fleet_status status = read_checked(&s->folder, &text, &size, &s->hash);

    if (status == FLEET_OK)
        status = fl_json_parse(text, size, FL_MANIFEST, &s->manifest);
    fl_free(text);
    FL_TRY(status);
    status = read_manifest(s, what);
    return status == FLEET_OK
               ? status
               : fl_fail_in(status, "%s/%s", s->folder.path, FL_MANIFEST);
}
