/* sim_journal.c - see sim_journal.h. */
#define _GNU_SOURCE
#define SUITE sim_kit
#include "sim_journal.h"
#include "sim_internal.h"
#include "test.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/memory.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/journal_writer.h"

enum {
    ROLL_BYTES = 3000,
    MOST_RECORDS = 30,
    MOST_PAUSE_MS = 40,
    MOST_CUT_MS = 400,
    CUT_EVERY = 30 /* of so many ticks one begins a snapshot */
};

static void folder_of(const sim_lane *l, char path[300])
{
    snprintf(path, 300, "%s/lane-%d", l->s->o.journal, l->number);
}

void sim_journal_clear(const char *folder)
{
    char path[300];

    mkdir(folder, 0755);
    for (int i = 0; i < SIM_MOST_LANE; i++) {
        snprintf(path, sizeof path, "%s/lane-%d", folder, i);
        fl_journal_remove(path);
        mkdir(path, 0755);
    }
}

/* --- writing -------------------------------------------------------------- */

static fleet_status put(void *arg, uint16_t kind, const fl_journal_part *part,
                        size_t n)
{
    const sim_lane *l = arg;

    return fl_journal_put(l->writer, kind, part, n);
}

/* Its last bytes have not come to the file. */
static void tear(const sim_lane *l)
{
    char folder[300], *last = NULL;
    struct stat st;

    folder_of(l, folder);
    for (uint32_t i = l->cut > 0 ? l->cut : 1;; i++) {
        char *path = fl_journal_path(folder, i);

        if (stat(path, &st) != 0) {
            fl_free(path);
            break;
        }
        fl_free(last);
        last = path;
    }
    CHECK(last != NULL && stat(last, &st) == 0);
    CHECK(truncate(last, st.st_size - 1 -
                             (off_t)sim_random(l->s, FL_JOURNAL_RECORD_SIZE)) ==
          0);
    fl_free(last);
}

/* Before it writes, in the midst of the record, or before it does what that
 * says: nobody hears of it. */
static fleet_status die(sim_lane *l)
{
    sim *s = l->s;
    uint64_t how = sim_random(s, 3);

    if (how > 0)
        CHECK_OK(fl_journal_commit(l->writer));
    if (how == 2)
        tear(l);
    s->server[l->server].dying = true;
    s->o.fault[0] = (sim_fault){.kind = SIM_DIES,
                                .worker = SIM_NOBODY,
                                .server = l->server,
                                .ms = 1 + (int64_t)sim_random(s, 500)};
    s->fault[0].begun = true;
    s->n_died++;
    sim_say(s, "a server dies as it writes", SIM_NOBODY, l->number, NULL);
    return fl_fail(FLEET_EIO, "its process is gone");
}

static fleet_status commit(void *arg)
{
    sim_lane *l = arg;
    sim *s = l->s;

    if (s->server[l->server].dying)
        return fl_fail(FLEET_EIO, "its process is gone");
    if (s->n_died < s->o.journal_deaths &&
        sim_random(s, (uint64_t)s->o.journal_every) == 0)
        return die(l);
    return fl_journal_commit(l->writer);
}

fl_journal_sink sim_journal_sink(sim_lane *l)
{
    return l->s->o.journal ? (fl_journal_sink){l, put, commit}
                           : (fl_journal_sink){0};
}

static void begin_writer(sim_lane *l, fl_journal_end end)
{
    char folder[300];

    folder_of(l, folder);
    CHECK_OK(fl_journal_writer_create(
        &l->writer, &(fl_journal_options){.folder = folder,
                                          .text = "sim",
                                          .first_file = end.file,
                                          .first_lsn = end.lsn,
                                          .roll_bytes = ROLL_BYTES}));
}

/* --- snapshots ------------------------------------------------------------ */

static fleet_status put_frozen(void *arg, uint16_t kind,
                               const fl_journal_part *part, size_t n)
{
    const sim_lane *l = arg;

    return fl_journal_put(l->snapshot, kind, part, n);
}

static fleet_status commit_frozen(void *arg)
{
    const sim_lane *l = arg;

    return fl_journal_commit(l->snapshot);
}

void sim_journal_tick(sim *s, sim_lane *l)
{
    const fl_journal_sink to = {l, put_frozen, commit_frozen};
    char folder[300], *path;

    if (!s->o.journal || !l->writer || l->snapshot ||
        s->server[l->server].dying || sim_random(s, (uint64_t)CUT_EVERY) > 0 ||
        !fl_lane_may_freeze(l->core))
        return;
    folder_of(l, folder);
    CHECK_OK(fl_journal_roll(l->writer, &l->cut));
    CHECK_OK(fl_journal_cut_begin(folder, l->cut, &path));
    CHECK_OK(fl_journal_writer_create(
        &l->snapshot, &(fl_journal_options){.folder = path,
                                            .text = "sim",
                                            .first_file = 1,
                                            .first_lsn = 1,
                                            .roll_bytes = ROLL_BYTES}));
    fl_free(path);
    CHECK_OK(fl_lane_freeze(l->core, &to));
    sim_post(s, (sim_event){.at_ms = s->now_ms + 1 +
                                     (int64_t)sim_random(s, MOST_CUT_MS),
                            .kind = SIM_LANE_CUTS,
                            .server = l->server,
                            .lane = l->number,
                            .life = s->server[l->server].life});
}

void sim_journal_cut(sim *s, sim_lane *l)
{
    const fl_journal_sink to = {l, put_frozen, commit_frozen};
    char folder[300];

    folder_of(l, folder);
    CHECK_OK(fl_lane_write_frozen(l->core, &to));
    fl_journal_writer_destroy(l->snapshot);
    l->snapshot = NULL;
    fl_lane_thaw(l->core, s->now_ms);
    CHECK_OK(fl_journal_cut_commit(folder, l->cut, false));
    s->n_cut++;
    sim_say(s, "a journal is cut", SIM_NOBODY, l->number, NULL);
}

/* --- reading -------------------------------------------------------------- */

static void post_replay(sim *s, const sim_lane *l)
{
    sim_post(s, (sim_event){.at_ms = s->now_ms + 1 +
                                     (int64_t)sim_random(s, MOST_PAUSE_MS),
                            .kind = SIM_LANE_REPLAYS,
                            .server = l->server,
                            .lane = l->number,
                            .life = s->server[l->server].life});
}

void sim_journal_begin(sim *s, sim_lane *l)
{
    char folder[300];
    uint32_t first;

    l->replays = false;
    if (!s->o.journal)
        return;
    if (s->server[l->server].life == 1) {
        begin_writer(l, (fl_journal_end){.lsn = 1, .file = 1});
        CHECK_OK(fl_journal_roll(l->writer, &first));
        return;
    }
    folder_of(l, folder);
    CHECK_OK(fl_journal_newest(folder, &first));
    CHECK_OK(
        fl_journal_reader_open_at(&l->reader, folder, first > 0 ? first : 1));
    if (first > 0) {
        char *path = fl_journal_snapshot(folder, first);

        l->behind = l->reader;
        CHECK_OK(fl_journal_reader_open(&l->reader, path));
        fl_free(path);
    }
    l->replays = true;
    fl_lane_begin_replay(l->core, s->now_ms);
    post_replay(s, l);
}

static void end_replay(sim *s, sim_lane *l)
{
    fl_lane_end_replay(l->core, FLEET_OK, NULL, s->now_ms);
    sim_say(s, "a lane is back", SIM_NOBODY, l->number, NULL);
}

/* A lane of the server that is made again yet? */
static bool any_replays(const sim *s, int server)
{
    for (int i = 0; i < s->n_lane; i++)
        if (s->lane[i].server == server && s->lane[i].replays)
            return true;
    return false;
}

static void finish_reading(sim *s, sim_lane *l)
{
    fl_journal_end end = fl_journal_reader_end(l->reader);

    fl_journal_reader_close(l->reader);
    l->reader = NULL;
    l->replays = false;
    begin_writer(l, end);
    for (int i = 0; i < s->n_lane && !any_replays(s, l->server); i++)
        if (s->lane[i].server == l->server)
            end_replay(s, &s->lane[i]);
}

void sim_journal_goes_on(sim *s, sim_lane *l)
{
    uint64_t n = 1 + sim_random(s, MOST_RECORDS);
    fl_journal_record r;
    bool more = l->reader != NULL;

    while (n-- > 0 && more && !fl_lane_replay_waits(l->core)) {
        CHECK_OK(fl_journal_next(l->reader, &r, &more));
        if (more)
            CHECK_OK(fl_lane_replay(l->core, &r, s->now_ms));
    }
    if (!more && l->behind) {
        fl_journal_reader_close(l->reader);
        l->reader = l->behind;
        l->behind = NULL;
        more = true;
    }
    if (more)
        post_replay(s, l);
    else
        finish_reading(s, l);
}

void sim_journal_dies(sim_lane *l)
{
    fl_journal_reader_close(l->reader);
    fl_journal_reader_close(l->behind);
    fl_journal_writer_destroy(l->writer);
    fl_journal_writer_destroy(l->snapshot);
    l->reader = l->behind = NULL;
    l->writer = l->snapshot = NULL;
}
