/* plain_keys.h - messages whose keys came packed (ps/codec_keys.h), as if they
 * had not: a lane reads keys where they lie, and remembers them. */
#pragma once

#include "net/message.h"

/* msg is what p was read as. If no section has packed keys *plain is p itself,
 * with one more reference; else a packet of that pool whose keys are as they
 * are, and msg is what that is read as. FLEET_EINVAL: there are more than fit
 * into a frame, or a section's are not what its n_key says. */
fleet_status fl_plain_keys(fl_packet_pool *pool, fl_packet *p, fl_msg *msg,
                           fl_packet **plain);
