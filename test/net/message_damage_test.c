/* message_damage_test.c - messages that were cut, flipped or made up are
 * refused, or read without harm. */
#define _GNU_SOURCE
#define SUITE message_damage
#include "test.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "net_kit.h"

/* The packet's frames in blocks of exactly their sizes, so that
 * AddressSanitizer sees a byte too much; misaligned if `shift`. */
static fl_packet copy_of(const fl_packet *p, size_t shift)
{
    fl_packet copy = {.n_frame = p->n_frame, .bytes = p->bytes};

    copy.frame = calloc((size_t)p->n_frame + 1, sizeof *copy.frame);
    for (int i = 0; i < p->n_frame; i++) {
        uint8_t *data = malloc(p->frame[i].size + shift + 1);

        memcpy(data + shift, p->frame[i].data, p->frame[i].size);
        copy.frame[i] = (fl_frame){data + shift, p->frame[i].size};
    }
    return copy;
}

static void free_copy(fl_packet *p, size_t shift)
{
    for (int i = 0; i < p->n_frame; i++)
        free((uint8_t *)p->frame[i].data - shift);
    free(p->frame);
}

/* Whatever was decoded: all of it may be read. */
static uint32_t read_all(const fl_msg *msg)
{
    uint32_t sum = 0;

    for (int i = 0; i < msg->head.n_section; i++)
        for (int bit = 0; bit < FL_N_COLUMN; bit++)
            sum = fl_crc32c(sum, msg->column[i][bit].data,
                            msg->column[i][bit].size);
    return sum;
}

TEST(misaligned_frames_are_read)
{
    static fl_msg msg;

    net_open_pool();
    for (size_t shift = 1; shift < 8; shift++) {
        fl_packet *p = net_sample(FL_MSG_ANSWER, true);
        fl_packet copy = copy_of(p, shift);

        CHECK_OK(fl_msg_decode(&copy, &msg));
        CHECK_INT(msg.head.step, net_head.step);
        net_check_section(&msg, 4, 5, 55);
        free_copy(&copy, shift);
        fl_packet_drop(p);
    }
    net_close_pool();
}

/* Frame `i` of the packet only `size` bytes long, in a block of that size. */
static fleet_status decode_cut(const fl_packet *p, int i, size_t size)
{
    static fl_msg msg;
    fl_packet copy = *p;
    fl_frame frame[FL_MOST_FRAME];
    fleet_status status;

    memcpy(frame, p->frame, (size_t)p->n_frame * sizeof *frame);
    frame[i] = (fl_frame){malloc(size + !size), size};
    memcpy(frame[i].data, p->frame[i].data, size);
    copy.frame = frame;
    status = fl_msg_decode(&copy, &msg);
    if (status == FLEET_OK)
        read_all(&msg);
    free(frame[i].data);
    return status;
}

TEST(every_frame_that_is_cut_is_refused)
{
    net_open_pool();
    for (int kind = FL_MSG_STEP; kind < FL_MSG_KINDS; kind++) {
        fl_packet *p = net_sample(kind, true);

        for (int i = 0; i < p->n_frame; i++)
            for (size_t size = 0; size < p->frame[i].size; size++)
                CHECK_STATUS(decode_cut(p, i, size), FLEET_EFORMAT);
        fl_packet_drop(p);
    }
    net_close_pool();
}

/* Only columns of no fixed length may then be shorter. */
TEST(columns_that_no_sum_covers_are_cut_without_harm)
{
    fl_packet *p;
    int n_ok = 0;

    net_open_pool();
    p = net_sample(FL_MSG_STEP, false);
    for (int i = 0; i < p->n_frame; i++)
        for (size_t size = 0; size < p->frame[i].size; size++) {
            fleet_status status = decode_cut(p, i, size);

            CHECK(status == FLEET_EFORMAT || (status == FLEET_OK && i > 1));
            n_ok += status == FLEET_OK;
        }
    CHECK(n_ok > 0);
    fl_packet_drop(p);
    net_close_pool();
}

TEST(a_missing_or_an_additional_frame_is_refused)
{
    static fl_msg msg;
    fl_frame frame[FL_MOST_FRAME] = {{NULL, 0}};
    fl_packet *p, copy;

    net_open_pool();
    for (int whole = 0; whole < 2; whole++) {
        p = net_sample(FL_MSG_STEP, whole);
        copy = *p;
        copy.frame = frame;
        memcpy(frame, p->frame, (size_t)p->n_frame * sizeof *frame);
        for (copy.n_frame = 0; copy.n_frame < p->n_frame; copy.n_frame++)
            CHECK_STATUS(fl_msg_decode(&copy, &msg), FLEET_EFORMAT);
        frame[p->n_frame] = (fl_frame){(void *)"more", 4};
        copy.n_frame = p->n_frame + 1;
        CHECK_STATUS(fl_msg_decode(&copy, &msg), FLEET_EFORMAT);
        fl_packet_drop(p);
    }
    net_close_pool();
}

static void flip_all_bits(const fl_packet *p, int n_frame)
{
    static fl_msg msg;

    for (int i = 0; i < n_frame; i++)
        for (size_t bit = 0; bit < 8 * p->frame[i].size; bit++) {
            uint8_t *byte = (uint8_t *)p->frame[i].data + bit / 8;
            fleet_status status;

            *byte ^= (uint8_t)(1 << bit % 8);
            status = fl_msg_decode(p, &msg);
            if (status != FLEET_EFORMAT && status != FLEET_EUNSUPPORTED)
                test_fail(__FILE__, __LINE__, "frame %d, bit %zu", i, bit);
            CHECK_INT(status == FLEET_EUNSUPPORTED, i == 0 && bit / 8 == 4);
            *byte ^= (uint8_t)(1 << bit % 8);
        }
    CHECK_OK(fl_msg_decode(p, &msg));
}

TEST(every_bit_that_is_flipped_in_head_and_sections_is_noticed)
{
    net_open_pool();
    for (int kind = FL_MSG_STEP; kind < FL_MSG_KINDS; kind++) {
        fl_packet *p = net_sample(kind, false);

        flip_all_bits(p, 2);
        fl_packet_drop(p);
    }
    net_close_pool();
}

TEST(every_bit_that_is_flipped_anywhere_is_noticed_when_the_sum_covers_all)
{
    fl_packet *p;

    net_open_pool();
    p = net_sample(FL_MSG_STEP, true);
    flip_all_bits(p, p->n_frame);
    fl_packet_drop(p);
    net_close_pool();
}

/* A byte changed, and the sum made right: what only the checks can find. */
static void forge(const fl_packet *p, int i, size_t at, const void *bytes,
                  size_t size)
{
    uint8_t *head = p->frame[0].data;
    uint32_t sum;

    memcpy((uint8_t *)p->frame[i].data + at, bytes, size);
    memset(head + 60, 0, 4);
    sum = fl_crc32c(0, head, p->frame[0].size);
    if (p->n_frame > 1)
        sum = fl_crc32c(sum, p->frame[1].data, p->frame[1].size);
    memcpy(head + 60, &sum, 4);
}

static void check_forged(int i, size_t at, const void *bytes, size_t size,
                         const char *words)
{
    static fl_msg msg;
    fl_packet *p = net_sample(FL_MSG_ANSWER, false);

    forge(p, i, at, bytes, size);
    CHECK_FAILS(fl_msg_decode(p, &msg), FLEET_EFORMAT, words);
    fl_packet_drop(p);
}

TEST(what_does_not_exist_is_refused_by_name)
{
    const uint32_t huge = 0xffffffff;
    const uint8_t no_op = FL_SECTION_OPS;
    char size_words[40], op_words[40];

    snprintf(size_words, sizeof size_words, "sections have %d bytes, not 480",
             32 * (FL_SECTION_OPS - 1)); /* the sample has one of each */
    snprintf(op_words, sizeof op_words, "section 1: no such op: %d", no_op);
    net_open_pool();
    check_forged(0, 0, "FLAT", 4, "begins with 0x54414c46, not 0x4d544c46");
    check_forged(0, 5, "\0", 1, "head has 88 bytes, not 64");
    check_forged(0, 6, "\x80", 1, "no such flags: 0x0080");
    check_forged(0, 58, "\xff", 1, "255 sections, more than 64");
    check_forged(0, 58, "\x0f", 1, size_words);
    check_forged(0, 59, "\x09", 1, "no such status: 9");
    check_forged(1, 4, "\0", 1, "section 0: no such op: 0");
    check_forged(1, 36, &no_op, 1, op_words);
    check_forged(1, 38, "\4", 1, "section 1: no such codec: 4");
    check_forged(1, 70, "\1", 1, "section 2: no such codec: 1"); /* has none */
    check_forged(1, 39, "\x40", 1, "section 1: no such columns: 0x40");
    check_forged(1, 40, &huge, 4, "section 1: 4294967295 runs without");
    check_forged(1, 44, &huge, 4, "column 2 has 24 bytes, not 34359738360");
    check_forged(1, 8, &huge, 4, "column 1 has 16 bytes, not 34359738360");
    check_forged(1, (FL_SECTION_OPS - 2) * 32 + 7, "\1", 1, "are spoken of");
    net_close_pool();
}

TEST(a_kind_without_a_name_is_refused)
{
    static fl_msg msg;
    fl_packet *p;

    net_open_pool();
    for (int kind = 0; kind < 256; kind++) {
        bool known = kind >= FL_MSG_HELLO && kind < FL_MSG_KINDS &&
                     kind != FL_MSG_ANSWER; /* has a longer head */

        p = net_sample(FL_MSG_STEP, false);
        forge(p, 0, 5, &(uint8_t){(uint8_t)kind}, 1);
        CHECK_STATUS(fl_msg_decode(p, &msg), known ? FLEET_OK : FLEET_EFORMAT);
        fl_packet_drop(p);
    }
    net_close_pool();
}

TEST(another_version_is_refused_so_that_it_can_be_answered)
{
    static fl_msg msg;
    fl_packet *p;

    net_open_pool();
    p = net_sample(FL_MSG_HELLO, false);
    forge(p, 0, 4, "\2", 1);
    CHECK_FAILS(fl_msg_decode(p, &msg), FLEET_EUNSUPPORTED, "speaks 1");
    CHECK_INT(msg.head.version, 2);
    CHECK_INT(msg.head.kind, FL_MSG_HELLO);
    CHECK_INT(msg.head.stream, net_head.stream);
    CHECK_INT(msg.head.request, net_head.request);
    CHECK_INT(msg.head.n_section, 0);
    fl_packet_drop(p);
    net_close_pool();
}

/* Almost a message: numbers that are mostly possible, and a right sum. */
static void make_likely(fl_packet *p)
{
    uint8_t *head = p->frame[0].data;
    size_t size = p->n_frame > 1 ? p->frame[1].size : 0;

    head[5] = p->frame[0].size == 88 ? 9 : head[5] % 10;
    head[6] &= 31;
    head[7] = 0;
    head[58] = (uint8_t)(size / 32);
    head[59] &= head[5] == 9 ? 7 : 0;
    for (size_t k = 0; k + 32 <= size; k += 32) {
        uint8_t *section = (uint8_t *)p->frame[1].data + k;

        section[4] = section[4] % 12;
        section[5] = 0;
        section[6] = section[4] < 3 ? section[6] % 5 : 0;
        section[7] &= 62;
        memset(section + 8, 0, 4);
        section[12] &= 7;
        memset(section + 13, 0, 3);
    }
    forge(p, 0, 0, "FLTM\1", 5);
}

/* Frames of any bytes, half of them likely ones. */
static void random_packet(fl_packet *p, unsigned *seed)
{
    p->n_frame = rand_r(seed) % 9;
    for (int i = 0; i < p->n_frame; i++) {
        static const size_t sizes[] = {0, 1, 4, 8, 32, 64, 88, 200};
        size_t size = sizes[rand_r(seed) % 8];

        p->frame[i] = (fl_frame){malloc(size + 1), size};
        net_fill_bytes(p->frame[i].data, size, (unsigned)rand_r(seed));
    }
    if (rand_r(seed) % 2 && p->n_frame > 0 && p->frame[0].size >= 64)
        make_likely(p);
}

TEST(random_frames_do_no_harm)
{
    static fl_msg msg;
    fl_frame frame[9];
    fl_packet p = {.frame = frame};
    unsigned seed = 11;
    int n_ok = 0;

    for (int round = 0; round < 300000 / test_fraction(); round++) {
        fleet_status status;

        random_packet(&p, &seed);
        status = fl_msg_decode(&p, &msg);
        if (status == FLEET_OK)
            read_all(&msg);
        else
            CHECK(status == FLEET_EFORMAT || status == FLEET_EUNSUPPORTED);
        n_ok += status == FLEET_OK;
        for (int i = 0; i < p.n_frame; i++)
            free(frame[i].data);
    }
    CHECK(n_ok > 0);
}
