/* ps_move_log_test.c - lanes that go from server to server while servers write
 * logs, and kill -9 of either process at each moment of a move: who was killed
 * is started again, each lane is one process's, and the job has the bits, or
 * the sums, of one that nothing has befallen. */
#define SUITE ps_move_log
#include "move_kit.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ps/journal/lane_home.h"

static const char about_to_go[] = "its log is about to go to server 1";
static const char has_gone[] = "lane 1: its log is server 1's";

static ps_job with_log(ps_job j)
{
    j.how.log = FLEET_DURABLE_PROCESS;
    j.how.log_configs =
        (fleet_log_configs){.folder = test_path("log"),
                            .file_bytes = 16 << 10, /* it is cut now and then */
                            .restart_deadline_ms = 30 * PS_SECOND};
    return j;
}

/* However often it has to be said: a server may be on its way back. */
static void move_at_last(const ps_job *j, const char *words)
{
    char said[8000] = "";

    for (int i = 0; i < 100; i++) {
        if (move_control(j, words, said) == 0)
            return;
        usleep(50000);
    }
    test_fail(__FILE__, __LINE__, "%s: %s", words, said);
}

TEST_LIMIT(lanes_move_with_their_logs_to_the_same_bits, 120)
{
    ps_job j = with_log(move_job(2));
    uint64_t want = ps_undisturbed(&j);

    move_start(&j);
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    move_lane(&j, "move 0:1 0", "server 0, lane 1: from server 1 to server 0");
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    move_lane(&j, "status", "by server 1");
    CHECK(move_check_end(&j) == want);
}

TEST_LIMIT(with_a_log_the_first_lane_of_a_server_stays, 60)
{
    ps_job j = with_log(move_job(2));
    char said[8000];

    move_start(&j);
    CHECK_INT(move_control(&j, "move 0:0 1", said), 2);
    CHECK_CONTAINS(said, "the first lane of each server stays");
    CHECK_INT(move_control(&j, "drain 1", said), 2);
    CHECK_CONTAINS(said, "the first lane of each server stays");
    move_check_outlived(&j);
}

/* At that word of the source one of both is killed; then the lane is where it
 * was to go, and both are killed once more. */
static void kill_at(ps_job j, const char *words, int server)
{
    uint64_t want = ps_undisturbed(&j);

    move_start(&j);
    move_beside(&j, "move 0:1 1");
    ps_hear_words(ps_server(&j, 0), words);
    ps_kill_and_start(&j, server);
    move_at_last(&j, "move 0:1 1");
    ps_kill_and_start(&j, 1);
    move_at_last(&j, "move 0:1 1");
    ps_kill_and_start(&j, 0);
    move_at_last(&j, "move 0:1 0");
    CHECK(move_check_outlived(&j) == want);
}

TEST_LIMIT(a_source_that_dies_before_its_log_goes_has_the_lane, 120)
{
    kill_at(with_log(move_job(2)), about_to_go, 0);
}

TEST_LIMIT(a_taker_that_dies_before_it_has_the_log_is_not_waited_for, 120)
{
    kill_at(with_log(move_job(2)), about_to_go, 1);
}

TEST_LIMIT(a_source_that_dies_as_its_log_has_gone_has_not_the_lane, 120)
{
    kill_at(with_log(move_job(2)), has_gone, 0);
}

TEST_LIMIT(a_taker_that_dies_as_it_has_the_log_comes_back_with_the_lane, 120)
{
    kill_at(with_log(move_job(2)), has_gone, 1);
}

TEST_LIMIT(in_async_such_deaths_lose_no_push_and_repeat_none, 120)
{
    kill_at(with_log(move_sums_job(2)), has_gone, 0);
    kill_at(with_log(move_sums_job(2)), has_gone, 1);
}

/* With what befalls it over soon: it waits at its end. */
static ps_job short_job(void)
{
    ps_job j = with_log(move_job(2));

    j.passes = 30;
    return j;
}

/* One of both is killed as the log has gone, and no more befalls the job. */
static void kill_once(ps_job j, int server)
{
    uint64_t want = ps_undisturbed(&j);

    move_start(&j);
    move_beside(&j, "move 0:1 1");
    ps_hear_words(ps_server(&j, 0), has_gone);
    ps_kill_and_start(&j, server);
    move_at_last(&j, "move 0:1 1");
    CHECK(move_check_outlived(&j) == want);
}

TEST_LIMIT(in_half_async_what_a_worker_gathers_is_applied_once, 120)
{
    ps_job j = with_log(move_sums_job(2));

    j.how.merged = 4; /* means of 4 and of 16 samples are exact */
    j.how.bounds_staleness = true;
    j.how.max_staleness = 1;
    kill_once(j, 1);
}

TEST_LIMIT(in_geo_what_a_worker_has_changed_is_added_once, 120)
{
    ps_job j = with_log(move_sums_job(2));

    j.how.geo = 4;
    kill_once(j, 1);
}

TEST_LIMIT(lanes_move_with_logs_that_survive_their_machine, 120)
{
    ps_job j = short_job();

    j.how.log = FLEET_DURABLE_POWER;
    kill_once(j, 0);
}

/* --- who is not there at that word ---------------------------------------- */

/* The process that the lane leaves has no other place for it: it is gone when
 * that worker wakes. */
TEST_LIMIT(a_log_goes_when_all_workers_know_where_to, 120)
{
    ps_job j = short_job();
    uint64_t want = ps_undisturbed(&j);

    move_start(&j);
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    ps_hear_words(ps_worker(&j, 1), "lane 1 is in another process now");
    ps_kill(ps_worker(&j, 1), SIGSTOP);
    move_beside(&j, "move 0:1 0");
    ps_hear_words(ps_server(&j, 1), "its log is about to go to server 0");
    ps_hear_words(ps_server(&j, 0), "was not heard of for");
    ps_kill(ps_worker(&j, 1), SIGCONT);
    move_at_last(&j, "move 0:1 0");
    CHECK(move_check_outlived(&j) == want);
}

/* By what the lane's first server says, and says again when it was itself
 * started again. */
TEST_LIMIT(a_worker_that_is_started_again_finds_a_lane_that_has_gone, 120)
{
    ps_job j = short_job();
    uint64_t want = ps_undisturbed(&j);

    move_start(&j);
    move_lane(&j, "move 1:1 0", "server 1, lane 1: from server 1 to server 0");
    ps_kill_and_start(&j, 1);
    ps_hear_words(ps_server(&j, 1), "lane 0 is back");
    ps_kill(ps_worker(&j, 1), SIGKILL);
    CHECK_INT(ps_wait(ps_worker(&j, 1)), 128 + SIGKILL);
    ps_start(ps_worker(&j, 1));
    ps_hear_words(ps_worker(&j, 1), "lane 3 is in another process now");
    CHECK(move_check_outlived(&j) == want);
}

/* --- disks that fail ------------------------------------------------------ */

static bool flush_fails;

static int fail_two_renames(const char *from, const char *to, unsigned flags)
{
    static int n;

    if (strstr(to, "lane-1.home") && n++ % 2 == 0) {
        errno = EIO;
        return -1;
    }
    return fl_disk_system.rename(from, to, flags);
}

static int fail_next_flush(const char *from, const char *to, unsigned flags)
{
    flush_fails = flush_fails || strstr(to, "lane-1.home");
    return fl_disk_system.rename(from, to, flags);
}

static int fail_flush(int fd)
{
    if (!flush_fails)
        return fl_disk_system.flush(fd);
    flush_fails = false;
    errno = EIO;
    return -1;
}

static void check_given_up(ps_job *j, int server, const char *words)
{
    char said[8000];

    CHECK_INT(move_control(j, words, said), 2);
    CHECK_CONTAINS(said, "the move was given up");
    CHECK_CONTAINS(ps_said(ps_server(j, server)), "lane-1.home: ");
}

/* In each process the first one and the third; the next move may be asked for
 * at once, also of a lane that has gone over before, and need not be. */
TEST_LIMIT(a_move_whose_file_cannot_be_written_is_given_up_by_name, 60)
{
    ps_job j = short_job();
    uint64_t want = ps_undisturbed(&j);
    fl_disk disk = fl_disk_system;

    disk.rename = fail_two_renames;
    fl_disk_use(&disk);
    move_start(&j);
    check_given_up(&j, 0, "move 0:1 1");
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    check_given_up(&j, 1, "move 0:1 0");
    move_lane(&j, "move 0:1 0", "server 0, lane 1: from server 1 to server 0");
    check_given_up(&j, 0, "move 0:1 1");
    CHECK(move_check_end(&j) == want);
    fl_disk_use(NULL);
}

/* The name is there, whatever the disk says of it. */
TEST_LIMIT(a_move_whose_file_is_written_and_not_flushed_is_done, 60)
{
    ps_job j = short_job();
    uint64_t want = ps_undisturbed(&j);
    fl_disk disk = fl_disk_system;

    disk.rename = fail_next_flush;
    disk.flush = fail_flush;
    fl_disk_use(&disk);
    move_start(&j);
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    CHECK(move_check_end(&j) == want);
    fl_disk_use(NULL);
}

/* --- what an earlier job has left ------------------------------------------
 * The folder of a server has its lanes' homes until that server of the next
 * job begins. */

static const char its_own[] = "lane 1 of server 0 is its own";

static const char *folder_of(const ps_job *j, int server)
{
    char path[400];

    snprintf(path, sizeof path, "%s/server-%d", j->how.log_configs.folder,
             server);
    return test_keep(path);
}

/* Of what the server has written down of itself. */
static uint32_t number_in(const ps_job *j, int server, const char *key)
{
    char path[500], *text;
    const char *at;
    uint32_t number = 0;
    size_t size;

    snprintf(path, sizeof path, "%s/identity", folder_of(j, server));
    CHECK_OK(fl_file_read(path, &text, &size));
    at = strstr(text, key);
    CHECK(at && sscanf(at + strlen(key), "%u", &number) == 1);
    fl_free(text);
    return number;
}

static void say_it_is_server_1s(const ps_job *j, uint32_t run, uint32_t nonce)
{
    fl_lane_home h = {.server = 1, .view = 6, .run = run};

    snprintf(h.address, sizeof h.address, "{\"port\":1,\"nonce\":%u}",
             (unsigned)nonce);
    CHECK_OK(fl_lane_home_write(folder_of(j, 0), 1, &h));
}

/* Its other lane it has taken: both are looked at in turn. */
TEST_LIMIT(a_lane_of_another_run_or_of_another_server_is_not_taken, 120)
{
    ps_job j = short_job();
    uint64_t want;

    j.lanes = 3;
    want = ps_undisturbed(&j);
    move_start(&j);
    move_lane(&j, "move 0:2 1", "server 0, lane 2: from server 0 to server 1");
    for (int i = 0; i < 2; i++) {
        say_it_is_server_1s(&j, number_in(&j, 0, "\"run\":") - (i == 0),
                            number_in(&j, 1, "\"nonce\":") + (i == 1));
        ps_kill_and_start(&j, 1);
        ps_hear_words(ps_server(&j, 1), "lane 2 of server 0 is its own");
        CHECK(!strstr(ps_said(ps_server(&j, 1)), its_own));
        ps_hear_words(ps_server(&j, 1), "server 0, lane 2 is back");
    }
    CHECK(move_check_outlived(&j) == want);
}

/* Server 1, which has a lane of server 0, is killed, and not started again
 * before the job has ended for that, which ends its log, too: with the next job
 * in the same folder it begins anew. */
TEST_LIMIT(a_job_that_has_failed_leaves_its_lanes_to_no_server, 120)
{
    ps_job j = short_job();
    char path[500];

    j.how.log_configs.restart_deadline_ms = 2 * PS_SECOND;
    j.work = ps_hold;
    ps_start_all(&j);
    ps_hear_held(&j);
    move_lane(&j, "move 0:1 1", "server 0, lane 1: from server 0 to server 1");
    snprintf(path, sizeof path, "%s/lane-1.home", folder_of(&j, 0));
    CHECK(fl_file_exists(path));
    ps_kill(ps_server(&j, 1), SIGKILL);
    CHECK_INT(ps_wait(ps_server(&j, 1)), 128 + SIGKILL);
    ps_let_go(&j);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i), "server 1 at ");
    ps_check_fails(ps_server(&j, 0), "server 1 at ");
    CHECK(!fl_file_exists(path));
    ps_start(ps_server(&j, 1));
    ps_hear_words(ps_server(&j, 1), "lanes 2");
    ps_kill(ps_server(&j, 1), SIGTERM);
    ps_check_ends(ps_server(&j, 1));
    CHECK(!strstr(ps_said(ps_server(&j, 1)), its_own));
    CHECK(!strstr(ps_said(ps_server(&j, 1)), "is back"));
}
