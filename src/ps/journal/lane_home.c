/* lane_home.c - lane-L.home and lane-L.moves beside a lane's journals. */
#define _GNU_SOURCE
#include "ps/journal/lane_home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/json/json_write.h"
#include "base/memory.h"

enum { NAME_BYTES = 40 };

/* --- files that are written at once or not at all ------------------------- */

static void name_file(char name[NAME_BYTES], int lane, const char *kind)
{
    snprintf(name, NAME_BYTES, "lane-%d.%s", lane, kind);
}

/* NULL: there is none, or no memory. */
static fleet_status read_file(const char *folder, int lane, const char *kind,
                              char **text)
{
    char name[NAME_BYTES], *path;
    fleet_status status = FLEET_OK;
    size_t size;

    *text = NULL;
    name_file(name, lane, kind);
    path = fl_path_join(folder, name);
    if (!path)
        return FLEET_ENOMEM;
    if (fl_file_exists(path))
        status = fl_file_read(path, text, &size);
    else if (errno != ENOENT)
        status =
            fl_fail(FLEET_EIO, "%s cannot be read: %s", path, strerror(errno));
    fl_free(path);
    return status;
}

static fleet_status write_file(const char *folder, int lane, const char *kind,
                               const char *text)
{
    char name[NAME_BYTES], fresh[NAME_BYTES + 8];
    char *from, *to;
    fleet_status status = FLEET_ENOMEM;

    name_file(name, lane, kind);
    snprintf(fresh, sizeof fresh, "%s.new", name);
    from = fl_path_join(folder, fresh);
    to = fl_path_join(folder, name);
    if (from && to) {
        fl_disk_remove(AT_FDCWD, from, 0); /* a dead process's */
        status = fl_file_write(folder, fresh, text, strlen(text), NULL);
    }
    if (status == FLEET_OK)
        status = fl_file_replace(from, to);
    fl_free(from);
    fl_free(to);
    return status;
}

/* --- where it is ---------------------------------------------------------- */

static fleet_status take_home(const fl_json *json, fl_lane_home *h)
{
    const fl_at root = fl_at_root(json);
    fl_at server = fl_at_key(&root, "server"), view = fl_at_key(&root, "view");
    fl_at run = fl_at_key(&root, "run"), address = fl_at_key(&root, "address");
    const char *text = "";
    int64_t number = 0, of = 0, began = 0;

    FL_TRY(fl_at_required(&server));
    FL_TRY(fl_at_int(&server, 0, INT32_MAX, &number));
    FL_TRY(fl_at_required(&view));
    FL_TRY(fl_at_int(&view, 1, UINT16_MAX, &of));
    FL_TRY(fl_at_required(&run));
    FL_TRY(fl_at_int(&run, 1, UINT32_MAX, &began));
    FL_TRY(fl_at_required(&address));
    FL_TRY(fl_at_string(&address, &text));
    h->server = (int)number;
    h->view = (uint32_t)of;
    h->run = (uint32_t)began;
    snprintf(h->address, sizeof h->address, "%s", text);
    return FLEET_OK;
}

fleet_status fl_lane_home_read(const char *folder, int lane, fl_lane_home *h,
                               bool *found)
{
    fl_json *json = NULL;
    char *text;
    fleet_status status;

    *found = false;
    FL_TRY(read_file(folder, lane, "home", &text));
    if (!text)
        return FLEET_OK;
    status = fl_json_parse(text, strlen(text), "home", &json);
    if (status == FLEET_OK)
        status = take_home(json, h);
    fl_json_free(json);
    fl_free(text);
    *found = status == FLEET_OK;
    if (status == FLEET_OK || status == FLEET_ENOMEM)
        return status;
    return fl_fail_in(FLEET_ECORRUPT, "the log %s, lane-%d.home", folder, lane);
}

static char *print_home(const fl_lane_home *h)
{
    fl_json *json = fl_json_object();
    char *text = NULL;
    fleet_status status = fl_json_put(json, "server", fl_json_int(h->server));

    if (status == FLEET_OK)
        status = fl_json_put(json, "view", fl_json_int(h->view));
    if (status == FLEET_OK)
        status = fl_json_put(json, "run", fl_json_int(h->run));
    if (status == FLEET_OK)
        status = fl_json_put(json, "address", fl_json_string(h->address));
    if (status == FLEET_OK)
        text = fl_json_print(json, false);
    fl_json_free(json);
    return text;
}

fleet_status fl_lane_home_write(const char *folder, int lane,
                                const fl_lane_home *h)
{
    char *text = print_home(h);
    fl_lane_home now = {0};
    fleet_status status;
    fl_error error;
    bool found;

    if (!text)
        return FLEET_ENOMEM;
    status = write_file(folder, lane, "home", text);
    fl_free(text);
    if (status == FLEET_OK)
        return status;
    fl_error_take(&error, status);
    if (fl_lane_home_read(folder, lane, &now, &found) != FLEET_OK)
        return fl_fail(FLEET_ECORRUPT,
                       "whose the log %s, lane-%d is cannot be read: %s",
                       folder, lane, error.text);
    if (found && now.view == h->view)
        return FLEET_OK;
    return fl_error_raise(&error);
}

fleet_status fl_lane_home_count(const char *folder, int lane, uint32_t least,
                                uint32_t *number)
{
    char *text, next[16];
    unsigned before = 0;

    FL_TRY(read_file(folder, lane, "moves", &text));
    if (text && sscanf(text, "%u", &before) != 1)
        before = UINT16_MAX; /* none is known to be free: it stays */
    fl_free(text);
    *number = before + 1 > least ? before + 1 : least;
    snprintf(next, sizeof next, "%u", (unsigned)*number);
    return write_file(folder, lane, "moves", next);
}

void fl_lane_home_remove(const char *folder, int lane)
{
    static const char *const kind[] = {"home", "moves", "home.new",
                                       "moves.new"};
    char name[NAME_BYTES], *path;

    for (int i = 0; i < 4; i++) {
        name_file(name, lane, kind[i]);
        path = fl_path_join(folder, name);
        if (path)
            fl_disk_remove(AT_FDCWD, path, 0);
        fl_free(path);
    }
}
