/* heter_worker.c - the loop of a heter worker: in each round a batch of every
 * trainer of it that has one, or the batches that it has in flight, in the
 * trainers' order, with a push for each trainer, then the update of all. So the
 * servers sum gradients in the order, and to the bits, of workers that train
 * all of the program. In async: batches as they come, each an update. */
#include <string.h>

#include "base/memory.h"
#include "fleet/heter/stage_connect.h"
#include "fleet/heter/stage_program.h"
#include "ps/stage/stage_wire.h"
#include "ps/stage/step_parts.h"
#include "runtime/exec/crew.h"
#include "runtime/exec/feed_fetch.h"
#include "runtime/plan/remote.h"
#include "runtime/store/mirror.h"

/* A batch that has come. */
typedef struct came_batch {
    fl_stage_buffer *room; /* by crossing */
    fleet_feed *feed;
    int64_t (*dims)[FLEET_MAX_DIM];
} came_batch;

typedef struct stage_loop {
    fleet *f;
    fl_stage_job *job;
    fleet_executor *e;
    fl_crew *crew;    /* of a stage between two, with several batches in
                        flight; NULL: a batch is computed as it comes */
    came_batch *came; /* by the crew's members; or one */
    int n_came;       /* of one trainer, to be computed together */
    float *gradient;  /* of one crossing */
    size_t gradient_capacity;
    fl_msg msg;
    int n_batch;   /* of this round */
    bool is_last;  /* the batch, of all that its trainer has in flight */
    bool restored; /* this round's step was begun by the process before */
    bool over;     /* all have left */
} stage_loop;

/* --- a batch -------------------------------------------------------------- */

static fleet_status read_feeds(stage_loop *l, const came_batch *to,
                               const fl_packet *p)
{
    FL_TRY(fl_msg_decode(p, &l->msg));
    l->is_last = l->msg.head.flags & FL_MSG_END_OF_STEP;
    FL_TRY(fl_stage_capacity(&l->msg, &l->e->max_batch));
    for (int i = 0; i < l->job->in.n; i++) {
        const fleet_var *v =
            fleet_program_var(l->job->program, l->job->in.name[i]);
        fl_stage_value value;

        FL_TRY(fl_stage_read(&l->msg, i + 1, v, &to->room[i], &value));
        memcpy(to->dims[i], v->shape.dim, sizeof v->shape.dim);
        if (v->ragged || fl_shape_batched(&v->shape))
            to->dims[i][0] = value.rows;
        to->feed[i] = (fleet_feed){.name = v->name,
                                   .dtype = v->dtype,
                                   .data = value.data,
                                   .dims = to->dims[i],
                                   .n_dim = v->ragged ? 1 : v->shape.n_dim,
                                   .offsets = value.offsets};
    }
    return FLEET_OK;
}

/* Random numbers are by the batch's number in the job. It goes on as it has
 * come: by its trainer and number. */
static void set_batch_number(stage_loop *l, int trainer)
{
    l->f->store->worker = trainer;
    l->job->now = trainer - l->job->first_trainer;
    l->job->number = l->msg.head.step;
}

static fleet_status write_gradient(stage_loop *l, fl_msg_writer *w, int i,
                                   int number)
{
    const fleet_var *v = fleet_program_var(l->job->program, l->job->in.name[i]);
    const int64_t n = fl_shape_count(&v->shape, l->e->last_batch);
    const fl_stage_value value = {.var = v, .rows = 1, .cols = n, .ld = n};
    fl_stage_value to = value;

    FL_TRY(fl_grow(&l->gradient, &l->gradient_capacity, (size_t)n + 1,
                   sizeof *l->gradient));
    FL_TRY(fl_stage_gradient(l->e, v, l->gradient, n));
    to.data = l->gradient;
    return fl_stage_write(w, number, &to);
}

static fleet_status write_answer(stage_loop *l, fl_msg_writer *w, float *loss)
{
    const fleet_var name = {.name = "the loss", .dtype = FLEET_FLOAT32};
    const fl_stage_value value = {
        .var = &name, .data = loss, .rows = 1, .cols = 1, .ld = 1};
    int number = 0;

    FL_TRY(fl_stage_write(w, number, &value));
    for (int i = 0; i < l->job->in.n; i++)
        if (l->job->in.goes_back[i])
            FL_TRY(write_gradient(l, w, i, ++number));
    return FLEET_OK;
}

/* In sync the gradients of the batches that a trainer has in flight are one
 * part of the step, as they are one push of the trainer's. The last ones of a
 * pass may be fewer. */
static fleet_status end_part(stage_loop *l)
{
    return l->is_last && l->e->micro > 0 ? fleet_executor_flush(l->e)
                                         : FLEET_OK;
}

static fleet_status answer_batch(stage_loop *l, int trainer, float loss)
{
    fl_stage_parts parts = {.n_lane = fl_worker_io_lanes(l->f->worker_io)};
    fleet_status status;
    fl_msg_writer w;
    fl_packet *p;

    fl_stage_server_begin(l->job->server, trainer, &w);
    status = write_answer(l, &w, &loss);
    parts.lane = fl_worker_io_last_part(l->f->worker_io, &parts.settings);
    if (status == FLEET_OK)
        return fl_stage_server_answer(l->job->server, trainer, &w, &parts);
    if (w.status == FLEET_OK)
        w.status = status;
    (void)fl_msg_end(&w, true, &p); /* which drops what there is */
    return status;
}

/* In async no round ends behind a batch. A worker that has its answer may end
 * the pass, save or load, which all workers' updates come before, these, too:
 * so they are on the servers when it hears. */
static fleet_status wait_for_lanes(stage_loop *l)
{
    fl_remote *x = l->f->store->remote;

    return x->sync ? FLEET_OK : x->methods->wait_update(x);
}

static fleet_status compute_one(stage_loop *l, float *loss)
{
    fleet_fetch fetch = {.var = l->job->program->training.loss,
                         .data = loss,
                         .size = sizeof *loss};

    return fleet_executor_run(l->e, l->came[0].feed, l->job->in.n, &fetch, 1);
}

/* All go on to the next stage before what comes of the first is waited for. */
static fleet_status compute_together(stage_loop *l)
{
    const size_t bytes = l->e->program->n_var * sizeof(fl_input);
    int64_t rows[FL_MOST_MEMBERS];

    for (int i = 0; i < l->n_came; i++) {
        FL_TRY(fl_executor_bind(l->e, l->came[i].feed, l->job->in.n, &rows[i]));
        memcpy(fl_crew_input(l->crew, i), l->e->input, bytes);
    }
    return fl_crew_round(l->crew, rows, l->n_came);
}

static fleet_status answer_together(stage_loop *l, int trainer)
{
    for (int i = 0; i < l->n_came; i++) {
        double loss;

        fl_crew_show(l->crew, i);
        (void)fl_executor_loss_of(l->e, l->e->n_run, &loss);
        FL_TRY(answer_batch(l, trainer, (float)loss));
    }
    return FLEET_OK;
}

/* What has come of the trainer. */
static fleet_status train_batches(stage_loop *l, int trainer)
{
    float loss = 0;
    fleet_status status = l->crew ? compute_together(l) : compute_one(l, &loss);

    if (status != FLEET_OK)
        return fl_fail_in(status, "%s, a batch of worker %d", l->job->name,
                          trainer);
    l->n_batch += l->n_came;
    FL_TRY(wait_for_lanes(l));
    FL_TRY(end_part(l));
    return l->crew ? answer_together(l, trainer)
                   : answer_batch(l, trainer, loss);
}

static fleet_status take_batch(stage_loop *l, int trainer, const fl_packet *p)
{
    fleet_status status = read_feeds(l, &l->came[l->n_came], p);

    if (status != FLEET_OK)
        return fl_fail_in(status, "%s, a batch of worker %d", l->job->name,
                          trainer);
    set_batch_number(l, trainer);
    l->n_came++;
    if (l->crew && !l->is_last)
        return FLEET_OK;
    status = train_batches(l, trainer);
    l->n_came = 0;
    return status;
}

/* --- rounds --------------------------------------------------------------- */

/* The round's gradients make an update with the gradients of all other
 * processes; its weights are in host memory then, where iterations on a GPU
 * look for them. */
static fleet_status update(stage_loop *l)
{
    fl_store *s = l->f->store;
    fleet_status status;

    FL_TRY(fleet_executor_flush(l->e));
    pthread_rwlock_wrlock(&s->lock);
    status = fl_store_to_host(s);
    if (status == FLEET_OK) {
        status = fl_worker_io_end_step(l->f->worker_io);
        fl_store_written(s);
    }
    s->updates = s->remote->updates;
    pthread_rwlock_unlock(&s->lock);
    return status;
}

static fleet_status close_pass(stage_loop *l)
{
    FL_TRY(fl_worker_io_close_pass(l->f->worker_io));
    fl_stage_server_pass_over(l->job->server,
                              fl_worker_io_steps(l->f->worker_io));
    return FLEET_OK;
}

/* What a trainer brings to the round: its batches, or something else. */
static fleet_status serve_trainer(stage_loop *l, int trainer,
                                  fl_stage_event *event)
{
    fleet_status status;
    fl_packet *p;

    do {
        FL_TRY(fl_stage_server_next(l->job->server, trainer,
                                    l->n_batch + l->n_came > 0, event, &p));
        status =
            *event == FL_STAGE_BATCH ? take_batch(l, trainer, p) : FLEET_OK;
        fl_packet_drop(p);
        FL_TRY(status);
    } while (*event == FL_STAGE_BATCH && !l->is_last);
    return *event == FL_STAGE_PASS_ENDED || *event == FL_STAGE_LEFT
               ? fl_stage_connect_tell(l->job, trainer)
               : FLEET_OK;
}

static fleet_status run_round(stage_loop *l)
{
    const int first = l->job->first_trainer;
    int ended = 0, left = 0;

    fl_stage_server_stands(l->job->server,
                           fl_worker_io_steps(l->f->worker_io) - l->restored,
                           (uint64_t)l->f->store->remote->updates);
    l->restored = false;
    l->n_batch = 0;
    for (int i = first; i < first + l->job->n_trainer; i++) {
        fl_stage_event event;

        FL_TRY(serve_trainer(l, i, &event));
        l->n_batch += event == FL_STAGE_TRAINED;
        ended += event == FL_STAGE_PASS_ENDED;
        left += event == FL_STAGE_LEFT;
    }
    l->over = left == l->job->n_trainer;
    if (l->n_batch > 0)
        return update(l);
    return ended > 0 ? close_pass(l) : FLEET_OK;
}

/* --- in async ------------------------------------------------------------- */

static fleet_status tell_all(stage_loop *l)
{
    const fl_stage_job *job = l->job;

    for (int i = 0; i < job->n_trainer; i++)
        FL_TRY(fl_stage_connect_tell(l->job, job->first_trainer + i));
    return FLEET_OK;
}

/* A batch is a step of the heter worker's, which waits for no other step; those
 * that a crew computes together come one behind the other. */
static fleet_status serve_any(stage_loop *l)
{
    fl_stage_event event;
    fleet_status status = FLEET_OK;
    fl_packet *p;
    int trainer;

    FL_TRY(fl_stage_server_any(l->job->server, &trainer, &event, &p));
    if (event == FL_STAGE_BATCH)
        status = take_batch(l, trainer, p);
    fl_packet_drop(p);
    FL_TRY(status);
    if (l->n_came > 0)
        return serve_trainer(l, trainer, &event);
    l->over = event == FL_STAGE_LEFT;
    if (event != FL_STAGE_BATCH)
        FL_TRY(tell_all(l));
    return event == FL_STAGE_PASS_ENDED ? close_pass(l) : FLEET_OK;
}

/* --- after a process that died -------------------------------------------- */

static fleet_status give_part(void *arg, uint64_t step, int lane,
                              const fl_packet *p)
{
    const stage_loop *l = arg;

    return lane < 0 ? FLEET_OK
                    : fl_worker_io_part_again(l->f->worker_io, step, lane, p);
}

/* Batches of the round that was under way have their gradients in the log. */
static fleet_status restore_parts(stage_loop *l)
{
    const fl_stage_job *job = l->job;
    const int first = job->first_trainer;
    uint64_t step, updates;

    if (!fl_stage_server_goes_on(job->server, &step, &updates))
        return FLEET_OK;
    for (int i = first; i < first + job->n_trainer; i++) {
        const fl_stage_record *r =
            fl_stage_log_last(job->log, i, fl_worker_io_run(l->f->worker_io));

        if (!r || r->n_lane == 0 || r->step != step)
            continue;
        FL_TRY(fl_stage_log_each_packet(job->log, i, give_part, l));
        FL_TRY(
            fl_worker_io_end_part_again(l->f->worker_io, step, &r->settings));
        l->restored = true;
    }
    fl_stage_log_forget(job->log);
    return FLEET_OK;
}

static fleet_status make_room(stage_loop *l, int n)
{
    const size_t n_value = (size_t)l->job->in.n + 1;

    FL_TRY(FL_NEW(&l->came, (size_t)n * sizeof *l->came));
    for (int i = 0; i < n; i++) {
        came_batch *b = &l->came[i];

        FL_TRY(FL_NEW(&b->room, n_value * sizeof *b->room));
        FL_TRY(FL_NEW(&b->feed, n_value * sizeof *b->feed));
        FL_TRY(FL_NEW(&b->dims, n_value * sizeof *b->dims));
    }
    return FLEET_OK;
}

static fleet_status make_executor(stage_loop *l)
{
    const fl_crew_kind kind = {.n = l->job->n_in_flight,
                               .hogwild = !l->f->store->remote->sync,
                               .in_flight = true};

    l->e = fleet_executor_create(l->job->program, NULL);
    if (!l->e)
        return fl_last_code();
    return fl_stage_job_has_crew(l->job)
               ? fl_crew_of(l->e, &kind, l->job->name, &l->crew)
               : FLEET_OK;
}

static fleet_status serve_until_left(stage_loop *l)
{
    FL_TRY(restore_parts(l));
    FL_TRY(make_executor(l));
    FL_TRY(make_room(l, l->crew ? l->job->n_in_flight : 1));
    while (!l->over)
        FL_TRY(l->f->store->remote->sync ? run_round(l) : serve_any(l));
    return FLEET_OK;
}

static void free_room(const stage_loop *l, const came_batch *b)
{
    for (int i = 0; b->room && i < l->job->in.n; i++)
        fl_stage_buffer_done(&b->room[i]);
    fl_free(b->room);
    fl_free(b->feed);
    fl_free(b->dims);
}

static void free_loop(stage_loop *l)
{
    const int n = l->crew ? l->job->n_in_flight : 1;

    for (int i = 0; l->came && i < n; i++)
        free_room(l, &l->came[i]);
    fl_free(l->came);
    fl_free(l->gradient);
    fleet_executor_destroy(l->e); /* and its crew */
}

static fleet_status check_call(const fleet *f)
{
    FL_TRY(fl_handle_check(f, "fleet_run_heter_worker"));
    if (!fleet_is_heter_worker(f))
        return fl_fail(FLEET_ESTATE, "fleet_run_heter_worker: this process is "
                                     "no heter worker");
    if (!f->stage_job || !f->stage_job->server)
        return fl_fail(FLEET_ESTATE,
                       "fleet_run_heter_worker: call fleet_minimize() and "
                       "fleet_init_worker() before; it runs once");
    return FLEET_OK;
}

fleet_status fleet_run_heter_worker(fleet *f)
{
    stage_loop l = {.f = f};
    fleet_status status;
    fl_error error;

    FL_TRY(check_call(f));
    l.job = f->stage_job;
    status = serve_until_left(&l);
    fl_error_take(&error, status);
    free_loop(&l);
    fl_stage_server_close(l.job->server,
                          status == FLEET_OK ? NULL : error.text);
    l.job->server = NULL;
    if (status != FLEET_OK)
        return fl_error_raise(&error);
    return fl_worker_io_leave(f->worker_io);
}
