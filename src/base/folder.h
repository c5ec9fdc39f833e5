/* folder.h - a folder in the making, which replaces the old one at once. */
#pragma once

#include <stdbool.h>
#include "base/error.h"

/* A folder in the making, beside the one it will replace. */
typedef struct fl_folder {
    char *path;   /* where it will be */
    char *temp;   /* where its files go until then */
    char *parent; /* the folder that both are in */
} fl_folder;

/* A folder that exists already is replaced only if it is empty, or if it has a
 * file called marker and is_ours knows all of its names: FLEET_EEXIST for a
 * folder that holds something else. */
typedef bool fl_is_ours(const char *name);
fleet_status fl_folder_begin(fl_folder *f, const char *path, const char *marker,
                             fl_is_ours *is_ours);
/* Flush the new folder, put it in place of the old one, flush the parent. */
fleet_status fl_folder_commit(fl_folder *f);
void fl_folder_cancel(fl_folder *f); /* after commit: only frees */

/* With its files; it has no folders inside. */
void fl_folder_remove(const char *path);
