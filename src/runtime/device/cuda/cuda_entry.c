/* cuda_entry.c - the way into libfleet_cuda.so: plugin.h's, and the device's
 * behind it. In C, as what it takes from libfleet is. */
#include "runtime/device/device.h"
#include "runtime/device/plugin_side.h"

__attribute__((visibility("default"))) fl_plugin_entry FL_PLUGIN_ENTRY;

/* collective/nccl/nccl_options.h's */
fleet_status fl_nccl_open(const fl_comm_options *options, fl_comm **comm);

/* cuda_device.cu's */
const fl_device_table *fl_cuda_open(void);

const fl_plugin *FL_PLUGIN_ENTRY(const fl_host *host)
{
    static fl_plugin plugin = {
        .size = sizeof plugin,
        .version = FL_PLUGIN_VERSION,
        .library = FL_PLUGIN_LIBRARY,
        .name = "cuda",
        .open_comm = fl_nccl_open,
    };

    if (fl_plugin_side_enter(host))
        plugin.devices = fl_cuda_open();
    return &plugin;
}
