/* delta_feed.h - what a predictor asks of a feed. */
#pragma once

#include <stdbool.h>

#include <fleet/feed.h>

/* The batch that fleet_feed_next() has given out last; NULL: none. */
const fleet_feed_batch *fl_feed_given_out(const fleet_delta_feed *feed);

/* Do the feed's servers keep the rows of that table? Once a batch has come. */
bool fl_feed_tells(const fleet_delta_feed *feed, const char *table);
