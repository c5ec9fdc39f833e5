/* control.h - what fleetctl says to a lane, in the one section of a message of
 * kind ADMIN: words. docs/elastic.md, docs/protocol.md. */
#pragma once

/* What the lane has, as JSON. */
#define FL_CONTROL_STATUS "status"

/* The state of a lane while a command has its memory: a move waits for that. */
#define FL_CONTROL_BUSY "saves, loads or hashes"

/* Behind it a server's number, and of one that has joined the job a space and
 * its address: the lane goes to that one's process, as soon as that asks for
 * it. */
#define FL_CONTROL_GIVE "give "

/* To the first lane of a server, behind it a number, a space and an address: a
 * server has joined the job as that one, at that address. What the lane has
 * says so from then on. */
#define FL_CONTROL_KNOW "know "

/* To the first lane of a server, behind it JSON of a lane: its process takes
 * that one. server, lane, lanes: which it is, of how many; at, address: in
 * whose process it is, and where, as HELLO's answer has it. */
#define FL_CONTROL_TAKE "take "
