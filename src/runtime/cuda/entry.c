/* entry.c - the way into libfleet_cuda.so: plugin.h's. In C, as what it takes
 * from libfleet is. */
#include "base/memory.h"
#include "runtime/guest.h"

__attribute__((visibility("default"))) fl_plugin_entry FL_PLUGIN_ENTRY;

/* collective/nccl.c's */
fleet_status fl_nccl_open(const fl_peers_options *options, fl_peers **peers);

const fl_plugin *FL_PLUGIN_ENTRY(const fl_host *host)
{
    static const fl_plugin plugin = {
        .size = sizeof plugin,
        .version = FL_PLUGIN_VERSION,
        .library = FL_GUEST_LIBRARY,
        .name = "cuda",
        .open_peers = fl_nccl_open,
    };

    fl_guest_enter(host);
    return &plugin;
}
