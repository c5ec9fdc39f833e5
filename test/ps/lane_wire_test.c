/* lane_wire_test.c - a lane that is sent values in fewer bytes, or asked for
 * them: what it makes of them, what it refuses, and what it counts. Its table
 * has rows of 3 numbers; its workers train with SGD at a rate of 0.25. */
#define SUITE lane_wire
#include "lane_kit.h"
#include "test.h"

#include <string.h>

#include "ps/codec.h"
#include "ps/codec_keys.h"

enum { DIM = 3, ROWS = 20 };

static void keys_of(fl_msg_writer *w, uint32_t n)
{
    uint64_t *key = fl_msg_column(w, FL_COLUMN_KEYS, n * sizeof *key);

    for (uint32_t i = 0; i < n; i++)
        key[i] = i;
}

/* A whole step of n rows; `extra` bytes of values too many. */
static void push_rows(lane_kit *k, fl_codec codec, uint64_t step, uint32_t n,
                      size_t extra)
{
    fl_msg_head head = lane_head(FL_MSG_STEP, 0, step, FL_MSG_END_OF_STEP);
    const fl_update_settings settings = {.learning_rate = 0.25f};
    size_t bytes = n * fl_codec_bytes(codec, DIM);
    float values[1000];
    fl_msg_writer w;
    fl_section *s;
    char *to;

    for (uint32_t i = 0; i < n * DIM; i++)
        values[i] = (float)(i % 5) * 0.3f;
    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    s->codec = (uint8_t)codec;
    keys_of(&w, n);
    to = fl_msg_column(&w, FL_COLUMN_VALUES, bytes + extra);
    memset(to, 0, bytes + extra);
    fl_codec_write(codec, to, values, false, n, DIM);
    lane_close_step(&w, 1, &settings);
    lane_tell(k, &w, 0);
}

static void pull_rows(lane_kit *k, fl_codec codec, uint32_t n)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    fl_msg_writer w;
    fl_section *s;

    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    s->codec = (uint8_t)codec;
    keys_of(&w, n);
    lane_tell(k, &w, 0);
}

/* All of table 0, as the answer has it. */
static void read_rows(lane_kit *k, fl_codec codec, float *to)
{
    const fl_msg *msg;

    pull_rows(k, codec, ROWS);
    msg = lane_hear(k, 0);
    CHECK_INT(msg->head.status, FL_ANSWER_OK);
    CHECK_INT(msg->section[0].codec, codec);
    CHECK_INT(msg->section[0].n_key, ROWS);
    CHECK_INT(msg->column[0][FL_AT_VALUES].size,
              ROWS * fl_codec_bytes(codec, DIM));
    fl_codec_read(codec, to, msg->column[0][FL_AT_VALUES].data, ROWS, DIM);
}

/* Rows that there are, and rows that are not there yet. */
TEST(a_pull_is_answered_as_it_asks)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    for (int round = 0; round < 2; round++) {
        float exact[ROWS * DIM], got[ROWS * DIM], want[ROWS * DIM];

        read_rows(&k, FL_CODEC_F32, exact);
        for (int c = FL_CODEC_F16; c < FL_N_CODEC; c++) {
            char bytes[ROWS * DIM * 4];

            read_rows(&k, (fl_codec)c, got);
            fl_codec_write((fl_codec)c, bytes, exact, false, ROWS, DIM);
            fl_codec_read((fl_codec)c, want, bytes, ROWS, DIM);
            CHECK(memcmp(got, want, sizeof want) == 0);
        }
        push_rows(&k, FL_CODEC_F32, (uint64_t)round + 1, ROWS / 2, 0);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    }
    lane_close(&k);
}

/* A step in fewer bytes is the step of what is read from them. */
TEST(a_step_is_applied_as_what_it_reads_as)
{
    for (int c = FL_CODEC_F16; c < FL_N_CODEC; c++) {
        float before[ROWS * DIM], after[ROWS * DIM], grad[ROWS * DIM];
        char bytes[ROWS * DIM * 4];
        lane_kit k;

        lane_open(&k, SIM_COUNT, 1, false); /* SGD, nothing else */
        read_rows(&k, FL_CODEC_F32, before);
        push_rows(&k, (fl_codec)c, 1, ROWS, 0);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        read_rows(&k, FL_CODEC_F32, after);
        for (int i = 0; i < ROWS * DIM; i++)
            grad[i] = (float)(i % 5) * 0.3f;
        fl_codec_write((fl_codec)c, bytes, grad, false, ROWS, DIM);
        fl_codec_read((fl_codec)c, grad, bytes, ROWS, DIM);
        for (int i = 0; i < ROWS * DIM; i++)
            CHECK_NEAR((double)after[i], (double)(before[i] - 0.25f * grad[i]),
                       0);
        lane_close(&k);
    }
}

/* A pull, or a step, of n rows whose keys are these bytes. */
static void send_packed(lane_kit *k, fl_msg_kind kind, uint64_t step,
                        uint32_t n, const void *bytes, size_t size)
{
    fl_msg_head head =
        lane_head(kind, 0, step, kind == FL_MSG_STEP ? FL_MSG_END_OF_STEP : 0);
    const fl_update_settings settings = {.learning_rate = 0.25f};
    fl_msg_writer w;
    fl_section *s;
    float *values;

    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    s->codec = FL_PACKED_KEYS;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, size), bytes, size);
    if (kind == FL_MSG_STEP) {
        values = fl_msg_column(&w, FL_COLUMN_VALUES, n * DIM * sizeof *values);
        for (uint32_t i = 0; i < n * DIM; i++)
            values[i] = 4;
        lane_close_step(&w, 1, &settings);
    }
    lane_tell(k, &w, 0);
}

TEST(packed_keys_are_those_keys)
{
    const uint64_t key[] = {3, 4, 9};
    float before[ROWS * DIM], after[ROWS * DIM];
    const fl_msg *msg;
    uint8_t bytes[40];
    size_t size = fl_keys_pack(bytes, key, 3);
    lane_kit k;

    lane_open(&k, SIM_COUNT, 1, false);
    read_rows(&k, FL_CODEC_F32, before);
    send_packed(&k, FL_MSG_STEP, 1, 3, bytes, size);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    read_rows(&k, FL_CODEC_F32, after);
    for (int i = 0; i < ROWS * DIM; i++)
        CHECK_NEAR((double)(before[i] - after[i]),
                   i / DIM == 3 || i / DIM == 4 || i / DIM == 9, 0);
    send_packed(&k, FL_MSG_PULL, 0, 3, bytes, size);
    msg = lane_hear(&k, 0);
    CHECK_INT(msg->section[0].n_key, 3);
    CHECK_INT(msg->section[0].codec, FL_CODEC_F32);
    CHECK(memcmp(msg->column[0][FL_AT_VALUES].data, after + 3 * DIM,
                 2 * DIM * sizeof *after) == 0);
    lane_close(&k);
}

TEST(packed_keys_that_are_none_are_refused)
{
    const uint64_t key[] = {3, 4, 9};
    uint8_t bytes[40];
    size_t size = fl_keys_pack(bytes, key, 3);
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    send_packed(&k, FL_MSG_STEP, 1, 3, bytes, size - 1);
    lane_hear_refusal(&k, 0, "step 1 of worker 0: 3 packed keys that are not");
    send_packed(&k, FL_MSG_PULL, 0, 4, bytes, size);
    lane_hear_refusal(&k, 0, "a pull of worker 0: 4 packed keys that are not");
    send_packed(&k, FL_MSG_PULL, 0, 1u << 28, bytes, size);
    lane_hear_refusal(&k, 0, "268435456 packed keys at once: expected 8388608");
    send_packed(&k, FL_MSG_STEP, 1, 3, bytes, size);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* Each section's would fit. */
TEST(packed_keys_of_a_message_are_bounded_together)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    fl_msg_writer w;
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    lane_begin(&k, &w, &head);
    for (int i = 0; i < 2; i++) {
        fl_section *s = fl_msg_section(&w, FL_SECTION_ROWS, 0);

        s->n_key = 5 << 20;
        s->codec = FL_PACKED_KEYS;
        memset(fl_msg_column(&w, FL_COLUMN_KEYS, 8), 0, 8);
    }
    lane_tell(&k, &w, 0);
    lane_hear_refusal(&k, 0, "10485760 packed keys at once: expected 8388608");
    lane_close(&k);
}

TEST(values_of_another_size_are_refused)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    push_rows(&k, FL_CODEC_INT8, 1, ROWS, 1);
    lane_hear_refusal(&k, 0, "60 numbers came with 101 bytes");
    push_rows(&k, FL_CODEC_BF16, 1, ROWS, 2);
    lane_hear_refusal(&k, 0, "60 numbers came with 122 bytes");
    push_rows(&k, FL_CODEC_BF16, 1, ROWS, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_close(&k);
}

/* The lane of lane_kit.h takes steps of 4,000 bytes: one of 170 rows has 2,376,
 * and 2,040 more when its values are floats. */
TEST(what_values_take_as_floats_counts)
{
    lane_kit k;

    lane_open(&k, SIM_SGD, 1, false);
    push_rows(&k, FL_CODEC_INT8, 1, 170, 0);
    lane_hear_refusal(&k, 0, "larger than 4000 bytes");
    CHECK_INT(fl_lane_counted(k.lane).open_bytes, 0);
    push_rows(&k, FL_CODEC_INT8, 1, 140, 0);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(fl_lane_counted(k.lane).open_bytes, 0);
    lane_close(&k);
}
