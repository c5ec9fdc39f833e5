/* stage_job.c - from a program and a role to a stage, and which processes it
 * has beside it. */
#include "fleet/heter/stage_job.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "fleet/heter/stage_program.h"
#include "fleet/strategy/strategy_fields.h"
#include "ps/stage/stage_wire.h"
#include "runtime/optim/own_optimizers.h"

/* --- what is refused ------------------------------------------------------ */

static fleet_status refuse_stages(const char *what, const char *why)
{
    return fl_fail(FLEET_EUNSUPPORTED,
                   "fleet_minimize: %s: this version does not train it in "
                   "stages: %s",
                   what, why);
}

static bool is_sync(const fleet *f)
{
    return fl_handle_mode(f) == FL_PS_SYNC;
}

static fleet_status check_job(const fleet *f)
{
    if (!is_sync(f) && fl_handle_mode(f) != FL_PS_ASYNC)
        return refuse_stages(fl_job_mode_name(fl_handle_mode(f)),
                             "expected ps-sync or ps-async");
    if (f->stage_job)
        return refuse_stages("a second program", "expected one in a handle");
    return FLEET_OK;
}

/* It counts updates of servers, and in async a batch is one of each stage: it
 * would run at twice its speed, and not alike in the two stages. */
static bool has_schedule(const fleet_optimizer *o)
{
    return o->schedule.is.kind != FLEET_SCHEDULE_CONSTANT ||
           o->schedule.is.warmup_steps > 0;
}

static fleet_status check_strategy(const fleet *f, const fl_training *t)
{
    const fleet_distributed_strategy *s = &f->strategy;

    if (t->merge.steps > 1)
        return refuse_stages(
            "strategy.gradient_merge",
            "a heter worker merges the batches of an update in "
            "another order");
    if (s->amp)
        return refuse_stages("strategy.amp", "float32 alone crosses");
    if (t->recompute.on)
        return refuse_stages("strategy.recompute",
                             "its checkpoints are of a whole "
                             "program");
    if (t->layerwise.rule != FL_NO_LAYERS)
        return refuse_stages("strategy.lars and lamb",
                             "expected another optimizer");
    if (t->optimizer->clip_norm > 0)
        return refuse_stages("a clip by global norm",
                             "no stage has the norm of all gradients");
    if (!is_sync(f) && s->a_sync_configs.max_staleness >= 0)
        return refuse_stages("a_sync_configs.max_staleness",
                             "a heter worker has steps of several workers, "
                             "which may not wait for one another");
    if (!is_sync(f) && s->log != FLEET_DURABLE_NONE)
        return refuse_stages("strategy.log in ps-async",
                             "what a heter worker has in its log is of rounds "
                             "of all its workers");
    if (!is_sync(f) && has_schedule(t->optimizer))
        return refuse_stages("a schedule of the learning rate in ps-async",
                             "a batch is an update of each stage, which it "
                             "would count twice");
    if (s->replicas > 1)
        return refuse_stages("strategy.replicas", "expected 1");
    if (s->pipeline && s->pipeline_configs.accumulate_steps > 1 &&
        s->a_sync_configs.vocab_cache_size > 0)
        return refuse_stages("a_sync_configs.vocab_cache_size with pipeline",
                             "batches in flight pull past a worker's cache");
    if (s->wire_configs.push_type != FLEET_WIRE_FP32)
        return refuse_stages(
            "strategy.wire_configs.push_type",
            "a heter worker's gradients are of several batches, and "
            "would be rounded otherwise than its trainers'");
    return FLEET_OK;
}

/* Where a process trains alone it has no effect, as what is for servers. */
static fleet_status check_no_stages(const fleet *f)
{
    return f->strategy.pipeline && f->role.server_num > 0
               ? fl_fail(FLEET_EUNSUPPORTED,
                         "fleet_minimize: strategy.pipeline: batches are in "
                         "flight between stages, and the job has no heter "
                         "workers (expected some, or 0; gradient_merge sums "
                         "the batches of a worker)")
               : FLEET_OK;
}

/* A trainer has no metric of a later stage, and what is averaged over workers
 * is not summed over batches. */
static fleet_status check_reads(const fl_node *n, bool later)
{
    char what[300];

    for (int i = 0; later && i < n->n_in; i++) {
        const fleet_var *v = n->in[i];

        if (!v || (v->kind != FL_VAR_STATE && v->attr.average == 0))
            continue;
        snprintf(what, sizeof what, "\"%.200s\" in a stage of heter workers",
                 v->name);
        return refuse_stages(what,
                             v->kind == FL_VAR_STATE
                                 ? "metrics are read in trainers: guard its "
                                   "operator with \"cpu\", or evaluate with an "
                                   "executor for test"
                                 : "it is an average over workers");
    }
    return FLEET_OK;
}

static bool is_trained(const fleet_var *v)
{
    return v && (v->kind == FL_VAR_PARAM || v->kind == FL_VAR_TABLE) &&
           !v->attr.frozen;
}

/* A process that trains nothing would have nothing for the servers, which wait
 * for it. */
static fleet_status check_trains(const fl_cut *cut)
{
    const fleet_program *p = cut->program;

    for (int s = 0; s < cut->n_stage; s++) {
        bool any = false;

        for (size_t i = 0; i < p->n_node; i++)
            for (int j = 0; cut->stage_of[i] == s && j < p->node[i]->n_in; j++)
                any = any || is_trained(p->node[i]->in[j]);
        if (!any)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: stage %d trains no parameter and "
                           "no table: guard its operators otherwise",
                           s);
    }
    return FLEET_OK;
}

/* A server is not told how many stages there are, as Fleet's launcher does it:
 * each behind the first has a heter worker. */
static fleet_status check_number(const fleet *f, int n)
{
    const fl_stage_role *s = &f->role.stages;
    const int most =
        s->n_heter + 1 < FL_MOST_STAGE ? s->n_heter + 1 : FL_MOST_STAGE;

    if (s->n > 0 ? n == s->n : n > 1 && n <= most)
        return FLEET_OK;
    if (s->n > 0)
        return fl_fail(FLEET_EINVAL,
                       "fleet_minimize: the guards of the program make %d "
                       "stage%s (fleet_device_guard()), and the job has %d",
                       n, n > 1 ? "s" : "", s->n);
    return fl_fail(FLEET_EINVAL,
                   "fleet_minimize: the guards of the program make %d stage%s "
                   "(fleet_device_guard()): expected 2 to %d, as the job has "
                   "%d heter worker%s",
                   n, n > 1 ? "s" : "", most, s->n_heter,
                   s->n_heter > 1 ? "s" : "");
}

static fleet_status check_cut(const fleet *f, const fl_cut *cut)
{
    const fleet_program *p = cut->program;

    FL_TRY(check_number(f, cut->n_stage));
    for (int i = 0; i < cut->n_stage; i++)
        if (cut->stage[i].n_out > FL_MOST_CROSSING)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "fleet_minimize: %d variables cross from stage %d: "
                           "expected %d at most",
                           cut->stage[i].n_out, i, (int)FL_MOST_CROSSING);
    for (size_t i = 0; i < p->n_node; i++)
        FL_TRY(check_reads(p->node[i], cut->stage_of[i] > 0));
    return check_trains(cut);
}

/* --- the stage of this process -------------------------------------------- */

static fl_stage_link *link_now(const fl_stage_job *job)
{
    return fl_stage_client_link(job->way[job->now].client);
}

static fleet_status send_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    const fl_stage_job *job = (fl_stage_job *)(void *)link;
    fl_stage_link *to;

    if (!job->way[job->now].client)
        return fl_fail(FLEET_ESTATE,
                       "the next stage is not connected: call "
                       "fleet_init_worker() before, and fleet_stop_worker() "
                       "after training");
    if (b->alone && job->n_in_flight > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_executor_run: strategy.pipeline has %d batches "
                       "in flight, which fleet_train_from_dataset() brings",
                       job->n_in_flight);
    to = link_now(job);
    return to->send(to, b);
}

static fleet_status receive_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    fl_stage_link *to = link_now((fl_stage_job *)(void *)link);

    return to->receive(to, b);
}

static void add_counts(fl_text *text, const fl_stage_role *s)
{
    for (int i = 0; i < s->n; i++)
        fl_text_add(text, "%s%d", i ? ", " : "", s->num[i]);
}

/* From a stage to the next one. Names live as long as the handle: the whole
 * program may go before it. */
static fleet_status describe_boundary(const fl_role *r, const fl_stage_job *job,
                                      const fl_stage *s, int stage,
                                      fl_boundary *b)
{
    fl_text text = {0};

    FL_TRY(FL_NEW(&b->name, ((size_t)s->n_out + 1) * sizeof(char *)));
    FL_TRY(FL_NEW(&b->goes_back, (size_t)s->n_out + 1));
    fl_text_add(&text, "from stage %d, trainers of stages ", stage);
    add_counts(&text, &r->stages);
    fl_text_add(&text, ", batches in flight %d\n", job->n_in_flight);
    for (int i = 0; i < s->n_out; i++) {
        const fleet_var *v = s->out[i].var;

        fl_text_add(&text, "%s %s%s%s%s\n", v->name, fleet_dtype_name(v->dtype),
                    fl_shape_print(&v->shape).chars, v->ragged ? " ragged" : "",
                    s->out[i].has_gradient ? ", gradient back" : "");
        b->name[i] = fl_strdup(v->name);
        b->goes_back[i] = s->out[i].has_gradient;
        b->n = i + 1;
        if (!b->name[i])
            return FLEET_ENOMEM;
    }
    b->text = text.chars;
    return text.status;
}

static fleet_status describe_boundaries(const fl_role *r, fl_stage_job *job,
                                        const fl_cut *cut)
{
    const int own = r->stages.own;

    if (own > 0)
        FL_TRY(
            describe_boundary(r, job, &cut->stage[own - 1], own - 1, &job->in));
    return own + 1 < cut->n_stage
               ? describe_boundary(r, job, &cut->stage[own], own, &job->out)
               : FLEET_OK;
}

/* The heter workers of a stage share out the workers in runs, so that the
 * gradients of heter workers, one after the other, are in the order of the
 * workers. i: in its stage. */
static int first_trainer_of(const fl_role *r, int stage, int i)
{
    return i * r->worker_num / r->stages.num[stage];
}

/* Which heter worker of a stage serves that worker. */
static int heter_of(const fl_role *r, int stage, int worker)
{
    int i = 0;

    while (first_trainer_of(r, stage, i + 1) <= worker)
        i++;
    return fl_stage_role_first(&r->stages, stage) + i;
}

/* To the next stage. */
static fleet_status find_ways(const fl_role *r, fl_stage_job *job, int first,
                              int n)
{
    FL_TRY(FL_NEW(&job->way, ((size_t)n + 1) * sizeof *job->way));
    for (job->n_way = 0; job->n_way < n; job->n_way++) {
        fl_stage_way *w = &job->way[job->n_way];

        w->worker = first + job->n_way;
        w->heter = heter_of(r, r->stages.own + 1, w->worker);
        snprintf(w->name, sizeof w->name, "heter worker %d", w->heter);
    }
    return FLEET_OK;
}

/* In front of the second stage are the workers. */
static fleet_status find_trainers(const fl_role *r, fl_stage_job *job)
{
    const int own = r->stages.own;
    const int at = r->index - fl_stage_role_first(&r->stages, own);

    snprintf(job->name, sizeof job->name, "heter worker %d", r->index);
    job->first_trainer = first_trainer_of(r, own, at);
    job->n_trainer = first_trainer_of(r, own, at + 1) - job->first_trainer;
    FL_TRY(FL_NEW(&job->key, ((size_t)job->n_trainer + 1) * sizeof *job->key));
    for (int i = 0; i < job->n_trainer; i++)
        job->key[i] = own > 1 ? r->worker_num +
                                    heter_of(r, own - 1, job->first_trainer + i)
                              : job->first_trainer + i;
    return FLEET_OK;
}

static fleet_status find_neighbours(const fl_role *r, fl_stage_job *job)
{
    const bool is_last = r->stages.own + 1 == r->stages.n;

    if (r->stages.own == 0)
        return find_ways(r, job, r->index, 1);
    FL_TRY(find_trainers(r, job));
    return is_last ? FLEET_OK
                   : find_ways(r, job, job->first_trainer, job->n_trainer);
}

bool fl_stage_job_has_crew(const fl_stage_job *job)
{
    return job->in.text && job->out.text && job->n_in_flight > 1;
}

static void set_training(fleet *f, const fleet_program *whole,
                         const fl_stage_job *job, fleet_var *loss)
{
    job->program->training = whole->training;
    job->program->training.loss = loss;
    if (fleet_is_heter_worker(f) && is_sync(f) && !fl_stage_job_has_crew(job))
        job->program->training.merge.steps = job->n_in_flight;
    f->store->counts_no_batch = fleet_is_heter_worker(f) && is_sync(f);
}

/* A trainer refuses a line, by file and number, for what any stage takes. */
static void keep_bounds(const fleet_program *whole, fleet_program *own)
{
    for (size_t i = 0; i < own->n_var; i++) {
        fleet_var *v = own->var[i];
        const fleet_var *of =
            v->kind == FL_VAR_DATA ? fleet_program_var(whole, v->name) : NULL;

        if (!of)
            continue;
        v->ids_below = of->ids_below;
        v->labels_to = of->labels_to;
    }
}

static fleet_status make_stage(fleet *f, fleet_program *p, const fl_cut *cut)
{
    fl_stage_job *job;
    fleet_var *loss;

    FL_TRY(FL_NEW(&job, sizeof *job));
    f->stage_job = job;
    job->link = (fl_stage_link){.send = send_batch, .receive = receive_batch};
    job->n_in_flight = fl_strategy_in_flight(&f->strategy);
    FL_TRY(find_neighbours(&f->role, job));
    FL_TRY(describe_boundaries(&f->role, job, cut));
    FL_TRY(fl_stage_program(f, cut, f->role.stages.own, &job->link,
                            &job->program, &loss));
    if (fl_stage_job_has_crew(job) && job->program->place.gpu) {
        fleet_program_destroy(job->program); /* its link goes with the job */
        return refuse_stages("strategy.pipeline with a GPU between two stages",
                             "batches in flight are computed on CPUs there");
    }
    set_training(f, p, job, loss);
    if (fleet_is_worker(f)) {
        p->stage = job->program;
        keep_bounds(p, job->program);
    }
    return FLEET_OK;
}

fleet_status fl_stage_job_make(fleet *f, fleet_program *p)
{
    fleet_status status;
    fl_cut cut;

    if (f->role.stages.n_heter == 0)
        return check_no_stages(f);
    FL_TRY(check_job(f));
    FL_TRY(check_strategy(f, &p->training));
    status = fl_cut_make(&cut, p, p->training.loss, 0);
    if (status == FLEET_OK)
        status = check_cut(f, &cut);
    if (status == FLEET_OK && !fleet_is_server(f))
        status = make_stage(f, p, &cut);
    fl_cut_done(&cut);
    if (status != FLEET_OK)
        fl_stage_job_close(f);
    p->staged = status == FLEET_OK;
    p->n_cut = (int)p->n_node;
    return status;
}

void fl_stage_job_mark(fleet *f)
{
    const fl_map *params = &f->store->params;

    for (size_t i = 0; f->stage_job && i < params->n; i++) {
        fl_param *p = params->entry[i].value;
        const fleet_var *v = fleet_program_var(f->stage_job->program, p->name);

        p->other_stage = !v || v->kind != FL_VAR_PARAM;
    }
}

static void free_boundary(const fl_boundary *b)
{
    for (int i = 0; i < b->n; i++)
        fl_free((char *)b->name[i]);
    fl_free(b->name);
    fl_free(b->goes_back);
    fl_free(b->text);
}

void fl_stage_job_close(fleet *f)
{
    fl_stage_job *job = f->stage_job;
    const char *why = fleet_last_error();

    if (!job)
        return;
    for (int i = 0; i < job->n_way; i++)
        fl_stage_client_close(job->way[i].client);
    fl_stage_server_close(job->server,
                          *why ? why : "the heter worker has ended");
    fl_stage_log_close(job->log);
    free_boundary(&job->in);
    free_boundary(&job->out);
    fl_free(job->way);
    fl_free(job->key);
    fl_free(job);
    f->stage_job = NULL;
}
