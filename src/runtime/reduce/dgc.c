/* dgc.c - deep gradient compression: ranks exchange the largest elements of
 * what their gradients have added up to, as pairs of place and value. So Lin et
 * al. 2017, "Deep Gradient Compression" (arXiv:1712.01887): momentum is applied
 * before (momentum correction), what is not sent is kept for later (local
 * accumulation), and what is sent loses its momentum (factor masking).
 *
 * A rank whose pass is over goes on to send what it has left.
 */
#include "runtime/reduce/dgc.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "runtime/plan/agree.h"

typedef struct pair {
    uint32_t at; /* in the parameter */
    float value;
} pair;

/* --- how much ------------------------------------------------------------ */

/* The part of a parameter that is sent: in a warm-up it shrinks by one factor
 * per update, from a quarter to what was asked. */
static double density_at(const fl_training *t, int64_t step)
{
    double last = 1 - (double)t->dgc.sparsity, first = 0.25;
    double done = (double)(step + 1) / (double)t->dgc.ramp;

    if (done >= 1 || last >= first)
        return last;
    return first * pow(last / first, done);
}

double fl_dgc_density(const fl_training *t, int64_t updates)
{
    if (!t->dgc.on || updates < t->dgc.begin)
        return 0;
    return density_at(t, updates - t->dgc.begin);
}

static int64_t count_of(int64_t n, double density)
{
    int64_t k = (int64_t)ceil((double)n * density);

    return k < 1 ? 1 : k > n ? n : k;
}

bool fl_dgc_takes(const fl_lowering *l, const fl_param *p)
{
    const fl_training *t = &l->program->training;

    return t->dgc.on && l->plan->store->agree && p->attr.average == 0 &&
           p->n >= t->dgc.smallest;
}

/* --- dgc.pick ------------------------------------------------------------ */

enum { THE_UPDATE, GRADIENT, PAIRS, MOMENTUM, LEFT };

static int64_t gradient_length(const fl_instance *in)
{
    return in->arg[GRADIENT].rows * in->arg[GRADIENT].cols;
}

static void add_up(const fl_update *u, const float *g, float *momentum,
                   float *left, int64_t n)
{
    const float mu = FL_NUMBER_OF(u, MOMENTUM, momentum);
    const bool nesterov = FL_NUMBER_OF(u, MOMENTUM, nesterov) != 0.0f;

    for (int64_t i = 0; i < n; i++) {
        float x = g ? g[i] * u->scale : 0.0f;

        if (nesterov) {
            momentum[i] = mu * (momentum[i] + x);
            left[i] += momentum[i] + x;
        } else {
            momentum[i] = mu * momentum[i] + x;
            left[i] += momentum[i];
        }
    }
}

/* As a number that orders as the size does. */
static uint32_t size_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u & 0x7FFFFFFF;
}

/* The k-th largest size, a byte at a time; *equal: how many of the k are of
 * just that size. */
static uint32_t find_kth(const float *x, int64_t n, int64_t k, int64_t *equal)
{
    uint32_t found = 0, known = 0;

    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        uint32_t b = 255;

        for (int64_t i = 0; i < n; i++)
            if ((size_of(x[i]) & known) == found)
                count[size_of(x[i]) >> shift & 255]++;
        while (count[b] < k)
            k -= count[b--];
        found |= b << shift;
        known |= 255u << shift;
    }
    *equal = k;
    return found;
}

static void pick_largest(float *left, float *momentum, int64_t n, int64_t k,
                         pair *out)
{
    int64_t equal;
    uint32_t least = find_kth(left, n, k, &equal);

    for (int64_t i = 0; i < n; i++) {
        uint32_t size = size_of(left[i]);

        if (size < least || (size == least && equal-- <= 0))
            continue;
        *out++ = (pair){(uint32_t)i, left[i]};
        left[i] = momentum[i] = 0;
    }
}

static fleet_status pick_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    float *momentum = fl_ptr(in, MOMENTUM), *left = fl_ptr(in, LEFT);
    int64_t n = gradient_length(in);

    (void)r;
    if (now->density == 0)
        return FLEET_OK;
    add_up(&now->u, now->joins ? NULL : fl_ptr(in, GRADIENT), momentum, left,
           n);
    pick_largest(left, momentum, n, count_of(n, now->density),
                 fl_ptr(in, PAIRS));
    return FLEET_OK;
}

static const fl_kernel kernel_pick = {
    .name = "dgc.pick",
    .split = FL_SPLIT_PARTS,
    .run = pick_run,
    .on_host = true,
};

/* --- dgc.exchange, dgc.add ----------------------------------------------- */

enum { ALL = 3 };

static fleet_status exchange_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    fl_store *const *store = in->step->config;
    fl_comm *p = (*store)->agree->comm;
    int64_t k = count_of(gradient_length(in), now->density);

    (void)r;
    if (now->density == 0)
        return FLEET_OK;
    return p->methods->all_gather(p, fl_ptr(in, PAIRS), fl_ptr(in, ALL),
                                  k * (int64_t)sizeof(pair), NULL);
}

static const fl_kernel kernel_exchange = {
    .name = "dgc.exchange",
    .split = FL_SPLIT_PARTS,
    .run = exchange_run,
};

/* Pairs lie in rank order, and so they are added. */
static fleet_status add_run(const fl_instance *in, const fl_range *r)
{
    const fl_update_now *now = fl_ptr(in, THE_UPDATE);
    fl_store *const *store = in->step->config;
    int64_t n = gradient_length(in);
    int64_t pairs = (*store)->agree->comm->size * count_of(n, now->density);
    const pair *all = fl_ptr(in, PAIRS);
    float *g = fl_ptr(in, GRADIENT);

    (void)r;
    if (now->density == 0)
        return FLEET_OK;
    memset(g, 0, (size_t)n * sizeof *g);
    for (int64_t i = 0; i < pairs; i++) {
        if (all[i].at >= n)
            return fl_fail(FLEET_EPEER,
                           "strategy.dgc: rank %d sent element %u of a "
                           "parameter of %lld",
                           (int)(i / count_of(n, now->density)), all[i].at,
                           (long long)n);
        g[all[i].at] += all[i].value;
    }
    return FLEET_OK;
}

static const fl_kernel kernel_add = {
    .name = "dgc.add",
    .split = FL_SPLIT_PARTS,
    .run = add_run,
    .on_host = true,
};

/* --- steps --------------------------------------------------------------- */

static int pairs_of(fl_lowering *l, const char *name, int64_t n)
{
    const fl_shape shape = fl_shape_1(n * (int64_t)sizeof(pair));

    return fl_temp(l, name, FLEET_UINT8, &shape);
}

void fl_emit_dgc(fl_lowering *l, const fl_dense *d, int64_t offset, int64_t n)
{
    fl_store *store = l->plan->store;
    int64_t most = count_of(n, density_at(&l->program->training, 0));
    int gradient = fl_stretch(l, d->gradient, "bucket", offset, n);
    int mine = pairs_of(l, "pairs", most);
    int all = pairs_of(l, "all pairs", most * store->agree->comm->size);
    int momentum = fl_flat_value(l, FL_VALUE_PARAM, "dgc momentum", n,
                                 d->flat->residual[0] + offset);
    int left = fl_flat_value(l, FL_VALUE_PARAM, "dgc left", n,
                             d->flat->residual[1] + offset);
    const void *config = fl_config(l, &store, sizeof store);

    FL_EMIT(l, &kernel_pick, NULL, NULL, FL_R(l->plan->update), FL_R(gradient),
            FL_W(mine), FL_RW(momentum), FL_RW(left));
    l->engine = FL_ENGINE_COMM;
    FL_EMIT(l, &kernel_exchange, NULL, config, FL_R(l->plan->update),
            FL_R(gradient), FL_R(mine), FL_W(all));
    l->engine = FL_ENGINE_COMPUTE;
    FL_EMIT(l, &kernel_add, NULL, config, FL_R(l->plan->update),
            FL_RW(gradient), FL_R(all));
}
