/* log_end.c - the text of a dead server's folder becomes that of one that has
 * ended. */
#include "ps/journal/log_end.h"

#include <string.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "ps/bucket_map.h"
#include "ps/journal/journal_folder.h"

static bool has_identity(const char *folder, int server)
{
    char name[24], *home, *path;
    bool has;

    fl_journal_folder_name(server, name);
    home = fl_path_join(folder, name);
    path = home ? fl_path_join(home, "identity") : NULL;
    has = path && fl_file_exists(path);
    fl_free(home);
    fl_free(path);
    return has;
}

/* A text that cannot be read is of no job. run NULL: of any. */
static bool is_of(const char *text, const char *job, const uint32_t *run)
{
    fl_json *json = NULL;
    const char *name = "";
    int64_t number = 0;
    bool is = false;

    if (fl_json_parse(text, strlen(text), "identity", &json) == FLEET_OK) {
        const fl_at root = fl_at_root(json);
        fl_at at = fl_at_key(&root, "job"), at_run = fl_at_key(&root, "run");

        is = fl_at_string(&at, &name) == FLEET_OK && strcmp(name, job) == 0 &&
             fl_at_int(&at_run, 0, UINT32_MAX, &number) == FLEET_OK &&
             (!run || number == *run);
    }
    fl_json_free(json);
    return is;
}

/* Its process may live. */
static bool first_is_of(const char *folder, const char *job, uint32_t run)
{
    fl_journal_folder h = {.lock = -1};
    char name[24];
    bool is;

    fl_journal_folder_name(0, name);
    h.folder = fl_path_join(folder, name);
    is = h.folder && fl_journal_folder_read(&h) == FLEET_OK && h.text &&
         is_of(h.text, job, &run);
    fl_journal_folder_close(&h);
    return is;
}

static fleet_status end_locked(const char *folder, int server, const char *job,
                               const fl_journal_folder *h, fl_log_end *how)
{
    if (!has_identity(folder, server)) /* its process has ended it meanwhile */
        return FLEET_OK;
    *how =
        !job || is_of(h->text, job, NULL) ? FL_LOG_END_NOW : FL_LOG_END_OTHER;
    return *how == FL_LOG_END_NOW ? fl_journal_folder_end(h) : FLEET_OK;
}

fleet_status fl_log_end_one(const char *folder, int server, const char *job,
                            fl_log_end *how)
{
    fl_journal_folder h = {.lock = -1};
    char name[24];
    fleet_status status;

    *how = has_identity(folder, server) ? FL_LOG_END_LIVES : FL_LOG_END_BEFORE;
    fl_journal_folder_name(server, name);
    status = fl_journal_folder_look(&h, folder, name);
    if (status == FLEET_OK) {
        *how = FL_LOG_END_BEFORE;
        status = end_locked(folder, server, job, &h, how);
    } else if (status == FLEET_ENOENT) {
        *how = FL_LOG_END_NONE;
        status = FLEET_OK;
    } else if (status == FLEET_EEXIST) {
        *how = FL_LOG_END_LIVES;
        status = FLEET_OK;
    }
    fl_journal_folder_close(&h);
    return status;
}

/* What the job has failed of stays this thread's last error. */
void fl_log_end_dead(const char *folder, const char *job, uint32_t run,
                     fl_log *log)
{
    bool is_of_run;
    fl_error cause;

    fl_error_take(&cause, fl_last_code());
    is_of_run = run != 0 && first_is_of(folder, job, run);
    for (int i = 0; is_of_run && i < FL_MOST_SERVER; i++) {
        fl_log_end how;

        if (!has_identity(folder, i))
            continue;
        if (fl_log_end_one(folder, i, job, &how) != FLEET_OK)
            FL_WARN(log,
                    "the log of server %d, which has died, is not ended: "
                    "%s",
                    i, fleet_last_error());
        else if (how == FL_LOG_END_NOW)
            FL_INFO(log,
                    "server %d has died, and the job is over: its log has "
                    "ended, and the next job in %s begins anew",
                    i, folder);
    }
    (void)fl_error_raise(&cause);
}
