/* device_test.c - a device's interface (runtime/device/device.h): memory,
 * copies, events, products with all epilogues, faults, and what it says when
 * something is missing. */
#define SUITE device
#include "device_kit.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda-emu/control.h"
#include "ops/embedding.h"
#include "ops/fc_kernels.h"

enum { WAIT_MS = 10000, MOST = 4096 };

typedef struct scene {
    device_kit k;
    const fl_device_class *m;
    void *buffer[8]; /* of the device, MOST floats each */
} scene;

static void open_scene(scene *s)
{
    device_kit_open(&s->k, true);
    s->m = s->k.d->methods;
    for (int i = 0; i < 8; i++)
        CHECK_OK(
            s->m->alloc(s->k.d, s->k.q, MOST * sizeof(float), &s->buffer[i]));
}

static void close_scene(scene *s)
{
    for (int i = 0; i < 8; i++)
        s->m->free(s->k.d, s->k.q, s->buffer[i]);
    device_kit_close(&s->k);
}

static void put(scene *s, int i, const void *from, size_t bytes)
{
    CHECK_OK(
        s->m->copy(s->k.d, s->k.q, s->buffer[i], from, bytes, FL_TO_DEVICE));
}

static void get(scene *s, int i, void *to, size_t bytes)
{
    CHECK_OK(s->m->copy(s->k.d, s->k.q, to, s->buffer[i], bytes, FL_TO_HOST));
    CHECK_OK(s->m->stream_wait(s->k.d, s->k.q, WAIT_MS));
}

static void needs_emulation(void)
{
    if (!device_kit_is_emulated())
        test_skip("only an emulated device does what this test asks for");
}

/* The plug-in that was built beside, if one was: it opens a device, or says
 * what it is missing here. */
TEST(a_plug_in_that_was_built_knows_what_is_missing)
{
    const char *source = getenv("FLEET_SOURCE");
    char path[4096];
    int n;

    snprintf(path, sizeof path, "%s/lib/libfleet_cuda.so",
             source && *source ? source : ".");
    if (access(path, R_OK) != 0)
        test_skip("no CUDA plug-in was built here");
    setenv("FLEET_TEST_DEVICE", path, 1);
    if (device_kit_table()->count(&n) == FLEET_OK)
        CHECK(n > 0);
    else
        CHECK_FAILS(device_kit_table()->count(&n), FLEET_ENODEVICE, "cuda: ");
}

/* --- what is missing ------------------------------------------------------ */

TEST(without_a_driver_it_says_so)
{
    const fl_device_table *t = device_kit_table();
    fl_device *d;
    int n = 7;

    needs_emulation();
    fl_emu_set_devices(-1);
    CHECK_FAILS(t->count(&n), FLEET_ENODEVICE, "no NVIDIA driver");
    CHECK_INT(n, 0);
    CHECK_FAILS(t->open(0, NULL, &d), FLEET_ENODEVICE, "no NVIDIA driver");
    CHECK(d == NULL);
}

TEST(without_a_device_it_says_so)
{
    const fl_device_table *t = device_kit_table();
    fl_device *d;

    needs_emulation();
    fl_emu_set_devices(0);
    CHECK_FAILS(t->open(0, NULL, &d), FLEET_ENODEVICE, "but no GPU");
    fl_emu_set_devices(2);
    CHECK_FAILS(t->open(2, NULL, &d), FLEET_ENODEVICE,
                "there is no device 2; there are 2");
    CHECK_FAILS(t->open(-1, NULL, &d), FLEET_ENODEVICE, "no device -1");
}

TEST(tables_have_their_size_and_version)
{
    const fl_device_table *t = device_kit_table();

    CHECK_INT(t->size, (int64_t)sizeof *t);
    CHECK_INT(t->version, FL_DEVICE_VERSION);
}

/* --- memory, copies, events ----------------------------------------------- */

TEST(copies_arrive_and_check_whose_memory_it_is)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    scene s;

    needs_emulation();
    open_scene(&s);
    put(&s, 0, x, sizeof x);
    CHECK_OK(s.m->copy(s.k.d, s.k.q, s.buffer[1], s.buffer[0], sizeof x,
                       FL_ON_DEVICE));
    CHECK_OK(s.m->fill(s.k.d, s.k.q, s.buffer[1], 0, sizeof x[0]));
    get(&s, 1, y, sizeof y);
    CHECK(y[0] == 0 && y[1] == 2 && y[3] == 4);
    CHECK_FAILS(s.m->copy(s.k.d, s.k.q, x, y, sizeof x, FL_TO_DEVICE),
                FLEET_EIO, "is memory of the host");
    CHECK_FAILS(s.m->copy(s.k.d, s.k.q, s.buffer[0], x,
                          MOST * sizeof(float) + 1, FL_TO_DEVICE),
                FLEET_EIO, "reach past their allocation");
    close_scene(&s);
}

/* A copy reads what is pinned when its turn comes, alone or in a graph. */
TEST(pinned_memory_that_is_written_before_its_copy_is_told)
{
    fl_graph *g;
    void *pinned;
    scene s;

    needs_emulation();
    open_scene(&s);
    CHECK_OK(s.m->alloc_pinned(s.k.d, 64, &pinned));
    memset(pinned, 1, 64);
    CHECK_OK(s.m->capture_begin(s.k.d, s.k.q));
    CHECK_OK(s.m->copy(s.k.d, s.k.q, s.buffer[0], pinned, 64, FL_TO_DEVICE));
    CHECK_OK(s.m->capture_end(s.k.d, s.k.q, &g));
    memset(pinned, 2, 64);
    fl_emu_set_late(true);
    CHECK_OK(s.m->graph_launch(s.k.d, s.k.q, g));
    CHECK_OK(s.m->stream_wait(s.k.d, s.k.q, WAIT_MS));
    CHECK_OK(s.m->graph_launch(s.k.d, s.k.q, g));
    memset(pinned, 3, 64);
    CHECK_FAILS(s.m->stream_wait(s.k.d, s.k.q, WAIT_MS), FLEET_EIO,
                "pinned memory was written before its copy");
    CHECK_OK(s.m->copy(s.k.d, s.k.q, s.buffer[0], pinned, 64, FL_TO_DEVICE));
    memset(pinned, 4, 64);
    CHECK_FAILS(s.m->stream_wait(s.k.d, s.k.q, WAIT_MS), FLEET_EIO,
                "pinned memory was written before its copy");
    fl_emu_set_late(false);
    s.m->graph_destroy(s.k.d, g);
    s.m->free_pinned(s.k.d, pinned);
    close_scene(&s);
}

/* By one seed or another each of two streams is ahead of the other. */
TEST(streams_go_their_own_ways_by_a_seed)
{
    int first[2] = {0, 0};

    needs_emulation();
    for (int seed = 1; seed < 30; seed++) {
        float x[1] = {1}, y[1];
        fl_queue *other;
        scene s;

        fl_emu_set_seed((unsigned long long)seed);
        open_scene(&s);
        CHECK_OK(s.m->stream_create(s.k.d, &other));
        put(&s, 0, x, sizeof x);
        CHECK_OK(s.m->stream_wait(s.k.d, s.k.q, WAIT_MS));
        /* two writers without an order between them */
        CHECK_OK(s.m->fill(s.k.d, s.k.q, s.buffer[0], 0, sizeof x));
        CHECK_OK(s.m->fill(s.k.d, other, s.buffer[0], 0xff, sizeof x));
        CHECK_OK(s.m->stream_wait(s.k.d, other, WAIT_MS));
        get(&s, 0, y, sizeof y);
        first[isnan(y[0])]++;
        s.m->stream_destroy(s.k.d, other);
        close_scene(&s);
    }
    fl_emu_set_seed(0);
    CHECK(first[0] > 3 && first[1] > 3);
}

/* --- graphs --------------------------------------------------------------- */

/* buffer 1 = buffer 0, but for its first number, which is 0. */
static void queue_some(scene *s, size_t bytes)
{
    CHECK_OK(s->m->copy(s->k.d, s->k.q, s->buffer[1], s->buffer[0], bytes,
                        FL_ON_DEVICE));
    CHECK_OK(s->m->fill(s->k.d, s->k.q, s->buffer[1], 0, sizeof(float)));
}

TEST(what_is_captured_is_done_by_each_launch_and_not_before)
{
    float x[4] = {1, 2, 3, 4}, other[4] = {5, 6, 7, 8}, y[4];
    fl_graph *g;
    scene s;

    open_scene(&s);
    put(&s, 0, x, sizeof x);
    put(&s, 1, x, sizeof x);
    CHECK_OK(s.m->capture_begin(s.k.d, s.k.q));
    queue_some(&s, sizeof x);
    CHECK_OK(s.m->capture_end(s.k.d, s.k.q, &g));
    get(&s, 1, y, sizeof y);
    CHECK(y[0] == 1 && y[1] == 2);
    CHECK_OK(s.m->graph_launch(s.k.d, s.k.q, g));
    get(&s, 1, y, sizeof y);
    CHECK(y[0] == 0 && y[1] == 2);
    put(&s, 0, other, sizeof other);
    CHECK_OK(s.m->graph_launch(s.k.d, s.k.q, g));
    get(&s, 1, y, sizeof y);
    CHECK(y[0] == 0 && y[1] == 6 && y[3] == 8);
    s.m->graph_destroy(s.k.d, g);
    close_scene(&s);
}

enum { AN_ALLOCATION, A_COPY, A_WAIT, AN_EVENT, A_LOOK, A_QUERY, N_MISTAKE };

/* What no capture may have in it. */
static fleet_status make_mistake(scene *s, int which, fl_event *e)
{
    void *p;
    bool done;
    float x[4] = {0};

    switch (which) {
    case AN_ALLOCATION:
        return s->m->alloc_pinned(s->k.d, 64, &p);
    case A_COPY:
        return s->m->copy(s->k.d, s->k.q, s->buffer[2], x, sizeof x,
                          FL_TO_DEVICE);
    case A_WAIT:
        return s->m->stream_wait(s->k.d, s->k.q, WAIT_MS);
    case AN_EVENT:
        return s->m->stream_after(s->k.d, s->k.q, e);
    case A_LOOK:
        return s->m->event_done(s->k.d, e, &done);
    default:
        return s->m->event_wait(s->k.d, e, WAIT_MS);
    }
}

TEST(what_cannot_be_captured_is_refused_and_leaves_the_stream_usable)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    fl_event *e;
    fl_graph *g;
    scene s;

    needs_emulation();
    open_scene(&s);
    put(&s, 0, x, sizeof x);
    CHECK_OK(s.m->event_create(s.k.d, false, &e));
    CHECK_OK(s.m->event_record(s.k.d, e, s.k.q));
    for (int i = 0; i < N_MISTAKE; i++) {
        CHECK_OK(s.m->capture_begin(s.k.d, s.k.q));
        CHECK_FAILS(make_mistake(&s, i, e), FLEET_EIO,
                    "not permitted while a stream is captured");
        queue_some(&s, sizeof x);
        CHECK_FAILS(s.m->capture_end(s.k.d, s.k.q, &g), FLEET_EIO, "invalid");
        CHECK(g == NULL);
        put(&s, 1, y, sizeof y);
        queue_some(&s, sizeof x);
        get(&s, 1, y, sizeof y);
        CHECK(y[0] == 0 && y[1] == 2);
    }
    s.m->event_destroy(s.k.d, e);
    close_scene(&s);
}

TEST(an_event_that_has_not_come_is_not_waited_for)
{
    float x[4] = {1, 2, 3, 4};
    bool done = true;
    fl_event *e;
    scene s;

    needs_emulation();
    open_scene(&s);
    CHECK_OK(s.m->event_create(s.k.d, false, &e));
    put(&s, 0, x, sizeof x);
    CHECK_OK(s.m->event_record(s.k.d, e, s.k.q));
    fl_emu_set_busy(true);
    CHECK_OK(s.m->event_done(s.k.d, e, &done));
    CHECK(!done);
    fl_emu_set_busy(false);
    CHECK_OK(s.m->event_done(s.k.d, e, &done));
    CHECK(done);
    s.m->event_destroy(s.k.d, e);
    close_scene(&s);
}

TEST(events_tell_when_and_how_long)
{
    fl_event *from, *to;
    float ms = -1;
    bool done = false;
    void *pinned;
    int64_t began;
    scene s;

    open_scene(&s);
    began = fl_now_ms();
    CHECK_OK(s.m->event_create(s.k.d, true, &from));
    CHECK_OK(s.m->event_create(s.k.d, true, &to));
    CHECK_OK(s.m->event_record(s.k.d, from, s.k.q));
    CHECK_OK(s.m->alloc_pinned(s.k.d, 64, &pinned));
    CHECK_OK(s.m->event_record(s.k.d, to, s.k.q));
    CHECK_OK(s.m->stream_after(s.k.d, s.k.q, to));
    CHECK_OK(s.m->event_wait(s.k.d, to, WAIT_MS));
    CHECK_OK(s.m->event_done(s.k.d, to, &done));
    CHECK(done);
    CHECK_OK(s.m->event_elapsed(s.k.d, from, to, &ms));
    CHECK(ms >= 0 && ms <= (float)(fl_now_ms() - began + 1));
    s.m->free_pinned(s.k.d, pinned);
    s.m->event_destroy(s.k.d, from);
    s.m->event_destroy(s.k.d, to);
    close_scene(&s);
}

TEST(a_stream_that_does_not_end_is_given_up_at_the_deadline)
{
    scene s;

    needs_emulation();
    open_scene(&s);
    fl_emu_set_busy(true);
    CHECK_FAILS(s.m->stream_wait(s.k.d, s.k.q, 5), FLEET_ETIMEDOUT,
                "device 0 (emulated) was not done after 5 ms");
    fl_emu_set_busy(false);
    CHECK_OK(s.m->stream_wait(s.k.d, s.k.q, WAIT_MS));
    close_scene(&s);
}

/* From then on a wait asks once, and nothing is freed that would wait. */
TEST(a_device_that_was_given_up_holds_nobody_up)
{
    const fl_device_class *m;
    int64_t began;
    fl_event *e;
    fl_graph *g;
    void *pinned;
    scene s;

    needs_emulation();
    open_scene(&s);
    m = s.m;
    CHECK_OK(m->event_create(s.k.d, false, &e));
    CHECK_OK(m->alloc_pinned(s.k.d, 64, &pinned));
    CHECK_OK(m->capture_begin(s.k.d, s.k.q));
    queue_some(&s, 64);
    CHECK_OK(m->capture_end(s.k.d, s.k.q, &g));
    fl_emu_set_busy(true);
    CHECK_FAILS(m->stream_wait(s.k.d, s.k.q, 5), FLEET_ETIMEDOUT, "deadline");
    began = fl_now_ms();
    CHECK_FAILS(m->stream_wait(s.k.d, s.k.q, 3000), FLEET_ETIMEDOUT,
                "deadline");
    CHECK(fl_now_ms() - began < 1500);
    m->graph_destroy(s.k.d, g);
    m->free_pinned(s.k.d, pinned);
    m->event_destroy(s.k.d, e);
    m->destroy(s.k.d);
    CHECK_INT(fl_emu_hangs(), 0);
    fl_emu_set_busy(false);
}

TEST(a_device_that_answers_again_is_used_again)
{
    void *pinned;
    scene s;

    needs_emulation();
    open_scene(&s);
    CHECK_OK(s.m->alloc_pinned(s.k.d, 64, &pinned));
    fl_emu_set_busy(true);
    CHECK_FAILS(s.m->stream_wait(s.k.d, s.k.q, 5), FLEET_ETIMEDOUT, "deadline");
    fl_emu_set_busy(false);
    CHECK_OK(s.m->stream_wait(s.k.d, s.k.q, 5));
    s.m->free_pinned(s.k.d, pinned);
    close_scene(&s);
}

/* --- products ------------------------------------------------------------- */

enum { M = 9, N = 7, K = 5 };

/* c = a . b, one way or the other, in double. */
static double product_at(const fl_gemm_spec *g, const float *a, const float *b,
                         int64_t row, int64_t col)
{
    double sum = 0;

    for (int64_t i = 0; i < g->k; i++)
        sum += (double)a[g->ta ? i * g->lda + row : row * g->lda + i] *
               (double)b[g->tb ? col * g->ldb + i : i * g->ldb + col];
    return sum;
}

static void run_product(scene *s, const fl_gemm_spec *g)
{
    fl_gemm_data data = {s->buffer[0], s->buffer[1], s->buffer[2],
                         s->buffer[3]};
    fl_gemm *gemm;

    CHECK_OK(s->m->gemm_create(s->k.d, s->k.q, g, &gemm));
    CHECK_OK(s->m->gemm_run(s->k.d, s->k.q, gemm, &data));
    s->m->gemm_destroy(s->k.d, gemm);
}

static void noise(float *x, int n, int stream)
{
    for (int i = 0; i < n; i++)
        x[i] = kit_noise(i, stream);
}

/* Whatever cuBLASLt has: a product and its bits, in each of the ways in which
 * products are computed. */
static void check_products(scene *s, const float *a, const float *b,
                           float *first)
{
    float c[M * (N + 2)];

    for (int way = 0; way < 4; way++) {
        bool ta = way & 1, tb = way & 2;
        fl_gemm_spec g = {.m = M,
                          .n = N,
                          .k = K,
                          .ta = ta,
                          .tb = tb,
                          .lda = ta ? M : K + 3,
                          .ldb = tb ? K + 1 : N + 2,
                          .ldc = N + 2,
                          .align_a = 256,
                          .align_c = 4};

        run_product(s, &g);
        get(s, 2, c, sizeof c);
        for (int i = 0; i < M * N; i++) {
            float got = c[i / N * (N + 2) + i % N];

            CHECK(fabs((double)got - product_at(&g, a, b, i / N, i % N)) <
                  1e-5);
            if (isnan(first[way * M * N + i]))
                first[way * M * N + i] = got;
            if (device_kit_is_emulated())
                CHECK(got == first[way * M * N + i]);
        }
    }
}

/* With a bias, then with a relu. */
static void check_epilogues(scene *s, const float *a, const float *b,
                            const float *bias)
{
    float c[M * N];

    for (int relu = 0; relu < 2; relu++) {
        fl_gemm_spec g = {.m = M,
                          .n = N,
                          .k = K,
                          .lda = K,
                          .ldb = N,
                          .ldc = N,
                          .epilogue = relu ? FL_GEMM_BIAS_RELU : FL_GEMM_BIAS};

        run_product(s, &g);
        get(s, 2, c, sizeof c);
        for (int i = 0; i < M * N; i++) {
            double want =
                product_at(&g, a, b, i / N, i % N) + (double)bias[i % N];

            want = relu && want < 0 ? 0 : want;
            CHECK(fabs((double)c[i] - want) < 1e-5);
        }
    }
}

/* A layer's dW and db, of fewer rows than a block of our own kernel has, and of
 * more than one. */
static void check_bias_gradient(scene *s, const float *a, const float *b,
                                int64_t k)
{
    fl_gemm_spec g = {.m = M,
                      .n = N,
                      .k = k,
                      .ta = true,
                      .lda = M,
                      .ldb = N + 2,
                      .ldc = N,
                      .epilogue = FL_GEMM_BIAS_GRADIENT};
    float c[M * N], got[N];

    CHECK_OK(s->m->fill(s->k.d, s->k.q, s->buffer[3], 0xff, sizeof got));
    run_product(s, &g);
    get(s, 2, c, sizeof c);
    get(s, 3, got, sizeof got);
    for (int i = 0; i < M * N; i++)
        CHECK(fabs((double)c[i] - product_at(&g, a, b, i / N, i % N)) < 1e-4);
    for (int64_t j = 0; j < N; j++) {
        double sum = 0;

        for (int64_t r = 0; r < k; r++)
            sum += (double)b[r * g.ldb + j];
        CHECK(fabs((double)got[j] - sum) < 1e-4);
    }
}

static const unsigned refusals[] = {0,
                                    FL_EMU_NO_HANDLE,
                                    FL_EMU_NO_PRODUCT,
                                    FL_EMU_NO_EPILOGUE,
                                    FL_EMU_NO_FIRST,
                                    FL_EMU_NO_RUN,
                                    FL_EMU_NO_EPILOGUE | FL_EMU_NO_RUN};
enum { N_REFUSAL = sizeof refusals / sizeof *refusals };

TEST(a_product_is_computed_whatever_cublaslt_lacks)
{
    float a[M * (K + 3)], b[N * (K + N)], bias[N], first[4 * M * N];
    int ways = device_kit_is_emulated() ? N_REFUSAL : 1;

    fl_emu_set_one_order(true); /* that of our own kernel */
    noise(a, (int)(sizeof a / sizeof *a), 1);
    noise(b, (int)(sizeof b / sizeof *b), 2);
    noise(bias, N, 3);
    for (int i = 0; i < 4 * M * N; i++)
        first[i] = NAN;
    for (int i = 0; i < ways; i++) {
        scene s;

        fl_emu_refuse_products(refusals[i]);
        open_scene(&s);
        put(&s, 0, a, sizeof a);
        put(&s, 1, b, sizeof b);
        put(&s, 3, bias, sizeof bias);
        check_products(&s, a, b, first);
        check_epilogues(&s, a, b, bias);
        close_scene(&s);
    }
}

/* How a product is computed, and how much is queued for that. */
static void check_way(scene *s, const fl_gemm_spec *g, const char *way,
                      long calls)
{
    fl_gemm_data data = {s->buffer[0], s->buffer[1], s->buffer[2],
                         s->buffer[3]};
    fl_gemm *gemm;
    long before;

    CHECK_OK(s->m->gemm_create(s->k.d, s->k.q, g, &gemm));
    before = fl_emu_queued();
    CHECK_OK(s->m->gemm_run(s->k.d, s->k.q, gemm, &data));
    CHECK_INT(fl_emu_queued() - before, calls);
    CHECK_TEXT(s->m->gemm_way(gemm), way);
    s->m->gemm_destroy(s->k.d, gemm);
}

TEST(a_bias_gradient_comes_with_its_product_whatever_cublaslt_lacks)
{
    enum { FEW = 5, MANY = 150 };
    static const struct {
        unsigned refusal;
        const char *way;
        long calls;
    } cases[] = {{0, "fused", 1},
                 {FL_EMU_NO_EPILOGUE, "filled", 2},
                 {FL_EMU_NO_PRODUCT, "own", 2},
                 {FL_EMU_NO_RUN, "own", 3}};
    const int n = device_kit_is_emulated() ? 4 : 1;
    float a[MANY * M], b[MANY * (N + 2)];
    fl_gemm_spec g = {.m = M,
                      .n = N,
                      .k = MANY,
                      .ta = true,
                      .lda = M,
                      .ldb = N,
                      .ldc = N,
                      .epilogue = FL_GEMM_BIAS_GRADIENT};

    noise(a, (int)(sizeof a / sizeof *a), 1);
    noise(b, (int)(sizeof b / sizeof *b), 2);
    for (int i = 0; i < n; i++) {
        scene s;

        fl_emu_refuse_products(cases[i].refusal);
        open_scene(&s);
        put(&s, 0, a, sizeof a);
        put(&s, 1, b, sizeof b);
        check_bias_gradient(&s, a, b, FEW);
        check_bias_gradient(&s, a, b, MANY);
        if (device_kit_is_emulated())
            check_way(&s, &g, cases[i].way, cases[i].calls);
        close_scene(&s);
    }
    fl_emu_refuse_products(0);
}

/* A relu is fused if one of the guesses keeps NaN; it is a kernel otherwise. */
static void check_relu(bool by_algorithm, unsigned refuses, long kernels)
{
    float a[M * K] = {NAN}, b[K * N], bias[N] = {0}, c[M * N];
    fl_gemm_spec g = {.m = M,
                      .n = N,
                      .k = K,
                      .lda = K,
                      .ldb = N,
                      .ldc = N,
                      .epilogue = FL_GEMM_BIAS_RELU};
    long before;
    scene s;

    fl_emu_set_relu_by_algorithm(by_algorithm);
    fl_emu_refuse_products(refuses);
    open_scene(&s);
    noise(b, K * N, 2);
    put(&s, 0, a, sizeof a);
    put(&s, 1, b, sizeof b);
    put(&s, 3, bias, sizeof bias);
    run_product(&s, &g); /* what is tried is tried once */
    before = fl_emu_launches();
    run_product(&s, &g);
    get(&s, 2, c, sizeof c);
    CHECK_INT(fl_emu_launches() - before, kernels);
    for (int i = 0; i < N; i++)
        CHECK(isnan(c[i]) && c[N + i] == 0.0f);
    close_scene(&s);
}

TEST(a_relu_that_hides_nan_is_not_fused)
{
    needs_emulation();
    check_relu(false, 0, 1);
    check_relu(true, 0, 0);
    check_relu(true, FL_EMU_NO_EPILOGUE, 2);
    check_relu(true, FL_EMU_NO_PRODUCT, 1);
}

/* What was said to be aligned and is not is refused when it runs, and computed
 * in another way. */
TEST(a_choice_rests_on_the_alignment_of_each_operand)
{
    fl_gemm_spec g = {.m = M,
                      .n = N,
                      .k = K,
                      .lda = K,
                      .ldb = N,
                      .ldc = N,
                      .align_a = 256,
                      .align_b = 256,
                      .align_c = 256,
                      .align_bias = 256,
                      .epilogue = FL_GEMM_BIAS};
    fl_gemm_data data;
    fl_gemm *gemm;
    long before;
    scene s;

    needs_emulation();
    open_scene(&s);
    data = (fl_gemm_data){s.buffer[0], s.buffer[1], s.buffer[2],
                          (float *)s.buffer[3] + 1};
    for (int told = 0; told < 2; told++) {
        if (told)
            g.align_bias = 4;
        CHECK_OK(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm));
        before = fl_emu_launches();
        CHECK_OK(s.m->gemm_run(s.k.d, s.k.q, gemm, &data));
        CHECK_INT(fl_emu_launches() - before, told ? 0 : 1);
        s.m->gemm_destroy(s.k.d, gemm);
    }
    close_scene(&s);
}

TEST(all_products_share_a_workspace)
{
    fl_gemm_spec g = {.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N};
    int64_t before;
    fl_gemm *gemm;
    scene s;

    needs_emulation();
    open_scene(&s);
    run_product(&s, &g);
    before = (int64_t)fl_emu_live_bytes();
    for (int i = 0; i < 5; i++) {
        CHECK_OK(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm));
        CHECK_INT((int64_t)fl_emu_live_bytes(), before);
        s.m->gemm_destroy(s.k.d, gemm);
    }
    close_scene(&s);
}

TEST(products_that_do_not_fit_are_refused)
{
    fl_gemm_spec g = {.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N - 1};
    fl_gemm *gemm;
    scene s;

    open_scene(&s);
    CHECK_FAILS(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm), FLEET_EUNSUPPORTED,
                "no product of [9,5] and [5,7]");
    CHECK(gemm == NULL);
    g.ldc = N;
    g.epilogue = FL_GEMM_BIAS_GRADIENT;
    g.in = g.out = FLEET_BFLOAT16;
    CHECK_FAILS(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm), FLEET_EUNSUPPORTED,
                "no gradient of a bias of bfloat16");
    CHECK(gemm == NULL);
    close_scene(&s);
}

/* --- memory that is short ------------------------------------------------- */

enum { LARGE = 64 << 20 };

/* What was freed stays with the pool, which gives it back where something else
 * needs it. */
TEST(memory_that_was_freed_is_used_before_there_is_too_little)
{
    fl_gemm_spec g = {.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N};
    int64_t before;
    fl_graph *graph;
    scene s;
    void *p, *more;

    needs_emulation();
    open_scene(&s);
    fl_emu_set_memory(LARGE);
    CHECK_OK(s.m->alloc(s.k.d, s.k.q, LARGE * 3 / 4, &p));
    CHECK_FAILS(s.m->alloc(s.k.d, s.k.q, LARGE, &more), FLEET_ENOMEM,
                "no 67108864 bytes on device 0");
    s.m->free(s.k.d, s.k.q, p);
    CHECK_OK(s.m->alloc(s.k.d, s.k.q, LARGE * 3 / 4, &p));
    s.m->free(s.k.d, s.k.q, p);
    fl_emu_set_memory(LARGE * 3 / 4 + (1 << 20));
    before = (int64_t)fl_emu_live_bytes();
    run_product(&s, &g);
    CHECK((int64_t)fl_emu_live_bytes() - before > 1 << 20); /* a workspace */
    CHECK_OK(s.m->alloc(s.k.d, s.k.q, 1 << 20, &p));
    s.m->free(s.k.d, s.k.q, p);
    fl_emu_set_memory(fl_emu_live_bytes() + 100);
    CHECK_OK(s.m->capture_begin(s.k.d, s.k.q));
    queue_some(&s, 64);
    CHECK_OK(s.m->capture_end(s.k.d, s.k.q, &graph));
    s.m->graph_destroy(s.k.d, graph);
    fl_emu_set_memory(0);
    close_scene(&s);
}

/* Another algorithm, or another way, would have other bits. */
TEST(a_product_without_memory_for_its_workspace_has_no_other_way)
{
    fl_gemm_spec g = {.m = M, .n = N, .k = K, .lda = K, .ldb = N, .ldc = N};
    fl_gemm *gemm;
    scene s;

    needs_emulation();
    open_scene(&s);
    fl_emu_set_memory(fl_emu_live_bytes() + 1000);
    CHECK_FAILS(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm), FLEET_ENOMEM,
                "a workspace for products");
    CHECK(gemm == NULL);
    fl_emu_set_memory(fl_emu_live_bytes() + (2 << 20) + 100);
    g.epilogue = FL_GEMM_BIAS_RELU; /* which is tried with NaN */
    CHECK_STATUS(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm), FLEET_ENOMEM);
    CHECK(gemm == NULL);
    fl_emu_set_memory(0);
    CHECK_OK(s.m->gemm_create(s.k.d, s.k.q, &g, &gemm));
    s.m->gemm_destroy(s.k.d, gemm);
    close_scene(&s);
}

TEST(a_device_without_memory_pools_is_used)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    scene s;

    needs_emulation();
    fl_emu_set_pools(false);
    open_scene(&s);
    put(&s, 0, x, sizeof x);
    get(&s, 0, y, sizeof y);
    CHECK(y[3] == 4);
    close_scene(&s);
    fl_emu_set_pools(true);
}

/* An access that is not allowed ends all use of the GPU by the process. */
TEST(a_context_that_is_lost_is_said_so)
{
    scene s;

    needs_emulation();
    open_scene(&s);
    fl_emu_lose_after(0);
    CHECK_FAILS(s.m->stream_wait(s.k.d, s.k.q, WAIT_MS), FLEET_EIO,
                "an illegal memory access was encountered: no GPU can be used "
                "by this process any more; it has to be started again");
    CHECK_FAILS(s.m->fill(s.k.d, s.k.q, s.buffer[0], 0, 4), FLEET_EIO,
                "started again");
    fl_emu_lose_after(-1);
    close_scene(&s);
}

/* --- kernels by hand ------------------------------------------------------ */

static void run_kernel(scene *s, const char *name, fl_device_step *step)
{
    uint64_t none = FL_NO_FAULT;

    put(s, 7, &none, sizeof none);
    step->fault = s->buffer[7];
    device_kit_run(&s->k, name, step);
}

static int64_t fault_of(scene *s)
{
    uint64_t fault;

    get(s, 7, &fault, sizeof fault);
    return (int64_t)fault;
}

enum { DB_ROWS = 700, DB_COLS = 40, DB_LD = 43 };

static void check_db(device_kit *k, const void *db, const float *x)
{
    float *got = device_kit_fetch(k, db, DB_COLS * sizeof *got);

    for (int j = 0; j < DB_COLS; j++) {
        double sum = 0;

        for (int r = 0; r < DB_ROWS; r++)
            sum += (double)x[r * DB_LD + j];
        CHECK(fabs((double)got[j] - sum) < 1e-4);
    }
    free(got);
}

/* Of more rows than one block has; again and again, and whichever block comes
 * last. */
TEST(a_bias_gradient_is_the_sum_of_all_rows)
{
    fl_fc_config c = {.k = 1, .n = DB_COLS, .bias = true};
    float *x = calloc(DB_ROWS * DB_LD, sizeof *x);
    const fl_device_kernel *kernel;
    fl_device_step step;
    device_kit k;

    noise(x, DB_ROWS * DB_LD, 1);
    device_kit_open(&k, true);
    fl_device_arg arg[] = {{device_kit_make(&k, NULL, DB_COLS * sizeof *x),
                            DB_COLS, DB_COLS, 0, 1, FLEET_FLOAT32, NULL},
                           {device_kit_make(&k, x, DB_ROWS * DB_LD * sizeof *x),
                            DB_COLS, DB_LD, 1, DB_ROWS, FLEET_FLOAT32, NULL}};
    kernel = k.d->methods->kernel(k.d, "fc.db", FLEET_FLOAT32);
    step = (fl_device_step){.arg = arg,
                            .n_arg = 2,
                            .config = &c,
                            .batch = DB_ROWS,
                            .state = calloc(1, kernel->state_size)};
    CHECK_OK(kernel->prepare(k.d, k.q, &step));
    step.scratch = device_kit_make(&k, NULL, step.scratch_size);
    for (int i = 0; i < 6; i++) {
        if (device_kit_is_emulated())
            fl_emu_set_seed((unsigned long long)i);
        CHECK_OK(k.d->methods->fill(k.d, k.q, arg[0].data, 0xff,
                                    DB_COLS * sizeof *x));
        CHECK_OK(kernel->run(k.d, k.q, &step));
        check_db(&k, arg[0].data, x);
    }
    CHECK_OK(k.d->methods->stream_wait(k.d, k.q, WAIT_MS));
    kernel->finish(k.d, &step);
    free(step.state);
    device_kit_drop(&k, step.scratch);
    device_kit_drop(&k, arg[0].data);
    device_kit_drop(&k, arg[1].data);
    device_kit_close(&k);
    free(x);
}

/* An id that no row has is not used; the first such row is known afterwards. */
TEST(an_id_out_of_range_is_a_fault_of_its_row)
{
    int64_t ids[] = {0, 1, 2, -1, 1, 5};
    float w[] = {1, 2, 3}, out[6];
    fl_embedding_config c = {.rows = 3, .dim = 1, .per_row = 2, .padding = -1};
    scene s;

    open_scene(&s);
    put(&s, 1, ids, sizeof ids);
    put(&s, 2, w, sizeof w);
    fl_device_arg arg[] = {
        {s.buffer[0], 2, 2, 1, 3, FLEET_FLOAT32, NULL},
        {s.buffer[1], 2, 2, 1, 3, FLEET_INT64, NULL},
        {s.buffer[2], 1, 1, 0, 3, FLEET_FLOAT32, NULL},
    };
    run_kernel(
        &s, "embedding",
        &(fl_device_step){.arg = arg, .n_arg = 3, .config = &c, .batch = 3});
    CHECK_INT(fault_of(&s), 1);
    get(&s, 0, out, sizeof out);
    CHECK(out[0] == 1 && out[1] == 2 && out[2] == 3 && out[3] == 0 &&
          out[4] == 2 && out[5] == 0);
    close_scene(&s);
}

/* Label 9 of two classes in row 2; NaN as a label in row 0. */
static int64_t fault_of_loss(scene *s, const char *name, fleet_dtype dtype,
                             int outputs, int64_t cols)
{
    int64_t label[] = {0, 1, 9};
    float target[] = {NAN, 1, 0}, x[6] = {0};
    int label_at = outputs + 1;
    fl_device_arg arg[] = {
        {s->buffer[0], 1, 1, 1, 3, FLEET_FLOAT32, NULL},
        {s->buffer[1], cols, cols, 1, 3, FLEET_FLOAT32, NULL},
        {s->buffer[2], cols, cols, 1, 3, FLEET_FLOAT32, NULL},
        {s->buffer[3], 1, 1, 1, 3, FLEET_FLOAT32, NULL},
    };

    arg[label_at].dtype = dtype;
    arg[label_at].cols = arg[label_at].ld = 1;
    for (int i = 1; i < label_at; i++)
        put(s, i, x, sizeof x);
    if (dtype == FLEET_INT64)
        put(s, label_at, label, sizeof label);
    else
        put(s, label_at, target, sizeof target);
    run_kernel(
        s, name,
        &(fl_device_step){.arg = arg, .n_arg = label_at + 1, .batch = 3});
    return fault_of(s);
}

TEST(a_label_that_cannot_be_is_a_fault_of_its_row)
{
    scene s;

    open_scene(&s);
    CHECK_INT(fault_of_loss(&s, "softmax_ce", FLEET_INT64, 2, 2), 2);
    CHECK_INT(fault_of_loss(&s, "cross_entropy", FLEET_INT64, 1, 2), 2);
    CHECK_INT(fault_of_loss(&s, "sigmoid_ce", FLEET_INT64, 1, 1), 2);
    CHECK_INT(fault_of_loss(&s, "sigmoid_ce", FLEET_FLOAT32, 1, 1), 0);
    close_scene(&s);
}

/* -0.0, as floats or as halves, and nothing behind it. */
TEST(who_is_idle_adds_what_changes_no_sum)
{
    uint32_t x[] = {1, 2, 3, 4}, out[4];
    scene s;

    open_scene(&s);
    for (int half = 0; half < 2; half++) {
        fl_device_arg arg = {s.buffer[0], half ? 6 : 3,
                             0,           0,
                             1,           half ? FLEET_UINT8 : FLEET_FLOAT32,
                             NULL};

        put(&s, 0, x, sizeof x);
        run_kernel(&s, "all_reduce.idle",
                   &(fl_device_step){.arg = &arg, .n_arg = 1});
        get(&s, 0, out, sizeof out);
        CHECK_INT(out[0], half ? 0x80008000 : 0x80000000);
        CHECK_INT(out[1], half ? 0x8000 : 0x80000000);
        CHECK_INT(out[2], half ? 3 : 0x80000000);
        CHECK_INT(out[3], 4);
    }
    close_scene(&s);
}

/* A batch with a fault is not counted at all. */
TEST(auc_counts_a_batch_or_nothing)
{
    enum { BUCKETS = 4 };
    float p[] = {0.1f, 0.6f, 1.5f};
    int64_t label[] = {0, 1, 1}, count[BUCKETS];
    scene s;

    open_scene(&s);
    for (int i = 0; i < 2; i++)
        CHECK_OK(s.m->fill(s.k.d, s.k.q, s.buffer[i], 0, sizeof count));
    put(&s, 2, p, sizeof p);
    put(&s, 3, label, sizeof label);
    fl_device_arg arg[] = {
        {s.buffer[0], 1, 1, 0, BUCKETS, FLEET_INT64, NULL},
        {s.buffer[1], 1, 1, 0, BUCKETS, FLEET_INT64, NULL},
        {s.buffer[2], 1, 1, 1, 3, FLEET_FLOAT32, NULL},
        {s.buffer[3], 1, 1, 1, 3, FLEET_INT64, NULL},
    };
    run_kernel(&s, "auc.count",
               &(fl_device_step){.arg = arg, .n_arg = 4, .batch = 3});
    CHECK_INT(fault_of(&s), 2);
    get(&s, 0, count, sizeof count);
    CHECK_INT(count[2], 0);
    run_kernel(&s, "auc.count",
               &(fl_device_step){.arg = arg, .n_arg = 4, .batch = 2});
    CHECK_INT(fault_of(&s), -1);
    get(&s, 0, count, sizeof count);
    CHECK_INT(count[2], 1);
    close_scene(&s);
}
