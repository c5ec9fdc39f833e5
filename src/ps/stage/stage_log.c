/* stage_log.c - a record for each trainer. */
#include "ps/stage/stage_log.h"

#include <stdio.h>

#include "base/memory.h"
#include "ps/trail/trail_packets.h"

typedef struct trainer_log {
    fl_trail_slots slots;
    fl_trail_record found; /* its last one, of the process before */
} trainer_log;

struct fl_stage_log {
    int first, n;
    trainer_log *trainer;
};

static trainer_log *log_of(const fl_stage_log *l, int trainer)
{
    return &l->trainer[trainer - l->first];
}

/* --- life ----------------------------------------------------------------- */

static fleet_status read_trainer(trainer_log *t)
{
    fl_trail_record found[2] = {{0}};
    int n = 0;
    fleet_status status = fl_trail_slots_read(&t->slots, found, &n);

    for (int i = 0; i < n; i++) {
        fl_free(t->found.data);
        t->found = found[i];
    }
    return status;
}

static fleet_status open_all(fl_stage_log *l, const char *folder, bool flushes)
{
    FL_TRY(FL_NEW(&l->trainer, ((size_t)l->n + 1) * sizeof *l->trainer));
    for (int i = 0; i < l->n; i++)
        l->trainer[i].slots.fd[0] = l->trainer[i].slots.fd[1] = -1;
    for (int i = 0; i < l->n; i++) {
        char name[32];

        snprintf(name, sizeof name, "trainer-%d", l->first + i);
        FL_TRY(
            fl_trail_slots_open(&l->trainer[i].slots, folder, name, flushes));
        FL_TRY(read_trainer(&l->trainer[i]));
    }
    return FLEET_OK;
}

fleet_status fl_stage_log_open(fl_stage_log **log, const char *folder,
                               int first, int n, bool flushes)
{
    fleet_status status;

    FL_TRY(FL_NEW(log, sizeof **log));
    (*log)->first = first;
    (*log)->n = n;
    status = open_all(*log, folder, flushes);
    if (status == FLEET_OK)
        return status;
    fl_stage_log_close(*log);
    *log = NULL;
    return status;
}

void fl_stage_log_forget(fl_stage_log *l)
{
    for (int i = 0; l->trainer && i < l->n; i++) {
        fl_free(l->trainer[i].found.data);
        l->trainer[i].found = (fl_trail_record){0};
    }
}

void fl_stage_log_close(fl_stage_log *l)
{
    if (!l)
        return;
    fl_stage_log_forget(l);
    for (int i = 0; l->trainer && i < l->n; i++)
        fl_trail_slots_close(&l->trainer[i].slots);
    fl_free(l->trainer);
    fl_free(l);
}

/* --- written, read -------------------------------------------------------- */

fleet_status fl_stage_log_write(fl_stage_log *l, int trainer,
                                const fl_stage_record *r,
                                const fl_trail_packets *lane,
                                fl_packet *const *answer)
{
    fl_trail_slots *s = &log_of(l, trainer)->slots;

    FL_TRY(fl_trail_slots_begin(s));
    FL_TRY(fl_trail_slots_put(s, r, sizeof *r));
    if (r->n_lane > 0) {
        FL_TRY(fl_trail_put_packets(s, lane, (int)r->n_lane));
        for (uint32_t i = 0; i < r->n_answer; i++)
            FL_TRY(fl_trail_put_packet(s, answer[i]));
    }
    return fl_trail_slots_write(s);
}

const fl_stage_record *fl_stage_log_last(const fl_stage_log *l, int trainer,
                                         uint32_t run)
{
    const fl_trail_record *found = &log_of(l, trainer)->found;
    const fl_stage_record *r;
    size_t at = 0;

    r = found->data ? fl_trail_take(found, &at, sizeof *r) : NULL;
    return r && r->run == run ? r : NULL;
}

static fleet_status visit_all(const fl_trail_record *found,
                              fl_trail_visit *visit, void *arg)
{
    fl_frame frame[FL_MOST_FRAME];
    const fl_stage_record *r;
    fl_packet answer;
    size_t at = 0;

    r = fl_trail_take(found, &at, sizeof *r);
    if (!r)
        return FLEET_ECORRUPT;
    FL_TRY(fl_trail_visit_packets(found, &at, r->step, (int)r->n_lane, visit,
                                  arg));
    for (int i = 0; i < (int)r->n_answer; i++) {
        FL_TRY(fl_trail_take_packet(found, &at, frame, &answer));
        FL_TRY(visit(arg, r->step, -1 - i, &answer));
    }
    return FLEET_OK;
}

fleet_status fl_stage_log_each_packet(const fl_stage_log *l, int trainer,
                                      fl_trail_visit *visit, void *arg)
{
    const trainer_log *t = log_of(l, trainer);
    fleet_status status = visit_all(&t->found, visit, arg);

    return status == FLEET_ECORRUPT
               ? fl_fail(FLEET_ECORRUPT, "a batch in the log %s is none",
                         t->slots.path[t->found.number % 2])
               : status;
}
