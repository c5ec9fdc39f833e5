/* log_end.h - logs of servers that have died while their job was over: that is
 * written down for them, as servers that end do for themselves. So the next job
 * in the folder begins anew.
 *
 * Threads: any; a folder's lock is taken meanwhile. */
#pragma once

#include <stdint.h>

#include "base/log.h"

typedef enum fl_log_end {
    FL_LOG_END_NONE,   /* there is no log of that server */
    FL_LOG_END_BEFORE, /* it had ended */
    FL_LOG_END_LIVES,  /* a process has it */
    FL_LOG_END_OTHER,  /* it is of another job */
    FL_LOG_END_NOW     /* it had not ended, and has by now */
} fl_log_end;

/* Of that server, below the folder of all logs. job NULL: of any. */
fleet_status fl_log_end_one(const char *folder, int server, const char *job,
                            fl_log_end *how);

/* Of all servers of that job that have died, if the folder of server 0 is of
 * that run, too: a worker that has outlived its run says nothing of the next
 * one's. What fails is a line in the log. */
void fl_log_end_dead(const char *folder, const char *job, uint32_t run,
                     fl_log *log);
