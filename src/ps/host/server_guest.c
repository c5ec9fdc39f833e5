/* server_guest.c - lanes of other servers that come to this process, while the
 * job trains: each is a server of its own, with that lane alone, which follows
 * the lane where it is, and leads when that one gives way. It ends when workers
 * have left it, or when its lane goes to another process again. The list of
 * them is the first lane's thread's alone, while that runs. docs/adr/0103. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ps/host/server_internal.h"
#include "ps/worker/handshake.h"

struct fl_guest {
    fl_server *host;
    fl_server_options o;
    fl_address address;
    char *text;   /* where the lane is before; or was, if it returns */
    bool returns; /* its journal is this process's already */
    _Atomic(fl_server *) server; /* NULL: not made yet, or it has failed */
    pthread_t thread;
    bool again; /* it was asked for once more; under the host's lock */
    atomic_bool over;
    bool joined;
    fl_error error;
};

/* --- one of them ---------------------------------------------------------- */

/* One whose move was given up may be asked for again before it knows of that:
 * then it begins anew. true: it is over. */
static bool end_guest(fl_guest *g, bool goes_on)
{
    bool over;

    pthread_mutex_lock(&g->host->lock);
    over = !goes_on || !g->again;
    g->again = false;
    atomic_store(&g->over, over);
    pthread_mutex_unlock(&g->host->lock);
    return over;
}

/* true: its lane has not led, and nothing is wrong. */
static bool live_once(fl_guest *g)
{
    fl_server *server;
    fleet_status status = fl_server_create(&server, &g->o);
    bool led = false;

    if (status == FLEET_OK) {
        atomic_store(&g->server, server);
        status = fl_server_run(server);
    }
    fl_error_take(&g->error, status);
    if (status != FLEET_OK && g->returns)
        fl_server_fail(g->host, &g->error); /* no other process can have it */
    if (status != FLEET_OK)
        FL_WARN(&g->o.context->log,
                "server %d, lane %d, in the process of server %d: %s",
                g->o.index, g->o.only_lane, g->host->o.index, g->error.text);
    if (status == FLEET_OK) {
        led = fl_lane_replica(server->runner[0].lane) != FL_REPLICA_FOLLOWS;
        if (led)
            atomic_store(&g->host->had, true);
        /* what it has kept goes */
        pthread_mutex_lock(&g->host->lock);
        atomic_store(&g->server, NULL);
        pthread_mutex_unlock(&g->host->lock);
        fl_server_destroy(server);
    }
    return status == FLEET_OK && !led;
}

static void *guest_main(void *arg)
{
    fl_guest *g = arg;

    while (!end_guest(g, live_once(g)))
        continue;
    fl_server_ring(g->host);
    return NULL;
}

static void destroy_guest(fl_guest *g)
{
    if (!g)
        return;
    fl_server_destroy(atomic_load(&g->server));
    fl_free(g->text);
    fl_free(g);
}

fleet_status fl_guest_find_leader(fl_server *s)
{
    fl_lane_runner *r = &s->runner[0];
    fl_hello_lane at = {0};
    char locality[160];

    if (s->o.returns)
        return FLEET_OK; /* no process has to be asked */
    fl_locality_text(locality);
    FL_TRY(fl_hello_read_lane(s->o.follows, 1, s->o.lane_text, locality,
                              s->o.tcp_only, &at));
    FL_TRY(fl_socket_connect_to(&r->leader, at.address, s->o.keys, s->o.at));
    r->found = true;
    return FLEET_OK;
}

/* --- what is asked for ---------------------------------------------------- */

typedef struct wanted_lane {
    int64_t server, lane, lanes, at;
    const char *address, *home; /* the lane's; that process's server's */
    bool returns;               /* its journal is this server's already */
} wanted_lane;

static fleet_status read_wanted(const fl_server *s, const fl_json *json,
                                wanted_lane *w)
{
    const fl_at root = fl_at_root(json);
    const struct {
        const char *key;
        int64_t most, *to;
    } number[] = {{"server", s->o.n_server - 1, &w->server},
                  {"lane", FL_MOST_LANE - 1, &w->lane},
                  {"lanes", FL_MOST_LANE, &w->lanes},
                  {"at", FL_MOST_SERVER - 1, &w->at}};
    const struct {
        const char *key, **to;
    } text[] = {{"address", &w->address}, {"home", &w->home}};

    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        fl_at at = fl_at_key(&root, number[i].key);

        FL_TRY(fl_at_required(&at));
        FL_TRY(fl_at_int(&at, 0, number[i].most, number[i].to));
    }
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        fl_at at = fl_at_key(&root, text[i].key);

        FL_TRY(fl_at_required(&at));
        FL_TRY(fl_at_string(&at, text[i].to));
    }
    if (w->lane >= w->lanes)
        return fl_fail(FLEET_EINVAL, "there is no lane %lld of %lld",
                       (long long)w->lane, (long long)w->lanes);
    return FLEET_OK;
}

/* At this server's ip, and a port of the kernel's choice. */
static void set_address(fl_guest *g)
{
    const char *own = g->host->o.address, *colon = strrchr(own, ':');

    if (fl_server_is_inproc(g->host))
        snprintf(g->address, sizeof g->address, "%.80s/of-%d-%d-%08x", own,
                 g->o.index, g->o.only_lane, (unsigned)fl_nonce());
    else
        snprintf(g->address, sizeof g->address, "%.*s:0", (int)(colon - own),
                 own);
    g->o.address = g->address;
}

static fleet_status set_options(fl_guest *g, const wanted_lane *w)
{
    fl_server_options *o = &g->o;

    *o = g->host->o;
    o->host = g->host;
    o->index = (int)w->server;
    o->only_lane = (int)w->lane;
    o->n_lane = (int)w->lanes;
    o->at = (int)w->at;
    g->text = fl_alloc(strlen(w->address) + strlen(w->home) + 2);
    if (!g->text)
        return FLEET_ENOMEM;
    strcpy(g->text, w->address);
    o->lane_text = g->text;
    o->follows =
        strcpy(g->text + strlen(w->address) + 1, w->home); /* behind it */
    o->listen_fd = -1;
    o->lane_port = NULL;
    o->load = NULL;
    o->joins = false;
    o->comes_again = true;
    g->returns = w->returns;
    o->returns = w->returns ? g->text : NULL;
    set_address(g);
    return FLEET_OK;
}

/* Does the guest come from that process? An earlier stay of the same lane that
 * has left again lingers for its last workers, and is not what is wanted. */
static bool is_of(const fl_guest *g, const wanted_lane *w)
{
    return g && !atomic_load(&g->over) && g->o.index == w->server &&
           g->o.only_lane == w->lane && strcmp(g->text, w->address) == 0;
}

static fleet_status start_guest(fl_server *s, int place, const wanted_lane *w)
{
    fl_guest *g;
    fleet_status status;

    FL_TRY(FL_NEW(&s->guest[place], sizeof *g));
    g = s->guest[place];
    g->host = s;
    status = set_options(g, w);
    if (status == FLEET_OK)
        status =
            fl_thread_start(&g->thread, guest_main, g, "a lane that comes");
    if (status == FLEET_OK)
        return FLEET_OK;
    destroy_guest(g);
    s->guest[place] = NULL;
    return status;
}

/* The place of one that is over is the next one's. */
static fleet_status find_place(fl_server *s, int *place)
{
    for (int i = 0; i < FL_MOST_GUEST; i++) {
        fl_guest *g = s->guest[i];

        if (g && !atomic_load(&g->over))
            continue;
        if (g) {
            pthread_join(g->thread, NULL);
            destroy_guest(g);
            s->guest[i] = NULL;
        }
        *place = i;
        return FLEET_OK;
    }
    return fl_fail(FLEET_EUNSUPPORTED,
                   "server %d has %d lanes of other servers already",
                   s->o.index, (int)FL_MOST_GUEST);
}

static bool is_said_again(fl_server *s, const wanted_lane *w)
{
    bool again = false;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; !again && i < FL_MOST_GUEST; i++) {
        again = is_of(s->guest[i], w);
        if (again)
            s->guest[i]->again = true;
    }
    pthread_mutex_unlock(&s->lock);
    return again;
}

static fleet_status take_wanted(fl_server *s, const wanted_lane *w)
{
    int place = 0;

    atomic_store(&s->has_taken, true);
    if (is_said_again(s, w))
        return FLEET_OK;
    FL_TRY(find_place(s, &place));
    return start_guest(s, place, w);
}

fleet_status fl_runner_take_guest(void *arg, const char *words)
{
    const fl_lane_runner *r = arg;
    wanted_lane w = {0};
    fl_json *json = NULL;
    fleet_status status;
    fl_error error;

    FL_TRY(fl_json_parse(words, strlen(words), "take", &json));
    status = read_wanted(r->server, json, &w);
    if (status == FLEET_OK)
        status = take_wanted(r->server, &w);
    fl_error_take(&error, status);
    fl_json_free(json);
    return fl_error_raise(&error);
}

/* The lane is in this process, or about to be. */
static bool has_guest(fl_server *s, int server, int lane, const char *address)
{
    bool found = false;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; !found && i < FL_MOST_GUEST; i++) {
        const fl_guest *g = s->guest[i];
        const fl_server *of = g ? atomic_load(&g->server) : NULL;

        found = g && !atomic_load(&g->over) && g->o.index == server &&
                g->o.only_lane == lane &&
                (!of || strcmp(g->returns ? g->text : of->runner[0].address,
                               address) == 0);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

fleet_status fl_server_return_guest(fl_server *s, int server, int lane,
                                    int lanes, const char *address)
{
    const wanted_lane w = {.server = server,
                           .lane = lane,
                           .lanes = lanes,
                           .at = s->o.index,
                           .address = address,
                           .home = s->o.address,
                           .returns = true};
    int place = 0;

    if (has_guest(s, server, lane, address) || atomic_load(&s->is_over))
        return FLEET_OK;
    FL_INFO(&s->o.context->log,
            "server %d: lane %d of server %d is its own, by its log",
            s->o.index, lane, server);
    FL_TRY(find_place(s, &place));
    return start_guest(s, place, &w);
}

/* --- servers that have joined the job ------------------------------------- */

fleet_status fl_runner_know_joined(void *arg, const char *words)
{
    fl_server *s = ((fl_lane_runner *)arg)->server;
    char *address;
    long server = strtol(words, &address, 10);
    size_t length = strlen(address += *address == ' ');

    if (server < s->o.n_server || server >= FL_MOST_SERVER || length == 0 ||
        length >= sizeof(fl_address))
        return fl_fail(FLEET_EINVAL,
                       "expected a number from %d to %d and an address, got "
                       "\"%.200s\"",
                       s->o.n_server, FL_MOST_SERVER - 1, words);
    if (server == s->o.index && strcmp(address, s->o.address) != 0)
        return fl_fail(FLEET_EINVAL,
                       "workers are told that it is at %s (POD_IP, "
                       "PADDLE_PORT): expected that address, not %s",
                       fl_address_text(s->o.address), fl_address_text(address));
    if (*s->joined[server] && strcmp(s->joined[server], address) != 0)
        FL_INFO(&s->o.context->log, "server %ld, which had joined at %s, is %s",
                server, s->joined[server], address);
    memcpy(s->joined[server], address, length + 1);
    return FLEET_OK;
}

bool fl_runner_tell_joined(void *arg, int server, char address[FL_LANE_TEXT])
{
    const fl_server *s = ((const fl_lane_runner *)arg)->server;

    if (server >= FL_MOST_SERVER)
        return false;
    snprintf(address, FL_LANE_TEXT, "%s", s->joined[server]);
    return true;
}

/* --- all of them ---------------------------------------------------------- */

bool fl_runner_tell_guest(void *arg, int i, char text[FL_LANE_TEXT])
{
    const fl_lane_runner *r = arg;
    bool found = false;

    pthread_mutex_lock(&r->server->lock);
    for (int k = 0; !found && r->number == 0 && k < FL_MOST_GUEST; k++) {
        const fl_guest *g = r->server->guest[k];
        const fl_server *s = g ? atomic_load(&g->server) : NULL;

        if (!s || atomic_load(&g->over) || i-- > 0)
            continue;
        snprintf(text, FL_LANE_TEXT, "%s", s->runner[0].address);
        found = true;
    }
    pthread_mutex_unlock(&r->server->lock);
    return found;
}

/* One that joins the job may get its first lane yet. */
static bool waits_for_first(const fl_server *s)
{
    return s->o.joins && !atomic_load(&s->had) && !atomic_load(&s->stop) &&
           fl_now_ms() - s->guest_ms <= s->o.connect_ms;
}

bool fl_runner_awaits_guests(const fl_lane_runner *r)
{
    fl_server *s = r->server;
    bool any = r->number == 0 && !s->o.no_move &&
               fl_lane_replica(r->lane) == FL_REPLICA_GONE &&
               atomic_load(&s->n_ended) < s->n_runner - 1;

    for (int i = 0; r->number == 0 && i < FL_MOST_GUEST; i++) {
        const fl_guest *g = r->server->guest[i];

        any = any || (g && !atomic_load(&g->over));
    }
    if (any)
        s->guest_ms = fl_now_ms();
    return any || (r->number == 0 && waits_for_first(s));
}

void fl_server_join_guests(fl_server *s)
{
    for (int i = 0; i < FL_MOST_GUEST; i++) {
        fl_guest *g = s->guest[i];
        const fl_server *server;

        if (!g || g->joined)
            continue;
        pthread_join(g->thread, NULL);
        g->joined = true;
        server = atomic_load(&g->server);
        pthread_mutex_lock(&s->lock);
        if (s->failed.code == FLEET_OK && server && fl_server_has_led(server))
            s->failed = g->error;
        pthread_mutex_unlock(&s->lock);
    }
}

void fl_server_forget_guests(fl_server *s)
{
    for (int i = 0; i < FL_MOST_GUEST; i++)
        destroy_guest(s->guest[i]);
}
