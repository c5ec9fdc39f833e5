/* save_every.c - saves in a folder, numbered, the last ones kept. */
#include "fleet/train/save_every.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/folder.h"
#include "base/memory.h"
#include "fleet/save/load_chain.h"
#include "fleet/train/save_chain.h"

#define PREFIX "checkpoint-"

enum { DIGITS = 6, KEEP = 3, NAME_SIZE = sizeof PREFIX + 20 };

/* --- names ---------------------------------------------------------------- */

/* Of "checkpoint-000012"; 0: it is another name. */
static int64_t number_of(const char *name)
{
    const char *digits = name + sizeof PREFIX - 1;
    size_t n;

    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return 0;
    n = strspn(digits, "0123456789");
    return n >= DIGITS && n < 18 && digits[n] == 0 ? strtoll(digits, NULL, 10)
                                                   : 0;
}

static char *path_of(const char *folder, int64_t number)
{
    char name[NAME_SIZE];

    snprintf(name, sizeof name, PREFIX "%0*lld", DIGITS, (long long)number);
    return fl_path_join(folder, name);
}

static int larger_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The numbers of the saves in a folder, the newest first, for fl_free(). A
 * folder that does not exist has none. */
static fleet_status list_saves(const char *folder, int64_t **number, size_t *n)
{
    DIR *dir = opendir(folder);
    fleet_status status = FLEET_OK;
    size_t capacity = 0;
    struct dirent *e;

    *number = NULL;
    *n = 0;
    if (!dir && errno == ENOENT)
        return FLEET_OK;
    if (!dir)
        return fl_fail(FLEET_EIO, "cannot open %s: %s", folder,
                       strerror(errno));
    while (status == FLEET_OK && (e = fl_disk_list(dir)) != NULL) {
        int64_t one = number_of(e->d_name);

        if (one == 0)
            continue;
        status = fl_grow(number, &capacity, *n + 1, sizeof **number);
        if (status == FLEET_OK)
            (*number)[(*n)++] = one;
    }
    if (status == FLEET_OK && errno != 0)
        status =
            fl_fail(FLEET_EIO, "cannot list %s: %s", folder, strerror(errno));
    closedir(dir);
    if (status != FLEET_OK) {
        fl_free(*number);
        *number = NULL;
        *n = 0;
    }
    if (*n > 1)
        qsort(*number, *n, sizeof **number, larger_first);
    return status;
}

/* --- the newest one ------------------------------------------------------- */

static fleet_status use_nothing(void *arg, fl_saved *s)
{
    (void)arg;
    (void)s;
    return FLEET_OK;
}

/* The newest one that is whole. */
static fleet_status choose_whole(const char *folder, const int64_t *number,
                                 size_t n, fl_log *log, char **path)
{
    char why[500] = "";

    for (size_t i = 0; i < n; i++) {
        char *one = path_of(folder, number[i]);
        fleet_status status =
            one ? fl_saved_use(one, "checkpoint", use_nothing, NULL)
                : FLEET_ENOMEM;

        if (status == FLEET_OK) {
            *path = one;
            return FLEET_OK;
        }
        fl_free(one);
        if (status != FLEET_ECORRUPT && status != FLEET_ENOENT)
            return status;
        if (status == FLEET_ENOENT) /* meanwhile it was removed */
            continue;
        snprintf(why, sizeof why, "%s", fleet_last_error());
        if (log)
            FL_WARN(log, "a checkpoint is passed over: %s", why);
    }
    if (!*why)
        return fl_fail(FLEET_ENOENT, "%s: there is no checkpoint", folder);
    return fl_fail(FLEET_ECORRUPT,
                   "%s: no checkpoint is whole; the last one that was tried: "
                   "%s",
                   folder, why);
}

fleet_status fl_newest_checkpoint(const char *folder, fl_log *log, char **path)
{
    int64_t *number;
    fleet_status status;
    size_t n;

    *path = NULL;
    FL_TRY(list_saves(folder, &number, &n));
    status = choose_whole(folder, number, n, log, path);
    fl_free(number);
    return status;
}

fleet_status fleet_newest_checkpoint(const char *folder, char **path)
{
    if (!folder || !path)
        return fl_fail(FLEET_EINVAL, "fleet_newest_checkpoint: NULL argument");
    return fl_newest_checkpoint(folder, NULL, path);
}

/* --- the folder ----------------------------------------------------------- */

static fleet_status check_folder(const fleet_save_every *o)
{
    fleet_status status = fl_folder_check(o->folder, "checkpoints");

    return status == FLEET_OK ? status : fl_fail_in(status, "save_every");
}

fleet_status fl_save_every_check(const fleet_save_every *o, const fleet *f)
{
    const bool first = f->saved_ns == 0 && fleet_is_first_worker(f);

    if (o->folder && *o->folder && o->steps >= 0 && o->seconds >= 0 &&
        o->keep >= 0 && o->incremental >= 0 && o->incremental <= FL_MOST_LINKS)
        return first ? check_folder(o) : FLEET_OK;
    return fl_fail(
        FLEET_EINVAL,
        "save_every: expected a folder, steps, seconds and keep that "
        "are not negative, and incremental from 0 to %d, got %s, "
        "%lld, %g, %d and %d",
        FL_MOST_LINKS, o->folder ? o->folder : "NULL", (long long)o->steps,
        o->seconds, o->keep, o->incremental);
}

/* --- one save ------------------------------------------------------------- */

static fleet_status make_folder(const char *folder)
{
    if (fl_disk_make_folder(folder, 0777) == 0 || errno == EEXIST)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "cannot create %s: %s", folder, strerror(errno));
}

/* Saves that later ones add to. */
typedef struct named_saves {
    int64_t *number;
    size_t n, capacity;
} named_saves;

static fleet_status add_name(void *arg, const char *folder)
{
    named_saves *s = arg;

    FL_TRY(fl_grow(&s->number, &s->capacity, s->n + 1, sizeof *s->number));
    s->number[s->n++] = number_of(folder);
    return FLEET_OK;
}

static bool is_named(const named_saves *s, int64_t number)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->number[i] == number)
            return true;
    return false;
}

/* What one adds to that cannot be read is not known. */
static fleet_status find_named(const char *folder, const int64_t *number,
                               size_t n, named_saves *s)
{
    for (size_t i = 0; i < n; i++) {
        char *path = path_of(folder, number[i]);
        fleet_status status =
            path ? fl_chain_names(path, add_name, s) : FLEET_ENOMEM;

        fl_free(path);
        FL_TRY(status);
    }
    return FLEET_OK;
}

/* Removes of the saves, the newest first, what is too much, unless a save that
 * stays adds to it. One that adds to another goes before that one. */
static void remove_old(const fleet_save_every *o, const int64_t *number,
                       size_t n)
{
    const size_t keep = (size_t)(o->keep > 0 ? o->keep : KEEP);
    named_saves named = {0};
    const bool known =
        n > keep && find_named(o->folder, number, keep, &named) == FLEET_OK;

    for (size_t i = keep; known && i < n; i++) {
        char *path = path_of(o->folder, number[i]);

        if (path && !is_named(&named, number[i]))
            fl_save_remove(path);
        fl_free(path);
    }
    fl_free(named.number);
}

static fleet_status write_one(const fleet_save_every *o, fleet *f,
                              const char *path)
{
    FL_TRY(fl_save_chain_write(o, f, path));
    FL_INFO(&f->context.log, "saved to %s", path);
    return FLEET_OK;
}

static void count_anew(fleet *f)
{
    f->unsaved = 0;
    f->saved_ns = fl_now_ns();
}

fleet_status fl_save_every_write(const fleet_save_every *o, fleet *f)
{
    int64_t *number = NULL;
    char *path = NULL;
    fleet_status status;
    size_t n = 0;

    if (!o || !fleet_is_first_worker(f))
        return FLEET_OK;
    count_anew(f);
    FL_TRY(make_folder(o->folder));
    FL_TRY(list_saves(o->folder, &number, &n));
    path = path_of(o->folder, n > 0 ? number[0] + 1 : 1);
    status = path ? write_one(o, f, path) : FLEET_ENOMEM;
    fl_free(number);
    fl_free(path);
    FL_TRY(status);
    if (list_saves(o->folder, &number, &n) == FLEET_OK)
        remove_old(o, number, n);
    else
        FL_WARN(&f->context.log, "save_every: no old save is removed: %s",
                fleet_last_error());
    fl_free(number);
    return FLEET_OK;
}

/* What was trained is in memory still: a full disk may be emptied before the
 * next save. */
fleet_status fl_save_every_try(const fleet_save_every *o, fleet *f)
{
    fleet_status status = fl_save_every_write(o, f);

    if (status != FLEET_EIO && status != FLEET_EEXIST)
        return status;
    FL_WARN(&f->context.log, "save_every: nothing is saved this time: %s",
            fleet_last_error());
    return FLEET_OK;
}

bool fl_save_every_due(const fleet_save_every *o, fleet *f)
{
    if (!o || !fleet_is_first_worker(f))
        return false;
    f->unsaved++;
    if (f->saved_ns == 0)
        f->saved_ns = fl_now_ns();
    if (o->steps > 0 && f->unsaved >= o->steps)
        return true;
    return o->seconds > 0 &&
           (double)(fl_now_ns() - f->saved_ns) >= o->seconds * 1e9;
}
