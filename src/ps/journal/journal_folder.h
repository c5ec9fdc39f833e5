/* journal_folder.h - the folder of a process that writes journals: locked while
 * the process lives, with a text that says whose it is. The process that comes
 * after one that died finds both.
 *
 *   FOLDER/lock       locked (flock) by the process, whose name is in it
 *   FOLDER/identity   the text; while its owner has not ended
 *   FOLDER/ended      the text of an owner that has
 *   FOLDER/lane-L     journals
 *   FOLDER/lane-L.home, .moves   of a lane that has gone (lane_home.h)
 *
 * A folder without an identity has no owner: what is left in it is removed.
 *
 * Threads: one at a time. */
#pragma once

#include "base/error.h"

typedef struct fl_journal_folder {
    char *folder;
    int lock;   /* descriptor; -1: none */
    char *text; /* of the owner before, which has not ended; NULL: none */
} fl_journal_folder;

/* What a server's folder, below that of all logs, is called. */
void fl_journal_folder_name(int server, char name[24]);

/* Lock the folder, which is made if need be, with its parent, and read the
 * text. `what` is the process, for errors. FLEET_EEXIST: another process has
 * it, and is named. */
fleet_status fl_journal_folder_open(fl_journal_folder *h, const char *parent,
                                    const char *name, const char *what);

/* Lock an existing folder, and read the text of its owner, a process that has
 * ended or has died: to read its journals. FLEET_ENOENT: there is no folder, or
 * no text. */
fleet_status fl_journal_folder_look(fl_journal_folder *h, const char *parent,
                                    const char *name);

/* The text of h->folder, whose owner may live. text NULL: there is none. */
fleet_status fl_journal_folder_read(fl_journal_folder *h);

/* For a new owner: journals of lanes from 0 on that earlier owners have left
 * go, and folders for `lanes` of them are made. */
fleet_status fl_journal_folder_clear(const fl_journal_folder *h, int lanes);

/* When the new owner has begun its journals: the text, at once or not at
 * all. */
fleet_status fl_journal_folder_begin(const fl_journal_folder *h,
                                     const char *text);

/* Its owner has ended: the next one begins anew. The journals stay until
 * then. */
fleet_status fl_journal_folder_end(const fl_journal_folder *h);

/* "FOLDER/lane-3", for fl_free(). */
char *fl_journal_folder_lane(const fl_journal_folder *h, int lane);

void fl_journal_folder_close(fl_journal_folder *h); /* zeroed is fine */
