/* output.h - the output of a process on its way from a pipe to its log,
 * whole lines at a time, and for some also to fleetrun's own output.
 *
 * No call waits for a slow reader: while fleetrun's output is full the
 * process's pipe is not read, as if the process wrote to that reader itself. */
#pragma once

#include <poll.h>
#include <stdbool.h>

#include "base/error.h"

typedef struct run_output {
    int from;       /* the pipe's end to read; -1: it is over */
    int log;        /* the caller's */
    int show;       /* 1 or 2; -1: to the log alone */
    bool ending;    /* run_output_end() */
    size_t rest;    /* and then: how much of the pipe is still to come */
    bool log_fails; /* said once */
    int show_error; /* errno, of lines that could not be shown; 0: none */
    char *buffer;
    size_t filled, whole, shown; /* shown <= whole lines <= filled */
} run_output;

/* Make the pipe; its other end is *to, the caller's to close. Both ends are
 * closed on exec. *o is zero, or an output that is over, of the process before:
 * its errors stay. */
fleet_status run_output_open(run_output *o, int log, int show, int *to);

/* Read from an open descriptor, which is *o's from now on. */
fleet_status run_output_adopt(run_output *o, int log, int show, int from);
void run_output_close(run_output *o);

/* What to poll() for; a negative descriptor when there is nothing. */
struct pollfd run_output_wants(const run_output *o);

/* The writer has ended: what the pipe holds now is all, even if another process
 * has it open, too. */
void run_output_end(run_output *o);

/* Move on by one read or write if that is possible at once. */
bool run_output_step(run_output *o);

/* Everything is in the log and shown. */
bool run_output_is_over(const run_output *o);
