/* ps_settings_test.c - workers that set their optimizers between passes:
 * servers update with what they have set, in sync with the bits of one process;
 * workers that differ end the job with the field and both values. */
#define SUITE ps_settings
#include "ps_kit.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "fleet/job/handle.h"
#include "runtime/optim/optimizer.h"

static fleet_optimizer *optimizer_of(const scene *s)
{
    return s->p->training.optimizer;
}

/* Call i, between pass i and the next one. */
static fleet_status set(fleet_optimizer *o, int i)
{
    switch (i) {
    case 0:
        return fleet_optimizer_set_l2_decay(o, 0.5f);
    case 1:
        return fleet_optimizer_set_global_norm_clip(o, 0.05f);
    case 2:
        return fleet_optimizer_set_piecewise_decay(o, (int64_t[]){1},
                                                   (float[]){1, 0.002f}, 1);
    case 3:
        return fleet_optimizer_set_exponential_decay(o, 0.99f, 1, 0);
    case 4:
        return fleet_optimizer_set_learning_rate(o, 0.03125f);
    case 5:
        return fleet_optimizer_set_l1_decay(o, 0.125f);
    case 6:
        return fleet_optimizer_set_value_clip(o, 0.0005f);
    default:
        return fleet_optimizer_set_schedule(
            o, &(fleet_schedule){.kind = FLEET_SCHEDULE_INVERSE_TIME,
                                 .rate = 0.25f,
                                 .warmup_steps = 13});
    }
}

enum { N_CALL = 8 };

/* job.user: the first and the last call that are made. */
static fleet_status set_between_passes(ps_node *n)
{
    const int *calls = n->job->user;
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    for (int i = calls[0]; i < calls[1] && status == FLEET_OK; i++) {
        status = set(optimizer_of(&n->s), i);
        if (status == FLEET_OK)
            status = ps_passes(n, 1);
    }
    return status == FLEET_OK ? ps_end(n) : status;
}

static uint64_t hash_alone(const ps_job *j, const int calls[2])
{
    scene_training how = j->how;
    uint64_t hash;
    scene s;

    how.merge = j->workers;
    scene_open_as(&s, &(fleet_options){.seed = 5, .num_threads = 1}, &how);
    scene_data(&s, j->file[0], PS_BATCH, 1, 0);
    scene_train(&s, 1);
    for (int i = calls[0]; i < calls[1]; i++) {
        CHECK_OK(set(optimizer_of(&s), i));
        scene_train(&s, 1);
    }
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

TEST(servers_update_with_what_workers_have_set_between_passes)
{
    int calls[2];
    ps_job j = {
        .servers = 2,
        .workers = 2,
        .lanes = 2,
        .work = set_between_passes,
        .how = {.optimizer = "momentum", .clip = 0.3f, .value_clip = 0.25f},
        .user = calls,
        .file = {scene_file("a.txt", 200, 1)}};

    for (int i = 0; i < N_CALL; i++) {
        calls[0] = i;
        calls[1] = i + 1;
        if (ps_hash(&j) != hash_alone(&j, calls))
            test_fail(__FILE__, __LINE__, "call %d differs", i);
    }
    calls[0] = 0;
    CHECK(ps_hash(&j) == hash_alone(&j, calls));
}

TEST(so_they_do_with_rates_by_layer)
{
    static const char *const rules[][2] = {{"lars", "momentum"},
                                           {"lamb", "adam"}};
    int calls[] = {0, N_CALL};

    for (int i = 0; i < 2; i++) {
        ps_job j = {.servers = 2,
                    .workers = 2,
                    .lanes = 2,
                    .work = set_between_passes,
                    .how = {.optimizer = rules[i][1],
                            .layers = rules[i][0],
                            .units = 1200,
                            .clip = 0.3f,
                            .value_clip = 0.25f},
                    .user = calls,
                    .file = {scene_file("a.txt", 200, 1)}};

        CHECK(ps_hash(&j) == hash_alone(&j, calls));
    }
}

/* --- async ---------------------------------------------------------------- */

static double squares(const ps_node *n)
{
    const fl_flat *g = n->s.f->store->flats;
    double sum = 0;

    for (int64_t i = 0; i < g->n; i++)
        sum += (double)g->weight[i] * (double)g->weight[i];
    return sum;
}

/* With a rate of 0.05 a decay of 19 leaves a twentieth of the weights. */
static fleet_status decay_strongly(ps_node *n)
{
    const bool *decays = n->job->user;
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    if (status == FLEET_OK && *decays)
        status = fleet_optimizer_set_l2_decay(optimizer_of(&n->s), 19);
    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    n->number[0] = squares(n);
    return status == FLEET_OK ? ps_end(n) : status;
}

TEST(servers_in_async_decay_as_workers_say)
{
    double sum[2];

    for (int i = 0; i < 2; i++) {
        bool decays = i;
        ps_job j = {.workers = 2,
                    .work = decay_strongly,
                    .how = {.optimizer = "sgd", .a_sync = true},
                    .user = &decays,
                    .file = {scene_file("a.txt", 600, 1)}};

        ps_run(&j);
        ps_check(&j);
        sum[i] = ps_worker(&j, 0)->number[0];
    }
    CHECK(sum[1] < 0.1 * sum[0]);
}

/* With a rate that no weight notices all that trains stays as it is. */
static fleet_status stand_still(ps_node *n)
{
    uint64_t before = 0, after = 0, moved = 0;
    float rate = 0;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_optimizer_get_learning_rate(optimizer_of(&n->s), &rate));
    FL_TRY(fleet_params_hash(n->s.f, &before));
    FL_TRY(fleet_optimizer_set_learning_rate(optimizer_of(&n->s), 1e-30f));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_params_hash(n->s.f, &after));
    FL_TRY(fleet_optimizer_set_learning_rate(optimizer_of(&n->s), rate));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_params_hash(n->s.f, &moved));
    if (before != after || after == moved)
        return fl_fail(FLEET_ESTATE, "weights %s, then %s",
                       before == after ? "stayed" : "moved",
                       after == moved ? "stayed" : "moved");
    return ps_end(n);
}

TEST(in_every_async_mode_a_rate_is_that_of_the_next_push)
{
    static const scene_training modes[] = {
        {.optimizer = "sgd", .a_sync = true},
        {.optimizer = "sgd", .a_sync = true, .merged = 2},
        {.optimizer = "sgd", .a_sync = true, .geo = 2}};

    for (int i = 0; i < 3; i++) {
        ps_job j = {.servers = 2,
                    .work = stand_still,
                    .how = modes[i],
                    .file = {scene_file("a.txt", 200, 1)}};

        ps_run(&j);
        ps_check(&j);
    }
}

/* --- a rate that falls ---------------------------------------------------- */

static void set_plateau(ps_node *n)
{
    CHECK_OK(fleet_optimizer_set_plateau(
        optimizer_of(&n->s),
        &(fleet_plateau_options){.factor = 0.5f, .patience = -1}));
}

static fleet_status report_and_save(ps_node *n)
{
    float rate = 0;

    set_plateau(n);
    FL_TRY(ps_begin(n));
    for (int i = 0; i < 2; i++) {
        FL_TRY(ps_passes(n, 1));
        FL_TRY(fleet_optimizer_report_metric(optimizer_of(&n->s), 1, NULL));
    }
    FL_TRY(fleet_optimizer_get_learning_rate(optimizer_of(&n->s), &rate));
    n->number[0] = (double)rate;
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    return ps_end(n);
}

static fleet_status go_on(ps_node *n)
{
    float rate = 0;

    set_plateau(n);
    FL_TRY(ps_begin(n));
    FL_TRY(fleet_optimizer_get_learning_rate(optimizer_of(&n->s), &rate));
    n->number[0] = (double)rate;
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_job_that_resumes_trains_at_the_rate_that_reports_left)
{
    char path[400];
    ps_job first = {.workers = 2,
                    .work = report_and_save,
                    .how = {.optimizer = "sgd"},
                    .user = path,
                    .file = {scene_file("a.txt", 200, 1)}};
    ps_job second = first;

    snprintf(path, sizeof path, "%s", test_path("saved"));
    ps_run(&first);
    ps_check(&first);
    second.work = go_on;
    second.load = second.server_load = path;
    ps_run(&second);
    ps_check(&second);
    for (int i = 0; i < 2; i++) {
        CHECK(ps_worker(&first, i)->number[0] == (double)0.025f);
        CHECK(ps_worker(&second, i)->number[0] == (double)0.025f);
    }
}

/* --- who differs ---------------------------------------------------------- */

static fleet_status set_in_worker_1(ps_node *n)
{
    const int *call = n->job->user;
    fleet_status status = ps_begin(n);

    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    if (status == FLEET_OK && n->index == 1)
        status = set(optimizer_of(&n->s), *call);
    if (status == FLEET_OK)
        status = ps_passes(n, 1);
    return status == FLEET_OK ? ps_end(n) : status;
}

TEST(workers_in_sync_that_set_differently_end_the_job_with_both_values)
{
    static const char *const words[N_CALL] = {
        "l2_decay is 0 in worker 0, 0.5 in worker 1",
        "global_norm_clip is 0.3 in worker 0, 0.05 in worker 1",
        "learning_rate is 0.05 in worker 0, 0.002 in worker 1",
        "learning_rate is 0.05 in worker 0, 0.0",
        "learning_rate is 0.05 in worker 0, 0.03125 in worker 1",
        "l1_decay is 0 in worker 0, 0.125 in worker 1",
        "value_clip is 0.25 in worker 0, 0.0005 in worker 1",
        "learning_rate is 0.05 in worker 0, 0.0",
    };

    for (int i = 0; i < N_CALL; i++) {
        ps_job j = {
            .workers = 2,
            .work = set_in_worker_1,
            .how = {.optimizer = "sgd", .clip = 0.3f, .value_clip = 0.25f},
            .user = &i,
            .file = {scene_file("a.txt", 200, 1)}};

        ps_run(&j);
        for (int w = 0; w < 2; w++) {
            CHECK_INT(ps_worker(&j, w)->status, FLEET_EINVAL);
            CHECK_CONTAINS(ps_worker(&j, w)->error, words[i]);
        }
        CHECK_INT(ps_server(&j, 0)->status, FLEET_EINVAL);
        CHECK_CONTAINS(ps_server(&j, 0)->error, words[i]);
    }
}

/* In async a worker's settings are those of its pushes. */
TEST(workers_in_async_may_differ)
{
    int call = 0;
    ps_job j = {.workers = 2,
                .work = set_in_worker_1,
                .how = {.optimizer = "sgd", .a_sync = true},
                .user = &call,
                .file = {scene_file("a.txt", 200, 1)}};

    ps_run(&j);
    ps_check(&j);
}

/* --- refused -------------------------------------------------------------- */

/* Servers send no norms then. */
static fleet_status clip_too_late(ps_node *n)
{
    fleet_status status = ps_begin(n);

    if (status != FLEET_OK)
        return status;
    CHECK_FAILS(fleet_optimizer_set_global_norm_clip(optimizer_of(&n->s), 1),
                FLEET_ESTATE, "a training without it has begun");
    status = ps_passes(n, 1);
    return status == FLEET_OK ? ps_end(n) : status;
}

TEST(a_clip_that_servers_do_not_know_of_is_refused)
{
    ps_job j = {.work = clip_too_late, .file = {scene_file("a.txt", 100, 1)}};

    ps_run(&j);
    ps_check(&j);
}

static fleet_status set_on_server(ps_node *n)
{
    fleet_optimizer *o = optimizer_of(&n->s);
    fleet_status status = fleet_init_server(n->s.f, NULL);

    if (status != FLEET_OK)
        return status;
    CHECK_FAILS(fleet_optimizer_set_l2_decay(o, 1), FLEET_ESTATE,
                "fleet_optimizer_set_l2_decay: the workers say how this server "
                "updates: call it before fleet_init_server()");
    CHECK_FAILS(fleet_optimizer_set_learning_rate(o, 1), FLEET_ESTATE,
                "fleet_optimizer_set_learning_rate: the workers say how this "
                "server updates");
    CHECK_FAILS(fleet_optimizer_get_learning_rate(o, &(float){0}), FLEET_ESTATE,
                "the workers say how this server updates");
    status = fleet_run_server(n->s.f);
    CHECK_OK(fleet_optimizer_set_l2_decay(o, 1));
    return status;
}

TEST(a_server_that_workers_tell_what_is_set_sets_nothing_itself)
{
    ps_job j = {.serve = set_on_server, .file = {scene_file("a.txt", 100, 1)}};

    ps_run(&j);
    ps_check(&j);
}
