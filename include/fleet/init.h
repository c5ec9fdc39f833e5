/* init.h - the fleet handle, and who this process is.
 *
 * With none of Paddle's environment variables set, a program runs whole in one
 * process: it is the first and only worker, and there are no servers.
 *
 * A process may hold several handles; they share nothing.
 *
 * Threads: make and destroy a handle in one thread; what may be called at the
 * same time is said header by header. A child of fork() cannot use its parent's
 * handles (FLEET_ESTATE).
 */
#ifndef FLEET_INIT_H
#define FLEET_INIT_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All-zero fields are defaults. */
typedef struct fleet_options {
    uint64_t seed;           /* of initial values and shuffles */
    int num_threads;         /* compute threads; 0: FLEET_NUM_THREADS, else
                                OMP_NUM_THREADS, else all processors; at most 64.
                                Results do not
                                depend on it */
    fleet_log_callback *log; /* NULL: lines go to stderr */
    void *log_user;
    fleet_log_level log_level;
} fleet_options;

/* fleet_init - make a handle. options may be NULL.
 *
 *   FLEET_EUNSUPPORTED  the environment asks for servers or several ranks,
 *                       which are not there yet: the variable is named
 *   FLEET_EINVAL        num_threads below 0 or above 64, no such log_level
 *   FLEET_ENOMEM
 */
FLEET_API fleet_status fleet_init(fleet **fleet, const fleet_options *options);

/* fleet_destroy - the handle and all that belongs to it: programs, optimizers,
 * datasets. Executors must be gone; predictors belong to no handle. NULL is
 * fine. */
FLEET_API void fleet_destroy(fleet *fleet);

/* Who this process is. 0 for a NULL handle. */
FLEET_API int fleet_is_worker(const fleet *fleet);
FLEET_API int fleet_is_server(const fleet *fleet);
FLEET_API int fleet_is_first_worker(const fleet *fleet);
FLEET_API int fleet_worker_index(const fleet *fleet);
FLEET_API int fleet_worker_num(const fleet *fleet);
FLEET_API int fleet_server_num(const fleet *fleet);

/* The servers' "ip:port", with commas; "" if there are none. */
FLEET_API const char *fleet_server_endpoints(const fleet *fleet);

/* fleet_init_server, fleet_run_server - a server's part: load `path` (NULL:
 * nothing), serve until all workers have left. FLEET_ESTATE in a worker. */
FLEET_API fleet_status fleet_init_server(fleet *fleet, const char *path);
FLEET_API fleet_status fleet_run_server(fleet *fleet);

/* fleet_init_worker, fleet_stop_worker - around a worker's training. To begin
 * it is FLEET_ESTATE if fleet_minimize() was not called. */
FLEET_API fleet_status fleet_init_worker(fleet *fleet);
FLEET_API fleet_status fleet_stop_worker(fleet *fleet);

/* fleet_barrier_worker - wait for all workers. */
FLEET_API fleet_status fleet_barrier_worker(fleet *fleet);

/* fleet_util_file_shard - of n files, in their order, those of this worker:
 * count of them from first on. Contiguous blocks; the first n mod workers of
 * them have one more. */
FLEET_API fleet_status fleet_util_file_shard(const fleet *fleet, int64_t n,
                                             int64_t *first, int64_t *count);

/* fleet_params_hash - one number for all trained parameters and rows, equal for
 * equal bits (docs/formats.md). */
FLEET_API fleet_status fleet_params_hash(fleet *fleet, uint64_t *hash);

#ifdef __cplusplus
}
#endif

#endif
