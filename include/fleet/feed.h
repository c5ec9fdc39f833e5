/* feed.h - the delta feed: a process that is no part of a job, such as one that
 * scores, follows what the job's servers train. It gets each row's newest value
 * once for each change, with its version, and the weights of dense parameters;
 * hears of rows that are gone; and goes on where it was after a break of either
 * side. docs/feed.md is the guide, docs/adr/0065 says why it is so.
 *
 * Each lane of each server tells its own part in batches, in an order of its
 * own. Who applies the batches in the order in which they come has at each
 * moment, of each lane, the rows of some version, and changes that came later;
 * when there is nothing more to tell it has the servers' tables, to the bit.
 *
 * A subscriber reads, and does nothing else. Workers do not wait for it: a lane
 * spends a tenth of its time on subscribers at most, and remembers the last
 * 1,048,576 changes. To one that is slower it sends the rows that have changed
 * since, or everything.
 *
 *     fleet_delta_feed *feed = fleet_feed_open(&options);
 *
 *     while ((status = fleet_feed_next(feed, 1000, &batch)) == FLEET_OK)
 *         if (batch)
 *             ...
 *     fleet_feed_close(feed);
 *
 * Threads: one at a time for a feed. After fork() a child may close it alone.
 */
#ifndef FLEET_FEED_H
#define FLEET_FEED_H

#include <fleet/io.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fleet_delta_feed fleet_delta_feed;

/* All-zero fields are defaults. */
typedef struct fleet_feed_options {
    /* The servers, as the job's fleet_role.server_endpoints; NULL:
     * PADDLE_PSERVERS_IP_PORT_LIST */
    const char *server_endpoints;
    const char *job_id;  /* NULL: PADDLE_JOB_ID, else "default" */
    int subscriber;      /* which one this is, from 0; a job has 16 at most at a
                           time, and a new one of a number takes the place of
                           the one before */
    const char *offset;  /* what fleet_feed_offset() has said: go on from there;
                           NULL: begin with everything */
    int64_t interval_ms; /* between two questions to a lane that had no more to
                            tell: 1 to 1,000; 0: 50 */
    int64_t peer_deadline_ms; /* a server that is silent so long is missed; 0:
                                 FLEET_PEER_DEADLINE_MS, else 10,000 */
    const char *keys; /* folder of keys (docs/security.md), which has one of
                         this subscriber; NULL: FLEET_KEYS, else none */
} fleet_feed_options;

typedef enum fleet_feed_kind {
    FLEET_FEED_ROWS,   /* rows of a table, with their values */
    FLEET_FEED_GONE,   /* rows that the table does not have any more */
    FLEET_FEED_WEIGHTS /* of a dense parameter */
} fleet_feed_kind;

/* A part of a batch. */
typedef struct fleet_feed_part {
    fleet_feed_kind kind;
    const char *name;        /* of the table or parameter, as in saves */
    int64_t dim;             /* of a row; WEIGHTS: 0 */
    int64_t n;               /* rows; weights */
    int64_t first;           /* WEIGHTS: the first one's place */
    const uint64_t *key;     /* of rows: n; WEIGHTS: NULL */
    const float *value;      /* ROWS: n times dim, whatever the servers'
                                `storage` is; WEIGHTS: n; GONE: NULL */
    const uint64_t *version; /* ROWS: of each row's last update, counted by its
                                lane; 0: none since it was loaded */
} fleet_feed_part;

/* What a lane has told. The feed's, until the next call for it. */
typedef struct fleet_feed_batch {
    int lane;     /* among all lanes of all servers */
    int begins;   /* 1: begin again: all that was told of the rows of this lane
                      (fleet_feed_lane_of()) is void, and the lane tells all of
                      them, from this batch on. So it is at first, after a load,
                      in another process of the server, and for who was so slow
                      that rows have gone which it did not hear of */
    int complete; /* 1: with it, all rows of the lane have been told; 0: it is
                      still telling what it had before */
    int over;     /* 1: all workers have left: the lane's last batch */
    uint64_t version; /* updates that the lane had made when it told this */
    const fleet_feed_part *part;
    int n_part;
} fleet_feed_batch;

/* fleet_feed_open - a feed. It does not wait for the servers. NULL: see
 * fleet_last_status() and fleet_last_error():
 *
 *   FLEET_ENOENT       there are no servers: nothing is said of any, so the
 *                      program trains in one process, or by ranks
 *   FLEET_EINVAL       a number out of range, a malformed endpoint
 *   FLEET_EFORMAT      no offset of a feed, or a damaged one
 *   and as fleet_init() says of keys
 */
FLEET_API fleet_delta_feed *fleet_feed_open(const fleet_feed_options *options);

/* fleet_feed_next - the next batch, waiting for it up to timeout_ms; *batch
 * NULL: nothing new has come. What it gives out counts as told: apply it, then
 * store fleet_feed_offset().
 *
 *   FLEET_EEND       all lanes have told their last batch: the job has ended
 *   FLEET_ETIMEDOUT  a server has been silent for the peer deadline: it is
 *                    named, at once when that is found and then at the end of
 *                    timeout_ms. Go on calling: it may come back
 *   FLEET_EPEER      the job has failed, in its words; open a feed anew with
 *                    the offset when it runs again
 *   FLEET_EINVAL     the servers are of another job, or not all of one, or in
 *                    another order than it has them
 *   FLEET_EEXIST     16 others follow the job
 *   FLEET_EUNSUPPORTED  a table has rows out of memory; a lane has more than 32
 *                    MB of dense parameters; a lane has gone to another process
 *                    (docs/elastic.md)
 */
FLEET_API fleet_status fleet_feed_next(fleet_delta_feed *feed,
                                       int64_t timeout_ms,
                                       const fleet_feed_batch **batch);

/* fleet_feed_offset - how far it is, as a text of about 100 characters for each
 * lane, for fleet_feed_options.offset: behind all that fleet_feed_next() has
 * given out. Writes up to `size` bytes with the 0 at the end, and returns how
 * many the whole text needs; 0: without memory. */
FLEET_API size_t fleet_feed_offset(const fleet_delta_feed *feed, char *text,
                                   size_t size);

/* fleet_feed_lane_of - which lane tells of the rows of that key; -1: before the
 * first batch. */
FLEET_API int fleet_feed_lane_of(const fleet_delta_feed *feed, uint64_t key);

/* NULL is fine. */
FLEET_API void fleet_feed_close(fleet_delta_feed *feed);

/* fleet_predictor_apply - what the feed has given out last becomes the
 * predictor's, while other threads score with it: a run of it sees each row,
 * and all weights of a lane, before or after the batch, and nothing changes
 * while it runs. Tables and parameters that the predictor does not have are
 * passed over. When a lane begins again the rows that the predictor has stay
 * until the lane has told all of its rows; then those go that were not among
 * them.
 *
 * Give it each batch of a feed that has begun with everything, in their order,
 * from one thread. It takes memory for rows as they come.
 *
 *   FLEET_ESHAPE  the predictor's table or parameter has another shape
 *   FLEET_EINVAL  the feed has given out nothing
 */
FLEET_API fleet_status fleet_predictor_apply(fleet_predictor *predictor,
                                             const fleet_delta_feed *feed);

#ifdef __cplusplus
}
#endif

#endif
