/* paths.h - files by globs. */
#pragma once

#include <stddef.h>

#include "base/error.h"

/* Sorted paths that match the globs, each glob's in its turn and bytewise
 * sorted over all. A glob without a match is an error, and so is a folder below
 * it that may not be looked into, which is named: its files would be left out
 * in silence. "-", which is standard input, is a path of its own. Names that
 * end in .fleetcache are passed over. */
typedef struct fl_paths {
    char **path;
    size_t n, capacity;
} fl_paths;

fleet_status fl_paths_glob(fl_paths *p, const char *const *globs, int n);

/* The names as they are, bytewise sorted: of what a command opens. */
fleet_status fl_paths_names(fl_paths *p, const char *const *names, int n);
fleet_status fl_paths_copy(fl_paths *to, const fl_paths *from);
void fl_paths_done(fl_paths *p);
