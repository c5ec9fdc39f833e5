/* gpu_ps_next_test.c - GPU-PS: while a pass trains the samples of the next one
 * are read, its ids listed and its rows copied; rows that both need stay on the
 * GPU; and all has the bits of a training whose tables are there as a whole. */
#define SUITE gpu_ps_next
#include "gpu_ps_kit.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "fleet/pass/pass_rows.h"
#include "runtime/store/store.h"

/* Two passes over two files, of which the second is read while the first one
 * trains. What a callback between batches sees of it. */
typedef struct two {
    const ps_case *c;
    scene s;
    fleet_psgpu *g; /* NULL: tables are there as a whole */
    const char *second;
    const char *saved; /* what load_beside() loads */
    bool waits;        /* in the last part, for the next pass; with g */
    int ready;         /* it came to its end */
    int64_t fresh, shared;
} two;

static void open_two(two *t, const ps_case *c)
{
    *t = (two){.c = c, .waits = c->passes};
    t->g = gpu_ps_open(&t->s, c);
    t->second = scene_file("second.txt", GPU_PS_LINES, 2);
}

static void preload(two *t)
{
    CHECK_OK(fleet_dataset_set_filelist(t->s.data, &t->second, 1));
    CHECK_OK(fleet_dataset_preload_into_memory(t->s.data));
}

static void see_next(two *t)
{
    fl_wait limit = fl_wait_for(20000);
    const fleet_psgpu *g = t->g;

    while (!atomic_load(&g->is_over))
        CHECK(fl_wait_left(&limit) > 0);
    t->waits = false;
    t->ready++;
    for (int i = 0; i < g->n_table; i++) {
        t->fresh += g->table[i].next.n_fresh;
        t->shared += g->table[i].next.n_shared;
    }
}

static int read_beside(void *user, int64_t batch, int64_t samples)
{
    two *t = user;

    (void)samples;
    if (batch == 2)
        preload(t);
    if (t->waits && t->g->is_last && t->g->prepares)
        see_next(t);
    return 0;
}

static void train_first(two *t)
{
    const fleet_train_options o = {.on_batch = read_beside, .user = t};

    if (t->c->shuffled)
        CHECK_OK(fleet_dataset_local_shuffle(t->s.data));
    if (t->g)
        CHECK_OK(fleet_psgpu_begin_pass(t->g));
    CHECK_OK(fleet_train_from_dataset(t->s.e, t->s.data, &o, NULL));
    if (t->g)
        CHECK_OK(fleet_psgpu_end_pass(t->g));
}

static void begin_second(two *t)
{
    CHECK_OK(fleet_dataset_wait_preload_done(t->s.data));
    if (t->c->shuffled)
        CHECK_OK(fleet_dataset_local_shuffle(t->s.data));
    if (t->g)
        CHECK_OK(fleet_psgpu_begin_pass(t->g));
}

static void train_second(two *t)
{
    CHECK_OK(fleet_train_from_dataset(t->s.e, t->s.data, NULL, NULL));
    if (t->g)
        CHECK_OK(fleet_psgpu_end_pass(t->g));
}

static uint64_t close_two(two *t)
{
    uint64_t hash;

    if (t->g)
        CHECK_OK(fleet_psgpu_finalize(t->g));
    hash = scene_hash(&t->s);
    scene_close(&t->s);
    return hash;
}

static uint64_t hash_of_whole(ps_case c)
{
    two t;

    c.passes = false;
    c.cap = 0;
    open_two(&t, &c);
    train_first(&t);
    begin_second(&t);
    train_second(&t);
    return close_two(&t);
}

/* --- overlap -------------------------------------------------------------- */

static void overlaps(ps_case c)
{
    two t;

    c.passes = true;
    open_two(&t, &c);
    train_first(&t);
    CHECK_INT(t.ready, 1);
    CHECK(t.fresh > 0 && t.shared > 0);
    CHECK(t.g->next.is_here && !t.g->begun);
    CHECK_FAILS(fleet_psgpu_end_pass(t.g), FLEET_ESTATE, "no pass has begun");
    begin_second(&t);
    CHECK_INT(t.g->part, 1);
    CHECK_INT(t.g->handed_over, t.shared); /* each was trained: it is a row */
    CHECK_INT(t.g->first, 0);
    train_second(&t);
    CHECK(!t.g->next.is_here);
    CHECK(close_two(&t) == hash_of_whole(c));
}

TEST(the_next_pass_is_read_listed_and_staged_while_one_trains)
{
    gpu_kit_open();
    overlaps((ps_case){0});
    overlaps((ps_case){.optimizer = "adam", .merge = 3, .shuffled = true});
    overlaps((ps_case){.cap = 1 << 20});
    gpu_kit_close();
}

TEST(the_first_part_of_the_next_pass_follows_the_last_one_of_this)
{
    const ps_case c = {.memory_bytes = 50000, .shuffled = true};

    gpu_kit_open();
    overlaps(c);
    CHECK(hash_of_whole(c) != hash_of_whole((ps_case){0}));
    gpu_kit_close();
}

/* Passes over the same samples, shuffled before each, or before the first one
 * alone: then the second is guessed to be shuffled again. */
static void train_one_of_three(scene *s, const ps_case *c, fleet_psgpu *g,
                               int pass, bool once)
{
    const bool guessed = pass > 1 || !once || !c->shuffled || !c->memory_bytes;

    if (c->shuffled && (pass == 0 || !once))
        CHECK_OK(fleet_dataset_local_shuffle(s->data));
    if (g) {
        CHECK_OK(fleet_psgpu_begin_pass(g));
        CHECK((g->handed_over > 0) == (pass > 0 && guessed));
        if (pass < 2)
            CHECK_OK(fleet_psgpu_expect_pass(g));
    }
    CHECK_OK(fleet_train_from_dataset(s->e, s->data, NULL, NULL));
    if (g)
        CHECK_OK(fleet_psgpu_end_pass(g));
}

static uint64_t hash_of_three(const ps_case *c, bool once)
{
    uint64_t hash;
    fleet_psgpu *g;
    scene s;

    g = gpu_ps_open(&s, c);
    for (int pass = 0; pass < 3; pass++)
        train_one_of_three(&s, c, g, pass, once);
    if (g) {
        CHECK(!g->next.is_here);
        CHECK_FAILS(fleet_psgpu_expect_pass(g), FLEET_ESTATE,
                    "no pass has begun");
    }
    hash = scene_hash(&s);
    scene_close(&s);
    return hash;
}

TEST(a_pass_over_the_same_samples_that_is_expected_finds_its_rows)
{
    const ps_case cases[] = {
        {.passes = true},
        {.passes = true, .shuffled = true},
        {.passes = true, .shuffled = true, .memory_bytes = 50000}};

    gpu_kit_open();
    for (int i = 0; i < 3; i++)
        for (int once = 0; once < 2; once++) {
            ps_case whole = {.shuffled = cases[i].shuffled};

            CHECK(hash_of_three(&cases[i], once) ==
                  hash_of_three(&whole, once));
        }
    gpu_kit_close();
}

/* The place in the text behind the next event of that name and kind. */
static const char *event(const char *at, const char *name, char kind, int *id)
{
    char words[40];

    snprintf(words, sizeof words, "\"%s\"", name);
    at = strstr(at, words);
    CHECK(at != NULL);
    snprintf(words, sizeof words, "\"ph\":\"%c\"", kind);
    CHECK(strstr(at, words) && strstr(at, words) < strchr(at, '\n'));
    at = strstr(at, "\"id\":");
    *id = (int)(strtoll(at + 5, NULL, 10) & 0xffff);
    return at;
}

/* In the trace's order: events are kept as they happen. */
TEST(a_trace_shows_the_next_pass_within_the_training_of_this)
{
    const char *folder = test_path("trace"), *at;
    const ps_case c = {.passes = true};
    int train, read, prepare, next;
    char *text, file[600];
    size_t size;
    two t;

    gpu_kit_open();
    setenv("FLEET_TRACE", folder, 1);
    open_two(&t, &c);
    train_first(&t);
    begin_second(&t);
    train_second(&t);
    (void)close_two(&t);
    unsetenv("FLEET_TRACE");
    snprintf(file, sizeof file, "%s/worker-0.%d.json", folder, (int)getpid());
    CHECK_OK(fl_file_read(file, &text, &size));
    at = event(text, "pass.train", 'b', &train);
    at = event(at, "pass.read", 'b', &read);
    at = event(at, "pass.read", 'e', &read);
    at = event(at, "pass.prepare", 'b', &prepare);
    at = event(at, "pass.prepare", 'e', &prepare);
    at = event(at, "pass.train", 'e', &next);
    CHECK_INT(next, train);
    CHECK_INT(prepare, read);
    at = event(at, "pass.train", 'b', &next);
    CHECK_INT(next, prepare);
    CHECK(strstr(at, "pass.prepare") == NULL);
    fl_free(text);
    gpu_kit_close();
}

/* --- guesses -------------------------------------------------------------- */

/* The second pass is shuffled and the first one was not, or the other way
 * round. */
static uint64_t hash_of_other_order(const ps_case *c, bool shuffled, bool here)
{
    ps_case first = *c;
    two t;

    first.shuffled = !shuffled;
    open_two(&t, &first);
    train_first(&t);
    first.shuffled = shuffled;
    begin_second(&t);
    if (t.g)
        CHECK((t.g->handed_over > 0) == here);
    train_second(&t);
    return close_two(&t);
}

TEST(a_pass_in_another_order_than_was_expected_begins_as_ever)
{
    const ps_case cut = {.passes = true, .memory_bytes = 50000},
                  fits = {.passes = true}, whole = {0};
    uint64_t hash;

    gpu_kit_open();
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        hash = hash_of_other_order(&whole, shuffled, false);
        CHECK(hash == hash_of_other_order(&cut, shuffled, false));
        CHECK(hash == hash_of_other_order(&fits, shuffled, true));
    }
    gpu_kit_close();
}

/* Other samples than those that were read beside. */
static uint64_t hash_of_other_samples(const ps_case *c)
{
    const char *third = scene_file("third.txt", GPU_PS_LINES, 3);
    two t;

    open_two(&t, c);
    train_first(&t);
    CHECK_OK(fleet_dataset_wait_preload_done(t.s.data));
    CHECK_OK(fleet_dataset_set_filelist(t.s.data, &third, 1));
    CHECK_OK(fleet_dataset_load_into_memory(t.s.data));
    if (t.g) {
        CHECK(t.g->next.is_here);
        CHECK_OK(fleet_psgpu_begin_pass(t.g));
        CHECK_INT(t.g->handed_over, 0);
    }
    train_second(&t);
    return close_two(&t);
}

TEST(a_pass_over_other_samples_than_were_read_begins_as_ever)
{
    const ps_case c = {.passes = true}, whole = {0};
    uint64_t hash;

    gpu_kit_open();
    hash = hash_of_other_samples(&c);
    CHECK(hash == hash_of_other_samples(&whole));
    gpu_kit_close();
}

/* Names that were said between two passes are compared all the same. */
TEST(slots_that_are_said_between_two_passes_are_compared)
{
    static const char *const some[] = {"u", "v"};
    const ps_case c = {.passes = true};
    two t;

    gpu_kit_open();
    open_two(&t, &c);
    train_first(&t);
    CHECK(t.g->next.is_here);
    CHECK_OK(fleet_psgpu_set_slot_vector(t.g, some, 2));
    CHECK_OK(fleet_dataset_wait_preload_done(t.s.data));
    CHECK_FAILS(fleet_psgpu_begin_pass(t.g), FLEET_EINVAL, "\"w\"");
    CHECK_OK(fleet_psgpu_set_slot_vector(t.g, NULL, 0));
    CHECK_OK(fleet_psgpu_begin_pass(t.g));
    train_second(&t);
    CHECK(close_two(&t) == hash_of_whole(c));
    gpu_kit_close();
}

/* --- between two passes --------------------------------------------------- */

static uint64_t hash_with_rows_by_hand(const ps_case *c, uint64_t *between)
{
    const uint64_t key[] = {3, 7000};
    float values[2 * 8];
    two t;

    for (int i = 0; i < 2 * 8; i++)
        values[i] = kit_noise(i, 5);
    open_two(&t, c);
    train_first(&t);
    *between = scene_hash(&t.s);
    CHECK_OK(fleet_table_set(t.s.f, "embedding", key, 2, 8, values, NULL));
    begin_second(&t);
    if (t.g)
        CHECK(t.g->handed_over > 0);
    train_second(&t);
    return close_two(&t);
}

TEST(between_two_passes_rows_are_read_and_written_as_ever)
{
    const ps_case c = {.passes = true}, whole = {0};
    uint64_t hash, between, want;

    gpu_kit_open();
    hash = hash_with_rows_by_hand(&c, &between);
    CHECK(hash == hash_with_rows_by_hand(&whole, &want));
    CHECK(between == want);
    gpu_kit_close();
}

/* A load takes the training back to where it was saved. */
static uint64_t hash_with_load(const ps_case *c)
{
    const char *saved = test_path(c->passes ? "by-pass" : "whole");
    two t;

    open_two(&t, c);
    CHECK_OK(fleet_save_persistables(t.s.f, saved));
    train_first(&t);
    CHECK_OK(fleet_load_model(t.s.f, saved));
    begin_second(&t);
    train_second(&t);
    return close_two(&t);
}

TEST(a_load_between_two_passes_counts)
{
    const ps_case c = {.passes = true, .shuffled = true},
                  whole = {.shuffled = true};
    uint64_t hash;

    gpu_kit_open();
    hash = hash_with_load(&c);
    CHECK(hash == hash_with_load(&whole));
    CHECK(hash != hash_of_whole(whole));
    gpu_kit_close();
}

enum { LOADED_AT = 6 }; /* batch: behind that in which see_next() waits */

static int load_beside(void *user, int64_t batch, int64_t samples)
{
    two *t = user;

    (void)read_beside(t, batch, samples);
    if (batch == LOADED_AT)
        CHECK_OK(fleet_load_model(t->s.f, t->saved));
    return 0;
}

/* Once the next pass's rows have been copied they are others at home. */
static uint64_t hash_with_load_within(const ps_case *c)
{
    two t;
    const fleet_train_options o = {.on_batch = load_beside, .user = &t};

    open_two(&t, c);
    t.saved = test_path(c->passes ? "within-pass" : "within-whole");
    CHECK_OK(fleet_save_persistables(t.s.f, t.saved));
    train_first(&t);
    begin_second(&t);
    t.second = scene_file("train.txt", GPU_PS_LINES, 1);
    t.waits = c->passes;
    CHECK_OK(fleet_train_from_dataset(t.s.e, t.s.data, &o, NULL));
    if (t.g) {
        CHECK_INT(t.ready, 2);
        CHECK_OK(fleet_psgpu_end_pass(t.g));
    }
    begin_second(&t);
    train_second(&t);
    return close_two(&t);
}

TEST(a_load_beside_a_pass_counts_for_the_next_one)
{
    const ps_case c = {.passes = true}, whole = {0};
    uint64_t hash;

    gpu_kit_open();
    hash = hash_with_load_within(&c);
    CHECK(hash == hash_with_load_within(&whole));
    gpu_kit_close();
}

static bool gpu_has_tables(const scene *s)
{
    for (const fl_mirror *m = s->f->store->mirrors; m; m = m->next)
        if (m->methods->leave && !m->gpu_is_old)
            return true;
    return false;
}

/* What is left as no other pass follows. */
TEST(rows_of_a_pass_that_never_begins_come_home)
{
    const ps_case c = {.passes = true}, whole = {0};
    uint64_t hash;
    two t;

    gpu_kit_open();
    open_two(&t, &whole);
    train_first(&t);
    hash = close_two(&t);
    open_two(&t, &c);
    train_first(&t);
    CHECK(t.g->next.is_here && gpu_has_tables(&t.s));
    CHECK_OK(fleet_psgpu_finalize(t.g));
    CHECK(!gpu_has_tables(&t.s));
    t.g = NULL;
    CHECK(close_two(&t) == hash);
    open_two(&t, &c);
    train_first(&t);
    fleet_dataset_destroy(t.s.data); /* and with it what was read */
    CHECK(scene_hash(&t.s) == hash);
    scene_close(&t.s);
    gpu_kit_close();
}

/* --- samples that are late ------------------------------------------------ */

static void write_all(const char *fifo, const char *file)
{
    char *text;
    size_t size;
    int fd;

    CHECK_OK(fl_file_read(file, &text, &size));
    fd = open(fifo, O_WRONLY);
    CHECK(fd >= 0);
    CHECK(write(fd, text, size) == (ssize_t)size);
    CHECK_INT(close(fd), 0);
    fl_free(text);
}

TEST(the_end_of_a_pass_does_not_wait_for_samples)
{
    const char *fifo = test_path("fifo");
    const ps_case c = {.passes = true};
    const char *file;
    two t;

    gpu_kit_open();
    CHECK_INT(mkfifo(fifo, 0600), 0);
    open_two(&t, &c);
    file = t.second;
    t.second = fifo;
    t.waits = false;
    train_first(&t);
    CHECK(!t.g->next.is_here && !t.g->prepares);
    write_all(fifo, file);
    begin_second(&t);
    CHECK_INT(t.g->handed_over, 0);
    train_second(&t);
    CHECK(close_two(&t) == hash_of_whole(c));
    gpu_kit_close();
}

TEST(samples_that_cannot_be_read_are_named_by_who_waits_for_them)
{
    const ps_case c = {.passes = true};
    two t;

    gpu_kit_open();
    open_two(&t, &c);
    t.second = test_file("bad.txt", "1 0 3 0.5 1 1.25 1 4 1 -5 1 7\n");
    train_first(&t);
    CHECK(!t.g->next.is_here);
    CHECK_FAILS(fleet_dataset_wait_preload_done(t.s.data), FLEET_EFORMAT,
                "bad.txt");
    CHECK_OK(fleet_psgpu_begin_pass(t.g));
    train_second(&t);
    (void)close_two(&t);
    gpu_kit_close();
}

/* --- memory --------------------------------------------------------------- */

/* Where the GPU has no room for both all rows go home first. */
TEST(passes_that_do_not_fit_beside_each_other_have_the_same_bits)
{
    const ps_case c = {.passes = true, .memory_bytes = 80000};
    two t;

    gpu_kit_open();
    open_two(&t, &c);
    train_first(&t);
    CHECK_INT(t.ready, 1);
    CHECK(t.g->next.is_here && t.g->is_last);
    begin_second(&t);
    CHECK_INT(t.g->part, 1);
    CHECK_INT(t.g->handed_over, 0);
    CHECK_INT(gpu_ps_parts_said(), 0);
    train_second(&t);
    CHECK(close_two(&t) == hash_of_whole(c));
    gpu_kit_close();
}

TEST(an_allocation_that_fails_as_one_pass_follows_another_loses_no_row)
{
    const ps_case c = {.passes = true}, whole = {0};
    const fleet_train_options o[] = {{.on_batch = read_beside}};
    fleet_train_options beside = *o;
    int64_t n = 1, passes = 0;
    bool over = false;
    uint64_t hash;
    two t, w;

    gpu_kit_open();
    open_two(&t, &c);
    open_two(&w, &whole);
    beside.user = &t;
    CHECK_OK(fleet_psgpu_begin_pass(t.g));
    for (; !over; passes++, n += 4) {
        fleet_status status;

        t.waits = true;
        CHECK_OK(fleet_train_from_dataset(t.s.e, t.s.data, &beside, NULL));
        fl_memory_fail_at(n, true);
        status = fleet_psgpu_end_pass(t.g);
        if (status == FLEET_OK)
            status = fleet_dataset_wait_preload_done(t.s.data);
        if (status == FLEET_OK)
            status = fleet_psgpu_begin_pass(t.g);
        over = fl_memory_count() < n;
        fl_memory_fail_at(0, false);
        CHECK_INT(status, over ? FLEET_OK : FLEET_ENOMEM);
        if (t.g->begun && !over)
            CHECK_OK(fleet_psgpu_end_pass(t.g));
        if (t.s.data->memory->preload)
            CHECK_OK(fleet_dataset_wait_preload_done(t.s.data));
        if (!over)
            CHECK_OK(fleet_psgpu_begin_pass(t.g));
    }
    CHECK(passes > 3);
    CHECK_OK(fleet_psgpu_end_pass(t.g));
    beside.user = &w;
    while (passes-- > 0) {
        CHECK_OK(fleet_train_from_dataset(w.s.e, w.s.data, &beside, NULL));
        CHECK_OK(fleet_dataset_wait_preload_done(w.s.data));
    }
    hash = close_two(&w);
    CHECK(close_two(&t) == hash);
    gpu_kit_close();
}
