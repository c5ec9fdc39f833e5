/* move.h - lanes go from the process of one server to that of another one. */
#pragma once

#include "ask.h"
#include "base/error.h"
#include "fleet/role/role.h"

/* All lanes of the job, as ask_all() has them; server `also` is heard of, too,
 * if it answers. */
fleet_status move_look(const fl_role *role, const fl_keys *keys, int also,
                       asked_job **j);

/* How many lanes the process of each server has that lead. */
void move_count(const asked_job *j, int count[FL_MOST_SERVER]);

/* The first one of them, of a process. false: it has none. */
bool move_find_next(const asked_job *j, int process, int *server, int *lane);

/* That lane goes to the process of that server; returns when workers are sent
 * there. A line on stdout says from where. */
fleet_status move_lane(const fl_role *role, const fl_keys *keys, int server,
                       int lane, int to, int timeout_ms);

/* Every lane that the process of the server has goes to others, in turn to the
 * one that has least. */
fleet_status move_all(const fl_role *role, const fl_keys *keys, int server,
                      int timeout_ms);
