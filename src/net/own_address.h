/* own_address.h - addresses of this machine: by which one another is reached,
 * and a socket that listens at one. */
#pragma once

#include "net/resolve.h"

/* The address of this machine by which a numeric one is reached, "10.0.0.1" or
 * "[fd00::1]"; nothing is sent. FLEET_EIO: there is no way. */
fleet_status fl_address_own(const char *numeric, fl_address own);

/* A socket that listens at such a host's *port, 0: a free one, which it
 * becomes. FLEET_EIO names it. */
fleet_status fl_address_listen(const char *host, int *port, int *fd);
