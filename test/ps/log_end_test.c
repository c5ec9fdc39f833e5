/* log_end_test.c - the logs of servers that have died are ended when their job
 * is over: of that job and run alone, and of no process that lives. */
#define _GNU_SOURCE
#define SUITE log_end
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "ps/journal/journal_folder.h"
#include "ps/journal/log_end.h"

enum { RUN = 7 };

static const char *logs(void)
{
    return test_path("logs");
}

/* Of a process that has died; *h NULL: else it lives. */
static void make_log(int server, const char *job, int run, fl_journal_folder *h)
{
    fl_journal_folder own = {.lock = -1};
    char text[100], name[24];

    snprintf(text, sizeof text, "{\"job\":\"%s\",\"run\":%d}", job, run);
    fl_journal_folder_name(server, name);
    CHECK_OK(fl_journal_folder_open(&own, logs(), name, "a server"));
    CHECK_OK(fl_journal_folder_begin(&own, text));
    if (h)
        *h = own;
    else
        fl_journal_folder_close(&own);
}

static bool has_ended(int server)
{
    char name[60];

    snprintf(name, sizeof name, "logs/server-%d/identity", server);
    return access(test_path(name), F_OK) != 0;
}

TEST(dead_servers_of_the_job_end_with_it)
{
    make_log(0, "ads", RUN, NULL);
    make_log(1, "ads", 0, NULL);
    make_log(3, "ads", 0, NULL); /* it has joined */
    fl_log_end_dead(logs(), "ads", RUN, NULL);
    CHECK(has_ended(0) && has_ended(1) && has_ended(3));
}

TEST(a_server_that_lives_does_not)
{
    fl_journal_folder h;
    fl_log_end how;

    make_log(0, "ads", RUN, NULL);
    make_log(1, "ads", 0, &h);
    fl_log_end_dead(logs(), "ads", RUN, NULL);
    CHECK(has_ended(0) && !has_ended(1));
    CHECK_OK(fl_log_end_one(logs(), 1, NULL, &how));
    CHECK(how == FL_LOG_END_LIVES && !has_ended(1));
    fl_journal_folder_close(&h);
    CHECK_OK(fl_log_end_one(logs(), 1, NULL, &how));
    CHECK(how == FL_LOG_END_NOW && has_ended(1));
    CHECK_OK(fl_log_end_one(logs(), 1, NULL, &how));
    CHECK(how == FL_LOG_END_BEFORE);
    CHECK_OK(fl_log_end_one(logs(), 2, NULL, &how));
    CHECK(how == FL_LOG_END_NONE);
}

/* A worker that has outlived its run, say. */
TEST(those_of_another_run_or_job_do_not)
{
    fl_log_end how;

    make_log(0, "ads", RUN, NULL);
    make_log(1, "ads", 0, NULL);
    make_log(2, "search", 0, NULL);
    fl_log_end_dead(logs(), "ads", RUN - 1, NULL);
    fl_log_end_dead(logs(), "ads", 0, NULL);
    fl_log_end_dead(logs(), "search", RUN, NULL);
    CHECK(!has_ended(0) && !has_ended(1) && !has_ended(2));
    fl_log_end_dead(logs(), "ads", RUN, NULL);
    CHECK(has_ended(0) && has_ended(1) && !has_ended(2));
    CHECK_OK(fl_log_end_one(logs(), 2, "ads", &how));
    CHECK(how == FL_LOG_END_OTHER && !has_ended(2));
}

/* Where servers have folders of their own nobody knows whose they are. */
TEST(without_the_first_server_none_does)
{
    make_log(1, "ads", 0, NULL);
    fl_log_end_dead(logs(), "ads", RUN, NULL);
    CHECK(!has_ended(1));
}

/* The first server may have ended before, and said so itself. */
TEST(that_one_may_have_ended)
{
    fl_journal_folder h;

    make_log(0, "ads", RUN, &h);
    make_log(1, "ads", 0, NULL);
    CHECK_OK(fl_journal_folder_end(&h));
    fl_log_end_dead(logs(), "ads", RUN, NULL);
    CHECK(has_ended(1));
    fl_journal_folder_close(&h);
}
