/* ps_move_log_test.c - lanes that go from server to server while servers write
 * logs, and kill -9 of either process at each moment of a move: who was killed
 * is started again, each lane is one process's, and the job has the bits, or
 * the sums, of one that nothing has befallen. */
#define SUITE ps_move_log
#include "move_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

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
