/* train_config.h - what the trainer asks of its neighbours. */
#ifndef FL_FLEET_CONFIG_TRAIN_CONFIG_H
#define FL_FLEET_CONFIG_TRAIN_CONFIG_H

#include <fleet/fleet.h>

#include "base/json.h"

/* The part of a program that computes `prediction`, for a manifest. */
fleet_status fl_prediction_json(fleet_var *prediction, fl_json **json);

/* A checkpoint that a predictor can score with, too: model may be NULL. */
fleet_status fl_checkpoint_save(fleet *f, const char *path,
                                const fleet_model *model);

#endif
