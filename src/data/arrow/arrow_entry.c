/* arrow_entry.c - the way into libfleet_arrow.so. In C, as what it takes from
 * libfleet is. */
#include "data/arrow/arrow_read.h"
#include "data/arrow/arrow_write.h"
#include "runtime/device/plugin_side.h"

__attribute__((visibility("default"))) fl_plugin_entry FL_PLUGIN_ENTRY;

const fl_plugin *FL_PLUGIN_ENTRY(const fl_host *host)
{
    static const fl_parquet_table parquet = {
        .open = fl_arrow_open,
        .count_groups = fl_arrow_count_groups,
        .count_rows = fl_arrow_count_rows,
        .read = fl_arrow_read,
        .close = fl_arrow_close,
        .create = fl_arrow_create,
        .write = fl_arrow_write,
        .finish = fl_arrow_finish,
        .abandon = fl_arrow_abandon,
    };
    static const fl_plugin plugin = {
        .size = sizeof plugin,
        .version = FL_PLUGIN_VERSION,
        .library = FL_PLUGIN_LIBRARY,
        .name = "arrow",
        .parquet = &parquet,
    };

    fl_plugin_side_enter(host);
    return &plugin;
}
