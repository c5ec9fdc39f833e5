/* disk_kit.h - a disk that loses what was not flushed.
 *
 * It records what this process writes below a folder while the calls have their
 * effect, and can then say what would lie on the disk after a crash. A change
 * of a file is safe when that file is flushed, a name in a folder when that
 * folder is. Of what is not safe any part may have reached the disk, in any
 * order: a name without its file's bytes, a removal without the rename before.
 */
#pragma once

#include <stdbool.h>

/* How many names the folder has. */
int count_entries(const char *folder);

/* From here on, on what is below this folder; what lies in it now is safe. */
void disk_record(const char *folder);

/* Be a file system that cannot exchange two folders. */
void disk_without_exchange(void);

/* The n-th flush from here on fails, and makes nothing safe. */
void disk_fail_flush(int n);

/* End of the recording: how many calls there were. */
int disk_recorded(void);

/* For all that may lie at `name`, in the recorded folder, after a crash between
 * `first` and `last` calls: it is put into a fresh folder of the test, whose
 * path is given to check, or NULL if nothing lies there. Each state comes once.
 */
typedef void disk_check(void *arg, const char *path);
void disk_each_crash(const char *name, int first, int last, disk_check *check,
                     void *arg);
