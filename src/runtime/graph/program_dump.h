/* program_dump.h - a program as text and as a Graphviz digraph. */
#pragma once

#include "base/text.h"
#include "runtime/graph/program.h"

fleet_status fl_program_text(const fleet_program *p, fl_text *out);
fleet_status fl_program_dot(const fleet_program *p, fl_text *out);

/* What digraphs of programs and of plans share: fed values are blue, what is
 * kept from iteration to iteration yellow. */
#define FL_DOT_FONT                                                            \
    "  node [fontname=\"Helvetica\",fontsize=11];\n"                           \
    "  graph [fontname=\"Helvetica\",fontsize=11];\n"
#define FL_DOT_FILLED "style=filled,fillcolor=\"%s\","
#define FL_DOT_FEED   "#cfe2f3"
#define FL_DOT_PARAM  "#fff2cc"

/* label="NAME SHAPE", in two lines; the name may be any. NULL: no shape. */
void fl_dot_label(const char *name, const fl_shape *shape, fl_text *out);
