/* gpu_kit.c - see gpu_kit.h. */
#define _GNU_SOURCE
#define SUITE gpu_kit
#include "gpu_kit.h"
#include "test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "runtime/plan/lower.h"

static gpu_kit_asks asks;
static void *plugin;

static bool is_emulated(void)
{
    return !getenv("FLEET_TEST_DEVICE");
}

const char *gpu_kit_name(void)
{
    return is_emulated() ? "emulated" : "NVIDIA";
}

const char *gpu_kit_folder(void)
{
    char path[4096];
    char *slash;

    if (is_emulated())
        return test_beside("emu");
    snprintf(path, sizeof path, "%s", getenv("FLEET_TEST_DEVICE"));
    slash = strrchr(path, '/');
    CHECK(slash != NULL);
    *slash = 0;
    return test_keep(path);
}

static void find(void *object, const char *name, void *function)
{
    void *at = dlsym(object, name);

    if (!at)
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    memcpy(function, &at, sizeof at);
}

/* The very object that libfleet opens. */
static void find_control(void)
{
    char path[4200];
    void *object;

    snprintf(path, sizeof path, "%s/libfleet_cuda.so", gpu_kit_folder());
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    plugin = object;
    find(object, "fl_emu_set_devices", &asks.set_devices);
    find(object, "fl_emu_set_major", &asks.set_major);
    find(object, "fl_emu_set_busy", &asks.set_busy);
    find(object, "fl_emu_set_late", &asks.set_late);
    find(object, "fl_emu_set_seed", &asks.set_seed);
    find(object, "fl_emu_nodes", &asks.nodes);
    find(object, "fl_emu_fail_at", &asks.fail_at);
    find(object, "fl_emu_failed", &asks.failed);
    find(object, "fl_emu_refuse_products", &asks.refuse_products);
    find(object, "fl_emu_set_relu_by_algorithm", &asks.set_relu_by_algorithm);
    find(object, "fl_emu_lose_after", &asks.lose_after);
    find(object, "fl_emu_hangs", &asks.hangs);
    find(object, "fl_emu_live_bytes", &asks.live_bytes);
    find(object, "fl_emu_launches", &asks.launches);
    find(object, "fl_emu_queued", &asks.queued);
}

void gpu_kit_open(void)
{
    setenv("FLEET_PLUGIN_PATH", gpu_kit_folder(), 1);
    if (!is_emulated())
        return;
    find_control();
    asks.set_late(true); /* so that nothing is read before it was waited for */
}

const gpu_kit_asks *gpu_kit_control(void)
{
    if (!is_emulated())
        test_skip("only an emulated device does what this test asks for");
    return &asks;
}

void gpu_kit_symbol(const char *name, void *function)
{
    gpu_kit_control();
    find(plugin, name, function);
}

void gpu_kit_close(void)
{
    if (is_emulated())
        CHECK_INT((int64_t)asks.live_bytes(), 0);
}

/* --- models --- */

kit_model gpu_kit_model(kit_kind kind, kit_options o)
{
    kit_model m;

    o.device = "gpu:0";
    o.max_batch = 40;
    kit_open(&m, kind, &o);
    return m;
}

/* --- an operator for CPUs alone --- */

static fleet_status copy_run(const fl_instance *in, const fl_range *r)
{
    memcpy(fl_rows_f32(in, 0, r), fl_rows_f32(in, 1, r),
           (size_t)fl_count(in, 0, r) * sizeof(float));
    return FLEET_OK;
}

static const fl_kernel copy_kernel = {
    .name = "kit.copy", .split = FL_SPLIT_ROWS, .run = copy_run};

static fleet_status copy_infer(fl_node *n)
{
    fl_set_out(n, 0, &n->in[0]->shape);
    return FLEET_OK;
}

static fleet_status copy_forward(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &copy_kernel, n, NULL, FL_W(fl_value_of(l, n->out[0])),
            FL_R(fl_value_of(l, n->in[0])));
    return FLEET_OK;
}

static fleet_status copy_gradient(fl_lowering *l, const fl_node *n)
{
    FL_EMIT(l, &copy_kernel, n, NULL, FL_W(fl_gradient_to(l, n->in[0])),
            FL_R(fl_gradient_of(l, n->out[0])));
    return FLEET_OK;
}

fleet_var *gpu_kit_copy(fleet_program *p, fleet_var *x)
{
    static const fl_op op = {.name = "kit_copy",
                             .n_out = 1,
                             .least_in = 1,
                             .most_in = 1,
                             .infer = copy_infer,
                             .forward = copy_forward,
                             .gradient = copy_gradient};

    return fl_program_add(p, &op, &x, 1, NULL, 0);
}

int64_t gpu_kit_weights(fl_store *s, float *w)
{
    int64_t n = 0;

    CHECK_OK(fl_store_to_host(s));
    for (const fl_flat *g = s->flats; g; g = g->next) {
        memcpy(w + n, g->weight, (size_t)g->n * sizeof *w);
        n += g->n;
    }
    CHECK(n > 0 && n <= GPU_KIT_MOST);
    return n;
}

void gpu_kit_train(kit_model *m, int batches)
{
    for (int i = 0; i < batches; i++) {
        kit_batch *b = kit_batch_for(m, 40 - 7 * (i % 3), i);

        CHECK_OK(kit_run(m->e, b));
        kit_batch_free(b);
    }
    CHECK_OK(fleet_executor_flush(m->e));
}

void gpu_kit_near(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-4f * fmaxf(1, fabsf(b[i]))))
            test_fail(__FILE__, __LINE__, "weight %lld is %.8g, not %.8g",
                      (long long)i, (double)a[i], (double)b[i]);
}
