/* inference.h - the part of a program that a predictor runs. */
#pragma once

#include <fleet/fleet.h>

#include "base/json/json.h"

/* The part of a program that computes the model's predictions, of all tasks,
 * for a manifest. */
fleet_status fl_prediction_json(const fleet_model *of, fl_json **json);

/* Is the variable of that name an input of a marked node? */
bool fl_inference_reads(const fleet_program *p, const bool *marked,
                        const char *name);
