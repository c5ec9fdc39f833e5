/* journal_cut.h - a journal that is cut: what its owner was like as a file
 * began is written into a folder beside the files, itself a journal; what is
 * older goes then. docs/formats.md.
 *
 *   FOLDER/snapshot-00000012.new   while it is written
 *   FOLDER/snapshot-00000012       the owner as journal-00000012 began
 *
 * A crash at any moment leaves the snapshot before and all files behind it, or
 * the new one. */
#pragma once

#include "ps/journal/journal_record.h"

/* The newest whole snapshot, and so the first file that is read behind it; 0:
 * there is none. What it makes useless is removed. FLEET_ENOENT: there is no
 * folder. */
fleet_status fl_journal_newest(const char *folder, uint32_t *file);

/* "FOLDER/snapshot-00000012", for fl_free(). */
char *fl_journal_snapshot(const char *folder, uint32_t file);

/* A fresh folder for the snapshot, *path for fl_free(), in which a journal is
 * written; when that is whole, and its writer is gone, it counts from _commit()
 * on, on the disk if that flushes, and older files go. What was begun and not
 * committed goes with _drop(), _newest(), or the next _commit(). */
fleet_status fl_journal_cut_begin(const char *folder, uint32_t file,
                                  char **path);
fleet_status fl_journal_cut_commit(const char *folder, uint32_t file,
                                   bool flushes);
void fl_journal_cut_drop(const char *folder, uint32_t file);

/* All files and snapshots, and the folder itself. */
void fl_journal_remove(const char *folder);
