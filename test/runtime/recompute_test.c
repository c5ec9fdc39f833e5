/* recompute_test.c - strategy.recompute: activations between checkpoints are
 * computed again, to the same bits, and the plan's memory is smaller. */
#define SUITE recompute
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fleet/job/handle.h"
#include "runtime/exec/executor.h"

enum { LAYERS = 8, UNITS = 48, MOST = 12 };

typedef struct net {
    fleet *f;
    fleet_program *p;
    fleet_var *loss, *kept[MOST];
    int n_kept;
    fleet_executor *e;
    kit_batch *b;
} net;

static void keep(net *n, fleet_var *v)
{
    n->kept[n->n_kept++] = v;
}

/* Layers of all kinds that leave something for their gradients; `skips` reads a
 * variable of the first segment in the last one. */
static void build_mixed(net *n)
{
    static const int64_t one[] = {-1, 1};
    fleet_var *x = kit_data(n->p, "x", 6),
              *ids = fleet_data_ragged(n->p, "ids");
    fleet_var *y = fleet_data(n->p, "y", FLEET_INT64, one, 2), *h, *skips, *seq;

    seq = fleet_sequence_embedding(
        n->p, ids, 4, 3, 1, &(fleet_sparse_embedding_options){.table = "t"});
    seq = fleet_lstm(n->p, seq, 4, NULL, NULL);
    seq = fleet_reduce_sum(n->p, seq, 1, 0);
    h = fleet_concat(n->p, (fleet_var *[]){x, seq}, 2, 1);
    h = fleet_fc(n->p, h, 9, &(fleet_fc_options){.activation = FLEET_RELU});
    keep(n, h);
    fleet_auc(n->p, fleet_softmax(n->p, fleet_fc(n->p, h, 2, NULL)), y, 0);
    skips = fleet_tanh(n->p, fleet_scale(n->p, h, 0.5f, 0.25f));
    h = fleet_dropout(n->p, fleet_batch_norm(n->p, skips, NULL), 0.25f);
    h = fleet_layer_norm(n->p, fleet_fc(n->p, h, 9, NULL), NULL);
    keep(n, h);
    h = fleet_gelu(n->p, fleet_mul(n->p, h, h), 0);
    h = fleet_reshape(n->p, h, (int64_t[]){-1, 3, 3}, 3);
    h = fleet_reshape(n->p, fleet_sigmoid(n->p, h), (int64_t[]){-1, 9}, 2);
    keep(n, h);
    h = fleet_add(n->p, h, skips);
    h = fleet_fc(n->p, h, 2, NULL);
    fleet_auc(n->p, fleet_softmax(n->p, h), y, 0);
    n->loss =
        fleet_mean(n->p, fleet_softmax_with_cross_entropy(n->p, h, y, NULL));
}

/* A tower, of which every second layer is kept. */
static void build_tower(net *n)
{
    fleet_var *h = kit_data(n->p, "x", 6);

    for (int i = 0; i < LAYERS; i++) {
        h = fleet_fc(n->p, h, UNITS, NULL);
        h = fleet_sigmoid(n->p, fleet_gelu(n->p, fleet_square(n->p, h), 0));
        if (i % 2)
            keep(n, h);
    }
    n->loss = fleet_mean(n->p, h);
}

/* With the names of what is kept, or without recompute. */
static void open_net(net *n, void (*build)(net *), bool recomputes, int threads)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fl_text names = {0};

    *n = (net){.f = kit_handle(&(kit_options){.threads = threads})};
    n->p = fleet_program_create(n->f);
    build(n);
    CHECK_OK(fleet_program_status(n->p));
    for (int i = 0; i < n->n_kept; i++)
        fl_text_add(&names, "%s%s", i ? "," : "", fleet_var_name(n->kept[i]));
    s.recompute = recomputes;
    s.recompute_configs.checkpoints = recomputes ? names.chars : NULL;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(n->f, fleet_adam(n->f, 0.02f, NULL), &s),
        n->loss));
    fl_text_done(&names);
}

static uint64_t train(net *n, int64_t rows)
{
    n->e = fleet_executor_create(n->p, NULL);
    CHECK(n->e != NULL);
    n->b = kit_batch_new(rows);
    kit_floats(n->b, "x", 6, 1);
    kit_ragged(n->b, "ids", 4, 30, 2);
    kit_ids(n->b, "y", 1, 2, 3);
    kit_keep(n->b, n->p);
    for (int i = 0; i < 4; i++)
        CHECK_OK(kit_run(n->e, n->b));
    return kit_hash(n->f);
}

static void close_net(net *n)
{
    kit_batch_free(n->b);
    fleet_executor_destroy(n->e);
    fleet_destroy(n->f);
}

static uint64_t hash_of(void (*build)(net *), bool recomputes, int threads,
                        int64_t rows)
{
    uint64_t hash;
    net n;

    open_net(&n, build, recomputes, threads);
    hash = train(&n, rows);
    close_net(&n);
    return hash;
}

/* --- bits ----------------------------------------------------------------- */

TEST(weights_have_the_bits_of_a_training_without)
{
    CHECK(hash_of(build_tower, true, 1, 40) ==
          hash_of(build_tower, false, 1, 40));
    for (int64_t rows = 7; rows < 400; rows *= 7) {
        uint64_t want = hash_of(build_mixed, false, 1, rows);

        CHECK(hash_of(build_mixed, true, 1, rows) == want);
        CHECK(hash_of(build_mixed, true, 3, rows) == want);
    }
}

/* Of all metrics: 30 samples of 4 batches for each. */
TEST(what_counts_is_not_done_again)
{
    net n;

    open_net(&n, build_mixed, true, 1);
    train(&n, 30);
    for (size_t i = 0; i < n.f->store->states.n; i += 2) {
        int64_t sum = 0;

        for (size_t k = i; k < i + 2; k++) { /* positives, negatives */
            const fl_state *state = n.f->store->states.entry[k].value;
            const int64_t *count = state->data;

            for (size_t b = 0; b < state->size / sizeof *count; b++)
                sum += count[b];
        }
        CHECK_INT(sum, 4 * 30);
    }
    CHECK_INT(n.f->store->states.n, 4);
    close_net(&n);
}

/* --- memory --------------------------------------------------------------- */

static long arena_of(bool recomputes)
{
    long bytes = 0;
    char *text;
    net n;

    open_net(&n, build_tower, recomputes, 1);
    text = fleet_program_dump(n.p, FLEET_DUMP_PLAN, 256);
    CHECK(text != NULL);
    CHECK(strstr(text, "arena ") &&
          sscanf(strstr(text, "arena "), "arena %ld bytes", &bytes) == 1);
    fleet_free(text);
    fleet_destroy(n.f);
    return bytes;
}

/* Without: 8 layers of 4 activations and gradients of one of them. With: 4
 * checkpoints, and what is under way of two layers. */
TEST(activations_between_checkpoints_take_no_memory_in_the_meantime)
{
    const long one = 256 * UNITS * (long)sizeof(float);
    const long plain = arena_of(false), again = arena_of(true);

    CHECK(plain >= 3 * LAYERS * one);
    if (again > plain / 2)
        test_fail(__FILE__, __LINE__, "%ld bytes of %ld", again, plain);
}

/* --- what cannot be ------------------------------------------------------- */

static void check_refused(const char *checkpoints, fleet_status status,
                          const char *words)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    net n = {.f = kit_handle(&(kit_options){0})};

    n.p = fleet_program_create(n.f);
    build_tower(&n);
    s.recompute = 1;
    s.recompute_configs.checkpoints = checkpoints;
    CHECK_FAILS(
        fleet_minimize(
            fleet_distributed_optimizer(n.f, fleet_sgd(n.f, 0.1f), &s), n.loss),
        status, words);
    fleet_destroy(n.f);
}

TEST(checkpoints_that_cannot_be_are_refused_by_name)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = kit_handle(&(kit_options){0});

    check_refused(NULL, FLEET_EINVAL, "checkpoints: expected names");
    check_refused("", FLEET_EINVAL, "checkpoints: expected names");
    check_refused("fc_0.tmp,fc_9.tmp", FLEET_ENOENT,
                  "the program has no variable \"fc_9.tmp\"");
    check_refused("x", FLEET_EINVAL, "\"x\" is not computed");
    s.recompute_configs.checkpoints = "x";
    kit_refused(f, fleet_sgd(f, 0.1f), &s, FLEET_EINVAL,
                "recompute_configs.checkpoints is set, but strategy.recompute "
                "is 0");
    s.recompute = s.amp = 1;
    kit_refused(f, fleet_sgd(f, 0.1f), &s, FLEET_EINVAL, "contradict");
    fleet_destroy(f);
}
