/* pass_note.c - the note of a pass: read, compared, written beside its place
 * and renamed. */
#include "fleet/pass/pass_note.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/json/json_write.h"
#include "base/memory.h"

#define NOTE     "gpu-ps-pass.json"
#define NEW_NOTE NOTE ".new"

enum { HOST_SIZE = 256 };

/* The number of a pass is 1 for the first one, as in lines of the log. */
typedef struct noted {
    int64_t pass, process;
    char host[HOST_SIZE];
} noted;

/* --- read ----------------------------------------------------------------- */

static fleet_status take_note(const fl_json *json, noted *n)
{
    fl_at root = fl_at_root(json), at;
    const char *host = "";

    at = fl_at_key(&root, "pass");
    FL_TRY(fl_at_required(&at));
    FL_TRY(fl_at_int(&at, 1, FL_MOST_EXACT, &n->pass));
    at = fl_at_key(&root, "process");
    FL_TRY(fl_at_int(&at, 0, FL_MOST_EXACT, &n->process));
    at = fl_at_key(&root, "host");
    FL_TRY(fl_at_string(&at, &host));
    snprintf(n->host, sizeof n->host, "%s", host);
    return FLEET_OK;
}

static fleet_status read_note(const char *path, noted *n)
{
    fl_json *json = NULL;
    fleet_status status;
    char *text;
    size_t size;

    FL_TRY(fl_file_read(path, &text, &size));
    status = fl_json_parse(text, size, path, &json);
    if (status == FLEET_OK)
        status = take_note(json, n);
    fl_json_free(json);
    fl_free(text);
    return status;
}

/* --- named ---------------------------------------------------------------- */

static void name_lost(fl_log *log, const noted *n, const fl_position *at)
{
    const int64_t first = at->pass + 1;

    if (n->pass < first)
        return;
    if (n->pass > first)
        FL_WARN(log,
                "passes %" PRId64 " to %" PRId64
                " had begun in process %" PRId64
                " of %s, which did not end by itself, and what was loaded has "
                "not all of them: training goes on with pass %" PRId64
                ", batch %" PRId64,
                first, n->pass, n->process, n->host, first, at->batch);
    else
        FL_WARN(log,
                "pass %" PRId64 " had begun in process %" PRId64
                " of %s, which did not end by itself, and what was loaded has "
                "%" PRId64 " batches of it: it is trained from there on",
                first, n->process, n->host, at->batch);
}

/* One that cannot be read says nothing. */
static fleet_status compare_note(const char *path, fl_log *log,
                                 const fl_position *at)
{
    noted n = {.pass = 0};
    fleet_status status;

    if (!fl_file_exists(path))
        return FLEET_OK;
    status = read_note(path, &n);
    if (status == FLEET_ENOMEM)
        return status;
    if (status == FLEET_OK)
        name_lost(log, &n, at);
    else
        FL_WARN(log, "the note of a pass that had begun cannot be read: %s",
                fleet_last_error());
    fl_error_clear();
    return FLEET_OK;
}

/* --- written -------------------------------------------------------------- */

static fleet_status put_all(fl_json *json, const fl_position *at)
{
    char host[HOST_SIZE] = "";

    (void)gethostname(host, sizeof host - 1);
    if (fl_json_check_string(host) != FLEET_OK) {
        fl_error_clear();
        *host = 0;
    }
    FL_TRY(fl_json_put(json, "pass", fl_json_int(at->pass + 1)));
    FL_TRY(fl_json_put(json, "process", fl_json_int(getpid())));
    return fl_json_put(json, "host", fl_json_string(host));
}

static fleet_status make_text(const fl_position *at, char **text)
{
    fl_json *json = fl_json_object();
    fleet_status status = json ? put_all(json, at) : FLEET_ENOMEM;

    *text = status == FLEET_OK ? fl_json_print(json, true) : NULL;
    fl_json_free(json);
    return status == FLEET_OK && !*text ? FLEET_ENOMEM : status;
}

static fleet_status make_folder(const char *folder)
{
    if (fl_disk_make_folder(folder, 0777) == 0 || errno == EEXIST)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "cannot create %s: %s", folder, strerror(errno));
}

static fleet_status put_in_place(const char *folder, const char *from,
                                 const char *to, const char *text)
{
    (void)fl_disk_remove(AT_FDCWD, from, 0); /* of a process that was killed */
    FL_TRY(fl_file_write(folder, NEW_NOTE, text, strlen(text), NULL));
    return fl_file_replace(from, to);
}

static fleet_status write_note(const char *folder, const char *to,
                               const fl_position *at)
{
    char *from = fl_path_join(folder, NEW_NOTE), *text = NULL;
    fleet_status status = from ? make_text(at, &text) : FLEET_ENOMEM;

    if (status == FLEET_OK)
        status = put_in_place(folder, from, to, text);
    fleet_free(text);
    fl_free(from);
    return status;
}

/* --- a process ------------------------------------------------------------ */

/* What was trained is in memory still, and a full disk may be emptied before
 * the next save: the note of a pass before stays. */
static fleet_status go_on_without(const fl_pass_note *n, fl_log *log,
                                  fleet_status status)
{
    if (!n->is_written || status != FLEET_EIO)
        return status;
    FL_WARN(log, "a pass begins that cannot be noted: %s", fleet_last_error());
    fl_error_clear();
    return FLEET_OK;
}

static fleet_status note_pass(fl_pass_note *n, fl_log *log,
                              const fl_position *at)
{
    fleet_status status;
    char *path;

    FL_TRY(make_folder(n->folder));
    path = fl_path_join(n->folder, NOTE);
    status = path ? FLEET_OK : FLEET_ENOMEM;
    if (status == FLEET_OK && !n->is_read)
        status = compare_note(path, log, at);
    n->is_read = n->is_read || status == FLEET_OK;
    if (status == FLEET_OK)
        status = write_note(n->folder, path, at);
    n->is_written = n->is_written || status == FLEET_OK;
    fl_free(path);
    return status;
}

fleet_status fl_pass_note_begin(fl_pass_note *n, fl_log *log,
                                const fl_position *at)
{
    return n->folder ? go_on_without(n, log, note_pass(n, log, at)) : FLEET_OK;
}

void fl_pass_note_remove(fl_pass_note *n)
{
    char *path = n->is_written ? fl_path_join(n->folder, NOTE) : NULL;

    if (path)
        (void)fl_disk_remove(AT_FDCWD, path, 0);
    n->is_written = n->is_written && !path;
    fl_free(path);
}

void fl_pass_note_done(fl_pass_note *n)
{
    fl_free(n->folder);
    n->folder = NULL;
}
