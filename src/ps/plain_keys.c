/* plain_keys.c - a message copied, its packed keys unpacked. */
#include "ps/plain_keys.h"

#include <inttypes.h>
#include <string.h>

#include "ps/codec_keys.h"

static bool has_any_packed(const fl_msg *msg)
{
    for (int i = 0; i < msg->head.n_section; i++)
        if (fl_has_packed_keys(&msg->section[i]))
            return true;
    return false;
}

/* A few bytes may stand for many keys: all of a message as many as fit into a
 * frame. */
static fleet_status check_unpacked(const fl_msg *msg)
{
    uint64_t n = 0;

    for (int i = 0; i < msg->head.n_section; i++)
        if (fl_has_packed_keys(&msg->section[i]))
            n += msg->section[i].n_key;
    if (n * sizeof(uint64_t) <= FL_MOST_FRAME_BYTES)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%" PRIu64 " packed keys at once: expected %zu at most", n,
                   FL_MOST_FRAME_BYTES / sizeof(uint64_t));
}

static fleet_status unpack_column(fl_msg_writer *w, const fl_section *s,
                                  const fl_frame *column)
{
    uint64_t *key =
        fl_msg_column(w, FL_COLUMN_KEYS, (size_t)s->n_key * sizeof *key);

    if (!key)
        return w->status;
    return fl_keys_unpack(key, s->n_key, column->data, column->size)
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL, "%u packed keys that are not so",
                         (unsigned)s->n_key);
}

static fleet_status copy_section(fl_msg_writer *w, const fl_section *s,
                                 const fl_frame column[FL_N_COLUMN])
{
    fl_section *to = fl_msg_section(w, (fl_section_op)s->op, s->table);

    if (!to)
        return w->status;
    *to = *s;
    to->columns = 0;
    to->codec = (uint8_t)fl_codec_of(s);
    for (int bit = 0; bit < FL_N_COLUMN; bit++) {
        const fl_frame *from = &column[bit];
        void *copy;

        if (!(s->columns & 1 << bit))
            continue;
        if (bit == FL_AT_KEYS && fl_has_packed_keys(s)) {
            FL_TRY(unpack_column(w, s, from));
            continue;
        }
        copy = fl_msg_column(w, 1 << bit, from->size);
        if (!copy)
            return w->status;
        if (from->size > 0)
            memcpy(copy, from->data, from->size);
    }
    return FLEET_OK;
}

fleet_status fl_plain_keys(fl_packet_pool *pool, fl_packet *p, fl_msg *msg,
                           fl_packet **plain)
{
    fleet_status status = FLEET_OK;
    fl_msg_writer w;

    *plain = NULL;
    if (!has_any_packed(msg)) {
        *plain = fl_packet_keep(p);
        return FLEET_OK;
    }
    FL_TRY(check_unpacked(msg));
    fl_msg_begin(&w, pool, &msg->head);
    for (int i = 0; i < msg->head.n_section && status == FLEET_OK; i++)
        status = copy_section(&w, &msg->section[i], msg->column[i]);
    if (status != FLEET_OK) {
        fl_packet_drop(w.packet);
        return status;
    }
    FL_TRY(fl_msg_end(&w, msg->head.flags & FL_MSG_CRC_ALL, plain));
    status = fl_msg_decode(*plain, msg);
    if (status != FLEET_OK) {
        fl_packet_drop(*plain);
        *plain = NULL;
    }
    return status;
}
