/* lane_live_test.c - a lane that keeps hashes of what it has finds a bit that
 * its memory has lost, before it trains on within the bounds that are promised,
 * and names it; a replay finds state that is not the log's. */
#define SUITE lane_live
#include "lane_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/store/live_hash.h"
#include "runtime/store/table.h"

enum { N_ROW = 200, PER_STEP = 5 };

static uint64_t step;

/* The next rows of all, in turn: a step of the only worker. */
static void push(lane_kit *k)
{
    uint64_t key[PER_STEP];

    for (int i = 0; i < PER_STEP; i++)
        key[i] = (step * PER_STEP + (uint64_t)i) % N_ROW + 1;
    lane_push_rows(k, 0, ++step, key, PER_STEP, 1);
}

static void open_trained(lane_kit *k, sim_kind kind, int live_hash)
{
    lane_live_hash = live_hash;
    lane_open(k, kind, 1, true);
    lane_live_hash = 0;
    step = 0;
    for (int i = 0; i < N_ROW / PER_STEP; i++) {
        push(k);
        lane_hear_status(k, 0, FL_ANSWER_OK);
    }
}

static float *row_of(lane_kit *k, uint64_t key)
{
    float *row;

    CHECK_OK(
        k->layout.table[0]->methods->find(k->layout.table[0], &key, 1, &row));
    CHECK(row != NULL);
    return row;
}

static void flip(float *x, int bit)
{
    uint32_t bits;

    memcpy(&bits, x, sizeof bits);
    bits ^= 1u << bit;
    memcpy(x, &bits, sizeof bits);
}

/* Pushes until the lane has noticed; how many rows were changed meanwhile. */
static int64_t push_until_found(lane_kit *k, int64_t most)
{
    int64_t n = 0;

    while (fl_lane_state_of(k->lane) == FL_LANE_RUNS && n < most) {
        push(k);
        if (fl_lane_state_of(k->lane) == FL_LANE_RUNS &&
            fl_lane_error(k->lane)->code == FLEET_OK) {
            lane_hear_status(k, 0, FL_ANSWER_OK);
            n += PER_STEP;
        } else {
            break;
        }
    }
    return n;
}

static void check_found(lane_kit *k, int64_t updates, const char *words)
{
    char after[60];

    snprintf(after, sizeof after, "after %d updates", (int)updates);
    CHECK_INT(fl_lane_error(k->lane)->code, FLEET_ECORRUPT);
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, words);
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, after);
    CHECK_CONTAINS(fl_lane_error(k->lane)->text, "server 0, lane 0");
}

TEST(a_bit_that_a_row_has_lost_ends_the_lane_within_the_bound)
{
    const int64_t bound =
        (N_ROW + (int64_t)2 * FL_N_BUCKET * FL_LIVE_EMPTY) * FL_LIVE_SHARE;
    char words[40];
    lane_kit k;

    for (int state = 0; state < 2; state++) {
        uint64_t key = 17 + (uint64_t)state;

        open_trained(&k, SIM_ADAM, 1);
        flip(row_of(&k, key) + state * k.layout.table[0]->dim, 3);
        CHECK(push_until_found(&k, 2 * bound) < bound);
        snprintf(words, sizeof words, "table \"%s\", bucket %d of 1024",
                 k.layout.table[0]->name, fl_bucket_of(fl_mix(key)));
        check_found(&k, fl_lane_version(k.lane), words);
        lane_close(&k);
    }
}

TEST(a_bit_that_a_block_has_lost_ends_the_lane_before_its_next_update)
{
    for (int state = 0; state < 2; state++) {
        const fl_param *p;
        lane_kit k;

        open_trained(&k, SIM_ADAM, 1);
        p = k.layout.param[0];
        flip(state ? p->flat->state[0] + p->offset
                   : p->flat->weight + p->offset,
             22);
        CHECK_INT(push_until_found(&k, 100), 0);
        CHECK_INT(fl_lane_version(k.lane), N_ROW / PER_STEP);
        check_found(&k, N_ROW / PER_STEP, p->name);
        lane_close(&k);
    }
}

/* Hashed after each fourth update, it is compared before the next one. */
TEST(between_the_updates_that_are_looked_at_blocks_are_not)
{
    const fl_param *p;
    lane_kit k;

    open_trained(&k, SIM_ADAM, 4);
    push(&k);
    lane_hear_status(&k, 0, FL_ANSWER_OK);
    p = k.layout.param[0];
    flip(p->flat->weight + p->offset, 2);
    CHECK_INT(push_until_found(&k, 8 * PER_STEP), 8 * PER_STEP);
    while (fl_lane_version(k.lane) % 4 != 0) {
        push(&k);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
    }
    flip(p->flat->weight + p->offset, 2);
    CHECK_INT(push_until_found(&k, 100), 0);
    lane_close(&k);
}

/* Workers of this library send it once; the lane takes it from others, too. */
TEST(a_key_that_is_twice_in_a_step_is_no_lost_bit)
{
    const uint64_t key[] = {3, 9, 3, 3, 11, 9};
    lane_kit k;

    for (int sums = 0; sums < 2; sums++) {
        open_trained(&k, SIM_ADAM, 1);
        k.store->sums = sums;
        for (int i = 0; i < 3; i++) {
            lane_push_rows(&k, 0, ++step, key, 6, 1);
            lane_hear_status(&k, 0, FL_ANSWER_OK);
            CHECK_OK(fl_live_hash_check(k.layout.table[0]));
        }
        k.store->sums = false;
        lane_close(&k);
    }
}

TEST(without_a_live_hash_nothing_is_looked_at)
{
    lane_kit k;

    open_trained(&k, SIM_ADAM, 0);
    CHECK(k.lane->aggregate.live == NULL);
    CHECK(k.layout.table[0]->live == NULL);
    flip(row_of(&k, 3), 3);
    CHECK_INT(push_until_found(&k, 1000), 1000);
    lane_close(&k);
}

/* --- a replay that comes to something else -------------------------------- */

typedef struct kept {
    char *data[2 * N_ROW];
    size_t size[2 * N_ROW];
    uint16_t kind[2 * N_ROW];
    int n;
} kept;

static fleet_status keep_record(void *arg, uint16_t kind,
                                const fl_journal_part *part, size_t n)
{
    kept *j = arg;
    size_t size = 0;

    for (size_t i = 0; i < n; i++)
        size += part[i].size;
    j->data[j->n] = malloc(size + 1);
    j->size[j->n] = 0;
    for (size_t i = 0; i < n; i++) {
        if (part[i].size > 0)
            memcpy(j->data[j->n] + j->size[j->n], part[i].data, part[i].size);
        j->size[j->n] += part[i].size;
    }
    j->kind[j->n++] = kind;
    return FLEET_OK;
}

static fleet_status commit_nothing(void *arg)
{
    (void)arg;
    return FLEET_OK;
}

/* With a bit flipped before record `at`, of a row that it changes, or of a
 * block: the next record that says what the lane had is the first to fail. */
static void replay_with_flip(kept *j, int at, bool block, const char *words)
{
    fleet_status status = FLEET_OK;
    lane_kit k;
    int i;

    lane_live_hash = 1;
    lane_open(&k, SIM_ADAM, 1, true);
    lane_live_hash = 0;
    fl_lane_begin_replay(k.lane, k.now_ms);
    for (i = 0; i < j->n && status == FLEET_OK; i++) {
        const fl_journal_record r = {.lsn = (uint64_t)i + 1,
                                     .kind = j->kind[i],
                                     .size = j->size[i],
                                     .data = j->data[i]};
        const fl_param *p = k.layout.param[0];

        if (i == at && block) {
            flip(p->flat->weight + p->offset, 2);
            fl_aggregate_live_forget(&k.lane->aggregate);
        } else if (i == at) {
            flip(row_of(&k, (uint64_t)(i * PER_STEP % N_ROW + 1)), 2);
        }
        status = fl_lane_replay(k.lane, &r, k.now_ms);
    }
    CHECK_INT(i, at < 0 ? j->n : block ? at + 1 : at + 2);
    CHECK_INT(status, at < 0 ? FLEET_OK : FLEET_ECORRUPT);
    if (at >= 0)
        CHECK_CONTAINS(fleet_last_error(), words);
    lane_close(&k);
}

TEST(a_replay_that_comes_to_other_rows_is_named_with_the_next_record)
{
    static kept j;
    lane_kit k;

    j.n = 0;
    lane_journal = (fl_journal_sink){&j, keep_record, commit_nothing};
    open_trained(&k, SIM_ADAM, 1);
    CHECK_INT(push_until_found(&k, N_ROW), N_ROW);
    lane_journal = (fl_journal_sink){0};
    replay_with_flip(&j, -1, false, "");
    replay_with_flip(&j, N_ROW / PER_STEP + 20, false,
                     "has other rows than when this was written");
    replay_with_flip(&j, 21, true, "dense parameters are other ones");
    for (int i = 0; i < j.n; i++)
        free(j.data[i]);
    lane_close(&k);
}
