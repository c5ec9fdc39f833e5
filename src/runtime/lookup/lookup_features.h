/* lookup_features.h - the features of a lookup's step, with the addresses of
 * their operands, for kernels. */
#pragma once

#include "runtime/device/cuda/warp_rows.h"
#include "runtime/store/lookup_kernels.h"

static inline const fl_device_lookup *fl_lookup_of(const fl_device_step *s)
{
    return static_cast<const fl_device_lookup *>(s->config);
}

/* --- features, with the addresses of their operands ----------------------- */

struct slot {
    const uint64_t *ids; /* the feature's first */
    int64_t ld;
    const int64_t *offsets; /* ragged: by sample */
    float *out;             /* NULL: not wanted, or without a gradient */
    int64_t out_ld;
    fleet_combiner combiner;
    const float *weights; /* NULL: none; as ids and offsets are */
    int nth_max;
};

struct features {
    const slot *feature;
    int n, ragged; /* ragged: at least one is */
    int64_t batch;
    uint32_t *winners; /* NULL: no feature is of FLEET_MAX */
    int n_max;
};

/* How many ids the feature has in that sample. */
__device__ static inline int64_t length_of(const slot &l, int64_t sample)
{
    return l.offsets ? l.offsets[sample + 1] - l.offsets[sample] : 1;
}

/* The position of the first id of a cell: ids of all samples before, and of
 * this one's features before. */
__device__ static inline int64_t position_of(const features &all,
                                             int64_t sample, int at)
{
    int64_t n = 0;

    if (!all.ragged)
        return sample * all.n + at;
    for (int i = 0; i < all.n; i++) {
        const slot &l = all.feature[i];
        int64_t upto = i < at ? sample + 1 : sample;

        n += l.offsets ? l.offsets[upto] : upto;
    }
    return n;
}

/* Of a feature of FLEET_MAX: which places of the sample have won. */
__device__ static inline uint32_t *winners_of(const features &all,
                                              const slot &l, int64_t sample,
                                              int64_t dim)
{
    return all.winners + (sample * all.n_max + l.nth_max) * dim;
}

struct state {
    slot *copy; /* in device memory */
    slot *host;
};

static inline state *state_of(const fl_device_step *s)
{
    return static_cast<state *>(s->state);
}

static inline slot launch_resolve(const fl_device_step *s,
                                  const fl_feature *from)
{
    const fl_device_arg *ids = &s->arg[from->ids];
    const fl_device_arg *out = from->out >= 0 ? &s->arg[from->out] : nullptr;
    slot l = {static_cast<const uint64_t *>(ids->data),
              ids->ld,
              from->ragged ? ids->offsets : nullptr,
              nullptr,
              0,
              from->combiner,
              nullptr,
              from->nth_max};

    if (!from->ragged)
        l.ids += from->column;
    if (from->weights)
        l.weights = static_cast<const float *>(s->arg[from->weights].data);
    if (out && out->data) {
        l.out = static_cast<float *>(out->data) + from->out_column;
        l.out_ld = out->ld;
    }
    return l;
}

static inline void features_finish(fl_device *d, fl_device_step *s)
{
    d->methods->free(d, nullptr, state_of(s)->copy);
    fl_free(state_of(s)->host);
    *state_of(s) = {};
}

static inline fleet_status features_prepare(fl_device *d, fl_queue *q,
                                            fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);
    size_t bytes = (size_t)c->n_feature * sizeof(slot);
    state *st = state_of(s);
    void *copy = nullptr;

    st->host = static_cast<slot *>(fl_alloc(bytes));
    if (!st->host)
        return FLEET_ENOMEM;
    for (int i = 0; i < c->n_feature; i++)
        st->host[i] = launch_resolve(s, &c->feature[i]);
    FL_TRY(d->methods->alloc(d, q, bytes, &copy));
    st->copy = static_cast<slot *>(copy);
    return d->methods->copy(d, q, copy, st->host, bytes, FL_TO_DEVICE);
}

static inline features features_of(const fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);
    features all = {state_of(s)->copy, c->n_feature, 0,
                    s->batch,          nullptr,      c->n_max};

    for (int i = 0; i < c->n_feature; i++)
        all.ragged |= c->feature[i].ragged;
    if (c->winners)
        all.winners = fl_step_ptr<uint32_t>(s, c->winners);
    return all;
}

/* May every feature's rows be read and written V floats at a time? */
template <int V> static inline bool features_fit(const fl_device_step *s)
{
    const fl_device_lookup *c = fl_lookup_of(s);

    for (int i = 0; i < c->n_feature; i++) {
        const slot &l = state_of(s)->host[i];

        if (l.out && !fl_fits_pack<V>(l.out, l.out_ld))
            return false;
    }
    return c->dim % V == 0;
}

#define FL_OF_FEATURES(name, run)                                              \
    FL_KERNEL_WITH(name, sizeof(state), features_prepare, features_finish, run)
