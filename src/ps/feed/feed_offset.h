/* feed_offset.h - how far a subscriber is, as a text. */
#pragma once

#include "ps/feed/feed_client.h"

/* For fl_free(); NULL without memory. */
char *fl_feed_offset_text(const fl_feed_client *c);

/* Go on from that offset, before the first tick. FLEET_EFORMAT: it is none. */
fleet_status fl_feed_offset_resume(fl_feed_client *c, const char *offset);
