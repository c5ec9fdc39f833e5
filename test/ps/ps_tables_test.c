/* ps_tables_test.c - rows and weights by hand, of a job with servers: read by
 * any worker at any time, written once by all together. */
#define SUITE ps_tables
#include "grown_kit.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { IDS = 40, KEYS = 60 };

static ps_job job_of(grown_how *how, int servers, int lanes)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .open = grown_open_node,
                    .user = how,
                    .file = {grown_ids("ids", 0, IDS)}};
}

static void keys_of(uint64_t key[KEYS])
{
    for (int i = 0; i < KEYS; i++)
        key[i] = (uint64_t)i;
}

/* --- what is got is what one process has ---------------------------------- */

typedef struct rows {
    float row[KEYS][GROWN_DIM], states[KEYS][2 * GROWN_DIM], w[GROWN_W];
    int found[KEYS];
} rows;

static fleet_status get_all(fleet *f, rows *r)
{
    uint64_t key[KEYS];

    keys_of(key);
    FL_TRY(fleet_table_get(f, "t", key, KEYS, GROWN_DIM, r->row[0],
                           r->states[0], r->found));
    return fleet_parameter_get(f, "w", r->w, GROWN_W);
}

static rows wanted;

static fleet_status train_and_get(ps_node *n)
{
    fleet_table_statistics s;
    rows *got = calloc(1, sizeof *got);

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(get_all(n->s.f, got));
    CHECK(memcmp(got, &wanted, sizeof wanted) == 0);
    free(got);
    FL_TRY(fleet_table_stat(n->s.f, "t", &s));
    CHECK_INT(s.rows, IDS);
    CHECK_INT(s.n_state, 2);
    CHECK_INT(s.parts, n->job->servers * n->job->lanes);
    CHECK(s.most_rows < IDS || s.parts == 1);
    return ps_end(n);
}

TEST(every_worker_gets_what_one_process_has)
{
    static const int shape[][2] = {{1, 1}, {2, 2}, {3, 1}};
    grown_how how = {.optimizer = "adam"};
    ps_job one = job_of(&how, 1, 1);
    ps_node n = {.job = &one};

    /* both workers bring the same gradients: the mean is that of one */
    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(get_all(n.s.f, &wanted));
    scene_close(&n.s);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        ps_job j = job_of(&how, shape[i][0], shape[i][1]);

        j.workers = 1;
        j.work = train_and_get;
        CHECK(ps_hash(&j) != 0);
    }
}

/* --- sets ----------------------------------------------------------------- */

static const uint64_t key_set[] = {3, 1000, 5};
static const float row_set[3][GROWN_DIM] = {{1, 2}, {3, 4}, {5, 0.1f}};
static const float w_set[GROWN_W] = {0.5f, -1, 7};

/* Between two passes; the first worker's are written, whatever others give. */
static fleet_status set_between(ps_node *n)
{
    static const float other[3][GROWN_DIM];
    float w[GROWN_W], row[3][GROWN_DIM];
    bool first = n->index == 0;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_table_set(n->s.f, "t", key_set, first ? 3 : 0, GROWN_DIM,
                           first ? row_set[0] : other[0], NULL));
    FL_TRY(fleet_parameter_set(n->s.f, "w", first ? w_set : NULL,
                               first ? GROWN_W : 0));
    FL_TRY(fleet_parameter_get(n->s.f, "w", w, GROWN_W));
    FL_TRY(fleet_table_get(n->s.f, "t", key_set, 3, GROWN_DIM, row[0], NULL,
                           NULL));
    CHECK(memcmp(w, w_set, sizeof w) == 0);
    CHECK(memcmp(row, row_set, sizeof row) == 0);
    FL_TRY(
        fleet_barrier_worker(n->s.f)); /* none trains before all have looked */
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static uint64_t set_alone(const ps_job *j)
{
    ps_job copy = *j;
    ps_node n = {.job = &copy};
    uint64_t hash = 0;

    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(
        fleet_table_set(n.s.f, "t", key_set, 3, GROWN_DIM, row_set[0], NULL));
    CHECK_OK(fleet_parameter_set(n.s.f, "w", w_set, GROWN_W));
    scene_train(&n.s, 1);
    CHECK_OK(fleet_params_hash(n.s.f, &hash));
    scene_close(&n.s);
    return hash;
}

TEST(a_set_between_two_passes_has_the_bits_of_one_process)
{
    static const int shape[][2] = {{1, 1}, {2, 2}, {3, 1}};
    grown_how how = {.optimizer = "adam"};
    uint64_t want = 0;

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        ps_job j = job_of(&how, shape[i][0], shape[i][1]);

        j.work = set_between;
        j.workers = 1;
        want = want ? want : set_alone(&j);
        CHECK(ps_hash(&j) == want);
        how.a_sync = true; /* prefetched rows lack a step */
        CHECK(ps_hash(&j) != 0);
        how.a_sync = false;
    }
}

/* Two workers, as any number of servers has it. */
TEST(a_set_of_two_workers_does_not_depend_on_the_servers)
{
    grown_how how = {.optimizer = "adam"};
    ps_job a = job_of(&how, 1, 1), b = job_of(&how, 3, 2);

    a.work = b.work = set_between;
    CHECK(ps_hash(&a) == ps_hash(&b));
    how.a_sync = true;
    ps_run(&a);
    ps_check(&a);
}

/* --- what cannot be ------------------------------------------------------- */

static fleet_status set_wrongly(ps_node *n)
{
    bool first = n->index == 0;
    uint64_t before = 0, after = 0;
    float row[GROWN_DIM] = {1, NAN};
    fleet_status status;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_barrier_worker(n->s.f)); /* the other still pushes if async */
    if (first)
        FL_TRY(fleet_params_hash(n->s.f, &before));
    status = fleet_table_set(n->s.f, "t", key_set, 1, GROWN_DIM, row, NULL);
    CHECK_INT(status, first ? FLEET_ENUMERIC : FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(),
                   first ? "key 3, column 1" : "1 of 2 workers could not");
    status = fleet_table_set(n->s.f, first ? "t" : "none", key_set, 1,
                             GROWN_DIM, row_set[0], NULL);
    CHECK_INT(status, first ? FLEET_EINVAL : FLEET_ENOENT);
    status =
        fleet_table_get(n->s.f, "none", key_set, 1, GROWN_DIM, row, NULL, NULL);
    CHECK_INT(status, FLEET_ENOENT);
    if (first) {
        FL_TRY(fleet_params_hash(n->s.f, &after));
        CHECK(before == after);
    }
    FL_TRY(ps_passes(n, 1)); /* and the job goes on */
    return ps_end(n);
}

TEST(a_wrong_call_of_one_worker_fails_all_and_writes_nothing)
{
    grown_how how = {.optimizer = "sgd"};
    ps_job j = job_of(&how, 2, 1);

    j.work = set_wrongly;
    CHECK(ps_hash(&j) != 0);
    how.a_sync = true;
    CHECK(ps_hash(&j) != 0);
}

static fleet_status set_and_shrink(ps_node *n)
{
    bool first = n->index == 0;
    fleet_status status;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    status = first ? fleet_table_set(n->s.f, "t", key_set, 1, GROWN_DIM,
                                     row_set[0], NULL)
                   : fleet_shrink(n->s.f, "t");
    CHECK_INT(status, FLEET_EINVAL);
    CHECK_CONTAINS(
        fleet_last_error(),
        first ? "fleet_table_set of \"t\": another worker makes another call"
              : "fleet_shrink of \"t\": another worker makes another call");
    status = fleet_table_set(n->s.f, first ? "t" : "more", key_set, 1,
                             GROWN_DIM, row_set[0], NULL);
    CHECK_INT(status, FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(), "one of another name");
    status =
        fleet_table_set(n->s.f, "t", key_set, 1, GROWN_DIM, row_set[0], NULL);
    CHECK_OK(status); /* the job goes on */
    return ps_end(n);
}

TEST(different_calls_at_the_same_time_fail_in_all_workers)
{
    grown_how how = {
        .optimizer = "sgd", .larger = true, .life.ttl_updates = 1000};
    ps_job j = job_of(&how, 2, 1);

    j.work = set_and_shrink;
    CHECK(ps_hash(&j) != 0);
}

static fleet_status call_too_early(ps_node *n)
{
    float row[GROWN_DIM];
    fleet_status status =
        fleet_table_get(n->s.f, "t", key_set, 1, GROWN_DIM, row, NULL, NULL);

    CHECK_INT(status, FLEET_ESTATE);
    CHECK_CONTAINS(fleet_last_error(), "call fleet_init_worker() first");
    status =
        fleet_table_set(n->s.f, "t", key_set, 1, GROWN_DIM, row_set[0], NULL);
    CHECK_INT(status, FLEET_ESTATE);
    FL_TRY(ps_begin(n));
    return ps_end(n);
}

TEST(a_call_before_the_job_has_met_says_so)
{
    grown_how how = {.optimizer = "sgd"};
    ps_job j = job_of(&how, 1, 1);

    j.work = call_too_early;
    CHECK(ps_hash(&j) != 0);
}

static fleet_status call_in_server(ps_node *n)
{
    float row[GROWN_DIM];
    fleet_status status =
        fleet_table_get(n->s.f, "t", key_set, 1, GROWN_DIM, row, NULL, NULL);

    CHECK_INT(status, FLEET_ESTATE);
    CHECK_CONTAINS(fleet_last_error(), "this process is a server");
    return ps_serve(n);
}

static fleet_status read_or_train(ps_node *n)
{
    rows got;

    FL_TRY(ps_begin(n));
    for (int i = 0; i < 5; i++) {
        if (n->index == 0)
            for (int k = 0; k < 5; k++)
                FL_TRY(get_all(n->s.f, &got));
        FL_TRY(ps_passes(n, 1));
    }
    return ps_end(n);
}

TEST(reads_beside_training_change_nothing_and_hold_up_nobody)
{
    grown_how how = {.optimizer = "adam"};
    ps_job j = job_of(&how, 2, 1), plain = job_of(&how, 2, 1);

    plain.passes = 5;
    j.work = read_or_train;
    j.serve = call_in_server;
    CHECK(ps_hash(&j) == ps_hash(&plain));
}

/* --- processes ------------------------------------------------------------ */

TEST(processes_over_tcp_set_and_get)
{
    grown_how how = {.optimizer = "adam"};
    ps_job j = job_of(&how, 2, 1);

    j.work = set_between;
    ps_start_all(&j);
    ps_check_all_end(&j);
}

/* --- one table's saves and texts ------------------------------------------ */

static const char *one_path, *text_path;

static fleet_status export_all(ps_node *n)
{
    const fleet_export_options states = {.states = 1};

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_one_table(n->s.f, "t", one_path));
    FL_TRY(fleet_export_table(n->s.f, "t", text_path, &states));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

/* It has trained on; the table goes back, then all train on. */
static fleet_status bring_back(ps_node *n)
{
    bool text = n->job->id != NULL;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(text ? fleet_import_table(n->s.f, "t", text_path, NULL)
                : fleet_load_one_table(n->s.f, "t", one_path, NULL));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static fleet_status load_early(ps_node *n)
{
    FL_TRY(fleet_load_one_table(n->s.f, "t", one_path, NULL));
    FL_TRY(ps_begin(n));
    return ps_end(n);
}

static uint64_t alone_with(const ps_job *like, bool text)
{
    ps_job copy = *like;
    ps_node n = {.job = &copy};
    uint64_t hash = 0;

    copy.id = text ? "text" : NULL;
    grown_open_node(&n, &(fleet_options){.seed = 5, .num_threads = 1});
    scene_train(&n.s, 1);
    CHECK_OK(text ? fleet_import_table(n.s.f, "t", text_path, NULL)
                  : fleet_load_one_table(n.s.f, "t", one_path, NULL));
    scene_train(&n.s, 1);
    CHECK_OK(fleet_params_hash(n.s.f, &hash));
    scene_close(&n.s);
    return hash;
}

/* Two servers -> one process -> three servers: each job takes what the one
 * before has written, and writes it again. */
TEST(a_table_travels_between_jobs_of_any_servers_with_its_bits)
{
    static const int shape[][2] = {{2, 1}, {3, 2}, {1, 1}};
    grown_how how = {.optimizer = "adam"};
    uint64_t want, texts;

    one_path = test_path("one");
    text_path = test_path("rows.txt");
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        ps_job j = job_of(&how, shape[i][0], shape[i][1]);

        j.work = export_all;
        CHECK(ps_hash(&j) != 0);
        j.workers = 1;
        want = alone_with(&j, false);
        texts = alone_with(&j, true);
        for (int k = 0; k < 3; k++) {
            ps_job to = job_of(&how, shape[k][0], shape[k][1]);

            to.workers = 1;
            to.work = bring_back;
            CHECK(ps_hash(&to) == want);
            to.id = "text";
            CHECK(ps_hash(&to) == texts);
        }
        CHECK(want == texts);
    }
}

TEST(a_table_loaded_before_the_job_meets_is_what_it_begins_with)
{
    grown_how how = {.optimizer = "adam"};
    ps_job j = job_of(&how, 2, 1), other = job_of(&how, 3, 1);
    uint64_t hash;

    one_path = test_path("one");
    text_path = test_path("rows.txt");
    j.work = export_all;
    CHECK(ps_hash(&j) != 0);
    j.work = other.work = load_early;
    hash = ps_hash(&j);
    CHECK(hash == ps_hash(&other));
}

/* What is wrong is told to all, and the job goes on. */
static fleet_status import_wrongly(ps_node *n)
{
    fleet_status status;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    status = fleet_import_table(n->s.f, "t", text_path, NULL);
    CHECK_INT(status, n->index == 0 ? FLEET_EFORMAT : FLEET_EINVAL);
    CHECK_CONTAINS(fleet_last_error(), n->index == 0
                                           ? "rows.txt:2: weight 1: \"nan\""
                                           : "1 of 2 workers could not");
    status = fleet_load_one_table(n->s.f, "t", one_path, NULL);
    CHECK_INT(status, n->index == 0 ? FLEET_ENOENT : FLEET_EINVAL);
    status =
        fleet_load_one_table(n->s.f, n->index ? "none" : "t", one_path, NULL);
    CHECK_INT(status, FLEET_ENOENT);
    status =
        fleet_import_table(n->s.f, n->index ? "none" : "t", text_path, NULL);
    CHECK_INT(status, n->index == 0 ? FLEET_EFORMAT : FLEET_ENOENT);
    status = fleet_import_table(n->s.f, "t", n->index ? NULL : text_path, NULL);
    CHECK_INT(status, n->index == 0 ? FLEET_EFORMAT : FLEET_EINVAL);
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_wrong_text_is_told_to_all_workers_and_changes_nothing)
{
    grown_how how = {.optimizer = "adam"};
    ps_job j = job_of(&how, 2, 1), plain = job_of(&how, 2, 1);

    one_path = test_path("nowhere");
    text_path = test_file("rows.txt", "1 2\n1 1 nan\n");
    plain.passes = 2;
    j.work = import_wrongly;
    CHECK(ps_hash(&j) == ps_hash(&plain));
}

TEST(processes_over_tcp_bring_a_table_back)
{
    grown_how how = {.optimizer = "adam"};
    ps_job j = job_of(&how, 2, 1);

    one_path = test_path("one");
    text_path = test_path("rows.txt");
    j.work = export_all;
    ps_start_all(&j);
    ps_check_all_end(&j);
    j.work = bring_back;
    ps_start_all(&j);
    ps_check_all_end(&j);
    j.id = "text";
    ps_start_all(&j);
    ps_check_all_end(&j);
}
