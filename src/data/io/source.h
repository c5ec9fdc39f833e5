/* source.h - the bytes that one file of a dataset comes to: unpacked, and sent
 * through the dataset's command if it has one. */
#pragma once

#include <stddef.h>

#include "base/error.h"

typedef struct fl_source fl_source;

/* path and command (NULL: none) must outlive it. Reading ends with FLEET_ESTATE
 * once the wakeup comes. A command lives no longer than the calling thread. */
fleet_status fl_source_open(fl_source **source, const char *path,
                            const char *command, int wakeup);

/* 1 to size bytes, or *got is 0: the end, and all went well, which includes the
 * command's exit code. */
fleet_status fl_source_read(fl_source *s, void *to, size_t size, size_t *got);
double fl_source_share(const fl_source *s); /* as fl_unpack_share() */
void fl_source_close(fl_source *s);         /* NULL is fine */
