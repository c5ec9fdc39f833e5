/* server_descriptors.h - the descriptors of a server: one for each connection
 * of a worker, or of a stranger, and some that are kept back for files. */
#pragma once

#include "base/file.h"
#include "base/log.h"

typedef struct fl_descriptors {
    fl_log *log;
    int server;      /* its number */
    int files;       /* that its lanes keep open: of their journals */
    fl_spare *spare; /* for saves and loads */
    /* ZeroMQ may listen at Unix sockets no more: it would abort without a
     * descriptor for a connection that comes in */
    bool scarce;
    bool none;                  /* is left, and that was said */
    int64_t looked_ms, said_ms; /* last */
} fl_descriptors;

/* Before the server's own are open: raises the process's limit, unless told
 * not to, and keeps some back. n_lane: whose saves are written at once. */
fleet_status fl_descriptors_begin(fl_descriptors *d, int n_lane, bool raise);
void fl_descriptors_end(fl_descriptors *d);

/* When they are open: FLEET_EIO, with the numbers, unless n_worker workers may
 * connect to each lane, after a first connection. */
fleet_status fl_descriptors_check(fl_descriptors *d, int n_worker, int n_lane);

/* From time to time; when none is left the log says so. */
void fl_descriptors_watch(fl_descriptors *d, int64_t now_ms);
