/* wakeup.h - what wakes a thread that waits for sockets, by fl_socket_wait() or
 * by a poll() that looks at `fd`, too: from any thread or signal handler. */
#pragma once

#include "base/error.h"

typedef struct fl_wakeup {
    int fd;
} fl_wakeup;

fleet_status fl_wakeup_create(fl_wakeup *w);
void fl_wakeup_destroy(fl_wakeup *w);
void fl_wakeup_ring(const fl_wakeup *w); /* wakes the one that waits, once */
void fl_wakeup_clear(const fl_wakeup *w);
