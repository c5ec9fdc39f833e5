/* store_check.h - whether a program fits to what a store has. */
#pragma once

#include "runtime/store/store.h"

/* Before anything is made. FLEET_EEXIST, if the store has the variable, and has
 * it otherwise: with both. */
fleet_status fl_store_check_var(const fl_store *s, const fleet_var *v);

/* FLEET_ESTATE if this process has its part of the weights alone. */
fleet_status fl_store_check_weights(const fl_store *s);
