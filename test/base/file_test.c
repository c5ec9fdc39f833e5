/* file_test.c - whole files, files being written, globs. */
#define _GNU_SOURCE
#define SUITE file
#include "disk_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/io/paths.h"

TEST(what_a_thread_reads_and_writes_is_counted_as_it_gets_on)
{
    fl_file_progress p = {0};
    const size_t size = 3 << 20;
    char *data = calloc(1, size), *back;
    fl_writer w;

    CHECK(data != NULL);
    fl_file_count(&p);
    CHECK_OK(fl_writer_open(&w, test_folder(), "counted"));
    fl_writer_put(&w, data, size);
    CHECK(p.bytes >= 2 << 20);
    fl_writer_put(&w, data, 5);
    CHECK_OK(fl_writer_close(&w, NULL, NULL));
    CHECK_INT(p.bytes, size + 5);
    CHECK_OK(fl_file_read(test_path("counted"), &back, &(size_t){0}));
    CHECK_INT(p.bytes, 2 * (size + 5));
    fl_file_count(NULL);
    fl_free(back);
    CHECK_OK(fl_file_read(test_path("counted"), &back, &(size_t){0}));
    CHECK_INT(p.bytes, 2 * (size + 5));
    fl_free(back);
    free(data);
}

/* Also in the midst of a file. */
TEST(a_thread_that_is_to_stop_reads_no_more)
{
    fl_file_progress p = {0};
    char *back = NULL;
    size_t size;

    fl_file_count(&p);
    fl_file_expect(7);
    fl_file_expect(5);
    CHECK_INT(p.total, 12);
    CHECK_OK(fl_file_go_on(3));
    CHECK_OK(fl_file_read(test_file("one", "text"), &back, &size));
    fl_free(back);
    p.stop = true;
    CHECK_FAILS(fl_file_go_on(1), FLEET_EPEER, "stopped before its end");
    CHECK_FAILS(fl_file_read(test_path("one"), &back, &size), FLEET_EPEER,
                "stopped before its end");
    CHECK_INT(p.bytes, 3 + 4 + 1 + 4);
    fl_file_count(NULL);
    CHECK_OK(fl_file_read(test_path("one"), &back, &size));
    fl_free(back);
}

/* --- whole files --------------------------------------------------------- */

TEST(a_file_is_read_whole_with_a_zero_after_it)
{
    const char *path = test_file_bytes("f", "a\0b", 3);
    char *data;
    size_t size;

    CHECK_OK(fl_file_read(path, &data, &size));
    CHECK_INT(size, 3);
    CHECK(memcmp(data, "a\0b", 4) == 0);
    fl_free(data);
    CHECK_OK(fl_file_read(test_file("empty", ""), &data, &size));
    CHECK(size == 0 && *data == 0);
    fl_free(data);
}

TEST(a_file_that_cannot_be_read_is_named)
{
    char *data = (char *)&data;
    size_t size;

    CHECK_FAILS(fl_file_read(test_path("none"), &data, &size), FLEET_ENOENT,
                "/none: No such file");
    CHECK(data == NULL);
    CHECK_FAILS(fl_file_read(test_folder(), &data, &size), FLEET_EIO,
                "not a regular file");
    CHECK_CONTAINS(fleet_last_error(), test_folder());
}

/* --- a file being written ------------------------------------------------ */

static unsigned char *noise(size_t n)
{
    unsigned char *p = malloc(n);

    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(fl_mix(i) >> 7);
    return p;
}

/* Write n bytes in pieces of growing size; size and hash come back. */
static void write_noise(const char *name, size_t n, uint64_t *size,
                        uint64_t *hash)
{
    unsigned char *data = noise(n);
    fl_writer w;

    CHECK_OK(fl_writer_open(&w, test_folder(), name));
    for (size_t at = 0, piece = 1; at < n; at += piece, piece = piece * 3 + 1)
        fl_writer_put(&w, data + at, piece < n - at ? piece : n - at);
    CHECK_OK(fl_writer_close(&w, size, hash));
    free(data);
}

/* Reading a file of the test's folder, with its size and hash checked. */
static fleet_status read_checked(const char *name, uint64_t size, uint64_t hash,
                                 char **data)
{
    fl_source_folder folder;
    fleet_status status;

    CHECK_OK(fl_source_folder_open(&folder, test_folder()));
    status = fl_source_folder_checked(&folder, name, size, hash, data);
    fl_source_folder_close(&folder);
    return status;
}

TEST(a_writer_writes_hashes_and_counts_every_byte)
{
    enum { N = (3 << 20) + 17 };
    unsigned char *want = noise(N);
    uint64_t size = 0, hash = 0;
    char *got;

    write_noise("f", N, &size, &hash);
    CHECK_INT(size, N);
    CHECK(hash == fl_hash(want, N, 0));
    CHECK_OK(read_checked("f", size, hash, &got));
    CHECK(memcmp(got, want, N) == 0);
    fl_free(got);
    free(want);
}

/* --- written behind ------------------------------------------------------ */

/* A disk on which one write() takes a while, or fails. */
static int slow_at, fails_at;
static atomic_int n_write;

static ssize_t write_some(int fd, const void *data, size_t size)
{
    int n = ++n_write;

    if (n == slow_at)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (n == fails_at) {
        errno = ENOSPC;
        return -1;
    }
    return write(fd, data, size);
}

static void use_disk(int slow, int failing)
{
    static fl_disk disk;

    disk = fl_disk_system;
    disk.write = write_some;
    slow_at = slow;
    fails_at = failing;
    n_write = 0;
    fl_disk_use(&disk);
}

/* A slow device is waited for, and every byte is where it belongs. */
TEST(buffers_wait_for_those_before_them)
{
    enum { N = (6 << 20) + 3 };
    unsigned char *want = noise(N);

    for (int slow = 1; slow <= 7; slow++) {
        uint64_t size, hash;
        char name[16], *got;

        snprintf(name, sizeof name, "slow-%d", slow);
        use_disk(slow, 0);
        write_noise(name, N, &size, &hash);
        fl_disk_use(NULL);
        CHECK_INT(n_write, 7);
        CHECK(hash == fl_hash(want, N, 0));
        CHECK_OK(read_checked(name, size, hash, &got));
        fl_free(got);
    }
    free(want);
}

TEST(whichever_buffer_cannot_be_written_fails_the_file)
{
    enum { MB = 1 << 20, PIECES = 6 };
    unsigned char *data = noise(MB);

    for (int n = 1; n <= PIECES; n++) {
        char name[16];
        fl_writer w;

        snprintf(name, sizeof name, "full-%d", n);
        use_disk(n, n);
        CHECK_OK(fl_writer_open(&w, test_folder(), name));
        for (int i = 0; i < PIECES; i++)
            fl_writer_put(&w, data, MB);
        CHECK_FAILS(fl_writer_close(&w, NULL, NULL), FLEET_EIO,
                    "No space left on device");
        CHECK_CONTAINS(fleet_last_error(), test_path(name));
        fl_disk_use(NULL);
        CHECK(n_write <= n);
    }
    free(data);
}

TEST(a_file_that_is_to_stop_stops_behind)
{
    enum { MB = 1 << 20 };
    fl_file_progress p = {0};
    unsigned char *data = noise(MB);
    fl_writer w;

    fl_file_count(&p);
    CHECK_OK(fl_writer_open(&w, test_folder(), "stopped"));
    for (int i = 0; i < 4; i++)
        fl_writer_put(&w, data, MB);
    p.stop = true;
    for (int i = 0; i < 4; i++)
        fl_writer_put(&w, data, MB);
    CHECK_FAILS(w.status, FLEET_EPEER, "stopped before its end");
    CHECK(fl_writer_close(&w, NULL, NULL) == FLEET_EPEER);
    CHECK(p.bytes <= 6 * MB);
    fl_file_count(NULL);
    free(data);
}

/* The second buffer, or the thread's own memory. */
TEST(a_file_without_memory_for_a_thread_is_written_without_one)
{
    enum { N = (4 << 20) + 5 };
    unsigned char *data = noise(N);
    char name[16], *got;

    for (long n = 1; n <= 3; n++) {
        uint64_t size, hash;
        fl_writer w;

        snprintf(name, sizeof name, "alone-%ld", n);
        CHECK_OK(fl_writer_open(&w, test_folder(), name));
        fl_memory_fail_at(n, true);
        fl_writer_put(&w, data, N);
        fl_memory_fail_at(0, false);
        CHECK_OK(fl_writer_close(&w, &size, &hash));
        CHECK(hash == fl_hash(data, N, 0));
        CHECK_OK(read_checked(name, size, hash, &got));
        fl_free(got);
    }
    free(data);
}

TEST(a_writer_never_overwrites)
{
    fl_writer w;

    test_file("f", "precious");
    CHECK_FAILS(fl_writer_open(&w, test_folder(), "f"), FLEET_EIO, "/f: File");
    fl_writer_put(&w, "x", 1);
    CHECK_STATUS(fl_writer_close(&w, NULL, NULL), FLEET_EIO);
}

TEST(a_disk_that_is_full_is_an_error_that_sticks)
{
    static const char zeros[3 << 20];
    fl_writer w;

    if (access("/dev/full", W_OK) != 0)
        test_skip("there is no /dev/full");
    CHECK_OK(fl_writer_open(&w, test_folder(), "f"));
    close(w.fd);
    w.fd = open("/dev/full", O_WRONLY);
    fl_writer_put(&w, zeros, sizeof zeros);
    CHECK_STATUS(w.status, FLEET_EIO);
    fl_writer_put(&w, zeros, 1);
    CHECK_FAILS(fl_writer_close(&w, NULL, NULL), FLEET_EIO, "No space left");
    CHECK_CONTAINS(fleet_last_error(), "/f");
}

TEST(a_writer_without_memory_owes_nothing)
{
    for (int64_t n = 1; n <= 3; n++) {
        fl_writer w;

        fl_memory_fail_at(n, false);
        CHECK_STATUS(fl_writer_open(&w, test_folder(), "f"), FLEET_ENOMEM);
        fl_writer_put(&w, "x", 1);
        CHECK_STATUS(fl_writer_close(&w, NULL, NULL), FLEET_ENOMEM);
        CHECK_INT(count_entries(test_folder()), 0);
    }
}

/* --- checked reading ----------------------------------------------------- */

TEST(damage_to_a_file_is_found)
{
    const char *path = test_path("f");
    uint64_t size = 0, hash = 0;
    char *data = NULL;
    FILE *f;

    write_noise("f", 1000, &size, &hash);
    f = fopen(path, "r+b");
    fseek(f, 500, SEEK_SET);
    fputc(fgetc(f) ^ 0x10, f); /* whatever stands at 501 gets another's bits */
    fclose(f);
    CHECK_FAILS(read_checked("f", size, hash, &data), FLEET_ECORRUPT,
                "its checksum differs");
    CHECK_CONTAINS(fleet_last_error(), path);
    CHECK(data == NULL);
    CHECK(truncate(path, (off_t)1 << 40) == 0); /* is not read */
    CHECK_FAILS(read_checked("f", size, hash, &data), FLEET_ECORRUPT,
                "1099511627776 bytes, not 1000");
    CHECK(truncate(path, 999) == 0);
    CHECK_FAILS(read_checked("f", size, hash, &data), FLEET_ECORRUPT,
                "999 bytes, not 1000");
    unlink(path);
    CHECK_FAILS(read_checked("f", size, hash, &data), FLEET_ECORRUPT,
                "missing");
    CHECK(data == NULL);
}

/* --- globs --------------------------------------------------------------- */

static fleet_status glob_two(fl_paths *p, const char *a, const char *b)
{
    const char *globs[2];

    globs[0] = test_path(a);
    globs[1] = b ? test_path(b) : NULL;
    return fl_paths_glob(p, globs, b ? 2 : 1);
}

TEST(globs_are_sorted_bytewise_over_all)
{
    static const char *const want[] = {"B.txt",   "a-1.txt", "a.txt",
                                       "a10.txt", "a2.txt",  "z.csv"};
    fl_paths p;

    for (size_t i = 6; i-- > 0;)
        test_file(want[i], "");
    CHECK_OK(glob_two(&p, "*.csv", "[aB]*.txt"));
    CHECK_INT(p.n, 6);
    for (size_t i = 0; i < 6; i++)
        CHECK_TEXT(p.path[i], test_path(want[i]));
    fl_paths_done(&p);
    CHECK(p.n == 0 && p.path == NULL);
}

TEST(a_glob_without_a_match_is_named)
{
    fl_paths p;

    test_file("a.txt", "");
    CHECK_FAILS(glob_two(&p, "*.txt", "b*.txt"), FLEET_ENOENT,
                "no file matches \"");
    CHECK_CONTAINS(fleet_last_error(), "/b*.txt\"");
    CHECK(p.n == 0 && p.path == NULL);
}

/* Has this thread the rights of nobody in particular? Root's see everything. */
static void be_nobody(bool nobody)
{
    enum { NOBODY = 65534 };

    if (geteuid() == 0)
        setfsuid(nobody ? NOBODY : 0);
}

static void make_halves(void)
{
    CHECK(chmod(test_folder(), 0755) == 0);
    CHECK(mkdir(test_path("a"), 0755) == 0 && mkdir(test_path("b"), 0755) == 0);
    test_file("a/p.txt", "");
    test_file("b/p.txt", "");
    test_file("c", ""); /* "c/p.txt" is no match, and no fault either */
    CHECK(symlink("nowhere", test_path("d")) == 0);
}

TEST(a_folder_below_a_glob_that_may_not_be_read_is_named)
{
    static const char *const globs[] = {"*/p.txt", "*/p*", "b/p.txt", "b/*"};
    fl_paths p;

    make_halves();
    CHECK_OK(glob_two(&p, "*/p.txt", NULL));
    CHECK_INT(p.n, 2);
    fl_paths_done(&p);
    CHECK(chmod(test_path("b"), 0) == 0);
    be_nobody(true);
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++) {
        CHECK_FAILS(glob_two(&p, globs[i], NULL), FLEET_EIO,
                    "Permission denied");
        CHECK_CONTAINS(fleet_last_error(), test_path("b"));
        CHECK(p.n == 0 && p.path == NULL);
    }
    CHECK_OK(glob_two(&p, "a/*", NULL)); /* and the fault is not kept */
    fl_paths_done(&p);
    be_nobody(false);
}

TEST(globs_survive_every_allocation_that_fails)
{
    fleet_status status = FLEET_ENOMEM;
    int64_t n = 0;
    fl_paths p;

    for (int i = 0; i < 20; i++) {
        char name[20];

        snprintf(name, sizeof name, "%d.txt", i);
        test_file(name, "");
    }
    while (status != FLEET_OK) {
        fl_memory_fail_at(++n, false);
        status = glob_two(&p, "*.txt", NULL);
        CHECK_INT(p.n, status == FLEET_OK ? 20 : 0);
    }
    CHECK(n > 20);
    fl_paths_done(&p);
}

TEST(a_joined_path_has_one_slash)
{
    char *path = fl_path_join("a/b", "c");

    CHECK_TEXT(path, "a/b/c");
    fl_free(path);
}
