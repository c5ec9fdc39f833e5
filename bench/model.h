/* model.h - what the benchmarks of the training step share: the models and the
 * batches of the Python peers (bench/README.md), and a clock. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "common.h"

enum { N_ID = 26, N_DENSE = 13, MLP_IN = 32, MOST_BATCHES = 64 };

typedef struct options {
    const char *model, *opt, *fc, *device;
    int dim, batch, threads, repeats;
    int bf16; /* strategy.amp */
    int no_graphs;
    long rows;
    double window, lr;
} options;

typedef struct bench {
    options o;
    fleet *f;
    fleet_program *p;
    fleet_executor *e;
    fleet_model m;
    const fleet_role *role; /* NULL: one process does all */
    const fleet_distributed_strategy *strategy;
    int n_batch, at;
    float loss;        /* the last one that was fetched */
    int64_t cap_bytes; /* of the table; 0: none */
    const char *cold_folder;
    void (*guard)(
        const struct bench *b); /* says stages; NULL: there are none */
    uint64_t random, seed;      /* seed: of the first weights */
    int64_t *id[MOST_BATCHES], *label[MOST_BATCHES];
    float *dense[MOST_BATCHES];
    char name[N_ID][4];
} bench;

static inline void fail(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, fleet_last_error());
    exit(1);
}

static inline int is_mlp(const bench *b)
{
    return strcmp(b->o.model, "mlp") == 0;
}

static inline void make_batches(bench *b)
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
            b->id[i][j] =
                (int64_t)(next_random(&b->random) % (uint64_t)b->o.rows);
        for (int j = 0; j < n; j++)
            b->label[i][j] = (int64_t)(next_random(&b->random) & 1);
        for (int j = 0; j < n * width; j++)
            b->dense[i][j] = (float)(next_random(&b->random) >> 40) * 0x1p-24f;
    }
}

static inline int read_fc(const char *text, int64_t *units)
{
    int n = 0;

    for (const char *at = text; at && *at && n < 16; n++) {
        units[n] = atoll(at);
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    return n;
}

static inline const fleet_distributed_strategy *strategy_of(const bench *b)
{
    static fleet_distributed_strategy amp;

    if (!b->o.bf16)
        return b->strategy;
    amp = fleet_distributed_strategy_default();
    amp.amp = amp.amp_configs.use_bf16 = 1;
    return &amp;
}

/* On a GPU what the loss is need not be known in each step. */
enum { FETCH_EVERY = 64 };

static inline int is_on_gpu(const bench *b)
{
    return strcmp(b->o.device, "cpu") != 0;
}

static inline void place_model(bench *b)
{
    const fleet_place_options o = {.no_graphs = b->o.no_graphs};
    fleet_place place;

    if (fleet_place_parse(b->o.device, &place) != FLEET_OK ||
        fleet_program_place(b->p, place, &o) != FLEET_OK)
        fail("device");
}

static inline void make_model(bench *b)
{
    fleet_program *p = b->p = fleet_program_create(b->f);
    int64_t units[16];
    fleet_ctr_options c = {.embedding_dim = b->o.dim,
                           .hidden = units,
                           .n_hidden = read_fc(b->o.fc, units),
                           .wide_ids = 1,
                           .memory_cap_bytes = b->cap_bytes,
                           .cold_folder = b->cold_folder};
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
    else if (strcmp(b->o.model, "dcn_v2") == 0)
        fleet_dcn_v2(p, &c, &b->m);
    else if (strcmp(b->o.model, "dlrm") == 0)
        fleet_dlrm(p, &c, &b->m);
    else
        fleet_ctr_dnn(p, &c, &b->m);
    if (b->guard)
        b->guard(b);
    place_model(b);
    if (fleet_minimize(fleet_distributed_optimizer(b->f, o, strategy_of(b)),
                       b->m.loss))
        fail("model");
    if (getenv("FLEET_BENCH_PLAN")) {
        char *text = fleet_program_dump(p, FLEET_DUMP_PLAN, b->o.batch);

        fputs(text ? text : fleet_last_error(), stderr);
        fleet_free(text);
    }
    if (b->guard && !fleet_is_worker(b->f))
        return;
    b->e = fleet_executor_create(p, NULL);
    if (!b->e)
        fail("executor");
}

static inline float step(bench *b)
{
    int n = b->o.batch, i = b->at++ % b->n_batch, count = 0;
    int64_t one[] = {n, 1}, wide[] = {n, is_mlp(b) ? MLP_IN : N_DENSE};
    fleet_feed feed[N_ID + 2];
    fleet_fetch fetch = {
        .var = b->m.loss, .data = &b->loss, .size = sizeof b->loss};

    feed[count++] =
        (fleet_feed){"label", FLEET_INT64, b->label[i], one, 2, NULL};
    feed[count++] = (fleet_feed){is_mlp(b) ? "image" : "dense_input",
                                 FLEET_FLOAT32,
                                 b->dense[i],
                                 wide,
                                 2,
                                 NULL};
    for (int s = 0; s < N_ID && !is_mlp(b); s++)
        feed[count++] = (fleet_feed){b->name[s], FLEET_INT64, b->id[i] + s * n,
                                     one,        2,           NULL};
    if (fleet_executor_run(b->e, feed, count, &fetch,
                           !is_on_gpu(b) || b->at % FETCH_EVERY == 0) !=
        FLEET_OK)
        fail("step");
    return b->loss;
}

/* Defaults of the options, as the peers have them. */
#define BENCH_DEFAULTS                                                         \
    {                                                                          \
        .model = "ctr_dnn", .opt = "adagrad", .fc = "400,400,400",             \
        .device = "cpu", .dim = 9, .batch = 1024, .threads = 2, .repeats = 7,  \
        .rows = 1000000, .window = 0.4, .lr = 0.01                             \
    }

static inline void open_bench(bench *b)
{
    fleet_options o = {.num_threads = b->o.threads,
                       .seed = b->seed,
                       .role = b->role,
                       .log_level = FLEET_LOG_WARNING};

    for (int i = 0; i < N_ID; i++)
        snprintf(b->name[i], sizeof b->name[i], "%d", i + 1);
    if (fleet_init(&b->f, &o) != FLEET_OK)
        fail("init");
    make_batches(b);
    make_model(b);
}

static inline void close_bench(bench *b)
{
    fleet_executor_destroy(b->e);
    fleet_destroy(b->f);
}
