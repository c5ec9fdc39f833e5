/* roster_message.h - what the processes of a job, or the fleetruns of its
 * nodes, say before it begins to the one that numbers them: a text of a head, a
 * kind, whose it is, what must be the same in all, and a rest. The answers are
 * made by tools/fleetrun/node_table.h and fleet/role/scheduler_table.h. */
#pragma once

#include <stdbool.h>

#include "base/text.h"

enum { FL_ROSTER_TEXT = 128, FL_ROSTER_WORDS = 800, FL_ROSTER_ID = 64 };

typedef enum fl_roster_kind {
    FL_ROSTER_JOIN,    /* I am one of them */
    FL_ROSTER_READY,   /* a node's ports are bound: they are the rest, with
                          spaces; a server lives: its list is the rest */
    FL_ROSTER_GONE,    /* I end; why is the rest */
    FL_ROSTER_WAIT,    /* go on asking */
    FL_ROSTER_RANK,    /* all have come: you are node `rank` */
    FL_ROSTER_START,   /* all are ready: a line of the rest for each */
    FL_ROSTER_REFUSED, /* you are none of this job; why is the rest */
    FL_ROSTER_FAILED,  /* the job ends; why is the rest */
    FL_N_ROSTER_KIND
} fl_roster_kind;

/* What all must agree on, and its name in errors: a flag of fleetrun, and a
 * variable of a process that asks a scheduler. */
#define FL_ROSTER_FIELDS(FIELD)                                                \
    FIELD(VERSION, "the version of fleetrun", "the version of libfleet")       \
    FIELD(JOB, "--job_id", "PADDLE_JOB_ID")                                    \
    FIELD(NODES, "--nnodes", "")                                               \
    FIELD(SERVERS, "--server_num", "MS_SERVER_NUM")                            \
    FIELD(WORKERS, "--worker_num", "MS_WORKER_NUM")                            \
    FIELD(PROGRAM, "the program", "")                                          \
    FIELD(REPLICAS, "--replicas", "")                                          \
    FIELD(SUPERVISE, "--supervise", "")

typedef enum fl_roster_field {
#define FIELD(NAME, flag, variable) FL_ROSTER_##NAME,
    FL_ROSTER_FIELDS(FIELD)
#undef FIELD
        FL_N_ROSTER_FIELD
} fl_roster_field;

typedef struct fl_roster_message {
    fl_roster_kind kind;
    char id[FL_ROSTER_ID]; /* of this process alone */
    int rank;              /* that it is given, or wants; -1: any */
    char host[FL_ROSTER_TEXT];
    char field[FL_N_ROSTER_FIELD][FL_ROSTER_TEXT];
    const char *rest; /* never NULL */
} fl_roster_message;

/* Put a value into a message: in one line, and cut. */
void fl_roster_message_set(char to[FL_ROSTER_TEXT], const char *value);

void fl_roster_message_write(const fl_roster_message *m, fl_text *out);

/* Cut `text`, which ends with a 0; the rest stays in it. False: it is none. */
bool fl_roster_message_read(fl_roster_message *m, char *text);
