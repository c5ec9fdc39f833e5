/* move.c - a move is asked for at both ends, and watched. */
#include "move.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "ask.h"
#include "base/clock.h"
#include "base/json/json_write.h"
#include "base/memory.h"
#include "ps/control/control.h"
#include "said.h"

enum { LOOK_MS = 1000, AGAIN_MS = 100, FIND_MS = 10000, LOST_MS = 60000 };

typedef struct wanted_move {
    const fl_role *role;
    const fl_keys *keys;
    int server, lane, from, to;
    bool waits; /* for what the lane does, and that is said */
} wanted_move;

/* --- which lane is where -------------------------------------------------- */

/* Its place of ask_lanes(); -1: no process says that it leads it. */
static int find_lane(const asked_job *j, int server, int lane)
{
    int n;
    const asked_lane *l = ask_lanes(j, &n);

    for (int i = 0; i < n; i++) {
        fl_at at = fl_at_root(l[i].is);

        if (l[i].is && said_leads(&l[i]) &&
            said_number(&at, "server") == server &&
            said_number(&at, "lane") == lane)
            return i;
    }
    return -1;
}

fleet_status move_look(const fl_role *role, const fl_keys *keys, int also,
                       asked_job **j)
{
    fleet_status status;

    FL_TRY(ask_open(j, role, keys));
    status = ask_all(*j, also < FL_MOST_SERVER ? also : -1, LOOK_MS);
    if (status == FLEET_OK)
        return FLEET_OK;
    ask_close(*j);
    *j = NULL;
    return status;
}

/* --- a move --------------------------------------------------------------- */

static char *describe_wanted(const wanted_move *m, const fl_at *lane)
{
    fl_json *json = fl_json_object();
    char *text = NULL;
    fleet_status status = FLEET_OK;
    const struct {
        const char *key;
        int64_t value;
    } number[] = {{"server", m->server},
                  {"lane", m->lane},
                  {"lanes", said_number(lane, "lanes")},
                  {"at", m->from}};

    for (int i = 0; i < 4 && status == FLEET_OK; i++)
        status = fl_json_put(json, number[i].key, fl_json_int(number[i].value));
    if (status == FLEET_OK)
        status = fl_json_put(json, "address",
                             fl_json_string(said_text(lane, "address")));
    if (status == FLEET_OK)
        status =
            fl_json_put(json, "home", fl_json_string(m->role->server[m->from]));
    if (status == FLEET_OK)
        text = fl_json_print(json, false);
    fl_json_free(json);
    return text;
}

static fleet_status tell_taker(asked_job *j, const wanted_move *m,
                               const fl_at *lane, int timeout_ms)
{
    char *what = describe_wanted(m, lane), words[2000];

    if (!what)
        return FLEET_ENOMEM;
    snprintf(words, sizeof words, "%s%s", FL_CONTROL_TAKE, what);
    fl_free(what);
    return ask_command(j, ask_first_of(m->to), words, timeout_ms);
}

/* Where it is is known: both ends are told. */
static fleet_status begin_move(asked_job *j, wanted_move *m, int timeout_ms)
{
    int n, at = find_lane(j, m->server, m->lane);
    const asked_lane *all = ask_lanes(j, &n);
    char words[40 + sizeof(fl_address)];
    bool joined = m->to >= m->role->server_num;
    fl_at lane;

    if (at < 0)
        return fl_fail(FLEET_ENOENT,
                       "no process says that it leads lane %d of server %d",
                       m->lane, m->server);
    m->from = all[at].server;
    if (m->from == m->to)
        return FLEET_OK;
    if (!all[ask_first_of(m->to)].is)
        return fl_fail(FLEET_ETIMEDOUT, "server %d does not answer", m->to);
    lane = fl_at_root(all[at].is);
    snprintf(words, sizeof words, "%s%d%s%s", FL_CONTROL_GIVE, m->to,
             joined ? " " : "", joined ? m->role->server[m->to] : "");
    FL_TRY(ask_command(j, at, words, timeout_ms));
    return tell_taker(j, m, &lane, timeout_ms);
}

static void say_that_it_waits(wanted_move *m, const fl_at *lane)
{
    if (m->waits || strcmp(said_text(lane, "state"), FL_CONTROL_BUSY) != 0)
        return;
    m->waits = true;
    fprintf(stderr,
            "server %d, lane %d: it waits until its save, load or hash is "
            "over\n",
            m->server, m->lane);
}

static fleet_status judge(wanted_move *m, const asked_lane *l, bool *done)
{
    fl_at lane = fl_at_root(l->is);

    *done = l->server == m->to;
    if (*done)
        printf("server %d, lane %d: from server %d to server %d, with update "
               "%" PRId64 "\n",
               m->server, m->lane, m->from, m->to,
               said_number(&lane, "version"));
    else if (said_number(&lane, "moves_to") != m->to)
        return fl_fail(FLEET_ESTATE,
                       "lane %d of server %d stays at server %d: the move was "
                       "given up, as that one's log says",
                       m->lane, m->server, m->from);
    else
        say_that_it_waits(m, &lane);
    return FLEET_OK;
}

/* Until the taker leads it. */
static fleet_status look_whether_moved(wanted_move *m, bool *found, bool *done)
{
    asked_job *j;
    fleet_status status = FLEET_OK;
    int at, n;

    FL_TRY(move_look(m->role, m->keys, -1, &j));
    at = find_lane(j, m->server, m->lane);
    *found = at >= 0;
    if (at >= 0)
        status = judge(m, &ask_lanes(j, &n)[at], done);
    ask_close(j);
    return status;
}

static fleet_status await_move(wanted_move *m, int timeout_ms)
{
    int64_t end_ms = fl_now_ms() + timeout_ms, found_ms = fl_now_ms();
    bool found, done = false;

    while (!done && fl_now_ms() < end_ms) {
        poll(NULL, 0, AGAIN_MS);
        FL_TRY(look_whether_moved(m, &found, &done));
        if (found)
            found_ms = fl_now_ms();
        else if (fl_now_ms() - found_ms > LOST_MS)
            return fl_fail(FLEET_ENOENT,
                           "no process says any more that it leads lane %d of "
                           "server %d: the job may have ended",
                           m->lane, m->server);
    }
    if (done)
        return FLEET_OK;
    return fl_fail(FLEET_ETIMEDOUT,
                   "lane %d of server %d is still at server %d (--timeout); "
                   "the move goes on",
                   m->lane, m->server, m->from);
}

/* One that has joined is known when the others were asked. */
static fleet_status check_server(const fl_role *role, int server)
{
    if (server >= 0 && server < FL_MOST_SERVER && *role->server[server])
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "there is no server %d: expected 0 to %d, or one that has "
                   "joined (fleetctl add)",
                   server, role->server_num - 1);
}

fleet_status move_lane(const fl_role *role, const fl_keys *keys, int server,
                       int lane, int to, int timeout_ms)
{
    wanted_move m = {role, keys, server, lane, -1, to, false};
    asked_job *j;
    fleet_status status;

    FL_TRY(move_look(role, keys, to, &j));
    status = check_server(role, to);
    if (status == FLEET_OK)
        status = begin_move(j, &m, timeout_ms);
    ask_close(j);
    FL_TRY(status);
    if (m.from != to)
        return await_move(&m, timeout_ms);
    printf("server %d, lane %d: is at server %d\n", server, lane, to);
    return FLEET_OK;
}

/* --- all of a server ------------------------------------------------------ */

void move_count(const asked_job *j, int count[FL_MOST_SERVER])
{
    int n;
    const asked_lane *l = ask_lanes(j, &n);

    memset(count, 0, FL_MOST_SERVER * sizeof *count);
    for (int i = 0; i < n; i++)
        if (l[i].is && said_leads(&l[i]))
            count[l[i].server]++;
}

/* The server, but that one, whose process has the fewest lanes that lead, of
 * those that answer; -1: none does. One without lanes is about to end. */
static int find_emptiest(const asked_job *j, int without)
{
    int n, count[FL_MOST_SERVER], best = -1;
    const asked_lane *l = ask_lanes(j, &n);

    move_count(j, count);
    for (int s = 0; s < FL_MOST_SERVER; s++)
        if (s != without && count[s] > 0 && l[ask_first_of(s)].is &&
            (best < 0 || count[s] < count[best]))
            best = s;
    return best;
}

bool move_find_next(const asked_job *j, int process, int *server, int *lane)
{
    int n;
    const asked_lane *l = ask_lanes(j, &n);
    bool any = false;

    for (int i = 0; i < n; i++) {
        fl_at at = fl_at_root(l[i].is);

        if (!l[i].is || l[i].server != process || !said_leads(&l[i]))
            continue;
        *server = (int)said_number(&at, "server");
        *lane = (int)said_number(&at, "lane");
        any = true;
        if (said_number(&at, "stays") != 1)
            return true;
    }
    return any;
}

fleet_status move_all(const fl_role *role, const fl_keys *keys, int server,
                      int timeout_ms)
{
    const int find_ms = timeout_ms < FIND_MS ? timeout_ms : FIND_MS;
    int64_t end_ms = fl_now_ms() + find_ms;
    int of, lane, to;
    asked_job *j;
    bool any, whole = false;

    while (!whole) {
        FL_TRY(move_look(role, keys, server, &j));
        if (check_server(role, server) != FLEET_OK) {
            ask_close(j);
            return fl_last_code();
        }
        any = move_find_next(j, server, &of, &lane);
        whole = !any && ask_is_whole(j);
        to = find_emptiest(j, server);
        ask_close(j);
        if (any && to < 0)
            return fl_fail(FLEET_ETIMEDOUT,
                           "no other server that has lanes answers");
        if (any) {
            FL_TRY(move_lane(role, keys, of, lane, to, timeout_ms));
            end_ms = fl_now_ms() + find_ms;
        } else if (!whole && fl_now_ms() >= end_ms) {
            return fl_fail(FLEET_ETIMEDOUT,
                           "of some lanes no process says that it leads them: "
                           "server %d may have lanes yet",
                           server);
        } else if (!whole) {
            poll(NULL, 0, AGAIN_MS);
        }
    }
    return FLEET_OK;
}
