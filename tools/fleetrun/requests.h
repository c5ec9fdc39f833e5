/* requests.h - fleetctl asks the fleetrun of a job, of the same user and
 * machine, by datagrams: one word and a server's number, each answered by
 * one. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/error.h"

/* The socket's name in FLEET_IPC_FOLDER, which this user alone may enter. */
#define RUN_REQUESTS "fleetrun"

/* "start 2": a server is started that joins the job by that number; or it runs
 * already. "look 2": it runs. "joined 2": the job knows it by now. The answer
 * is RUN_REQUEST_DONE and its endpoint, ip:port; or words that say why not,
 * behind RUN_REQUEST_OVER where it has ended well. */
#define RUN_REQUEST_START  "start"
#define RUN_REQUEST_LOOK   "look"
#define RUN_REQUEST_JOINED "joined"
#define RUN_REQUEST_DONE   "at "
#define RUN_REQUEST_OVER   "over: "

enum { RUN_REQUEST_SIZE = 1000 };

typedef struct run_request {
    char words[RUN_REQUEST_SIZE];
    struct sockaddr_un from;
    socklen_t from_size;
} run_request;

/* The socket in that folder, from which nobody has to read. */
fleet_status run_requests_open(const char *folder, int *fd);

/* false: there is none, any more. */
bool run_requests_receive(int fd, run_request *r);
void run_requests_answer(int fd, const run_request *r, const char *words);
