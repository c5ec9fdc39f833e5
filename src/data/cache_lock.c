/* cache_lock.c - locks by flock(), which are of an open file, not of a
 * process. */
#define _GNU_SOURCE
#include "data/cache_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { DIGITS = 16 };

/* A process that looks for stale files may have had it before it was locked. */
fleet_status fl_cache_lock(int fd, int *lock)
{
    struct stat st;

    *lock = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (*lock < 0)
        return FLEET_OK;
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 && fstat(*lock, &st) == 0 &&
        st.st_nlink > 0)
        return FLEET_OK;
    close(*lock);
    *lock = -1;
    return fstat(fd, &st) == 0 && st.st_nlink == 0
               ? fl_fail(FLEET_ESTATE, "a new cache was removed as it was made")
               : FLEET_OK;
}

static bool has_form(const char *name, const char *prefix, const char *suffix)
{
    const size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 &&
           strspn(name + n, "0123456789abcdef") == DIGITS &&
           strcmp(name + n + DIGITS, suffix) == 0;
}

/* Its name is looked at again under the lock: it may have become a cache. */
static void remove_unlocked(int folder, const char *name)
{
    int fd =
        openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st, now;

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
        S_ISREG(st.st_mode) &&
        fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        now.st_ino == st.st_ino && now.st_dev == st.st_dev)
        fl_disk_remove(folder, name, 0);
    close(fd);
}

void fl_cache_remove_stale(const char *folder, const char *prefix,
                           const char *suffix)
{
    const int had = errno;
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir && (entry = fl_disk_list(dir)) != NULL)
        if (has_form(entry->d_name, prefix, suffix))
            remove_unlocked(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
    errno = had;
}
