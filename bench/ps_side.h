/* ps_side.h - trainings with a server each, whose passes are measured in turn:
 * samples, bytes by tcp, updates of the server. */
#pragma once

#include <linux/tcp.h>
#include <sys/socket.h>

#include "fleet/job/handle.h"
#include "ps_job.h"
#include "runtime/plan/remote.h"

/* One of several trainings. */
typedef struct side {
    ps_job job;
    bench b;
    fleet_dataset *d;
    double rate, bytes, updates; /* of the last pass: a second, a batch */
} side;

/* Bytes of all tcp connections of this process, in both directions. */
static inline double tcp_bytes(void)
{
    double sum = 0;

    for (int fd = 3; fd < 256; fd++) {
        struct tcp_info i;
        socklen_t size = sizeof i;

        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &size) == 0)
            sum += (double)i.tcpi_bytes_acked + (double)i.tcpi_bytes_received;
    }
    return sum;
}

static inline void side_train(side *s)
{
    const fl_remote *x = s->b.f->store->remote;
    double bytes = tcp_bytes(), updates = (double)x->updates;

    s->rate = ps_pass(&s->b, s->d);
    s->bytes = (tcp_bytes() - bytes) / (double)s->b.n_batch;
    s->updates = ((double)x->updates - updates) / (double)s->b.n_batch;
}

/* The text of n batches is written. */
static inline void side_open(side *s, const char *path, int n)
{
    fleet_role role = {.worker_num = 1, .server_endpoints = s->job.endpoint};

    ps_open(&s->b, &role, &s->job);
    s->b.n_batch = n;
    check(fleet_init_worker(s->b.f));
    write_text(&s->b, path);
    s->d = open_text(&s->b, &path, 1);
}
