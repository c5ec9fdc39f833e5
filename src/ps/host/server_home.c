/* server_home.c - lanes whose journals go with them: a lane that leaves this
 * process writes whose its journal is from then on; one that has come reads it,
 * and is made again from it, as a server is that comes back; and a process that
 * comes back finds which lanes are its own. docs/adr/0131. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "ps/control/lane_move.h"
#include "ps/host/server_internal.h"
#include "ps/journal/lane_home.h"

_Static_assert((int)FL_HOME_TEXT == (int)FL_LANE_TEXT, "one text");

static bool has_log(const fl_server *s)
{
    return s->o.log.level != FL_NO_LOG;
}

/* --- a lane that leaves --------------------------------------------------- */

fleet_status fl_runner_count_move(void *arg, uint32_t least, uint32_t *number)
{
    const fl_lane_runner *r = arg;

    return fl_lane_home_count(r->server->home.folder, r->number, least, number);
}

fleet_status fl_runner_leave(void *arg, int server, uint32_t view,
                             const char *address)
{
    fl_lane_runner *r = arg;
    fl_lane_home home = {.server = server,
                         .view = view,
                         .run = atomic_load(&r->server->identity.run)};

    if (!address || strlen(address) >= sizeof home.address)
        return fl_fail(FLEET_EINVAL, "it is not known where it goes");
    strcpy(home.address, address);
    FL_TRY(fl_journal_settle(r->journal));
    FL_TRY(fl_lane_home_write(r->server->home.folder, r->number, &home));
    fl_journal_writer_destroy(r->journal);
    r->journal = NULL;
    return FLEET_OK;
}

bool fl_runner_home(void *arg, uint32_t *view, char address[FL_LANE_TEXT])
{
    const fl_lane_runner *r = arg;
    fl_lane_home home = {0};
    bool found = false;

    if (fl_lane_home_read(r->server->home.folder, r->number, &home, &found) !=
            FLEET_OK ||
        !found)
        return false; /* it is asked again */
    *view = home.view;
    memcpy(address, home.address, sizeof home.address);
    return true;
}

/* --- a server that comes back --------------------------------------------- */

/* fleetctl learns from the listed servers which ones have joined: no other one
 * may have heard of it. */
static void know_again(fl_server *s, const fl_lane_home *home)
{
    fl_json *json = NULL;
    const char *at = "";

    if (home->server < s->o.n_server || home->server >= FL_MOST_SERVER ||
        fl_json_parse(home->address, strlen(home->address), "home", &json) !=
            FLEET_OK)
        return;
    fl_at root = fl_at_root(json), where = fl_at_key(&root, "home");

    if (fl_at_string(&where, &at) == FLEET_OK && strlen(at) < sizeof *s->joined)
        strcpy(s->joined[home->server], at);
    fl_json_free(json);
}

fleet_status fl_server_find_homes(fl_server *s)
{
    for (int i = 1; s->comes_back && !s->o.host && i < s->n_runner; i++) {
        fl_lane_home home = {0};
        bool found;

        FL_TRY(fl_lane_home_read(s->home.folder, i, &home, &found));
        if (!found)
            continue;
        s->runner[i].gone_view = home.view;
        know_again(s, &home);
    }
    return FLEET_OK;
}

void fl_server_forget_homes(const fl_server *s)
{
    for (int i = 1; i < s->n_runner; i++)
        fl_lane_home_remove(s->home.folder, i);
}

/* How many that server began with: which lane has a bucket follows from it. */
static fleet_status count_lanes(fl_journal_folder *of, int64_t *n)
{
    fl_json *json = NULL;
    fleet_status status;

    if (!of->text)
        FL_TRY(fl_journal_folder_read(of));
    if (!of->text)
        return fl_fail(FLEET_ECORRUPT, "the log %s has no text", of->folder);
    status = fl_json_parse(of->text, strlen(of->text), "log", &json);
    if (status == FLEET_OK) {
        const fl_at root = fl_at_root(json);
        fl_at lanes = fl_at_key(&root, "lanes");

        status = fl_at_required(&lanes);
        if (status == FLEET_OK)
            status = fl_at_int(&lanes, 1, FL_MOST_LANE, n);
    }
    fl_json_free(json);
    return status;
}

/* Which process has written that address: the nonce of its server, which those
 * that come back have, too, and no server of a later job. */
static uint32_t nonce_of(const char *address)
{
    fl_json *json = NULL;
    int64_t nonce = 0;

    if (fl_json_parse(address, strlen(address), "home", &json) == FLEET_OK) {
        const fl_at root = fl_at_root(json);
        fl_at at = fl_at_key(&root, "nonce");

        if (fl_at_int(&at, 0, UINT32_MAX, &nonce) != FLEET_OK)
            nonce = 0;
    }
    fl_json_free(json);
    return (uint32_t)nonce;
}

/* A folder may have what an earlier job has left, until its server begins: so
 * the lane was given to this server, and in this run. One of the list knows its
 * run by the first record of its own lanes; one that has joined need not. */
static bool is_own(const fl_server *s, const fl_lane_home *home)
{
    uint32_t run = atomic_load(&s->identity.run);

    return home->server == s->o.index &&
           nonce_of(home->address) == atomic_load(&s->identity.nonce) &&
           (home->run == run || (run == 0 && s->o.joins));
}

static fleet_status look_at_lane(fl_server *s, int server, int lane,
                                 fl_journal_folder *of)
{
    fl_lane_home home = {0};
    int64_t lanes = 0;
    bool found;

    FL_TRY(fl_lane_home_read(of->folder, lane, &home, &found));
    if (!found || !is_own(s, &home))
        return FLEET_OK;
    FL_TRY(count_lanes(of, &lanes));
    return fl_server_return_guest(s, server, lane, (int)lanes, home.address);
}

/* Which of another server's lanes are this one's. The first folder that is not
 * there is the end of them. */
static fleet_status look_at_server(fl_server *s, int server)
{
    fl_journal_folder of = {.lock = -1};
    fleet_status status = FLEET_OK;
    char name[24];

    fl_journal_folder_name(server, name);
    of.folder = fl_path_join(s->o.log.folder, name);
    if (!of.folder)
        return FLEET_ENOMEM;
    for (int i = 1; i < FL_MOST_LANE && status == FLEET_OK; i++) {
        char *lane = fl_journal_folder_lane(&of, i);
        bool there = lane && fl_file_exists(lane);

        fl_free(lane);
        if (!there)
            break;
        status = look_at_lane(s, server, i, &of);
    }
    fl_journal_folder_close(&of);
    return status;
}

void fl_server_find_guests(fl_server *s)
{
    if (!has_log(s) || s->o.host || s->o.no_move ||
        (!s->comes_back &&
         !atomic_load(&s->has_taken))) /* what it finds is of an old job */
        return;
    for (int i = 0; i < s->o.n_server; i++)
        if (look_at_server(s, i) != FLEET_OK)
            FL_WARN(&s->o.context->log,
                    "server %d: whether lanes of server %d are its own is not "
                    "known yet: %s",
                    s->o.index, i, fleet_last_error());
}

/* --- a lane that has come ------------------------------------------------- */

/* Ports and paths at which workers look for it. */
static void take_address(fl_server *s, const fl_json *json)
{
    const fl_at root = fl_at_root(json);
    fl_at port = fl_at_key(&root, "port"), ipc = fl_at_key(&root, "ipc");
    const char *path = "", *slash;
    int64_t number = 0;

    if (fl_at_int(&port, 0, 65535, &number) == FLEET_OK)
        s->port[s->o.only_lane] = (int)number;
    if (fl_at_string(&ipc, &path) != FLEET_OK || !(slash = strrchr(path, '/')))
        return;
    s->mark = (uint32_t)strtoul(slash + 1, NULL, 16);
    snprintf(s->sockets, sizeof s->sockets, "%.*s", (int)(slash - path), path);
}

static fleet_status take_identity(fl_server *s, const fl_json *json)
{
    const fl_at root = fl_at_root(json);
    fl_at nonce = fl_at_key(&root, "nonce"), job = fl_at_key(&root, "job");
    fl_at lanes = fl_at_key(&root, "lanes");
    const char *of = "";
    int64_t number = 0, n = 0;

    FL_TRY(fl_at_required(&nonce));
    FL_TRY(fl_at_int(&nonce, 1, UINT32_MAX, &number));
    FL_TRY(fl_at_required(&lanes));
    FL_TRY(fl_at_int(&lanes, 1, FL_MOST_LANE, &n));
    FL_TRY(fl_at_required(&job));
    FL_TRY(fl_at_string(&job, &of));
    if (strcmp(of, s->o.job) != 0 || n <= s->o.only_lane)
        return fl_fail(FLEET_EINVAL,
                       "it is of job \"%.100s\" with %d lanes: expected job "
                       "\"%.100s\" and lane %d",
                       of, (int)n, s->o.job, s->o.only_lane);
    atomic_store(&s->identity.nonce, (uint32_t)number);
    return fl_server_read_beginning(s, &root);
}

static fleet_status parse_for(fl_server *s, const char *text, bool identity)
{
    fl_json *json = NULL;
    fleet_status status = fl_json_parse(text, strlen(text), "log", &json);

    if (status == FLEET_OK && identity)
        status = take_identity(s, json);
    else if (status == FLEET_OK)
        take_address(s, json);
    fl_json_free(json);
    return status;
}

/* That of the server with which the lane began: its process may run, and has
 * the folder's lock. */
static fleet_status read_identity(fl_server *s)
{
    char name[24];

    fl_journal_folder_name(s->o.index, name);
    s->home.folder = fl_path_join(s->o.log.folder, name);
    if (!s->home.folder)
        return FLEET_ENOMEM;
    FL_TRY(fl_journal_folder_read(&s->home));
    if (!s->home.text)
        return fl_fail(FLEET_ENOENT,
                       "server %d does not find the log of server %d, %s: with "
                       "strategy.log lanes move where all servers have one "
                       "folder for their logs (log_configs.folder)",
                       s->o.host->o.index, s->o.index, s->home.folder);
    return parse_for(s, s->home.text, true);
}

fleet_status fl_guest_log_open(fl_server *s)
{
    FL_TRY(read_identity(s));
    if (!s->o.returns)
        return FLEET_OK;
    FL_TRY(parse_for(s, s->o.returns, false));
    return *s->sockets ? fl_ipc_folder_again(&s->folder, s->sockets) : FLEET_OK;
}

/* The journal is this process's as soon as its server's folder says so. */
void fl_runner_come_home(fl_lane_runner *r)
{
    fl_server *s = r->server;
    fl_lane_home home = {0};
    bool found = false;

    if (!has_log(s) || !s->o.host ||
        fl_lane_replica(r->lane) != FL_REPLICA_FOLLOWS ||
        fl_lane_state_of(r->lane) != FL_LANE_RUNS)
        return;
    if (fl_lane_home_read(s->home.folder, r->number, &home, &found) !=
            FLEET_OK ||
        !found || home.server != s->o.host->o.index ||
        strcmp(home.address, s->o.returns ? s->o.returns : r->address) != 0)
        return;
    fl_lane_begin_lead(r->lane, home.view, fl_now_ms());
    atomic_store(&s->n_reading, 1);
    fl_runner_begin_replay(r);
}
