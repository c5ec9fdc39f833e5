/* server_replica.c - the copies of another server's lanes in the process of a
 * server. */
#include "fleet/server_replica.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "fleet/save_part.h"
#include "fleet/servers.h"

bool fl_has_replicas(const fleet *f)
{
    return f->strategy.replicas > 1 && f->role.server_num > 1;
}

/* Beside the server that the process has, at ports of the kernel's choice. */
static void set_address(fleet *f, const char *own)
{
    const char *colon = strrchr(own, ':');

    if (strncmp(own, "inproc://", 9) == 0)
        snprintf(f->replica_address, sizeof f->replica_address,
                 "%.100s/replica", own);
    else
        snprintf(f->replica_address, sizeof f->replica_address, "%.*s:0",
                 (int)(colon - own), own);
}

/* --- a process that was started again ------------------------------------- */

static const char gives_way[] = "the job was at work before";

/* By a thread of f->replica. The server that the process has begun with has no
 * workers: they have the copies that the next server's process has. */
static void is_late(void *arg)
{
    fleet *f = arg;

    fl_server_stop_one(f->server, gives_way);
}

/* The socket that a server gets is closed with it. */
static void keep_listener(fleet *f, int fd)
{
    int copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

    f->spare_listener = copy > 0 ? copy : 0;
}

static fleet_status create_again(fleet *f)
{
    fl_server_options o = fl_servers_options(f);

    o.listen_fd = f->spare_listener > 0 ? f->spare_listener : -1;
    o.replica = f->replica;
    o.follows = f->role.server[(o.index + 1) % o.n_server];
    o.seeks_copies = o.comes_again = true;
    keep_listener(f, o.listen_fd);
    return fl_server_create(&f->server, &o);
}

static int server_before(const fleet *f)
{
    return (f->role.index + f->role.server_num - 1) % f->role.server_num;
}

/* A stop of the process meanwhile has stopped its other server. */
static fleet_status begin_again(fleet *f, fl_server_pair *both)
{
    const char *stopped;

    FL_INFO(&f->context.log,
            "server %d: the job was at work before this process, which gets "
            "copies of lanes of servers %d and %d",
            f->role.index, f->role.index, server_before(f));
    FL_TRY(fl_server_pair_put(both, 0, NULL));
    fl_server_destroy(f->server);
    f->server = NULL;
    FL_TRY(create_again(f));
    FL_TRY(fl_server_pair_put(both, 0, f->server));
    stopped = fl_server_stopped(f->replica);
    if (stopped)
        fl_server_stop(&f->server, 1, stopped);
    return FLEET_OK;
}

/* --- both ----------------------------------------------------------------- */

static fleet_status create_copies(fleet *f, fl_server_options o)
{
    o.index = server_before(f);
    o.address = f->replica_address;
    o.follows = f->role.server[o.index];
    o.listen_fd = -1;
    o.lane_port = NULL;
    o.command = fl_save_part_of_replica;
    return fl_server_create(&f->replica, &o);
}

fleet_status fl_server_replica_create(fleet *f, const fl_server_options *own)
{
    fl_server_options o = *own;

    set_address(f, own->address);
    o.on_late = is_late;
    o.on_late_arg = f;
    keep_listener(f, own->listen_fd);
    return create_copies(f, o);
}

typedef struct running {
    fl_server *server;
    fleet_status status;
    fl_error error;
} running;

static void *run_replica(void *arg)
{
    running *r = arg;

    r->status = fl_server_run(r->server);
    fl_error_take(&r->error, r->status);
    return NULL;
}

/* What has ended the copies of lanes that still follow has ended their leaders,
 * too, whose process says it. A server that has failed has told its workers,
 * which end all other servers. */
static fleet_status serve_own(fleet *f, fl_server_pair *both)
{
    FL_TRY(fl_server_run(f->server));
    if (fl_server_stopped(f->server) != gives_way)
        return FLEET_OK;
    FL_TRY(begin_again(f, both));
    return fl_server_run(f->server);
}

static fleet_status serve_both(fleet *f, fl_server_pair *both)
{
    running replica = {.server = f->replica};
    pthread_t thread;
    fleet_status status;
    fl_error error;

    FL_TRY(fl_thread_start(&thread, run_replica, &replica, "a replica"));
    status = serve_own(f, both);
    fl_error_take(&error, status);
    if (status != FLEET_OK)
        fl_server_stop(&f->replica, 1, "its process has failed");
    pthread_join(thread, NULL);
    return fl_error_raise(status == FLEET_OK ? &replica.error : &error);
}

/* It has slept, or was cut off, and the job goes on with the other copies of
 * all that it had. */
static bool was_fenced(const fleet *f)
{
    return !fl_server_stopped(f->server) && !fl_server_stopped(f->replica) &&
           fl_server_was_fenced(f->server) && fl_server_was_fenced(f->replica);
}

/* A stop that came since `stops` were counted has found no server. */
static void stop_too(fleet *f, unsigned stops)
{
    fl_server *both[] = {f->server, f->replica};
    const char *why;

    if (fl_server_stops(&why) != stops)
        fl_server_stop(both, 2, why);
}

/* As a process that was started again: it gets copies. */
static fleet_status come_again(fleet *f, fl_server_pair *both, unsigned stops)
{
    fl_server_options o = fl_servers_options(f);

    FL_WARN(&f->context.log,
            "server %d: the job went on without it: it comes again, for copies "
            "of lanes of servers %d and %d",
            f->role.index, f->role.index, server_before(f));
    for (int i = 0; i < 2; i++)
        FL_TRY(fl_server_pair_put(both, i, NULL));
    fl_server_destroy(f->server);
    fl_server_destroy(f->replica);
    f->server = f->replica = NULL;
    o.comes_again = true;
    FL_TRY(create_copies(f, o));
    FL_TRY(create_again(f));
    for (int i = 0; i < 2; i++)
        FL_TRY(fl_server_pair_put(both, i, i ? f->replica : f->server));
    stop_too(f, stops);
    return FLEET_OK;
}

fleet_status fl_server_replica_serve(fleet *f, fl_server_pair *both)
{
    for (;;) {
        const char *why;
        unsigned stops;

        FL_TRY(serve_both(f, both));
        stops = fl_server_stops(&why);
        if (!was_fenced(f))
            return FLEET_OK;
        FL_TRY(come_again(f, both, stops));
    }
}
