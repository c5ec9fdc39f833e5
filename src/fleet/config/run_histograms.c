/* run_histograms.c - of each parameter, weights/NAME, gradients/NAME and their
 * Euclidean norms, norm/weights/NAME and norm/gradients/NAME; norm/weights and
 * norm/gradients of all. */
#include "fleet/config/run_histograms.h"

#include <math.h>

#include "base/memory.h"
#include "base/text.h"
#include "runtime/exec/compile.h"
#include "runtime/plan/remote.h"
#include "runtime/reduce/whole_weights.h"
#include "runtime/store/mirror.h"

void fl_run_histograms_note(fl_config_run *t)
{
    t->looks = t->looks || (t->events.fd >= 0 && t->c->histogram_steps > 0 &&
                            t->seen.step % t->c->histogram_steps == 0);
}

/* What one event has, and another one of norms. */
typedef struct look {
    fl_event_histogram *histogram;
    fl_event_scalar *norm;
    fl_text *tags; /* two of each parameter and kind, and one of each kind */
    int n, n_norm, n_tag;
} look;

static const char *tag_of(look *l, const char *prefix, const char *kind,
                          const char *name)
{
    fl_text *t = &l->tags[l->n_tag++];

    fl_text_add(t, "%s%s%s%s", prefix, kind, *name ? "/" : "", name);
    return fl_text_chars(t);
}

static void add_norm(look *l, const char *kind, const char *name,
                     double squares)
{
    l->norm[l->n_norm++] = (fl_event_scalar){
        .tag = tag_of(l, "norm/", kind, name), .value = sqrt(squares)};
}

/* A number that is not finite makes the norm none, which is no event. */
static double look_at(look *l, const char *kind, const char *name,
                      const float *x, int64_t n)
{
    fl_event_histogram *h = &l->histogram[l->n++];
    double squares;

    fl_histogram_of(&h->of, x, n);
    h->tag = tag_of(l, "", kind, name);
    squares = h->of.nonfinite > 0 ? (double)NAN : h->of.squares;
    add_norm(l, kind, name, squares);
    return squares;
}

/* NULL: they are not in memory of this thread's own. Ranks sum theirs in place,
 * in memory of all; a GPU's and trainer threads' are elsewhere. */
static const float *gradient_of(const fl_config_run *t, const fleet_var *v)
{
    const fl_compiled *c = t->trainer->last;
    const int at = c ? c->plan->gradient_of[v->id] : -1;

    if (at < 0 || t->f->store->agree || t->trainer->crew ||
        c->plan->value[fl_plan_root(c->plan, at)].on_gpu)
        return NULL;
    return fl_compiled_pointer(c, at);
}

static void look_at_all(const fl_config_run *t, look *l)
{
    const fleet_program *p = t->program;
    double weights = 0, gradients = 0;
    bool has_gradients = false;

    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];
        const fl_param *x = v->kind == FL_VAR_PARAM
                                ? fl_store_param(t->f->store, v->name)
                                : NULL;
        const float *g = x && x->flat ? gradient_of(t, v) : NULL;

        if (!x || !x->flat)
            continue;
        weights +=
            look_at(l, "weights", v->name, x->flat->weight + x->offset, x->n);
        if (g)
            gradients += look_at(l, "gradients", v->name, g, x->n);
        has_gradients = has_gradients || g;
    }
    add_norm(l, "weights", "", weights);
    if (has_gradients)
        add_norm(l, "gradients", "", gradients);
}

static fleet_status add_look(fl_config_run *t, const look *l)
{
    for (int i = 0; i < l->n_tag; i++)
        FL_TRY(l->tags[i].status);
    FL_TRY(fl_event_log_add_histograms(&t->events, t->seen.step, l->histogram,
                                       l->n));
    return fl_event_log_add(&t->events, t->seen.step, l->norm, l->n_norm);
}

static fleet_status look_under_lock(fl_config_run *t, look *l)
{
    fl_store *s = t->f->store;
    fleet_status status = fl_store_synchronize(s);

    pthread_rwlock_wrlock(&s->lock);
    if (status == FLEET_OK)
        status = fl_store_to_host(s);
    if (status == FLEET_OK)
        status = fl_whole_weights_locked(s);
    if (status == FLEET_OK)
        status = fl_remote_catch_up(s);
    if (status == FLEET_OK)
        look_at_all(t, l);
    pthread_rwlock_unlock(&s->lock);
    return status == FLEET_OK ? add_look(t, l) : status;
}

static void look_done(look *l)
{
    for (int i = 0; i < l->n_tag; i++)
        fl_text_done(&l->tags[i]);
    fl_free(l->tags);
    fl_free(l->histogram);
    fl_free(l->norm);
}

fleet_status fl_run_histograms_add(fl_config_run *t)
{
    const size_t n = 2 * (t->program->n_var + 1);
    look l = {0};
    fleet_status status;

    if (!t->looks)
        return FLEET_OK;
    t->looks = false;
    FL_GOTO(done, FL_NEW(&l.histogram, n * sizeof *l.histogram));
    FL_GOTO(done, FL_NEW(&l.norm, n * sizeof *l.norm));
    FL_GOTO(done, FL_NEW(&l.tags, 2 * n * sizeof *l.tags));
    status = look_under_lock(t, &l);
done:
    look_done(&l);
    return status;
}
