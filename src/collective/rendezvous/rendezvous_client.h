/* rendezvous_client.h - a rank's connection to the rendezvous server. */
#pragma once

#include "collective/rendezvous/rendezvous_wire.h"

typedef struct fl_rendezvous_client fl_rendezvous_client;

/* Returns when all ranks have come. FLEET_ETIMEDOUT: it says which rank is
 * missing, or why rank 0 was not reached. FLEET_EINVAL: it says why this rank
 * is refused. FLEET_EPEER: another program listens at rank 0's address. Rank 0
 * starts the server. */
fleet_status fl_rendezvous_client_open(fl_rendezvous_client **client,
                                       const fl_rendezvous_options *o);

/* From any thread. False: the connection has ended, which next() will
 * report. */
bool fl_rendezvous_client_send(fl_rendezvous_client *c, fl_rendezvous_kind kind,
                               const void *a, size_t n_a, const void *b,
                               size_t n_b);

/* The frame that has come, if any (FL_RENDEZVOUS_NONE: none), until drop().
 * FLEET_EPEER: the connection has ended without a LEAVE. After a LEAVE nothing
 * comes. */
fleet_status fl_rendezvous_client_next(fl_rendezvous_client *c,
                                       fl_rendezvous_frame *f,
                                       const char **bytes);
void fl_rendezvous_client_drop(fl_rendezvous_client *c,
                               const fl_rendezvous_frame *f);

/* Whether a failure has come, also behind frames that have not been taken. */
fleet_status fl_rendezvous_client_failure(fl_rendezvous_client *c);

/* FLEET_EPEER: rank 0 has ended its communicator. */
fleet_status fl_rendezvous_client_check(const fl_rendezvous_client *c);

/* Until something comes, wake() is called, or ms are over. */
void fl_rendezvous_client_wait(fl_rendezvous_client *c, int ms);
void fl_rendezvous_client_wake(fl_rendezvous_client *c); /* from any thread */

/* This end's address: another listener can be beside it. */
void fl_rendezvous_client_name(const fl_rendezvous_client *c,
                               char name[FL_RENDEZVOUS_NAME]);

/* Sends LEAVE; NULL is fine. */
void fl_rendezvous_client_close(fl_rendezvous_client *c);
