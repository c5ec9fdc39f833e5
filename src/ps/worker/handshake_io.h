/* handshake_io.h - a handshake (handshake.h) over sockets of its own. */
#pragma once

#include "ps/worker/handshake.h"

/* Wait until all servers have answered, or one will not: as
 * fl_handshake_result(). What the options say of the process is filled in. */
fleet_status fl_hello(const fl_hello_options *o, fl_job_lanes *lanes);
