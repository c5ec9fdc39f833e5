/* trail_test.c - a worker's trail as files: what a process finds that comes
 * after one that died at any point. */
#define SUITE trail
#include "ps/trail/trail.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

enum { WORKER = 3, RUN = 7, LANES = 2, MOST_FRAME = 3 };

static int at; /* what the facade says */

static size_t mark(void *arg, bool over, void *to)
{
    (void)arg;
    (void)over;
    memcpy(to, &at, sizeof at);
    return at < 0 ? 0 : sizeof at;
}

static char *describe(void *arg)
{
    char text[20];

    (void)arg;
    snprintf(text, sizeof text, "pass %d", at);
    return fl_strdup(text);
}

static const fl_trail_host host = {.mark = mark, .describe = describe};

static fl_trail *open_trail(uint32_t run)
{
    fl_trail *t;

    CHECK_OK(fl_trail_open(
        &t, &(fl_trail_options){.folder = test_path("log"), .worker = WORKER}));
    CHECK_OK(fl_trail_enter(t, run));
    fl_trail_set_host(t, &host);
    return t;
}

/* The process dies, and the next one has come. */
static fl_trail *again(fl_trail *t)
{
    fl_trail_close(t);
    return open_trail(RUN);
}

/* To the first lane two packets, to the second one none. */
static void push(fl_trail *t, uint64_t step, uint64_t reduced, int mark_of_it)
{
    char bytes[3][40];
    fl_frame frame[2][2] = {{{bytes[0], 5}, {bytes[1], 0}}, {{bytes[2], 40}}};
    fl_packet p[2] = {{.n_frame = 2, .frame = frame[0]},
                      {.n_frame = 1, .frame = frame[1]}};
    fl_packet *const list[2] = {&p[0], &p[1]};
    const fl_trail_packets lane[LANES] = {{list, 2}, {NULL, 0}};

    for (int i = 0; i < 3; i++)
        memset(bytes[i], (int)step + i, sizeof bytes[i]);
    at = mark_of_it;
    CHECK_OK(fl_trail_push(t, step, reduced, lane, LANES));
}

static void pass_is_over(fl_trail *t, uint64_t step, uint64_t reduced, int m)
{
    at = m;
    CHECK_OK(fl_trail_pass_is_over(t, step, reduced));
}

static void check_point(const fl_trail *t, fl_trail_state state, uint64_t step,
                        uint64_t reduced, int m)
{
    const fl_trail_point *p = fl_trail_from(t);
    int found;

    CHECK_INT(p->state, state);
    CHECK_INT(p->step, step);
    CHECK_INT(p->reduced, reduced);
    CHECK_INT(p->mark_size, sizeof found);
    memcpy(&found, p->mark, sizeof found);
    CHECK_INT(found, m);
}

typedef struct visited {
    int n;
    uint64_t step;
} visited;

static fleet_status visit(void *arg, uint64_t step, int lane,
                          const fl_packet *p)
{
    visited *v = arg;
    bool first = v->n == 0;

    CHECK_INT(lane, 0);
    CHECK_INT(p->n_frame, first ? 2 : 1);
    CHECK_INT(p->frame[0].size, first ? 5 : 40);
    CHECK_INT(p->bytes, first ? 5 : 40);
    for (size_t i = 0; i < p->frame[0].size; i++)
        CHECK_INT(((const char *)p->frame[0].data)[i],
                  (int)step + (first ? 0 : 2));
    v->step = step;
    v->n++;
    return FLEET_OK;
}

static void check_push(const fl_trail *t, int number, uint64_t step)
{
    visited v = {0};

    CHECK_OK(fl_trail_each_packet(t, number, visit, &v));
    CHECK_INT(v.n, 2);
    CHECK_INT(v.step, step);
}

/* --- a process after the other -------------------------------------------- */

TEST(each_process_that_has_it_is_a_life_of_the_same_trail)
{
    fl_trail *t = open_trail(RUN), *other;
    uint64_t nonce = fl_trail_nonce(t);

    CHECK(nonce != 0);
    CHECK_INT(fl_trail_life(t), 1);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_NEW);
    CHECK_FAILS(
        fl_trail_open(&other, &(fl_trail_options){.folder = test_path("log"),
                                                  .worker = WORKER}),
        FLEET_EEXIST, "expected worker 3 to be the only one that writes");
    t = again(t);
    CHECK_INT(fl_trail_life(t), 2);
    CHECK(fl_trail_nonce(t) == nonce);
    CHECK(!fl_trail_is_early(t));
    fl_trail_close(t);
}

TEST(it_goes_on_behind_the_last_push_of_a_pass_that_is_under_way)
{
    fl_trail *t = open_trail(RUN);

    for (int i = 1; i <= 3; i++)
        push(t, (uint64_t)i + 4, 2, 10 + i);
    t = again(t);
    CHECK(fl_trail_is_early(t));
    check_point(t, FL_TRAIL_MIDDLE, 7, 2, 13);
    CHECK_TEXT(fl_trail_from(t)->text, "pass 11");
    CHECK_INT(fl_trail_from(t)->n_push, 2);
    check_push(t, 0, 6);
    check_push(t, 1, 7);
    CHECK(!fl_trail_from(t)->has_call);
    fl_trail_goes_on(t);
    CHECK(!fl_trail_is_early(t));
    push(t, 8, 2, 14); /* of the same pass */
    t = again(t);
    check_point(t, FL_TRAIL_MIDDLE, 8, 2, 14);
    CHECK_TEXT(fl_trail_from(t)->text, "pass 11");
    check_push(t, 0, 7);
    fl_trail_close(t);
}

TEST(it_goes_on_at_the_end_of_a_pass_until_the_next_one_has_a_push)
{
    fl_trail *t = open_trail(RUN);

    push(t, 1, 0, 1);
    pass_is_over(t, 1, 0, 2);
    t = again(t);
    check_point(t, FL_TRAIL_OVER, 1, 0, 2);
    CHECK_TEXT(fl_trail_from(t)->text, "pass 1");
    fl_trail_goes_on(t);
    pass_is_over(t, 1, 0, 2); /* said again */
    push(t, 3, 1, 3);
    t = again(t);
    check_point(t, FL_TRAIL_MIDDLE, 3, 1, 3);
    CHECK_TEXT(fl_trail_from(t)->text, "pass 3");
    fl_trail_close(t);
}

/* Its bytes are changed: it was not written to its end. */
static void spoil(const char *name)
{
    char path[400];
    struct stat st;
    FILE *f;

    snprintf(path, sizeof path, "%s/worker-%d/%s", test_path("log"), WORKER,
             name);
    CHECK(stat(path, &st) == 0);
    f = fopen(path, "r+");
    CHECK(f && fseek(f, st.st_size - 9, SEEK_SET) == 0 && fputc('x', f) == 'x');
    fclose(f);
}

TEST(a_push_that_was_not_written_to_its_end_was_not_sent)
{
    fl_trail *t = open_trail(RUN);

    push(t, 1, 0, 1);
    push(t, 2, 0, 2);
    spoil("push-0"); /* the second one */
    t = again(t);
    check_point(t, FL_TRAIL_MIDDLE, 1, 0, 1);
    CHECK_INT(fl_trail_from(t)->n_push, 1);
    check_push(t, 0, 1);
    fl_trail_goes_on(t);
    push(t, 2, 0, 5);
    t = again(t);
    check_point(t, FL_TRAIL_MIDDLE, 2, 0, 5);
    CHECK_INT(fl_trail_from(t)->n_push, 2);
    fl_trail_close(t);
}

/* The first push of a pass, of which the journal knows already. */
TEST(a_pass_whose_first_push_was_not_written_has_not_begun)
{
    fl_trail *t = open_trail(RUN);

    push(t, 1, 0, 1);
    pass_is_over(t, 1, 0, 2);
    push(t, 3, 1, 7);
    spoil("push-0");
    t = again(t);
    check_point(t, FL_TRAIL_OVER, 1, 0, 2);
    CHECK_TEXT(fl_trail_from(t)->text, "pass 1");
    fl_trail_close(t);
}

TEST(what_is_of_another_run_of_the_job_is_forgotten)
{
    fl_trail *t = open_trail(RUN);
    fleet_status status;
    double x = 0;

    CHECK_OK(fl_trail_reduced(t, 1, (double[]){5}, 1));
    push(t, 1, 1, 1);
    fl_trail_close(t);
    t = open_trail(RUN + 1);
    CHECK(!fl_trail_is_early(t));
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_NEW);
    CHECK(!fl_trail_find_reduced(t, 1, &x, 1, &status));
    fl_trail_close(t);
    t = open_trail(RUN + 1);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_NEW);
    CHECK_INT(fl_trail_life(t), 3);
    fl_trail_close(t);
}

static int removals; /* that succeed; the process dies as it makes the next */

static int remove_some(int folder, const char *name, int flags)
{
    if (removals-- > 0)
        return fl_disk_system.remove(folder, name, flags);
    errno = EIO;
    return -1;
}

TEST(a_process_that_dies_as_it_forgets_another_run_leaves_a_trail)
{
    fl_disk disk = fl_disk_system;
    fl_trail *t = again(again(open_trail(RUN)));

    push(t, 1, 0, 1);
    fl_trail_close(t);
    disk.remove = remove_some;
    removals = 1;
    CHECK_OK(fl_trail_open(
        &t, &(fl_trail_options){.folder = test_path("log"), .worker = WORKER}));
    fl_disk_use(&disk);
    CHECK_FAILS(fl_trail_enter(t, RUN + 1), FLEET_EIO, "cannot be removed");
    fl_disk_use(NULL);
    fl_trail_close(t);
    t = open_trail(RUN + 1);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_NEW);
    CHECK_INT(fl_trail_life(t), 5);
    fl_trail_close(t);
}

TEST(training_that_nobody_knows_the_place_of_is_lost)
{
    fl_trail *t = open_trail(RUN);

    push(t, 1, 0, -1);
    t = again(t);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_LOST);
    fl_trail_close(t);
}

/* Whose pushes have no place that is known, which is not the next job's. */
TEST(pushes_of_a_run_that_has_ended_are_nobodys)
{
    fl_trail *t = open_trail(RUN);

    push(t, 1, 0, -1);
    CHECK_OK(fl_trail_leaves(t, 2));
    CHECK_OK(fl_trail_has_left(t));
    CHECK_OK(fl_trail_end(t));
    fl_trail_close(t);
    CHECK_OK(fl_trail_open(
        &t, &(fl_trail_options){.folder = test_path("log"), .worker = WORKER}));
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_NEW);
    CHECK(!fl_trail_is_early(t));
    fl_trail_close(t);
}

TEST(a_worker_that_has_left_is_known_to_have)
{
    fl_trail *t = open_trail(RUN);

    push(t, 1, 0, 1);
    pass_is_over(t, 1, 0, 2);
    CHECK_OK(fl_trail_leaves(t, 4));
    t = again(t);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_LEAVING);
    CHECK_INT(fl_trail_from(t)->step, 4);
    CHECK_OK(fl_trail_has_left(t));
    t = again(t);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_GONE);
    CHECK_OK(fl_trail_end(t));
    t = again(t);
    CHECK_INT(fl_trail_from(t)->state, FL_TRAIL_NEW);
    fl_trail_close(t);
}

/* --- calls ---------------------------------------------------------------- */

TEST(calls_outside_of_passes_have_their_results_again)
{
    fl_trail *t = open_trail(RUN);
    char *answer[LANES] = {(char[]){"one"}, (char[]){"two"}};
    double x[2] = {1.5, -2};
    fleet_status status;

    CHECK_OK(fl_trail_reduced(t, 1, x, 2));
    CHECK_OK(fl_trail_reduced(t, 2, NULL, 0));
    CHECK_OK(fl_trail_command_done(t, 1, answer, LANES));
    push(t, 2, 2, 1);
    CHECK_OK(fl_trail_reduced(t, 3, x, 2)); /* within: nobody asks again */
    t = again(t);
    x[0] = x[1] = 0;
    CHECK(fl_trail_find_reduced(t, 1, x, 2, &status));
    CHECK_OK(status);
    CHECK(x[0] == 1.5 && x[1] == -2);
    CHECK(fl_trail_find_reduced(t, 2, NULL, 0, &status));
    CHECK_OK(status);
    CHECK(!fl_trail_find_reduced(t, 3, x, 2, &status));
    CHECK(fl_trail_find_reduced(t, 1, x, 1, &status));
    CHECK_FAILS(status, FLEET_ESTATE, "a sum over workers of another length");
    CHECK(!fl_trail_find_command(t, 2, answer, LANES, &status));
    CHECK(fl_trail_find_command(t, 1, answer, LANES, &status));
    CHECK_TEXT(answer[0], "one");
    CHECK_TEXT(answer[1], "two");
    for (int i = 0; i < LANES; i++)
        fl_free(answer[i]);
    fl_trail_close(t);
}

TEST(more_calls_before_the_first_pass_than_the_first_time_are_refused)
{
    fl_trail *t = open_trail(RUN);

    push(t, 3, 1, 1); /* two steps and a sum before it */
    t = again(t);
    CHECK_OK(fl_trail_call_begins(t, &(fl_trail_call){.step = 2}));
    CHECK_OK(
        fl_trail_call_begins(t, &(fl_trail_call){.step = 2, .reduced = 1}));
    CHECK_FAILS(fl_trail_call_begins(t, &(fl_trail_call){.step = 3}),
                FLEET_ESTATE,
                "worker 3 was started again, and its program "
                "makes more calls before its first training pass");
    CHECK_STATUS(fl_trail_call_begins(t, &(fl_trail_call){.reduced = 2}),
                 FLEET_ESTATE);
    fl_trail_goes_on(t);
    CHECK_OK(fl_trail_call_begins(t, &(fl_trail_call){.step = 4}));
    fl_trail_close(t);
}

/* It has been begun, and lanes may have it. */
TEST(a_call_within_a_pass_is_known_until_the_next_push)
{
    fl_trail *t = open_trail(RUN);
    const fl_trail_call *c;

    push(t, 1, 0, 1);
    CHECK_OK(fl_trail_call_begins(
        t, &(fl_trail_call){.step = 2, .flags = 16, .op = 7, .text = "save"}));
    CHECK_OK(fl_trail_call_begins(t, &(fl_trail_call){.step = 2,
                                                      .reduced = 1,
                                                      .reduces = true,
                                                      .op = 1,
                                                      .x = (double[]){4, 5},
                                                      .n = 2}));
    t = again(t);
    check_point(t, FL_TRAIL_MIDDLE, 1, 0, 1);
    CHECK(fl_trail_from(t)->has_call);
    c = &fl_trail_from(t)->call;
    CHECK(c->step == 2 && c->reduced == 1 && c->reduces && c->op == 1);
    CHECK(c->n == 2 && c->x[0] == 4 && c->x[1] == 5 && !c->text);
    t = again(t);
    spoil("call-0"); /* the second one: it was not made */
    t = again(t);
    c = &fl_trail_from(t)->call;
    CHECK(fl_trail_from(t)->has_call && c->step == 2 && !c->reduces);
    CHECK_TEXT(c->text, "save");
    fl_trail_goes_on(t);
    push(t, 3, 0, 2);
    t = again(t);
    CHECK(!fl_trail_from(t)->has_call);
    fl_trail_close(t);
}

/* --- what survives a crash of the machine --------------------------------- */

static int flushes;

static int count_flush(int fd)
{
    (void)fd;
    flushes++;
    return 0;
}

static int flushes_of_a_push(fl_journal_level level)
{
    fl_disk disk = fl_disk_system;
    fl_trail *t;
    int before;

    disk.flush = count_flush;
    CHECK_OK(fl_trail_open(&t, &(fl_trail_options){.folder = test_path("log"),
                                                   .worker = WORKER,
                                                   .level = level}));
    CHECK_OK(fl_trail_enter(t, RUN + level));
    fl_trail_set_host(t, &host);
    push(t, 1, 0, 1);
    fl_disk_use(&disk);
    before = flushes;
    push(t, 2, 0, 2);
    fl_disk_use(NULL);
    fl_trail_close(t);
    return flushes - before;
}

TEST(a_push_is_flushed_where_it_is_to_survive_a_crash_of_the_machine)
{
    CHECK_INT(flushes_of_a_push(FL_JOURNAL_SURVIVES_PROCESS), 0);
    CHECK_INT(flushes_of_a_push(FL_JOURNAL_SURVIVES_POWER), 1);
}

static int no_room(int fd)
{
    (void)fd;
    errno = ENOSPC;
    return -1;
}

TEST(a_push_that_cannot_be_made_safe_is_not_sent)
{
    fl_trail_packets none[LANES] = {{NULL, 0}, {NULL, 0}};
    fl_disk disk = fl_disk_system;
    fl_trail *t;

    disk.flush = no_room;
    CHECK_OK(fl_trail_open(
        &t, &(fl_trail_options){.folder = test_path("log"),
                                .worker = WORKER,
                                .level = FL_JOURNAL_SURVIVES_POWER}));
    CHECK_OK(fl_trail_enter(t, RUN));
    push(t, 1, 0, 1);
    fl_disk_use(&disk);
    CHECK_FAILS(fl_trail_push(t, 2, 0, none, LANES), FLEET_EIO,
                "worker-3/push-0 cannot be flushed: ");
    fl_disk_use(NULL);
    fl_trail_close(t);
}

/* The thread is the host's, which has no handler for SIGXFSZ. */
TEST(a_push_larger_than_files_may_be_is_refused_and_the_process_lives)
{
    const struct rlimit most = {1000, 1000};
    char bytes[2000] = {0};
    fl_frame frame = {bytes, sizeof bytes};
    fl_packet p = {.n_frame = 1, .frame = &frame};
    fl_packet *const list[] = {&p};
    const fl_trail_packets lane[LANES] = {{list, 1}, {NULL, 0}};
    fl_trail *t = open_trail(RUN);

    CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    CHECK(setrlimit(RLIMIT_FSIZE, &most) == 0);
    push(t, 1, 0, 1);
    CHECK_FAILS(fl_trail_push(t, 2, 0, lane, LANES), FLEET_EIO,
                "cannot be written: ");
    fl_trail_close(t);
}

TEST(a_save_that_was_begun_is_known_and_what_it_came_to)
{
    fl_trail *t = open_trail(RUN);
    fleet_status status;
    bool over;

    CHECK_OK(fl_trail_save_begins(t, 1, "first"));
    CHECK_OK(fl_trail_save_is_over(t, 1, FLEET_EIO));
    CHECK_OK(fl_trail_save_begins(t, 2, "second"));
    t = again(t);
    CHECK_TEXT(fl_trail_find_save(t, 1, &over, &status), "first");
    CHECK(over && status == FLEET_EIO);
    CHECK_TEXT(fl_trail_find_save(t, 2, &over, &status), "second");
    CHECK(!over);
    CHECK(!fl_trail_find_save(t, 3, &over, &status));
    fl_trail_close(t);
}
