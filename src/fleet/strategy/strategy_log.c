/* strategy_log.c - the level and the folder of servers' logs, read from the
 * environment. */
#include "fleet/strategy/strategy_log.h"

#include <string.h>

#include "fleet/role/env.h"
#include "fleet/strategy/strategy_fields.h"

static fleet_status read_level(const char *text, int *level)
{
    for (int i = 0; fl_durability_names[i]; i++)
        if (strcmp(text, fl_durability_names[i]) == 0) {
            *level = i;
            return FLEET_OK;
        }
    return fl_fail(FLEET_EINVAL,
                   "FLEET_LOG is \"%.100s\": expected none, process or power",
                   text);
}

fleet_status fl_strategy_log_read(const fl_role *role,
                                  fleet_distributed_strategy *s)
{
    const char *level = fl_variable("FLEET_LOG");
    const char *folder = fl_variable("FLEET_LOG_FOLDER");

    if (role->server_num == 0)
        return FLEET_OK;
    if (level && s->log == FLEET_DURABLE_NONE)
        FL_TRY(read_level(level, &s->log));
    if (s->log != FLEET_DURABLE_NONE && folder &&
        !(s->log_configs.folder && *s->log_configs.folder))
        s->log_configs.folder = folder;
    return FLEET_OK;
}
