/* gpu_ps_kit.c - see gpu_ps_kit.h. */
#define SUITE gpu_ps_kit
#include "gpu_ps_kit.h"
#include "gpu_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

char gpu_ps_said[40000];

static void note(void *user, fleet_log_level level, const char *text)
{
    size_t n = strlen(gpu_ps_said);

    (void)user;
    (void)level;
    snprintf(gpu_ps_said + n, sizeof gpu_ps_said - n, "%s\n", text);
}

/* A model whose variables are a clone's, and an executor that has run it. */
fleet_model gpu_ps_early_model;

static void run_early(scene *s)
{
    fleet_program *clone = fleet_program_clone(s->p, 1);
    fleet_evaluation first;

    CHECK(clone != NULL);
    gpu_ps_early_model = (fleet_model){
        .label = fleet_program_var(clone, s->m.label->name),
        .prediction = fleet_program_var(clone, s->m.prediction->name),
        .loss = fleet_program_var(clone, s->m.loss->name)};
    s->tester = fleet_executor_create(clone, NULL);
    scene_data_in_memory(s, scene_file("early.txt", GPU_PS_LINES, 1),
                         GPU_PS_BATCH, 2);
    CHECK_OK(fleet_evaluate(s->tester, s->data, &gpu_ps_early_model, &first));
}

void gpu_ps_build(scene *s, const ps_case *c)
{
    static const fleet_dense_slot dense[] = {{.name = "dense", .dim = 3}};
    static const fleet_id_slot ids[] = {
        {.name = "u"},
        {.name = "v"},
        {.name = "w", .dim = -1, .combiner = FLEET_MEAN}};
    const int64_t hidden[] = {8};
    const fleet_options options = {
        .seed = 7, .num_threads = c->threads ? c->threads : 2, .log = note};
    fleet_distributed_strategy strategy = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_ctr_options o = {.label_dtype = FLEET_FLOAT32,
                           .dense = dense,
                           .n_dense = 1,
                           .ids = ids,
                           .n_ids = 3,
                           .embedding_dim = 8,
                           .hidden = hidden,
                           .n_hidden = 1,
                           .wide_ids = 1,
                           .memory_cap_bytes = c->cap,
                           .cold_folder = c->cap ? test_folder() : NULL};
    fleet_optimizer *by;

    *s = (scene){0};
    gpu_ps_said[0] = 0;
    CHECK_OK(fleet_init(&s->f, &options));
    s->p = fleet_program_create(s->f);
    CHECK_OK(fleet_program_place(s->p, FLEET_GPU(0), NULL));
    fleet_wide_deep(s->p, &o, &s->m);
    CHECK_OK(fleet_program_status(s->p));
    if (c->early)
        run_early(s);
    strategy.a_sync = !c->shuffled; /* it makes no difference */
    strategy.a_sync_configs.use_ps_gpu = c->passes;
    strategy.gradient_merge = c->merge > 1;
    strategy.gradient_merge_configs.k_steps = c->merge > 1 ? c->merge : 1;
    by = kit_rule(s->f, c->optimizer ? c->optimizer : "adagrad", 0.05f);
    by = fleet_distributed_optimizer(s->f, by, &strategy);
    CHECK_OK(fleet_minimize(by, s->m.loss));
    s->e = fleet_executor_create(s->p, NULL);
    CHECK(s->e != NULL);
}

fleet_psgpu *gpu_ps_open_passes(scene *s, const ps_case *c)
{
    const fleet_psgpu_options o = {.memory_bytes = c->memory_bytes,
                                   .folder = c->folder};
    fleet_psgpu *g = fleet_psgpu_create(s->f, &o);

    CHECK(g != NULL);
    CHECK_OK(fleet_psgpu_init_gpu_ps(g, (const int[]){0}, 1));
    CHECK_OK(fleet_psgpu_set_dataset(g, s->data));
    CHECK_OK(fleet_psgpu_load_into_memory(g));
    return g;
}

void gpu_ps_train_pass(scene *s, const ps_case *c, fleet_psgpu *g)
{
    if (c->shuffled)
        CHECK_OK(fleet_dataset_local_shuffle(s->data));
    if (g)
        CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s->e, s->data, NULL, NULL));
    if (g)
        CHECK_OK(fleet_psgpu_end_pass(g));
}

fleet_psgpu *gpu_ps_open(scene *s, const ps_case *c)
{
    gpu_ps_build(s, c);
    scene_data_in_memory(s, scene_file("train.txt", GPU_PS_LINES, 1),
                         GPU_PS_BATCH, 2);
    return c->passes ? gpu_ps_open_passes(s, c) : NULL;
}

uint64_t gpu_ps_hash(const ps_case *c)
{
    fleet_psgpu *g;
    uint64_t hash;
    scene s;

    g = gpu_ps_open(&s, c);
    for (int i = 0; i < GPU_PS_PASSES; i++)
        gpu_ps_train_pass(&s, c, g);
    if (g)
        CHECK_OK(fleet_psgpu_finalize(g));
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

int gpu_ps_parts_said(void)
{
    int n = 0;

    for (const char *at = gpu_ps_said; (at = strstr(at, "is cut: part ")); at++)
        n++;
    return n;
}
