/* plugin.c - see plugin.h; the only user of <dlfcn.h> but for plug-ins
 * themselves. */
#define _GNU_SOURCE
#include "runtime/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

enum { MOST_PLUGINS = 8, MOST_PATH = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const fl_plugin *opened[MOST_PLUGINS];

static fleet_status host_fail(fleet_status code, const char *text)
{
    return fl_fail(code, "%s", text);
}

static void host_log(fl_log *log, fleet_log_level level, const char *line)
{
    fl_log_line(log, level, "%s", line);
}

static const fl_host *host(void)
{
    static fl_host h = {
        .size = sizeof h,
        .version = FL_PLUGIN_VERSION,
        .fail = host_fail,
        .last_error = fleet_last_error,
        .log = host_log,
        .alloc = fl_alloc,
        .free = fl_free,
        .now_ns = fl_now_ns,
    };

    h.library = fleet_version();
    return &h;
}

/* The folder of the file that this very function lies in, with its slash. */
static bool own_folder(char folder[MOST_PATH])
{
    static const char here;
    Dl_info info;
    char *slash, *path;

    if (!dladdr(&here, &info) || !info.dli_fname)
        return false;
    path = realpath(info.dli_fname, NULL);
    if (!path)
        return false;
    slash = strrchr(path, '/');
    if (slash && slash - path < MOST_PATH - 1)
        snprintf(folder, MOST_PATH, "%.*s", (int)(slash - path + 1), path);
    free(path);
    return slash != NULL;
}

/* The first of the places where it lies; else the bare name. */
static void find(const char *file, char path[MOST_PATH])
{
    const char *asked = getenv("FLEET_PLUGIN_PATH");
    char folder[MOST_PATH];

    if (asked && *asked) {
        snprintf(path, MOST_PATH, "%.3000s/%s", asked, file);
        if (access(path, F_OK) == 0)
            return;
    }
    if (own_folder(folder)) {
        snprintf(path, MOST_PATH, "%.3000s%s", folder, file);
        if (access(path, F_OK) == 0)
            return;
    }
    snprintf(path, MOST_PATH, "%s", file);
}

static fleet_status check(const char *path, const char *name,
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

static fleet_status load(const char *name, const fl_plugin **plugin)
{
    char file[80], path[MOST_PATH];
    fl_plugin_entry *entry;
    void *object;

    snprintf(file, sizeof file, "libfleet_%.60s.so", name);
    find(file, path);
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return fl_fail(path[0] == '/' ? FLEET_EUNSUPPORTED : FLEET_ENOENT,
                       "cannot open the plug-in '%s': %s", name, dlerror());
    *(void **)&entry = dlsym(object, "fleet_plugin");
    if (!entry)
        return fl_fail(FLEET_EUNSUPPORTED, "%s is no plug-in: %s", path,
                       dlerror());
    *plugin = entry(host());
    return check(path, name, *plugin);
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
    else if ((status = load(name, &p)) == FLEET_OK)
        opened[i] = p;
    pthread_mutex_unlock(&lock);
    if (status == FLEET_OK)
        *plugin = p;
    return status;
}
