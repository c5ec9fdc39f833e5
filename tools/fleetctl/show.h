/* show.h - what the lanes of a job have said, as a table or as JSON. */
#pragma once

#include "ask.h"

/* The number of servers and lanes that are silent; -1: stdout cannot be
 * written, or there is no memory. */
int show_table(const asked_job *j, const fl_role *role);
int show_json(const asked_job *j, const fl_role *role);
