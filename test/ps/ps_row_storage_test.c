/* ps_row_storage_test.c - tables whose rows are kept in fewer bits, trained: in
 * sync by servers the bits of one process, whatever the number of servers and
 * lanes; saved and loaded; what cannot be is refused by name. */
#define SUITE ps_row_storage
#include "ps_kit.h"
#include "test.h"

#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/simd/half_float.h"
#include "train_kit.h"

static const fleet_row_storage narrow[] = {FLEET_ROW_FLOAT16,
                                           FLEET_ROW_BFLOAT16, FLEET_ROW_INT8};
enum { N_NARROW = 3 };

TEST(servers_have_the_bits_of_one_process)
{
    for (int k = 0; k < N_NARROW; k++) {
        ps_job j = {.servers = 1,
                    .workers = 2,
                    .how = {.storage = narrow[k],
                            .optimizer = "adam",
                            .embedding = k == 1 ? "rowwise_adagrad" : NULL},
                    .file = {scene_file("a.txt", 200, 1)}};
        uint64_t want = ps_alone(&j, 2);

        CHECK(ps_hash(&j) == want);
        j.servers = 2;
        j.lanes = 3;
        CHECK(ps_hash(&j) == want);
    }
}

/* Rows that a worker keeps are sent if they are newer; and in fewer bytes. */
TEST(a_workers_cache_changes_no_bit)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .passes = 2,
                .how = {.storage = FLEET_ROW_INT8, .optimizer = "adagrad"},
                .file = {scene_file("a.txt", 200, 1)}};
    uint64_t want = ps_hash(&j);

    j.how.cache_bytes = 1 << 16;
    CHECK(ps_hash(&j) == want);
}

TEST(rows_of_fewer_bits_travel_in_fewer_bytes)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .how = {.a_sync = true,
                        .storage = FLEET_ROW_BFLOAT16,
                        .pull_type = FLEET_WIRE_FP16},
                .file = {scene_file("a.txt", 200, 1)}};

    ps_run(&j);
    ps_check(&j);
}

TEST(in_async_it_trains_to_the_end)
{
    ps_job j = {.servers = 2,
                .workers = 2,
                .how = {.a_sync = true, .storage = FLEET_ROW_FLOAT16},
                .file = {scene_file("a.txt", 200, 1)}};

    ps_run(&j);
    ps_check(&j);
}

static void open_scene(scene *s, fleet_row_storage storage, int merge)
{
    const fleet_options o = {.num_threads = 2, .seed = 5};

    scene_open_as(s, &o,
                  &(scene_training){.storage = storage,
                                    .optimizer = "adagrad",
                                    .merge = merge});
    scene_data(s, scene_file("train.txt", 300, 1), 32, 1, 0);
}

/* A hash that is that of floats would be right above, too. */
TEST(rows_are_kept_as_the_table_says)
{
    scene a, b;

    open_scene(&a, FLEET_ROW_FLOAT32, 1);
    scene_train(&a, 1);
    for (int k = 0; k < N_NARROW; k++) {
        fleet_table_statistics whole, less;

        open_scene(&b, narrow[k], 1);
        scene_train(&b, 1);
        CHECK(scene_hash(&a) != scene_hash(&b));
        CHECK_OK(fleet_table_stat(a.f, "embedding", &whole));
        CHECK_OK(fleet_table_stat(b.f, "embedding", &less));
        CHECK(whole.rows == less.rows && less.row_bytes < whole.row_bytes);
        scene_close(&b);
    }
    scene_close(&a);
}

TEST(a_training_that_is_loaded_goes_on_alike)
{
    for (int k = 0; k < N_NARROW; k++) {
        scene a, b;

        open_scene(&a, narrow[k], 2);
        scene_train(&a, 1);
        CHECK_OK(fleet_save_persistables(a.f, test_path("saved")));
        open_scene(&b, narrow[k], 2);
        CHECK_OK(fleet_load_model(b.f, test_path("saved")));
        CHECK(scene_hash(&a) == scene_hash(&b));
        scene_train(&a, 1);
        scene_train(&b, 1);
        CHECK(scene_hash(&a) == scene_hash(&b));
        scene_close(&b);
        /* floats take what was kept in fewer bits as it is */
        open_scene(&b, FLEET_ROW_FLOAT32, 2);
        CHECK_OK(fleet_load_model(b.f, test_path("saved")));
        scene_close(&b);
        scene_close(&a);
    }
}

/* By hand rows are floats, and are written as they were read. */
TEST(rows_come_and_go_by_hand_as_they_are)
{
    static const uint64_t key[] = {1, 2, 900001};
    float row[3][4], state[3][4], got[3][4];
    scene s;

    open_scene(&s, FLEET_ROW_INT8, 1);
    scene_train(&s, 1);
    CHECK_OK(
        fleet_table_get(s.f, "embedding", key, 3, 4, row[0], state[0], NULL));
    CHECK(state[0][0] > 0 && state[2][0] == 0);
    CHECK_OK(fleet_table_set(s.f, "embedding", key, 3, 4, row[0], state[0]));
    CHECK_OK(fleet_table_get(s.f, "embedding", key, 3, 4, got[0], NULL, NULL));
    CHECK(memcmp(row, got, sizeof got) == 0);
    scene_close(&s);
}

/* A predictor reads the rows that training has, in as little memory. */
TEST(an_inference_model_has_the_same_rows)
{
    float want[2], got[2];
    int64_t id[] = {1, 77777}, dims[] = {2, 1};
    const fleet_feed feed = {"id", FLEET_INT64, id, dims, 2, NULL};
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *ids = kit_data_ids(p, "id", 1);
    fleet_var *row = fleet_sparse_embedding(
        p, ids, 1,
        &(fleet_sparse_embedding_options){.storage = FLEET_ROW_BFLOAT16});
    fleet_fetch fetch = {.var = row, .data = want, .size = sizeof want};
    fleet_predictor *predictor;
    fleet_executor *e;

    CHECK_OK(fleet_minimize(fleet_sgd(f, 0.3f), fleet_mean(p, row)));
    e = fleet_executor_create(p, NULL);
    CHECK_OK(fleet_executor_run(e, &feed, 1, NULL, 0));
    id[1] = 88888;
    fleet_executor_destroy(e);
    e = fleet_executor_create(p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_executor_run(e, &feed, 1, &fetch, 1));
    CHECK_OK(
        fleet_save_inference_model(f, test_path("model"), &ids, 1, &row, 1));
    predictor = fleet_load_inference_model(test_path("model"));
    CHECK(predictor != NULL);
    CHECK_OK(fleet_predictor_run(predictor, &feed, 1, (void *[]){got},
                                 (size_t[]){sizeof got}, 1));
    CHECK(memcmp(want, got, sizeof got) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(fl_from_bf16(fl_to_bf16(got[i])) == got[i]);
    fleet_predictor_destroy(predictor);
    fleet_executor_destroy(e);
    fleet_destroy(f);
}

TEST(what_cannot_be_kept_so_is_refused_by_name)
{
    const fleet_sparse_embedding_options wide = {.storage = FLEET_ROW_INT8};
    const fleet_sparse_embedding_options odd = {.storage =
                                                    (fleet_row_storage)9};
    fleet *f = kit_handle(&(kit_options){0});
    fleet_program *p = fleet_program_create(f);
    fleet_var *id = kit_data_ids(p, "id", 1);

    CHECK(!fleet_sparse_embedding(p, id, 2049, &wide));
    CHECK_CONTAINS(fleet_last_error(),
                   "storage int8 is for rows of at most 2048 weights, not of "
                   "2049");
    p = fleet_program_create(f);
    CHECK(!fleet_sparse_embedding(p, kit_data_ids(p, "id", 1), 4, &odd));
    CHECK_CONTAINS(fleet_last_error(), "storage 9 does not exist");
    p = fleet_program_create(f);
    CHECK(!fleet_sparse_embedding(
        p, kit_data_ids(p, "id", 1), 4,
        &(fleet_sparse_embedding_options){.storage = FLEET_ROW_FLOAT16,
                                          .memory_cap_bytes = 1 << 24,
                                          .cold_folder = test_folder()}));
    CHECK_CONTAINS(fleet_last_error(), "has memory_cap_bytes and a storage");
    p = fleet_program_create(f);
    CHECK(fleet_sparse_embedding(p, kit_data_ids(p, "id", 1), 4, NULL) != NULL);
    CHECK_OK(fl_store_add(f->store, p));
    p = fleet_program_create(f);
    CHECK(fleet_sparse_embedding(p, kit_data_ids(p, "id", 1), 4,
                                 &(fleet_sparse_embedding_options){
                                     .storage = FLEET_ROW_FLOAT16}) != NULL);
    CHECK_FAILS(fl_store_add(f->store, p), FLEET_EEXIST,
                "storage float16 here, and float32 in another program");
    fleet_destroy(f);
}

/* With one process it is the program's own affair: servers are needed. */
static void open_geo(ps_node *n, const fleet_options *o)
{
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_var *id;

    memset(&n->s, 0, sizeof n->s);
    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    id = kit_data_ids(n->s.p, "id", 1);
    s.a_sync = 1;
    s.a_sync_configs.k_steps = 4;
    CHECK_FAILS(
        fleet_minimize(
            fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1), &s),
            fleet_mean(n->s.p, fleet_sparse_embedding(
                                   n->s.p, id, 4,
                                   &(fleet_sparse_embedding_options){
                                       .storage = FLEET_ROW_FLOAT16}))),
        FLEET_EUNSUPPORTED, "table \"embedding\" keeps rows in float16");
}

static fleet_status do_nothing(ps_node *n)
{
    (void)n;
    return FLEET_OK;
}

TEST(geo_is_refused)
{
    ps_job j = {.servers = 1,
                .workers = 1,
                .open = open_geo,
                .serve = do_nothing,
                .work = do_nothing};

    ps_run(&j);
    ps_check(&j);
}
