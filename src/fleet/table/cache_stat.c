/* cache_stat.c - what a worker's cache has done. */
#include "fleet/servers.h"
#include "fleet/table/table_call.h"

fleet_status fleet_cache_stat(fleet *f, fleet_cache_statistics *stat)
{
    fl_hot_counts c;

    FL_TRY(fl_handle_check_worker(f, "fleet_cache_stat"));
    if (!stat)
        return fl_fail(FLEET_EINVAL, "fleet_cache_stat: nowhere to put it");
    if (!f->worker_io || !fl_worker_io_cache(f->worker_io, &c))
        return fl_fail(FLEET_ESTATE,
                       "fleet_cache_stat: this worker has no cache: "
                       "strategy.a_sync_configs.vocab_cache_size is %lld, and "
                       "it begins with fleet_init_worker(), for tables on "
                       "servers",
                       (long long)f->strategy.a_sync_configs.vocab_cache_size);
    *stat = (fleet_cache_statistics){.rows = (int64_t)c.rows,
                                     .unasked = (int64_t)c.unasked,
                                     .unchanged = (int64_t)c.unchanged,
                                     .saved_bytes = c.saved,
                                     .kept = (int64_t)c.kept,
                                     .bytes = (int64_t)c.bytes,
                                     .replaced = (int64_t)c.replaced};
    return FLEET_OK;
}
