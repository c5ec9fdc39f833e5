/* worker_life.c - arrays of a worker, made and freed; which lane has what. */
#include "base/memory.h"
#include "ps/worker/geo.h"
#include "ps/worker/hot_pull.h"
#include "ps/residuals.h"
#include "ps/worker/worker_group.h"
#include "ps/worker/worker_internal.h"

/* A worker numbers the lanes of all servers from 0 on. */
static void set_owners(fl_worker *w, int n_server, const int *lanes)
{
    uint16_t first[FL_MOST_SERVER];

    for (int s = 0; s < n_server; s++) {
        first[s] = (uint16_t)w->n_lane;
        w->n_lane += lanes[s];
    }
    fl_bucket_map_begin(&w->map, n_server, lanes);
    for (int b = 0; b < FL_N_BUCKET; b++)
        w->owner[b] = (uint16_t)(first[w->map.lane[b] / FL_MOST_LANE] +
                                 w->map.lane[b] % FL_MOST_LANE);
}

static void list_blocks_of(fl_worker *w, int param)
{
    const fl_param *p = w->layout.param[param];

    for (int64_t b = 0; b < fl_blocks_of(p); b++) {
        int bucket = fl_block_bucket(w->layout.store, p, b);
        fl_lane_blocks *lane = &w->block[w->owner[bucket]];

        lane->key[lane->n++] = fl_block_key(param, b);
        lane->n_own += !p->other_stage;
        w->n_own += !p->other_stage;
        w->n_block++;
    }
}

/* What steps need comes first. */
static void list_blocks(fl_worker *w)
{
    for (int other = 0; other < 2; other++)
        for (int i = 0; i < w->layout.n_param; i++)
            if (w->layout.param[i]->other_stage == other)
                list_blocks_of(w, i);
}

static void keys_done(fl_lane_keys *keys, int n)
{
    for (int i = 0; keys && i < n; i++) {
        fl_free(keys[i].key);
        fl_free(keys[i].at);
        fl_free(keys[i].first);
    }
    fl_free(keys);
}

/* All of them or none: a pull that failed for want of memory may be made
 * again. */
fleet_status fl_worker_make_keys(const fl_worker *w, fl_lane_keys **keys)
{
    fleet_status status = FLEET_OK;

    if (*keys)
        return FLEET_OK;
    FL_TRY(FL_NEW(keys, (size_t)w->n_lane * sizeof **keys));
    for (int i = 0; i < w->n_lane && status == FLEET_OK; i++)
        status = FL_NEW(&(*keys)[i].first, ((size_t)w->layout.n_table + 1) *
                                               sizeof *(*keys)[i].first);
    if (status == FLEET_OK)
        return FLEET_OK;
    keys_done(*keys, w->n_lane);
    *keys = NULL;
    return status;
}

static fleet_status make_arrays(fl_worker *w)
{
    size_t blocks = 1;

    for (int i = 0; i < w->layout.n_param; i++)
        blocks += (size_t)fl_blocks_of(w->layout.param[i]);
    FL_TRY(FL_NEW(&w->block, (size_t)w->n_lane * sizeof *w->block));
    FL_TRY(FL_NEW(&w->push, (size_t)w->n_lane * sizeof *w->push));
    FL_TRY(FL_NEW(&w->pushing, (size_t)w->n_lane * sizeof *w->pushing));
    FL_TRY(FL_NEW(&w->push_block, blocks * sizeof *w->push_block));
    FL_TRY(FL_NEW(&w->push_grad, blocks * sizeof *w->push_grad));
    FL_TRY(FL_NEW(&w->grad_of,
                  ((size_t)w->layout.n_param + 1) * sizeof *w->grad_of));
    for (int i = 0; i < w->n_lane; i++)
        FL_TRY(FL_NEW(&w->block[i].key, blocks * sizeof *w->block[i].key));
    for (int i = 0; i < FL_N_SLOT; i++)
        FL_TRY(fl_worker_make_keys(w, &w->slot[i].keys));
    FL_TRY(fl_worker_make_keys(w, &w->slot[FL_DENSE_SLOT].keys));
    return fl_worker_make_keys(w, &w->push_keys);
}

fleet_status fl_worker_init(fl_worker *w, fl_client *client,
                            const fl_worker_host *host, fl_store *store,
                            int n_server, const int *lanes, bool sync)
{
    fleet_status status;

    *w = (fl_worker){.remote = {.methods = &fl_worker_methods, .sync = sync},
                     .client = client,
                     .host = *host,
                     .most_under_way = 1,
                     .piece_bytes = FL_MSG_PIECE_BYTES};
    set_owners(w, n_server, lanes);
    fl_client_set_view(client, w->map.view);
    status = fl_partition_make(&w->layout, store, n_server);
    if (status == FLEET_OK)
        status = make_arrays(w);
    if (status != FLEET_OK) {
        fl_worker_done(w);
        return status;
    }
    list_blocks(w);
    return FLEET_OK;
}

fleet_status fl_worker_use_wire(fl_worker *w, const fl_wire_options *wire)
{
    w->wire = *wire;
    return wire->push == FL_CODEC_F32 || wire->forgets
               ? FLEET_OK
               : fl_residuals_create(&w->residuals, &w->layout);
}

static void slot_done(fl_worker *w, int slot)
{
    fl_pull_buffer *s = &w->slot[slot];

    fl_worker_drop(&w->remote, slot);
    for (size_t i = 0; i < s->n_made; i++) {
        fl_request_done(&s->request[i]->request);
        fl_free(s->request[i]->aligned);
        fl_free(s->request[i]);
    }
    fl_free(s->request);
    keys_done(s->keys, w->n_lane);
}

void fl_worker_done(fl_worker *w)
{
    fl_geo_done(w);
    for (int i = 0; i <= FL_DENSE_SLOT; i++)
        slot_done(w, i);
    fl_hot_pull_done(w);
    for (int i = 0; w->block && i < w->n_lane; i++)
        fl_free(w->block[i].key);
    keys_done(w->push_keys, w->n_lane);
    fl_free(w->sorting.key);
    fl_free(w->sorting.at);
    fl_group_done(w);
    for (int i = 0; i < w->n_made; i++)
        fl_client_forget(w->client, w->before[i], w->n_lane);
    fl_free(w->before);
    fl_client_forget(w->client, w->push, w->n_lane);
    fl_client_forget(w->client, w->pushing, w->n_lane);
    fl_free(w->block);
    fl_free(w->push_block);
    fl_free(w->push_grad);
    fl_free(w->grad_of);
    fl_residuals_destroy(w->residuals);
    fl_free(w->packets);
    fl_free(w->values);
    fl_partition_done(&w->layout);
    *w = (fl_worker){0};
}
