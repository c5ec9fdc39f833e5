/* stage_server.c - the thread of a stage's socket, and what it has taken. */
#include "ps/stage/stage_server.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "net/socket.h"

enum {
    LOOK_MS = 50,          /* how often a wait asks how the job does */
    LINGER_MS = 500,       /* for answers that are on their way at the end */
    IDLE_BYTES = 64 << 20, /* of packets that are kept */
    NOBODY = -1
};

typedef struct stage_trainer {
    bool known, left, taken; /* taken: its batch is with the other thread */
    fl_peer peer;
    uint32_t incarnation;
    uint64_t done;      /* its last request that was answered */
    uint64_t n_ended;   /* passes that it has ended */
    uint64_t progress;  /* requests */
    fl_packet *batch;   /* that has come, or is taken; NULL: none */
    fl_msg_head asked;  /* head of the request under way */
    fl_packet *answer;  /* to request `done`; NULL: none */
    bool answer_is_new; /* it has not been sent */
} stage_trainer;

struct fl_stage_server {
    fl_stage_server_options o;
    uint64_t job;
    uint32_t nonce;
    fl_packet_pool *pool;
    fl_guard *guard;
    fl_socket *socket; /* the thread's */
    fl_wakeup wakeup;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t came;
    bool stop;
    char why[900]; /* with which it stops; "": it ends well */
    fl_error error;
    stage_trainer *trainer; /* n_trainer of them */
    uint64_t n_over;        /* passes that are over for all */
    uint64_t progress;      /* of this process: batches that it has done */
    int awaited;            /* the trainer that the other thread waits for */
    fl_msg msg;             /* the thread's, that is being read */
};

/* By its stream, which is one of its. */
static stage_trainer *trainer_of(const fl_stage_server *s, uint32_t stream)
{
    return &s->trainer[stream - (uint32_t)s->o.first_trainer];
}

/* --- answers, of the thread ----------------------------------------------- */

static void begin_message(const fl_stage_server *s, const fl_msg_head *to,
                          fl_msg_kind kind, fl_msg_status status,
                          fl_msg_writer *w)
{
    fl_msg_head head = *to;

    head.version = FL_MSG_VERSION;
    head.kind = (uint8_t)kind;
    head.flags = FL_MSG_CRC_ALL;
    head.status = (uint8_t)status;
    head.n_section = 0;
    head.piece = 0;
    head.job = fl_msg_job(s->o.job, s->o.run);
    head.peer = s->nonce;
    head.generation = 0;
    fl_msg_begin(w, s->pool, &head);
}

static void begin_answer(const fl_stage_server *s, const fl_msg_head *to,
                         fl_msg_status status, fl_msg_writer *w)
{
    begin_message(s, to, FL_MSG_ANSWER, status, w);
    w->answer.missing_stream = UINT32_MAX;
}

/* What cannot be sent is asked for again. */
static void send_answer(fl_stage_server *s, const fl_peer *to, fl_msg_writer *w)
{
    fl_packet *p;

    if (fl_msg_end(w, true, &p) != FLEET_OK)
        return;
    fl_socket_send(s->socket, to, p);
    fl_packet_drop(p);
}

static void answer_briefly(fl_stage_server *s, const fl_peer *to,
                           const fl_msg_head *head, fl_msg_status status)
{
    fl_msg_writer w;

    begin_answer(s, head, status, &w);
    send_answer(s, to, &w);
}

static void refuse_request(fl_stage_server *s, const fl_peer *to,
                           const fl_msg_head *head, const char *why)
{
    fl_msg_head coded = *head;
    fl_msg_writer w;

    coded.step = FLEET_EINVAL;
    begin_answer(s, &coded, FL_ANSWER_REFUSED, &w);
    fl_msg_text(&w, FL_SECTION_TEXT, why);
    send_answer(s, to, &w);
}

/* Its batch waits: for another trainer's, or for this process. */
static void say_waiting(fl_stage_server *s, const stage_trainer *t,
                        const fl_peer *to)
{
    const int missing =
        s->awaited == NOBODY || trainer_of(s, (uint32_t)s->awaited) == t
            ? NOBODY
            : s->awaited;
    fl_msg_writer w;

    begin_answer(s, &t->asked, FL_ANSWER_WAITING, &w);
    w.answer.missing_stream =
        missing == NOBODY ? UINT32_MAX : (uint32_t)missing;
    w.answer.applied = missing == NOBODY
                           ? s->progress
                           : trainer_of(s, (uint32_t)missing)->progress;
    send_answer(s, to, &w);
}

/* --- hello ---------------------------------------------------------------- */

/* The first line that differs, of both. */
static void name_difference(const char *own, const char *other, char *text,
                            size_t size)
{
    size_t a, b;

    for (;; own += a + (own[a] != 0), other += b + (other[b] != 0)) {
        a = strcspn(own, "\n");
        b = strcspn(other, "\n");
        if (a != b || memcmp(own, other, a) != 0 || !own[a] || !other[b])
            break;
    }
    snprintf(text, size,
             "the stages are cut otherwise: \"%.*s\" there, \"%.*s\" at the "
             "trainer: all processes must have the same guards",
             (int)(a < 200 ? a : 200), own, (int)(b < 200 ? b : 200), other);
}

static void take_hello(fl_stage_server *s, const fl_peer *from)
{
    const fl_msg_head *head = &s->msg.head;
    stage_trainer *t = trainer_of(s, head->stream);
    char *said = fl_msg_get_text(&s->msg, FL_SECTION_HELLO);
    char why[600] = "";

    if (head->job != fl_msg_job(s->o.job, s->o.run))
        snprintf(why, sizeof why, "the trainer is of another run of the job");
    else if (!said || strcmp(said, s->o.boundary) != 0)
        name_difference(s->o.boundary, said ? said : "", why, sizeof why);
    else if (t->known && t->incarnation != head->incarnation)
        snprintf(why, sizeof why,
                 "another process is worker %u, and has been here",
                 (unsigned)head->stream);
    fl_free(said);
    if (*why) {
        refuse_request(s, from, head, why);
        return;
    }
    t->known = true;
    t->peer = *from;
    t->incarnation = head->incarnation;
    answer_briefly(s, from, head, FL_ANSWER_OK);
}

/* --- requests ------------------------------------------------------------- */

/* An answer is kept until the next request comes: it may be lost. */
static void keep_answer(stage_trainer *t, fl_packet *p)
{
    fl_packet_drop(t->answer);
    t->answer = p;
    t->answer_is_new = true;
    t->done++;
}

/* The end of a pass or of all needs no other thread. */
static void take_end(fl_stage_server *s, stage_trainer *t)
{
    fl_msg_writer w;
    fl_packet *p;

    begin_answer(s, &s->msg.head, FL_ANSWER_OK, &w);
    if (fl_msg_end(&w, true, &p) != FLEET_OK)
        return; /* it comes again */
    t->n_ended += (s->msg.head.flags & FL_MSG_PASS_END) != 0;
    t->left = s->msg.head.flags & FL_MSG_LEAVE;
    keep_answer(t, p);
}

static void take_new(fl_stage_server *s, stage_trainer *t, fl_packet *p)
{
    t->progress++;
    t->asked = s->msg.head;
    if (s->msg.head.flags & (FL_MSG_PASS_END | FL_MSG_LEAVE))
        take_end(s, t);
    else
        t->batch = fl_packet_keep(p);
    pthread_cond_signal(&s->came);
}

static void take_request(fl_stage_server *s, stage_trainer *t, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;

    if (head->step == t->done && t->answer)
        t->answer_is_new = true; /* once more */
    else if (head->step != t->done + 1 || t->left)
        refuse_request(s, &t->peer, head,
                       "a batch that is not the trainer's next");
    else if (!t->batch)
        take_new(s, t, p);
    else
        say_waiting(s, t, &t->peer);
}

static void take_abort(fl_stage_server *s)
{
    char *why = fl_msg_get_text(&s->msg, FL_SECTION_TEXT);

    if (s->error.code == FLEET_OK) {
        fl_fail(fl_msg_code(s->msg.head.step, FLEET_EPEER), "%.800s",
                why ? why : "a trainer has failed");
        fl_error_take(&s->error, fl_last_code());
        fl_error_clear();
    }
    fl_free(why);
    pthread_cond_signal(&s->came);
}

/* Of a process that has said hello, and means this one. */
static void take_known(fl_stage_server *s, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;
    stage_trainer *t = trainer_of(s, head->stream);

    if (head->kind == FL_MSG_ABORT) {
        take_abort(s);
        return;
    }
    t->peer = *from;
    if (head->kind == FL_MSG_FORWARD) {
        take_request(s, t, p);
    } else if (head->kind == FL_MSG_HEARTBEAT) {
        if (t->batch)
            say_waiting(s, t, from);
        answer_briefly(s, from, head, FL_ANSWER_OK);
    }
}

/* Strangers, workers of other heter workers, and senders whose key is of
 * another worker, are not answered. */
static bool is_let_in(const fl_stage_server *s, const fl_peer *from)
{
    const fl_msg_head *head = &s->msg.head;

    return fl_msg_same_id(head->job, s->job) &&
           head->stream - (uint32_t)s->o.first_trainer <
               (uint32_t)s->o.n_trainer &&
           (!s->guard || from->sender == 0 ||
            from->sender == (int32_t)head->stream + 1);
}

static void take_packet(fl_stage_server *s, const fl_peer *from, fl_packet *p)
{
    const fl_msg_head *head = &s->msg.head;
    const stage_trainer *t;

    if (fl_msg_decode(p, &s->msg) != FLEET_OK || !is_let_in(s, from)) {
        fl_error_clear();
        return;
    }
    if (head->kind == FL_MSG_HELLO) {
        take_hello(s, from);
        return;
    }
    t = trainer_of(s, head->stream);
    if (!t->known || t->incarnation != head->incarnation ||
        head->peer != s->nonce || head->job != fl_msg_job(s->o.job, s->o.run))
        answer_briefly(s, from, head, FL_ANSWER_FENCED);
    else
        take_known(s, from, p);
}

/* --- the thread ----------------------------------------------------------- */

static void receive_all(fl_stage_server *s)
{
    fl_peer from;

    for (fl_packet *p;;) {
        if (fl_socket_receive(s->socket, &from, &p) != FLEET_OK || !p)
            return;
        take_packet(s, &from, p);
        fl_packet_drop(p);
    }
}

static void send_all(fl_stage_server *s)
{
    for (int i = 0; i < s->o.n_trainer; i++) {
        stage_trainer *t = &s->trainer[i];

        if (t->answer_is_new)
            fl_socket_send(s->socket, &t->peer, t->answer);
        t->answer_is_new = false;
    }
}

static void send_aborts(fl_stage_server *s)
{
    for (int i = 0; i < s->o.n_trainer; i++) {
        const stage_trainer *t = &s->trainer[i];
        const fl_msg_head head = {.stream = (uint32_t)(s->o.first_trainer + i),
                                  .incarnation = t->incarnation,
                                  .step = FLEET_EPEER};
        fl_msg_writer w;
        fl_packet *p;

        if (!t->known || t->left)
            continue;
        begin_message(s, &head, FL_MSG_ABORT, FL_ANSWER_OK, &w);
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

/* Under the lock: what the trainer has brought, if anything. */
static bool has_event(fl_stage_server *s, stage_trainer *t,
                      fl_stage_event *event, fl_packet **p)
{
    *p = NULL;
    if (t->batch && !t->taken) {
        t->taken = true;
        *p = fl_packet_keep(t->batch);
        *event = FL_STAGE_BATCH;
        return true;
    }
    *event = t->left ? FL_STAGE_LEFT : FL_STAGE_PASS_ENDED;
    return t->left || t->n_ended > s->n_over;
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

static fleet_status fail_late(const fl_stage_server *s, int trainer)
{
    return fl_fail(FLEET_ETIMEDOUT,
                   "worker %d has kept %s and the other workers waiting for "
                   "%.1f s, without a batch (step deadline)",
                   trainer, s->o.name, (double)s->o.step_ms / 1000);
}

/* Under the lock, which is given up meanwhile. */
static fleet_status wait_for_trainer(fl_stage_server *s, int trainer,
                                     bool begun, fl_stage_event *event,
                                     fl_packet **p)
{
    fl_awake awake = fl_awake_from(fl_now_ms(), fl_awake_step(s->o.peer_ms));
    const int64_t end_ms = awake.ms + s->o.step_ms;

    while (!has_event(s, trainer_of(s, (uint32_t)trainer), event, p)) {
        fleet_status status;

        FL_TRY(fl_error_raise(&s->error));
        wait_a_little(s);
        pthread_mutex_unlock(&s->lock);
        status = s->o.status(s->o.arg);
        pthread_mutex_lock(&s->lock);
        FL_TRY(status);
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
    s->awaited = NOBODY;
    pthread_mutex_unlock(&s->lock);
    return status;
}

void fl_stage_server_begin(fl_stage_server *s, int trainer, fl_msg_writer *w)
{
    pthread_mutex_lock(&s->lock);
    begin_answer(s, &trainer_of(s, (uint32_t)trainer)->asked, FL_ANSWER_OK, w);
    pthread_mutex_unlock(&s->lock);
}

fleet_status fl_stage_server_answer(fl_stage_server *s, int trainer,
                                    fl_msg_writer *w)
{
    stage_trainer *t = trainer_of(s, (uint32_t)trainer);
    fl_packet *p;

    FL_TRY(fl_msg_end(w, true, &p));
    pthread_mutex_lock(&s->lock);
    s->progress++;
    fl_packet_drop(t->batch);
    t->batch = NULL;
    t->taken = false;
    keep_answer(t, p);
    pthread_mutex_unlock(&s->lock);
    fl_wakeup_ring(&s->wakeup);
    return FLEET_OK;
}

void fl_stage_server_pass_over(fl_stage_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_over++;
    pthread_mutex_unlock(&s->lock);
}

/* --- its life ------------------------------------------------------------- */

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

static fleet_status open_all(fl_stage_server *s)
{
    const size_t n = (size_t)s->o.n_trainer + 1;

    FL_TRY(FL_NEW(&s->trainer, n * sizeof *s->trainer));
    FL_TRY(fl_packet_pool_create(&s->pool, IDLE_BYTES));
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
    s->job = fl_msg_job(o->job, 0);
    s->nonce = (uint32_t)fl_nonce() | 1;
    s->wakeup.fd = -1;
    s->awaited = NOBODY;
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
    for (int i = 0; s->trainer && i < s->o.n_trainer; i++) {
        fl_packet_drop(s->trainer[i].batch);
        fl_packet_drop(s->trainer[i].answer);
    }
    fl_free(s->trainer);
    fl_packet_pool_destroy(s->pool);
    if (s->wakeup.fd >= 0)
        fl_wakeup_destroy(&s->wakeup);
    pthread_cond_destroy(&s->came);
    pthread_mutex_destroy(&s->lock);
    fl_free(s);
}
