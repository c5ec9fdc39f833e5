/* server_cut.c - the log of a lane is cut: when it has become long the lane is
 * written as it is, beside training, and what is older goes. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ps/journal/journal_cut.h"
#include "ps/host/server_internal.h"

enum {
    CUT_NICE = 10, /* training comes first, if it may */
    CUT_FILES = 4  /* that a log has at least before it is cut */
};

static size_t file_bytes(const fl_lane_runner *r)
{
    size_t bytes = r->server->o.log.file_bytes;

    return bytes ? bytes : FL_JOURNAL_ROLL_BYTES;
}

/* A snapshot is written for as many bytes of the log as it has itself: so the
 * disk writes at most twice what the log has. */
static bool is_long(const fl_lane_runner *r)
{
    int64_t least = CUT_FILES * (int64_t)file_bytes(r);
    int64_t bytes = (int64_t)fl_journal_bytes(r->journal) - r->cut_at;

    return bytes >= (r->cut_bytes > least ? r->cut_bytes : least);
}

/* One that could not be written is tried again a file later: what was in its
 * way, a full disk or short memory, may be gone. */
static bool is_due(const fl_lane_runner *r)
{
    return (r->wants_cut || is_long(r)) &&
           (int64_t)fl_journal_bytes(r->journal) >= r->cut_again;
}

/* --- on a thread of its own ----------------------------------------------- */

static fleet_status put_frozen(void *arg, uint16_t kind,
                               const fl_journal_part *part, size_t n)
{
    fl_lane_runner *r = arg;

    if (atomic_load(&r->cut_stop))
        return fl_fail(FLEET_EPEER, "the server has ended");
    return fl_journal_put(r->snapshot, kind, part, n);
}

static fleet_status commit_frozen(void *arg)
{
    const fl_lane_runner *r = arg;

    return fl_journal_commit(r->snapshot);
}

static fl_journal_sink sink_of(fl_lane_runner *r)
{
    return (fl_journal_sink){r, put_frozen, commit_frozen};
}

static void *cut_main(void *arg)
{
    fl_lane_runner *r = arg;
    const fl_journal_sink to = sink_of(r);

    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), CUT_NICE);
    fl_error_take(&r->cut_error, fl_lane_write_frozen(r->lane, &to));
    atomic_store(&r->cut_done, true);
    fl_wakeup_ring(&r->wakeup);
    return NULL;
}

/* --- on the lane's -------------------------------------------------------- */

static fleet_status open_snapshot(fl_lane_runner *r, const char *folder)
{
    char *path;
    fleet_status status;

    FL_TRY(fl_journal_cut_begin(folder, r->cut_file, &path));
    status = fl_server_log_write(r->server, path, 1, 1, &r->snapshot);
    fl_free(path);
    return status;
}

static fleet_status freeze_lane(fl_lane_runner *r, const char *folder)
{
    const fl_journal_sink to = sink_of(r);
    fleet_status status;

    atomic_store(&r->cut_done, false);
    FL_TRY(open_snapshot(r, folder));
    FL_TRY(fl_lane_freeze(r->lane, &to));
    status = fl_thread_start(&r->cut_thread, cut_main, r, "a snapshot");
    r->cuts = status == FLEET_OK;
    if (status != FLEET_OK)
        fl_lane_thaw(r->lane, fl_now_ms());
    return status;
}

/* What there is of the snapshot may be what has filled the disk. */
static void drop_snapshot(fl_lane_runner *r)
{
    char *folder = fl_journal_folder_lane(&r->server->home, r->number);

    fl_journal_writer_destroy(r->snapshot);
    r->snapshot = NULL;
    if (folder)
        fl_journal_cut_drop(folder, r->cut_file);
    fl_free(folder);
}

/* Nothing is lost: the log is as long as it is, and is cut later. */
static void warn_not_cut(fl_lane_runner *r)
{
    drop_snapshot(r);
    r->cut_again = (int64_t)(fl_journal_bytes(r->journal) + file_bytes(r));
    FL_WARN(&r->server->o.context->log,
            "server %d, lane %d: its log is not cut: %s", r->server->o.index,
            r->number, fleet_last_error());
}

static void begin_cut(fl_lane_runner *r)
{
    char *folder;
    fleet_status status;

    if (fl_journal_roll(r->journal, &r->cut_file) != FLEET_OK) {
        fl_lane_abort(r->lane, fl_last_code(), fleet_last_error());
        return;
    }
    r->cut_from = (int64_t)fl_journal_bytes(r->journal);
    folder = fl_journal_folder_lane(&r->server->home, r->number);
    status = folder ? freeze_lane(r, folder) : FLEET_ENOMEM;
    fl_free(folder);
    if (status != FLEET_OK)
        warn_not_cut(r);
}

static fleet_status commit_cut(fl_lane_runner *r)
{
    char *folder = fl_journal_folder_lane(&r->server->home, r->number);
    fleet_status status = fl_error_raise(&r->cut_error);
    int64_t bytes = (int64_t)fl_journal_bytes(r->snapshot);

    fl_journal_writer_destroy(r->snapshot);
    r->snapshot = NULL;
    if (status == FLEET_OK)
        status = folder
                     ? fl_journal_cut_commit(folder, r->cut_file,
                                             fl_server_log_flushes(r->server))
                     : FLEET_ENOMEM;
    fl_free(folder);
    FL_TRY(status);
    r->cut_at = r->cut_from;
    r->cut_bytes = bytes;
    r->wants_cut = false;
    return FLEET_OK;
}

/* That of a server which has ended is none, and is not missed. */
static void end_cut(fl_lane_runner *r)
{
    fleet_status status;

    pthread_join(r->cut_thread, NULL);
    r->cuts = false;
    fl_lane_thaw(r->lane, fl_now_ms());
    status = commit_cut(r);
    if (status != FLEET_OK && atomic_load(&r->cut_stop))
        drop_snapshot(r);
    else if (status != FLEET_OK)
        warn_not_cut(r);
    else
        FL_INFO(&r->server->o.context->log,
                "server %d, lane %d: its log begins anew, behind a snapshot of "
                "%.1f MB",
                r->server->o.index, r->number, (double)r->cut_bytes * 1e-6);
}

void fl_runner_cut(fl_lane_runner *r)
{
    if (!r->journal)
        return;
    if (r->cuts && fl_lane_state_of(r->lane) != FL_LANE_RUNS)
        atomic_store(&r->cut_stop, true);
    if (r->cuts && atomic_load(&r->cut_done))
        end_cut(r);
    else if (!r->cuts && is_due(r) && fl_lane_may_freeze(r->lane))
        begin_cut(r);
}
