/* rank_agent.h - the agent of one rank that mpirun started: a fleetrun that
 * starts the rank and watches it; and the messages between it and the keeper
 * ("agents.h"). */
#pragma once

/* The flag that makes a fleetrun an agent; the variable with the address it
 * connects to, "unix:PATH" or "tcp:IP:PORT", and the one with the job's
 * token. */
#define RUN_AGENT_FLAG    "--as-rank"
#define RUN_AGENT_ADDRESS "FLEETRUN_REACH"
#define RUN_AGENT_TOKEN   "FLEETRUN_TOKEN"

typedef enum run_agent_stream {
    RUN_AGENT_CONTROL,
    RUN_AGENT_STDOUT, /* by tcp the rank's output is a connection each */
    RUN_AGENT_STDERR
} run_agent_stream;

/* What an agent sends first on each connection. */
typedef struct run_agent_hello {
    char token[40];
    int stream, rank, pid;
} run_agent_hello;

typedef enum run_agent_event {
    RUN_RANK_STARTED,        /* value: its pid */
    RUN_RANK_NOT_STARTED,    /* value: errno */
    RUN_RANK_ENDED,          /* value: its status, of waitpid() */
    RUN_RANK_ENDED_BY_MPIRUN /* alike, after a signal of mpirun's */
} run_agent_event;

/* What an agent reports. The keeper sends single bytes: signals for the
 * rank. */
typedef struct run_agent_message {
    int event, value;
} run_agent_message;

/* Be the agent of this process's rank; the exit status. */
int run_rank_agent(char **command);
