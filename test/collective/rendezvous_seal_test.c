/* rendezvous_seal_test.c - seals of connections: both ends agree on keys if
 * each has its own, and what was changed, repeated, cut or put elsewhere does
 * not open. The keys are those of a folder, as jobs have them. */
#define _GNU_SOURCE
#define SUITE rendezvous_seal
#include "rank_keys_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "collective/rendezvous/rendezvous_wire.h"

/* Both ends of one connection; what each sends first has come, or has not. */
typedef struct ends {
    fl_rank_keys rank, server;
    fl_seal *at_rank, *at_server;
    fl_seal_request request;
    fl_seal_answer answer;
    uint8_t head[FL_SEAL_HEAD];
} ends;

static void open_ends(ends *e, const char *folder, int rank, int size)
{
    rank_keys_read(&e->rank, folder, rank, size);
    rank_keys_read(&e->server, folder, 0, size);
    CHECK_OK(fl_seal_create(&e->at_rank, &e->rank, size));
    CHECK_OK(fl_seal_create(&e->at_server, &e->server, size));
}

static void close_ends(ends *e)
{
    fl_seal_destroy(e->at_rank);
    fl_seal_destroy(e->at_server);
    rank_keys_done(&e->rank);
    rank_keys_done(&e->server);
}

/* Hand over n bytes in parts of one byte, or in whole: false if they do not
 * open. */
static bool hand_over(fl_seal *to, const uint8_t *record, size_t n, bool bytes,
                      char *opened, size_t *n_opened)
{
    while (n > 0) {
        size_t missing, part;
        uint8_t *room = fl_seal_room(to, &missing);

        CHECK(missing > 0);
        part = bytes ? 1 : missing < n ? missing : n;
        memcpy(room, record, part);
        if (!fl_seal_open(to, part, opened + *n_opened, n_opened))
            return false;
        record += part;
        n -= part;
    }
    return true;
}

static bool opens(fl_seal *to, const uint8_t *record, size_t n)
{
    char opened[FL_SEAL_MOST];
    size_t n_opened = 0;

    return hand_over(to, record, n, false, opened, &n_opened) && n_opened > 0;
}

static void agree(ends *e, int rank)
{
    char none[1];
    size_t n = 0;

    CHECK(fl_seal_begin(e->at_rank, rank, &e->request));
    CHECK(fl_seal_accept(e->at_server, &e->request, &e->answer));
    CHECK(fl_seal_finish(e->at_rank, &e->answer, e->head));
    CHECK(hand_over(e->at_server, e->head, sizeof e->head, true, none, &n));
    CHECK_INT(n, 0);
}

/* Ends that have agreed, of rank 1 of 3. */
static void open_agreed(ends *e)
{
    rank_keys_need();
    open_ends(e, rank_keys_make("keys", 3), 1, 3);
    agree(e, 1);
}

static void pass(fl_seal *from, fl_seal *to, const void *bytes, size_t n,
                 bool slowly)
{
    uint8_t record[FL_SEAL_RECORD];
    char opened[FL_SEAL_MOST];
    size_t size = fl_seal_wrap(from, bytes, n, record), n_opened = 0;

    CHECK(memmem(record, size, bytes, n) == NULL);
    CHECK(hand_over(to, record, size, slowly, opened, &n_opened));
    CHECK_INT(n_opened, n);
    CHECK(memcmp(opened, bytes, n) == 0);
}

TEST(what_one_end_seals_opens_at_the_other)
{
    char bytes[FL_SEAL_MOST];
    ends e;

    open_agreed(&e);
    CHECK_INT(fl_seal_rank(e.at_server), 1);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    for (int i = 0; i < 3; i++) {
        pass(e.at_rank, e.at_server, bytes, sizeof bytes, i == 1);
        pass(e.at_server, e.at_rank, bytes, 20, i == 1);
        pass(e.at_server, e.at_rank, bytes + 5, 4000, false);
    }
    close_ends(&e);
}

/* A seal serves one connection after the other, each with keys of its own. */
TEST(no_two_connections_have_one_key)
{
    uint8_t old[FL_SEAL_RECORD];
    size_t n;
    ends e;

    open_agreed(&e);
    n = fl_seal_wrap(e.at_rank, "message", 7, old);
    agree(&e, 1);
    CHECK(!opens(e.at_server, old, n));
    agree(&e, 1);
    pass(e.at_rank, e.at_server, "message", 7, false);
    close_ends(&e);
}

/* The head of what a rank sends is a part of it. */
TEST(a_recording_of_a_connection_does_not_open_on_another_one)
{
    uint8_t record[FL_SEAL_RECORD];
    fl_seal_answer other;
    char opened[FL_SEAL_MOST];
    size_t n, none = 0;
    ends e;

    open_agreed(&e);
    n = fl_seal_wrap(e.at_rank, "message", 7, record);
    CHECK(fl_seal_accept(e.at_server, &e.request, &other));
    CHECK(memcmp(other.key, e.answer.key, sizeof other.key) != 0);
    CHECK(hand_over(e.at_server, e.head, sizeof e.head, false, opened, &none));
    CHECK(!opens(e.at_server, record, n));
    close_ends(&e);
}

TEST(no_bit_of_a_record_may_change)
{
    enum { BITS = 8 * (2 + 17 + 7) };
    int longer = 0;

    for (int bit = 0; bit < BITS; bit++) {
        uint8_t record[2 * FL_SEAL_RECORD] = {0};
        size_t n;
        ends e;

        open_agreed(&e);
        n = fl_seal_wrap(e.at_rank, "message", 7, record);
        CHECK_INT(8 * n, BITS);
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        /* of a length that has grown the rest is awaited, and does not fit */
        if (bit < 16)
            longer += opens(e.at_server, record, sizeof record);
        else
            CHECK(!opens(e.at_server, record, n));
        close_ends(&e);
    }
    CHECK_INT(longer, 0);
}

TEST(a_record_opens_once_and_in_its_place)
{
    enum { MODES = 4 };

    for (int mode = 0; mode < MODES; mode++) {
        uint8_t a[FL_SEAL_RECORD], b[FL_SEAL_RECORD];
        size_t n_a, n_b;
        ends e;

        open_agreed(&e);
        n_a = fl_seal_wrap(e.at_rank, "first", 5, a);
        n_b = fl_seal_wrap(e.at_rank, "second", 6, b);
        if (mode == 0) { /* as it should be */
            CHECK(opens(e.at_server, a, n_a));
            CHECK(opens(e.at_server, b, n_b));
        } else if (mode == 1) { /* repeated */
            CHECK(opens(e.at_server, a, n_a));
            CHECK(!opens(e.at_server, a, n_a));
        } else if (mode == 2) { /* the first is left out */
            CHECK(!opens(e.at_server, b, n_b));
        } else { /* sent back to whom it came from */
            CHECK(!opens(e.at_rank, a, n_a));
        }
        close_ends(&e);
    }
}

static bool takes_length(uint16_t length)
{
    uint8_t record[1 << 17] = {0};
    bool opened;
    ends e;

    open_agreed(&e);
    memcpy(record, &length, sizeof length);
    opened = opens(e.at_server, record, sizeof length + length);
    close_ends(&e);
    return opened;
}

TEST(lengths_that_no_end_sends_are_refused_at_once)
{
    static const uint16_t length[] = {
        0, 1, 16, 17, FL_SEAL_RECORD - 1, FL_SEAL_RECORD, 0x8000, 0xffff};

    for (size_t i = 0; i < sizeof length / sizeof *length; i++)
        CHECK(!takes_length(length[i]));
}

/* --- keys that do not fit ------------------------------------------------- */

/* Whether what each end seals opens at the other one, if they got so far. */
static void check_strangers(ends *e, int rank)
{
    uint8_t record[FL_SEAL_RECORD];
    char none[1];
    size_t size, n = 0;

    CHECK(fl_seal_begin(e->at_rank, rank, &e->request));
    CHECK(fl_seal_accept(e->at_server, &e->request, &e->answer));
    CHECK(fl_seal_finish(e->at_rank, &e->answer, e->head));
    CHECK(hand_over(e->at_server, e->head, sizeof e->head, false, none, &n));
    size = fl_seal_wrap(e->at_rank, "message", 7, record);
    CHECK(!opens(e->at_server, record, size));
    size = fl_seal_wrap(e->at_server, "message", 7, record);
    CHECK(!opens(e->at_rank, record, size));
    close_ends(e);
}

TEST(a_rank_needs_its_own_secret)
{
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 3), 1, 3);
    e.rank.secret[3] ^= 1;
    check_strangers(&e, 1);
}

TEST(the_server_needs_its_own_secret)
{
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 3), 1, 3);
    e.server.secret[3] ^= 1;
    check_strangers(&e, 1);
}

TEST(the_key_of_one_rank_is_none_of_another_one)
{
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 3), 1, 3);
    check_strangers(&e, 2);
}

/* Who has a rank's secret is not yet the server. */
TEST(the_secret_of_a_rank_makes_no_server)
{
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 3), 1, 3);
    memcpy(e.server.secret, e.rank.secret, FL_RANK_KEY);
    check_strangers(&e, 1);
}

TEST(a_folder_of_another_job_does_not_fit)
{
    fl_rank_keys other;
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 3), 1, 3);
    rank_keys_read(&other, rank_keys_make("others", 3), 1, 3);
    fl_seal_destroy(e.at_rank);
    CHECK_OK(fl_seal_create(&e.at_rank, &other, 3));
    check_strangers(&e, 1);
    rank_keys_done(&other);
}

/* A point of small order makes a product that everybody knows. */
TEST(keys_that_are_no_keys_are_refused)
{
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 2), 1, 2);
    CHECK(fl_seal_begin(e.at_rank, 1, &e.request));
    CHECK(fl_seal_accept(e.at_server, &e.request, &e.answer));
    memset(e.answer.key, 0, sizeof e.answer.key);
    CHECK(!fl_seal_finish(e.at_rank, &e.answer, e.head));
    memset(e.request.key, 0, sizeof e.request.key);
    CHECK(!fl_seal_accept(e.at_server, &e.request, &e.answer));
    close_ends(&e);
}

TEST(what_is_no_first_message_is_not_answered)
{
    fl_seal_request wrong;
    ends e;

    rank_keys_need();
    open_ends(&e, rank_keys_make("keys", 2), 1, 2);
    CHECK(!fl_seal_begin(e.at_rank, 2, &e.request));
    CHECK(fl_seal_begin(e.at_rank, 1, &e.request));
    wrong = e.request;
    wrong.magic++;
    CHECK(!fl_seal_accept(e.at_server, &wrong, &e.answer));
    wrong = e.request;
    wrong.version++;
    CHECK(!fl_seal_accept(e.at_server, &wrong, &e.answer));
    wrong = e.request;
    wrong.rank = 2;
    CHECK(!fl_seal_accept(e.at_server, &wrong, &e.answer));
    wrong.rank = -1;
    CHECK(!fl_seal_accept(e.at_server, &wrong, &e.answer));
    CHECK(fl_seal_accept(e.at_server, &e.request, &e.answer));
    close_ends(&e);
}

/* --- over a socket -------------------------------------------------------- */

TEST(a_message_of_several_records_comes_whole)
{
    enum { LONG = 3 * FL_SEAL_MOST + 77 };
    static char bytes[LONG];
    fl_rendezvous_frame f = {FL_RENDEZVOUS_CALLS, LONG};
    fl_inbox in;
    const char *came;
    int pair[2];
    ends e;

    open_agreed(&e);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i % 251);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK_OK(fl_inbox_make(&in, sizeof f + LONG));
    in.seal = e.at_rank;
    CHECK(fl_rendezvous_send(pair[0], e.at_server, FL_RENDEZVOUS_CALLS, bytes,
                             1000, bytes + 1000, LONG - 1000));
    CHECK(fl_inbox_read(&in, pair[1]));
    CHECK(fl_inbox_frame(&in, &f, &came));
    CHECK_INT(f.kind, FL_RENDEZVOUS_CALLS);
    CHECK_INT(f.bytes, LONG);
    CHECK(memcmp(came, bytes, LONG) == 0);
    close(pair[0]);
    CHECK(!fl_inbox_read(&in, pair[1]) || in.n == in.room);
    close(pair[1]);
    fl_free(in.data);
    close_ends(&e);
}
