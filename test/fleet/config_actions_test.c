/* config_actions_test.c - a configuration that is changed before it is read,
 * and what is done with one besides training. */
#define _GNU_SOURCE
#define SUITE config_actions
#include "test.h"
#include "model_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fleet/fleet.h>

#include "fleet/config/config.h"

static const char *config(void)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\", \"embedding_dim\": 4, "
        "\"hidden\": [8]}, \"dataset\": {\"format\": \"multislot\", \"train\": "
        "[\"%s\"], \"test\": [\"%s\"], \"batch_size\": 32}, \"slots\": "
        "[{\"name\": \"y\", \"type\": \"float\", \"role\": \"label\"}, "
        "{\"name\": \"dense\", \"type\": \"float\", \"dim\": 3}, {\"name\": "
        "\"u\", \"type\": \"uint64\"}, {\"name\": \"v\", \"type\": "
        "\"uint64\"}, "
        "{\"name\": \"w\", \"type\": \"uint64\", \"dim\": -1}]}";
    const char *train = scene_file("train.txt", 100, 1);
    char all[3000];

    snprintf(all, sizeof all, text, train, scene_file("test.txt", 60, 2));
    return test_file("config.json", all);
}

static const char *said(void)
{
    static char text[8000];

    snprintf(text, sizeof text, "%s", fleet_last_error());
    return text;
}

/* With up to three of them; the line is for fleet_free(). */
static fleet_status act(fleet_config_action action, const char *a,
                        const char *b, const char *c, char **line)
{
    const char *set[] = {a, b, c};
    fleet_config_options o = {
        .action = action, .set = set, .log_level = FLEET_LOG_SILENT};

    while (o.n_set < 3 && set[o.n_set])
        o.n_set++;
    return fleet_train_from_config(config(), &o, line);
}

static char *line_of(fleet_config_action action, const char *a, const char *b,
                     const char *c)
{
    char *line = NULL;

    CHECK_OK(act(action, a, b, c, &line));
    CHECK(line != NULL);
    return line;
}

/* --- KEY=VALUE ------------------------------------------------------------ */

static void read_with(fl_config *c, const char *const *set, int n)
{
    static const char text[] =
        "{\"model\": {\"type\": \"wide_deep\"}, \"dataset\": {\"format\": "
        "\"multislot\", \"train\": [\"a\", \"b\"], \"batch_size\": 4}, "
        "\"slots\": [{\"name\": \"y\", \"type\": \"float\", \"role\": "
        "\"label\"}, {\"name\": \"u\", \"type\": \"uint64\"}]}";

    fl_config_read_with(c, text, strlen(text), "f.json", set, n);
}

TEST(values_are_put_in_where_their_path_leads)
{
    static const char *const set[] = {
        "epochs=3",           "optimizer.learning_rate=0.5",
        "epochs=4",           "dataset.train[1]=more words=1",
        "model.hidden=[7,5]", "strategy.a_sync_configs.k_steps=20",
        "save=true story",    "load=\xc3\xa9t\xc3\xa9"};
    fl_config c;

    read_with(&c, set, 8);
    CHECK_INT(c.epochs, 4);
    CHECK_NEAR(c.optimizer.learning_rate, 0.5, 0);
    CHECK_TEXT(c.train[0], "a");
    CHECK_TEXT(c.train[1], "more words=1");
    CHECK_INT(c.ctr.n_hidden, 2);
    CHECK_INT(c.ctr.hidden[1], 5);
    CHECK_INT(c.strategy.a_sync_configs.k_steps, 20);
    CHECK_TEXT(c.save, "true story");
    CHECK_TEXT(c.load, "\xc3\xa9t\xc3\xa9");
    fl_config_done(&c);
}

static void check_refused(const char *set, const char *words)
{
    fl_config c;

    read_with(&c, &set, 1);
    CHECK_TEXT(said(), words);
    fl_config_done(&c);
}

TEST(what_leads_nowhere_is_refused_by_name)
{
    check_refused("epochs", "\"epochs\": expected key=value");
    check_refused("=3", "\"=3\": expected key=value");
    check_refused("epochs=three",
                  "f.json: epochs: expected an integer from 1 to 1000000, got "
                  "\"three\"");
    check_refused("dataset.train[2]=c",
                  "\"dataset.train[2]=c\": dataset.train: expected an element "
                  "2, but it has 2");
    check_refused("dataset[0]=c",
                  "\"dataset[0]=c\": dataset: expected it to be an array");
    check_refused("[0]=c",
                  "\"[0]=c\": the whole text: expected it to be an array");
    check_refused("dataset.train.first=c", "\"dataset.train.first=c\": "
                                           "dataset.train: expected it to be "
                                           "an object");
    check_refused("slots[0].name.x=c", "\"slots[0].name.x=c\": slots[0].name: "
                                       "expected it to be an object");
}

/* As in the file, with quotes or without; names of tables may be any. */
TEST(what_is_not_utf8_is_refused)
{
    check_refused("save=\xe9t\xe9",
                  "\"save=\\xe9t\\xe9\": a string that is not "
                  "UTF-8 (0xe9)");
    check_refused("save=\"\xc3\"",
                  "\"save=\"\\xc3\"\": a string that is not UTF-8 (0xc3)");
    check_refused("optimizer.tables.\xff.type=sgd",
                  "\"optimizer.tables.\\xff.type=sgd\": a string that is not "
                  "UTF-8 (0xff)");
}

/* Only how the list of keys begins: config_schema looks at all of them. */
static void check_told(const char *set, const char *words)
{
    fl_config c;

    read_with(&c, &set, 1);
    CHECK_CONTAINS(said(), words);
    fl_config_done(&c);
}

TEST(who_mistypes_a_key_is_told_what_was_meant)
{
    check_told("optimiser.type=adam",
               "f.json: optimiser: unknown key: did you mean \"optimizer\"? "
               "Expected one of: model, optimizer, ");
    check_told("dataset.bacth_size=4",
               "f.json: dataset.bacth_size: unknown key: did you mean "
               "\"batch_size\"? Expected one of: format, train, ");
}

/* --- actions -------------------------------------------------------------- */

TEST(what_is_printed_is_the_configuration_with_what_was_put_in)
{
    char *first =
        line_of(FLEET_CONFIG_PRINT, "epochs=7", "optimizer.type=\"sgd\"", NULL);
    const char *again = test_file("again.json", first);
    fleet_config_options o = {.action = FLEET_CONFIG_PRINT};
    char *second;

    CHECK_CONTAINS(first, "\"epochs\":\t7");
    CHECK_CONTAINS(first, "\"type\":\t\"sgd\"");
    CHECK_CONTAINS(first, "\"embedding_dim\":\t4");
    CHECK_OK(fleet_train_from_config(again, &o, &second));
    CHECK_TEXT(second, first);
    fleet_free(first);
    fleet_free(second);
}

TEST(a_check_says_what_there_is_and_leaves_nothing)
{
    char set[300];
    char *line;

    snprintf(set, sizeof set, "save=%s", test_path("saved"));
    line = line_of(FLEET_CONFIG_CHECK, set, "save_every.steps=1", NULL);
    /* 3 numbers and 3 embeddings of 4 to 8, to 1; 3 numbers to 1 */
    CHECK_TEXT(line, "{\"model\":\"wide_deep\",\"mode\":\"local\",\"workers\":"
                     "1,\"servers\":0,\"parameters\":6,\"numbers\":141,"
                     "\"tables\":[\"embedding\"],\"train_files\":1,"
                     "\"test_files\":1}");
    fleet_free(line);
    CHECK(access(test_path("saved"), F_OK) != 0);
    CHECK(access(test_path("saved.checkpoints/checkpoint-000001"), F_OK) != 0);
}

/* --- what a check finds --------------------------------------------------- */

static void check_finds(const char *set, fleet_status code, const char *words)
{
    char *line = (char *)1;

    CHECK_FAILS(act(FLEET_CONFIG_CHECK, set, NULL, NULL, &line), code, words);
    CHECK(line == NULL);
}

TEST(a_check_finds_what_a_training_would_find_late)
{
    char set[500];

    snprintf(set, sizeof set, "dataset.test[0]=%s",
             test_file("bad.txt", "1 1 3 0.1 0.2 0.3 1 5 1 x 0\n"));
    check_finds(set, FLEET_EFORMAT, "bad.txt:1");
    check_finds("load=no-such-save", FLEET_ENOENT, "no-such-save");
    check_finds("save=/no/such/folder", FLEET_EIO, "/no/such");
    check_finds("dataset.test[0]=no-such-file", FLEET_ENOENT, "no-such-file");
    snprintf(set, sizeof set, "dataset.train[0]=%s",
             test_file("empty.txt", ""));
    check_finds(set, FLEET_EEND, "empty.txt");
}

/* From here on this process is the only server of a job, or a worker of it. */
static void take_role(const char *role)
{
    setenv("PADDLE_PSERVERS_IP_PORT_LIST", "127.0.0.1:6000", 1);
    setenv("PADDLE_TRAINERS_NUM", "1", 1);
    setenv("PADDLE_TRAINER_ID", "0", 1);
    setenv("POD_IP", "127.0.0.1", 1);
    setenv("PADDLE_PORT", "6000", 1);
    setenv("TRAINING_ROLE", role, 1);
}

TEST(a_check_finds_that_a_log_has_no_folder)
{
    static const char *const roles[] = {"PSERVER", "TRAINER"};
    char *line;

    fleet_free(line_of(FLEET_CONFIG_CHECK, "strategy.log=power",
                       "strategy.log_configs.folder=/no/such/folder", NULL));
    take_role("PSERVER");
    check_finds("strategy.log=process", FLEET_EINVAL,
                "strategy.log is process, but server 0 has no folder for its "
                "log");
    for (int i = 0; i < 2; i++) {
        char set[300];

        take_role(roles[i]);
        CHECK_FAILS(
            act(FLEET_CONFIG_CHECK, "strategy.log=power",
                "strategy.log_configs.folder=/no/such/folder", NULL, &line),
            FLEET_EIO,
            "strategy.log: /no/such/folder cannot have a log: /no/such: "
            "No such file");
        snprintf(set, sizeof set, "strategy.log_configs.folder=%s",
                 test_path("logs"));
        CHECK_OK(
            act(FLEET_CONFIG_CHECK, "strategy.log=power", set, NULL, &line));
        CHECK((line != NULL) == (i == 1));
        fleet_free(line);
        CHECK(access(test_path("logs"), F_OK) != 0);
    }
}

TEST(an_evaluation_equals_that_of_the_training)
{
    char set[300], other[300];
    char *trained, *evaluated;

    snprintf(set, sizeof set, "save=%s", test_path("saved"));
    trained = line_of(FLEET_CONFIG_TRAIN, set, NULL, NULL);
    snprintf(other, sizeof other, "load=%s", test_path("saved"));
    evaluated = line_of(FLEET_CONFIG_EVALUATE, other, "save=/no/such/folder",
                        "optimizer.learning_rate=9");
    CHECK_TEXT(test_json_value(evaluated, "\"auc\""),
               test_json_value(trained, "\"auc\""));
    CHECK_TEXT(test_json_value(evaluated, "\"logloss\""),
               test_json_value(trained, "\"logloss\""));
    CHECK_TEXT(test_json_value(evaluated, "\"params_hash\""),
               test_json_value(trained, "\"params_hash\""));
    CHECK_CONTAINS(evaluated, "\"loss\":null,\"samples_per_s\":null");
    fleet_free(trained);
    fleet_free(evaluated);
}

TEST(nothing_to_evaluate_is_refused)
{
    char set[300], *line;
    fleet_config_options o = {.action = FLEET_CONFIG_EVALUATE,
                              .resume = 1,
                              .n_set = 1,
                              .set = &(const char *){set}};

    CHECK_FAILS(act(FLEET_CONFIG_EVALUATE, NULL, NULL, NULL, &line),
                FLEET_ECONFIG,
                "load: missing: there is nothing that was "
                "trained, to evaluate it");
    o.resume = 0;
    snprintf(set, sizeof set,
             "dataset={\"format\":\"multislot\",\"train\":"
             "[\"%s\"],\"batch_size\":4}",
             scene_file("train.txt", 100, 1));
    CHECK_FAILS(fleet_train_from_config(config(), &o, &line), FLEET_ECONFIG,
                "dataset.test: missing: there is nothing to evaluate");
    o.resume = 1;
    snprintf(set, sizeof set, "save_every.folder=%s", test_path("none"));
    CHECK_FAILS(fleet_train_from_config(config(), &o, &line), FLEET_ENOENT,
                "none");
}

TEST(actions_that_do_not_exist_are_refused)
{
    fleet_config_options o = {.action = (fleet_config_action)5};
    char *line;

    CHECK_FAILS(fleet_train_from_config("f.json", &o, &line), FLEET_EINVAL,
                "action: expected 0 to 4, got 5");
    o = (fleet_config_options){.n_set = 2};
    CHECK_FAILS(fleet_train_from_config("f.json", &o, &line), FLEET_EINVAL,
                "set is NULL, but n_set is 2");
    o.set = (const char *const[]){"epochs=3", NULL};
    CHECK_FAILS(fleet_train_from_config("f.json", &o, &line), FLEET_EINVAL,
                "set[1] is NULL");
}

/* --- beside a scheduler --------------------------------------------------- */

/* A socket in place of the scheduler's: what comes to it can be seen. */
static int stand_in_for_scheduler(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof at;
    char port[16];

    CHECK(bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 4) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    setenv("MS_SCHED_HOST", "127.0.0.1", 1);
    setenv("MS_SCHED_PORT", port, 1);
    setenv("MS_SERVER_NUM", "2", 1);
    setenv("MS_WORKER_NUM", "3", 1);
    return fd;
}

TEST(what_only_looks_asks_no_scheduler)
{
    static const char *const roles[] = {"MS_WORKER", "MS_PSERVER", "MS_SCHED"};
    const char *soon = "deadlines.connect_deadline_ms=200";
    int fd = stand_in_for_scheduler();
    char *line;

    for (int i = 0; i < 3; i++) {
        setenv("MS_ROLE", roles[i], 1);
        CHECK_OK(act(FLEET_CONFIG_CHECK, soon, NULL, NULL, &line));
        CHECK((line != NULL) == (i == 0));
        if (line)
            CHECK_CONTAINS(line, "\"mode\":\"ps-async\",\"workers\":3,"
                                 "\"servers\":2,");
        fleet_free(line);
        CHECK_OK(act(FLEET_CONFIG_DUMP, soon, NULL, NULL, &line));
        CHECK((line != NULL) == (i == 0));
        fleet_free(line);
        CHECK_OK(act(FLEET_CONFIG_PRINT, soon, NULL, NULL, &line));
        fleet_free(line);
        line = fleet_config_schema();
        CHECK(line != NULL);
        fleet_free(line);
    }
    CHECK(accept(fd, NULL, NULL) < 0 && errno == EAGAIN);
    setenv("MS_ROLE", "MS_WORKER", 1); /* and what trains does ask */
    CHECK_FAILS(act(FLEET_CONFIG_TRAIN, soon, NULL, NULL, &line),
                FLEET_ETIMEDOUT, "scheduler");
    CHECK(accept(fd, NULL, NULL) >= 0);
    close(fd);
}

TEST(what_only_looks_is_told_of_variables_that_are_wrong)
{
    close(stand_in_for_scheduler());
    setenv("MS_ROLE", "MS_WORKER", 1);
    setenv("MS_SERVER_NUM", "none", 1);
    check_finds(NULL, FLEET_EINVAL, "MS_SERVER_NUM is \"none\"");
    setenv("MS_SERVER_NUM", "2", 1);
    setenv("PADDLE_TRAINER_ID", "0", 1);
    check_finds(NULL, FLEET_EINVAL, "expected MindSpore's variables");
}

/* --- the program ---------------------------------------------------------- */

static void check_run(const char *options, const char *more, int status,
                      const char *words)
{
    char command[9000], out[9000];

    snprintf(command, sizeof command, "'%s' %s '%s' %s 2>&1",
             test_beside("fleet-train"), options, config(), more);
    CHECK_INT(test_shell(command, out, sizeof out), status);
    CHECK_CONTAINS(out, words);
}

TEST(the_program_has_an_option_for_each)
{
    check_run("--print-config", "epochs=9", 0, "\"epochs\":\t9");
    check_run("--dry-run", "epochs=9", 0, "\"tables\":[\"embedding\"]");
    check_run("--evaluate", "", 1, "load: missing");
    check_run("--evaluate --dry-run", "", 2,
              "usage: fleet-train [OPTION] FILE.json");
    check_run("--dump text", "epochs=9", 0, "minimize ");
    check_run("--dump png", "", 2,
              "--dump: expected text, dot, svg, json, plan, plan-dot, plan-svg "
              "or stages, got png");
    check_run("--dump text --dry-run", "", 2, "usage: fleet-train");
}

/* --- programs and plans --------------------------------------------------- */

static char *dump_of(fleet_dump how, const char *set)
{
    fleet_config_options o = {.action = FLEET_CONFIG_DUMP,
                              .dump = how,
                              .set = &set,
                              .n_set = 1,
                              .log_level = FLEET_LOG_SILENT};
    char *line = NULL;

    CHECK_OK(fleet_train_from_config(config(), &o, &line));
    CHECK(line != NULL);
    return line;
}

/* Of files that do not exist, and a save that cannot be written. */
TEST(a_dump_is_of_the_model_and_reads_no_data)
{
    char *text = dump_of(FLEET_DUMP_TEXT, "dataset.train[0]=no-such-file");
    char *plan = dump_of(FLEET_DUMP_PLAN, "dataset.test[0]=no-such-file");
    char *dot = dump_of(FLEET_DUMP_DOT, "save=/no/such/folder");

    CHECK_CONTAINS(text, "\nminimize ");
    CHECK_CONTAINS(plan, "plan train, batch 32, ");
    CHECK_CONTAINS(dot, "digraph program {");
    fleet_free(text);
    fleet_free(plan);
    fleet_free(dot);
    take_role("PSERVER");
    CHECK_OK(act(FLEET_CONFIG_DUMP, NULL, NULL, NULL, &text));
    CHECK(text == NULL);
}

static int count_lines(const char *text, const char *words)
{
    int n = 0;

    for (; (text = strstr(text, words)) != NULL; text++)
        n++;
    return n;
}

/* What is fed and what is kept are nodes, each with a line; all else is a line
 * from the step that has written it. */
TEST(a_drawn_plan_leads_from_what_is_fed_to_what_is_kept)
{
    char *dot = dump_of(FLEET_DUMP_PLAN_DOT, "epochs=2");
    char line[40], view[40];
    int n = 0;

    for (const char *at = dot; (at = strstr(at, "\n  v")) != NULL; at++) {
        int number = -1;
        char next = 0;

        if (sscanf(at + 4, "%d %c", &number, &next) != 2 || next != '[')
            continue;
        snprintf(line, sizeof line, " -> v%d [", number);
        snprintf(view, sizeof view, "\n  v%d -> ", number);
        CHECK(strstr(dot, line) != NULL || strstr(dot, view) != NULL);
        n++;
    }
    CHECK_INT(n, 15); /* feeds, 6 weights and all as one, 2 states, a table */
    CHECK_CONTAINS(dot, "label=\"region 1 by ");
    /* the first layer reads what both a concat and a gather have written */
    CHECK(count_lines(dot, "label=\"concat_0.tmp\\n[-1,15]\"") >= 3);
    CHECK_CONTAINS(dot, "label=\"sigmoid_0.tmp\\n[-1,1]\"];");
    CHECK(strstr(dot, "[label=\"sigmoid_0.tmp") == NULL);
    fleet_free(dot);
}

TEST(names_in_drawings_are_quoted)
{
    char *dot = dump_of(FLEET_DUMP_DOT, "slots[2].name=a\"b\\c");

    CHECK_CONTAINS(dot, "label=\"a\\\"b\\\\c\\n[");
    fleet_free(dot);
}

/* dot is not among what the suite needs: whether it is here or not. */
TEST(dot_draws_and_where_it_is_not_it_is_named)
{
    char command[9000], out[400];

    snprintf(command, sizeof command,
             "'%s' --dump plan-svg '%s' 2>&1 | tail -1 | cut -c -200",
             test_beside("fleet-train"), config());
    CHECK_INT(test_shell(command, out, sizeof out), 0);
    if (test_shell("command -v dot", (char[200]){0}, 200) == 0)
        CHECK_CONTAINS(out, "</svg>");
    else
        CHECK_CONTAINS(out, "is of the package graphviz");
    snprintf(command, sizeof command,
             "PATH=/no/such/folder '%s' --dump svg '%s' 2>&1",
             test_beside("fleet-train"), config());
    CHECK_INT(test_shell(command, out, sizeof out), 1);
    CHECK_CONTAINS(out, "dot, which draws svg, cannot be started: No such file "
                        "or directory; it is of the package graphviz");
}
