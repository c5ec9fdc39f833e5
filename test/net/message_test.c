/* message_test.c - messages: what is written is read, as it was, and lies on
 * the wire as the protocol says. */
#define _GNU_SOURCE
#define SUITE message
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net_kit.h"

/* --- round trips ---------------------------------------------------------- */

TEST(kinds_and_ops_have_their_numbers_on_the_wire)
{
    CHECK_INT(FL_MSG_HELLO, 1);
    CHECK_INT(FL_MSG_STEP, 2);
    CHECK_INT(FL_MSG_CLIP, 3);
    CHECK_INT(FL_MSG_PULL, 4);
    CHECK_INT(FL_MSG_QUERY, 5);
    CHECK_INT(FL_MSG_REDUCE, 6);
    CHECK_INT(FL_MSG_HEARTBEAT, 7);
    CHECK_INT(FL_MSG_ABORT, 8);
    CHECK_INT(FL_MSG_ANSWER, 9);
    CHECK_INT(FL_MSG_FEED, 11);
    CHECK_INT(FL_MSG_FOLLOW, 12);
    CHECK_INT(FL_MSG_ADMIN, 13);
    CHECK_INT(FL_MSG_LEASE, 14);
    CHECK_INT(FL_SECTION_DENSE, 1);
    CHECK_INT(FL_SECTION_ROWS, 2);
    CHECK_INT(FL_SECTION_CLIP, 3);
    CHECK_INT(FL_SECTION_NORMS, 4);
    CHECK_INT(FL_SECTION_TEXT, 5);
    CHECK_INT(FL_SECTION_HASH, 6);
    CHECK_INT(FL_SECTION_SAVE, 7);
    CHECK_INT(FL_SECTION_LOAD, 8);
    CHECK_INT(FL_SECTION_REDUCE, 9);
    CHECK_INT(FL_SECTION_HELLO, 10);
    CHECK_INT(FL_SECTION_FEED, 15);
    CHECK_INT(FL_SECTION_GONE, 16);
    CHECK_INT(FL_SECTION_LEASE, 18);
}

TEST(every_kind_has_a_name)
{
    for (fl_msg_kind kind = 1; kind < FL_MSG_KINDS; kind++)
        CHECK(fl_msg_kind_name(kind) != NULL);
    CHECK_TEXT(fl_msg_kind_name(FL_MSG_QUERY), "question");
}

TEST(every_kind_with_every_op_is_read_as_it_was_written)
{
    static fl_msg msg;

    net_open_pool();
    for (int kind = 1; kind < FL_MSG_KINDS; kind++) {
        fl_packet *p = net_sample(kind, kind % 2);
        fl_msg_head want = net_head;
        bool answer = kind == FL_MSG_ANSWER;

        want.kind = (uint8_t)kind;
        want.status = answer ? FL_ANSWER_WAITING : 0;
        CHECK_OK(fl_msg_decode(p, &msg));
        net_check_head(&msg.head, &want);
        CHECK_INT(msg.head.flags,
                  FL_MSG_END_OF_STEP | (kind % 2 ? FL_MSG_CRC_ALL : 0));
        CHECK_INT(msg.head.n_section, FL_SECTION_OPS - 1);
        for (int op = 1; op < FL_SECTION_OPS; op++)
            net_check_section(&msg, op - 1, op, op * 11 % 64);
        CHECK_INT(msg.answer.applied, answer ? 70 : 0);
        CHECK_INT(msg.answer.durable, answer ? 60 : 0);
        CHECK_INT(msg.answer.credit_bytes, answer ? 1 << 20 : 0);
        CHECK_INT(msg.answer.missing_stream, answer ? 8 : 0);
        fl_packet_drop(p);
    }
    net_close_pool();
}

TEST(every_set_of_columns_is_read_as_it_was_written)
{
    static fl_msg msg;

    net_open_pool();
    for (int columns = 0; columns <= FL_COLUMNS; columns++) {
        fl_msg_writer w;
        fl_packet *p;

        fl_msg_begin(&w, net_pool, &net_head);
        net_add_section(&w, FL_SECTION_ROWS, columns);
        net_add_section(&w, FL_SECTION_DENSE, FL_COLUMNS & ~columns);
        CHECK_OK(fl_msg_end(&w, true, &p));
        CHECK_INT(p->n_frame, 2 + FL_N_COLUMN);
        CHECK_OK(fl_msg_decode(p, &msg));
        net_check_section(&msg, 0, FL_SECTION_ROWS, columns);
        net_check_section(&msg, 1, FL_SECTION_DENSE, FL_COLUMNS & ~columns);
        fl_packet_drop(p);
    }
    net_close_pool();
}

TEST(a_header_lies_as_the_protocol_says)
{
    static const uint8_t want[] = {
        'F',  'L',  'T',  'M', 1,    9,    1,    0,    0x88, 0x77, 0x66, 0x55,
        0x44, 0x33, 0x22, 17,  3,    0,    0,    0,    4,    0,    0,    0,
        5,    0,    0,    0,   6,    0,    0,    0,    0,    0x86, 0x3b, 0xa1,
        1,    0,    0,    0,   0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
        9,    0,    0,    0,   0x30, 0x75, 0,    0,    11,   0,    1,    1};
    static const uint8_t section[] = {
        104,  0,    0,    0,    4, 0, 0, 2, 0x0, 0, 0,    0,    3, 0, 0, 0,
        0x35, 0x1c, 0xdc, 0xdf, 2, 0, 0, 0, 0,   0, 0x80, 0x3e, 2, 0, 0, 0};
    fl_msg_head head = net_head;
    fl_msg_writer w;
    fl_packet *p;

    net_open_pool();
    head.kind = FL_MSG_ANSWER;
    head.status = FL_ANSWER_WAITING;
    fl_msg_begin(&w, net_pool, &head);
    w.answer = (fl_msg_answer){1, 2, 3, 4};
    net_add_section(&w, FL_SECTION_NORMS, FL_COLUMN_KEYS);
    CHECK_OK(fl_msg_end(&w, false, &p));
    CHECK_INT(p->n_frame, 3);
    CHECK_INT(p->frame[0].size, 88);
    CHECK_INT(memcmp(p->frame[0].data, want, sizeof want), 0);
    CHECK_INT(((uint8_t *)p->frame[0].data)[64], 1);
    CHECK_INT(((uint8_t *)p->frame[0].data)[72], 2);
    CHECK_INT(((uint8_t *)p->frame[0].data)[80], 3);
    CHECK_INT(((uint8_t *)p->frame[0].data)[84], 4);
    CHECK_INT(p->frame[1].size, 32);
    CHECK_INT(memcmp(p->frame[1].data, section, 32), 0);
    CHECK_INT(p->bytes, 88 + 32 + 24);
    fl_packet_drop(p);
    net_close_pool();
}

TEST(a_message_may_have_no_section)
{
    static fl_msg msg;
    fl_msg_head head = net_head;
    fl_msg_writer w;
    fl_packet *p;

    net_open_pool();
    head.kind = FL_MSG_HEARTBEAT;
    fl_msg_begin(&w, net_pool, &head);
    CHECK_OK(fl_msg_end(&w, true, &p));
    CHECK_INT(p->n_frame, 1);
    CHECK_OK(fl_msg_decode(p, &msg));
    CHECK_INT(msg.head.n_section, 0);
    CHECK(fl_msg_get_text(&msg, FL_SECTION_TEXT) == NULL);
    fl_packet_drop(p);
    net_close_pool();
}

TEST(texts_travel)
{
    static fl_msg msg;
    fl_msg_writer w;
    fl_packet *p;
    char *text;

    net_open_pool();
    fl_msg_begin(&w, net_pool, &net_head);
    net_add_section(&w, FL_SECTION_ROWS, FL_COLUMN_KEYS);
    fl_msg_text(&w, FL_SECTION_TEXT, "no table embedding_7");
    fl_msg_text(&w, FL_SECTION_SAVE, "");
    CHECK_OK(fl_msg_end(&w, true, &p));
    CHECK_OK(fl_msg_decode(p, &msg));
    text = fl_msg_get_text(&msg, FL_SECTION_TEXT);
    CHECK_TEXT(text, "no table embedding_7");
    fl_free(text);
    text = fl_msg_get_text(&msg, FL_SECTION_SAVE);
    CHECK_TEXT(text, "");
    fl_free(text);
    CHECK(fl_msg_get_text(&msg, FL_SECTION_LOAD) == NULL);
    CHECK(fl_msg_get_text(&msg, FL_SECTION_ROWS) == NULL);
    fl_packet_drop(p);
    net_close_pool();
}

TEST(the_largest_message_fits)
{
    static fl_msg msg;
    static fl_msg_writer w;
    fl_packet *p;

    net_open_pool();
    fl_msg_begin(&w, net_pool, &net_head);
    for (int i = 0; i < FL_MSG_MOST_SECTION; i++)
        net_add_section(&w, FL_SECTION_ROWS, FL_COLUMNS);
    CHECK_OK(fl_msg_end(&w, true, &p));
    CHECK_OK(fl_msg_decode(p, &msg));
    net_check_section(&msg, FL_MSG_MOST_SECTION - 1, FL_SECTION_ROWS,
                      FL_COLUMNS);
    fl_packet_drop(p);
    net_close_pool();
}

TEST(a_message_like_the_last_one_allocates_nothing)
{
    static fl_msg msg;
    int64_t before = 0;

    net_open_pool();
    for (int i = 0; i < 10; i++) {
        fl_packet *p = net_sample(FL_MSG_ANSWER, true);

        CHECK_OK(fl_msg_decode(p, &msg));
        fl_packet_drop(p);
        if (i == 0)
            before = fl_memory_count();
    }
    CHECK_INT(fl_memory_count(), before);
    net_close_pool();
}

/* --- writing what cannot be ----------------------------------------------- */

static void begin(fl_msg_writer *w)
{
    fl_msg_begin(w, net_pool, &net_head);
}

static void check_refused(fl_msg_writer *w, fleet_status code,
                          const char *words)
{
    fl_packet *p;

    CHECK_FAILS(fl_msg_end(w, false, &p), code, words);
    CHECK(p == NULL);
}

TEST(a_wrong_message_is_not_written)
{
    static fl_msg_writer w;
    fl_section *s;

    net_open_pool();
    begin(&w);
    CHECK(fl_msg_column(&w, FL_COLUMN_KEYS, 8) == NULL);
    CHECK(fl_msg_section(&w, FL_SECTION_ROWS, 0) == NULL); /* sticky */
    check_refused(&w, FLEET_EINVAL, "no column 2 after columns 0x00");
    begin(&w);
    fl_msg_section(&w, FL_SECTION_ROWS, 0);
    fl_msg_column(&w, FL_COLUMN_VALUES, 8);
    CHECK(fl_msg_column(&w, FL_COLUMN_KEYS, 8) == NULL);
    check_refused(&w, FLEET_EINVAL, "no column 2 after columns 0x08");
    begin(&w);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = 2;
    fl_msg_column(&w, FL_COLUMN_KEYS, 8);
    check_refused(&w, FLEET_EFORMAT, "column 2 has 8 bytes, not 16");
    begin(&w);
    for (int i = 0; i < FL_MSG_MOST_SECTION; i++)
        CHECK(fl_msg_section(&w, FL_SECTION_CLIP, 0) != NULL);
    CHECK(fl_msg_section(&w, FL_SECTION_CLIP, 0) == NULL);
    check_refused(&w, FLEET_EINVAL, "more than 64 sections");
    begin(&w);
    w.head.kind = FL_MSG_ANSWER;
    check_refused(&w, FLEET_EINVAL, "begun as another kind");
    begin(&w);
    w.head.kind = FL_MSG_KINDS;
    check_refused(&w, FLEET_EFORMAT, "no such kind");
    net_close_pool();
}

TEST(memory_that_runs_out_while_writing_is_reported)
{
    static fl_msg_writer w;
    fleet_status status = FLEET_ENOMEM;
    fl_packet *p;
    int n = 0;

    for (; status == FLEET_ENOMEM; n++) {
        net_open_pool();
        fl_memory_fail_at(n + 1, false);
        begin(&w);
        fl_msg_text(&w, FL_SECTION_TEXT, "text");
        fl_msg_text(&w, FL_SECTION_TEXT, "text");
        status = fl_msg_end(&w, true, &p);
        fl_packet_drop(p);
        net_close_pool();
    }
    fl_memory_fail_at(0, false);
    CHECK_OK(status);
    CHECK(n > 4);
}
