/* file_test.c - whole files, files being written, folders that are replaced at
 * once, globs. */
#define _GNU_SOURCE
#define SUITE file
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/folder.h"

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = -2; /* "." and ".." */

    CHECK(dir != NULL);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

TEST(what_a_thread_reads_and_writes_is_counted_as_it_gets_on)
{
    atomic_uint_least64_t bytes = 0;
    const size_t size = 3 << 20;
    char *data = calloc(1, size), *back;
    fl_writer w;

    CHECK(data != NULL);
    fl_file_count(&bytes);
    CHECK_OK(fl_writer_open(&w, test_folder(), "counted"));
    fl_writer_put(&w, data, size);
    CHECK(bytes >= 2 << 20);
    fl_writer_put(&w, data, 5);
    CHECK_OK(fl_writer_close(&w, NULL, NULL));
    CHECK_INT(bytes, size + 5);
    CHECK_OK(fl_file_read(test_path("counted"), &back, &(size_t){0}));
    CHECK_INT(bytes, 2 * (size + 5));
    fl_file_count(NULL);
    fl_free(back);
    CHECK_OK(fl_file_read(test_path("counted"), &back, &(size_t){0}));
    CHECK_INT(bytes, 2 * (size + 5));
    fl_free(back);
    free(data);
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

/* --- folders ------------------------------------------------------------- */

static void put_file(const char *folder, const char *name)
{
    fl_writer w;

    CHECK_OK(fl_writer_open(&w, folder, name));
    fl_writer_put(&w, name, strlen(name));
    CHECK_OK(fl_writer_close(&w, NULL, NULL));
}

static bool any_name(const char *name)
{
    return name != NULL;
}

static void make_folder(const char *path, const char *file)
{
    fl_folder f;

    CHECK_OK(fl_folder_begin(&f, path, "MARK", any_name));
    put_file(f.temp, "MARK");
    put_file(f.temp, file);
    CHECK_OK(fl_folder_commit(&f));
    fl_folder_cancel(&f);
}

static bool has_file(const char *folder, const char *name)
{
    char path[400];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fl_file_exists(path);
}

TEST(a_folder_is_there_only_when_it_is_complete)
{
    const char *path = test_path("save");
    fl_folder f;

    CHECK_OK(fl_folder_begin(&f, path, "MARK", any_name));
    put_file(f.temp, "MARK");
    CHECK(!fl_file_exists(path));
    CHECK_OK(fl_folder_commit(&f));
    fl_folder_cancel(&f);
    CHECK(has_file(path, "MARK"));
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(a_folder_replaces_an_older_one_whole)
{
    const char *path = test_path("save");

    make_folder(path, "old");
    make_folder(path, "new");
    CHECK(has_file(path, "new") && !has_file(path, "old"));
    CHECK_INT(count_entries(path), 2);
    CHECK_INT(count_entries(test_folder()), 1);
}

/* From here on this process is on a file system that cannot exchange. */
static void forbid_exchange(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        test_skip("this system has no system call filters");
}

TEST(a_file_system_that_cannot_exchange_will_do)
{
    const char *path = test_path("save"), *others = test_path("save.old");

    CHECK(mkdir(others, 0700) == 0);
    put_file(others, "precious");
    make_folder(path, "old");
    forbid_exchange();
    make_folder(path, "new");
    CHECK(has_file(path, "new") && !has_file(path, "old"));
    CHECK(has_file(others, "precious"));
    CHECK_INT(count_entries(test_folder()), 2);
}

/* Another writer has made the folder after this one looked. */
TEST(a_folder_that_comes_up_meanwhile_is_replaced)
{
    const char *path = test_path("save");
    fl_folder first, second;

    CHECK_OK(fl_folder_begin(&first, path, "MARK", any_name));
    CHECK_OK(fl_folder_begin(&second, path, "MARK", any_name));
    put_file(first.temp, "first");
    put_file(second.temp, "second");
    CHECK_OK(fl_folder_commit(&first));
    CHECK_OK(fl_folder_commit(&second));
    fl_folder_cancel(&first);
    fl_folder_cancel(&second);
    CHECK(has_file(path, "second") && !has_file(path, "first"));
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(a_link_that_leads_nowhere_is_refused_at_once)
{
    const char *path = test_path("link");
    fl_folder f;

    CHECK(symlink("nowhere", path) == 0);
    CHECK_FAILS(fl_folder_begin(&f, path, "MARK", any_name), FLEET_EIO,
                "cannot follow");
    fl_folder_cancel(&f);
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(the_current_folder_may_be_replaced)
{
    const char *path = test_path("save");

    CHECK(mkdir(path, 0700) == 0 && chdir(path) == 0);
    make_folder(".", "new");
    CHECK(has_file(path, "new"));
}

TEST(an_empty_folder_may_be_replaced)
{
    const char *path = test_path("save");

    CHECK(mkdir(path, 0700) == 0);
    make_folder(path, "new");
    CHECK(has_file(path, "new"));
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(slashes_at_the_end_of_a_path_do_not_matter)
{
    make_folder(test_path("save//"), "a");
    make_folder(test_path("save/"), "b");
    CHECK(has_file(test_path("save"), "b"));
    CHECK_INT(count_entries(test_folder()), 1);
}

static void check_not_replaced(const char *path)
{
    int before = count_entries(test_folder());
    fl_folder f;

    CHECK_FAILS(fl_folder_begin(&f, path, "MARK", any_name), FLEET_EEXIST,
                "holds something else: it has no MARK");
    CHECK_CONTAINS(fleet_last_error(), path);
    fl_folder_cancel(&f);
    CHECK_INT(count_entries(test_folder()), before);
}

TEST(a_folder_that_holds_something_else_is_refused)
{
    const char *path = test_path("home");

    CHECK(mkdir(path, 0700) == 0);
    put_file(path, "thesis");
    check_not_replaced(path);
    CHECK(has_file(path, "thesis"));
}

TEST(a_file_in_the_folders_place_is_refused)
{
    const char *path = test_file("thesis", "words");

    check_not_replaced(path);
    CHECK(fl_file_exists(path));
}

TEST(a_folder_that_is_cancelled_leaves_nothing)
{
    const char *path = test_path("save");
    fl_folder f;

    CHECK_OK(fl_folder_begin(&f, path, "MARK", any_name));
    put_file(f.temp, "MARK");
    put_file(f.temp, "data");
    fl_folder_cancel(&f);
    CHECK_INT(count_entries(test_folder()), 0);
}

TEST(a_cancelled_folder_leaves_the_older_one)
{
    const char *path = test_path("save");
    fl_folder f;

    make_folder(path, "old");
    CHECK_OK(fl_folder_begin(&f, path, "MARK", any_name));
    put_file(f.temp, "MARK");
    fl_folder_cancel(&f);
    CHECK(has_file(path, "old"));
    CHECK_INT(count_entries(test_folder()), 1);
}

static void check_cannot_begin(const char *path, fleet_status want,
                               const char *words)
{
    fl_folder f;

    CHECK_FAILS(fl_folder_begin(&f, path, "MARK", any_name), want, words);
    fl_folder_cancel(&f);
}

TEST(a_parent_that_cannot_be_written_is_named)
{
    check_cannot_begin(test_path("none/save"), FLEET_EIO,
                       "/none/save: No such");
    check_cannot_begin("/proc/save", FLEET_EIO, "beside /proc/save: ");
    check_cannot_begin("", FLEET_EINVAL, "empty path");
    test_file("file", "");
    check_cannot_begin(test_path("file/save"), FLEET_EIO,
                       "/file/save: Not a directory");
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(a_link_to_a_folder_is_followed)
{
    const char *real = test_path("real"), *link = test_path("link");

    make_folder(real, "old");
    CHECK(symlink(real, link) == 0);
    make_folder(link, "new");
    CHECK(has_file(real, "new") && !has_file(real, "old"));
    CHECK_INT(count_entries(test_folder()), 2);
}

TEST(a_folder_survives_every_allocation_that_fails)
{
    const char *path = test_path("save");
    fleet_status status = FLEET_ENOMEM;
    fl_folder f;

    make_folder(path, "old");
    for (int64_t n = 1; status != FLEET_OK; n++) {
        fl_memory_fail_at(n, false);
        status = fl_folder_begin(&f, path, "MARK", any_name);
        if (status == FLEET_OK)
            status = fl_folder_commit(&f);
        fl_folder_cancel(&f);
        CHECK(status == FLEET_OK || status == FLEET_ENOMEM);
        CHECK_INT(count_entries(test_folder()), 1);
    }
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

/* From here on this thread has the rights of nobody in particular. */
static void be_nobody(void)
{
    enum { NOBODY = 65534 };

    if (geteuid() == 0)
        setfsuid(NOBODY); /* root may look anywhere */
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
    be_nobody();
    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++) {
        CHECK_FAILS(glob_two(&p, globs[i], NULL), FLEET_EIO,
                    "Permission denied");
        CHECK_CONTAINS(fleet_last_error(), test_path("b"));
        CHECK(p.n == 0 && p.path == NULL);
    }
    CHECK_OK(glob_two(&p, "a/*", NULL)); /* and the fault is not kept */
    fl_paths_done(&p);
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
