/* param_json.c - attributes of parameters, lives and caps of tables, as JSON.
 * What is at its default is not written. */
#include "runtime/graph/param_json.h"

#include "base/json/json_write.h"
#include "runtime/graph/table_options.h"

static const char *const ps_names[] = {"by_mode", "servers", "ranks", NULL};

static fleet_status put_float(fl_json *o, const char *key, float x)
{
    return x != 0 ? fl_json_put(o, key, fl_json_double((double)x, 9))
                  : FLEET_OK;
}

static fleet_status put_int(fl_json *o, const char *key, int64_t x)
{
    return x != 0 ? fl_json_put(o, key, fl_json_int(x)) : FLEET_OK;
}

static fleet_status put_flag(fl_json *o, const char *key, bool on)
{
    return on ? fl_json_put(o, key, fl_json_bool(true)) : FLEET_OK;
}

static fleet_status put_text(fl_json *o, const char *key, const char *text)
{
    return text ? fl_json_put(o, key, fl_json_string(text)) : FLEET_OK;
}

static fleet_status read_float(const fl_at *object, const char *key, float *x)
{
    fl_at at = fl_at_key(object, key);

    return fl_at_float(&at, x);
}

static fleet_status read_int(const fl_at *object, const char *key, int64_t *x)
{
    fl_at at = fl_at_key(object, key);

    return fl_at_int(&at, 0, FL_MOST_EXACT, x);
}

static fleet_status read_flag(const fl_at *object, const char *key, int *on)
{
    fl_at at = fl_at_key(object, key);
    bool is = false;

    FL_TRY(fl_at_bool(&at, &is));
    *on = is;
    return FLEET_OK;
}

static fleet_status read_text(const fl_at *object, const char *key,
                              const char **text)
{
    fl_at at = fl_at_key(object, key);

    return fl_at_string(&at, text);
}

/* --- attributes ----------------------------------------------------------- */

fleet_status fl_param_to_json(const fleet_var *v, fl_json *o)
{
    const fleet_param_attr *a = &v->attr;

    FL_TRY(put_float(o, "learning_rate", a->learning_rate));
    FL_TRY(put_float(o, "l2_decay", a->l2_decay));
    FL_TRY(put_flag(o, "no_decay", a->no_decay != 0));
    FL_TRY(put_flag(o, "frozen", a->frozen != 0));
    FL_TRY(put_float(o, "average", a->average));
    return a->ps == FLEET_PS_BY_MODE ? FLEET_OK
                                     : put_text(o, "ps", ps_names[a->ps]);
}

fleet_status fl_param_from_json(const fl_at *at, fleet_param_attr *a)
{
    fl_at ps_at = fl_at_key(at, "ps");
    int ps = FLEET_PS_BY_MODE;

    FL_TRY(read_float(at, "learning_rate", &a->learning_rate));
    FL_TRY(read_float(at, "l2_decay", &a->l2_decay));
    FL_TRY(read_flag(at, "no_decay", &a->no_decay));
    FL_TRY(read_flag(at, "frozen", &a->frozen));
    FL_TRY(read_float(at, "average", &a->average));
    FL_TRY(fl_at_choice(&ps_at, ps_names, &ps));
    a->ps = (fleet_ps)ps;
    return FLEET_OK;
}

/* --- lives of rows -------------------------------------------------------- */

static fleet_status put_entry(fl_json *o, const fleet_entry *e)
{
    fl_text text = {0};
    fleet_status status;

    fl_entry_print(e, &text);
    status = text.status == FLEET_OK ? put_text(o, "entry", text.chars)
                                     : text.status;
    fl_text_done(&text);
    return status;
}

static fleet_status put_accessor(fl_json *o, const fleet_accessor *from)
{
    fleet_accessor a = *from;
    const char *name;
    float *number;

    FL_TRY(put_text(o, "show", a.show));
    FL_TRY(put_text(o, "click", a.click));
    FL_TRY(put_int(o, "embedx_dim", a.embedx_dim));
    for (int i = 0; (name = fl_accessor_number(i, &a, &number)); i++)
        if (fl_accessor_has_number(i, &a))
            FL_TRY(fl_json_put(o, name, fl_json_double((double)*number, 9)));
    return FLEET_OK;
}

static fleet_status put_life(fl_json *object, const fleet_table_options *life)
{
    fl_json *o = fl_json_object(), *accessor;

    FL_TRY(fl_json_put(object, "life", o));
    if (life->entry.kind != FLEET_ENTRY_ALL)
        FL_TRY(put_entry(o, &life->entry));
    FL_TRY(put_flag(o, "unknown_zeros", life->unknown_zeros != 0));
    if (life->accessor.kind != FLEET_NO_ACCESSOR) {
        accessor = fl_json_object();
        FL_TRY(fl_json_put(o, "accessor", accessor));
        FL_TRY(put_accessor(accessor, &life->accessor));
    }
    FL_TRY(put_int(o, "ttl_updates", life->ttl_updates));
    FL_TRY(put_int(o, "ttl_seconds", life->ttl_seconds));
    FL_TRY(put_int(o, "most_rows", life->most_rows));
    return put_int(o, "most_bytes", life->most_bytes);
}

fleet_status fl_table_to_json(const fleet_var *table, fl_json *o)
{
    if (fl_table_has_life(&table->ids.life))
        FL_TRY(put_life(o, &table->ids.life));
    FL_TRY(put_int(o, "memory_cap_bytes", table->cap.bytes));
    return put_text(o, "cold_folder", table->cap.folder);
}

static fleet_status read_accessor(const fl_at *at, fleet_accessor *a)
{
    const char *name;
    float *number;

    if (!at->json)
        return FLEET_OK;
    if (!fl_at_is_object(at))
        return fl_at_expected(at, "an object");
    a->kind = FLEET_CTR_ACCESSOR;
    FL_TRY(read_text(at, "show", &a->show));
    FL_TRY(read_text(at, "click", &a->click));
    FL_TRY(read_int(at, "embedx_dim", &a->embedx_dim));
    for (int i = 0; (name = fl_accessor_number(i, a, &number)); i++)
        FL_TRY(read_float(at, name, number));
    return FLEET_OK;
}

static fleet_status read_life(const fl_at *at, fleet_table_options *life)
{
    fl_at accessor = fl_at_key(at, "accessor"), entry = fl_at_key(at, "entry");
    const char *text = NULL;

    if (!at->json)
        return FLEET_OK;
    if (!fl_at_is_object(at))
        return fl_at_expected(at, "an object");
    FL_TRY(fl_at_string(&entry, &text));
    if (text && !fl_entry_read(text, &life->entry))
        return fl_at_expected(&entry, "an entry of a table");
    FL_TRY(read_flag(at, "unknown_zeros", &life->unknown_zeros));
    FL_TRY(read_accessor(&accessor, &life->accessor));
    FL_TRY(read_int(at, "ttl_updates", &life->ttl_updates));
    FL_TRY(read_int(at, "ttl_seconds", &life->ttl_seconds));
    FL_TRY(read_int(at, "most_rows", &life->most_rows));
    return read_int(at, "most_bytes", &life->most_bytes);
}

fleet_status fl_table_from_json(const fl_at *at, fleet_table_options *life,
                                fl_table_cap *cap)
{
    fl_at life_at = fl_at_key(at, "life");

    FL_TRY(read_life(&life_at, life));
    FL_TRY(read_int(at, "memory_cap_bytes", &cap->bytes));
    return read_text(at, "cold_folder", &cap->folder);
}

/* --- ids ------------------------------------------------------------------ */

fleet_status fl_table_ids_to_json(const fl_table_ids *ids, fl_json *o)
{
    if (ids->check)
        FL_TRY(fl_json_put(o, "check_ids", fl_json_bool(true)));
    if (ids->storage != FLEET_ROW_FLOAT32)
        FL_TRY(fl_json_put(o, "storage",
                           fl_json_string(fl_storage_names[ids->storage])));
    if (ids->fresh == FLEET_FRESH_INITIAL)
        return FLEET_OK;
    FL_TRY(fl_json_put(o, "fresh", fl_json_string(fl_fresh_names[ids->fresh])));
    if (ids->fresh != FLEET_FRESH_ROW)
        return FLEET_OK;
    return fl_json_put(o, "default_id", fl_json_hex((uint64_t)ids->default_id));
}

fleet_status fl_table_ids_from_json(const fl_at *var, fl_table_ids *ids)
{
    fl_at check = fl_at_key(var, "check_ids"), fresh = fl_at_key(var, "fresh");
    fl_at id = fl_at_key(var, "default_id");
    fl_at storage = fl_at_key(var, "storage");
    int which = FLEET_FRESH_INITIAL, kept = FLEET_ROW_FLOAT32;

    *ids = (fl_table_ids){0};
    FL_TRY(fl_at_bool(&check, &ids->check));
    FL_TRY(fl_at_choice(&fresh, fl_fresh_names, &which));
    ids->fresh = (fleet_fresh)which;
    FL_TRY(fl_at_choice(&storage, fl_storage_names, &kept));
    ids->storage = (fleet_row_storage)kept;
    if (ids->fresh == FLEET_FRESH_ROW)
        return fl_at_hex(&id, (uint64_t *)&ids->default_id);
    return FLEET_OK;
}
