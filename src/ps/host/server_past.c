/* server_past.c - is anything in the log that a process before has left that
 * would be lost if the server began anew? */
#include "base/file.h"
#include "base/memory.h"
#include "ps/aggregate/lane_record.h"
#include "ps/host/server_internal.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/lane_home.h"

/* Workers that come and go, sums, and ends of passes without an update are made
 * again by the next job. */
static bool is_used_by(const fl_journal_record *r)
{
    return r->kind != FL_LANE_RECORD_RUN && r->kind != FL_LANE_RECORD_PLACE &&
           r->kind != FL_LANE_RECORD_REDUCED &&
           r->kind != FL_LANE_RECORD_PASS && r->kind != FL_LANE_RECORD_LEAVE &&
           r->kind != FL_LANE_RECORD_BYE;
}

/* What cannot be read may be anything. A folder without a file is one of which
 * it was lost. */
static bool is_used_journal(const char *folder)
{
    fl_journal_reader *r = NULL;
    fl_journal_record record;
    uint32_t snapshot = 1;
    bool used = true, more = true;

    if (fl_journal_newest(folder, &snapshot) == FLEET_OK && snapshot == 0 &&
        fl_journal_reader_open(&r, folder) == FLEET_OK) {
        used = false;
        while (!used && more)
            used = fl_journal_next(r, &record, &more) != FLEET_OK ||
                   (more && is_used_by(&record));
    }
    fl_journal_reader_close(r);
    return used;
}

/* One whose home is another process has trained, or may have. */
static bool is_used_lane(const fl_server *s, int lane)
{
    char *folder = fl_journal_folder_lane(&s->home, lane);
    fl_lane_home home;
    bool has_gone = true, used = true;

    if (folder &&
        fl_lane_home_read(s->home.folder, lane, &home, &has_gone) == FLEET_OK)
        used = has_gone || is_used_journal(folder);
    fl_free(folder);
    return used;
}

/* The first folder that is not there is the end of its lanes. */
static bool has_lane(const fl_server *s, int lane)
{
    char *folder = fl_journal_folder_lane(&s->home, lane);
    bool has = folder && fl_file_exists(folder);

    fl_free(folder);
    return has;
}

bool fl_server_log_is_unused(const fl_server *s)
{
    fl_error error;
    bool used;

    fl_error_take(&error, fl_last_code()); /* why it is asked: it stays */
    used = !has_lane(s, 0);
    for (int i = 0; !used && has_lane(s, i); i++)
        used = is_used_lane(s, i);
    (void)fl_error_raise(&error);
    return !used;
}
