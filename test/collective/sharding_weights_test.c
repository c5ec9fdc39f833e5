/* sharding_weights_test.c - strategy.sharding of stage 3: what reads weights
 * between the steps of a training has all of them, from ranks that train or
 * wait; and what cannot have them says so. sharding_gradients_test.c has the
 * memory and the bits of trainings. */
#define SUITE sharding_weights
#include "rank_kit.h"
#include "test.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/ranks.h"
#include "runtime/exec/feed_fetch.h"
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

/* --- a handle that trains in one thread, and is asked in another ---------- */

typedef struct training {
    fl_store *store;
    atomic_bool is_over;
} training;

/* What an iteration does first. */
static void *part_again(void *arg)
{
    training *t = arg;

    while (!t->is_over) {
        pthread_rwlock_wrlock(&t->store->lock);
        CHECK_OK(fl_part_weights(t->store));
        pthread_rwlock_unlock(&t->store->lock);
        sched_yield();
    }
    return NULL;
}

static void ask_often(kit_model *m)
{
    enum { TIMES = 60 };
    fleet_executor *tester = fleet_executor_create(
        m->p, &(fleet_executor_options){.for_test = 1, .max_batch = WORK_ROWS});
    kit_batch *b = kit_batch_for(m, WORK_ROWS, 3);
    float first[BIASES], bias[BIASES], loss[TIMES];
    uint64_t hash[TIMES];

    CHECK(tester != NULL);
    CHECK_OK(fleet_parameter_get(m->f, "tower_0.b", first, BIASES));
    for (int i = 0; i < TIMES; i++) {
        CHECK_OK(fleet_parameter_get(m->f, "tower_0.b", bias, BIASES));
        CHECK(memcmp(bias, first, sizeof bias) == 0);
        CHECK_OK(fleet_params_hash(m->f, &hash[i]));
        CHECK_OK(kit_fetch(tester, b, m->m.loss, &loss[i], 1));
        CHECK(hash[i] == hash[0] && loss[i] == loss[0]);
    }
    kit_batch_free(b);
    fleet_executor_destroy(tester);
}

/* The second rank waits all the time. */
static void train_and_ask(fake_rank *r, void *arg)
{
    training t = {NULL, false};
    pthread_t trains;
    fl_agreed agreed;
    kit_model m;

    (void)arg;
    open_rank(&m, r, 3);
    t.store = m.f->store;
    if (r->p.rank == 0) {
        CHECK_INT(pthread_create(&trains, NULL, part_again, &t), 0);
        ask_often(&m);
        t.is_over = true;
        pthread_join(trains, NULL);
    }
    CHECK_OK(fl_agree_on(&r->rounds, FL_INTENT_NONE, 0, &agreed));
    m.f->store->agree = NULL;
    r->rounds.store = NULL;
    kit_close(&m);
}

TEST(weights_that_are_asked_for_stay_until_they_are_read)
{
    fake_group g;

    fake_group_open(&g, 2);
    fake_group_run(&g, train_and_ask, NULL);
    fake_group_close(&g);
}

/* --- what is refused ------------------------------------------------------ */

/* The first rank has looked, and has all weights still. */
static void leave_and_ask(kit_model *m, int rank)
{
    static const char words[] =
        "strategy.sharding_configs.stage 3: 2 ranks share out the weights, and "
        "this process has its own part alone";
    float weights[BIASES];
    uint64_t hash;

    CHECK((rank == 0) == (rank_group(m)->weight != NULL));
    m->f->comm = m->f->store->agree->comm;
    CHECK_OK(fl_ranks_leave(m->f));
    CHECK_FAILS(fleet_params_hash(m->f, &hash), FLEET_ESTATE, words);
    CHECK_FAILS(fleet_parameter_get(m->f, "tower_0.b", weights, BIASES),
                FLEET_ESTATE, words);
    if (rank == 0)
        CHECK_FAILS(fleet_save_persistables(m->f, test_path("save")),
                    FLEET_ESTATE, words);
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

/* The same memory under another name. */
TEST(a_weight_in_another_shape_is_no_fetch)
{
    enum { WIDE = 5 };
    const kit_options how = {0};
    fleet *f = kit_handle(&how);
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", WIDE);
    fleet_var *y = fleet_fc(p, x, WIDE, &(fleet_fc_options){.name = "layer"});
    fleet_var *loss = fleet_mean(p, y), *flat;
    kit_batch *b = kit_batch_new(3);
    float weights[WIDE * WIDE];
    fleet_executor *e;
    fake_group g;

    kit_floats(b, "x", WIDE, 1);
    flat = fleet_reshape(p, fleet_program_var(p, "layer.w"),
                         (int64_t[]){WIDE * WIDE}, 1);
    CHECK_OK(fleet_minimize(kit_optimizer(f, &how), loss));
    fake_group_open(&g, 1);
    f->store->agree = &g.rank[0].rounds;
    f->store->share = (fl_share){0, 2, 3};
    e = fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
    CHECK(e != NULL);
    CHECK_FAILS(kit_fetch(e, b, flat, weights, WIDE * WIDE), FLEET_EUNSUPPORTED,
                "is a parameter in another shape, which");
    fleet_executor_destroy(e);
    kit_batch_free(b);
    f->store->agree = NULL;
    fake_group_close(&g);
    fleet_destroy(f);
}

/* --- other threads -------------------------------------------------------- */

static fl_store *watched;

static fleet_status reduce_under_the_lock(fl_comm *p, fl_reduce how,
                                          fl_wire_type type, const void *in,
                                          void *out, int64_t n,
                                          fl_work **how_far)
{
    (void)p, (void)how, (void)type, (void)in, (void)out, (void)n, (void)how_far;
    CHECK(pthread_rwlock_tryrdlock(&watched->lock) != 0);
    watched = NULL;
    return FLEET_OK;
}

/* One that waits for the lock would ask ranks for weights, which add sums. */
TEST(no_thread_speaks_to_the_ranks_between_a_pass_and_its_sums)
{
    fl_comm_class methods;
    fl_comm *before;
    fake_group g;
    kit_model m;
    double sum = 0;

    fake_group_open(&g, 1);
    open_rank(&m, &g.rank[0], 0);
    methods = *g.rank[0].p.methods;
    methods.all_reduce = reduce_under_the_lock;
    g.rank[0].p.methods = &methods;
    watched = m.f->store;
    CHECK_OK(fl_executor_end_pass(m.e, &sum, 1));
    CHECK(watched == NULL);
    before = m.f->comm;
    m.f->comm = &g.rank[0].p;
    watched = m.f->store;
    CHECK_OK(fl_ranks_reduce(m.f, FL_ALL_SUM, &sum, 1));
    CHECK(watched == NULL);
    m.f->comm = before;
    m.f->store->agree = NULL;
    kit_close(&m);
    fake_group_close(&g);
}

/* A program with a head that its loss does not need: "aux", of a layer's
 * weights, and "also", of none. */
static void fetch_heads(bool again, const char *layer, const char *aux,
                        const char *also)
{
    enum { WIDE = 5 };
    const kit_options how = {0};
    fleet *f = kit_handle(&how);
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, WIDE}, 2);
    fleet_var *y = fleet_fc(p, x, WIDE, NULL);
    fleet_var *loss = fleet_mean(p, fleet_fc(p, y, 1, NULL));
    const struct {
        const fleet_var *var;
        const char *error;
    } cases[] = {{loss, NULL},
                 {y, layer},
                 {fleet_fc(p, y, WIDE, NULL), aux},
                 {fleet_tanh(p, y), also}};
    fleet_executor *e;
    fake_group g;

    p->training.recompute.on = again;
    CHECK_OK(fleet_minimize(kit_optimizer(f, &how), loss));
    fake_group_open(&g, 1);
    f->store->agree = &g.rank[0].rounds;
    f->store->share = (fl_share){0, 2, 3};
    e = fleet_executor_create(p, NULL);
    CHECK(e != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].error)
            CHECK_FAILS(fl_executor_want(e, cases[i].var), FLEET_EUNSUPPORTED,
                        cases[i].error);
        else
            CHECK_OK(fl_executor_want(e, cases[i].var));
    fleet_executor_destroy(e);
    f->store->agree = NULL;
    fake_group_close(&g);
    fleet_destroy(f);
}

TEST(ranks_gather_the_same_weights_whatever_each_of_them_fetches)
{
    static const char more[] = "needs weights that training does not",
                      metrics[] = "fetch the loss and metrics alone";

    fetch_heads(false, NULL, more, NULL);
    fetch_heads(true, metrics, more, metrics);
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
    for (int call = 1; call <= 3; call++) {
        fl_memory_fail_at(call, false);
        CHECK_STATUS(fl_whole_weights_locked(m.f->store), FLEET_ENOMEM);
        fl_memory_fail_at(0, false);
        CHECK(!rank_group(&m)->weight);
    }
    CHECK_INT(g.rank[0].n_call, 0);
    CHECK(!*g.why);
    fl_memory_fail_at(1, false); /* another rank asks, and hears of it */
    CHECK_STATUS(fl_whole_weights_serve(m.f->store), FLEET_ENOMEM);
    fl_memory_fail_at(0, false);
    CHECK_CONTAINS(g.why, "rank 0: ");
    m.f->store->agree = NULL;
    kit_close(&m);
    fake_group_close(&g);
}
