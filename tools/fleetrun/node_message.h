/* node_message.h - what the fleetruns of several nodes say to each other before
 * their job begins, as a text: a head, a kind, who says it, what must be the
 * same on all nodes, and a rest. node_table.h has what is answered. */
#pragma once

#include <stdbool.h>

#include "base/text.h"
#include "folders.h"

enum { RUN_NODE_TEXT = 128, RUN_NODE_WORDS = 800 };

typedef enum run_node_kind {
    RUN_NODE_JOIN,    /* I am one of the nodes */
    RUN_NODE_READY,   /* my ports are bound: they are the rest, with spaces */
    RUN_NODE_GONE,    /* I end; why is the rest */
    RUN_NODE_WAIT,    /* go on asking */
    RUN_NODE_RANK,    /* all have come: you are node `rank` */
    RUN_NODE_START,   /* all are ready: a line of the rest is a node, in the
                         order of ranks: its host and its ports */
    RUN_NODE_REFUSED, /* you are none of this job; why is the rest */
    RUN_NODE_FAILED,  /* the job ends; why is the rest */
    N_RUN_NODE_KIND
} run_node_kind;

/* What all nodes must agree on, and its name in errors. */
#define RUN_NODE_FIELDS(FIELD)                                                 \
    FIELD(VERSION, "the version of fleetrun")                                  \
    FIELD(JOB, "--job_id")                                                     \
    FIELD(NODES, "--nnodes")                                                   \
    FIELD(SERVERS, "--server_num")                                             \
    FIELD(WORKERS, "--worker_num")                                             \
    FIELD(PROGRAM, "the program")                                              \
    FIELD(REPLICAS, "--replicas")                                              \
    FIELD(SUPERVISE, "--supervise")

typedef enum run_node_field {
#define FIELD(NAME, words) RUN_NODE_##NAME,
    RUN_NODE_FIELDS(FIELD)
#undef FIELD
        N_RUN_NODE_FIELD
} run_node_field;

typedef struct run_node_message {
    run_node_kind kind;
    char id[RUN_WORD_SIZE]; /* of this fleetrun alone */
    int rank;               /* that it is given, or wants; -1: any */
    char host[RUN_NODE_TEXT];
    char field[N_RUN_NODE_FIELD][RUN_NODE_TEXT];
    const char *rest; /* never NULL */
} run_node_message;

/* Put a value into a message: in one line, and cut. */
void run_node_message_set(char to[RUN_NODE_TEXT], const char *value);

void run_node_message_write(const run_node_message *m, fl_text *out);

/* Cut `text`, which ends with a 0; the rest stays in it. False: it is none. */
bool run_node_message_read(run_node_message *m, char *text);
