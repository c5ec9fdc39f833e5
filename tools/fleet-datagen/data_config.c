/* data_config.c - a configuration whose slots are the fields of a line. */
#include "data_config.h"

#include <stdio.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "data/format/formats.h"

/* A configuration that is made; ok is false once there was no memory. */
typedef struct making {
    const data_options *o;
    bool ok;
    int column; /* of csv, the next one */
} making;

static void put(making *m, fl_json *to, const char *key, fl_json *value)
{
    m->ok = fl_json_put(to, key, value) == FLEET_OK && m->ok;
}

static fl_json *put_array(making *m, fl_json *to, const char *key)
{
    fl_json *array = NULL;

    m->ok = m->ok && fl_json_put_array(to, key, &array) == FLEET_OK;
    return m->ok ? array : NULL;
}

static void append(making *m, fl_json *array, fl_json *value)
{
    m->ok = fl_json_append(array, value) == FLEET_OK && m->ok;
}

/* Of csv by their places, of Parquet by their names where these are not the
 * slot's. */
static void put_columns(making *m, fl_json *slot, const data_field *f)
{
    const bool csv = m->o->format == FLEET_CSV;
    fl_json *columns;
    char name[24];

    if (!csv && !(m->o->format == FLEET_PARQUET && f->kind == COUNT_FIELD))
        return;
    columns = put_array(m, slot, "columns");
    for (int i = 0; m->ok && i < f->most; i++) {
        snprintf(name, sizeof name, "count_%d", i);
        append(m, columns,
               csv ? fl_json_int(m->column++) : fl_json_string(name));
    }
}

/* Other formats have logarithms of counts; texts in csv are hashed. */
static void put_transform(making *m, fl_json *slot, const data_field *f)
{
    const bool csv = m->o->format == FLEET_CSV;

    if (!csv && m->o->format != FLEET_PARQUET)
        return;
    if (f->kind == COUNT_FIELD)
        put(m, slot, "transform", fl_json_string("log1p_standardize"));
    else if (data_field_has_ids(f) && !(csv && f->kind == ID_FIELD))
        put(m, slot, "transform", fl_json_string("none"));
}

/* What the model does with it. A history that is a feature is pooled: its last
 * item where that alone counts. */
static void put_use(making *m, fl_json *slot, const data_field *f)
{
    const data_options *o = m->o;
    const bool role = f->kind != HISTORY_FIELD || o->reader->has_history;

    if (f->kind == LABEL_FIELD)
        put(m, slot, "role", fl_json_string("label"));
    else if (f->kind == LOG_Q_FIELD)
        put(m, slot, "role", fl_json_string("log_q"));
    if (f->kind != HISTORY_FIELD && f->kind != ITEM_FIELD)
        return;
    if (role)
        put(m, slot, "role", fl_json_string(f->name));
    else
        put(m, slot, "combiner",
            fl_json_string(o->rule == RULE_NEXT ? "last" : "mean"));
    put(m, slot, "table", fl_json_string("items"));
}

static fl_json *add_slot(making *m, fl_json *slots, const char *name, bool ids,
                         int64_t dim)
{
    fl_json *slot = fl_json_object();

    append(m, slots, slot);
    if (!m->ok)
        return NULL;
    put(m, slot, "name", fl_json_string(name));
    put(m, slot, "type", fl_json_string(ids ? "uint64" : "float"));
    put(m, slot, "dim", fl_json_int(dim));
    return m->ok ? slot : NULL;
}

static void add_field(making *m, fl_json *slots, const data_field *f)
{
    fl_json *slot = add_slot(m, slots, f->name, data_field_has_ids(f),
                             f->kind == HISTORY_FIELD ? -1 : f->most);

    if (!slot)
        return;
    put_use(m, slot, f);
    put_columns(m, slot, f);
    put_transform(m, slot, f);
}

/* One slot has all that is behind the label. */
static void add_features(making *m, fl_json *slots)
{
    fl_json *slot = add_slot(m, slots, "features", true, -1);

    if (slot)
        put(m, slot, "weighted", fl_json_bool(true));
}

static void put_slots(making *m, fl_json *config, const data_line *line)
{
    fl_json *slots;

    if (!m->ok || m->o->format == FLEET_CRITEO)
        return;
    slots = put_array(m, config, "slots");
    for (int i = 0; m->ok && i < line->n; i++)
        if (i == 0 || m->o->format != FLEET_LIBSVM)
            add_field(m, slots, &line->field[i]);
    if (m->ok && m->o->format == FLEET_LIBSVM)
        add_features(m, slots);
}

static bool make_config(const data_options *o, fl_json *config,
                        const data_line *line)
{
    fl_json *model = fl_json_object(), *optimizer = fl_json_object();
    fl_json *dataset = fl_json_object();
    making m = {.o = o, .ok = true};

    put(&m, config, "model", model);
    put(&m, config, "optimizer", optimizer);
    put(&m, config, "dataset", dataset);
    if (!m.ok)
        return false;
    put(&m, model, "type", fl_json_string(o->model));
    if (o->reader && o->reader->has_history)
        put(&m, model, "max_len", fl_json_int(o->history));
    put(&m, optimizer, "type", fl_json_string("adam"));
    put(&m, optimizer, "learning_rate", fl_json_double(0.001, 6));
    put(&m, dataset, "format", fl_json_string(fl_format_names[o->format]));
    put(&m, dataset, "batch_size", fl_json_int(256));
    append(&m, put_array(&m, dataset, "train"), fl_json_string(o->file));
    put_slots(&m, config, line);
    return m.ok;
}

bool data_config_write(const data_options *o, const data_line *line)
{
    fl_json *config = fl_json_object();
    char *text = config && make_config(o, config, line)
                     ? fl_json_print(config, true)
                     : NULL;
    FILE *f = text ? fopen(o->config, "w") : NULL;
    bool is_written = f && fprintf(f, "%s\n", text) > 0;

    if (f && fclose(f) != 0)
        is_written = false;
    fl_free(text);
    fl_json_free(config);
    return is_written;
}
