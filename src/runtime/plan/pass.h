/* pass.h - passes rewrite a lowering: its graph before steps are made of it, or
 * its plan afterwards. passes.def lists them. */
#pragma once

#include "runtime/plan/lower.h"

typedef enum fl_pass_when { FL_PASS_GRAPH, FL_PASS_PLAN } fl_pass_when;

/* A pass sets *applied if it found something to do. */
typedef fleet_status fl_pass_run(fl_lowering *l, bool *applied);

typedef struct fl_pass {
    const char *name;
    fl_pass_when when;
    const char *needs, *conflicts;
    fl_pass_run *run;
} fl_pass;

/* Run the passes of that time; the plan notes the names of passes that
 * applied. */
fleet_status fl_passes_run(fl_lowering *l, fl_pass_when when);

/* The same on any list, for tests; n passes. */
fleet_status fl_passes_run_list(fl_lowering *l, const fl_pass *pass, int n,
                                fl_pass_when when);

#define FL_PASS(name, when, needs, conflicts) fl_pass_run fl_pass_##name;
#include "runtime/plan/passes.def"
#undef FL_PASS
