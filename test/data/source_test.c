/* source_test.c - from files to bytes: packed ones, commands and what can
 * go wrong with them, nothing left behind. */
#define _GNU_SOURCE
#define SUITE source
#include "data_kit.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "data/io/read_ahead.h"
#include "data/io/fd.h"
#include "data/io/source.h"

static const fleet_slot slot = {.name = "x", .dtype = FLEET_INT64, .dim = 1};

static fl_stream_spec spec_of(const char *const *files, int n)
{
    fl_stream_spec spec = data_spec(FLEET_MULTISLOT, &slot, 1, files, n);

    spec.batch_size = 100;
    return spec;
}

/* "1 0\n1 1\n..." */
static char *lines(int from, int to, size_t *size)
{
    char *text = malloc((size_t)(to - from + 1) * 16), *s = text;

    for (int i = from; i < to; i++)
        s += sprintf(s, "1 %d\n", i);
    *size = (size_t)(s - text);
    return text;
}

static const char *numbers(const char *name, int from, int to, bool packed)
{
    size_t size;
    char *text = lines(from, to, &size);
    const char *path =
        packed ? data_gz(name, text, size) : test_file_bytes(name, text, size);

    free(text);
    return path;
}

/* The stream gives from, from + 1, ..., to - 1 and ends well. */
static void gives(fl_stream_spec spec, int from, int to)
{
    for (int n = 1; n <= 4; n += 3) {
        fl_stream *s;
        fl_batch *b;
        fleet_status status;
        int want = from;

        spec.n_thread = n;
        CHECK_OK(fl_stream_open(&s, &spec));
        while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
            for (int64_t i = 0; i < b->rows; i++)
                CHECK_INT(((const int64_t *)b->slot[0].values)[i], want++);
            fl_stream_release(s, b);
        }
        CHECK_STATUS(status, FLEET_EEND);
        CHECK_INT(want, to);
        fl_stream_close(s);
    }
}

static fleet_status read_source(const char *path, const char *command,
                                char *out, size_t room, size_t *size)
{
    fleet_status status;
    fl_source *s;
    size_t got = 1;
    int wakeup;

    CHECK_OK(fl_fd_wakeup(&wakeup));
    status = fl_source_open(
        &s, path, &(fl_source_options){.command = command, .wakeup = wakeup});
    *size = 0;
    if (status == FLEET_OK) {
        while (status == FLEET_OK && got > 0 && *size < room) {
            status = fl_source_read(s, out + *size, room - *size, &got);
            *size += got;
        }
        fl_source_close(s);
    }
    fl_fd_close(&wakeup);
    return status;
}

/* --- packed files --------------------------------------------------------- */

TEST(packed_files_are_unpacked)
{
    const char *files[] = {numbers("a.gz", 0, 50000, true),
                           numbers("b", 50000, 50010, false),
                           numbers("c.gz", 50010, 200000, true)};

    gives(spec_of(files, 3), 0, 200000);
}

TEST(members_may_follow_each_other_and_zeros_the_last)
{
    const char *parts[] = {numbers("a.gz", 0, 1000, true),
                           numbers("b.gz", 1000, 1000, true),
                           numbers("c.gz", 1000, 3000, true)};
    char *all = calloc(1, 100000);
    size_t size = 0;
    const char *files[1];

    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(parts[i], "rb");

        size += fread(all + size, 1, 30000, f);
        fclose(f);
    }
    files[0] = test_file_bytes("all.gz", all, size);
    gives(spec_of(files, 1), 0, 3000);
    files[0] = test_file_bytes("zeros.gz", all, size + 500);
    gives(spec_of(files, 1), 0, 3000);
    strcpy(all + size, "junk");
    files[0] = test_file_bytes("junk.gz", all, size + 4);
    fl_stream_spec spec = spec_of(files, 1);
    DATA_FAILS(&spec, FLEET_ECORRUPT, "junk.gz", "other bytes follow");
    free(all);
}

TEST(a_packed_file_that_is_cut_off_anywhere_is_an_error)
{
    const char *path = numbers("a.gz", 0, 300, true), *files[1];
    static char bytes[100000], out[100000];
    FILE *f = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, f), got;

    fclose(f);
    for (size_t n = 0; n < size; n += n < 30 || n + 30 > size ? 1 : 13) {
        files[0] = test_file_bytes("cut.gz", bytes, n);
        CHECK_FAILS(read_source(files[0], NULL, out, sizeof out, &got),
                    FLEET_ECORRUPT, "cut.gz");
        if (n % 50 == 0) {
            fl_stream_spec spec = spec_of(files, 1);

            DATA_FAILS(&spec, FLEET_ECORRUPT, "cut.gz");
            spec.n_thread = 2;
            DATA_FAILS(&spec, FLEET_ECORRUPT, "cut.gz");
            spec.pipe_command = "cat; true";
            DATA_FAILS(&spec, FLEET_ECORRUPT, "cut.gz");
        }
    }
    CHECK_OK(read_source(path, NULL, out, sizeof out, &got));
    for (size_t i = 2; i < size; i++) {
        /* some bits of the header, and those that fill up the last byte in
         * front of the checksum and the size, mean nothing */
        bytes[i] ^= 0x10;
        path = test_file_bytes("bad.gz", bytes, size);
        fleet_status status = read_source(path, NULL, out, sizeof out, &got);
        if (status != FLEET_ECORRUPT &&
            (status != FLEET_OK || (i >= 10 && i != size - 9)))
            test_fail(__FILE__, __LINE__, "byte %zu: %d", i, status);
        bytes[i] ^= 0x10;
    }
}

/* --- files ---------------------------------------------------------------- */

TEST(files_that_cannot_be_read_are_named)
{
    const char *good = numbers("good", 0, 10, false);
    const char *files[] = {good, "/no/such/file"};
    fl_stream_spec spec = spec_of(files, 2);
    fl_stream *s = NULL;

    spec.batch_size = 10;
    for (spec.n_thread = 1; spec.n_thread < 5; spec.n_thread += 2) {
        data_dump d = data_read(&spec);

        CHECK_STATUS(d.status, FLEET_ENOENT); /* after what came before it */
        CHECK_CONTAINS(d.error, "/no/such/file");
        CHECK_INT(d.rows, 10);
        spec.pipe_command = spec.pipe_command ? NULL : "cat -";
    }
    files[0] = "/no/such/file"; /* the first is opened at once */
    CHECK_FAILS(fl_stream_open(&s, &spec), FLEET_ENOENT, "/no/such/file");
    CHECK(s == NULL);
    files[0] = test_folder();
    CHECK_FAILS(fl_stream_open(&s, &spec), FLEET_EIO, "not a regular file");
    files[0] = test_file("pipe", "");
    unlink(files[0]);
    CHECK(mkfifo(files[0], 0600) == 0);
    CHECK_FAILS(fl_stream_open(&s, &spec), FLEET_EIO, "not a regular file");
}

/* --- commands ------------------------------------------------------------- */

TEST(a_command_stands_between_file_and_lines)
{
    const char *files[] = {numbers("a", 0, 5000, false),
                           numbers("b.gz", 5000, 200000, true),
                           numbers("c", 200000, 200001, false)};
    fl_stream_spec spec = spec_of(files, 3);

    spec.pipe_command = "cat";
    gives(spec, 0, 200001);
    spec.pipe_command = "cat -";
    gives(spec, 0, 200001);
    spec.pipe_command = "sed 's/ / 1/' | awk '{print $1, substr($2, 2)}'";
    gives(spec, 0, 200001);
    spec.n_file = 2;
    spec.pipe_command = "head -n 5000"; /* leaves most of the second unread */
    gives(spec, 0, 10000);
    CHECK(!data_children());
}

/* The shell has the name as it is, and nothing to read. */
TEST(a_command_opens_what_it_is_told)
{
    const char *name = "no such 'file' \"of\" $HOME `x` \\ *";
    char out[200] = "", want[200];
    size_t size;

    CHECK_OK(read_source(name, "cat; printf '%s|' {path} a{path}", out,
                         sizeof out - 1, &size));
    snprintf(want, sizeof want, "%s|a%s|", name, name);
    CHECK_TEXT(out, want);
    CHECK_FAILS(
        read_source(name, "cat {path} 2>&-", out, sizeof out - 1, &size),
        FLEET_ECHILD, "no such 'file'");
    CHECK(!data_children());
}

/* Each command waits until all four have begun, so that one at a time would
 * never end. */
TEST(commands_of_several_files_run_at_once)
{
    const char *files[] = {numbers("a", 0, 1, false), numbers("b", 1, 2, false),
                           numbers("c", 2, 3, false),
                           numbers("d", 3, 4, false)};
    fl_stream_spec spec = spec_of(files, 4);
    char command[5000];
    data_dump d;

    snprintf(command, sizeof command,
             "echo >'%s'/begun.$$; until [ $(ls '%s' | grep -c begun) -ge 4 ]; "
             "do sleep .01; done; cat",
             test_folder(), test_folder());
    spec.pipe_command = command;
    d = data_read_n(spec, 4);
    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 4);
}

/* Its queue fills to the bound, and goes around its end many times. */
TEST(what_is_read_ahead_comes_out_as_it_went_in)
{
    enum { SIZE = 50000000 };
    const char *path = test_file("a", "");
    char *got = malloc(1 << 21);
    uint64_t state = 1;
    size_t at = 0, n;
    fl_read_ahead *a;
    int wakeup;

    CHECK_OK(fl_fd_wakeup(&wakeup));
    CHECK_OK(fl_read_ahead_start(
        &a, path,
        &(fl_source_options){.command = "yes 123456 | head -c 50000000",
                             .wakeup = wakeup}));
    CHECK_OK(fl_read_ahead_wait(a));
    usleep(400000);
    do {
        size_t size = 1 + data_random(&state) % (1 << 21);

        CHECK_OK(fl_read_ahead_read(a, got, size, &n));
        for (size_t i = 0; i < n; i++)
            if (got[i] != "123456\n"[(at + i) % 7])
                test_fail(__FILE__, __LINE__, "byte %zu", at + i);
        at += n;
    } while (n > 0);
    CHECK_INT(at, SIZE);
    fl_read_ahead_close(a);
    fl_fd_close(&wakeup);
    free(got);
}

TEST(line_numbers_are_those_of_the_commands_output)
{
    const char *files[] = {test_file("a", "x 1\nx 2\nx 3\n")};
    fl_stream_spec spec = spec_of(files, 1);

    spec.pipe_command = "sed 's/x/1/; 2s/2/two/'";
    DATA_FAILS(&spec, FLEET_EFORMAT, "/a:2 of pipe_command's output",
               "got \"two\"");
}

static void command_fails(const char *command, const char *words)
{
    const char *files[] = {numbers("a", 0, 1000, false),
                           numbers("b.gz", 1000, 100000, true)};

    for (int i = 0; i < 2; i++)
        for (int n = 1; n < 4; n++) {
            fl_stream_spec spec = spec_of(files + i, 2 - i);

            spec.n_thread = n;
            spec.pipe_command = command;
            DATA_FAILS(&spec, FLEET_ECHILD, i ? "/b.gz" : "/a", command, words);
            CHECK(!data_children());
        }
}

TEST(a_failing_command_is_reported_with_file_and_reason)
{
    command_fails("exit 3", "exit code 3");
    command_fails("cat; exit 4", "exit code 4");
    command_fails("head -n 7; exit 5", "exit code 5");
    command_fails("kill -9 $$", "killed by signal 9");
    command_fails("kill -TERM $$; sleep 9", "killed by signal 15");
    command_fails("/no/such/command", "exit code 127 (command not found)");
    command_fails("cat /no/such/file 2> /dev/null", "exit code 1");
    command_fails("printf '1 5\\n1 six' ; exit 6", "exit code 6");
    command_fails("exec 1>&-; exec 0<&-; sleep .05; exit 7", "exit code 7");
}

TEST(lines_before_a_failure_come_first)
{
    const char *files[] = {numbers("a", 0, 1000, false)};
    fl_stream_spec spec = spec_of(files, 1);
    data_dump d;

    spec.pipe_command = "head -n 250; exit 1";
    d = data_read_n(spec, 1);
    CHECK_STATUS(d.status, FLEET_ECHILD);
    CHECK_INT(d.rows, 200);
    d = data_read_n(spec, 3);
    CHECK_INT(d.rows, 200);
}

TEST(a_command_that_gives_nothing_is_no_error)
{
    const char *files[] = {numbers("a", 0, 1000, false),
                           numbers("b.gz", 1000, 100000, true)};
    fl_stream_spec spec = spec_of(files, 2);

    spec.pipe_command = "true";
    gives(spec, 0, 0);
    spec.pipe_command = "cat > /dev/null";
    gives(spec, 0, 0);
}

/* What the command starts dies with it. */
TEST(closing_ends_the_whole_group_at_once)
{
    const char *const commands[] = {"sleep 100",
                                    "cat; sleep 100",
                                    "sleep 100 & sleep 100 & cat; wait",
                                    "trap '' TERM INT HUP; cat; sleep 100",
                                    "yes '1 1'",
                                    "exec 1>&-; sleep 100"};
    const char *files[] = {numbers("a", 0, 100000, false),
                           numbers("b.gz", 0, 100000, true)};
    int fds = data_open_fds();

    for (int c = 0; c < DATA_N(commands); c++)
        for (int i = 0; i < 2; i++)
            for (int n = 1; n < 4; n += 2) {
                fl_stream_spec spec = spec_of(files + i, 2 - i);
                fl_stream *s;

                spec.n_thread = n;
                spec.pipe_command = commands[c];
                CHECK_OK(fl_stream_open(&s, &spec));
                usleep((unsigned)(c * 3000 + i * 1000));
                fl_stream_close(s);
                CHECK(!data_children());
                CHECK_INT(data_open_fds(), fds);
            }
}

TEST(a_command_sees_plain_signals_and_only_its_own_descriptors)
{
    const char *files[] = {numbers("a", 7, 8, false)};
    fl_stream_spec spec = spec_of(files, 1);

    CHECK(open("/dev/null", O_RDONLY) >= 3); /* would be inherited */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    spec.pipe_command = "ls /proc/self/fd | grep -v '^[0-3]$' | sed 's/^/1 /'";
    gives(spec, 0, 0);
    spec.pipe_command = "grep -c -E '^Sig(Blk|Ign):.0000000000000000$' "
                        "/proc/self/status | sed 's/^/1 /'";
    gives(spec, 2, 3);
}

TEST(a_host_without_standard_descriptors_can_use_commands)
{
    const char *files[] = {numbers("a", 0, 1000, false),
                           numbers("b.gz", 1000, 2000, true)};
    fl_stream_spec spec = spec_of(files, 2);
    int kept = fcntl(2, F_DUPFD_CLOEXEC, 10);

    close(0);
    close(1);
    close(2);
    spec.pipe_command = "cat -";
    gives(spec, 0, 2000);
    CHECK(fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0);
    dup2(kept, 2);
}

TEST(a_host_that_ignores_its_children_is_told_so)
{
    const char *files[] = {numbers("a", 0, 10, false)};
    fl_stream_spec spec = spec_of(files, 1);

    signal(SIGCHLD, SIG_IGN);
    spec.pipe_command = "cat -";
    DATA_FAILS(&spec, FLEET_ECHILD, "SIGCHLD", "/a");
}

/* Wait until there is no process of the number that stands in the file. */
static void wait_for_death(const char *pid_file)
{
    FILE *f = fopen(pid_file, "r");
    int pid = 0;

    CHECK(f && fscanf(f, "%d", &pid) == 1);
    fclose(f);
    for (int i = 0; i < 5000; i++) {
        char path[64], state = 'Z'; /* nobody may have reaped it yet */

        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        f = fopen(path, "r");
        if (!f || fscanf(f, "%*d %*s %c", &state) != 1 || state == 'Z')
            return;
        fclose(f);
        usleep(1000);
    }
    test_fail(__FILE__, __LINE__, "process %d still runs", pid);
}

TEST(a_group_is_ended_when_its_leader_is_done)
{
    const char *files[] = {numbers("a", 0, 10, false)};
    const char *pid_file = test_file("pid", "");
    char command[200];
    fl_stream_spec spec = spec_of(files, 1);

    snprintf(command, sizeof command,
             "sleep 100 > /dev/null & echo $! > %s; cat", pid_file);
    spec.pipe_command = command;
    gives(spec, 0, 10);
    wait_for_death(pid_file);
}

/* Neither more output nor an end: by a command that sleeps, by a child of it
 * that has its output, by one that is stopped, and without an output. */
TEST(a_command_that_brings_nothing_is_ended_by_its_timeout)
{
    static const char *const commands[] = {
        "cat; sleep 100", "cat; sleep 100 &", "kill -STOP $$; cat",
        "cat; exec 1>&-; sleep 100", "cat >/dev/null; sleep 100 | sleep 100"};
    const char *files[] = {numbers("a", 0, 100, false),
                           numbers("b.gz", 0, 300000, true)};

    for (int c = 0; c < DATA_N(commands); c++)
        for (int i = 0; i < 2; i++) {
            fl_stream_spec spec = spec_of(files + i, 2 - i);

            spec.n_thread = 1 + c % 2 * 2;
            spec.pipe_command = commands[c];
            spec.pipe_timeout_ms = 200;
            DATA_FAILS(&spec, FLEET_ETIMEDOUT, i ? "/b.gz" : "/a", commands[c],
                       "nothing has come for 200 ms", "pipe_timeout_ms");
            CHECK(!data_children());
        }
}

/* By itself, with a command in front of it, and packed, with one. The writer
 * has it open, and may have brought some. */
TEST(a_fifo_that_brings_nothing_is_ended_by_its_timeout)
{
    static const char *const names[] = {"fifo", "fifo", "fifo.gz"};

    for (int i = 0; i < 6; i++) {
        const char *path = test_path(names[i / 2]);
        fl_stream_spec spec = spec_of(&path, 1);
        int fd;

        if (i % 2 == 0 && i != 2)
            CHECK(mkfifo(path, 0600) == 0);
        fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        if (i == 1)
            CHECK(write(fd, "1 5\n1 6\n", 8) == 8);
        spec.any_file = true;
        spec.n_thread = 1 + i % 2 * 2;
        spec.pipe_command = i / 2 ? "sed -n p" : NULL;
        spec.pipe_timeout_ms = 200;
        DATA_FAILS(&spec, FLEET_ETIMEDOUT, names[i / 2],
                   "nothing has come for 200 ms", "pipe_timeout_ms");
        CHECK(!data_children());
        close(fd);
    }
}

TEST(a_slow_command_is_given_its_time)
{
    const char *files[] = {numbers("a", 0, 12, false)};
    fl_stream_spec spec = spec_of(files, 1);

    spec.pipe_command = "while read -r l; do sleep 0.2; echo $l; done";
    spec.pipe_timeout_ms = 2000;
    gives(spec, 0, 12);
}

/* The number in the file that a command writes; the test's limit ends it. */
static pid_t pid_from(const char *file)
{
    int pid = 0;

    while (pid == 0) {
        FILE *f = fopen(file, "r");

        if (f && fscanf(f, "%d", &pid) != 1)
            pid = 0;
        if (f)
            fclose(f);
        usleep(1000);
    }
    return pid;
}

/* Host and command are stopped, as a suspended job is, for longer than a
 * command may bring nothing; then both go on. */
TEST(a_sleep_of_the_host_is_not_a_commands)
{
    enum { TIMEOUT_MS = 1000 * TEST_PATIENCE };
    const char *files[] = {numbers("a", 0, 10, false)};
    const char *pid_file = test_file("pid", "");
    fl_stream_spec spec = spec_of(files, 1);
    char command[200];
    pid_t host, shell;
    int status;

    snprintf(command, sizeof command, "echo $$ > %s; kill -STOP $$; cat",
             pid_file);
    spec.pipe_command = command;
    spec.pipe_timeout_ms = TIMEOUT_MS;
    host = test_fork();
    if (host == 0) {
        fl_stream *s;
        fl_batch *b;

        CHECK_OK(fl_stream_open(&s, &spec));
        CHECK_OK(fl_stream_next(s, &b));
        fl_stream_close(s);
        _exit(0);
    }
    shell = pid_from(pid_file);
    CHECK(kill(host, SIGSTOP) == 0);
    usleep(2 * TIMEOUT_MS * 1000);
    CHECK(kill(host, SIGCONT) == 0);
    CHECK(kill(shell, SIGCONT) == 0);
    CHECK(waitpid(host, &status, 0) == host);
    CHECK_INT(status, 0);
}

TEST(what_a_command_has_started_dies_with_the_program)
{
    const char *files[] = {numbers("a", 0, 10, false)};
    const char *pid_file = test_file("pid", "");
    char command[200];
    fl_stream_spec spec = spec_of(files, 1);
    fl_stream *s;
    pid_t host;

    snprintf(command, sizeof command,
             "trap '' TERM INT HUP; sleep 100 & echo $! > %s; echo 1 1; wait",
             pid_file);
    spec.pipe_command = command;
    spec.batch_size = 1;
    host = test_fork();
    if (host == 0) {
        fl_batch *b;

        CHECK_OK(fl_stream_open(&s, &spec));
        CHECK_OK(fl_stream_next(s, &b)); /* the number is in the file */
        raise(SIGKILL);
    }
    CHECK(waitpid(host, NULL, 0) == host);
    wait_for_death(pid_file);
}

TEST(a_command_dies_with_the_program)
{
    const char *files[] = {numbers("a", 0, 10, false)};
    const char *pid_file = test_file("pid", "");
    char command[100];
    fl_stream_spec spec = spec_of(files, 1);
    fl_stream *s;
    pid_t host;
    int status;

    snprintf(command, sizeof command, "echo $$ > %s; exec sleep 100", pid_file);
    spec.pipe_command = command;
    host = fork();
    if (host == 0) {
        fl_stream_open(&s, &spec);
        usleep(200000);
        raise(SIGKILL);
    }
    CHECK(waitpid(host, &status, 0) == host);
    CHECK(WIFSIGNALED(status));
    wait_for_death(pid_file);
}
