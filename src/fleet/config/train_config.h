/* train_config.h - a configuration's model for what does not train it. */
#pragma once

#include <fleet/init.h>

/* Make the model of a configuration in a process of that role, minimized, and
 * use the handle, which goes with it: for calls that train nothing. Status: of
 * `use`, or why there is no model. */
typedef fleet_status fl_config_use(void *arg, fleet *f);
fleet_status fl_config_with_model(const char *path, const fleet_role *role,
                                  fl_config_use *use, void *arg);
