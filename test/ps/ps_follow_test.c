/* ps_follow_test.c - a predictor that follows a job while other threads score
 * with it: each score is of rows as they were at one moment, and in the end it
 * scores as the servers' model does.
 */
#define SUITE ps_follow
#include "ps_kit.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fleet/feed.h>

#include "base/error.h"

enum {
    IDS = 500,
    TRAINED = 490,
    DIM = 256,
    AT_ONCE = 32,
    STEPS = 300,
    N_SCORER = 2
};

/* All processes of a test know these: made before the first of them. */
static const char *model_path, *end_path;

/* Rows begin with 0, and each of their numbers has the same gradient: so the
 * numbers of a row are equal whenever it is whole. */
static void open_job(ps_node *n, const fleet_options *o)
{
    const fleet_sparse_embedding_options table = {
        .table = "t", .initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    const fleet_fc_options fc = {
        .weight.initializer = {FLEET_INIT_CONSTANT, 0.5f, 0}};
    fleet_distributed_strategy s = FLEET_DISTRIBUTED_STRATEGY_INIT;
    fleet_optimizer *adam;
    fleet_var *ids;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    ids = fleet_data(n->s.p, "ids", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    n->s.m.loss = fleet_sparse_embedding(n->s.p, ids, DIM, &table);
    n->s.m.prediction = fleet_fc(n->s.p, n->s.m.loss, 1, &fc);
    adam = fleet_distributed_optimizer(n->s.f, fleet_adam(n->s.f, 0.01f, NULL),
                                       &s);
    CHECK_OK(
        fleet_minimize(adam, fleet_add(n->s.p, fleet_mean(n->s.p, n->s.m.loss),
                                       fleet_mean(n->s.p, n->s.m.prediction))));
}

static fleet_status save_model(const ps_node *n, const char *path)
{
    fleet_var *ids = fleet_program_var(n->s.p, "ids");
    fleet_var *fetch[] = {n->s.m.loss, n->s.m.prediction};

    return fleet_save_inference_model(n->s.f, path, &ids, 1, fetch, 2);
}

static fleet_status train_and_save(ps_node *n)
{
    uint64_t x = 7;

    FL_TRY(ps_begin(n));
    for (int i = 0; i < STEPS; i++) {
        int64_t ids[AT_ONCE], dims[] = {AT_ONCE, 1};
        const fleet_feed feed = {"ids", FLEET_INT64, ids, dims, 2, NULL};

        for (int j = 0; j < AT_ONCE; j++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            ids[j] = (int64_t)(x >> 33) % TRAINED;
        }
        FL_TRY(fleet_executor_run(n->s.e, &feed, 1, NULL, 0));
    }
    FL_TRY(fleet_barrier_worker(n->s.f));
    FL_TRY(save_model(n, end_path));
    return fleet_stop_worker(n->s.f);
}

/* --- scoring -------------------------------------------------------------- */

typedef struct scores {
    float row[IDS][DIM], y[IDS];
} scores;

static void score_all(fleet_predictor *p, scores *s)
{
    int64_t ids[IDS];
    const int64_t dims[] = {IDS, 1};
    const fleet_feed feed = {"ids", FLEET_INT64, ids, dims, 2, NULL};

    for (int i = 0; i < IDS; i++)
        ids[i] = i;
    CHECK_OK(fleet_predictor_run(p, &feed, 1, (void *[]){s->row, s->y},
                                 (size_t[]){sizeof s->row, sizeof s->y}, 2));
}

typedef struct scorer {
    fleet_predictor *p;
    atomic_bool stop;
    pthread_t thread;
    int runs, changed, torn;
} scorer;

static void *score_on(void *arg)
{
    scorer *s = arg;
    scores before = {0}, now;

    while (!atomic_load(&s->stop)) {
        score_all(s->p, &now);
        s->changed += memcmp(&before, &now, sizeof now) != 0;
        for (int i = 0; i < IDS; i++)
            for (int j = 1; j < DIM; j++)
                s->torn += now.row[i][j] != now.row[i][0];
        before = now;
        s->runs++;
    }
    return NULL;
}

/* Until the job is over; true: no score was of a part of a row. */
static bool follow_and_score(const char *endpoints, fleet_predictor *p)
{
    const fleet_feed_options o = {.server_endpoints = endpoints,
                                  .interval_ms = 1};
    fleet_delta_feed *feed = fleet_feed_open(&o);
    const fleet_feed_batch *b;
    scorer s[N_SCORER] = {0};
    fleet_status status;
    bool good = true;

    CHECK(feed != NULL);
    for (int i = 0; i < N_SCORER; i++) {
        s[i].p = p;
        CHECK(pthread_create(&s[i].thread, NULL, score_on, &s[i]) == 0);
    }
    while ((status = fleet_feed_next(feed, 1000, &b)) != FLEET_EEND) {
        CHECK_OK(status);
        if (b)
            CHECK_OK(fleet_predictor_apply(p, feed));
    }
    for (int i = 0; i < N_SCORER; i++) {
        atomic_store(&s[i].stop, true);
        pthread_join(s[i].thread, NULL);
        good = good && s[i].torn == 0 && s[i].changed > 1;
        if (!good)
            fprintf(stderr, "%d runs, %d changed, %d torn\n", s[i].runs,
                    s[i].changed, s[i].torn);
    }
    CHECK_STATUS(fleet_predictor_apply(p, feed), FLEET_EINVAL);
    fleet_feed_close(feed);
    return good;
}

/* The one that has followed scores as what was saved at the end. */
static bool scores_alike(fleet_predictor *p)
{
    fleet_predictor *end = fleet_load_inference_model(end_path);
    scores a, b;

    CHECK(end != NULL);
    score_all(p, &a);
    score_all(end, &b);
    fleet_predictor_destroy(end);
    return memcmp(&a, &b, sizeof a) == 0;
}

static pid_t start_follower(const ps_job *j)
{
    pid_t pid = test_fork();
    fleet_predictor *p;
    bool good;

    if (pid != 0)
        return pid;
    test_ends_process = true;
    p = fleet_load_inference_model(model_path);
    CHECK(p != NULL);
    good = follow_and_score(j->endpoints, p);
    CHECK(scores_alike(p));
    fleet_predictor_destroy(p);
    test_check_leaks();
    _exit(!good);
}

/* With rows that are others on the servers, or none. */
static void save_first_model(ps_job *j)
{
    fleet_options o = {.seed = 5, .num_threads = 1, .role = &(fleet_role){0}};
    const uint64_t key[] = {1, IDS - 1};
    float row[2][DIM];
    ps_node one = {.job = j};

    for (int i = 0; i < 2 * DIM; i++)
        row[i / DIM][i % DIM] = 5;
    open_job(&one, &o);
    one.s.e = fleet_executor_create(one.s.p, NULL);
    CHECK_OK(fleet_table_set(one.s.f, "t", key, 2, DIM, row[0], NULL));
    CHECK_OK(save_model(&one, model_path));
    fleet_executor_destroy(one.s.e);
    fleet_destroy(one.s.f);
}

TEST(a_predictor_follows_while_it_scores)
{
    ps_job j = {
        .workers = 1, .lanes = 2, .open = open_job, .work = train_and_save};
    pid_t pid;
    int status;

    model_path = test_path("model");
    end_path = test_path("end");
    save_first_model(&j);
    ps_prepare(&j);
    pid = start_follower(&j);
    for (int i = 0; i < j.n_node; i++)
        ps_start(&j.node[i]);
    ps_check_all_end(&j);
    CHECK(test_ends_within(pid, 20000 * TEST_SLOWNESS));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
