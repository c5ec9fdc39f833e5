/* config_model.c - the configuration's model, but for its slots. */
#include <string.h>

#include "fleet/config/models.h"
#include "runtime/graph/table_cap.h"
#include "runtime/graph/table_options.h"

fleet_status fl_config_layers(fl_config *c, const fl_at *at,
                              const int64_t **units, int *n)
{
    enum { MOST_LAYERS = 64, MOST_UNITS = 1 << 20 };
    int64_t *list;

    if (!at->json)
        return FLEET_OK;
    *n = fl_at_count(at);
    if (!fl_at_is_array(at) || *n > MOST_LAYERS)
        return fl_at_expected(at, "an array of up to 64 numbers of units");
    *units = list = fl_arena_alloc(&c->arena, (size_t)(*n + 1) * sizeof *list);
    if (!list)
        return FLEET_ENOMEM;
    for (int i = 0; i < *n; i++) {
        fl_at one = fl_at_index(at, i);

        FL_TRY(fl_at_int(&one, 1, MOST_UNITS, &list[i]));
    }
    return FLEET_OK;
}

fleet_status fl_config_floats(fl_config *c, const fl_at *at, double low,
                              double high, const float **numbers, int *n)
{
    enum { MOST = 512 };
    float *list;

    if (!at->json)
        return FLEET_OK;
    *n = fl_at_count(at);
    if (!fl_at_is_array(at) || *n < 1 || *n > MOST)
        return fl_at_expected(at, "an array of 1 to 512 numbers");
    *numbers = list = fl_arena_alloc(&c->arena, (size_t)*n * sizeof *list);
    if (!list)
        return FLEET_ENOMEM;
    for (fl_at one = fl_at_first(at); one.json; fl_at_next(at, &one)) {
        double number = 0;

        FL_TRY(fl_at_double(&one, low, high, &number));
        list[one.index] = (float)number;
    }
    return FLEET_OK;
}

static fleet_status read_accessor(const fl_at *at, fleet_accessor *a)
{
    enum { MOST_KEYS = 30, FIRST = 4 }; /* FIRST: of the numbers */
    const char *keys[MOST_KEYS + 1] = {"type", "show", "click", "embedx_dim"};
    static const char *const types[] = {"ctr", NULL};
    fl_at type = fl_at_key(at, "type"), show = fl_at_key(at, "show");
    fl_at click = fl_at_key(at, "click"), dim = fl_at_key(at, "embedx_dim");
    int which = 0, n = FIRST;
    float *number;

    if (!at->json)
        return FLEET_OK;
    while (n < MOST_KEYS &&
           (keys[n] = fl_accessor_number(n - FIRST, a, &number)))
        n++;
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_choice(&type, types, &which));
    FL_TRY(fl_at_string(&show, &a->show));
    FL_TRY(fl_at_string(&click, &a->click));
    FL_TRY(fl_at_int(&dim, 1, 4095, &a->embedx_dim));
    for (int i = FIRST; i < n; i++) {
        fl_at one = fl_at_key(at, keys[i]);

        fl_accessor_number(i - FIRST, a, &number);
        FL_TRY(fl_at_float(&one, number));
        if (one.json && *number == 0)
            return fl_at_expected(&one, "a number that is not 0, which stands "
                                        "for the default: 1e-30 is next to 0, "
                                        "and every score reaches -1");
    }
    a->kind = FLEET_CTR_ACCESSOR;
    return FLEET_OK;
}

/* Which ids become rows, and when rows go. */
static fleet_status read_life(fl_config *c, const fl_at *at)
{
    fl_at entry = fl_at_key(at, "entry");
    fl_at zeros = fl_at_key(at, "unknown_zeros");
    fl_at accessor = fl_at_key(at, "accessor");
    fl_at ttl = fl_at_key(at, "ttl_updates"), most = fl_at_key(at, "most_rows");
    fl_at seconds = fl_at_key(at, "ttl_seconds");
    fl_at bytes = fl_at_key(at, "most_bytes");
    bool unknown_zeros = false;
    const char *text = NULL;

    FL_TRY(fl_at_string(&entry, &text));
    if (text && !fl_entry_read(text, &c->life.entry))
        return fl_at_expected(&entry, "\"count_filter_entry:N\", "
                                      "\"probability_entry:P\", "
                                      "\"bloom_filter_entry:N:KEYS:RATE\" or "
                                      "\"show_click_entry:SCORE\"");
    FL_TRY(fl_at_bool(&zeros, &unknown_zeros));
    c->life.unknown_zeros = unknown_zeros;
    FL_TRY(read_accessor(&accessor, &c->life.accessor));
    FL_TRY(fl_at_int(&ttl, 1, FL_MOST_EXACT, &c->life.ttl_updates));
    FL_TRY(fl_at_int(&most, 1, FL_MOST_EXACT, &c->life.most_rows));
    FL_TRY(fl_at_int(&seconds, 1, FL_MOST_EXACT, &c->life.ttl_seconds));
    FL_TRY(fl_at_int(&bytes, 1, FL_MOST_EXACT, &c->life.most_bytes));
    return fl_config_in(fl_table_options_check("tables", &c->life), at->path);
}

/* How much memory each table may take. */
static fleet_status read_cap(fl_config *c, const fl_at *at)
{
    fl_at bytes = fl_at_key(at, "memory_cap_bytes");
    fl_at folder = fl_at_key(at, "cold_folder");

    if (folder.json && !bytes.json)
        return fl_at_expected(&folder, "nothing: it is for memory_cap_bytes");
    if (bytes.json)
        FL_TRY(fl_at_required(&folder));
    FL_TRY(fl_config_path(&folder, &c->cold_folder));
    return fl_at_int(&bytes, FL_LEAST_CAP, FL_MOST_EXACT, &c->memory_cap_bytes);
}

/* What the tables do with ids. */
static fleet_status read_tables(fl_config *c, const fl_at *at)
{
    fl_at rows = fl_at_key(at, "rows"), check = fl_at_key(at, "check_ids");
    fl_at fresh = fl_at_key(at, "fresh"), id = fl_at_key(at, "default_id");
    fl_at storage = fl_at_key(at, "storage");
    int which = FLEET_FRESH_INITIAL, kept = FLEET_ROW_FLOAT32;

    FL_TRY(read_life(c, at));
    FL_TRY(fl_at_choice(&storage, fl_storage_names, &kept));
    c->storage = (fleet_row_storage)kept;
    FL_TRY(fl_at_int(&rows, 1, FL_MOST_EXACT, &c->rows));
    FL_TRY(fl_at_bool(&check, &c->check_ids));
    if (c->check_ids && c->rows == 0)
        return fl_at_expected(&check, "false: without rows ids have no bound");
    FL_TRY(fl_at_choice(&fresh, fl_fresh_names, &which));
    c->fresh = (fleet_fresh)which;
    if (id.json && c->fresh != FLEET_FRESH_ROW)
        return fl_at_expected(&id, "nothing: it is for fresh \"row\"");
    return fl_at_int(&id, 0, FL_MOST_EXACT, &c->default_id);
}

/* --- keys ----------------------------------------------------------------- */

static bool has_word(const char *const *words, const char *word)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

static bool has_key(const fl_model_kind *m, const char *key)
{
    return has_word(m->family->keys, key) ||
           (m->ctr && has_word(m->ctr->own, key));
}

/* A key of another model is refused as such, one of none as unknown. */
static fleet_status check_key(fl_config *c, const fl_at *one)
{
    const fl_model_kind *m = c->model, *other = fl_model_kinds;
    const char *key = fl_at_name(one), *text;

    if (has_key(m, key))
        return FLEET_OK;
    while (other->name && !has_key(other, key))
        other++;
    if (!other->name)
        return FLEET_OK;
    text =
        fl_arena_format(&c->arena, "nothing: model %s has no %s", m->name, key);
    return text ? fl_at_expected(one, text) : FLEET_ENOMEM;
}

static fleet_status check_keys(fl_config *c, const fl_at *at)
{
    enum { MOST = 64 };
    const char *keys[MOST + 1] = {"type", "ps"};
    const fl_model_kind *m = c->model;
    int n = 2;

    for (fl_at one = fl_at_first_member(at); one.json;
         fl_at_next_member(at, &one))
        FL_TRY(check_key(c, &one));
    for (int i = 0; m->family->keys[i] && n < MOST; i++)
        keys[n++] = m->family->keys[i];
    for (int i = 0; m->ctr && m->ctr->own[i] && n < MOST; i++)
        keys[n++] = m->ctr->own[i];
    return fl_at_keys(at, keys);
}

static fleet_status read_type(fl_config *c, const fl_at *model)
{
    enum { MOST = 100 };
    const char *names[MOST + 1] = {NULL};
    fl_at type = fl_at_key(model, "type");
    int which = 0;

    for (int i = 0; fl_model_kinds[i].name && i < MOST; i++)
        names[i] = fl_model_kinds[i].name;
    FL_TRY(fl_at_required(&type));
    FL_TRY(fl_at_choice(&type, names, &which));
    c->model = &fl_model_kinds[which];
    return FLEET_OK;
}

/* The names are the program's, which is not made yet. */
static fleet_status read_ps(fl_config *c, const fl_at *at)
{
    fl_at ps = fl_at_key(at, "ps");
    bool servers;

    FL_TRY(fl_at_any_keys(&ps));
    for (fl_at e = fl_at_first_member(&ps); e.json; fl_at_next_member(&ps, &e))
        FL_TRY(fl_at_bool(&e, &servers));
    c->model_ps = ps;
    return FLEET_OK;
}

fleet_status fl_config_read_model(fl_config *c, const fl_at *at)
{
    FL_TRY(fl_at_required(at));
    if (!fl_at_is_object(at))
        return fl_at_expected(at, "an object");
    FL_TRY(read_type(c, at));
    FL_TRY(check_keys(c, at));
    FL_TRY(read_ps(c, at));
    FL_TRY(read_tables(c, at));
    FL_TRY(read_cap(c, at));
    return c->model->family->read ? c->model->family->read(c, at) : FLEET_OK;
}
