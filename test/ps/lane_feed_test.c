/* lane_feed_test.c - a lane and a subscriber that follows it, by hand: each
 * change is told once, whatever is lost, and what was told is the lane's table.
 */
#define SUITE lane_feed
#include "cold_kit.h"
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ps/aggregate/aggregate_internal.h"
#include "ps/control/lane_move.h"
#include "ps/feed/feed_offset.h"
#include "ps/server/lane_feed.h"
#include "ps/server/lane_replica.h"

enum { PEER = 200, MOST_ROW = 30000, DIM = 4, MOST_TOLD = 1 << 17 };
enum { NONE = -1, ALL = -2 }; /* of servers */

/* What a subscriber has of table 0, and all that it was told of it. */
typedef struct follower {
    lane_kit *k;
    fl_feed_client *c;
    fl_address address[2];
    fl_packet *sent; /* by it, one at a time */
    int socket;
    int dead;    /* nothing reaches that server */
    int n_asked; /* that did */
    bool loses;  /* the next answer of the lane */
    bool has[MOST_ROW];
    float row[MOST_ROW][DIM];
    struct {
        uint64_t key, version;
    } told[MOST_TOLD];
    int n_told, n_gone, n_begins, n_walked, n_weights;
    float weight[FL_BLOCK];
    bool over;
    uint64_t version;
} follower;

static void keep_question(void *arg, int socket, fl_packet *p)
{
    follower *f = arg;

    if (f->dead == ALL || f->dead == socket)
        return;
    CHECK(!f->sent);
    f->n_asked++;
    f->sent = fl_packet_keep(p);
    f->socket = socket;
}

static fleet_status connect_nothing(void *arg, int socket, const char *address,
                                    int server)
{
    (void)arg;
    (void)address;
    CHECK_INT(socket, 1);
    CHECK_INT(server, 0);
    return FLEET_OK;
}

static follower *follow_with(lane_kit *k, int number, const char *offset,
                             const char *job, int n_server)
{
    follower *f = fl_alloc(sizeof *f);
    const fl_feed_host host = {f, keep_question, connect_nothing};
    fl_feed_options o = {.n_server = n_server,
                         .job = job,
                         .subscriber = number,
                         .incarnation = 1 + (uint32_t)rand(),
                         .peer_ms = 5000,
                         .interval_ms = 10,
                         .locality = "here",
                         .pool = k->pool};

    CHECK(f != NULL);
    f->k = k;
    f->dead = NONE;
    for (int i = 0; i < 2; i++)
        snprintf(f->address[i], sizeof f->address[i], "tcp://127.0.0.1:%d",
                 i + 1);
    o.address = (const fl_address *)f->address;
    CHECK_OK(fl_feed_client_create(&f->c, &o, &host, k->now_ms));
    if (offset)
        CHECK_OK(fl_feed_offset_resume(f->c, offset));
    return f;
}

static follower *follow_as(lane_kit *k, int number, const char *offset)
{
    return follow_with(k, number, offset, "job", 1);
}

static follower *follow(lane_kit *k)
{
    return follow_as(k, 0, NULL);
}

static void leave(follower *f)
{
    fl_feed_client_destroy(f->c);
    fl_packet_drop(f->sent);
    fl_free(f);
}

/* --- what it does with what it is told ------------------------------------ */

static void take_rows(follower *f, const fleet_feed_part *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        CHECK(p->key[i] < MOST_ROW && f->n_told < MOST_TOLD);
        f->has[p->key[i]] = true;
        memcpy(f->row[p->key[i]], p->value + i * p->dim,
               (size_t)p->dim * sizeof(float));
        f->told[f->n_told].key = p->key[i];
        f->told[f->n_told++].version = p->version[i];
    }
}

static void take_batch(follower *f, const fleet_feed_batch *b)
{
    if (b->begins) {
        memset(f->has, 0, sizeof f->has);
        f->n_begins++;
    }
    for (int i = 0; i < b->n_part; i++) {
        const fleet_feed_part *p = &b->part[i];

        if (p->kind == FLEET_FEED_WEIGHTS) {
            f->n_weights++;
            if (p->first == 0)
                memcpy(f->weight, p->value, (size_t)p->n * sizeof *p->value);
        } else if (strcmp(p->name, f->k->layout.table[0]->name) == 0) {
            if (p->kind == FLEET_FEED_ROWS)
                take_rows(f, p);
            for (int64_t j = 0; p->kind == FLEET_FEED_GONE && j < p->n; j++) {
                f->has[p->key[j]] = false;
                f->n_gone++;
            }
        }
    }
    f->over = f->over || b->over;
    f->version = b->version;
}

/* --- packets -------------------------------------------------------------- */

/* What the lane has sent: the subscriber's reaches it. */
static void deliver(follower *f)
{
    lane_kit *k = f->k;

    for (int i = 0; i < k->n_sent; i++) {
        if (k->sent[i].to == PEER && !f->loses)
            fl_feed_client_receive(f->c, f->socket, k->sent[i].packet,
                                   k->now_ms);
        if (k->sent[i].to == PEER)
            f->loses = false;
        fl_packet_drop(k->sent[i].packet);
    }
    k->n_sent = 0;
}

/* One question, and its answer if it comes at once. */
static void ask(follower *f)
{
    const fl_peer peer = {.size = 1, .id = {PEER}};
    fl_packet *p;

    fl_feed_client_tick(f->c, f->k->now_ms);
    p = f->sent;
    f->sent = NULL;
    if (p)
        fl_lane_receive(f->k->lane, &peer, p, f->k->now_ms);
    fl_packet_drop(p);
    deliver(f);
}

static bool hear(follower *f)
{
    fleet_feed_batch b;
    bool walked;

    if (!fl_feed_client_next(f->c, &b, &walked, f->k->now_ms))
        return false;
    f->n_walked += walked;
    take_batch(f, &b);
    return true;
}

/* So much time goes by, in ms. */
static void go_on(follower *f, int64_t ms)
{
    for (int64_t end = f->k->now_ms + ms; f->k->now_ms < end;) {
        f->k->now_ms++;
        fl_lane_resume(f->k->lane, f->k->now_ms);
        deliver(f);
        ask(f);
        while (hear(f))
            ask(f);
    }
    CHECK_OK(fl_feed_client_status(f->c, f->k->now_ms));
}

/* --- what must be so ------------------------------------------------------ */

static fleet_status compare_row(void *arg, int bucket, uint64_t key,
                                const float *row)
{
    follower *f = arg;

    (void)bucket;
    CHECK(f->has[key]);
    CHECK(memcmp(f->row[key], row,
                 (size_t)f->k->layout.table[0]->dim * sizeof *row) == 0);
    return FLEET_OK;
}

static void check_equal(follower *f)
{
    const fl_rows *rows = f->k->layout.table[0];
    int64_t n = 0;

    CHECK(rows->dim <= DIM);
    CHECK_OK(rows->methods->each(rows, compare_row, f));
    for (int i = 0; i < MOST_ROW; i++)
        n += f->has[i];
    CHECK_INT(n, rows->methods->count(rows));
}

static int by_change(const void *a, const void *b)
{
    return memcmp(a, b, 2 * sizeof(uint64_t));
}

/* No version of a row came twice. */
static void check_once(follower *f)
{
    qsort(f->told, (size_t)f->n_told, sizeof *f->told, by_change);
    for (int i = 1; i < f->n_told; i++)
        CHECK(by_change(&f->told[i - 1], &f->told[i]) != 0);
}

static uint64_t step; /* of worker 0 */

static void open_lane(lane_kit *k, bool sync)
{
    lane_open(k, SIM_SGD, 1, sync);
    step = 0;
}

/* A hundred rows in a step: the kit's lanes have room for no more. */
static void push(lane_kit *k, uint64_t first, uint32_t n)
{
    enum { AT_ONCE = 100 };

    for (uint32_t i = 0, m; i < n; i += m) {
        int64_t version = fl_lane_version(k->lane);
        uint64_t key[AT_ONCE];

        m = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (uint32_t j = 0; j < m; j++)
            key[j] = first + i + j;
        lane_push_rows(k, 0, ++step, key, m, 1);
        for (int j = 0; j < k->n_sent; j++)
            fl_packet_drop(k->sent[j].packet);
        k->n_sent = 0; /* the subscriber's question has its answer already */
        CHECK_INT(fl_lane_version(k->lane), version + 1);
    }
}

static void erase(lane_kit *k, uint64_t key)
{
    fl_rows *rows = k->layout.table[0];
    int64_t n;

    CHECK_OK(rows->methods->erase(rows, &key, 1, &n));
    CHECK_INT(n, 1);
    if (rows->watch)
        rows->watch->row(rows->watch, rows, key, 0, true);
}

/* A lane with rows 0 to n - 1, and who has followed it for so long. */
static follower *open_followed(lane_kit *k, uint32_t n, int64_t ms)
{
    follower *f;

    open_lane(k, true);
    push(k, 0, n);
    f = follow(k);
    go_on(f, ms);
    return f;
}

/* One with more rows than an answer brings. */
enum { MANY_ROWS = 28000 };

static void open_large(lane_kit *k, bool sync)
{
    open_lane(k, sync);
    push(k, 0, MANY_ROWS);
}

/* Rows change while it walks through all of them. */
static void walk_beside_changes(follower *f)
{
    ask(f); /* hello */
    for (int i = 0; i < 40; i++) {
        go_on(f, 1);
        push(f->k, (uint64_t)i * 699, 500);
    }
}

/* It has heard some of the rows, and is in the middle of its walk. */
static void go_halfway(follower *f)
{
    while (f->n_told == 0) {
        f->k->now_ms++;
        ask(f);
        hear(f);
    }
    CHECK(f->n_told < 24000);
}

static void close_followed(lane_kit *k, follower *f)
{
    leave(f);
    lane_close(k);
}

/* --- claims --------------------------------------------------------------- */

TEST(begins_with_everything_and_then_tells_changes_alone)
{
    lane_kit k;
    follower *f;

    open_lane(&k, true);
    push(&k, 0, 100);
    push(&k, 50, 100);
    f = follow(&k);
    go_on(f, 100);
    check_equal(f);
    CHECK_INT(f->n_begins, 1);
    CHECK_INT(f->n_walked, 1);
    CHECK_INT(f->n_told, 150);
    CHECK(f->n_weights > 0);
    f->n_told = 0;
    push(&k, 149, 2);
    push(&k, 149, 1); /* twice before it asks: told once */
    go_on(f, 100);
    CHECK_INT(f->n_told, 2);
    CHECK_INT(f->n_begins, 1);
    check_equal(f);
    f->n_told = 0;
    go_on(f, 100);
    CHECK_INT(f->n_told, 0);
    CHECK_INT(f->version, 4);
    close_followed(&k, f);
}

/* A walk of several answers, rows changing all the while. */
TEST(tells_each_change_once_while_it_walks)
{
    lane_kit k;
    follower *f;

    open_large(&k, false);
    f = follow(&k);
    walk_beside_changes(f);
    go_on(f, 200);
    check_equal(f);
    check_once(f);
    CHECK_INT(f->n_begins, 1);
    close_followed(&k, f);
}

/* The list has gone on before the walk is over: what it does not have any more
 * is not taken from what has come in its place. */
TEST(looks_again_when_the_list_is_shorter_than_a_walk)
{
    lane_kit k;
    follower *f;

    lane_changes = 64;
    open_large(&k, false);
    f = follow(&k);
    walk_beside_changes(f);
    go_on(f, 400);
    check_equal(f);
    CHECK_INT(f->n_begins, 1);
    CHECK(f->n_walked > 1);
    close_followed(&k, f);
    lane_changes = 0;
}

TEST(does_not_begin_while_a_command_writes)
{
    lane_kit k;
    follower *f;

    open_lane(&k, true);
    push(&k, 0, 10);
    lane_write(&k, 0, ++step, "rows");
    f = follow(&k);
    go_on(f, 100);
    CHECK(k.lane->feed == NULL);
    CHECK_INT(f->n_begins, 0);
    fl_lane_command_done(k.lane, FLEET_OK, NULL, 0, 0, k.now_ms);
    go_on(f, 1100); /* it asks again */
    CHECK_INT(f->n_begins, 1);
    check_equal(f);
    close_followed(&k, f);
}

TEST(goes_on_from_an_offset_in_another_process)
{
    lane_kit k;
    follower *f, *g;
    char *offset;

    open_lane(&k, true);
    push(&k, 0, 24000);
    f = follow(&k);
    go_halfway(f);
    offset = fl_feed_offset_text(f->c);
    CHECK(offset != NULL);
    push(&k, 3, 5);
    g = follow_as(&k, 0, offset);
    memcpy(g->has, f->has, sizeof f->has);
    memcpy(g->row, f->row, sizeof f->row);
    memcpy(g->told, f->told, sizeof f->told);
    g->n_told = f->n_told;
    go_on(g, 200);
    CHECK_INT(g->n_begins, 0);
    check_equal(g);
    check_once(g);
    CHECK(g->n_told >= 24000 && g->n_told <= 24005);
    fl_free(offset);
    leave(f);
    leave(g);
    lane_close(&k);
}

TEST(asks_again_what_was_lost)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 0);

    for (int i = 0; i < 5; i++) {
        f->loses = true;
        push(&k, 5, 10);
        go_on(f, 1100);
        check_equal(f);
    }
    check_once(f);
    close_followed(&k, f);
}

TEST(tells_which_rows_are_gone)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 20);

    erase(&k, 3);
    erase(&k, 4);
    push(&k, 4, 1); /* and comes back */
    go_on(f, 20);
    CHECK_INT(f->n_gone, 1);
    CHECK(!f->has[3] && f->has[4]);
    check_equal(f);
    check_once(f);
    close_followed(&k, f);
}

static void fall_behind(lane_kit *k, follower *f, bool gone)
{
    go_on(f, 50);
    f->n_told = 0;
    if (gone)
        erase(k, 50);
    for (int i = 0; i < 10; i++)
        push(k, (uint64_t)i, 20);
    go_on(f, 50);
    check_equal(f);
}

/* The list has 64 changes: rows that have changed since are found by their
 * versions; but not rows that are gone. */
TEST(sends_a_slow_subscriber_what_has_changed_or_everything)
{
    lane_kit k;
    follower *f;

    lane_changes = 64;
    f = open_followed(&k, 100, 0);
    fall_behind(&k, f, false);
    CHECK_INT(f->n_begins, 1);
    CHECK_INT(f->n_told, 29);
    CHECK_CONTAINS(k.lines, "subscriber 0 is too slow");
    *k.lines = 0;
    fall_behind(&k, f, true);
    CHECK_INT(f->n_begins, 2);
    CHECK(!strstr(k.lines, "too slow")); /* it was said just now */
    close_followed(&k, f);
    lane_changes = 0;
}

TEST(begins_anew_after_a_load)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 20);

    lane_load(&k, 0, ++step, "save"); /* 1 update in it, as before */
    go_on(f, 2000); /* while it loads nobody reads the store */
    CHECK_INT(f->n_begins, 1);
    k.layout.table[0]->methods->clear(k.layout.table[0]);
    fl_lane_command_done(k.lane, FLEET_OK, NULL, 0, 0, k.now_ms);
    go_on(f, 20);
    CHECK_INT(f->n_begins, 2);
    check_equal(f);
    push(&k, 2, 3);
    go_on(f, 20);
    check_equal(f);
    close_followed(&k, f);
}

/* Of a row that was written by hand the version is that of the next update. */
TEST(tells_what_was_written_by_hand)
{
    lane_kit k;
    follower *f;
    fl_rows *rows;
    uint64_t key = 4;
    float *row;

    f = open_followed(&k, 10, 20);
    rows = k.layout.table[0];
    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    row[0] = 77;
    fl_row_of(row)->changed_at = 2;
    rows->watch->row(rows->watch, rows, key, 2, false);
    go_on(f, 20);
    CHECK(f->row[4][0] == 77);
    push(&k, 4, 1);
    go_on(f, 20);
    check_equal(f);
    close_followed(&k, f);
}

static void write_by_hand(lane_kit *k, uint64_t key)
{
    fl_rows *rows = k->layout.table[0];
    uint64_t version = (uint64_t)fl_lane_version(k->lane) + 1;
    float *row;

    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    row[0] += 77;
    fl_row_of(row)->changed_at = version;
    rows->watch->row(rows->watch, rows, key, version, false);
}

/* Rows that were written before a walk, which others are written beside. */
TEST(a_walk_brings_what_was_written_by_hand_before_it)
{
    lane_kit k;
    follower *f, *g;

    open_large(&k, true);
    f = follow(&k);
    go_on(f, 100);
    for (uint64_t key = 0; key < 28000; key += 100)
        write_by_hand(&k, key);
    g = follow_as(&k, 1, NULL);
    go_halfway(g);
    push(&k, 1, 5);
    write_by_hand(&k, 2);
    go_on(g, 200);
    check_equal(g);
    leave(f);
    leave(g);
    lane_close(&k);
}

/* After a million rows looked at in vain the lane rests. */
TEST(spends_a_tenth_of_the_time_on_subscribers)
{
    lane_kit k;
    follower *f;

    open_large(&k, true);
    f = follow(&k);
    go_on(f, 1); /* what is saved up: two slices */
    for (int i = 0; i < 8; i++) {
        int n = f->n_told;

        CHECK(n <= 3 * FL_SLICE_ROWS + i * 2000);
        go_on(f, 1);
    }
    CHECK(f->n_told < 28000);
    go_on(f, 100);
    check_equal(f);
    close_followed(&k, f);
}

TEST(answers_all_that_wait_as_far_as_the_budget_goes)
{
    lane_kit k;
    follower *f[2];

    open_large(&k, true);
    for (int i = 0; i < 2; i++) {
        f[i] = follow_as(&k, i, NULL);
        ask(f[i]); /* hello */
        ask(f[i]);
        CHECK(hear(f[i]));
    }
    for (int i = 0; i < 2; i++) { /* two slices were saved up */
        ask(f[i]);
        CHECK(!hear(f[i]));
    }
    k.now_ms += 100;
    fl_lane_resume(k.lane, k.now_ms);
    CHECK_INT(k.n_sent, 2);
    for (int i = 0; i < 2; i++) {
        deliver(f[i]);
        leave(f[i]);
    }
    lane_close(&k);
}

static void end_job(lane_kit *k)
{
    lane_say(k, FL_MSG_STEP, 0, ++step, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);
    lane_say(k, FL_MSG_BYE, 0, step, 0);
}

TEST(says_that_it_is_over_before_the_lane_ends)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 20);

    push(&k, 0, 5);
    end_job(&k);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    go_on(f, 20);
    CHECK(f->over);
    CHECK(fl_feed_client_is_over(f->c));
    check_equal(f);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_LEFT);
    close_followed(&k, f);
}

/* The last answer is lost, and comes again; who has it is killed before it is
 * applied, and another process goes on from the offset of before. */
TEST(does_not_end_before_its_last_batch_is_had)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 20), *g;
    char *offset;

    offset = fl_feed_offset_text(f->c);
    push(&k, 0, 5);
    end_job(&k);
    f->loses = true;
    go_on(f, 11);
    CHECK(!f->loses && !f->over);
    lane_tick_until(&k, k.now_ms + 900);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    while (!f->over) {
        k.now_ms++;
        ask(f);
        hear(f);
    }
    lane_tick_until(&k, k.now_ms + 900);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    g = follow_as(&k, 0, offset);
    memcpy(g->has, f->has, sizeof f->has);
    go_on(g, 20);
    CHECK(g->over);
    CHECK_INT(g->n_told, 5);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_LEFT);
    fl_free(offset);
    leave(g);
    close_followed(&k, f);
}

TEST(ends_without_a_subscriber_that_has_gone)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 20);

    deliver(f);
    end_job(&k);
    deliver(f);
    lane_tick_until(&k, k.now_ms + 900); /* of its peer deadline, 1,000 */
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_tick_until(&k, k.now_ms + 300);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_LEFT);
    close_followed(&k, f);
}

TEST(tells_why_the_job_fails)
{
    lane_kit k;
    follower *f = open_followed(&k, 0, 20);

    fl_lane_abort(k.lane, FLEET_EPEER, "worker 3 is gone");
    deliver(f);
    CHECK_FAILS(fl_feed_client_status(f->c, k.now_ms), FLEET_EPEER,
                "worker 3 is gone");
    close_followed(&k, f);
}

TEST(refuses_a_lane_with_too_many_dense_parameters)
{
    lane_kit k;
    follower *f;
    int64_t n;

    open_lane(&k, true);
    n = k.lane->aggregate.block[0].n;
    k.lane->aggregate.block[0].n = FL_SLICE_DENSE / sizeof(float) + 1;
    f = follow(&k);
    ask(f); /* hello */
    ask(f);
    CHECK_FAILS(fl_feed_client_status(f->c, k.now_ms), FLEET_EUNSUPPORTED,
                "bytes of dense parameters: a feed can bring 33554432 of each");
    CHECK(k.lane->feed == NULL);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    k.lane->aggregate.block[0].n = n;
    close_followed(&k, f);
}

TEST(refuses_a_table_whose_rows_are_out_of_memory)
{
    lane_kit k;
    follower *f;

    cold_kit_cap.folder = test_folder();
    lane_open_rows(&k, SIM_SGD, 1, true, cold_kit_make);
    f = follow(&k);
    ask(f); /* hello */
    ask(f);
    CHECK_FAILS(fl_feed_client_status(f->c, k.now_ms), FLEET_EUNSUPPORTED,
                "table \"first\" has rows out of memory (a cap)");
    CHECK(k.lane->feed == NULL);
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    close_followed(&k, f);
}

TEST(asks_a_server_that_loads_five_times_a_second)
{
    lane_kit k;
    follower *f;

    open_lane(&k, true);
    push(&k, 0, 10);
    k.loads = true;
    f = follow(&k);
    go_on(f, 999);
    CHECK_INT(f->n_asked, 5);
    k.loads = false;
    go_on(f, 200);
    check_equal(f);
    close_followed(&k, f);
}

/* What a subscriber with these options hears in place of a feed. */
static void hear_refusal(lane_kit *k, const char *job, int n_server, int dead,
                         const char *words)
{
    follower *f = follow_with(k, 0, NULL, job, n_server);

    f->dead = dead;
    ask(f);
    CHECK_FAILS(fl_feed_client_status(f->c, k->now_ms), FLEET_EINVAL, words);
    leave(f);
}

TEST(says_which_server_of_which_job_it_is)
{
    lane_kit k;

    open_lane(&k, true);
    hear_refusal(&k, "jab", 1, NONE,
                 "follows job \"jab\", this server is of \"job\"");
    hear_refusal(&k, "job", 2, 1,
                 "servers are 1, and the feed was given addresses of 2");
    k.layout.n_server = 2;
    hear_refusal(&k, "job", 1, NONE,
                 "servers are 2, and the feed was given addresses of 1");
    hear_refusal(&k, "job", 2, 0,
                 "127.0.0.1:2 is server 0 of the job, and the feed was given "
                 "it as server 1");
    lane_close(&k);
}

/* So much time goes by, and it asks, and hears nothing more. */
static void ask_in_vain(follower *f, int64_t ms)
{
    f->dead = ALL;
    for (int64_t end = f->k->now_ms + ms; f->k->now_ms < end;) {
        f->k->now_ms += 100;
        ask(f);
    }
}

TEST(names_the_server_that_has_not_answered)
{
    lane_kit k;
    follower *f;

    open_lane(&k, true);
    k.layout.n_server = 2;
    f = follow_with(&k, 0, NULL, "job", 2);
    f->dead = 1;
    ask(f);
    ask_in_vain(f, 4900);
    CHECK_OK(fl_feed_client_status(f->c, k.now_ms));
    ask_in_vain(f, 300);
    CHECK_FAILS(fl_feed_client_status(f->c, k.now_ms), FLEET_ETIMEDOUT,
                "server 1 at 127.0.0.1:2 was not heard of for 5.2 s");
    leave(f);
    lane_close(&k);
}

/* Who does not call for an hour, or is stopped, has asked nothing meanwhile. */
TEST(misses_no_server_for_a_silence_of_its_own)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 20);

    k.now_ms += 3600 * 1000;
    CHECK_OK(fl_feed_client_status(f->c, k.now_ms));
    ask_in_vain(f, 300); /* a question is under way */
    k.now_ms += 3600 * 1000;
    CHECK_OK(fl_feed_client_status(f->c, k.now_ms));
    ask_in_vain(f, 4000);
    CHECK_FAILS(fl_feed_client_status(f->c, k.now_ms), FLEET_ETIMEDOUT,
                "server 0 at 127.0.0.1:1 was not heard of");
    f->dead = NONE;
    push(&k, 5, 1);
    go_on(f, 1000);
    check_equal(f);
    CHECK_INT(f->n_begins, 1);
    close_followed(&k, f);
}

TEST(has_room_for_sixteen_subscribers)
{
    lane_kit k;
    follower *f[FL_MOST_SUBSCRIBER + 1];

    open_lane(&k, true);
    for (int i = 0; i < FL_MOST_SUBSCRIBER; i++) {
        f[i] = follow_as(&k, i, NULL);
        go_on(f[i], 5);
    }
    f[FL_MOST_SUBSCRIBER] = follow_as(&k, FL_MOST_SUBSCRIBER, NULL);
    ask(f[FL_MOST_SUBSCRIBER]);
    ask(f[FL_MOST_SUBSCRIBER]);
    CHECK_FAILS(fl_feed_client_status(f[FL_MOST_SUBSCRIBER]->c, k.now_ms),
                FLEET_EEXIST, "16 others");
    leave(f[FL_MOST_SUBSCRIBER]);
    /* silent ones lose their places */
    lane_tick_until(&k, k.now_ms + 1200);
    deliver(f[0]);
    f[FL_MOST_SUBSCRIBER] = follow_as(&k, FL_MOST_SUBSCRIBER, NULL);
    go_on(f[FL_MOST_SUBSCRIBER], 5);
    CHECK_INT(f[FL_MOST_SUBSCRIBER]->n_begins, 1);
    for (int i = 0; i <= FL_MOST_SUBSCRIBER; i++)
        leave(f[i]);
    lane_close(&k);
}

/* As lane_say(), by tcp with a key of that sender. */
static void say_with_key(lane_kit *k, const fl_msg_head *head, int sender)
{
    const fl_peer from = {.size = 1, .id = {PEER}, .sender = sender};
    fl_msg_writer w;
    fl_packet *p;

    lane_begin(k, &w, head);
    if (head->kind == FL_MSG_FEED)
        fl_msg_text(&w, FL_SECTION_HELLO, "job");
    CHECK_OK(fl_msg_end(&w, true, &p));
    fl_lane_receive(k->lane, &from, p, k->now_ms);
    fl_packet_drop(p);
}

TEST(a_key_of_a_subscriber_is_good_for_following_alone)
{
    lane_kit k;
    fl_msg_head feed = lane_head(FL_MSG_FEED, FL_FEED_STREAM | 3, 0, 0);
    fl_msg_head leave =
        lane_head(FL_MSG_STEP, 0, 1, FL_MSG_LEAVE | FL_MSG_END_OF_STEP);

    open_lane(&k, true);
    say_with_key(&k, &feed, FL_GUARD_SUBSCRIBER + 3);
    lane_hear_status(&k, PEER, FL_ANSWER_OK);
    say_with_key(&k, &feed, FL_GUARD_SUBSCRIBER + 2);
    lane_hear_refusal(&k, PEER, "subscriber 3 came with a key that does not");
    say_with_key(&k, &feed, 4); /* of worker 3 */
    lane_hear_refusal(&k, PEER, "subscriber 3 came with a key that does not");
    say_with_key(&k, &feed, FL_GUARD_NOBODY);
    lane_hear_refusal(&k, PEER, "or without one");
    say_with_key(&k, &leave, FL_GUARD_SUBSCRIBER);
    lane_hear_refusal(&k, PEER, "subscriber 0 has sent a message of worker 0");
    CHECK_INT(fl_lane_state_of(k.lane), FL_LANE_RUNS);
    lane_close(&k);
}

TEST(refuses_a_damaged_offset)
{
    lane_kit k;
    follower *f;
    char *offset;

    f = open_followed(&k, 0, 5);
    offset = fl_feed_offset_text(f->c);
    CHECK(offset != NULL);
    offset[strlen(offset) - 1] = offset[strlen(offset) - 1] == '1' ? '2' : '1';
    CHECK_FAILS(fl_feed_offset_resume(f->c, offset), FLEET_EFORMAT, "damaged");
    CHECK_FAILS(fl_feed_offset_resume(f->c, "offset"), FLEET_EFORMAT,
                "expected \"fleet-feed-1:");
    fl_free(offset);
    close_followed(&k, f);
}

/* --- a lane that moves ---------------------------------------------------- */

static const char has_gone[] = "a lane has gone to another process";

static void check_refused(const follower *f)
{
    CHECK_FAILS(fl_feed_client_status(f->c, f->k->now_ms), FLEET_EUNSUPPORTED,
                has_gone);
}

TEST(who_follows_a_lane_that_goes_hears_so_and_who_comes_later)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 100), *late;

    CHECK_OK(fl_lane_move(k.lane, 0));
    fl_replica_give_way(k.lane);
    deliver(f);
    check_refused(f);
    late = follow_as(&k, 1, NULL);
    ask(late);
    check_refused(late);
    leave(late);
    close_followed(&k, f);
}

/* It does not hear of the word, and asks on. */
TEST(who_asks_a_lane_that_has_gone_hears_so)
{
    lane_kit k;
    follower *f = open_followed(&k, 10, 100);

    CHECK_OK(fl_lane_move(k.lane, 0));
    fl_replica_give_way(k.lane);
    f->loses = true;
    deliver(f);
    k.now_ms += 1000;
    ask(f);
    check_refused(f);
    close_followed(&k, f);
}

/* It knows no other lane of its server. */
TEST(a_lane_that_has_come_is_followed_by_nobody)
{
    static const char *const none[] = {NULL};
    lane_kit k;
    follower *f;

    open_lane(&k, true);
    k.lane->o.address = none;
    f = follow(&k);
    ask(f);
    check_refused(f);
    close_followed(&k, f);
}
