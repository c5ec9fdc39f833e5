/* spare_test.c - descriptors that are kept back: files are opened with them
 * when the process has no other, also where a table of one's own is
 * forbidden. */
#define _GNU_SOURCE
#define SUITE spare
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"

static void take_all(void)
{
    struct rlimit few;

    CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = 100;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
        ;
    CHECK_INT(errno, EMFILE);
}

static void check_writes(const char *name)
{
    fl_writer w;
    uint64_t size, hash;

    CHECK_OK(fl_writer_open(&w, test_folder(), name));
    fl_writer_put(&w, "text", 4);
    CHECK_OK(fl_writer_close(&w, &size, &hash));
    CHECK_INT(size, 4);
}

static void check_cannot_write(const char *name)
{
    fl_writer w;

    CHECK_FAILS(fl_writer_open(&w, test_folder(), name), FLEET_EIO,
                "Too many open files");
    fl_writer_close(&w, NULL, NULL);
}

static void check_spare(void)
{
    fl_spare *spare;

    test_folder();
    spare = fl_spare_keep(2);
    CHECK(spare != NULL);
    take_all();
    check_cannot_write("a");
    fl_spare_allow(spare);
    check_writes("b");
    check_writes("c");
    fl_spare_allow(NULL);
    fl_spare_drop(spare);
}

TEST(files_are_opened_with_what_was_kept_back)
{
    check_spare();
}

static void forbid_unshare(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        test_skip("this system has no system call filters");
}

TEST(a_container_that_forbids_a_table_of_ones_own_will_do)
{
    forbid_unshare();
    check_spare();
}
