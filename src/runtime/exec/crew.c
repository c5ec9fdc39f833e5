/* crew.c - see crew.h: rounds, and how members take turns. */
#include "runtime/exec/crew.h"

#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/check_shown.h"
#include "runtime/exec/compile.h"
#include "runtime/exec/crew_links.h"
#include "runtime/exec/expected_rows.h"
#include "runtime/exec/plan_cache.h"
#include "runtime/exec/prefetch.h"
#include "runtime/exec/run.h"
#include "runtime/stages/stage_link.h"

typedef struct fl_crew_member {
    fleet_executor *e;
    fl_pool *team; /* besides the thread that it runs on; NULL: none */
    char **weight; /* hogwild: its copy of each flat buffer */

    /* of the round */
    fl_compiled *c;
    int64_t batch;
    fleet_status status;
    fl_error error;
    double loss;
} fl_crew_member;

struct fl_crew {
    fl_crew_kind kind;
    fleet_executor *front; /* that the caller has */
    fl_crew_member *member;
    fl_remote *remote;       /* of the store, when it was made */
    fl_hogwild *hogwild;     /* NULL: members do not update by themselves */
    int n_flat;              /* flat buffers of the store, when it was made */
    int64_t n_run;           /* before the last round */
    _Atomic int64_t updates; /* hogwild: begun so far */
};

/* --- a life -------------------------------------------------------------- */

static fleet_status refuse(const fl_crew_kind *kind, const char *what,
                           const char *why)
{
    return fl_fail(FLEET_EUNSUPPORTED, "%s: %s %s", what,
                   kind->in_flight ? "batches in flight (strategy.pipeline)"
                                   : "trainer threads",
                   why);
}

static fleet_status check_hogwild(const fleet_executor *e,
                                  const fl_crew_kind *k, const char *what)
{
    const fl_training *t = &e->program->training;

    if (e->store->remote && e->store->remote->sync)
        return refuse(k, what,
                      "with hogwild do not train with servers in sync, "
                      "where an update is of all workers: without it "
                      "they bring the sum of their batches");

    if (t->merge.steps > 1)
        return refuse(k, what,
                      "with hogwild do not merge batches "
                      "(gradient_merge): each updates by itself");
    if (t->layerwise.rule != FL_NO_LAYERS)
        return refuse(k, what,
                      "with hogwild do not train by lars or lamb, whose "
                      "norms are of whole parameters");
    if (t->optimizer && t->optimizer->norm_clip > 0)
        return refuse(k, what,
                      "with hogwild do not clip by norm in this version");
    return FLEET_OK;
}

fleet_status fl_crew_check_size(int n, const char *what)
{
    return n >= 0 && n <= FL_MOST_MEMBERS
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "%s: thread %d: expected 0 to %d trainer threads",
                         what, n, (int)FL_MOST_MEMBERS);
}

static fleet_status check_kind(const fleet_executor *e,
                               const fl_crew_kind *kind, const char *what)
{
    FL_TRY(fl_crew_check_size(kind->n, what));
    if (e->place.on_gpu)
        return refuse(kind, what,
                      "do not train on a GPU: place the executor on FLEET_CPU");
    if (e->store->agree)
        return refuse(kind, what, "do not train among ranks: start more ranks");
    if (!e->store->remote && fl_program_expects(e->program))
        return refuse(kind, what,
                      "do not train tables with a memory cap "
                      "(memory_cap_bytes)");
    if (e->program->training.amp.type == FLEET_FLOAT16)
        return refuse(kind, what,
                      "do not train in float16, whose loss is scaled");
    if (e->micro > 0)
        return fl_fail(FLEET_ESTATE,
                       "%s: a merge group is under way: call "
                       "fleet_executor_flush() before trainer threads",
                       what);
    return kind->hogwild ? check_hogwild(e, kind, what) : FLEET_OK;
}

static fleet_status make_copies(fl_crew *crew, fl_crew_member *m)
{
    int i = 0;

    FL_TRY(FL_NEW(&m->weight, ((size_t)crew->n_flat + 1) * sizeof *m->weight));
    for (const fl_flat *g = crew->front->store->flats; g; g = g->next)
        FL_TRY(FL_NEW(&m->weight[i++], (size_t)g->n * sizeof(float)));
    return FLEET_OK;
}

static fleet_status make_member(fl_crew *crew, fl_crew_member *m)
{
    const fleet_executor *front = crew->front;
    const fleet_executor_options o = {.max_batch = front->max_batch,
                                      .place = FLEET_CPU};
    int threads = crew->kind.in_flight
                      ? 0
                      : fl_pool_size(front->context->pool) / crew->kind.n;

    m->e = fleet_executor_create(front->program, &o);
    if (!m->e)
        return fl_last_code();
    m->e->kind = crew->kind;
    m->e->kind.number = (int)(m - crew->member);
    if (threads > 1)
        FL_TRY(fl_pool_create(&m->team, threads));
    return crew->hogwild ? make_copies(crew, m) : FLEET_OK;
}

static int count_flats(const fl_store *s)
{
    int n = 0;

    for (const fl_flat *g = s->flats; g; g = g->next)
        n++;
    return n;
}

static fleet_status make_members(fl_crew *crew)
{
    crew->n_flat = count_flats(crew->front->store);
    crew->remote = crew->front->store->remote;
    if (crew->kind.hogwild && !crew->remote)
        FL_TRY(fl_hogwild_create((int)crew->front->store->tables.n,
                                 &crew->hogwild));
    FL_TRY(FL_NEW(&crew->member, (size_t)crew->kind.n * sizeof *crew->member));
    for (int i = 0; i < crew->kind.n; i++)
        FL_TRY(make_member(crew, &crew->member[i]));
    return FLEET_OK;
}

static void destroy_member(const fl_crew *crew, fl_crew_member *m)
{
    fleet_executor_destroy(m->e);
    if (crew->front->context->fork_generation == fl_fork_generation())
        fl_pool_destroy(m->team);
    for (int i = 0; m->weight && i < crew->n_flat; i++)
        fl_free(m->weight[i]);
    fl_free(m->weight);
}

void fl_crew_destroy(fl_crew *crew)
{
    if (!crew)
        return;
    for (int i = 0; crew->member && i < crew->kind.n; i++)
        destroy_member(crew, &crew->member[i]);
    fl_free(crew->member);
    fl_hogwild_destroy(crew->hogwild);
    fl_free(crew);
}

/* A program may have been added to the store since. */
static bool is_of(const fl_crew *crew, const fl_crew_kind *kind)
{
    const fl_store *s = crew->front->store;

    return crew->kind.n == kind->n && crew->kind.hogwild == kind->hogwild &&
           crew->kind.in_flight == kind->in_flight &&
           crew->remote == s->remote && crew->n_flat == count_flats(s) &&
           (!crew->hogwild || crew->hogwild->n_table == (int)s->tables.n);
}

fleet_status fl_crew_of(fleet_executor *e, const fl_crew_kind *kind,
                        const char *what, fl_crew **crew)
{
    fleet_status status;

    FL_TRY(check_kind(e, kind, what));
    FL_TRY(fl_executor_follow_store(e));
    if (e->crew && !is_of(e->crew, kind)) {
        fl_crew_destroy(e->crew);
        e->crew = NULL;
    }
    *crew = e->crew;
    if (*crew)
        return FLEET_OK;
    FL_TRY(FL_NEW(crew, sizeof **crew));
    (*crew)->kind = *kind;
    (*crew)->front = e;
    status = make_members(*crew);
    if (status != FLEET_OK) {
        fl_crew_destroy(*crew);
        *crew = NULL;
        return status;
    }
    e->crew = *crew;
    return FLEET_OK;
}

fl_input *fl_crew_input(fl_crew *crew, int i)
{
    return crew->member[i].e->input;
}

/* --- a member's part of a round ------------------------------------------- */

/* Forward and backward; of a batch that is in flight: up to what it sends. */
static fleet_status compute(const fl_crew_member *m)
{
    FL_TRY(fl_executor_check_shown(m->e, m->batch));
    FL_TRY(m->c->backend->begin(m->e, m->c, m->batch));
    return fl_executor_run_part(m->e, m->c, m->batch, FL_FORWARD);
}

/* Is the loss finite? */
static fleet_status check_loss(const fl_crew_member *m)
{
    return m->c->backend->check(m->e, m->c, m->batch);
}

static fleet_status compute_rest(const fl_crew_member *m)
{
    FL_TRY(fl_executor_run_part(m->e, m->c, m->batch, FL_BACKWARD));
    return check_loss(m);
}

static fleet_status keep_status(fl_crew_member *m, fleet_status status)
{
    m->status = status;
    if (status != FLEET_OK)
        fl_error_take(&m->error, status);
    return status;
}

static fleet_status update_alone(fl_crew *crew, const fl_crew_member *m)
{
    fl_update_now *now = fl_compiled_pointer(m->c, m->c->plan->update);

    fl_optimizer_update(now->optimizer, atomic_fetch_add(&crew->updates, 1), 1,
                        &now->u);
    return fl_executor_run_part(m->e, m->c, m->batch, FL_UPDATE);
}

static void copy_weights(const fl_crew *crew, const fl_crew_member *m)
{
    int i = 0;

    for (const fl_flat *g = crew->front->store->flats; g; g = g->next)
        fl_hogwild_copy(crew->hogwild, g, (float *)(void *)m->weight[i++]);
}

static void member_task(void *arg, int i, int thread)
{
    fl_crew *crew = arg;
    fl_crew_member *m = &crew->member[i];
    fleet_status status;

    (void)thread;
    if (crew->hogwild)
        copy_weights(crew, m);
    status = compute(m);
    if (status == FLEET_OK)
        status = check_loss(m);
    if (status == FLEET_OK && crew->hogwild)
        status = update_alone(crew, m);
    (void)keep_status(m, status);
}

/* --- a round -------------------------------------------------------------- */

/* What is fetched of the executor is fetched of its members. */
static void follow_fetches(const fl_crew *crew, const fl_crew_member *m)
{
    const fleet_executor *front = crew->front;

    if (memcmp(m->e->fetched, front->fetched,
               front->program->n_var * sizeof *front->fetched) == 0)
        return;
    fl_executor_forget_plans(m->e);
    memcpy(m->e->fetched, front->fetched,
           front->program->n_var * sizeof *front->fetched);
}

static fleet_status plan_member(fl_crew *crew, int i, int64_t batch)
{
    fl_crew_member *m = &crew->member[i];

    follow_fetches(crew, m);
    m->e->max_batch = crew->front->max_batch;
    m->batch = batch;
    return fl_executor_plan(m->e, batch, &m->c);
}

fleet_status fl_crew_plan(fl_crew *crew, int64_t batch, const fl_plan **plan)
{
    for (int i = 0; i < crew->kind.n; i++)
        FL_TRY(plan_member(crew, i, batch));
    *plan = crew->member[0].c->plan;
    return FLEET_OK;
}

/* All threads share what is done for one member now, or they share out the
 * members. */
static void share_threads(fl_crew *crew, int i, bool alone)
{
    fl_crew_member *m = &crew->member[i];

    m->c->alone = alone;
    m->c->team = m->team;
    m->c->first_thread = alone ? i * fl_pool_size(m->team) : 0;
}

/* Under the store's lock. */
static fleet_status begin_member(fl_crew *crew, int i)
{
    fl_crew_member *m = &crew->member[i];

    FL_TRY(fl_compiled_map_store(m->c));
    m->e->n_run = crew->n_run + i + 1;
    share_threads(crew, i, false);
    FL_TRY(fl_member_pull(m->e, m->c, m->batch, i));
    fl_compiled_bind(m->c, m->e->input, m->batch, false);
    FL_TRY(fl_executor_set_update(m->e, m->c, FL_ONE_BATCH, false));
    fl_executor_set_batch(m->e, m->c, crew->front->micro + i);
    if (!crew->hogwild)
        return FLEET_OK;
    fl_crew_link_copies(m->c, crew->hogwild, m->weight);
    return fl_optimizer_check_rates(m->e->store->optimizer,
                                    m->e->store->updates + i);
}

static void run_members(fl_crew *crew, int n)
{
    fl_pool_share(crew->front->context->pool, n, member_task, crew);
}

/* On this thread, with all threads of the pool. */
static void run_in_flight(const fl_crew *crew, int n)
{
    fleet_status status = FLEET_OK;

    crew->front->program->link->n_in_flight = n;
    for (int i = 0; i < n; i++)
        crew->member[i].status = FLEET_OK;
    for (int i = 0; i < n && status == FLEET_OK; i++)
        status = keep_status(&crew->member[i], compute(&crew->member[i]));
    for (int i = 0; i < n && status == FLEET_OK; i++)
        status = keep_status(&crew->member[i], compute_rest(&crew->member[i]));
}

/* What members do one after the other, by all threads: metrics count, and
 * gradients are added to the first one's. */
static fleet_status meet_member(fl_crew *crew, int i)
{
    const fleet_executor *front = crew->front;
    fl_crew_member *m = &crew->member[i];
    fl_update_now *now = fl_compiled_pointer(m->c, m->c->plan->update);
    fleet_status status;

    now->micro = front->micro + i;
    share_threads(crew, i, false);
    if (i > 0)
        fl_crew_link_sums(m->c, crew->member[0].c);
    status = fl_executor_run_part(m->e, m->c, m->batch, FL_MERGE);
    if (i > 0)
        fl_crew_link_sums(m->c, m->c);
    return status;
}

/* A batch of a worker in async is an update by itself. */
static fleet_status push_member(const fl_crew_member *m)
{
    fl_update_now *now = fl_compiled_pointer(m->c, m->c->plan->update);

    FL_TRY(fl_executor_set_update(m->e, m->c, FL_ONE_BATCH, true));
    now->micro = 1;
    FL_TRY(fl_executor_run_part(m->e, m->c, m->batch, FL_UPDATE));
    return fl_executor_end_update(m->e, m->c, NULL);
}

static fleet_status end_round(fl_crew *crew, int n)
{
    fleet_executor *e = crew->front;
    fl_compiled *first = crew->member[0].c;

    e->merged = first;
    if (crew->kind.hogwild) {
        e->store->trainer = e;
        for (int i = 0; i < n && crew->remote; i++)
            FL_TRY(push_member(&crew->member[i]));
        return FLEET_OK;
    }
    fl_executor_set_micro(e, e->micro + n);
    e->last_batch = crew->member[0].batch;
    return e->micro < first->plan->group
               ? FLEET_OK
               : fl_executor_update(e, first, e->last_batch, NULL);
}

/* A batch of the executor's from now on. */
static void note_loss(fleet_executor *e, fl_crew_member *m)
{
    fl_executor_loss_of(m->e, m->e->n_run, &m->loss);
    fl_executor_note_loss(e, m->e->n_run, m->batch, (float)m->loss);
}

/* Pulls of all members are under way before the first one is waited for. */
static fleet_status begin_members(fl_crew *crew, int n)
{
    for (int i = 0; i < n; i++)
        FL_TRY(begin_member(crew, i));
    for (int i = 0; i < n; i++) {
        const fl_crew_member *m = &crew->member[i];

        FL_TRY(fl_member_wait_pull(m->e, m->c, m->batch));
        share_threads(crew, i, !crew->kind.in_flight);
    }
    return FLEET_OK;
}

static fleet_status run_locked(fl_crew *crew, int n)
{
    fleet_executor *e = crew->front;

    FL_TRY(fl_store_check(e->store));
    FL_TRY(fl_executor_check_store(e));
    FL_TRY(fl_executor_take_over(e));
    FL_TRY(begin_members(crew, n));
    if (crew->kind.in_flight)
        run_in_flight(crew, n);
    else
        run_members(crew, n);
    for (int i = 0; i < n; i++)
        if (crew->member[i].status != FLEET_OK)
            return fl_error_raise(&crew->member[i].error);
    for (int i = 0; i < n; i++)
        FL_TRY(meet_member(crew, i));
    for (int i = 0; i < n; i++) /* which a push's mark in a trail has */
        note_loss(e, &crew->member[i]);
    return end_round(crew, n);
}

fleet_status fl_crew_round(fl_crew *crew, const int64_t *batch, int n)
{
    fleet_executor *e = crew->front;
    fleet_status status;

    FL_TRY(fl_context_check(e->context));
    for (int i = 0; i < n; i++)
        FL_TRY(plan_member(crew, i, batch[i]));
    pthread_rwlock_wrlock(&e->store->lock);
    crew->n_run = e->n_run;
    atomic_store(&crew->updates, e->store->updates);
    status = run_locked(crew, n);
    for (int i = 0; i < n; i++)
        fl_member_drop_pull(crew->member[i].e, crew->member[i].c, i);
    if (crew->hogwild) /* members that did not fail have updated */
        e->store->updates = atomic_load(&crew->updates);
    pthread_rwlock_unlock(&e->store->lock);
    return status;
}

void fl_crew_show(fl_crew *crew, int i)
{
    const fl_crew_member *m = &crew->member[i];
    fleet_executor *e = crew->front;

    e->n_run = crew->n_run + i + 1;
    e->last = m->c;
    e->last_batch = m->batch;
    e->loss[e->n_run % FL_LOSSES] = (fl_loss){e->n_run, m->loss};
}

void fl_crew_rest(fl_crew *crew)
{
    fleet_executor *e = crew->front;

    pthread_rwlock_wrlock(&e->store->lock);
    fl_executor_set_micro(e, 0);
    pthread_rwlock_unlock(&e->store->lock);
    e->last = e->merged = NULL;
}
