/* cache_lock.h - which process still writes a new cache: it holds a lock of the
 * file, which the system lets go when the process has died. */
#pragma once

#include "base/error.h"

/* Of a file that was just made, until the lock is closed; -1 where the file
 * system has none. FLEET_ESTATE: the file is gone already. */
fleet_status fl_cache_lock(int fd, int *lock);

/* Remove files of the folder called PREFIX, 16 hex digits and SUFFIX that no
 * process has locked. */
void fl_cache_remove_stale(const char *folder, const char *prefix,
                           const char *suffix);
