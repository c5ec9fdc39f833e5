/* base_test.c - errors, map, text, log, hashing. */
#define SUITE base
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"

/* --- errors -------------------------------------------------------------- */

TEST(a_status_has_a_name_and_a_text)
{
    CHECK_TEXT(fleet_status_name(FLEET_ESHAPE), "FLEET_ESHAPE");
    CHECK_TEXT(fleet_strerror(FLEET_ESHAPE), "shapes do not fit");
    CHECK_TEXT(fleet_status_name((fleet_status)999), "FLEET_?");
    CHECK_TEXT(fleet_strerror((fleet_status)999), "unknown status");
}

TEST(a_failure_keeps_its_text_until_the_next_one)
{
    CHECK_TEXT(fleet_last_error(), "");
    CHECK_INT(fleet_last_status(), FLEET_OK);
    CHECK_STATUS(fl_fail(FLEET_EIO, "disk %d is full", 7), FLEET_EIO);
    CHECK_TEXT(fleet_last_error(), "disk 7 is full");
    CHECK_STATUS(fl_fail(FLEET_EINVAL, "no"), FLEET_EINVAL);
    CHECK_TEXT(fleet_last_error(), "no");
}

TEST(a_failure_may_be_told_in_terms_of_the_last_one)
{
    fl_fail(FLEET_EIO, "the disk is full");
    fl_fail(FLEET_EIO, "save: %s", fleet_last_error());
    CHECK_TEXT(fleet_last_error(), "save: the disk is full");
    CHECK_STATUS(fl_fail_in(FLEET_EIO, "epoch %d", 3), FLEET_EIO);
    CHECK_TEXT(fleet_last_error(), "epoch 3: save: the disk is full");
}

TEST(a_text_that_is_too_long_is_cut)
{
    char text[3000];

    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    fl_fail(FLEET_EIO, "%s", text);
    CHECK_INT(strlen(fleet_last_error()), sizeof(((fl_error *)0)->text) - 1);
    fl_fail_in(FLEET_EIO, "%s", text);
    CHECK_CONTAINS(fleet_last_error(), "xxx: xxx");
}

static void *fail_elsewhere(void *arg)
{
    fl_error_take(arg, fl_fail(FLEET_EFORMAT, "line %d is bad", 12));
    return NULL;
}

TEST(a_failure_travels_from_thread_to_thread)
{
    pthread_t thread;
    fl_error e;

    fl_fail(FLEET_EIO, "my own");
    CHECK(pthread_create(&thread, NULL, fail_elsewhere, &e) == 0);
    pthread_join(thread, NULL);
    CHECK_TEXT(fleet_last_error(), "my own");
    CHECK_STATUS(fl_error_raise(&e), FLEET_EFORMAT);
    CHECK_TEXT(fleet_last_error(), "line 12 is bad");
}

TEST(raising_no_failure_changes_nothing)
{
    fl_error none = {FLEET_OK, "not this"};

    fl_fail(FLEET_EIO, "still this");
    CHECK_OK(fl_error_raise(&none));
    CHECK_TEXT(fleet_last_error(), "still this");
}

/* --- map ----------------------------------------------------------------- */

static void name_of(int i, char name[16])
{
    snprintf(name, 16, "name_%d", i * 7919 % 10007);
}

TEST(a_map_finds_ten_thousand_names_and_keeps_their_order)
{
    static int values[10000];
    fl_map m = {0};
    char name[16];

    for (int i = 0; i < 10000; i++) {
        name_of(i, name);
        CHECK_OK(fl_map_put(&m, name, &values[i]));
    }
    CHECK_INT(m.n, 10000);
    for (int i = 0; i < 10000; i++) {
        name_of(i, name);
        CHECK(fl_map_get(&m, name) == &values[i]);
        CHECK_TEXT(m.entry[i].name, name);
    }
    CHECK(fl_map_get(&m, "absent") == NULL);
    fl_map_done(&m);
    CHECK(fl_map_get(&m, "name_0") == NULL);
}

TEST(a_map_refuses_a_name_twice_and_stays_as_it_was)
{
    int a = 1, b = 2;
    fl_map m = {0};

    CHECK_OK(fl_map_put(&m, "w", &a));
    CHECK_FAILS(fl_map_put(&m, "w", &b), FLEET_EEXIST, "\"w\" is taken");
    CHECK(m.n == 1 && fl_map_get(&m, "w") == &a);
    fl_map_done(&m);
}

/* Put 40 names though the n-th allocation fails; how many went in at once. */
static int put_forty(int64_t n)
{
    static int value;
    fl_map m = {0};
    char name[16];
    int missed = 0;

    fl_memory_fail_at(n, false);
    for (int i = 0; i < 40; i++) {
        name_of(i, name);
        if (fl_map_put(&m, name, &value) != FLEET_OK) {
            missed++;
            CHECK(fl_map_get(&m, name) == NULL);
            CHECK_OK(fl_map_put(&m, name, &value));
        }
    }
    for (int i = 0; i < 40; i++) {
        name_of(i, name);
        CHECK(fl_map_get(&m, name) == &value);
    }
    fl_map_done(&m);
    return missed;
}

TEST(a_map_survives_every_allocation_that_fails)
{
    int64_t n = 1;

    while (put_forty(n) > 0)
        n++;
    CHECK(n > 40); /* each name has a copy of its own */
}

/* --- text ---------------------------------------------------------------- */

TEST(a_text_grows_as_it_is_added_to)
{
    fl_text t = {0};

    CHECK_TEXT(fl_text_chars(&t), "");
    fl_text_add(&t, "%d-%s", 5, "x");
    fl_text_bytes(&t, "ab\0c", 4);
    CHECK_INT(t.length, 7);
    CHECK(memcmp(t.chars, "5-xab\0c", 8) == 0);
    for (int i = 0; i < 1000; i++)
        fl_text_add(&t, "%s", "0123456789");
    CHECK_INT(t.length, 10007);
    CHECK_OK(t.status);
    fl_text_done(&t);
    CHECK_TEXT(fl_text_chars(&t), "");
}

TEST(a_float_is_written_as_short_as_it_can_be_read_back)
{
    const float x[] = {0.1f, 0.0f, 1e-30f, 16777216.0f, 0.333333343f, -2.5f};
    fl_text t = {0};

    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        fl_text_float(&t, x[i]);
        fl_text_add(&t, " ");
    }
    CHECK_TEXT(fl_text_chars(&t), "0.1 0 1e-30 16777216 0.33333334 -2.5 ");
    fl_text_done(&t);
}

TEST(a_text_that_could_not_grow_ends_where_it_was)
{
    fl_text t = {0};

    fl_text_add(&t, "kept");
    fl_memory_fail_at(1, false);
    fl_text_add(&t, "%100d", 1);
    fl_text_add(&t, "later");
    CHECK_STATUS(t.status, FLEET_ENOMEM);
    CHECK_TEXT(fl_text_chars(&t), "kept");
    fl_text_done(&t);
}

/* Set a locale whose decimal point is a comma, or skip. */
static void use_decimal_comma(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8",
                                        "fr_FR.UTF-8", "de_DE", "fr_FR"};
    const char *folder = test_folder();
    char command[300];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_ALL, names[i]) && *localeconv()->decimal_point == ',')
            return;
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
             folder);
    setenv("LOCPATH", folder, 1);
    if (system(command) == -1 || !setlocale(LC_ALL, "de_DE.UTF-8") ||
        *localeconv()->decimal_point != ',')
        test_skip("no locale with a decimal comma, and localedef makes none");
}

static void keep_line(void *user, fleet_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 100, "%s", line);
}

TEST(numbers_are_written_and_read_as_in_c_whatever_the_hosts_locale)
{
    fl_text t = {0};
    fl_json *json;
    char line[100], *printed;
    fl_log log;
    double x = 0;

    use_decimal_comma();
    fl_text_add(&t, "%g", 0.5);
    CHECK_TEXT(fl_text_chars(&t), "0.5");
    fl_fail(FLEET_EINVAL, "%g is too large", 1.5);
    CHECK_TEXT(fleet_last_error(), "1.5 is too large");
    fl_log_init(&log, keep_line, line, FLEET_LOG_INFO);
    fl_log_line(&log, FLEET_LOG_INFO, "loss %.2f", 0.25);
    CHECK_TEXT(line, "loss 0.25");
    CHECK_OK(fl_json_parse("[2.75]", 6, "x", &json));
    fl_at root = fl_at_root(json), first = fl_at_index(&root, 0);
    CHECK_OK(fl_at_double(&first, 0, 10, &x));
    CHECK(x == 2.75);
    CHECK(fl_text_number("2.75", NULL) == 2.75);
    CHECK_FAILS(fl_at_double(&first, 0, 1.5, &x), FLEET_ECONFIG,
                "[0]: expected a number from 0 to 1.5, got 2.75");
    CHECK_OK(fl_json_append(json, fl_json_double(1e-3, 17)));
    printed = fl_json_print(json, false);
    CHECK_TEXT(printed, "[2.75,0.001]");
    CHECK(*localeconv()->decimal_point == ',');
    fl_free(printed);
    fl_json_free(json);
    fl_text_done(&t);
    fl_log_done(&log);
}

/* --- log ----------------------------------------------------------------- */

TEST(lines_below_the_level_are_not_made)
{
    char line[100] = "none";
    fl_log log;

    fl_log_init(&log, keep_line, line, FLEET_LOG_DEFAULT);
    fl_log_line(&log, FLEET_LOG_DEBUG, "debug");
    CHECK_TEXT(line, "none");
    FL_INFO(&log, "batch %d", 5);
    CHECK_TEXT(line, "batch 5");
    log.level = FLEET_LOG_SILENT;
    fl_log_line(&log, FLEET_LOG_ERROR, "error");
    CHECK_TEXT(line, "batch 5");
    fl_log_line(NULL, FLEET_LOG_ERROR, "to nobody");
    fl_log_done(&log);
}

/* What a call writes to stderr. */
static char *stderr_of(fl_log *log, fleet_log_level level, const char *line)
{
    const char *path = test_file("stderr", "");
    int kept = dup(2), fd = open(path, O_WRONLY);
    char *text;
    size_t size;

    fflush(stderr);
    CHECK(dup2(fd, 2) == 2);
    fl_log_line(log, level, "%s", line);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    close(fd);
    CHECK_OK(fl_file_read(path, &text, &size));
    return text;
}

/* The default of SIGPIPE would end the host. */
TEST(a_line_to_a_stderr_that_is_closed_is_lost_and_no_more)
{
    int end[2], kept = dup(2);
    fl_log log;

    signal(SIGPIPE, SIG_DFL);
    fl_log_init(&log, NULL, NULL, FLEET_LOG_INFO);
    CHECK(pipe(end) == 0);
    close(end[0]);
    fflush(stderr);
    dup2(end[1], 2);
    close(end[1]);
    fl_log_line(&log, FLEET_LOG_INFO, "batch 5");
    dup2(kept, 2);
    close(kept);
    fl_log_done(&log);
}

TEST(a_signal_that_the_host_holds_back_is_still_there_after_a_hush)
{
    sigset_t pipe_only, pending;
    fl_hush hush;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, NULL);
    raise(SIGPIPE);
    fl_hush_begin(&hush);
    raise(SIGXFSZ);
    errno = EPIPE;
    fl_hush_end(&hush);
    CHECK_INT(errno, EPIPE);
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE) == 1);
    CHECK(sigismember(&pending, SIGXFSZ) == 0);
}

TEST(without_a_callback_lines_go_to_stderr)
{
    char *info, *warning;
    fl_log log;

    fl_log_init(&log, NULL, NULL, FLEET_LOG_INFO);
    info = stderr_of(&log, FLEET_LOG_INFO, "batch 5");
    warning = stderr_of(&log, FLEET_LOG_WARNING, "careful");
    CHECK_TEXT(info, "batch 5\n");
    CHECK_TEXT(warning, "fleet warning: careful\n");
    fl_free(info);
    fl_free(warning);
    fl_log_done(&log);
}

/* --- hash ---------------------------------------------------------------- */

/* xxHash's own check: lengths of its buffer, seeds, and what must come out. */
static const struct {
    size_t n;
    uint64_t seed, want;
} xxh64[] = {
    {0, 0, 0xEF46DB3751D8E999},
    {0, 2654435761u, 0xAC75FDA2929B17EF},
    {1, 0, 0xE934A84ADB052768},
    {1, 2654435761u, 0x5014607643A9B4C3},
    {4, 0, 0x9136A0DCA57457EE},
    {14, 0, 0x8282DCC4994E35C8},
    {14, 2654435761u, 0xC3BD6BF63DEB6DF0},
    {222, 0, 0xB641AE8CB691C174},
    {222, 2654435761u, 0x20CB8AB7AE10C14A},
};

static void fill_as_xxhash_does(unsigned char *buffer, size_t n)
{
    uint64_t x = 2654435761u;

    for (size_t i = 0; i < n; i++) {
        buffer[i] = (unsigned char)(x >> 56);
        x *= 11400714785074694797ULL;
    }
}

TEST(hashes_are_xxh64)
{
    unsigned char buffer[222];

    fill_as_xxhash_does(buffer, sizeof buffer);
    for (size_t i = 0; i < sizeof xxh64 / sizeof *xxh64; i++) {
        CHECK(fl_hash(buffer, xxh64[i].n, xxh64[i].seed) == xxh64[i].want);
        CHECK(fleet_hash_text((char *)buffer, xxh64[i].n, xxh64[i].seed) ==
              xxh64[i].want);
    }
    CHECK(fleet_hash_text("abc", 3, 0) == 0x44BC2CF5AD770999);
}

TEST(a_hash_of_pieces_is_the_hash_of_the_whole)
{
    unsigned char buffer[222];
    uint64_t whole;

    fill_as_xxhash_does(buffer, sizeof buffer);
    whole = fl_hash(buffer, sizeof buffer, 99);
    for (size_t piece = 1; piece < sizeof buffer; piece += 13) {
        fl_hasher h;

        fl_hasher_init(&h, 99);
        for (size_t at = 0; at < sizeof buffer; at += piece)
            fl_hasher_add(&h, buffer + at,
                          at + piece < sizeof buffer ? piece
                                                     : sizeof buffer - at);
        fl_hasher_add(&h, NULL, 0);
        CHECK(fl_hasher_end(&h) == whole);
    }
}

/* MurmurHash3's fmix64, by a second formula: undone step by step. */
TEST(the_mixer_is_a_bijection)
{
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t key = i * 0x9E3779B97F4A7C15ULL, x = fl_mix(key);

        x ^= x >> 33;
        x *= 0x9cb4b2f8129337dbULL; /* inverses modulo 2^64 */
        x ^= x >> 33;
        x *= 0x4f74430c22a54005ULL;
        x ^= x >> 33;
        CHECK(x == key);
    }
}
