/* cuda_entry.c - the way into libfleet_cuda.so: plugin.h's, and the device's behind
 * it. In C, as what it takes from libfleet is. */
#include "base/memory.h"
#include "runtime/device/device.h"
#include "runtime/device/plugin_side.h"

__attribute__((visibility("default"))) fl_plugin_entry FL_PLUGIN_ENTRY;

/* collective/nccl/nccl.c's */
fleet_status fl_nccl_open(const fl_comm_options *options, fl_comm **peers);

/* cuda_device.cu's */
const fl_device_table *fl_cuda_open(const fl_device_host *host);

static fleet_status host_fail(fleet_status code, const char *text)
{
    return fl_fail(code, "%s", text);
}

static const fl_device_table *devices(void)
{
    static const fl_device_host host = {
        .size = sizeof host,
        .version = FL_DEVICE_VERSION,
        .fail = host_fail,
        .alloc = fl_alloc,
        .free = fl_free,
    };

    return fl_cuda_open(&host);
}

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
        plugin.devices = devices();
    return &plugin;
}
