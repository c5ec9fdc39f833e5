/* config.c - the configuration, but for its data. */
#include "fleet/config/config_internal.h"

#include <string.h>

#include "base/json/json_write.h"
#include "fleet/strategy/strategy_read.h"
#include "runtime/graph/table_cap.h"
#include "runtime/graph/table_options.h"

fleet_status fl_config_texts(fl_config *c, const fl_at *at, const char ***text,
                             int *n)
{
    FL_TRY(fl_at_array(at));
    *n = fl_at_count(at);
    *text = fl_arena_alloc(&c->arena, (size_t)(*n + 1) * sizeof **text);
    if (!*text)
        return FLEET_ENOMEM;
    for (fl_at one = fl_at_first(at); one.json; fl_at_next(at, &one))
        FL_TRY(fl_at_string(&one, &(*text)[one.index]));
    return FLEET_OK;
}

fleet_status fl_config_csv_alone(const fl_config *c, const fl_at *at,
                                 const char *const *keys)
{
    for (int i = 0; keys[i] && c->dataset.format != FLEET_CSV; i++) {
        fl_at one = fl_at_key(at, keys[i]);

        if (one.json)
            return fl_at_expected(&one, "nothing: it is for csv");
    }
    return FLEET_OK;
}

fleet_status fl_config_path(const fl_at *at, const char **path)
{
    FL_TRY(fl_at_string(at, path));
    return at->json && !**path ? fl_at_expected(at, "a path that is not empty")
                               : FLEET_OK;
}

/* --- model --------------------------------------------------------------- */

static fleet_status read_hidden(fl_config *c, const fl_at *at)
{
    enum { MOST_LAYERS = 64, MOST_UNITS = 1 << 20 };

    if (!at->json)
        return FLEET_OK;
    c->n_hidden = fl_at_count(at);
    c->has_hidden = true;
    if (!fl_at_is_array(at) || c->n_hidden > MOST_LAYERS)
        return fl_at_expected(at, "an array of up to 64 numbers of units");
    c->hidden = fl_arena_alloc(&c->arena,
                               (size_t)(c->n_hidden + 1) * sizeof *c->hidden);
    if (!c->hidden)
        return FLEET_ENOMEM;
    for (int i = 0; i < c->n_hidden; i++) {
        fl_at one = fl_at_index(at, i);

        FL_TRY(fl_at_int(&one, 1, MOST_UNITS, &c->hidden[i]));
    }
    return FLEET_OK;
}

/* An mlp has none of the keys that tables have. */
static fleet_status no_tables(const fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {"rows",          "check_ids",
                                       "fresh",         "entry",
                                       "unknown_zeros", "ttl_updates",
                                       "ttl_seconds",   "most_rows",
                                       "most_bytes",    "memory_cap_bytes",
                                       "cold_folder",   "accessor",
                                       "storage",       NULL};

    for (int i = 0; c->model == FL_MLP && keys[i]; i++) {
        fl_at one = fl_at_key(at, keys[i]);

        if (one.json)
            return fl_at_expected(&one, "nothing: an mlp has no embedding");
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

    FL_TRY(no_tables(c, at));
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

static fleet_status read_model(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {
        "type",        "embedding_dim", "hidden",
        "classes",     "wide_ids",      "ps",
        "rows",        "check_ids",     "fresh",
        "default_id",  "entry",         "unknown_zeros",
        "ttl_updates", "most_rows",     "memory_cap_bytes",
        "cold_folder", "storage",       "accessor",
        "ttl_seconds", "most_bytes",    NULL};
    static const char *const types[] = {"wide_deep", "ctr_dnn", "deepfm", "mlp",
                                        NULL};
    fl_at type = fl_at_key(at, "type"), dim = fl_at_key(at, "embedding_dim");
    fl_at hidden = fl_at_key(at, "hidden"), classes = fl_at_key(at, "classes");
    fl_at wide = fl_at_key(at, "wide_ids");
    int model = 0;

    FL_TRY(fl_at_required(at));
    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_at_required(&type));
    FL_TRY(fl_at_choice(&type, types, &model));
    c->model = (fl_model_type)model;
    c->model_name = types[model];
    c->model_ps = fl_at_key(at, "ps");
    if (c->model == FL_MLP && dim.json)
        return fl_at_expected(&dim, "nothing: an mlp has no embedding");
    if (c->model != FL_MLP && classes.json)
        return fl_at_expected(&classes, "nothing: only an mlp has classes");
    if (c->model != FL_WIDE_DEEP && wide.json)
        return fl_at_expected(&wide, "nothing: only wide_deep has a wide part");
    FL_TRY(fl_at_int(&dim, 1, 4096, &c->embedding_dim));
    FL_TRY(fl_at_int(&classes, 2, FL_CONFIG_MOST_CLASSES, &c->classes));
    FL_TRY(fl_at_bool(&wide, &c->wide_ids));
    FL_TRY(read_tables(c, at));
    FL_TRY(read_cap(c, at));
    return read_hidden(c, &hidden);
}

/* --- the top level ------------------------------------------------------- */

static fleet_status read_deadlines(fl_config *c, const fl_at *at)
{
    static const char *const keys[FL_N_DEADLINE + 1] = {
        [FL_CONNECT_DEADLINE] = "connect_deadline_ms",
        [FL_REQUEST_DEADLINE] = "request_deadline_ms",
        [FL_PEER_DEADLINE] = "peer_deadline_ms",
        [FL_STEP_DEADLINE] = "step_deadline_ms"};

    FL_TRY(fl_at_keys(at, keys));
    for (int i = 0; keys[i]; i++) {
        fl_at one = fl_at_key(at, keys[i]);

        c->has_deadlines = c->has_deadlines || one.json;
        FL_TRY(fl_at_int(&one, 1, INT32_MAX, &c->deadline_ms[i]));
    }
    return FLEET_OK;
}

/* A path, or an object with it and what is saved. */
static fleet_status read_save(fl_config *c, const fl_at *save)
{
    static const char *const keys[] = {"path", "mode", NULL};
    static const char *const modes[] = {"all", "delta", "base", "day_end",
                                        NULL};
    int mode = FLEET_SAVE_ALL;
    fl_at at;

    if (!save->json || fl_at_is_string(save))
        return fl_config_path(save, &c->save);
    if (fl_at_keys(save, keys) != FLEET_OK)
        return fl_at_is_object(save)
                   ? FLEET_ECONFIG
                   : fl_at_expected(save, "a string or an object");
    at = fl_at_key(save, "path");
    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_config_path(&at, &c->save));
    at = fl_at_key(save, "mode");
    FL_TRY(fl_at_choice(&at, modes, &mode));
    c->save_mode = (fleet_save_mode)mode;
    return FLEET_OK;
}

/* A path, or an object with it and how it is loaded. */
static fleet_status read_load(fl_config *c, const fl_at *load)
{
    static const char *const keys[] = {"path",      "on_missing", "on_extra",
                                       "states",    "restart",    "position",
                                       "keep_rows", "on_shape",   NULL};
    static const char *const positions[] = {"resume", "anew", NULL};
    static const char *const missing[] = {"refuse", "keep", "initialize", NULL};
    static const char *const extra[] = {"ignore", "refuse", NULL};
    static const char *const states[] = {"refuse", "initialize", NULL};
    static const char *const shapes[] = {"refuse", "initialize", NULL};
    int chosen[] = {0, 0, 0, FLEET_POSITION_ANEW, 0};
    bool restart = false, keep_rows = false;
    fl_at at;

    if (!load->json || fl_at_is_string(load))
        return fl_config_path(load, &c->load);
    if (fl_at_keys(load, keys) != FLEET_OK)
        return fl_at_is_object(load)
                   ? FLEET_ECONFIG
                   : fl_at_expected(load, "a string or an object");
    at = fl_at_key(load, "path");
    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_config_path(&at, &c->load));
    at = fl_at_key(load, "on_missing");
    FL_TRY(fl_at_choice(&at, missing, &chosen[0]));
    at = fl_at_key(load, "on_extra");
    FL_TRY(fl_at_choice(&at, extra, &chosen[1]));
    at = fl_at_key(load, "states");
    FL_TRY(fl_at_choice(&at, states, &chosen[2]));
    at = fl_at_key(load, "restart");
    FL_TRY(fl_at_bool(&at, &restart));
    at = fl_at_key(load, "position");
    FL_TRY(fl_at_choice(&at, positions, &chosen[3]));
    at = fl_at_key(load, "on_shape");
    FL_TRY(fl_at_choice(&at, shapes, &chosen[4]));
    at = fl_at_key(load, "keep_rows");
    FL_TRY(fl_at_bool(&at, &keep_rows));
    c->load_options =
        (fleet_load_options){.on_missing = (fleet_on_missing)chosen[0],
                             .on_extra = (fleet_on_extra)chosen[1],
                             .states = (fleet_load_states)chosen[2],
                             .position = (fleet_load_position)chosen[3],
                             .on_shape = (fleet_on_shape)chosen[4],
                             .restart = restart,
                             .keep_rows = keep_rows};
    return FLEET_OK;
}

/* Without a folder of their own they are beside what is saved at the end. */
static fleet_status read_save_every(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {"folder", "steps", "seconds", "keep",
                                       NULL};
    fl_at folder = fl_at_key(at, "folder"), steps = fl_at_key(at, "steps");
    fl_at seconds = fl_at_key(at, "seconds"), keep = fl_at_key(at, "keep");
    fleet_save_every *e = &c->save_every;
    int64_t most = 0;

    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_config_path(&folder, &e->folder));
    FL_TRY(fl_at_int(&steps, 1, FL_MOST_EXACT, &e->steps));
    FL_TRY(fl_at_double(&seconds, 1e-3, 1e9, &e->seconds));
    FL_TRY(fl_at_int(&keep, 1, 1000000, &most));
    e->keep = (int)most;
    if (at->json && !e->folder && !c->save)
        return fl_at_expected(&folder, "a folder: there is no `save`, beside "
                                       "which one could be");
    if (!e->folder && c->save) {
        e->folder = fl_arena_format(&c->arena, "%s.checkpoints", c->save);
        return e->folder ? FLEET_OK : FLEET_ENOMEM;
    }
    return FLEET_OK;
}

static fleet_status read_trainer(fl_config *c, const fl_at *at)
{
    static const char *const keys[] = {"thread", "hogwild", NULL};
    fl_at one;

    FL_TRY(fl_at_keys(at, keys));
    one = fl_at_key(at, "thread");
    FL_TRY(fl_at_int(&one, 1, 64, &c->trainer_threads));
    one = fl_at_key(at, "hogwild");
    FL_TRY(fl_at_bool(&one, &c->hogwild));
    if (c->hogwild && c->trainer_threads <= 1)
        return fl_at_expected(&one, "false: it is for thread 2 or more");
    return FLEET_OK;
}

static fleet_status read_top(fl_config *c)
{
    static const char *const keys[] = {
        "model",  "optimizer",  "strategy",       "device",
        "epochs", "seed",       "dataset",        "slots",
        "save",   "save_every", "validate_every", "metrics_log",
        "load",   "deadlines",  "trainer",        NULL};
    fl_at root = fl_at_root(c->json), at;
    const char *device = "cpu";

    FL_TRY(fl_at_keys(&root, keys));
    at = fl_at_key(&root, "model");
    FL_TRY(read_model(c, &at));
    at = fl_at_key(&root, "optimizer");
    FL_TRY(fl_config_read_optimizer(c, &at));
    at = fl_at_key(&root, "strategy");
    FL_TRY(fl_strategy_read(&at, &c->strategy));
    at = fl_at_key(&root, "device");
    FL_TRY(fl_at_string(&at, &device));
    c->own_gpu = strcmp(device, "gpu") == 0;
    if (!c->own_gpu && fleet_place_parse(device, &c->device) != FLEET_OK)
        return fl_at_expected(&at, "\"cpu\", \"gpu\" or \"gpu:0\"");
    at = fl_at_key(&root, "epochs");
    FL_TRY(fl_at_int(&at, 1, 1000000, &c->epochs));
    at = fl_at_key(&root, "seed");
    FL_TRY(fl_at_int(&at, 0, FL_MOST_EXACT, &c->seed));
    at = fl_at_key(&root, "trainer");
    FL_TRY(read_trainer(c, &at));
    at = fl_at_key(&root, "dataset");
    FL_TRY(fl_config_read_dataset(c, &at));
    at = fl_at_key(&root, "slots");
    FL_TRY(fl_config_read_slots(c, &at));
    at = fl_at_key(&root, "model");
    FL_TRY(fl_config_check_shown(c, &at));
    at = fl_at_key(&root, "deadlines");
    FL_TRY(read_deadlines(c, &at));
    at = fl_at_key(&root, "save");
    FL_TRY(read_save(c, &at));
    at = fl_at_key(&root, "save_every");
    FL_TRY(read_save_every(c, &at));
    FL_TRY(fl_config_read_watch(c, &root));
    at = fl_at_key(&root, "load");
    return read_load(c, &at);
}

/* A value that is no JSON is a string: save=out. */
static fleet_status set_one(fl_json *root, const char *set)
{
    const char *value = strchr(set, '=');
    fl_json *json = NULL;
    fleet_status status;
    char *path;

    if (!value || value == set)
        return fl_fail(FLEET_ECONFIG, "expected key=value");
    FL_TRY(fl_json_check_string(set)); /* no quotes are around its names */
    FL_TRY(fl_json_check_text(value + 1, strlen(value + 1), "the value"));
    path = fl_strndup(set, (size_t)(value - set));
    if (!path)
        return FLEET_ENOMEM;
    status = fl_json_parse(value + 1, strlen(value + 1), "the value", &json);
    if (status == FLEET_ECONFIG) {
        fl_error_clear();
        json = fl_json_string(value + 1);
        status = FLEET_OK;
    }
    if (status == FLEET_OK)
        status = fl_json_set(root, path, json);
    fl_free(path);
    return status;
}

fleet_status fl_config_read_with(fl_config *c, const char *text, size_t size,
                                 const char *name, const char *const *set,
                                 int n_set)
{
    fleet_status status;

    *c = (fl_config){.epochs = 1,
                     .load_options = {.position = FLEET_POSITION_ANEW},
                     .strategy = fleet_distributed_strategy_default(),
                     .optimizer = fl_config_optimizer_default()};
    FL_TRY(fl_json_check_text(text, size, name));
    FL_TRY(fl_json_parse(text, size, name, &c->json));
    for (int i = 0; i < n_set; i++) {
        status = set_one(c->json, set[i]);
        if (status != FLEET_OK)
            return fl_fail_in(status, "\"%.200s\"", set[i]);
    }
    status = read_top(c);
    if (status != FLEET_OK)
        status = fl_fail_in(status, "%s", name);
    return status;
}

fleet_status fl_config_read(fl_config *c, const char *text, size_t size,
                            const char *name)
{
    return fl_config_read_with(c, text, size, name, NULL, 0);
}

void fl_config_done(fl_config *c)
{
    fl_json_free(c->json);
    fl_arena_done(&c->arena);
    *c = (fl_config){0};
}
