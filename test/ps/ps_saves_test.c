/* ps_saves_test.c - saves of jobs with servers: written by any number of
 * servers, loaded by any other number and by one process, and training goes on
 * as if nothing had been. What fails leaves nothing and is named. */
#define SUITE ps_saves
#include "ps_kit.h"
#include "test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* A pass, a save at job->user, and no more: the hash is that of the save. */
static fleet_status train_and_save(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    return ps_end(n);
}

static ps_job job_of_two(int servers, int lanes)
{
    return (ps_job){.servers = servers,
                    .workers = 2,
                    .lanes = lanes,
                    .how = {.optimizer = "adam", .l2_decay = 0.01f},
                    .file = {scene_file("a.txt", 300, 1)}};
}

/* What two passes give, and one. */
typedef struct wanted {
    uint64_t one, two;
} wanted;

static wanted wanted_of(const ps_job *j)
{
    ps_job copy = *j;
    wanted w;

    copy.passes = 1;
    w.one = ps_alone(&copy, 2);
    copy.passes = 2;
    w.two = ps_alone(&copy, 2);
    CHECK(w.one != w.two);
    return w;
}

static fleet_status load_and_hash(ps_node *n)
{
    FL_TRY(ps_begin(n));
    return ps_end(n);
}

/* By workers and by servers; a pass afterwards is the second one. */
static void check_loads(const char *path, const wanted *w)
{
    static const int shape[][2] = {{1, 1}, {2, 1}, {3, 2}};

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        ps_job j = job_of_two(shape[i][0], shape[i][1]);

        j.load = path;
        CHECK(ps_hash(&j) == w->two);
        j.work = load_and_hash;
        CHECK(ps_hash(&j) == w->one);
        j.load = NULL;
        j.server_load = path;
        CHECK(ps_hash(&j) == w->one);
        j.work = NULL;
        CHECK(ps_hash(&j) == w->two);
    }
}

static void check_loads_alone(const char *path, const wanted *w)
{
    ps_job j = job_of_two(1, 1);

    j.load = path;
    CHECK(ps_alone(&j, 2) == w->two);
}

TEST(a_save_of_any_servers_is_loaded_by_any_others)
{
    static const int shape[][2] = {{1, 1}, {1, 3}, {2, 2}, {3, 1}};

    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        ps_job j = job_of_two(shape[i][0], shape[i][1]);
        wanted w = wanted_of(&j);
        char name[20];

        snprintf(name, sizeof name, "save-%zu", i);
        j.work = train_and_save;
        j.user = (void *)test_path(name);
        CHECK(ps_hash(&j) == w.one);
        check_loads(j.user, &w);
        check_loads_alone(j.user, &w);
    }
}

TEST(a_save_of_one_process_is_loaded_by_servers)
{
    ps_job j = job_of_two(1, 1);
    wanted w = wanted_of(&j);
    fleet_options o = {.seed = 5, .num_threads = 1};
    const char *path = test_path("save");
    scene s;

    j.how.merge = 2;
    scene_open_as(&s, &o, &j.how);
    scene_data(&s, j.file[0], PS_BATCH, 1, 0);
    scene_train(&s, 1);
    CHECK_OK(fleet_save_persistables(s.f, path));
    scene_close(&s);
    check_loads(path, &w);
}

/* Worker 0 loads in the midst of the job what was saved in it: back to the
 * first pass's end. */
static fleet_status go_back(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    FL_TRY(fleet_save_persistables(n->s.f, n->job->user));
    FL_TRY(ps_passes(n, 2));
    FL_TRY(fleet_load_model(n->s.f, n->job->user));
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

TEST(a_job_goes_back_to_its_own_save)
{
    ps_job j = job_of_two(2, 2);
    wanted w = wanted_of(&j);

    j.work = go_back;
    j.user = (void *)test_path("save");
    CHECK(ps_hash(&j) == w.two);
}

TEST(an_async_job_saves_and_loads)
{
    ps_job j = job_of_two(2, 2);
    uint64_t hash;

    j.how.a_sync = true;
    j.work = train_and_save;
    j.user = (void *)test_path("save");
    hash = ps_hash(&j);
    j.servers = 3;
    j.load = j.user;
    j.work = load_and_hash;
    CHECK(ps_hash(&j) == hash);
}

/* --- inference models ----------------------------------------------------- */

enum { N = 12 };

typedef struct score {
    float dense[N * 3], out[2][N];
    int64_t u[N], v[N], w[2 * N], offsets[N + 1];
} score;

static int feeds_of(score *b, int64_t dims[2][2], fleet_feed *feed)
{
    for (int i = 0; i < N; i++) {
        b->u[i] = i * 5 % 60;
        b->v[i] = i;
        b->offsets[i + 1] = b->offsets[i] + i % 3;
        for (int k = 0; k < 3; k++)
            b->dense[i * 3 + k] = (float)((i * 3 + k) % 7) / 7;
    }
    for (int i = 0; i < 2 * N; i++)
        b->w[i] = i * 17 % 320;
    dims[0][0] = dims[1][0] = N;
    dims[0][1] = 3;
    dims[1][1] = 1;
    feed[0] = (fleet_feed){"dense", FLEET_FLOAT32, b->dense, dims[0], 2, NULL};
    feed[1] = (fleet_feed){"u", FLEET_INT64, b->u, dims[1], 2, NULL};
    feed[2] = (fleet_feed){"v", FLEET_INT64, b->v, dims[1], 2, NULL};
    feed[3] = (fleet_feed){"w", FLEET_INT64, b->w, dims[1], 1, b->offsets};
    return 4;
}

static fleet_status save_model(scene *s, const char *path)
{
    fleet_var *feed[] = {
        fleet_program_var(s->p, "dense"), fleet_program_var(s->p, "u"),
        fleet_program_var(s->p, "v"), fleet_program_var(s->p, "w")};

    return fleet_save_inference_model(s->f, path, feed, 4, &s->m.prediction, 1);
}

static fleet_status score_with_executor(scene *s, score *b)
{
    fleet_fetch fetch = {
        .var = s->m.prediction, .data = b->out[0], .size = sizeof b->out[0]};
    fleet_feed feed[4];
    int64_t dims[2][2];

    s->tester =
        fleet_executor_create(s->p, &(fleet_executor_options){.for_test = 1});
    CHECK(s->tester);
    return fleet_executor_run(s->tester, feed, feeds_of(b, dims, feed), &fetch,
                              1);
}

static void score_with_predictor(const char *path, score *b)
{
    fleet_predictor *p = fleet_load_inference_model(path);
    void *out[] = {b->out[1]};
    size_t size[] = {sizeof b->out[1]};
    fleet_feed feed[4];
    int64_t dims[2][2];

    if (!p)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    CHECK_OK(
        fleet_predictor_run(p, feed, feeds_of(b, dims, feed), out, size, 1));
    fleet_predictor_destroy(p);
}

static score scores;

static fleet_status train_and_publish(ps_node *n)
{
    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 2));
    if (n->index == 0)
        FL_TRY(score_with_executor(&n->s, &scores));
    FL_TRY(save_model(&n->s, n->job->user));
    return ps_end(n);
}

TEST(an_inference_model_scores_as_the_job_did)
{
    for (int servers = 1; servers <= 3; servers++)
        for (int a_sync = 0; a_sync < 2; a_sync++) {
            ps_job j = job_of_two(servers, 2);

            j.how.a_sync = a_sync;
            j.work = train_and_publish;
            j.user = (void *)test_path("model");
            memset(&scores, 0, sizeof scores);
            ps_hash(&j);
            CHECK(scores.out[0][0] > 0);
            score_with_predictor(j.user, &scores);
            CHECK(memcmp(scores.out[0], scores.out[1], sizeof scores.out[0]) ==
                  0);
        }
}

/* --- what fails ----------------------------------------------------------- */

static int entries_of(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    CHECK(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Worker 0's save fails, its words are kept, and training goes on. */
static fleet_status fail_to_save(ps_node *n)
{
    fleet_status status;

    FL_TRY(ps_begin(n));
    FL_TRY(ps_passes(n, 1));
    status = fleet_save_persistables(n->s.f, n->job->user);
    n->number[0] = status;
    snprintf(n->error, sizeof n->error, "%s",
             status == FLEET_OK ? "" : fleet_last_error());
    FL_TRY(ps_passes(n, 1));
    return ps_end(n);
}

static void check_save_fails(ps_job *j, const wanted *w, fleet_status code,
                             const char *words)
{
    j->work = fail_to_save;
    CHECK(ps_hash(j) == w->two);
    CHECK_INT(ps_worker(j, 0)->number[0], code);
    CHECK_INT(ps_worker(j, 1)->number[0], FLEET_OK);
    CHECK_CONTAINS(ps_worker(j, 0)->error, words);
}

TEST(a_save_that_cannot_be_written_leaves_nothing_and_training_goes_on)
{
    ps_job j = job_of_two(2, 2);
    wanted w = wanted_of(&j);
    const char *folder = test_path("full");
    char path[300];

    CHECK(mkdir(folder, 0700) == 0);
    snprintf(path, sizeof path, "%s/there/save", folder);
    j.user = path;
    check_save_fails(&j, &w, FLEET_EIO, "there");
    CHECK_INT(entries_of(folder), 0);
    snprintf(path, sizeof path, "%s/mine", folder);
    CHECK(mkdir(path, 0700) == 0);
    test_file("full/mine/letter", "dear");
    check_save_fails(&j, &w, FLEET_EEXIST, "mine");
    CHECK_INT(entries_of(folder), 1);
    CHECK_INT(entries_of(path), 1);
}

static fleet_status load_in_the_job(ps_node *n)
{
    fleet_status status;

    FL_TRY(ps_begin(n));
    status = fleet_load_model(n->s.f, n->job->user);
    n->number[0] = status;
    snprintf(n->error, sizeof n->error, "%s", fleet_last_error());
    return ps_end(n);
}

/* Flip a byte in the midst of the largest part. */
static void damage(const char *folder, char *name)
{
    DIR *d = opendir(folder);
    char path[600];
    long most = 0;
    FILE *f;

    CHECK(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        struct stat s;

        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strncmp(e->d_name, "part-", 5) == 0 && stat(path, &s) == 0 &&
            s.st_size > most) {
            most = s.st_size;
            strcpy(name, e->d_name);
        }
    }
    closedir(d);
    CHECK(most > 0);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "r+");
    CHECK(f && fseek(f, most / 2, SEEK_SET) == 0);
    most = fgetc(f) ^ 64;
    CHECK(fseek(f, -1, SEEK_CUR) == 0 && fputc((int)most, f) != EOF);
    fclose(f);
}

/* By workers before and after they have begun, by servers, by one process. */
TEST(a_damaged_part_is_refused_by_name_on_all_sides)
{
    ps_job j = job_of_two(2, 2), alone;
    fleet_options o = {.seed = 5, .num_threads = 1};
    char name[300] = "";
    scene s;

    j.work = train_and_save;
    j.user = (void *)test_path("save");
    ps_hash(&j);
    damage(j.user, name);
    scene_open_as(&s, &o, &j.how);
    CHECK_FAILS(fleet_load_model(s.f, j.user), FLEET_ECORRUPT, name);
    scene_close(&s);

    alone = j;
    alone.work = NULL;
    alone.connect_ms = 300;
    alone.server_load = j.user;
    ps_run(&alone);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ps_server(&alone, i)->status, FLEET_ECORRUPT);
        CHECK_CONTAINS(ps_server(&alone, i)->error, name);
        CHECK_CONTAINS(ps_worker(&alone, i)->error,
                       "fleet_init_worker: server ");
        CHECK_CONTAINS(ps_worker(&alone, i)->error, name);
    }
    alone = j; /* nothing is changed: the job goes on */
    alone.work = load_in_the_job;
    ps_hash(&alone);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ps_worker(&alone, i)->number[0], FLEET_ECORRUPT);
        CHECK_CONTAINS(ps_worker(&alone, i)->error, name);
    }
}

static fleet_status worker_1_alone_loads(ps_node *n)
{
    if (n->index == 1)
        CHECK_OK(fleet_load_model(n->s.f, n->job->user));
    return fleet_init_worker(n->s.f);
}

TEST(a_load_that_worker_0_does_not_take_part_in_is_refused_by_all)
{
    ps_job j = job_of_two(2, 1), alone = j;

    j.work = train_and_save;
    j.user = alone.user = (void *)test_path("save");
    ps_hash(&j);
    alone.work = worker_1_alone_loads;
    ps_run(&alone);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ps_worker(&alone, i)->status, FLEET_EINVAL);
        CHECK_CONTAINS(ps_worker(&alone, i)->error,
                       "fleet_init_worker: 1 of 2 workers called "
                       "fleet_load_model() before it, but not worker 0");
    }
}

TEST(a_load_that_is_not_there_is_named_by_all)
{
    ps_job j = job_of_two(2, 1);

    j.load = test_path("nowhere");
    j.connect_ms = 300;
    ps_run(&j);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(ps_worker(&j, i)->status, FLEET_ENOENT);
        CHECK_CONTAINS(ps_worker(&j, i)->error, "nowhere");
        CHECK_INT(ps_server(&j, i)->status, FLEET_ETIMEDOUT);
    }
}
