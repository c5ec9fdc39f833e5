/* control.h - what fleetctl says to a lane, in the one section of a message of
 * kind ADMIN: words. docs/elastic.md, docs/protocol.md. */
#pragma once

/* What the lane has, as JSON. */
#define FL_CONTROL_STATUS "status"

/* Behind it a server's number: the lane goes to that one's process, as soon as
 * that asks for it. */
#define FL_CONTROL_GIVE "give "

/* To the first lane of a server, behind it JSON of a lane: its process takes
 * that one. server, lane, lanes: which it is, of how many; at, address: in
 * whose process it is, and where, as HELLO's answer has it. */
#define FL_CONTROL_TAKE "take "
