/* trail_mark.c - positions in a worker's trail, and taken from it. */
#include "fleet/job/trail_mark.h"

#include <inttypes.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/job/dataset.h"
#include "ps/worker/worker_io.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/remote.h"

_Static_assert(sizeof(fl_trail_mark) <= FL_MOST_MARK, "a trail has room");

/* --- written -------------------------------------------------------------- */

static const fleet_dataset *trained(const fleet *f)
{
    const fleet_dataset *d = f->datasets;

    while (d && !d->trainer)
        d = d->next;
    return d;
}

/* No setter is called within a pass. */
static void put_plateau(const fleet *f, fl_trail_mark *m)
{
    const fleet_optimizer *o = f->store->optimizer;

    if (!o || !o->plateau.on)
        return;
    m->learning_rate = (double)o->learning_rate;
    m->best = o->plateau.seen.best;
    m->bad = o->plateau.seen.bad;
    m->cooling = o->plateau.seen.cooling;
    m->reports = o->plateau.seen.reports;
}

/* The push is of the iteration or the round that is under way, which `at` does
 * not count yet, or of what was left of a merge group, at the end of the pass.
 * Where each batch of a round has a push it is not known of which one it is. */
static size_t put_mark(void *arg, bool over, void *to)
{
    const fleet_dataset *d = trained(arg);
    fl_trail_mark m;

    if (!d || d->updates_alone)
        return 0;
    m = (fl_trail_mark){.dataset = d->begun,
                        .from_batch = d->from_batch,
                        .from_samples = d->from_samples,
                        .at = d->at,
                        .loss_samples = d->trainer->loss_samples};
    m.at.loss_sum = d->trainer->loss_sum;
    put_plateau(arg, &m);
    m.at.batch += d->round.n_batch;
    m.at.samples += d->round.n_sample;
    if (!over && d->most_held == 0 && d->trainer->n_run > d->last_run) {
        m.at.batch++;
        m.at.samples += d->trainer->last_batch;
    }
    memcpy(to, &m, sizeof m);
    return sizeof m;
}

static char *describe(void *arg)
{
    fl_json *list = NULL;
    char *text = NULL;

    if (fl_positions_all(arg, &list) == FLEET_OK)
        text = list ? fl_json_print(list, false) : fl_strdup("[]");
    fl_json_free(list);
    return text;
}

fl_trail_host fl_trail_mark_host(fleet *f)
{
    return (fl_trail_host){f, put_mark, describe};
}

/* --- taken ---------------------------------------------------------------- */

/* The list of the trail, with the dataset that was trained where it is now. */
static fleet_status take_list(fleet *f, const char *text,
                              const fl_trail_mark *m)
{
    fl_saved_position *saved = NULL;
    fl_json *json = NULL;
    int n = 0;
    fleet_status status = fl_json_parse(text, strlen(text), "log", &json);

    if (status == FLEET_OK) {
        fl_at root = fl_at_root(json);

        status = fl_positions_read(&root, &saved, &n);
    }
    fl_json_free(json);
    if (status == FLEET_OK && (m->dataset < 1 || m->dataset > n))
        status = fl_fail(FLEET_ECORRUPT,
                         "the log of worker %d is of dataset %" PRId64
                         ", and has the positions of %d",
                         f->role.index, m->dataset, n);
    if (status != FLEET_OK) {
        fl_positions_done(saved, n);
        return status;
    }
    saved[m->dataset - 1].at = m->at;
    for (int i = 0; i < n; i++) { /* which is of saves of all workers */
        fl_free(saved[i].inexact);
        saved[i].inexact = NULL;
    }
    fl_positions_set(f, saved, n, true);
    return FLEET_OK;
}

static void take_plateau(fleet *f, const fl_trail_mark *m)
{
    const fl_plateau_state s = {.learning_rate = (float)m->learning_rate,
                                .best = m->best,
                                .bad = m->bad,
                                .cooling = m->cooling,
                                .reports = m->reports};

    if (f->store->optimizer)
        fl_optimizer_resume_plateau(f->store->optimizer, &s);
}

fleet_status fl_trail_mark_take(fleet *f)
{
    const fl_trail_point *from =
        f->worker_io && !f->mark ? fl_worker_io_from(f->worker_io) : NULL;
    fl_trail_mark m;

    if (!from || from->mark_size != sizeof m)
        return FLEET_OK;
    memcpy(&m, from->mark, sizeof m);
    FL_TRY(take_list(f, from->text ? from->text : "[]", &m));
    take_plateau(f, &m);
    FL_TRY(FL_NEW(&f->mark, sizeof *f->mark));
    *f->mark = m;
    FL_INFO(&f->context.log,
            "worker %d was started again: it goes on in pass %" PRId64
            " behind batch %" PRId64 "%s",
            f->role.index, m.at.pass, m.at.batch,
            from->state == FL_TRAIL_OVER ? ", its last one" : "");
    return FLEET_OK;
}

fleet_status fl_trail_mark_begin(fleet_dataset *d, fleet_executor *e)
{
    fleet *f = d->fleet;
    const fl_trail_mark *m = f->mark;

    d->last_run = e->n_run;
    d->from_batch = d->at.batch;
    d->from_samples = d->at.samples;
    if (!m)
        return FLEET_OK;
    if (d->at.pass != m->at.pass || d->at.batch != m->at.batch)
        return fl_fail(FLEET_ESTATE,
                       "worker %d was started again, in pass %" PRId64
                       " of a dataset, and its program trains another one, or "
                       "that one from its beginning: expected a loop over "
                       "passes from fleet_dataset_position() on",
                       f->role.index, m->at.pass);
    d->from_batch = m->from_batch;
    d->from_samples = m->from_samples;
    e->loss_sum = m->at.loss_sum;
    e->loss_samples = m->loss_samples;
    fl_free(f->mark);
    f->mark = NULL;
    FL_TRY(fl_worker_io_go_on(f->worker_io));
    f->store->updates = f->store->remote->updates;
    return FLEET_OK;
}
