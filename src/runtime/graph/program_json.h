/* program_json.h - programs as JSON: for inference models, and whole. */
#pragma once

#include "base/json/json.h"
#include "runtime/graph/program.h"

/* The program that computes `fetch` from data alone, for fl_free'ing as a
 * program of its own on another store: what is not needed is left out. */
fleet_status fl_program_to_json(const fleet_program *p, fleet_var *const *fetch,
                                int n_fetch, fl_json **json);

/* The same with what a training has to know, the names that layers are given
 * included; targets NULL: all of the program. What it is trained on, and where
 * it is placed, is not in it. */
fleet_status fl_program_to_json_whole(const fleet_program *p,
                                      fleet_var *const *targets, int n_target,
                                      fl_json **json);

/* The same of the marked nodes alone, by id; variables that are given, by id,
 * are data, though other nodes compute them: for a stage of a cut.h. */
fleet_status fl_program_to_json_stage(const fleet_program *p,
                                      const bool *marked, const bool *given,
                                      fl_json **json);

typedef const fl_op *fl_op_finder(const char *name);
/* Either of both; parameters of the first are frozen. */
fleet_status fl_program_from_json(fleet_program *p, const fl_at *at,
                                  fl_op_finder *find);
