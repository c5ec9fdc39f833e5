/* ps_accessor_test.c - what rows were shown and clicked, and saves that go by
 * it, with servers: as in one process, for any number of lanes. */
#define SUITE ps_accessor
#include "grown_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/graph/program.h"

enum { LINES = 320, IDS = 40, SHOWN = 4 };

/* Of IDS ids the low ones come most. */
static int id_of_line(int i)
{
    double u = (double)(i * 37 % LINES) / LINES;

    return (int)(IDS * u * u);
}

static const char *ids(void)
{
    static char text[LINES * 8];
    char *at = text;

    for (int i = 0; i < LINES; i++)
        at += sprintf(at, "1 %d\n", id_of_line(i));
    return test_file("ids", text);
}

static grown_how how_of(void)
{
    return (grown_how){.optimizer = "adagrad",
                       .life.accessor = {.kind = FLEET_CTR_ACCESSOR,
                                         .click = "id",
                                         .base_threshold = 60,
                                         .delta_threshold = 80,
                                         .delta_keep_days = 1,
                                         .delete_threshold = 20}};
}

static ps_job job_of(grown_how *how, int servers, int lanes)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .open = grown_open_node,
                    .user = how,
                    .file = {ids()}};
}

/* --- saves ---------------------------------------------------------------- */

typedef enum { DELTA, BASE, DAY, HOT, N_SAVE } which_save;

static const char *paths[2][N_SAVE];

/* Before any worker asks for one. */
static void name_paths(void)
{
    for (int i = 0; i < 2 * N_SAVE; i++) {
        char name[20];

        snprintf(name, sizeof name, "save-%d", i);
        paths[i / N_SAVE][i % N_SAVE] = test_path(name);
    }
}

static const char *path_of(which_save s, bool alone)
{
    return paths[alone][s];
}

/* A delta, a base, the day's end, and what was hot in it. */
static fleet_status save_each(fleet *f, bool alone)
{
    int64_t rows;

    FL_TRY(fleet_save_persistables_with(
        f, path_of(DELTA, alone),
        &(fleet_save_options){.mode = FLEET_SAVE_DELTA}));
    FL_TRY(fleet_save_persistables_with(
        f, path_of(BASE, alone),
        &(fleet_save_options){.mode = FLEET_SAVE_BASE}));
    FL_TRY(fleet_save_cache_model(f, path_of(HOT, alone), 0.1, &rows));
    CHECK_INT(rows, fleet_is_first_worker(f) ? 4 : 0);
    return fleet_save_persistables_with(
        f, path_of(DAY, alone),
        &(fleet_save_options){.mode = FLEET_SAVE_DAY_END});
}

static fleet_status save_between(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(save_each(n->s.f, false));
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(fleet_shrink(n->s.f, NULL));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static uint64_t save_alone(const ps_job *like)
{
    ps_job copy = *like;
    ps_node n = {.job = &copy};
    fleet_table_statistics s;
    uint64_t hash;

    copy.how.merge = 2;
    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(save_each(n.s.f, true));
    CHECK_OK(fleet_shrink(n.s.f, NULL));
    CHECK_OK(fleet_table_stat(n.s.f, "t", &s));
    CHECK(s.rows > 0 && s.rows < IDS);
    scene_train(&n.s, 1);
    hash = scene_hash(&n.s);
    scene_close(&n.s);
    return hash;
}

/* The rows of a save, with what they were shown: into a model of its own. */
static uint64_t loaded(grown_how how, which_save which, bool alone,
                       int64_t *rows)
{
    const fleet_load_options more = {.keep_rows = 1};
    fleet_table_statistics s;
    uint64_t hash;
    grown g;

    how.options.seed = 5;
    grown_open(&g, &how);
    if (which == HOT)
        CHECK_OK(fleet_load_one_table(
            g.f, "t", path_of(HOT, alone),
            &(fleet_load_table_options){.states = FLEET_STATES_INITIALIZE}));
    else
        CHECK_OK(fleet_load_model_with(g.f, path_of(which, alone), &more));
    CHECK_OK(fleet_table_stat(g.f, "t", &s));
    *rows = s.rows;
    hash = grown_hash(&g);
    grown_close(&g);
    return hash;
}

TEST(saves_of_some_rows_are_those_of_one_process_for_any_number_of_servers)
{
    static const int shape[][2] = {{1, 1}, {2, 2}, {5, 1}};
    grown_how how = how_of();
    ps_job j = job_of(&how, 1, 1);
    uint64_t want;

    name_paths();
    want = save_alone(&j);

    for (int i = 0; i < 3; i++) {
        j = job_of(&how, shape[i][0], shape[i][1]);
        j.work = save_between;
        CHECK(ps_hash(&j) == want);
        for (which_save s = DELTA; s < N_SAVE; s++) {
            int64_t got_rows, rows;

            CHECK(loaded(how, s, false, &got_rows) ==
                  loaded(how, s, true, &rows));
            CHECK_INT(got_rows, rows);
            CHECK(s == DAY ? rows == IDS : rows > 0 && rows < IDS);
        }
    }
}

/* --- what waits for a score ----------------------------------------------- */

static fleet_status shrink_between(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_shrink(n->s.f, NULL));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static uint64_t shrink_alone(const ps_job *like)
{
    ps_job copy = *like;
    ps_node n = {.job = &copy};
    fleet_table_statistics s;
    float row[GROWN_DIM];
    uint64_t hash, key;

    copy.how.merge = 2;
    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(fleet_shrink(n.s.f, NULL));
    CHECK_OK(fleet_table_stat(n.s.f, "t", &s));
    CHECK(s.rows > 0 && s.rows < IDS);
    CHECK(s.vector_rows > 0 && s.vector_rows < s.rows);
    CHECK_OK(fleet_table_stat(n.s.f, "t.waiting", &s));
    CHECK(s.rows > 0);
    scene_train(&n.s, 1);
    for (key = IDS - 1; key > 20; key--) { /* scores of 100 and more */
        CHECK_OK(
            fleet_table_get(n.s.f, "t", &key, 1, GROWN_DIM, row, NULL, NULL));
        CHECK(row[1] != 0);
    }
    key = 1;
    CHECK_OK(fleet_table_get(n.s.f, "t", &key, 1, GROWN_DIM, row, NULL, NULL));
    CHECK(row[1] == 0);
    hash = scene_hash(&n.s);
    scene_close(&n.s);
    return hash;
}

TEST(keys_and_vectors_wait_for_the_same_scores_for_any_number_of_servers)
{
    static const int shape[][2] = {{1, 1}, {2, 2}, {5, 1}};
    grown_how how = how_of();
    ps_job j = job_of(&how, 1, 1);
    uint64_t want;

    how.life.entry = (fleet_entry){.kind = FLEET_SHOW_CLICK_ENTRY, .score = 30};
    how.life.accessor.embedx_dim = 1;
    how.life.accessor.embedx_threshold = 100;
    how.life.accessor.delete_threshold = 3;
    want = shrink_alone(&j);
    for (int i = 0; i < 3; i++) {
        j = job_of(&how, shape[i][0], shape[i][1]);
        j.work = shrink_between;
        CHECK(ps_hash(&j) == want);
    }
}

/* --- counts --------------------------------------------------------------- */

/* Each sample counts once, whatever becomes of its gradient on the way. */
static fleet_status count_all(ps_node *n)
{
    float row[IDS][GROWN_DIM], states[IDS][SHOWN];
    uint64_t key[IDS];

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_barrier_worker(n->s.f));
    for (int i = 0; i < IDS; i++)
        key[i] = (uint64_t)i;
    FL_TRY(fleet_table_get(n->s.f, "t", key, IDS, GROWN_DIM, row[0], states[0],
                           NULL));
    for (int k = 0; k < IDS; k++) {
        float came = 0;

        for (int i = 0; i < LINES; i++)
            came += (float)(id_of_line(i) == k);
        CHECK(states[k][0] == came);
        CHECK(states[k][1] == came * (float)k);
    }
    return ps_end(n);
}

static void check_counts(grown_how how)
{
    ps_job j = job_of(&how, 2, 2);

    how.optimizer = "sgd";
    j.work = count_all;
    CHECK(ps_hash(&j) != 0);
}

TEST(each_sample_counts_once)
{
    grown_how how = how_of();

    check_counts(how);
    how.a_sync = true;
    check_counts(how);
    how.merged = 3;
    check_counts(how);
    how.cache_bytes = 1 << 16;
    check_counts(how);
    how.merged = 0;
    how.cache_bytes = 0;
    how.geo = 3;
    check_counts(how);
}

/* --- in geo --------------------------------------------------------------- */

/* The loss of all ids in one batch, by this worker's copies, and by what the
 * servers have. */
static fleet_status compare_copies(ps_node *n)
{
    const int64_t dims[] = {IDS, 1};
    int64_t id[IDS];
    uint64_t key[IDS];
    float row[IDS][GROWN_DIM], w[GROWN_W], loss = 0, want = 0;
    double none = 0;
    const fleet_feed feed = {"id", FLEET_INT64, id, dims, 2, NULL};
    fleet_fetch fetch = {
        .var = n->s.p->training.loss, .data = &loss, .size = sizeof loss};

    for (int i = 0; i < IDS; i++)
        key[i] = (uint64_t)(id[i] = i);
    FL_TRY(
        fleet_table_get(n->s.f, "t", key, IDS, GROWN_DIM, row[0], NULL, NULL));
    FL_TRY(fleet_parameter_get(n->s.f, "w", w, GROWN_W));
    for (int i = 0; i < IDS; i++)
        want += (row[i][0] + row[i][1]) / (IDS * GROWN_DIM);
    for (int i = 0; i < GROWN_W; i++)
        want += w[i] * w[i] / GROWN_W;
    FL_TRY(fleet_barrier_worker(n->s.f)); /* or the other worker has pushed */
    FL_TRY(fleet_executor_run(n->s.e, &feed, 1, &fetch, 1));
    CHECK_NEAR((double)loss, (double)want, 1e-4);
    /* it pushes nothing: what the run has changed comes after the other's */
    return fleet_metrics_sum(n->s.f, &none, 1);
}

static fleet_status shrink_copies(ps_node *n)
{
    fleet_table_statistics s;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_shrink(n->s.f, NULL));
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    n->number[0] = (double)s.rows;
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(compare_copies(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_barrier_worker(n->s.f)); /* the other one has pushed all */
    FL_TRY(compare_copies(n));
    FL_TRY(fleet_barrier_worker(n->s.f));
    return ps_end(n);
}

/* Rows with a low score go, on the servers; workers' copies go on with their
 * initial values. */
TEST(in_geo_a_shrink_lets_rows_go_and_copies_begin_anew)
{
    grown_how how = how_of();
    ps_job j;

    how.optimizer = "sgd";
    how.a_sync = true;
    how.geo = 100;
    j = job_of(&how, 2, 2);
    j.work = shrink_copies;
    ps_hash(&j);
    CHECK(ps_worker(&j, 0)->number[0] > 0 && ps_worker(&j, 0)->number[0] < IDS);
}

/* --- a push in fewer bytes ------------------------------------------------ */

static float narrow_rows[2][IDS][GROWN_DIM];
static int is_narrow;

static fleet_status keep_rows(ps_node *n)
{
    uint64_t key[IDS];

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_barrier_worker(n->s.f));
    for (int i = 0; i < IDS; i++)
        key[i] = (uint64_t)i;
    if (n->index == 0)
        FL_TRY(fleet_table_get(n->s.f, "t", key, IDS, GROWN_DIM,
                               narrow_rows[is_narrow][0], NULL, NULL));
    return ps_end(n);
}

/* They travel as they are, with the clip of the push, which in async the worker
 * has computed. The weights of "w", and with them the norm, differ a little:
 * without the clip rows would change by a hundred times as much. */
TEST(rows_that_travel_as_they_are_have_the_clip_of_a_push_in_fewer_bytes)
{
    grown_how how = how_of();

    how.optimizer = "sgd";
    how.clip = 0.01f;
    how.a_sync = true;
    for (is_narrow = 0; is_narrow < 2; is_narrow++) {
        ps_job j = job_of(&how, 2, 1);

        how.push_type = is_narrow ? FLEET_WIRE_BF16 : FLEET_WIRE_FP32;
        j.workers = 1;
        j.work = keep_rows;
        CHECK(ps_hash(&j) != 0);
    }
    CHECK_CLOSE(narrow_rows[1][0], narrow_rows[0][0], IDS * GROWN_DIM, 5e-3);
}
