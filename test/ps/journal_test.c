/* journal_test.c - a journal gives back what was committed, after a process or
 * its machine has died at any point, after a disk that was full, and names
 * damage: it never gives another record.
 */
#define SUITE journal
#include "sim.h"
#include "sim_disk.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/memory.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/journal_writer.h"

#define OWNER "{\"owner\":\"a test\"}"

/* --- records that are known by their numbers ------------------------------ */

typedef struct sizes {
    uint64_t seed;
    size_t most; /* of a record, in bytes */
} sizes;

static size_t size_of(const sizes *s, uint64_t lsn)
{
    return sim_hash(s->seed, lsn, 1, 0, 0) % s->most;
}

static uint16_t kind_of(const sizes *s, uint64_t lsn)
{
    return (uint16_t)(sim_hash(s->seed, lsn, 2, 0, 0) % 7 + 1);
}

static void fill(const sizes *s, uint64_t lsn, char *to)
{
    for (size_t i = 0; i < size_of(s, lsn); i++)
        to[i] = (char)(fl_mix(s->seed + lsn * 1000003 + i) >> 9);
}

static fl_journal_writer *writer_at(const char *folder, size_t roll,
                                    fl_journal_level level, uint32_t file,
                                    uint64_t lsn)
{
    fl_journal_writer *w;

    CHECK_OK(
        fl_journal_writer_create(&w, &(fl_journal_options){.folder = folder,
                                                           .text = OWNER,
                                                           .first_file = file,
                                                           .first_lsn = lsn,
                                                           .roll_bytes = roll,
                                                           .level = level}));
    return w;
}

/* In up to three parts. */
static fleet_status put(fl_journal_writer *w, const sizes *s, uint64_t lsn)
{
    size_t n = size_of(s, lsn), first = n / 3, second = n / 5;
    char *data = malloc(n + 1);
    fleet_status status;

    CHECK(data != NULL);
    fill(s, lsn, data);
    status = fl_journal_put(
        w, kind_of(s, lsn),
        (fl_journal_part[]){{data, first},
                            {data + first, second},
                            {data + first + second, n - first - second}},
        3);
    free(data);
    return status;
}

static void check_record(const sizes *s, const fl_journal_record *r)
{
    char *data = malloc(size_of(s, r->lsn) + 1);

    CHECK(data != NULL);
    fill(s, r->lsn, data);
    CHECK_INT(r->size, size_of(s, r->lsn));
    CHECK_INT(r->kind, kind_of(s, r->lsn));
    CHECK((uintptr_t)r->data % FL_JOURNAL_ALIGN == 0);
    CHECK(memcmp(data, r->data, r->size) == 0);
    free(data);
}

/* All that can be read; *last is the number of the last record, each of which
 * has to be as it was put. */
static fleet_status read_all(const char *folder, const sizes *s, uint64_t *last,
                             fl_journal_end *end, char cut[400])
{
    fl_journal_reader *r;
    fl_journal_record record;
    bool more = true;
    fleet_status status;

    *last = 0;
    FL_TRY(fl_journal_reader_open(&r, folder));
    while ((status = fl_journal_next(r, &record, &more)) == FLEET_OK && more) {
        CHECK_INT(record.lsn, *last + 1);
        check_record(s, &record);
        *last = record.lsn;
    }
    if (status == FLEET_OK) {
        uint64_t bytes, total;

        *end = fl_journal_reader_end(r);
        snprintf(cut, 400, "%s", end->cut);
        fl_journal_reader_progress(r, &bytes, &total);
        CHECK(bytes <= total && (*cut || bytes == total));
    } else {
        CHECK_STATUS(fl_journal_next(r, &record, &more), status);
    }
    fl_journal_reader_close(r);
    return status;
}

static uint64_t count_records(const char *folder, const sizes *s)
{
    fl_journal_end end;
    uint64_t last;
    char cut[400];

    CHECK_OK(read_all(folder, s, &last, &end, cut));
    CHECK_TEXT(cut, "");
    CHECK_INT(end.lsn, last + 1);
    return last;
}

static const char *new_folder(const char *name)
{
    const char *path = test_path(name);

    CHECK(mkdir(path, 0755) == 0);
    return path;
}

static void write_records(const char *folder, const sizes *s, uint64_t n,
                          size_t roll)
{
    fl_journal_writer *w =
        writer_at(folder, roll, FL_JOURNAL_SURVIVES_PROCESS, 1, 1);

    for (uint64_t i = 1; i <= n; i++) {
        CHECK_OK(put(w, s, i));
        CHECK_OK(fl_journal_commit(w));
        CHECK_INT(fl_journal_committed(w), i);
    }
    fl_journal_writer_destroy(w);
}

static bool is_file(const char *folder, uint32_t number)
{
    char *path = fl_journal_path(folder, number);
    bool found = fl_file_exists(path);

    fl_free(path);
    return found;
}

TEST(records_come_back_as_they_were_put)
{
    const sizes small = {1, 300}, large = {2, 3 << 20};
    const char *a = new_folder("a"), *b = new_folder("b");

    write_records(a, &small, 500, 4000);
    CHECK_INT(count_records(a, &small), 500);
    CHECK(is_file(a, 15) && !is_file(a, 40));
    write_records(b, &large, 12, 0);
    CHECK_INT(count_records(b, &large), 12);
    CHECK(!is_file(b, 2));
}

TEST(a_journal_without_records_has_no_file)
{
    const char *folder = new_folder("a");
    fl_journal_writer *w =
        writer_at(folder, 0, FL_JOURNAL_SURVIVES_POWER, 1, 1);
    fl_journal_reader *r;

    CHECK_OK(fl_journal_commit(w));
    fl_journal_writer_destroy(w);
    CHECK_FAILS(fl_journal_reader_open(&r, folder), FLEET_ENOENT, "has no log");
    CHECK_FAILS(fl_journal_reader_open(&r, test_path("none")), FLEET_ENOENT,
                "/none cannot be opened");
}

TEST(each_file_says_whose_it_is)
{
    const sizes s = {3, 100};
    const char *folder = new_folder("a"), *other = new_folder("b");
    fl_journal_reader *r;
    fl_journal_end end;
    uint64_t last;
    char cut[400], *from, *to;
    fl_journal_writer *w;

    write_records(folder, &s, 9, 300);
    CHECK_OK(fl_journal_reader_open(&r, folder));
    CHECK_TEXT(fl_journal_reader_text(r), OWNER);
    fl_journal_reader_close(r);
    CHECK_OK(
        fl_journal_writer_create(&w, &(fl_journal_options){.folder = other,
                                                           .text = "another",
                                                           .first_file = 20,
                                                           .first_lsn = 10}));
    CHECK_OK(put(w, &s, 10));
    CHECK_OK(fl_journal_commit(w));
    fl_journal_writer_destroy(w);
    CHECK_OK(read_all(folder, &s, &last, &end, cut));
    from = fl_journal_path(other, 20);
    to = fl_journal_path(folder, end.file);
    CHECK(rename(from, to) == 0);
    CHECK_FAILS(read_all(folder, &s, &last, &end, cut), FLEET_ECORRUPT,
                "is of another log than the files before it");
    CHECK_INT(last, 9);
    fl_free(from);
    fl_free(to);
}

/* --- a process that dies -------------------------------------------------- */

static void copy_file(const char *from, const char *to, uint32_t number,
                      size_t bytes)
{
    char *a = fl_journal_path(from, number), *b = fl_journal_path(to, number);
    char *data;
    size_t size;
    FILE *f;

    CHECK_OK(fl_file_read(a, &data, &size));
    f = fopen(b, "w");
    CHECK(f != NULL);
    size = size < bytes ? size : bytes;
    CHECK(fwrite(data, 1, size, f) == size);
    fclose(f);
    fl_free(a);
    fl_free(b);
    fl_free(data);
}

static size_t file_size(const char *folder, uint32_t number)
{
    char *path = fl_journal_path(folder, number);
    struct stat st;

    CHECK(stat(path, &st) == 0);
    fl_free(path);
    return (size_t)st.st_size;
}

/* The next process goes on where the last whole record ended; what is half
 * written stays in its file, and is passed over ever after. */
TEST(a_record_that_is_half_written_is_cut_off_wherever_that_was)
{
    const sizes s = {4, 60};
    const char *whole = new_folder("whole");
    size_t size;
    uint64_t before = 0;

    write_records(whole, &s, 6, 1 << 20);
    size = file_size(whole, 1);
    for (size_t n = 0; n <= size; n++) {
        char name[20], cut[400];
        fl_journal_end end;
        fl_journal_writer *w;
        uint64_t last;
        const char *folder;

        snprintf(name, sizeof name, "cut-%zu", n);
        folder = new_folder(name);
        copy_file(whole, folder, 1, n);
        CHECK_OK(read_all(folder, &s, &last, &end, cut));
        CHECK(last == before || last == before + 1);
        CHECK(end.lsn == last + 1 && end.file == 2);
        before = last;
        w = writer_at(folder, 0, FL_JOURNAL_SURVIVES_PROCESS, end.file,
                      end.lsn);
        for (uint64_t i = end.lsn; i < end.lsn + 2; i++)
            CHECK_OK(put(w, &s, i));
        CHECK_OK(fl_journal_commit(w));
        fl_journal_writer_destroy(w);
        CHECK_OK(read_all(folder, &s, &last, &end, cut));
        CHECK_INT(last, before + 2);
        CHECK_TEXT(cut, "");
    }
    CHECK_INT(before, 6);
}

TEST(what_was_not_committed_may_be_lost_and_nothing_else)
{
    const sizes s = {5, 200};
    const char *folder = new_folder("a");
    fl_journal_writer *w =
        writer_at(folder, 0, FL_JOURNAL_SURVIVES_PROCESS, 1, 1);

    for (uint64_t i = 1; i <= 20; i++)
        CHECK_OK(put(w, &s, i));
    CHECK_OK(fl_journal_commit(w));
    CHECK_OK(put(w, &s, 21));
    CHECK_INT(fl_journal_committed(w), 20);
    CHECK_INT(count_records(folder, &s), 20); /* as after a kill -9 */
    fl_journal_writer_destroy(w);
}

/* --- damage --------------------------------------------------------------- */

static void flip_bit(const char *folder, uint32_t number, size_t bit)
{
    char *path = fl_journal_path(folder, number);

    test_flip_bit(path, bit);
    fl_free(path);
}

/* Of two files the first: each record of it has others behind it, so that no
 * bit of it is lost in silence. Zeros between records mean nothing. */
TEST(a_flipped_bit_is_named_by_its_record_and_nothing_behind_it_is_read)
{
    const sizes s = {6, 90};
    const char *folder = new_folder("a");
    uint64_t named = 0, harmless = 0;
    size_t size;

    write_records(folder, &s, 12, 400);
    CHECK(is_file(folder, 2));
    size = file_size(folder, 1);
    for (size_t bit = 0; bit < size * 8; bit++) {
        fl_journal_end end;
        uint64_t last;
        char cut[400];
        fleet_status status;

        flip_bit(folder, 1, bit);
        status = read_all(folder, &s, &last, &end, cut);
        if (status == FLEET_OK) {
            CHECK_INT(last, 12);
            harmless++;
        } else {
            CHECK(status == FLEET_ECORRUPT || status == FLEET_EUNSUPPORTED);
            CHECK_CONTAINS(fleet_last_error(), "journal-00000001");
            named++;
        }
        flip_bit(folder, 1, bit);
    }
    CHECK(named > 9 * harmless && harmless < 8 * 7 * 13);
    CHECK_INT(count_records(folder, &s), 12);
}

TEST(damage_is_named_with_its_file_its_offset_and_its_number)
{
    const sizes s = {7, 200};
    const char *folder = new_folder("a");
    fl_journal_end end;
    uint64_t last;
    char cut[400], words[60];
    size_t at = fl_journal_file_bytes(strlen(OWNER));

    write_records(folder, &s, 8, 0);
    for (uint64_t i = 1; i < 4; i++)
        at += fl_journal_record_bytes(size_of(&s, i));
    flip_bit(folder, 1, (at + 30) * 8);
    snprintf(words, sizeof words,
             "journal-00000001, offset %zu: record 4 cannot be read", at);
    CHECK_FAILS(read_all(folder, &s, &last, &end, cut), FLEET_ECORRUPT, words);
    CHECK_INT(last, 3);
}

TEST(a_record_in_the_place_of_another_is_damage)
{
    enum { HEAD = FL_JOURNAL_RECORD_SIZE };
    const sizes s = {12, 1}; /* without bytes */
    const char *folder = new_folder("a");
    char *path = fl_journal_path(folder, 1), *data, third[HEAD];
    fl_journal_end end;
    uint64_t last;
    char cut[400];
    size_t size, at = fl_journal_file_bytes(strlen(OWNER));

    write_records(folder, &s, 5, 0);
    CHECK_OK(fl_file_read(path, &data, &size));
    memcpy(third, data + at + 2 * HEAD, HEAD);
    memcpy(data + at + 2 * HEAD, data + at + HEAD, HEAD);
    memcpy(data + at + HEAD, third, HEAD);
    test_file_bytes("a/journal-00000001", data, size);
    CHECK_FAILS(read_all(folder, &s, &last, &end, cut), FLEET_ECORRUPT,
                "record 2 cannot be read");
    CHECK_INT(last, 1);
    fl_free(data);
    fl_free(path);
}

TEST(a_file_that_is_missing_or_of_a_later_version_is_named)
{
    const sizes s = {8, 90};
    const char *folder = new_folder("a");
    char *second = NULL, *third, *data;
    fl_journal_end end;
    uint64_t last;
    char cut[400];
    size_t size;

    write_records(folder, &s, 30, 400);
    second = fl_journal_path(folder, 2);
    third = fl_journal_path(folder, 3);
    CHECK_OK(fl_file_read(third, &data, &size));
    data[4] = 9;
    test_file_bytes("a/journal-00000003", data, size);
    CHECK_FAILS(read_all(folder, &s, &last, &end, cut), FLEET_EUNSUPPORTED,
                "journal-00000003: it is of version 9 of journals, expected 1");
    CHECK(remove(second) == 0);
    CHECK_FAILS(read_all(folder, &s, &last, &end, cut), FLEET_ECORRUPT,
                "has no file journal-00000002: the next one is "
                "journal-00000003");
    fl_free(data);
    fl_free(second);
    fl_free(third);
}

/* --- disks ---------------------------------------------------------------- */

/* The process's life: it reads what there is, goes on, and stops when a call
 * fails. What it had committed last comes back. */
static uint64_t live(const char *folder, const sizes *s, uint64_t seed,
                     uint64_t least, fl_journal_level level,
                     fleet_status *failed)
{
    fl_journal_end end = {.lsn = 1, .file = 1};
    fl_journal_writer *w;
    uint64_t last = 0, committed;
    char cut[400];
    fleet_status status = read_all(folder, s, &last, &end, cut);

    *failed = status;
    if (sim_disk_is_off())
        return least;
    if (status != FLEET_ENOENT || least > 0)
        CHECK_OK(status);
    CHECK(last >= least);
    w = writer_at(folder, seed % 3 ? 700 : 60, level, end.file, end.lsn);
    *failed = FLEET_OK;
    for (uint64_t i = end.lsn; i < end.lsn + 25 && *failed == FLEET_OK; i++) {
        *failed = put(w, s, i);
        if (*failed == FLEET_OK && sim_hash(seed, i, 0, 0, 0) % 3 > 0)
            *failed = fl_journal_commit(w);
    }
    committed = fl_journal_committed(w);
    if (*failed != FLEET_OK) { /* it stays so, with the same words */
        const char *words = test_keep(fleet_last_error());

        CHECK_FAILS(fl_journal_put(w, 1, NULL, 0), *failed, words);
        CHECK_FAILS(fl_journal_commit(w), *failed, words);
    }
    fl_journal_writer_destroy(w);
    return committed;
}

/* The machine crashes at any call, and again, before anything that was not
 * flushed is safe: parts of it come to the disk, in any order. */
TEST(what_was_committed_survives_a_crash_of_the_machine)
{
    const char *root = test_path("disk");
    int crashes = 0, cut = 0;

    for (uint64_t seed = 1; seed <= 45; seed++) {
        const sizes s = {seed, 150};
        const char *folder = test_path("disk/log");
        uint64_t committed = 0;

        sim_disk_open(root);
        CHECK(fl_disk_make_folder(folder, 0755) == 0);
        CHECK(fl_folder_flush(root) == FLEET_OK);
        for (uint64_t life = 0; life < 4; life++) {
            uint64_t luck = sim_hash(seed, life, 9, 0, 0);
            fleet_status failed;

            sim_disk_stop_after(1 + (int)(luck % 60));
            committed = live(folder, &s, luck, committed,
                             FL_JOURNAL_SURVIVES_POWER, &failed);
            crashes += sim_disk_is_off();
            sim_disk_crash(luck);
            cut += failed != FLEET_OK;
        }
        sim_disk_close();
    }
    CHECK(crashes > 90 && cut > 90);
}

TEST(a_disk_that_is_full_is_named_and_what_was_committed_stays)
{
    const sizes s = {10, 150};
    const char *root = test_path("disk"), *folder = test_path("disk/log");

    for (uint64_t room = 0; room < 2500; room += 23) {
        uint64_t committed;
        fleet_status failed;

        sim_disk_open(root);
        CHECK(fl_disk_make_folder(folder, 0755) == 0);
        sim_disk_fill(room);
        committed =
            live(folder, &s, room, 0, FL_JOURNAL_SURVIVES_PROCESS, &failed);
        CHECK_STATUS(failed, FLEET_EIO);
        CHECK_CONTAINS(fleet_last_error(), "/log/journal-000000");
        CHECK_CONTAINS(fleet_last_error(), "No space left on device");
        sim_disk_mend();
        committed = live(folder, &s, room, committed,
                         FL_JOURNAL_SURVIVES_PROCESS, &failed);
        CHECK_STATUS(failed, FLEET_OK);
        CHECK(committed > 10 && count_records(folder, &s) >= committed);
        sim_disk_close();
    }
}

TEST(a_flush_that_fails_is_the_last)
{
    const sizes s = {11, 150};
    const char *root = test_path("disk"), *folder = test_path("disk/log");

    for (int n = 1; n < 20; n++) {
        fleet_status failed;

        sim_disk_open(root);
        CHECK(fl_disk_make_folder(folder, 0755) == 0);
        sim_disk_fail_flush(n);
        live(folder, &s, (uint64_t)n, 0, FL_JOURNAL_SURVIVES_POWER, &failed);
        CHECK_STATUS(failed, FLEET_EIO);
        CHECK_CONTAINS(fleet_last_error(), "flush");
        sim_disk_close();
    }
}
