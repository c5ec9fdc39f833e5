/* custom_op_test.c - operators that a program registers: they train, with
 * parameters and several results, with the same bits by any number of threads,
 * as what built-in operators compute; on a GPU; in dumps, saves and predictors;
 * and what is refused, by them and of them. */
#define SUITE custom_op
#include "gpu_kit.h"
#include "memory_kit.h"
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "fleet/job/handle.h"

static int64_t count_of(const fleet_custom_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dims[i];
    return n;
}

/* --- swish: y = x sigmoid(w x), w [1] a parameter; saves the sigmoid ------ */

static fleet_status swish_shape(fleet_custom_shape *s)
{
    if (s->in[1].n_dim != 1 || s->in[1].dims[0] != 1)
        return fleet_custom_fail(FLEET_ESHAPE, "w has to be one number");
    s->saved = 1;
    for (int i = 1; i < s->in[0].n_dim; i++)
        s->saved *= s->in[0].dims[i];
    return FLEET_OK;
}

static fleet_status swish_forward(const fleet_custom_call *c)
{
    const float *x = c->in[0].data, *w = c->in[1].data;
    float *y = c->out[0].data;

    for (int64_t i = 0; i < count_of(&c->in[0]); i++) {
        c->saved[i] = 1.0f / (1.0f + expf(-w[0] * x[i]));
        y[i] = x[i] * c->saved[i];
    }
    return FLEET_OK;
}

static fleet_status swish_backward(const fleet_custom_call *c)
{
    const float *x = c->in[0].data, *w = c->in[1].data;
    const float *g = c->out_grad[0].data;
    float *dx = c->in_grad[0].data, *dw = c->in_grad[1].data;
    double sum = 0;

    for (int64_t i = 0; i < count_of(&c->in[0]); i++) {
        float s = c->saved[i], slope = s * (1.0f - s);

        if (dx)
            dx[i] = g[i] * (s + w[0] * x[i] * slope);
        sum += (double)(g[i] * x[i] * x[i] * slope);
    }
    if (dw)
        *dw = (float)sum;
    return FLEET_OK;
}

static const fleet_custom_op swish = {.name = "swish_of_w",
                                      .n_in = 2,
                                      .shape = swish_shape,
                                      .forward = swish_forward,
                                      .backward = swish_backward};

/* --- halves: two results, by an attribute and ids of columns ------------- */

static fleet_status halves_shape(fleet_custom_shape *s)
{
    if (s->in[1].dtype != FLEET_INT64)
        return fleet_custom_fail(FLEET_EDTYPE, "the second input is ids");
    s->out[1].n_dim = 2;
    s->out[1].dims[1] = 1;
    return FLEET_OK;
}

/* out 0: factor x, but for one column, which is out 1 as it is. */
static fleet_status halves_forward(const fleet_custom_call *c)
{
    const float *x = c->in[0].data;
    const int64_t *id = c->in[1].data;
    float factor = (float)fleet_custom_attr_float(c->attrs, "factor");
    int64_t cols = c->in[0].dims[1];
    float *scaled = c->out[0].data, *one = c->out[1].data;

    for (int64_t i = 0; i < c->in[0].dims[0]; i++) {
        for (int64_t j = 0; j < cols; j++)
            scaled[i * cols + j] = j == id[i] ? 0 : factor * x[i * cols + j];
        one[i] = x[i * cols + id[i]];
    }
    return FLEET_OK;
}

static fleet_status halves_backward(const fleet_custom_call *c)
{
    const int64_t *id = c->in[1].data;
    float factor = (float)fleet_custom_attr_float(c->attrs, "factor");
    int64_t cols = c->in[0].dims[1];
    const float *g = c->out_grad[0].data, *g_one = c->out_grad[1].data;
    float *dx = c->in_grad[0].data;

    if (c->in_grad[1].data)
        return fleet_custom_fail(FLEET_EINVAL, "ids have no gradient");
    for (int64_t i = 0; i < c->in[0].dims[0]; i++)
        for (int64_t j = 0; j < cols; j++)
            dx[i * cols + j] = j == id[i] ? (g_one ? g_one[i] : 0)
                               : g        ? factor * g[i * cols + j]
                                          : 0;
    return FLEET_OK;
}

static const fleet_custom_op halves = {.name = "halves",
                                       .n_in = 2,
                                       .n_out = 2,
                                       .attrs = "factor:f",
                                       .shape = halves_shape,
                                       .forward = halves_forward,
                                       .backward = halves_backward};

/* --- spread: a loss of the whole batch, [1]: the variance of x [B, 1] ----- */

static fleet_status spread_shape(fleet_custom_shape *s)
{
    s->out[0].n_dim = 1;
    s->out[0].dims[0] = 1;
    return FLEET_OK;
}

static double mean_of(const fleet_custom_tensor *x)
{
    double sum = 0;

    for (int64_t i = 0; i < x->dims[0]; i++)
        sum += (double)((const float *)x->data)[i];
    return sum / (double)x->dims[0];
}

static fleet_status spread_forward(const fleet_custom_call *c)
{
    double mean = mean_of(&c->in[0]), sum = 0;

    for (int64_t i = 0; i < c->in[0].dims[0]; i++)
        sum += pow((double)((const float *)c->in[0].data)[i] - mean, 2);
    *(float *)c->out[0].data = (float)(sum / (double)c->in[0].dims[0]);
    return FLEET_OK;
}

static fleet_status spread_backward(const fleet_custom_call *c)
{
    double mean = mean_of(&c->in[0]), n = (double)c->in[0].dims[0];
    float g = *(const float *)c->out_grad[0].data;

    for (int64_t i = 0; i < c->in[0].dims[0]; i++)
        ((float *)c->in_grad[0].data)[i] =
            g *
            (float)(2 * ((double)((const float *)c->in[0].data)[i] - mean) / n);
    return FLEET_OK;
}

static const fleet_custom_op spread = {.name = "spread_of_batch",
                                       .n_in = 1,
                                       .shape = spread_shape,
                                       .forward = spread_forward,
                                       .backward = spread_backward,
                                       .whole_batch = 1};

/* --- a model that has all three ------------------------------------------- */

static void register_all(void)
{
    CHECK_OK(fleet_custom_op_register(&swish));
    CHECK_OK(fleet_custom_op_register(&halves));
    CHECK_OK(fleet_custom_op_register(&spread));
}

static fleet_var *one_number(fleet_program *p)
{
    return fleet_parameter(
        p, (int64_t[]){1}, 1,
        &(fleet_param_attr){.name = "w",
                            .initializer = {FLEET_INIT_CONSTANT, 0.7f, 0}});
}

static fleet_var *swish_of(fleet_program *p, fleet_var *x, bool custom)
{
    fleet_var *in[] = {x, one_number(p)};

    if (custom)
        return fleet_custom(p, "swish_of_w", in, 2, NULL, 0, NULL);
    return fleet_mul(p, x, fleet_sigmoid(p, fleet_mul(p, x, in[1])));
}

/* Of ids below 6: the column as one number, and the others times 3. */
static fleet_var *halves_of(fleet_program *p, fleet_var *x, fleet_var *id,
                            bool custom, fleet_var **scaled)
{
    const fleet_custom_attr factor = {.name = "factor", .f = 3};
    fleet_var *out[2] = {NULL}, *in[] = {x, id}, *own;

    if (custom) {
        fleet_custom(p, "halves", in, 2, &factor, 1, out);
        *scaled = out[0];
        return out[1];
    }
    own = fleet_mul(p, x, fleet_one_hot(p, id, 6));
    *scaled = fleet_scale(p, fleet_sub(p, x, own), 3, 0);
    return fleet_reduce_sum(p, own, 1, 1);
}

static fleet_var *spread_of(fleet_program *p, fleet_var *x, bool custom)
{
    fleet_var *m = fleet_mean(p, x);

    if (custom)
        return fleet_custom(p, "spread_of_batch", &x, 1, NULL, 0, NULL);
    return fleet_sub(p, fleet_mean(p, fleet_square(p, x)), fleet_square(p, m));
}

typedef struct trained {
    kit_model m;
    float loss;
    uint64_t hash;
} trained;

enum { ROWS = 150 };

static kit_batch *batch_of(int64_t rows)
{
    kit_batch *b = kit_batch_new(rows);

    kit_floats(b, "x", 4, 1);
    kit_ids(b, "id", 1, 6, 2);
    return b;
}

static void build(kit_model *m, bool custom)
{
    fleet_program *p = m->p;
    fleet_var *x = kit_data(p, "x", 4), *id = kit_data_ids(p, "id", 1);
    fleet_var *h = swish_of(p, fleet_fc(p, x, 6, NULL), custom), *scaled, *one;

    one = halves_of(p, h, id, custom, &scaled);
    m->m.prediction =
        fleet_add(p, fleet_fc(p, scaled, 1, NULL), fleet_square(p, one));
    m->m.loss = fleet_add(p, spread_of(p, m->m.prediction, custom),
                          fleet_mean(p, fleet_square(p, one)));
    CHECK_OK(fleet_program_status(p));
}

static void train(trained *t, bool custom, int threads, const char *device)
{
    kit_options o = {.threads = threads, .device = device};
    kit_batch *b = batch_of(ROWS), head = kit_head(b, 20);

    memset(t, 0, sizeof *t);
    t->m.f = kit_handle(&o);
    t->m.p = fleet_program_create(t->m.f);
    kit_place(t->m.p, &o);
    build(&t->m, custom);
    CHECK_OK(fleet_minimize(fleet_sgd(t->m.f, 0.01f), t->m.m.loss));
    t->m.e = fleet_executor_create(
        t->m.p, &(fleet_executor_options){.max_batch = ROWS});
    CHECK(t->m.e != NULL);
    for (int i = 0; i < 4; i++) /* a batch whose last parts have no rows, too */
        t->loss = kit_step(t->m.e, i == 2 ? &head : b, t->m.m.loss);
    t->hash = kit_hash(t->m.f);
    kit_batch_free(b);
}

TEST(they_train_as_built_in_operators_do)
{
    static float w[GPU_KIT_MOST], want[GPU_KIT_MOST];
    trained own, built_in;
    int64_t n;

    register_all();
    train(&own, true, 2, NULL);
    train(&built_in, false, 2, NULL);
    CHECK_NEAR((double)own.loss, (double)built_in.loss, 1e-4);
    n = gpu_kit_weights(own.m.f->store, w);
    CHECK_INT(gpu_kit_weights(built_in.m.f->store, want), n);
    CHECK_CLOSE(w, want, n, 2e-5);
    kit_close(&own.m);
    kit_close(&built_in.m);
}

TEST(bits_do_not_depend_on_threads)
{
    trained one, many;

    register_all();
    train(&one, true, 1, NULL);
    train(&many, true, 4, NULL);
    CHECK(many.hash == one.hash);
    kit_close(&one.m);
    kit_close(&many.m);
}

/* --- on a GPU ------------------------------------------------------------- */

/* Without functions for it they run on the CPU, the rest of it does not. */
TEST(a_program_on_a_gpu_calls_them_on_the_cpu)
{
    trained here, there;

    register_all();
    train(&here, true, 1, NULL);
    gpu_kit_open();
    train(&there, true, 1, "gpu:0");
    CHECK_NEAR((double)there.loss, (double)here.loss, 1e-4);
    kit_close(&there.m);
    gpu_kit_close();
    kit_close(&here.m);
}

TEST(functions_for_gpus_are_called_there)
{
    fleet_custom_op both = swish;
    trained here, there;

    gpu_kit_open();
    gpu_kit_symbol("custom_swish_forward", &both.cuda_forward);
    gpu_kit_symbol("custom_swish_backward", &both.cuda_backward);
    both.forward = NULL;
    CHECK_FAILS(fleet_custom_op_register(&both), FLEET_EINVAL,
                "swish_of_w has no forward");
    both.forward = swish_forward;
    CHECK_OK(fleet_custom_op_register(&both));
    CHECK_OK(fleet_custom_op_register(&halves));
    CHECK_OK(fleet_custom_op_register(&spread));
    train(&here, true, 1, NULL);
    train(&there, true, 1, "gpu:0");
    CHECK_NEAR((double)there.loss, (double)here.loss, 1e-4);
    char *plan = fleet_program_dump(there.m.p, FLEET_DUMP_PLAN, 20);

    CHECK(plan != NULL);
    fleet_free(plan);
    kit_close(&there.m);
    gpu_kit_close();
    kit_close(&here.m);
}

/* --- on servers ----------------------------------------------------------- */

static void open_on_servers(ps_node *n, const fleet_options *o)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    scene *c = &n->s;
    fleet_var *x, *label, *in[2];

    CHECK_OK(fleet_init(&c->f, o));
    c->p = fleet_program_create(c->f);
    x = kit_data(c->p, "x", 3);
    label = fleet_data(c->p, "label", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    in[0] = fleet_fc(c->p, x, 5, NULL);
    in[1] = one_number(c->p);
    c->m.label = label;
    c->m.prediction = fleet_softmax(
        c->p,
        fleet_fc(c->p, fleet_custom(c->p, "swish_of_w", in, 2, NULL, 0, NULL),
                 2, NULL));
    c->m.loss =
        fleet_mean(c->p, fleet_cross_entropy(c->p, c->m.prediction, label));
    CHECK_OK(fleet_program_status(c->p));
    s.a_sync = 0;
    s.gradient_merge = n->job->how.merge > 1;
    s.gradient_merge_configs.k_steps =
        n->job->how.merge > 1 ? n->job->how.merge : 1;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(c->f, fleet_adam(c->f, 0.01f, NULL), &s),
        c->m.loss));
    c->data = fleet_queue_dataset(
        c->f, &(fleet_dataset_options){.batch_size = PS_BATCH,
                                       .use_var = (fleet_var *[]){label, x},
                                       .n_use_var = 2});
    CHECK(c->data);
    CHECK_OK(fleet_dataset_set_filelist(c->data, n->job->file, 1));
}

TEST(servers_give_the_bits_of_one_process)
{
    ps_job j = {.servers = 2, .workers = 2, .open = open_on_servers};
    char text[9000], *at = text;

    for (int i = 0; i < 130; i++)
        at += sprintf(at, "1 %d 3 0.%d 0.%d -1\n", i % 3 == 0, i * 7 % 10,
                      i * 3 % 10);
    j.file[0] = test_file("lines.txt", text);
    CHECK_OK(fleet_custom_op_register(&swish));
    CHECK(ps_hash(&j) == ps_alone(&j, 2));
}

/* --- dumps, saves --------------------------------------------------------- */

TEST(dumps_have_them)
{
    char *text;
    trained t;

    register_all();
    train(&t, true, 1, NULL);
    text = fleet_program_dump(t.m.p, FLEET_DUMP_TEXT, 0);
    CHECK_CONTAINS(text, "halves");
    CHECK_CONTAINS(text, "factor");
    fleet_free(text);
    text = fleet_program_dump(t.m.p, FLEET_DUMP_PLAN, 20);
    CHECK_CONTAINS(text, "swish_of_w.grad");
    CHECK_CONTAINS(text, "spread_of_batch");
    fleet_free(text);
    kit_close(&t.m);
}

static void save_to(const char *path, float *want)
{
    kit_batch *b = batch_of(5);
    fleet_executor *tester;
    const fleet_var *in[2], *out[1];
    trained t;

    register_all();
    train(&t, true, 1, NULL);
    in[0] = fleet_program_var(t.m.p, "x");
    in[1] = fleet_program_var(t.m.p, "id");
    out[0] = t.m.m.prediction;
    tester =
        fleet_executor_create(t.m.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(kit_fetch(tester, b, out[0], want, 5));
    CHECK_OK(fleet_save_inference_model(t.m.f, path, (fleet_var *const *)in, 2,
                                        (fleet_var *const *)out, 1));
    fleet_executor_destroy(tester);
    kit_batch_free(b);
    kit_close(&t.m);
}

TEST(a_predictor_calls_them)
{
    const char *path = test_path("model");
    float want[5], got[5];
    void *to[] = {got};
    size_t size[] = {sizeof got};
    fleet_feed feed[KIT_MOST_FEEDS];
    kit_batch *b = batch_of(5);
    fleet_predictor *p;

    save_to(path, want);
    p = fleet_load_inference_model(path);
    CHECK(p != NULL);
    CHECK_OK(fleet_predictor_run(p, feed, kit_feeds(b, feed), to, size, 1));
    CHECK(memcmp(got, want, sizeof got) == 0);
    fleet_predictor_destroy(p);
    kit_batch_free(b);
}

/* Another process has made the save. */
TEST(a_save_whose_operator_is_not_registered_is_refused_by_name)
{
    const char *path = test_path("model");
    float want[5];
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        save_to(path, want);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(fleet_load_inference_model(path) == NULL);
    CHECK_FAILS(fleet_last_status(), FLEET_EUNSUPPORTED,
                "there is no op \"swish_of_w\": a custom one has to be "
                "registered before");
    CHECK_OK(fleet_custom_op_register(&swish));
    CHECK(fleet_load_inference_model(path) == NULL);
    CHECK_CONTAINS(fleet_last_error(), "there is no op \"halves\"");
}

/* --- failures of their functions ------------------------------------------ */

typedef struct orders {
    fleet_status shape, forward, backward;
    bool silent; /* without a text */
} orders;

static fleet_status say(const orders *o, fleet_status status, const char *text)
{
    return o->silent || status == FLEET_OK ? status
                                           : fleet_custom_fail(status, text);
}

static fleet_status told_shape(fleet_custom_shape *s)
{
    const orders *o = s->user;

    return say(o, o->shape, "no such shape");
}

static fleet_status told_forward(const fleet_custom_call *c)
{
    const orders *o = c->user;

    memcpy(c->out[0].data, c->in[0].data,
           (size_t)count_of(&c->in[0]) * sizeof(float));
    return say(o, o->forward, "not forward");
}

static fleet_status told_backward(const fleet_custom_call *c)
{
    const orders *o = c->user;

    memcpy(c->in_grad[0].data, c->out_grad[0].data,
           (size_t)count_of(&c->in[0]) * sizeof(float));
    return say(o, o->backward, "not backward");
}

static orders told_orders;
static const fleet_custom_op told = {.name = "told",
                                     .n_in = 1,
                                     .shape = told_shape,
                                     .forward = told_forward,
                                     .backward = told_backward,
                                     .user = &told_orders};

/* A step of a model with it, of several slices on several threads. */
static fleet_status step_told(orders o)
{
    kit_options k = {.threads = 3};
    kit_batch *b = kit_batch_new(ROWS);
    fleet *f = kit_handle(&k);
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = fleet_fc(p, kit_data(p, "x", 4), 3, NULL), *loss;
    fleet_feed feed[KIT_MOST_FEEDS];
    fleet_executor *e = NULL;
    fleet_status status;

    told_orders = o;
    kit_floats(b, "x", 4, 1);
    loss = fleet_mean(p, fleet_custom(p, "told", &x, 1, NULL, 0, NULL));
    status = fleet_program_status(p);
    if (status == FLEET_OK)
        status = fleet_minimize(fleet_sgd(f, 0.1f), loss);
    if (status == FLEET_OK)
        e = fleet_executor_create(p, NULL);
    if (e)
        status = fleet_executor_run(e, feed, kit_feeds(b, feed), NULL, 0);
    fleet_executor_destroy(e);
    fleet_destroy(f);
    kit_batch_free(b);
    return status;
}

TEST(failures_of_their_functions_reach_the_caller)
{
    CHECK_OK(fleet_custom_op_register(&told));
    CHECK_OK(step_told((orders){.shape = FLEET_OK}));
    CHECK_FAILS(step_told((orders){.shape = FLEET_ESHAPE}), FLEET_ESHAPE,
                "told: shape(): no such shape");
    CHECK_FAILS(step_told((orders){.forward = FLEET_EIO}), FLEET_EIO,
                "told: forward(): not forward");
    CHECK_FAILS(step_told((orders){.backward = FLEET_ECONFIG}), FLEET_ECONFIG,
                "told: backward(): not backward");
    CHECK_FAILS(step_told((orders){.backward = FLEET_ENUMERIC}), FLEET_ENUMERIC,
                "batch 1: told: backward(): not backward");
    CHECK_FAILS(step_told((orders){.forward = FLEET_EIO, .silent = true}),
                FLEET_EIO, "told: forward() returned FLEET_EIO");
    CHECK_FAILS(
        step_told((orders){.backward = (fleet_status)777, .silent = true}),
        FLEET_EINVAL, "told: backward() returned 777, which is no status");
    CHECK_FAILS(fleet_custom_fail(FLEET_OK, NULL), FLEET_EINVAL,
                "it gives no reason");
}

/* --- the check of gradients ----------------------------------------------- */

static fleet_status wrong_backward(const fleet_custom_call *c)
{
    FL_TRY(swish_backward(c));
    ((float *)c->in_grad[0].data)[5] *= 1.1f;
    return FLEET_OK;
}

TEST(gradients_are_checked_against_differences)
{
    float x[12], w[] = {0.7f};
    int64_t id[] = {2, 0, 1};
    const fleet_custom_tensor of_swish[] = {{FLEET_FLOAT32, 2, {-3, 4}, x},
                                            {FLEET_FLOAT32, 1, {1}, w}};
    const fleet_custom_tensor of_halves[] = {{FLEET_FLOAT32, 2, {-3, 4}, x},
                                             {FLEET_INT64, 2, {-3, 1}, id}};
    const fleet_custom_tensor of_short[] = {{FLEET_FLOAT32, 2, {-3, 4}, x},
                                            {FLEET_INT64, 2, {-2, 1}, id}};
    const fleet_custom_tensor of_spread[] = {{FLEET_FLOAT32, 2, {-12, 1}, x}};
    const fleet_custom_attr factor = {.name = "factor", .f = 3};
    fleet_custom_op wrong = swish;

    for (int i = 0; i < 12; i++)
        x[i] = kit_noise(i, 1);
    register_all();
    CHECK_OK(fleet_check_gradient("swish_of_w", of_swish, 2, NULL, 0, 0));
    CHECK_OK(fleet_check_gradient("halves", of_halves, 2, &factor, 1, 0));
    CHECK_OK(fleet_check_gradient("spread_of_batch", of_spread, 1, NULL, 0, 0));
    wrong.name = "wrong";
    wrong.backward = wrong_backward;
    CHECK_OK(fleet_custom_op_register(&wrong));
    CHECK_FAILS(fleet_check_gradient("wrong", of_swish, 2, NULL, 0, 0),
                FLEET_ENUMERIC,
                "wrong: the gradient of input 0, element 5, is");
    wrong.name = "ahead_alone";
    wrong.backward = NULL;
    CHECK_OK(fleet_custom_op_register(&wrong));
    CHECK_FAILS(fleet_check_gradient("ahead_alone", of_swish, 2, NULL, 0, 0),
                FLEET_EUNSUPPORTED, "ahead_alone has no backward");
    CHECK_FAILS(fleet_check_gradient("nobody", of_swish, 2, NULL, 0, 0),
                FLEET_ENOENT, "no operator \"nobody\" is registered");
    CHECK_FAILS(fleet_check_gradient("swish_of_w", of_halves, 2, NULL, 0, 0),
                FLEET_ESHAPE, "w has to be one number");
    CHECK_FAILS(fleet_check_gradient("halves", of_short, 2, &factor, 1, 0),
                FLEET_ESHAPE,
                "input 1 is a batch of 2 rows; expected 3, as those before");
}

/* --- what is refused ------------------------------------------------------ */

TEST(what_is_no_operator_is_refused_by_name)
{
    const struct {
        fleet_custom_op op;
        const char *words;
    } no[] = {
        {{.name = NULL}, "name \"(null)\"; expected letters"},
        {{.name = "a b"}, "name \"a b\"; expected letters"},
        {{.name = "n", .n_in = 0, .forward = swish_forward}, "n has 0 inputs"},
        {{.name = "n", .n_in = 9, .forward = swish_forward}, "n has 9 inputs"},
        {{.name = "n", .n_in = 1, .n_out = 5, .forward = swish_forward},
         "1 inputs and 5 results"},
        {{.name = "n", .n_in = 1}, "n has no forward"},
        {{.name = "n", .n_in = 1, .attrs = "a", .forward = swish_forward},
         "n: attributes \"a\"; expected up to 8"},
        {{.name = "n", .n_in = 1, .attrs = "a:v", .forward = swish_forward},
         "n: attributes \"a:v\""},
        {{.name = "n",
          .n_in = 1,
          .attrs = "a:f  b:f",
          .forward = swish_forward},
         "n: attributes"},
        {{.name = "n",
          .n_in = 1,
          .forward = swish_forward,
          .backward = swish_backward,
          .cuda_forward = swish_forward},
         "n: what it has on CPUs it has on GPUs"},
    };

    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        CHECK_FAILS(fleet_custom_op_register(&no[i].op), FLEET_EINVAL,
                    no[i].words);
    CHECK_OK(fleet_custom_op_register(&swish));
    CHECK_FAILS(fleet_custom_op_register(&swish), FLEET_EEXIST,
                "there is an operator \"swish_of_w\" already");
    CHECK_FAILS(fleet_custom_op_register(&(fleet_custom_op){
                    .name = "fc", .n_in = 1, .forward = swish_forward}),
                FLEET_EEXIST, "there is an operator \"fc\" already");
}

static fleet_status wide_shape(fleet_custom_shape *s)
{
    s->out[0].dims[0] = 1;
    return FLEET_OK;
}

static fleet_status deep_shape(fleet_custom_shape *s)
{
    s->out[0].n_dim = 9;
    return FLEET_OK;
}

static fleet_status saving_shape(fleet_custom_shape *s)
{
    s->saved = -1;
    return FLEET_OK;
}

/* The builder's failure, of a program of its own. */
static void refused(const char *name, int which, int n_in,
                    const fleet_custom_attr *attr, fleet_status status,
                    const char *words)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *x = kit_data(p, "x", 4), *id = kit_data_ids(p, "id", 1);
    fleet_var *in[3] = {x, which == 1 ? id : x, x};

    if (which == 2)
        in[0] = fleet_data_ragged(p, "ragged");
    if (which == 3)
        in[1] = fleet_reshape(p, x, (int64_t[]){-2, 2}, 2);
    CHECK(fleet_custom(p, name, in, n_in, attr, attr ? 1 : 0, NULL) == NULL);
    CHECK_FAILS(fleet_program_status(p), status, words);
    fleet_destroy(f);
}

TEST(nodes_that_cannot_be_are_refused_by_name)
{
    const fleet_custom_attr other = {.name = "faktor"};
    const fleet_custom_attr nan = {.name = "factor", .f = NAN};
    const fleet_custom_attr large = {.name = "factor", .f = 1e301};
    fleet_custom_op op = {.n_in = 1, .forward = told_forward};

    register_all();
    op.name = "wide", op.shape = wide_shape;
    CHECK_OK(fleet_custom_op_register(&op));
    op.name = "deep", op.shape = deep_shape;
    CHECK_OK(fleet_custom_op_register(&op));
    op.name = "saving", op.shape = saving_shape;
    CHECK_OK(fleet_custom_op_register(&op));
    refused("nobody", 0, 1, NULL, FLEET_ENOENT,
            "fleet_custom: no operator \"nobody\" is registered");
    refused("fc", 0, 1, NULL, FLEET_ENOENT, "no operator \"fc\" is registered");
    refused("halves", 1, 1, NULL, FLEET_EINVAL, "halves takes 2 inputs, got 1");
    refused("halves", 1, 2, &other, FLEET_EINVAL,
            "attributes of halves are \"factor:f\"");
    refused("halves", 1, 2, &nan, FLEET_EINVAL,
            "attribute \"factor\" of halves is nan; expected a number up to");
    refused("halves", 1, 2, &large, FLEET_EINVAL, "expected a number up to");
    refused("halves", 0, 2, NULL, FLEET_EDTYPE,
            "halves: shape(): the second input is ids");
    refused("swish_of_w", 0, 2, NULL, FLEET_ESHAPE,
            "swish_of_w: shape(): w has to be one number");
    refused("halves", 2, 2, NULL, FLEET_EDTYPE, "halves: \"ragged\" is ragged");
    refused("halves", 3, 2, NULL, FLEET_ESHAPE,
            "has not as many rows as the other inputs");
    refused("wide", 0, 1, NULL, FLEET_ESHAPE,
            "wide: shape() gives result 0 [1,4], of 0 rows a sample; expected "
            "1");
    refused("deep", 0, 1, NULL, FLEET_ESHAPE, "result 0 9 dimensions");
    refused("saving", 0, 1, NULL, FLEET_EINVAL, "wants -1 floats of a row");
}

/* --- memory --------------------------------------------------------------- */

TEST(registering_without_memory_leaves_nothing)
{
    fleet_custom_op op = swish;
    fleet_status status = FLEET_ENOMEM;
    int n = 1;

    for (; status != FLEET_OK && n < 50; n++) {
        fl_memory_fail_at(n, false);
        status = fleet_custom_op_register(&op);
        fl_memory_fail_at(0, false);
        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
    }
    CHECK(status == FLEET_OK && n > 4);
}
