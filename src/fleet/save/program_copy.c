/* program_copy.c - programs made of other ones, by way of JSON: read from text,
 * cloned, pruned. */
#include "fleet/save/program_copy.h"

#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "ops/ops.h"
#include "runtime/graph/program_json.h"

fleet_status fl_program_read_text(fleet_program *p, const char *text)
{
    fleet_status status;
    fl_json *json;
    fl_at root;

    FL_TRY(fl_json_parse(text, strlen(text), "program", &json));
    root = fl_at_root(json);
    status = fl_program_from_json(p, &root, fl_op_find);
    fl_json_free(json);
    return status;
}

/* place: of another program, whose guards ask for its GPU; NULL: none. */
static fleet_program *read_program(fleet *f, const char *text,
                                   const fl_place *place)
{
    fleet_program *p = fleet_program_create(f);

    if (p && (!place || fl_place_of(place, 0, &p->place) == FLEET_OK) &&
        fl_program_read_text(p, text) == FLEET_OK)
        return p;
    fleet_program_destroy(p);
    return NULL;
}

fleet_program *fleet_program_from_json(fleet *f, const char *text)
{
    if (fl_handle_check(f, "fleet_program_from_json") != FLEET_OK)
        return NULL;
    if (text)
        return read_program(f, text, NULL);
    fl_fail(FLEET_EINVAL, "fleet_program_from_json: no text");
    return NULL;
}

/* targets NULL: all. */
static fleet_program *copy(const fleet_program *from, fleet_var *const *targets,
                           int n, bool for_test)
{
    fleet_program *p = NULL;
    fl_json *json;
    char *text;

    if (fl_program_to_json_whole(from, targets, n, &json) != FLEET_OK)
        return NULL;
    text = fl_json_print(json, false);
    fl_json_free(json);
    if (text)
        p = read_program(fl_handle_of(from->context), text, &from->place);
    fl_free(text);
    if (p)
        p->for_test = for_test;
    return p;
}

fleet_program *fleet_program_clone(const fleet_program *from, int for_test)
{
    if (fleet_program_status(from) != FLEET_OK)
        return NULL;
    return copy(from, NULL, 0, for_test || from->for_test);
}

static fleet_status check_targets(const fleet_program *p,
                                  fleet_var *const *targets, int n)
{
    FL_TRY(fleet_program_status(p));
    if (!targets || n < 1)
        return fl_fail(FLEET_EINVAL, "fleet_program_prune: no targets");
    for (int i = 0; i < n; i++)
        if (!targets[i] || targets[i]->program != p ||
            targets[i]->kind != FL_VAR_TEMP)
            return fl_fail(FLEET_EINVAL,
                           "fleet_program_prune: target %d, \"%.200s\", is not "
                           "computed by the program",
                           i, fleet_var_name(targets[i]));
    return FLEET_OK;
}

fleet_program *fleet_program_prune(const fleet_program *from,
                                   fleet_var *const *targets, int n)
{
    return check_targets(from, targets, n) == FLEET_OK
               ? copy(from, targets, n, from->for_test)
               : NULL;
}
