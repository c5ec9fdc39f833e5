/* program_copy.h - a program that is read from text. */
#pragma once

#include <fleet/program.h>

/* Into an empty program, what fl_program_to_json() and its siblings wrote. */
fleet_status fl_program_read_text(fleet_program *p, const char *text);
