/* options.h - the command line of fleetrun: options.c has the flags, and
 * options_ranks.c those of collective jobs and of GPUs, options_heter.c those
 * of heter workers. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "folders.h"

enum { RUN_MOST_GPU = 64, RUN_MOST_STAGE = 16 };

typedef struct run_options {
    int n_server, n_worker; /* of this node alone; -1: not given */
    int servers_max; /* that the job may have, those that join it later among
                        them; -1: as many as it begins with */
    const char *servers, *workers; /* of all nodes, "ip:port,..."; or NULL */
    const char *host;              /* this node; or NULL */
    const char *log_folder, *job;  /* never NULL */
    int start_port;                /* 0: any free ones */
    bool collective;               /* the workers are ranks */
    int nproc, n_node, node;       /* as given: ranks of a node, nodes, which
                                      one this is; -1: not given */
    const char *master, *ips, *devices; /* or NULL */
    bool meets; /* servers and workers on n_node nodes, n_server and n_worker
                   on each, which find each other by master: nodes.h */
    int n_ip;   /* hosts in ips, else 1 */
    int gpu[RUN_MOST_GPU], n_gpu; /* of this node's workers */
    /* of heter workers, by stage with semicolons; or NULL */
    const char *heter_numbers, *heter_workers, *heter_devices;
    int n_stage;               /* the workers' is the first; 1: no others */
    int stage[RUN_MOST_STAGE]; /* processes of each, from stage 1 on */
    bool stage_on_gpu[RUN_MOST_STAGE];
    int n_heter;       /* of all stages */
    int grace;         /* seconds; -1: not given */
    int grace_ms;      /* the same, or its default */
    int connect_ms;    /* until mpirun has started all ranks, or all nodes have
                          come */
    int peer_ms;       /* after which a silent node is dead */
    const char *keys;  /* folder of them; NULL: this job's own, or none */
    bool insecure;     /* no keys */
    int replicas;      /* copies of each lane: with 2 the job outlives a
                          server; -1: not given, until it was read */
    bool supervise;    /* a process that dies is started again */
    int restart_delay; /* at most, in seconds */
    int restarts, restart_window; /* of a process, in so many seconds; -1: not
                                     given, until it was read */
    const char *journals; /* folder of them; NULL: the environment's, or this
                             job's own */
    bool verbose, help, version;
    char word[RUN_WORD_SIZE]; /* of the job's folders; not a flag */
    char **command; /* the program and its arguments; NULL at their end */
} run_options;

/* Read argv. FLEET_EINVAL says what is wrong with it. The texts stay argv's.
 * After --help and --version nothing else is looked at. */
fleet_status run_options_read(run_options *o, int argc, char **argv);

/* What --help prints. */
extern const char run_options_usage[];

/* Entries of a list, "a,b,...". */
int run_options_count(const char *list);

/* The text as an integer from least to most, or FLEET_EINVAL that begins with
 * `what`. */
fleet_status run_options_integer(const char *what, const char *text, int least,
                                 int most, int *out);

/* --- options_heter.c ------------------------------------------------------ */

/* Check the flags of heter workers, and find how many each stage has. */
fleet_status run_options_check_heter(run_options *o);

/* --- options_ranks.c ------------------------------------------------------ */

/* Check the flags of ranks and GPUs, and find what follows from them: whether
 * the job is collective, n_worker, n_ip, gpu. */
fleet_status run_options_check_ranks(run_options *o);

/* The GPUs of one of this node's workers, as FLAGS_selected_gpus has them, in a
 * buffer of the next call's; NULL: none were given. */
const char *run_options_gpus(const run_options *o, int local_rank);
