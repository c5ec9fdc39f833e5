/* gpu_loss_scaling_sharded_test.c - ranks on GPUs that train in float16, with
 * tables that they share out: one rank's rows alone may overflow, and nobody
 * updates anything then, nor makes a row. */
#define SUITE gpu_loss_scaling_sharded
#include "gpu_rank_kit.h"
#include "overflow_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/job/handle.h"

static void open(kit_model *m, const kit_options *how)
{
    *m = (kit_model){.f = kit_handle(how)};
    m->p = overflow_program(m->f, how, &m->o);
    m->e = fleet_executor_create(
        m->p, &(fleet_executor_options){.max_batch = how->max_batch});
    CHECK(m->e != NULL);
}

/* What a rank has of the model, and the scale. */
typedef struct state {
    int64_t rows, updates, skipped;
    float scale, weight[GPU_RANK_FLOATS];
} state;

static fleet_status look(const kit_model *m, state *s)
{
    fl_store *store = m->f->store;
    const fl_rows *rows = fl_store_rows(store, "rows");
    const fl_flat *g = store->flats;

    FL_TRY(fleet_executor_flush(m->e));
    FL_TRY(fl_store_to_host(store));
    CHECK(g->n <= GPU_RANK_FLOATS);
    *s = (state){.rows = rows->methods->count(rows),
                 .updates = store->updates,
                 .skipped = store->scaling.skipped,
                 .scale = store->scaling.scale};
    memcpy(s->weight, g->weight, (size_t)g->n * sizeof(float));
    return FLEET_OK;
}

/* Three groups of batches; of the second one's, number `last` overflows on the
 * rank that is the bad one. */
static fleet_status overflow_once(kit_model *m, gpu_rank_lesson *s, int rank)
{
    static state before[GPU_RANK_MOST], after[GPU_RANK_MOST],
        later[GPU_RANK_MOST];
    int merge = s->how.merge > 1 ? s->how.merge : 1;

    for (int i = 0; i < 3 * merge; i++) {
        bool bad = i == merge + (int)s->last && rank == s->bad_rank;

        FL_TRY(overflow_train(m->e, i * s->ranks + rank, bad));
        if ((i + 1) % merge == 0)
            FL_TRY(look(m, i < merge       ? &before[rank]
                           : i < 2 * merge ? &after[rank]
                                           : &later[rank]));
    }
    CHECK_INT(before[rank].updates, 1);
    CHECK_NEAR(before[rank].scale, 0x1p15f, 0);
    CHECK_INT(after[rank].updates, 1);
    CHECK_INT(after[rank].skipped, 1);
    CHECK_NEAR(after[rank].scale, 0x1p14f, 0);
    CHECK_INT(after[rank].rows, before[rank].rows);
    CHECK(memcmp(after[rank].weight, before[rank].weight,
                 sizeof before->weight) == 0);
    CHECK_INT(later[rank].updates, 2);
    CHECK_INT(later[rank].skipped, 1);
    CHECK(later[rank].rows > before[rank].rows);
    CHECK(memcmp(later[rank].weight, before[rank].weight,
                 sizeof before->weight) != 0);
    return FLEET_OK;
}

static void check(const char *name, kit_options how, int ranks, int n)
{
    how.fp16 = true;
    how.scaling = &overflow_halves;
    for (int bad = 0; bad < ranks; bad++) {
        gpu_rank_lesson s = {.open = open,
                             .how = how,
                             .ranks = ranks,
                             .last = n,
                             .bad_rank = bad,
                             .work = overflow_once};

        fprintf(stderr, "%s: rank %d of %d\n", name, bad, ranks);
        gpu_rank_run(&s);
    }
}

static void shards(fleet_distributed_strategy *s)
{
    s->sharding = 1;
}

TEST_LIMIT(one_row_that_overflows_skips_the_update_of_all, 200)
{
    gpu_rank_open(3);
    check("adam", (kit_options){0}, 2, 0);
    check("sgd", (kit_options){.optimizer = "sgd"}, 3, 0);
    check("clip", (kit_options){.clip = 0.001f}, 2, 0);
    check("first of a group", (kit_options){.merge = 2}, 2, 0);
    check("last of a group", (kit_options){.merge = 2, .clip = 0.001f}, 2, 1);
    check("sharding", (kit_options){.choose = shards}, 2, 0);
    gpu_rank_close();
}

/* The others are told before anything is sent: without tables there is nothing
 * to be told. */
TEST(ranks_agree_where_they_have_tables_alone)
{
    gpu_rank_open(2);
    for (int kind = KIT_MLP; kind <= KIT_CTR; kind++)
        for (int fp16 = 0; fp16 <= 1; fp16++) {
            fleet_role role = {.worker_num = 2, .master = "127.0.0.1:39999"};
            kit_options how = {
                .role = &role, .fp16 = fp16, .bf16 = !fp16, .device = "gpu:0"};
            kit_model m;
            char *text;

            kit_open(&m, (kit_kind)kind, &how);
            text = fleet_program_dump(m.p, FLEET_DUMP_PLAN, 40);
            CHECK((strstr(text, " scaling.agree ") != NULL) ==
                  (fp16 && kind == KIT_CTR));
            fleet_free(text);
            kit_close(&m);
        }
    gpu_rank_close();
}
