/* param_attr.h - attributes of parameters and tables, as users state them. */
#pragma once

#include "runtime/graph/program.h"

/* FLEET_EINVAL for what cannot be, naming the parameter. */
fleet_status fl_param_attr_check(const char *name,
                                 const fleet_param_attr *attr);

/* The attribute of want that is stated and differs from the parameter's; NULL:
 * none. What is left at its default follows the parameter. */
const char *fl_param_attr_differ(const fleet_param_attr *is,
                                 const fleet_param_attr *want);
