/* feed_io.h - a subscriber's sockets: a feed_client.h over them. One thread at
 * a time. */
#pragma once

#include "ps/feed/feed_client.h"

typedef struct fl_feed_io fl_feed_io;

/* Of the options it sets incarnation, locality and pool; the address list and
 * the job are copied, keys must stay. keys NULL: none are used. */
fleet_status fl_feed_io_create(fl_feed_io **io, const fl_feed_options *o,
                               const fl_keys *keys, const char *offset);
void fl_feed_io_destroy(fl_feed_io *io); /* NULL is fine */

/* The next answer that brings something, waiting up to that long for it;
 * *came false: none. FLEET_EEND: there will be none, the job is over. As
 * fl_feed_client_status() otherwise. */
fleet_status fl_feed_io_next(fl_feed_io *io, int64_t timeout_ms,
                             fleet_feed_batch *batch, bool *came);

fl_feed_client *fl_feed_io_client(const fl_feed_io *io);
