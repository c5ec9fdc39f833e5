/* server_make.c - a server in the making: its runners and their stores, without
 * sockets and lanes yet. */
#include "base/memory.h"
#include "ps/host/server_internal.h"

fleet_status fl_server_begin(fl_server **server, const fl_server_options *o)
{
    FL_TRY(FL_NEW(server, sizeof **server));
    (*server)->o = *o;
    (*server)->descriptors =
        (fl_descriptors){.log = &o->context->log, .server = o->index};
    (*server)->home.lock = -1;
    pthread_mutex_init(&(*server)->lock, NULL);
    return FLEET_OK;
}

fleet_status fl_server_make_runners(fl_server *s)
{
    int n_lane[FL_MOST_SERVER] = {0};

    n_lane[s->o.index] = s->o.n_lane;
    fl_bucket_map_begin(&s->map, s->o.n_server, n_lane);
    s->n_runner = s->o.host ? 1 : s->o.n_lane;
    FL_TRY(FL_NEW(&s->runner, (size_t)s->n_runner * sizeof *s->runner));
    for (int i = 0; i < s->n_runner; i++) {
        s->runner[i].server = s;
        s->runner[i].number = s->o.host ? s->o.only_lane : i;
        s->runner[i].wakeup.fd = -1;
        atomic_store(&s->runner[i].loads, s->o.load && !s->o.follows);
    }
    return FLEET_OK;
}

/* Behind its own the addresses of the replicas that its process has. */
fleet_status fl_server_make_addresses(fl_server *s)
{
    size_t own = (size_t)s->o.n_lane, also = (size_t)fl_server_copies(s);
    const fl_server *other = s->o.replica;

    FL_TRY(FL_NEW(&s->address, (own + also) * sizeof(char *)));
    FL_TRY(FL_NEW(&s->tcp_address, (own + also) * sizeof(char *)));
    for (size_t i = 0; i < also; i++) {
        s->address[own + i] = other->address[i];
        s->tcp_address[own + i] = other->tcp_address[i];
    }
    return FLEET_OK;
}

fleet_status fl_server_make_store(fl_server *s, fl_lane_runner *r)
{
    const fl_map *tables;

    FL_TRY(fl_store_create(s->o.context, s->o.make_rows, &r->store));
    r->store->make_capped = s->o.make_capped;
    r->own = fl_bucket_map_own(&s->map, s->o.index, r->number);
    r->store->filter = (fl_block_filter){fl_lane_keeps_block, &r->own};
    r->store->dense_local = s->o.ranks;
    r->store->layerwise = s->o.layerwise;
    r->store->sums = s->o.sums;
    for (int i = 0; i < s->o.n_program; i++)
        FL_TRY(fl_store_add(r->store, s->o.program[i]));
    if (s->o.optimizer)
        FL_TRY(fl_store_train(r->store, s->o.optimizer));
    tables = &r->store->tables;
    for (size_t i = 0; i < tables->n; i++) {
        fl_rows *rows = tables->entry[i].value;

        /* a load brings no rows into tables that ranks share out */
        rows->remote = !fl_table_is_remote(&rows->attr);
    }
    return fl_partition_make(&r->layout, r->store, s->o.n_server);
}
