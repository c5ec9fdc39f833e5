/* move.h - lanes go from the process of one server to that of another one. */
#pragma once

#include "base/error.h"
#include "fleet/role/role.h"

/* That lane goes to the process of that server; returns when workers are sent
 * there. A line on stdout says from where. */
fleet_status move_lane(const fl_role *role, const fl_keys *keys, int server,
                       int lane, int to, int timeout_ms);

/* Every lane that the process of the server has goes to others, in turn to the
 * one that has least. */
fleet_status move_all(const fl_role *role, const fl_keys *keys, int server,
                      int timeout_ms);
