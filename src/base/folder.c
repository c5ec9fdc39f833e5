/* folder.c - the folder in the making of folder.h.
 *
 * The new folder is exchanged with the old one in one system call where the
 * file system can do that (Linux renameat2 with RENAME_EXCHANGE); elsewhere the
 * old one is first moved to PATH.old.XXXXXX, and a crash between the two calls
 * leaves it under that name.
 *
 * A folder in the making is PATH.saving.XXXXXX, locked (flock) by the process
 * that writes it. The kernel unlocks it when that process dies: one without a
 * lock is left over. On a file system that has no such locks it stays.
 */
#define _GNU_SOURCE
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

#define SAVING ".saving."
#define OLD    ".old."

enum { SUFFIX = 6, TRIES = 100 };

static fleet_status failed(const char *what, const char *path)
{
    return fl_fail(FLEET_EIO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* --- names ---------------------------------------------------------------- */

static fleet_status no_marker(const char *path, const char *marker)
{
    return fl_fail(FLEET_EEXIST, "%s holds something else: it has no %s", path,
                   marker);
}

/* Or it is gone: another process removes the folder. */
static bool is_plain_file(int folder, const char *name)
{
    struct stat st;

    return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0
               ? S_ISREG(st.st_mode)
               : errno == ENOENT;
}

/* A folder without any file needs no marker; with marker NULL none does. */
static fleet_status check_names(DIR *dir, const char *path, const char *marker,
                                fl_is_ours *is_ours)
{
    bool any = false, marked = !marker;
    struct dirent *e;

    while ((e = fl_disk_list(dir)) != NULL) {
        if (!is_ours(e->d_name))
            return fl_fail(FLEET_EEXIST, "%s holds something else: %s", path,
                           e->d_name);
        if (!is_plain_file(dirfd(dir), e->d_name))
            return fl_fail(FLEET_EEXIST,
                           "%s holds something else: %s is not a file", path,
                           e->d_name);
        any = true;
        marked = marked || strcmp(e->d_name, marker) == 0;
    }
    if (errno != 0)
        return failed("list", path);
    return any && !marked ? no_marker(path, marker) : FLEET_OK;
}

/* May the folder at `at`, whose place is f->path, be replaced? If no folder has
 * that name it may. */
static fleet_status may_replace(const fl_folder *f, const char *at,
                                const char *marker)
{
    DIR *dir = opendir(at);
    fleet_status status;

    if (!dir && errno == ENOENT)
        return FLEET_OK;
    if (!dir)
        return errno == ENOTDIR && fl_file_exists(at)
                   ? no_marker(f->path, f->marker)
                   : failed("open", at);
    status = check_names(dir, f->path, marker, f->is_ours);
    closedir(dir);
    return status;
}

/* --- removing ------------------------------------------------------------- */

void fl_folder_remove_ours(const char *path, fl_is_ours *is_ours)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    if (!dir)
        return;
    fchmod(dirfd(dir), S_IRWXU); /* a save may be read-only */
    while ((e = fl_disk_list(dir)) != NULL)
        if (!is_ours || is_ours(e->d_name))
            fl_disk_remove(dirfd(dir), e->d_name, 0);
    closedir(dir);
    fl_disk_remove(AT_FDCWD, path, AT_REMOVEDIR);
}

void fl_folder_remove(const char *path)
{
    fl_folder_remove_ours(path, NULL);
}

fleet_status fl_folder_flush(const char *path)
{
    int fd =
        fl_disk_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    fleet_status status = FLEET_OK;

    if (fd < 0)
        return failed("open", path);
    if (fl_disk_flush(fd) != 0)
        status = failed("flush", path);
    close(fd);
    return status;
}

/* --- left over ------------------------------------------------------------ */

/* Does no process have it locked? False where that cannot be known. */
static bool is_dead(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* Is `name` that of a folder in the making of the folder called `base`? */
static bool is_temp(const char *name, const char *base)
{
    const size_t n = strlen(base);

    return strncmp(name, base, n) == 0 &&
           strncmp(name + n, SAVING, sizeof SAVING - 1) == 0 &&
           strlen(name + n) == sizeof SAVING - 1 + SUFFIX;
}

/* It may be an old save whose place a new one has taken, which a crash would
 * bring back: so not before the parent is flushed. */
static void remove_left_over(const fl_folder *f, const char *name)
{
    char *path = fl_path_join(f->parent, name);
    int fd = -1;

    if (path)
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && is_dead(fd) && may_replace(f, path, NULL) == FLEET_OK &&
        fl_folder_flush(f->parent) == FLEET_OK)
        fl_folder_remove_ours(path, f->is_ours);
    if (fd >= 0)
        close(fd);
    fl_free(path);
}

static void remove_all_left_over(const fl_folder *f)
{
    const char *slash = strrchr(f->path, '/');
    DIR *dir = opendir(f->parent);
    struct dirent *e;

    if (!dir)
        return;
    while ((e = fl_disk_list(dir)) != NULL)
        if (is_temp(e->d_name, slash ? slash + 1 : f->path))
            remove_left_over(f, e->d_name);
    closedir(dir);
}

/* --- begin ---------------------------------------------------------------- */

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* A copy of the path; of what it leads to if it is a link, so that the folder
 * is replaced and not the link. */
static fleet_status resolve_parent(const char *path, size_t length, char **out)
{
    char *copy = fl_strndup(path, length), real[PATH_MAX];
    const char *slash = copy ? strrchr(copy, '/') : NULL;
    struct stat st;

    *out = copy;
    if (!copy)
        return FLEET_ENOMEM;
    if (!is_dots(slash ? slash + 1 : copy) &&
        (lstat(copy, &st) != 0 || !S_ISLNK(st.st_mode)))
        return FLEET_OK;
    if (!realpath(copy, real))
        return failed("follow", copy);
    fl_free(copy);
    *out = fl_strdup(real);
    return *out ? FLEET_OK : FLEET_ENOMEM;
}

fleet_status fl_file_replace(const char *from, const char *to)
{
    char *parent = fl_path_parent(to);
    fleet_status status;

    if (!parent)
        return FLEET_ENOMEM;
    status = fl_disk_rename(from, to, 0) == 0 ? fl_folder_flush(parent)
                                              : failed("replace", to);
    fl_free(parent);
    return status;
}

static fleet_status check_writable(const char *folder, const char *what,
                                   const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        errno = ENOTDIR;
    else if (access(path, W_OK | X_OK) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "%s cannot have %s: %s: %s", folder, what, path,
                   strerror(errno));
}

fleet_status fl_folder_check(const char *path, const char *what)
{
    struct stat st;
    fleet_status status;
    char *parent;

    if (stat(path, &st) == 0 || errno != ENOENT)
        return check_writable(path, what, path);
    parent = fl_path_parent(path);
    status = parent ? check_writable(path, what, parent) : FLEET_ENOMEM;
    fl_free(parent);
    return status;
}

/* PATH, the middle and a random end: for fl_free(), NULL without memory. */
static char *make_name(const char *path, const char *middle)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const size_t n = strlen(path) + strlen(middle);
    char *name = fl_alloc(n + SUFFIX + 1);
    uint64_t x = fl_mix((uint64_t)fl_now_ns() ^ (uint64_t)getpid() << 40);

    if (!name)
        return NULL;
    snprintf(name, n + 1, "%s%s", path, middle);
    for (size_t i = n; i < n + SUFFIX; i++, x /= sizeof letters - 1)
        name[i] = letters[x % (sizeof letters - 1)];
    name[n + SUFFIX] = 0;
    return name;
}

/* Another process may have taken the fresh folder for a left-over one before it
 * was locked. */
static bool lock_temp(fl_folder *f)
{
    struct stat is, named;
    int fd = fl_fd_lift(fl_disk_open(
        AT_FDCWD, f->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0));

    if (fd < 0)
        return false;
    if ((flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        fstat(fd, &is) == 0 && stat(f->temp, &named) == 0 &&
        is.st_ino == named.st_ino && is.st_dev == named.st_dev) {
        f->lock = fd;
        return true;
    }
    close(fd);
    errno = ENOENT;
    return false;
}

/* mkdtemp() would not leave it to umask what a new folder permits. */
static fleet_status make_temp(fl_folder *f)
{
    const mode_t mode = f->replaces ? S_IRWXU : 0777;

    for (int i = 0; i < TRIES; i++) {
        f->temp = make_name(f->path, SAVING);
        if (!f->temp)
            return FLEET_ENOMEM;
        if (fl_disk_make_folder(f->temp, mode) == 0) {
            if (lock_temp(f))
                return FLEET_OK;
            if (errno != ENOENT) {
                fleet_status status = failed("open", f->temp);

                fl_disk_remove(AT_FDCWD, f->temp, AT_REMOVEDIR);
                return status;
            }
        } else if (errno != EEXIST) {
            break;
        }
        fl_free(f->temp);
        f->temp = NULL; /* it is another's */
    }
    fl_free(f->temp);
    f->temp = NULL;
    return failed("create a folder beside", f->path);
}

fleet_status fl_folder_begin(fl_folder *f, const char *path, const char *marker,
                             fl_is_ours *is_ours)
{
    size_t length = strlen(path);

    *f = (fl_folder){.marker = marker, .is_ours = is_ours};
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0)
        return fl_fail(FLEET_EINVAL, "an empty path cannot be saved to");
    FL_TRY(resolve_parent(path, length, &f->path));
    f->parent = fl_path_parent(f->path);
    if (!f->parent)
        return FLEET_ENOMEM;
    FL_TRY(may_replace(f, f->path, f->marker));
    f->replaces = stat(f->path, &f->old) == 0;
    remove_all_left_over(f);
    return make_temp(f);
}

/* --- commit --------------------------------------------------------------- */

/* As far as the system lets this process: another user's files keep their owner
 * if it is root's. */
static void be_owned(int folder, const char *name, const struct stat *old)
{
    struct stat is;

    if (fstatat(folder, name, &is, AT_EMPTY_PATH) != 0 ||
        (is.st_uid == old->st_uid && is.st_gid == old->st_gid))
        return;
    if (fchownat(folder, name, old->st_uid, old->st_gid, AT_EMPTY_PATH) != 0 &&
        fchownat(folder, name, (uid_t)-1, old->st_gid, AT_EMPTY_PATH) != 0)
        errno = 0; /* then it is this process's */
}

/* What could read and write the old save can read and write the new one: a
 * folder for one user alone stays so, one for a group, too. */
static fleet_status keep_permissions(const fl_folder *f)
{
    const mode_t mode = f->old.st_mode & 07777;
    fleet_status status = FLEET_OK;
    DIR *dir;
    struct dirent *e;

    if (!f->replaces)
        return FLEET_OK;
    dir = opendir(f->temp);
    if (!dir)
        return failed("open", f->temp);
    while ((e = fl_disk_list(dir)) != NULL) {
        be_owned(dirfd(dir), e->d_name, &f->old);
        fchmodat(dirfd(dir), e->d_name, mode & 0666, 0);
    }
    if (errno != 0)
        status = failed("list", f->temp);
    be_owned(dirfd(dir), "", &f->old);
    fchmod(dirfd(dir), mode);
    closedir(dir);
    return status;
}

/* The old folder is at `from`, and has got a file of another's: it goes back to
 * its place, by another exchange or a rename. */
static fleet_status put_back(fl_folder *f, const char *from, unsigned flags,
                             fleet_status status)
{
    if (fl_disk_rename(from, f->path, flags) == 0)
        return status;
    if (flags) { /* cancel must not touch it */
        status = fl_fail_in(status, "what was there is now %s", f->temp);
        fl_free(f->temp);
        f->temp = NULL;
        return status;
    }
    return fl_fail_in(status, "what was there is now %s", from);
}

/* For file systems that cannot exchange. */
static fleet_status replace_in_two(fl_folder *f)
{
    char *old = make_name(f->path, OLD);
    fleet_status status;

    if (!old)
        return FLEET_ENOMEM;
    if (fl_disk_rename(f->path, old, 0) != 0) {
        status = failed("move aside", f->path);
        fl_free(old);
        return status;
    }
    status = may_replace(f, old, NULL);
    if (status == FLEET_OK && fl_disk_rename(f->temp, f->path, 0) != 0)
        status = failed("put in place", f->path);
    if (status != FLEET_OK) {
        status = put_back(f, old, 0, status);
        fl_free(old);
        return status;
    }
    fl_free(f->temp);
    f->temp = old;
    return FLEET_OK;
}

/* Temp is then the old folder, NULL if there was none. Other processes may make
 * or remove the same folder meanwhile. */
static fleet_status replace(fl_folder *f)
{
    fleet_status status;

    for (int i = 0; i < TRIES; i++) {
        if (fl_disk_rename(f->temp, f->path, RENAME_EXCHANGE) == 0) {
            status = may_replace(f, f->temp, NULL);
            return status == FLEET_OK
                       ? FLEET_OK
                       : put_back(f, f->temp, RENAME_EXCHANGE, status);
        }
        if ((errno == EINVAL || errno == ENOSYS) && fl_file_exists(f->path))
            return replace_in_two(f);
        if (errno != ENOENT && errno != EINVAL && errno != ENOSYS)
            break;
        if (fl_disk_rename(f->temp, f->path, 0) == 0) {
            fl_free(f->temp);
            f->temp = NULL;
            return FLEET_OK;
        }
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return failed("put in place", f->path);
}

/* A crash may still undo the exchange, so the old folder stays. */
static fleet_status not_flushed(fl_folder *f, fleet_status status)
{
    if (f->temp)
        status =
            fl_fail_in(status, "%s is in place, what it replaced is now %s",
                       f->path, f->temp);
    else
        status = fl_fail_in(status, "%s is in place", f->path);
    fl_free(f->temp);
    f->temp = NULL;
    return status;
}

fleet_status fl_folder_commit(fl_folder *f)
{
    fleet_status status;

    FL_TRY(keep_permissions(f));
    if (fl_disk_flush(f->lock) != 0)
        return failed("flush", f->temp);
    FL_TRY(replace(f));
    status = fl_folder_flush(f->parent);
    if (status != FLEET_OK)
        return not_flushed(f, status);
    if (f->temp)
        fl_folder_remove_ours(f->temp, f->is_ours);
    fl_free(f->temp);
    f->temp = NULL;
    return FLEET_OK;
}

void fl_folder_cancel(fl_folder *f)
{
    if (f->temp)
        fl_folder_remove_ours(f->temp, f->is_ours);
    if (f->lock > 0)
        close(f->lock);
    fl_free(f->temp);
    fl_free(f->path);
    fl_free(f->parent);
    *f = (fl_folder){0};
}
