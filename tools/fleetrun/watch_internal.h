/* watch_internal.h - the state of a running job, shared by the files of watch:
 * watch.c is the loop, watch_ends.c handles the ends of processes,
 * watch_phases.c ends them, watch_restart.c starts them again, watch_join.c
 * starts servers that join. */
#pragma once

#include <poll.h>

#include "job.h"

enum {
    TERM_MS = 5000,
    MPIRUN_END_MS = 200, /* more than from mpirun's end to its ranks' */
    NEVER = -1
};

enum { POLLED_SIGNALS, POLLED_ALIVE, POLLED_AGENTS, POLLED_REQUESTS, N_POLLED };
enum { POLLED_OF_EACH = 3 }; /* stdout, stderr, agent */

/* What the processes that still run were sent, in this order. */
typedef enum watch_phase {
    WATCH_RUN,   /* nothing: all is well; mpirun has until the deadline to start
                  * all ranks */
    WATCH_GRACE, /* nothing: they should end by themselves by the deadline */
    WATCH_TERM,  /* SIGTERM */
    WATCH_KILL   /* SIGKILL */
} watch_phase;

typedef struct watch {
    run_job *job;
    int alive, signals;
    struct pollfd *polled; /* N_POLLED, then POLLED_OF_EACH process */
    watch_phase phase;
    int64_t deadline;  /* of the phase, in ms; NEVER */
    int phase_ms;      /* how long the phase may last */
    const char *since; /* what it began with */
    int exit_status;
    bool reports;   /* failures: not of processes that fleetrun has ended */
    bool abandoned; /* the output is not waited for any more */
    bool at_once;   /* SIGKILL for mpirun, too, which would tidy up */
    bool spares_servers; /* till the workers have ended */
    char first[400];     /* what failed first, in words; "": nothing */
} watch;

/* --- watch_phases.c ------------------------------------------------------- */

/* A line on stderr. */
void watch_report(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
int64_t watch_now_ms(void);

/* One that will be started again runs. */
bool watch_lives(const watch *w, const run_process *p);
int watch_count_running(const watch *w);   /* without mpirun */
run_process *watch_mpirun(const watch *w); /* NULL: none is used */
bool watch_any_runs(const watch *w);
bool watch_ranks_run(const watch *w);
bool watch_workers_started(const watch *w); /* each was */

/* ms: NEVER, or how long the phase may last; since: what it begins with. */
void watch_enter_phase(watch *w, watch_phase phase, int ms, const char *since);
void watch_kill_all(watch *w);
void watch_deadline_passed(watch *w);

/* The workers have ended: the servers that were spared may, too; and those that
 * nobody waits for, as the job does not know them yet. */
void watch_terminate_servers(watch *w);
void watch_terminate_newcomers(watch *w);

/* A signal for fleetrun: the first one asks, a second one insists. */
void watch_handle_signal(watch *w, int signal);

/* --- watch_ends.c --------------------------------------------------------- */

/* Move on what can be moved of an output at once; all of it if it has ended. */
void watch_move_output(run_output *o);

/* Read signals, and reap children that have ended. */
void watch_read_signals(watch *w);

/* "ended with status 1", in a buffer of the next call's. */
const char *watch_status_text(int status);

/* Handle the next message of a rank's agent, or its end. */
void watch_read_agent(watch *w, run_process *p);

/* The job has failed, because of p; w->first has the words. */
void watch_fail(watch *w, const run_process *p, int exit_status);

/* --- watch_restart.c ------------------------------------------------------ */

/* Not asked to end, and without a word to the others: by that status. */
bool watch_has_died(int status);

/* p has ended: is it to be started again? If so that is reported; `why` says
 * who has ended, and how. */
bool watch_restart(watch *w, run_process *p, const char *why);

/* It has died, and is not started again: ", after 10 restarts within 3 s",
 * else "". In a buffer of the next call's. */
const char *watch_restart_limit(const watch *w, const run_process *p);

/* Will it be started again? Not once the job has to end. */
bool watch_is_due(const watch *w, const run_process *p);

/* When watch_start_due() has something to do, in ms; NEVER. */
int64_t watch_next_restart(const watch *w);

/* Start those whose time has come. */
void watch_start_due(watch *w);

/* In a line, if there were any. */
void watch_report_restarts(const watch *w);

/* --- watch_join.c --------------------------------------------------------- */

/* Answer what fleetctl has asked. */
void watch_read_requests(watch *w);

/* p has ended; false: as it has not joined the job yet, that is a line. */
bool watch_is_missed(watch *w, const run_process *p, const char *why);
