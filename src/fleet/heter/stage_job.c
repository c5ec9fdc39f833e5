/* stage_job.c - from a program and a role to a stage; connecting it. */
#include "fleet/heter/stage_job.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "fleet/heter/stage_program.h"
#include "fleet/strategy/strategy_fields.h"
#include "ps/stage/stage_wire.h"
#include "ps/stage/step_parts.h"
#include "runtime/plan/remote.h"
#include "runtime/exec/executor.h"
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
    if (f->role.stages.n > 2)
        return refuse_stages("a job of more than two stages",
                             "expected heter workers of one");
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

static fleet_status check_cut(const fleet *f, const fl_cut *cut)
{
    const fleet_program *p = cut->program;
    const int n = f->role.stages.n > 0 ? f->role.stages.n : 2;

    if (cut->n_stage > 2)
        return refuse_stages("a program of more than two stages",
                             "expected guards that make two");
    if (cut->n_stage != n)
        return fl_fail(FLEET_EINVAL,
                       "fleet_minimize: the guards of the program make %d "
                       "stage%s (fleet_device_guard()), and the job has %d",
                       cut->n_stage, cut->n_stage > 1 ? "s" : "", n);
    if (cut->stage[0].n_out > FL_MOST_CROSSING)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_minimize: %d variables cross from stage 0: "
                       "expected %d at most",
                       cut->stage[0].n_out, (int)FL_MOST_CROSSING);
    for (size_t i = 0; i < p->n_node; i++)
        FL_TRY(check_reads(p->node[i], cut->stage_of[i] > 0));
    return check_trains(cut);
}

/* --- the stage of this process -------------------------------------------- */

static fleet_status send_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    fl_stage_job *job = (fl_stage_job *)(void *)link;
    fl_stage_link *to;

    if (!job->client)
        return fl_fail(FLEET_ESTATE,
                       "the next stage is not connected: call "
                       "fleet_init_worker() before, and fleet_stop_worker() "
                       "after training");
    if (b->alone && job->n_in_flight > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_executor_run: strategy.pipeline has %d batches "
                       "in flight, which fleet_train_from_dataset() brings",
                       job->n_in_flight);
    to = fl_stage_client_link(job->client);
    return to->send(to, b);
}

static fleet_status receive_batch(fl_stage_link *link, const fl_stage_batch *b)
{
    fl_stage_job *job = (fl_stage_job *)(void *)link;
    fl_stage_link *to = fl_stage_client_link(job->client);

    return to->receive(to, b);
}

/* Names live as long as the handle: the whole program may go before it. */
static fleet_status describe_boundary(const fl_role *r, fl_stage_job *job,
                                      const fl_stage *s)
{
    fl_text text = {0};

    FL_TRY(FL_NEW(&job->crossing, ((size_t)s->n_out + 1) * sizeof(char *)));
    FL_TRY(FL_NEW(&job->goes_back, (size_t)s->n_out + 1));
    fl_text_add(&text, "workers %d, heter workers %d, batches in flight %d\n",
                r->worker_num, r->stages.n_heter, job->n_in_flight);
    for (int i = 0; i < s->n_out; i++) {
        const fleet_var *v = s->out[i].var;

        fl_text_add(&text, "%s %s%s%s%s\n", v->name, fleet_dtype_name(v->dtype),
                    fl_shape_print(&v->shape).chars, v->ragged ? " ragged" : "",
                    s->out[i].has_gradient ? ", gradient back" : "");
        job->crossing[i] = fl_strdup(v->name);
        job->goes_back[i] = s->out[i].has_gradient;
        job->n = i + 1;
        if (!job->crossing[i])
            return FLEET_ENOMEM;
    }
    job->boundary = text.chars;
    return text.status;
}

/* Heter workers share out the workers in runs, so that the gradients of heter
 * workers, one after the other, are in the order of the workers. */
static int first_trainer_of(const fl_role *r, int heter)
{
    return heter * r->worker_num / r->stages.n_heter;
}

static void find_neighbours(const fleet *f, fl_stage_job *job)
{
    const fl_role *r = &f->role;

    job->heter = fleet_is_heter_worker(f) ? r->index : 0;
    while (fleet_is_worker(f) &&
           first_trainer_of(r, job->heter + 1) <= r->index)
        job->heter++;
    job->first_trainer = first_trainer_of(r, job->heter);
    job->n_trainer = first_trainer_of(r, job->heter + 1) - job->first_trainer;
    snprintf(job->name, sizeof job->name, "heter worker %d", job->heter);
}

static void set_training(fleet *f, const fleet_program *whole,
                         const fl_stage_job *job, fleet_var *loss)
{
    job->program->training = whole->training;
    job->program->training.loss = loss;
    if (fleet_is_heter_worker(f) && is_sync(f))
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
    find_neighbours(f, job);
    FL_TRY(describe_boundary(&f->role, job, &cut->stage[0]));
    FL_TRY(fl_stage_program(f, cut, f->role.stages.own, &job->link,
                            &job->program, &loss));
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

/* --- connecting ----------------------------------------------------------- */

static fleet_status job_status(void *arg)
{
    fleet *f = arg;

    return fl_worker_io_status(f->worker_io);
}

static fleet_status end_pass(void *arg)
{
    fleet *f = arg;

    return f->stage_job->client ? fl_stage_client_end_pass(f->stage_job->client)
                                : FLEET_OK;
}

static uint64_t next_step(void *arg)
{
    fleet *f = arg;

    return fl_worker_io_steps(f->worker_io) + 1;
}

/* How long a process that has died may take to be started again. */
static int64_t restart_ms(const fleet *f)
{
    return f->strategy.log != FLEET_DURABLE_NONE
               ? f->strategy.log_configs.restart_deadline_ms
               : 0;
}

static fleet_status connect_trainer(fleet *f)
{
    const fl_role *r = &f->role;
    fl_stage_job *job = f->stage_job;
    const fl_stage_client_options o = {
        .log = &f->context.log,
        .address = r->stages.heter[job->heter],
        .name = job->name,
        .key = r->worker_num + job->heter,
        .keys = r->keys,
        .job = r->job_id,
        .run = fl_worker_io_run(f->worker_io),
        .incarnation = fl_worker_io_incarnation(f->worker_io),
        .trainer = r->index,
        .boundary = job->boundary,
        .n_in_flight = job->n_in_flight,
        .connect_ms = r->deadline_ms[FL_CONNECT_DEADLINE],
        .request_ms = r->deadline_ms[FL_REQUEST_DEADLINE],
        .peer_ms = r->deadline_ms[FL_PEER_DEADLINE],
        .step_ms = r->deadline_ms[FL_STEP_DEADLINE] + restart_ms(f),
        .restart_ms = restart_ms(f),
        .number = next_step,
        .status = job_status,
        .arg = f};

    FL_TRY(fl_stage_client_open(&job->client, &o));
    fl_worker_io_before_pass_ends(f->worker_io, end_pass, f);
    return FLEET_OK;
}

/* In the folder of its trail, which is its own. */
static fleet_status open_log(const fleet *f, fl_stage_job *job, uint32_t *nonce)
{
    uint64_t number;
    const char *folder = fl_worker_io_trail(f->worker_io, &number);

    if (!folder)
        return FLEET_OK;
    *nonce = (uint32_t)(number ^ number >> 32) | 1;
    return fl_stage_log_open(&job->log, folder, job->first_trainer,
                             job->n_trainer,
                             f->strategy.log == FLEET_DURABLE_POWER);
}

static fleet_status connect_heter_worker(fleet *f)
{
    const fl_role *r = &f->role;
    fl_stage_job *job = f->stage_job;
    fl_stage_server_options o = {.log = &f->context.log,
                                 .address = r->stages.heter[r->index],
                                 .listen_fd = r->listen_fd,
                                 .keys = r->keys,
                                 .insecure = r->insecure,
                                 .name = job->name,
                                 .job = r->job_id,
                                 .run = fl_worker_io_run(f->worker_io),
                                 .first_trainer = job->first_trainer,
                                 .n_trainer = job->n_trainer,
                                 .boundary = job->boundary,
                                 .n_in_flight = job->n_in_flight,
                                 .peer_ms = r->deadline_ms[FL_PEER_DEADLINE],
                                 .step_ms = r->deadline_ms[FL_STEP_DEADLINE] +
                                            restart_ms(f),
                                 .status = job_status,
                                 .arg = f};

    FL_TRY(open_log(f, job, &o.nonce));
    o.stage_log = job->log;
    if (job->n_trainer == 0)
        FL_WARN(&f->context.log,
                "%s has nothing to do: the job has %d heter workers for %d "
                "worker%s, and one serves all batches of a worker",
                job->name, r->stages.n_heter, r->worker_num,
                r->worker_num > 1 ? "s" : "");
    return fl_stage_server_open(&job->server, &o);
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

/* A heter worker is in no sum, and listens before a trainer looks for it. One
 * that goes on has met its trainers. */
fleet_status fl_stage_job_meet(fleet *f)
{
    uint64_t step, updates;

    if (fleet_is_heter_worker(f)) {
        FL_TRY(connect_heter_worker(f));
        if (!is_sync(f)) /* batches pull the weights of then */
            return FLEET_OK;
        return fl_stage_server_goes_on(f->stage_job->server, &step, &updates)
                   ? fl_worker_io_stand(f->worker_io, step, (int64_t)updates)
                   : fl_worker_io_close_pass(f->worker_io);
    }
    FL_TRY(fl_worker_io_barrier(f->worker_io));
    return f->stage_job ? connect_trainer(f) : FLEET_OK;
}

/* Weights of the other stage: no server answers this worker afterwards. */
static fleet_status catch_up(fleet *f)
{
    fleet_status status;

    FL_TRY(fl_store_synchronize(f->store));
    pthread_rwlock_wrlock(&f->store->lock);
    status = fl_remote_catch_up(f->store);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

fleet_status fl_stage_job_leave(fleet *f)
{
    fl_stage_job *job = f->stage_job;

    if (!job || !job->client)
        return FLEET_OK;
    FL_TRY(fl_stage_client_leave(job->client));
    fl_stage_client_close(job->client);
    job->client = NULL;
    return catch_up(f);
}

void fl_stage_job_close(fleet *f)
{
    fl_stage_job *job = f->stage_job;
    const char *why = fleet_last_error();

    if (!job)
        return;
    fl_stage_client_close(job->client);
    fl_stage_server_close(job->server,
                          *why ? why : "the heter worker has ended");
    fl_stage_log_close(job->log);
    for (int i = 0; i < job->n; i++)
        fl_free((char *)job->crossing[i]);
    fl_free(job->crossing);
    fl_free(job->goes_back);
    fl_free(job->boundary);
    fl_free(job);
    f->stage_job = NULL;
}
