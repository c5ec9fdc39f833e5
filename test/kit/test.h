/* test.h - what every test file includes. A test has a process of its own and a
 * time limit, so that a crash or a hang is one failed test.
 *
 * Criterion runs them; with FL_OWN_RUNNER, which `make tsan` sets, runner.c
 * does, because Criterion aborts under ThreadSanitizer.
 *
 *     #define SUITE fc
 *     #include "test.h"
 *
 *     TEST(adds_the_bias)
 *     {
 *         CHECK_OK(...);
 *     }
 *
 * A test's name is a claim; its body sets the scene, acts, and checks.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <fleet/base.h>

#ifndef SUITE
#error "define SUITE before test.h"
#endif

enum { TEST_SECONDS = 60 };

/* How much slower than a plain build this variant may be. */
#ifndef TEST_SLOWNESS
#define TEST_SLOWNESS 1
#endif

/* Of deadlines that a test waits out: not so much longer, as there are many. */
enum { TEST_PATIENCE = TEST_SLOWNESS < 4 ? TEST_SLOWNESS : 4 };

/* Fails under AddressSanitizer if something is lost. Here and not at the end of
 * the process, where Criterion's own leaks are found and ours fail no test. */
void test_check_leaks(void);

#ifdef FL_OWN_RUNNER

typedef struct test_case {
    const char *suite, *name;
    int seconds;
    void (*run)(void);
    struct test_case *next;
} test_case;

void test_add(test_case *t);

#define TEST_LIMIT_(suite_, title, limit)                                      \
    static void suite_##_##title(void);                                        \
    __attribute__((constructor)) static void add_##suite_##_##title(void)      \
    {                                                                          \
        static test_case t = {#suite_, #title, limit, suite_##_##title, NULL}; \
        test_add(&t);                                                          \
    }                                                                          \
    static void suite_##_##title(void)

#else

#include <criterion/criterion.h>

#define TEST_LIMIT_(suite_, title, limit)                                      \
    static void suite_##_##title(void);                                        \
    Test(suite_, title, .timeout = (limit)*TEST_SLOWNESS)                      \
    {                                                                          \
        suite_##_##title();                                                    \
        test_check_leaks();                                                    \
    }                                                                          \
    static void suite_##_##title(void)

#endif

#define TEST_LIMIT__(suite_, title, limit) TEST_LIMIT_(suite_, title, limit)
#define TEST(title)                        TEST_LIMIT__(SUITE, title, TEST_SECONDS)
#define TEST_LIMIT(title, seconds)         TEST_LIMIT__(SUITE, title, seconds)

/* Trainings for quality divide their data by this under sanitizers and
 * valgrind, and then check only that they ran: FLEET_TEST_FRACTION, 1. */
int test_fraction(void);

/* From here on this test has enough of such a fraction, or of a smaller. */
void test_use_fraction(int n);

/* Set in a process that a test has started: failing ends that process, status
 * 1. */
extern bool test_ends_process;

/* As fork(), which has to succeed; the child dies with its parent. */
pid_t test_fork(void);

void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void test_skip(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));

/* Has this child ended, or does it within so many milliseconds? It stays to be
 * waited for. */
bool test_ends_within(pid_t child, int ms);

/* The path of a file of FLEET_TEST_DATA; skips the test, with the reason, when
 * it is not there. The text stays valid. */
const char *test_data(const char *name);

/* A fresh folder that is removed when the test ends; the text stays valid. */
const char *test_folder(void);

/* A path in it; what is there, if anything, is the test's affair. */
const char *test_path(const char *name);

/* Write a file in the test's folder; its path. */
const char *test_file(const char *name, const char *text);
const char *test_file_bytes(const char *name, const void *data, size_t size);

/* Flip bit `bit` of a file: of its first byte are 0 to 7. */
void test_flip_bit(const char *path, size_t bit);

/* The suite's program, and a file that make has put beside it. */
const char *test_program(void);
const char *test_beside(const char *name);

/* What a shell's command prints, up to size bytes with the 0 behind them; its
 * exit status. */
int test_shell(const char *command, char *out, size_t size);

/* A copy of the text that lives as long as the test. */
const char *test_keep(const char *text);
/* From the key, in its quotes, to the end of its value, in a line of JSON. */
const char *test_json_value(const char *line, const char *key);

void check_status(const char *file, int line, const char *call,
                  fleet_status got, fleet_status want);
void check_near(const char *file, int line, double got, double want, double by);
void check_text(const char *file, int line, const char *got, const char *want);
void check_contains(const char *file, int line, const char *got,
                    const char *want);
void check_int(const char *file, int line, const char *what, int64_t got,
               int64_t want);
void check_close(const char *file, int line, const float *got,
                 const float *want, int64_t n, double tolerance);

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition))                                                      \
            test_fail(__FILE__, __LINE__, "not so: %s", #condition);           \
    } while (0)
#define CHECK_OK(call) check_status(__FILE__, __LINE__, #call, call, FLEET_OK)
#define CHECK_STATUS(call, want)                                               \
    check_status(__FILE__, __LINE__, #call, call, want)
#define CHECK_NEAR(got, want, by) check_near(__FILE__, __LINE__, got, want, by)
#define CHECK_TEXT(got, want)     check_text(__FILE__, __LINE__, got, want)
#define CHECK_CONTAINS(got, want) check_contains(__FILE__, __LINE__, got, want)
#define CHECK_INT(got, want)                                                   \
    check_int(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
/* |got - want| <= tolerance * max(1, |want|), element by element */
#define CHECK_CLOSE(got, want, n, tolerance)                                   \
    check_close(__FILE__, __LINE__, got, want, n, tolerance)

/* A call that must fail, with words that must stand in its text. */
#define CHECK_FAILS(call, want, words)                                         \
    do {                                                                       \
        CHECK_STATUS(call, want);                                              \
        CHECK_CONTAINS(fleet_last_error(), words);                             \
    } while (0)
