/* roster_link.h - the socket by which processes talk to the one that numbers
 * them: it listens, or is connected to that one, with keys of the job or
 * without. */
#pragma once

#include "net/roster_message.h"
#include "net/socket.h"

typedef struct fl_roster_link {
    fl_packet_pool *pool;
    fl_keys *keys;
    fl_guard *guard;
    fl_socket *socket; /* NULL: it is closed */
} fl_roster_link;

/* keys: the folder, or NULL; this process has that of server 0. A numeric
 * address; fd: a socket that listens at it, which is the link's, or closed; -1:
 * it is bound. servers: a server's key is good for this, too. Close follows in
 * every case. */
fleet_status fl_roster_link_listen(fl_roster_link *l, const char *address,
                                   const char *keys, int fd, bool servers);

/* keys: of this process, which are the link's from now on; NULL: none. While
 * the one that listens is away a few messages wait for it, and no more. */
fleet_status fl_roster_link_connect(fl_roster_link *l, const char *address,
                                    fl_keys *keys);
void fl_roster_link_close(fl_roster_link *l, int linger_ms);

/* A message for a peer, or for the one that listens (NULL). A peer that is gone
 * is no failure: it may come again, or is silent. */
fleet_status fl_roster_link_send(fl_roster_link *l, const fl_peer *to,
                                 const fl_roster_message *m);

/* The next message, with its text, which the caller frees; *text NULL: none
 * has come. What is no message is dropped. */
fleet_status fl_roster_link_receive(fl_roster_link *l, fl_peer *from,
                                    fl_roster_message *m, char **text);

/* Whether that peer may be one of the job: a subscriber's key, or fleetctl's,
 * is not good for this. */
bool fl_roster_link_lets_in(const fl_roster_link *l, const fl_peer *from);

/* Until something has come, or ms are over. */
fleet_status fl_roster_link_wait(fl_roster_link *l, int ms);
