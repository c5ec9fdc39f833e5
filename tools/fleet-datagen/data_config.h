/* data_config.h - a configuration of fleet-train that reads what is made. */
#pragma once

#include "data_line.h"
#include "data_options.h"

/* Written to o->config. False: errno says why, or it is 0. */
bool data_config_write(const data_options *o, const data_line *line);
