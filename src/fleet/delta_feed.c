/* delta_feed.c - the delta feed: options, batches as users see them. */
#include "fleet/delta_feed.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/role/env.h"
#include "fleet/role/role.h"
#include "ps/feed/feed_io.h"
#include "ps/feed/feed_offset.h"

enum { INTERVAL_MS = 50, MOST_INTERVAL_MS = 1000, MOST_SUBSCRIBER = 4096 };

struct fleet_delta_feed {
    fl_feed_io *io;
    fl_keys *keys; /* NULL: none are used */
    fleet_feed_batch batch;
    bool has_batch;
};

/* --- opening -------------------------------------------------------------- */

static fleet_status check_range(const char *field, int64_t got, int64_t low,
                                int64_t high)
{
    if (got >= low && got <= high)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "fleet_feed_open: %s: expected %lld to %lld, got %lld",
                   field, (long long)low, (long long)high, (long long)got);
}

static fleet_status check_options(const fleet_feed_options *o)
{
    FL_TRY(check_range("subscriber", o->subscriber, 0, MOST_SUBSCRIBER - 1));
    FL_TRY(check_range("interval_ms", o->interval_ms, 0, MOST_INTERVAL_MS));
    FL_TRY(check_range("peer_deadline_ms", o->peer_deadline_ms, 0, INT32_MAX));
    return FLEET_OK;
}

/* The role of a worker of that job knows servers, id and deadlines. */
static fleet_status open_role(fl_role *role, const fleet_feed_options *o)
{
    const char *servers = o->server_endpoints && *o->server_endpoints
                              ? o->server_endpoints
                              : fl_variable("PADDLE_PSERVERS_IP_PORT_LIST");
    const fleet_role worker = {
        .server_endpoints = servers,
        .job_id = o->job_id ? o->job_id : fl_variable("PADDLE_JOB_ID")};
    const fleet_options options = {.role = &worker,
                                   .keys = "", /* a worker's are another's */
                                   .peer_deadline_ms = o->peer_deadline_ms};

    if (!servers)
        return fl_fail(FLEET_ENOENT,
                       "fleet_feed_open: there are no servers to follow: "
                       "neither server_endpoints nor "
                       "PADDLE_PSERVERS_IP_PORT_LIST says where they are (one "
                       "process, and ranks, have no feed)");
    return fl_role_open(role, &options);
}

static fleet_status open_feed(fleet_delta_feed *feed, fl_role *role,
                              const fleet_feed_options *o)
{
    fl_feed_options options = {.subscriber = o->subscriber,
                               .interval_ms = o->interval_ms ? o->interval_ms
                                                             : INTERVAL_MS};

    FL_TRY(check_options(o));
    FL_TRY(open_role(role, o));
    FL_TRY(fl_role_read_keys(role, o->keys, FL_ROLE_SUBSCRIBER, o->subscriber,
                             &feed->keys));
    options.address = (const fl_address *)role->server;
    options.n_server = role->server_num;
    options.job = role->job_id;
    options.peer_ms = role->deadline_ms[FL_PEER_DEADLINE];
    options.tcp_only = role->tcp_only;
    return fl_feed_io_create(&feed->io, &options, feed->keys, o->offset);
}

fleet_delta_feed *fleet_feed_open(const fleet_feed_options *options)
{
    const fleet_feed_options none = {0};
    fleet_delta_feed *feed = fl_alloc(sizeof *feed);
    fl_role role = {0};
    fleet_status status;
    fl_error error;

    if (!feed)
        return NULL;
    status = open_feed(feed, &role, options ? options : &none);
    fl_error_take(&error, status);
    fl_role_done(&role);
    if (status == FLEET_OK)
        return feed;
    fleet_feed_close(feed);
    fl_error_raise(&error);
    return NULL;
}

void fleet_feed_close(fleet_delta_feed *feed)
{
    if (!feed)
        return;
    fl_feed_io_destroy(feed->io);
    fl_keys_destroy(feed->keys);
    fl_free(feed);
}

/* --- batches -------------------------------------------------------------- */

fleet_status fleet_feed_next(fleet_delta_feed *feed, int64_t timeout_ms,
                             const fleet_feed_batch **batch)
{
    if (!feed || !batch)
        return fl_fail(FLEET_EINVAL, "fleet_feed_next: NULL argument");
    *batch = NULL;
    feed->has_batch = false;
    if (timeout_ms < 0 || timeout_ms > INT32_MAX)
        return fl_fail(FLEET_EINVAL,
                       "fleet_feed_next: timeout_ms: expected 0 to %d, got "
                       "%lld",
                       INT32_MAX, (long long)timeout_ms);
    FL_TRY(
        fl_feed_io_next(feed->io, timeout_ms, &feed->batch, &feed->has_batch));
    *batch = fl_feed_given_out(feed);
    return FLEET_OK;
}

size_t fleet_feed_offset(const fleet_delta_feed *feed, char *text, size_t size)
{
    char *offset =
        feed ? fl_feed_offset_text(fl_feed_io_client(feed->io)) : NULL;
    size_t n;

    if (!offset)
        return 0;
    n = strlen(offset) + 1;
    if (text && size > 0)
        snprintf(text, size, "%s", offset);
    fl_free(offset);
    return n;
}

int fleet_feed_lane_of(const fleet_delta_feed *feed, uint64_t key)
{
    return feed ? fl_feed_client_lane_of(fl_feed_io_client(feed->io), key) : -1;
}

const fleet_feed_batch *fl_feed_given_out(const fleet_delta_feed *feed)
{
    return feed->has_batch ? &feed->batch : NULL;
}

bool fl_feed_tells(const fleet_delta_feed *feed, const char *table)
{
    return fl_feed_client_tells(fl_feed_io_client(feed->io), table);
}
