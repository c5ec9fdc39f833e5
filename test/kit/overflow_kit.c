/* overflow_kit.c - see overflow_kit.h. */
#define SUITE overflow_kit
#include "overflow_kit.h"
#include "test.h"

enum { BATCH = 40, DIM = 4, IDS = 3, COLS = IDS * DIM };

const fleet_amp_configs overflow_halves = {.init_loss_scaling = 0x1p15f,
                                           .incr_every_n_steps = 1000000,
                                           .decr_every_n_nan_or_inf = 1,
                                           .incr_ratio = 2,
                                           .decr_ratio = 0.5f,
                                           .use_dynamic_loss_scaling = 1};

fleet_program *overflow_program(fleet *f, const kit_options *how,
                                fleet_optimizer **o)
{
    const fleet_sparse_embedding_options rows = {.table = "rows"};
    fleet_program *p = fleet_program_create(f);
    fleet_var *x;

    kit_place(p, how);
    x = fleet_sparse_embedding(p, kit_data_ids(p, "ids", IDS), DIM, &rows);
    x = fleet_add(p, fleet_fc(p, x, COLS, NULL),
                  fleet_mul(p, x, kit_data(p, "by", COLS)));
    *o = kit_optimizer(f, how);
    CHECK_OK(fleet_minimize(*o, fleet_mean(p, x)));
    return p;
}

fleet_status overflow_train(fleet_executor *e, int seed, bool overflows)
{
    kit_batch *b = kit_batch_new(BATCH);
    int64_t *id = kit_ids(b, "ids", IDS, 200, seed);
    float *by = kit_floats(b, "by", COLS, seed + 100);
    fleet_status status;

    if (overflows)
        by[33] = 2e38f;
    for (int i = 0; overflows && i < BATCH * IDS; i++)
        id[i] += 100000;
    status = kit_run(e, b);
    kit_batch_free(b);
    return status;
}
