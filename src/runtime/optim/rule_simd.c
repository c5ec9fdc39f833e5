/* rule_simd.c - the arithmetic of the update rules (rule.h, optimizer.h).
 *
 * Each rule is one function on a vector of weights. DENSE makes of it the loop
 * over a dense range, APPLY the one over rows, too.
 */
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

void FL_SIMD(fl_simd_rules)(fl_simd *t);

/* The scalars of an update, spread over lanes. */
typedef struct vec_update {
    vf lr, scale, clip, decay, apart, a, b, one_minus_a, one_minus_b, epsilon;
    vf correct_a, correct_b;
    int nesterov;
} vec_update;

static inline vec_update spread(const fl_update *u)
{
    return (vec_update){
        .lr = v_set(u->lr),
        .scale = v_set(u->scale),
        .clip = v_set(u->clip),
        .decay = v_set(u->decay),
        .apart = v_set(u->apart),
        .a = v_set(u->a),
        .b = v_set(u->b),
        .one_minus_a = v_set(u->one_minus_a),
        .one_minus_b = v_set(u->one_minus_b),
        .epsilon = v_set(u->epsilon),
        .correct_a = v_set(u->correct_a),
        .correct_b = v_set(u->correct_b),
        .nesterov = u->nesterov,
    };
}

static inline vf effective(const vec_update *u, vf g, vf w)
{
    return v_add(v_mul(v_mul(g, u->scale), u->clip), v_mul(u->decay, w));
}

static inline void sgd(const vec_update *u, float *w, const float *g,
                       float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);

    (void)s;
    v_store_row(w, v_sub(x, v_mul(u->lr, d)), k);
}

static inline void momentum(const vec_update *u, float *w, const float *g,
                            float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);
    vf v = v_add(v_mul(u->a, v_load_row(s[0], k)), d);

    v_store_row(s[0], v, k);
    if (u->nesterov)
        v = v_add(d, v_mul(u->a, v));
    v_store_row(w, v_sub(x, v_mul(u->lr, v)), k);
}

static inline void adagrad(const vec_update *u, float *w, const float *g,
                           float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);
    vf sum = v_add(v_load_row(s[0], k), v_mul(d, d));

    v_store_row(s[0], sum, k);
    v_store_row(
        w, v_sub(x, v_div(v_mul(u->lr, d), v_add(v_sqrt(sum), u->epsilon))), k);
}

/* The moments' step: what the rate is multiplied by, and what divides it. */
typedef struct fraction {
    vf above, below;
} fraction;

static inline fraction moments(const vec_update *u, vf d, float *const *s,
                               int k)
{
    vf m = v_add(v_mul(u->a, v_load_row(s[0], k)), v_mul(u->one_minus_a, d));
    vf v = v_add(v_mul(u->b, v_load_row(s[1], k)),
                 v_mul(u->one_minus_b, v_mul(d, d)));

    v_store_row(s[0], m, k);
    v_store_row(s[1], v, k);
    return (fraction){v_mul(m, u->correct_a),
                      v_add(v_sqrt(v_mul(v, u->correct_b)), u->epsilon)};
}

static inline void adam(const vec_update *u, float *w, const float *g,
                        float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);
    fraction f = moments(u, d, s, k);

    v_store_row(w, v_sub(x, v_div(v_mul(u->lr, f.above), f.below)), k);
}

/* The rate, which is a layer's own, goes into the velocity. */
static inline void lars(const vec_update *u, float *w, const float *g,
                        float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);
    vf v = v_add(v_mul(u->a, v_load_row(s[0], k)), v_mul(u->lr, d));

    v_store_row(s[0], v, k);
    v_store_row(w, v_sub(x, v), k);
}

/* Where to go, for s[2]; how far is known once all of the layer has it. */
static inline void lamb(const vec_update *u, float *w, const float *g,
                        float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);
    fraction f = moments(u, d, s, k);

    v_store_row(s[2], v_add(v_div(f.above, f.below), v_mul(u->apart, x)), k);
}

enum { AHEAD = 16 }; /* rows asked for before they are needed */
enum { HEAD = sizeof(fl_row_head) / sizeof(float) };

static inline void count_step(const fl_update *u, vec_update *v, float *w)
{
    fl_row_head *head = fl_row_of(w);
    uint32_t t = ++head->step;

    head->changed_at = u->version;
    if (u->n_correct == 0)
        return;
    if (t >= u->n_correct)
        t = u->n_correct - 1;
    v->correct_a = v_set(u->correct_a_at[t]);
    v->correct_b = v_set(u->correct_b_at[t]);
}

#define DENSE(rule, n_state)                                                   \
    static void rule##_dense(const fl_update *u, float *w, const float *g,     \
                             float *const *state, int64_t n)                   \
    {                                                                          \
        const vec_update v = spread(u);                                        \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        {                                                                      \
            float *const s[] = {(n_state) > 0 ? state[0] + i : 0,              \
                                (n_state) > 1 ? state[1] + i : 0,              \
                                (n_state) > 2 ? state[2] + i : 0};             \
                                                                               \
            rule(&v, w + i, g + i, s, (int)k);                                 \
        }                                                                      \
    }

#define APPLY(rule, n_state)                                                   \
    DENSE(rule, n_state)                                                       \
                                                                               \
    static void rule##_rows(const fl_update *u, float *const *w,               \
                            const float *const *g, int64_t n, int64_t dim)     \
    {                                                                          \
        vec_update v = spread(u);                                              \
                                                                               \
        for (int64_t r = 0; r < n; r++) {                                      \
            if (r + AHEAD < n) {                                               \
                v_prefetch(w[r + AHEAD] - HEAD, HEAD + (1 + (n_state)) * dim); \
                __builtin_prefetch(g[r + AHEAD]);                              \
            }                                                                  \
            count_step(u, &v, w[r]);                                           \
            FL_FOR_VEC(i, k, dim)                                              \
            {                                                                  \
                float *const s[] = {w[r] + dim + i, w[r] + 2 * dim + i};       \
                                                                               \
                rule(&v, w[r] + i, g[r] + i, s, (int)k);                       \
            }                                                                  \
        }                                                                      \
    }

APPLY(sgd, 0)
APPLY(momentum, 1)
APPLY(adagrad, 1)
APPLY(adam, 2)
DENSE(lars, 1)
DENSE(lamb, 3)

void FL_SIMD(fl_simd_rules)(fl_simd *t)
{
    t->sgd = sgd_dense;
    t->momentum = momentum_dense;
    t->adagrad = adagrad_dense;
    t->adam = adam_dense;
    t->lars = lars_dense;
    t->lamb = lamb_dense;
    t->sgd_rows = sgd_rows;
    t->momentum_rows = momentum_rows;
    t->adagrad_rows = adagrad_rows;
    t->adam_rows = adam_rows;
}
