/* lars_lamb_test.c - LARS and LAMB: against their formulas in double, the same
 * bits whatever the threads, splits and instruction sets, tables by the plain
 * rule; what is refused. On servers: ps_layers_test.c. */
#define SUITE lars_lamb
#include "fake_remote.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/simd/simd.h"
#include "runtime/store/store_hash.h"

/* --- a model whose gradients are known ------------------------------------ */

enum { DIM = 20, ROWS = 12, UNITS = 1018, MOST = DIM * 1000 };
static const float rate = 0.125f, own_rate = 0.5f, own_decay = 0.25f;

typedef struct scene {
    kit_options how;
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
} scene;

static fleet_var *layer(fleet_program *p, fleet_var *x, const char *name,
                        int64_t n, fleet_param_attr weight)
{
    fleet_fc_options o = {.name = name, .weight = weight};

    return fleet_fc(p, x, n, &o);
}

/* The mean of four layers' units: a gradient says nothing of the weights. The
 * first layer has two blocks; the last one, and all biases, start as zeros. */
static void open_scene(scene *s, const kit_options *how)
{
    const fleet_param_attr own = {.learning_rate = own_rate,
                                  .l2_decay = own_decay};
    const fleet_param_attr nil = {.initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    fleet_var *x, *y[4], *loss;

    *s = (scene){.how = *how};
    s->how.learning_rate = rate;
    s->f = kit_handle(how);
    s->p = fleet_program_create(s->f);
    x = fleet_data(s->p, "x", FLEET_FLOAT32, (int64_t[]){-1, DIM}, 2);
    y[0] = layer(s->p, x, "wide", 1000, (fleet_param_attr){0});
    y[1] = layer(s->p, x, "bare", 7, (fleet_param_attr){.no_decay = 1});
    y[2] = layer(s->p, x, "own", 6, own);
    y[3] = layer(s->p, x, "nil", 5, nil);
    loss = fleet_mean(s->p, fleet_concat(s->p, y, 4, 1));
    CHECK_OK(fleet_minimize(kit_optimizer(s->f, &s->how), loss));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
}

static void close_scene(scene *s)
{
    fleet_executor_destroy(s->e);
    fleet_destroy(s->f);
}

static kit_batch *batch_of(int seed)
{
    kit_batch *b = kit_batch_new(ROWS);
    float *x = kit_floats(b, "x", DIM, seed);

    for (int i = 0; i < ROWS * DIM; i++)
        x[i] *= 100;
    return b;
}

static const fl_param *param(const scene *s, const char *name)
{
    const fl_param *p = fl_store_param(s->f->store, name);

    CHECK(p != NULL);
    return p;
}

static const float *weights_of(const fl_param *p)
{
    return p->flat->weight + p->offset;
}

/* --- in double ------------------------------------------------------------ */

typedef struct reference {
    const fl_param *p;
    int64_t units;
    bool bias;
    double w[MOST], a[MOST], b[MOST], g[MOST];
} reference;

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double mean_of_column(const kit_batch *b, int64_t column)
{
    const float *x = b->feed[0].data;
    double sum = 0;

    for (int64_t i = 0; i < b->rows; i++)
        sum += (double)x[i * DIM + column];
    return sum / (double)b->rows;
}

static void set_gradient(reference *r, const kit_batch *b)
{
    double mean[DIM];

    for (int i = 0; i < DIM; i++)
        mean[i] = mean_of_column(b, i);
    for (int64_t i = 0; i < r->p->n; i++)
        r->g[i] = (r->bias ? 1 : mean[i / r->units]) / UNITS;
}

/* All of them, by name. */
enum { N_PARAM = 8 };

static reference *references(const scene *s)
{
    static const char *const name[N_PARAM] = {"wide.w", "wide.b", "bare.w",
                                              "bare.b", "own.w",  "own.b",
                                              "nil.w",  "nil.b"};
    reference *r = calloc(N_PARAM, sizeof *r);

    for (int i = 0; i < N_PARAM; i++) {
        r[i].p = param(s, name[i]);
        r[i].bias = i % 2 != 0;
        r[i].units = r[i].bias ? r[i].p->n : r[i].p->n / DIM;
        for (int64_t j = 0; j < r[i].p->n; j++)
            r[i].w[j] = (double)weights_of(r[i].p)[j];
    }
    return r;
}

static void clip(reference *r, double most)
{
    double sum = 0;

    for (int i = 0; i < N_PARAM; i++)
        sum += pow(norm_of(r[i].g, r[i].p->n), 2);
    CHECK(most == 0 || sqrt(sum) > most); /* it has something to do */
    for (int i = 0; most > 0 && i < N_PARAM; i++)
        for (int64_t j = 0; j < r[i].p->n; j++)
            r[i].g[j] *= most / sqrt(sum);
}

static void clip_values(reference *r, double most)
{
    int cut = 0;

    for (int i = 0; most > 0 && i < N_PARAM; i++)
        for (int64_t j = 0; j < r[i].p->n; j++) {
            cut += fabs(r[i].g[j]) > most;
            r[i].g[j] = fmax(-most, fmin(most, r[i].g[j]));
        }
    CHECK(most == 0 || cut > 0);
}

/* What the parameter says itself. */
typedef struct numbers {
    double rate, l2, l1, decay;
    bool bare;
} numbers;

static numbers numbers_of(const reference *r, const kit_options *o)
{
    numbers x = {(double)rate, (double)o->l2_decay, (double)o->l1_decay,
                 (double)o->layer_decay, r->p->attr.no_decay};

    if (strcmp(r->p->name, "own.w") == 0) {
        x.rate *= (double)own_rate;
        x.l2 = (double)own_decay;
    }
    if (x.bare)
        x.l2 = x.l1 = x.decay = 0;
    return x;
}

static double sign_of(double w)
{
    return (w > 0) - (w < 0);
}

static void lars_in_double(reference *r, const kit_options *o)
{
    numbers x = numbers_of(r, o);
    int64_t n = r->p->n;
    double w, g, ratio = 1;

    for (int64_t i = 0; i < n; i++)
        r->g[i] += x.l2 * r->w[i] + x.l1 * sign_of(r->w[i]);
    w = norm_of(r->w, n);
    g = norm_of(r->g, n);
    if (w > 0 && !x.bare)
        ratio = (double)o->layer_coeff * w /
                (g + x.decay * w + (double)o->layer_epsilon);
    for (int64_t i = 0; i < n; i++) {
        r->a[i] = (double)0.9f * r->a[i] +
                  x.rate * ratio * (r->g[i] + x.decay * r->w[i]);
        r->w[i] -= r->a[i];
    }
}

static void lamb_in_double(reference *r, const kit_options *o, int t)
{
    const double b1 = (double)0.9f, b2 = (double)0.999f;
    numbers x = numbers_of(r, o);
    int64_t n = r->p->n;
    double w = norm_of(r->w, n), step;

    for (int64_t i = 0; i < n; i++) {
        double g = r->g[i] + x.l2 * r->w[i] + x.l1 * sign_of(r->w[i]);

        r->a[i] = b1 * r->a[i] + (1 - b1) * g;
        r->b[i] = b2 * r->b[i] + (1 - b2) * g * g;
        r->g[i] = r->a[i] / (1 - pow(b1, t)) /
                      (sqrt(r->b[i] / (1 - pow(b2, t))) + (double)1e-8f) +
                  x.decay * r->w[i];
    }
    step = norm_of(r->g, n);
    for (int64_t i = 0; i < n; i++)
        r->w[i] -= x.rate * (w > 0 ? w / step : 1) * r->g[i];
}

static void step_in_double(reference *r, const kit_options *o,
                           const kit_batch *b, int t)
{
    for (int i = 0; i < N_PARAM; i++)
        set_gradient(&r[i], b);
    clip(r, (double)o->clip);
    clip_values(r, (double)o->value_clip);
    for (int i = 0; i < N_PARAM; i++)
        if (strcmp(o->layers, "lars") == 0)
            lars_in_double(&r[i], o);
        else
            lamb_in_double(&r[i], o, t);
}

static void check_weights(const reference *r, int t)
{
    for (int64_t i = 0; i < r->p->n; i++) {
        double got = (double)weights_of(r->p)[i], want = r->w[i];

        if (!(fabs(got - want) <= 2e-5 * fmax(fabs(want), 0.05)))
            test_fail(__FILE__, __LINE__, "%s[%d], step %d: %.9g not %.9g",
                      r->p->name, (int)i, t, got, want);
    }
}

static void check_steps(const kit_options *how)
{
    reference *r;
    scene s;

    open_scene(&s, how);
    r = references(&s);
    for (int t = 1; t <= 8; t++) {
        kit_batch *b = batch_of(t);

        CHECK_OK(kit_run(s.e, b));
        step_in_double(r, how, b, t);
        for (int i = 0; i < N_PARAM; i++)
            check_weights(&r[i], t);
        kit_batch_free(b);
    }
    free(r);
    close_scene(&s);
}

TEST(lars_does_what_its_formula_says_over_steps)
{
    kit_options o = {
        .layers = "lars", .layer_coeff = 0.0625f, .layer_decay = 0.125f};

    check_steps(&o);
    o.l2_decay = 0.0625f;
    o.layer_epsilon = 0.5f;
    check_steps(&o);
    o.clip = 0.01f;
    check_steps(&o);
    o.clip = 0;
    o.value_clip = 1e-4f;
    o.l1_decay = 0.0078125f;
    check_steps(&o);
}

TEST(lamb_does_what_its_formula_says_over_steps)
{
    kit_options o = {.layers = "lamb", .layer_decay = 0.125f};

    check_steps(&o);
    o.l2_decay = 0.0625f;
    check_steps(&o);
    o.clip = 0.01f;
    check_steps(&o);
    o.clip = 0;
    o.value_clip = 1e-4f;
    o.l1_decay = 0.0078125f;
    check_steps(&o);
}

/* Step 1: the rate as it is, where a ratio has nothing to be of. */
TEST(weights_of_zero_take_the_plain_rate)
{
    scene s;
    kit_batch *b = batch_of(3);

    open_scene(&s, &(kit_options){.layers = "lars"});
    CHECK_OK(kit_run(s.e, b));
    float got = weights_of(param(&s, "nil.w"))[0];
    float want = (float)(-(double)rate * mean_of_column(b, 0) / UNITS);
    CHECK(fabsf(want) > 1e-5f);
    CHECK(fabsf(got - want) <= 1e-5f * fabsf(want));
    close_scene(&s);
    open_scene(&s, &(kit_options){.layers = "lamb"});
    CHECK_OK(kit_run(s.e, b));
    got = weights_of(param(&s, "nil.b"))[0];
    CHECK(fabsf(got + rate) <= 1e-3f * rate); /* Adam's first step is 1 */
    close_scene(&s);
    kit_batch_free(b);
}

/* --- bits ----------------------------------------------------------------- */

static uint64_t hash_after(kit_options how, int threads)
{
    uint64_t hash;
    scene s;

    how.threads = threads;
    open_scene(&s, &how);
    for (int i = 0; i < 8; i++) {
        kit_batch *b = batch_of(i);

        CHECK_OK(kit_run(s.e, b));
        kit_batch_free(b);
    }
    hash = kit_hash(s.f);
    close_scene(&s);
    return hash;
}

TEST(bits_do_not_depend_on_the_number_of_threads)
{
    const kit_options lars = {.layers = "lars", .merge = 2, .clip = 0.01f};
    const kit_options lamb = {.layers = "lamb", .merge = 2, .clip = 0.01f};

    for (int threads = 2; threads <= 3; threads++) {
        CHECK(hash_after(lars, 1) == hash_after(lars, threads));
        CHECK(hash_after(lamb, 1) == hash_after(lamb, threads));
    }
    CHECK(hash_after(lars, 1) != hash_after(lamb, 1));
}

enum { N = 70 };

typedef struct arrays {
    float w[N], s[3][N];
} arrays;

/* A step of both rules, in two calls that meet at `split`. */
static void run_split(const fl_simd *t, int split, arrays *lars, arrays *lamb)
{
    const fl_update u = {.lr = 0.1f,
                         .scale = 0.5f,
                         .clip = 0.75f,
                         .decay = 0.01f,
                         .apart = 0.02f,
                         .number = {0.9f, 0.99f, 1e-6f},
                         .correct_a = 3,
                         .correct_b = 5};

    for (int i = 0; i < N; i++) {
        lars->w[i] = lamb->w[i] = kit_noise(i, 1);
        for (int k = 0; k < 3; k++)
            lars->s[k][i] = lamb->s[k][i] = fabsf(kit_noise(i, 2 + k));
    }
    for (int part = 0; part < 2; part++) {
        int at = part ? split : 0, n = part ? N - split : split;
        float *one[] = {lars->s[0] + at}, *g = lamb->s[2] + at;
        float *all[] = {lamb->s[0] + at, lamb->s[1] + at, g};

        fl_rule_set_on(t)->lars(&u, lars->w + at, lars->s[2] + at, one, n);
        fl_rule_set_on(t)->lamb(&u, lamb->w + at, g, all, n);
    }
}

TEST(bits_are_the_same_at_every_split_and_on_every_instruction_set)
{
    arrays want[2], got[2];

    run_split(fl_simd_best(), 0, &want[0], &want[1]);
    for (const fl_simd *const *t = fl_simd_all(); *t; t++)
        for (int split = 0; split <= N; split++) {
            run_split(*t, split, &got[0], &got[1]);
            CHECK(memcmp(got, want, sizeof got) == 0);
        }
}

/* --- tables --------------------------------------------------------------- */

/* Their hash, and all parameters', after one batch. */
static uint64_t rows_after(const kit_options *how, uint64_t *all)
{
    uint64_t sum = 0;
    kit_model m;

    kit_open(&m, KIT_CTR, how);
    *all = kit_train(&m, 40, 1);
    for (size_t i = 0; i < m.f->store->tables.n; i++) {
        uint64_t hash;

        CHECK_OK(fl_store_hash_rows(m.f->store->tables.entry[i].value, &hash));
        sum += hash;
    }
    kit_close(&m);
    return sum;
}

TEST(rows_of_tables_are_updated_by_the_plain_rule)
{
    uint64_t plain, by_layers;

    CHECK(rows_after(&(kit_options){.optimizer = "momentum"}, &plain) ==
          rows_after(&(kit_options){.layers = "lars"}, &by_layers));
    CHECK(plain != by_layers);
    CHECK(rows_after(&(kit_options){0}, &plain) ==
          rows_after(&(kit_options){.layers = "lamb"}, &by_layers));
    CHECK(plain != by_layers);
}

/* --- what is refused, what is said ---------------------------------------- */

TEST(another_optimizer_than_the_one_they_change_is_refused)
{
    const fleet_momentum_options nesterov = {.nesterov = 1};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = kit_handle(&(kit_options){0});

    s.lars = 1;
    kit_refused(f, fleet_adam(f, 1, NULL), &s, FLEET_EUNSUPPORTED,
                "strategy.lars: expected the optimizer momentum, got adam");
    kit_refused(f, fleet_momentum(f, 1, &nesterov), &s, FLEET_EUNSUPPORTED,
                "strategy.lars: expected momentum without nesterov");
    CHECK(fleet_distributed_optimizer(f, fleet_momentum(f, 1, NULL), &s));
    s.lamb = 1;
    kit_refused(f, fleet_momentum(f, 1, NULL), &s, FLEET_EUNSUPPORTED,
                "strategy.lamb: expected the optimizer adam, got momentum");
    s.lars = 0;
    kit_refused(f, fleet_sgd(f, 1), &s, FLEET_EUNSUPPORTED,
                "strategy.lamb: expected the optimizer adam, got sgd");
    CHECK(fleet_distributed_optimizer(f, fleet_adam(f, 1, NULL), &s));
    fleet_destroy(f);
}

TEST(minimize_with_another_optimizer_is_refused)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_model m;

    s.lamb = 1;
    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    CHECK(fleet_distributed_optimizer(f, fleet_adam(f, 1, NULL), &s));
    CHECK_FAILS(fleet_minimize(fleet_adagrad(f, 1, NULL), m.loss),
                FLEET_EUNSUPPORTED,
                "strategy.lamb: expected the optimizer "
                "adam, got adagrad");
    CHECK_OK(fleet_minimize(fleet_adam(f, 1, NULL), m.loss));
    fleet_destroy(f);
}

#define NUMBER(rule, change, words)                                            \
    do {                                                                       \
        fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;        \
                                                                               \
        s.rule = 1;                                                            \
        s.change;                                                              \
        kit_refused(f, o, &s, FLEET_EINVAL, words);                            \
    } while (0)

TEST(numbers_that_cannot_be_are_refused)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_optimizer *o = fleet_adam(f, 1, NULL);
    fleet_distributed_strategy off = FLEET_DISTRIBUTED_STRATEGY_INIT;

    NUMBER(lars, lars_configs.lars_coeff = 0,
           "strategy.lars_configs.lars_coeff: expected 1e-09 to 1000, got 0");
    NUMBER(lars, lars_configs.lars_coeff = NAN, "got nan");
    NUMBER(lars, lars_configs.lars_weight_decay = -1,
           "strategy.lars_configs.lars_weight_decay: expected 0 to 1000");
    NUMBER(lars, lars_configs.epsilon = -1, "strategy.lars_configs.epsilon:");
    NUMBER(lamb, lamb_configs.lamb_weight_decay = -1,
           "strategy.lamb_configs.lamb_weight_decay: expected 0 to 1000");
    NUMBER(lars, lamb_configs.lamb_weight_decay = 0.5f,
           "strategy.lamb_configs.lamb_weight_decay is 0.5, but strategy.lamb "
           "is 0");
    off.lars_configs.epsilon = 1;
    kit_refused(f, o, &off, FLEET_EINVAL,
                "strategy.lars_configs.epsilon is 1, but strategy.lars is 0");
    fleet_destroy(f);
}

TEST(the_strategy_dump_says_that_they_are_honoured)
{
    kit_model m;
    char *text;

    kit_build(&m, KIT_MLP, &(kit_options){.layers = "lars"});
    text = fleet_strategy_dump(m.f);
    CHECK_CONTAINS(text, "lars                                             1   "
                         "         asked    honoured");
    CHECK_CONTAINS(text, "passes lars form_regions");
    fleet_free(text);
    kit_close(&m);
}

TEST(a_plan_for_parameters_on_servers_pushes_gradients)
{
    fake_server s;
    fake_worker w;
    kit_model m;
    char *plan;

    kit_build(&m, KIT_MLP, &(kit_options){.layers = "lamb"});
    fake_server_open(&s, m.p, 1, true);
    fake_worker_open(&w, &s, m.f, 0);
    plan = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
    CHECK(plan && strstr(plan, "ps.push") && !strstr(plan, "lamb"));
    fleet_free(plan);
    fake_worker_close(&w);
    fake_server_close(&s);
    kit_close(&m);
}
