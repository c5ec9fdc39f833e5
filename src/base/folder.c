/* folder.c - the folder in the making of folder.h.
 *
 * The new folder is exchanged with the old one in one system call where the
 * file system can do that (Linux renameat2 with RENAME_EXCHANGE); elsewhere the
 * old one is first moved to PATH.old.XXXXXX, and a crash between the two calls
 * leaves it under that name.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/folder.h"

static fleet_status failed(const char *what, const char *path)
{
    return fl_fail(FLEET_EIO, "cannot %s %s: %s", what, path, strerror(errno));
}

static fleet_status no_marker(const char *path, const char *marker)
{
    return fl_fail(FLEET_EEXIST, "%s holds something else: it has no %s", path,
                   marker);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static fleet_status check_names(DIR *dir, const char *path, const char *marker,
                                fl_is_ours *is_ours)
{
    bool any = false, marked = false;
    struct dirent *e;

    while ((e = readdir(dir)) != NULL) {
        if (is_dots(e->d_name))
            continue;
        if (!is_ours(e->d_name))
            return fl_fail(FLEET_EEXIST, "%s holds something else: %s", path,
                           e->d_name);
        any = true;
        marked = marked || strcmp(e->d_name, marker) == 0;
    }
    return any && !marked ? no_marker(path, marker) : FLEET_OK;
}

static fleet_status may_replace(const char *path, const char *marker,
                                fl_is_ours *is_ours)
{
    DIR *dir = opendir(path);
    fleet_status status;

    if (!dir)
        return fl_file_exists(path) ? no_marker(path, marker) : FLEET_OK;
    status = check_names(dir, path, marker, is_ours);
    closedir(dir);
    return status;
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

fleet_status fl_folder_begin(fl_folder *f, const char *path, const char *marker,
                             fl_is_ours *is_ours)
{
    size_t length = strlen(path), size;
    const char *slash;

    *f = (fl_folder){0};
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0)
        return fl_fail(FLEET_EINVAL, "an empty path cannot be saved to");
    FL_TRY(resolve_parent(path, length, &f->path));
    size = strlen(f->path) + sizeof ".XXXXXX";
    f->temp = fl_alloc(size);
    slash = strrchr(f->path, '/');
    if (slash)
        f->parent = fl_strndup(f->path,
                               slash > f->path ? (size_t)(slash - f->path) : 1);
    else
        f->parent = fl_strdup(".");
    if (!f->temp || !f->parent)
        return FLEET_ENOMEM;
    FL_TRY(may_replace(f->path, marker, is_ours));
    snprintf(f->temp, size, "%s.XXXXXX", f->path);
    if (mkdtemp(f->temp)) {
        chmod(f->temp, 0755);
        return FLEET_OK;
    }
    fl_free(f->temp);
    f->temp = NULL; /* there is nothing to remove */
    return failed("create a folder beside", f->path);
}

static fleet_status flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fleet_status status = FLEET_OK;

    if (fd < 0)
        return failed("open", path);
    if (fsync(fd) != 0)
        status = failed("flush", path);
    close(fd);
    return status;
}

void fl_folder_remove(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    if (!dir)
        return;
    while ((e = readdir(dir)) != NULL)
        if (!is_dots(e->d_name))
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(path);
}

/* For file systems that cannot exchange. */
static fleet_status replace_in_two(const fl_folder *f)
{
    char old[PATH_MAX];

    if (snprintf(old, sizeof old, "%s.old.XXXXXX", f->path) >= (int)sizeof old)
        return fl_fail(FLEET_EINVAL, "%s: the path is too long", f->path);
    if (!mkdtemp(old))
        return failed("create a folder beside", f->path);
    if (rename(f->path, old) != 0) { /* which is empty: that may be replaced */
        fleet_status status = failed("move aside", f->path);

        rmdir(old);
        return status;
    }
    if (rename(f->temp, f->path) != 0) {
        fleet_status status = failed("put in place", f->path);

        return rename(old, f->path) == 0
                   ? status
                   : fl_fail_in(status, "what was there is now %s", old);
    }
    fl_folder_remove(old);
    return FLEET_OK;
}

/* Other processes may make or remove the same folder meanwhile. */
static fleet_status replace(const fl_folder *f)
{
    enum { TRIES = 100 };

    for (int i = 0; i < TRIES; i++) {
        if (renameat2(AT_FDCWD, f->temp, AT_FDCWD, f->path, RENAME_EXCHANGE) ==
            0)
            return FLEET_OK;
        if ((errno == EINVAL || errno == ENOSYS) && fl_file_exists(f->path))
            return replace_in_two(f);
        if (errno != ENOENT && errno != EINVAL && errno != ENOSYS)
            break;
        if (rename(f->temp, f->path) == 0)
            return FLEET_OK;
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return failed("put in place", f->path);
}

fleet_status fl_folder_commit(fl_folder *f)
{
    FL_TRY(flush_folder(f->temp));
    FL_TRY(replace(f));
    fl_folder_remove(f->temp); /* after an exchange, the old folder */
    fl_free(f->temp);
    f->temp = NULL;
    return flush_folder(f->parent);
}

void fl_folder_cancel(fl_folder *f)
{
    if (f->temp)
        fl_folder_remove(f->temp);
    fl_free(f->temp);
    fl_free(f->path);
    fl_free(f->parent);
    *f = (fl_folder){0};
}
