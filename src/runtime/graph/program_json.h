/* program_json.h - programs as JSON, for inference models. */
#pragma once

#include "base/json/json.h"
#include "runtime/graph/program.h"

/* The program that computes `fetch` from data alone, for fl_free'ing as a
 * program of its own on another store: what is not needed is left out. */
fleet_status fl_program_to_json(const fleet_program *p, fleet_var *const *fetch,
                                int n_fetch, fl_json **json);

typedef const fl_op *fl_op_finder(const char *name);
fleet_status fl_program_from_json(fleet_program *p, const fl_at *at,
                                  fl_op_finder *find);
