/* file_writer.h - files being written: buffered, hashed, flushed. */
#pragma once

#include "base/file.h"

/* A file being written: buffered, every byte hashed (XXH64). It stays where it
 * is in memory: a thread writes full buffers of a large one. */
typedef struct fl_writer_queue fl_writer_queue;
typedef struct fl_writer {
    int fd;
    char *path;
    char *buffer;
    size_t used;
    uint64_t written;
    off_t on_disk; /* bytes that the system has */
    struct fl_hasher *hasher;
    fl_writer_queue *behind; /* NULL: the caller writes */
    fleet_status status;     /* sticky */
} fl_writer;

fleet_status fl_writer_open(fl_writer *w, const char *folder, const char *name);
/* What cannot be written fails in this call, a later one, or the close. */
void fl_writer_put(fl_writer *w, const void *data, size_t size);
/* Flush to the disk and close; size and hash of the file. */
fleet_status fl_writer_close(fl_writer *w, uint64_t *size, uint64_t *hash);

/* All three: a new file with these bytes, on the disk. */
fleet_status fl_file_write(const char *folder, const char *name,
                           const void *data, size_t size, uint64_t *hash);
