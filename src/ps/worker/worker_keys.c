/* worker_keys.c - a worker's keys, as they stand in a message: as they are, or
 * sorted and packed. */
#include <string.h>

#include "base/memory.h"
#include "ps/codec_keys.h"
#include "ps/worker/worker_internal.h"

static fleet_status sort_lane(fl_worker *w, fl_lane_keys *k)
{
    fl_lane_keys *scratch = &w->sorting;

    FL_TRY(fl_grow(&scratch->key, &scratch->key_capacity, (size_t)k->n,
                   sizeof *k->key));
    FL_TRY(fl_grow(&scratch->at, &scratch->at_capacity, (size_t)k->n,
                   sizeof(void *)));
    for (int t = 0; t < w->layout.n_table; t++)
        fl_keys_sort(k->key + k->first[t], (void **)k->at + k->first[t],
                     k->first[t + 1] - k->first[t], scratch->key, scratch->at);
    return FLEET_OK;
}

fleet_status fl_worker_sort_keys(fl_worker *w, fl_lane_keys *keys)
{
    for (int l = 0; w->wire.packs_keys && l < w->n_lane; l++)
        FL_TRY(sort_lane(w, &keys[l]));
    return FLEET_OK;
}

static fleet_status write_packed(fl_msg_writer *writer, fl_section *s,
                                 const uint64_t *key, int64_t n)
{
    void *to = fl_msg_column(writer, FL_COLUMN_KEYS, fl_keys_most_bytes(n));

    if (!to)
        return writer->status;
    s->codec |= (uint8_t)FL_PACKED_KEYS;
    fl_msg_shorten(writer, fl_keys_pack(to, key, n));
    return FLEET_OK;
}

fleet_status fl_worker_write_keys(const fl_worker *w, fl_msg_writer *writer,
                                  const uint64_t *key, int64_t n)
{
    fl_section *s;
    void *to;

    if (writer->status != FLEET_OK) /* there may be no section */
        return writer->status;
    s = &writer->section[writer->n_section - 1];
    if (w->wire.packs_keys && s->op == FL_SECTION_ROWS)
        return write_packed(writer, s, key, n);
    to = fl_msg_column(writer, FL_COLUMN_KEYS, (size_t)n * sizeof *key);
    if (to && n > 0)
        memcpy(to, key, (size_t)n * sizeof *key);
    return writer->status;
}
