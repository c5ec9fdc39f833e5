/* ps_move_kill_test.c - jobs of real processes whose lanes move, and kill -9 in
 * the middle: of the process that a lane leaves, of the one that it comes to,
 * of fleetctl. The job goes on to the same bits, or to the same sums; or it
 * ends, and whoever is left names the process that has died. */
#define SUITE ps_move_kill
#include "move_kit.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>

enum { KILLS = 6 };

/* fleetctl is killed after so many milliseconds, for which nobody waits if it
 * is beside. */
static void move_for(ps_job *j, int ms, const char *words, const char *beside)
{
    char command[4000], said[2000];

    snprintf(command, sizeof command,
             "timeout -s KILL %d.%03d '%s' --servers '%s' %s > /dev/null 2>&1 "
             "%s",
             ms / 1000, ms % 1000, test_beside("fleetctl"), j->endpoints, words,
             beside);
    test_shell(command, said, sizeof said);
}

/* Moves that it has asked for at both ends go on without it, others are given
 * up. */
TEST_LIMIT(fleetctl_may_die_at_any_moment, 120)
{
    ps_job j = move_job(2);
    uint64_t want = ps_hash(&j);

    move_start(&j);
    for (int i = 0; i < KILLS; i++) {
        char words[40];

        snprintf(words, sizeof words, "move %d:%d %d", i % 2, i / 2 % 2,
                 (i + 1 + i / 4) % 2);
        move_for(&j, 5 + 17 * i * i, words, "");
    }
    CHECK(move_check_end(&j) == want);
}

/* It has nothing that is needed any more; workers are about to go over. */
static void kill_source(ps_job j)
{
    uint64_t want = ps_hash(&j);

    j.lanes = 1;
    move_start(&j);
    move_for(&j, 3000, "move 0:0 1", "&");
    ps_hear_words(ps_server(&j, 0), "it goes to the process of server 1");
    ps_kill(ps_server(&j, 0), SIGKILL);
    CHECK_INT(ps_wait(ps_server(&j, 0)), 128 + SIGKILL);
    move_lane(&j, "status", "by server 1");
    CHECK(move_check_end(&j) == want);
}

TEST_LIMIT(a_process_that_dies_as_it_has_given_its_lane_away_is_not_missed, 120)
{
    kill_source(move_job(2));
}

TEST_LIMIT(in_async_such_a_death_loses_no_push_and_repeats_none, 120)
{
    kill_source(move_sums_job(2));
}

/* One of both has what the other one has not. */
static void kill_while_copied(int server)
{
    ps_job j = move_job(2);
    char name[20];

    snprintf(name, sizeof name, "server %d at ", server);
    move_start(&j);
    move_for(&j, 3000, "move 0:0 1", "&");
    ps_hear_words(ps_server(&j, 0), "its replica is made, to lead");
    ps_kill(ps_server(&j, server), SIGKILL);
    CHECK_INT(ps_wait(ps_server(&j, server)), 128 + SIGKILL);
    ps_tell(&j.go);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i), name);
    ps_check_fails(ps_server(&j, 1 - server), name);
}

TEST_LIMIT(a_death_while_a_lane_is_copied_ends_the_job_by_its_name, 120)
{
    kill_while_copied(0);
    kill_while_copied(1);
}

/* Of the lane's own server nothing is wrong. */
TEST_LIMIT(who_has_come_to_have_a_lane_is_named_when_it_dies, 120)
{
    ps_job j = move_job(2);

    move_start(&j);
    move_lane(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    move_check_killed(&j);
}

TEST_LIMIT(who_has_come_to_have_a_lane_is_named_when_it_is_stopped, 120)
{
    ps_job j = move_job(2);

    j.lanes = 1;
    move_start(&j);
    move_lane(&j, "move 0:0 1", "server 0, lane 0: from server 0 to server 1");
    move_lane(&j, "move 1:0 0", "server 1, lane 0: from server 1 to server 0");
    ps_kill(ps_server(&j, 1), SIGTERM);
    ps_tell(&j.go);
    for (int i = 0; i < j.workers; i++)
        ps_check_fails(ps_worker(&j, i),
                       "server 1 has ended: it was sent SIGTERM");
    ps_check_fails(ps_server(&j, 0), "server 1 has ended");
    ps_check_ends(ps_server(&j, 1));
}
