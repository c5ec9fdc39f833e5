/* trail_packets.c - packets in records, frame by frame. */
#include "ps/trail/trail_packets.h"

/* --- put ------------------------------------------------------------------ */

fleet_status fl_trail_put_packet(fl_trail_slots *s, const fl_packet *p)
{
    uint64_t n = (uint64_t)p->n_frame;

    FL_TRY(fl_trail_slots_put(s, &n, sizeof n));
    for (int i = 0; i < p->n_frame; i++) {
        uint64_t size = p->frame[i].size;

        FL_TRY(fl_trail_slots_put(s, &size, sizeof size));
        FL_TRY(fl_trail_slots_put(s, p->frame[i].data, size));
    }
    return FLEET_OK;
}

fleet_status fl_trail_put_packets(fl_trail_slots *s,
                                  const fl_trail_packets *lane, int n_lane)
{
    for (int i = 0; i < n_lane; i++) {
        uint64_t n = (uint64_t)lane[i].n;

        FL_TRY(fl_trail_slots_put(s, &n, sizeof n));
        for (int j = 0; j < lane[i].n; j++)
            FL_TRY(fl_trail_put_packet(s, lane[i].packet[j]));
    }
    return FLEET_OK;
}

/* --- taken ---------------------------------------------------------------- */

static const uint64_t *take_number(const fl_trail_record *r, size_t *at)
{
    return fl_trail_take(r, at, sizeof(uint64_t));
}

fleet_status fl_trail_take_packet(const fl_trail_record *r, size_t *at,
                                  fl_frame frame[FL_MOST_FRAME], fl_packet *p)
{
    const uint64_t *n = take_number(r, at);

    if (!n || *n > FL_MOST_FRAME)
        return FLEET_ECORRUPT;
    *p = (fl_packet){.refs = 1, .n_frame = (int)*n, .frame = frame};
    for (uint64_t i = 0; i < *n; i++) {
        const uint64_t *size = take_number(r, at);
        const void *data = size ? fl_trail_take(r, at, *size) : NULL;

        if (!data)
            return FLEET_ECORRUPT;
        frame[i] = (fl_frame){(void *)(uintptr_t)data, *size};
        p->bytes += *size;
    }
    return FLEET_OK;
}

static fleet_status visit_lane(const fl_trail_record *r, size_t *at,
                               uint64_t step, int lane, fl_trail_visit *visit,
                               void *arg)
{
    const uint64_t *n = take_number(r, at);
    fleet_status status = n ? FLEET_OK : FLEET_ECORRUPT;

    for (uint64_t i = 0; status == FLEET_OK && i < *n; i++) {
        fl_frame frame[FL_MOST_FRAME];
        fl_packet p;

        status = fl_trail_take_packet(r, at, frame, &p);
        if (status == FLEET_OK)
            status = visit(arg, step, lane, &p);
    }
    return status;
}

fleet_status fl_trail_visit_packets(const fl_trail_record *r, size_t *at,
                                    uint64_t step, int n_lane,
                                    fl_trail_visit *visit, void *arg)
{
    for (int i = 0; i < n_lane; i++)
        FL_TRY(visit_lane(r, at, step, i, visit, arg));
    return FLEET_OK;
}
