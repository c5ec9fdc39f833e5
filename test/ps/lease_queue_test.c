/* lease_queue_test.c - leases: each is one worker's, whoever asks gets the next
 * one, who asks again gets the same; a new pass begins anew. */
#define SUITE lease_queue
#include "test.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/rng.h"
#include "ps/lease_queue.h"

static const fl_lease_pass first = {.pass = 3, .dataset = 1, .batches = 4};
static const fl_lease_pass second = {.pass = 4, .dataset = 1, .batches = 4};

/* Ask, and take what is fresh. */
static uint64_t ask(fl_lease_queue *q, uint32_t worker, const fl_lease_pass *p,
                    uint64_t sums, uint64_t number)
{
    uint64_t lease;
    bool fresh;

    CHECK_OK(fl_lease_find(q, worker, p, sums, number, &lease, &fresh));
    if (fresh)
        CHECK_OK(fl_lease_give(q, worker, p, sums, number, lease));
    return lease;
}

static void fails(fl_lease_queue *q, uint32_t worker, const fl_lease_pass *p,
                  uint64_t sums, uint64_t number, const char *words)
{
    uint64_t lease;
    bool fresh;

    CHECK_FAILS(fl_lease_find(q, worker, p, sums, number, &lease, &fresh),
                FLEET_EINVAL, words);
}

/* Each lease has one owner, none is left out, and of a worker they rise. */
TEST(each_lease_is_given_once_whoever_asks_when)
{
    enum { WORKERS = 5, LEASES = 200 };
    int owner[LEASES];
    uint64_t had[WORKERS] = {0};
    fl_lease_queue q;

    fl_lease_init(&q, WORKERS);
    for (int i = 0; i < LEASES; i++)
        owner[i] = -1;
    for (uint64_t i = 0; i < LEASES; i++) {
        uint32_t w = (uint32_t)fl_rng_below(7, 0, i, WORKERS);
        uint64_t lease = ask(&q, w, &first, 1, had[w]++);

        CHECK(lease < LEASES);
        CHECK_INT(owner[lease], -1);
        owner[lease] = (int)w;
    }
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint64_t n = 0, last = 0; n < had[w]; n++) { /* once more */
            uint64_t lease = ask(&q, w, &first, 1, n);

            CHECK_INT(owner[lease], (int)w);
            CHECK(n == 0 || lease > last);
            last = lease;
        }
    fl_lease_done(&q);
}

TEST(a_new_pass_begins_anew_once_a_sum_was_made)
{
    const fl_lease_pass other = {.pass = 3, .dataset = 1, .batches = 5};
    fl_lease_queue q;

    fl_lease_init(&q, 2);
    CHECK_INT(ask(&q, 0, &first, 8, 0), 0);
    CHECK_INT(ask(&q, 1, &first, 8, 0), 1);
    fails(&q, 1, &second, 8, 0,
          "worker 1 asks for a lease of 4 batches of pass 4 of dataset 1, and "
          "others have leases of 4 batches of pass 3 of dataset 1");
    fails(&q, 1, &other, 8, 0,
          "all workers train the same passes, with the "
          "same lease_lines and batch_size");
    CHECK_INT(ask(&q, 1, &second, 9, 0), 0);
    CHECK_INT(ask(&q, 1, &second, 9, 1), 1);
    CHECK_INT(ask(&q, 0, &second, 9, 0), 2);
    fails(&q, 0, &first, 9, 1, "of pass 3 of dataset 1, and others have");
    fl_lease_done(&q);
}

/* It was stopped: sums were made meanwhile. */
TEST(a_pass_that_goes_on_has_the_leases_that_it_had)
{
    fl_lease_queue q;

    fl_lease_init(&q, 2);
    CHECK_INT(ask(&q, 0, &first, 1, 0), 0);
    CHECK_INT(ask(&q, 1, &first, 1, 0), 1);
    CHECK_INT(ask(&q, 1, &first, 5, 0), 1);
    CHECK_INT(ask(&q, 0, &first, 5, 0), 0);
    CHECK_INT(ask(&q, 0, &first, 5, 1), 2);
    fl_lease_done(&q);
}

/* And passes over another dataset came between. */
TEST(a_pass_that_goes_on_behind_another_dataset_has_its_leases)
{
    const fl_lease_pass b = {.pass = 0, .dataset = 2, .batches = 4};
    fl_lease_queue q;

    fl_lease_init(&q, 2);
    CHECK_INT(ask(&q, 0, &first, 1, 0), 0);
    CHECK_INT(ask(&q, 1, &first, 1, 0), 1);
    CHECK_INT(ask(&q, 1, &b, 2, 0), 0);
    CHECK_INT(ask(&q, 0, &b, 2, 0), 1);
    CHECK_INT(ask(&q, 1, &first, 3, 0), 1);
    CHECK_INT(ask(&q, 1, &first, 3, 1), 2);
    CHECK_INT(ask(&q, 0, &first, 3, 0), 0);
    fails(&q, 0, &b, 3, 1, "of dataset 2, and others have");
    CHECK_INT(ask(&q, 0, &b, 4, 1), 2);
    CHECK_INT(ask(&q, 0, &b, 4, 0), 1);
    fl_lease_done(&q);
}

/* The process that does the end of a pass again asks for what it had, whatever
 * the others do; passes before are not kept for ever. */
TEST(leases_of_the_pass_before_are_remembered_and_of_older_ones_are_not)
{
    fl_lease_queue q;
    int n = 0;

    fl_lease_init(&q, 2);
    for (uint64_t i = 0; i < 100; i++) {
        const fl_lease_pass now = {.pass = i, .dataset = 1, .batches = 4};
        const fl_lease_pass was = {.pass = i - 1, .dataset = 1, .batches = 4};

        CHECK_INT(ask(&q, 1, &now, i, 0), 0);
        CHECK_INT(ask(&q, 0, &now, i, 0), 1);
        if (i > 0)
            CHECK_INT(ask(&q, 0, &was, i - 1, 0), 1);
        CHECK(!q.before || !q.before->before);
    }
    for (uint32_t i = 2; i < 500; i++)
        ask(&q, 0, &(fl_lease_pass){.dataset = i, .batches = 1}, 100 + i, 0);
    for (const fl_lease_queue *at = &q; at; at = at->before)
        n++;
    CHECK(n > 50 && n < 70);
    fl_lease_done(&q);
}

TEST(a_lease_out_of_turn_is_refused)
{
    fl_lease_queue q;

    fl_lease_init(&q, 2);
    fails(&q, 0, &first, 1, 1,
          "worker 0 asks for lease 2 of its own, and has "
          "had 0");
    CHECK_INT(ask(&q, 0, &first, 1, 0), 0);
    CHECK_INT(ask(&q, 0, &first, 1, 1), 1);
    CHECK_FAILS(fl_lease_give(&q, 0, &first, 1, 2, 1), FLEET_ECORRUPT,
                "lease 1 as lease 3 of worker 0, which has had 2");
    CHECK_FAILS(fl_lease_give(&q, 1, &first, 1, 1, 7), FLEET_ECORRUPT,
                "of worker 1, which has had 0");
    fl_lease_done(&q);
}

TEST(memory_that_runs_out_leaves_a_queue_that_works)
{
    for (int64_t n = 1, ok = 0; !ok; n++) {
        fl_lease_queue q;
        fleet_status status;

        fl_lease_init(&q, 2);
        fl_memory_fail_at(n, false);
        status = fl_lease_give(&q, 1, &first, 1, 0, 0);
        fl_memory_fail_at(0, false);
        ok = status == FLEET_OK;
        if (!ok) {
            CHECK_INT(status, FLEET_ENOMEM);
            CHECK_OK(fl_lease_give(&q, 1, &first, 1, 0, 0));
        }
        CHECK_INT(ask(&q, 0, &first, 1, 0), 1);
        fl_lease_done(&q);
    }
}
