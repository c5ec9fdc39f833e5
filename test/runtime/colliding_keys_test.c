/* colliding_keys_test.c - keys that were made to meet in one place of a hash
 * index take about as long as any other ones. */
#define SUITE colliding_keys
#include "gpu_kit.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/lookup/lookup_data.h"
#include "runtime/store/table.h"

enum { N = TEST_SLOWNESS > 10 ? 6000 : 60000 }; /* times are no times there */

/* Of one bucket, and equal in the low bits of their hash. */
static uint64_t *colliding_keys(void)
{
    uint64_t *key = malloc(N * sizeof *key);

    for (uint64_t i = 0; i < N; i++) {
        key[i] = fl_unmix((uint64_t)5 << 54 | i << 21);
        CHECK(fl_mix(key[i]) == ((uint64_t)5 << 54 | i << 21));
    }
    return key;
}

static uint64_t *ordinary_keys(void)
{
    uint64_t *key = malloc(N * sizeof *key);

    for (uint64_t i = 0; i < N; i++)
        key[i] = i * 7;
    return key;
}

typedef int64_t use_keys(const uint64_t *key);

static int64_t rows_ms(const uint64_t *key)
{
    fl_filler filler = {0};
    const int64_t begun = fl_now_ms();
    fl_rows *r;
    float *row;

    CHECK_OK(fl_table_make("t", 4, 0, &filler, &r));
    for (int i = 0; i < N; i++)
        CHECK_OK(r->methods->make(r, &key[i], 1, &row));
    CHECK_INT(r->methods->count(r), N);
    for (int i = 0; i < N; i++) {
        CHECK_OK(r->methods->find(r, &key[i], 1, &row));
        CHECK(row != NULL);
    }
    r->methods->destroy(r);
    return fl_now_ms() - begun;
}

static int64_t set_ms(const uint64_t *key)
{
    const int64_t begun = fl_now_ms();
    fl_key_set s = {0};
    bool is_new;

    CHECK_OK(fl_key_set_begin(&s, N));
    for (uint32_t i = 0; i < N; i++) {
        CHECK_INT(fl_key_set_add(&s, key[i], &is_new), i);
        CHECK(is_new);
    }
    fl_key_set_done(&s);
    return fl_now_ms() - begun;
}

/* At most so many times as long. */
static void check_time(use_keys *use, int times)
{
    uint64_t *ordinary = ordinary_keys(), *colliding = colliding_keys();
    int64_t most = times * use(ordinary) + 200 * TEST_SLOWNESS, ms;

    ms = use(colliding);
    if (ms > most)
        test_fail(__FILE__, __LINE__, "%d ms, more than %d", (int)ms,
                  (int)most);
    free(ordinary);
    free(colliding);
}

TEST(rows_of_a_table_are_made_and_found_as_fast_as_others)
{
    check_time(rows_ms, 10);
}

/* One step makes the rows, and the next one finds them. */
static int64_t gpu_rows_ms(const uint64_t *key)
{
    fleet *f = kit_handle(&(kit_options){.device = "gpu:0"});
    fleet_program *p = fleet_program_create(f);
    kit_batch *b = kit_batch_new(N);
    fleet_executor *e;
    fleet_var *x;
    int64_t begun;

    CHECK_OK(fleet_program_place(p, FLEET_GPU(0), NULL));
    x = fleet_sparse_embedding(
        p, fleet_data(p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2), 1, NULL);
    CHECK_OK(fleet_minimize(fleet_sgd(f, 1), fleet_mean(p, x)));
    memcpy(kit_ids(b, "ids", 1, 9, 0), key, N * sizeof *key);
    e = fleet_executor_create(p, NULL);
    begun = fl_now_ms();
    for (int i = 0; i < 2; i++)
        CHECK_OK(kit_run(e, b));
    CHECK_OK(fleet_executor_flush(e));
    begun = fl_now_ms() - begun;
    CHECK_OK(fl_store_to_host(f->store));
    CHECK_INT(fl_store_rows(f->store, "embedding")
                  ->methods->count(fl_store_rows(f->store, "embedding")),
              N);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    return begun;
}

TEST(rows_in_the_memory_of_a_gpu_are_too)
{
    gpu_kit_open();
    check_time(gpu_rows_ms, 4);
    gpu_kit_close();
}

TEST(keys_of_a_step_are_told_apart_as_fast_as_others)
{
    check_time(set_ms, 10);
}
