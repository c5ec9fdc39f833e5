/* model_kit.c - see model_kit.h. */
#define SUITE model_kit
#include "model_kit.h"
#include "test.h"
#include "train_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "ops/ops.h"
#include "runtime/graph/program_json.h"

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Ids below `below`, most of them with a weight. */
static int put_weighted(char *to, unsigned *state, int n, unsigned below)
{
    int used = sprintf(to, " %d", n);

    for (int j = 0; j < n; j++) {
        used += sprintf(to + used, " %u", next(state) % below);
        if (next(state) % 4)
            used += sprintf(to + used, ":%.2f", next(state) % 200 / 100.0 - 1);
    }
    return used;
}

static int put_numbers(char *to, unsigned *state, int n)
{
    int used = sprintf(to, " %d", n);

    for (int j = 0; j < n; j++)
        used += sprintf(to + used, " %.2f", next(state) % 200 / 100.0 - 1);
    return used;
}

const char *scene_pooled_file(const char *name, int lines, int seed)
{
    char *text = malloc((size_t)lines * 300 + 1), *to = text;
    unsigned state = (unsigned)seed * 2654435761u + 1;
    const char *path;

    for (int i = 0; i < lines; i++) {
        unsigned u = next(&state) % 50, v = next(&state) % 20;
        double a = next(&state) % 1000 / 500.0 - 1;

        to += sprintf(to, "1 %d 3 %.3f 0.5 0.25 1 %u 1 %u",
                      (u % 7 < 3) ^ (a > 0.4), a, u, v);
        to += put_weighted(to, &state, (int)(next(&state) % 4), 30);
        to += put_numbers(to, &state, (int)(next(&state) % 3));
        to += put_weighted(to, &state, (int)(next(&state) % 4), 200);
        *to++ = '\n';
    }
    path = test_file_bytes(name, text, (size_t)(to - text));
    free(text);
    return path;
}

const char *scene_file(const char *name, int lines, int seed)
{
    size_t room = (size_t)lines * 200 + 1, used = 0;
    char *text = malloc(room);
    unsigned state = (unsigned)seed * 2654435761u + 1;
    const char *path;

    for (int i = 0; i < lines; i++) {
        unsigned u = next(&state) % 50, v = next(&state) % 20;
        double a = next(&state) % 1000 / 500.0 - 1;
        int n = 1 + (int)(next(&state) % 3);

        used += (size_t)sprintf(
            text + used, "1 %d 3 %.3f %.3f %.3f 1 %u 1 %u %d",
            (u % 7 < 3) ^ (a > 0.4), a, next(&state) % 100 / 100.0,
            next(&state) % 100 / 100.0, u, v, n);
        for (int j = 0; j < n; j++)
            used += (size_t)sprintf(text + used, " %u", next(&state) % 300);
        used += (size_t)sprintf(text + used, "\n");
    }
    path = test_file_bytes(name, text, used);
    free(text);
    return path;
}

static fleet_optimizer *optimizer_of(fleet *f, const char *name)
{
    if (strcmp(name, "explode") == 0)
        return fleet_sgd(f, 1e30f);
    return kit_rule(f, name, strncmp(name, "adam", 4) == 0 ? 0.01f : 0.05f);
}

/* With numbers that are not those of all other parameters. */
static void give_rule(fleet *f, fleet_optimizer *o, const char *table,
                      const char *rule)
{
    fleet_optimizer *own = rule ? kit_own_rule(f, rule, 0.02f) : NULL;

    if (!rule)
        return;
    CHECK(own != NULL);
    CHECK_OK(fleet_optimizer_set_l2_decay(own, 0.003f));
    CHECK_OK(fleet_optimizer_set_l1_decay(own, 0.001f));
    CHECK_OK(fleet_optimizer_set_value_clip(own, 0.01f));
    CHECK_OK(fleet_optimizer_set_exponential_decay(own, 0.9f, 2, 0));
    CHECK_OK(fleet_optimizer_set_table(o, table, own));
}

static void log_as(const scene_training *how, fleet_distributed_strategy *s)
{
    const fleet_log_configs *c = &how->log_configs;

    s->log = (int)how->log;
    s->log_configs.folder = c->folder;
    if (c->file_bytes > 0)
        s->log_configs.file_bytes = c->file_bytes;
    if (c->restart_deadline_ms > 0)
        s->log_configs.restart_deadline_ms = c->restart_deadline_ms;
}

static fleet_optimizer *trained_by(fleet *f, const scene_training *how)
{
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *o =
        optimizer_of(f, how->optimizer ? how->optimizer : "adam");

    if (how->l2_decay > 0)
        CHECK_OK(fleet_optimizer_set_l2_decay(o, how->l2_decay));
    CHECK_OK(fleet_optimizer_set_l1_decay(o, how->l1_decay));
    if (how->value_clip > 0)
        CHECK_OK(fleet_optimizer_set_value_clip(o, how->value_clip));
    if (how->norm_clip > 0)
        CHECK_OK(fleet_optimizer_set_norm_clip(o, how->norm_clip));
    if (how->clip > 0)
        CHECK_OK(fleet_optimizer_set_global_norm_clip(o, how->clip));
    give_rule(f, o, "embedding", how->embedding);
    give_rule(f, o, "embedding_wide", how->wide);
    if (how->group)
        kit_group(f, o, how->group);
    if (how->decay)
        CHECK_OK(fleet_optimizer_set_exponential_decay(o, 0.5f, 3, 1));
    strategy.lars = how->layers && strcmp(how->layers, "lars") == 0;
    strategy.lamb = how->layers && !strategy.lars;
    strategy.a_sync = how->a_sync;
    if (how->bounds_staleness)
        strategy.a_sync_configs.max_staleness = how->max_staleness;
    if (how->merged > 0)
        strategy.a_sync_configs.max_merge_var_num = how->merged;
    strategy.a_sync_configs.k_steps = how->geo;
    strategy.a_sync_configs.vocab_cache_size = how->cache_bytes;
    strategy.a_sync_configs.cache_read_staleness = how->cache_staleness;
    strategy.wire_configs.push_type = (int)how->push_type;
    strategy.wire_configs.pull_type = (int)how->pull_type;
    strategy.wire_configs.error_feedback = !how->forgets;
    strategy.wire_configs.pack_keys = how->packs_keys;
    log_as(how, &strategy);
    strategy.replicas = how->replicas ? how->replicas : 1;
    strategy.amp = strategy.amp_configs.use_bf16 = how->bf16;
    strategy.gradient_merge = how->merge > 1;
    strategy.gradient_merge_configs.k_steps = how->merge > 1 ? how->merge : 1;
    strategy.gradient_merge_configs.avg = !how->sums;
    return fleet_distributed_optimizer(f, o, &strategy);
}

void scene_open(scene *s, const fleet_options *options, const char *optimizer)
{
    scene_open_as(s, options, &(scene_training){.optimizer = optimizer});
}

/* The square of what a layer makes of the numbers, normalized. */
static void add_normalized(scene *s)
{
    fleet_var *x = fleet_fc(s->p, fleet_program_var(s->p, "dense"), 5, NULL);
    fleet_var *y =
        fleet_batch_norm(s->p, x, &(fleet_batch_norm_options){.name = "norm"});
    fleet_var *z = fleet_sub(s->p, fleet_fc(s->p, y, 1, NULL), s->m.label);

    s->m.loss =
        fleet_add(s->p, s->m.loss, fleet_mean(s->p, fleet_square(s->p, z)));
}

void scene_open_as(scene *s, const fleet_options *options,
                   const scene_training *how)
{
    static const fleet_dense_slot dense[] = {
        {.name = "dense", .dim = 3},
        {.name = "prices", .dim = -1, .combiner = FLEET_MAX}};
    static const fleet_id_slot ids[] = {
        {.name = "u"},
        {.name = "v"},
        {.name = "w", .dim = -1, .combiner = FLEET_MEAN}};
    static const fleet_id_slot pooled[] = {
        {.name = "u"},
        {.name = "v"},
        {.name = "w", .dim = -1, .combiner = FLEET_MAX, .weighted = 1},
        {.name = "x", .dim = -1, .combiner = FLEET_SQRT, .weighted = 1}};
    const int64_t hidden[] = {how->units ? how->units : 16, 8};
    fleet_ctr_options o = {.label_dtype = FLEET_FLOAT32,
                           .dense = dense,
                           .n_dense = how->pooled ? 2 : 1,
                           .ids = how->pooled ? pooled : ids,
                           .n_ids = how->pooled ? 4 : 3,
                           .embedding_dim = 4,
                           .hidden = hidden,
                           .n_hidden = 2,
                           .wide_ids = 1,
                           .storage = how->storage,
                           .life = how->life};

    memset(s, 0, sizeof *s);
    CHECK_OK(fleet_init(&s->f, options));
    s->p = fleet_program_create(s->f);
    fleet_wide_deep(s->p, &o, &s->m);
    if (how->normalized)
        add_normalized(s);
    CHECK_OK(fleet_program_status(s->p));
    CHECK_OK(fleet_minimize(trained_by(s->f, how), s->m.loss));
}

void scene_data(scene *s, const char *file, int64_t batch, int threads,
                int64_t shuffle)
{
    scene_data_of(s, &file, 1, batch, threads, shuffle);
}

static void make_data(scene *s, const char *const *files, int n,
                      fleet_dataset_options o, bool in_memory)
{
    fleet_var *vars[] = {s->m.label,
                         fleet_program_var(s->p, "dense"),
                         fleet_program_var(s->p, "u"),
                         fleet_program_var(s->p, "v"),
                         fleet_program_var(s->p, "w"),
                         fleet_program_var(s->p, "prices"),
                         fleet_program_var(s->p, "x")};

    o.use_var = vars;
    o.n_use_var = vars[5] ? 7 : 5;
    s->data = in_memory ? fleet_in_memory_dataset(s->f, &o)
                        : fleet_queue_dataset(s->f, &o);
    if (!s->data)
        test_fail(__FILE__, __LINE__, "dataset: %s", fleet_last_error());
    CHECK_OK(fleet_dataset_set_filelist(s->data, files, n));
}

void scene_data_of(scene *s, const char *const *files, int n, int64_t batch,
                   int threads, int64_t shuffle)
{
    make_data(s, files, n,
              (fleet_dataset_options){.batch_size = batch,
                                      .thread_num = threads,
                                      .shuffle = shuffle},
              false);
}

void scene_data_as(scene *s, const char *file, fleet_dataset_options o,
                   bool in_memory)
{
    make_data(s, &file, 1, o, in_memory);
    if (in_memory)
        CHECK_OK(fleet_dataset_load_into_memory(s->data));
}

void scene_data_in_memory(scene *s, const char *file, int64_t batch,
                          int threads)
{
    scene_data_as(
        s, file,
        (fleet_dataset_options){.batch_size = batch, .thread_num = threads},
        true);
}

void scene_data_piped(scene *s, const char *file, int64_t batch,
                      const char *command)
{
    make_data(
        s, &file, 1,
        (fleet_dataset_options){.batch_size = batch, .pipe_command = command},
        false);
}

void scene_train(scene *s, int epochs)
{
    if (!s->e)
        s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
    for (int i = 0; i < epochs; i++)
        CHECK_OK(fleet_train_from_dataset(s->e, s->data, NULL, NULL));
}

void scene_trained(scene *s, const char *optimizer, uint64_t seed)
{
    fleet_options o = {.seed = seed, .num_threads = 1};

    scene_open(s, &o, optimizer);
    scene_data(s, scene_file("train.txt", SCENE_LINES, 1), 64, 1, 0);
    scene_train(s, 1);
}

const char *scene_saved(scene *s, const char *optimizer)
{
    const char *path = test_path("saved");

    scene_trained(s, optimizer, 7);
    CHECK_OK(fleet_save_persistables(s->f, path));
    return path;
}

uint64_t scene_hash(scene *s)
{
    uint64_t hash = 0;

    CHECK_OK(fleet_params_hash(s->f, &hash));
    return hash;
}

void scene_close(scene *s)
{
    fleet_executor_destroy(s->e);
    fleet_executor_destroy(s->tester);
    fleet_destroy(s->f);
}

static char *text_of(const fleet_program *p, fleet_var *fetch)
{
    fl_json *json;
    char *text;

    CHECK_OK(fl_program_to_json(p, &fetch, 1, &json));
    text = fl_json_print(json, false);
    fl_json_free(json);
    return text;
}

void scene_is_read_as_written(scene *s)
{
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    char *before = text_of(s->p, s->m.loss), *after;
    fl_json *json;
    fl_at root;

    CHECK_OK(fl_json_parse(before, strlen(before), "model.json", &json));
    root = fl_at_root(json);
    CHECK_OK(fl_program_from_json(p, &root, fl_op_find));
    after = text_of(p, fleet_program_var(p, fleet_var_name(s->m.loss)));
    CHECK_TEXT(after, before);
    fl_free(before);
    fl_free(after);
    fl_json_free(json);
    fleet_destroy(f);
}
