/* lane_rows_test.c - a lane whose tables have rows out of memory: pulls and
 * steps are parked until their rows have come, and come to the bits of a lane
 * that has all rows. */
#define SUITE lane_rows
#include "away_rows.h"
#include "lane_kit.h"
#include "test.h"

#include <limits.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

/* --- what is asked -------------------------------------------------------- */

enum { DIM_MOST = 16, KEYS = 6 };

static int64_t dim_of(const lane_kit *k)
{
    return k->layout.table[0]->dim;
}

static fl_rows *table_of(const lane_kit *k)
{
    return k->layout.table[0];
}

static void pull_as(lane_kit *k, uint32_t incarnation, uint32_t stream,
                    uint64_t version, const uint64_t *key, uint32_t n)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, stream, 0, 0);
    fl_msg_writer w;
    fl_section *s;

    head.incarnation = incarnation;
    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    s->version = version;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, n * sizeof *key), key,
           n * sizeof *key);
    lane_tell(k, &w, (int)stream);
}

static void pull(lane_kit *k, uint32_t stream, uint64_t version,
                 const uint64_t *key, uint32_t n)
{
    pull_as(k, 1, stream, version, key, n);
}

/* Until it says something; how many looks that took. */
static int look(lane_kit *k)
{
    int looks = 0;

    while (k->n_sent == 0) {
        CHECK(fl_lane_looks_again(k->lane));
        CHECK(looks < 1000);
        fl_lane_look_again(k->lane, k->now_ms);
        looks++;
    }
    return looks;
}

/* The rows of an answer. */
static const float *hear_rows(lane_kit *k, int to, uint32_t n)
{
    lane_hear_status(k, to, FL_ANSWER_OK);
    CHECK_INT(k->msg.head.n_section, 1);
    CHECK_INT(k->msg.section[0].n_key, n);
    return k->msg.column[0][FL_AT_VALUES].data;
}

/* --- parked --------------------------------------------------------------- */

TEST(a_pull_is_answered_when_its_rows_have_come)
{
    const uint64_t key[] = {5, 6, 7};
    lane_kit k;

    lane_open_rows(&k, SIM_SGD, 1, false, away_rows_make);
    lane_push(&k, 0, 1, 6, 1);
    CHECK_INT(look(&k), away_rows_looks);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(away_rows_near(table_of(&k)), 0);
    pull(&k, 0, 0, key, 3);
    lane_silent(&k);
    CHECK(look(&k) >= away_rows_looks - 1);
    CHECK(memcmp(hear_rows(&k, 0, 3) + dim_of(&k),
                 away_rows_row(table_of(&k), 6),
                 (size_t)dim_of(&k) * sizeof(float)) == 0);
    CHECK_INT(away_rows_near(table_of(&k)), 0);
    CHECK(!fl_lane_looks_again(k.lane));
    lane_close(&k);
}

TEST(a_pull_that_comes_again_is_parked_once)
{
    const uint64_t key = 5;
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    lane_kit k;

    lane_open_rows(&k, SIM_SGD, 1, false, away_rows_make);
    for (int i = 0; i < 3; i++) {
        fl_msg_writer w;

        lane_begin(&k, &w, &head);
        fl_msg_section(&w, FL_SECTION_ROWS, 0)->n_key = 1;
        memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, 8), &key, 8);
        lane_tell(&k, &w, 0);
    }
    look(&k);
    CHECK_INT(k.n_sent, 1);
    lane_close(&k);
}

/* In async a worker's pull sees the step that it has sent before. */
TEST(a_pull_does_not_overtake_its_workers_step)
{
    const uint64_t key = 5;
    lane_kit k;

    lane_open_rows(&k, SIM_SGD, 2, false, away_rows_make);
    away_rows_looks = 9;
    lane_push(&k, 0, 1, 5, 1);
    away_rows_looks = 0;
    pull(&k, 1, 0, &key, 1); /* another one's does not wait */
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    pull(&k, 0, 0, &key, 1);
    lane_silent(&k);
    look(&k);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(k.msg.answer.applied, 1);
    CHECK(memcmp(hear_rows(&k, 0, 1), away_rows_row(table_of(&k), 5),
                 (size_t)dim_of(&k) * sizeof(float)) == 0);
    lane_close(&k);
}

TEST(a_step_does_not_wait_for_another_workers_rows)
{
    lane_kit k;

    lane_open_rows(&k, SIM_SGD, 2, false, away_rows_make);
    away_rows_looks = INT_MAX;
    lane_push(&k, 0, 1, 5, 1);
    lane_silent(&k);
    away_rows_looks = 0;
    lane_push(&k, 1, 1, 6, 1);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_silent(&k);
    CHECK_INT(fl_lane_version(k.lane), 1);
    lane_close(&k);
}

/* Of both it is said that the lane is alive, and not whom they wait for. */
TEST(heartbeats_are_answered_while_rows_are_waited_for)
{
    const uint64_t key = 5;
    lane_kit k;

    away_rows_looks = INT_MAX;
    lane_open_rows(&k, SIM_SGD, 2, false, away_rows_make);
    lane_push(&k, 0, 1, 5, 1);
    pull(&k, 1, 0, &key, 1);
    lane_silent(&k);
    for (uint32_t stream = 0; stream < 2; stream++) {
        lane_say(&k, FL_MSG_HEARTBEAT, stream, 0, 0);
        lane_hear_status(&k, (int)stream, FL_ANSWER_WAITING);
        CHECK_INT(k.msg.answer.missing_stream, FL_NOBODY);
        lane_hear_status(&k, (int)stream, FL_ANSWER_OK);
        lane_silent(&k);
    }
    lane_close(&k);
}

/* --- beside the budgets of lane_budget_test.c ----------------------------- */

static void forget_heard(lane_kit *k)
{
    fl_packet_drop(k->heard);
    k->heard = NULL;
}

/* Its rows have come, but its worker has not read the answer before it. */
TEST(a_pull_keeps_its_rows_until_its_worker_reads)
{
    enum { N = 100, MOST_UNREAD = 1000 };
    const uint64_t five = 5;
    uint64_t key[N];
    lane_kit k;

    for (uint64_t i = 0; i < N; i++)
        key[i] = 1000 + i;
    away_rows_looks = 0;
    lane_open_small_rows(&k, 1, false, 0, MOST_UNREAD, away_rows_make);
    lane_push(&k, 0, 1, five, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    forget_heard(&k);
    pull(&k, 0, 0, key, N);
    pull(&k, 0, 0, &five, 1);
    CHECK_INT(k.n_sent, 1);
    CHECK_INT(away_rows_near(table_of(&k)), 1);
    CHECK(fl_lane_resume(k.lane, ++k.now_ms) > 0);
    CHECK_INT(away_rows_near(table_of(&k)), 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    forget_heard(&k);
    CHECK_INT(fl_lane_resume(k.lane, ++k.now_ms), -1);
    CHECK(memcmp(hear_rows(&k, 0, 1), away_rows_row(table_of(&k), five),
                 (size_t)dim_of(&k) * sizeof(float)) == 0);
    CHECK_INT(away_rows_near(table_of(&k)), 0);
    lane_close(&k);
}

/* The worker asks again when it is told to wait. */
TEST(a_pull_for_which_there_is_no_room_waits_for_no_rows)
{
    enum { ONE_PULL = 6000 };
    const uint64_t key[] = {5, 6};
    lane_kit k;

    lane_open_small_rows(&k, 1, false, ONE_PULL, 0, away_rows_make);
    away_rows_looks = 0;
    lane_push(&k, 0, 1, key[1], 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    away_rows_looks = 2;
    pull(&k, 0, 0, key, 1);
    lane_silent(&k);
    pull(&k, 0, 0, key + 1, 1);
    lane_hear_status(&k, 0, FL_ANSWER_WAITING);
    look(&k);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK(!fl_lane_looks_again(k.lane));
    CHECK_INT(away_rows_near(table_of(&k)), 0);
    lane_close(&k);
}

/* --- to the bit ----------------------------------------------------------- */

/* Answers of both lanes are the same, one after the other. */
static void compare_answers(lane_kit *a, lane_kit *b)
{
    while (a->n_sent > 0) {
        const fl_frame *x, *y;
        int to = a->sent[0].to;

        look(b);
        lane_hear_status(a, to, FL_ANSWER_OK);
        lane_hear_status(b, to, FL_ANSWER_OK);
        CHECK_INT(b->msg.head.n_section, a->msg.head.n_section);
        CHECK_INT(b->msg.answer.applied, a->msg.answer.applied);
        for (int i = 0; i < a->msg.head.n_section; i++) {
            x = &a->msg.column[i][FL_AT_VALUES];
            y = &b->msg.column[i][FL_AT_VALUES];
            CHECK(x->size == y->size && memcmp(x->data, y->data, x->size) == 0);
            CHECK(a->msg.section[i].version == b->msg.section[i].version);
        }
    }
    lane_silent(b);
}

/* Some keys; no key twice. */
static uint32_t some_keys(uint64_t seed, uint64_t i, uint64_t *key)
{
    uint64_t first = fl_rng_below(seed, 1, i, 50);
    uint32_t n = 1 + (uint32_t)fl_rng_below(seed, 2, i, KEYS);

    for (uint32_t j = 0; j < n; j++)
        key[j] = first + 3 * j;
    return n;
}

typedef struct listing {
    size_t n, row_bytes;
    char bytes[100 * (sizeof(uint64_t) + sizeof(fl_row_head) +
                      3 * DIM_MOST * sizeof(float))];
} listing;

static fleet_status list_row(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    listing *l = arg;

    (void)bucket;
    CHECK(l->n + sizeof key + l->row_bytes <= sizeof l->bytes);
    memcpy(l->bytes + l->n, &key, sizeof key);
    l->n += sizeof key;
    memcpy(l->bytes + l->n, (const fl_row_head *)(const void *)row - 1,
           l->row_bytes);
    l->n += l->row_bytes;
    return FLEET_OK;
}

static void list_rows(const lane_kit *k, listing *l)
{
    const fl_rows *rows = table_of(k);

    l->n = 0;
    l->row_bytes = sizeof(fl_row_head) +
                   (size_t)(rows->dim + fl_rows_floats(rows)) * sizeof(float);
    CHECK_OK(rows->methods->each(rows, list_row, l));
}

static void compare_rows(const lane_kit *a, const lane_kit *b)
{
    static listing x, y;

    list_rows(a, &x);
    list_rows(b, &y);
    CHECK(x.n > 0 && x.n == y.n && memcmp(x.bytes, y.bytes, x.n) == 0);
}

/* Both lanes are told the same: pulls of each worker, in sync of the next
 * version, too, before the steps that make it. */
static void tell_both(lane_kit *a, lane_kit *b, bool sync, uint64_t seed,
                      uint64_t step)
{
    lane_kit *both[] = {a, b};
    uint64_t key[KEYS];
    uint32_t n;

    for (uint32_t stream = 0; stream < 2; stream++) {
        n = some_keys(seed, 4 * step + stream, key);
        for (int i = 0; i < 2; i++) {
            pull(both[i], stream, sync ? step - 1 : 0, key, n);
        }
        compare_answers(a, b);
        if (sync && stream == 0)
            for (int i = 0; i < 2; i++)
                pull(both[i], stream, step, key, n);
        n = some_keys(seed, 4 * step + stream - stream % 2, key);
        for (int i = 0; i < 2; i++)
            lane_push_rows(both[i], stream, step, key, n, (float)(step % 7));
        if (!sync)
            compare_answers(a, b);
    }
    compare_answers(a, b);
}

static void compare_lanes(sim_kind kind, bool sync, uint64_t seed)
{
    lane_kit a, b;

    lane_open(&a, kind, 2, sync);
    lane_open_rows(&b, kind, 2, sync, away_rows_make);
    for (uint64_t step = 1; step <= 30; step++) {
        away_rows_looks = (int)fl_rng_below(seed, 3, step, 5);
        tell_both(&a, &b, sync, seed, step);
    }
    CHECK_INT(fl_lane_version(b.lane), fl_lane_version(a.lane));
    CHECK(away_rows_came(table_of(&b)) > 0);
    compare_rows(&a, &b);
    lane_close(&a);
    lane_close(&b);
}

TEST(lanes_come_to_the_same_bits_wherever_their_rows_are)
{
    for (uint64_t seed = 0; seed < 5; seed++) {
        compare_lanes(SIM_SGD, false, seed);
        compare_lanes(SIM_SGD, true, seed);
        compare_lanes(SIM_ADAM, false, seed);
        compare_lanes(SIM_ADAM, true, seed);
    }
}

/* --- deadlines, commands, processes --------------------------------------- */

static void check_late(lane_kit *k)
{
    int64_t end = k->now_ms + 5200;

    while (k->now_ms < end && fl_lane_state_of(k->lane) == FL_LANE_RUNS) {
        lane_say(k, FL_MSG_HEARTBEAT, 0, 0, 0);
        lane_tick_until(k, k->now_ms + 100);
        fl_lane_look_again(k->lane, k->now_ms);
        while (k->n_sent > 0)
            lane_hear(k, 0);
    }
    CHECK_INT(fl_lane_state_of(k->lane), FL_LANE_FAILED);
    CHECK_INT(fl_lane_error(k->lane)->code, FLEET_ETIMEDOUT);
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, "server 0: rows of table \"");
    CHECK_CONTAINS(fl_lane_error(k->lane)->text,
                   "have not come into memory for 5.1 s (step deadline)");
}

TEST(rows_that_do_not_come_end_the_lane_by_name)
{
    const uint64_t key = 5;
    lane_kit k;

    away_rows_looks = INT_MAX;
    lane_open_rows(&k, SIM_SGD, 1, false, away_rows_make);
    pull(&k, 0, 0, &key, 1);
    check_late(&k);
    lane_close(&k);
    for (int sync = 0; sync < 2; sync++) {
        lane_open_rows(&k, SIM_SGD, 1, sync, away_rows_make);
        lane_push(&k, 0, 1, 5, 1);
        check_late(&k);
        lane_close(&k);
    }
}

/* Worker 2 does nothing all the time, and keeps nobody waiting. */
TEST(rows_that_are_waited_for_after_a_load_are_no_workers_fault)
{
    lane_kit k;

    lane_open_rows(&k, SIM_SGD, 3, false, away_rows_make);
    away_rows_looks = INT_MAX;
    lane_push(&k, 0, 1, 5, 1);
    lane_load(&k, 1, 1, "a path");
    CHECK_INT(k.n_command, 1);
    while (k.now_ms < 6000) {
        for (uint32_t stream = 0; stream < 3; stream++)
            lane_say(&k, FL_MSG_HEARTBEAT, stream, 0, 0);
        k.command_progress++;
        lane_tick_until(&k, k.now_ms + 500);
        while (k.n_sent > 0)
            lane_hear(&k, k.sent[0].to);
    }
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    lane_hear_status(&k, 1, FL_ANSWER_OK);
    lane_tick_until(&k, k.now_ms + 300);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_close(&k);
}

/* A load has the table on another thread, so that rows stay meanwhile. */
TEST(rows_are_let_go_when_the_load_is_over)
{
    const uint64_t key = 5;
    lane_kit k;

    lane_open_rows(&k, SIM_SGD, 2, false, away_rows_make);
    away_rows_looks = INT_MAX;
    pull(&k, 0, 0, &key, 1);
    lane_push(&k, 1, 1, 6, 1);
    lane_silent(&k);
    lane_load(&k, 0, 1, "a path");
    CHECK_INT(k.n_command, 1);
    away_rows_hold(table_of(&k), true);
    CHECK(!fl_lane_looks_again(k.lane));
    lane_push_as(&k, 2, 1, 1, 7, 1); /* another process */
    pull_as(&k, 2, 0, 0, &key, 1);
    fl_lane_look_again(k.lane, k.now_ms);
    fl_lane_tick(k.lane, k.now_ms);
    away_rows_hold(table_of(&k), false);
    away_rows_looks = 2;
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    for (int i = 0; i < 20; i++)
        fl_lane_look_again(k.lane, k.now_ms);
    CHECK_INT(fl_lane_version(k.lane), 1);
    CHECK_INT(away_rows_near(table_of(&k)), 0);
    CHECK(away_rows_row(table_of(&k), 6) == NULL);
    CHECK(away_rows_row(table_of(&k), 7) != NULL);
    while (k.n_sent > 0)
        lane_hear(&k, k.sent[0].to);
    lane_close(&k);
}
