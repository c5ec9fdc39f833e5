/* sequence_lookup_test.c - sequence_embedding, and the first and the last of
 * ragged ids: against a plain list, to the bit, beside pooled slots of the same
 * table; ids that are not kept are nowhere; a table of a GPU's program. */
#define SUITE sequence_lookup
#include "gpu_kit.h"
#include "lookup_kit.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(rows_lie_as_in_a_plain_list_for_every_width)
{
    static const int64_t dims[] = {1, 3, 8, 17, 64};

    for (int i = 0; i < 5; i++) {
        lookup_case c = lookup_kit_padded;

        c.dim[0] = dims[i];
        c.dim[1] = dims[4 - i];
        lookup_check(&c);
        c.concat = false;
        c.keep_first = ~c.keep_first;
        lookup_check(&c);
    }
}

TEST(rows_lie_as_in_a_plain_list_for_every_size_of_batch)
{
    static const int64_t batches[] = {1, 16, 150, 1024};

    for (int i = 0; i < 4; i++) {
        lookup_case c = lookup_kit_padded;

        c.batch = batches[i];
        lookup_check(&c);
    }
}

TEST(bits_depend_neither_on_threads_nor_on_merging_them_apart)
{
    lookup_case c = lookup_kit_padded;
    uint64_t one;

    c.batch = 300;
    c.threads = 1;
    one = lookup_hash(&c);
    for (int threads = 2; threads <= 3; threads++) {
        c.threads = threads;
        CHECK(lookup_hash(&c) == one);
    }
}

/* One slot of up to three, with the sample's ids given. */
static const lookup_case alone = {.slot = {{"ids", 0, -1, FLEET_SUM, 9}},
                                  .most = {3},
                                  .n = 1,
                                  .dim = {4, 4},
                                  .concat = true,
                                  .batch = 2,
                                  .threads = 1};

static void run_on(const lookup_scene *s, fleet_executor *e, const int64_t *ids,
                   const int64_t *offsets, float *out)
{
    float by[24];
    int64_t n = offsets[2], dims[] = {2, 12}, rows = 2;
    const fleet_feed feed[] = {
        {"ids", FLEET_INT64, ids, &rows, 1, offsets},
        {"by", FLEET_FLOAT32, by, dims, 2, NULL},
    };
    fleet_fetch fetch = {.var = s->all, .data = out, .size = sizeof by};

    for (int i = 0; i < 24; i++)
        by[i] = 1;
    CHECK(n <= 9);
    CHECK_OK(fleet_executor_run(e, feed, 2, &fetch, 1));
}

TEST(ids_that_are_not_kept_get_no_row_and_are_not_read)
{
    static const int64_t ids[] = {1, 2, 3, 4, 5, 6}, offsets[] = {0, 5, 6};

    for (int first = 0; first < 2; first++) {
        lookup_case c = alone;
        float out[24], row[4];
        lookup_scene s;
        fl_rows *rows;

        c.keep_first = (unsigned)first;
        lookup_open(&s, &c);
        run_on(&s, s.e, ids, offsets, out);
        rows = lookup_rows(&s, 0);
        CHECK_INT(rows->methods->count(rows), 4);
        for (uint64_t key = 1; key <= 6; key++) {
            float *at;
            bool kept = key == 6 || (first ? key <= 3 : key >= 3);

            CHECK_OK(rows->methods->find(rows, &key, 1, &at));
            CHECK((at != NULL) == kept);
        }
        fl_filler_row(&s.table[0].filler, first ? 1 : 3, row, 4);
        CHECK(memcmp(out, row, sizeof row) == 0);
        fl_filler_row(&s.table[0].filler, 6, row, 4);
        CHECK(memcmp(out + 12, row, sizeof row) == 0);
        for (int i = 16; i < 24; i++)
            CHECK(out[i] == 0);
        lookup_close(&s);
    }
}

/* An id twice: both places add to its row's gradient, in their order. */
TEST(an_id_that_stands_twice_gets_both_gradients)
{
    static const int64_t ids[] = {7, 7, 8}, offsets[] = {0, 2, 3};
    float out[24], row[4], want[4];
    uint64_t seven = 7;
    lookup_scene s;
    fl_rows *rows;
    float *at;

    lookup_open(&s, &alone);
    fl_filler_row(&s.table[0].filler, 7, row, 4);
    run_on(&s, s.e, ids, offsets, out);
    rows = lookup_rows(&s, 0);
    CHECK_OK(rows->methods->find(rows, &seven, 1, &at));
    CHECK(at != NULL);
    for (int i = 0; i < 4; i++) /* the mean of 24 numbers, a rate of 0.5 */
        want[i] = row[i] - 0.5f * 2 / 24;
    CHECK_CLOSE(at, want, 4, 1e-6);
    lookup_close(&s);
}

/* Its rows stay on the host, as the header says. */
TEST(a_program_on_a_gpu_has_the_bits_of_the_cpu)
{
    static const int64_t batches[] = {1, 37, 150};

    gpu_kit_open();
    for (int i = 0; i < 3; i++) {
        lookup_case c = lookup_kit_padded;

        c.batch = batches[i];
        c.device = "gpu:0";
        lookup_check(&c);
    }
    gpu_kit_close();
}

TEST(an_id_out_of_range_is_named_with_its_sample_if_it_is_kept)
{
    static const int64_t ids[] = {50, 2, 3, 4, 1, 60};
    int64_t offsets[] = {0, 4, 5}, rows = 2, dims[] = {2, 12};
    float out[24], by[24] = {0};
    const fleet_feed feed[] = {
        {"ids", FLEET_INT64, ids, &rows, 1, offsets},
        {"by", FLEET_FLOAT32, by, dims, 2, NULL},
    };
    lookup_case c = alone;
    lookup_scene s;

    c.rows = 10;
    c.check_ids = 1;
    lookup_open(&s, &c);
    run_on(&s, s.e, ids, offsets, out);
    offsets[2] = 6;
    CHECK_FAILS(fleet_executor_run(s.e, feed, 2, NULL, 0), FLEET_EINVAL,
                "id 60 of \"ids\" in row 1 of the batch is not in [0, 10)");
    lookup_close(&s);
}
