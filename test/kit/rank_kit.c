/* rank_kit.c - see rank_kit.h. */
#define SUITE rank_kit
#include "rank_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "fleet/servers.h"
#include "runtime/exec/prefetch.h"
#include "runtime/reduce/whole_weights.h"

fl_flat *rank_group(const kit_model *m)
{
    fl_flat *g = m->f->store->flats;

    CHECK(g && !g->next && g->n <= RANK_MOST_FLOATS);
    return g;
}

static fleet_status take_part(fake_rank *r, const rank_lesson *s, kit_model *m,
                              const work *k)
{
    double sum = 1;

    for (int pass = 0; pass < s->passes; pass++) {
        for (int i = r->p.rank; i < k->n; i += r->p.size)
            FL_TRY(kit_run(m->e, k->b[i]));
        FL_TRY(fleet_executor_flush(m->e));
        FL_TRY(fl_executor_end_pass(m->e, &sum, 1));
    }
    return FLEET_OK;
}

void rank_model(kit_model *m, const rank_lesson *s)
{
    kit_build(m, KIT_MLP, &s->how);
    m->p->training.localsgd = s->also.localsgd;
    m->p->training.all_reduce.fp16 = s->also.all_reduce.fp16;
    m->p->training.dgc = s->also.dgc;
    m->p->training.sync_batch_norm = s->also.sync_batch_norm;
    m->o->residuals = s->also.dgc.on;
    if (s->also.all_reduce.bucket) {
        m->p->training.all_reduce.bucket = s->also.all_reduce.bucket;
        m->p->training.all_reduce.last_bucket = s->also.all_reduce.bucket;
    }
}

/* The strategy that `how` chooses is a rank's. */
static void build(kit_model *m, const rank_lesson *s, const fl_comm *p)
{
    const fleet_role role = {
        .worker_num = p->size, .index = p->rank, .collective = 1};
    kit_options how = s->how;

    how.role = &role;
    if (how.choose)
        kit_build(m, KIT_MLP, &how);
    else
        rank_model(m, s);
}

void rank_executor(kit_model *m)
{
    m->e = fleet_executor_create(
        m->p, &(fleet_executor_options){.max_batch = WORK_ROWS});
    CHECK(m->e != NULL);
}

void rank_learn(fake_rank *r, void *arg)
{
    rank_lesson *s = arg;
    int rank = r->p.rank;
    _Alignas(64) float memory[RANK_MOST_FLOATS] = {0};
    kit_model m;
    work k;

    build(&m, s, &r->p);
    r->rounds.store = m.f->store;
    m.f->store->agree = &r->rounds;
    if (s->also.sharded)
        m.f->store->share = (fl_share){rank, r->p.size, s->also.sharding_stage};
    if (s->shared) {
        CHECK_OK(fl_add_programs(m.f));
        rank_group(&m)->gradient = memory;
    }
    rank_executor(&m);
    if (s->prepare)
        s->prepare(&m);
    work_open(&k, &m, s->batches, s->last);
    if (s->spoil)
        s->spoil(&k, rank);
    s->status[rank] = take_part(r, s, &m, &k);
    if (s->status[rank] != FLEET_OK)
        fl_executor_give_up(m.e);
    if (s->status[rank] != FLEET_OK)
        snprintf(s->error[rank], sizeof *s->error, "%s", fleet_last_error());
    s->updates[rank] = m.f->store->updates;
    s->steps[rank] = m.f->store->local.steps;
    s->first_loss[rank] = m.f->store->local.loss;
    s->calls[rank] = r->n_call;
    if (s->status[rank] == FLEET_OK) /* weights that are shared out, too */
        CHECK_OK(fl_whole_weights_locked(m.f->store));
    if (rank_group(&m)->weight)
        memcpy(s->weight[rank], rank_group(&m)->weight,
               (size_t)rank_group(&m)->n * sizeof(float));
    work_close(&k);
    m.f->store->agree = NULL;
    r->rounds.store = NULL;
    kit_close(&m);
}

void rank_try(rank_lesson *s, int ranks)
{
    fake_group g;

    fake_group_open(&g, ranks);
    g.fail_at = s->fail_at;
    fake_group_run(&g, rank_learn, s);
    fake_group_close(&g);
}

void rank_train(rank_lesson *s, int ranks)
{
    rank_try(s, ranks);
    for (int i = 0; i < ranks; i++) {
        if (s->status[i] != FLEET_OK)
            test_fail(__FILE__, __LINE__, "rank %d: %s", i, s->error[i]);
        CHECK(memcmp(s->weight[i], s->weight[0], sizeof s->weight[0]) == 0);
        CHECK_INT(s->updates[i], s->updates[0]);
    }
}
