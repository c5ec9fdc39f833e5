/* param_json.h - what a training has to know of a parameter or a table, as
 * JSON: its attributes, the life of its rows, its cap. */
#pragma once

#include "base/json/json.h"
#include "runtime/graph/program.h"

fleet_status fl_param_to_json(const fleet_var *v, fl_json *object);
fleet_status fl_param_from_json(const fl_at *at, fleet_param_attr *attr);

/* Of a table, besides that. */
fleet_status fl_table_to_json(const fleet_var *table, fl_json *object);
fleet_status fl_table_from_json(const fl_at *at, fleet_table_options *life,
                                fl_table_cap *cap);

/* What a table does with ids, where that is not the default; its life is not in
 * it. */
fleet_status fl_table_ids_to_json(const fl_table_ids *ids, fl_json *o);
fleet_status fl_table_ids_from_json(const fl_at *var, fl_table_ids *ids);
