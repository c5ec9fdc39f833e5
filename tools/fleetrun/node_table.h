/* node_table.h - the nodes of a job on their way to its start: a state machine
 * in the fleetrun that serves --master. It has no sockets and no clock: nodes.h
 * drives it, and a test can.
 *
 *     COMING    until --nnodes have said JOIN
 *     RANKED    each has a rank, and binds its ports
 *     STARTED   all have said READY
 *     FAILED    one has not come by the deadline, has ended, or is silent
 *
 * A fleetrun whose command line is another one is refused; the job waits on.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "net/roster_message.h"

typedef enum run_nodes_phase {
    RUN_NODES_COMING,
    RUN_NODES_RANKED,
    RUN_NODES_STARTED,
    RUN_NODES_FAILED
} run_nodes_phase;

typedef struct run_node {
    char id[FL_ROSTER_ID];
    char host[FL_ROSTER_TEXT];
    int rank; /* -1: not given yet */
    int64_t heard_ms;
    char *ports; /* NULL: it is not ready */
    bool is_gone;
} run_node;

typedef struct run_node_table {
    run_nodes_phase phase;
    fl_roster_message own; /* of the node that serves, which is the first */
    int n, n_node;         /* that have come, that are expected */
    int n_port;            /* of each node */
    run_node *node;
    int64_t deadline_ms, connect_ms, peer_ms;
    char words[FL_ROSTER_WORDS];   /* why it has failed */
    char refused[FL_ROSTER_WORDS]; /* the last refusal; "": none */
} run_node_table;

/* `own` is a JOIN of the node that serves. Close follows in every case. */
fleet_status run_node_table_open(run_node_table *t,
                                 const fl_roster_message *own, int n_node,
                                 int n_port, int64_t now_ms, int64_t connect_ms,
                                 int64_t peer_ms);
void run_node_table_close(run_node_table *t);

/* A message has come. The place of its node, whose answer is the next call's;
 * -1: it is none of the job's, and `refused` says why. */
int run_node_table_take(run_node_table *t, const fl_roster_message *m,
                        int64_t now_ms);

/* What the node at that place has to know now; the caller frees `list`, to
 * which the answer's rest may point. */
fleet_status run_node_table_answer(const run_node_table *t, int place,
                                   fl_roster_message *answer, fl_text *list);

/* Deadlines. Call it often. */
void run_node_table_tick(run_node_table *t, int64_t now_ms);

/* The node that serves has failed. */
void run_node_table_fail(run_node_table *t, const char *why);
