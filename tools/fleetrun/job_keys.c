/* job_keys.c - keys for one job, and the command that makes them for more than
 * one node. */
#include "job_keys.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "net/keys.h"
#include "ps/bucket_map.h"

enum {
    MOST_KEYS = 4096,
    SERVERS = 16,
    WORKERS = 64,
    SUBSCRIBERS = 1,
    CONTROLS = 1
};

static const char usage[] =
    "usage: fleetrun keys FOLDER [FLAGS]\n"
    "Makes a key for each process of a job, in a new folder: the file "
    "\"public\" "
    "goes\n"
    "to every node, and server-N.secret and worker-N.secret to the node of "
    "that\n"
    "process. Processes find it by FLEET_KEYS or \"fleetrun --keys FOLDER\".\n"
    "\n"
    "  --server_num N     keys of so many servers (16)\n"
    "  --worker_num N     keys of so many workers, heter workers included "
    "(64)\n"
    "  --subscriber_num N keys of so many subscribers (1)\n"
    "  --help\n"
    "\n"
    "More keys than processes are fine. A program of that name is started by\n"
    "\"fleetrun ./keys\".\n";

typedef struct keys_options {
    const char *folder;
    int n[FL_N_ROLE];
    bool help;
} keys_options;

static fleet_status read_flag(keys_options *o, int found, const char *argument)
{
    if (found == 's')
        return run_options_integer("--server_num", optarg, 1, FL_MOST_SERVER,
                                   &o->n[FL_ROLE_SERVER]);
    if (found == 'w')
        return run_options_integer("--worker_num", optarg, 1, MOST_KEYS,
                                   &o->n[FL_ROLE_WORKER]);
    if (found == 'f')
        return run_options_integer("--subscriber_num", optarg, 0, MOST_KEYS,
                                   &o->n[FL_ROLE_SUBSCRIBER]);
    o->help = found == 'h';
    if (o->help)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "keys: unknown flag %s, or one without its value; "
                   "\"fleetrun keys --help\" lists them",
                   argument);
}

static fleet_status read_flags(keys_options *o, int argc, char **argv)
{
    static const struct option known[] = {
        {"server_num", required_argument, NULL, 's'},
        {"worker_num", required_argument, NULL, 'w'},
        {"subscriber_num", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {0}};
    int found;

    opterr = 0;
    while (!o->help && (found = getopt_long(argc, argv, ":", known, NULL)) >= 0)
        FL_TRY(read_flag(o, found, argv[optind - 1]));
    if (o->help)
        return FLEET_OK;
    if (argc - optind != 1)
        return fl_fail(FLEET_EINVAL, "keys: expected one folder, got %d words",
                       argc - optind);
    o->folder = argv[optind];
    return FLEET_OK;
}

fleet_status run_keys_command(int argc, char **argv)
{
    keys_options o = {.n = {SERVERS, WORKERS, SUBSCRIBERS, CONTROLS}};

    FL_TRY(read_flags(&o, argc, argv));
    if (!o.help)
        return fl_keys_make_all(o.folder, o.n);
    if (fputs(usage, stdout) < 0 || fflush(stdout) != 0)
        return fl_fail(FLEET_EIO, "stdout cannot be written");
    return FLEET_OK;
}

/* Each process of this node would fail by itself, and the others would wait for
 * it. */
static fleet_status check_folder(const run_job *j)
{
    for (int i = 0; i < j->n_process; i++) {
        const run_process *p = &j->process[i];
        fl_keys *keys;

        if (!p->is_local && !(p->by_mpirun && j->n_host == 1))
            continue;
        /* heter workers are numbered behind the workers */
        FL_TRY(fl_keys_read(&keys, j->keys, p->is_server,
                            p->index + (p->stage > 0 ? j->n_worker : 0)));
        fl_keys_destroy(keys);
    }
    return FLEET_OK;
}

fleet_status run_keys_open(run_job *j)
{
    int most = j->options->servers_max;
    fleet_status status;

    if (j->options->insecure || !(j->needs_keys || j->by_mpirun))
        return FLEET_OK;
    if (j->options->keys) {
        snprintf(j->keys, sizeof j->keys, "%s", j->options->keys);
        return check_folder(j);
    }
    if (!j->needs_keys && j->n_host > 1)
        return FLEET_OK; /* they would be on this one alone */
    snprintf(j->keys, sizeof j->keys, "%s/keys", j->sockets);
    status = fl_keys_make(j->keys, most > j->n_server ? most : j->n_server,
                          j->n_worker + j->n_heter);
    if (status != FLEET_EUNSUPPORTED || j->needs_keys)
        return status;
    *j->keys = 0; /* ranks on CPUs do without */
    return FLEET_OK;
}
