/* inference.h - the part of a program that a predictor runs. */
#ifndef FL_FLEET_INFERENCE_H
#define FL_FLEET_INFERENCE_H

#include <fleet/fleet.h>

#include "base/json.h"

/* The part of a program that computes `prediction`, for a manifest. */
fleet_status fl_prediction_json(fleet_var *prediction, fl_json **json);

#endif
