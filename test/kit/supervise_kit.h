/* supervise_kit.h - jobs under fleetrun --supervise whose processes are killed
 * when so many bytes are in the job's logs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launch_kit.h"

/* Each process tells its pid before it becomes the program. */
#define SUPERVISE_TELL                                                         \
    "echo $$ >$PIDS/$POD_NAME.new; mv $PIDS/$POD_NAME.new $PIDS/$POD_NAME;"

/* Flags for launch_start(), with these behind; logs are in the test's
 * "journals". */
const char *supervise_flags(const char *flags);

/* So many kills as often as FLEET_KILLS says. */
int supervise_times(int kills);

/* What the job has written down so far. */
int64_t supervise_bytes(void);

/* A process is killed once: the next kill is of the one that came after it. */
typedef struct supervise_victim {
    const char *name;
    int killed;
} supervise_victim;

/* Has it not ended? */
int supervise_goes_on(launch l);

/* false: the job has ended before. */
bool supervise_wait(launch l, int64_t bytes);
bool supervise_kill(launch l, supervise_victim *v);
bool supervise_kill_at(launch l, supervise_victim *v, int64_t bytes);

/* For qsort(), of int64_t. */
int supervise_by_number(const void *a, const void *b);

/* A path of the test, a folder or a pattern. */
void supervise_remove(const char *what);
