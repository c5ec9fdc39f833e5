/* sim_network.c - packets of the simulator and their way; see sim.h. */
#define SUITE sim_kit
#include "sim_internal.h"
#include "base/crc32c.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- packets -------------------------------------------------------------- */

/* owner: how odd its places are. */
static void release_copy(fl_packet *p)
{
    for (int i = 0; i < p->n_frame; i++)
        free((char *)p->frame[i].data - (uintptr_t)p->owner);
    free(p);
}

fl_packet *sim_copy(const fl_packet *p, int odd)
{
    fl_packet *q = calloc(1, sizeof *q + (size_t)p->n_frame * sizeof(fl_frame));

    CHECK(q != NULL);
    *q = (fl_packet){.refs = 1,
                     .n_frame = p->n_frame,
                     .frame = (fl_frame *)(void *)(q + 1),
                     .bytes = p->bytes,
                     .release = release_copy,
                     .owner = (void *)(uintptr_t)odd};
    for (int i = 0; i < p->n_frame; i++) {
        char *data = malloc(p->frame[i].size + (size_t)odd + 1);

        CHECK(data != NULL);
        q->frame[i] = (fl_frame){data + odd, p->frame[i].size};
        memcpy(data + odd, p->frame[i].data, p->frame[i].size);
    }
    if (p->ledger) {
        q->ledger = p->ledger;
        q->account = p->account;
        q->charged = p->charged;
        fl_ledger_charge(q->ledger, q->account, q->charged);
    }
    return q;
}

void sim_arrives(fl_packet *p)
{
    if (p->ledger)
        fl_ledger_credit(p->ledger, p->account, p->charged);
    p->ledger = NULL;
}

/* Places in a head. */
enum {
    AT_VERSION = 4,
    AT_KIND = 5,
    AT_FLAGS = 6,
    AT_JOB_ID = 12,
    AT_RUN = 8,
    AT_PEER = 48,
    AT_STREAM = 24,
    AT_INCARNATION = 28,
    AT_SUM = 60
};

enum { MOST_LOST = 2 };

void sim_sum(fl_packet *p)
{
    uint8_t *head = p->frame[0].data;
    int n = head[AT_FLAGS] & FL_MSG_CRC_ALL ? p->n_frame : 2;
    uint32_t sum = 0;

    memset(head + AT_SUM, 0, sizeof sum);
    for (int i = 0; i < n && i < p->n_frame; i++)
        sum = fl_crc32c(sum, p->frame[i].data, p->frame[i].size);
    memcpy(head + AT_SUM, &sum, sizeof sum);
}

static void flip_a_bit(sim *s, fl_packet *p)
{
    fl_frame *f = &p->frame[sim_random(s, (uint64_t)p->n_frame)];

    if (f->size == 0)
        f = &p->frame[0];
    ((uint8_t *)f->data)[sim_random(s, f->size)] ^=
        (uint8_t)(1u << sim_random(s, 8));
}

static void make_noise(sim *s, fl_packet *p)
{
    for (int i = 0; i < p->n_frame; i++)
        for (size_t j = 0; j < p->frame[i].size && j < 200; j++)
            ((uint8_t *)p->frame[i].data)[j] = (uint8_t)sim_random(s, 256);
}

static void change(fl_packet *p, int at, uint32_t to)
{
    memcpy((char *)p->frame[0].data + at, &to, sizeof to);
    sim_sum(p);
}

/* What is not of this job, made of what is. True: it is a message of a process
 * that is gone. Columns are covered by the sum, because whole_sums is on. */
static bool make_strange(sim *s, fl_packet *p, const sim_event *e)
{
    /* a hello has no incarnation yet */
    int n = e->kind == SIM_TO_WORKER ? 5 : e->joins ? 7 : 8;

    switch (sim_random(s, (uint64_t)n)) {
    case 0:
        flip_a_bit(s, p);
        if (e->joins) /* another version is believed without a sum */
            ((uint8_t *)p->frame[0].data)[AT_VERSION] = FL_MSG_VERSION;
        return false;
    case 1:
        make_noise(s, p);
        return false;
    case 2:
        change(p, AT_JOB_ID, (uint32_t)sim_random(s, 1000));
        return false;
    case 3:
        change(p, AT_STREAM, (uint32_t)(s->o.n_worker + (int)sim_random(s, 9)));
        return false;
    case 4:
        p->n_frame = 1 + (int)sim_random(s, (uint64_t)p->n_frame);
        return false;
    case 5:
        change(p, AT_RUN, SIM_RUN - 1);
        return true;
    case 6:
        change(p, AT_PEER, SIM_NONCE - 1);
        return true;
    default:
        change(p, AT_INCARNATION, SIM_INCARNATION - 1);
        return true;
    }
}

/* --- links ---------------------------------------------------------------- */

int sim_kind_of_packet(const fl_packet *p)
{
    return ((const uint8_t *)p->frame[0].data)[AT_KIND];
}

int sim_flags_of_packet(const fl_packet *p)
{
    uint16_t flags;

    memcpy(&flags, (const uint8_t *)p->frame[0].data + AT_FLAGS, sizeof flags);
    return flags;
}

/* e->at_ms: how much later than otherwise, of what a cut link holds. */
static int64_t arrival(sim *s, sim_event *e)
{
    int64_t *last, at = s->now_ms + e->at_ms +
                        (int64_t)sim_random(s, (uint64_t)s->o.delay_ms + 1);

    if (e->worker == SIM_NOBODY)
        return at;
    last = &s->last[e->kind][e->worker][e->lane];
    if (s->o.in_order && at < *last)
        at = *last;
    return *last = at;
}

static void post_copy(sim *s, sim_event e, const fl_packet *p)
{
    e.packet = sim_copy(p, sim_random(s, 4) ? 0 : 1 + (int)sim_random(s, 7));
    e.at_ms = arrival(s, &e);
    sim_post(s, e);
}

static void post_strange(sim *s, sim_event e, const fl_packet *p)
{
    fl_packet *q = sim_copy(p, 0);
    int n_frame = q->n_frame;

    if (make_strange(s, q, &e))
        e.worker = SIM_NOBODY;
    post_copy(s, e, q);
    q->n_frame = n_frame;
    fl_packet_drop(q);
}

/* An ABORT is the last word of a process, whose sockets linger for it: it is
 * late, but not lost. Hellos are few: of them and their answers no three are
 * lost in a row, so that they come before deadlines. */
static bool is_lost(sim *s, const sim_event *e, const fl_packet *p)
{
    bool lost = sim_happens(s, s->o.lost);
    uint8_t *hellos = &s->lost[e->worker][e->server];

    if (sim_kind_of_packet(p) == FL_MSG_ABORT)
        return false;
    if (!e->joins)
        return lost;
    lost = lost && *hellos < MOST_LOST;
    if (lost)
        ++*hellos;
    else if (e->kind == SIM_TO_WORKER)
        *hellos = 0;
    return lost;
}

void sim_carry(sim *s, sim_event e, const fl_packet *p)
{
    int64_t until_ms;
    bool holds;

    if (sim_is_cut(s, &e, &until_ms, &holds)) {
        if (!holds) {
            sim_say(s, "cut off", e.worker, e.lane, p);
            return;
        }
        e.at_ms = until_ms - s->now_ms;
    }
    if (sim_happens(s, s->o.strange))
        post_strange(s, e, p);
    if (is_lost(s, &e, p)) {
        sim_say(s, "lost", e.worker, e.lane, p);
        return;
    }
    post_copy(s, e, p);
    while (sim_happens(s, s->o.repeated))
        post_copy(s, e, p);
}
