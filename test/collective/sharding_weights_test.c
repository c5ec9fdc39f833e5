/* sharding_weights_test.c - strategy.sharding of stage 3: what reads weights
 * between the steps of a training has all of them, from ranks that train or
 * wait; and what cannot have them says so. sharding_gradients_test.c has the
 * memory and the bits of trainings. */
#define SUITE sharding_weights
#include "rank_kit.h"
#include "test.h"

#include <string.h>

#include "base/memory.h"
#include "runtime/exec/prefetch.h"
#include "runtime/reduce/whole_weights.h"

enum { BATCHES = 8, BIASES = 33 };

/* Two ranks, and what the first one has seen after each of its steps. */
typedef struct visit {
    int stage; /* 0: nothing is shared out */
    float loss[BATCHES];
    uint64_t hash[BATCHES];
    void (*after)(kit_model *m, int rank); /* training; NULL: nothing */
} visit;

static fleet_status serve(void *store, const fl_agreed *agreed)
{
    CHECK_INT(agreed->done, FL_INTENT_WEIGHTS);
    return fl_whole_weights_serve(store);
}

static void open_rank(kit_model *m, fake_rank *r, int stage)
{
    static const rank_lesson plain;

    rank_model(m, &plain);
    r->rounds.store = m->f->store;
    r->rounds.serve = serve;
    r->rounds.arg = m->f->store;
    m->f->store->agree = &r->rounds;
    if (stage > 0)
        m->f->store->share = (fl_share){r->p.rank, r->p.size, stage};
    rank_executor(m);
}

/* Either is the first to ask. */
static void look(kit_model *m, fleet_executor *tester, const work *k, visit *v,
                 int step)
{
    if (step % 2 == 0)
        CHECK_OK(fleet_params_hash(m->f, &v->hash[step]));
    CHECK_OK(kit_fetch(tester, k->b[1], m->m.loss, &v->loss[step], 1));
    if (step % 2 == 1)
        CHECK_OK(fleet_params_hash(m->f, &v->hash[step]));
}

/* The second rank goes on, or waits at the end of the pass. */
static void train_and_look(fake_rank *r, void *arg)
{
    visit *v = arg;
    const int rank = r->p.rank;
    fleet_executor *tester;
    double sum = 0;
    kit_model m;
    work k;

    open_rank(&m, r, v->stage);
    tester = fleet_executor_create(
        m.p, &(fleet_executor_options){.for_test = 1, .max_batch = WORK_ROWS});
    CHECK(tester != NULL);
    work_open(&k, &m, BATCHES, 31);
    for (int i = 0; i < BATCHES; i += 2) {
        CHECK_OK(kit_run(m.e, k.b[i + rank]));
        CHECK(v->stage == 0 || !rank_group(&m)->weight);
        if (rank == 0)
            look(&m, tester, &k, v, i / 2);
    }
    CHECK_OK(fl_executor_end_pass(m.e, &sum, 1));
    if (v->after)
        v->after(&m, rank);
    fleet_executor_destroy(tester);
    work_close(&k);
    m.f->store->agree = NULL;
    r->rounds.store = NULL;
    kit_close(&m);
}

static void run_visit(visit *v)
{
    fake_group g;

    fake_group_open(&g, 2);
    fake_group_run(&g, train_and_look, v);
    fake_group_close(&g);
}

TEST(a_rank_evaluates_and_hashes_while_the_other_one_trains)
{
    visit whole = {0}, part = {.stage = 3};

    run_visit(&whole);
    run_visit(&part);
    CHECK(memcmp(part.loss, whole.loss, sizeof part.loss) == 0);
    CHECK(memcmp(part.hash, whole.hash, sizeof part.hash) == 0);
    CHECK(part.loss[0] != part.loss[1] && part.hash[0] != part.hash[1]);
}

/* --- what is refused ------------------------------------------------------ */

static void leave_and_ask(kit_model *m, int rank)
{
    static const char words[] =
        "strategy.sharding_configs.stage 3: 2 ranks share out the weights, and "
        "this process has its own part alone";
    const char *folder = test_path("save");
    float weights[BIASES];
    uint64_t hash;

    if (rank == 0) /* has looked, and has them: until it trains again */
        CHECK_OK(fl_part_weights(m->f->store));
    m->f->store->agree = NULL;
    CHECK_FAILS(fleet_params_hash(m->f, &hash), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_parameter_get(m->f, "tower_0.b", weights, BIASES),
                FLEET_ESTATE, words);
    if (rank == 0)
        CHECK_FAILS(fleet_save_persistables(m->f, folder), FLEET_ESTATE, words);
}

TEST(ranks_that_have_left_have_no_weights_to_give)
{
    visit v = {.stage = 3, .after = leave_and_ask};

    run_visit(&v);
}

TEST(a_weight_is_no_fetch)
{
    float weights[BIASES];
    kit_model m;
    fake_group g;
    kit_batch *b;

    fake_group_open(&g, 2);
    open_rank(&m, &g.rank[0], 3);
    b = kit_batch_for(&m, WORK_ROWS, 3);
    CHECK_FAILS(
        kit_fetch(m.e, b, fleet_program_var(m.p, "tower_0.b"), weights, BIASES),
        FLEET_EUNSUPPORTED,
        "fetch: \"tower_0.b\" is a parameter, which ranks share out "
        "(strategy.sharding_configs.stage 3)");
    kit_batch_free(b);
    m.f->store->agree = NULL;
    kit_close(&m);
    fake_group_close(&g);
}

/* --- memory that runs out ------------------------------------------------- */

/* The other rank is not there: the first one would wait for it for long. */
TEST(a_rank_without_memory_asks_nobody)
{
    kit_model m;
    fake_group g;

    fake_group_open(&g, 2);
    open_rank(&m, &g.rank[0], 3);
    CHECK_OK(fl_part_weights(m.f->store));
    for (int call = 1; call <= 2; call++) {
        fl_memory_fail_at(call, false);
        CHECK_STATUS(fl_whole_weights(m.f->store), FLEET_ENOMEM);
        fl_memory_fail_at(0, false);
        CHECK(!rank_group(&m)->weight);
    }
    CHECK_INT(g.rank[0].n_call, 0);
    m.f->store->agree = NULL;
    kit_close(&m);
    fake_group_close(&g);
}
