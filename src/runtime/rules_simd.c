/* rules_simd.c - the arithmetic of the update rules (rule.h, optimizer.h).
 *
 * Each rule is one function on a vector of weights. APPLY makes of it the loop
 * over a dense range and the loop over rows.
 */
#include "runtime/simd.h"
#include "runtime/vec.h"

void FL_SIMD(fl_simd_rules)(fl_simd *t);

/* The scalars of an update, spread over lanes. */
typedef struct vec_update {
    vf lr, scale, clip, decay, a, b, one_minus_a, one_minus_b, epsilon;
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

static inline void adam(const vec_update *u, float *w, const float *g,
                        float *const *s, int k)
{
    vf x = v_load_row(w, k), d = effective(u, v_load_row(g, k), x);
    vf m = v_add(v_mul(u->a, v_load_row(s[0], k)), v_mul(u->one_minus_a, d));
    vf v = v_add(v_mul(u->b, v_load_row(s[1], k)),
                 v_mul(u->one_minus_b, v_mul(d, d)));
    vf below = v_add(v_sqrt(v_mul(v, u->correct_b)), u->epsilon);

    v_store_row(s[0], m, k);
    v_store_row(s[1], v, k);
    v_store_row(w, v_sub(x, v_div(v_mul(u->lr, v_mul(m, u->correct_a)), below)),
                k);
}

enum { AHEAD = 8 }; /* rows asked for before they are needed */
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

#define APPLY(rule, n_state)                                                   \
    static void rule##_dense(const fl_update *u, float *w, const float *g,     \
                             float *const *state, int64_t n)                   \
    {                                                                          \
        const vec_update v = spread(u);                                        \
                                                                               \
        FL_FOR_VEC(i, k, n)                                                    \
        {                                                                      \
            float *const s[] = {(n_state) > 0 ? state[0] + i : 0,              \
                                (n_state) > 1 ? state[1] + i : 0};             \
                                                                               \
            rule(&v, w + i, g + i, s, (int)k);                                 \
        }                                                                      \
    }                                                                          \
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

void FL_SIMD(fl_simd_rules)(fl_simd *t)
{
    t->sgd = sgd_dense;
    t->momentum = momentum_dense;
    t->adagrad = adagrad_dense;
    t->adam = adam_dense;
    t->sgd_rows = sgd_rows;
    t->momentum_rows = momentum_rows;
    t->adagrad_rows = adagrad_rows;
    t->adam_rows = adam_rows;
}
