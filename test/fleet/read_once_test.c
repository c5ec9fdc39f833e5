/* read_once_test.c - standard input and FIFOs as data: read as a file with the
 * same lines is, once; who asks for them again, or would share them, is told.
 */
#define SUITE read_once
#include "lines_kit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/stream.h"
#include "fleet/job/read_once.h"
#include "fleet/job/stop.h"

/* A process that writes the text, once somebody reads. */
static pid_t write_to(const char *path, const char *text)
{
    const pid_t child = test_fork();

    if (child > 0)
        return child;
    const int fd = open(path, O_WRONLY);

    for (size_t size = strlen(text); fd >= 0 && size > 0;) {
        const ssize_t n = write(fd, text, size);

        if (n < 0)
            _exit(1);
        text += n;
        size -= (size_t)n;
    }
    _exit(fd < 0);
}

static void is_written(pid_t child)
{
    int how;

    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static const char *make_fifo(const char *name)
{
    const char *path = test_path(name);

    CHECK(mkfifo(path, 0600) == 0);
    return path;
}

static uint64_t hash_of(fleet *f)
{
    uint64_t hash;

    CHECK_OK(fleet_params_hash(f, &hash));
    return hash;
}

static int64_t train(lines_scene *s)
{
    fleet_train_result r;

    CHECK_OK(fleet_train_from_dataset(s->trainer, s->data, NULL, &r));
    return r.samples;
}

static void refuse_pass(lines_scene *s, fleet_status code, const char *words)
{
    CHECK_FAILS(fleet_train_from_dataset(s->trainer, s->data, NULL, NULL), code,
                words);
}

static void set_file(lines_scene *s, const char *path)
{
    CHECK_OK(fleet_dataset_set_filelist(s->data, &path, 1));
}

TEST(a_fifo_trains_as_a_file_does_and_once)
{
    lines_scene s, same;
    const char *path = make_fifo("fifo");
    pid_t writer;

    lines_open(&same, LINES_MULTISLOT);
    CHECK_INT(train(&same), LINES_N);
    lines_open(&s, LINES_MULTISLOT);
    set_file(&s, path);
    writer = write_to(path, s.text);
    CHECK_INT(train(&s), LINES_N);
    is_written(writer);
    CHECK(hash_of(s.f) == hash_of(same.f));
    refuse_pass(&s, FLEET_ESTATE,
                "fifo was read already, and can be read once");
    set_file(&s, path); /* a new one, as far as anybody knows */
    writer = write_to(path, s.text);
    CHECK_INT(train(&s), LINES_N);
    is_written(writer);
    lines_close(&s);
    lines_close(&same);
}

TEST(standard_input_is_one_datasets)
{
    lines_scene s;
    int ends[2];

    lines_open(&s, LINES_MULTISLOT);
    CHECK(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) == 0);
    CHECK(write(ends[1], s.text, strlen(s.text)) == (ssize_t)strlen(s.text));
    close(ends[0]);
    close(ends[1]);
    set_file(&s, "-");
    CHECK_INT(train(&s), LINES_N);
    refuse_pass(&s, FLEET_ESTATE, "standard input was read already");
    set_file(&s, "-");
    refuse_pass(&s, FLEET_ESTATE, "standard input was read already");
    set_file(&s, s.path);
    CHECK_INT(train(&s), LINES_N);
    lines_close(&s);
}

TEST(standard_input_stands_once_in_a_list)
{
    const char *files[] = {"-", "-"};
    lines_scene s;

    lines_open(&s, LINES_MULTISLOT);
    CHECK_FAILS(fleet_dataset_set_filelist(s.data, files, 2), FLEET_EINVAL,
                "\"-\", standard input, stands twice in the list");
    CHECK_INT(train(&s), LINES_N); /* the list before */
    lines_close(&s);
}

static void on_alarm(int number)
{
    (void)number;
    fleet_train_stop();
}

/* SIGALRM from now on, until it has come. */
static void stop_soon(void)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 50000}};

    signal(SIGALRM, on_alarm);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static fleet_dataset *open_piped(fleet *f, const char *path, bool in_memory)
{
    const fleet_slot slots[] = {
        {.name = "color", .dtype = FLEET_INT64},
        {.name = "numbers", .dim = 2},
        {.name = "label", .dtype = FLEET_INT64},
        {.name = "word", .dtype = FLEET_INT64, .dim = -1}};
    const fleet_dataset_options o = {.format = FLEET_MULTISLOT,
                                     .pipe_command = "sed -n p",
                                     .slots = slots,
                                     .n_slot = 4};
    fleet_dataset *d =
        in_memory ? fleet_in_memory_dataset(f, &o) : fleet_queue_dataset(f, &o);

    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    return d;
}

/* A command waits for the FIFO's writer before there is a stream. */
TEST(a_stop_ends_a_pass_that_opens)
{
    const char *path = make_fifo("fifo");
    fleet_train_result r;
    fleet_dataset *d;
    lines_scene s;
    pid_t writer;

    lines_open(&s, LINES_MULTISLOT);
    d = open_piped(s.f, path, false);
    stop_soon();
    CHECK_OK(fleet_train_from_dataset(s.trainer, d, NULL, &r));
    CHECK_INT(r.stopped, 1);
    CHECK_INT(r.batches, 0);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    writer = write_to(path, s.text);
    CHECK_OK(fleet_train_from_dataset(s.trainer, d, NULL, &r));
    CHECK_INT(r.stopped, 0);
    CHECK_INT(r.samples, LINES_N);
    is_written(writer);
    lines_close(&s);
}

/* Some lines have come, and more may. */
TEST(a_stop_ends_a_load_in_its_middle)
{
    const char *path = make_fifo("fifo");
    fleet_dataset *d;
    lines_scene s;
    int64_t n;
    int fd;

    lines_open(&s, LINES_MULTISLOT);
    d = open_piped(s.f, path, true);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(write(fd, s.text, strlen(s.text)) > 0);
    stop_soon();
    CHECK_FAILS(fleet_dataset_load_into_memory(d), FLEET_EEND,
                "stopped while samples were read into memory");
    CHECK_STATUS(fleet_dataset_get_memory_data_size(d, 0, &n), FLEET_ESTATE);
    close(fd);
    lines_close(&s);
}

TEST(a_stop_ends_a_load_and_a_wait_for_a_preload)
{
    const char *path = make_fifo("fifo");
    fleet_dataset *d;
    lines_scene s;
    int64_t n;

    lines_open(&s, LINES_MULTISLOT);
    d = open_piped(s.f, path, true);
    stop_soon();
    CHECK_FAILS(fleet_dataset_load_into_memory(d), FLEET_EEND,
                "stopped while samples were read into memory");
    CHECK_STATUS(fleet_dataset_get_memory_data_size(d, 0, &n), FLEET_ESTATE);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    s.f->stops_met = fl_stop_count();
    CHECK_OK(fleet_dataset_preload_into_memory(d));
    stop_soon();
    CHECK_STATUS(fleet_dataset_wait_preload_done(d), FLEET_EEND);
    CHECK_FAILS(fleet_dataset_set_filelist(d, &path, 1), FLEET_ESTATE,
                "call fleet_dataset_wait_preload_done() before");
    lines_close(&s); /* which ends the preload */
}

/* Means want a pass of their own. */
TEST(what_comes_once_is_not_standardized_without_means)
{
    const fleet_transform standardize = FLEET_STANDARDIZE;
    const char *column = "0", *path = make_fifo("fifo");
    const fleet_slot slot = {.name = "x",
                             .columns = &column,
                             .n_column = 1,
                             .transforms = &standardize,
                             .n_transform = 1};
    const fleet_dataset_options o = {
        .format = FLEET_CSV, .slots = &slot, .n_slot = 1};
    fl_stream *stream;
    fleet_dataset *d;
    fleet *f;

    CHECK_OK(fleet_init(&f, NULL));
    d = fleet_queue_dataset(f, &o);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    CHECK_FAILS(fl_dataset_open(d, true, NULL, &stream), FLEET_EINVAL,
                "standardize makes its means in a pass before");
    fleet_destroy(f);
}

TEST(workers_do_not_share_what_comes_once)
{
    const char *files[] = {test_file("a", "x"), make_fifo("fifo")};
    fl_stream_spec spec = {.files = files, .n_file = 2, .share_count = 3};
    fleet f = {.role = {.worker_num = 3}};
    fleet_dataset d = {.fleet = &f};

    CHECK_FAILS(fl_read_once_begin(&d, &spec), FLEET_EINVAL,
                "fifo can be read once, and 3 workers would read it");
    spec.n_file = 1;
    CHECK_OK(fl_read_once_begin(&d, &spec));
    CHECK_OK(fl_read_once_begin(&d, &spec));
}

/* It has to wait for the FIFO's writer: before, a read finds an end. */
TEST(a_command_reads_a_fifo_from_its_beginning)
{
    lines_scene s;
    const char *path = make_fifo("fifo");
    const fleet_dataset_options o = {
        .format = FLEET_MULTISLOT,
        .pipe_command = "touch started; sed -n p",
        .slots =
            (const fleet_slot[]){
                {.name = "color", .dtype = FLEET_INT64},
                {.name = "numbers", .dim = 2},
                {.name = "label", .dtype = FLEET_INT64},
                {.name = "word", .dtype = FLEET_INT64, .dim = -1}},
        .n_slot = 4};
    pid_t writer;
    fl_stream *stream;
    fl_batch *b;
    int64_t rows = 0;
    fleet_dataset *d;

    lines_open(&s, LINES_MULTISLOT);
    CHECK(chdir(test_folder()) == 0);
    d = fleet_queue_dataset(s.f, &o);
    CHECK(d != NULL);
    CHECK_OK(fleet_dataset_set_filelist(d, &path, 1));
    writer = test_fork();
    if (writer == 0) {
        for (int i = 0; i < 100; i++, usleep(1000))
            if (access("started", F_OK) == 0)
                _exit(2); /* too early */
        writer = write_to(path, s.text);
        is_written(writer);
        _exit(0);
    }
    CHECK_OK(fl_dataset_open(d, true, NULL, &stream));
    while (fl_stream_next(stream, &b) == FLEET_OK) {
        rows += b->rows;
        fl_stream_release(stream, b);
    }
    fl_stream_close(stream);
    CHECK_INT(rows, LINES_N);
    is_written(writer);
    lines_close(&s);
}

static void refuse_config(const char *const *set, int n, const char *words)
{
    static const char text[] =
        "{\"model\":{\"type\":\"mlp\"},\"optimizer\":{},\"dataset\":"
        "{\"format\":\"multislot\",\"train\":[\"-\"]},\"slots\":["
        "{\"name\":\"x\",\"type\":\"float\",\"dim\":2},"
        "{\"name\":\"y\",\"type\":\"uint64\",\"role\":\"label\"}]}";
    const char *path = test_file("config.json", text);
    const fleet_config_options o = {.set = set, .n_set = n};
    char *line = NULL;

    CHECK_FAILS(fleet_train_from_config(path, &o, &line), FLEET_ECONFIG, words);
}

TEST(a_configuration_asks_for_standard_input_once)
{
    refuse_config((const char *const[]){"epochs=2"}, 1, "dataset.train");
    refuse_config((const char *const[]){"dataset.test=[\"-\"]"}, 1,
                  "dataset.test");
    refuse_config((const char *const[]){"dataset.train=[\"a\"]",
                                        "dataset.validation=[\"-\"]"},
                  2, "dataset.validation");
}
