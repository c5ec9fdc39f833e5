/* handshake.h - how a worker comes to a job: it says which worker it is to
 * lane 0 of every server, server 0 first, which grants its incarnation; and
 * learns the lanes. */
#pragma once

#include "net/socket.h"
#include "ps/partition.h"

typedef struct fl_hello_options {
    fl_address *address; /* of servers' first lanes: "tcp://ip:port" or
                                  "inproc://name" */
    int n_server;
    const char *job, *mode, *program;
    uint32_t stream;
    int n_worker;
    int64_t connect_ms, peer_ms; /* deadlines */
    bool tcp_only;
    const fl_keys *keys; /* NULL: none are used */
    fl_packet_pool *pool;
} fl_hello_options;

/* What it learns. */
typedef struct fl_hello_lane {
    char address[FL_ADDRESS_SIZE];
    bool elsewhere; /* on another machine */
    uint32_t peer;  /* nonce of its process */
} fl_hello_lane;

typedef struct fl_job_lanes {
    uint32_t incarnation, run;
    int n_lane[FL_MOST_SERVER]; /* by server */
    fl_hello_lane *lane;        /* of all servers in turn; fl_free() it */
    int n;
    bool elsewhere; /* any lane is */
} fl_job_lanes;

/* FLEET_ETIMEDOUT names the server that did not answer; FLEET_EEXIST: another
 * process is that worker; FLEET_EINVAL: another job, program, mode, number of
 * workers, version: in the server's words. */
fleet_status fl_hello(const fl_hello_options *o, fl_job_lanes *lanes);

/* For messages: without "tcp://". */
const char *fl_address_text(const char *address);
