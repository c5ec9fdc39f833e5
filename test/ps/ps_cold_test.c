/* ps_cold_test.c - tables of ten times their cap, in one process and on
 * servers: the same bits as with all rows in memory. */
#define SUITE ps_cold
#include "cold_kit.h"
#include "disk_kit.h"
#include "fleet/job/handle.h"
#include "runtime/store/store.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINES = 8000, CAP = 1 << 20 };

static ps_job job_of(cold_how *how, int servers, int lanes, int workers)
{
    return (ps_job){.servers = servers,
                    .lanes = lanes,
                    .workers = workers,
                    .open = cold_kit_open_node,
                    .user = how,
                    .how = {.a_sync = how->a_sync},
                    .file = {cold_kit_ids("ids", LINES, false)}};
}

/* --- one process ---------------------------------------------------------- */

/* Rows in the files of "t" are told. */
static uint64_t train_alone(cold_how *how, const char *file, int threads,
                            int64_t *cold)
{
    ps_job j = {.user = how, .file = {file}};
    ps_node n = {.job = &j};
    fleet_table_statistics stat;
    uint64_t hash = 0;

    cold_kit_open_node(&n, &(fleet_options){.seed = 5, .num_threads = threads});
    scene_train(&n.s, 1);
    CHECK_OK(fleet_params_hash(n.s.f, &hash));
    CHECK_OK(fleet_table_stat(n.s.f, "t", &stat));
    if (how->cap)
        CHECK(stat.row_bytes + stat.index_bytes + stat.free_bytes <=
              how->cap + how->cap / 10);
    *cold = stat.cold_rows;
    scene_close(&n.s);
    return hash;
}

static void check_alone(bool skewed, int threads, int merge, float clip)
{
    const char *file = cold_kit_ids("ids", LINES, skewed);
    cold_how warm = {.merge = merge, .clip = clip}, how = warm;
    int64_t cold;
    uint64_t want = train_alone(&warm, file, 1, &cold);

    CHECK_INT(cold, 0);
    how.cap = CAP;
    how.folder = test_folder();
    CHECK(train_alone(&how, file, threads, &cold) == want);
    CHECK(cold > (skewed ? 1000 : COLD_KEYS / 2));
}

TEST(one_process_trains_to_the_same_bits)
{
    check_alone(false, 1, 1, 0);
    check_alone(true, 2, 1, 0);
}

/* --- what rows were shown and clicked ------------------------------------- */

static const char *day_path;

static fleet_status have_days(fleet *f)
{
    const fleet_save_options day = {.mode = FLEET_SAVE_DAY_END};

    for (int i = 0; i < 2; i++) {
        if (fleet_is_first_worker(f))
            FL_TRY(fleet_save_persistables_with(f, day_path, &day));
        FL_TRY(fleet_barrier_worker(f));
    }
    return fleet_shrink(f, "t");
}

static fleet_status train_days(ps_node *n)
{
    fleet_table_statistics stat;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(have_days(n->s.f));
    FL_TRY(fleet_table_stat(n->s.f, "t", &stat));
    n->number[0] = (double)stat.rows;
    n->number[1] = (double)stat.cold_rows;
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static uint64_t days_alone(cold_how *how, fleet_table_statistics *stat)
{
    ps_job j = {.user = how, .file = {cold_kit_ids("ids", LINES, false)}};
    ps_node n = {.job = &j};
    uint64_t hash = 0;

    cold_kit_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(have_days(n.s.f));
    CHECK_OK(fleet_table_stat(n.s.f, "t", stat));
    scene_train(&n.s, 1);
    CHECK_OK(fleet_params_hash(n.s.f, &hash));
    scene_close(&n.s);
    return hash;
}

/* In memory, with a cap, and on servers with one: the same rows go, and the
 * rest leaves the memory. */
TEST(an_accessor_counts_rows_that_are_out_of_memory)
{
    cold_how warm = {
        .accessor = {.kind = FLEET_CTR_ACCESSOR, .delete_threshold = 0.15f}};
    cold_how how = warm;
    fleet_table_statistics all, some;
    ps_job j;
    uint64_t want;

    day_path = test_path("day");
    want = days_alone(&warm, &all);
    CHECK(all.rows > 1000 && all.rows < COLD_KEYS * 3 / 4);
    how.cap = CAP;
    how.folder = test_folder();
    how.accessor.ssd_unseenday_threshold = 1;
    CHECK(days_alone(&how, &some) == want);
    CHECK_INT(some.rows, all.rows);
    CHECK_INT(some.cold_rows, all.rows);
    j = job_of(&how, 2, 1, 1);
    j.work = train_days;
    CHECK(ps_hash(&j) == want);
    CHECK_INT((int64_t)ps_worker(&j, 0)->number[0], all.rows);
    CHECK_INT((int64_t)ps_worker(&j, 0)->number[1], all.rows);
}

/* A pass knows its next batch; what is in memory then is not read twice. */
TEST(the_next_batch_is_asked_for_while_one_is_computed)
{
    cold_how how = {.cap = CAP, .folder = test_folder()};
    ps_job j = {.user = &how, .file = {cold_kit_ids("ids", LINES, false)}};
    ps_node n = {.job = &j};
    fl_cold_counts c;

    cold_kit_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    fl_cold_count(fl_store_rows(n.s.f->store, "t"), &c);
    CHECK(c.ahead > 1000);
    CHECK(c.misses <= 3 * c.ahead); /* as many as the small cap has room for */
    scene_close(&n.s);
}

TEST(one_process_merges_and_clips_to_the_same_bits)
{
    check_alone(false, 2, 3, 0.01f);
}

/* Rows by hand, a save, and what loads it. */
TEST(saves_and_rows_by_hand_are_whole)
{
    const char *file = cold_kit_ids("ids", 2000, false);
    const char *path = test_path("save"), *again = test_path("again");
    cold_how how = {.cap = CAP, .folder = test_folder()}, warm = {0};
    ps_job j = {.user = &how, .file = {file}};
    ps_node n = {.job = &j}, m = {.job = &j};
    static uint64_t key[COLD_KEYS];
    static float value[COLD_KEYS][COLD_DIM];
    uint64_t hash[3];

    cold_kit_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    for (int i = 0; i < COLD_KEYS; i++)
        key[i] = (uint64_t)i;
    CHECK_OK(fleet_table_get(n.s.f, "t", key, COLD_KEYS, COLD_DIM, value[0],
                             NULL, NULL));
    for (int i = 0; i < COLD_KEYS; i++)
        value[i][3] += 1;
    CHECK_OK(
        fleet_table_set(n.s.f, "t", key, COLD_KEYS, COLD_DIM, value[0], NULL));
    CHECK_OK(fleet_params_hash(n.s.f, &hash[0]));
    CHECK_OK(fleet_save_persistables(n.s.f, path));
    scene_close(&n.s);

    j.user = &warm;
    cold_kit_open_node(&m, &(fleet_options){.seed = 6, .num_threads = 1});
    CHECK_OK(fleet_load_model(m.s.f, path));
    CHECK_OK(fleet_params_hash(m.s.f, &hash[1]));
    CHECK_OK(fleet_save_persistables(m.s.f, again));
    scene_close(&m.s);

    j.user = &how;
    n = (ps_node){.job = &j};
    cold_kit_open_node(&n, &(fleet_options){.seed = 6, .num_threads = 1});
    CHECK_OK(fleet_load_model(n.s.f, again));
    CHECK_OK(fleet_params_hash(n.s.f, &hash[2]));
    scene_close(&n.s);
    CHECK(hash[0] == hash[1]);
    CHECK(hash[0] == hash[2]);
}

/* --- servers -------------------------------------------------------------- */

static fleet_status train_and_look(ps_node *n)
{
    fleet_table_statistics stat;
    const cold_how *how = n->job->user;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_table_stat(n->s.f, "t", &stat));
    n->number[0] = (double)stat.rows;
    if (how->cap && n->index == 0)
        CHECK(stat.cold_rows > 1000 ||
              n->job->servers * (n->job->lanes ? n->job->lanes : 1) > 2);
    return ps_end(n);
}

static uint64_t hash_of(ps_job j)
{
    j.work = train_and_look;
    return ps_hash(&j);
}

TEST(servers_train_in_sync_to_the_same_bits)
{
    cold_how warm = {0}, how = {.cap = CAP, .folder = test_folder()};
    ps_job j = job_of(&how, 1, 1, 2);
    uint64_t want;

    j.user = &warm;
    want = hash_of(j);
    j.user = &how;
    CHECK(hash_of(j) == want);
    j.servers = j.lanes = 2;
    CHECK(hash_of(j) == want);
}

/* Rows that come later may be those of after a push: the bits differ. All
 * pushes have made their rows. */
TEST(servers_train_in_async_as_well)
{
    cold_how warm = {.a_sync = true}, how = warm;
    ps_job j = job_of(&warm, 1, 1, 1);
    double rows;

    j.work = train_and_look;
    j.file[0] = cold_kit_ids("few", LINES / 2, false);
    ps_hash(&j);
    rows = ps_worker(&j, 0)->number[0];
    how.cap = CAP;
    how.folder = test_folder();
    j.user = &how;
    ps_hash(&j);
    CHECK(rows > 5000);
    CHECK(ps_worker(&j, 0)->number[0] == rows);
}

/* Beside training in async: what it has loads, and goes on. */
static fleet_status train_and_save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    if (n->index == 0)
        FL_TRY(fleet_save_persistables(n->s.f, test_path("save")));
    return ps_end(n);
}

TEST(servers_save_rows_that_are_in_files)
{
    cold_how how = {.cap = CAP, .folder = test_folder(), .a_sync = true};
    ps_job j = job_of(&how, 1, 2, 1);
    cold_how warm = {0};
    ps_job alone = {.user = &warm};
    ps_node n = {.job = &alone};
    uint64_t hash, loaded;

    j.work = train_and_save;
    hash = ps_hash(&j);
    cold_kit_open_node(&n, &(fleet_options){.seed = 9, .num_threads = 1});
    CHECK_OK(fleet_load_model(n.s.f, test_path("save")));
    CHECK_OK(fleet_params_hash(n.s.f, &loaded));
    scene_close(&n.s);
    CHECK(loaded == hash);
}

/* Processes, of which a server is killed: nothing lies in the folder. */
TEST(a_server_that_is_killed_leaves_no_file)
{
    cold_how how = {.cap = CAP, .folder = test_path("cold")};
    ps_job j = job_of(&how, 1, 1, 1);

    CHECK(mkdir(how.folder, 0700) == 0);
    j.work = ps_hold;
    ps_start_all(&j);
    ps_hear_held(&j);
    ps_kill(ps_server(&j, 0), SIGKILL);
    ps_wait(ps_server(&j, 0));
    ps_kill(ps_worker(&j, 0), SIGKILL);
    ps_wait(ps_worker(&j, 0));
    CHECK_INT(count_entries(how.folder), 0);
}

/* --- what cannot be ------------------------------------------------------- */

static fleet_status only_begin(ps_node *n)
{
    return ps_begin(n);
}

TEST(geo_refuses_a_cap_by_name)
{
    cold_how how = {
        .cap = CAP, .folder = test_folder(), .a_sync = true, .geo = 10};
    ps_job j = job_of(&how, 1, 1, 1);

    j.work = only_begin;
    j.connect_ms = PS_SECOND;
    ps_run(&j);
    CHECK_INT(ps_worker(&j, 0)->status, FLEET_EUNSUPPORTED);
    CHECK_CONTAINS(ps_worker(&j, 0)->error,
                   "table \"t\" has memory_cap_bytes: not in mode");
}

static void check_refused(int64_t cap, const char *folder, const char *words)
{
    fleet_sparse_embedding_options o = {.memory_cap_bytes = cap,
                                        .cold_folder = folder};
    fleet *f;
    fleet_program *p;
    fleet_var *ids;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    ids = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    CHECK(fleet_sparse_embedding(p, ids, 4, &o) == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_EINVAL, words);
    fleet_destroy(f);
}

TEST(a_cap_that_cannot_be_is_refused)
{
    check_refused(1000, "/tmp",
                  "memory_cap_bytes 1000: expected 0, or 1048576");
    check_refused(-1, "/tmp", "memory_cap_bytes -1");
    check_refused(CAP, NULL, "memory_cap_bytes needs cold_folder");
    check_refused(CAP, "", "memory_cap_bytes needs cold_folder");
    check_refused(0, "/tmp", "cold_folder is for memory_cap_bytes");
}

TEST(a_cap_and_a_time_to_live_are_refused_together)
{
    const fleet_sparse_embedding_options o = {
        .memory_cap_bytes = CAP, .cold_folder = "/tmp", .life.ttl_updates = 10};
    fleet *f;
    fleet_program *p;
    fleet_var *ids;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    ids = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    CHECK(fleet_sparse_embedding(p, ids, 4, &o) == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_EUNSUPPORTED,
                "has memory_cap_bytes and a time to live");
    fleet_destroy(f);
}

TEST(layers_that_share_a_table_state_one_cap)
{
    const fleet_sparse_embedding_options none = {0},
                                         one = {.memory_cap_bytes = CAP,
                                                .cold_folder = "/tmp"},
                                         other = {.memory_cap_bytes = 2 * CAP,
                                                  .cold_folder = "/tmp"};
    fleet *f;
    fleet_program *p;
    fleet_var *ids;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    ids = fleet_data(p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    CHECK(fleet_sparse_embedding(p, ids, 4, &one) != NULL);
    CHECK(fleet_sparse_embedding(p, ids, 4, &one) != NULL);
    CHECK(fleet_sparse_embedding(p, ids, 4, &none) != NULL);
    CHECK(fleet_sparse_embedding(p, ids, 4, &other) == NULL);
    CHECK_FAILS(fleet_program_status(p), FLEET_EEXIST,
                "there already with another memory_cap_bytes");
    fleet_destroy(f);
}
