/* gpu_amp_test.c - mixed precision on a GPU: trainings that reach what float on
 * a CPU reaches, by either type, with parts on either side; what is refused. */
#define SUITE gpu_amp
#include "workers_kit.h"
#include "gpu_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/exec/executor.h"

/* --- what it reaches ------------------------------------------------------ */

/* The class is where the numbers say that it is, so that there is something to
 * learn. */
static kit_batch *batch_to_learn(const kit_model *m, int seed)
{
    kit_batch *b = kit_batch_for(m, 40, seed);
    const float *x = b->feed[0].data;

    if (m->kind == KIT_CTR) {
        float *label = (float *)(uintptr_t)b->feed[5].data;

        for (int i = 0; i < 40; i++)
            label[i] = x[5 * i] + x[5 * i + 1] > 0;
        return b;
    }
    for (int i = 0; i < 40; i++)
        ((int64_t *)(uintptr_t)b->feed[1].data)[i] =
            (x[20 * i] > 0) + 2 * (x[20 * i + 1] > 0);
    return b;
}

enum { N_BATCH = 300, A_FEW = 20 };

/* The mean loss of the last fifth of the batches. */
static double loss_of(kit_kind kind, kit_options o)
{
    int n = test_fraction() > 1 ? A_FEW : N_BATCH;
    double sum = 0;
    kit_model m;

    o.max_batch = 40;
    kit_open(&m, kind, &o);
    for (int i = 0; i < n; i++) {
        kit_batch *b = batch_to_learn(&m, i);
        float loss = kit_step(m.e, b, m.m.loss);

        CHECK(isfinite(loss));
        sum += i >= n - n / 5 ? (double)loss : 0;
        kit_batch_free(b);
    }
    kit_close(&m);
    return sum / (n / 5);
}

static void check_loss(kit_kind kind, kit_options o)
{
    kit_options here = o;
    double want, got;

    here.bf16 = here.fp16 = false;
    here.device = NULL;
    want = loss_of(kind, here);
    got = loss_of(kind, o);
    fprintf(stderr, "%s: float here %.5f, narrow there %.5f\n",
            kind == KIT_MLP ? "mlp" : "ctr", want, got);
    CHECK(got != want);
    CHECK(want < 0.15 || test_fraction() > 1);
    CHECK_NEAR(got / want, 1, 0.02);
}

static void check_losses(kit_options o)
{
    o.device = "gpu:0";
    o.learning_rate = 0.003f;
    gpu_kit_open();
    check_loss(KIT_MLP, o);
    check_loss(KIT_CTR, o);
    gpu_kit_close();
}

TEST_LIMIT(bfloat16_reaches_what_float_does, 180)
{
    check_losses((kit_options){.bf16 = true});
}

TEST_LIMIT(float16_reaches_what_float_does, 180)
{
    check_losses((kit_options){.fp16 = true});
}

/* --- the same as on a CPU ------------------------------------------------- */

/* Layers by layers: products round their operands alike. */
static void agree(kit_kind kind, kit_options o, const char *device,
                  const char *guard)
{
    static float here[GPU_KIT_MOST], there[GPU_KIT_MOST];
    kit_model a, b;
    int64_t n;

    o.bf16 = true;
    o.max_batch = 40;
    kit_open(&a, kind, &o);
    o.device = device;
    o.guard = guard;
    kit_open(&b, kind, &o);
    gpu_kit_train(&a, 3);
    gpu_kit_train(&b, 3);
    n = gpu_kit_weights(a.f->store, here);
    CHECK_INT(gpu_kit_weights(b.f->store, there), n);
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(there[i], here[i], 5e-3);
    kit_close(&a);
    kit_close(&b);
}

TEST(bfloat16_agrees_with_that_of_a_cpu)
{
    const kit_options o = {.optimizer = "sgd"};
    const kit_options merged = {.optimizer = "sgd", .merge = 2, .clip = 0.1f};

    kit_need_bf16();
    gpu_kit_open();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++) {
        agree((kit_kind)kind, o, "gpu:0", NULL);
        agree((kit_kind)kind, merged, "gpu:0", NULL);
        agree((kit_kind)kind, o, "gpu:0", "cpu");
        agree((kit_kind)kind, o, "cpu", "gpu:0");
    }
    gpu_kit_close();
}

TEST(a_worker_on_a_gpu_is_one_process_there)
{
    const kit_options o = {.bf16 = true, .device = "gpu:0"};
    crew c;
    work k;

    gpu_kit_open();
    crew_open(&c, 1, true, KIT_CTR, &o);
    work_open(&k, &c.m[0], 6, 23);
    for (int i = 0; i < k.n; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i, 1));
    CHECK(fake_server_hash(&c.server) == crew_alone(KIT_CTR, &o, 6, 23));
    work_close(&k);
    crew_close(&c);
    gpu_kit_close();
}

/* --- where ---------------------------------------------------------------- */

TEST(on_a_gpu_bfloat16_needs_nothing_of_the_processor)
{
    kit_model m;

    setenv("FLEET_ISA", "plain", 1);
    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){.bf16 = true});
    gpu_kit_train(&m, 2);
    kit_close(&m);
    gpu_kit_close();
}

TEST(layers_guarded_for_the_cpu_need_a_processor_with_bfloat16)
{
    kit_model m;
    kit_batch *b;

    setenv("FLEET_ISA", "plain", 1);
    gpu_kit_open();
    m = gpu_kit_model(KIT_MLP, (kit_options){.bf16 = true, .guard = "cpu"});
    b = kit_batch_for(&m, 20, 1);
    CHECK_FAILS(kit_run(m.e, b), FLEET_EUNSUPPORTED,
                "use_bf16: it needs a processor with avx512_bf16");
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

/* As one without a GPU: amp_test.c. */
TEST(float16_in_an_executor_on_the_cpu_is_refused)
{
    kit_model m;
    kit_batch *b;

    gpu_kit_open();
    kit_build(&m, KIT_MLP, &(kit_options){.fp16 = true, .device = "gpu:0"});
    m.e = fleet_executor_create(m.p,
                                &(fleet_executor_options){.place = FLEET_CPU});
    b = kit_batch_for(&m, 20, 1);
    CHECK_FAILS(kit_run(m.e, b), FLEET_EUNSUPPORTED,
                "strategy.amp: float16 is not there on a CPU");
    kit_batch_free(b);
    kit_close(&m);
    gpu_kit_close();
}

/* An evaluation takes them from there, and none comes back for it. */
TEST(rows_stay_on_the_gpu_for_evaluations_of_what_is_trained_in_float16)
{
    fleet_executor *tester;
    int64_t n = 0;
    kit_batch *b;
    kit_model m;

    gpu_kit_open();
    m = gpu_kit_model(KIT_CTR, (kit_options){.fp16 = true});
    tester =
        fleet_executor_create(m.p, &(fleet_executor_options){.for_test = 1});
    b = kit_batch_for(&m, 40, 1);
    CHECK(isfinite(kit_step(m.e, b, m.m.loss)));
    CHECK(isfinite(kit_step(tester, b, m.m.loss)));
    for (const fl_mirror *x = m.f->store->mirrors; x; x = x->next)
        for (size_t i = 0; i < m.f->store->tables.n; i++)
            if (x->host == m.f->store->tables.entry[i].value) {
                CHECK(x->host_is_old && !x->gpu_is_old);
                n++;
            }
    CHECK_INT(n, m.f->store->tables.n);
    kit_batch_free(b);
    fleet_executor_destroy(tester);
    kit_close(&m);
    gpu_kit_close();
}

TEST(products_of_float32_and_mixed_precision_contradict)
{
    static const char *const words[] = {
        "gpu:0: strict_fp32 asks for products of float32, and strategy.amp for "
        "bfloat16",
        "and strategy.amp for float16"};

    gpu_kit_open();
    for (int i = 0; i < 2; i++) {
        kit_options o = {.bf16 = i == 0, .fp16 = i == 1};
        kit_model m;
        kit_batch *b;

        kit_build(&m, KIT_MLP, &o);
        CHECK_OK(fleet_program_place(m.p, FLEET_GPU(0),
                                     &(fleet_place_options){.strict_fp32 = 1}));
        m.e = fleet_executor_create(m.p, NULL);
        b = kit_batch_for(&m, 20, 1);
        CHECK_FAILS(kit_run(m.e, b), FLEET_EINVAL, words[i]);
        kit_batch_free(b);
        kit_close(&m);
    }
    gpu_kit_close();
}

/* --- lists of names ------------------------------------------------------- */

/* How many casts a plan has, with such lists. */
static int casts_with(const char *black, const char *names)
{
    fleet_amp_configs c = fleet_distributed_strategy_default().amp_configs;
    int n = 0;
    kit_model m;
    char *text;

    c.custom_white_list = black ? NULL : "fc,matmul";
    c.custom_black_list = black;
    c.custom_black_varnames = names;
    kit_build(&m, KIT_MLP,
              &(kit_options){.device = "gpu:0", .bf16 = true, .scaling = &c});
    text = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
    CHECK(text != NULL);
    for (const char *at = text; (at = strstr(at, "\n  cast ")); at++)
        n++;
    fleet_free(text);
    kit_close(&m);
    return n;
}

TEST(what_is_in_a_black_list_computes_in_float)
{
    int all;

    gpu_kit_open();
    all = casts_with(NULL, NULL);
    CHECK(all > 3);
    CHECK_INT(casts_with("softmax,relu", "nobody"), all);
    CHECK_INT(casts_with("matmul,fc", NULL), 0);
    CHECK_INT(casts_with(NULL, "tower_0.w,tower_1.w"), 0);
    CHECK(casts_with(NULL, "tower_1.w") < all);
    CHECK(casts_with(NULL, "tower_1.w") > 0);
    gpu_kit_close();
}

/* The handle has its own copy, and the dump shows it. */
TEST(lists_are_copied_with_the_strategy)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    char black[] = "matmul,softmax", line[200], *dump;
    fleet_optimizer *o;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    o = fleet_sgd(f, 0.1f);
    s.amp = s.amp_configs.use_bf16 = 1;
    s.amp_configs.custom_black_list = black;
    CHECK(fleet_distributed_optimizer(f, o, &s) == o);
    memset(black, 'x', sizeof black - 1);
    dump = fleet_strategy_dump(f);
    snprintf(line, sizeof line, "%-48s %-12s asked    honoured\n",
             "amp_configs.custom_black_list", "matmul,softmax");
    CHECK_CONTAINS(dump, line);
    snprintf(line, sizeof line, "%-48s %-12s default  honoured\n",
             "amp_configs.custom_white_list", "none");
    CHECK_CONTAINS(dump, line);
    fleet_free(dump);
    fleet_destroy(f);
}

static void check_list(const char *white, const char *black,
                       fleet_status status, const char *words)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    s.amp = s.amp_configs.use_bf16 = 1;
    s.amp_configs.custom_white_list = white;
    s.amp_configs.custom_black_list = black;
    kit_refused(f, fleet_sgd(f, 0.1f), &s, status, words);
    fleet_destroy(f);
}

TEST(lists_that_cannot_be_are_refused)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    check_list("fc,softmax", NULL, FLEET_EUNSUPPORTED,
               "custom_white_list: \"softmax\" is of float32 alone");
    check_list(NULL, "fc,conv4d", FLEET_EINVAL,
               "custom_black_list: there is no operator \"conv4d\"");
    check_list(NULL, "fc, matmul", FLEET_EINVAL,
               "there is no operator \" matmul\"");
    check_list("fc", "matmul,fc", FLEET_EINVAL,
               "\"fc\" is in custom_white_list and in custom_black_list");
    CHECK_OK(fleet_init(&f, NULL));
    s.amp_configs.custom_black_varnames = "w";
    kit_refused(f, fleet_sgd(f, 0.1f), &s, FLEET_EINVAL,
                "amp_configs.custom_black_varnames is set, but strategy.amp is "
                "0");
    fleet_destroy(f);
}

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf((char *)user + strlen(user), 500, "%s\n", line);
}

TEST(a_name_that_no_variable_has_is_told)
{
    char lines[2000] = "";
    fleet_options o = {.log = keep_warnings, .log_user = lines};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_program *p;
    fleet_model m;
    fleet *f;

    CHECK_OK(fleet_init(&f, &o));
    p = fleet_program_create(f);
    fleet_mlp(p, &(fleet_mlp_options){.dim = 4, .classes = 2}, &m);
    s.amp = s.amp_configs.use_bf16 = 1;
    s.amp_configs.custom_black_varnames = "tower_0.w,tower_0";
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s), m.loss));
    CHECK_TEXT(lines, "strategy.amp_configs.custom_black_varnames: the program "
                      "has no variable \"tower_0\"\n");
    fleet_destroy(f);
}
