/* step.c - samples per second of a training step on batches from memory: the
 * models and options of the Python peers (bench/README.md), one line of JSON
 * per run.
 *
 *   step --model mlp|ctr_dnn|wide_deep --dim 9 --batch 1024 --opt sgd|adagrad
 *        --fc 400,400,400 --threads 2 --rows 1000000 --repeats 7 --window 0.4
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <fleet/fleet.h>

enum { N_ID = 26, N_DENSE = 13, MLP_IN = 32, MOST_BATCHES = 64 };

typedef struct options {
    const char *model, *opt, *fc;
    int dim, batch, threads, repeats;
    long rows;
    double window, lr;
} options;

typedef struct bench {
    options o;
    fleet *f;
    fleet_executor *e;
    fleet_model m;
    int n_batch, at;
    int64_t *id[MOST_BATCHES], *label[MOST_BATCHES];
    float *dense[MOST_BATCHES];
    char name[N_ID][4];
} bench;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "step: %s: %s\n", what, fleet_last_error());
    exit(1);
}

static int is_mlp(const bench *b)
{
    return strcmp(b->o.model, "mlp") == 0;
}

static uint64_t random_state = 0x9E3779B97F4A7C15ULL;

static uint64_t next_random(void)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15ULL;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
}

static void make_batches(bench *b)
{
    int n = b->o.batch, width = is_mlp(b) ? MLP_IN : N_DENSE;

    b->n_batch = 65536 / n;
    b->n_batch = b->n_batch < 8 ? 8 : b->n_batch > 64 ? 64 : b->n_batch;
    if (is_mlp(b))
        b->n_batch = 16;
    for (int i = 0; i < b->n_batch; i++) {
        b->id[i] = malloc(sizeof(int64_t) * (size_t)n * N_ID);
        b->label[i] = malloc(sizeof(int64_t) * (size_t)n);
        b->dense[i] = malloc(sizeof(float) * (size_t)(n * width));
        for (int j = 0; j < n * N_ID; j++)
            b->id[i][j] = (int64_t)(next_random() % (uint64_t)b->o.rows);
        for (int j = 0; j < n; j++)
            b->label[i][j] = (int64_t)(next_random() & 1);
        for (int j = 0; j < n * width; j++)
            b->dense[i][j] = (float)(next_random() >> 40) * 0x1p-24f;
    }
}

static int read_fc(const char *text, int64_t *units)
{
    int n = 0;

    for (const char *at = text; at && *at && n < 16; n++) {
        units[n] = atoll(at);
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return n;
}

static void make_model(bench *b)
{
    fleet_program *p = fleet_program_create(b->f);
    int64_t units[16];
    fleet_ctr_options c = {.embedding_dim = b->o.dim,
                           .hidden = units,
                           .n_hidden = read_fc(b->o.fc, units),
                           .label_dtype = FLEET_INT64,
                           .wide_ids = 1};
    fleet_optimizer *o = strcmp(b->o.opt, "sgd") == 0 || is_mlp(b)
                             ? fleet_sgd(b->f, (float)b->o.lr)
                             : fleet_adagrad(b->f, (float)b->o.lr, NULL);

    if (is_mlp(b))
        fleet_mlp(p,
                  &(fleet_mlp_options){.dim = MLP_IN,
                                       .classes = 2,
                                       .hidden = (int64_t[]){128, 128},
                                       .n_hidden = 2,
                                       .activation = FLEET_TANH},
                  &b->m);
    else if (strcmp(b->o.model, "wide_deep") == 0)
        fleet_wide_deep(p, &c, &b->m);
    else
        fleet_ctr_dnn(p, &c, &b->m);
    if (fleet_minimize(fleet_distributed_optimizer(b->f, o, NULL), b->m.loss))
        fail("model");
    if (getenv("FLEET_BENCH_PLAN")) {
        char *text = fleet_program_dump(p, FLEET_DUMP_PLAN, b->o.batch);

        fputs(text ? text : fleet_last_error(), stderr);
        fleet_free(text);
    }
    b->e = fleet_executor_create(p, NULL);
    if (!b->e)
        fail("executor");
}

static float step(bench *b)
{
    int n = b->o.batch, i = b->at++ % b->n_batch, count = 0;
    int64_t one[] = {n, 1}, wide[] = {n, is_mlp(b) ? MLP_IN : N_DENSE};
    fleet_feed feed[N_ID + 2];
    float loss = 0;
    fleet_fetch fetch = {.var = b->m.loss, .data = &loss, .size = sizeof loss};

    feed[count++] =
        (fleet_feed){"label", FLEET_INT64, b->label[i], one, 2, NULL};
    feed[count++] = (fleet_feed){is_mlp(b) ? "image" : "dense_input",
                                 FLEET_FLOAT32, b->dense[i], wide, 2, NULL};
    for (int s = 0; s < N_ID && !is_mlp(b); s++)
        feed[count++] = (fleet_feed){b->name[s], FLEET_INT64, b->id[i] + s * n,
                                     one, 2, NULL};
    if (fleet_executor_run(b->e, feed, count, &fetch, 1) != FLEET_OK)
        fail("step");
    return loss;
}

static double cpu_of_machine(void)
{
    double v[8] = {0}, sum = 0;
    FILE *f = fopen("/proc/stat", "r");
    char name[8];

    if (f && fscanf(f, "%7s %lf %lf %lf %lf %lf %lf %lf %lf", name, v, v + 1,
                    v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) == 9)
        for (int i = 0; i < 8; i++)
            sum += i == 3 || i == 4 ? 0 : v[i];
    if (f)
        fclose(f);
    return sum / (double)sysconf(_SC_CLK_TCK);
}

static double cpu_of_process(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void measure(bench *b)
{
    double rate[64], foreign = 0;
    float loss = 0;
    double t;
    int n;

    for (int i = 0; i < b->n_batch + 8; i++)
        step(b);
    t = now();
    for (int i = 0; i < 8; i++)
        step(b);
    n = (int)(b->o.window / ((now() - t) / 8)) + 1;
    for (int r = 0; r < b->o.repeats; r++) {
        double all = cpu_of_machine(), own = cpu_of_process(), share;

        t = now();
        for (int i = 0; i < n; i++)
            loss = step(b);
        t = now() - t;
        rate[r] = (double)n * b->o.batch / t;
        share = (cpu_of_machine() - all - cpu_of_process() + own) / t;
        foreign = share > foreign ? share : foreign;
    }
    qsort(rate, (size_t)b->o.repeats, sizeof *rate, ascending);
    printf("{\"model\":\"%s\",\"dim\":%d,\"fc\":\"%s\",\"batch\":%d,\"opt\":"
           "\"%s\",\"threads\":%d,\"samples_per_s\":%.0f,\"worst\":%.0f,"
           "\"best\":%.0f,\"step_us\":%.1f,\"loss\":%.5f,\"foreign\":%.2f,"
           "\"fleet\":\"%s\"}\n",
           b->o.model, b->o.dim, b->o.fc, b->o.batch, b->o.opt, b->o.threads,
           rate[b->o.repeats / 2], rate[0], rate[b->o.repeats - 1],
           1e6 * b->o.batch / rate[b->o.repeats / 2], (double)loss, foreign,
           fleet_version());
}

static void read_options(options *o, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *key = argv[i], *value = argv[i + 1];

        if (!strcmp(key, "--model"))
            o->model = value;
        else if (!strcmp(key, "--opt"))
            o->opt = value;
        else if (!strcmp(key, "--fc"))
            o->fc = value;
        else if (!strcmp(key, "--dim"))
            o->dim = atoi(value);
        else if (!strcmp(key, "--batch"))
            o->batch = atoi(value);
        else if (!strcmp(key, "--threads"))
            o->threads = atoi(value);
        else if (!strcmp(key, "--repeats"))
            o->repeats = atoi(value) < 64 ? atoi(value) : 63;
        else if (!strcmp(key, "--rows"))
            o->rows = atol(value);
        else if (!strcmp(key, "--window"))
            o->window = atof(value);
        else
            fprintf(stderr, "step: no option %s\n", key), exit(2);
    }
}

int main(int argc, char **argv)
{
    static bench b = {.o = {"ctr_dnn", "adagrad", "400,400,400", 9, 1024, 2, 7,
                            1000000, 0.4, 0.01}};
    fleet_options o = {0};

    read_options(&b.o, argc, argv);
    o.num_threads = b.o.threads;
    for (int i = 0; i < N_ID; i++)
        snprintf(b.name[i], sizeof b.name[i], "%d", i + 1);
    if (fleet_init(&b.f, &o) != FLEET_OK)
        fail("init");
    make_batches(&b);
    make_model(&b);
    measure(&b);
    fleet_executor_destroy(b.e);
    fleet_destroy(b.f);
    return 0;
}
