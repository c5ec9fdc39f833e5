/* save_chain_test.c - saves of which each has what has changed since the one
 * before: they load as whole ones do, to the bit, also with rows that went, of
 * servers and of ranks; a link that is missing or damaged is named; a crash
 * leaves what loads. */
#define SUITE save_chain
#include "disk_kit.h"
#include "grown_kit.h"
#include "launch_kit.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/hash.h"
#include "base/memory.h"
#include "fleet/job/handle.h"
#include "fleet/save/load_chain.h"
#include "fleet/train/save_every.h"
#include "runtime/store/key_log.h"
#include "runtime/store/snapshot.h"

/* Beside each save of a chain a whole one, for what a load should give. */
static fleet_status save_both(void *user, fleet *f, const char *path)
{
    int *n = user;
    char whole[40];

    FL_TRY(fleet_save_persistables(f, path));
    snprintf(whole, sizeof whole, "whole-%d", ++*n);
    return fleet_save_persistables(f, test_path(whole));
}

typedef struct chain {
    fleet_save_every every;
    int n; /* saves */
} chain;

static void chain_begin(chain *c, int incremental)
{
    *c = (chain){.every = {.folder = test_path("all"),
                           .keep = 100,
                           .incremental = incremental,
                           .save = save_both}};
    c->every.user = &c->n;
}

static void chain_save(chain *c, fleet *f)
{
    c->every.user = &c->n;
    CHECK_OK(fl_save_every_write(&c->every, f));
}

static const char *link_path(int i)
{
    char name[60];

    snprintf(name, sizeof name, "all/checkpoint-%06d", i);
    return test_path(name);
}

static const char *whole_path(int i)
{
    char name[60];

    snprintf(name, sizeof name, "whole-%d", i);
    return test_path(name);
}

static char *manifest_of(const char *path)
{
    char *file = fl_path_join(path, "manifest.json"), *text = NULL;
    size_t size;

    CHECK_OK(fl_file_read(file, &text, &size));
    fl_free(file);
    return text;
}

static fleet_status count_one(void *arg, const char *folder)
{
    int *n = arg;

    (void)folder;
    ++*n;
    return FLEET_OK;
}

/* To how many saves it adds. */
static int links_of(int i)
{
    int n = 0;

    CHECK_OK(fl_chain_names(link_path(i), count_one, &n));
    return n;
}

/* What a process has that has loaded it, as a save: its manifest has the hashes
 * of all. */
static char *loaded(const grown_how *how, const char *path,
                    const fleet_load_options *o)
{
    const char *again = test_path("again");
    char *text;
    grown g;

    grown_open(&g, how);
    if (o && o->keep_rows)
        grown_train_keys(&g, 0, 50);
    CHECK_OK(fleet_load_model_with(g.f, path, o));
    CHECK_OK(fleet_save_persistables(g.f, again));
    text = manifest_of(again);
    grown_close(&g);
    return text;
}

static void check_as_whole(const grown_how *how, int i,
                           const fleet_load_options *o)
{
    char *want = loaded(how, whole_path(i), o),
         *got = loaded(how, link_path(i), o);

    CHECK_TEXT(got, want);
    fl_free(got);
    fl_free(want);
}

static void check_all(const chain *c, const grown_how *how)
{
    const fleet_load_options keeps = {.keep_rows = 1}, restart = {.restart = 1};

    for (int i = 1; i <= c->n; i++) {
        check_as_whole(how, i, NULL);
        check_as_whole(how, i, &keeps);
        check_as_whole(how, i, &restart);
    }
}

static int64_t bytes_of(const char *path)
{
    fl_saved s = {.n_link = 0};
    fl_at root, list;
    int64_t sum = 0;
    char *text = manifest_of(path);

    CHECK_OK(fl_json_parse(text, strlen(text), "manifest", &s.manifest));
    root = fl_at_root(s.manifest);
    list = fl_at_key(&root, "parts");
    for (fl_at e = fl_at_first(&list); e.json; fl_at_next(&list, &e)) {
        fl_at at = fl_at_key(&e, "size");
        int64_t size = 0;

        CHECK_OK(fl_at_int(&at, 0, INT64_MAX, &size));
        sum += size;
    }
    fl_json_free(s.manifest);
    fl_free(text);
    return sum;
}

/* --- one process ---------------------------------------------------------- */

TEST(saves_of_what_has_changed_load_as_whole_ones)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    chain c;
    grown g;

    chain_begin(&c, 100);
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 2000);
    chain_save(&c, g.f);
    grown_train_keys(&g, 500, 20);
    chain_save(&c, g.f);
    grown_train_keys(&g, 1990, 20); /* some of them are new */
    chain_save(&c, g.f);
    chain_save(&c, g.f); /* nothing has changed */
    CHECK_INT(links_of(1), 0);
    CHECK_INT(links_of(4), 3);
    CHECK(bytes_of(link_path(2)) * 10 < bytes_of(link_path(1)));
    CHECK(bytes_of(link_path(3)) * 10 < bytes_of(link_path(1)));
    check_all(&c, &how);
    grown_close(&g);
}

/* Rows that go as others come, and by their age; keys that wait to be rows. */
static void try_life(fleet_table_options life)
{
    const grown_how how = {
        .optimizer = "adagrad", .life = life, .options = {.seed = 7}};
    chain c;
    grown g;

    chain_begin(&c, 100);
    grown_open(&g, &how);
    for (int i = 0; i < 6; i++) {
        grown_train_keys(&g, 0, 3000);
        if (i < 3)
            continue;
        grown_train_keys(&g, 3000 * (i - 2), 300);
        grown_train_keys(&g, 10 * i, 10);
        if (i == 4)
            CHECK_OK(fleet_shrink(g.f, NULL));
        chain_save(&c, g.f);
    }
    for (int i = 0; i < 3; i++) {
        grown_train_keys(&g, 0, 40);
        chain_save(&c, g.f);
    }
    CHECK(links_of(c.n) > 1);
    check_all(&c, &how);
    grown_close(&g);
}

TEST(rows_that_go_are_gone_in_what_is_loaded)
{
    try_life((fleet_table_options){.most_rows = 2600});
}

TEST(rows_that_are_too_old_are_gone_in_what_is_loaded)
{
    try_life((fleet_table_options){.ttl_updates = 2});
}

TEST(keys_that_wait_to_be_rows_are_in_it)
{
    try_life((fleet_table_options){
        .entry = {.kind = FLEET_COUNT_FILTER_ENTRY, .count = 3}});
}

TEST(so_are_shows_and_clicks)
{
    try_life((fleet_table_options){.accessor = {.kind = FLEET_CTR_ACCESSOR}});
}

TEST(what_no_update_says_has_the_next_save_be_whole)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    chain c;
    grown g;

    chain_begin(&c, 100);
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 500);
    chain_save(&c, g.f);
    grown_train_keys(&g, 0, 5);
    chain_save(&c, g.f);
    CHECK_INT(links_of(2), 1);
    CHECK_OK(fleet_load_model(g.f, whole_path(1)));
    chain_save(&c, g.f);
    CHECK_INT(links_of(3), 0);
    grown_train_keys(&g, 0, 5);
    chain_save(&c, g.f);
    CHECK_INT(links_of(4), 1);
    fl_save_remove(link_path(3)); /* somebody tidies up */
    chain_save(&c, g.f);
    CHECK_INT(links_of(5), 0);
    check_as_whole(&how, 2, NULL);
    check_as_whole(&how, 5, NULL);
    grown_close(&g);
}

/* Small: 64 bytes of keys are soon as many as a base's. */
TEST(a_chain_that_is_long_or_large_begins_anew_and_only_what_is_named_stays)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    chain c;
    grown g;

    chain_begin(&c, 3);
    c.every.keep = 2;
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 500);
    for (int i = 0; i < 6; i++) {
        chain_save(&c, g.f);
        grown_train_keys(&g, i, 2);
    }
    CHECK_INT(links_of(5), 0);
    CHECK_INT(links_of(6), 1);
    for (int i = 1; i <= 4; i++) /* 5 and 6 name none of them */
        CHECK(access(link_path(i), F_OK) != 0);
    grown_train_keys(&g, 0, 500);
    chain_save(&c, g.f); /* as large as the base */
    CHECK_INT(links_of(7), 2);
    CHECK(access(link_path(5), F_OK) == 0); /* named, and more than two */
    grown_train_keys(&g, 0, 5);
    chain_save(&c, g.f);
    CHECK_INT(links_of(8), 0);
    check_as_whole(&how, 8, NULL);
    grown_close(&g);
}

TEST(more_links_than_files_may_be_open_load)
{
    const grown_how how = {.optimizer = "sgd", .options = {.seed = 7}};
    struct rlimit few;
    char *newest = NULL;
    uint64_t before;
    chain c;
    grown g;

    chain_begin(&c, 100);
    c.every.save = NULL;
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 3000);
    for (int i = 0; i < 70; i++) {
        chain_save(&c, g.f);
        grown_train_keys(&g, i, 1);
    }
    chain_save(&c, g.f);
    CHECK_INT(links_of(71), 70);
    before = grown_hash(&g);
    CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK_OK(fleet_newest_checkpoint(c.every.folder, &newest));
    CHECK_TEXT(newest, link_path(71));
    CHECK_OK(fleet_load_model(g.f, newest));
    CHECK_INT(grown_hash(&g), before);
    fleet_free(newest);
    grown_close(&g);
}

TEST(links_are_found_from_a_symbolic_link_and_from_within)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    chain c;
    grown g;

    chain_begin(&c, 100);
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 500);
    chain_save(&c, g.f);
    grown_train_keys(&g, 0, 5);
    chain_save(&c, g.f);
    CHECK(symlink(link_path(2), test_path("newest")) == 0);
    CHECK_OK(fleet_load_model(g.f, test_path("newest")));
    CHECK(chdir(link_path(2)) == 0);
    CHECK_OK(fleet_load_model(g.f, "."));
    grown_close(&g);
}

/* As of a lane that trains on while it saves, and of which so many rows come
 * that the log is given up. */
static fleet_status lose_while_saving(void *user, fleet *f, const char *path)
{
    fl_store *s = f->store;
    fleet_status status;

    (void)user;
    CHECK_OK(fl_snapshot_begin(s, 1, NULL, 0));
    for (size_t i = 0; i < s->tables.n; i++)
        fl_key_log_lose(s->tables.entry[i].value);
    status = fleet_save_persistables(f, path);
    fl_snapshot_end(s);
    return status;
}

TEST(a_log_that_is_lost_while_it_is_saved_has_the_save_be_whole)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    chain c;
    grown g;

    chain_begin(&c, 100);
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 500);
    chain_save(&c, g.f);
    grown_train_keys(&g, 0, 5);
    c.every.save = lose_while_saving;
    chain_save(&c, g.f);
    CHECK_INT(links_of(2), 0);
    CHECK_OK(fleet_load_model(g.f, link_path(2)));
    grown_close(&g);
}

/* Of a disk that stays full. */
TEST(a_log_does_not_grow_on_where_saves_fail)
{
    const grown_how how = {.optimizer = "sgd", .options = {.seed = 7}};
    const fl_rows *r;
    uint64_t since;
    grown g;

    grown_open(&g, &how);
    grown_train_keys(&g, 0, 10);
    r = fl_store_rows(g.f->store, "t");
    CHECK_OK(fl_key_log_begin((fl_rows *)(uintptr_t)r));
    fl_key_log_saved(r, 5, 1);
    CHECK(fl_key_log_knows(r, 5, &since));
    for (int i = 0; i < 10; i++) {
        for (uint64_t key = 0; key < 8 * 7000; key++)
            fl_key_log_add(r->keys, key);
        fl_key_log_freeze(r);
    }
    CHECK(!fl_key_log_knows(r, 5, &since));
    grown_close(&g);
}

/* --- damage --------------------------------------------------------------- */

/* Three saves, 1 with all, and a handle that can load them. */
static void three_links(chain *c, const grown_how *how, grown *g)
{
    chain_begin(c, 100);
    grown_open(g, how);
    grown_train_keys(g, 0, 300);
    chain_save(c, g->f);
    grown_train_keys(g, 0, 5);
    chain_save(c, g->f);
    grown_train_keys(g, 298, 5);
    chain_save(c, g->f);
}

static void flip_byte(const char *path, const char *file)
{
    char *name = fl_path_join(path, file), byte = 0;
    int fd = open(name, O_RDWR);

    CHECK(fd >= 0 && pread(fd, &byte, 1, 40) == 1);
    byte ^= 4;
    CHECK(pwrite(fd, &byte, 1, 40) == 1);
    close(fd);
    fl_free(name);
}

TEST(a_link_that_is_damaged_or_missing_is_named_and_passed_over)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    char *newest = NULL;
    uint64_t before;
    chain c;
    grown g;

    three_links(&c, &how, &g);
    before = grown_hash(&g);
    flip_byte(link_path(2), "part-00000");
    CHECK_FAILS(fleet_load_model(g.f, link_path(3)), FLEET_ECORRUPT,
                "checkpoint-000002/part-00000: damaged");
    CHECK_OK(fleet_newest_checkpoint(c.every.folder, &newest));
    CHECK_TEXT(newest, link_path(1));
    fleet_free(newest);
    flip_byte(link_path(2), "part-00000");
    CHECK_OK(fleet_load_model(g.f, link_path(3)));
    CHECK_INT(grown_hash(&g), before);
    fl_save_remove(link_path(2));
    CHECK_FAILS(fleet_load_model(g.f, link_path(3)), FLEET_ECORRUPT,
                "link 2 of 2, \"checkpoint-000002\"");
    CHECK_OK(fleet_save_persistables(g.f, link_path(2)));
    CHECK_FAILS(fleet_load_model(g.f, link_path(3)), FLEET_ECORRUPT,
                "another save has taken its place");
    fl_save_remove(link_path(1));
    CHECK_FAILS(fleet_load_model(g.f, link_path(3)), FLEET_ECORRUPT,
                "link 1 of 2, \"checkpoint-000001\"");
    CHECK_INT(grown_hash(&g), before);
    grown_close(&g);
}

static void replace_file(const char *path, const char *name, const char *text)
{
    char *file = fl_path_join(path, name);

    CHECK(unlink(file) == 0);
    fl_free(file);
    CHECK_OK(fl_file_write(path, name, text, strlen(text), NULL));
}

/* The save's manifest now says that it adds to that of the other path. */
static void put_chain(const char *path, const char *to, const char *name)
{
    char *text = manifest_of(path), *other = manifest_of(to), sum[20];
    char *version = strstr(text, "\"version\""), *end = strchr(version, ',');
    const size_t size = strlen(text) + 200;
    char *fresh = malloc(size);

    snprintf(fresh, size,
             "%.*s\"version\": 2, \"chain\": [{\"folder\": \"%s\", "
             "\"xxh64\": \"%016llx\"}]%s",
             (int)(version - text), text, name,
             (unsigned long long)fl_hash(other, strlen(other), 0), end);
    snprintf(sum, sizeof sum, "%016llx\n",
             (unsigned long long)fl_hash(fresh, strlen(fresh), 0));
    replace_file(path, "manifest.json", fresh);
    replace_file(path, "manifest.xxh64", sum);
    free(fresh);
    fl_free(text);
    fl_free(other);
}

static void save_without_tables(const char *path)
{
    const fleet_param_attr a = {.name = "w"};
    fleet_program *p;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    p = fleet_program_create(f);
    CHECK_OK(fleet_minimize(
        fleet_sgd(f, 0.1f),
        fleet_mean(
            p, fleet_square(p, fleet_parameter(p, (int64_t[]){3}, 1, &a)))));
    CHECK_OK(fleet_save_persistables(f, path));
    fleet_destroy(f);
}

TEST(a_chain_that_cannot_be_is_refused)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    chain c;
    grown g;

    three_links(&c, &how, &g);
    CHECK_OK(fleet_save_persistables(g.f, link_path(4)));
    put_chain(link_path(4), link_path(3), "checkpoint-000003");
    CHECK_FAILS(fleet_load_model(g.f, link_path(4)), FLEET_ECORRUPT,
                "it has not all rows");
    save_without_tables(link_path(5));
    put_chain(link_path(5), link_path(1), "checkpoint-000001");
    CHECK_FAILS(fleet_load_model(g.f, link_path(5)), FLEET_ECORRUPT,
                "it has 1 tables, and the save that adds to it has 0");
    grown_close(&g);
}

/* --- crashes -------------------------------------------------------------- */

typedef struct crash {
    grown g;
    uint64_t old, fresh;
    int n_old, n_fresh;
} crash;

static void load_newest(void *arg, const char *path)
{
    crash *l = arg;
    char *newest = NULL;
    uint64_t hash;

    CHECK(path != NULL);
    CHECK_OK(fleet_newest_checkpoint(path, &newest));
    CHECK_OK(fleet_load_model(l->g.f, newest));
    fleet_free(newest);
    hash = grown_hash(&l->g);
    CHECK(hash == l->old || hash == l->fresh);
    l->n_old += hash == l->old;
    l->n_fresh += hash == l->fresh;
}

/* A link more, and one with which a chain begins anew and another one goes. */
static void crash_at_each_call(int saves)
{
    const grown_how how = {.optimizer = "sgd", .options = {.seed = 7}};
    crash during = {.n_old = 0}, after;
    fleet_save_every every = {
        .folder = test_path("disk/all"), .keep = 1, .incremental = 2};
    grown g;
    int n;

    CHECK(mkdir(test_path("disk"), 0755) == 0);
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 100);
    for (int i = 0; i < saves; i++) {
        CHECK_OK(fl_save_every_write(&every, g.f));
        during.old = grown_hash(&g);
        grown_train_keys(&g, i, 2);
    }
    during.fresh = grown_hash(&g);
    disk_record(test_path("disk"));
    CHECK_OK(fl_save_every_write(&every, g.f));
    n = disk_recorded();
    grown_open(&during.g, &how);
    after = during;
    disk_each_crash("all", 0, n, load_newest, &during);
    CHECK(during.n_old > 0 && during.n_fresh > 0);
    disk_each_crash("all", n, n, load_newest, &after);
    CHECK(after.n_old == 0 && after.n_fresh > 0);
    grown_close(&during.g);
    grown_close(&g);
}

TEST(after_a_crash_at_any_time_the_old_chain_or_the_longer_one_loads)
{
    crash_at_each_call(2);
}

TEST(after_a_crash_at_any_time_the_old_chain_or_the_new_base_loads)
{
    crash_at_each_call(3);
}

/* --- memory --------------------------------------------------------------- */

/* Each failing save is followed by one that succeeds; the last has all. */
TEST(a_save_that_memory_runs_out_of_ends_the_chain_and_nothing_else)
{
    const grown_how how = {.optimizer = "adam", .options = {.seed = 7}};
    const char *whole = test_path("whole");
    char *newest = NULL, *got, *want;
    bool reached = true;
    int failed = 0;
    chain c;
    grown g;

    chain_begin(&c, 100);
    c.every.save = NULL;
    grown_open(&g, &how);
    grown_train_keys(&g, 0, 300);
    for (int n = 1; reached; n += 17) {
        fleet_status status;

        CHECK_OK(fl_save_every_write(&c.every, g.f));
        grown_train_keys(&g, n, 3);
        fl_memory_fail_at(n, false);
        status = fl_save_every_write(&c.every, g.f);
        reached = fl_memory_count() >= n;
        fl_memory_fail_at(0, false);
        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
        failed += status == FLEET_ENOMEM;
    }
    CHECK(failed > 10);
    CHECK_OK(fleet_save_persistables(g.f, whole));
    grown_close(&g);
    CHECK_OK(fleet_newest_checkpoint(c.every.folder, &newest));
    want = loaded(&how, whole, NULL);
    got = loaded(&how, newest, NULL);
    CHECK_TEXT(got, want);
    fl_free(got);
    fl_free(want);
    fleet_free(newest);
}

/* --- servers and ranks ---------------------------------------------------- */

static chain job_chain;

/* Two links more than the base. In a job all have the same keys. */
static void train_and_save(grown *g, bool saves)
{
    static const int64_t first[] = {0, 100, 790};

    for (int i = 0; i < 3; i++) {
        grown_train_keys(g, first[i], i == 0 ? 800 : 20);
        if (saves)
            chain_save(&job_chain, g->f);
    }
}

static fleet_status save_on_servers(ps_node *n)
{
    grown g = {n->s.f, n->s.p, NULL};

    FL_TRY(ps_begin(n));
    g.e = n->s.e;
    train_and_save(&g, true);
    CHECK_OK(fleet_load_model(g.f, whole_path(2)));
    chain_save(&job_chain, g.f); /* lanes do not know */
    chain_save(&job_chain, g.f);
    return ps_end(n);
}

static void try_servers(bool a_sync)
{
    grown_how how = {
        .optimizer = "adam", .a_sync = a_sync, .options = {.seed = 1}};
    ps_job j = {.servers = 2,
                .lanes = 2,
                .work = save_on_servers,
                .open = grown_open_node,
                .user = &how};

    chain_begin(&job_chain, 100);
    ps_run(&j);
    ps_check(&j);
    CHECK_INT(links_of(3), 2);
    CHECK_INT(links_of(4), 0);
    CHECK_INT(links_of(5), 1);
    how.a_sync = false; /* what loads is one process */
    for (int i = 1; i <= 5; i++)
        check_as_whole(&how, i, NULL);
}

TEST(lanes_of_servers_write_what_has_changed_of_theirs)
{
    try_servers(false);
}

TEST(so_do_lanes_that_train_on)
{
    try_servers(true);
}

/* This program is a rank, or a server beside them, if it is told so. */
__attribute__((constructor)) static void be_a_rank(void)
{
    const char *what = getenv("TEST_CHAIN_RANK");
    grown_how how = {.optimizer = "adam", .is_collective = true};
    fleet_status status;
    grown g = {0};

    if (!what)
        return;
    test_ends_process = true;
    how.ps = strcmp(what, "both") == 0 ? FLEET_PS_RANKS : FLEET_PS_BY_MODE;
    how.larger = how.ps == FLEET_PS_RANKS; /* "more" is on the server */
    status = fleet_init(&g.f, NULL);
    if (status == FLEET_OK)
        grown_build(g.f, &g.p, &how);
    if (status == FLEET_OK && fleet_is_server(g.f))
        status = fleet_run_server(g.f);
    else if (status == FLEET_OK)
        status = fleet_init_worker(g.f);
    if (status == FLEET_OK && !fleet_is_server(g.f)) {
        g.e = fleet_executor_create(g.p, NULL);
        chain_begin(&job_chain, 100);
        job_chain.every.folder = getenv("TEST_CHAIN_FOLDER");
        job_chain.every.save = NULL;
        train_and_save(&g, true);
        if (fleet_worker_index(g.f) == 0)
            status = fleet_save_persistables(g.f, getenv("TEST_CHAIN_WHOLE"));
        if (status == FLEET_OK)
            status = fleet_stop_worker(g.f);
    }
    fprintf(stderr, "%s\n", status == FLEET_OK ? "fine" : fleet_last_error());
    grown_close(&g);
    exit(status == FLEET_OK ? 0 : 3);
}

static void try_ranks(const char *what, const char *options)
{
    const grown_how how = {.optimizer = "adam",
                           .larger = strcmp(what, "both") == 0,
                           .options = {.seed = 1}};
    char *want, *got;

    launch_need_mpirun();
    setenv("TEST_CHAIN_RANK", what, 1);
    setenv("TEST_CHAIN_FOLDER", test_path("all"), 1);
    setenv("TEST_CHAIN_WHOLE", test_path("whole-3"), 1);
    setenv("SELF", test_program(), 1);
    launch_deadline_ms = 60000;
    CHECK_INT(launch_run(options, "exec $SELF"), 0);
    CHECK_CONTAINS(launch_log("workerlog.0"), "fine");
    CHECK_INT(links_of(3), 2);
    CHECK(bytes_of(link_path(3)) * 4 < bytes_of(link_path(1)));
    want = loaded(&how, whole_path(3), NULL);
    got = loaded(&how, link_path(3), NULL);
    CHECK_TEXT(got, want);
    fl_free(want);
    fl_free(got);
}

TEST_LIMIT(ranks_write_what_has_changed_of_the_rows_that_they_share_out, 90)
{
    try_ranks("ranks", "--nproc_per_node 2 --grace 50");
}

TEST_LIMIT(so_do_ranks_and_servers_of_one_job, 90)
{
    try_ranks("both", "--server_num 1 --worker_num 2 --collective --grace 50");
}
