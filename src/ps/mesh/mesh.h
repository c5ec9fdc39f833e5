/* mesh.h - sockets between the workers of a job, each of which listens and is
 * connected to all other ones, for messages in rounds: in each round a worker
 * has a message for each worker. What the workers have to know of one another
 * first goes through the job's sums.
 *
 * Threads: one at a time. */
#pragma once

#include "net/keys.h"
#include "net/resolve.h"

typedef struct fl_mesh fl_mesh;

typedef struct fl_mesh_options {
    int index, n;
    const char *server;  /* an address that all workers know: workers reach one
                           another where this one reaches it from */
    const fl_keys *keys; /* NULL: none are used */
    bool insecure;       /* without keys, other machines may come */
    int64_t deadline_ms; /* that a worker may be silent in a round */

    void *arg; /* of these: a sum over all workers, which all call; and how the
                  job does, asked now and then */
    fleet_status (*sum)(void *arg, double *x, int n);
    fleet_status (*status)(void *arg);
} fl_mesh_options;

/* Of all workers, which make this call together. */
fleet_status fl_mesh_open(fl_mesh **mesh, const fl_mesh_options *o);

/* A round, as fl_memory_swap has it; FLEET_EPEER: a worker gives up, which is
 * named. */
fleet_status fl_mesh_round(void *mesh, const char *const *out,
                           const int64_t *to, const char **in, int64_t *from);

/* When all workers have ended their last round. NULL is fine. */
void fl_mesh_close(fl_mesh *mesh);
