/* add.c - a server that joins is met, made known, and given its share. */
#include "add.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "base/clock.h"
#include "fleet/role/env.h"
#include "launcher.h"
#include "move.h"
#include "ps/control/control.h"
#include "ps/worker/handshake.h"
#include "said.h"

enum { START_MS = 20000, AGAIN_MS = 100, TELL_MS = 5000 };

typedef struct newcomer {
    const fl_role *role;
    const fl_keys *keys;
    fl_address address;
    int server;
    bool of_launcher; /* fleetrun has started it */
} newcomer;

/* --- who it is ------------------------------------------------------------ */

/* The number by which the job knows the address; else -1. */
static int find_address(const fl_role *role, const fl_address address)
{
    for (int s = 0; s < FL_MOST_SERVER; s++)
        if (strcmp(role->server[s], address) == 0)
            return s;
    return -1;
}

/* All lanes are led, and none by that one, which says nothing: it has ended. */
static fleet_status has_ended(const newcomer *n, int server, bool *ended)
{
    asked_job *j;
    int count;

    FL_TRY(move_look(n->role, n->keys, server, &j));
    *ended = !ask_lanes(j, &count)[ask_first_of(server)].is && ask_is_whole(j);
    ask_close(j);
    return FLEET_OK;
}

/* The number of one that has ended is free again: no more have keys than the
 * job began with. */
static fleet_status find_free(newcomer *n)
{
    bool ended = false;
    int s = n->role->server_num;

    for (; s < FL_MOST_SERVER && *n->role->server[s]; s++) {
        FL_TRY(has_ended(n, s, &ended));
        if (ended)
            break;
    }
    n->server = s;
    return FLEET_OK;
}

/* Known already, or the next number: servers that have joined were heard of. */
static fleet_status choose_number(newcomer *n)
{
    int known = n->of_launcher ? -1 : find_address(n->role, n->address);

    if (known >= 0 && known < n->role->server_num)
        return fl_fail(FLEET_EINVAL,
                       "%s is server %d, with which the job began: expected "
                       "the address of a server that was started with "
                       "FLEET_JOIN",
                       fl_address_text(n->address), known);
    n->server = known;
    if (known < 0)
        FL_TRY(find_free(n));
    if (n->server == FL_MOST_SERVER)
        return fl_fail(FLEET_EUNSUPPORTED, "a job has at most %d servers",
                       FL_MOST_SERVER);
    if (n->of_launcher)
        FL_TRY(launcher_start(n->server, n->address));
    memcpy(n->role->server[n->server], n->address, sizeof n->address);
    return FLEET_OK;
}

/* What any lane says that a process leads. */
static const char *program_of_job(const asked_job *j)
{
    int n;
    const asked_lane *l = ask_lanes(j, &n);

    for (int i = 0; i < n; i++) {
        fl_at at = fl_at_root(l[i].is);

        if (l[i].is && said_leads(&l[i]))
            return said_text(&at, "program");
    }
    return NULL;
}

static fleet_status check_it(const newcomer *n, const asked_job *j)
{
    int count;
    fl_at at = fl_at_root(ask_lanes(j, &count)[ask_first_of(n->server)].is);
    const char *own = said_text(&at, "program"), *job = program_of_job(j);
    int64_t server = said_number(&at, "server");

    if (server != n->server)
        return fl_fail(FLEET_EINVAL,
                       "%s says that it is server %d: expected FLEET_JOIN=%d "
                       "there, the next number of this job",
                       fl_address_text(n->address), (int)server, n->server);
    if (job && strcmp(own, job) != 0)
        return fl_fail(FLEET_EINVAL,
                       "server %d at %s has another program, strategy or "
                       "number of workers than the job: expected the same",
                       n->server, fl_address_text(n->address));
    return FLEET_OK;
}

/* It may be about to start. */
static fleet_status look_for_it(newcomer *n, asked_job **j, int timeout_ms)
{
    int64_t end_ms = fl_now_ms() + timeout_ms;
    int count;

    for (;;) {
        FL_TRY(move_look(n->role, n->keys, n->server, j));
        if (ask_lanes(*j, &count)[ask_first_of(n->server)].is)
            return FLEET_OK;
        ask_close(*j);
        *j = NULL;
        if (n->of_launcher)
            FL_TRY(launcher_look(n->server));
        if (fl_now_ms() >= end_ms)
            return fl_fail(FLEET_ETIMEDOUT,
                           "no server answers at %s: expected one that was "
                           "started with FLEET_JOIN=%d",
                           fl_address_text(n->address), n->server);
        poll(NULL, 0, AGAIN_MS);
    }
}

/* --- what others hear ----------------------------------------------------- */

/* Whoever is asked where lanes are knows it then. It itself is the first: it
 * refuses an address that is not the one that it tells workers. */
static fleet_status tell_all(const newcomer *n, asked_job *j)
{
    char words[40 + sizeof(fl_address)];
    int count;
    const asked_lane *l = ask_lanes(j, &count);

    snprintf(words, sizeof words, "%s%d %s", FL_CONTROL_KNOW, n->server,
             n->address);
    FL_TRY(ask_command(j, ask_first_of(n->server), words, TELL_MS));
    for (int s = 0; s < FL_MOST_SERVER; s++)
        if (l[ask_first_of(s)].is)
            FL_TRY(ask_command(j, ask_first_of(s), words, TELL_MS));
    fprintf(stderr, "server %d joins at %s\n", n->server,
            fl_address_text(n->address));
    return n->of_launcher ? launcher_joined(n->server) : FLEET_OK;
}

static fleet_status meet(newcomer *n, int timeout_ms)
{
    asked_job *j;
    fleet_status status;

    FL_TRY(move_look(n->role, n->keys, -1, &j));
    ask_close(j);
    FL_TRY(choose_number(n));
    FL_TRY(look_for_it(n, &j, timeout_ms < START_MS ? timeout_ms : START_MS));
    status = check_it(n, j);
    if (status == FLEET_OK)
        status = tell_all(n, j);
    ask_close(j);
    return status;
}

/* --- its share ------------------------------------------------------------ */

static int find_fullest(const int count[FL_MOST_SERVER])
{
    int best = 0;

    for (int s = 1; s < FL_MOST_SERVER; s++)
        if (count[s] > count[best])
            best = s;
    return best;
}

/* false: no process has two lanes more than it. */
static fleet_status find_share(const newcomer *n, int *server, int *lane,
                               int *own, bool *any)
{
    int count[FL_MOST_SERVER], from;
    asked_job *j;

    FL_TRY(move_look(n->role, n->keys, n->server, &j));
    move_count(j, count);
    from = find_fullest(count);
    *own = count[n->server];
    *any = count[from] > *own + 1 && move_find_next(j, from, server, lane);
    ask_close(j);
    return FLEET_OK;
}

static fleet_status share(const newcomer *n, int timeout_ms)
{
    int server, lane, own;
    bool any;

    FL_TRY(find_share(n, &server, &lane, &own, &any));
    if (!any && own == 0)
        return fl_fail(FLEET_ESTATE,
                       "server %d gets nothing: no process has two lanes, of "
                       "which it could give one (FLEET_SERVER_LANES, before "
                       "the job begins)",
                       n->server);
    while (any) {
        FL_TRY(
            move_lane(n->role, n->keys, server, lane, n->server, timeout_ms));
        FL_TRY(find_share(n, &server, &lane, &own, &any));
    }
    printf("server %d at %s has %d lane%s\n", n->server,
           fl_address_text(n->address), own, own == 1 ? "" : "s");
    return FLEET_OK;
}

fleet_status add_server(const fl_role *role, const fl_keys *keys,
                        const char *endpoint, int timeout_ms)
{
    newcomer n = {.role = role, .keys = keys, .of_launcher = !endpoint};

    if (endpoint)
        FL_TRY(fl_read_endpoint("add", endpoint, strlen(endpoint), n.address));
    FL_TRY(meet(&n, timeout_ms));
    return share(&n, timeout_ms);
}
