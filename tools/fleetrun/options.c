/* options.c - the table of flags, read by getopt_long(), and what holds of all
 * jobs; options_ranks.c has what holds of ranks and GPUs. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ps/bucket_map.h"

enum {
    MOST_PROCESSES = 4096,
    MOST_SECONDS = 1000000,
    MOST_RESTARTS = 1000000,
    RESTARTS = 10,
    RESTART_WINDOW_S = 600,
    MOST_DELAY_S = 3600,
    MOST_COPIES = 2,
    RESTART_DELAY_S = 10,
    PEER_DEADLINE_MS = 10000, /* the library's defaults */
    CONNECT_DEADLINE_MS = 60000,
    GRACE_MORE_MS = 5000
};

const char run_options_usage[] =
    "usage: fleetrun [FLAGS] PROGRAM [ARGUMENTS]\n"
    "       fleetrun keys FOLDER [--help]\n"
    "Starts the servers and workers of a job, or the ranks of a collective "
    "one,\n"
    "watches them, and ends them all.\n"
    "\n"
    "  --server_num N     servers on this node (0)\n"
    "  --worker_num N     workers on this node (1); also --trainer_num\n"
    "  --servers LIST     the servers of all nodes, ip:port,ip:port,...\n"
    "  --workers LIST     the workers of all nodes; also --trainers\n"
    "  --heter_worker_num LIST  heter workers on this node, by stage: 2;1\n"
    "  --heter_workers LIST  those of all nodes: ip:port,ip:port;ip:port\n"
    "  --heter_devices LIST  cpu or gpu for each stage: cpu;gpu (cpu)\n"
    "  --host HOST        this node's entries in the lists (POD_IP, else\n"
    "                     127.0.0.1)\n"
    "  --collective       the workers are ranks; implied by the next six, "
    "without\n"
    "                     servers\n"
    "  --nproc_per_node N ranks on each node (one per device, else 1); also\n"
    "                     --worker_num\n"
    "  --ips LIST         ranks on the CPUs of these hosts, from the first "
    "one;\n"
    "                     also --hosts\n"
    "  --devices LIST     a GPU for each worker, 0,1,...; also --gpus\n"
    "  --nnodes M         nodes; fleetrun is started on each, with\n"
    "  --master IP:PORT   of the first node: with servers the fleetruns find "
    "each\n"
    "                     other there, else rank 0 listens; and\n"
    "  --node_rank K      which node this is, from 0; also --rank; with "
    "servers it\n"
    "                     may be left out\n"
    "  --servers_max N    servers that the job may have, those among them "
    "that\n"
    "                     join it while it runs: so many get keys "
    "(--server_num)\n"
    "  --start_port PORT  with numbers: servers, workers, heter workers, from "
    "here "
    "on\n"
    "                     (any free ports)\n"
    "  --log_dir FOLDER   serverlog.N, workerlog.N and heterlog.N are "
    "written\n"
    "                     here (log)\n"
    "  --job_id NAME      given to the program (default)\n"
    "  --grace SECONDS    that the others have after a failure, and servers\n"
    "                     after the last worker (the peer deadline + 5: 15)\n"
    "  --keys FOLDER      keys of servers, workers and ranks on GPUs, made by\n"
    "                     \"fleetrun keys FOLDER\": for several nodes; one "
    "node "
    "makes\n"
    "                     its own (FLEET_KEYS)\n"
    "  --insecure         no keys: whoever reaches a port of a server or of "
    "rank 0\n"
    "                     may read and change the job (FLEET_INSECURE=1)\n"
    "  --replicas N       copies of what servers keep, 1 or 2: with 2 a job of "
    "two\n"
    "                     servers or more goes on when one dies "
    "(FLEET_REPLICAS, 1)\n"
    "  --supervise        start a server or worker again that a signal has "
    "killed;\n"
    "                     with --replicas 2 a server\n"
    "  --restarts N       of a process at most, within (10)\n"
    "  --restart_window SECONDS  of the first of them (600)\n"
    "  --restart_delay SECONDS  the longest before one, of those that do not "
    "get "
    "up (10)\n"
    "  --journals FOLDER  what servers come back from; stays after the job\n"
    "                     (FLEET_LOG_FOLDER, else a folder beside the logs "
    "that "
    "goes\n"
    "                     with the job)\n"
    "  --verbose          show worker 0's stderr, also where this is no "
    "terminal\n"
    "  --help, --version\n"
    "\n"
    "All output of a process goes to its log. Worker 0's stdout is shown as "
    "well,\n"
    "and on a terminal its stderr, which has the progress.\n"
    "The exit status is that of the first process to fail, 128 + n for signal "
    "n.\n"
    "Without servers the one worker is started as it would be by itself, "
    "several\n"
    "are ranks; those on CPUs are started by Open MPI's mpirun.\n";

typedef enum flag_kind { FLAG_NUMBER, FLAG_TEXT, FLAG_SWITCH } flag_kind;

/* Paddle's name of a flag, or an alias that means the same. */
typedef struct flag {
    const char *name;
    flag_kind kind;
    size_t at;       /* its field, in run_options */
    int least, most; /* of a number */
} flag;

#define FIELD(name) offsetof(run_options, name)

static const flag flags[] = {
    {"server_num", FLAG_NUMBER, FIELD(n_server), 0, FL_MOST_SERVER},
    {"servers_max", FLAG_NUMBER, FIELD(servers_max), 1, FL_MOST_SERVER},
    {"worker_num", FLAG_NUMBER, FIELD(n_worker), 1, MOST_PROCESSES},
    {"trainer_num", FLAG_NUMBER, FIELD(n_worker), 1, MOST_PROCESSES},
    {"servers", FLAG_TEXT, FIELD(servers), 0, 0},
    {"workers", FLAG_TEXT, FIELD(workers), 0, 0},
    {"trainers", FLAG_TEXT, FIELD(workers), 0, 0},
    {"heter_worker_num", FLAG_TEXT, FIELD(heter_numbers), 0, 0},
    {"heter_workers", FLAG_TEXT, FIELD(heter_workers), 0, 0},
    {"heter_devices", FLAG_TEXT, FIELD(heter_devices), 0, 0},
    {"host", FLAG_TEXT, FIELD(host), 0, 0},
    {"start_port", FLAG_NUMBER, FIELD(start_port), 1, 65535},
    {"log_dir", FLAG_TEXT, FIELD(log_folder), 0, 0},
    {"job_id", FLAG_TEXT, FIELD(job), 0, 0},
    {"grace", FLAG_NUMBER, FIELD(grace), 0, MOST_SECONDS},
    {"collective", FLAG_SWITCH, FIELD(collective), 0, 0},
    {"nproc_per_node", FLAG_NUMBER, FIELD(nproc), 1, MOST_PROCESSES},
    {"nnodes", FLAG_NUMBER, FIELD(n_node), 1, MOST_PROCESSES},
    {"node_rank", FLAG_NUMBER, FIELD(node), 0, MOST_PROCESSES - 1},
    {"rank", FLAG_NUMBER, FIELD(node), 0, MOST_PROCESSES - 1},
    {"master", FLAG_TEXT, FIELD(master), 0, 0},
    {"ips", FLAG_TEXT, FIELD(ips), 0, 0},
    {"hosts", FLAG_TEXT, FIELD(ips), 0, 0},
    {"devices", FLAG_TEXT, FIELD(devices), 0, 0},
    {"gpus", FLAG_TEXT, FIELD(devices), 0, 0},
    {"keys", FLAG_TEXT, FIELD(keys), 0, 0},
    {"insecure", FLAG_SWITCH, FIELD(insecure), 0, 0},
    {"replicas", FLAG_NUMBER, FIELD(replicas), 1, MOST_COPIES},
    {"supervise", FLAG_SWITCH, FIELD(supervise), 0, 0},
    {"restarts", FLAG_NUMBER, FIELD(restarts), 0, MOST_RESTARTS},
    {"restart_window", FLAG_NUMBER, FIELD(restart_window), 1, MOST_SECONDS},
    {"restart_delay", FLAG_NUMBER, FIELD(restart_delay), 0, MOST_DELAY_S},
    {"journals", FLAG_TEXT, FIELD(journals), 0, 0},
    {"verbose", FLAG_SWITCH, FIELD(verbose), 0, 0},
    {"help", FLAG_SWITCH, FIELD(help), 0, 0},
    {"version", FLAG_SWITCH, FIELD(version), 0, 0},
};

enum { N_FLAG = sizeof flags / sizeof *flags };

fleet_status run_options_integer(const char *what, const char *text, int least,
                                 int most, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < least || value > most)
        return fl_fail(FLEET_EINVAL,
                       "%s: expected an integer from %d to %d, got \"%s\"",
                       what, least, most, text);
    *out = (int)value;
    return FLEET_OK;
}

int run_options_count(const char *list)
{
    int n = 1;

    for (; *list; list++)
        n += *list == ',';
    return n;
}

static fleet_status set_flag(run_options *o, const flag *f,
                             const char *argument, const char *value)
{
    void *at = (char *)o + f->at;

    if (f->kind == FLAG_SWITCH)
        *(bool *)at = true;
    else if (!value || !*value)
        return fl_fail(FLEET_EINVAL, "--%s: its value is missing", f->name);
    else if (f->kind == FLAG_NUMBER)
        return run_options_integer(argument, value, f->least, f->most, at);
    else
        *(const char **)at = value;
    return FLEET_OK;
}

/* getopt_long() gives flag i as i + 1, in optopt if its value is missing or
 * is one too many. It also takes a name that is cut short, which a later
 * flag might make ambiguous: that is refused. */
static fleet_status read_flag(run_options *o, const char *argument, int found)
{
    const int i = (found == '?' || found == ':' ? optopt : found) - 1;
    const flag *f = i >= 0 && i < N_FLAG ? &flags[i] : NULL;

    if (!f || strncmp(argument, "--", 2) != 0 ||
        strcspn(argument + 2, "=") != strlen(f->name))
        return fl_fail(FLEET_EINVAL, "unknown flag %s; --help lists them",
                       argument);
    if (found == '?')
        return fl_fail(FLEET_EINVAL, "--%s takes no value, got \"%s\"", f->name,
                       argument);
    return set_flag(o, f, argument, found == ':' ? NULL : optarg);
}

/* Up to the program, which is the first word that is no flag. */
static fleet_status read_flags(run_options *o, int argc, char **argv)
{
    struct option known[N_FLAG + 1] = {0};
    int found;

    for (int i = 0; i < N_FLAG; i++)
        known[i] = (struct option){.name = flags[i].name,
                                   .has_arg = flags[i].kind == FLAG_SWITCH
                                                  ? no_argument
                                                  : required_argument,
                                   .val = i + 1};
    opterr = 0;
    while (!o->help && !o->version) {
        const char *argument = argv[optind];

        found = getopt_long(argc, argv, "+:", known, NULL);
        if (found == -1)
            break;
        FL_TRY(read_flag(o, argument, found));
    }
    o->command = argv + optind;
    return FLEET_OK;
}

static fleet_status read_deadline(const char *name, int otherwise, int *ms)
{
    const char *text = getenv(name);

    *ms = otherwise;
    if (!text || !*text)
        return FLEET_OK;
    return run_options_integer(name, text, 1, MOST_SECONDS * 1000, ms);
}

static fleet_status find_deadlines(run_options *o)
{
    FL_TRY(read_deadline("FLEET_CONNECT_DEADLINE_MS", CONNECT_DEADLINE_MS,
                         &o->connect_ms));
    if (o->grace >= 0)
        o->grace_ms = o->grace * 1000;
    if (o->grace >= 0 && !o->meets)
        return FLEET_OK;
    FL_TRY(
        read_deadline("FLEET_PEER_DEADLINE_MS", PEER_DEADLINE_MS, &o->peer_ms));
    if (o->grace < 0)
        o->grace_ms = o->peer_ms + GRACE_MORE_MS;
    return FLEET_OK;
}

static int count_servers(const run_options *o)
{
    return o->servers ? run_options_count(o->servers)
                      : o->n_server * (o->meets ? o->n_node : 1);
}

/* One behind the other, those of servers that join behind all others. */
static fleet_status check_ports(const run_options *o)
{
    int n = (o->servers ? 0 : o->n_server) + (o->workers ? 0 : o->n_worker) +
            (o->heter_workers ? 0 : o->n_heter);

    if (o->start_port == 0)
        return FLEET_OK;
    if (n == 0)
        return fl_fail(FLEET_EINVAL, "--start_port is for numbers of servers "
                                     "and workers; lists have ports");
    if (o->servers_max > 0)
        n += o->servers_max - count_servers(o);
    if (o->start_port + n > 65536)
        return fl_fail(FLEET_EINVAL,
                       "--start_port: %d ports from %d on end above 65535", n,
                       o->start_port);
    return FLEET_OK;
}

/* Flags come before what the environment says. */
static fleet_status check_keys(run_options *o)
{
    const char *folder = getenv("FLEET_KEYS"), *off = getenv("FLEET_INSECURE");
    bool given = o->keys || o->insecure;

    if (!given && folder && *folder)
        o->keys = folder;
    if (!given && off && strcmp(off, "1") == 0)
        o->insecure = true;
    if (o->keys && o->insecure)
        return fl_fail(FLEET_EINVAL, "--keys and --insecure (or FLEET_KEYS and "
                                     "FLEET_INSECURE): give one");
    if (o->keys && strlen(o->keys) >= PATH_MAX)
        return fl_fail(FLEET_EINVAL, "--keys: the path is too long");
    return FLEET_OK;
}

/* What a process that died had is in journals, or in the copies of servers. */
static fleet_status check_supervision(run_options *o)
{
    const char *log = getenv("FLEET_LOG");

    if (!o->supervise &&
        (o->restarts >= 0 || o->restart_window >= 0 || o->restart_delay >= 0))
        return fl_fail(FLEET_EINVAL, "--restarts, --restart_window and "
                                     "--restart_delay are for --supervise");
    if (!o->supervise && o->journals)
        return fl_fail(FLEET_EINVAL, "--journals is for --supervise");
    if (o->restarts < 0)
        o->restarts = RESTARTS;
    if (o->restart_window < 0)
        o->restart_window = RESTART_WINDOW_S;
    if (o->restart_delay < 0)
        o->restart_delay = RESTART_DELAY_S;
    if (!o->supervise)
        return FLEET_OK;
    if (o->collective)
        return fl_fail(FLEET_EINVAL, "--supervise: ranks cannot be started "
                                     "again, one without the others");
    if (!o->servers && o->n_server == 0)
        return fl_fail(FLEET_EINVAL, "--supervise needs servers: give "
                                     "--server_num or --servers");
    if (o->replicas > 1 && o->journals)
        return fl_fail(FLEET_EINVAL,
                       "--replicas 2 (or FLEET_REPLICAS) and --journals: give "
                       "one; a server with replicas gets back what it had "
                       "from the other copies");
    if (o->replicas < 2 && log && strcmp(log, "none") == 0)
        return fl_fail(FLEET_EINVAL,
                       "--supervise: FLEET_LOG is none, so a server that is "
                       "started again would have nothing");
    return FLEET_OK;
}

/* The flag comes before what the environment says. */
static fleet_status check_replicas(run_options *o)
{
    const char *text = getenv("FLEET_REPLICAS");
    const int n_server = count_servers(o);

    if (o->replicas < 0 && text && *text)
        FL_TRY(run_options_integer("FLEET_REPLICAS", text, 1, MOST_COPIES,
                                   &o->replicas));
    if (o->replicas < 0)
        o->replicas = 1;
    if (o->replicas == 1)
        return FLEET_OK;
    if (n_server < 2)
        return fl_fail(FLEET_EINVAL,
                       "--replicas 2 (or FLEET_REPLICAS): the second copy of "
                       "what a server keeps is in another server: expected "
                       "two or more, got %d",
                       n_server);
    return FLEET_OK;
}

/* Of a folder who has made it has said so. */
static fleet_status check_servers_max(const run_options *o)
{
    const int n = count_servers(o);

    if (o->servers_max < 0 || (n >= 1 && o->servers_max >= n))
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "--servers_max is %d, and the job begins with %d servers: "
                   "expected servers, and at least as many",
                   o->servers_max, n);
}

static fleet_status check_flags(run_options *o)
{
    if (!o->command[0])
        return fl_fail(FLEET_EINVAL, "there is no program to start");
    if (o->servers && o->n_server >= 0)
        return fl_fail(FLEET_EINVAL, "--servers and --server_num: give one");
    if (o->workers && o->n_worker >= 0)
        return fl_fail(FLEET_EINVAL, "--workers and --worker_num: give one");
    FL_TRY(run_options_check_ranks(o));
    if (o->n_server < 0)
        o->n_server = 0;
    if (!o->servers && o->n_server == 0 && !o->collective &&
        (o->workers || o->n_worker > 1))
        return fl_fail(FLEET_EINVAL,
                       "several workers need servers: give --server_num or "
                       "--servers; or they are ranks: give --collective");
    FL_TRY(run_options_check_heter(o));
    FL_TRY(check_servers_max(o));
    FL_TRY(check_ports(o));
    FL_TRY(check_keys(o));
    FL_TRY(check_replicas(o));
    FL_TRY(check_supervision(o));
    return find_deadlines(o);
}

fleet_status run_options_read(run_options *o, int argc, char **argv)
{
    *o = (run_options){.n_server = -1,
                       .n_worker = -1,
                       .servers_max = -1,
                       .grace = -1,
                       .replicas = -1,
                       .restarts = -1,
                       .restart_window = -1,
                       .restart_delay = -1,
                       .nproc = -1,
                       .n_node = -1,
                       .node = -1,
                       .log_folder = "log",
                       .job = "default"};
    FL_TRY(read_flags(o, argc, argv));
    return o->help || o->version ? FLEET_OK : check_flags(o);
}
