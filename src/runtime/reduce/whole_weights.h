/* whole_weights.h - a store's weights where ranks share them out
 * (strategy.sharding of stage 3), which it has in one of two forms.
 *
 * Parted: of each group the rank has its part alone (fl_flat.own), so that it
 * can train. Whole: it has all of them (fl_flat.weight), as after a load,
 * fleet_minimize() or fl_whole_weights_lock(); what reads or sets weights
 * outside of a training needs them so. A rank that trains again parts them.
 */
#pragma once

#include "runtime/store/store.h"

/* All weights of all ranks, if the store is parted: the other ranks give their
 * parts, as soon as they wait. FLEET_ESTATE: there are no ranks. Under the
 * store's lock, held for writing; without it another thread may part them. */
fleet_status fl_whole_weights_locked(fl_store *s);

/* Take the store's lock with all weights in it: at least for reading, if
 * `writes` for writing. On an error it is not held. */
fleet_status fl_whole_weights_lock(fl_store *s, bool writes);

/* This rank's part in what another rank has begun. If it fails, all ranks
 * hear of it. */
fleet_status fl_whole_weights_serve(fl_store *s);

/* Give up what is other ranks'. Under the store's lock; nothing to do where
 * ranks do not share out weights, or have not joined. */
fleet_status fl_part_weights(fl_store *s);
