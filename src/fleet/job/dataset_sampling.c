/* dataset_sampling.c - the share of the samples that a training pass is of. */
#include "fleet/job/dataset_sampling.h"

#include "base/hash.h"
#include "data/layout/layout.h"
#include "fleet/job/handle.h"

enum { NEGATIVES = 0x6e65 }; /* the seed of draws is mixed with this */

static fleet_status check_negatives(const fleet_dataset_options *o)
{
    if (o->negative_rate == 0)
        return o->negative_label
                   ? fl_fail(FLEET_EINVAL, "dataset: negative_label: there is "
                                           "no negative_rate")
                   : FLEET_OK;
    if (!(o->negative_rate > 0 && o->negative_rate < 1))
        return fl_fail(FLEET_EINVAL,
                       "dataset: negative_rate: expected a number above 0 and "
                       "below 1, or 0, got %g",
                       o->negative_rate);
    return o->negative_label
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "dataset: negative_rate: there is no negative_label");
}

static fleet_status check_draws(const fleet_dataset_options *o)
{
    if (!(o->draw_most >= 0) || o->draw_most > 1e300)
        return fl_fail(FLEET_EINVAL,
                       "dataset: draw_most: expected a finite number above 0, "
                       "or 0, got %g",
                       o->draw_most);
    return o->draw_most == 0 || o->draw_slot
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL,
                         "dataset: draw_most: there is no draw_slot");
}

static fleet_status draw_by_weight(const fleet_dataset *d, fl_stream_spec *spec)
{
    const fleet_dataset_options *o = &d->options;
    int slot;

    if (!o->draw_slot)
        return FLEET_OK;
    slot = fl_slot_named(d->slots, d->n_slot, o->draw_slot);
    if (slot < 0 || fl_slot_dim(&d->slots[slot]) != 1 ||
        d->slots[slot].dtype == FLEET_INT64)
        return fl_fail(FLEET_EINVAL,
                       "dataset: draw_slot: \"%s\" is no slot of float and "
                       "dim 1",
                       o->draw_slot);
    spec->draw_slot = slot;
    spec->draw_most = o->draw_most == 0 ? 1 : o->draw_most;
    return FLEET_OK;
}

static fleet_status sample_negatives(const fleet_dataset *d,
                                     fl_stream_spec *spec)
{
    const fleet_dataset_options *o = &d->options;
    int slot;

    if (o->negative_rate == 0)
        return FLEET_OK;
    slot = fl_slot_named(d->slots, d->n_slot, o->negative_label);
    if (slot < 0 || fl_slot_dim(&d->slots[slot]) != 1)
        return fl_fail(FLEET_EINVAL,
                       "dataset: negative_label: \"%s\" is no slot of dim 1",
                       o->negative_label);
    spec->negative_rate = o->negative_rate;
    spec->negative_slot = slot;
    return FLEET_OK;
}

fleet_status fl_dataset_check_sampling(const fleet_dataset_options *o)
{
    FL_TRY(check_negatives(o));
    return check_draws(o);
}

fleet_status fl_dataset_sample(const fleet_dataset *d, fl_stream_spec *spec)
{
    const uint64_t seeds[] = {d->fleet->context.seed, (uint64_t)d->at.pass};

    spec->draw_seed = fl_hash(seeds, sizeof seeds, NEGATIVES);
    FL_TRY(sample_negatives(d, spec));
    return draw_by_weight(d, spec);
}
