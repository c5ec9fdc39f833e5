/* initializer.c - first values of parameters and rows. */
#include "runtime/graph/initializer.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"

fleet_initializer fl_initializer_of(const fleet_initializer *i, int64_t fan_in,
                                    int64_t fan_out)
{
    double in = (double)fan_in, both = (double)(fan_in + fan_out);
    float limit;

    switch (i->kind) {
    case FLEET_INIT_XAVIER_UNIFORM:
        limit = (float)sqrt(6.0 / both);
        return (fleet_initializer){FLEET_INIT_UNIFORM, -limit, limit};
    case FLEET_INIT_XAVIER_NORMAL:
        return (fleet_initializer){FLEET_INIT_NORMAL, 0,
                                   (float)sqrt(2.0 / both)};
    case FLEET_INIT_KAIMING_UNIFORM:
        limit = (float)sqrt(6.0 / in);
        return (fleet_initializer){FLEET_INIT_UNIFORM, -limit, limit};
    case FLEET_INIT_KAIMING_NORMAL:
        return (fleet_initializer){FLEET_INIT_NORMAL, 0, (float)sqrt(2.0 / in)};
    default:
        return *i;
    }
}

fl_filler fl_filler_make(const fleet_initializer *i, int64_t fan_in,
                         int64_t fan_out, uint64_t seed, const char *name)
{
    fleet_initializer of = fl_initializer_of(i, fan_in, fan_out);

    return (fl_filler){.kind = of.kind,
                       .a = of.a,
                       .b = of.b,
                       .seed = seed,
                       .stream = fl_hash(name, strlen(name), 0)};
}

/* n elements of the sequence (seed, stream), from that one on. */
static void fill_values(const fl_filler *f, uint64_t seed, uint64_t stream,
                        uint64_t first, float *out, int64_t n)
{
    switch (f->kind) {
    case FLEET_INIT_UNIFORM:
        fl_rng_uniform(seed, stream, first, f->a, f->b, out, n);
        break;
    case FLEET_INIT_NORMAL:
        fl_rng_normal(seed, stream, first, f->a, f->b, out, n);
        break;
    case FLEET_INIT_TRUNCATED_NORMAL:
        fl_rng_truncated_normal(seed, stream, first, f->a, f->b, out, n);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            out[i] = f->a;
    }
}

void fl_filler_dense(const fl_filler *f, int64_t first, float *out, int64_t n)
{
    fill_values(f, f->seed, f->stream, (uint64_t)first, out, n);
}

uint64_t fl_filler_row_seed(const fl_filler *f)
{
    return f->seed ^ fl_mix(f->stream);
}

void fl_filler_row(const fl_filler *f, uint64_t key, float *out, int64_t n)
{
    fill_values(f, fl_filler_row_seed(f), key, 0, out, n);
    if (f->vector_at > 0 && f->vector_at < n)
        memset(out + f->vector_at, 0, (size_t)(n - f->vector_at) * sizeof *out);
}

/* Another sequence than the row's own. */
void fl_filler_vector(const fl_filler *f, uint64_t key, float *out, int64_t n)
{
    fill_values(f, fl_mix(fl_filler_row_seed(f) + 1), key, 0,
                out + f->vector_at, n - f->vector_at);
}

fleet_status fl_initializer_check(const char *what, const fleet_initializer *i)
{
    bool good = isfinite(i->a) && isfinite(i->b);

    if (i->kind == FLEET_INIT_UNIFORM)
        good = good && i->a <= i->b;
    if (i->kind == FLEET_INIT_NORMAL || i->kind == FLEET_INIT_TRUNCATED_NORMAL)
        good = good && i->b >= 0;
    if ((int)i->kind < 0 || i->kind > FLEET_INIT_KAIMING_NORMAL)
        good = false;
    return good ? FLEET_OK
                : fl_fail(FLEET_EINVAL,
                          "%s: initializer %d with a = %g and b = %g is not "
                          "possible",
                          what, (int)i->kind, (double)i->a, (double)i->b);
}
