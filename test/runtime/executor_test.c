/* executor_test.c - iterations: the same bits whatever the threads and the
 * plans, short batches, several executors on one store, failures that leave
 * everything as it was. */
#define SUITE executor
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "runtime/simd/simd.h"
#include "runtime/exec/compile.h"

/* --- the same bits -------------------------------------------------------- */

static uint64_t hash_of(kit_kind kind, int threads, int64_t rows)
{
    kit_model m;
    uint64_t hash;

    kit_open(&m, kind, &(kit_options){.threads = threads});
    hash = kit_train(&m, rows, 5);
    kit_close(&m);
    return hash;
}

TEST(results_do_not_depend_on_the_number_of_threads)
{
    static const int64_t rows[] = {1, 37, 150};

    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++)
        for (int i = 0; i < 3; i++) {
            uint64_t want = hash_of((kit_kind)kind, 1, rows[i]);

            CHECK(hash_of((kit_kind)kind, 1, rows[i]) == want);
            CHECK(hash_of((kit_kind)kind, 2, rows[i]) == want);
            CHECK(hash_of((kit_kind)kind, 4, rows[i]) == want);
        }
}

TEST(training_makes_the_loss_smaller)
{
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        kit_model m;
        kit_batch *b;
        float first, last = 0;

        kit_open(&m, (kit_kind)kind, &(kit_options){.learning_rate = 0.01f});
        b = kit_batch_for(&m, 50, 1);
        first = kit_step(m.e, b, m.m.loss);
        for (int i = 0; i < 60; i++)
            last = kit_step(m.e, b, m.m.loss);
        CHECK(last < first / 3);
        kit_batch_free(b);
        kit_close(&m);
    }
}

/* More sizes than plans are kept; each executor in its own way. */
static const int64_t sizes[] = {5, 40, 5,  130, 7,  40, 64, 65, 17,
                                9, 1,  33, 5,   40, 12, 90, 77, 130};
enum { N_SIZE = sizeof sizes / sizeof *sizes };

TEST(batches_may_change_their_size)
{
    kit_model a, b;

    kit_open(&a, KIT_CTR, &(kit_options){0});
    kit_open(&b, KIT_CTR, &(kit_options){0});
    for (int i = 0; i < N_SIZE; i++) {
        kit_batch *batch = kit_batch_for(&a, sizes[i], i);

        CHECK_OK(kit_run(a.e, batch));
        fleet_executor_destroy(b.e); /* a new one for each batch */
        b.e = fleet_executor_create(b.p, NULL);
        CHECK_OK(kit_run(b.e, batch));
        kit_batch_free(batch);
        CHECK(kit_hash(a.f) == kit_hash(b.f));
    }
    kit_close(&a);
    kit_close(&b);
}

/* --- short batches ------------------------------------------------------- */

static void check_short_forward(kit_kind kind, int64_t rows)
{
    enum { MOST = 100 };
    fleet_executor_options o = {.for_test = 1, .max_batch = MOST};
    float whole[MOST * 5], part[MOST * 5];
    kit_model m;
    fleet_executor *e;

    kit_open(&m, kind, &(kit_options){.threads = 2});
    e = fleet_executor_create(m.p, &o);
    kit_batch *b = kit_batch_for(&m, MOST, 3);
    kit_batch head = kit_head(b, rows);
    size_t cols = kind == KIT_MLP ? 5 : 1;
    CHECK_OK(kit_fetch(e, b, m.m.prediction, whole, MOST * 5));
    CHECK_OK(kit_fetch(e, &head, m.m.prediction, part, MOST * 5));
    CHECK(memcmp(whole, part, (size_t)rows * cols * sizeof *part) == 0);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    kit_close(&m);
}

TEST(a_short_batch_has_the_same_results_as_its_rows_in_a_full_one)
{
    static const int64_t rows[] = {1, 16, 37, 63, 64, 65, 99};

    for (int i = 0; i < 7; i++) {
        check_short_forward(KIT_MLP, rows[i]);
        check_short_forward(KIT_CTR, rows[i]);
    }
}

/* Gradients of all parameters: |a - b| relative to the largest. */
static void check_gradients_alike(const kit_model *a, const kit_model *b)
{
    for (size_t i = 0; i < a->p->n_var; i++) {
        const fleet_var *v = a->p->var[i];
        const float *x, *y;
        double most = 1e-30;
        int64_t n;

        if (v->kind != FL_VAR_PARAM)
            continue;
        n = fl_shape_count(&v->shape, 1);
        x = fl_compiled_pointer(a->e->last, a->e->last->plan->gradient_of[i]);
        y = fl_compiled_pointer(b->e->last, b->e->last->plan->gradient_of[i]);
        for (int64_t j = 0; j < n; j++)
            most = fmax(most, fabs((double)y[j]));
        for (int64_t j = 0; j < n; j++)
            if (!(fabs((double)x[j] - (double)y[j]) <= 2e-6 * most))
                test_fail(__FILE__, __LINE__, "%s[%lld]: %.9g and %.9g",
                          v->name, (long long)j, (double)x[j], (double)y[j]);
    }
}

static void check_short_gradients(kit_kind kind, int64_t rows)
{
    kit_model a, b;
    float loss[2];

    kit_open(&a, kind, &(kit_options){.max_batch = 100, .optimizer = "sgd"});
    kit_open(&b, kind, &(kit_options){.optimizer = "sgd"});
    kit_batch *full = kit_batch_for(&a, 100, 9);
    kit_batch head = kit_head(full, rows);
    CHECK_OK(kit_run(a.e, full)); /* leaves its rows behind in all buffers */
    CHECK_OK(kit_run(b.e, full));
    loss[0] = kit_step(a.e, &head, a.m.loss);
    loss[1] = kit_step(b.e, &head, b.m.loss);
    CHECK_CLOSE(&loss[0], &loss[1], 1, 1e-6);
    check_gradients_alike(&a, &b);
    kit_batch_free(full);
    kit_close(&a);
    kit_close(&b);
}

TEST(a_short_batch_has_the_gradients_of_a_plan_of_its_own_size)
{
    static const int64_t rows[] = {1, 37, 64, 99};

    for (int i = 0; i < 4; i++) {
        check_short_gradients(KIT_MLP, rows[i]);
        check_short_gradients(KIT_CTR, rows[i]);
    }
}

/* --- several executors --------------------------------------------------- */

TEST(executors_in_turn_train_one_model)
{
    kit_model one, two;
    fleet_executor *other;

    kit_open(&one, KIT_CTR, &(kit_options){0});
    kit_open(&two, KIT_CTR, &(kit_options){0});
    other = fleet_executor_create(two.p, NULL);
    for (int i = 0; i < 6; i++) {
        kit_batch *b = kit_batch_for(&one, 30, i);

        CHECK_OK(kit_run(one.e, b));
        CHECK_OK(kit_run(i % 2 ? other : two.e, b));
        kit_batch_free(b);
    }
    CHECK(kit_hash(one.f) == kit_hash(two.f));
    CHECK_INT(two.f->store->updates, 6);
    fleet_executor_destroy(other);
    kit_close(&one);
    kit_close(&two);
}

TEST(testing_changes_nothing)
{
    kit_model m;
    uint64_t before;

    kit_open(&m, KIT_CTR, &(kit_options){0});
    before = kit_train(&m, 20, 2);
    fleet_executor *e =
        fleet_executor_create(m.p, &(fleet_executor_options){.for_test = 1});
    for (int i = 0; i < 5; i++) {
        kit_batch *b = kit_batch_for(&m, 20 + i, 100 + i);

        CHECK_OK(kit_run(e, b));
        kit_batch_free(b);
    }
    CHECK(kit_hash(m.f) == before);
    CHECK_INT(m.f->store->updates, 2);
    fleet_executor_destroy(e);
    kit_close(&m);
}

/* What one thread does with an executor of its own. */
typedef struct job {
    kit_model *m;
    bool trains, fetches, comes_and_goes;
    int seed;
    _Atomic int *finished;
} job;

static fleet_executor *executor_of(const job *j)
{
    fleet_executor *e = fleet_executor_create(
        j->m->p, &(fleet_executor_options){.for_test = !j->trains});

    CHECK(e != NULL);
    return e;
}

static void *do_job(void *arg)
{
    const job *j = arg;
    const fleet_var *weights = fleet_program_var(j->m->p, "tower_0.b");
    fleet_executor *e = executor_of(j);
    float x[40];

    for (int i = 0; i < 12; i++) {
        kit_batch *b = kit_batch_for(j->m, 20 + i % 3 * 15, j->seed + i);

        if (j->fetches)
            CHECK_OK(kit_fetch(e, b, weights, x, 40));
        else
            CHECK(isfinite(kit_step(e, b, j->m->m.loss)));
        kit_batch_free(b);
        if (j->comes_and_goes && i % 4 == 3) {
            fleet_executor_destroy(e);
            e = executor_of(j);
        }
    }
    fleet_executor_destroy(e);
    atomic_fetch_add(j->finished, 1);
    return NULL;
}

TEST(executors_train_and_test_at_the_same_time)
{
    enum { JOBS = 6 };
    _Atomic int finished = 0;
    pthread_t thread[JOBS];
    job all[JOBS];
    kit_model m;

    kit_open(&m, KIT_CTR, &(kit_options){.threads = 2});
    for (int i = 0; i < JOBS; i++) {
        all[i] = (job){&m, i < 3, i % 3 == 1, i % 3 == 2, i * 50, &finished};
        CHECK(pthread_create(&thread[i], NULL, do_job, &all[i]) == 0);
    }
    while (atomic_load(&finished) < JOBS)
        CHECK(kit_hash(m.f) != 0);
    for (int i = 0; i < JOBS; i++)
        pthread_join(thread[i], NULL);
    CHECK_INT(m.f->store->updates, 3 * 12);
    kit_close(&m);
}

/* --- what is not a number ------------------------------------------------ */

static void check_nan(kit_model *m, const kit_batch *b, const char *words)
{
    uint64_t before = kit_hash(m->f);

    CHECK_STATUS(kit_run(m->e, b), FLEET_ENUMERIC);
    CHECK_CONTAINS(fleet_last_error(), words);
    CHECK(kit_hash(m->f) == before);
}

TEST(an_input_that_is_not_a_number_is_named_and_nothing_is_updated)
{
    kit_model m;

    kit_open(&m, KIT_CTR, &(kit_options){0});
    kit_train(&m, 10, 2);
    kit_batch *b = kit_batch_for(&m, 10, 7);
    ((float *)(uintptr_t)b->feed[0].data)[33] = NAN;
    check_nan(&m, b,
              "batch 3: the loss is not finite, because input "
              "\"numbers\"");
    check_nan(&m, b, "batch 4: ");
    ((float *)(uintptr_t)b->feed[0].data)[33] = 1;
    CHECK_OK(kit_run(m.e, b));
    CHECK_INT(m.f->store->updates, 3);
    kit_batch_free(b);
    kit_close(&m);
}

TEST(a_parameter_that_is_not_a_number_is_named)
{
    kit_model m;

    kit_open(&m, KIT_MLP, &(kit_options){0});
    kit_batch *b = kit_batch_for(&m, 10, 7);
    fl_param *p = fl_store_param(m.f->store, "tower_1.w");
    p->flat->weight[p->offset + 3] = NAN;
    check_nan(&m, b,
              "batch 1: the loss is not finite, because parameter "
              "\"tower_1.w\", which fc reads, is not");
    kit_batch_free(b);
    kit_close(&m);
}

/* Of ragged data there are more numbers than samples, or fewer. */
static void check_ragged_nan(int64_t rows, int64_t per_row)
{
    const int64_t n = per_row > 0 ? rows * per_row : 1;
    float *values = calloc((size_t)n, sizeof *values);
    int64_t *offsets;
    kit_batch *b = kit_batch_new(rows);
    kit_model m = {.f = kit_handle(&(kit_options){0})};
    fleet_var *x;

    m.p = fleet_program_create(m.f);
    x = fleet_sequence_pool(m.p, fleet_data_ragged_floats(m.p, "x"), FLEET_SUM);
    m.m.loss = fleet_mean(m.p, fleet_fc(m.p, x, 1, NULL));
    CHECK_OK(fleet_minimize(fleet_sgd(m.f, 1), m.m.loss));
    m.e = fleet_executor_create(m.p, NULL);
    CHECK(m.e != NULL);
    free(kit_ragged_floats(b, "x", 1, 1));
    values[n - 1] = NAN;
    b->feed[0].data = values;
    offsets = (int64_t *)(uintptr_t)b->feed[0].offsets;
    for (int64_t i = 0; i <= rows; i++)
        offsets[i] = per_row > 0 ? i * per_row : i == rows;
    check_nan(&m, b, "because input \"x\", which sequence_pool reads, is not");
    kit_batch_free(b);
    kit_close(&m);
}

TEST(a_ragged_input_that_is_not_a_number_is_named)
{
    check_ragged_nan(4, 3);
    check_ragged_nan(40, 0);
}

/* A tower of nothing else, so that what is no number has no other way. */
static void open_tower(kit_model *m, fleet_activation activation, int units)
{
    fleet_var *x, *y, *h;

    *m = (kit_model){.f = kit_handle(&(kit_options){0})};
    m->p = fleet_program_create(m->f);
    x = fleet_data(m->p, "x", FLEET_FLOAT32, (int64_t[]){-1, 4}, 2);
    y = fleet_data(m->p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    h = fleet_fc(m->p, x, units, &(fleet_fc_options){.activation = activation});
    h = fleet_fc(m->p, h, 1, NULL);
    m->m.loss = fleet_mean(m->p, fleet_sigmoid_cross_entropy(m->p, h, y));
    CHECK_OK(fleet_minimize(fleet_sgd(m->f, 1), m->m.loss));
    m->e = fleet_executor_create(m->p, NULL);
    CHECK(m->e != NULL);
}

TEST(no_activation_hides_what_is_not_a_number)
{
    static const int units[] = {1, 33}; /* kernels of our own, and oneDNN's */

    for (int activation = FLEET_LINEAR; activation < FL_N_ACTIVATION;
         activation++)
        for (int i = 0; i < 2; i++) {
            kit_batch *b = kit_batch_new(3);
            kit_model m;

            open_tower(&m, (fleet_activation)activation, units[i]);
            float *labels = kit_floats(b, "label", 1, 1);
            kit_floats(b, "x", 4, 1)[7] = NAN;
            for (int r = 0; r < 3; r++)
                labels[r] = 1;
            check_nan(&m, b, "because input \"x\", which fc reads, is not");
            kit_batch_free(b);
            kit_close(&m);
        }
}

/* mean(square(x w) ...): finite in, infinite inside. */
static void open_overflow(kit_model *m, bool with_auc)
{
    fleet_var *x, *label, *p;

    *m = (kit_model){.f = kit_handle(&(kit_options){0})};
    m->p = fleet_program_create(m->f);
    x = fleet_data(m->p, "x", FLEET_FLOAT32, (int64_t[]){-1, 4}, 2);
    label = fleet_data(m->p, "label", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    p = fleet_fc(m->p, x, 1, NULL);
    p = fleet_sub(m->p, fleet_square(m->p, p), fleet_square(m->p, p));
    p = fleet_sigmoid(m->p, p);
    if (with_auc)
        fleet_auc(m->p, p, label, 0);
    m->m.loss = fleet_mean(m->p, fleet_log_loss(m->p, p, label, 0));
    CHECK_OK(fleet_minimize(fleet_sgd(m->f, 1), m->m.loss));
    m->e = fleet_executor_create(m->p, NULL);
    CHECK(m->e != NULL);
}

static void check_overflow(bool with_auc)
{
    kit_batch *b = kit_batch_new(3);
    kit_model m;

    open_overflow(&m, with_auc);
    float *x = kit_floats(b, "x", 4, 1), *y = kit_floats(b, "label", 1, 1);
    y[0] = y[1] = y[2] = 1;
    CHECK_OK(kit_run(m.e, b));
    x[7] = 1e30f;
    check_nan(&m, b,
              "batch 2: the loss is not finite: op square is the first "
              "whose result is not");
    kit_batch_free(b);
    kit_close(&m);
}

TEST(the_operator_that_made_it_is_named)
{
    check_overflow(false);
}

TEST(the_operator_that_made_it_is_named_before_a_metric_complains)
{
    check_overflow(true);
}

/* A metric on good numbers, and a loss that is none: counted once. */
TEST(a_metric_counts_a_batch_once_though_its_loss_is_not_finite)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    fleet_var *y = fleet_data(p, "y", FLEET_FLOAT32, (int64_t[]){-1, 1}, 2);
    fleet_var *auc = fleet_auc(p, fleet_sigmoid(p, x), y, 16);
    fleet_var *loss = fleet_mean(p, fleet_square(p, fleet_fc(p, x, 1, NULL)));
    kit_batch *b = kit_batch_new(10);
    float *fed = kit_floats(b, "x", 1, 1), *label = kit_floats(b, "y", 1, 1);
    int64_t *pos, *neg, sum = 0;

    CHECK_OK(fleet_minimize(fleet_sgd(f, 1e-9f), loss));
    fleet_executor *e = fleet_executor_create(p, NULL);
    for (int i = 0; i < 10; i++)
        label[i] = (float)(i % 2);
    CHECK_OK(kit_run(e, b));
    fed[3] = 3e38f;
    CHECK_STATUS(kit_run(e, b), FLEET_ENUMERIC);
    pos = fl_store_state(f->store, auc->producer->in[2]->name)->data;
    neg = fl_store_state(f->store, auc->producer->in[3]->name)->data;
    for (int i = 0; i < 16; i++)
        sum += pos[i] + neg[i];
    CHECK_INT(sum, 20);
    kit_batch_free(b);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

/* --- fork ---------------------------------------------------------------- */

TEST(a_child_process_cannot_use_its_parents_handle)
{
    kit_model m;
    kit_batch *b;
    int status = -1;
    pid_t child;

    kit_open(&m, KIT_CTR, &(kit_options){.threads = 2});
    b = kit_batch_for(&m, 10, 1);
    CHECK_OK(kit_run(m.e, b));
    child = fork();
    if (child == 0) {
        uint64_t hash;
        bool refused = kit_run(m.e, b) == FLEET_ESTATE &&
                       strstr(fleet_last_error(), "made before fork()") &&
                       fleet_params_hash(m.f, &hash) == FLEET_ESTATE &&
                       !fleet_executor_create(m.p, NULL) &&
                       !fleet_program_create(m.f);

        fleet_executor_destroy(m.e); /* gives memory back, waits for nobody */
        fleet_destroy(m.f);
        _exit(refused ? 0 : 1);
    }
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    CHECK_OK(kit_run(m.e, b));
    kit_batch_free(b);
    kit_close(&m);
}

/* --- memory -------------------------------------------------------------- */

static void check_settles(kit_kind kind, const kit_options *o)
{
    kit_model m;
    kit_batch *b[3];

    kit_open(&m, kind, o);
    for (int i = 0; i < 3; i++)
        b[i] = kit_batch_for(&m, 40, i);
    for (int i = 0; i < 24; i++)
        CHECK_OK(kit_run(m.e, b[i % 3]));
    fl_memory_fail_at(0, false);
    for (int i = 0; i < 24; i++)
        CHECK_OK(kit_run(m.e, b[i % 3]));
    CHECK_INT(fl_memory_count(), 0);
    for (int i = 0; i < 3; i++)
        kit_batch_free(b[i]);
    kit_close(&m);
}

TEST(a_step_allocates_nothing_once_the_batches_are_known)
{
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++)
        for (int threads = 1; threads <= 2; threads++) {
            check_settles((kit_kind)kind, &(kit_options){.threads = threads});
            check_settles((kit_kind)kind,
                          &(kit_options){.threads = threads, .clip = 0.1f});
            check_settles((kit_kind)kind,
                          &(kit_options){.threads = threads, .merge = 2});
        }
}

/* Make an executor and train while the n-th allocation fails: the model's
 * first one, which fills the store, or another one. */
static bool survives(kit_kind kind, bool first, int64_t n)
{
    kit_model m;
    fleet_executor *e;
    kit_batch *b;
    uint64_t hash;
    bool failed = false;

    kit_build(&m, kind, &(kit_options){.clip = 1, .merge = 2});
    b = kit_batch_for(&m, 20, 1);
    if (!first)
        fleet_executor_destroy(fleet_executor_create(m.p, NULL));
    fl_memory_fail_at(n, false);
    e = fleet_executor_create(m.p, NULL);
    failed = !e;
    for (int i = 0; e && i < 3; i++)
        failed = kit_run(e, b) != FLEET_OK || failed;
    fl_memory_fail_at(0, false);
    if (failed)
        CHECK_CONTAINS(fleet_last_error(), "out of memory");
    CHECK_OK(fleet_params_hash(m.f, &hash));
    if (!e)
        e = fleet_executor_create(m.p, NULL);
    CHECK(e != NULL);
    CHECK_OK(kit_run(e, b));
    kit_batch_free(b);
    m.e = e;
    kit_close(&m);
    return !failed;
}

TEST(an_executor_survives_every_allocation_that_fails)
{
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++)
        for (int first = 0; first < 2; first++) {
            int64_t n = 1;

            while (!survives((kit_kind)kind, first, n))
                n += n < 60 ? 1 : 5;
            CHECK(n > 30);
        }
}
