/* open.c - communicators by name; all but "self" come from plug-ins. */
#include "collective/open.h"

#include <string.h>

#include "collective/single.h"
#include "runtime/device/plugin.h"

fleet_status fl_comm_open(const char *name, const fl_comm_options *options,
                          fl_comm **comm)
{
    fl_comm_options o = options ? *options : (fl_comm_options){0};
    const fl_plugin *plugin;

    *comm = NULL;
    if (o.deadline_ms < 0)
        return fl_fail(FLEET_EINVAL, "peers: a deadline of %lld ms",
                       (long long)o.deadline_ms);
    if (o.deadline_ms == 0)
        o.deadline_ms = FL_COMM_DEADLINE_MS;
    if (strcmp(name, "self") == 0)
        return fl_comm_single(comm);
    FL_TRY(fl_plugin_open(strcmp(name, "nccl") == 0 ? "cuda" : name, &plugin));
    if (!plugin->open_comm)
        return fl_fail(FLEET_EUNSUPPORTED, "plug-in '%s' joins no ranks", name);
    return plugin->open_comm(&o, comm);
}
