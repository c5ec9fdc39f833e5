/* unpack.h - the bytes of a file, of a .gz the unpacked ones. The only
 * <zlib.h>. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct fl_unpack fl_unpack;

bool fl_is_packed(const char *path); /* by its name */

/* FLEET_EUNSUPPORTED for a file that is read as text and begins as a packed one
 * does: gzip without .gz in its name, zstd, xz, bzip2, zip. */
fleet_status fl_unpack_check_text(const fl_unpack *u);

/* path must outlive it. */
fleet_status fl_unpack_open(fl_unpack **unpack, const char *path);

/* The same of what is no regular file, too: a FIFO, or "-", which is standard
 * input. Reading it ends with FLEET_ESTATE once the wakeup comes, and with
 * FLEET_ETIMEDOUT where it brings nothing for timeout_ms; 0: it may take its
 * time. */
fleet_status fl_unpack_open_any(fl_unpack **unpack, const char *path,
                                int wakeup, int64_t timeout_ms);

/* Until what is no regular file has bytes, or its end: before a FIFO's first
 * writer has come, reads of it find an end. FLEET_ESTATE: the wakeup came
 * first. FLEET_ETIMEDOUT: neither came in time. */
fleet_status fl_unpack_wait(const fl_unpack *u);

/* 1 to size bytes, or *got is 0: the end, and the file was whole. */
fleet_status fl_unpack_read(fl_unpack *u, void *to, size_t size, size_t *got);

/* How much of the file was read, by us or through the descriptor: 0 to 1. */
double fl_unpack_share(const fl_unpack *u);

/* The descriptor; of a plain file that was not yet read it gives all bytes. */
int fl_unpack_fd(const fl_unpack *u);
void fl_unpack_close(fl_unpack *u); /* NULL is fine */
