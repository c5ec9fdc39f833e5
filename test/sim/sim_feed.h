/* sim_feed.h - a subscriber of a simulated job: it follows over the links that
 * workers have, stores what it hears with its offset, and is killed at any
 * batch; another process goes on from what was stored. */
#pragma once

#include "sim_internal.h"

/* It will come: of a job with s->o.subscriber. */
void sim_feed_open(sim *s);

/* SIM_FEED_COMES, SIM_FEED_TICK, and what lanes send it. */
void sim_feed_event(sim *s, sim_event *e);
void sim_feed_close(sim *s);

/* What has become of it. */
typedef struct sim_feed_counts {
    int lanes, over; /* of the job; whose last batch it has */
    int begins, rows, gone, deaths;
} sim_feed_counts;

/* NULL, if of each lane whose last batch it has its tables and parameters are
 * the lane's, each change came once, and nothing failed. */
const char *sim_feed_check(const sim *s, sim_feed_counts *n);
