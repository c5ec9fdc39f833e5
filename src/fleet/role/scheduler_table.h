/* scheduler_table.h - the processes of a job on their way to its start, and
 * while it runs, as its scheduler knows them: a state machine without sockets
 * and clocks, which scheduler.h drives, and a test can.
 *
 *     COMING    until all servers and workers have said JOIN
 *     STARTED   each has a number, and the list of all; a process of a known
 *               id that comes again gets what it had
 *     FAILED    one has not come by the deadline, has ended, or is silent
 *
 * A process that expects another job is refused, and the job waits on. A
 * scheduler that was started again learns all from the first process that says
 * READY. */
#pragma once

#include "net/roster_message.h"

typedef enum fl_scheduler_phase {
    FL_SCHEDULER_COMING,
    FL_SCHEDULER_STARTED,
    FL_SCHEDULER_FAILED
} fl_scheduler_phase;

enum { FL_SCHEDULED_SERVER, FL_SCHEDULED_WORKER, FL_N_SCHEDULED };

typedef struct fl_scheduled {
    char id[FL_ROSTER_ID];
    int role, rank;                /* rank -1: not given yet */
    char endpoint[FL_ROSTER_TEXT]; /* a worker's is its host */
    int64_t heard_ms;
    int64_t rival_ms; /* one of its id asked at another endpoint; -1: none */
    bool has_gone;
} fl_scheduled;

typedef struct fl_scheduler_table {
    fl_scheduler_phase phase;
    fl_roster_message own;   /* what must be the same in all */
    int num[FL_N_SCHEDULED]; /* that are expected, by role */
    int n;                   /* that have come */
    fl_scheduled *process;
    int64_t deadline_ms, connect_ms, peer_ms;
    int64_t silent_ms; /* of all, after which a job is over; connect_ms, until
                          it is set */
    char learnt[FL_ROSTER_TEXT + 16]; /* from which process; "": it was not */
    char words[FL_ROSTER_WORDS];      /* why it has failed */
    char refused[FL_ROSTER_WORDS];    /* the last refusal; "": none */
} fl_scheduler_table;

/* Close follows in every case. */
fleet_status fl_scheduler_table_open(fl_scheduler_table *t,
                                     const fl_roster_message *own,
                                     const int num[FL_N_SCHEDULED],
                                     int64_t now_ms, int64_t connect_ms,
                                     int64_t peer_ms);
void fl_scheduler_table_close(fl_scheduler_table *t);

/* What fl_scheduler_table_take() may give in place of a process's place. */
enum {
    FL_SCHEDULER_REFUSES = -1, /* it is none of the job's; `refused` says why */
    FL_SCHEDULER_NOT_YET = -2 /* it asks again: which process it is will show */
};

/* A message has come, of a process whose key is of that role (-1: there are no
 * keys). Its place, for the next call. */
int fl_scheduler_table_take(fl_scheduler_table *t, const fl_roster_message *m,
                            int key_role, int64_t now_ms);

/* What the process at that place has to know now; `list` for fl_text_done(),
 * the answer's rest may be in it. */
fleet_status fl_scheduler_table_answer(const fl_scheduler_table *t, int place,
                                       fl_roster_message *answer,
                                       fl_text *list);

/* Deadlines. Call it often. */
void fl_scheduler_table_tick(fl_scheduler_table *t, int64_t now_ms);

/* None needs it any more: each process has left the job, or is silent for
 * silent_ms. */
bool fl_scheduler_table_is_over(const fl_scheduler_table *t, int64_t now_ms);

/* How many have not said that they leave; the first of them as a text. */
int fl_scheduler_table_missing(const fl_scheduler_table *t,
                               char first[FL_ROSTER_TEXT + 16]);

/* --- the list ------------------------------------------------------------- */

/* A line of it, "server 1 ID 10.0.0.2:7000", cut off *rest; false: there is
 * none, or it is malformed. */
bool fl_scheduled_read(char **rest, fl_scheduled *p);

/* JOIN's rest, "server 10.0.0.2:7000". */
void fl_scheduled_write_join(int role, const char *endpoint,
                             char to[FL_ROSTER_TEXT + 16]);
