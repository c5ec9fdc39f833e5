/* ps_layers_test.c - LARS and LAMB where servers keep the dense parameters: in
 * sync the bits of one process, whatever the servers and lanes; in sync and
 * async what the formulas say in double; saves in between. */
#define SUITE ps_layers
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/job/handle.h"
#include "ps/partition.h"
#include "runtime/plan/remote.h"

static const char *const rules[] = {"lars", "lamb"};

static scene_training trained_by(const char *layers)
{
    return (scene_training){.optimizer =
                                strcmp(layers, "lars") ? "adam" : "momentum",
                            .layers = layers,
                            .units = 1200};
}

/* --- bits ----------------------------------------------------------------- */

/* tower_0.w has two blocks. */
static ps_job job_of(const char *layers, int servers, int lanes)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .how = trained_by(layers),
                    .file = {scene_file("a.txt", 200, 1)}};
}

static const int shapes[][2] = {{1, 1}, {1, 3}, {2, 1}, {2, 3}};
enum { N_SHAPE = sizeof shapes / sizeof *shapes };

TEST(sync_has_the_bits_of_one_process_on_any_lanes)
{
    for (int i = 0; i < 2; i++) {
        ps_job alone = job_of(rules[i], 1, 1), plain = alone;
        uint64_t want = ps_alone(&alone, 2);

        plain.how.layers = NULL;
        CHECK(want != ps_alone(&plain, 2));
        for (int k = 0; k < N_SHAPE; k++) {
            ps_job j = job_of(rules[i], shapes[k][0], shapes[k][1]);

            if (ps_hash(&j) != want)
                test_fail(__FILE__, __LINE__, "%s, %d servers of %d lanes",
                          rules[i], shapes[k][0], shapes[k][1]);
        }
    }
}

TEST(so_it_has_with_a_clip_a_decay_and_a_schedule)
{
    for (int i = 0; i < 2; i++) {
        ps_job j = job_of(rules[i], 2, 3);
        uint64_t want;

        j.how.l2_decay = 0.01f;
        j.how.decay = true;
        want = ps_alone(&j, 2);
        CHECK(ps_hash(&j) == want);
        j.how.clip = 0.05f;
        CHECK(ps_alone(&j, 2) != want);
        CHECK(ps_hash(&j) == ps_alone(&j, 2));
    }
}

/* One worker's push is used where it lies: no sums are made. */
TEST(so_it_has_with_one_worker)
{
    for (int i = 0; i < 2; i++) {
        ps_job j = job_of(rules[i], 2, 2);

        j.workers = 1;
        CHECK(ps_hash(&j) == ps_alone(&j, 1));
    }
}

/* --- saves ---------------------------------------------------------------- */

static fleet_status train_and_save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    return ps_end(n);
}

/* By any other servers, by one process, and by a job that has no rates by
 * layer, whose blocks are elsewhere. */
TEST(a_save_in_between_changes_no_bit)
{
    for (int i = 0; i < 2; i++) {
        ps_job j = job_of(rules[i], 2, 2), twice = j, plain = j;
        const char *path = test_path(rules[i]);
        uint64_t want;

        twice.passes = 2;
        want = ps_alone(&twice, 2);
        j.work = train_and_save;
        j.user = (void *)path;
        ps_hash(&j);
        for (int k = 0; k < N_SHAPE; k++) {
            ps_job next = job_of(rules[i], shapes[k][0], shapes[k][1]);

            next.load = path;
            CHECK(ps_hash(&next) == want);
            next.load = NULL;
            next.server_load = path;
            CHECK(ps_hash(&next) == want);
        }
        j.load = path;
        CHECK(ps_alone(&j, 2) == want);
        plain.how.layers = NULL;
        plain.load = path;
        CHECK(ps_hash(&plain) == ps_alone(&plain, 2));
    }
}

/* --- formulas ------------------------------------------------------------- */

/* The mean of the units of one layer: a gradient is the batch's mean, and says
 * nothing of the weights. The weights have two blocks, and rates of their own;
 * the bias begins as zeros. */
enum { DIM = 20, UNITS = 1000, ROWS = 12, STEPS = 6, WORKERS = 2 };
enum { MOST = DIM * UNITS };
static const float rate = 0.125f, decay = 0.0625f;
static const fleet_param_attr own = {.learning_rate = 0.5f, .l2_decay = 0.25f};

static void open_mean(ps_node *n, const fleet_options *o)
{
    const kit_options how = {.layers = n->job->how.layers,
                             .l2_decay = decay,
                             .learning_rate = rate,
                             .layer_decay = 0.125f,
                             .layer_coeff = 0.0625f};
    const fleet_fc_options wide = {.name = "wide", .weight = own};
    fleet_distributed_strategy s;
    fleet_optimizer *by;
    fleet_var *x;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    x = fleet_data(n->s.p, "x", FLEET_FLOAT32, (int64_t[]){-1, DIM}, 2);
    x = fleet_mean(n->s.p, fleet_fc(n->s.p, x, UNITS, &wide));
    by = kit_optimizer(n->s.f, &how);
    s = n->s.f->strategy;
    s.a_sync = n->job->how.a_sync;
    CHECK(fleet_distributed_optimizer(n->s.f, by, &s) == by);
    CHECK_OK(fleet_minimize(by, x));
}

static kit_batch *the_batch(void)
{
    kit_batch *b = kit_batch_new(ROWS);
    float *x = kit_floats(b, "x", DIM, 1);

    for (int i = 0; i < ROWS * DIM; i++)
        x[i] *= 100;
    return b;
}

typedef struct weights {
    float w[MOST], bias[UNITS];
} weights;

static void copy_weights(const ps_node *n, weights *to)
{
    const fl_store *s = n->s.f->store;
    const fl_param *w = fl_store_param(s, "wide.w"),
                   *b = fl_store_param(s, "wide.b");

    CHECK(w->n == MOST && fl_blocks_of(w) == 2 && b->n == UNITS);
    memcpy(to->w, w->flat->weight + w->offset, sizeof to->w);
    memcpy(to->bias, b->flat->weight + b->offset, sizeof to->bias);
}

/* job.user: weights before and after. */
static fleet_status run_steps(ps_node *n)
{
    weights *all = n->job->user;
    kit_batch *b = the_batch();
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK && n->index == 0)
        copy_weights(n, &all[0]);
    for (int i = 0; i < STEPS && status == FLEET_OK; i++)
        status = kit_run(n->s.e, b);
    kit_batch_free(b);
    FL_TRY(status);
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(n->s.f->store->remote->methods->refresh(n->s.f->store->remote));
    if (n->index == 0)
        copy_weights(n, &all[1]);
    return ps_end(n);
}

/* A layer in double. */
typedef struct reference {
    int64_t n;
    double rate, decay;
    double w[MOST], a[MOST], b[MOST], g[MOST];
} reference;

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static void lars_in_double(reference *r)
{
    double w = norm_of(r->w, r->n), g, ratio;

    for (int64_t i = 0; i < r->n; i++)
        r->g[i] += r->decay * r->w[i];
    g = norm_of(r->g, r->n);
    ratio = w > 0 ? 0.0625 * w / (g + 0.125 * w) : 1;
    for (int64_t i = 0; i < r->n; i++) {
        r->a[i] = (double)0.9f * r->a[i] +
                  r->rate * ratio * (r->g[i] + 0.125 * r->w[i]);
        r->w[i] -= r->a[i];
    }
}

static void lamb_in_double(reference *r, int t)
{
    const double b1 = (double)0.9f, b2 = (double)0.999f;
    double w = norm_of(r->w, r->n), step;

    for (int64_t i = 0; i < r->n; i++) {
        double g = r->g[i] + r->decay * r->w[i];

        r->a[i] = b1 * r->a[i] + (1 - b1) * g;
        r->b[i] = b2 * r->b[i] + (1 - b2) * g * g;
        r->g[i] = r->a[i] / (1 - pow(b1, t)) /
                      (sqrt(r->b[i] / (1 - pow(b2, t))) + (double)1e-8f) +
                  0.125 * r->w[i];
    }
    step = norm_of(r->g, r->n);
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] -= r->rate * (w > 0 ? w / step : 1) * r->g[i];
}

static double mean_of_column(const kit_batch *b, int64_t column)
{
    const float *x = b->feed[0].data;
    double sum = 0;

    for (int64_t i = 0; i < ROWS; i++)
        sum += (double)x[i * DIM + column];
    return sum / ROWS;
}

static void check_layer(const char *rule, const float *before,
                        const float *after, int64_t n, int updates)
{
    reference *r = calloc(1, sizeof *r);
    kit_batch *b = the_batch();

    r->n = n;
    r->rate = (double)rate * (n == MOST ? (double)own.learning_rate : 1);
    r->decay = (double)(n == MOST ? own.l2_decay : decay);
    for (int64_t i = 0; i < n; i++)
        r->w[i] = (double)before[i];
    for (int t = 1; t <= updates; t++) {
        for (int64_t i = 0; i < n; i++)
            r->g[i] = (n == MOST ? mean_of_column(b, i / UNITS) : 1) / UNITS;
        if (strcmp(rule, "lars") == 0)
            lars_in_double(r);
        else
            lamb_in_double(r, t);
    }
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)after[i] - r->w[i]) <=
              2e-5 * fmax(fabs(r->w[i]), 0.05)))
            test_fail(__FILE__, __LINE__,
                      "%s of %d: element %d is %.9g not %.9g", rule, (int)n,
                      (int)i, (double)after[i], r->w[i]);
    kit_batch_free(b);
    free(r);
}

/* In async all pushes are alike, so that it does not matter whose is first:
 * each is an update of its own. */
static void check_formula(const char *rule, bool a_sync)
{
    weights *all = calloc(2, sizeof *all);
    ps_job j = {.servers = 2,
                .workers = WORKERS,
                .lanes = 3,
                .open = open_mean,
                .work = run_steps,
                .how = {.layers = rule, .a_sync = a_sync},
                .user = all};
    int updates = a_sync ? WORKERS * STEPS : STEPS;

    ps_run(&j);
    ps_check(&j);
    check_layer(rule, all[0].w, all[1].w, MOST, updates);
    check_layer(rule, all[0].bias, all[1].bias, UNITS, updates);
    free(all);
}

TEST(sync_does_what_the_formulas_say)
{
    check_formula("lars", false);
    check_formula("lamb", false);
}

TEST(async_does_what_the_formulas_say_with_each_push)
{
    check_formula("lars", true);
    check_formula("lamb", true);
}

/* --- who differs ---------------------------------------------------------- */

static void open_unlike(ps_node *n, const fleet_options *o)
{
    scene_training how = trained_by("lamb");

    how.layers = n->server ? NULL : "lamb";
    scene_open_as(&n->s, o, &how);
}

TEST(a_server_without_the_rule_refuses_the_worker)
{
    ps_job j = {.open = open_unlike, .connect_ms = PS_SECOND};

    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EINVAL);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "the worker trains in mode ps-sync, lamb 1, this server in "
                   "ps-sync");
}
