/* control.h - what fleetctl says to a lane, in the one section of a message of
 * kind ADMIN: words. docs/elastic.md, docs/protocol.md. */
#pragma once

/* What the lane has, as JSON. */
#define FL_CONTROL_STATUS "status"
