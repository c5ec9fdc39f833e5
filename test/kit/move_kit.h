/* move_kit.h - jobs of real processes with two lanes for each server, whose
 * lanes fleetctl moves while they train. */
#pragma once

#include "ps_kit.h"

/* In sync, with that many servers and two workers; in async, with sums that are
 * exact in any order: half-async, geo or with bounded staleness if `how` says
 * so. move_start() is ps_start_all(), until they train. */
ps_job move_job(int servers);
ps_job move_sums_job(int servers);
void move_start(ps_job *j);

/* fleetctl with these words, and what it has said on both outputs: its exit
 * status. _lane(): it ends well, and says that. */
int move_control(const ps_job *j, const char *words, char said[8000]);
void move_lane(const ps_job *j, const char *words, const char *says);

/* Server 1 of two is killed: all others end, in its name. */
void move_check_killed(ps_job *j);

/* They may end now: all processes that the test has not waited for end well,
 * and no batch has taken two seconds; the hash. */
uint64_t move_check_end(ps_job *j);

/* Likewise, where processes were killed: batches may have waited. */
uint64_t move_check_outlived(ps_job *j);

/* fleetctl with these words, for which nobody waits: three seconds at most. */
void move_beside(const ps_job *j, const char *words);
