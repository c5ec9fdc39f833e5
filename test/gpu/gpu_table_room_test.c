/* gpu_table_room_test.c - room for rows and ids in a GPU's memory: it grows
 * without a wait; what has none, or what fails otherwise, loses nothing. */
#define SUITE gpu_table_room
#include "gpu_kit.h"
#include "table_kit.h"
#include "test.h"

#include <math.h>

#include "fleet/job/handle.h"
#include "runtime/exec/executor.h"

/* --- room ----------------------------------------------------------------- */

TEST(a_table_grows_and_keeps_its_rows)
{
    lookup_case c = rows_kit_mixed;
    lookup_scene s, here;
    int64_t first = 0;

    for (int i = 0; i < 6; i++)
        c.slot[i].below = 1000000;
    gpu_kit_open();
    lookup_open(&s, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    for (int i = 0; i < 12; i++) {
        rows_kit_train(&s, s.e, i);
        rows_kit_train(&here, here.e, i);
        if (i == 0)
            first = rows_kit_there(&s)->now.room;
        if (i % 5 == 0) /* room without a wait that says how many there are */
            CHECK_OK(fleet_executor_flush(s.e));
    }
    CHECK(rows_kit_there(&s)->now.room > first);
    CHECK(kit_hash(s.f) == kit_hash(here.f));
    CHECK(rows_kit_count(&s) <= rows_kit_there(&s)->now.room);
    lookup_close(&s);
    lookup_close(&here);
    gpu_kit_close();
}

TEST(a_table_with_a_number_of_rows_has_no_room_for_more)
{
    lookup_case c = rows_kit_mixed;
    lookup_scene s;

    c.rows = 17;
    gpu_kit_open();
    lookup_open(&s, &c);
    for (int i = 0; i < 3; i++)
        rows_kit_train(&s, s.e, i);
    CHECK_INT(rows_kit_there(&s)->now.room, 17);
    CHECK_INT(rows_kit_count(&s), 17);
    lookup_close(&s);
    gpu_kit_close();
}

/* Batches of more and more ids, also inside a merge group, whose sums stay. */
static uint64_t hash_of_growing_batches(const char *device, int merge)
{
    lookup_case c = {.slot = {{"ids", 0, -1, FLEET_SUM, 90}},
                     .n = 1,
                     .dim = {5, 5},
                     .concat = true,
                     .batch = 8,
                     .threads = 1,
                     .device = device,
                     .merge = merge};
    lookup_scene s;
    uint64_t hash;

    lookup_open(&s, &c);
    for (int i = 0; i < 6; i++) {
        kit_batch *b = kit_batch_new(8);

        kit_ragged(b, "ids", 1 + 7 * i * i, 90, i);
        kit_floats(b, "by", 5, i);
        CHECK_OK(kit_run(s.e, b));
        kit_batch_free(b);
    }
    CHECK_OK(fleet_executor_flush(s.e));
    hash = kit_hash(s.f);
    lookup_close(&s);
    return hash;
}

TEST(batches_may_have_more_ids_than_those_before)
{
    gpu_kit_open();
    for (int merge = 1; merge <= 4; merge++)
        CHECK(hash_of_growing_batches("gpu:0", merge) ==
              hash_of_growing_batches(NULL, merge));
    gpu_kit_close();
}

TEST(more_ids_than_can_be_numbered_are_refused)
{
    lookup_case c = rows_kit_mixed;
    lookup_scene s;
    kit_batch *b;
    int64_t *offsets, n;

    gpu_kit_open();
    lookup_open(&s, &c);
    rows_kit_train(&s, s.e, 0);
    b = lookup_batch(&s, 1);
    offsets = (int64_t *)(uintptr_t)b->feed[3].offsets;
    n = offsets[c.batch];
    offsets[c.batch] = INT64_C(1) << 31; /* and no such memory */
    CHECK_FAILS(kit_run(s.e, b), FLEET_EINVAL,
                "table \"first\": too many ids in a batch");
    offsets[c.batch] = n;
    CHECK_OK(kit_run(s.e, b));
    kit_batch_free(b);
    lookup_close(&s);
    gpu_kit_close();
}

/* --- no wait -------------------------------------------------------------- */

/* The GPU does nothing for a while: two iterations are queued all the same, and
 * only the third one waits for the first. */
TEST(iterations_are_queued_and_not_waited_for)
{
    lookup_scene s;
    kit_batch *b;

    gpu_kit_open();
    lookup_open(&s, &rows_kit_mixed);
    b = lookup_batch(&s, 0);
    for (int i = 0; i < 4; i++)
        CHECK_OK(kit_run(s.e, b));
    CHECK_OK(fleet_executor_flush(s.e));
    s.e->place.gpu->deadline_ms = 20;
    gpu_kit_control()->set_busy(true);
    for (int i = 0; i < 2; i++)
        CHECK_OK(kit_run(s.e, b));
    CHECK_FAILS(kit_run(s.e, b), FLEET_ETIMEDOUT, "was not done after 20 ms");
    gpu_kit_control()->set_busy(false);
    kit_batch_free(b);
    lookup_close(&s);
    gpu_kit_close();
}

/* --- what fails ----------------------------------------------------------- */

/* With ids that nobody has seen before. */
TEST(a_batch_whose_loss_is_not_finite_makes_and_changes_no_row)
{
    lookup_case c = rows_kit_mixed;
    fleet_status status;
    lookup_scene s;
    uint64_t hash;
    int64_t rows;
    kit_batch *b;

    gpu_kit_open();
    for (c.merge = 1; c.merge <= 2; c.merge++) {
        lookup_open(&s, &c);
        for (int i = 0; i < 2; i++)
            rows_kit_train(&s, s.e, i);
        hash = kit_hash(s.f);
        rows = rows_kit_count(&s);
        b = lookup_batch(&s, 2);
        for (int i = 0; i < 37; i++)
            ((int64_t *)(void *)(uintptr_t)b->feed[0].data)[i] = 1000 + i;
        ((float *)(void *)(uintptr_t)b->feed[6].data)[5] = NAN;
        status = kit_run(s.e, b);
        for (int i = 0; i < 3 && status == FLEET_OK; i++)
            status = kit_run(s.e, b);
        CHECK_INT(status, FLEET_ENUMERIC);
        CHECK_CONTAINS(fleet_last_error(), "batch 3: the loss is not finite");
        CHECK_OK(fleet_executor_flush(s.e));
        CHECK_INT(rows_kit_count(&s), rows);
        CHECK(kit_hash(s.f) == hash);
        kit_batch_free(b);
        for (int i = 0; i < 2; i++)
            rows_kit_train(&s, s.e, i);
        CHECK(kit_hash(s.f) != hash);
        lookup_close(&s);
    }
    gpu_kit_close();
}

/* New ids in slots of a fixed number, and always the same number of others. */
static kit_batch *batch_of_new_ids(const lookup_scene *s, int step, int most)
{
    const lookup_case *c = s->c;
    kit_batch *b = kit_batch_new(c->batch);

    for (int i = 0; i < c->n; i++) {
        const lookup_slot *slot = &c->slot[i];

        if (slot->width < 0)
            kit_ragged(b, slot->name, most, slot->below, i);
        else
            kit_ids(b, slot->name, slot->width, slot->below, 10 * step + i);
    }
    kit_floats(b, "by", s->cols, 1);
    return b;
}

TEST(a_table_that_cannot_grow_says_what_for_and_keeps_its_rows)
{
    fleet_status status = FLEET_OK;
    lookup_case c = rows_kit_mixed;
    lookup_scene s, here;

    for (int i = 0; i < 3; i++)
        c.slot[i].below = 1000000;
    gpu_kit_open();
    lookup_open(&s, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    for (int i = 0; i < 20 && status == FLEET_OK; i++) {
        kit_batch *b = batch_of_new_ids(&s, i, 4);

        if (i == 4) /* all is prepared and captured, for both slots */
            gpu_kit_control()->fail_at(1);
        status = kit_run(s.e, b);
        if (status == FLEET_OK)
            CHECK_OK(kit_run(here.e, b));
        kit_batch_free(b);
    }
    CHECK_INT(status, FLEET_ENOMEM);
    CHECK_CONTAINS(fleet_last_error(), "table \"first\", room for ");
    CHECK_CONTAINS(fleet_last_error(), " rows: cuda: no ");
    gpu_kit_control()->fail_at(0);
    for (int i = 0; i < 6; i++) {
        CHECK(kit_hash(s.f) == kit_hash(here.f));
        rows_kit_train(&s, s.e, i);
        rows_kit_train(&here, here.e, i);
    }
    lookup_close(&s);
    lookup_close(&here);
    gpu_kit_close();
}

/* A batch with more ids inside a merge group, while the n-th allocation of the
 * GPU's memory fails: that group is lost, and no other one. */
static bool grow_without_memory(int n, uint64_t *hash)
{
    lookup_case c = rows_kit_mixed;
    kit_batch *small, *large;
    fleet_status status;
    lookup_scene s;

    c.merge = 3;
    lookup_open(&s, &c);
    small = batch_of_new_ids(&s, 0, 1);
    large = batch_of_new_ids(&s, 1, 40);
    CHECK_OK(kit_run(s.e, small));
    gpu_kit_control()->fail_at(n);
    status = kit_run(s.e, large);
    gpu_kit_control()->fail_at(0);
    if (status != FLEET_OK) {
        CHECK_INT(status, FLEET_ENOMEM);
        CHECK_OK(kit_run(s.e, small)); /* of a new group */
        CHECK_OK(kit_run(s.e, large));
    }
    CHECK_OK(kit_run(s.e, small));
    CHECK_OK(fleet_executor_flush(s.e));
    *hash = kit_hash(s.f);
    kit_batch_free(small);
    kit_batch_free(large);
    lookup_close(&s);
    return status != FLEET_OK;
}

TEST(room_for_ids_that_is_not_there_is_said_and_nothing_is_lost)
{
    uint64_t want, hash;
    int n = 1;

    gpu_kit_open();
    CHECK(!grow_without_memory(0, &want));
    while (n < 300 && grow_without_memory(n, &hash)) {
        CHECK(hash == want);
        n++;
    }
    CHECK(n > 20 && n < 300);
    gpu_kit_close();
}
