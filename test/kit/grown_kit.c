/* grown_kit.c - see grown_kit.h. */
#define SUITE grown_kit
#include "grown_kit.h"

#include <stdio.h>
#include <stdlib.h>

#include "test.h"
#include "train_kit.h"

static fleet_var *mean_of_rows(fleet_program *p, fleet_var *ids,
                               const char *table, int64_t dim,
                               fleet_sparse_embedding_options o)
{
    o.table = table;
    o.initializer = (fleet_initializer){FLEET_INIT_UNIFORM, -1, 1};
    return fleet_mean(p, fleet_sparse_embedding(p, ids, dim, &o));
}

static fleet_var *mean_of_weights(fleet_program *p, const char *name, int64_t n)
{
    const fleet_param_attr a = {.name = name,
                                .initializer = {FLEET_INIT_UNIFORM, -1, 1}};

    return fleet_mean(
        p, fleet_square(p, fleet_parameter(p, (int64_t[]){n}, 1, &a)));
}

fleet_var *grown_build(fleet *f, fleet_program **p, const grown_how *how)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *ids, *loss;
    fleet_optimizer *o;

    *p = fleet_program_create(f);
    ids = fleet_data(*p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    loss = fleet_add(
        *p,
        mean_of_rows(*p, ids, "t", how->dim ? how->dim : GROWN_DIM,
                     (fleet_sparse_embedding_options){.rows = how->rows,
                                                      .ps = how->ps,
                                                      .life = how->life,
                                                      .storage = how->storage}),
        mean_of_weights(*p, "w", GROWN_W));
    if (how->larger) {
        loss = fleet_add(*p, loss,
                         mean_of_rows(*p, ids, "more", GROWN_DIM,
                                      (fleet_sparse_embedding_options){0}));
        loss = fleet_add(*p, loss, mean_of_weights(*p, "extra", 2));
    }
    s.a_sync = how->a_sync;
    s.is_collective = how->is_collective;
    s.a_sync_configs.vocab_cache_size = how->cache_bytes;
    s.a_sync_configs.cache_read_staleness = how->cache_staleness;
    s.a_sync_configs.k_steps = how->geo;
    s.gradient_merge = how->merge > 1;
    s.gradient_merge_configs.k_steps = how->merge > 1 ? how->merge : 1;
    s.wire_configs.push_type = (int)how->push_type;
    if (how->merged > 0)
        s.a_sync_configs.max_merge_var_num = how->merged;
    o = kit_rule(f, how->optimizer, 0.5f);
    if (how->clip > 0)
        CHECK_OK(fleet_optimizer_set_global_norm_clip(o, how->clip));
    CHECK_OK(fleet_minimize(fleet_distributed_optimizer(f, o, &s), loss));
    return ids;
}

void grown_open(grown *g, const grown_how *how)
{
    fleet_options o = how->options;

    o.num_threads = how->threads ? how->threads : 1;
    *g = (grown){0};
    CHECK_OK(fleet_init(&g->f, &o));
    grown_build(g->f, &g->p, how);
    g->e = fleet_executor_create(g->p, NULL);
    CHECK(g->e != NULL);
}

void grown_close(grown *g)
{
    fleet_executor_destroy(g->e);
    fleet_destroy(g->f);
}

static void run_ids(fleet_executor *e, const int64_t *id, int64_t n,
                    fleet_fetch *fetch)
{
    fleet_feed feed = {"id", FLEET_INT64, id, (int64_t[]){n, 1}, 2, NULL};

    CHECK_OK(fleet_executor_run(e, &feed, 1, fetch, fetch ? 1 : 0));
}

void grown_train(grown *g, int n)
{
    int64_t id[100];

    for (int i = 0; i < n; i++)
        id[i] = i;
    run_ids(g->e, id, n, NULL);
}

void grown_train_ids(grown *g, const int64_t *id, int n)
{
    run_ids(g->e, id, n, NULL);
}

void grown_train_keys(grown *g, int64_t first, int n)
{
    int64_t *id = malloc((size_t)n * sizeof *id);

    for (int i = 0; i < n; i++)
        id[i] = first + i;
    grown_train_ids(g, id, n);
    free(id);
}

fleet_table_statistics grown_stat(const grown *g, const char *table)
{
    fleet_table_statistics s;

    CHECK_OK(fleet_table_stat(g->f, table, &s));
    return s;
}

int64_t grown_rows(const grown *g, const char *table)
{
    return grown_stat(g, table).rows;
}

uint64_t grown_hash(const grown *g)
{
    uint64_t hash = 0;

    CHECK_OK(fleet_params_hash(g->f, &hash));
    return hash;
}

static void fetch_for_test(const grown *g, int64_t id, const char *name,
                           float *value, size_t size)
{
    fleet_fetch fetch = {
        .var = fleet_program_var(g->p, name), .data = value, .size = size};
    fleet_executor *e =
        fleet_executor_create(g->p, &(fleet_executor_options){.for_test = 1});

    CHECK(e && fetch.var);
    run_ids(e, &id, 1, &fetch);
    fleet_executor_destroy(e);
}

void grown_fetch(grown *g, const char *name, float *value, size_t size)
{
    fetch_for_test(g, 0, name, value, size);
}

void grown_row(const grown *g, int64_t id, float row[GROWN_DIM])
{
    fetch_for_test(g, id, "sparse_embedding_0.tmp", row,
                   GROWN_DIM * sizeof(float));
}

const char *grown_ids(const char *name, int from, int n)
{
    char text[4096], *at = text;

    for (int i = from; i < from + n; i++)
        at += sprintf(at, "1 %d\n", i);
    return test_file(name, text);
}

void grown_open_node(ps_node *n, const fleet_options *o)
{
    fleet_dataset_options data = {.batch_size = 4, .n_use_var = 1};
    grown_how how = *(const grown_how *)n->job->user;
    fleet_var *ids;
    scene *c = &n->s;

    CHECK_OK(fleet_init(&c->f, o));
    how.merge = n->job->how.merge;
    ids = grown_build(c->f, &c->p, &how);
    data.use_var = &ids;
    if (!n->job->file[0])
        return;
    c->data = fleet_queue_dataset(c->f, &data);
    CHECK(c->data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(c->data, n->job->file, 1));
}
