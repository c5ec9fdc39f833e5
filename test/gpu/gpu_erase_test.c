/* gpu_erase_test.c - rows of a table on a GPU are erased and visited in the
 * host's memory, between fetching them and sending them again. */
#define SUITE gpu_erase
#include "away_rows.h"
#include "gpu_kit.h"
#include "table_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"

enum { MOST_BYTES = 40000 };

typedef struct listing {
    const fl_rows *rows;
    size_t n;
    char bytes[MOST_BYTES];
} listing;

static fleet_status list_row(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    listing *l = arg;
    size_t bytes =
        sizeof(fl_row_head) +
        (size_t)(l->rows->dim + fl_rows_floats(l->rows)) * sizeof(float);

    (void)bucket;
    CHECK(l->n + sizeof key + bytes <= sizeof l->bytes);
    memcpy(l->bytes + l->n, &key, sizeof key);
    l->n += sizeof key;
    memcpy(l->bytes + l->n, (const fl_row_head *)(const void *)row - 1, bytes);
    l->n += bytes;
    return FLEET_OK;
}

static void list_changed(const lookup_scene *s, uint64_t since, listing *l)
{
    l->rows = lookup_rows(s, 0);
    l->n = 0;
    CHECK_OK(fl_store_to_host(s->f->store));
    CHECK_OK(l->rows->methods->each_changed(l->rows, since, list_row, l));
}

static void compare(const lookup_scene *a, const lookup_scene *b,
                    uint64_t since)
{
    static listing x, y;

    list_changed(a, since, &x);
    list_changed(b, since, &y);
    CHECK(x.n > 0 && x.n == y.n);
    CHECK(memcmp(x.bytes, y.bytes, x.n) == 0);
}

/* Every second key. */
static void erase_rows(const lookup_scene *s)
{
    fl_rows *rows = lookup_rows(s, 0);
    int64_t n, all = rows_kit_count(s), erased = 0;

    for (uint64_t key = 0; key < 60; key += 2) {
        CHECK_OK(rows->methods->erase(rows, &key, 1, &n));
        erased += n;
    }
    CHECK(erased > 0);
    CHECK_INT(rows_kit_here(s), all - erased);
    fl_store_written(s->f->store);
}

TEST(rows_are_erased_and_visited_between_updates_on_the_gpu)
{
    const int64_t many = (int64_t)1 << 32;
    lookup_case c = rows_kit_mixed;
    lookup_scene there, here;

    c.optimizer = "adam";
    gpu_kit_open();
    lookup_open(&there, &c);
    c.device = NULL;
    lookup_open(&here, &c);
    there.f->store->updates = here.f->store->updates = many - 2;
    for (int step = 0; step < 4; step++) {
        if (step == 2) {
            erase_rows(&there);
            erase_rows(&here);
        }
        rows_kit_train(&there, there.e, step);
        rows_kit_train(&here, here.e, step);
        compare(&there, &here, 0);
        compare(&there, &here, (uint64_t)(many - 2 + step));
    }
    CHECK(kit_hash(there.f) == kit_hash(here.f));
    lookup_close(&there);
    lookup_close(&here);
    gpu_kit_close();
}

TEST(rows_that_are_erased_under_newer_ones_of_the_gpu_do_not_come_back)
{
    uint64_t key = 0;
    lookup_scene s;
    int64_t erased;
    fl_rows *rows;

    gpu_kit_open();
    lookup_open(&s, &rows_kit_mixed);
    rows = lookup_rows(&s, 0);
    rows_kit_train(&s, s.e, 0);
    CHECK(rows_kit_count(&s) > 0);
    rows_kit_train(&s, s.e, 1);
    CHECK_OK(fleet_executor_flush(s.e));
    for (erased = 0; erased == 0; key++)
        CHECK_OK(rows->methods->erase(rows, &key, 1, &erased));
    CHECK_FAILS(fl_store_to_host(s.f->store), FLEET_ESTATE,
                "table \"first\": rows were erased while newer ones were on "
                "the GPU");
    fl_store_written(s.f->store); /* the host's rows are the right ones */
    CHECK_OK(fl_store_to_host(s.f->store));
    rows_kit_train(&s, s.e, 2);
    CHECK(rows_kit_count(&s) > 0);
    lookup_close(&s);
    gpu_kit_close();
}

TEST(a_table_with_rows_out_of_memory_is_not_for_a_gpu)
{
    lookup_case c = rows_kit_mixed;
    lookup_scene s;
    kit_batch *b;

    c.make_rows = away_rows_make;
    gpu_kit_open();
    lookup_open(&s, &c);
    b = lookup_batch(&s, 0);
    CHECK_FAILS(kit_run(s.e, b), FLEET_EUNSUPPORTED,
                "its rows may be out of memory: they cannot be on a GPU");
    kit_batch_free(b);
    lookup_close(&s);
    gpu_kit_close();
}
