/* resolve.h - addresses of sockets, "tcp://host:port" for one, and the names of
 * hosts in them. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

enum { FL_ADDRESS_SIZE = 128 };
typedef char fl_address[FL_ADDRESS_SIZE];

/* An address with a number in place of its host's name: what can be bound.
 * An address without a host's name stays as it is. FLEET_EIO: no address is
 * known for that name. */
fleet_status fl_address_resolve(const char *address, fl_address numeric);

/* Whether a numeric address can be reached from this machine alone: loopback,
 * ipc, inproc. */
bool fl_address_is_local(const char *numeric);

/* A process without keys is open to this machine alone: FLEET_EINVAL if `name`
 * ("server 1") would listen at a numeric address, or by a socket that is bound
 * already (fd; -1: none), where other machines reach it. */
fleet_status fl_address_check_keyless(const char *name, const char *numeric,
                                      int fd);

/* Whether an address is an IPv6 one, or has a name that stands for such alone.
 * Asks the system for the name. */
bool fl_address_is_ipv6(const char *address);
