/* stage_server.c - the thread of a stage's socket, and what the thread that
 * computes gets of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ps/stage/stage_server_internal.h"
#include "runtime/plan/remote.h"

enum {
    LOOK_MS = 50,         /* how often a wait asks how the job does */
    LINGER_MS = 500,      /* for answers that are on their way at the end */
    IDLE_BYTES = 64 << 20 /* of packets that are kept */
};

/* --- the thread ----------------------------------------------------------- */

static void receive_all(fl_stage_server *s)
{
    fl_peer from;

    for (fl_packet *p;;) {
        if (fl_socket_receive(s->socket, &from, &p) != FLEET_OK || !p)
            return;
        fl_stage_take_packet(s, &from, p);
        fl_packet_drop(p);
    }
}

static void send_all(fl_stage_server *s)
{
    for (int i = 0; i < s->o.n_trainer; i++) {
        const fl_stage_peer *t = &s->trainer[i];

        for (int j = 0; j < s->o.n_in_flight; j++) {
            fl_stage_request *q = &t->request[j];

            if (q->answer_is_new)
                fl_socket_send(s->socket, &t->peer, q->answer);
            q->answer_is_new = false;
        }
    }
}

static void send_aborts(fl_stage_server *s)
{
    for (int i = 0; i < s->o.n_trainer; i++) {
        const fl_stage_peer *t = &s->trainer[i];
        const fl_msg_head head = {.stream = (uint32_t)(s->o.first_trainer + i),
                                  .incarnation = t->incarnation,
                                  .step = FLEET_EPEER};
        fl_msg_writer w;
        fl_packet *p;

        if (!t->known || t->left)
            continue;
        fl_stage_begin_message(s, &head, FL_MSG_ABORT, FL_ANSWER_OK, &w);
        fl_msg_text(&w, FL_SECTION_TEXT, s->why);
        if (fl_msg_end(&w, true, &p) != FLEET_OK)
            return; /* they will miss this process */
        fl_socket_send(s->socket, &t->peer, p);
        fl_packet_drop(p);
    }
}

static void *serve_trainers(void *arg)
{
    fl_stage_server *s = arg;

    for (bool stop = false; !stop;) {
        fleet_status status =
            fl_socket_wait(&s->socket, 1, &s->wakeup, LOOK_MS);

        pthread_mutex_lock(&s->lock);
        if (status != FLEET_OK && s->error.code == FLEET_OK) {
            fl_error_take(&s->error, status);
            pthread_cond_signal(&s->came);
        }
        receive_all(s);
        send_all(s);
        stop = s->stop;
        if (stop && *s->why)
            send_aborts(s);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* --- the other thread ----------------------------------------------------- */

/* It may hear that the pass is over, and leave, before this process knows that.
 * The next one ends the pass again first: its step would be taken for that
 * end's otherwise, and lanes would not know that it leaves. */
static bool has_left(const fl_stage_server *s, const fl_stage_peer *t)
{
    return t->left && !(s->o.stage_log && t->n_ended > s->n_over);
}

/* Under the lock: the next batch, if it has come. */
static bool take_batch(const fl_stage_server *s, fl_stage_peer *t,
                       fl_stage_event *event, fl_packet **p)
{
    const fl_stage_request *q = fl_stage_next_batch(s, t);

    if (!q)
        return false;
    t->n_taken++;
    *p = fl_packet_keep(q->batch);
    *event = FL_STAGE_BATCH;
    return true;
}

/* Under the lock: what the trainer has brought, if anything. With a log a batch
 * behind a pass waits until that is over: the next process may not know it yet,
 * and the batch would be of the step that lanes have as the pass's end. */
static bool has_event(fl_stage_server *s, fl_stage_peer *t,
                      fl_stage_event *event, fl_packet **p)
{
    const bool ended = t->n_ended > s->n_over;

    *p = NULL;
    if (t->trained) {
        t->trained = false;
        *event = FL_STAGE_TRAINED;
        return true;
    }
    if (!(ended && s->o.stage_log) && take_batch(s, t, event, p))
        return true;
    *event = has_left(s, t) ? FL_STAGE_LEFT : FL_STAGE_PASS_ENDED;
    return t->left || ended;
}

static void wait_a_little(fl_stage_server *s)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += LOOK_MS * 1000000L;
    if (end.tv_nsec >= 1000000000L) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&s->came, &s->lock, &end);
}

/* The process that brings the batches is late. */
static fleet_status fail_late(const fl_stage_server *s, int trainer)
{
    const int key = fl_stage_key_of(s, (uint32_t)trainer);
    const double seconds = (double)s->o.step_ms / 1000;

    if (key == trainer)
        return fl_fail(FLEET_ETIMEDOUT,
                       "worker %d has kept %s and the other workers waiting "
                       "for %.1f s, without a batch (step deadline)",
                       trainer, s->o.name, seconds);
    return fl_fail(FLEET_ETIMEDOUT,
                   "heter worker %d has kept %s and the other workers waiting "
                   "for %.1f s, without a batch of worker %d (step deadline)",
                   key - s->o.n_worker, s->o.name, seconds, trainer);
}

/* Under the lock, which is given up meanwhile. */
static fleet_status wait_and_look(fl_stage_server *s)
{
    fleet_status status;

    FL_TRY(fl_error_raise(&s->error));
    wait_a_little(s);
    pthread_mutex_unlock(&s->lock);
    status = s->o.status(s->o.arg);
    pthread_mutex_lock(&s->lock);
    return status;
}

static fleet_status wait_for_trainer(fl_stage_server *s, int trainer,
                                     bool begun, fl_stage_event *event,
                                     fl_packet **p)
{
    fl_awake awake = fl_awake_from(fl_now_ms(), fl_awake_step(s->o.peer_ms));
    const int64_t end_ms = awake.ms + s->o.step_ms;

    while (!has_event(s, fl_stage_peer_of(s, (uint32_t)trainer), event, p)) {
        FL_TRY(wait_and_look(s));
        if (fl_awake_at(&awake, fl_now_ms()) > end_ms && begun)
            return fail_late(s, trainer);
    }
    return FLEET_OK;
}

fleet_status fl_stage_server_next(fl_stage_server *s, int trainer, bool begun,
                                  fl_stage_event *event, fl_packet **p)
{
    fleet_status status;

    pthread_mutex_lock(&s->lock);
    s->awaited = trainer;
    status = wait_for_trainer(s, trainer, begun, event, p);
    s->awaited = FL_STAGE_NOBODY;
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Under the lock: the batch of a trainer, from the one behind the last on; or
 * that none will come in this pass. */
static bool has_any(fl_stage_server *s, int *trainer, fl_stage_event *event,
                    fl_packet **p)
{
    int left = 0, ended = 0;

    *p = NULL;
    for (int i = 1; i <= s->o.n_trainer; i++) {
        const int at = (s->served + i) % s->o.n_trainer;
        fl_stage_peer *t = &s->trainer[at];

        if (take_batch(s, t, event, p)) {
            s->served = at;
            *trainer = s->o.first_trainer + at;
            return true;
        }
        left += t->left;
        ended += t->left || t->n_ended > s->n_over;
    }
    *event = left == s->o.n_trainer ? FL_STAGE_LEFT : FL_STAGE_PASS_ENDED;
    return ended == s->o.n_trainer;
}

fleet_status fl_stage_server_any(fl_stage_server *s, int *trainer,
                                 fl_stage_event *event, fl_packet **p)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&s->lock);
    while (status == FLEET_OK && !has_any(s, trainer, event, p))
        status = wait_and_look(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* Of the batches that were taken. */
static fl_stage_request *first_unanswered(const fl_stage_server *s, int trainer)
{
    const fl_stage_peer *t = fl_stage_peer_of(s, (uint32_t)trainer);

    return &t->request[t->n_answered];
}

void fl_stage_server_begin(fl_stage_server *s, int trainer, fl_msg_writer *w)
{
    fl_stage_request *q = first_unanswered(s, trainer);

    pthread_mutex_lock(&s->lock);
    q->answered = q->asked;
    fl_stage_begin_answer(s, &q->answered, FL_ANSWER_OK, w);
    pthread_mutex_unlock(&s->lock);
}

/* The thread writes nothing of batches that are taken and not answered. */
static fleet_status write_down(const fl_stage_server *s, int trainer,
                               const fl_stage_parts *parts, fl_packet *p)
{
    const fl_stage_peer *t = fl_stage_peer_of(s, (uint32_t)trainer);
    fl_stage_record r = fl_stage_record_of(s, t, t->number);
    fl_packet *answer[FL_MOST_MEMBERS];

    if (!s->o.stage_log)
        return FLEET_OK;
    for (int i = 0; i < t->n_taken; i++)
        answer[i] = i + 1 < t->n_taken ? t->request[i].answer : p;
    r.n_answer = (uint32_t)t->n_taken;
    r.n_lane = (uint32_t)parts->n_lane;
    r.settings = parts->settings;
    return fl_stage_log_write(s->o.stage_log, trainer, &r, parts->lane, answer);
}

/* Under the lock. While answers wait to be written down another process may
 * ask. */
static void hand_over(fl_stage_server *s, fl_stage_peer *t, fl_stage_request *q,
                      fl_packet *p, bool last)
{
    fl_stage_keep_answer(q, p);
    t->n_answered++;
    q->answer_is_new = !s->o.stage_log;
    if (!last)
        return;
    t->whole = true;
    t->trained_at = s->step + 1;
    for (int i = 0; s->o.stage_log && i < t->n_taken; i++)
        t->request[i].answer_is_new =
            fl_stage_head_anew(s, &t->request[i], &t->request[i].asked);
}

fleet_status fl_stage_server_answer(fl_stage_server *s, int trainer,
                                    fl_msg_writer *w,
                                    const fl_stage_parts *parts)
{
    fl_stage_request *q = first_unanswered(s, trainer);
    const bool last = q->answered.flags & FL_MSG_END_OF_STEP;
    fleet_status status = FLEET_OK;
    fl_packet *p;

    FL_TRY(fl_msg_end(w, true, &p));
    if (last)
        status = write_down(s, trainer, parts, p);
    if (status != FLEET_OK) {
        fl_packet_drop(p);
        return status;
    }
    pthread_mutex_lock(&s->lock);
    s->progress++;
    hand_over(s, fl_stage_peer_of(s, (uint32_t)trainer), q, p, last);
    pthread_mutex_unlock(&s->lock);
    fl_wakeup_ring(&s->wakeup);
    return FLEET_OK;
}

void fl_stage_server_stands(fl_stage_server *s, uint64_t step, uint64_t updates)
{
    pthread_mutex_lock(&s->lock);
    s->step = step;
    s->updates = updates;
    pthread_mutex_unlock(&s->lock);
}

fl_stage_place fl_stage_server_where(fl_stage_server *s, int trainer)
{
    const fl_stage_peer *t = fl_stage_peer_of(s, (uint32_t)trainer);
    fl_stage_place at;

    pthread_mutex_lock(&s->lock);
    at = (fl_stage_place){t->number, t->ended_at, t->n_ended,
                          s->n_over, t->left,     t->told};
    pthread_mutex_unlock(&s->lock);
    return at;
}

/* Its socket's thread has written what is the trainer's last request. */
fleet_status fl_stage_server_told(fl_stage_server *s, int trainer)
{
    fl_stage_peer *t = fl_stage_peer_of(s, (uint32_t)trainer);
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&s->lock);
    t->told = true;
    if (s->o.stage_log) {
        const fl_stage_record r = fl_stage_record_of_end(s, t, t->number);

        status = fl_stage_log_write(s->o.stage_log, trainer, &r, NULL, NULL);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

void fl_stage_server_gets_on(fl_stage_server *s, uint64_t progress)
{
    pthread_mutex_lock(&s->lock);
    s->progress += progress != s->next_progress;
    s->next_progress = progress;
    pthread_mutex_unlock(&s->lock);
}

bool fl_stage_server_goes_on(const fl_stage_server *s, uint64_t *step,
                             uint64_t *updates)
{
    *step = s->step;
    *updates = s->updates;
    return s->goes_on;
}

void fl_stage_server_pass_over(fl_stage_server *s, uint64_t step)
{
    pthread_mutex_lock(&s->lock);
    s->n_over++;
    s->step = step;
    pthread_mutex_unlock(&s->lock);
}

/* --- listening ------------------------------------------------------------ */

static fleet_status listen_at(fl_stage_server *s)
{
    const int fd =
        strncmp(s->o.address, "inproc://", 9) == 0 ? -1 : s->o.listen_fd;
    fl_address numeric;

    FL_TRY(fl_address_resolve(s->o.address, numeric));
    if (!s->o.keys && !s->o.insecure)
        FL_TRY(fl_address_check_keyless(s->o.name, numeric, fd));
    FL_TRY(fl_socket_listen(&s->socket));
    if (s->o.keys) {
        FL_TRY(fl_guard_create(&s->guard, s->o.keys));
        FL_TRY(fl_socket_guard(s->socket, s->guard));
    }
    return fl_socket_bind(s->socket, numeric, fd, NULL);
}

/* --- after a process that died -------------------------------------------- */

typedef struct restoring {
    fl_stage_server *s;
    fl_stage_peer *t;
} restoring;

/* The frames of the log's answer, as a packet that stays. */
static fleet_status take_answer(void *arg, uint64_t step, int lane,
                                const fl_packet *p)
{
    restoring *r = arg;
    fl_stage_request *q;

    (void)step;
    if (lane >= 0)
        return FLEET_OK;
    if (-lane > r->s->o.n_in_flight)
        return fl_fail(FLEET_ESTATE,
                       "the log has batch %d of those in flight together: "
                       "expected %d at most "
                       "(strategy.pipeline_configs.accumulate_steps)",
                       -lane, r->s->o.n_in_flight);
    q = &r->t->request[-lane - 1];
    FL_TRY(fl_packet_create(r->s->pool, &q->answer));
    for (int i = 0; i < p->n_frame; i++) {
        void *to = fl_packet_add(q->answer, p->frame[i].size);

        if (!to)
            return fl_last_code();
        memcpy(to, p->frame[i].data, p->frame[i].size);
    }
    return FLEET_OK;
}

static fleet_status restore_trainer(fl_stage_server *s, int trainer)
{
    fl_stage_peer *t = fl_stage_peer_of(s, (uint32_t)trainer);
    const fl_stage_record *r =
        fl_stage_log_last(s->o.stage_log, trainer, s->o.run);

    if (!r)
        return FLEET_OK;
    t->number = r->number;
    t->n_ended = r->n_ended;
    t->ended_at = r->number; /* if it is an end, which alone matters */
    t->left = r->left > 0;
    t->told = r->left > 1;
    t->trained_at = r->n_lane > 0 ? r->step + 1 : 0;
    if (!s->goes_on || r->step > s->step) {
        s->step = r->step;
        s->updates = r->updates;
        s->n_over = r->n_over;
    }
    s->goes_on = true;
    return r->n_lane == 0
               ? FLEET_OK
               : fl_stage_log_each_packet(s->o.stage_log, trainer, take_answer,
                                          &(restoring){s, t});
}

/* Gradients behind the last step that any record says are of the round that is
 * under way. */
static fleet_status restore_all(fl_stage_server *s)
{
    const int first = s->o.first_trainer, end = first + s->o.n_trainer;

    for (int i = first; s->o.stage_log && i < end; i++)
        FL_TRY(restore_trainer(s, i));
    for (int i = first; s->o.stage_log && i < end; i++) {
        const fl_stage_record *r =
            fl_stage_log_last(s->o.stage_log, i, s->o.run);

        fl_stage_peer_of(s, (uint32_t)i)->trained =
            r && r->n_lane > 0 && r->step == s->step;
    }
    return FLEET_OK;
}

/* --- its life ------------------------------------------------------------- */

static fleet_status open_all(fl_stage_server *s)
{
    const size_t n = (size_t)s->o.n_trainer + 1;

    FL_TRY(FL_NEW(&s->trainer, n * sizeof *s->trainer));
    for (int i = 0; i < s->o.n_trainer; i++) {
        s->trainer[i].whole = true;
        FL_TRY(FL_NEW(&s->trainer[i].request,
                      (size_t)s->o.n_in_flight * sizeof(fl_stage_request)));
    }
    FL_TRY(fl_packet_pool_create(&s->pool, IDLE_BYTES));
    FL_TRY(restore_all(s));
    FL_TRY(fl_wakeup_create(&s->wakeup));
    FL_TRY(listen_at(s));
    FL_TRY(fl_thread_start(&s->thread, serve_trainers, s, "stage"));
    s->has_thread = true;
    return FLEET_OK;
}

fleet_status fl_stage_server_open(fl_stage_server **server,
                                  const fl_stage_server_options *o)
{
    pthread_condattr_t monotonic;
    fl_stage_server *s;
    fleet_status status;
    fl_error error;

    FL_TRY(FL_NEW(server, sizeof *s));
    s = *server;
    s->o = *o;
    s->o.n_in_flight = o->n_in_flight > 1 ? o->n_in_flight : 1;
    s->job = fl_msg_job(o->job, 0);
    s->nonce = o->nonce ? o->nonce : (uint32_t)fl_nonce() | 1;
    s->wakeup.fd = -1;
    s->awaited = FL_STAGE_NOBODY;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->came, &monotonic);
    pthread_condattr_destroy(&monotonic);
    status = open_all(s);
    if (status == FLEET_OK)
        return status;
    fl_error_take(&error, status);
    fl_stage_server_close(s, NULL);
    *server = NULL;
    return fl_error_raise(&error);
}

static void drop_requests(const fl_stage_server *s, fl_stage_peer *t)
{
    for (int i = 0; t->request && i < s->o.n_in_flight; i++) {
        fl_packet_drop(t->request[i].batch);
        fl_packet_drop(t->request[i].answer);
    }
    fl_free(t->request);
}

static void end_thread(fl_stage_server *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->why, sizeof s->why, "%s", why ? why : "");
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    fl_wakeup_ring(&s->wakeup);
    pthread_join(s->thread, NULL);
}

void fl_stage_server_close(fl_stage_server *s, const char *why)
{
    if (!s)
        return;
    if (s->has_thread)
        end_thread(s, why);
    fl_socket_close(s->socket, LINGER_MS);
    fl_guard_destroy(s->guard);
    for (int i = 0; s->trainer && i < s->o.n_trainer; i++)
        drop_requests(s, &s->trainer[i]);
    fl_free(s->trainer);
    fl_packet_pool_destroy(s->pool);
    if (s->wakeup.fd >= 0)
        fl_wakeup_destroy(&s->wakeup);
    pthread_cond_destroy(&s->came);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}
