/* server_replica.c - the copies of another server's lanes in the process of a
 * server. */
#include "fleet/server_replica.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "fleet/save_part.h"

bool fl_has_replicas(const fleet *f)
{
    return f->strategy.replicas > 1 && f->role.server_num > 1;
}

/* A follower does not wait for rows that are out of memory. */
static fleet_status refuse_caps(const fleet *f)
{
    for (size_t i = 0; i < f->store->tables.n; i++) {
        const fl_rows *r = f->store->tables.entry[i].value;

        if (r->cap_bytes > 0)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "strategy.replicas: this version does not have 2 "
                           "with memory_cap_bytes, which table \"%s\" has "
                           "(expected 1, or a table without it)",
                           r->name);
    }
    return FLEET_OK;
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

fleet_status fl_server_replica_create(fleet *f, const fl_server_options *own)
{
    fl_server_options o = *own;

    FL_TRY(refuse_caps(f));
    set_address(f, own->address);
    o.index = (own->index + own->n_server - 1) % own->n_server;
    o.address = f->replica_address;
    o.follows = f->role.server[o.index];
    o.listen_fd = -1;
    o.lane_port = NULL;
    o.command = fl_save_part_of_replica;
    return fl_server_create(&f->replica, &o);
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
fleet_status fl_server_replica_serve(fleet *f)
{
    running replica = {.server = f->replica};
    pthread_t thread;
    fleet_status status;
    fl_error error;

    FL_TRY(fl_thread_start(&thread, run_replica, &replica, "a replica"));
    status = fl_server_run(f->server);
    fl_error_take(&error, status);
    if (status != FLEET_OK)
        fl_server_stop(&f->replica, 1, "its process has failed");
    pthread_join(thread, NULL);
    return fl_error_raise(status == FLEET_OK ? &replica.error : &error);
}
