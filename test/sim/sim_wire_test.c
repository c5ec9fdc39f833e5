/* sim_wire_test.c - jobs whose pushes and pulls travel in fewer bytes,
 * simulated: whatever links and servers do, and however many lanes there are,
 * the weights are those of one store that rounds row by row and block by block,
 * and carries over what each worker's pushes have rounded away.
 */
#define SUITE sim_wire
#include "sim_seeds.h"
#include "test.h"

#include <string.h>

#include "base/memory.h"
#include "ps/worker/worker_internal.h"

static fl_codec codec_of(uint64_t seed, int what, int n)
{
    return (fl_codec)sim_pick(seed, what, n);
}

/* Rows that a worker keeps are floats. */
static const char *complete(sim_options *o, sim_script *k)
{
    if (o->wire.pull != FL_CODEC_F32)
        o->cache_bytes = 0;
    return sim_complete(o, k);
}

static const char *sync_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, true, &o, &k);
    o.wire = (fl_wire_options){.push = codec_of(seed, 11, FL_N_CODEC),
                               .pull = codec_of(seed, 12, FL_N_CODEC),
                               .forgets = sim_pick(seed, 13, 4) == 0,
                               .packs_keys = sim_pick(seed, 14, 2)};
    return complete(&o, &k);
}

/* The integers that are pushed are float16's and bfloat16's, too: their sums
 * are exact in any order, of groups of half-async as well. */
static const char *async_run(uint64_t seed)
{
    sim_options o;
    sim_script k;

    sim_make(seed, false, &o, &k);
    o.wire = (fl_wire_options){.push = codec_of(seed, 11, FL_CODEC_INT8),
                               .pull = codec_of(seed, 12, FL_N_CODEC),
                               .packs_keys = sim_pick(seed, 14, 2)};
    return complete(&o, &k);
}

TEST_LIMIT(sync_jobs_have_the_bits_of_one_store, 7200)
{
    SIM_SEEDS(sync_run, 600);
}

TEST_LIMIT(async_jobs_apply_every_push_once, 7200)
{
    SIM_SEEDS(async_run, 300);
}

/* --- pushes that could not be made ---------------------------------------- */

enum { PUSHES = 6, KEYS = 40, DIM = 3 };

static int fail_at;

/* Gradients of rows of many lanes, and of a parameter. */
static fleet_status push_all(sim_worker *w)
{
    static const float row[DIM] = {1, 0.1f, 0.013f}, dense[2] = {-1, 0.0123f};
    fl_push_rows rows = {.rows = fl_store_rows(w->store, "first")};
    const fl_push_param param = {fl_store_param(w->store, "a"), dense};
    fl_remote *x = &w->core.remote;
    const float *grad[KEYS];
    uint64_t key[KEYS];
    fl_update u;
    int n = 0;

    for (int p = 0; p < FL_N_PART; p++) {
        int first = n;

        for (uint64_t k = 0; k < KEYS; k++)
            if (fl_part_of(fl_mix(k)) == p)
                key[n++] = k;
        rows.part[p] =
            (fl_push_part){n - first, key + first, NULL, grad + first};
    }
    for (int i = 0; i < KEYS; i++)
        grad[i] = row;
    fl_optimizer_update(w->store->optimizer, 0, 1, &u);
    return x->methods->push(x, &(fl_push){.param = &param,
                                          .n_param = 1,
                                          .table = &rows,
                                          .n_table = 1,
                                          .n_batch = 1,
                                          .settings = fl_update_settings_of(
                                              w->store->optimizer, &u),
                                          .clip = 1});
}

/* What is there at the end: of each row, and of the parameter. */
typedef struct end_state {
    float row[KEYS][DIM], weight[2];
    int failed;
} end_state;

static fleet_status read_end(sim_worker *w, end_state *to)
{
    fl_pull_rows rows = {.rows = fl_store_rows(w->store, "first")};
    const fl_param *p = fl_store_param(w->store, "a");
    fl_remote *x = &w->core.remote;

    for (uint64_t k = 0; k < KEYS; k++) {
        const float *row = NULL;

        memset(rows.part, 0, sizeof rows.part);
        rows.part[fl_part_of(fl_mix(k))] = (fl_pull_part){&k, 1, &row};
        FL_TRY(x->methods->pull(x, 0, &rows, 1, true, false, true));
        FL_TRY(x->methods->wait_pull(x, 0));
        memcpy(to->row[k], row, sizeof to->row[k]);
        x->methods->drop(x, 0);
    }
    memcpy(to->weight, p->flat->weight + p->offset, sizeof to->weight);
    return FLEET_OK;
}

/* A push that fails for want of memory is made again, as a program may do. */
static fleet_status push_without_memory(sim_worker *w)
{
    end_state *to = w->own;

    FL_TRY(fl_worker_barrier(&w->core));
    for (int i = 0; i < PUSHES; i++) {
        fleet_status status;

        FL_TRY(fl_worker_wait_update(&w->core)); /* no lane works meanwhile */
        if (i == 0 || i == 2)
            fl_memory_fail_at(fail_at, false);
        status = push_all(w);
        fl_memory_fail_at(0, false);
        if (status == FLEET_ENOMEM) {
            to->failed++;
            status = push_all(w);
        }
        FL_TRY(status);
    }
    FL_TRY(fl_worker_barrier(&w->core));
    FL_TRY(read_end(w, to));
    return fl_worker_leave(&w->core);
}

static void run_pushes(end_state *to)
{
    sim_options o = {.seed = 1,
                     .model = sim_model_of(SIM_COUNT),
                     .wire = {.push = FL_CODEC_INT8},
                     .n_worker = 1,
                     .n_server = 2,
                     .n_lane = 2,
                     .piece_bytes = 60,
                     .heartbeat_ms = 100,
                     .connect_ms = 10000,
                     .request_ms = 10000,
                     .peer_ms = 10000,
                     .step_ms = 10000};
    sim s;

    *to = (end_state){0};
    sim_open(&s, &o, push_without_memory, to);
    sim_run(&s, SIM_LONGEST_MS);
    CHECK(sim_is_well(&s));
    sim_close(&s);
}

/* What its push had rounded away by then was not: else the next one would lack
 * it, or have it twice. */
TEST(a_push_that_could_not_be_made_leaves_nothing_behind)
{
    end_state want, got;
    int failed = 0;

    sim_need_fibers();
    fail_at = 0;
    run_pushes(&want);
    CHECK_NEAR((double)want.row[0][2], 1 - 0.25 * PUSHES * 0.013, 0.003);
    for (fail_at = 1; fail_at < 60; fail_at += fail_at < 20 ? 1 : 7) {
        run_pushes(&got);
        failed += got.failed;
        CHECK(memcmp(got.row, want.row, sizeof want.row) == 0);
        CHECK(memcmp(got.weight, want.weight, sizeof want.weight) == 0);
    }
    CHECK(failed > 5);
    sim_models_close();
}
