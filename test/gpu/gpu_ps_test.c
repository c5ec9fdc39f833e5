/* gpu_ps_test.c - GPU-PS: trainings whose tables have the rows of a pass in the
 * GPU's memory, and are at home on the host or in a file, have the bits of
 * trainings whose tables are on the GPU as a whole; whatever parts a pass is
 * cut into. */
#define SUITE gpu_ps
#include "gpu_ps_kit.h"
#include "model_kit.h"
#include "test.h"
#include "watch_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "fleet/pass/pass_rows.h"

enum { WIDE_LINES = 5000 };

/* As the same training with tables as a whole on the GPU. */
static void has_its_bits(ps_case c)
{
    ps_case whole = c;

    whole.passes = false;
    whole.cap = 0;
    c.passes = true;
    CHECK(gpu_ps_hash(&c) == gpu_ps_hash(&whole));
}

/* --- bits ----------------------------------------------------------------- */

TEST(a_training_in_passes_has_the_bits_of_one_without)
{
    gpu_kit_open();
    has_its_bits((ps_case){0});
    has_its_bits((ps_case){.optimizer = "adam", .merge = 3});
    has_its_bits((ps_case){.optimizer = "sgd", .shuffled = true, .threads = 1});
    gpu_kit_close();
}

TEST(a_pass_that_does_not_fit_is_cut_into_parts_and_has_the_same_bits)
{
    ps_case c = {.memory_bytes = 24000, .shuffled = true};
    uint64_t hash;

    gpu_kit_open();
    c.passes = true;
    hash = gpu_ps_hash(&c);
    CHECK(gpu_ps_parts_said() > 2 * GPU_PS_PASSES);
    CHECK_CONTAINS(gpu_ps_said, "part 2, batches ");
    CHECK_CONTAINS(gpu_ps_said, ", the last, batches ");
    CHECK(hash == gpu_ps_hash(&(ps_case){.shuffled = true}));
    c.merge = 2;
    c.memory_bytes = 40000;
    has_its_bits(c);
    gpu_kit_close();
}

TEST(rows_come_from_a_file_and_go_back_to_it)
{
    const ps_case c = {.cap = 1 << 20, .memory_bytes = 40000};

    gpu_kit_open();
    has_its_bits(c);
    gpu_kit_close();
}

TEST(a_gpu_with_less_memory_than_a_pass_needs_gets_smaller_parts)
{
    ps_case c = {.passes = true};
    void (*set_memory)(size_t bytes);
    fleet_psgpu *g;
    uint64_t hash;
    scene s;

    gpu_kit_open();
    gpu_kit_control();
    gpu_kit_symbol("fl_emu_set_memory", &set_memory);
    hash = gpu_ps_hash(&c);
    CHECK_INT(gpu_ps_parts_said(), 0);
    g = gpu_ps_open(&s, &c);
    for (int i = 0; i < GPU_PS_PASSES; i++) {
        set_memory(gpu_kit_control()->live_bytes() + 30000);
        CHECK_OK(fleet_psgpu_begin_pass(g));
        CHECK(g->list.most > 0 && !g->is_last);
        set_memory(0);
        CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
        CHECK_OK(fleet_psgpu_end_pass(g));
    }
    CHECK(gpu_ps_parts_said() > GPU_PS_PASSES);
    CHECK(scene_hash(&s) == hash);
    scene_close(&s);
    gpu_kit_close();
}

/* Other products would need less memory, and have other bits. */
TEST(a_gpu_with_little_memory_has_the_same_bits_or_says_so)
{
    static const size_t has[] = {450000, 1 << 20, 3 << 20};
    const ps_case c = {.passes = true, .memory_bytes = 24000};
    void (*set_memory)(size_t bytes);
    int fine = 0, refused = 0;
    uint64_t hash;

    gpu_kit_open();
    gpu_kit_symbol("fl_emu_set_memory", &set_memory);
    hash = gpu_ps_hash(&c);
    for (int i = 0; i < 3; i++) {
        fleet_status status;
        fleet_psgpu *g;
        scene s;

        set_memory(has[i]);
        g = gpu_ps_open(&s, &c);
        CHECK_OK(fleet_psgpu_begin_pass(g));
        status = fleet_train_from_dataset(s.e, s.data, NULL, NULL);
        set_memory(0);
        CHECK_OK(fleet_psgpu_end_pass(g));
        if (status == FLEET_OK) {
            gpu_ps_train_pass(&s, &c, g);
            CHECK(scene_hash(&s) == hash);
            fine++;
        } else {
            CHECK_INT(status, FLEET_ENOMEM);
            refused++;
        }
        scene_close(&s);
    }
    CHECK(fine > 0 && refused > 0);
    gpu_kit_close();
}

/* --- the next part, beside training --------------------------------------- */

/* Seen by a callback between two batches of a part. */
typedef struct ahead {
    fleet_psgpu *g;
    int parts; /* that were ready before the last batch of the one before */
    int64_t fresh, shared, handed_over;
    int64_t expected; /* rows of the next part that are handed over; -1: the
                         thread was not waited for */
    int part;
} ahead;

/* In the middle of each part: the thread beside it has to come to its end while
 * this one is not left. */
static int wait_for_next_part(void *user, int64_t batch, int64_t samples)
{
    ahead *a = user;
    fleet_psgpu *g = a->g;
    fl_wait limit = fl_wait_for(20000);

    (void)samples;
    if (a->part == g->part)
        return 0;
    a->part = g->part;
    a->handed_over += g->handed_over;
    if (a->expected >= 0) /* each was trained: it is a row */
        CHECK_INT(g->handed_over, g->part > 1 ? a->expected : 0);
    a->expected = -1;
    if (!g->prepares || batch >= g->end)
        return 0;
    while (!atomic_load(&g->is_over))
        if (fl_wait_left(&limit) == 0)
            return 1;
    a->parts++;
    a->expected = 0;
    for (int i = 0; i < g->n_table; i++) {
        a->fresh += g->table[i].next.n_fresh;
        a->expected += g->table[i].next.n_shared;
    }
    a->shared += a->expected;
    return 0;
}

static void train_seen(scene *s, ahead *a)
{
    const fleet_train_options o = {.on_batch = wait_for_next_part, .user = a};
    fleet_train_result r;

    a->part = 0;
    a->expected = -1;
    CHECK_OK(fleet_psgpu_begin_pass(a->g));
    CHECK_OK(fleet_train_from_dataset(s->e, s->data, &o, &r));
    CHECK_INT(r.stopped, 0);
    CHECK_OK(fleet_psgpu_end_pass(a->g));
}

TEST(the_next_part_is_listed_and_staged_while_one_trains)
{
    const ps_case c = {.passes = true, .memory_bytes = 50000}, whole = {0};
    ahead a = {0};
    uint64_t hash;
    scene s;

    gpu_kit_open();
    a.g = gpu_ps_open(&s, &c);
    for (int i = 0; i < GPU_PS_PASSES; i++)
        train_seen(&s, &a);
    hash = scene_hash(&s);
    scene_close(&s);
    CHECK(a.parts > 1);
    CHECK(a.fresh > 0 && a.shared > 0);
    CHECK(a.handed_over > 0);
    CHECK(hash == gpu_ps_hash(&whole));
    gpu_kit_close();
}

/* Ids that hardly come twice. */
static void write_wide_file(const char *path, int lines)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL);
    for (int i = 0; i < lines; i++)
        fprintf(file, "1 %d 3 0.5 %d 1.25 1 %d 1 %d 1 %d\n", i % 3 == 0, i % 7,
                i * 3 + 1, i * 3 + 2, i % 50);
    CHECK_INT(fclose(file), 0);
}

static uint64_t hash_of_wide(const ps_case *c, const char *path)
{
    int64_t bytes = 0;
    fleet_psgpu *g;
    uint64_t hash;
    scene s;

    gpu_ps_build(&s, c);
    scene_data_in_memory(&s, path, GPU_PS_BATCH, 2);
    g = c->passes ? gpu_ps_open_passes(&s, c) : NULL;
    gpu_ps_train_pass(&s, c, g);
    for (size_t i = 0; i < s.f->store->tables.n; i++) {
        const fl_rows *r = s.f->store->tables.entry[i].value;

        bytes += fl_table_gpu_bytes(r, r->methods->count(r));
    }
    CHECK(bytes >= 10 * c->memory_bytes);
    CHECK(!g || g->handed_over > 0);
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

TEST(a_table_of_ten_times_the_memory_for_rows_has_the_same_bits)
{
    const ps_case c = {.passes = true, .memory_bytes = 120000}, whole = {0};
    const char *path = test_path("wide.txt");
    uint64_t hash;

    gpu_kit_open();
    write_wide_file(path, WIDE_LINES);
    hash = hash_of_wide(&c, path);
    CHECK(gpu_ps_parts_said() > 10);
    CHECK(hash == hash_of_wide(&whole, path));
    gpu_kit_close();
}

/* In the trace's order: events are kept as they happen. */
TEST(a_trace_shows_the_preparation_within_the_training)
{
    const ps_case c = {.passes = true, .memory_bytes = 50000};
    const char *folder = test_path("trace"), *train, *prepare, *ready, *trained;
    ahead a = {0};
    char *text, file[600];
    size_t size;
    scene s;

    gpu_kit_open();
    setenv("FLEET_TRACE", folder, 1);
    a.g = gpu_ps_open(&s, &c);
    train_seen(&s, &a);
    scene_close(&s);
    unsetenv("FLEET_TRACE");
    snprintf(file, sizeof file, "%s/worker-0.%d.json", folder, (int)getpid());
    CHECK_OK(fl_file_read(file, &text, &size));
    train = strstr(text, "\"pass.train\"");
    prepare = strstr(text, "\"pass.prepare\"");
    CHECK(train && prepare && train < prepare);
    ready = strstr(prepare + 1, "\"pass.prepare\"");
    trained = strstr(train + 1, "\"pass.train\"");
    CHECK(ready && trained && ready < trained);
    CHECK_CONTAINS(ready, "\"ph\":\"e\"");
    fl_free(text);
    gpu_kit_close();
}

/* Where two parts do not fit beside each other all rows go home between. */
TEST(parts_that_fit_alone_have_the_same_bits)
{
    const ps_case c = {.passes = true, .memory_bytes = 20000}, whole = {0};
    ahead a = {0};
    uint64_t hash;
    int parts;
    scene s;

    gpu_kit_open();
    a.g = gpu_ps_open(&s, &c);
    train_seen(&s, &a);
    train_seen(&s, &a);
    parts = gpu_ps_parts_said();
    hash = scene_hash(&s);
    scene_close(&s);
    CHECK_INT(a.handed_over, 0);
    CHECK(parts > 2 * GPU_PS_PASSES);
    CHECK(hash == gpu_ps_hash(&whole));
    gpu_kit_close();
}

static int stop_at_third(void *user, int64_t batch, int64_t samples)
{
    (void)user;
    (void)samples;
    return batch == 3;
}

static uint64_t hash_with_stops(const ps_case *c)
{
    const fleet_train_options stops = {.on_batch = stop_at_third};
    uint64_t hash;
    fleet_psgpu *g;
    scene s;

    g = gpu_ps_open(&s, c);
    if (g)
        CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stops, NULL));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stops, NULL));
    if (g)
        CHECK_OK(fleet_psgpu_end_pass(g));
    gpu_ps_train_pass(&s, c, g);
    hash = scene_hash(&s);
    if (g)
        CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stops, NULL));
    scene_close(&s); /* the thread runs */
    return hash;
}

/* What a stop, an end of the pass, and the end of all leave behind. */
TEST(a_part_that_is_prepared_for_nothing_is_given_up)
{
    const ps_case c = {.passes = true, .memory_bytes = 50000}, whole = {0};
    uint64_t hash;

    gpu_kit_open();
    hash = hash_with_stops(&c);
    CHECK(gpu_ps_parts_said() > 2);
    CHECK(hash == hash_with_stops(&whole));
    gpu_kit_close();
}

/* --- the life of a pass --------------------------------------------------- */

TEST(the_gpu_has_the_rows_of_a_pass_and_none_after_it)
{
    const gpu_kit_asks *gpu;
    ps_case c = {.passes = true};
    size_t before, during;
    fleet_psgpu *g;
    scene s;

    gpu_kit_open();
    gpu = gpu_kit_control();
    gpu->set_late(false); /* what is freed is free at once */
    g = gpu_ps_open(&s, &c);
    gpu_ps_train_pass(&s, &c, g);
    before = gpu->live_bytes();
    CHECK_OK(fleet_psgpu_begin_pass(g));
    during = gpu->live_bytes();
    CHECK(during >= before + 20000);
    CHECK_INT(g->first, 0);
    CHECK_INT(g->end, (GPU_PS_LINES + GPU_PS_BATCH - 1) / GPU_PS_BATCH);
    CHECK_OK(fleet_psgpu_end_pass(g));
    CHECK_INT((int64_t)gpu->live_bytes(), (int64_t)before);
    CHECK_CONTAINS(gpu_ps_said, "pass 2: ");
    scene_close(&s);
    gpu_kit_close();
}

/* A save, a hash, rows by hand and a program for test in the middle of a pass
 * see what was trained so far. */
TEST(reads_within_a_pass_see_what_the_gpu_has)
{
    const ps_case c = {.passes = true}, whole = {0};
    uint64_t hash, want;
    fleet_psgpu *g;
    fleet_evaluation a, b;
    scene s, t;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    (void)gpu_ps_open(&t, &whole);
    CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
    CHECK_OK(fleet_train_from_dataset(t.e, t.data, NULL, NULL));
    want = scene_hash(&t);
    CHECK_OK(fleet_params_hash(s.f, &hash));
    CHECK(hash == want);
    CHECK_OK(fleet_psgpu_dump_to_mem(g));
    s.tester =
        fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    t.tester =
        fleet_executor_create(t.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_evaluate(s.tester, s.data, &s.m, &a));
    CHECK_OK(fleet_evaluate(t.tester, t.data, &t.m, &b));
    CHECK(a.auc == b.auc);
    CHECK_OK(fleet_psgpu_end_pass(g));
    CHECK(scene_hash(&s) == want);
    scene_close(&s);
    scene_close(&t);
    gpu_kit_close();
}

/* Its plan had the tables on the GPU as a whole. */
TEST(a_program_that_ran_before_finds_rows_at_home)
{
    const ps_case c = {.passes = true, .memory_bytes = 24000, .early = true};
    fleet_evaluation during, after, fresh;
    fleet_psgpu *g;
    fleet_executor *e;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    gpu_ps_train_pass(&s, &c, g);
    CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, NULL, NULL));
    CHECK_OK(fleet_evaluate(s.tester, s.data, &gpu_ps_early_model, &during));
    CHECK_OK(fleet_psgpu_end_pass(g));
    CHECK_OK(fleet_evaluate(s.tester, s.data, &gpu_ps_early_model, &after));
    e = fleet_executor_create(s.p, &(fleet_executor_options){.for_test = 1});
    CHECK_OK(fleet_evaluate(e, s.data, &s.m, &fresh));
    CHECK(during.auc == fresh.auc && during.logloss == fresh.logloss);
    CHECK(after.auc == fresh.auc && after.logloss == fresh.logloss);
    fleet_executor_destroy(e);
    scene_close(&s);
    gpu_kit_close();
}

TEST(a_pass_may_be_trained_twice_before_it_ends)
{
    const ps_case c = {.passes = true, .memory_bytes = 30000}, whole = {0};
    fleet_psgpu *g;
    uint64_t hash;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    CHECK_OK(fleet_psgpu_begin_pass(g));
    scene_train(&s, GPU_PS_PASSES);
    CHECK_OK(fleet_psgpu_end_pass(g));
    hash = scene_hash(&s);
    scene_close(&s);
    CHECK(hash == gpu_ps_hash(&whole));
    gpu_kit_close();
}

/* As after a kill: what was saved before the pass is all that there is. */
TEST(a_kill_in_a_pass_loses_that_pass_alone)
{
    const ps_case c = {.passes = true, .memory_bytes = 24000}, whole = {0};
    const fleet_train_options stops = {.on_batch = stop_at_third};
    const char *path = test_path("after-pass-1");
    fleet_psgpu *g;
    uint64_t hash;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    gpu_ps_train_pass(&s, &c, g);
    CHECK_OK(fleet_save_persistables(s.f, path));
    CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_OK(fleet_train_from_dataset(s.e, s.data, &stops, NULL));
    scene_close(&s); /* without an end of the pass */
    g = gpu_ps_open(&s, &c);
    CHECK_OK(fleet_load_model(s.f, path));
    gpu_ps_train_pass(&s, &c, g);
    hash = scene_hash(&s);
    scene_close(&s);
    CHECK(hash == gpu_ps_hash(&whole));
    gpu_kit_close();
}

/* --- what is refused ------------------------------------------------------ */

TEST(training_without_a_pass_is_refused)
{
    const ps_case c = {.passes = true};
    fleet_psgpu *g;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    CHECK_FAILS(fleet_train_from_dataset(s.e, s.data, NULL, NULL), FLEET_ESTATE,
                "fleet_psgpu_begin_pass()");
    CHECK_FAILS(fleet_psgpu_end_pass(g), FLEET_ESTATE, "no pass has begun");
    CHECK_OK(fleet_psgpu_begin_pass(g));
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_ESTATE, "a pass has begun");
    CHECK_FAILS(fleet_dataset_local_shuffle(s.data), FLEET_ESTATE, "under way");
    CHECK_OK(fleet_psgpu_end_pass(g));
    scene_close(&s);
    gpu_kit_close();
}

TEST(slots_and_dims_are_compared_with_the_program)
{
    static const char *const some[] = {"u", "v"},
                             *const all[] = {"u", "v", "w"},
                             *const other[] = {"u", "v", "w", "dense"};
    const ps_case c = {.passes = true};
    fleet_psgpu *g;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    CHECK_OK(fleet_psgpu_set_slot_vector(g, some, 2));
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_EINVAL, "\"w\"");
    CHECK_OK(fleet_psgpu_set_slot_vector(g, other, 4));
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_EINVAL, "\"dense\"");
    CHECK_OK(fleet_psgpu_set_slot_vector(g, all, 3));
    CHECK_FAILS(fleet_psgpu_set_slot_dim_vector(g, (int64_t[]){8, 8}, 2),
                FLEET_EINVAL, "2 dims: expected one of each of the 3");
    CHECK_OK(fleet_psgpu_set_slot_dim_vector(g, (int64_t[]){8, 8, 9}, 3));
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_EINVAL, "has dim");
    CHECK_FAILS(fleet_psgpu_init_gpu_ps(g, (const int[]){0, 1}, 2),
                FLEET_EUNSUPPORTED, "2 GPUs");
    CHECK_OK(fleet_psgpu_init_gpu_ps(g, (const int[]){1}, 1));
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_EINVAL, "is on gpu:0");
    CHECK(fleet_psgpu_create(s.f, NULL) == NULL);
    CHECK_INT(fl_last_code(), FLEET_EEXIST);
    scene_close(&s);
    gpu_kit_close();
}

TEST(a_batch_that_alone_is_more_than_a_part_may_be_is_named)
{
    const ps_case c = {.passes = true, .memory_bytes = 2000};
    fleet_psgpu *g;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    CHECK_FAILS(fleet_psgpu_begin_pass(g), FLEET_ENOMEM,
                "and 2000 are allowed");
    CHECK_FAILS(fleet_psgpu_end_pass(g), FLEET_ESTATE, "no pass has begun");
    scene_close(&s);
    gpu_kit_close();
}

TEST(an_allocation_that_fails_as_a_pass_begins_leaves_none_begun)
{
    const ps_case c = {.passes = true};
    fleet_status status;
    bool over = false;
    fleet_psgpu *g;
    uint64_t before;
    int64_t n = 1;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    gpu_ps_train_pass(&s, &c, g);
    before = scene_hash(&s);
    while (!over) {
        fl_memory_fail_at(n, true);
        status = fleet_psgpu_begin_pass(g);
        over = fl_memory_count() < n;
        fl_memory_fail_at(0, false);
        CHECK_INT(status, over ? FLEET_OK : FLEET_ENOMEM);
        n += 3;
    }
    CHECK_OK(fleet_psgpu_end_pass(g));
    CHECK(scene_hash(&s) == before);
    scene_close(&s);
    gpu_kit_close();
}

/* Of the thread beside training, too. */
TEST(an_allocation_that_fails_in_a_pass_of_parts_is_named)
{
    const ps_case c = {.passes = true, .memory_bytes = 50000};
    bool over = false;
    fleet_psgpu *g;
    int64_t n = 1;
    scene s;

    gpu_kit_open();
    g = gpu_ps_open(&s, &c);
    gpu_ps_train_pass(&s, &c, g);
    while (!over) {
        fleet_status status;

        CHECK_OK(fleet_psgpu_begin_pass(g));
        fl_memory_fail_at(n, true);
        status = fleet_train_from_dataset(s.e, s.data, NULL, NULL);
        over = fl_memory_count() < n;
        fl_memory_fail_at(0, false);
        CHECK_INT(status, over ? FLEET_OK : FLEET_ENOMEM);
        CHECK_OK(fleet_psgpu_end_pass(g));
        n += 5;
    }
    scene_close(&s);
    gpu_kit_close();
}

/* --- by a configuration --------------------------------------------------- */

#define ON_GPU                                                                 \
    "device=gpu:0", "dataset.shuffle=0", "dataset.in_memory=true",             \
        "dataset.memory_shuffle=local"
#define BY_PASS "strategy.a_sync_configs.use_ps_gpu=true"

static const char *hash_in(const char *closing)
{
    const char *at = strstr(closing, "\"params_hash\"");

    CHECK(at != NULL);
    return at;
}

TEST(a_configuration_has_passes_and_validates_within_them)
{
    char *whole, *passes;

    gpu_kit_open();
    whole = watch_train((const char *[]){ON_GPU, NULL});
    passes = watch_train((const char *[]){ON_GPU, BY_PASS,
                                          "ps_gpu.memory_bytes=20000",
                                          "validate_every.steps=2", NULL});
    CHECK_TEXT(hash_in(passes), hash_in(whole));
    CHECK_CONTAINS(watch_said, "pass 3 does not fit");
    CHECK(watch_n_seen > 3);
    fleet_free(whole);
    fleet_free(passes);
    gpu_kit_close();
}

TEST(a_configuration_of_passes_needs_memory_and_a_gpu)
{
    watch_refuse("ps_gpu.memory_bytes=5", NULL, "ps_gpu: expected nothing");
    watch_refuse(BY_PASS, NULL, "device: expected \"gpu\"");
    watch_refuse(BY_PASS, "device=gpu:0", "dataset.in_memory: expected true");
}
