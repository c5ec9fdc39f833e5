/* load_how.c - what is loaded of a save, as other processes are told. */
#include "fleet/save/load_how.h"

#include "base/json/json_write.h"
#include "base/memory.h"

static fleet_status check_choice(int value, int last, const char *name)
{
    return value >= 0 && value <= last
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "load: %s: expected one of its choices, 0 to %d, got "
                         "%d",
                         name, last, value);
}

fleet_status fl_load_options_check(const fleet_load_options *o)
{
    FL_TRY(check_choice((int)o->on_missing, FLEET_MISSING_INITIALIZE,
                        "on_missing"));
    FL_TRY(check_choice((int)o->on_extra, FLEET_EXTRA_REFUSE, "on_extra"));
    FL_TRY(check_choice((int)o->on_shape, FLEET_SHAPE_INITIALIZE, "on_shape"));
    FL_TRY(check_choice((int)o->position, FLEET_POSITION_ANEW, "position"));
    return check_choice((int)o->states, FLEET_STATES_INITIALIZE, "states");
}

const char *fl_load_how_what(const fl_load_how *how)
{
    return how->table ? NULL : how->o.keep_rows ? FL_WHAT_ADDS : "checkpoint";
}

static fleet_status put_all(const fl_load_how *how, const char *path,
                            fl_json *json)
{
    const fleet_load_options *o = &how->o;

    FL_TRY(fl_json_put(json, "path", fl_json_string(path)));
    FL_TRY(fl_json_put(json, "on_missing", fl_json_int(o->on_missing)));
    FL_TRY(fl_json_put(json, "on_extra", fl_json_int(o->on_extra)));
    FL_TRY(fl_json_put(json, "on_shape", fl_json_int(o->on_shape)));
    FL_TRY(fl_json_put(json, "states", fl_json_int(o->states)));
    FL_TRY(fl_json_put(json, "restart", fl_json_bool(o->restart != 0)));
    if (how->table)
        FL_TRY(fl_json_put(json, "table", fl_json_string(how->table)));
    if (how->source)
        FL_TRY(fl_json_put(json, "source", fl_json_string(how->source)));
    FL_TRY(fl_json_put(json, "keep_rows", fl_json_bool(o->keep_rows != 0)));
    FL_TRY(fl_json_put(json, "own_filler", fl_json_bool(how->own_filler)));
    return fl_json_put(json, "wider", fl_json_bool(how->wider));
}

fleet_status fl_load_how_print(const fl_load_how *how, const char *path,
                               char **text)
{
    fl_json *json = fl_json_object();
    fleet_status status = put_all(how, path, json);

    *text = status == FLEET_OK ? fl_json_print(json, false) : NULL;
    fl_json_free(json);
    return *text ? FLEET_OK : FLEET_ENOMEM;
}

fleet_status fl_load_how_read(const fl_json *json, fl_load_how *how,
                              const char **path)
{
    fl_at root = fl_at_root(json), at = fl_at_key(&root, "path");
    int64_t missing = 0, extra = 0, states = 0, shape = 0;
    bool restart = false, keep_rows = false;

    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_string(&at, path));
    at = fl_at_key(&root, "on_missing");
    FL_TRY(fl_at_int(&at, 0, FLEET_MISSING_INITIALIZE, &missing));
    at = fl_at_key(&root, "on_extra");
    FL_TRY(fl_at_int(&at, 0, FLEET_EXTRA_REFUSE, &extra));
    at = fl_at_key(&root, "on_shape");
    FL_TRY(fl_at_int(&at, 0, FLEET_SHAPE_INITIALIZE, &shape));
    at = fl_at_key(&root, "states");
    FL_TRY(fl_at_int(&at, 0, FLEET_STATES_INITIALIZE, &states));
    at = fl_at_key(&root, "restart");
    FL_TRY(fl_at_bool(&at, &restart));
    at = fl_at_key(&root, "table");
    FL_TRY(fl_at_string(&at, &how->table));
    at = fl_at_key(&root, "source");
    FL_TRY(fl_at_string(&at, &how->source));
    at = fl_at_key(&root, "keep_rows");
    FL_TRY(fl_at_bool(&at, &keep_rows));
    at = fl_at_key(&root, "own_filler");
    FL_TRY(fl_at_bool(&at, &how->own_filler));
    at = fl_at_key(&root, "wider");
    how->o = (fleet_load_options){.on_missing = (fleet_on_missing)missing,
                                  .on_extra = (fleet_on_extra)extra,
                                  .on_shape = (fleet_on_shape)shape,
                                  .states = (fleet_load_states)states,
                                  .restart = restart,
                                  .keep_rows = keep_rows};
    return fl_at_bool(&at, &how->wider);
}
