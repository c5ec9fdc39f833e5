/* lane_handshake.c - a worker's first message: it must be of the same job,
 * program and mode, and no other process may have its place. Lane 0 of each
 * server answers; that of server 0 grants incarnations. */
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/memory.h"
#include "ps/server/lane_internal.h"
#include "runtime/simd/simd.h"
#include "runtime/plan/job_signature.h"

/* What a worker says of itself; the JSON owns the texts. */
typedef struct hello {
    const char *job, *mode, *program, *who, *isa, *nonce;
    int64_t workers, servers, server;
    int64_t life; /* which process of its log it is; 0: it has no log */
} hello;

static fleet_status read_hello(const fl_json *json, hello *h)
{
    fl_at root = fl_at_root(json), at_life;
    const struct {
        const char *key;
        const char **to;
    } text[] = {{"job", &h->job}, {"mode", &h->mode}, {"program", &h->program},
                {"who", &h->who}, {"isa", &h->isa},   {"nonce", &h->nonce}};
    const struct {
        const char *key;
        int64_t least, most, *to;
    } number[] = {{"workers", 1, FL_MOST_STREAM, &h->workers},
                  {"servers", 1, FL_MOST_SERVER, &h->servers},
                  {"server", 0, FL_MOST_SERVER - 1, &h->server}};

    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        fl_at at = fl_at_key(&root, text[i].key);

        FL_TRY(fl_at_required(&at));
        FL_TRY(fl_at_string(&at, text[i].to));
    }
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        fl_at at = fl_at_key(&root, number[i].key);

        FL_TRY(fl_at_required(&at));
        FL_TRY(fl_at_int(&at, number[i].least, number[i].most, number[i].to));
    }
    at_life = fl_at_key(&root, "life");
    return fl_at_int(&at_life, 1, UINT32_MAX, &h->life);
}

static fleet_status check_numbers(const fl_ps_lane *l, const hello *h)
{
    if (h->workers != l->o.n_stream)
        return fl_fail(FLEET_EINVAL,
                       "the worker counts %lld workers "
                       "(PADDLE_TRAINERS_NUM), this server %d",
                       (long long)h->workers, l->o.n_stream);
    if (h->servers != l->o.layout->n_server)
        return fl_fail(FLEET_EINVAL,
                       "the worker knows %lld servers "
                       "(PADDLE_PSERVERS_IP_PORT_LIST), this server %d",
                       (long long)h->servers, l->o.layout->n_server);
    if (h->server != l->o.server)
        return fl_fail(FLEET_EINVAL,
                       "this is server %d, but number %lld in the worker's "
                       "PADDLE_PSERVERS_IP_PORT_LIST: all processes must have "
                       "the same list",
                       l->o.server, (long long)h->server);
    if (l->msg.head.stream >= (uint32_t)l->o.n_stream)
        return fl_fail(FLEET_EINVAL,
                       "the worker's number is %u (PADDLE_TRAINER_ID), but "
                       "there are %d workers",
                       l->msg.head.stream, l->o.n_stream);
    return FLEET_OK;
}

/* Could the sender be a worker of this job? */
static fleet_status check_hello(const fl_ps_lane *l, const hello *h)
{
    char *difference;
    fleet_status status = FLEET_OK;

    if (strcmp(h->job, l->o.job) != 0)
        return fl_fail(FLEET_EINVAL,
                       "the worker is of job \"%.100s\", this server of \"%s\"",
                       h->job, l->o.job);
    FL_TRY(check_numbers(l, h));
    if (strcmp(h->mode, l->o.mode) != 0)
        return fl_fail(FLEET_EINVAL,
                       "the worker trains in mode %s, this server in %s: "
                       "all processes must have the same strategy",
                       h->mode, l->o.mode);
    difference = fl_job_signature_difference("the server", l->o.program,
                                             "the worker", h->program);
    if (difference)
        status =
            fl_fail(FLEET_EINVAL, "the programs differ: %.700s", difference);
    fl_free(difference);
    return status;
}

/* Once for each process that has a place. */
static void warn_of_isa(const fl_ps_lane *l, const hello *h)
{
    char name[FL_STREAM_NAME];

    if (l->o.sync && strcmp(h->isa, fl_simd_best()->isa) != 0)
        FL_WARN(l->o.log,
                "%s computes with %.20s, this server with %s: bits are "
                "reproducible among equal processors alone",
                fl_lane_stream_name(l, name, l->msg.head.stream), h->isa,
                fl_simd_best()->isa);
}

/* What to do where a place or a run is that of a log. */
static const char *how_to_begin(const fl_ps_lane *l, bool by_log)
{
    return l->o.log_goes && by_log
               ? ": if that job is over, end this server, and then its log "
                 "(fleet-replay --end)"
               : "";
}

/* The worker has its run from server 0. A server that a worker of an earlier
 * run has found first goes over to the later one, as long as it has done
 * nothing; otherwise the worker asks again until the server has ended. */
static fl_msg_status check_run(fl_ps_lane *l)
{
    const fl_msg_head *head = &l->msg.head;
    uint32_t run = fl_msg_run(head->job), own = l->run;
    char name[FL_STREAM_NAME];

    if (head->peer != 0 && head->peer != l->o.identity->nonce) {
        fl_fail(FLEET_EPEER, "server %d has been replaced", l->o.server);
        return FL_ANSWER_REFUSED;
    }
    if (run == own || (run == 0 && l->o.server == 0))
        return FL_ANSWER_OK;
    if (l->o.server > 0 && run != 0 &&
        (own == 0 || fl_run_is_later(run, own))) {
        if (own != 0 && fl_lane_is_used(l)) {
            fl_fail(FLEET_EEXIST,
                    "server %d serves an earlier run of the job%s", l->o.server,
                    how_to_begin(l, true));
            return FL_ANSWER_TAKEN;
        }
        atomic_store(&l->o.identity->run, run);
        fl_lane_enter_run(l);
        return FL_ANSWER_OK;
    }
    fl_fail(FLEET_EPEER, "%s is a worker of another run",
            fl_lane_stream_name(l, name, head->stream));
    return FL_ANSWER_REFUSED;
}

/* The process goes on with the log of the one that has the place, of which only
 * one process at a time can have it: that one is dead. A life is the
 * incarnation, so that all servers grant the same. */
static bool goes_on(const fl_ps_lane *l, const fl_stream_state *s,
                    const hello *h)
{
    return l->o.restart_ms > 0 && h->life > (int64_t)s->incarnation;
}

static fl_msg_status give_place(fl_ps_lane *l, const hello *h, uint64_t nonce,
                                uint32_t *incarnation)
{
    uint32_t stream = l->msg.head.stream;
    fl_stream_state *s = &l->stream[stream];
    char name[FL_STREAM_NAME];

    *incarnation = (int64_t)s->incarnation + 1 < h->life ? (uint32_t)h->life
                                                         : s->incarnation + 1;
    if (fl_lane_record_place(l, stream, *incarnation, nonce, h->who,
                             h->life == 0) != FLEET_OK) {
        fl_lane_fail(l);
        return FL_ANSWER_REFUSED;
    }
    if (s->nonce) {
        FL_WARN(
            l->o.log, "server %d: %s was started again: %.90s goes on for %s",
            l->o.server, fl_lane_stream_name(l, name, stream), h->who, s->who);
        fl_lane_forget_process(l, stream);
    }
    s->no_log = h->life == 0;
    s->nonce = nonce;
    s->incarnation = *incarnation;
    snprintf(s->who, sizeof s->who, "%s", h->who);
    warn_of_isa(l, h);
    return FL_ANSWER_OK;
}

/* FL_ANSWER_OK, with the incarnation; or why not. */
static fl_msg_status grant_place(fl_ps_lane *l, const hello *h,
                                 uint32_t *incarnation)
{
    const fl_stream_state *s = &l->stream[l->msg.head.stream];
    uint64_t nonce = fl_hash(h->nonce, strlen(h->nonce), 0);
    char name[FL_STREAM_NAME];

    fl_lane_stream_name(l, name, l->msg.head.stream);
    *incarnation = s->incarnation;
    if (s->nonce == nonce && goes_on(l, s, h))
        return give_place(l, h, nonce, incarnation);
    if (s->nonce == nonce && h->life > 0 && h->life < (int64_t)s->incarnation) {
        fl_fail(FLEET_EEXIST,
                "%s was started again: %s has taken the place of %.90s", name,
                s->who, h->who);
        return FL_ANSWER_REFUSED;
    }
    if (s->nonce == nonce && h->life <= (int64_t)s->incarnation)
        return FL_ANSWER_OK; /* said once more */
    if (s->left) {
        fl_fail(FLEET_ESTATE, "%s has left this job", name);
        return FL_ANSWER_REFUSED;
    }
    if (s->nonce) {
        fl_fail(FLEET_EEXIST,
                "%.90s says that it is %s, and so does %s, which was heard of "
                "%.1f s ago%s",
                h->who, name, s->who, (double)(l->now_ms - s->heard_ms) / 1000,
                how_to_begin(l, !s->spoke));
        return FL_ANSWER_TAKEN;
    }
    return give_place(l, h, nonce, incarnation);
}

static fl_msg_status admit_process(fl_ps_lane *l, const hello *h,
                                   uint32_t *incarnation)
{
    fl_msg_status status = check_run(l);

    return status == FL_ANSWER_OK ? grant_place(l, h, incarnation) : status;
}

void fl_lane_offer(fl_ps_lane *l, const char *const *address)
{
    l->o.address = address;
}

/* A lane that is made again from its journal does not know yet whose place it
 * is: the worker asks again. */
static void answer_hello(fl_ps_lane *l, const fl_peer *from, const hello *h)
{
    const fl_stream_state *s = &l->stream[l->msg.head.stream];
    uint32_t incarnation = 0;
    fl_msg_status status = FL_ANSWER_REFUSED;
    uint64_t bytes, total;
    fl_msg_writer w;

    if (check_hello(l, h) == FLEET_OK && fl_lane_check_load(l) == FLEET_OK)
        status =
            l->replaying ? FL_ANSWER_OK : admit_process(l, h, &incarnation);
    if (status != FL_ANSWER_OK) {
        snprintf(l->turned_away, sizeof l->turned_away, "%s",
                 fleet_last_error());
        fl_lane_refuse(l, &l->msg.head, from, status, fl_last_code(), "%s",
                       fleet_last_error());
        return;
    }
    /* a hello that was said again may come behind what the worker says since,
     * on other connections: that one is closed */
    fl_lane_note_alive(l, l->msg.head.stream, s->spoke ? &s->peer : from);
    fl_lane_begin_answer(l, &w, &l->msg.head, FL_ANSWER_OK, FL_NOBODY);
    if (fl_lane_is_loading(l, &bytes, &total) || l->replaying ||
        atomic_load(&l->o.identity->unfollowed) > 0) {
        w.head.status = FL_ANSWER_COMING;
        w.answer.applied = bytes;
        w.answer.durable = total;
    }
    w.head.incarnation = incarnation;
    for (int i = 0; i < l->o.n_lane + l->o.n_also; i++)
        fl_msg_text(&w, FL_SECTION_HELLO,
                    l->o.address[i] ? l->o.address[i] : "{}");
    fl_lane_end_answer(l, &w, from);
}

void fl_lane_hello(fl_ps_lane *l, const fl_peer *from, fl_packet *p)
{
    char *text = fl_msg_get_text(&l->msg, FL_SECTION_HELLO);
    fl_json *json = NULL;
    hello h = {0};

    (void)p;
    if (!text ||
        fl_json_parse(text, strlen(text), "hello", &json) != FLEET_OK ||
        read_hello(json, &h) != FLEET_OK)
        fl_counter_add(&l->counters.bad, 1);
    else
        answer_hello(l, from, &h);
    fl_json_free(json);
    fl_free(text);
}
