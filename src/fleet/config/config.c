/* config.c - the configuration, but for its data. */
#include "fleet/config/config_internal.h"

#include <string.h>

#include "base/json/json_write.h"
#include "data/layout/layout.h"
#include "fleet/save/load_chain.h"
#include "fleet/strategy/strategy_read.h"

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

fleet_status fl_config_columns_alone(const fl_config *c, const fl_at *at,
                                     const char *const *keys)
{
    for (int i = 0; keys[i] && !fl_has_columns(c->dataset.format); i++) {
        fl_at one = fl_at_key(at, keys[i]);

        if (one.json)
            return fl_at_expected(&one, "nothing: it is for csv and parquet");
    }
    return FLEET_OK;
}

fleet_status fl_config_path(const fl_at *at, const char **path)
{
    FL_TRY(fl_at_string(at, path));
    return at->json && !**path ? fl_at_expected(at, "a path that is not empty")
                               : FLEET_OK;
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
    static const char *const keys[] = {"folder", "steps",       "seconds",
                                       "keep",   "incremental", NULL};
    fl_at incremental = fl_at_key(at, "incremental");
    fl_at folder = fl_at_key(at, "folder"), steps = fl_at_key(at, "steps");
    fl_at seconds = fl_at_key(at, "seconds"), keep = fl_at_key(at, "keep");
    fleet_save_every *e = &c->save_every;
    int64_t most = 0, links = 0;

    FL_TRY(fl_at_keys(at, keys));
    FL_TRY(fl_config_path(&folder, &e->folder));
    FL_TRY(fl_at_int(&steps, 1, FL_MOST_EXACT, &e->steps));
    FL_TRY(fl_at_double(&seconds, 1e-3, 1e9, &e->seconds));
    FL_TRY(fl_at_int(&keep, 1, 1000000, &most));
    e->keep = (int)most;
    FL_TRY(fl_at_int(&incremental, 0, FL_MOST_LINKS, &links));
    e->incremental = (int)links;
    if (e->folder && c->save && strcmp(e->folder, c->save) == 0)
        return fl_at_expected(&folder, "another folder than that of `save`");
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

/* A pass of samples in memory, and its rows on a GPU. */
static fleet_status read_ps_gpu(fl_config *c, const fl_at *root)
{
    static const char *const keys[] = {"memory_bytes", NULL};
    fl_at at = fl_at_key(root, "ps_gpu"), one;

    FL_TRY(fl_at_keys(&at, keys));
    one = fl_at_key(&at, "memory_bytes");
    FL_TRY(fl_at_int(&one, 0, (int64_t)1 << 50, &c->ps_gpu_bytes));
    if (!c->strategy.a_sync_configs.use_ps_gpu)
        return at.json ? fl_at_expected(&at, "nothing: strategy.a_sync_configs."
                                             "use_ps_gpu is not true")
                       : FLEET_OK;
    one = fl_at_key(root, "device");
    if (!c->own_gpu && c->device <= 0)
        return fl_at_expected(&one, "\"gpu\" or \"gpu:0\": strategy has "
                                    "a_sync_configs.use_ps_gpu");
    at = fl_at_key(root, "dataset");
    one = fl_at_key(&at, "in_memory");
    return c->in_memory ? FLEET_OK
                        : fl_at_expected(&one, "true: strategy has "
                                               "a_sync_configs.use_ps_gpu");
}

static fleet_status read_top(fl_config *c)
{
    static const char *const keys[] = {
        "model",          "optimizer",   "strategy", "device",    "epochs",
        "seed",           "dataset",     "slots",    "save",      "save_every",
        "validate_every", "metrics_log", "load",     "deadlines", "trainer",
        "ps_gpu",         "metrics",     NULL};
    fl_at root = fl_at_root(c->json), at;
    const char *device = "cpu";

    FL_TRY(fl_at_keys(&root, keys));
    at = fl_at_key(&root, "model");
    FL_TRY(fl_config_read_model(c, &at));
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
    FL_TRY(read_ps_gpu(c, &root));
    FL_TRY(fl_config_read_metrics(c, &root));
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
