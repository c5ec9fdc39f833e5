/* amp_test.c - mixed precision: products of bfloat16 against double, trainings
 * that reach what float reaches, the same bits whatever the threads and the
 * servers, and refusals. */
#define SUITE amp
#include "workers_kit.h"
#include "op_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/nn.h>

#include "base/memory.h"
#include "fleet/job/handle.h"
#include "ops/dnnl.h"
#include "runtime/simd/simd.h"

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* --- one product ---------------------------------------------------------- */

typedef struct product {
    fl_matmul_spec spec;
    uint16_t *a, *b;
    float *bias;
} product;

static uint16_t *numbers(int64_t n, int stream)
{
    uint16_t *x = calloc((size_t)n, sizeof *x);

    for (int64_t i = 0; i < n; i++) {
        float f = kit_noise(i, stream);

        fl_simd_best()->cast(&x[i], &f, 1);
    }
    return x;
}

static double want_of(const product *p, int64_t i, int64_t j)
{
    const fl_matmul_spec *s = &p->spec;
    double sum = s->bias ? (double)p->bias[j] : 0;

    for (int64_t k = 0; k < s->k; k++)
        sum += (double)widen(p->a[s->ta ? k * s->lda + i : i * s->lda + k]) *
               (double)widen(p->b[s->tb ? j * s->ldb + k : k * s->ldb + j]);
    return s->activation == FLEET_TANH ? tanh(sum) : sum;
}

static void run_product(const product *p, void *c)
{
    fl_matmul *m;
    void *scratch;

    CHECK_OK(fl_matmul_create(&m, &p->spec, 1));
    scratch = aligned_alloc(64, (fl_matmul_scratch(m) + 127) / 64 * 64);
    CHECK_OK(fl_matmul_run(m, 0, p->a, p->b, p->bias, c, scratch));
    free(scratch);
    fl_matmul_destroy(m);
}

/* Sums of float: within 2e-5 of the largest; rounded once to bfloat16: within
 * half a unit in its last place besides. */
static void compare_product(const product *p, const void *c)
{
    const fl_matmul_spec *s = &p->spec;
    double near = 2e-5 * sqrt((double)s->k);

    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            double want = want_of(p, i, j);
            int64_t at = i * s->ldc + j;
            double got = s->bf16_out ? (double)widen(((const uint16_t *)c)[at])
                                     : (double)((const float *)c)[at];
            double by = near + (s->bf16_out ? fabs(want) / 256 : 0);

            if (!(fabs(got - want) <= by))
                test_fail(__FILE__, __LINE__,
                          "%lldx%lldx%lld: [%lld,%lld] is %.9g, not %.9g",
                          (long long)s->m, (long long)s->n, (long long)s->k,
                          (long long)i, (long long)j, got, want);
        }
}

static void check_product(fl_matmul_spec s)
{
    product p = {.spec = s};
    void *c;

    p.spec.bf16 = true;
    p.spec.lda = s.ta ? s.m : s.k;
    p.spec.ldb = s.tb ? s.k : s.n;
    p.spec.ldc = s.n + 3;
    p.a = numbers(s.m * s.k, 1);
    p.b = numbers(s.k * s.n, 2);
    p.bias = calloc((size_t)s.n, sizeof *p.bias);
    for (int64_t i = 0; i < s.n; i++)
        p.bias[i] = kit_noise(i, 3);
    for (int out = 0; out < 2; out++) {
        p.spec.bf16_out = out;
        c = calloc((size_t)(s.m * p.spec.ldc), sizeof(float));
        run_product(&p, c);
        compare_product(&p, c);
        free(c);
    }
    free(p.a);
    free(p.b);
    free(p.bias);
}

TEST(products_of_bfloat16_are_summed_in_float)
{
    kit_need_bf16();
    check_product((fl_matmul_spec){.m = 128, .n = 400, .k = 247, .bias = true});
    check_product((fl_matmul_spec){
        .m = 64, .n = 33, .k = 17, .bias = true, .activation = FLEET_TANH});
    check_product((fl_matmul_spec){.m = 64, .n = 247, .k = 100, .tb = true});
    check_product((fl_matmul_spec){.m = 80, .n = 50, .k = 300, .ta = true});
    check_product((fl_matmul_spec){.m = 1, .n = 9, .k = 1});
}

/* --- layers --------------------------------------------------------------- */

static void ref_fc(const ref_tensor *const *in, ref_tensor *out)
{
    int64_t k = in[1]->dim[0], n = in[1]->dim[1];

    for (int64_t i = 0; i < out->count; i++) {
        double sum = in[2]->data[i % n];

        for (int64_t j = 0; j < k; j++)
            sum += in[0]->data[i / n * k + j] * in[1]->data[j * n + i % n];
        out->data[i] = sum;
    }
}

static void ref_fc_relu(const ref_tensor *const *in, ref_tensor *out)
{
    ref_fc(in, out);
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = fmax(out->data[i], 0);
}

static void ref_fc_tanh(const ref_tensor *const *in, ref_tensor *out)
{
    ref_fc(in, out);
    for (int64_t i = 0; i < out->count; i++)
        out->data[i] = tanh(out->data[i]);
}

/* Its hidden layer is of bfloat16: nothing but products touches it. */
static void ref_two(const ref_tensor *const *in, ref_tensor *out)
{
    ref_tensor hidden = {.n_dim = 2, .dim = {in[0]->dim[0], in[1]->dim[1]}};
    const ref_tensor no_bias = {
        .n_dim = 1,
        .data = calloc((size_t)in[1]->dim[1] + (size_t)in[2]->dim[1],
                       sizeof(double))};

    hidden.count = hidden.dim[0] * hidden.dim[1];
    hidden.data = calloc((size_t)hidden.count, sizeof *hidden.data);
    ref_fc_tanh((const ref_tensor *[]){in[0], in[1], &no_bias}, &hidden);
    ref_fc((const ref_tensor *[]){&hidden, in[2], &no_bias}, out);
    free(hidden.data);
    free(no_bias.data);
}

static fleet_var *layer(fleet_program *p, fleet_var *x, fleet_var *w,
                        fleet_var *b, fleet_activation activation)
{
    int64_t dims[FLEET_MAX_DIM];

    fleet_var_shape(w, dims);
    return fleet_fc(
        p, x, dims[1],
        &(fleet_fc_options){.activation = activation,
                            .weight.name = fleet_var_name(w),
                            .bias.name = b ? fleet_var_name(b) : NULL,
                            .no_bias = !b});
}

static fleet_var *build_linear(fleet_program *p, fleet_var **in)
{
    return layer(p, in[0], in[1], in[2], FLEET_LINEAR);
}

static fleet_var *build_relu(fleet_program *p, fleet_var **in)
{
    return layer(p, in[0], in[1], in[2], FLEET_RELU);
}

static fleet_var *build_tanh(fleet_program *p, fleet_var **in)
{
    return layer(p, in[0], in[1], in[2], FLEET_TANH);
}

static fleet_var *build_two(fleet_program *p, fleet_var **in)
{
    return layer(p, layer(p, in[0], in[1], NULL, FLEET_TANH), in[2], NULL,
                 FLEET_LINEAR);
}

#define DATA(n)                                                                \
    {                                                                          \
        .dims = {-1, n}, .n_dim = 2, .low = -1, .high = 1                      \
    }
#define PARAM(k, n)                                                            \
    {                                                                          \
        .dims = {k, n}, .n_dim = 2, .is_param = true, .low = -1, .high = 1     \
    }
#define BIAS(n)                                                                \
    {                                                                          \
        .dims = {n}, .n_dim = 1, .is_param = true, .low = -1, .high = 1        \
    }

/* A coefficient over a power of two rows and units is of bfloat16 itself: of a
 * linear layer and relu nothing is rounded. Otherwise a gradient is, once or
 * twice. */
static const op_case cases[] = {
    {"fc", "bf16", .in = {DATA(21), PARAM(21, 16), BIAS(16)}, .n_in = 3,
     .build = build_linear, .ref = ref_fc, .bf16 = true},
    {"fc", "bf16, relu", .in = {DATA(18), PARAM(18, 32), BIAS(32)}, .n_in = 3,
     .build = build_relu, .ref = ref_fc_relu, .bf16 = true},
    {"fc", "bf16, tanh", .in = {DATA(20), PARAM(20, 16), BIAS(16)}, .n_in = 3,
     .build = build_tanh, .ref = ref_fc_tanh, .tolerance = 5e-3, .bf16 = true},
    {"fc", "bf16, two", .in = {DATA(13), PARAM(13, 17), PARAM(17, 16)},
     .n_in = 3, .build = build_two, .ref = ref_two, .tolerance = 2e-2,
     .bf16 = true},
};

enum { N_CASE = sizeof cases / sizeof *cases };

TEST_LIMIT(layers_agree_with_their_references_on_rounded_inputs, 120)
{
    kit_need_bf16();
    for (int i = 0; i < N_CASE; i++) {
        check_case(&cases[i], 1, 1);
        check_case(&cases[i], 32, 2);
        if (TEST_SLOWNESS <= 10) /* what threads share is seen with 32 */
            check_case(&cases[i], 128, 2);
    }
}

/* --- what trains, and what does not --------------------------------------- */

static uint64_t hash_of(kit_kind kind, const kit_options *o, int64_t rows)
{
    kit_model m;
    uint64_t hash;

    kit_open(&m, kind, o);
    hash = kit_train(&m, rows, 5);
    kit_close(&m);
    return hash;
}

TEST(bits_do_not_depend_on_the_number_of_threads)
{
    static const int64_t rows[] = {1, 37, 150, 600};

    kit_need_bf16();
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++)
        for (int i = 0; i < 4; i++) {
            kit_options o = {.threads = 1, .bf16 = true};
            uint64_t want = hash_of((kit_kind)kind, &o, rows[i]);

            for (o.threads = 1; o.threads <= 4; o.threads++)
                CHECK(hash_of((kit_kind)kind, &o, rows[i]) == want);
            o.bf16 = false;
            CHECK(hash_of((kit_kind)kind, &o, rows[i]) != want);
        }
}

/* Rows past a batch are those of a larger one before it. */
TEST(what_a_larger_batch_left_behind_changes_nothing)
{
    static const int64_t rows[] = {130, 100, 37, 130, 65, 1};
    kit_model a, b;

    kit_need_bf16();
    kit_open(&a, KIT_MLP, &(kit_options){.bf16 = true, .max_batch = 130});
    kit_open(&b, KIT_MLP, &(kit_options){.bf16 = true, .max_batch = 130});
    for (int i = 0; i < 6; i++) {
        kit_batch *batch = kit_batch_for(&a, rows[i], i);

        CHECK_OK(kit_run(a.e, batch));
        fleet_executor_destroy(b.e); /* with memory of its own */
        b.e = fleet_executor_create(
            b.p, &(fleet_executor_options){.max_batch = 130});
        CHECK_OK(kit_run(b.e, batch));
        kit_batch_free(batch);
        CHECK(kit_hash(a.f) == kit_hash(b.f));
    }
    kit_close(&a);
    kit_close(&b);
}

/* Weights are of float: what a test sees is what float computes of them. */
TEST(tests_are_of_float)
{
    const fleet_executor_options test = {.for_test = 1};
    float of_float[50 * 5], of_bf16[50 * 5];
    kit_model m[2];

    kit_need_bf16();
    for (int i = 0; i < 2; i++) {
        kit_batch *b;
        fleet_executor *e;

        kit_open(&m[i], KIT_MLP, &(kit_options){.bf16 = i});
        b = kit_batch_for(&m[i], 50, 1);
        e = fleet_executor_create(m[i].p, &test);
        CHECK_OK(
            kit_fetch(e, b, m[i].m.prediction, i ? of_bf16 : of_float, 50 * 5));
        fleet_executor_destroy(e);
        kit_batch_free(b);
        kit_close(&m[i]);
    }
    CHECK(memcmp(of_float, of_bf16, sizeof of_float) == 0);
}

TEST(a_nan_is_not_lost_on_its_way_to_the_loss)
{
    fleet_mlp_options o = {.dim = 20,
                           .classes = 5,
                           .hidden = (int64_t[]){33, 17},
                           .n_hidden = 2,
                           .activation = FLEET_RELU};
    kit_options how = {.bf16 = true};
    kit_model m = {.kind = KIT_MLP};
    uint64_t before;
    kit_batch *b;

    kit_need_bf16();
    m.f = kit_handle(&how);
    m.p = fleet_program_create(m.f);
    fleet_mlp(m.p, &o, &m.m);
    CHECK_OK(fleet_minimize(kit_optimizer(m.f, &how), m.m.loss));
    m.e = fleet_executor_create(m.p, NULL);
    b = kit_batch_for(&m, 50, 1);
    CHECK_OK(kit_run(m.e, b));
    before = kit_hash(m.f);
    ((float *)(uintptr_t)b->feed[0].data)[7] = NAN;
    CHECK_FAILS(kit_run(m.e, b), FLEET_ENUMERIC, "loss");
    CHECK(kit_hash(m.f) == before);
    kit_batch_free(b);
    kit_close(&m);
}

/* --- servers -------------------------------------------------------------- */

TEST(a_worker_of_bfloat16_is_one_process_of_bfloat16)
{
    const kit_options o = {.bf16 = true};
    crew c;
    work k;

    kit_need_bf16();
    crew_open(&c, 1, true, KIT_CTR, &o);
    work_open(&k, &c.m[0], 6, 23);
    for (int i = 0; i < k.n; i++)
        CHECK_OK(crew_train(c.m[0].e, &k, i, 1));
    CHECK(fake_server_hash(&c.server) == crew_alone(KIT_CTR, &o, 6, 23));
    work_close(&k);
    crew_close(&c);
}

TEST(two_workers_in_sync_are_one_process_that_merges_their_batches)
{
    ps_job j = {.workers = 2,
                .servers = 2,
                .lanes = 2,
                .passes = 2,
                .how.bf16 = true,
                .file = {scene_file("a.txt", 300, 1)}};
    uint64_t hash;

    kit_need_bf16();
    hash = ps_hash(&j);
    CHECK(hash == ps_alone(&j, 2));
    j.how.bf16 = false;
    CHECK(hash != ps_hash(&j));
}

/* --- what it reaches ------------------------------------------------------ */

/* A click is likelier the more a fixed sum of the numbers and of what each id
 * stands for is above zero. */
static void ask_teacher(kit_batch *b, int seed)
{
    const float *number = b->feed[0].data;
    const int64_t *one = b->feed[1].data, *three = b->feed[2].data;
    float *label = (float *)(uintptr_t)b->feed[5].data;

    for (int64_t i = 0; i < b->rows; i++) {
        float sum = kit_noise(one[i], 9001);

        for (int j = 0; j < 5; j++)
            sum += number[5 * i + j] * kit_noise(j, 9000);
        for (int j = 0; j < 3; j++)
            sum += 0.5f * kit_noise(three[3 * i + j], 9002);
        label[i] = 0.5f * kit_noise(i, 9100 + seed) < sum;
    }
}

enum { N_SEED = 3 };

/* The mean loss of the last tenth of so many batches. */
static double loss_of(bool bf16, const char *optimizer, float rate,
                      uint64_t seed)
{
    int n = 1000 / test_fraction();
    double sum = 0;
    kit_model m;

    kit_open(&m, KIT_CTR,
             &(kit_options){.threads = 2,
                            .bf16 = bf16,
                            .optimizer = optimizer,
                            .learning_rate = rate,
                            .seed = seed});
    for (int i = 0; i < n; i++) {
        kit_batch *b = kit_batch_for(&m, 256, i);
        float loss;

        ask_teacher(b, i);
        loss = kit_step(m.e, b, m.m.loss);
        sum += i >= n - n / 10 ? (double)loss : 0;
        kit_batch_free(b);
    }
    kit_close(&m);
    return sum / (n / 10);
}

/* Of several first weights: two trainings that differ in a bit somewhere part
 * after a while, by as much as those of float among themselves. */
static void check_loss(const char *optimizer, float rate)
{
    double want = 0, got = 0;

    for (uint64_t seed = 1; seed <= N_SEED; seed++) {
        want += loss_of(false, optimizer, rate, seed) / N_SEED;
        got += loss_of(true, optimizer, rate, seed) / N_SEED;
    }
    fprintf(stderr, "%s: float %.5f, bfloat16 %.5f\n", optimizer, want, got);
    CHECK(got != want);
    if (test_fraction() > 1)
        return;
    CHECK(want < 0.4);
    CHECK_NEAR(got / want, 1, 0.005);
}

TEST_LIMIT(the_final_loss_is_that_of_float_within_half_a_percent, 180)
{
    kit_need_bf16();
    check_loss("sgd", 0.2f);
    check_loss("adagrad", 0.05f);
    check_loss("adam", 0.003f);
}

/* --- what is said --------------------------------------------------------- */

static void keep_warnings(void *user, fleet_log_level level, const char *line)
{
    if (level == FLEET_LOG_WARNING)
        snprintf((char *)user + strlen(user), 500, "%s\n", line);
}

static void check_line(const char *dump, const char *field, const char *value,
                       const char *effect)
{
    char line[200];

    snprintf(line, sizeof line, "%-48s %-12s %s\n", field, value, effect);
    CHECK_CONTAINS(dump, line);
}

TEST(the_dump_and_the_log_say_what_has_no_effect)
{
    char lines[2000] = "", *dump;
    fleet_options o = {.log = keep_warnings, .log_user = lines};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_program *p;
    fleet_model m;
    fleet *f;

    kit_need_bf16();
    CHECK_OK(fleet_init(&f, &o));
    p = fleet_program_create(f);
    fleet_mlp(p, &(fleet_mlp_options){.dim = 40, .classes = 2}, &m);
    s.amp = s.amp_configs.use_bf16 = 1;
    s.amp_configs.init_loss_scaling = 1024;
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s), m.loss));
    CHECK_TEXT(lines, "strategy.amp_configs.init_loss_scaling is 1024: no "
                      "effect: for float16, bfloat16 needs no scaling\n");
    dump = fleet_strategy_dump(f);
    check_line(dump, "amp", "1", "asked    honoured");
    check_line(dump, "amp_configs.use_bf16", "1", "asked    honoured");
    check_line(dump, "amp_configs.init_loss_scaling", "1024",
               "asked    no effect: for float16, bfloat16 needs no scaling");
    check_line(dump, "amp_configs.use_dynamic_loss_scaling", "1",
               "default  no effect: for float16, bfloat16 needs no scaling");
    CHECK_CONTAINS(dump, "passes amp update");
    fleet_free(dump);
    fleet_destroy(f);
}

/* --- refusals ------------------------------------------------------------- */

TEST(a_processor_without_it_is_refused_with_the_reason)
{
    kit_model m;
    kit_batch *b;

    setenv("FLEET_ISA", "avx512", 1);
    kit_open(&m, KIT_MLP, &(kit_options){.bf16 = true});
    b = kit_batch_for(&m, 20, 1);
    CHECK_FAILS(kit_run(m.e, b), FLEET_EUNSUPPORTED,
                "strategy.amp_configs.use_bf16: it needs a processor with "
                "avx512_bf16");
    CHECK_CONTAINS(fleet_last_error(), fl_simd_best()->isa);
    kit_batch_free(b);
    kit_close(&m);
}

TEST(float16_without_a_gpu_is_refused_with_the_way)
{
    kit_model m;
    kit_batch *b;

    kit_open(&m, KIT_MLP, &(kit_options){.fp16 = true});
    b = kit_batch_for(&m, 20, 1);
    CHECK_FAILS(kit_run(m.e, b), FLEET_EUNSUPPORTED,
                "strategy.amp: float16 is not there on a CPU; "
                "fleet_program_place() puts a program on a GPU");
    kit_batch_free(b);
    kit_close(&m);
}

TEST(a_server_needs_no_such_processor)
{
    fleet_role role = {.kind = FLEET_SERVER,
                       .worker_num = 1,
                       .server_endpoints = "inproc://amp"};
    fleet_options o = {.role = &role};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet *f;

    setenv("FLEET_ISA", "plain", 1);
    CHECK_OK(fleet_init(&f, &o));
    s.amp = s.amp_configs.use_bf16 = 1;
    CHECK(fleet_distributed_optimizer(f, fleet_sgd(f, 0.1f), &s) != NULL);
    fleet_destroy(f);
}

TEST(the_instruction_set_may_be_asked_for_by_its_name)
{
    kit_need_bf16();
    setenv("FLEET_ISA", "avx512_bf16", 1);
    CHECK(hash_of(KIT_MLP, &(kit_options){.bf16 = true}, 10) != 0);
}
