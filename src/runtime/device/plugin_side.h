/* plugin_side.h - how a plug-in begins: it takes the host's table, and from then on
 * fl_fail(), fl_alloc(), fl_log_line() and the clock work in it. */
#ifndef FL_RUNTIME_GUEST_H
#define FL_RUNTIME_GUEST_H

#include "runtime/device/plugin.h"

/* False if the versions differ: then the plug-in gives its own table, for the
 * host to name, and does nothing else. */
bool fl_guest_enter(const fl_host *host);

/* The version of libfleet that the plug-in was built with. */
#define FL_GUEST_TEXT_(x) #x
#define FL_GUEST_TEXT(x)  FL_GUEST_TEXT_(x)
#define FL_GUEST_LIBRARY                                                       \
    FL_GUEST_TEXT(FLEET_VERSION_MAJOR)                                         \
    "." FL_GUEST_TEXT(FLEET_VERSION_MINOR) "." FL_GUEST_TEXT(                  \
        FLEET_VERSION_PATCH)

#endif
