/* journal_cut_test.c - a journal is cut behind a snapshot that is whole, and
 * not before; what is older goes, and nothing else. */
#define SUITE journal_cut
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/memory.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/journal_folder.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/journal_writer.h"

enum { KIND = 7, EACH = 3 };

static const char *folder_of_log(void)
{
    const char *folder = test_path("log");

    CHECK(mkdir(folder, 0700) == 0);
    return folder;
}

static fl_journal_writer *open_writer(const char *folder)
{
    fl_journal_writer *w;

    CHECK_OK(
        fl_journal_writer_create(&w, &(fl_journal_options){.folder = folder,
                                                           .text = "text",
                                                           .first_file = 1,
                                                           .first_lsn = 1}));
    return w;
}

static void put_some(fl_journal_writer *w, uint64_t first)
{
    for (uint64_t i = first; i < first + EACH; i++)
        CHECK_OK(fl_journal_put(w, KIND, &(fl_journal_part){&i, sizeof i}, 1));
}

/* Three files, of three records each. */
static void write_log(const char *folder)
{
    fl_journal_writer *w = open_writer(folder);
    uint32_t file;

    for (uint32_t i = 0; i < 3; i++) {
        put_some(w, 1 + EACH * i);
        if (i < 2) {
            CHECK_OK(fl_journal_roll(w, &file));
            CHECK_INT(file, i + 2);
        }
    }
    CHECK_OK(fl_journal_commit(w));
    fl_journal_writer_destroy(w);
}

static bool has(const char *folder, const char *name)
{
    char path[400];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void write_snapshot(const char *folder, uint32_t file)
{
    fl_journal_writer *w;
    char *path;

    CHECK_OK(fl_journal_cut_begin(folder, file, &path));
    w = open_writer(path);
    put_some(w, 100);
    CHECK_OK(fl_journal_commit(w));
    fl_journal_writer_destroy(w);
    fl_free(path);
}

/* The numbers of all records from that file on. */
static void check_records(const char *folder, uint32_t file, uint64_t first,
                          int n)
{
    fl_journal_record r;
    fl_journal_reader *reader;
    bool more = true;

    CHECK_OK(fl_journal_reader_open_at(&reader, folder, file));
    for (int i = 0; i <= n; i++) {
        CHECK_OK(fl_journal_next(reader, &r, &more));
        CHECK(more == (i < n));
        if (more)
            CHECK_INT(r.lsn, first + (uint64_t)i);
    }
    fl_journal_reader_close(reader);
}

TEST(what_is_older_than_a_whole_snapshot_goes)
{
    const char *folder = folder_of_log();
    uint32_t file;

    write_log(folder);
    CHECK_OK(fl_journal_newest(folder, &file));
    CHECK_INT(file, 0);
    write_snapshot(folder, 2);
    CHECK(has(folder, "snapshot-00000002.new") &&
          has(folder, "journal-00000001"));
    CHECK_OK(fl_journal_cut_commit(folder, 2, true));
    CHECK(!has(folder, "journal-00000001") && has(folder, "journal-00000002"));
    CHECK_OK(fl_journal_newest(folder, &file));
    CHECK_INT(file, 2);
    check_records(folder, 2, 1 + EACH, 2 * EACH);
    write_snapshot(folder, 3);
    CHECK_OK(fl_journal_cut_commit(folder, 3, false));
    CHECK(!has(folder, "snapshot-00000002") &&
          !has(folder, "journal-00000002"));
    check_records(folder, 3, 1 + 2 * EACH, EACH);
}

/* A crash as it is written, and one before what is older has gone. */
TEST(what_a_crash_has_left_goes_with_the_next_look)
{
    const char *folder = folder_of_log();
    char from[400], to[400];
    uint32_t file;

    write_log(folder);
    write_snapshot(folder, 2);
    CHECK_OK(fl_journal_newest(folder, &file));
    CHECK_INT(file, 0);
    CHECK(!has(folder, "snapshot-00000002.new"));
    check_records(folder, 0, 1, 3 * EACH);
    write_snapshot(folder, 3);
    snprintf(from, sizeof from, "%s/snapshot-00000003.new", folder);
    snprintf(to, sizeof to, "%s/snapshot-00000003", folder);
    CHECK(rename(from, to) == 0);
    CHECK_OK(fl_journal_newest(folder, &file));
    CHECK_INT(file, 3);
    CHECK(!has(folder, "journal-00000001") && !has(folder, "journal-00000002"));
    check_records(folder, 3, 1 + 2 * EACH, EACH);
}

TEST(a_first_file_that_is_missing_is_named)
{
    const char *folder = folder_of_log();
    fl_journal_reader *reader;
    char path[400];

    write_log(folder);
    snprintf(path, sizeof path, "%s/journal-00000002", folder);
    CHECK(unlink(path) == 0);
    CHECK_FAILS(fl_journal_reader_open_at(&reader, folder, 2), FLEET_ECORRUPT,
                "has no file journal-00000002: the first one is "
                "journal-00000003");
    fl_journal_remove(folder);
    CHECK(access(folder, F_OK) != 0);
}

TEST(a_snapshot_that_came_to_nothing_takes_no_room)
{
    const char *folder = folder_of_log();

    write_log(folder);
    write_snapshot(folder, 2);
    write_snapshot(folder, 3);
    fl_journal_cut_drop(folder, 2);
    CHECK(!has(folder, "snapshot-00000002.new") &&
          has(folder, "snapshot-00000003.new"));
    CHECK_OK(fl_journal_cut_commit(folder, 3, false));
}

static struct dirent *cannot_list(DIR *dir)
{
    (void)dir;
    errno = EIO;
    return NULL;
}

TEST(a_snapshot_that_may_be_there_is_not_passed_by)
{
    const char *folder = folder_of_log();
    fl_disk disk = fl_disk_system;
    uint32_t file;

    write_log(folder);
    disk.list = cannot_list;
    fl_disk_use(&disk);
    CHECK_FAILS(fl_journal_newest(folder, &file), FLEET_EIO,
                "cannot be listed: ");
    fl_disk_use(NULL);
}

/* --- the folder of a server ----------------------------------------------- */

static void begin_home(fl_journal_folder *h, int lanes)
{
    CHECK_OK(fl_journal_folder_clear(h, lanes));
    CHECK_OK(fl_journal_folder_begin(h, "text"));
}

static fl_journal_folder open_home(void)
{
    fl_journal_folder h;

    CHECK_OK(
        fl_journal_folder_open(&h, test_path("logs"), "server-0", "server 0"));
    CHECK(!h.text);
    return h;
}

/* Was there no lane behind it as one went? */
static int last_goes_first(int folder, const char *name, int flags)
{
    static const char zero[] = "/lane-0";
    const size_t n = strlen(name), z = sizeof zero - 1;

    if (flags & AT_REMOVEDIR && n > z && strcmp(name + n - z, zero) == 0)
        CHECK(!has(test_path("logs/server-0"), "lane-1"));
    return fl_disk_system.remove(folder, name, flags);
}

TEST(lanes_of_an_owner_before_go_without_a_gap)
{
    fl_journal_folder h = open_home();
    fl_disk disk = fl_disk_system;

    begin_home(&h, 3);
    CHECK_OK(fl_journal_folder_end(&h));
    fl_journal_folder_close(&h);
    h = open_home();
    disk.remove = last_goes_first;
    fl_disk_use(&disk);
    begin_home(&h, 1);
    fl_disk_use(NULL);
    CHECK(has(h.folder, "lane-0") && !has(h.folder, "lane-1") &&
          !has(h.folder, "lane-2"));
    fl_journal_folder_close(&h);
}

TEST(what_an_owner_that_died_as_it_began_has_left_is_written_over)
{
    fl_journal_folder h = open_home();
    char *text;
    size_t size;

    CHECK_OK(fl_file_write(h.folder, "identity.new", "te", 2, NULL));
    begin_home(&h, 1);
    CHECK(!has(h.folder, "identity.new"));
    CHECK_OK(fl_file_read(test_path("logs/server-0/identity"), &text, &size));
    CHECK_TEXT(text, "text");
    fl_free(text);
    fl_journal_folder_close(&h);
}

static int flushed; /* names: of the folder of logs, and of the server's */

static int count_parents(int folder, const char *name, int flags, mode_t mode)
{
    flushed += flags & O_DIRECTORY && strcmp(name, test_path("logs")) == 0;
    flushed += flags & O_DIRECTORY && strcmp(name, test_folder()) == 0;
    return fl_disk_system.open(folder, name, flags, mode);
}

TEST(a_crash_of_the_machine_leaves_the_folder_its_name)
{
    fl_disk disk = fl_disk_system;
    fl_journal_folder h;

    disk.open = count_parents;
    fl_disk_use(&disk);
    h = open_home();
    CHECK_INT(flushed, 2);
    fl_journal_folder_close(&h);
    h = open_home();
    CHECK_INT(flushed, 2); /* it has it */
    fl_disk_use(NULL);
    fl_journal_folder_close(&h);
}
