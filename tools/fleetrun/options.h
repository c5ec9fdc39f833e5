/* options.h - the command line of fleetrun. */
#ifndef FLEETRUN_OPTIONS_H
#define FLEETRUN_OPTIONS_H

#include <stdbool.h>

#include "base/error.h"

typedef struct run_options {
    int n_server, n_worker;        /* of this node alone; -1: not given */
    const char *servers, *workers; /* of all nodes, "ip:port,..."; or NULL */
    const char *host;              /* this node; or NULL */
    const char *log_folder, *job;  /* never NULL */
    int start_port;                /* 0: any free ones */
    int grace;                     /* seconds; -1: not given */
    int grace_ms;                  /* what holds */
    bool verbose, help, version;
    char **command; /* the program and its arguments; NULL at their end */
} run_options;

/* Read argv. FLEET_EINVAL says what is wrong with it. The texts stay argv's.
 * After --help and --version nothing else is looked at. */
fleet_status run_options_read(run_options *o, int argc, char **argv);

/* What --help prints. */
extern const char run_options_usage[];

/* The text as an integer from least to most, or FLEET_EINVAL that begins with
 * `what`. */
fleet_status run_integer(const char *what, const char *text, int least,
                         int most, int *out);

#endif
