/* plugin.c - finds and opens plug-ins, and is the only user of <dlfcn.h> but
 * for plug-ins themselves. */
#define _GNU_SOURCE
#include "runtime/device/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum { MOST_PLUGINS = 8, MOST_PATH = 4096, MOST_FILE = 80 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const fl_plugin *opened[MOST_PLUGINS];

static const fl_host *host_table(void)
{
    static fl_host h = {
        .size = sizeof h,
        .version = FL_PLUGIN_VERSION,
        .fail = fl_fail_v,
        .error_take = fl_error_take,
        .error_raise = fl_error_raise,
        .log = fl_log_line_v,
        .alloc = fl_alloc,
        .memory_spare = fl_memory_spare,
        .free = fl_free,
        .now_ns = fl_now_ns,
    };

    h.library = fleet_version();
    return &h;
}

/* The folder of the file that this very function lies in. */
static bool own_folder(char folder[MOST_PATH])
{
    static const char mark;
    Dl_info info;
    char *slash, *path;

    if (!dladdr(&mark, &info) || !info.dli_fname)
        return false;
    path = realpath(info.dli_fname, NULL);
    if (!path)
        return false;
    slash = strrchr(path, '/');
    if (slash && slash - path < MOST_PATH - 1)
        snprintf(folder, MOST_PATH, "%.*s", (int)(slash - path), path);
    free(path);
    return slash != NULL;
}

static void file_of(const char *name, char file[MOST_FILE])
{
    snprintf(file, MOST_FILE, "libfleet_%.60s.so", name);
}

/* NULL: the variable is not set. */
static const char *asked_folder(void)
{
    const char *asked = getenv("FLEET_PLUGIN_PATH");

    return asked && *asked ? asked : NULL;
}

static bool has_file(const char *folder, const char *file, char path[MOST_PATH])
{
    snprintf(path, MOST_PATH, "%.3000s/%s", folder, file);
    return access(path, F_OK) == 0;
}

/* A program in bin that has the library inside lies beside lib. Of another
 * folder that may be any user's: of /tmp/mine it would be /tmp/lib. */
static bool has_file_of_program(const char *folder, const char *file,
                                char path[MOST_PATH])
{
    const char *own = strrchr(folder, '/');
    char lib[MOST_PATH];

    if (!own || strcmp(own, "/bin") != 0)
        return false;
    snprintf(lib, sizeof lib, "%.2900s/../lib", folder);
    return has_file(lib, file, path);
}

/* The first of the places where it lies; else the bare name. The folder that
 * was asked for may have some plug-ins, and not this one. */
static fleet_status find_file(const char *file, char path[MOST_PATH])
{
    const char *asked = asked_folder();
    char folder[MOST_PATH];

    if (asked && access(asked, F_OK) != 0)
        return fl_fail(FLEET_ENOENT, "FLEET_PLUGIN_PATH is %.700s: %s", asked,
                       strerror(errno));
    if (asked && has_file(asked, file, path))
        return FLEET_OK;
    if (own_folder(folder) && (has_file(folder, file, path) ||
                               has_file_of_program(folder, file, path)))
        return FLEET_OK;
    snprintf(path, MOST_PATH, "%s", file);
    return FLEET_OK;
}

fleet_status fl_plugin_passed_over(const char *name, fleet_status status)
{
    const char *asked = asked_folder();
    char file[MOST_FILE], path[MOST_PATH];

    file_of(name, file);
    if (status == FLEET_OK || !asked || has_file(asked, file, path))
        return status;
    return fl_fail(status, "%.600s (FLEET_PLUGIN_PATH, %.200s, has no %s)",
                   fleet_last_error(), asked, file);
}

static fleet_status check_plugin(const char *path, const char *name,
                                 const fl_plugin *p)
{
    if (!p || p->version != FL_PLUGIN_VERSION || p->size < sizeof *p)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s has plug-in version %u, of libfleet %s; this is "
                       "version %u, of libfleet %s",
                       path, p ? p->version : 0, p ? p->library : "?",
                       FL_PLUGIN_VERSION, fleet_version());
    if (strcmp(p->name, name) != 0)
        return fl_fail(FLEET_EUNSUPPORTED, "%s is plug-in '%s', not '%s'", path,
                       p->name, name);
    return FLEET_OK;
}

static fleet_status load_plugin(const char *name, const fl_plugin **plugin)
{
    char file[MOST_FILE], path[MOST_PATH];
    fl_plugin_entry *entry;
    fleet_status code;
    void *object;

    file_of(name, file);
    FL_TRY(find_file(file, path));
    code = strchr(path, '/') ? FLEET_EUNSUPPORTED : FLEET_ENOENT;
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        fl_fail(code, "cannot open the plug-in '%s': %s", name, dlerror());
        return fl_plugin_passed_over(name, code);
    }
    *(void **)&entry = dlsym(object, "fleet_plugin");
    if (!entry)
        return fl_fail(FLEET_EUNSUPPORTED, "%s is no plug-in: %s", path,
                       dlerror());
    *plugin = entry(host_table());
    return check_plugin(path, name, *plugin);
}

fleet_status fl_plugin_open(const char *name, const fl_plugin **plugin)
{
    const fl_plugin *p = NULL;
    fleet_status status = FLEET_OK;
    int i = 0;

    *plugin = NULL;
    pthread_mutex_lock(&lock);
    while (i < MOST_PLUGINS && opened[i] && strcmp(opened[i]->name, name) != 0)
        i++;
    if (i < MOST_PLUGINS && opened[i])
        p = opened[i];
    else if (i == MOST_PLUGINS)
        status = fl_fail(FLEET_EUNSUPPORTED,
                         "plug-in '%s' is one too many: "
                         "there are %d",
                         name, MOST_PLUGINS);
    else if ((status = load_plugin(name, &p)) == FLEET_OK)
        opened[i] = p;
    pthread_mutex_unlock(&lock);
    if (status == FLEET_OK)
        *plugin = p;
    return status;
}
