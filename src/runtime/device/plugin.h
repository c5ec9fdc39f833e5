/* plugin.h - plug-ins: parts of libfleet in shared objects of their own
 * (libfleet_mpi.so, libfleet_cuda.so, libfleet_arrow.so), so that the library
 * loads where MPI, CUDA or Apache Arrow is not installed.
 *
 * A plug-in links no symbol of libfleet, so that it also serves a program that
 * is linked with libfleet.a. It is given a table of the library's functions
 * (fl_host), and gives a table of its own (fl_plugin). Both begin with their
 * version; a plug-in is used only by a library of the same version. Inside a
 * plug-in fl_fail(), fl_alloc() and other functions of the library are defined
 * by plugin_side.c, which calls the library's through fl_host.
 *
 * A plug-in stays loaded until the process ends.
 */
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "runtime/device/device.h"
#include "runtime/device/comm.h"

/* Grows with each change of either table, or of what they lead to. */
enum { FL_PLUGIN_VERSION = 11 };

typedef struct fl_host {
    uint32_t size, version;
    const char *library; /* fleet_version() */
    fleet_status (*fail)(fleet_status code, const char *format, va_list args);
    void (*error_take)(fl_error *e, fleet_status code);
    fleet_status (*error_raise)(const fl_error *e);
    void (*log)(fl_log *log, fleet_log_level level, const char *format,
                va_list args);
    void *(*alloc)(size_t size);
    void (*free)(void *p);
    fleet_status (*memory_spare)(size_t size, const char *what);
    int64_t (*now_ns)(void);
} fl_host;

/* What a plug-in does not bring is NULL. */
typedef struct fl_plugin {
    uint32_t size, version;
    const char *library; /* that it was built with */
    const char *name;    /* "mpi" */
    fleet_status (*open_comm)(const fl_comm_options *options, fl_comm **comm);
    const fl_device_table *devices;
    const struct fl_parquet_table *parquet; /* data/format/parquet_table.h */
} fl_plugin;

/* What a plug-in exports, and nothing else. It keeps the host's table only if
 * the versions are equal. */
typedef const fl_plugin *fl_plugin_entry(const fl_host *host);
#define FL_PLUGIN_ENTRY fleet_plugin

/* Open libfleet_NAME.so, once: from the folder FLEET_PLUGIN_PATH, then beside
 * the code of this library; if that is in a folder bin, as of a program that
 * has it inside, in the folder lib beside that; then where the loader looks.
 * FLEET_ENOENT if no such file or no such folder exists; FLEET_EUNSUPPORTED if
 * the file cannot be used, with what is missing. */
fleet_status fl_plugin_open(const char *name, const fl_plugin **plugin);

/* After a failure of what a plug-in brings: if the folder FLEET_PLUGIN_PATH
 * does not have the plug-in, so that another one was opened, the text says so.
 */
fleet_status fl_plugin_passed_over(const char *name, fleet_status status);
