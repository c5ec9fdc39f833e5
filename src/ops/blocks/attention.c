/* attention.c - multi-head attention, of products and a softmax. */
#include <fleet/interactions.h>
#include <fleet/sequence.h>
#include <math.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"

static fleet_status check_input(const char *what, const fleet_var *x,
                                const fleet_var *query)
{
    if (x->dtype == FLEET_FLOAT32 && !x->ragged && x->shape.n_dim == 3 &&
        fl_shape_batched(&x->shape) && x->shape.dim[0] == query->shape.dim[0])
        return FLEET_OK;
    return fl_fail(FLEET_ESHAPE,
                   "multi_head_attention: the %s \"%s\" has shape %s; expected "
                   "[-1,L,N] of float32",
                   what, x->name, fl_shape_print(&x->shape).chars);
}

static fleet_status check_options(const fleet_attention_options *o)
{
    if (o->heads < 1 || o->units < 1 || o->units % o->heads != 0)
        return fl_fail(FLEET_EINVAL,
                       "multi_head_attention: heads %lld of units %lld; "
                       "expected a number that divides the units",
                       (long long)o->heads, (long long)o->units);
    return FLEET_OK;
}

/* x W + b, of all positions. */
static fleet_var *project(fleet_program *p, fleet_var *x, const char *layer,
                          const char *suffix, const fleet_attention_options *o,
                          bool activates)
{
    const char *w = fl_arena_format(&p->arena, "%s.%s", layer, suffix);
    const char *b = fl_arena_format(&p->arena, "%s.%s_bias", layer, suffix);

    if (!w || !b)
        return fl_program_failed(p, FLEET_ENOMEM);
    return fleet_fc(p, x, o->units,
                    &(fleet_fc_options){.name = layer,
                                        .activation = activates ? o->activation
                                                                : FLEET_LINEAR,
                                        .weight.name = w,
                                        .bias.name = b,
                                        .no_bias = o->no_bias,
                                        .num_flatten_dims = 2});
}

/* [B, L, U] -> [B, H, L, U / H]. Of one head, or one place, nothing moves. */
static fleet_var *into_heads(fleet_program *p, fleet_var *x, int64_t heads)
{
    static const int perm[] = {0, 2, 1, 3};
    int64_t length, size;

    if (!x)
        return NULL;
    length = x->shape.dim[1], size = x->shape.dim[2] / heads;
    if (heads == 1 || length == 1)
        return fleet_reshape(p, x, (int64_t[]){-1, heads, length, size}, 4);
    x = fleet_reshape(p, x, (int64_t[]){-1, length, heads, size}, 4);
    return fleet_transpose(p, x, perm, 4);
}

/* And back. */
static fleet_var *out_of_heads(fleet_program *p, fleet_var *x, int64_t units)
{
    static const int perm[] = {0, 2, 1, 3};
    int64_t length;

    if (!x)
        return NULL;
    length = x->shape.dim[2];
    if (x->shape.dim[1] != 1 && length != 1)
        x = fleet_transpose(p, x, perm, 4);
    return fleet_reshape(p, x, (int64_t[]){-1, length, units}, 3);
}

static fleet_var *weights_of(fleet_program *p, fleet_var *q, fleet_var *k,
                             const fleet_attention_options *o)
{
    double size = (double)(o->units / o->heads);
    fleet_var *score = fleet_batch_matmul(p, q, k, 0, 1);

    if (!o->no_scale)
        score = fleet_scale(p, score, (float)(1 / sqrt(size)), 0);
    score = o->causal ? fleet_causal_softmax(p, score, o->mask)
            : o->mask ? fleet_masked_softmax(p, score, o->mask)
                      : fleet_softmax(p, score);
    return o->dropout != 0 ? fleet_dropout(p, score, o->dropout) : score;
}

static fleet_var *attend(fleet_program *p, fleet_var *query, fleet_var *key,
                         fleet_var *value, const fleet_attention_options *o)
{
    fleet_var *q = project(p, query, o->name, "q", o, true);
    fleet_var *k = project(p, key, o->name, "k", o, true);
    fleet_var *v = project(p, value, o->name, "v", o, true);

    q = into_heads(p, q, o->heads);
    k = into_heads(p, k, o->heads);
    v = into_heads(p, v, o->heads);
    v = fleet_batch_matmul(p, weights_of(p, q, k, o), v, 0, 0);
    v = out_of_heads(p, v, o->units);
    return o->no_out ? v : project(p, v, o->name, "out", o, false);
}

fleet_var *fleet_multi_head_attention(fleet_program *p, fleet_var *query,
                                      fleet_var *key, fleet_var *value,
                                      const fleet_attention_options *options)
{
    fleet_attention_options o = {0};
    fleet_status status;

    if (options)
        o = *options;
    key = key ? key : query;
    value = value ? value : key;
    if (!fl_builder_ready(p, query) || !fl_builder_ready(p, key) ||
        !fl_builder_ready(p, value))
        return NULL;
    status = check_input("query", query, query);
    if (status == FLEET_OK)
        status = check_input("key", key, query);
    if (status == FLEET_OK)
        status = check_input("value", value, query);
    if (status == FLEET_OK) {
        o.heads = o.heads ? o.heads : 1;
        o.units = o.units ? o.units : query->shape.dim[2];
        status = check_options(&o);
    }
    if (status == FLEET_OK && !o.name) {
        o.name = fl_program_name(p, "attention");
        status = o.name ? FLEET_OK : FLEET_ENOMEM;
    }
    return status == FLEET_OK ? attend(p, query, key, value, &o)
                              : fl_program_failed(p, status);
}
