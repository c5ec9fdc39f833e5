/* twin.c - plug-ins that are not what they should be: of another version, under
 * another name, without an entry. The Makefile says which. */
#include "runtime/device/plugin_side.h"

#ifdef TWIN_VERSION

__attribute__((visibility("default"))) fl_plugin_entry FL_PLUGIN_ENTRY;

const fl_plugin *FL_PLUGIN_ENTRY(const fl_host *host)
{
    static const fl_plugin plugin = {
        .size = sizeof plugin,
        .version = TWIN_VERSION,
        .library = "9.8.7",
        .name = "twin",
    };

    fl_plugin_side_enter(host);
    return &plugin;
}

#endif
