/* journal_folder.c - a folder that one process at a time has. */
#define _GNU_SOURCE
#include "ps/journal/journal_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/memory.h"
#include "ps/journal/journal_cut.h"
#include "ps/journal/lane_home.h"
#include "ps/locality.h"

static const char identity_name[] = "identity", ended_name[] = "ended";

void fl_journal_folder_name(int server, char name[24])
{
    snprintf(name, 24, "server-%d", server);
}

static fleet_status folder_failed(const char *what, const char *path)
{
    return fl_fail(FLEET_EIO, "the log %s cannot be %s: %s", path, what,
                   strerror(errno));
}

static fleet_status make_folder(const char *path)
{
    return fl_disk_make_folder(path, 0777) == 0 || errno == EEXIST
               ? FLEET_OK
               : folder_failed("made", path);
}

/* With its name on the disk, or a crash of the machine takes all that is
 * flushed below it. */
static fleet_status make_named(const char *path, const char *parent)
{
    if (fl_file_exists(path))
        return FLEET_OK;
    FL_TRY(make_folder(path));
    return fl_folder_flush(parent);
}

static fleet_status make_parent(const char *path)
{
    char *above = fl_path_parent(path);
    fleet_status status = above ? make_named(path, above) : FLEET_ENOMEM;

    fl_free(above);
    return status;
}

/* --- the lock ------------------------------------------------------------- */

static fleet_status is_taken(const fl_journal_folder *h, const char *what)
{
    char who[96];
    ssize_t n = pread(h->lock, who, sizeof who - 1, 0);

    who[n > 0 ? n : 0] = 0;
    return fl_fail(FLEET_EEXIST,
                   "the log %s is in use by another process%s%s: expected %s "
                   "to be the only one that writes there",
                   h->folder, n > 0 ? ", " : "", who, what);
}

/* Its name is for a process that comes meanwhile, and may be missing. */
static fleet_status take_lock(fl_journal_folder *h, const char *what)
{
    char *path = fl_path_join(h->folder, "lock"), who[96];
    fleet_status status = FLEET_OK;

    if (!path)
        return FLEET_ENOMEM;
    h->lock = fl_fd_lift(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (h->lock < 0)
        status = folder_failed("locked", path);
    fl_free(path);
    FL_TRY(status);
    if (flock(h->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? is_taken(h, what)
                                    : folder_failed("locked", h->folder);
    fl_who_text(who);
    if (ftruncate(h->lock, 0) != 0 || pwrite(h->lock, who, strlen(who), 0) < 0)
        errno = 0;
    return FLEET_OK;
}

/* --- the text ------------------------------------------------------------- */

static fleet_status read_text(fl_journal_folder *h, const char *name)
{
    char *path = fl_path_join(h->folder, name);
    fleet_status status = FLEET_OK;
    size_t size;

    if (!path)
        return FLEET_ENOMEM;
    if (fl_file_exists(path))
        status = fl_file_read(path, &h->text, &size);
    fl_free(path);
    return status;
}

fleet_status fl_journal_folder_open(fl_journal_folder *h, const char *parent,
                                    const char *name, const char *what)
{
    *h = (fl_journal_folder){.lock = -1, .folder = fl_path_join(parent, name)};
    if (!h->folder)
        return FLEET_ENOMEM;
    FL_TRY(make_parent(parent));
    FL_TRY(make_named(h->folder, parent));
    FL_TRY(take_lock(h, what));
    return read_text(h, identity_name);
}

fleet_status fl_journal_folder_read(fl_journal_folder *h)
{
    FL_TRY(read_text(h, identity_name));
    return h->text ? FLEET_OK : read_text(h, ended_name);
}

fleet_status fl_journal_folder_look(fl_journal_folder *h, const char *parent,
                                    const char *name)
{
    *h = (fl_journal_folder){.lock = -1, .folder = fl_path_join(parent, name)};
    if (!h->folder)
        return FLEET_ENOMEM;
    if (!fl_file_exists(h->folder))
        return fl_fail(FLEET_ENOENT, "the log %s: there is no such folder",
                       h->folder);
    FL_TRY(take_lock(h, "whoever reads it"));
    FL_TRY(fl_journal_folder_read(h));
    return h->text ? FLEET_OK
                   : fl_fail(FLEET_ENOENT,
                             "the log %s: there is neither an \"%s\" nor an "
                             "\"%s\": nobody has written a log there",
                             h->folder, identity_name, ended_name);
}

/* --- an owner's time ------------------------------------------------------ */

char *fl_journal_folder_lane(const fl_journal_folder *h, int lane)
{
    char name[24];

    snprintf(name, sizeof name, "lane-%d", lane);
    return fl_path_join(h->folder, name);
}

static bool has_lane(const fl_journal_folder *h, int lane)
{
    char *path = fl_journal_folder_lane(h, lane);
    bool has = path && fl_file_exists(path);

    fl_free(path);
    return has;
}

/* What earlier owners have left; the first folder that is not there is the
 * end. So the last one goes first: a process that dies meanwhile leaves none
 * behind a gap. */
static fleet_status clear_lanes(const fl_journal_folder *h)
{
    int n = 0;

    while (has_lane(h, n))
        n++;
    while (n-- > 0) {
        char *path = fl_journal_folder_lane(h, n);

        if (!path)
            return FLEET_ENOMEM;
        fl_lane_home_remove(h->folder, n);
        fl_journal_remove(path);
        fl_free(path);
    }
    return FLEET_OK;
}

static fleet_status make_lanes(const fl_journal_folder *h, int lanes)
{
    for (int i = 0; i < lanes; i++) {
        char *path = fl_journal_folder_lane(h, i);
        fleet_status status = path ? make_folder(path) : FLEET_ENOMEM;

        fl_free(path);
        FL_TRY(status);
    }
    return FLEET_OK;
}

fleet_status fl_journal_folder_clear(const fl_journal_folder *h, int lanes)
{
    FL_TRY(clear_lanes(h));
    FL_TRY(make_lanes(h, lanes));
    return fl_folder_flush(h->folder);
}

/* A process that died in the midst of it has left the first file. */
fleet_status fl_journal_folder_begin(const fl_journal_folder *h,
                                     const char *text)
{
    static const char name[] = "identity.new";
    char *from = fl_path_join(h->folder, name);
    char *to = fl_path_join(h->folder, identity_name);
    fleet_status status = FLEET_ENOMEM;

    if (from && to) {
        fl_disk_remove(AT_FDCWD, from, 0);
        status = fl_file_write(h->folder, name, text, strlen(text), NULL);
    }
    if (status == FLEET_OK)
        status = fl_file_replace(from, to);
    fl_free(from);
    fl_free(to);
    return status;
}

fleet_status fl_journal_folder_end(const fl_journal_folder *h)
{
    char *from = fl_path_join(h->folder, identity_name);
    char *to = fl_path_join(h->folder, ended_name);
    fleet_status status = from && to ? fl_file_replace(from, to) : FLEET_ENOMEM;

    fl_free(from);
    fl_free(to);
    return status;
}

void fl_journal_folder_close(fl_journal_folder *h)
{
    if (h->folder && h->lock >= 0)
        close(h->lock);
    fl_free(h->folder);
    fl_free(h->text);
    *h = (fl_journal_folder){.lock = -1};
}
