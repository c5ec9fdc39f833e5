/* watching.h - the state of a job that is watched, shared by the files that do
 * it: phases.c ends processes, ends.c judges how they end, watch.c is the loop.
 */
#ifndef FLEETRUN_WATCHING_H
#define FLEETRUN_WATCHING_H

#include <poll.h>

#include "job.h"

enum {
    TERM_MS = 5000,
    MPIRUN_MS = 200, /* from its end to that of what it started, and more */
    NEVER = -1
};

enum { POLLED_SIGNALS, POLLED_LIFE, POLLED_RANKS, N_POLLED };
enum { POLLED_OF_EACH = 3 }; /* stdout, stderr, control */

/* What the processes that still run have been told, in this order. */
typedef enum watch_phase {
    WATCH_RUN,   /* nothing: all is well; mpirun starts ranks until the deadline
                  */
    WATCH_GRACE, /* nothing: they should end by themselves until the deadline */
    WATCH_TERM,  /* SIGTERM */
    WATCH_KILL   /* SIGKILL */
} watch_phase;

typedef struct watch {
    run_job *job;
    int life, signals;
    struct pollfd *polled; /* N_POLLED, then POLLED_OF_EACH process */
    watch_phase phase;
    int64_t deadline;  /* of the phase, in ms; NEVER */
    int window;        /* how long the phase lasts, in ms */
    const char *since; /* what it began with */
    int exit_status;
    bool reports;    /* of processes that fail: not of those we have ended */
    bool abandoned;  /* nobody waits for the output any more */
    bool at_once;    /* SIGKILL for mpirun, too, which would tidy up */
    char first[100]; /* what failed first, in words; "": nothing */
} watch;

/* A line on stderr. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
int64_t run_now_ms(void);

/* --- phases.c ---------------------------------------------------------------
 */

int run_count_running(const run_job *j); /* without mpirun */
run_process *run_mpirun(const watch *w); /* NULL: there is none */
bool run_anything_runs(const watch *w);
bool run_ranks_run(const watch *w);
bool run_workers_came(const watch *w); /* each was started */

/* ms: NEVER, or how long the phase may last; since: what it begins with. */
void run_enter(watch *w, watch_phase phase, int ms, const char *since);
void run_kill_all(watch *w);
void run_pass_deadline(watch *w);

/* The first one asks, a second one insists. */
void run_take_signal(watch *w, int signal);

/* --- ends.c -----------------------------------------------------------------
 */

/* What of an output can be moved at once; all of it if there will be no more.
 */
void run_move(run_output *o);

/* Signals, and the ends of this process's children. */
void run_take_signals(watch *w);

/* The next message of a rank's. */
void run_hear(watch *w, run_process *p);

#endif
