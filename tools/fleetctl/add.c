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

/* The same; one that fleetrun starts has its address from there. */
static int find_known(const newcomer *n)
{
    return n->of_launcher ? -1 : find_address(n->role, n->address);
}

static bool runs_by_launcher(int server, fl_address address)
{
    bool runs = launcher_look(server, address) == FLEET_OK;

    fl_error_clear();
    return runs;
}

/* Lanes and copies of its process, but for its first place, which is none. */
static int count_guests(const asked_job *j, int server)
{
    int count, n = 0;
    const asked_lane *l = ask_lanes(j, &count);

    for (int i = 0; i < count; i++)
        n += l[i].server == server && l[i].number > 0;
    return n;
}

typedef enum place { PLACE_TAKEN, PLACE_FREE, PLACE_GETS_FREE } place;

/* All lanes are led, and none by that one, which says nothing: it has ended. Of
 * servers of that fleetrun's, one that has had no lane was started for an `add`
 * that was cut short; and one whose lanes have gone is about to end. */
static fleet_status look_at_place(const newcomer *n, int server, place *is)
{
    int count, leads[FL_MOST_SERVER];
    fl_address address;
    asked_job *j;

    FL_TRY(move_look(n->role, n->keys, server, &j));
    move_count(j, leads);
    *is = PLACE_TAKEN;
    if (!ask_lanes(j, &count)[ask_first_of(server)].is)
        *is = ask_is_whole(j) ? PLACE_FREE : PLACE_TAKEN;
    else if (leads[server] == 0 && n->of_launcher &&
             runs_by_launcher(server, address))
        *is = count_guests(j, server) > 0 ? PLACE_GETS_FREE : PLACE_FREE;
    ask_close(j);
    return FLEET_OK;
}

/* The number of one that has ended is free again: no more have keys than the
 * job began with. */
static fleet_status find_free(newcomer *n)
{
    const int64_t end_ms = fl_now_ms() + START_MS;
    place is = PLACE_TAKEN;
    int s = n->role->server_num;

    while (s < FL_MOST_SERVER && *n->role->server[s]) {
        FL_TRY(look_at_place(n, s, &is));
        if (is == PLACE_FREE)
            break;
        if (is == PLACE_GETS_FREE && fl_now_ms() < end_ms)
            poll(NULL, 0, AGAIN_MS);
        else
            s++;
    }
    n->server = s;
    return FLEET_OK;
}

static fleet_status start_it(newcomer *n)
{
    FL_TRY(launcher_start(n->server, n->address));
    memcpy(n->role->server[n->server], n->address, sizeof n->address);
    return FLEET_OK;
}

/* Known already, or the next number: servers that have joined were heard of. */
static fleet_status choose_number(newcomer *n)
{
    int known = find_known(n);

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
        return start_it(n);
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

/* One that was drained may have run yet as it was to be started: it is, once
 * more. */
static fleet_status look_at_process(newcomer *n, bool *again)
{
    fl_address address;
    fleet_status status = launcher_look(n->server, address);

    if (status != FLEET_ECHILD || *again)
        return status;
    *again = true;
    return start_it(n);
}

/* It may be about to start. */
static fleet_status look_for_it(newcomer *n, asked_job **j, int timeout_ms)
{
    int64_t end_ms = fl_now_ms() + timeout_ms;
    bool again = false;
    int count;

    for (;;) {
        FL_TRY(move_look(n->role, n->keys, n->server, j));
        if (ask_lanes(*j, &count)[ask_first_of(n->server)].is)
            return FLEET_OK;
        ask_close(*j);
        *j = NULL;
        if (n->of_launcher)
            FL_TRY(look_at_process(n, &again));
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
static fleet_status tell_servers(const newcomer *n, asked_job *j)
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
    return FLEET_OK;
}

/* fleetrun has started it, also if it was given by its address. */
static bool is_of_launcher(const newcomer *n)
{
    fl_address address = "";

    return n->of_launcher || (runs_by_launcher(n->server, address) &&
                              strcmp(address, n->address) == 0);
}

/* Lanes come to it now: from here on what becomes of it matters to the job. */
static fleet_status tell_launcher(const newcomer *n)
{
    return is_of_launcher(n) ? launcher_joined(n->server) : FLEET_OK;
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

static fleet_status gets_nothing(void)
{
    return fl_fail(FLEET_ESTATE,
                   "the server that joins gets nothing: no process has two "
                   "lanes, of which it could give one (FLEET_SERVER_LANES, "
                   "before the job begins)");
}

/* Before it is started, and known. One that is known may have its share. */
static fleet_status check_share(const newcomer *n, const asked_job *j)
{
    int count[FL_MOST_SERVER], known = find_known(n);

    move_count(j, count);
    return ask_is_whole(j) && (known < 0 || count[known] == 0) &&
                   count[find_fullest(count)] < 2
               ? gets_nothing()
               : FLEET_OK;
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
        return gets_nothing();
    FL_TRY(tell_launcher(n));
    while (any) {
        FL_TRY(
            move_lane(n->role, n->keys, server, lane, n->server, timeout_ms));
        FL_TRY(find_share(n, &server, &lane, &own, &any));
    }
    printf("server %d at %s has %d lane%s\n", n->server,
           fl_address_text(n->address), own, own == 1 ? "" : "s");
    return FLEET_OK;
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status find_place(newcomer *n)
{
    fleet_status status;
    asked_job *j;

    FL_TRY(move_look(n->role, n->keys, -1, &j));
    status = check_share(n, j);
    ask_close(j);
    FL_TRY(status);
    return choose_number(n);
}

static fleet_status meet(newcomer *n, int timeout_ms)
{
    asked_job *j;
    fleet_status status;

    FL_TRY(find_place(n));
    FL_TRY(look_for_it(n, &j, timeout_ms < START_MS ? timeout_ms : START_MS));
    status = check_it(n, j);
    if (status == FLEET_OK)
        status = tell_servers(n, j);
    ask_close(j);
    return status;
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
