/* stage_connect.c - sockets to the stage before, and to the one behind. */
#include "fleet/heter/stage_connect.h"

#include "ps/stage/step_parts.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/remote.h"

static bool is_sync(const fleet *f)
{
    return fl_handle_mode(f) == FL_PS_SYNC;
}

/* --- to the next stage ---------------------------------------------------- */

static fleet_status job_status(void *arg)
{
    fleet *f = arg;

    return fl_worker_io_status(f->worker_io);
}

/* While a heter worker waits for the next stage, and that one gets on, so does
 * what waits for this one. */
static fleet_status pass_on_progress(void *arg)
{
    fleet *f = arg;
    const fl_stage_job *job = f->stage_job;
    const fl_stage_way *w = &job->way[job->now];

    if (w->client)
        fl_stage_server_gets_on(job->server,
                                fl_stage_client_progress(w->client));
    return job_status(f);
}

static uint64_t next_step(void *arg)
{
    fleet *f = arg;

    return fl_worker_io_steps(f->worker_io) + 1;
}

/* A heter worker that is started again asks by the number by which the process
 * before it has asked. In async numbers are counted. */
static uint64_t number_now(void *arg)
{
    fleet *f = arg;

    return f->stage_job->number;
}

/* How long a process that has died may take to be started again. */
static int64_t restart_ms(const fleet *f)
{
    return f->strategy.log != FLEET_DURABLE_NONE
               ? f->strategy.log_configs.restart_deadline_ms
               : 0;
}

/* The step deadline of the process that waits for the last one is the first to
 * pass: each one in front of it has a peer deadline more. */
static int64_t step_ms(const fleet *f)
{
    const fl_role *r = &f->role;
    const int between = r->stages.n - 2 - r->stages.own;

    return r->deadline_ms[FL_STEP_DEADLINE] + restart_ms(f) +
           between * r->deadline_ms[FL_PEER_DEADLINE];
}

static fleet_status connect_way(fleet *f, fl_stage_way *w, int64_t connect_ms)
{
    const fl_role *r = &f->role;
    const fl_stage_job *job = f->stage_job;
    const bool passes_on = fleet_is_heter_worker(f);
    const fl_stage_client_options o = {
        .log = &f->context.log,
        .address = r->stages.heter[w->heter],
        .name = w->name,
        .own_name = passes_on ? job->name : NULL,
        .key = r->worker_num + w->heter,
        .keys = r->keys,
        .job = r->job_id,
        .run = fl_worker_io_run(f->worker_io),
        .incarnation = fl_worker_io_incarnation(f->worker_io),
        .trainer = w->worker,
        .boundary = job->out.text,
        .n_in_flight = job->n_in_flight,
        .connect_ms = connect_ms,
        .request_ms = r->deadline_ms[FL_REQUEST_DEADLINE],
        .peer_ms = r->deadline_ms[FL_PEER_DEADLINE],
        .step_ms = step_ms(f),
        .restart_ms = restart_ms(f),
        .number = !passes_on   ? next_step
                  : is_sync(f) ? number_now
                               : NULL,
        .status = passes_on ? pass_on_progress : job_status,
        .arg = f};

    return fl_stage_client_open(&w->client, &o);
}

static fleet_status end_pass(void *arg)
{
    fleet *f = arg;
    const fl_stage_way *w = f->stage_job->way;

    return w->client ? fl_stage_client_end_pass(w->client) : FLEET_OK;
}

/* The next stage may be about to be started again, for which a worker that has
 * left is waited for as any other one. */
static int64_t connect_ms(const fleet *f, bool left)
{
    const int64_t ms = f->role.deadline_ms[FL_CONNECT_DEADLINE];

    return left && restart_ms(f) > ms ? restart_ms(f) : ms;
}

/* Of a heter worker. Of passes that were over for the process before the next
 * stage knows. Where the worker has left, as well, and that is not written
 * down, that stage may know it, and have left. */
static fleet_status connect_on(fleet *f, fl_stage_way *w)
{
    const fl_stage_place at =
        fl_stage_server_where(f->stage_job->server, w->worker);
    fleet_status status;

    w->n_ended = at.n_over;
    if (at.told)
        return FLEET_OK;
    status = connect_way(f, w, connect_ms(f, at.left));
    if (!at.left || status != FLEET_ETIMEDOUT)
        return status;
    FL_INFO(&f->context.log, "%s: worker %d has left, and %s has, too",
            f->stage_job->name, w->worker, w->name);
    fl_error_clear();
    return FLEET_OK;
}

static fleet_status connect_ways(fleet *f)
{
    fl_stage_job *job = f->stage_job;

    for (job->now = 0; job->now < job->n_way; job->now++)
        FL_TRY(job->server
                   ? connect_on(f, &job->way[job->now])
                   : connect_way(f, &job->way[job->now], connect_ms(f, false)));
    job->now = 0;
    return FLEET_OK;
}

/* --- to the stage before -------------------------------------------------- */

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

static fleet_status listen_to_trainers(fleet *f)
{
    const fl_role *r = &f->role;
    const int n = r->stages.num[r->stages.own];
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
                                 .key = job->key,
                                 .n_worker = r->worker_num,
                                 .boundary = job->in.text,
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
                "%s has nothing to do: the job has %d heter workers%s for %d "
                "worker%s, and one serves all batches of a worker",
                job->name, n, r->stages.n > 2 ? " of its stage" : "",
                r->worker_num, r->worker_num > 1 ? "s" : "");
    return fl_stage_server_open(&job->server, &o);
}

/* It is in no sum, and listens before a trainer looks for it. One that goes on
 * has met its trainers. In async batches pull the weights of then. */
static fleet_status meet_trainers(fleet *f)
{
    uint64_t step, updates;

    FL_TRY(listen_to_trainers(f));
    if (!is_sync(f))
        return FLEET_OK;
    return fl_stage_server_goes_on(f->stage_job->server, &step, &updates)
               ? fl_worker_io_stand(f->worker_io, step, (int64_t)updates)
               : fl_worker_io_close_pass(f->worker_io);
}

fleet_status fl_stage_connect(fleet *f)
{
    if (fleet_is_heter_worker(f)) {
        FL_TRY(meet_trainers(f));
        return connect_ways(f);
    }
    FL_TRY(fl_worker_io_barrier(f->worker_io));
    if (!f->stage_job)
        return FLEET_OK;
    FL_TRY(connect_ways(f));
    fl_worker_io_before_pass_ends(f->worker_io, end_pass, f);
    return FLEET_OK;
}

/* --- ends ----------------------------------------------------------------- */

/* Weights of the other stages: no server answers this worker afterwards. */
static fleet_status catch_up(fleet *f)
{
    fleet_status status;

    FL_TRY(fl_store_synchronize(f->store));
    pthread_rwlock_wrlock(&f->store->lock);
    status = fl_remote_catch_up(f->store);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

static fleet_status leave_next(fl_stage_way *w)
{
    FL_TRY(fl_stage_client_leave(w->client));
    fl_stage_client_close(w->client);
    w->client = NULL;
    return FLEET_OK;
}

fleet_status fl_stage_connect_leave(fleet *f)
{
    fl_stage_job *job = f->stage_job;

    if (!job || !job->way[0].client)
        return FLEET_OK;
    FL_TRY(leave_next(&job->way[0]));
    return catch_up(f);
}

/* A worker leaves when its last pass is over for all, and the next stage knows
 * of that pass, whichever process has told it: in sync it needs not be told of
 * both. When this process goes on for one that died, the worker may have sent a
 * batch of the next pass. */
fleet_status fl_stage_connect_tell(fl_stage_job *job, int worker)
{
    const int i = worker - job->first_trainer;
    fl_stage_way *w;
    fl_stage_place at;

    if (job->n_way == 0 || !job->way[i].client)
        return FLEET_OK;
    w = &job->way[i];
    at = fl_stage_server_where(job->server, worker);
    job->now = i;
    job->number = at.left ? at.number : at.ended_at;
    if (at.left) {
        FL_TRY(leave_next(w));
        return fl_stage_server_told(job->server, worker);
    }
    for (; w->n_ended < at.n_ended; w->n_ended++)
        FL_TRY(fl_stage_client_end_pass(w->client));
    return FLEET_OK;
}
