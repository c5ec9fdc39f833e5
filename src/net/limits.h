/* limits.h - checks before ZeroMQ is called: of limits whose excess makes
 * ZeroMQ abort the process, and of addresses that it would misread. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"

/* Whether this process may open n more descriptors; n is at most 64. */
bool fl_descriptors_left(int n);

/* How many more it may open, counted; INT_MAX if that cannot be found out. */
int fl_descriptors_free(void);

/* The most that it may have open: its soft limit, raised to the hard one if
 * asked for. */
int fl_descriptors_limit(bool raise);

/* n threads that wait, 8 at most: they keep their places, and the memory of
 * their stacks, for as many threads of ZeroMQ's until just before these start.
 * FLEET_ENOMEM: not all n can be had. */
typedef struct fl_hold {
    pthread_mutex_t lock;
    pthread_t thread[8];
    int n;
} fl_hold;

fleet_status fl_threads_hold(fl_hold *h, int n);
void fl_threads_release(fl_hold *h);

/* Whether it is a tcp socket that listens. */
bool fl_descriptor_listens(int fd);

/* Whether a socket is bound to an address that this machine alone reaches. */
bool fl_descriptor_is_local(int fd);

/* Calls on it do not wait, programs that are started do not get it. */
void fl_descriptor_prepare(int fd);

/* Whether a tcp address ends in a port, or ":*"; true of addresses that are
 * not tcp. */
bool fl_port_is_sound(const char *address);

/* Whether an ipc address is the path of something that is no socket: ZeroMQ
 * would remove it. */
bool fl_path_is_taken(const char *address);
