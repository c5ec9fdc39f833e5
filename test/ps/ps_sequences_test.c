/* ps_sequences_test.c - models whose slots have roles on servers: two workers
 * in sync train to the bits of one process that merges their batches. */
#define SUITE ps_sequences
#include "history_kit.h"
#include "ps_kit.h"
#include "test.h"

typedef struct sequence_job {
    const fl_ctr_model *model;
    fleet_ctr_options o;
} sequence_job;

static void open_sequences(ps_node *n, const fleet_options *o)
{
    const sequence_job *c = n->job->user;
    fleet_distributed_strategy s = fleet_distributed_strategy_default();

    s.a_sync = 0;
    s.gradient_merge = n->job->how.merge > 1;
    s.gradient_merge_configs.k_steps = s.gradient_merge ? n->job->how.merge : 1;
    history_open(&n->s, o, c->model, c->o, 0.01f, &s);
    history_data(&n->s, n->job->file[0], PS_BATCH);
}

static void check_bits(sequence_job c)
{
    ps_job j = {
        .servers = 2,
        .workers = 2,
        .file = {history_file("a.txt", c.model, 200, 1, HISTORY_HAS, NULL)},
        .open = open_sequences,
        .user = &c};

    CHECK(ps_hash(&j) == ps_alone(&j, 2));
}

static const int64_t units[] = {8};

#define DEEP .embedding_dim = 4, .hidden = units, .n_hidden = 1, .max_len = 4

TEST(attention_to_a_history_has_the_bits_of_one_process)
{
    check_bits((sequence_job){&fl_model_din,
                              {DEEP, .attention = units, .n_attention = 1}});
}

TEST(two_towers_have_the_bits_of_one_process)
{
    check_bits(
        (sequence_job){&fl_model_two_tower,
                       {.embedding_dim = 4, .hidden = units, .n_hidden = 1}});
}
