/* push_pull_fails_test.c - training with parameters that are kept elsewhere,
 * when the others fail, the batch does, or memory runs out. */
#define SUITE push_pull_fails
#include "workers_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* --- failures ------------------------------------------------------------ */

/* The n-th call of that kind fails; the batch does, and what was promised for
 * the next one; then all goes on as if that batch had not been. */
static void check_failure(fake_call call, int nth, int merge, bool ahead)
{
    kit_options o = {.merge = merge};
    int failed = 0;
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &o);
    work_open(&k, &c.m[0], 6, 50);
    c.w[0].fail_at[call] = nth;
    for (int i = 0; i < 6; i++)
        if (crew_train(c.m[0].e, &k, i, ahead) != FLEET_OK) {
            CHECK_TEXT(fleet_last_error(), "server 3 is not what it was");
            CHECK_INT(c.m[0].e->micro, 0);
            CHECK_INT(c.m[0].f->store->n_flat, 0);
            CHECK(!c.w[0].x.taken[0] && !c.w[0].x.taken[1]);
            failed++;
        }
    CHECK_INT(c.w[0].fail_at[call], 0);
    CHECK(failed == 1 || (failed == 0 && call == FAKE_PULL && ahead));
    CHECK_OK(fleet_executor_flush(c.m[0].e));
    CHECK_INT(c.m[0].f->store->updates, c.server.updates);
    work_close(&k);
    crew_close(&c);
}

TEST(a_call_that_fails_ends_its_iteration_and_no_other)
{
    for (int merge = 1; merge <= 2; merge++)
        for (int ahead = 0; ahead < 2; ahead++)
            for (int nth = 1; nth <= 3; nth++) {
                check_failure(FAKE_PULL, nth, merge, ahead);
                check_failure(FAKE_ARRIVE, nth, merge, ahead);
                check_failure(FAKE_PUSH, nth, merge, ahead);
            }
}

TEST(a_push_that_fails_at_the_end_of_a_group_is_reported_by_the_flush)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 3});
    work_open(&k, &c.m[0], 1, 50);
    CHECK_OK(crew_iterate(c.m[0].e, k.b[0]));
    c.w[0].fail_at[FAKE_PUSH] = 1;
    CHECK_FAILS(fleet_executor_flush(c.m[0].e), FLEET_EINVAL, "server 3");
    CHECK_INT(c.m[0].f->store->updates, 0);
    CHECK_OK(fleet_executor_flush(c.m[0].e)); /* the group is given up */
    CHECK_INT(c.server.updates, 0);
    work_close(&k);
    crew_close(&c);
}

TEST(a_batch_that_fails_is_not_pushed_and_the_next_is_pulled_again)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){0});
    work_open(&k, &c.m[0], 3, 50);
    ((float *)(uintptr_t)k.b[1]->feed[0].data)[7] = NAN;
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK_FAILS(crew_train(c.m[0].e, &k, 1, 1), FLEET_ENUMERIC,
                "batch 2: the loss is not finite, because input \"numbers\"");
    CHECK_OK(crew_train(c.m[0].e, &k, 2, 1));
    CHECK_TEXT(c.w[0].calls, "pull0 arrive0 push pull1a settle arrive1 drop1 "
                             "pull0 arrive0 push settle");
    work_close(&k);
    crew_close(&c);
}

/* The exchange comes and goes between groups alone. */
TEST(an_executor_follows_its_stores_exchange)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_MLP, &(kit_options){.merge = 2});
    work_open(&k, &c.m[0], 4, 50);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    c.m[0].f->store->remote = NULL;
    CHECK_FAILS(crew_iterate(c.m[0].e, k.b[1]), FLEET_ESTATE,
                "inside a merge group");
    CHECK_FAILS(fleet_executor_flush(c.m[0].e), FLEET_ESTATE,
                "inside a merge group");
    CHECK_INT(c.m[0].e->micro, 0); /* it is given up */
    c.m[0].f->store->remote = &c.w[0].x;
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK_OK(crew_train(c.m[0].e, &k, 1, 1));
    c.m[0].f->store->remote = NULL;
    CHECK_OK(crew_iterate(c.m[0].e, k.b[2]));
    CHECK_OK(crew_iterate(c.m[0].e, k.b[3]));
    CHECK_INT(c.server.updates, 1);
    CHECK_INT(c.m[0].f->store->updates, 2);
    memset(c.w[0].x.taken, 0, sizeof c.w[0].x.taken); /* it went with a pull */
    work_close(&k);
    crew_close(&c);
}

static bool train_without_memory(int64_t n)
{
    bool enough = true;
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR, &(kit_options){.merge = 2});
    work_open(&k, &c.m[0], 4, 50);
    fl_memory_fail_at(n, false);
    for (int i = 0; i < 4; i++) {
        fleet_status status = crew_train(c.m[0].e, &k, i, 1);

        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
        enough = enough && status == FLEET_OK;
    }
    enough = enough && fl_memory_count() < n;
    fl_memory_fail_at(0, false);
    CHECK_OK(crew_train(c.m[0].e, &k, 0, 1));
    CHECK_OK(crew_train(c.m[0].e, &k, 1, 1));
    work_close(&k);
    crew_close(&c);
    return enough;
}

TEST_LIMIT(training_survives_every_allocation_that_fails, 120)
{
    int64_t n = 1;

    while (!train_without_memory(n))
        n += 1 + n / 40;
    CHECK(n > 100);
}

/* --- memory -------------------------------------------------------------- */

TEST(a_step_allocates_nothing_once_its_capacities_have_settled)
{
    crew c;
    work k;

    crew_open(&c, 1, true, KIT_CTR,
              &(kit_options){.merge = 2, .threads = 2, .max_batch = 50});
    work_open(&k, &c.m[0], 8, 50);
    c.server.idle = true;
    fl_memory_fail_at(0, false);
    for (int i = 0; i < 32; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i % 8, i % 8 < 7));
    CHECK(fl_memory_count() > 0);
    CHECK_CONTAINS(c.w[0].calls, "arrive1 push pull0a settle"); /* both slots */
    fl_memory_fail_at(0, false);
    for (int i = 0; i < 16; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i % 8, i % 8 < 7));
    CHECK_INT(fl_memory_count(), 0);
    work_close(&k);
    crew_close(&c);
}
