/* file.c - files read whole; the disk's calls; descriptors. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"

/* A larger read is made in parts of READ_PART bytes, so that it can be seen to
 * get on. */
enum { READ_PART = 16 << 20 };

static _Thread_local fl_file_progress *progress;

void fl_file_count(fl_file_progress *p)
{
    progress = p;
}

fl_file_progress *fl_file_counted(void)
{
    return progress;
}

void fl_file_expect(uint64_t bytes)
{
    if (progress)
        atomic_fetch_add(&progress->total, bytes);
}

fleet_status fl_file_go_on(uint64_t bytes)
{
    if (progress)
        atomic_fetch_add(&progress->bytes, bytes);
    if (progress && atomic_load(&progress->stop))
        return fl_fail(FLEET_EPEER, "it was stopped before its end");
    return FLEET_OK;
}

/* --- the disk ------------------------------------------------------------- */

static int open_at(int folder, const char *name, int flags, mode_t mode)
{
    return openat(folder, name, flags, mode);
}

static int rename_as(const char *from, const char *to, unsigned flags)
{
    return flags ? renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)
                 : rename(from, to);
}

/* A file system that cannot say what is in memory says that nothing is. */
static ssize_t read_some_at(int fd, void *data, size_t size, off_t at, bool now)
{
    struct iovec to = {data, size};
    ssize_t n = preadv2(fd, &to, 1, at, now ? RWF_NOWAIT : 0);

    if (n < 0 && now && (errno == EOPNOTSUPP || errno == ENOSYS))
        errno = EAGAIN;
    return n;
}

const fl_disk fl_disk_system = {
    open_at,  write,   fsync, mkdir,  rename_as,
    unlinkat, readdir, read,  pwrite, read_some_at,
};

/* A test may change it while a thread writes. */
static const fl_disk *_Atomic disk_now = &fl_disk_system;

void fl_disk_use(const fl_disk *disk)
{
    disk_now = disk ? disk : &fl_disk_system;
}

#define UNINTERRUPTED(call)                                                    \
    int result;                                                                \
                                                                               \
    do                                                                         \
        result = (call);                                                       \
    while (result < 0 && errno == EINTR);                                      \
    return result

int fl_disk_open(int folder, const char *name, int flags, mode_t mode)
{
    UNINTERRUPTED(disk_now->open(folder, name, flags, mode));
}

int fl_disk_flush(int fd)
{
    UNINTERRUPTED(disk_now->flush(fd));
}

int fl_disk_make_folder(const char *path, mode_t mode)
{
    UNINTERRUPTED(disk_now->make_folder(path, mode));
}

int fl_disk_rename(const char *from, const char *to, unsigned flags)
{
    UNINTERRUPTED(disk_now->rename(from, to, flags));
}

int fl_disk_remove(int folder, const char *name, int flags)
{
    UNINTERRUPTED(disk_now->remove(folder, name, flags));
}

int fl_disk_write(int fd, const void *data, size_t size)
{
    while (size > 0) {
        ssize_t n = disk_now->write(fd, data, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        data = (const char *)data + n;
        size -= (size_t)n;
    }
    return 0;
}

int fl_disk_write_at(int fd, const void *data, size_t size, off_t at)
{
    while (size > 0) {
        ssize_t n = disk_now->write_at(fd, data, size, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        data = (const char *)data + n;
        size -= (size_t)n;
        at += n;
    }
    return 0;
}

int fl_disk_read_at(int fd, void *data, size_t size, off_t at, bool now)
{
    while (size > 0) {
        ssize_t n = disk_now->read_at(fd, data, size, at, now);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        data = (char *)data + n;
        size -= (size_t)n;
        at += n;
    }
    return 0;
}

struct dirent *fl_disk_list(DIR *dir)
{
    struct dirent *e;

    do {
        errno = 0;
        e = disk_now->list(dir);
    } while (e &&
             (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e;
}

/* --- whole files ---------------------------------------------------------- */

fleet_status fl_file_failed(const char *what, const char *path)
{
    fleet_status code = errno == ENOENT ? FLEET_ENOENT : FLEET_EIO;

    return fl_fail(code, "cannot %s %s: %s", what, path, strerror(errno));
}

static fleet_status read_all(int fd, const char *path, char *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        size_t part = size - done < READ_PART ? size - done : READ_PART;
        ssize_t n = disk_now->read(fd, to + done, part);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fl_file_failed("read", path);
        if (n == 0)
            return fl_fail(FLEET_EIO,
                           "cannot read %s: it ends after %zu of "
                           "%zu bytes",
                           path, done, size);
        done += (size_t)n;
        FL_TRY(fl_file_go_on((uint64_t)n));
    }
    return FLEET_OK;
}

/* The file is to have *size bytes, if that is not ANY_SIZE. */
#define ANY_SIZE SIZE_MAX

static fleet_status measure_open(int fd, const char *path, size_t *size)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return fl_file_failed("read", path);
    if (!S_ISREG(st.st_mode))
        return fl_fail(FLEET_EIO, "cannot read %s: not a regular file", path);
    if (*size != ANY_SIZE && *size != (size_t)st.st_size)
        return fl_fail(FLEET_ECORRUPT,
                       "%s: damaged: %lld bytes, not %zu as written", path,
                       (long long)st.st_size, *size);
    *size = (size_t)st.st_size;
    return FLEET_OK;
}

static fleet_status read_open(int fd, const char *path, char **data,
                              size_t *size)
{
    fleet_status status;

    FL_TRY(measure_open(fd, path, size));
    *data = fl_alloc(*size + 1);
    if (!*data)
        return FLEET_ENOMEM;
    status = read_all(fd, path, *data, *size);
    if (status != FLEET_OK) {
        fl_free(*data);
        *data = NULL;
    }
    return status;
}

int fl_fd_lift(int fd)
{
    enum { ABOVE_STANDARD = 3 };
    int high, e;

    if (fd < 0 || fd >= ABOVE_STANDARD)
        return fd;
    high = fcntl(fd, F_DUPFD_CLOEXEC, ABOVE_STANDARD);
    e = errno;
    close(fd);
    errno = e;
    return high;
}

/* --- descriptors that are kept back --------------------------------------- */

struct fl_spare {
    int n;
    _Atomic int fd[]; /* -1: given up */
};

static _Thread_local fl_spare *spare;

fl_spare *fl_spare_keep(int n)
{
    fl_spare *s = fl_alloc(sizeof *s + (size_t)n * sizeof s->fd[0]);

    for (int i = 0; s && i < n; i++) {
        int fd = fl_fd_lift(open("/dev/null", O_RDONLY | O_CLOEXEC));

        if (fd >= 0)
            s->fd[s->n++] = fd;
    }
    return s;
}

static void give_up(fl_spare *s)
{
    for (int i = 0; i < s->n; i++) {
        int fd = atomic_exchange(&s->fd[i], -1);

        if (fd >= 0)
            close(fd);
    }
}

void fl_spare_drop(fl_spare *s)
{
    if (s)
        give_up(s);
    fl_free(s);
}

void fl_spare_allow(fl_spare *s)
{
    spare = s;
}

/* Whether an open() that failed is worth another try. A descriptor that is
 * closed would be taken at once by a connection that waits for one. So this
 * thread gets a table of descriptors of its own, in which all files of the
 * process stay open, and closes the kept ones in it. Where that is forbidden,
 * as in some containers, it closes them for all and hopes to be the first. */
static bool may_open_again(void)
{
    fl_spare *s = spare;

    if (errno != EMFILE || !s)
        return false;
    spare = NULL; /* once */
    if (unshare(CLONE_FILES) != 0)
        give_up(s);
    else
        for (int i = 0; i < s->n; i++)
            close(s->fd[i]);
    return true;
}

int fl_file_open(int folder, const char *name, int flags, mode_t mode)
{
    int fd;

    do
        fd = fl_disk_open(folder, name, flags | O_CLOEXEC, mode);
    while (fd < 0 && may_open_again());
    return fl_fd_lift(fd);
}

/* --- whole files ---------------------------------------------------------- */

static fleet_status read_at(int folder, const char *name, const char *path,
                            char **data, size_t *size)
{
    /* not waiting for a writer: a pipe is refused below */
    int fd = fl_file_open(folder, name, O_RDONLY | O_NONBLOCK, 0);
    fleet_status status;

    *data = NULL;
    if (fd < 0)
        return fl_file_failed("open", path);
    status = read_open(fd, path, data, size);
    close(fd);
    return status;
}

fleet_status fl_file_read(const char *path, char **data, size_t *size)
{
    *size = ANY_SIZE;
    return read_at(AT_FDCWD, path, path, data, size);
}

fleet_status fl_file_read_into(const char *path, char **data, size_t *capacity,
                               size_t *size)
{
    int fd = fl_file_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);
    fleet_status status;

    if (fd < 0)
        return fl_file_failed("open", path);
    *size = ANY_SIZE;
    status = measure_open(fd, path, size);
    if (status == FLEET_OK)
        status = fl_grow(data, capacity, *size + 1, 1);
    if (status == FLEET_OK)
        status = read_all(fd, path, *data, *size);
    close(fd);
    return status;
}

void fl_file_prefetch(const char *path)
{
    int fd = fl_file_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);

    if (fd < 0)
        return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
    close(fd);
}

bool fl_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *fl_path_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = fl_alloc(size);

    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

char *fl_path_parent(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n > 0 ? fl_strndup(path, n) : fl_strdup(".");
}

/* --- a folder that is read ----------------------------------------------- */

fleet_status fl_source_folder_open(fl_source_folder *f, const char *path)
{
    *f = (fl_source_folder){-1, fl_strdup(path)};
    if (!f->path)
        return FLEET_ENOMEM;
    f->fd = fl_file_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    return f->fd >= 0 ? FLEET_OK : fl_file_failed("open", path);
}

bool fl_source_folder_replaced(const fl_source_folder *f)
{
    struct stat is, there;

    return f->fd >= 0 && fstat(f->fd, &is) == 0 &&
           (stat(f->path, &there) != 0 || there.st_dev != is.st_dev ||
            there.st_ino != is.st_ino);
}

void fl_source_folder_rest(fl_source_folder *f)
{
    if (f->path && f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

void fl_source_folder_close(fl_source_folder *f)
{
    fl_source_folder_rest(f);
    fl_free(f->path);
    *f = (fl_source_folder){-1, NULL};
}

static fleet_status read_in(const fl_source_folder *f, const char *name,
                            char **data, size_t *size)
{
    char *path = fl_path_join(f->path, name);
    fleet_status status = FLEET_ENOMEM;

    *data = NULL;
    if (path)
        status = read_at(f->fd, name, path, data, size);
    fl_free(path);
    return status;
}

fleet_status fl_source_folder_read(const fl_source_folder *f, const char *name,
                                   char **data, size_t *size)
{
    *size = ANY_SIZE;
    return read_in(f, name, data, size);
}

fleet_status fl_source_folder_sized(const fl_source_folder *f, const char *name,
                                    uint64_t size, char **data)
{
    size_t wanted = (size_t)size;
    fleet_status status = read_in(f, name, data, &wanted);

    return status == FLEET_ENOENT
               ? fl_fail(FLEET_ECORRUPT, "%s/%s: missing", f->path, name)
               : status;
}

fleet_status fl_source_folder_checked(const fl_source_folder *f,
                                      const char *name, uint64_t size,
                                      uint64_t hash, char **data)
{
    FL_TRY(fl_source_folder_sized(f, name, size, data));
    if (fl_hash(*data, size, 0) == hash)
        return FLEET_OK;
    fl_free(*data);
    *data = NULL;
    return fl_fail(FLEET_ECORRUPT, "%s/%s: damaged: its checksum differs",
                   f->path, name);
}
