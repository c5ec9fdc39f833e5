/* rendezvous_accept.h - how ranks connect to the rendezvous server. */
#pragma once

#include "collective/rendezvous/rendezvous_server.h"

/* A new connection in a free place; NULL: there is none. */
fl_connection *fl_rendezvous_server_add(fl_rendezvous_server *s, int fd);

/* Accept the next connection; check the handshake that has come on one; give up
 * connections without a handshake, and ranks that have not come, in time. */
void fl_rendezvous_server_accept(fl_rendezvous_server *s);
void fl_rendezvous_server_admit(fl_rendezvous_server *s, fl_connection *c);
void fl_rendezvous_server_check_deadlines(fl_rendezvous_server *s);

/* READY to all ranks once all have come, each on a GPU of its own. */
void fl_rendezvous_server_open_if_complete(fl_rendezvous_server *s);
