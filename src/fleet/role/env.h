/* env.h - variables of the environment: texts, numbers, endpoints. Failures
 * name the variable, what was expected and what came. */
#pragma once

#include "ps/server/lane.h"

/* NULL if it is not set; an empty variable is none. */
const char *fl_variable(const char *name);

/* Digits alone, whatever the locale; false if it is no number up to `high`. */
bool fl_read_digits(const char *text, size_t length, int64_t high,
                    int64_t *out);

/* The text of that variable as an integer from low to high. */
fleet_status fl_variable_read(const char *name, const char *text, int low,
                              int high, int *out);

/* The address of "ip:port" or "inproc://name"; source: where it was said. */
fleet_status fl_read_endpoint(const char *source, const char *text,
                              size_t length, fl_address address);
