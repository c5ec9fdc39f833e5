/* file.h - files: whole ones read, folders written so that a crash leaves the
 * old one or the new one. */
#pragma once

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* All of a file, with a 0 after it, for fl_free(). */
fleet_status fl_file_read(const char *path, char **data, size_t *size);
/* Into memory that is kept for the next file, for fl_free() at last: the kernel
 * has to clear new memory, which takes as long as the copy. */
fleet_status fl_file_read_into(const char *path, char **data, size_t *capacity,
                               size_t *size);
/* It will be read soon: the kernel may begin. Promises nothing. */
void fl_file_prefetch(const char *path);
bool fl_file_exists(const char *path);

/* A folder that is read: still the same one when another has taken its path. */
typedef struct fl_source_folder {
    int fd;
    char *path;
} fl_source_folder;

fleet_status fl_source_folder_open(fl_source_folder *f, const char *path);
bool fl_source_folder_replaced(const fl_source_folder *f);
void fl_source_folder_close(fl_source_folder *f);

/* Without a descriptor (fd -1): the path alone is left. */
void fl_source_folder_rest(fl_source_folder *f);

/* All of its file, as above; FLEET_ECORRUPT, naming it, if it is not of the
 * size and the hash (XXH64) that are given. */
fleet_status fl_source_folder_read(const fl_source_folder *f, const char *name,
                                   char **data, size_t *size);
fleet_status fl_source_folder_sized(const fl_source_folder *f, const char *name,
                                    uint64_t size, char **data);
fleet_status fl_source_folder_checked(const fl_source_folder *f,
                                      const char *name, uint64_t size,
                                      uint64_t hash, char **data);

/* "folder/name"; for fl_free(), NULL without memory. */
char *fl_path_join(const char *folder, const char *name);

/* The folder that it is in, "." of a bare name; likewise. */
char *fl_path_parent(const char *path);

/* The descriptor moved above the standard ones: a host that has closed those
 * would write its lines into our files. -1 stays -1, with errno. */
int fl_fd_lift(int fd);

/* How far a thread's work on files is. */
typedef struct fl_file_progress {
    atomic_uint_least64_t bytes; /* that it has read and written */
    atomic_uint_least64_t total; /* that it will have; 0: it is not known */
    atomic_bool stop;            /* it is to fail with its next bytes */
} fl_file_progress;

/* From now on what this thread reads and writes by the functions of this header
 * is added to p->bytes as it gets on; NULL: no more. */
void fl_file_count(fl_file_progress *p);

/* This thread will do these bytes besides what it has said before. */
void fl_file_expect(uint64_t bytes);

/* These bytes are read, written or done with: FLEET_EPEER once p->stop is
 * set. */
fleet_status fl_file_go_on(uint64_t bytes);

/* Descriptors that are kept back for files, in a process whose other ones may
 * all be taken: a server's, by strangers that connect. NULL without memory;
 * fewer than n where the process has fewer. */
typedef struct fl_spare fl_spare;
fl_spare *fl_spare_keep(int n);
void fl_spare_drop(fl_spare *s); /* NULL is fine */

/* From now on this thread, which ends soon and opens files for itself alone,
 * may have them when an open() finds no other one. NULL: no more. */
void fl_spare_allow(fl_spare *s);

/* FLEET_ENOENT or FLEET_EIO, with what errno says. */
fleet_status fl_file_failed(const char *what, const char *path);

/* Close-on-exec, above the standard descriptors; -1 with errno. Where there is
 * no descriptor left, one that is kept back (fl_spare_allow()). */
int fl_file_open(int folder, const char *name, int flags, mode_t mode);

/* What fl_file_count() was given in this thread, for a thread that works for
 * it. */
fl_file_progress *fl_file_counted(void);

/* --- the disk ------------------------------------------------------------- */

/* The system calls that change what lies on a disk, list a folder, or read a
 * file. All writing of files and folders goes through them,
 * so that a test can fail one of them, or record all and play a crash after
 * each; and all reading of whole files, so that a test can say how fast it is.
 */
typedef struct fl_disk {
    int (*open)(int folder, const char *name, int flags, mode_t mode);
    ssize_t (*write)(int fd, const void *data, size_t size);
    int (*flush)(int fd);
    int (*make_folder)(const char *path, mode_t mode);
    int (*rename)(const char *from, const char *to, unsigned flags);
    int (*remove)(int folder, const char *name, int flags);
    struct dirent *(*list)(DIR *dir);
    ssize_t (*read)(int fd, void *data, size_t size);
    ssize_t (*write_at)(int fd, const void *data, size_t size, off_t at);
    ssize_t (*read_at)(int fd, void *data, size_t size, off_t at, bool now);
} fl_disk;

/* openat(), fsync(), mkdir(), renameat2() of two paths and unlinkat(), again
 * where a signal has interrupted them. */
int fl_disk_open(int folder, const char *name, int flags, mode_t mode);
int fl_disk_flush(int fd);
int fl_disk_make_folder(const char *path, mode_t mode);
int fl_disk_rename(const char *from, const char *to, unsigned flags);
int fl_disk_remove(int folder, const char *name, int flags);

/* readdir() without "." and "..": NULL with errno 0 is the end, with another
 * errno a failure. */
struct dirent *fl_disk_list(DIR *dir);

/* write(), pwrite() and pread() of all bytes: 0, or an errno; ENOSPC where
 * nothing more is written, EIO behind the file's end. now: EAGAIN unless the
 * system has them in memory. */
int fl_disk_write(int fd, const void *data, size_t size);
int fl_disk_write_at(int fd, const void *data, size_t size, off_t at);
int fl_disk_read_at(int fd, void *data, size_t size, off_t at, bool now);

/* Tests: these from now on, on the whole process; NULL: the system's. */
void fl_disk_use(const fl_disk *disk);
extern const fl_disk fl_disk_system;
