/* fleetctl.c - asks the servers of a job that runs what they have, and lets
 * lanes go from one to another; docs/elastic.md. It finds them as a worker
 * does, by the environment or by flags. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleetctl/add.h"
#include "fleetctl/ask.h"
#include "fleetctl/environ.h"
#include "fleetctl/move.h"
#include "fleetctl/show.h"
#include "net/keys.h"

enum { FAILED = 1, CALLED_WRONGLY = 2, TIMEOUT_MS = 5000, MOVE_MS = 600000 };

static const char usage[] =
    "usage: fleetctl [FLAGS] status\n"
    "       fleetctl [FLAGS] move SERVER:LANE TO\n"
    "       fleetctl [FLAGS] drain SERVER\n"
    "       fleetctl [FLAGS] add [ADDRESS]\n"
    "status: what the servers of a job that runs have: lanes, rows, versions,\n"
    "workers. move: the lane goes to the process of server TO. drain: all "
    "that\n"
    "the process of a server has goes to the other ones. add: a server that "
    "the\n"
    "job's fleetrun starts, or the one at that ip:port, which was started "
    "with\n"
    "FLEET_JOIN, joins the job, and gets lanes of those that have most.\n"
    "\n"
    "  --pid PID       a process of the job, of this user: what follows is in\n"
    "                  its environment\n"
    "  --servers LIST  their endpoints (PADDLE_PSERVERS_IP_PORT_LIST)\n"
    "  --job_id ID     (PADDLE_JOB_ID, or default)\n"
    "  --keys FOLDER   with control-0.secret (FLEET_KEYS)\n"
    "  --timeout MS    until who is silent is said to be (5000); of a move,\n"
    "                  until it must be over (600000)\n"
    "  --json          JSON, and no table\n"
    "  --help\n"
    "\n"
    "It ends with 1 if a server does not answer, and with 2 if it is called\n"
    "wrongly or refused, or a lane stays where it is.\n";

typedef struct options {
    const char *servers, *job, *keys, *command;
    int timeout_ms, pid;
    int server, lane, to; /* of a move; lane -1: all */
    const char *address;  /* of a server to add; NULL: fleetrun starts one */
    bool json, help;
} options;

static bool read_number(const char *text, int *n)
{
    char *end;
    long value = strtol(text, &end, 10);

    *n = (int)value;
    return *text && !*end && value > 0 && value <= 1 << 30;
}

static bool read_flag(options *o, int found)
{
    switch (found) {
    case 'p':
        return read_number(optarg, &o->pid);
    case 't':
        return read_number(optarg, &o->timeout_ms);
    case 's':
        o->servers = optarg;
        return true;
    case 'j':
        o->job = optarg;
        return true;
    case 'k':
        o->keys = optarg;
        return true;
    case 'J':
        return o->json = true;
    case 'h':
        return o->help = true;
    default:
        return false;
    }
}

static bool read_command(options *o, int n, char **word)
{
    char more;

    o->command = n > 0 ? word[0] : "";
    o->lane = -1;
    if (strcmp(o->command, "move") == 0)
        return n == 3 &&
               sscanf(word[1], "%d:%d%c", &o->server, &o->lane, &more) == 2 &&
               o->lane >= 0 && sscanf(word[2], "%d%c", &o->to, &more) == 1;
    if (strcmp(o->command, "drain") == 0)
        return n == 2 && sscanf(word[1], "%d%c", &o->server, &more) == 1;
    if (strcmp(o->command, "add") == 0) {
        o->address = n == 2 ? word[1] : NULL;
        return n <= 2;
    }
    return strcmp(o->command, "status") == 0 && n == 1;
}

static bool read_flags(options *o, int argc, char **argv)
{
    static const struct option known[] = {
        {"pid", required_argument, NULL, 'p'},
        {"servers", required_argument, NULL, 's'},
        {"job_id", required_argument, NULL, 'j'},
        {"keys", required_argument, NULL, 'k'},
        {"timeout", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'J'},
        {"help", no_argument, NULL, 'h'},
        {0}};
    int found;

    while ((found = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!read_flag(o, found))
            return false;
    return o->help || read_command(o, argc - optind, argv + optind);
}

/* As a subscriber comes: with the servers of the job, and a key of its own. */
static fleet_status open_role(const options *o, fl_role *role, fl_keys **keys)
{
    const char *servers =
        o->servers ? o->servers : getenv("PADDLE_PSERVERS_IP_PORT_LIST");
    const fleet_role worker = {.server_endpoints = servers,
                               .job_id =
                                   o->job ? o->job : getenv("PADDLE_JOB_ID")};
    const fleet_options as = {.role = &worker, .keys = ""};

    if ((!servers || !*servers) && o->pid > 0)
        return fl_fail(FLEET_ENOENT,
                       "process %d has no PADDLE_PSERVERS_IP_PORT_LIST in its "
                       "environment: expected a server or a worker of a job, "
                       "which fleetrun itself is not",
                       o->pid);
    if (!servers || !*servers)
        return fl_fail(FLEET_ENOENT,
                       "there are no servers to ask: expected --servers, --pid "
                       "or PADDLE_PSERVERS_IP_PORT_LIST");
    FL_TRY(fl_role_open(role, &as));
    return fl_role_read_keys(role, o->keys, FL_ROLE_CONTROL, 0, keys);
}

static fleet_status show_status(const options *o, const fl_role *role,
                                const fl_keys *keys, int *silent)
{
    asked_job *j;
    fleet_status status;

    FL_TRY(ask_open(&j, role, keys));
    status = ask_all(j, -1, o->timeout_ms ? o->timeout_ms : TIMEOUT_MS);
    if (status == FLEET_OK)
        *silent = o->json ? show_json(j, role) : show_table(j, role);
    ask_close(j);
    if (status == FLEET_OK && *silent < 0)
        return fl_fail(FLEET_EIO, "stdout cannot be written");
    return status;
}

static fleet_status do_command(const options *o, const fl_role *role,
                               const fl_keys *keys, int *silent)
{
    int move_ms = o->timeout_ms ? o->timeout_ms : MOVE_MS;
    fleet_status status;

    if (strcmp(o->command, "status") == 0)
        return show_status(o, role, keys, silent);
    if (strcmp(o->command, "add") == 0)
        status = add_server(role, keys, o->address, move_ms);
    else if (o->lane >= 0)
        status = move_lane(role, keys, o->server, o->lane, o->to, move_ms);
    else
        status = move_all(role, keys, o->server, move_ms);
    fflush(stdout);
    return status;
}

int main(int argc, char **argv)
{
    options o = {0};
    fl_role role = {.listen_fd = -1};
    fl_keys *keys = NULL;
    fleet_status status = FLEET_OK;
    int silent = 0;

    if (!read_flags(&o, argc, argv))
        return fputs(usage, stderr), CALLED_WRONGLY;
    if (o.help)
        return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
    if (o.pid > 0)
        status = environ_of(o.pid);
    if (status == FLEET_OK)
        status = open_role(&o, &role, &keys);
    if (status == FLEET_OK)
        status = do_command(&o, &role, keys, &silent);
    if (status != FLEET_OK)
        fprintf(stderr, "fleetctl: %s\n", fleet_last_error());
    fl_role_done(&role);
    fl_keys_destroy(keys);
    return status != FLEET_OK ? CALLED_WRONGLY : silent > 0 ? FAILED : 0;
}
