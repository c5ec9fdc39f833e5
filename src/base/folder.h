/* folder.h - a folder in the making, which replaces the old one at once. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/error.h"

/* Is that a name of a file that such a folder may have? */
typedef bool fl_is_ours(const char *name);

/* A folder in the making, beside the one it will replace. */
typedef struct fl_folder {
    char *path;   /* where it will be */
    char *temp;   /* where its files go until then; NULL: it has none */
    char *parent; /* the folder that both are in */
    const char *marker;
    fl_is_ours *is_ours;
    int lock; /* temp's descriptor, locked: its process lives. 0: none */
    bool replaces;
    struct stat old; /* of the folder that it replaces */
} fl_folder;

/* A folder that exists already is replaced only if it is empty, or if it has a
 * file called marker and nothing but files whose names is_ours knows:
 * FLEET_EEXIST for a folder that holds something else. The new one will have
 * its owner and permissions, or as a new one what umask leaves. Folders in the
 * making that dead processes have left are removed. */
fleet_status fl_folder_begin(fl_folder *f, const char *path, const char *marker,
                             fl_is_ours *is_ours);

/* Flush the new folder, put it in place of the old one, flush the parent, then
 * remove the old one. An old one into which something else was put meanwhile
 * stays in its place: FLEET_EEXIST. */
fleet_status fl_folder_commit(fl_folder *f);
void fl_folder_cancel(fl_folder *f); /* after commit: only frees */

/* The file, which is on the disk, takes the place of another one, or of none;
 * the other one's folder is flushed. */
fleet_status fl_file_replace(const char *from, const char *to);

/* Could a process write into that folder, or make it in the one around it? If
 * not, FLEET_EIO: "PATH cannot have WHAT: ...". Nothing is made. */
fleet_status fl_folder_check(const char *path, const char *what);

/* The names in it are on the disk when this returns. */
fleet_status fl_folder_flush(const char *path);

/* With its files; it has no folders inside. */
void fl_folder_remove(const char *path);

/* Files that is_ours does not know stay, and the folder with them. */
void fl_folder_remove_ours(const char *path, fl_is_ours *is_ours);
