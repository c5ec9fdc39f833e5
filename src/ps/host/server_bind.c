/* server_bind.c - where the lanes of a server listen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json/json_write.h"
#include "ps/host/server_internal.h"

enum { TAKEN_MS = 50 }; /* until a port that is taken is tried again */

bool fl_server_is_inproc(const fl_server *s)
{
    return strncmp(s->o.address, "inproc://", 9) == 0;
}

/* Lane 0 has the server's address; the other lanes have the same ip and ports
 * of their own. */
static void lane_address(const fl_server *s, int lane,
                         char address[FL_ADDRESS_SIZE])
{
    const char *colon = strrchr(s->o.address, ':');

    if (lane == 0)
        snprintf(address, FL_ADDRESS_SIZE, "%s", s->o.address);
    else if (fl_server_is_inproc(s))
        snprintf(address, FL_ADDRESS_SIZE, "%.100s/%d", s->o.address, lane);
    else
        snprintf(address, FL_ADDRESS_SIZE, "%.*s:%d",
                 (int)(colon - s->o.address), s->o.address, s->port[lane]);
}

static int port_of(const char *address)
{
    return atoi(strrchr(address, ':') + 1);
}

/* One that has come to another process says to which, also when that one comes
 * back; and where that is, if it is in no list. */
static char *describe_lane(const fl_server *s, const char *bound,
                           const char *ipc)
{
    fl_json *json = fl_json_object();
    char locality[160], *text;
    fleet_status status;

    fl_locality_text(locality);
    if (strncmp(bound, "inproc://", 9) == 0)
        status = fl_json_put(json, "inproc", fl_json_string(bound));
    else
        status = fl_json_put(json, "port", fl_json_int(port_of(bound)));
    if (status == FLEET_OK && *ipc)
        status = fl_json_put(json, "ipc", fl_json_string(ipc));
    if (status == FLEET_OK && s->o.host)
        status = fl_json_put(json, "process", fl_json_int(s->o.host->o.index));
    if (status == FLEET_OK && s->o.host)
        status =
            fl_json_put(json, "nonce",
                        fl_json_int(atomic_load(&s->o.host->identity.nonce)));
    if (status == FLEET_OK && s->o.host && s->o.host->o.joins)
        status =
            fl_json_put(json, "home", fl_json_string(s->o.host->o.address));
    if (status == FLEET_OK)
        status = fl_json_put(json, "place", fl_json_string(locality));
    text = status == FLEET_OK ? fl_json_print(json, false) : NULL;
    fl_json_free(json);
    return text;
}

/* Without keys nothing is open to other machines, unless the user says so. */
static fleet_status check_reach(const fl_server *s, const char *address, int fd)
{
    char who[48];

    if (s->guard || s->o.insecure)
        return FLEET_OK;
    snprintf(who, sizeof who, "%sserver %d",
             s->o.follows && !s->o.host ? "the replica of " : "", s->o.index);
    return fl_address_check_keyless(who, address,
                                    fl_server_is_inproc(s) ? -1 : fd);
}

static void say_port_is_taken(const fl_lane_runner *r)
{
    const fl_server *s = r->server;

    FL_WARN(&s->o.context->log,
            "server %d comes back, and workers look for its lane %d where it "
            "was: %s; it is tried again, for %.1f s at most "
            "(log_configs.restart_deadline_ms)",
            s->o.index, r->number, fleet_last_error(),
            (double)s->o.restart_ms / 1000);
}

/* Workers look for one that comes back where it was, and wait as long: so does
 * it, if another process has taken its port meanwhile. One that follows late
 * has its port from a server of this process that is going. */
static fleet_status bind_address(fl_lane_runner *r, const char *address, int fd,
                                 char bound[FL_ADDRESS_SIZE])
{
    const fl_server *s = r->server;
    fl_server *host = s->o.returns ? s->o.host : NULL;
    int64_t end_ms =
        fl_now_ms() + (s->o.seeks_copies ? s->o.connect_ms : s->o.restart_ms);
    bool waits = s->comes_back || s->o.seeks_copies || s->o.returns;
    bool said = false;
    fleet_status status;

    while (
        (status = fl_socket_bind(r->socket, address, fd, bound)) == FLEET_EIO &&
        waits && fl_now_ms() < end_ms &&
        !(host && (atomic_load(&host->is_over) || atomic_load(&host->stop)))) {
        if (!said && s->comes_back)
            say_port_is_taken(r);
        said = true;
        usleep(TAKEN_MS * 1000);
    }
    return status == FLEET_OK || !s->comes_back
               ? status
               : fl_fail_in(status,
                            "server %d comes back, and workers look for its "
                            "lane %d where it was",
                            s->o.index, r->number);
}

fleet_status fl_server_bind_lane(fl_server *s, fl_lane_runner *r)
{
    int fd = r->number == 0 ? s->o.listen_fd : -1;
    char address[FL_ADDRESS_SIZE], bound[FL_ADDRESS_SIZE];
    char path[FL_ADDRESS_SIZE + 8];
    fl_address named;

    lane_address(s, r->number, named);
    FL_TRY(fl_address_resolve(named, address));
    FL_TRY(check_reach(s, address, fd));
    FL_TRY(fl_socket_listen(&r->socket));
    if (s->guard)
        FL_TRY(fl_socket_guard(r->socket, s->guard));
    FL_TRY(bind_address(r, address, fd, bound));
    if (!fl_server_is_inproc(s)) {
        s->port[r->number] = port_of(bound);
        snprintf(r->ipc, sizeof r->ipc, "%s/%08x-server-%d-lane-%d",
                 s->folder.path, s->mark, s->o.index, r->number);
        snprintf(path, sizeof path, "ipc://%s", r->ipc);
        FL_TRY(fl_socket_bind(r->socket, path, -1, NULL));
    }
    r->address = describe_lane(s, bound, r->ipc);
    r->tcp_address = describe_lane(s, bound, "");
    s->address[r->number] = r->address;
    s->tcp_address[r->number] = r->tcp_address;
    if (!r->address || !r->tcp_address)
        return FLEET_ENOMEM;
    return fl_wakeup_create(&r->wakeup);
}
