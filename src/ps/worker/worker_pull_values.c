/* worker_pull_values.c - what comes back from a pull: answers are checked, rows
 * are used where they lie, or read from fewer bytes into memory of the request,
 * blocks become the worker's weights. */
#include <string.h>

#include "base/memory.h"
#include "ps/worker/geo.h"
#include "ps/worker/hot_pull.h"
#include "ps/worker/worker_internal.h"

static int64_t dim_of(const fl_worker *w, const fl_pull_piece *piece)
{
    return w->layout.table[piece->table]->dim;
}

static int64_t floats_at(const fl_block_place *b)
{
    return (int64_t)(b->bytes / sizeof *b->weight);
}

static size_t expected_bytes(const fl_worker *w, const fl_pull_request *r,
                             const fl_pull_piece *piece)
{
    const fl_lane_blocks *b = &w->block[r->lane];
    size_t bytes = 0;

    if (piece->table >= 0)
        return (size_t)piece->n *
               fl_codec_bytes(piece->codec, dim_of(w, piece));
    for (int64_t i = 0; i < piece->n; i++) {
        fl_block_place at = fl_block_at(&w->layout, b->key[piece->first + i]);

        bytes += fl_codec_bytes(piece->codec, floats_at(&at));
    }
    return bytes;
}

static fleet_status check_answer(fl_worker *w, const fl_pull_request *r,
                                 const fl_msg *msg)
{
    bool good = msg && msg->head.n_section == r->n_piece;

    for (int i = 0; good && i < r->n_piece; i++)
        good = r->piece[i].known
                   ? fl_hot_pull_is_sound(w, &r->piece[i], msg, i)
                   : msg->section[i].n_key == (uint64_t)r->piece[i].n &&
                         msg->section[i].codec == r->piece[i].codec &&
                         msg->column[i][FL_AT_VALUES].size ==
                             expected_bytes(w, r, &r->piece[i]);
    return good ? FLEET_OK
                : fl_fail(FLEET_EFORMAT,
                          "%s has answered a pull with something else",
                          fl_client_lane_name(w->client, r->lane));
}

/* The version that the answers are of: one in sync, the latest in async, and of
 * a worker that does not take part yet, which other workers do not wait for. */
static fleet_status note_version(fl_worker *w, const fl_pull_request *r,
                                 const fl_msg *msg, int64_t *version)
{
    bool waited_for = !w->trail || !fl_trail_is_early(w->trail);

    for (int i = 0; i < r->n_piece; i++) {
        int64_t one = (int64_t)msg->section[i].version;

        if (w->remote.sync && waited_for && *version >= 0 && one != *version)
            return fl_fail(FLEET_EPEER, "%s has version %lld, others have %lld",
                           fl_client_lane_name(w->client, r->lane),
                           (long long)one, (long long)*version);
        *version = one > *version ? one : *version;
    }
    return FLEET_OK;
}

/* --- rows ----------------------------------------------------------------- */

/* Can they be used where they came? */
static bool lies_well(const fl_pull_piece *piece, const fl_frame *values)
{
    return piece->codec == FL_CODEC_F32 &&
           (uintptr_t)values->data % sizeof(float) == 0;
}

/* The numbers of rows that have come: of known ones fewer than were asked
 * for. */
static int64_t floats_of_rows(const fl_worker *w, const fl_pull_piece *piece,
                              const fl_frame *values)
{
    return piece->known ? (int64_t)(values->size / sizeof(float))
                        : piece->n * dim_of(w, piece);
}

/* Room for the rows that cannot. */
static fleet_status make_aligned(const fl_worker *w, fl_pull_request *r,
                                 const fl_msg *msg)
{
    int64_t n = 1;

    for (int i = 0; i < r->n_piece; i++) {
        const fl_frame *values = &msg->column[i][FL_AT_VALUES];

        if (r->piece[i].table >= 0 && !lies_well(&r->piece[i], values))
            n += floats_of_rows(w, &r->piece[i], values);
    }
    return fl_grow(&r->aligned, &r->aligned_capacity, (size_t)n, sizeof(float));
}

/* Of the piece of section i. */
static void place_rows(fl_worker *w, fl_pull_buffer *s,
                       const fl_pull_request *r, int i, const fl_msg *msg,
                       const float *values)
{
    const fl_pull_piece *piece = &r->piece[i];
    const float ***row = s->keys[r->lane].at;
    int64_t dim = dim_of(w, piece);
    int slot = fl_worker_cached_slot(w, s);

    if (piece->known) {
        fl_hot_pull_place(w, slot, r->lane, piece, msg, i, values);
        return;
    }
    for (int64_t j = 0; j < piece->n; j++)
        *row[piece->first + j] = values + j * dim;
    if (slot >= 0)
        fl_hot_pull_keep(w, slot, r->lane, piece, &msg->section[i], values);
}

static fleet_status place_all_rows(fl_worker *w, fl_pull_buffer *s,
                                   fl_pull_request *r, const fl_msg *msg)
{
    float *aligned;

    FL_TRY(make_aligned(w, r, msg));
    aligned = r->aligned;
    for (int i = 0; i < r->n_piece; i++) {
        const fl_pull_piece *piece = &r->piece[i];
        const fl_frame *from = &msg->column[i][FL_AT_VALUES];
        const float *values = from->data;
        int64_t n;

        if (piece->table < 0)
            continue;
        if (!lies_well(piece, from)) {
            n = floats_of_rows(w, piece, from);
            fl_codec_read(piece->codec, aligned, from->data,
                          n / dim_of(w, piece), dim_of(w, piece));
            values = aligned;
            aligned += n;
        }
        place_rows(w, s, r, i, msg, values);
    }
    return FLEET_OK;
}

/* --- blocks --------------------------------------------------------------- */

/* In geo mode, which pulls floats alone, they are added to copies, and have to
 * lie as floats do. */
static fleet_status merge_block(fl_worker *w, fl_pull_request *r, uint64_t key,
                                const char *from, int64_t n)
{
    const float *values = (const float *)(const void *)from;

    if ((uintptr_t)from % sizeof(float) != 0) {
        FL_TRY(fl_grow(&r->aligned, &r->aligned_capacity, (size_t)n,
                       sizeof(float)));
        values = memcpy(r->aligned, from, (size_t)n * sizeof(float));
    }
    fl_geo_take_block(w, key, values);
    return FLEET_OK;
}

static fleet_status place_blocks(fl_worker *w, fl_pull_request *r,
                                 const fl_pull_piece *piece,
                                 const fl_frame *values)
{
    const uint64_t *block = w->block[r->lane].key + piece->first;
    const char *from = values->data;

    for (int64_t i = 0; i < piece->n; i++) {
        fl_block_place at = fl_block_at(&w->layout, block[i]);
        int64_t n = floats_at(&at);

        if (w->geo)
            FL_TRY(merge_block(w, r, block[i], from, n));
        else
            fl_codec_read(piece->codec, at.weight, from, 1, n);
        from += fl_codec_bytes(piece->codec, n);
    }
    return FLEET_OK;
}

/* --- an answer ------------------------------------------------------------ */

fleet_status fl_worker_place_answer(fl_worker *w, fl_pull_buffer *s,
                                    fl_pull_request *r, int64_t *version)
{
    const fl_msg *msg = fl_client_answer(w->client, &r->request);

    FL_TRY(check_answer(w, r, msg));
    if (version)
        FL_TRY(note_version(w, r, msg, version));
    if (!s->has_rows)
        FL_TRY(place_all_rows(w, s, r, msg));
    for (int i = 0; version && i < r->n_piece; i++)
        if (r->piece[i].table < 0)
            FL_TRY(place_blocks(w, r, &r->piece[i],
                                &msg->column[i][FL_AT_VALUES]));
    return FLEET_OK;
}
