/* client_test.c - a worker's requests: what goes out and when it goes out
 * again, how much is under way, and which deadline says what. The lane at the
 * other end is a list of what was sent to it. */
#define SUITE client
#include "sim.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "ps/lane_view.h"

enum { BEAT_MS = 100, MOST_SENT = 400, RUN = 5, NONCE = 77 };

typedef struct scene {
    fl_packet_pool *pool;
    fl_client *client;
    fl_request request;
    fl_msg_head sent[MOST_SENT];
    int to[MOST_SENT]; /* which copy of the lane */
    size_t bytes[MOST_SENT];
    int n_sent;
    int64_t now_ms;
    bool waits; /* the lane says so with each beat */
    uint32_t waits_for;
    uint64_t progress; /* and that it is so far */
    bool stops;        /* what it answers has the flag STOP */
    bool replicas;     /* it has a second copy */
} scene;

static void keep_sent(void *arg, int lane, fl_packet *p)
{
    static fl_msg msg;
    scene *s = arg;

    CHECK(lane == 0 || (lane == 1 && s->replicas));
    CHECK(s->n_sent < MOST_SENT);
    CHECK_OK(fl_msg_decode(p, &msg));
    s->to[s->n_sent] = lane;
    s->bytes[s->n_sent] = p->bytes;
    s->sent[s->n_sent++] = msg.head;
}

/* Its servers write logs, if restart_ms is not 0. */
static void open_as(scene *s, size_t window, int64_t restart_ms, bool replicas)
{
    fl_client_options o = {.job = "job",
                           .restart_ms = restart_ms,
                           .replicas = replicas,
                           .stream = 3,
                           .request_ms = 3000,
                           .peer_ms = 1000,
                           .step_ms = 5000,
                           .heartbeat_ms = BEAT_MS,
                           .window = window};
    const fl_client_host host = {.arg = s, .send = keep_sent};

    memset(s, 0, sizeof *s);
    s->waits_for = 2;
    s->replicas = replicas;
    CHECK_OK(fl_packet_pool_create(&s->pool, 1 << 20));
    o.pool = s->pool;
    CHECK_OK(fl_client_create(&s->client, &o, &host));
    fl_client_set_incarnation(s->client, 1);
    CHECK_OK(fl_client_add_lane(s->client, "server 0 at here", 0));
    fl_client_set_run(s->client, RUN);
    fl_client_set_peer(s->client, 0, NONCE);
    fl_client_watch(s->client, true, 0);
}

static void open_restarted(scene *s, size_t window, int64_t restart_ms)
{
    open_as(s, window, restart_ms, false);
}

static void open_scene(scene *s, size_t window)
{
    open_restarted(s, window, 0);
}

static void close_scene(scene *s)
{
    fl_client_cancel(s->client, &s->request);
    fl_request_done(&s->request);
    fl_client_destroy(s->client);
    fl_packet_pool_destroy(s->pool);
}

/* A step of n pieces of about 1,000 bytes. */
static void send_step(scene *s, int n)
{
    for (int i = 0; i < n; i++) {
        fl_msg_writer w;

        fl_client_begin(s->client, 0, &s->request, &w, FL_MSG_STEP, 1,
                        i + 1 == n ? FL_MSG_END_OF_STEP : 0);
        fl_msg_section(&w, FL_SECTION_ROWS, 0);
        memset(fl_msg_column(&w, FL_COLUMN_BYTES, 1000), 0, 1000);
        CHECK_OK(fl_client_add(s->client, &s->request, &w));
    }
    fl_client_send(s->client, &s->request, s->now_ms);
}

/* The lane answers what was sent as number i. */
static void answer(scene *s, int i, fl_msg_status status, fl_msg_answer more,
                   const char *text)
{
    fl_msg_head head = s->sent[i];
    fl_msg_writer w;
    fl_packet *p;

    head.kind = FL_MSG_ANSWER;
    head.flags = s->stops ? FL_MSG_STOP : 0;
    head.status = (uint8_t)status;
    fl_msg_begin(&w, s->pool, &head);
    w.answer = more;
    if (text)
        fl_msg_text(&w, FL_SECTION_TEXT, text);
    CHECK_OK(fl_msg_end(&w, false, &p));
    fl_client_receive(s->client, s->to[i], p, s->now_ms);
    fl_packet_drop(p);
}

static void ok(scene *s, int i)
{
    answer(s, i, FL_ANSWER_OK, (fl_msg_answer){0}, NULL);
}

static void answer_beat(scene *s, int i)
{
    const fl_msg_head beat = s->sent[i];

    s->sent[i].kind = FL_MSG_STEP;
    s->sent[i].request = s->request.id;
    if (s->waits)
        answer(s, i, FL_ANSWER_WAITING,
               (fl_msg_answer){.missing_stream = s->waits_for,
                               .applied = s->progress},
               NULL);
    s->sent[i] = beat;
    ok(s, i);
}

/* Time goes on; beats are answered if the lane is alive. What else was sent is
 * counted. */
static int pass_time(scene *s, int64_t ms, bool alive)
{
    int n = 0;

    for (int64_t end = s->now_ms + ms; s->now_ms < end;) {
        int first = s->n_sent;

        s->now_ms += BEAT_MS / 2;
        fl_client_tick(s->client, s->now_ms);
        for (int i = first; i < s->n_sent; i++)
            if (s->sent[i].kind != FL_MSG_HEARTBEAT)
                n++;
            else if (alive)
                answer_beat(s, i);
        if (s->n_sent > MOST_SENT / 2)
            s->n_sent = 0;
    }
    return n;
}

/* The number in a heartbeat after so much time. */
static uint64_t told_progress(scene *s)
{
    int i;

    s->n_sent = 0;
    pass_time(s, BEAT_MS, true);
    for (i = s->n_sent - 1; i >= 0; i--)
        if (s->sent[i].kind == FL_MSG_HEARTBEAT)
            return s->sent[i].step;
    test_fail(__FILE__, __LINE__, "no heartbeat was sent");
}

TEST(bytes_under_way_stay_within_the_window)
{
    scene s;

    open_scene(&s, 2500);
    send_step(&s, 6);
    CHECK_INT(s.n_sent, 2);
    ok(&s, 0);
    CHECK_INT(s.n_sent, 3);
    ok(&s, 1);
    ok(&s, 2);
    CHECK_INT(s.n_sent, 5);
    ok(&s, 3);
    ok(&s, 4);
    CHECK_INT(s.n_sent, 6);
    CHECK_INT(s.request.state, FL_REQUEST_SENT);
    ok(&s, 5);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    close_scene(&s);
}

TEST(one_piece_is_under_way_however_small_the_window)
{
    scene s;

    open_scene(&s, 10);
    send_step(&s, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(s.n_sent, i + 1);
        ok(&s, i);
    }
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    close_scene(&s);
}

TEST(the_lane_says_how_wide_the_window_is)
{
    scene s;

    open_scene(&s, 1500);
    send_step(&s, 6);
    CHECK_INT(s.n_sent, 1);
    answer(&s, 0, FL_ANSWER_OK, (fl_msg_answer){.credit_bytes = 3600}, NULL);
    CHECK_INT(s.n_sent, 4);
    close_scene(&s);
}

TEST(what_is_cancelled_leaves_room_in_the_window)
{
    scene s;

    open_scene(&s, 1500);
    send_step(&s, 2);
    CHECK_INT(s.n_sent, 1);
    fl_client_cancel(s.client, &s.request);
    send_step(&s, 1);
    CHECK_INT(s.n_sent, 2);
    close_scene(&s);
}

TEST(pieces_that_are_lost_are_sent_again_though_others_wait_for_the_window)
{
    scene s;

    open_scene(&s, 2500);
    send_step(&s, 4);
    CHECK_INT(s.n_sent, 2);
    CHECK_INT(pass_time(&s, BEAT_MS / 2, true), 0);
    CHECK_INT(pass_time(&s, BEAT_MS / 2, true), 2);
    close_scene(&s);
}

TEST(nothing_is_sent_again_while_the_lane_says_that_it_waits)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    s.waits = true;
    CHECK_INT(pass_time(&s, 4000, true), 0);
    CHECK_OK(fl_client_status(s.client));
    close_scene(&s);
}

TEST(after_a_gap_all_is_sent_again_but_not_at_once)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 2);
    answer(&s, 1, FL_ANSWER_GAP, (fl_msg_answer){0}, NULL);
    CHECK_INT(s.n_sent, 2);
    CHECK_INT(pass_time(&s, BEAT_MS, false), 2);
    close_scene(&s);
}

/* --- a step with a clip --------------------------------------------------- */

/* While the lane waits for this worker's clip, whose deadlines are not the
 * request's. One that does not was made again, and has lost what it told. */
TEST(a_step_whose_norms_are_known_is_sent_again_where_the_lane_has_lost_it)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 2);
    answer(&s, 1, FL_ANSWER_NORMS, (fl_msg_answer){0}, NULL);
    CHECK_INT(s.request.status, FL_ANSWER_NORMS);
    CHECK(fl_request_is_over(&s.request));
    s.waits = true;
    s.waits_for = 3;
    CHECK_INT(pass_time(&s, 9000, true), 0);
    CHECK_OK(fl_client_status(s.client));
    s.waits = false;
    CHECK_INT(pass_time(&s, 2 * BEAT_MS, true) % 2, 0);
    CHECK_INT(s.request.state, FL_REQUEST_SENT);
    CHECK_INT(s.sent[s.n_sent - 1].kind, FL_MSG_STEP);
    close_scene(&s);
}

TEST(a_clip_goes_alone_but_with_its_step_where_that_is_lost)
{
    fl_msg_writer w;
    scene s;

    open_scene(&s, 0);
    send_step(&s, 2);
    answer(&s, 1, FL_ANSWER_NORMS, (fl_msg_answer){0}, NULL);
    fl_request_go_on(s.client, &s.request);
    fl_client_begin(s.client, 0, &s.request, &w, FL_MSG_CLIP, 1, 0);
    fl_msg_section(&w, FL_SECTION_CLIP, 0);
    CHECK_OK(fl_client_add(s.client, &s.request, &w));
    fl_client_send(s.client, &s.request, s.now_ms);
    CHECK_INT(s.n_sent, 3);
    CHECK_INT(s.sent[2].kind, FL_MSG_CLIP);
    CHECK_INT(s.sent[2].piece, 2);
    CHECK(s.sent[2].request == s.sent[1].request);
    answer(&s, 2, FL_ANSWER_GAP, (fl_msg_answer){0}, NULL);
    CHECK_INT(pass_time(&s, BEAT_MS, false), 3);
    answer(&s, 1, FL_ANSWER_NORMS, (fl_msg_answer){0}, NULL);
    CHECK_INT(s.request.state, FL_REQUEST_SENT);
    CHECK(!fl_request_is_over(&s.request));
    s.stops = true;
    ok(&s, 2);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    CHECK_INT(s.request.status, FL_ANSWER_OK);
    CHECK(s.request.stops);
    close_scene(&s);
}

/* --- deadlines ------------------------------------------------------------ */

TEST(a_silent_lane_is_gone_after_the_peer_deadline)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    pass_time(&s, 1000, false);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, BEAT_MS, false);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EPEER,
                "server 0 at here is gone");
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    CHECK_INT(s.sent[s.n_sent - 1].kind, FL_MSG_ABORT);
    close_scene(&s);
}

/* Its replica answers, and it does not. */
TEST(a_silent_lane_is_led_by_its_replica_after_the_peer_deadline)
{
    scene s;
    uint32_t view = 0;
    int n_step = 0;

    open_as(&s, 0, 0, true);
    send_step(&s, 1);
    while (s.now_ms < 2000) {
        int first = s.n_sent;

        s.now_ms += BEAT_MS / 2;
        fl_client_tick(s.client, s.now_ms);
        for (int i = first; i < s.n_sent; i++) {
            bool beat = s.sent[i].kind == FL_MSG_HEARTBEAT;

            CHECK(s.now_ms > 1000 || s.to[i] == 0 || beat);
            n_step += s.to[i] == 1 && !beat;
            if (s.to[i] == 0 || !beat)
                continue;
            view = fl_view_of(&s.sent[i]);
            ok(&s, i);
        }
    }
    CHECK_OK(fl_client_status(s.client));
    CHECK(n_step > 0);
    CHECK_INT(view, FL_VIEW_TAKEN);
    close_scene(&s);
}

/* Neither of them answers. */
TEST(a_lane_without_both_copies_is_gone_with_words)
{
    scene s;

    open_as(&s, 0, 4000, true);
    send_step(&s, 1);
    while (s.now_ms < 4000) {
        s.now_ms += BEAT_MS / 2;
        fl_client_tick(s.client, s.now_ms);
        CHECK_OK(fl_client_status(s.client));
        s.n_sent = 0;
    }
    pass_time(&s, 2 * BEAT_MS, false);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EPEER,
                "both copies of lane 0 are gone, of server 0 at here: nothing "
                "was heard of the one that led for 4.");
    CHECK_CONTAINS(fleet_last_error(), "(4 peer deadlines)");
    close_scene(&s);
}

/* The lane answers heartbeat i: it knows that view, and where its other copy
 * is, in epoch 1. */
static void answer_with_other(scene *s, int i, uint32_t view)
{
    fl_msg_head head = s->sent[i];
    fl_msg_writer w;
    fl_packet *p;

    head.kind = FL_MSG_ANSWER;
    head.status = FL_ANSWER_OK;
    head.piece = 1;
    head.view = fl_view_with(fl_view_map(&head), view);
    fl_msg_begin(&w, s->pool, &head);
    fl_msg_text(&w, FL_SECTION_HELLO, "{}");
    CHECK_OK(fl_msg_end(&w, false, &p));
    fl_client_receive(s->client, s->to[i], p, s->now_ms);
    fl_packet_drop(p);
}

/* The lane proposes the view to each heartbeat. What the last one to it says,
 * and how many went to where it shall go. */
static uint32_t be_proposed(scene *s, uint32_t view, bool reached,
                            int *to_other)
{
    uint32_t said = 0;

    for (int64_t end = s->now_ms + 5 * BEAT_MS; s->now_ms < end;) {
        s->n_sent = 0;
        s->now_ms += BEAT_MS / 2;
        fl_client_tick(s->client, s->now_ms);
        for (int i = 0; i < s->n_sent; i++) /* answers make it ask */
            if (s->to[i] == 0) {
                said = fl_view_of(&s->sent[i]);
                answer_with_other(s, i, view);
            } else {
                ++*to_other;
                if (reached)
                    ok(s, i);
            }
    }
    return said;
}

/* connect() to what no packet reaches succeeds as any other: a worker says
 * that it knows of a lane's move when it has heard the process that shall have
 * it. */
TEST(a_worker_agrees_to_a_move_when_it_has_heard_the_taker)
{
    const uint32_t both = 4 * 1 + FL_VIEW_BOTH;
    scene s;
    int asked = 0;

    open_scene(&s, 0);
    s.replicas = true; /* from now on: the taker */
    CHECK_INT(be_proposed(&s, 0, false, &asked), 0);
    CHECK_INT(asked, 0);
    CHECK_INT(be_proposed(&s, both, false, &asked), 0);
    CHECK(asked > 0);
    CHECK_INT(be_proposed(&s, both, true, &asked), both);
    CHECK_OK(fl_client_status(s.client));
    close_scene(&s);
}

/* Neither the peer deadline nor that of the request counts until then, and both
 * do again when it is there. */
TEST(a_silent_lane_whose_server_writes_a_log_is_waited_for)
{
    scene s;

    open_restarted(&s, 0, 20000);
    send_step(&s, 1);
    pass_time(&s, 19000, false);
    CHECK_OK(fl_client_status(s.client));
    CHECK(pass_time(&s, 4 * BEAT_MS, true) > 0); /* it is sent again */
    CHECK_INT(s.request.state, FL_REQUEST_SENT);
    pass_time(&s, 2000, true);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, 2000, true);
    CHECK_FAILS(fl_client_status(s.client), FLEET_ETIMEDOUT,
                "(request deadline)");
    close_scene(&s);
    open_restarted(&s, 0, 20000);
    pass_time(&s, 20000, false);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, 2 * BEAT_MS, false);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EPEER,
                "(log_configs.restart_deadline_ms)");
    close_scene(&s);
}

/* What another worker waits for is not this one's fault meanwhile. */
TEST(who_waits_for_a_server_that_comes_back_gets_on)
{
    scene s;
    uint64_t before;

    open_restarted(&s, 0, 20000);
    send_step(&s, 1);
    before = told_progress(&s);
    pass_time(&s, 2000, false);
    CHECK(told_progress(&s) > before + 5);
    before = told_progress(&s);
    CHECK_INT(told_progress(&s), before);
    close_scene(&s);
    open_scene(&s, 0);
    before = told_progress(&s);
    pass_time(&s, 600, false);
    CHECK_INT(told_progress(&s), before);
    close_scene(&s);
}

/* A machine that is suspended, a process that gets SIGSTOP. */
TEST(a_worker_that_has_slept_has_not_heard_a_silence)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    for (int i = 0; i < 5; i++) {
        s.waits = i % 2;
        s.now_ms += 100000; /* longer than any deadline */
        pass_time(&s, 4 * BEAT_MS, true);
        CHECK_OK(fl_client_status(s.client));
    }
    pass_time(&s, 1000 - BEAT_MS, false);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, 2 * BEAT_MS, false);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EPEER,
                "server 0 at here is gone");
    close_scene(&s);
}

TEST(a_worker_that_seldom_runs_finds_a_dead_server_nevertheless)
{
    scene s;

    open_scene(&s, 0);
    for (int i = 0; i < 5; i++)
        fl_client_tick(s.client, s.now_ms += 100000);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EPEER, "is gone");
    close_scene(&s);
}

/* The stream's last step. */
static void send_leave(scene *s)
{
    fl_msg_writer w;

    fl_client_begin(s->client, 0, &s->request, &w, FL_MSG_STEP, 1,
                    FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    CHECK_OK(fl_client_add(s->client, &s->request, &w));
    fl_client_send(s->client, &s->request, s->now_ms);
}

TEST(a_lane_that_has_been_left_is_told_so_and_may_go)
{
    scene s;

    open_scene(&s, 0);
    send_leave(&s);
    ok(&s, 0);
    CHECK_INT(s.n_sent, 2);
    CHECK_INT(s.sent[1].kind, FL_MSG_BYE);
    CHECK(pass_time(&s, 5000, false) > 10); /* said again: it may be lost */
    CHECK_INT(s.sent[s.n_sent - 1].kind, FL_MSG_BYE);
    CHECK_OK(fl_client_status(s.client));
    close_scene(&s);
}

TEST(silence_answers_a_worker_that_leaves_and_waits_for_nothing_else)
{
    fl_request other = {0};
    fl_msg_writer w;
    scene s;

    open_scene(&s, 0);
    send_leave(&s);
    pass_time(&s, 1000, false);
    CHECK_INT(s.request.state, FL_REQUEST_SENT);
    pass_time(&s, BEAT_MS, false);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    CHECK_OK(fl_client_result(s.client, &s.request, "push"));
    close_scene(&s);

    open_scene(&s, 0);
    send_leave(&s);
    s.sent[0].generation++; /* of the next run, at the same address */
    ok(&s, 0);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    ok(&s, 0); /* and to BYE */
    CHECK_OK(fl_client_result(s.client, &s.request, "push"));
    close_scene(&s);

    open_scene(&s, 0);
    fl_client_begin(s.client, 0, &other, &w, FL_MSG_PULL, 0, 0);
    CHECK_OK(fl_client_add(s.client, &other, &w));
    fl_client_send(s.client, &other, s.now_ms);
    send_leave(&s);
    pass_time(&s, 1000 + BEAT_MS, false);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EPEER, "is gone");
    fl_request_done(&other);
    close_scene(&s);
}

TEST(a_request_that_is_never_answered_ends_with_the_request_deadline)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    pass_time(&s, 3000, true);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, BEAT_MS, true);
    CHECK_FAILS(fl_client_status(s.client), FLEET_ETIMEDOUT,
                "server 0 at here has not answered a step for 3.");
    close_scene(&s);
}

/* As pushes of half-async that are many, on a slow link. */
TEST(a_request_that_waits_for_the_window_has_not_begun)
{
    fl_request second = {0};
    fl_msg_writer w;
    scene s;

    open_scene(&s, 1500);
    send_step(&s, 1);
    fl_client_begin(s.client, 0, &second, &w, FL_MSG_STEP, 2,
                    FL_MSG_END_OF_STEP);
    fl_msg_section(&w, FL_SECTION_ROWS, 0);
    memset(fl_msg_column(&w, FL_COLUMN_BYTES, 1000), 0, 1000);
    CHECK_OK(fl_client_add(s.client, &second, &w));
    fl_client_send(s.client, &second, s.now_ms);
    CHECK_INT(s.n_sent, 1);
    pass_time(&s, 2000, true);
    ok(&s, 0); /* now the second is sent */
    pass_time(&s, 3000, true);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, BEAT_MS, true);
    CHECK_FAILS(fl_client_status(s.client), FLEET_ETIMEDOUT,
                "has not answered a step for 3.");
    fl_client_cancel(s.client, &second);
    fl_request_done(&second);
    close_scene(&s);
}

TEST(waiting_for_a_worker_ends_with_the_step_deadline_and_its_name)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    s.waits = true;
    pass_time(&s, 5000, true);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, BEAT_MS, true);
    CHECK_FAILS(fl_client_status(s.client), FLEET_ETIMEDOUT,
                "at server 0 at here for worker 2, without progress (step "
                "deadline)");
    close_scene(&s);
}

TEST(who_waits_for_a_worker_that_gets_on_waits_without_a_deadline)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    s.waits = true;
    for (int i = 0; i < 5; i++, s.progress++)
        pass_time(&s, 4000, true);
    CHECK_OK(fl_client_status(s.client));
    s.waits_for = 1; /* another one, which never gets on */
    pass_time(&s, 4900, true);
    CHECK_OK(fl_client_status(s.client));
    pass_time(&s, 2 * BEAT_MS, true);
    CHECK_FAILS(fl_client_status(s.client), FLEET_ETIMEDOUT, "for worker 1, ");
    close_scene(&s);
}

TEST(heartbeats_tell_of_answers_and_of_a_lanes_work_and_not_of_other_workers)
{
    uint64_t before, after;
    scene s;

    open_scene(&s, 0);
    before = told_progress(&s);
    send_step(&s, 2);
    ok(&s, s.n_sent - 2); /* its first piece */
    after = told_progress(&s);
    CHECK(after > before);
    s.waits = true;
    told_progress(&s);
    s.progress = 5;
    CHECK_INT(told_progress(&s), after);
    s.waits_for = UINT32_MAX; /* a save, say */
    told_progress(&s);
    CHECK_INT(told_progress(&s), after);
    s.progress = 6;
    told_progress(&s);
    CHECK(told_progress(&s) > after);
    close_scene(&s);
}

/* --- answers -------------------------------------------------------------- */

TEST(a_process_that_was_replaced_gives_up)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    answer(&s, 0, FL_ANSWER_FENCED, (fl_msg_answer){0}, NULL);
    CHECK_FAILS(fl_client_status(s.client), FLEET_EEXIST,
                "another process has taken this worker's place");
    close_scene(&s);
}

TEST(a_refusal_is_told_in_the_lanes_words)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 3);
    s.sent[0].step = FLEET_EINVAL;
    answer(&s, 0, FL_ANSWER_REFUSED, (fl_msg_answer){0}, "no such table");
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    CHECK_FAILS(fl_client_result(s.client, &s.request, "push"), FLEET_EINVAL,
                "push: server 0 at here says: no such table");
    CHECK_OK(fl_client_status(s.client));
    close_scene(&s);
}

TEST(answers_to_others_are_nobodys)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    s.sent[1] = s.sent[2] = s.sent[3] = s.sent[0];
    s.sent[1].job ^= 1ull << 40;
    s.sent[2].stream++;
    s.sent[3].request += 7;
    for (int i = 1; i <= 3; i++)
        ok(&s, i);
    CHECK_INT(s.request.state, FL_REQUEST_SENT);
    ok(&s, 0);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    ok(&s, 0);
    CHECK_OK(fl_client_result(s.client, &s.request, "push"));
    close_scene(&s);
}

/* What answers in the lane's place; the worker has sent one step. */
static void check_replaced(fl_msg_head other, const char *words)
{
    scene s;

    open_scene(&s, 0);
    send_step(&s, 1);
    s.sent[1] = s.sent[0];
    s.sent[1].job = other.job;
    s.sent[1].peer = other.peer;
    s.sent[1].generation = other.generation;
    answer(&s, 1, FL_ANSWER_OK, (fl_msg_answer){.applied = 1}, NULL);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    CHECK_FAILS(fl_client_result(s.client, &s.request, "push"), FLEET_EPEER,
                words);
    CHECK_INT(s.n_sent, 2); /* and ABORT */
    CHECK_INT(s.sent[1].kind, FL_MSG_ABORT);
    close_scene(&s);
}

/* Its answers are about what another worker has sent. */
TEST(an_answer_of_another_process_fails_the_client)
{
    const uint64_t job = fl_msg_job("job", RUN);

    check_replaced((fl_msg_head){.job = job, .peer = NONCE + 1},
                   "server 0 at here has been replaced by another process");
    check_replaced((fl_msg_head){.job = fl_msg_job("job", 0), .peer = 1},
                   "server 0 at here has been replaced by another process");
    check_replaced((fl_msg_head){.job = job, .peer = NONCE, .generation = 1},
                   "server 0 at here has been replaced by another process");
    check_replaced((fl_msg_head){.job = job + 1, .peer = NONCE},
                   "server 0 at here has been replaced: this is a worker of "
                   "another run");
}

TEST(requests_name_the_run_and_the_process_that_they_are_for)
{
    scene s;

    open_scene(&s, 0);
    fl_client_set_view(s.client, 3);
    send_step(&s, 1);
    CHECK(s.sent[0].job == fl_msg_job("job", RUN));
    CHECK_INT(s.sent[0].peer, NONCE);
    CHECK_INT(s.sent[0].generation, 0);
    CHECK_INT(s.sent[0].view, 3);
    s.now_ms = BEAT_MS;
    fl_client_tick(s.client, s.now_ms);
    CHECK_INT(s.sent[1].kind, FL_MSG_HEARTBEAT);
    CHECK_INT(s.sent[1].peer, NONCE);
    close_scene(&s);
}

TEST(a_client_that_has_failed_sends_nothing)
{
    scene s;

    open_scene(&s, 0);
    fl_client_fail(s.client, FLEET_EPEER, "worker 7 is gone", false);
    send_step(&s, 1);
    CHECK_INT(s.n_sent, 0);
    CHECK_INT(s.request.state, FL_REQUEST_DONE);
    CHECK_FAILS(fl_client_result(s.client, &s.request, "push"), FLEET_EPEER,
                "worker 7 is gone");
    close_scene(&s);
}
