/* trace_test.c - traces: what they hold, and that buckets of gradients leave
 * while the backward pass still goes on. */
#define _GNU_SOURCE
#define SUITE trace
#include "gpu_kit.h"
#include "job_kit.h"
#include "launch_kit.h"
#include "ps_kit.h"
#include "test.h"
#include "train_kit.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"

/* An event, its names for as long as the file's JSON. */
typedef struct event {
    const char *name, *kind;
    double begin, end; /* us */
    int64_t number;    /* the thread, or which of those under way */
} event;

typedef struct events {
    fl_json *json;
    fl_at at;
} events;

static void read_trace(events *t, const char *folder, const char *who)
{
    char pattern[600];
    glob_t found;
    char *text;
    size_t size;
    fl_at root;

    snprintf(pattern, sizeof pattern, "%s/%s.*.json", folder, who);
    CHECK(glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    CHECK_OK(fl_file_read(found.gl_pathv[0], &text, &size));
    CHECK_OK(fl_json_parse(text, size, who, &t->json));
    fl_free(text);
    globfree(&found);
    root = fl_at_root(t->json);
    t->at = fl_at_key(&root, "traceEvents");
}

static double number_of(const fl_at *e, const char *key)
{
    double x = 0;
    fl_at at = fl_at_key(e, key);

    CHECK_OK(fl_at_double(&at, 0, 1e18, &x));
    return x;
}

static event event_of(const fl_at *e)
{
    fl_at name = fl_at_key(e, "name"), kind = fl_at_key(e, "ph");
    event out = {.begin = number_of(e, "ts")};

    CHECK_OK(fl_at_string(&name, &out.name));
    CHECK_OK(fl_at_string(&kind, &out.kind));
    out.end = out.begin + number_of(e, "dur");
    out.number = (int64_t)number_of(e, *out.kind == 'X' ? "tid" : "id");
    return out;
}

static bool is_gradient(const char *name)
{
    const char *dot = strrchr(name, '.');

    return strncmp(name, "fc.", 3) == 0 && strcmp(dot, ".forward") != 0;
}

/* --- one process --------------------------------------------------------- */

TEST(it_has_the_steps_of_each_thread)
{
    const char *folder = test_path("trace");
    int forward = 0, update = 0;
    events t;
    kit_model m;

    setenv("FLEET_TRACE", folder, 1);
    kit_open(&m, KIT_MLP, &(kit_options){.threads = 2});
    kit_train(&m, 40, 5);
    kit_close(&m);
    unsetenv("FLEET_TRACE");
    read_trace(&t, folder, "worker-0");
    for (fl_at e = fl_at_first(&t.at); e.json; fl_at_next(&t.at, &e)) {
        event x = event_of(&e);

        forward += strcmp(x.name, "fc.forward") == 0;
        update += strcmp(x.name, "update.dense") == 0;
        CHECK(x.number >= 0 && x.number < 2);
    }
    CHECK(forward >= 5 * 2 && update >= 5);
    fl_json_free(t.json);
}

TEST(one_that_cannot_be_written_is_a_warning)
{
    const char *file = test_file("file", "in the way");
    kit_model m;

    setenv("FLEET_TRACE", file, 1);
    kit_open(&m, KIT_MLP, &(kit_options){.threads = 1});
    kit_train(&m, 40, 1);
    kit_close(&m);
    unsetenv("FLEET_TRACE");
    CHECK_CONTAINS(fleet_last_error(), "file/worker-0.");
    CHECK_CONTAINS(fleet_last_error(), "Not a directory");
}

/* --- a GPU and servers ---------------------------------------------------- */

enum { PASSES = 2, LINES = 200, MOST_EVENTS = 64 };

static void open_on_gpu(ps_node *n, const fleet_options *o)
{
    scene_open_as(&n->s, o, &n->job->how);
    if (n->server)
        return;
    CHECK_OK(fleet_program_place(n->s.p, FLEET_GPU(0), NULL));
    scene_data_of(&n->s, n->job->file, 1, PS_BATCH, 1, 0);
}

/* When those of a name begin, or end. */
static int times_of(const events *t, const char *name, const char *kind,
                    bool end, double *at)
{
    int n = 0;

    for (fl_at e = fl_at_first(&t->at); e.json; fl_at_next(&t->at, &e)) {
        event x = event_of(&e);

        if (strcmp(x.name, name) == 0 && strcmp(x.kind, kind) == 0 &&
            n < MOST_EVENTS)
            at[n++] = end ? x.end : x.begin;
    }
    return n;
}

static int before(const double *at, int n, double limit)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        count += at[i] <= limit;
    return count;
}

/* In async the rows of the next batch are asked for before the GPU gets this
 * one, and travel while it computes; a push waits for its gradients. */
TEST(rows_of_the_next_batch_travel_while_a_gpu_computes)
{
    double begun[MOST_EVENTS], ended[MOST_EVENTS], pull[MOST_EVENTS],
        push[MOST_EVENTS];
    const int batches = (LINES + PS_BATCH - 1) / PS_BATCH;
    const char *folder = test_path("trace");
    ps_job j = {.passes = PASSES,
                .file = {scene_file("a.txt", LINES, 1)},
                .how.a_sync = true,
                .open = open_on_gpu};
    int pulls, ahead = 0;
    events t;

    gpu_kit_open();
    setenv("FLEET_TRACE", folder, 1);
    ps_run(&j);
    ps_check(&j);
    unsetenv("FLEET_TRACE");
    read_trace(&t, folder, "worker-0");
    CHECK_INT(times_of(&t, "gpu", "b", false, begun), PASSES * batches);
    CHECK_INT(times_of(&t, "gpu", "e", false, ended), PASSES * batches);
    CHECK_INT(times_of(&t, "ps.push", "X", false, push), PASSES * batches);
    pulls = times_of(&t, "ps.pull", "X", true, pull);
    for (int i = 0; i < PASSES * batches; i++) {
        CHECK(begun[i] <= ended[i] && ended[i] <= push[i]);
        ahead += before(pull, pulls, begun[i]) == i + 2;
    }
    CHECK_INT(ahead, PASSES * (batches - 1)); /* all but a pass's last */
    fl_json_free(t.json);
    gpu_kit_close();
}

/* --- ranks --------------------------------------------------------------- */

static const char *samples(void)
{
    static char text[20000];
    size_t n = 0;

    for (int i = 0; i < 256; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,%d,%d,0.5\n",
                              i % 2, i % 7, i % 5);
    return test_file("train.csv", text);
}

/* An MLP of three layers, each of its parameters a bucket. */
static const char *three_layers(const char *device)
{
    static char config[2000];
    const char *train = samples();

    snprintf(
        config, sizeof config,
        "{'device': '%s', 'model': {'type': 'mlp', 'hidden': [64, 32]}, "
        "'optimizer': {'type': 'sgd', 'learning_rate': 0.01}, 'epochs': 1, "
        "'strategy': {'fuse_all_reduce_ops': false}, 'dataset': "
        "{'format': 'csv', 'train': ['%s'], 'test': ['%s'], "
        "'batch_size': 16}, 'slots': [{'name': 'y', 'type': 'uint64', "
        "'role': 'label', 'columns': [0]}, {'name': 'x', 'type': "
        "'float', 'dim': 3, 'columns': [1, 2, 3]}]}",
        device, train, train);
    for (char *c = config; *c; c++)
        if (*c == '\'')
            *c = '"';
    return config;
}

typedef struct step {
    double first_left, last_gradient, first_done;
    int begun, ended;
} step;

/* Of one update; false: there is none. */
static bool next_step(fl_at *e, const events *t, step *s)
{
    *s = (step){1e18, 0, 1e18, 0, 0};
    for (; e->json; fl_at_next(&t->at, e)) {
        event x = event_of(e);

        if (strcmp(x.name, "update.dense") == 0)
            break;
        if (*x.kind == 'X' && is_gradient(x.name))
            s->last_gradient = x.end;
        s->begun += *x.kind == 'b';
        s->ended += *x.kind == 'e';
        if (*x.kind == 'b' && x.begin < s->first_left)
            s->first_left = x.begin;
        if (*x.kind == 'e' && x.begin < s->first_done)
            s->first_done = x.begin;
    }
    if (!e->json)
        return false;
    while (e->json && strcmp(event_of(e).name, "update.dense") == 0)
        fl_at_next(&t->at, e);
    return true;
}

/* All events have one number, under which the process has its name. */
static double process_of(const char *folder, const char *file, const char *name)
{
    double process = -1;
    events t;

    read_trace(&t, folder, file);
    for (fl_at e = fl_at_first(&t.at); e.json; fl_at_next(&t.at, &e)) {
        fl_at kind = fl_at_key(&e, "ph"), args = fl_at_key(&e, "args");
        fl_at said = fl_at_key(&args, "name");
        const char *text = "", *what = "";

        CHECK(process < 0 || number_of(&e, "pid") == process);
        process = number_of(&e, "pid");
        CHECK_OK(fl_at_string(&kind, &what));
        if (*what != 'M')
            continue;
        CHECK_OK(fl_at_string(&said, &text));
        CHECK_TEXT(text, name);
    }
    fl_json_free(t.json);
    return process;
}

TEST_LIMIT(processes_of_a_job_have_numbers_and_names_of_their_own, 60)
{
    const char *folder = test_path("trace");
    double first, second, server;

    setenv("FLEET_TRACE", folder, 1);
    job_train("--server_num 1 --worker_num 2", three_layers("cpu"));
    unsetenv("FLEET_TRACE");
    first = process_of(folder, "worker-0", "worker 0");
    second = process_of(folder, "worker-1", "worker 1");
    server = process_of(folder, "server-0", "server 0");
    CHECK(first > 0 && second > 0 && server > 0);
    CHECK(first != second && first != server && second != server);
}

TEST_LIMIT(buckets_leave_before_the_last_gradient_is_there, 60)
{
    const char *folder = test_path("trace");

    launch_need_mpirun();
    setenv("FLEET_TRACE", folder, 1);
    job_train("--nproc_per_node 2", three_layers("cpu"));
    unsetenv("FLEET_TRACE");
    for (int rank = 0; rank < 2; rank++) {
        events t;
        step s;
        int steps = 0;

        read_trace(&t, folder, rank ? "worker-1" : "worker-0");
        fl_at e = fl_at_first(&t.at);
        while (next_step(&e, &t, &s)) {
            CHECK_INT(s.begun, 6);
            CHECK_INT(s.ended, 6);
            CHECK(s.first_left < s.last_gradient);
            CHECK(s.last_gradient <= s.first_done);
            steps++;
        }
        CHECK_INT(steps, 256 / 2 / 16);
        fl_json_free(t.json);
    }
}

/* Of each update: the buckets, and what the GPU was given to compute between
 * the first that left and the first that was waited for. */
static void check_updates(events *t, int updates)
{
    int begun = 0, ended = 0, given = 0, n = 0;

    for (fl_at e = fl_at_first(&t->at); e.json; fl_at_next(&t->at, &e)) {
        event x = event_of(&e);
        bool is_sum = strcmp(x.name, "all_reduce") == 0;

        begun += is_sum && *x.kind == 'b';
        ended += is_sum && *x.kind == 'e';
        given += strcmp(x.name, "gpu.queue") == 0 && begun > 0 && ended == 0;
        if (ended < 6)
            continue;
        CHECK_INT(begun, 6);
        CHECK(given > 0);
        begun = ended = given = 0;
        n++;
    }
    CHECK_INT(n, updates);
}

TEST_LIMIT(on_gpus_buckets_leave_while_they_compute, 60)
{
    const char *folder = test_path("trace");

    job_use_gpus(2);
    setenv("FLEET_TRACE", folder, 1);
    job_train("--devices 0,1", three_layers("gpu"));
    unsetenv("FLEET_TRACE");
    for (int rank = 0; rank < 2; rank++) {
        events t;

        read_trace(&t, folder, rank ? "worker-1" : "worker-0");
        check_updates(&t, 256 / 2 / 16);
        fl_json_free(t.json);
    }
}
