/* handshake.h - how a worker comes to a job: it says which worker it is to
 * lane 0 of every server, server 0 first, which grants its incarnation; and
 * learns the lanes. A single-threaded state machine over client.h: its host
 * (handshake_io.c, or a simulator) hands it packets and the time, and sends
 * what it has to send; nothing in it waits. */
#pragma once

#include "net/keys.h"
#include "net/resolve.h"
#include "ps/partition.h"
#include "ps/worker/client.h"

typedef struct fl_hello_options {
    fl_address *address; /* of servers' first lanes: "tcp://ip:port" or
                                  "inproc://name" */
    int n_server;
    const char *job, *mode, *program;
    uint32_t stream;
    int n_worker;
    int64_t connect_ms, peer_ms; /* deadlines */
    bool tcp_only;
    bool replicas;       /* each server has replicas of the lanes of the server
                            before it */
    const fl_keys *keys; /* NULL: none are used */
    fl_packet_pool *pool;
    fl_log *log; /* NULL: none */

    /* of the process; its host's to say */
    uint64_t nonce;       /* of its log, if it has one, and then a `life`: */
    uint32_t life;        /* the how manieth process with that log; 0: none */
    const char *who;      /* fl_who_text() */
    const char *locality; /* fl_locality_text() */
} fl_hello_options;

/* What it learns. */
typedef struct fl_hello_lane {
    char address[FL_ADDRESS_SIZE];
    bool elsewhere;  /* on another machine */
    uint32_t peer;   /* nonce of its process */
    int process;     /* of which server it is, if that is said; else -1 */
    fl_address home; /* of that server, if it is in no list; else "" */
} fl_hello_lane;

typedef struct fl_job_lanes {
    uint32_t incarnation, run;
    int n_lane[FL_MOST_SERVER]; /* by server */
    fl_hello_lane *lane;        /* of all servers in turn; fl_free() it */
    int n;
    fl_hello_lane *replica; /* of server i at i * FL_MOST_LANE; NULL: none */
    bool elsewhere;         /* any lane is */
} fl_job_lanes;

typedef struct fl_handshake fl_handshake;

/* It says hello at once: a packet is sent to server i by host->send(arg, i, p),
 * a lost one is sent again. Texts of the options must stay. */
fleet_status fl_handshake_create(fl_handshake **handshake,
                                 const fl_hello_options *o,
                                 const fl_client_host *host, int64_t now_ms);

/* NULL is fine. */
void fl_handshake_destroy(fl_handshake *h);

/* A packet of that server; it stays the caller's. */
void fl_handshake_receive(fl_handshake *h, int server, fl_packet *p,
                          int64_t now_ms);

/* Hellos that are said again, deadlines; call it each tenth of a second. A
 * server that loads is waited for as long as it gets on: its connect deadline
 * begins anew each time that it has. The log says how far it is. */
void fl_handshake_tick(fl_handshake *h, int64_t now_ms);

/* All servers have answered, or it has failed: nothing happens any more. A
 * worker that had its place has told the servers why it fails. */
bool fl_handshake_is_over(const fl_handshake *h);

/* Once it is over. FLEET_ETIMEDOUT names the server that did not answer, or did
 * not get on with what it loads;
 * FLEET_EEXIST: another process is that worker; FLEET_EINVAL: another job,
 * program, mode, number of workers, version: in the server's words. */
fleet_status fl_handshake_result(fl_handshake *h, fl_job_lanes *lanes);

/* What a server says of its lane of that number, in JSON: where it is. first:
 * the address of the server's first lane. `peer` is left as it is. */
fleet_status fl_hello_read_lane(const char *first, int number, const char *text,
                                const char *locality, bool tcp_only,
                                fl_hello_lane *lane);

/* For messages: without "tcp://". */
const char *fl_address_text(const char *address);
