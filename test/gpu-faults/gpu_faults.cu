/* gpu_faults.cu - what a GPU does to the library when it fails, on a real one:
 * the emulated devices fail as we think that GPUs do.
 *
 *   gpu_faults CASE
 *
 *   trap     a kernel of the program's own ends with an error: the next call
 *            says so, everything can be destroyed, and a new program is told
 *            that the process has to be started again
 *   hang     a kernel runs for 80 s: the call ends at its deadline of 60 s, and
 *            destroying waits for nothing
 *   memory   a table grows until the GPU's memory is full: FLEET_ENOMEM, no row
 *            is lost, and with memory it goes on
 *   graphs   hardly any memory is left for CUDA graphs: the bits of a training
 *            without them
 *
 * Prints "held" or "broken: what", and ends with 0 or 1. */
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include <cuda_runtime.h>
#include <fleet/custom_op.h>
#include <fleet/fleet.h>

enum { BATCH = 64, WIDTH = 8, DIM = 64, DEADLINE_S = 60 };
static const std::size_t MIB = 1 << 20;

static double now()
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int broken(const char *what, const char *more)
{
    std::printf("broken: %s: %s\n", what, more);
    return 1;
}

#define MUST(call)                                                             \
    do {                                                                       \
        if ((call) != FLEET_OK)                                                \
            return broken(#call, fleet_last_error());                          \
    } while (0)

/* --- an operator that fails when it is told to ---------------------------- */

enum fault { NONE, TRAP, SPIN };
static fault armed;

__global__ static void copy_or_fail(float *y, const float *x, int64_t n,
                                    fault now, uint64_t spin_ns)
{
    uint64_t from, at;

    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        y[i] = x[i];
    if (now == TRAP)
        __trap();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(at));
    while (now == SPIN && at - from < spin_ns);
}

static fleet_status copy_forward(const fleet_custom_call *c)
{
    const uint64_t spin_ns = (uint64_t)80 * 1000000000;

    copy_or_fail<<<1, 128, 0, static_cast<cudaStream_t>(c->stream)>>>(
        static_cast<float *>(c->out[0].data),
        static_cast<const float *>(c->in[0].data),
        c->in[0].dims[0] * c->in[0].dims[1], armed, spin_ns);
    return cudaGetLastError() == cudaSuccess
               ? FLEET_OK
               : fleet_custom_fail(FLEET_ENODEVICE, "the kernel did not start");
}

static fleet_status copy_backward(const fleet_custom_call *c)
{
    if (c->in_grad[0].data)
        cudaMemcpyAsync(
            c->in_grad[0].data, c->out_grad[0].data,
            (std::size_t)(c->in[0].dims[0] * c->in[0].dims[1]) * sizeof(float),
            cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(c->stream));
    return FLEET_OK;
}

static fleet_status on_cpu(const fleet_custom_call *)
{
    return fleet_custom_fail(FLEET_EUNSUPPORTED, "it is for GPUs");
}

/* --- trainings ------------------------------------------------------------ */

struct training {
    fleet *f = nullptr;
    fleet_program *p = nullptr;
    fleet_executor *e = nullptr;
    std::vector<float> x = std::vector<float>(BATCH * WIDTH, 0.5f);
    std::vector<int64_t> ids = std::vector<int64_t>(BATCH);
    int batch = BATCH;

    ~training()
    {
        fleet_executor_destroy(e);
        fleet_destroy(f);
    }
};

static fleet_status finish(training *t, fleet_var *y, int no_graphs)
{
    fleet_place_options o = {};
    fleet_status s;

    o.no_graphs = no_graphs;
    s = fleet_program_place(t->p, FLEET_GPU(0), &o);
    if (s == FLEET_OK)
        s = fleet_minimize(fleet_adam(t->f, 0.001f, nullptr),
                           fleet_mean(t->p, y));
    if (s == FLEET_OK)
        t->e = fleet_executor_create(t->p, nullptr);
    return s != FLEET_OK ? s : t->e ? FLEET_OK : fleet_last_status();
}

/* Layers, with the operator between them if `op`. */
static fleet_status open_layers(training *t, bool op, int no_graphs)
{
    const int64_t dims[] = {-1, WIDTH};
    fleet_status s = fleet_init(&t->f, nullptr);
    fleet_var *y;

    if (s != FLEET_OK)
        return s;
    t->p = fleet_program_create(t->f);
    y = fleet_fc(t->p, fleet_data(t->p, "x", FLEET_FLOAT32, dims, 2), WIDTH,
                 nullptr);
    if (op)
        y = fleet_custom(t->p, "copy_or_fail", &y, 1, nullptr, 0, nullptr);
    return finish(t, fleet_fc(t->p, y, 1, nullptr), no_graphs);
}

static fleet_status open_table(training *t)
{
    const int64_t dims[] = {-1, 1};
    fleet_status s = fleet_init(&t->f, nullptr);
    fleet_var *y;

    if (s != FLEET_OK)
        return s;
    t->p = fleet_program_create(t->f);
    y = fleet_sparse_embedding(
        t->p, fleet_data(t->p, "ids", FLEET_INT64, dims, 2), DIM, nullptr);
    return finish(t, fleet_fc(t->p, y, 1, nullptr), 0);
}

/* One batch, and all that follows from it. */
static fleet_status feed_one(training *t, const char *name, fleet_dtype dtype,
                             const void *data, int64_t width)
{
    const int64_t dims[] = {t->batch, width};
    fleet_feed feed = {};
    fleet_status s;

    feed.name = name;
    feed.dtype = dtype;
    feed.data = data;
    feed.dims = dims;
    feed.n_dim = 2;
    s = fleet_executor_run(t->e, &feed, 1, nullptr, 0);
    return s != FLEET_OK ? s : fleet_executor_flush(t->e);
}

static fleet_status train(training *t)
{
    return feed_one(t, "x", FLEET_FLOAT32, t->x.data(), WIDTH);
}

static fleet_status train_ids(training *t, uint64_t first)
{
    t->ids.resize((std::size_t)t->batch);
    for (int i = 0; i < t->batch; i++)
        t->ids[(std::size_t)i] = (int64_t)first + i;
    return feed_one(t, "ids", FLEET_INT64, t->ids.data(), 1);
}

/* --- memory of the GPU ---------------------------------------------------- */

/* Plain memory until no more than `left` bytes are free. */
static std::vector<void *> fill_up(std::size_t left)
{
    std::vector<void *> all;
    std::size_t free_now, total;
    void *p;

    for (std::size_t step = 4096 * MIB; step >= 4 * MIB; step /= 2)
        while (cudaMemGetInfo(&free_now, &total) == cudaSuccess &&
               free_now > left + step && cudaMalloc(&p, step) == cudaSuccess)
            all.push_back(p);
    cudaGetLastError();
    return all;
}

static void give_back(std::vector<void *> *all)
{
    for (void *p : *all)
        cudaFree(p);
    all->clear();
}

/* --- cases ---------------------------------------------------------------- */

static int check_new_program()
{
    training other;
    fleet_status s = open_layers(&other, false, 0);

    if (s == FLEET_OK)
        s = train(&other);
    if (s == FLEET_OK)
        return broken("a GPU whose context is lost", "trains");
    if (!std::strstr(fleet_last_error(), "started again"))
        return broken("a lost context is told as", fleet_last_error());
    return 0;
}

static int trap()
{
    double from;

    {
        training t;

        MUST(open_layers(&t, true, 1));
        MUST(train(&t));
        armed = TRAP;
        from = now();
        if (train(&t) == FLEET_OK)
            return broken("a kernel that trapped", "nobody was told");
        std::printf("told as: %s\n", fleet_last_error());
    }
    if (now() - from > DEADLINE_S + 10)
        return broken("a kernel that trapped", "told and freed too late");
    return check_new_program();
}

static int hang()
{
    double from, told;

    {
        training t;
        fleet_status s;

        MUST(open_layers(&t, true, 1));
        MUST(train(&t));
        armed = SPIN;
        from = now();
        s = train(&t);
        told = now();
        if (s != FLEET_ETIMEDOUT)
            return broken("a kernel that runs on is told as",
                          fleet_last_error());
        std::printf("told after %.1f s as: %s\n", told - from,
                    fleet_last_error());
    }
    if (now() - told > 5)
        return broken("a kernel that runs on", "destroying waited for it");
    return told - from > DEADLINE_S + 5 ? broken("a kernel", "told late") : 0;
}

/* Each batch has new ids; the last one is given again. */
static int memory()
{
    training t;
    std::vector<void *> ballast;
    fleet_status s = FLEET_OK;
    uint64_t before, after, first = 1;

    MUST(open_table(&t));
    MUST(train_ids(&t, first));
    t.batch = 200000;
    ballast = fill_up(600 * MIB);
    for (int i = 0; i < 1000 && s == FLEET_OK; i++) {
        MUST(fleet_params_hash(t.f, &before));
        s = train_ids(&t, first += (uint64_t)t.batch);
    }
    std::printf("told after %llu ids as: %s\n", (unsigned long long)first,
                fleet_last_error());
    if (s != FLEET_ENOMEM)
        return broken("memory that is full is told as",
                      s == FLEET_OK ? "nothing" : fleet_last_error());
    give_back(&ballast);
    MUST(fleet_params_hash(t.f, &after));
    if (before != after)
        return broken("memory that is full", "rows have changed");
    MUST(train_ids(&t, first));
    return 0;
}

static int graphs()
{
    uint64_t hash[2];

    for (int no_graphs = 0; no_graphs < 2; no_graphs++) {
        training t;
        std::vector<void *> ballast;

        MUST(open_layers(&t, false, no_graphs));
        MUST(train(&t));
        if (!no_graphs)
            ballast = fill_up(48 * MIB);
        for (int i = 0; i < 40; i++)
            MUST(train(&t));
        give_back(&ballast);
        MUST(fleet_params_hash(t.f, &hash[no_graphs]));
    }
    return hash[0] == hash[1] ? 0 : broken("a training", "has other bits");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)();
    } all[] = {
        {"trap", trap}, {"hang", hang}, {"memory", memory}, {"graphs", graphs}};
    fleet_custom_op op = {};

    op.name = "copy_or_fail";
    op.n_in = 1;
    op.forward = op.backward = on_cpu;
    op.cuda_forward = copy_forward;
    op.cuda_backward = copy_backward;
    for (const auto &one : all)
        if (argc == 2 && std::strcmp(argv[1], one.name) == 0) {
            if (fleet_custom_op_register(&op) != FLEET_OK)
                return broken("the operator", fleet_last_error());
            int bad = one.run();

            if (!bad)
                std::printf("held\n");
            return bad;
        }
    std::fprintf(stderr, "usage: gpu_faults trap|hang|memory|graphs\n");
    return 2;
}
