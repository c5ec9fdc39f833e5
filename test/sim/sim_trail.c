/* sim_trail.c - see sim_trail.h. */
#define SUITE sim_kit
#include "sim_trail.h"
#include "sim_internal.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/folder.h"

enum { MOST_AWAY_MS = 4000 };

typedef struct sim_mark {
    int32_t pass, step;
    uint64_t seen; /* bytes of its log */
} sim_mark;

void sim_trail_clear(const char *folder)
{
    char path[300];

    mkdir(folder, 0755);
    for (int i = 0; i < SIM_MOST_WORKER; i++) {
        snprintf(path, sizeof path, "%s/worker-%d", folder, i);
        fl_folder_remove(path);
    }
}

void sim_keep_log(sim_worker *w)
{
    memcpy(w->s->seen[w->index], w->log, sizeof w->log);
}

static size_t mark(void *arg, bool over, void *to)
{
    sim_worker *w = arg;
    const sim_mark m = {w->mark[0], w->mark[1], strlen(w->log)};

    (void)over;
    sim_keep_log(w);
    memcpy(to, &m, sizeof m);
    return sizeof m;
}

bool sim_trail_open(sim_worker *w, fl_hello_options *o)
{
    sim *s = w->s;

    if (!s->o.trail)
        return true;
    CHECK_OK(fl_trail_open(&w->trail, &(fl_trail_options){.folder = s->o.trail,
                                                          .worker = w->index}));
    if (w->life > 1 && fl_trail_from(w->trail)->state == FL_TRAIL_GONE) {
        memcpy(w->log, s->seen[w->index], sizeof w->log);
        sim_worker_ends(w);
        return false;
    }
    o->nonce = fl_trail_nonce(w->trail);
    o->life = fl_trail_life(w->trail) + SIM_INCARNATION - 1;
    return true;
}

void sim_trail_enter(sim_worker *w)
{
    if (!w->trail)
        return;
    CHECK_OK(fl_trail_enter(w->trail, w->lanes.run));
    CHECK_OK(fl_worker_use_trail(&w->core, w->trail,
                                 &(fl_trail_host){.arg = w, .mark = mark},
                                 w->index));
    if (w->life > 1 && fl_trail_from(w->trail)->state == FL_TRAIL_LEAVING)
        memcpy(w->log, w->s->seen[w->index], sizeof w->log);
}

fleet_status sim_go_on(sim_worker *w, int *pass, int *step)
{
    sim_mark m;

    if (!w->trail || !fl_trail_is_early(w->trail))
        return FLEET_OK;
    CHECK_INT(fl_trail_from(w->trail)->mark_size, sizeof m);
    memcpy(&m, fl_trail_from(w->trail)->mark, sizeof m);
    memcpy(w->log, w->s->seen[w->index], m.seen);
    w->log[m.seen] = 0;
    *pass = m.pass;
    *step = m.step;
    return fl_worker_go_on(&w->core);
}

void sim_trail_message(sim_worker *w)
{
    sim *s = w->s;

    if (!s->o.trail || s->n_worker_died >= s->o.trail_deaths ||
        sim_random(s, (uint64_t)s->o.trail_every) > 0)
        return;
    w->dying = true;
    s->o.fault[1] = (sim_fault){.kind = SIM_DIES,
                                .worker = w->process,
                                .server = SIM_NOBODY,
                                .ms = 1 + (int64_t)sim_random(s, MOST_AWAY_MS)};
    s->fault[1].begun = true;
    s->n_worker_died++;
    sim_say(s, "a worker dies as it sends", w->process, -1, NULL);
}
