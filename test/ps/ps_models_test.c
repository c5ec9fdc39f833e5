/* ps_models_test.c - models of several tables on servers: two workers in sync
 * train to the bits of one process that merges their batches. */
#define SUITE ps_models
#include "ps_kit.h"
#include "test.h"

#include <fleet/fleet.h>

typedef fleet_var *build_model(fleet_program *p, const fleet_ctr_options *o,
                               fleet_model *m);

typedef struct model_choice {
    build_model *build;
    fleet_ctr_options o;
} model_choice;

static const int64_t units[] = {8};
static const fleet_dense_slot dense[] = {{.name = "dense", .dim = 3}};
static const fleet_id_slot ids[] = {
    {.name = "u", .table = "users"}, {.name = "v"}, {.name = "w", .dim = -1}};

static void open_model(ps_node *n, const fleet_options *o)
{
    const model_choice *c = n->job->user;
    fleet_ctr_options how = c->o;
    fleet_distributed_strategy s = fleet_distributed_strategy_default();

    how.label_dtype = FLEET_FLOAT32;
    how.dense = dense;
    how.n_dense = 1;
    how.ids = ids;
    how.n_ids = 3;
    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    c->build(n->s.p, &how, &n->s.m);
    CHECK_OK(fleet_program_status(n->s.p));
    s.a_sync = 0;
    s.gradient_merge = n->job->how.merge > 1;
    s.gradient_merge_configs.k_steps = s.gradient_merge ? n->job->how.merge : 1;
    CHECK_OK(fleet_minimize(fleet_distributed_optimizer(
                                n->s.f, fleet_adam(n->s.f, 0.01f, NULL), &s),
                            n->s.m.loss));
    scene_data(&n->s, n->job->file[0], PS_BATCH, 1, 0);
}

static void check_bits(model_choice c)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .file = {scene_file("a.txt", 200, 1)},
                .open = open_model,
                .user = &c};

    CHECK(ps_hash(&j) == ps_alone(&j, 2));
}

/* Four tables, of two widths. */
TEST(factorization_machines_have_the_bits_of_one_process)
{
    check_bits((model_choice){fleet_fm, {.embedding_dim = 4}});
}

TEST(cross_layers_of_experts_have_the_bits_of_one_process)
{
    check_bits((model_choice){fleet_dcn_v2,
                              {.embedding_dim = 4,
                               .hidden = units,
                               .n_hidden = 1,
                               .low_rank = 3,
                               .experts = 2}});
}

TEST(dots_of_pairs_have_the_bits_of_one_process)
{
    check_bits((model_choice){fleet_dlrm,
                              {.embedding_dim = 4,
                               .hidden = units,
                               .n_hidden = 1,
                               .bottom = units,
                               .n_bottom = 1}});
}
