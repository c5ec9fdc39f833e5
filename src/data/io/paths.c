/* paths.c - globs, and what a glob could not look at. */
#define _GNU_SOURCE
#include "data/io/paths.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"

/* What a glob() could not look at: it takes a folder that may not be read for
 * one without a match, and gives its callbacks no argument. */
typedef struct hidden {
    int code; /* an errno; 0: nothing was hidden */
    char path[PATH_MAX];
    char folder[PATH_MAX]; /* the one that is being read */
} hidden;

static _Thread_local hidden *hiding; /* of the glob() that runs */

/* A name that leads nowhere, or on through a plain file, is no match and no
 * fault. */
static void note_hidden(const char *path)
{
    if (hiding->code || errno == ENOENT || errno == ENOTDIR)
        return;
    hiding->code = errno;
    snprintf(hiding->path, sizeof hiding->path, "%s", path);
}

static int lstat_noted(const char *path, struct stat *st)
{
    int e = lstat(path, st);

    if (e != 0)
        note_hidden(path);
    return e;
}

static int stat_noted(const char *path, struct stat *st)
{
    int e = stat(path, st);

    if (e != 0)
        note_hidden(path);
    return e;
}

static void *opendir_noted(const char *path)
{
    DIR *dir = opendir(path);

    if (!dir)
        note_hidden(path);
    snprintf(hiding->folder, sizeof hiding->folder, "%s", path);
    return dir;
}

static struct dirent *readdir_noted(void *dir)
{
    struct dirent *e;

    errno = 0;
    e = readdir(dir);
    if (!e && errno != 0)
        note_hidden(hiding->folder);
    return e;
}

static void closedir_noted(void *dir)
{
    closedir(dir);
}

static fleet_status judge_glob(int e, const char *pattern, const hidden *h)
{
    if (e == GLOB_NOSPACE)
        return fl_fail(FLEET_ENOMEM, "out of memory: files \"%s\"", pattern);
    if (h->code)
        return fl_fail(FLEET_EIO, "cannot look for files \"%s\": %s: %s",
                       pattern, h->path, strerror(h->code));
    if (e == GLOB_NOMATCH)
        return fl_fail(FLEET_ENOENT, "no file matches \"%s\"", pattern);
    return e == 0 ? FLEET_OK
                  : fl_fail(FLEET_EIO, "cannot look for files \"%s\"", pattern);
}

static int bytewise(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static fleet_status add_path(fl_paths *p, const char *path)
{
    FL_TRY(fl_grow(&p->path, &p->capacity, p->n + 1, sizeof *p->path));
    p->path[p->n] = fl_strdup(path);
    return p->path[p->n++] ? FLEET_OK : FLEET_ENOMEM;
}

/* Beside "part-0" there may be its cache, which "part-*" does not mean. */
static bool is_cache(const char *path)
{
    static const char end[] = ".fleetcache";
    const size_t n = strlen(path), m = sizeof end - 1;

    return n > m && strcmp(path + n - m, end) == 0;
}

static fleet_status add_found(fl_paths *p, const char *pattern, const glob_t *g)
{
    const size_t before = p->n;

    for (size_t i = 0; i < g->gl_pathc; i++)
        if (!is_cache(g->gl_pathv[i]))
            FL_TRY(add_path(p, g->gl_pathv[i]));
    return p->n > before
               ? FLEET_OK
               : fl_fail(FLEET_ENOENT, "no file matches \"%s\"", pattern);
}

static fleet_status add_glob(fl_paths *p, const char *pattern)
{
    glob_t g = {.gl_opendir = opendir_noted,
                .gl_readdir = readdir_noted,
                .gl_closedir = closedir_noted,
                .gl_stat = stat_noted,
                .gl_lstat = lstat_noted};
    hidden h = {.code = 0};
    fleet_status status;

    hiding = &h;
    status = judge_glob(glob(pattern, GLOB_NOSORT | GLOB_ALTDIRFUNC, NULL, &g),
                        pattern, &h);
    hiding = NULL;
    if (status == FLEET_OK)
        status = add_found(p, pattern, &g);
    globfree(&g);
    return status;
}

static fleet_status add_one(fl_paths *p, const char *const *globs, int i, int n,
                            bool *has_stdin)
{
    if (!globs[i])
        return fl_fail(FLEET_EINVAL, "files: path %d of %d is NULL", i + 1, n);
    if (strcmp(globs[i], "-") != 0)
        return add_glob(p, globs[i]);
    if (*has_stdin)
        return fl_fail(FLEET_EINVAL, "files: \"-\", standard input, stands "
                                     "twice in the list, and can be read once");
    *has_stdin = true;
    return add_path(p, globs[i]);
}

static fleet_status add_name(fl_paths *p, const char *name, int i, int n)
{
    if (!name || !*name || strcmp(name, "-") == 0)
        return fl_fail(FLEET_EINVAL,
                       "files: name %d of %d is %s: expected what the command "
                       "is to open as {path}",
                       i + 1, n,
                       !name   ? "NULL"
                       : *name ? "\"-\""
                               : "empty");
    return add_path(p, name);
}

static fleet_status add_all(fl_paths *p, const char *const *list, int n,
                            bool names)
{
    bool has_stdin = false;

    *p = (fl_paths){0};
    for (int i = 0; i < n; i++) {
        fleet_status status = names ? add_name(p, list[i], i, n)
                                    : add_one(p, list, i, n, &has_stdin);

        if (status != FLEET_OK) {
            fl_paths_done(p);
            return status;
        }
    }
    if (p->n > 1)
        qsort(p->path, p->n, sizeof *p->path, bytewise);
    return FLEET_OK;
}

fleet_status fl_paths_glob(fl_paths *p, const char *const *globs, int n)
{
    return add_all(p, globs, n, false);
}

fleet_status fl_paths_names(fl_paths *p, const char *const *names, int n)
{
    return add_all(p, names, n, true);
}

fleet_status fl_paths_copy(fl_paths *to, const fl_paths *from)
{
    fleet_status status = FLEET_OK;

    *to = (fl_paths){0};
    for (size_t i = 0; i < from->n && status == FLEET_OK; i++)
        status = add_path(to, from->path[i]);
    if (status != FLEET_OK)
        fl_paths_done(to);
    return status;
}

void fl_paths_done(fl_paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        fl_free(p->path[i]);
    fl_free(p->path);
    *p = (fl_paths){0};
}
