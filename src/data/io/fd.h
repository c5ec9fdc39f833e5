/* fd.h - descriptors: pipes, and waits that another thread can end. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* A pipe, close on exec. It holds that many bytes if the system lets it; 0: as
 * many as it likes. */
fleet_status fl_fd_pipe(int ends[2], int bytes);

/* A descriptor to wait for: readable once fl_fd_wake() was called. */
fleet_status fl_fd_wakeup(int *wakeup);
void fl_fd_wake(int wakeup);

/* Wait for events on fd. FLEET_ESTATE: a wakeup came first. Each may be -1.
 * FLEET_ETIMEDOUT, whose text is the caller's to give: nothing came for
 * timeout_ms milliseconds; 0: however long it takes. */
fleet_status fl_fd_wait(int fd, short events, int wakeup, int other_wakeup,
                        int64_t timeout_ms);

void fl_fd_close(int *fd); /* sets it to -1; -1 is fine */
