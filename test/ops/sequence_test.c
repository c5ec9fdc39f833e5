/* sequence_test.c - ragged values as rows of a fixed length, and their masks:
 * every length of a sample, in a batch of any size; what is refused. Lookups
 * are in sequence_lookup_test.c. */
#define SUITE sequence
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 6, LEN = 4 };

/* Where a sample's place i comes from; -1: padding. */
static int64_t source_of(const int64_t *offset, int first, int64_t i)
{
    int64_t n = offset[1] - offset[0], kept = n < LEN ? n : LEN;

    if (i >= kept)
        return -1;
    return first ? offset[0] + i : offset[1] - kept + i;
}

/* Both types, and the mask, of batches that fill no slice and several. */
static void check(int64_t rows, int first)
{
    fleet *f = kit_handle(&(kit_options){.threads = 2});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data_ragged_floats(p, "x");
    fleet_var *ids = fleet_data_ragged(p, "ids");
    fleet_var *numbers = fleet_sequence_pad(p, x, LEN, first, 0.5f);
    fleet_var *padded = fleet_sequence_pad(p, ids, LEN, first, -7);
    fleet_var *mask = fleet_sequence_mask(p, ids, LEN);
    kit_batch *b = kit_batch_new(rows);
    const float *number = kit_ragged_floats(b, "x", MOST, 3);
    const int64_t *id = kit_ragged(b, "ids", MOST, 1000000, 5);
    float *got = malloc((size_t)(rows * LEN) * 2 * sizeof *got);
    int64_t *got_ids = malloc((size_t)(rows * LEN) * sizeof *got_ids);
    fleet_fetch fetch[] = {
        {.var = numbers, .data = got, .size = (size_t)(rows * LEN) * 4},
        {.var = mask,
         .data = got + rows * LEN,
         .size = (size_t)(rows * LEN) * 4},
        {.var = padded, .data = got_ids, .size = (size_t)(rows * LEN) * 8}};
    fleet_feed feed[KIT_MOST_FEEDS];
    int n_feed = kit_feeds(b, feed);
    fleet_executor *e;

    CHECK_OK(fleet_program_status(p));
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    CHECK_OK(fleet_executor_run(e, feed, n_feed, fetch, 3));
    for (int64_t i = 0; i < rows * LEN; i++) {
        int64_t of_x = source_of(b->feed[0].offsets + i / LEN, first, i % LEN);
        int64_t of_id = source_of(b->feed[1].offsets + i / LEN, first, i % LEN);

        CHECK(got[i] == (of_x < 0 ? 0.5f : number[of_x]));
        CHECK_INT(got_ids[i], of_id < 0 ? -7 : id[of_id]);
        CHECK(got[rows * LEN + i] == (of_id < 0 ? 0.0f : 1.0f));
    }
    free(got);
    free(got_ids);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(the_last_and_the_first_values_are_kept_in_their_order)
{
    static const int64_t rows[] = {1, 37, 150};

    for (int i = 0; i < 3; i++)
        for (int first = 0; first < 2; first++)
            check(rows[i], first);
}

/* --- what is refused ------------------------------------------------------ */

static void ragged_inputs(fleet_program *p, fleet_var **in)
{
    in[1] = fleet_data_ragged(p, "ids");
    in[2] = fleet_data_ragged_floats(p, "numbers");
}

BUILD(pad_dense, fleet_sequence_pad(p, in[0], 3, 0, 0))
BUILD(pad_none, fleet_sequence_pad(p, in[1], 0, 0, 0))
BUILD(pad_half, fleet_sequence_pad(p, in[1], 3, 0, 0.5f))
BUILD(pad_nan, fleet_sequence_pad(p, in[2], 3, 0, NAN))
BUILD(mask_dense, fleet_sequence_mask(p, in[0], 3))
BUILD(mask_long, fleet_sequence_mask(p, in[1], 65537))
BUILD(embed_dense,
      fleet_sequence_embedding(p, kit_data_ids(p, "i", 2), 4, 3, 0, NULL))
BUILD(embed_floats, fleet_sequence_embedding(p, in[2], 4, 3, 0, NULL))
BUILD(embed_short, fleet_sequence_embedding(p, in[1], 4, -1, 0, NULL))
BUILD(embed_dim, fleet_sequence_embedding(p, in[1], 0, 3, 0, NULL))
BUILD(embed_mean, fleet_sequence_embedding(p, in[1], 4, 3, 0,
                                           &(fleet_sparse_embedding_options){
                                               .combiner = FLEET_MEAN}))

TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_pad_dense, FLEET_EDTYPE,
         "sequence_pad: \"x\" is float32 of a fixed number, not ragged"},
        {build_pad_none, FLEET_EINVAL,
         "sequence_pad: max_len 0 of \"ids\"; expected 1 to 65536"},
        {build_pad_half, FLEET_EINVAL,
         "sequence_pad: value 0.5 cannot stand for int64 of \"ids\""},
        {build_pad_nan, FLEET_EINVAL, "sequence_pad: value nan"},
        {build_mask_dense, FLEET_EDTYPE, "sequence_mask: \"x\" is float32"},
        {build_mask_long, FLEET_EINVAL, "sequence_mask: max_len 65537"},
        {build_embed_dense, FLEET_EDTYPE,
         "sequence_embedding: \"i\" is int64 of a fixed number, not ragged"},
        {build_embed_floats, FLEET_EDTYPE,
         "sequence_embedding: ids \"numbers\" are ragged float32, not int64"},
        {build_embed_short, FLEET_EINVAL, "sequence_embedding: max_len -1"},
        {build_embed_dim, FLEET_ESHAPE,
         "sequence_embedding: cannot have rows of 0"},
        {build_embed_mean, FLEET_EINVAL,
         "sequence_embedding: combiner 1; rows of a sequence are not "
         "combined"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, ragged_inputs);
}
