/* guest.h - how a plug-in begins: it takes the host's table, and from then on
 * fl_fail(), fl_alloc(), fl_log_line() and the clock work in it. */
#ifndef FL_RUNTIME_GUEST_H
#define FL_RUNTIME_GUEST_H

#include "runtime/plugin.h"

/* False if the versions differ: then the plug-in gives its own table, for the
 * host to name, and does nothing else. */
bool fl_guest_enter(const fl_host *host);

#endif
