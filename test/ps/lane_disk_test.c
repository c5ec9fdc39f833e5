/* lane_disk_test.c - a lane whose log is on a disk that is full, or broken, or
 * loses a bit, at any call: what it is made again from is the state before that
 * call, or behind it, or it is refused by name. It never is another one. */
#define SUITE lane_disk
#include "lane_kit.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/journal_writer.h"
#include "runtime/store/table.h"

enum { STEPS = 8, CUT_BEFORE = 5, ROLL_BYTES = 600 };

/* --- what a lane is, after so many steps ---------------------------------- */

static fleet_status add_row(void *arg, int bucket, uint64_t key,
                            const float *row)
{
    const fl_row_head *head = (const fl_row_head *)(const void *)row - 1;
    uint64_t *sum = arg;

    (void)bucket;
    *sum += fl_hash(row, 3 * sizeof *row, key) + fl_mix(head->step) +
            head->changed_at * 31;
    return FLEET_OK;
}

static uint64_t state_of(const lane_kit *k)
{
    uint64_t sum = k->lane->stream[0].done;

    for (size_t i = 0; i < k->store->tables.n; i++) {
        const fl_rows *rows = k->store->tables.entry[i].value;

        CHECK_OK(rows->methods->each(rows, add_row, &sum));
        sum = fl_mix(sum);
    }
    for (const fl_flat *f = k->store->flats; f; f = f->next)
        sum = fl_mix(sum +
                     fl_hash(f->weight, (size_t)f->n * sizeof *f->weight, 1));
    return sum;
}

static uint64_t state[STEPS + 1];

static void step(lane_kit *k, uint64_t number)
{
    const uint64_t key[] = {number, 3, 40 + number % 2};

    lane_push_rows(k, 0, number, key, 3, (float)number);
}

static void note_states(void)
{
    lane_kit k;

    lane_open(&k, SIM_ADAM, 1, true);
    state[0] = state_of(&k);
    for (uint64_t i = 1; i <= STEPS; i++) {
        step(&k, i);
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        state[i] = state_of(&k);
    }
    lane_close(&k);
}

/* --- its log -------------------------------------------------------------- */

static fl_journal_writer *journal, *snapshot;

static fleet_status put(void *arg, uint16_t kind, const fl_journal_part *part,
                        size_t n)
{
    return fl_journal_put(*(fl_journal_writer **)arg, kind, part, n);
}

static fleet_status commit(void *arg)
{
    return fl_journal_commit(*(fl_journal_writer **)arg);
}

static fleet_status open_writer(const char *folder, fl_journal_writer **w)
{
    return fl_journal_writer_create(
        w, &(fl_journal_options){.folder = folder,
                                 .text = "lane",
                                 .first_file = 1,
                                 .first_lsn = 1,
                                 .roll_bytes = ROLL_BYTES,
                                 .level = FL_JOURNAL_SURVIVES_POWER});
}

/* As a server does it; what fails leaves the log as it is. */
static fleet_status write_snapshot(lane_kit *k, const char *folder,
                                   uint32_t file)
{
    const fl_journal_sink to = {&snapshot, put, commit};
    fleet_status status;
    char *path;

    FL_TRY(fl_journal_cut_begin(folder, file, &path));
    status = open_writer(path, &snapshot);
    fl_free(path);
    FL_TRY(status);
    FL_TRY(fl_lane_freeze(k->lane, &to));
    status = fl_lane_write_frozen(k->lane, &to);
    fl_lane_thaw(k->lane, 0);
    FL_TRY(status);
    return fl_journal_cut_commit(folder, file, true);
}

static fleet_status cut(lane_kit *k, const char *folder)
{
    fleet_status status;
    uint32_t file;

    FL_TRY(fl_journal_roll(journal, &file));
    status = write_snapshot(k, folder, file);
    fl_journal_writer_destroy(snapshot);
    snapshot = NULL;
    if (status != FLEET_OK)
        fl_journal_cut_drop(folder, file);
    return FLEET_OK;
}

/* Until it ends, or a call to the disk has failed; how many steps were
 * answered. -1: it has not begun. */
static int live(const char *folder)
{
    lane_kit k;
    uint32_t file;
    int n = 0;

    CHECK(mkdir(folder, 0755) == 0);
    CHECK_OK(open_writer(folder, &journal));
    if (fl_journal_roll(journal, &file) != FLEET_OK)
        n = -1;
    lane_journal = (fl_journal_sink){&journal, put, commit};
    lane_open(&k, SIM_ADAM, 1, true);
    lane_journal = (fl_journal_sink){0};
    while (n >= 0 && n < STEPS) {
        if (n + 1 == CUT_BEFORE && cut(&k, folder) != FLEET_OK)
            break;
        step(&k, (uint64_t)n + 1);
        if (fl_lane_state_of(k.lane) != FL_LANE_RUNS)
            break;
        lane_hear_status(&k, 0, FL_ANSWER_OK);
        n++;
    }
    if (fl_lane_state_of(k.lane) != FL_LANE_RUNS)
        CHECK_CONTAINS(fl_lane_error(k.lane)->text, folder);
    lane_close(&k);
    fl_journal_writer_destroy(journal);
    return n;
}

/* --- made again ----------------------------------------------------------- */

static fleet_status read_all(lane_kit *k, fl_journal_reader *r, uint16_t *last)
{
    fl_journal_record record;
    bool more = true;

    for (;;) {
        FL_TRY(fl_journal_next(r, &record, &more));
        if (!more)
            return FLEET_OK;
        FL_TRY(fl_lane_replay(k->lane, &record, 0));
        *last = record.kind;
    }
}

static fleet_status read_folder(lane_kit *k, const char *folder, uint32_t first,
                                uint16_t *last)
{
    fl_journal_reader *r;
    fleet_status status = fl_journal_reader_open_at(&r, folder, first);

    if (status == FLEET_OK)
        status = read_all(k, r, last);
    fl_journal_reader_close(r);
    return status;
}

static fleet_status replay(lane_kit *k, const char *folder)
{
    uint32_t first;
    uint16_t last = 0;

    FL_TRY(fl_journal_newest(folder, &first));
    if (first > 0) {
        char *path = fl_journal_snapshot(folder, first);
        fleet_status status = read_folder(k, path, 1, &last);

        fl_free(path);
        FL_TRY(status);
        if (last != FL_LANE_RECORD_WHOLE)
            return fl_fail(FLEET_ECORRUPT, "the log %s: no end", folder);
    }
    return read_folder(k, folder, first > 0 ? first : 1, &last);
}

/* The steps that it has; the status says why it is refused. */
static fleet_status revive(const char *folder, int *steps)
{
    lane_kit k;
    fleet_status status;

    lane_open(&k, SIM_ADAM, 1, true);
    fl_lane_begin_replay(k.lane, 0);
    status = replay(&k, folder);
    if (status == FLEET_OK) {
        fl_lane_end_replay(k.lane, FLEET_OK, NULL, 0);
        *steps = (int)k.lane->stream[0].done;
        CHECK(*steps <= STEPS && state_of(&k) == state[*steps]);
        CHECK_INT(fl_lane_version(k.lane), *steps);
    }
    lane_close(&k);
    return status;
}

/* --- calls that fail ------------------------------------------------------ */

typedef enum failure { FULL, BROKEN, SHORT, N_FAILURE } failure;

static failure fails_by;
static int n_call, fails_at;

/* This call fails: with a full disk all that come after it, too. */
static bool fails(void)
{
    n_call++;
    errno = fails_by == BROKEN ? EIO : ENOSPC;
    return fails_by == FULL ? n_call >= fails_at : n_call == fails_at;
}

static ssize_t write_some(int fd, const void *data, size_t size)
{
    if (!fails())
        return fl_disk_system.write(fd, data, size);
    if (fails_by != SHORT || size < 2)
        return -1;
    fails_at++; /* and nothing more */
    return fl_disk_system.write(fd, data, size / 2);
}

static int open_file(int folder, const char *name, int flags, mode_t mode)
{
    return flags & O_CREAT && fails()
               ? -1
               : fl_disk_system.open(folder, name, flags, mode);
}

/* No crash of a machine comes: nothing need be on the disk. */
static int flush(int fd)
{
    (void)fd;
    return fails_by == BROKEN && fails() ? -1 : 0;
}

static int make_folder(const char *path, mode_t mode)
{
    return fails() ? -1 : fl_disk_system.make_folder(path, mode);
}

static int rename_path(const char *from, const char *to, unsigned flags)
{
    return fails_by == BROKEN && fails()
               ? -1
               : fl_disk_system.rename(from, to, flags);
}

/* The n-th call fails; false: there were not so many. */
static bool try_failure(int n)
{
    fl_disk disk = fl_disk_system;
    char name[40], *folder;
    int answered, steps = -1;

    snprintf(name, sizeof name, "lane-%d-%d", (int)fails_by, n);
    folder = fl_strdup(test_path(name));
    disk.write = write_some;
    disk.open = open_file;
    disk.flush = flush;
    disk.make_folder = make_folder;
    disk.rename = rename_path;
    n_call = 0;
    fails_at = n;
    fl_disk_use(&disk);
    answered = live(folder);
    fl_disk_use(NULL);
    if (answered >= 0) {
        CHECK_OK(revive(folder, &steps));
        CHECK(steps == answered || steps == answered + 1);
    }
    fl_free(folder);
    return n_call >= n;
}

TEST(a_disk_that_fails_at_any_call_leaves_the_old_state_or_the_new)
{
    lane_kit shared; /* so that models stay */

    lane_open(&shared, SIM_ADAM, 1, true);
    note_states();
    for (int how = 0; how < N_FAILURE; how++) {
        int n = 1;

        fails_by = (failure)how;
        while (try_failure(n))
            n++;
        CHECK(n > 2 * STEPS);
    }
    lane_close(&shared);
}

/* --- bits ----------------------------------------------------------------- */

enum { STRIDE = 13 };

static int n_refused;

/* The last record may be taken for one that was not committed: the answer that
 * its worker has says otherwise, and the lane does not go on. */
static void try_bits(const char *folder, const char *path)
{
    struct stat st;

    CHECK(stat(path, &st) == 0);
    for (off_t at = st.st_size % STRIDE; at < st.st_size; at += STRIDE) {
        size_t bit = (size_t)at * 8 + (size_t)(at / STRIDE) % 8;
        fleet_status status;
        int steps = -1;

        test_flip_bit(path, bit);
        status = revive(folder, &steps);
        test_flip_bit(path, bit);
        if (status == FLEET_OK) {
            CHECK(steps >= STEPS - 1);
            continue;
        }
        CHECK(status == FLEET_ECORRUPT || status == FLEET_EUNSUPPORTED);
        CHECK_CONTAINS(fleet_last_error(), "log ");
        n_refused++;
    }
}

/* All files below it. */
static void try_files(const char *top, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *e;

    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL) {
        char path[600];

        if (*e->d_name == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_type == DT_DIR)
            try_files(top, path);
        else
            try_bits(top, path);
    }
    closedir(dir);
}

static int flush_nothing(int fd)
{
    (void)fd;
    return 0;
}

TEST(a_bit_that_flips_in_a_log_or_a_snapshot_is_seen)
{
    char *folder = fl_strdup(test_path("lane"));
    fl_disk disk = fl_disk_system;
    lane_kit shared;
    int steps;

    lane_open(&shared, SIM_ADAM, 1, true);
    note_states();
    disk.flush = flush_nothing;
    fl_disk_use(&disk);
    CHECK_INT(live(folder), STEPS);
    fl_disk_use(NULL);
    CHECK_OK(revive(folder, &steps));
    CHECK_INT(steps, STEPS);
    try_files(folder, folder);
    CHECK(n_refused > 100);
    lane_close(&shared);
    fl_free(folder);
}
