/* worker.c - a worker's pulls: keys shared out to lanes, requests, and when
 * what they ask for has come; worker_pull_values.c puts it where it belongs. */
#include "ps/worker/geo.h"
#include "ps/worker/hot_pull.h"
#include "ps/worker/worker_group.h"
#include "ps/worker/worker_internal.h"

#include <string.h>

#include "base/memory.h"

static fl_worker *worker_of(fl_remote *x)
{
    return (fl_worker *)(void *)x;
}

/* --- waiting -------------------------------------------------------------- */

/* Until all are done; what each that was sent has come to, the first
 * failure. */
fleet_status fl_worker_wait(fl_worker *w, fl_request *r, int n,
                            const char *what)
{
    for (int i = 0; i < n; i++)
        while (r[i].state == FL_REQUEST_SENT && !r[i].normed)
            w->host.wait(w->host.arg);
    for (int i = 0; i < n; i++)
        if (fl_request_is_over(&r[i]))
            FL_TRY(fl_client_result(w->client, &r[i], what));
    return FLEET_OK;
}

/* --- what to ask ---------------------------------------------------------- */

fleet_status fl_lane_keys_widen(fl_lane_keys *k)
{
    size_t n = (size_t)k->n + 1;

    FL_TRY(fl_grow(&k->key, &k->key_capacity, n, sizeof *k->key));
    return fl_grow(&k->at, &k->at_capacity, n, sizeof(void *));
}

/* The keys of a table, each to its lane; where the row goes stays with it. */
static fleet_status share_out(fl_worker *w, fl_pull_buffer *s,
                              const fl_pull_rows *t)
{
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_pull_part *part = &t->part[p];

        for (int64_t i = 0; i < part->n; i++) {
            uint64_t key = part->key[i];
            fl_lane_keys *k = fl_worker_keys_for(w, s->keys, key);

            if (!k)
                return FLEET_ENOMEM;
            k->key[k->n] = key;
            ((const float ***)k->at)[k->n++] = &part->row[i];
        }
    }
    return FLEET_OK;
}

static void mark_table(fl_worker *w, fl_pull_buffer *s, int table)
{
    for (int l = 0; l < w->n_lane; l++)
        s->keys[l].first[table] = s->keys[l].n;
    if (fl_worker_cached_slot(w, s) >= 0)
        fl_hot_pull_mark(w, fl_worker_cached_slot(w, s), table);
}

static fleet_status share_out_all(fl_worker *w, fl_pull_buffer *s,
                                  const fl_pull_rows *t, int n)
{
    int slot = fl_worker_cached_slot(w, s);

    for (int l = 0; l < w->n_lane; l++)
        s->keys[l].n = 0;
    for (int i = 0; i < w->layout.n_table; i++) {
        mark_table(w, s, i);
        for (int j = 0; j < n; j++)
            if (t[j].rows == w->layout.table[i])
                FL_TRY(slot < 0 ? share_out(w, s, &t[j])
                                : fl_hot_pull_share_out(w, slot, i, &t[j]));
    }
    mark_table(w, s, w->layout.n_table);
    return fl_worker_sort_keys(w, s->keys);
}

/* --- asking --------------------------------------------------------------- */

/* The message that is being written for a lane. */
typedef struct pull_writer {
    fl_worker *w;
    fl_pull_buffer *slot;
    int lane;
    uint64_t version;
    fl_pull_request *r; /* NULL: none is begun */
    fl_msg_writer writer;
} pull_writer;

static fleet_status begin_request(pull_writer *a)
{
    fl_pull_buffer *s = a->slot;

    if ((size_t)s->n_request == s->n_made) {
        FL_TRY(fl_grow(&s->request, &s->request_capacity, s->n_made + 1,
                       sizeof(fl_pull_request *)));
        FL_TRY(FL_NEW(&s->request[s->n_made], sizeof(fl_pull_request)));
        s->n_made++;
    }
    a->r = s->request[s->n_request++];
    a->r->lane = a->lane;
    a->r->n_piece = 0;
    a->r->bytes = 0;
    fl_request_clear(&a->r->request);
    fl_client_begin(a->w->client, a->lane, &a->r->request, &a->writer,
                    FL_MSG_PULL, s->for_step, 0);
    return FLEET_OK;
}

static fleet_status end_request(pull_writer *a)
{
    fl_pull_request *r = a->r;

    if (!r)
        return FLEET_OK;
    a->r = NULL;
    FL_TRY(fl_client_add(a->w->client, &r->request, &a->writer));
    fl_client_send(a->w->client, &r->request, fl_worker_now(a->w));
    return FLEET_OK;
}

/* Ask for n keys; `bytes` will come. */
static fleet_status request_keys(pull_writer *a, int table, const uint64_t *key,
                                 fl_pull_piece piece, size_t bytes)
{
    fl_section *s;

    if (a->r && (a->r->bytes + bytes > a->w->piece_bytes ||
                 a->r->n_piece == FL_MSG_MOST_SECTION))
        FL_TRY(end_request(a));
    if (!a->r)
        FL_TRY(begin_request(a));
    s = fl_msg_section(&a->writer,
                       table < 0     ? FL_SECTION_DENSE
                       : piece.known ? FL_SECTION_NEWER
                                     : FL_SECTION_ROWS,
                       table < 0 ? 0 : (uint32_t)table);
    if (s) {
        s->n_key = (uint32_t)piece.n;
        s->codec = (uint8_t)piece.codec;
        s->version = a->version;
    }
    FL_TRY(fl_worker_write_keys(a->w, &a->writer, key, piece.n));
    if (piece.known)
        fl_hot_pull_put_versions(a->w, fl_worker_cached_slot(a->w, a->slot),
                                 a->lane, &piece, &a->writer);
    a->r->piece[a->r->n_piece++] = piece;
    a->r->bytes += bytes;
    return a->writer.status;
}

static fl_codec codec_of(const pull_writer *a)
{
    return a->slot->exact ? FL_CODEC_F32 : a->w->wire.pull;
}

/* Keys first to end of a list of a table's; what is said of known ones are
 * floats. */
static fleet_status request_list(pull_writer *a, int table, const uint64_t *key,
                                 int64_t first, int64_t end, bool known)
{
    int64_t dim = a->w->layout.table[table]->dim;
    fl_codec codec = known ? FL_CODEC_F32 : fl_codec_of_rows(codec_of(a), dim);
    size_t one = fl_codec_bytes(codec, dim);
    int64_t most = (int64_t)(a->w->piece_bytes / one);

    most = most < 1 ? 1 : most;
    for (int64_t i = first; i < end; i += most) {
        fl_pull_piece piece = {table, i, end - i < most ? end - i : most, known,
                               codec};

        FL_TRY(request_keys(a, table, key + i, piece, (size_t)piece.n * one));
    }
    return FLEET_OK;
}

static fleet_status request_rows(pull_writer *a, int table)
{
    const fl_lane_keys *k = &a->slot->keys[a->lane];
    int slot = fl_worker_cached_slot(a->w, a->slot);
    const uint64_t *known;
    int64_t first, end;

    FL_TRY(request_list(a, table, k->key, k->first[table], k->first[table + 1],
                        false));
    if (slot < 0)
        return FLEET_OK;
    known = fl_hot_pull_known(a->w, slot, a->lane, table, &first, &end);
    return request_list(a, table, known, first, end, true);
}

/* How many blocks make a piece. */
int fl_worker_blocks(const fl_worker *w, fl_codec codec)
{
    size_t most = w->piece_bytes / fl_codec_bytes(codec, FL_BLOCK);

    return most < 1 ? 1 : (int)most;
}

/* Without dense parameters the first lane is asked for no blocks: the answer
 * says the version. */
static fleet_status request_blocks(pull_writer *a)
{
    const fl_lane_blocks *b = &a->w->block[a->lane];
    fl_codec codec = codec_of(a);
    int most = fl_worker_blocks(a->w, codec);
    int n = a->slot->all ? b->n : b->n_own;

    if ((a->slot->all ? a->w->n_block : a->w->n_own) == 0 && a->lane == 0)
        return request_keys(a, -1, b->key,
                            (fl_pull_piece){.table = -1, .codec = codec}, 0);
    for (int i = 0; i < n; i += most) {
        fl_pull_piece piece = {-1, i, n - i < most ? n - i : most, false,
                               codec};

        FL_TRY(request_keys(a, -1, b->key + i, piece,
                            (size_t)piece.n * fl_codec_bytes(codec, FL_BLOCK)));
    }
    return FLEET_OK;
}

static fleet_status request_lane(pull_writer *a, bool dense)
{
    if (dense)
        FL_TRY(request_blocks(a));
    for (int i = 0; i < a->w->layout.n_table; i++)
        FL_TRY(request_rows(a, i));
    return end_request(a);
}

/* --- the remote's pulls -------------------------------------------------- */

static void drop_slot(fl_worker *w, fl_pull_buffer *s)
{
    for (int i = 0; i < s->n_request; i++)
        fl_client_cancel(w->client, &s->request[i]->request);
    s->n_request = 0;
    s->under_way = s->arrived = s->has_rows = false;
}

void fl_worker_drop(fl_remote *x, int slot)
{
    fl_worker *w = worker_of(x);

    drop_slot(w, &w->slot[slot]);
    fl_hot_pull_release(w, slot);
}

static fleet_status send_pull(fl_worker *w, fl_pull_buffer *s, bool dense,
                              uint64_t version)
{
    pull_writer a = {.w = w, .slot = s, .version = version};

    s->dense = dense;
    for (a.lane = 0; a.lane < w->n_lane; a.lane++) {
        fleet_status status = request_lane(&a, dense);

        if (status != FLEET_OK) {
            if (a.r)
                fl_packet_drop(a.writer.packet);
            drop_slot(w, s);
            return status;
        }
    }
    s->under_way = true;
    return FLEET_OK;
}

fleet_status fl_worker_pull(fl_remote *x, int slot, const fl_pull_rows *table,
                            int n_table, bool dense, bool prefetch, bool now)
{
    fl_worker *w = worker_of(x);
    fl_pull_buffer *s = &w->slot[slot];
    bool gathers = w->group.how.merged > 0;
    uint64_t version;

    FL_TRY(fl_client_status(w->client));
    FL_TRY(fl_worker_make_keys(w, &s->keys));
    if (now) /* what is there now has what was gathered */
        FL_TRY(fl_group_flush(w));
    prefetch = prefetch && (!gathers || fl_group_pushes_next(w));
    version = now ? 0 : (uint64_t)(x->updates + prefetch);
    drop_slot(w, s);
    fl_hot_pull_start(w, slot, version, now);
    FL_TRY(share_out_all(w, s, table, n_table));
    s->exact = now;
    s->all = false;
    s->for_step = w->bounds_staleness && !now ? w->n_push + 1 + prefetch : 0;
    s->renews = dense && gathers;
    return send_pull(w, s,
                     dense && !gathers && !w->updating &&      /* push asks */
                         (w->n_part == 0 || w->lacks_weights), /* or a part
                                                           before has asked */
                     version);
}

fleet_status fl_worker_pull_dense(fl_worker *w, bool prefetch, bool exact,
                                  uint64_t for_step)
{
    fl_pull_buffer *s = &w->slot[FL_DENSE_SLOT];
    uint64_t version = prefetch ? (uint64_t)(w->remote.updates + 1) : 0;

    drop_slot(w, s);
    s->exact = s->all = exact;
    s->for_step = for_step;
    FL_TRY(share_out_all(w, s, NULL, 0));
    return send_pull(w, s, true, version);
}

/* --- what comes back ------------------------------------------------------ */

bool fl_pull_is_answered(const fl_pull_buffer *s)
{
    for (int i = 0; i < s->n_request; i++)
        if (!fl_request_is_answered(&s->request[i]->request))
            return false;
    return s->under_way;
}

/* A prefetch is for the step after the next push. If that one was skipped, as
 * in float16, lanes hold the pull until other workers are one step further than
 * they need to be, and two such workers would wait for each other; if another
 * executor has pushed as well, the values are older than the bound. */
static fleet_status ask_again(fl_worker *w, fl_pull_buffer *s)
{
    uint64_t now = w->n_push + 1;
    bool dense = s->dense;

    if (s->for_step == 0 || s->for_step == now || s->has_rows ||
        (s->for_step > now && fl_pull_is_answered(s)))
        return FLEET_OK;
    drop_slot(w, s);
    s->for_step = now;
    return send_pull(w, s, dense, 0);
}

/* Wait for a slot's answers and put them where they belong. */
fleet_status fl_worker_complete(fl_worker *w, int slot)
{
    fl_pull_buffer *s = &w->slot[slot];
    int64_t version = -1;

    if (!s->under_way || s->arrived)
        return FLEET_OK;
    FL_TRY(ask_again(w, s));
    for (int i = 0; i < s->n_request; i++)
        FL_TRY(fl_worker_wait(w, &s->request[i]->request, 1, "pull"));
    for (int i = 0; i < s->n_request; i++)
        FL_TRY(fl_worker_place_answer(w, s, s->request[i], &version));
    if (version >= 0 && !w->geo) /* which counts its own */
        w->remote.updates = version;
    if (s->dense)
        w->remote.behind = !s->all && w->n_own < w->n_block;
    w->lacks_weights = w->lacks_weights && !s->dense;
    s->arrived = true;
    return FLEET_OK;
}

static fleet_status worker_wait_pull(fl_remote *x, int slot)
{
    fl_worker *w = worker_of(x);

    FL_TRY(fl_worker_complete(w, slot));
    return w->slot[slot].renews ? fl_group_renew(w) : FLEET_OK;
}

/* Of one that is wrong nothing is used: wait_pull() says so. */
static bool worker_came(fl_remote *x, int slot)
{
    fl_worker *w = worker_of(x);
    fl_pull_buffer *s = &w->slot[slot];

    if (s->has_rows || !fl_pull_is_answered(s))
        return s->has_rows;
    for (int i = 0; i < s->n_request; i++)
        if (fl_worker_place_answer(w, s, s->request[i], NULL) != FLEET_OK) {
            fl_error_clear();
            return false;
        }
    return s->has_rows = true;
}

static fleet_status worker_refresh(fl_remote *x)
{
    fl_worker *w = worker_of(x);

    FL_TRY(fl_worker_wait_update(w));
    FL_TRY(fl_worker_pull_dense(w, false, true, 0));
    w->group.since = 0;
    return fl_worker_complete(w, FL_DENSE_SLOT);
}

const fl_remote_class fl_worker_methods = {
    .pull = fl_worker_pull,
    .wait_pull = worker_wait_pull,
    .came = worker_came,
    .drop = fl_worker_drop,
    .clip = fl_worker_clip,
    .push = fl_worker_push,
    .wait_update = fl_worker_update,
    .end_pass = fl_worker_end_pass,
    .refresh = worker_refresh,
};
