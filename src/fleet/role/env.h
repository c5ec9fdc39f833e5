/* env.h - variables of the environment: texts, numbers, endpoints. Failures
 * name the variable, what was expected and what came. */
#pragma once

#include "ps/server/lane.h"

/* NULL if it is not set; an empty variable is none. */
const char *fl_variable(const char *name);

/* Digits alone, whatever the locale; false if it is no number up to `high`. */
bool fl_read_digits(const char *text, size_t length, int64_t high,
                    int64_t *out);

/* The text of a variable that has to be set, as `because` is. */
fleet_status fl_variable_need(const char *name, const char *because,
                              const char *expected, const char **text);

/* The text of that variable as an integer from low to high. */
fleet_status fl_variable_read(const char *name, const char *text, int low,
                              int high, int *out);

/* The address of "ip:port" or "inproc://name"; source: where it was said. */
fleet_status fl_read_endpoint(const char *source, const char *text,
                              size_t length, fl_address address);

/* The place of an address in a list; -1: it is not in it. */
int fl_find_endpoint(fl_address *list, int n, const char *address);

/* The endpoints of a list with commas, each of which may be in it once;
 * `most` of them at most, which are of that kind ("servers"). */
fleet_status fl_read_endpoints(const char *source, const char *list,
                               const char *kind, int most, fl_address *to,
                               int *n);

/* POD_IP:PADDLE_PORT, which are set: as they were said, and read. */
enum { FL_ENDPOINT_SIZE = 256 };
fleet_status fl_read_own_endpoint(char endpoint[FL_ENDPOINT_SIZE],
                                  fl_address address);

/* The place of POD_IP:PADDLE_PORT, which are set, in a list that this variable
 * has said. */
fleet_status fl_find_own_endpoint(const char *variable, const char *said,
                                  fl_address *list, int n, int *place);
