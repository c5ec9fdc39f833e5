/* command_names_test.c - data that a pipe_command with {path} opens: what a
 * stand-in for an object store's client gives trains, is evaluated and is
 * scored as the files are that it keeps. */
#define SUITE command_names
#include "lines_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char client[600]; /* the command */

/* "client get store://bucket/NAME" gives NAME of a folder; it says and fails
 * when there is none, and counts what it was asked for. */
static void make_store(void)
{
    const char *script = test_file("client", "#!/bin/sh\n"
                                             "echo \"$2\" >> \"$0.asked\"\n"
                                             "[ \"$1\" = get ] || exit 2\n"
                                             "[ -z \"$(cat)\" ] || exit 3\n"
                                             "exec cat \"$(dirname \"$0\")/kept"
                                             "/${2#store://bucket/}\"\n");

    CHECK(chmod(script, 0700) == 0);
    CHECK(mkdir(test_path("kept"), 0700) == 0);
    snprintf(client, sizeof client, "'%s' get {path}", script);
}

static fleet_dataset *open_named(fleet *f, const char *const *names, int n)
{
    const fleet_slot slots[] = {
        {.name = "color", .dtype = FLEET_INT64},
        {.name = "numbers", .dim = 2},
        {.name = "label", .dtype = FLEET_INT64},
        {.name = "word", .dtype = FLEET_INT64, .dim = -1}};
    const fleet_dataset_options o = {.format = FLEET_MULTISLOT,
                                     .batch_size = 32,
                                     .pipe_command = client,
                                     .slots = slots,
                                     .n_slot = 4};
    fleet_dataset *d = fleet_queue_dataset(f, &o);

    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, names, n));
    return d;
}

static uint64_t hash_of(const lines_scene *s)
{
    uint64_t hash;

    CHECK_OK(fleet_params_hash(s->f, &hash));
    return hash;
}

/* Two passes, and what an evaluation finds. */
static uint64_t train_on(lines_scene *s, fleet_dataset *d, double *loss)
{
    fleet_evaluation found;

    for (int i = 0; i < 2; i++)
        CHECK_OK(fleet_train_from_dataset(s->trainer, d, NULL, NULL));
    CHECK_OK(fleet_evaluate(s->tester, d, &s->m, &found));
    CHECK_INT(found.samples, LINES_N);
    *loss = found.loss;
    return hash_of(s);
}

/* A name that a shell would take apart; it is no glob, and no file here. */
static const char name[] = "store://bucket/it's $HOME *.txt";

TEST(what_a_client_gives_trains_as_the_file_does)
{
    const char *const names[] = {name};
    char command[600], asked[20];
    double loss, want_loss;
    lines_scene s;
    uint64_t want;

    make_store();
    lines_open(&s, LINES_MULTISLOT);
    want = train_on(&s, s.data, &want_loss);
    test_file_bytes("kept/it's $HOME *.txt", s.text, s.size);
    lines_close(&s);
    lines_open(&s, LINES_MULTISLOT);
    CHECK(train_on(&s, open_named(s.f, names, 1), &loss) == want);
    CHECK(loss == want_loss);
    lines_close(&s);
    snprintf(command, sizeof command, "grep -cFx \"$N\" '%s'",
             test_path("client.asked"));
    setenv("N", name, 1);
    CHECK_INT(test_shell(command, asked, sizeof asked), 0);
    CHECK_TEXT(asked, "3\n"); /* two passes, and an evaluation */
}

TEST(a_name_that_the_client_does_not_know_is_told)
{
    const char *const names[] = {"store://bucket/none"};
    lines_scene s;

    make_store();
    lines_open(&s, LINES_MULTISLOT);
    CHECK_FAILS(fleet_train_from_dataset(s.trainer, open_named(s.f, names, 1),
                                         NULL, NULL),
                FLEET_ECHILD, "store://bucket/none: pipe_command");
    CHECK_CONTAINS(fleet_last_error(), "exit code 1");
    lines_close(&s);
}

TEST(names_that_are_none_are_refused)
{
    const char *const bad[] = {"-", "", NULL};
    static const char *const said[] = {
        "name 2 of 2 is \"-\"", "name 2 of 2 is empty", "name 2 of 2 is NULL"};
    lines_scene s;
    fleet_dataset *d;

    make_store();
    lines_open(&s, LINES_MULTISLOT);
    d = open_named(s.f, (const char *const[]){name}, 1);
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(fleet_dataset_set_filelist(
                        d, (const char *const[]){name, bad[i]}, 2),
                    FLEET_EINVAL, said[i]);
    lines_close(&s);
}

TEST(a_model_scores_what_a_client_gives)
{
    const char *const names[] = {name};
    float got[LINES_N];
    lines_scene s;
    fleet_predictor *p;

    make_store();
    lines_open(&s, LINES_MULTISLOT);
    test_file_bytes("kept/it's $HOME *.txt", s.text, s.size);
    p = lines_predictor(&s);
    CHECK_OK(fleet_predict_files(
        p, names, 1,
        &(fleet_predict_options){.output = test_path("scores"),
                                 .pipe_command = client,
                                 .label = FLEET_LABEL_READ},
        NULL));
    CHECK_INT(lines_scores(test_path("scores"), got, LINES_N), LINES_N);
    for (int i = 0; i < LINES_N; i++)
        CHECK_NEAR((double)got[i], (double)s.want[i], 1e-6);
    fleet_predictor_destroy(p);
    lines_close(&s);
}
