/* save_training.h - what a manifest says of a training as a whole, besides its
 * parameters: the loss's scale, a plateau, and how rows' steps count. */
#pragma once

#include "fleet/save/save.h"

fleet_status fl_save_put_training(const fl_save *s, fl_json *manifest);
