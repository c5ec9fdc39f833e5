/* predict_output.c - a file of scores, written beside the one that it will
 * replace. */
#define _GNU_SOURCE
#include "fleet/predict/predict_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"

static fleet_status cannot(const char *what, const char *path, int why)
{
    return fl_fail(FLEET_EIO, "cannot %s %s: %s", what, path, strerror(why));
}

/* Its name is no other process's. */
static fleet_status open_beside(fl_score_file *f, mode_t mode, bool replaces)
{
    const char *slash = strrchr(f->target, '/');
    char *folder = fl_path_parent(f->target);
    char name[80];
    fleet_status status;

    snprintf(name, sizeof name, ".%.30s.%016llx.new",
             slash ? slash + 1 : f->target, (unsigned long long)fl_nonce());
    if (!folder)
        return FLEET_ENOMEM;
    status = fl_writer_open(&f->writer, folder, name);
    fl_free(folder);
    if (status == FLEET_ENOENT)
        return cannot("write", f->path, ENOENT);
    if (status == FLEET_OK && replaces &&
        fchmod(f->writer.fd, mode & 0777) != 0)
        status = cannot("write", f->path, errno);
    return status;
}

/* A link stays one: the file that it leads to is replaced. */
static fleet_status find_target(fl_score_file *f, bool exists)
{
    char *real = exists ? realpath(f->path, NULL) : NULL;

    if (exists && !real)
        return cannot("write", f->path, errno);
    f->target = fl_strdup(real ? real : f->path);
    free(real);
    return f->target ? FLEET_OK : FLEET_ENOMEM;
}

fleet_status fl_score_file_open(fl_score_file *f, const char *path)
{
    struct stat st;
    bool exists;

    *f = (fl_score_file){.path = path, .fd = -1, .writer = {.fd = -1}};
    if (!path)
        return FLEET_OK;
    if (strcmp(path, "-") == 0) {
        f->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        return f->fd < 0 ? cannot("write", path, errno) : FLEET_OK;
    }
    exists = stat(path, &st) == 0;
    if (!exists && errno != ENOENT)
        return cannot("write", path, errno);
    if (exists && S_ISDIR(st.st_mode))
        return cannot("write", path, EISDIR);
    if (exists && access(path, W_OK) != 0)
        return cannot("write", path, errno);
    if (exists && !S_ISREG(st.st_mode)) {
        f->fd =
            fl_fd_lift(fl_disk_open(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0));
        return f->fd < 0 ? cannot("write", path, errno) : FLEET_OK;
    }
    FL_TRY(find_target(f, exists));
    return open_beside(f, exists ? st.st_mode : 0, exists);
}

fleet_status fl_score_file_put(fl_score_file *f, const void *data, size_t size)
{
    fl_hush hush;
    int failed;

    if (!f->path || size == 0)
        return FLEET_OK;
    fl_hush_begin(&hush);
    if (f->target) {
        fl_writer_put(&f->writer, data, size);
        failed = 0;
    } else {
        failed = fl_disk_write(f->fd, data, size);
    }
    fl_hush_end(&hush);
    return failed ? cannot("write", f->path, failed) : f->writer.status;
}

/* Beside its place there is nothing any more. */
static void drop_made(fl_score_file *f, bool removes)
{
    if (removes)
        fl_disk_remove(AT_FDCWD, f->made, 0);
    fl_free(f->made);
    fl_free(f->target);
    f->made = f->target = NULL;
}

fleet_status fl_score_file_finish(fl_score_file *f)
{
    fleet_status status;

    if (!f->target || f->made)
        return FLEET_OK;
    f->made = fl_strdup(f->writer.path);
    if (!f->made)
        return FLEET_ENOMEM;
    status = fl_writer_close(&f->writer, NULL, NULL);
    if (status != FLEET_OK)
        drop_made(f, true);
    return status;
}

fleet_status fl_score_file_commit(fl_score_file *f)
{
    fleet_status status;

    FL_TRY(fl_score_file_finish(f));
    if (!f->target)
        return FLEET_OK;
    status = fl_file_replace(f->made, f->target);
    drop_made(f, status != FLEET_OK);
    return status;
}

void fl_score_file_close(fl_score_file *f)
{
    char *made = f->made;
    fl_error kept;

    if (!made && f->target && f->writer.fd >= 0 && f->writer.path)
        made = fl_strdup(f->writer.path);
    if (f->target && !f->made) {
        fl_error_take(&kept, fleet_last_status());
        fl_writer_close(&f->writer, NULL, NULL);
        fl_error_raise(&kept);
    }
    if (made)
        fl_disk_remove(AT_FDCWD, made, 0);
    fl_free(made);
    fl_free(f->target);
    if (f->fd >= 0)
        close(f->fd);
    *f = (fl_score_file){.fd = -1, .writer = {.fd = -1}};
}
