/* plugin_side.h - how a plug-in begins: it keeps the library's table fl_host,
 * and from then on fl_fail(), fl_alloc(), fl_log_line() and the clock work in
 * the plug-in. */
#pragma once

#include "runtime/device/plugin.h"

/* False if the versions differ: then the plug-in gives its own table, for the
 * host to name, and does nothing else. */
bool fl_plugin_side_enter(const fl_host *host);

/* The version of libfleet that the plug-in was built with. */
#define FL_PLUGIN_TEXT_(x) #x
#define FL_PLUGIN_TEXT(x)  FL_PLUGIN_TEXT_(x)
#define FL_PLUGIN_LIBRARY                                                      \
    FL_PLUGIN_TEXT(FLEET_VERSION_MAJOR)                                        \
    "." FL_PLUGIN_TEXT(FLEET_VERSION_MINOR) "." FL_PLUGIN_TEXT(                \
        FLEET_VERSION_PATCH)
