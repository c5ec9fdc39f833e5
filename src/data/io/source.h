/* source.h - the bytes that one file of a dataset comes to: unpacked, and sent
 * through the dataset's command if it has one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct fl_source fl_source;

typedef struct fl_source_options {
    const char *command; /* must outlive the source; NULL: none */
    int64_t timeout_ms;  /* that the command, or what is no regular file, may
                            bring nothing and not end; 0: as long as it likes */
    int wakeup;          /* reading ends with FLEET_ESTATE once it comes */
    bool any;            /* also a FIFO, and "-": standard input */
    bool binary;         /* a file may begin with any bytes, of which none say
                            that it is packed */
    const char *text;    /* NULL, or these bytes in the file's place; they
                            outlive the source, and have no command */
    size_t text_size;
} fl_source_options;

/* path must outlive it. A command lives no longer than the calling thread. */
fleet_status fl_source_open(fl_source **source, const char *path,
                            const fl_source_options *o);

/* 1 to size bytes, or *got is 0: the end, and all went well, which includes the
 * command's exit code. FLEET_ETIMEDOUT: it takes too long. */
fleet_status fl_source_read(fl_source *s, void *to, size_t size, size_t *got);
double fl_source_share(const fl_source *s); /* as fl_unpack_share() */
void fl_source_close(fl_source *s);         /* NULL is fine */
