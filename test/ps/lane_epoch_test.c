/* lane_epoch_test.c - rows that go between a pull and its push, and versions
 * that are larger than 32 bits. */
#define SUITE lane_epoch
#include "lane_kit.h"
#include "test.h"

#include <string.h>

enum { DIM_MOST = 16 };

static int64_t dim_of(const lane_kit *k)
{
    return k->layout.table[0]->dim;
}

static fl_rows *table_of(const lane_kit *k)
{
    return k->layout.table[0];
}

static void pull(lane_kit *k, uint64_t version, const uint64_t *key, uint32_t n)
{
    fl_msg_head head = lane_head(FL_MSG_PULL, 0, 0, 0);
    fl_msg_writer w;
    fl_section *s;

    lane_begin(k, &w, &head);
    s = fl_msg_section(&w, FL_SECTION_ROWS, 0);
    s->n_key = n;
    s->version = version;
    memcpy(fl_msg_column(&w, FL_COLUMN_KEYS, n * sizeof *key), key,
           n * sizeof *key);
    lane_tell(k, &w, 0);
    lane_hear_status(k, 0, FL_ANSWER_OK);
}

/* --- rows that go under a pull and its push ------------------------------- */

/* What the pull has found is erased, or all is cleared, before its push. */
TEST(a_push_makes_the_rows_that_have_gone_since_its_pull)
{
    const uint64_t key[] = {5, 6};
    float want[DIM_MOST];
    int64_t erased;
    lane_kit k;

    for (int how = 0; how < 2; how++) {
        fl_rows *rows;
        float *row;

        lane_open(&k, SIM_SGD, 1, false);
        rows = table_of(&k);
        CHECK(dim_of(&k) <= DIM_MOST);
        lane_push_rows(&k, 0, 1, key, 2, 1);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        pull(&k, 0, key, 2);
        if (how == 0)
            CHECK_OK(rows->methods->erase(rows, key, 2, &erased));
        else
            rows->methods->clear(rows);
        CHECK_INT(rows->methods->count(rows), 0);
        lane_push_rows(&k, 0, 2, key, 2, 1);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        CHECK_INT(rows->methods->count(rows), 2);
        CHECK_OK(rows->methods->find(rows, key, 1, &row));
        CHECK_INT(fl_row_of(row)->step, 1);
        CHECK_INT(fl_row_of(row)->changed_at, 2);
        fl_filler_row(&rows->filler, 5, want, dim_of(&k));
        for (int64_t i = 0; i < dim_of(&k); i++)
            want[i] -= 0.25f * (1 + (float)(i % 5));
        CHECK(memcmp(row, want, (size_t)dim_of(&k) * sizeof *row) == 0);
        lane_close(&k);
    }
}

static void send_clip(lane_kit *k, uint64_t step)
{
    fl_msg_head head = lane_head(FL_MSG_CLIP, 0, step, 0);
    fl_msg_writer w;

    lane_begin(k, &w, &head);
    fl_msg_section(&w, FL_SECTION_CLIP, 0)->learning_rate = 1;
    lane_tell(k, &w, 0);
}

/* Of rows it knows what pulls have found. */
TEST(rows_that_go_while_a_sum_waits_for_its_clip_are_made_again)
{
    const uint64_t key[] = {5, 6};
    int64_t erased;
    fl_rows *rows;
    float *row;
    lane_kit k;

    lane_open(&k, SIM_SGD_CLIP, 1, true);
    rows = table_of(&k);
    lane_push_rows(&k, 0, 1, key, 2, 1);
    lane_hear_status(&k, 0, FL_ANSWER_NORMS);
    send_clip(&k, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    pull(&k, 1, key, 2);
    lane_push_rows(&k, 0, 2, key, 2, 1);
    lane_hear_status(&k, 0, FL_ANSWER_NORMS);
    CHECK_OK(rows->methods->erase(rows, key, 2, &erased));
    CHECK_INT(erased, 2);
    send_clip(&k, 2);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_INT(rows->methods->count(rows), 2);
    CHECK_OK(rows->methods->find(rows, key, 1, &row));
    CHECK_INT(fl_row_of(row)->step, 1);
    lane_close(&k);
}

/* --- versions ------------------------------------------------------------- */

static fleet_status count_row(void *arg, int bucket, uint64_t key,
                              const float *row)
{
    (void)bucket;
    (void)row;
    CHECK(key == 6);
    ++*(int *)arg;
    return FLEET_OK;
}

TEST(versions_have_64_bits)
{
    const int64_t many = (int64_t)1 << 32;
    fl_rows_stat stat;
    int changed = 0;
    fl_rows *rows;
    float *row;
    lane_kit k;
    uint64_t key = 6;

    lane_open(&k, SIM_SGD, 1, false);
    rows = table_of(&k);
    lane_load(&k, 0, 1, "a path");
    k.store->updates = many - 1;
    fl_lane_command_done(k.lane, FLEET_OK, "loaded", 0, 0, k.now_ms);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 0, 2, 5, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    lane_push(&k, 0, 3, key, 1);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    CHECK_OK(rows->methods->find(rows, &key, 1, &row));
    CHECK(fl_row_of(row)->changed_at == (uint64_t)many + 1);
    CHECK_OK(
        rows->methods->each_changed(rows, (uint64_t)many, count_row, &changed));
    CHECK_INT(changed, 1);
    CHECK_OK(rows->methods->stat(rows, &stat));
    CHECK(stat.changed_at == (uint64_t)many + 1);
    pull(&k, 0, &key, 1);
    CHECK(k.msg.section[0].version == (uint64_t)many + 1);
    lane_close(&k);
}
