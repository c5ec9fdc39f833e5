/* zmq_context.h - ZeroMQ's context of this process: it begins with the first
 * socket and ends with the last one, and is begun anew after fork(). */
#pragma once

#include "base/error.h"

/* A socket of one of ZeroMQ's types. */
fleet_status fl_zmq_open(void **socket, int type);

/* In the process that opened it. */
void fl_zmq_close(void *socket);

/* What messages of megabytes want of a context without sockets, and of malloc:
 * a second I/O thread, and blocks that the process keeps. */
void fl_zmq_tune(void *context);
