/* replay.h - parameters as of an update, from what servers have written into
 * their logs (strategy.log; docs/recovery.md).
 *
 * A process that has made the job's programs and called fleet_minimize(), as a
 * server does before fleet_init_server(), can make the servers' lanes again
 * from their logs, one after the other, up to any update that these still have:
 * by the code by which a server comes back, so with the same bits on the same
 * instruction set. It needs no other process of the job. fleet-replay does it
 * for configurations of fleet-train.
 */
#ifndef FLEET_REPLAY_H
#define FLEET_REPLAY_H

#include <fleet/init.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All-zero fields are defaults. */
typedef struct fleet_replay_options {
    const char *log; /* folder of the job's logs, with server-0, server-1, ...:
                          strategy.log_configs.folder */
    int64_t
        to_update;    /* the last update that is made again, from 1; 0: all that
                          are in the logs. In async each lane counts its own */
    const char *save; /* path of a checkpoint of that, for fleet_load_model();
                          NULL: none */
    int until_nan;    /* 1: say which update is the first behind which a weight
                          is not finite, and make none behind it; not with save
                          */
    int64_t show_update; /* say what this one has changed; 0: none */
    void (*say)(void *user,
                const char *line); /* gets what is to be said, a line
                                                  at a time, without a newline;
                                                  NULL: the handle's log */
    void *user;
} fleet_replay_options;

typedef struct fleet_replay_result {
    int64_t update;     /* that lanes have come to: the largest */
    int64_t nan_update; /* until_nan: the first one, of any lane; 0: none */
    int64_t records;    /* that were applied, of all lanes */
} fleet_replay_result;

/* fleet_replay_log - make the servers' lanes again from their logs, and do with
 * them what the options say. The handle's own parameters, datasets and position
 * stay as they are; its role does not matter. With strategy.live_hash rows are
 * hashed on the way and compared with what the log says of them.
 *
 *   FLEET_ENOENT   there is no log; or a save that the job had loaded, and that
 *                  the log refers to, is gone
 *   FLEET_EEXIST   a process has the log: of a job that runs, replay a copy
 *   FLEET_EINVAL   another program has written it; or servers' logs are not of
 *                  one run of one job; or the update is none of those in the
 *                  logs: a log that was cut begins behind its
 *                  snapshot; in sync, with save: lanes of a job that was killed
 *                  end at different updates, and to_update is 0
 *   FLEET_ECORRUPT a log is damaged, or has another hash: server, lane and
 *                  record are named
 *
 * A checkpoint has parameters, states and rows; where datasets were
 * (fleet_dataset_position()), fleet_extra_set(), what was reported to a plateau
 * and the rate that it has lowered no server knows. r may be NULL. Threads: one
 * at a time for a handle. */
FLEET_API fleet_status fleet_replay_log(fleet *fleet,
                                        const fleet_replay_options *o,
                                        fleet_replay_result *r);

#ifdef __cplusplus
}
#endif

#endif /* FLEET_REPLAY_H */
