/* init.h - the fleet handle, and the role of this process.
 *
 * A job is a number of workers, which train, and of servers, which keep the
 * parameters. The role of a process is what fleet_options.role says, or else
 * the environment, in PaddlePaddle's variables or the variables of mpirun and
 * srun (docs/getting-started.md). Without servers several workers are the ranks
 * of a collective job; a program that is given no role runs whole in one
 * process, which is the first and only worker.
 *
 * A process may hold several handles; they share nothing.
 *
 * Threads: make and destroy a handle in one thread; fleet_init_*() and
 * fleet_stop_worker() one at a time, with no step under way. What may be called
 * at the same time is said header by header. A child of fork() cannot use its
 * parent's handles (FLEET_ESTATE).
 */
#ifndef FLEET_INIT_H
#define FLEET_INIT_H

#include <fleet/program.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fleet_role_kind {
    FLEET_WORKER,
    FLEET_SERVER,
    FLEET_HETER_WORKER /* of a job of stages; by the environment alone */
} fleet_role_kind;

/* The role of this process in a job. All-zero fields are defaults; workers and
 * servers of one job are given the same servers in the same order, the same
 * worker_num and job_id. */
typedef struct fleet_role {
    fleet_role_kind kind;
    int index;      /* which worker, or which of server_endpoints; from 0 */
    int worker_num; /* 0: 1; at most 4,096 */
    /* "ip:port,ip:port", IPv6 in brackets, or "inproc://name,..." between
     * handles of one process; at most 128. NULL or "": no servers */
    const char *server_endpoints;
    const char *job_id; /* processes of another job are refused; NULL or "":
                           "default" */
    int listen_fd;      /* a server's: a listening tcp socket that it inherited,
                           to be used in place of binding its endpoint, and
                           closed by the server; rank 0's, in place of binding
                           master. 0 or -1: none */
    int collective;     /* 1: the workers are ranks of a collective job beside
                           the servers, if strategy.is_collective says so, too.
                           Several without servers always are */
    int gpu;            /* what fleet_worker_gpu() says */
    const char *master; /* where rank 0 listens for the other ranks, "ip:port":
                           of several ranks whose program is on a GPU */
} fleet_role;

/* All-zero fields are defaults. */
typedef struct fleet_options {
    uint64_t seed;           /* of initial values and shuffles */
    int num_threads;         /* compute threads; 0: FLEET_NUM_THREADS, else
                                OMP_NUM_THREADS, else all processors; at most
                                64. Results do not depend on it */
    fleet_log_callback *log; /* NULL: lines go to stderr */
    void *log_user;
    fleet_log_level log_level;

    const fleet_role *role; /* NULL: as the environment says */

    /* Milliseconds, up to 2^31 - 1. 0: the environment's
     * FLEET_CONNECT_DEADLINE_MS, FLEET_REQUEST_DEADLINE_MS,
     * FLEET_PEER_DEADLINE_MS, FLEET_STEP_DEADLINE_MS, else the number below */
    int64_t connect_deadline_ms; /* 60,000: until a peer is reached */
    int64_t request_deadline_ms; /* 30,000: until a request is answered */
    int64_t peer_deadline_ms;    /* 10,000: a peer is silent that long: dead */
    int64_t step_deadline_ms;    /* 600,000: a wait for a peer that lives,
                                    without progress of it */

    int server_lanes;       /* threads of a server, each with rows of its own;
                               0: FLEET_SERVER_LANES, else a fourth of the
                               processors, but 2 where there are 2;
                               1 to 16 */
    int no_sigterm_handler; /* 1: fleet_run_server() leaves SIGTERM alone. 0: it
                               ends the call, unless the process handles or
                               ignores it */
    int keep_descriptor_limit; /* 1: fleet_init_server() and, with servers,
                               fleet_init_worker() leave RLIMIT_NOFILE alone.
                               0: they raise the soft limit to the hard one, as
                               each connection takes a descriptor. A host that
                               uses select() wants 1 */

    const char *keys; /* folder of keys (docs/security.md), of jobs with servers
                         over tcp, and of ranks that know rank 0's address;
                         NULL: FLEET_KEYS, else none, and then a server, and
                         rank 0 for ranks on GPUs, listens on loopback alone,
                         unless FLEET_INSECURE is 1 */
} fleet_options;

/* fleet_init - make a handle. options may be NULL; what they point to, but
 * log_user, is not needed after the call. Failures name the field or the
 * variable, what was expected and what came.
 *
 *   FLEET_EINVAL        a number out of range, no such log_level, a malformed
 *                       endpoint or one that stands twice, an own endpoint
 *                       that is not in the list, a listen_fd that is none,
 *                       variables that contradict one another
 *   FLEET_ENOENT        a variable that other variables need is not set
 *   FLEET_EUNSUPPORTED  a TRAINING_ROLE that this version does not have; keys,
 *                       but a libzmq without CURVE
 *   FLEET_EFORMAT       a file of keys that is damaged; keys that are missing
 *                       or not this process's are FLEET_ENOENT, FLEET_EINVAL
 *   FLEET_ENOMEM
 */
FLEET_API fleet_status fleet_init(fleet **fleet, const fleet_options *options);

/* fleet_destroy - the handle and all that belongs to it: programs, optimizers,
 * datasets. Executors must be gone; predictors belong to no handle. NULL is
 * fine. */
FLEET_API void fleet_destroy(fleet *fleet);

/* The role of this process. 0 for a NULL handle. The index of another role is
 * -1: fleet_worker_index() in a server, fleet_server_index() in a worker. A
 * scheduler (MS_ROLE=MS_SCHED) is a server by fleet_is_server(), of index -1:
 * its program calls what a server's does. */
FLEET_API int fleet_is_worker(const fleet *fleet);
FLEET_API int fleet_is_server(const fleet *fleet);
FLEET_API int fleet_is_first_worker(const fleet *fleet);
FLEET_API int fleet_worker_index(const fleet *fleet);
FLEET_API int fleet_server_index(const fleet *fleet);
FLEET_API int fleet_worker_num(const fleet *fleet);
FLEET_API int fleet_server_num(const fleet *fleet);

/* A job of stages (docs/heter.md): workers are stage 0, and the heter workers,
 * which are numbered stage after stage, do what comes behind it. fleet_stage_id
 * is the stage of this process, from 0, -1 in a server; fleet_stage_num how
 * many the job has: 1 in a job without heter workers; in a server 0, if nobody
 * has told it. fleet_heter_worker_index: -1 in other roles. */
FLEET_API int fleet_is_heter_worker(const fleet *fleet);
FLEET_API int fleet_heter_worker_index(const fleet *fleet);
FLEET_API int fleet_heter_worker_num(const fleet *fleet);
FLEET_API int fleet_stage_id(const fleet *fleet);
FLEET_API int fleet_stage_num(const fleet *fleet);

/* fleet_worker_gpu - which GPU this worker should take, so that the workers of
 * one machine do not all take the first: the launcher's FLAGS_selected_gpus,
 * counted as CUDA counts the visible ones, else the worker's number among the
 * workers of its machine. A GPU of that number may not exist. */
FLEET_API int fleet_worker_gpu(const fleet *fleet);

/* The servers' "ip:port", with commas; "" if there are none. The handle's. */
FLEET_API const char *fleet_server_endpoints(const fleet *fleet);

/* fleet_init_server - a server makes its part of the parameters and tables of
 * the programs that were minimized, and takes its endpoint. Its part of the
 * checkpoint at `path` (NULL: nothing) is what fleet_run_server() begins with.
 *
 *   FLEET_EIO     the endpoint is in use, or not of this machine
 *   FLEET_EINVAL  other machines reach the endpoint, and there are no keys
 *   FLEET_ESTATE  in a worker; before fleet_minimize()
 */
FLEET_API fleet_status fleet_init_server(fleet *fleet, const char *path);

/* fleet_run_server - load the checkpoint of fleet_init_server(), while workers
 * that come wait for as long as it gets on; then serve until all workers have
 * left, or until SIGTERM (see fleet_options.no_sigterm_handler) or
 * fleet_stop_server(): these are FLEET_OK. If the checkpoint cannot be loaded
 * each worker is told so, for which it waits up to the connect deadline.
 *
 *   FLEET_EPEER      a worker is gone without having left: it is named
 *   FLEET_ETIMEDOUT  a worker has not come within the connect deadline, or has
 *                    kept the other workers waiting beyond the step deadline;
 *                    or the load has not got on for the connect deadline
 *   the codes of fleet_load_model()
 *   and what a worker has failed with, in its words
 */
FLEET_API fleet_status fleet_run_server(fleet *fleet);

/* fleet_stop_server - let all fleet_run_server() of this process return; their
 * workers are told. May be called from a signal handler. */
FLEET_API void fleet_stop_server(void);

/* fleet_stop_server_for - the same, and why: workers say "server 0 has ended:
 * WHY". The text is not copied and must stay; NULL: as fleet_stop_server(). */
FLEET_API void fleet_stop_server_for(const char *why);

/* fleet_run_heter_worker - the life of a heter worker, after fleet_minimize()
 * and fleet_init_worker(): do the later stage of the batches of all trainers,
 * and train what that stage has, until all trainers have left. It runs once, in
 * the thread that calls it; a thread of its own answers the trainers.
 *
 *   FLEET_ESTATE     this process is no heter worker, or is not connected
 *   FLEET_EPEER      a trainer or a server is gone, or has failed: its words
 *   FLEET_ETIMEDOUT  a trainer has kept the others waiting beyond the step
 *                    deadline; a server does not answer
 *   and the codes of fleet_executor_run(), with the trainer whose batch it was
 */
FLEET_API fleet_status fleet_run_heter_worker(fleet *fleet);

/* fleet_init_worker - connect to all servers, and wait until all workers have;
 * join the other ranks of a collective or hybrid job, whose parameters are the
 * first one's from then on. In one process there is nothing to do.
 *
 *   FLEET_ETIMEDOUT  a server has not answered, or does not get on with what it
 *                    loads: its endpoint is named
 *   FLEET_EEXIST     another process is this worker already
 *   FLEET_EINVAL     the server or first rank runs another job, program,
 *                    strategy, or counts other workers or servers: what differs
 *                    is named
 *   FLEET_ENOENT     ranks: the plug-in that joins them (libfleet_mpi.so), or
 *                    what it needs, is missing; ranks whose program is on a
 *                    GPU: nothing says where rank 0 is
 *   FLEET_EUNSUPPORTED  the server speaks another version of the protocol;
 *                    ranks on GPUs: there is no NCCL, or a step without a
 *                    kernel
 *   FLEET_EPEER      a server or worker is gone
 *   FLEET_ESTATE     before fleet_minimize(); in a server; called twice
 */
FLEET_API fleet_status fleet_init_worker(fleet *fleet);

/* fleet_stop_worker - this worker is done: returns when all servers know.
 * Other workers train on without it. Ranks leave together: a rank serves ranks
 * that still train, evaluate or save until all have made this call. A worker
 * that ends otherwise ends the whole job: by fleet_destroy(), which tells the
 * other processes why, at once. */
FLEET_API fleet_status fleet_stop_worker(fleet *fleet);

/* fleet_barrier_worker - wait until all workers that have not left call this.
 * In a synchronous job, and among ranks, it also ends the pass, so workers that
 * have run unequal numbers of batches meet in it; ranks that wait in it take
 * part in the updates of ranks that have not called it yet. Executors for test
 * then see what all workers have trained. */
FLEET_API fleet_status fleet_barrier_worker(fleet *fleet);

/* fleet_util_file_shard - of n files, in their order, the block of this worker:
 * count files from first on. Blocks are contiguous; the first n mod workers
 * of them have one file more. A server or heter worker has none. A training
 * pass over a dataset shares its files out by itself (dataset.h). */
FLEET_API fleet_status fleet_util_file_shard(const fleet *fleet, int64_t n,
                                             int64_t *first, int64_t *count);

/* fleet_params_hash - one number for all trained parameters and rows, equal for
 * equal bits (docs/formats.md). In a job any worker may call it alone, between
 * passes: servers give sums of their rows, and so do ranks that wait.
 *
 *   FLEET_ESTATE  in a server; in a rank that has its own rows of a table
 *                 alone, see fleet_save_persistables()
 *   FLEET_EPEER, FLEET_ETIMEDOUT  a server or rank is gone, or does not answer
 */
FLEET_API fleet_status fleet_params_hash(fleet *fleet, uint64_t *hash);

#ifdef __cplusplus
}
#endif

#endif
