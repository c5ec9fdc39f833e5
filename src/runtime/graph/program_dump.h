/* program_dump.h - a program as text and as a Graphviz digraph. */
#pragma once

#include "base/text.h"
#include "runtime/graph/program.h"

fleet_status fl_program_text(const fleet_program *p, fl_text *out);
fleet_status fl_program_dot(const fleet_program *p, fl_text *out);
