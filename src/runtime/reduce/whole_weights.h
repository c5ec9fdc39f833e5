/* whole_weights.h - a store's weights where ranks share them out
 * (strategy.sharding of stage 3), which it has in one of two forms.
 *
 * Parted: of each group the rank has its part alone (fl_flat.own), so that it
 * can train. Whole: it has all of them (fl_flat.weight), as after
 * fleet_minimize(), a load, or fl_whole_weights(); what reads or sets weights
 * outside of a training needs them so. A rank that trains again parts them.
 */
#pragma once

#include "runtime/store/store.h"

/* All weights of all ranks, if the store is parted: the other ranks give their
 * parts, as soon as they wait. FLEET_ESTATE: there are no ranks. Takes the
 * store's lock: not inside an iteration. */
fleet_status fl_whole_weights(fl_store *s);

/* This rank's part in what another rank has begun. */
fleet_status fl_whole_weights_serve(fl_store *s);

/* Give up what is other ranks'. Under the store's lock; nothing to do where
 * ranks do not share out weights, or have not joined. */
fleet_status fl_part_weights(fl_store *s);
