/* lane_newer_test.c - pulls that say which version of a row the worker has: the
 * lane sends the rows that have changed since, and says which these are. */
#define SUITE lane_newer
#include "lane_kit.h"
#include "test.h"

#include <string.h>

#include "base/memory.h"

enum { MOST = 4 };

/* Rows of table 0 of which the worker has a version. */
static void ask_newer(lane_kit *k, uint64_t wanted, uint32_t life,
                      const uint64_t *key, const uint64_t *version, uint32_t n)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    fl_msg_writer w;
    fl_section *s;

    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_NEWER, 0);
    s->n_key = n;
    s->n_batch = life;
    s->version = wanted;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, n * sizeof *key), key,
           n * sizeof *key);
    memcpy(fl_msg_column(&w, FL_COLUMN_VERSIONS, n * sizeof *version), version,
           n * sizeof *version);
    lane_tell(k, &w, 0);
}

/* A digit for each key, 1: it was sent; the life. */
static const char *hear_newer(lane_kit *k, uint32_t n, uint32_t life)
{
    static char text[MOST + 1];
    const fl_msg *msg = lane_hear(k, 0);
    size_t width = (size_t)k->layout.table[0]->dim * sizeof(float);
    uint32_t sent = 0;

    CHECK_INT(msg->head.status, FL_ANSWER_OK);
    CHECK_INT(msg->section[0].op, FL_SECTION_NEWER);
    CHECK_INT(msg->section[0].n_batch, life);
    CHECK_INT(msg->section[0].version, fl_lane_version(k->lane));
    CHECK_INT(msg->column[0][FL_AT_BYTES].size, (n + 7) / 8);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *bits = msg->column[0][FL_AT_BYTES].data;

        text[i] = (char)('0' + (bits[0] >> i & 1));
        sent += text[i] == '1';
    }
    text[n] = 0;
    CHECK_INT(msg->section[0].n_key, sent);
    CHECK_INT(msg->column[0][FL_AT_VALUES].size, sent * width);
    return text;
}

static float first_value(const lane_kit *k)
{
    float x;

    memcpy(&x, k->msg.column[0][FL_AT_VALUES].data, sizeof x);
    return x;
}

TEST(rows_that_have_not_changed_since_are_not_sent)
{
    const uint64_t key[] = {5, 6, 7}, version[] = {1, 1, 1};
    lane_kit k;

    lane_open(&k, SIM_COUNT, 1, false);
    lane_push_rows(&k, 0, 1, key, 2, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 0, 0, key, version, 3);
    CHECK_TEXT(hear_newer(&k, 3, 0), "001"); /* there is no row 7 */
    CHECK_NEAR((double)first_value(&k), 1, 0);
    lane_push_rows(&k, 0, 2, key + 1, 1, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 0, 0, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 0), "01");
    CHECK_NEAR((double)first_value(&k), 1 - 0.25 * (11 + 8), 0);
    lane_close(&k);
}

/* In sync the answer is of the version that is wanted, as of any pull. */
TEST(in_sync_they_are_of_the_version_that_is_wanted)
{
    const uint64_t key[] = {5, 6}, version[] = {1, 1};
    lane_kit k;

    lane_open(&k, SIM_COUNT, 1, true);
    lane_push_rows(&k, 0, 1, key, 2, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 2, 0, key, version, 2);
    lane_silent(&k);
    lane_push_rows(&k, 0, 2, key + 1, 1, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_TEXT(hear_newer(&k, 2, 0), "01");
    lane_close(&k);
}

/* Written rows and loaded ones have no new version. */
TEST(after_a_write_or_a_load_all_are_sent)
{
    const uint64_t key[] = {5, 6}, version[] = {1, 1};
    lane_kit k;

    lane_open(&k, SIM_COUNT, 1, false);
    lane_push_rows(&k, 0, 1, key, 2, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_write(&k, 0, 2, "rows");
    fl_lane_command_done(k.lane, FLEET_OK, "written", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 0, 0, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 1), "11");
    ask_newer(&k, 0, 1, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 1), "00");
    lane_load(&k, 0, 3, "path");
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 0, 1, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 2), "11");
    lane_read(&k, 0, "what"); /* changes nothing */
    fl_lane_command_done(k.lane, FLEET_OK, "this", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 0, 2, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 2), "00");
    lane_close(&k);
}

/* A row that has gone reads as a new one; made anew it has a new version. */
TEST(a_row_that_has_gone_is_sent)
{
    const uint64_t key[] = {5, 6}, version[] = {1, 1};
    int64_t erased;
    lane_kit k;

    lane_open(&k, SIM_COUNT, 1, false);
    lane_push_rows(&k, 0, 1, key, 2, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_OK(
        k.layout.table[0]->methods->erase(k.layout.table[0], key, 1, &erased));
    ask_newer(&k, 0, 0, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 0), "10");
    CHECK_NEAR((double)first_value(&k), 1, 0); /* its first value */
    lane_push_rows(&k, 0, 2, key, 1, 8);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    ask_newer(&k, 0, 0, key, version, 2);
    CHECK_TEXT(hear_newer(&k, 2, 0), "10");
    lane_close(&k);
}

TEST(keys_without_versions_are_refused)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    const uint64_t key = 5;
    fl_msg_writer w;
    fl_section *s;
    lane_kit k;

    lane_open(&k, SIM_COUNT, 1, false);
    lane_begin(&k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_NEWER, 0);
    s->n_key = 1;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, sizeof key), &key, sizeof key);
    lane_tell(&k, &w, 0);
    lane_hear_refusal(&k, 0, "1 versions that did not come");
    lane_close(&k);
}
