/* save_crash_test.c - saves: whatever a crash of the machine leaves of one that
 * replaces another, what loads is the old one or the new one, to the bit. */
#define SUITE save_crash
#include "disk_kit.h"
#include "model_kit.h"
#include "ps_kit.h"
#include "test.h"

#include <sys/stat.h>

typedef struct loader {
    scene s;
    uint64_t old, fresh; /* hashes of what was saved */
    int n_old, n_fresh;
} loader;

static void load_after_crash(void *arg, const char *path)
{
    loader *l = arg;
    uint64_t hash;

    CHECK(path != NULL); /* at no time is there none */
    CHECK_OK(fleet_load_model(l->s.f, path));
    hash = scene_hash(&l->s);
    CHECK(hash == l->old || hash == l->fresh);
    l->n_old += hash == l->old;
    l->n_fresh += hash == l->fresh;
}

/* --- inference models ----------------------------------------------------- */

static void save_model(scene *s, const char *path)
{
    fleet_var *feed[] = {
        fleet_program_var(s->p, "dense"), fleet_program_var(s->p, "u"),
        fleet_program_var(s->p, "v"), fleet_program_var(s->p, "w")};

    CHECK_OK(
        fleet_save_inference_model(s->f, path, feed, 4, &s->m.prediction, 1));
}

/* What the model says of one sample. */
static float score(const char *path)
{
    float dense[3] = {1, 0.5f, -1}, out = 0;
    int64_t id = 1, offsets[] = {0, 1}, wide[] = {1, 3}, one[] = {1, 1};
    const fleet_feed feed[] = {{"dense", FLEET_FLOAT32, dense, wide, 2, NULL},
                               {"u", FLEET_INT64, &id, one, 2, NULL},
                               {"v", FLEET_INT64, &id, one, 2, NULL},
                               {"w", FLEET_INT64, &id, one, 1, offsets}};
    fleet_predictor *p = fleet_load_inference_model(path);
    size_t size = sizeof out;

    if (!p)
        test_fail(__FILE__, __LINE__, "%s", fleet_last_error());
    CHECK_OK(fleet_predictor_run(p, feed, 4, (void *[]){&out}, &size, 1));
    fleet_predictor_destroy(p);
    return out;
}

typedef struct scorer {
    float old, fresh;
    int n_old, n_fresh;
} scorer;

static void score_after_crash(void *arg, const char *path)
{
    scorer *l = arg;
    float x;

    CHECK(path != NULL);
    x = score(path);
    CHECK(x == l->old || x == l->fresh);
    l->n_old += x == l->old;
    l->n_fresh += x == l->fresh;
}

TEST(after_a_crash_at_any_time_the_old_model_or_the_new_one_scores)
{
    const char *path = test_path("disk/model");
    scorer during = {.n_old = 0}, after;
    scene a;
    int n;

    CHECK(mkdir(test_path("disk"), 0755) == 0);
    scene_trained(&a, "adam", 7);
    save_model(&a, path);
    during.old = score(path);
    scene_train(&a, 1);
    disk_record(test_path("disk"));
    save_model(&a, path);
    n = disk_recorded();
    during.fresh = score(path);
    CHECK(during.old != during.fresh);
    after = during;
    disk_each_crash("model", 0, n, score_after_crash, &during);
    CHECK(during.n_old > 0 && during.n_fresh > 0);
    disk_each_crash("model", n, n, score_after_crash, &after);
    CHECK(after.n_old == 0 && after.n_fresh > 0);
    scene_close(&a);
}

/* --- checkpoints ---------------------------------------------------------- */

TEST(after_a_crash_at_any_time_the_old_save_or_the_new_one_loads)
{
    const char *path = test_path("disk/saved");
    loader during = {.n_old = 0}, after;
    scene a;
    int n;

    CHECK(mkdir(test_path("disk"), 0755) == 0);
    scene_trained(&a, "adam", 7);
    CHECK_OK(fleet_save_persistables(a.f, path));
    during.old = scene_hash(&a);
    scene_train(&a, 1);
    during.fresh = scene_hash(&a);
    CHECK(during.old != during.fresh);

    disk_record(test_path("disk"));
    CHECK_OK(fleet_save_persistables(a.f, path));
    n = disk_recorded();
    scene_open(&during.s, NULL, "adam");
    after = during;
    disk_each_crash("saved", 0, n, load_after_crash, &during);
    CHECK(during.n_old == 1 && during.n_fresh == 1);
    disk_each_crash("saved", n, n, load_after_crash, &after);
    CHECK(after.n_old == 0 && after.n_fresh == 1); /* it has said that it is */
    scene_close(&during.s);
    scene_close(&a);
}

/* --- checkpoints of a job with servers ------------------------------------ */

/* Worker 0 makes the folder, each lane writes its part, worker 0 puts it in its
 * place. */
typedef struct job_save {
    loader during;
    const char *path;
    int calls;
} job_save;

static fleet_status save_twice(ps_node *n)
{
    job_save *s = n->job->user;

    CHECK_OK(ps_begin(n));
    CHECK_OK(ps_passes(n, 1));
    CHECK_OK(fleet_save_persistables(n->s.f, s->path));
    CHECK_OK(fleet_params_hash(n->s.f, &s->during.old));
    CHECK_OK(ps_passes(n, 1));
    disk_record(test_path("disk"));
    CHECK_OK(fleet_save_persistables(n->s.f, s->path));
    s->calls = disk_recorded();
    CHECK_OK(fleet_params_hash(n->s.f, &s->during.fresh));
    return ps_end(n);
}

TEST(after_a_crash_at_any_time_what_servers_saved_loads)
{
    job_save s = {.path = test_path("disk/saved")};
    ps_job j = {.servers = 1,
                .lanes = 2,
                .work = save_twice,
                .user = &s,
                .file = {scene_file("a.txt", 200, 1)}};
    loader after;

    CHECK(mkdir(test_path("disk"), 0755) == 0);
    ps_run(&j);
    ps_check(&j);
    CHECK(s.during.old != s.during.fresh);
    scene_open(&s.during.s, NULL, "adam");
    after = s.during;
    disk_each_crash("saved", 0, s.calls, load_after_crash, &s.during);
    CHECK(s.during.n_old == 1 && s.during.n_fresh == 1);
    disk_each_crash("saved", s.calls, s.calls, load_after_crash, &after);
    CHECK(after.n_old == 0 && after.n_fresh == 1);
    scene_close(&after.s);
}
