/* journal_cut.c - folders of snapshots, and which files are older. */
#include "ps/journal/journal_cut.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/memory.h"
#include "ps/journal/journal_writer.h"

static fleet_status cut_failed(const char *what, const char *path)
{
    return fl_fail(FLEET_EIO, "the snapshot %s cannot be %s: %s", path, what,
                   strerror(errno));
}

static char *snapshot_path(const char *folder, uint32_t file, const char *end)
{
    char name[40];

    snprintf(name, sizeof name, "snapshot-%08u%s", (unsigned)file, end);
    return fl_path_join(folder, name);
}

char *fl_journal_snapshot(const char *folder, uint32_t file)
{
    return snapshot_path(folder, file, "");
}

/* --- what is in the folder ------------------------------------------------ */

typedef enum entry_kind {
    ENTRY_OTHER,
    ENTRY_FILE,
    ENTRY_SNAPSHOT,
    ENTRY_BEGUN /* a snapshot that is not whole */
} entry_kind;

static entry_kind read_entry(const char *name, uint32_t *file)
{
    static const struct {
        const char *begin, *end;
        entry_kind kind;
    } kinds[] = {{"journal-", "", ENTRY_FILE},
                 {"snapshot-", "", ENTRY_SNAPSHOT},
                 {"snapshot-", ".new", ENTRY_BEGUN}};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (fl_journal_read_name(name, kinds[i].begin, kinds[i].end, file))
            return kinds[i].kind;
    return ENTRY_OTHER;
}

static void remove_entry(const char *folder, const char *name, entry_kind kind)
{
    char *path = fl_path_join(folder, name);

    if (path && kind == ENTRY_FILE)
        fl_disk_remove(AT_FDCWD, path, 0);
    else if (path)
        fl_folder_remove(path);
    fl_free(path);
}

/* Of all that is older than the file, and of what was begun: the oldest file
 * first, so that no gap is ever left. */
static fleet_status remove_older(const char *folder, uint32_t file)
{
    struct dirent **list;
    int n = scandir(folder, &list, NULL, alphasort);

    if (n < 0)
        return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                       "the log %s cannot be listed: %s", folder,
                       strerror(errno));
    for (int i = 0; i < n; i++) {
        uint32_t number = 0;
        entry_kind kind = read_entry(list[i]->d_name, &number);

        if (kind == ENTRY_BEGUN || (kind != ENTRY_OTHER && number < file))
            remove_entry(folder, list[i]->d_name, kind);
        free(list[i]);
    }
    free(list);
    return FLEET_OK;
}

fleet_status fl_journal_newest(const char *folder, uint32_t *file)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    uint32_t number;
    int failed;

    *file = 0;
    if (!dir)
        return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                       "the log %s cannot be opened: %s", folder,
                       strerror(errno));
    while ((e = fl_disk_list(dir)) != NULL)
        if (read_entry(e->d_name, &number) == ENTRY_SNAPSHOT && number > *file)
            *file = number;
    failed = errno;
    closedir(dir);
    if (failed)
        return fl_fail(FLEET_EIO, "the log %s cannot be listed: %s", folder,
                       strerror(failed));
    return remove_older(folder, *file);
}

/* --- one more ------------------------------------------------------------- */

fleet_status fl_journal_cut_begin(const char *folder, uint32_t file,
                                  char **path)
{
    *path = snapshot_path(folder, file, ".new");
    if (!*path)
        return FLEET_ENOMEM;
    fl_folder_remove(*path);
    if (fl_disk_make_folder(*path, 0777) == 0)
        return FLEET_OK;
    cut_failed("made", *path);
    fl_free(*path);
    *path = NULL;
    return FLEET_EIO;
}

void fl_journal_cut_drop(const char *folder, uint32_t file)
{
    char *path = snapshot_path(folder, file, ".new");

    if (path)
        fl_folder_remove(path);
    fl_free(path);
}

/* fl_file_replace() flushes the folder: the snapshot has its name before what
 * is older goes. */
fleet_status fl_journal_cut_commit(const char *folder, uint32_t file,
                                   bool flushes)
{
    char *from = snapshot_path(folder, file, ".new");
    char *to = fl_journal_snapshot(folder, file);
    fleet_status status = from && to ? FLEET_OK : FLEET_ENOMEM;

    if (status == FLEET_OK && flushes)
        status = fl_folder_flush(from);
    if (status == FLEET_OK && flushes)
        status = fl_file_replace(from, to);
    else if (status == FLEET_OK && fl_disk_rename(from, to, 0) != 0)
        status = cut_failed("put in its place", to);
    fl_free(from);
    fl_free(to);
    return status == FLEET_OK ? remove_older(folder, file) : status;
}

void fl_journal_remove(const char *folder)
{
    if (remove_older(folder, UINT32_MAX) == FLEET_OK)
        fl_disk_remove(AT_FDCWD, folder, AT_REMOVEDIR);
}
