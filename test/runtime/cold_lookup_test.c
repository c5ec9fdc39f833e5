/* cold_lookup_test.c - lookups in tables whose rows are in a file as soon as no
 * step needs them. */
#define SUITE cold_lookup
#include "cold_kit.h"
#include "lookup_kit.h"
#include "test.h"

static const lookup_case mixed = {
    .slot = {{"one", 0, 1, FLEET_SUM, 40},
             {"three", 0, 3, FLEET_SUM, 60},
             {"other", 1, 1, FLEET_SUM, 30},
             {"some", 0, -1, FLEET_SUM, 50},
             {"mean", 0, -1, FLEET_MEAN, 50}},
    .n = 5,
    .dim = {9, 4},
    .concat = true,
    .batch = 37,
    .threads = 2,
    .make_rows = cold_kit_make,
};

TEST(lookups_find_and_change_rows_of_a_file)
{
    lookup_case c = mixed;

    cold_kit_cap.hurries = true;
    lookup_check(&c);
    c.threads = 1;
    c.concat = false;
    lookup_check(&c);
    cold_kit_cap.by_hand = 3;
    lookup_check(&c);
}

TEST(lookups_find_rows_of_sequences_in_a_file)
{
    lookup_case c = lookup_kit_padded;

    cold_kit_cap.hurries = true;
    c.make_rows = cold_kit_make;
    lookup_check(&c);
}

TEST(updates_merged_and_clipped_are_those_of_rows_in_memory)
{
    static const char *const rule[] = {"adagrad", "adam", KIT_ROW_ADAM, "ftrl"};

    cold_kit_cap.hurries = true;
    for (int i = 0; i < 4; i++)
        for (int merge = 1; merge <= 3; merge += 2) {
            lookup_case c = mixed;
            uint64_t got;

            c.optimizer = rule[i];
            c.merge = merge;
            c.clip = merge > 1 ? 0.01f : 0;
            got = lookup_hash(&c);
            c.make_rows = NULL;
            CHECK(got == lookup_hash(&c));
        }
}

/* Between batches no row is in memory. */
TEST(rows_go_when_their_update_is_over)
{
    fl_cold_counts c;
    fl_rows *rows;
    lookup_scene s;

    cold_kit_cap.hurries = true;
    cold_kit_cap.by_hand = 1;
    lookup_open(&s, &mixed);
    rows = lookup_rows(&s, 0);
    for (int step = 0; step < 3; step++) {
        kit_batch *b = lookup_batch(&s, step);

        CHECK_OK(kit_run(s.e, b));
        fl_cold_count(rows, &c);
        CHECK(c.cold > 0);
        kit_batch_free(b);
    }
    CHECK(c.evicted > c.cold && c.misses > 0);
    lookup_close(&s);
}
