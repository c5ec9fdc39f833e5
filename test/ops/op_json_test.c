/* op_json_test.c - every operator's program, written as a save has it and read
 * again, is the same program. */
#define SUITE op_json
#include "test.h"
#include "op_kit.h"
#include "train_kit.h"

#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "ops/ops.h"
#include "runtime/exec/executor.h"
#include "runtime/graph/program_json.h"

static char *text_of(const fleet_program *p, fleet_var *fetch, bool whole)
{
    fl_json *json;
    char *text;

    CHECK_OK(whole ? fl_program_to_json_whole(p, NULL, 0, &json)
                   : fl_program_to_json(p, &fetch, 1, &json));
    text = fl_json_print(json, false);
    fl_json_free(json);
    return text;
}

static void check_read(const fleet_program *from, fleet_var *fetch, bool whole)
{
    char *before = text_of(from, fetch, whole), *after;
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fl_json *json;
    fl_at root;

    CHECK_OK(fl_json_parse(before, strlen(before), "model.json", &json));
    root = fl_at_root(json);
    CHECK_OK(fl_program_from_json(p, &root, fl_op_find));
    after = text_of(p, fleet_program_var(p, fleet_var_name(fetch)), whole);
    CHECK_TEXT(after, before);
    fl_free(before);
    fl_free(after);
    fl_json_free(json);
    fleet_destroy(f);
}

static void read_again(void *arg, fleet_executor *e)
{
    (void)arg;
    check_read(e->program, e->program->training.loss, false);
    check_read(e->program, e->program->training.loss, true);
}

TEST(programs_of_all_operators_are_read_as_they_were_written)
{
    for (int f = 0; op_families[f]; f++)
        for (const op_case *c = op_families[f]; c->op; c++)
            if (!c->no_gradient)
                visit_case(c, 1, read_again, NULL);
}

TEST(layer_norm_is_read_without_either_parameter)
{
    for (int i = 0; i < 4; i++) {
        fleet *f = kit_handle(&(kit_options){0});
        fleet_program *p = fleet_program_create(f);

        check_read(p,
                   fleet_layer_norm(p, kit_data(p, "x", 4),
                                    &(fleet_layer_norm_options){
                                        .no_scale = i & 1, .no_shift = i >> 1}),
                   i & 1);
        fleet_destroy(f);
    }
}
