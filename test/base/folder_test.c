/* folder_test.c - folders that are replaced at once: what a crash leaves of
 * them, what is left alone, which permissions they have. */
#define _GNU_SOURCE
#define SUITE folder
#include "disk_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/memory.h"

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
    put_file(first.temp, "MARK");
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

/* --- what is put into it meanwhile ---------------------------------------- */

static bool knows_names(const char *name)
{
    return strcmp(name, "MARK") == 0 || strncmp(name, "part-", 5) == 0;
}

/* A folder begun in the place of one that has MARK and part-old. */
static void begin_again(fl_folder *f, const char *path)
{
    make_folder(path, "part-old");
    CHECK_OK(fl_folder_begin(f, path, "MARK", knows_names));
    put_file(f->temp, "MARK");
    put_file(f->temp, "part-new");
}

static void check_left_alone(fl_folder *f, const char *path)
{
    CHECK_FAILS(fl_folder_commit(f), FLEET_EEXIST, "my-notes.txt");
    CHECK_CONTAINS(fleet_last_error(), path);
    fl_folder_cancel(f);
    CHECK(has_file(path, "my-notes.txt") && has_file(path, "part-old"));
    CHECK(!has_file(path, "part-new"));
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(a_file_that_is_put_into_the_old_folder_meanwhile_stays)
{
    const char *path = test_path("save");
    fl_folder f;

    begin_again(&f, path);
    put_file(path, "my-notes.txt");
    check_left_alone(&f, path);
}

TEST(so_it_does_without_an_exchange)
{
    const char *path = test_path("save");
    fl_folder f;

    begin_again(&f, path);
    put_file(path, "my-notes.txt");
    forbid_exchange();
    check_left_alone(&f, path);
}

TEST(a_folder_within_is_no_file_of_ours)
{
    const char *path = test_path("save");
    fl_folder f;

    make_folder(path, "part-old");
    CHECK(mkdir(test_path("save/part-time-job"), 0755) == 0);
    CHECK_FAILS(fl_folder_begin(&f, path, "MARK", knows_names), FLEET_EEXIST,
                "part-time-job is not a file");
    fl_folder_cancel(&f);
    CHECK_INT(count_entries(path), 3);
    CHECK_INT(count_entries(test_folder()), 1);
}

/* --- calls that fail ------------------------------------------------------ */

static fl_disk rigged;
static int fail_at, n_called, fail_with;

static bool fails_now(void)
{
    if (++n_called != fail_at)
        return false;
    errno = fail_with;
    return true;
}

static struct dirent *list_rigged(DIR *dir)
{
    return fails_now() ? NULL : fl_disk_system.list(dir);
}

static int flush_rigged(int fd)
{
    return fails_now() ? -1 : fl_disk_system.flush(fd);
}

static int open_rigged(int folder, const char *name, int flags, mode_t mode)
{
    return fails_now() ? -1 : fl_disk_system.open(folder, name, flags, mode);
}

/* The n-th call of those that `rigged` has in place of the system's. */
static void fail_nth(int n, int with)
{
    fail_at = n;
    fail_with = with;
    n_called = 0;
    fl_disk_use(&rigged);
}

TEST(a_folder_that_cannot_be_listed_is_left_alone)
{
    const char *path = test_path("save");
    fl_folder f;

    make_folder(path, "part-old");
    put_file(path, "my-notes.txt");
    rigged = fl_disk_system;
    rigged.list = list_rigged;
    for (int n = 1; n <= 5; n++) {
        fail_nth(n, EIO);
        CHECK(fl_folder_begin(&f, path, "MARK", knows_names) != FLEET_OK);
        fl_folder_cancel(&f);
        CHECK_INT(count_entries(path), 3);
        CHECK_INT(count_entries(test_folder()), 1);
    }
    fail_nth(1, EIO);
    CHECK_FAILS(fl_folder_begin(&f, path, "MARK", knows_names), FLEET_EIO,
                "cannot list ");
    fl_folder_cancel(&f);
}

/* Or the files that were not looked at had other permissions than the old. */
TEST(a_new_folder_that_cannot_be_listed_does_not_take_the_place)
{
    const char *path = test_path("save");
    fl_folder f;

    begin_again(&f, path);
    rigged = fl_disk_system;
    rigged.list = list_rigged;
    fail_nth(1, EIO);
    CHECK_FAILS(fl_folder_commit(&f), FLEET_EIO, "cannot list ");
    fl_disk_use(NULL);
    fl_folder_cancel(&f);
    CHECK(has_file(path, "part-old") && !has_file(path, "part-new"));
}

TEST(a_parent_that_cannot_be_flushed_is_named_and_the_new_folder_is_in_place)
{
    const char *path = test_path("save");
    fl_folder f;

    begin_again(&f, path);
    rigged = fl_disk_system;
    rigged.flush = flush_rigged;
    fail_nth(2, EIO); /* after the new folder's */
    CHECK_FAILS(fl_folder_commit(&f), FLEET_EIO, "/save is in place, what it ");
    CHECK_CONTAINS(fleet_last_error(), "cannot flush ");
    fl_disk_use(NULL);
    fl_folder_cancel(&f);
    CHECK(has_file(path, "part-new") && !has_file(path, "part-old"));
    CHECK_INT(count_entries(test_folder()), 2); /* a crash may undo it yet */
    make_folder(path, "part-3");
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(a_call_that_a_signal_interrupts_is_made_again)
{
    enum { CALLS = 8 }; /* three files and folders opened, all flushed ... */
    const char *path = test_path("save");

    rigged = fl_disk_system;
    rigged.flush = flush_rigged;
    rigged.open = open_rigged;
    for (int n = 1; n <= CALLS; n++) {
        fail_nth(n, EINTR);
        make_folder(path, "part-1");
    }
    CHECK(n_called > CALLS);
}

/* --- permissions ---------------------------------------------------------- */

static mode_t mode_of(const char *path)
{
    struct stat st;

    CHECK(stat(path, &st) == 0);
    return st.st_mode & 07777;
}

static void check_modes(mode_t folder, mode_t file)
{
    CHECK_INT(mode_of(test_path("save")), folder);
    CHECK_INT(mode_of(test_path("save/MARK")), file);
}

TEST(a_folder_has_the_permissions_of_the_one_that_it_replaces)
{
    static const mode_t modes[] = {0700, 0755, 0750, 0775, 0555};
    const char *path = test_path("save");

    make_folder(path, "part-1");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        CHECK(chmod(path, modes[i]) == 0);
        umask(i % 2 ? 077 : 022);
        make_folder(path, "part-1");
        check_modes(modes[i], modes[i] & 0666);
    }
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(a_folder_that_replaces_none_has_what_umask_leaves)
{
    static const mode_t masks[] = {022, 077, 002, 027};

    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        umask(masks[i]);
        make_folder(test_path("save"), "part-1");
        check_modes(0777 & ~masks[i], 0666 & ~masks[i]);
        fl_folder_remove(test_path("save"));
    }
}

TEST(it_has_the_owner_of_the_one_that_it_replaces)
{
    enum { SOMEBODY = 65534 };
    const char *path = test_path("save");
    struct stat st;

    if (geteuid() != 0)
        test_skip("only root can give files away");
    make_folder(path, "part-1");
    CHECK(chown(path, SOMEBODY, SOMEBODY) == 0);
    make_folder(path, "part-1");
    CHECK(stat(path, &st) == 0 && st.st_uid == SOMEBODY &&
          st.st_gid == SOMEBODY);
    CHECK(stat(test_path("save/MARK"), &st) == 0 && st.st_uid == SOMEBODY);
}

/* --- what dead processes leave -------------------------------------------- */

/* A process that dies while it makes the folder. */
static void die_while_saving(const char *path)
{
    pid_t child = test_fork();

    if (child == 0) {
        fl_folder f;

        CHECK_OK(fl_folder_begin(&f, path, "MARK", knows_names));
        put_file(f.temp, "part-1");
        raise(SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child);
}

TEST(folders_that_dead_processes_have_left_are_removed)
{
    const char *path = test_path("save"), *relative = "save";

    for (int i = 0; i < 3; i++)
        die_while_saving(path);
    CHECK_INT(count_entries(test_folder()),
              1); /* each removes the one before */
    make_folder(path, "part-1");
    CHECK_INT(count_entries(test_folder()), 1);
    CHECK(chdir(test_folder()) == 0);
    die_while_saving(relative);
    make_folder(relative, "part-1");
    CHECK_INT(count_entries(test_folder()), 1);
}

/* Each finds the other's folders, alive, left over, and half removed. */
TEST(two_processes_may_replace_one_folder_all_the_time)
{
    enum { TIMES = 100 };
    const char *path = test_path("save");
    int status;
    pid_t child = test_fork();

    for (int i = 0; i < TIMES; i++)
        make_folder(path, child ? "part-1" : "part-2");
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_INT(count_entries(path), 2);
    make_folder(path, "part-1");
    CHECK_INT(count_entries(test_folder()), 1);
}

TEST(only_such_folders_are_removed)
{
    static const char *const kept[] = {"save.backup", "save.saving",
                                       "save.saving.notes1",
                                       "save.saving.abc1234", "other.saving.1"};
    const char *path = test_path("save");
    fl_folder alive, next;

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        make_folder(test_path(kept[i]), "part-1");
        if (strcmp(kept[i], "save.saving.notes1") == 0)
            put_file(test_path(kept[i]), "notes");
    }
    test_file("save.saving.abcdef", "a file");
    CHECK_OK(fl_folder_begin(&alive, path, "MARK", knows_names));
    CHECK_OK(fl_folder_begin(&next, path, "MARK", knows_names));
    CHECK(fl_file_exists(alive.temp));
    fl_folder_cancel(&alive);
    fl_folder_cancel(&next);
    CHECK_INT(count_entries(test_folder()), 6);
}

/* --- crashes -------------------------------------------------------------- */

typedef struct seen {
    int n_old, n_new, n_none;
} seen;

static void check_whole(const char *path, const char *const *want)
{
    for (; *want; want++) {
        char file[400], *data;
        size_t size;

        snprintf(file, sizeof file, "%s/%s", path, *want);
        CHECK_OK(fl_file_read(file, &data, &size));
        CHECK_TEXT(data, *want);
        fl_free(data);
    }
}

static void is_old_or_new(void *arg, const char *path)
{
    static const char *const old[] = {"MARK", "part-old", NULL},
                             *const fresh[] = {"MARK", "part-new", NULL};
    seen *s = arg;

    if (!path) {
        s->n_none++;
        return;
    }
    CHECK_INT(count_entries(path), 2);
    if (has_file(path, "part-new")) {
        check_whole(path, fresh);
        s->n_new++;
    } else {
        check_whole(path, old);
        s->n_old++;
    }
}

/* A recorded folder that is replaced; or that is new, without an old one. */
static seen crash_everywhere(bool replaces, bool exchange)
{
    const char *root = test_path("disk"), *path = test_path("disk/save");
    seen during = {0}, after = {0};
    int n;

    CHECK(mkdir(root, 0755) == 0);
    if (replaces)
        make_folder(path, "part-old");
    disk_record(root);
    if (!exchange)
        disk_without_exchange();
    make_folder(path, "part-new");
    n = disk_recorded();
    disk_each_crash("save", 0, n, is_old_or_new, &during);
    disk_each_crash("save", n, n, is_old_or_new, &after);
    CHECK(after.n_new == 1 && after.n_old == 0 && after.n_none == 0);
    CHECK(during.n_new > 0);
    return during;
}

TEST(a_crash_leaves_the_old_folder_or_the_new_one)
{
    seen s = crash_everywhere(true, true);

    CHECK(s.n_old == 1 && s.n_new == 1 && s.n_none == 0);
}

TEST(a_crash_leaves_a_first_folder_whole_or_none)
{
    seen s = crash_everywhere(false, true);

    CHECK(s.n_old == 0 && s.n_new == 1 && s.n_none == 1);
}

TEST(without_an_exchange_there_is_a_moment_with_none)
{
    seen s = crash_everywhere(true, false);

    CHECK(s.n_old == 1 && s.n_new == 1 && s.n_none == 1);
}

/* The old folder, which the next save finds beside, may come back yet. */
TEST(a_crash_while_a_left_over_folder_is_removed_harms_nothing)
{
    const char *path = test_path("disk/save");
    seen s = {0};
    fl_folder f;

    CHECK(mkdir(test_path("disk"), 0755) == 0);
    make_folder(path, "part-old");
    disk_record(test_path("disk"));
    CHECK_OK(fl_folder_begin(&f, path, "MARK", knows_names));
    put_file(f.temp, "MARK");
    put_file(f.temp, "part-new");
    disk_fail_flush(2); /* the new folder's, then the parent's */
    CHECK_STATUS(fl_folder_commit(&f), FLEET_EIO);
    fl_folder_cancel(&f);
    CHECK_INT(count_entries(test_path("disk")), 2);
    CHECK_OK(fl_folder_begin(&f, path, "MARK", knows_names));
    fl_folder_cancel(&f);
    CHECK_INT(count_entries(test_path("disk")), 1);
    disk_each_crash("save", 0, disk_recorded(), is_old_or_new, &s);
    CHECK(s.n_old == 1 && s.n_new == 1 && s.n_none == 0);
}
