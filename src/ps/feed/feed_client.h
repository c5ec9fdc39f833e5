/* feed_client.h - a subscriber's side of the feed: it asks each lane of a job
 * for what is new, one question at a time, again where that was lost or the
 * lane's process is another one, and hands out answers in their order. A
 * single-threaded state machine: its host (feed_io.c, or a test) hands it
 * packets and the time, and sends what it has to send; nothing in it waits.
 *
 * How far it is with each lane is its position (feed_position.h): what it has
 * handed out, and nothing else. */
#pragma once

#include <fleet/feed.h>

#include "ps/feed_position.h"
#include "ps/worker/handshake.h"

typedef struct fl_feed_options {
    const fl_address *address; /* of servers' first lanes */
    int n_server;
    const char *job;
    int subscriber;       /* its number */
    uint32_t incarnation; /* of this process, random, not 0 */
    int64_t peer_ms;      /* a server is missed that owes an answer for that */
    int64_t interval_ms;  /* between two questions when there was no more */
    bool tcp_only;
    const char *locality; /* fl_locality_text() */
    fl_packet_pool *pool;
} fl_feed_options;

/* Sockets are numbered: server i's first lane, for hellos, is i; the lanes of
 * all servers in turn follow. */
typedef struct fl_feed_host {
    void *arg;
    void (*send)(void *arg, int socket, fl_packet *p);
    /* Connect it, or anew: to that server. */
    fleet_status (*connect)(void *arg, int socket, const char *address,
                            int server);
} fl_feed_host;

typedef struct fl_feed_client fl_feed_client;

fleet_status fl_feed_client_create(fl_feed_client **client,
                                   const fl_feed_options *o,
                                   const fl_feed_host *host, int64_t now_ms);
void fl_feed_client_destroy(fl_feed_client *c); /* NULL is fine */

/* A packet that came by that socket; it stays the caller's. */
void fl_feed_client_receive(fl_feed_client *c, int socket, fl_packet *p,
                            int64_t now_ms);

/* Ask what is to be asked. In how many ms it wants to be called again. */
int fl_feed_client_tick(fl_feed_client *c, int64_t now_ms);

/* The next answer; false: none has come. It is good until the next call, and is
 * counted as had. *walked: with it the lane has told all rows that it had when
 * it began, or began again. */
bool fl_feed_client_next(fl_feed_client *c, fleet_feed_batch *batch,
                         bool *walked, int64_t now_ms);

/* FLEET_ETIMEDOUT names a server that is silent, and says nothing of what comes
 * after it. What else fails stays: a server refuses, or the job has ended with
 * an error. */
fleet_status fl_feed_client_status(fl_feed_client *c, int64_t now_ms);

/* All lanes have said that it is over. */
bool fl_feed_client_is_over(const fl_feed_client *c);

/* Do the servers tell of a table of that name? They are known. */
bool fl_feed_client_tells(const fl_feed_client *c, const char *table);

/* All servers are known: how many lanes there are, and which has a key; -1: not
 * yet. */
int fl_feed_client_lanes(const fl_feed_client *c);
int fl_feed_client_lane_of(const fl_feed_client *c, uint64_t key);
