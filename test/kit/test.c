/* test.c - the helpers of test.h. */
#define _GNU_SOURCE
#define SUITE test
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static int number_in(const char *variable)
{
    const char *text = getenv(variable);
    int n = text ? atoi(text) : 1;

    return n < 1 ? 1 : n;
}

int test_fraction(void)
{
    return number_in("FLEET_TEST_FRACTION");
}

void test_use_fraction(int n)
{
    char text[12];

    if (n <= test_fraction())
        return;
    snprintf(text, sizeof text, "%d", n);
    setenv("FLEET_TEST_FRACTION", text, 1);
}

bool test_ends_process;

void test_fail(const char *file, int line, const char *format, ...)
{
    char text[2000];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    if (test_ends_process)
        _exit(1);
#ifndef FL_OWN_RUNNER
    cr_assert_fail("%s:%d: %s", file, line, text);
#endif
    exit(1);
}

pid_t test_fork(void)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        test_ends_process = true;
    }
    return child;
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

void test_check_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    if (__lsan_do_recoverable_leak_check())
        test_fail(__FILE__, __LINE__, "memory is lost");
#endif
}

void test_skip(const char *format, ...)
{
    char text[500];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "skipped: %s\n", text);
#ifndef FL_OWN_RUNNER
    cr_skip_test("%s", text);
#endif
    exit(77);
}

const char *test_keep(const char *text)
{
    static struct kept {
        struct kept *next;
        char text[];
    } * all;
    struct kept *one = malloc(sizeof *one + strlen(text) + 1);

    if (!one)
        test_fail(__FILE__, __LINE__, "out of memory");
    strcpy(one->text, text);
    one->next = all;
    all = one;
    return one->text;
}

const char *test_json_value(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    char text[80];

    if (!at)
        test_fail(__FILE__, __LINE__, "no %s in %s", key, line);
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at, ",}"), at);
    return test_keep(text);
}

const char *test_data(const char *name)
{
    static char path[4096];
    const char *root = getenv("FLEET_TEST_DATA");

    if (!root || !*root)
        test_skip("FLEET_TEST_DATA is not set, so %s is absent", name);
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (access(path, R_OK) != 0)
        test_skip("%s is absent", path);
    return test_keep(path);
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    char below[4096];

    if (dir) {
        while ((e = readdir(dir)) != NULL) {
            if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
                continue;
            snprintf(below, sizeof below, "%s/%s", path, e->d_name);
            if (e->d_type == DT_DIR)
                remove_tree(below);
            else
                unlink(below);
        }
        closedir(dir);
    }
    chmod(path, 0700);
    rmdir(path);
}

static char folder[64];
static pid_t folder_owner;

static void remove_the_folder(void)
{
    if (*folder && getpid() == folder_owner)
        remove_tree(folder);
}

/* By looking again and again: valgrind knows no descriptors of processes. */
bool test_ends_within(pid_t child, int ms)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int64_t deadline = fl_now_ms() + ms;
    siginfo_t end = {0};

    do {
        if (waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT) != 0)
            test_fail(__FILE__, __LINE__, "process %d is no child", (int)child);
        if (end.si_pid == child)
            return true;
        nanosleep(&nap, NULL);
    } while (fl_now_ms() < deadline);
    return false;
}

const char *test_folder(void)
{
    if (*folder && getpid() == folder_owner)
        return folder;
    strcpy(folder, "/tmp/fleet-test.XXXXXX");
    if (!mkdtemp(folder))
        test_fail(__FILE__, __LINE__, "cannot make a folder in /tmp");
    folder_owner = getpid();
    atexit(remove_the_folder);
    return folder;
}

const char *test_path(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    return test_keep(path);
}

void test_flip_bit(const char *path, size_t bit)
{
    off_t at = (off_t)(bit / 8);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= (uint8_t)(1u << bit % 8);
    CHECK(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

const char *test_program(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    CHECK(n > 0);
    path[n] = 0;
    return test_keep(path);
}

const char *test_beside(const char *name)
{
    const char *self = test_program(), *slash = strrchr(self, '/');
    char path[4300];

    CHECK(slash);
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - self), self, name);
    return test_keep(path);
}

int test_shell(const char *command, char *out, size_t size)
{
    FILE *f = popen(command, "r");
    size_t n;
    int status;

    CHECK(f != NULL);
    n = fread(out, 1, size - 1, f);
    out[n] = 0;
    status = pclose(f);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

const char *test_file_bytes(const char *name, const void *data, size_t size)
{
    const char *path = test_path(name);
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        test_fail(__FILE__, __LINE__, "cannot write %s", path);
    return path;
}

const char *test_file(const char *name, const char *text)
{
    return test_file_bytes(name, text, strlen(text));
}

void check_status(const char *file, int line, const char *call,
                  fleet_status got, fleet_status want)
{
    if (got != want)
        test_fail(file, line, "%s gave %s (%s), not %s", call,
                  fleet_status_name(got), fleet_last_error(),
                  fleet_status_name(want));
}

void check_near(const char *file, int line, double got, double want, double by)
{
    if (!(fabs(got - want) <= by))
        test_fail(file, line, "%g is not within %g of %g", got, by, want);
}

void check_text(const char *file, int line, const char *got, const char *want)
{
    if (!got || strcmp(got, want) != 0)
        test_fail(file, line, "got \"%s\", not \"%s\"", got ? got : "(null)",
                  want);
}

void check_contains(const char *file, int line, const char *got,
                    const char *want)
{
    if (!got || !strstr(got, want))
        test_fail(file, line, "\"%s\" does not say \"%s\"",
                  got ? got : "(null)", want);
}

void check_int(const char *file, int line, const char *what, int64_t got,
               int64_t want)
{
    if (got != want)
        test_fail(file, line, "%s is %" PRId64 ", not %" PRId64, what, got,
                  want);
}

void check_close(const char *file, int line, const float *got,
                 const float *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)want[i];

        if (!(fabs(g - w) <= tolerance * fmax(1.0, fabs(w)))) /* NaN too */
            test_fail(file, line, "element %" PRId64 " is %.9g, not %.9g", i, g,
                      w);
    }
}
