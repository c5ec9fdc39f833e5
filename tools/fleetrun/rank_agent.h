/* rank.h - who watches one rank that mpirun started; what it and fleetrun say
 * to each other. */
#ifndef FLEETRUN_RANK_H
#define FLEETRUN_RANK_H

/* The flag that makes a fleetrun that, and how it is reached:
 * "unix:PATH" or "tcp:IP:PORT". */
#define RUN_RANK_FLAG  "--as-rank"
#define RUN_RANK_REACH "FLEETRUN_REACH"
#define RUN_RANK_TOKEN "FLEETRUN_TOKEN"

typedef enum run_stream {
    RUN_CONTROL,
    RUN_OUT, /* by tcp the rank's output is a socket each */
    RUN_ERR
} run_stream;

/* The first word of a connection. */
typedef struct run_hello {
    char token[40];
    int stream, rank, pid;
} run_hello;

typedef enum run_news {
    RUN_STARTED,     /* value: its pid */
    RUN_NOT_STARTED, /* errno */
    RUN_ENDED,       /* its status, of waitpid() */
    RUN_WAS_ASKED    /* alike; mpirun had asked it to end */
} run_news;

typedef struct run_message {
    int news, value;
} run_message;

/* Start the command as this process's rank, and watch it; the exit status. */
int run_rank(char **command);

#endif
