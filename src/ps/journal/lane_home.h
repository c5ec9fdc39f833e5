/* lane_home.h - whose a lane's journals are. They lie in the folder of the
 * server with which the lane began, and are written by that server's process;
 * or, when the lane has gone to another one, by the process that
 * FOLDER/lane-L.home names. One rename makes it so: before it the lane is the
 * old process's to make again, and behind it the new one's. docs/adr/0131.
 *
 * Threads: one at a time for a lane that has gone, which is its new process's
 * to send on; any may read. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { FL_HOME_TEXT = 600 };

typedef struct fl_lane_home {
    int server;                 /* in whose process the lane is */
    uint32_t view;              /* lane_view.h */
    uint32_t run;               /* of the job: adr/0028 */
    char address[FL_HOME_TEXT]; /* where, as HELLO's answer has it */
} fl_lane_home;

/* *found false: the lane has never gone. FLEET_ECORRUPT names the file. */
fleet_status fl_lane_home_read(const char *folder, int lane, fl_lane_home *h,
                               bool *found);

/* At once or not at all, and on the disk; what fails behind the rename does no
 * harm. */
fleet_status fl_lane_home_write(const char *folder, int lane,
                                const fl_lane_home *h);

/* The number of the next move of the lane, at least `least`: on the disk before
 * it is told to any process, so that no two moves have the same. */
fleet_status fl_lane_home_count(const char *folder, int lane, uint32_t least,
                                uint32_t *number);

void fl_lane_home_remove(const char *folder, int lane);
