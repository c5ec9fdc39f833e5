/* torch_sequences_test.c - the models of fleet/applications.h whose slots have
 * roles against PyTorch; torch_kit.h says how. */
#define SUITE torch_sequences
#include "test.h"
#include "torch_kit.h"

static const int64_t hidden[] = {32, 16}, attention[] = {12};
static const fleet_dense_slot dense[] = {{.name = "left", .dim = 2},
                                         {.name = "right", .dim = 3}};

/* A history is up to 7 long, of which 4 count, and may be empty. */
static const fleet_id_slot slots[] = {
    {.name = "bought", .dim = -1, .role = FLEET_SLOT_HISTORY},
    {.name = "one"},
    {.name = "kinds", .dim = -1, .table = "sorts", .role = FLEET_SLOT_HISTORY},
    {.name = "item", .role = FLEET_SLOT_ITEM},
    {.name = "kind", .table = "sorts", .role = FLEET_SLOT_ITEM},
    {.name = "some", .dim = -1, .combiner = FLEET_MEAN}};

/* The same without features, and with negatives. */
static const fleet_id_slot negatives[] = {
    {.name = "bought", .dim = -1, .role = FLEET_SLOT_HISTORY},
    {.name = "kinds", .dim = -1, .table = "sorts", .role = FLEET_SLOT_HISTORY},
    {.name = "item", .role = FLEET_SLOT_ITEM},
    {.name = "kind", .table = "sorts", .role = FLEET_SLOT_ITEM},
    {.name = "others", .dim = -1, .role = FLEET_SLOT_NEGATIVE},
    {.name = "other_kinds",
     .dim = -1,
     .table = "sorts",
     .role = FLEET_SLOT_NEGATIVE}};

/* A user's, and an item of two slots. */
static const fleet_id_slot towers[] = {
    {.name = "one"},
    {.name = "some", .dim = -1, .combiner = FLEET_MEAN},
    {.name = "item", .table = "items", .role = FLEET_SLOT_ITEM},
    {.name = "kinds", .dim = -1, .table = "sorts", .role = FLEET_SLOT_ITEM}};

static const fleet_id_slot words[] = {
    {.name = "one"},
    {.name = "item", .role = FLEET_SLOT_ITEM},
    {.name = "three", .dim = 3, .role = FLEET_SLOT_NEGATIVE}};

enum { N_SLOT = 6 };

/* Kinds are as many as what was bought: one for each. */
static kit_batch *history_batch(void)
{
    kit_batch *b = kit_batch_new(TORCH_ROWS);
    int64_t *bought, *kinds, *others, *other_kinds;

    kit_floats(b, "left", 2, 1);
    kit_floats(b, "right", 3, 2);
    bought = kit_ragged(b, "bought", 7, 30, 3);
    kinds = kit_ragged(b, "kinds", 7, 30, 3);
    others = kit_ragged(b, "others", 7, 30, 3);
    other_kinds = kit_ragged(b, "other_kinds", 7, 30, 3);
    for (int64_t i = 0; i < b->feed[2].offsets[TORCH_ROWS]; i++) {
        kinds[i] = bought[i] % 8;
        others[i] = (bought[i] * 7 + i) % 30;
        other_kinds[i] = others[i] % 8;
    }
    kit_ids(b, "item", 1, 30, 4);
    kit_ids(b, "kind", 1, 8, 5);
    kit_ids(b, "one", 1, 20, 6);
    kit_ragged(b, "some", 5, 30, 7);
    kit_ids(b, "label", 1, 2, 8);
    kit_floats(b, "log_q", 1, 9);
    kit_ids(b, "three", 3, 30, 10);
    return b;
}

typedef fleet_var *build_sequences(fleet_program *p, const fleet_ctr_options *o,
                                   fleet_model *m);

/* With features and numbers, unless the options say which slots there are. */
static void compare_step(const char *name, build_sequences *build,
                         fleet_ctr_options o, bool second)
{
    kit_model m = torch_model();
    kit_batch *b = history_batch();

    if (!o.ids) {
        o.dense = dense;
        o.n_dense = 2;
        o.ids = slots;
        o.n_ids = N_SLOT;
    }
    CHECK_OK((build(m.p, &o, &m.m), fleet_program_status(m.p)));
    kit_keep(b, m.p);
    (second ? torch_compare_second : torch_compare)(name, &m, b, &o);
}

static void compare(const char *name, build_sequences *build,
                    fleet_ctr_options o)
{
    compare_step(name, build, o, false);
}

#define DEEP .embedding_dim = 8, .hidden = hidden, .n_hidden = 2, .max_len = 4
#define SEQUENCES(name, ...)                                                   \
    compare(#name, fleet_##name, (fleet_ctr_options){__VA_ARGS__})

TEST_LIMIT(rankers_of_histories_agree_with_pytorch, 120)
{
    SEQUENCES(din, DEEP, .attention = attention, .n_attention = 1);
    SEQUENCES(dien, DEEP, .attention = attention, .n_attention = 1);
    SEQUENCES(dien, DEEP, .attention = attention, .n_attention = 1,
              .ids = negatives, .n_ids = N_SLOT);
    SEQUENCES(bst, DEEP, .heads = 2, .ffn_units = 12, .blocks = 2);
    SEQUENCES(sasrec, .embedding_dim = 8, .max_len = 4, .heads = 2,
              .ids = negatives, .n_ids = N_SLOT);
    SEQUENCES(sasrec, .embedding_dim = 8, .max_len = 4, .ffn_units = 10,
              .blocks = 1, .ids = negatives, .n_ids = 4);
    torch_ask();
}

#define DEEP_PAIRS                                                             \
    .embedding_dim = 8, .hidden = hidden, .n_hidden = 2, .ids = towers,        \
    .dense = dense, .n_dense = 2, .temperature = 0.5f

TEST_LIMIT(models_of_retrieval_agree_with_pytorch, 120)
{
    SEQUENCES(two_tower, DEEP_PAIRS, .n_ids = 4, .log_q = "log_q");
    SEQUENCES(two_tower, DEEP_PAIRS, .n_ids = 4, .normalize = 1, .no_label = 1);
    SEQUENCES(youtube_dnn, DEEP_PAIRS, .n_ids = 3, .log_q = "log_q");
    SEQUENCES(gru4rec, .embedding_dim = 8, .max_len = 4, .ids = negatives,
              .n_ids = N_SLOT);
    SEQUENCES(gru4rec, .embedding_dim = 8, .max_len = 4, .ids = negatives,
              .n_ids = 4, .no_label = 1, .log_q = "log_q");
    torch_ask();
}

/* Vectors of items begin with 0, and so do the gradients of words. */
TEST_LIMIT(word_vectors_agree_with_pytorch, 120)
{
    compare_step(
        "word2vec", fleet_word2vec,
        (fleet_ctr_options){
            .embedding_dim = 8, .ids = words, .n_ids = 3, .no_label = 1},
        true);
    compare_step(
        "word2vec", fleet_word2vec,
        (fleet_ctr_options){.embedding_dim = 8, .ids = words, .n_ids = 2},
        true);
    torch_ask();
}
