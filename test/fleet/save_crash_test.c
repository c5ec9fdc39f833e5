/* save_crash_test.c - saves: whatever a crash of the machine leaves of one that
 * replaces another, what loads is the old one or the new one, to the bit. */
#define SUITE save_crash
#include "disk_kit.h"
#include "model_kit.h"
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
